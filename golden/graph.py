"""A graph written twice at once: as Tensorloom's text form, and as the JAX or PyTorch function it stands for."""

import numpy as np
import ml_dtypes
import jax
import jax.numpy as jnp

NAMES = {
    "bool": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
DTYPES = {np.dtype(v): k for k, v in NAMES.items()}
FLOATS = ["f64", "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2"]
INTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


def name_of(x):
    return DTYPES[np.dtype(x.dtype)]


def is_float(x):
    return name_of(x) in FLOATS


def type_of(x):
    return f"{name_of(x)}[{','.join(str(d) for d in x.shape)}]"


def attr(value):
    """An attribute value in the text form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(attr(v) for v in value) + "]"
    return str(value)


class V:
    """A value: its number, and what it is for the sample inputs."""

    def __init__(self, n, value):
        self.n, self.value = n, value
        self.shape, self.dtype = value.shape, value.dtype


class Graph:
    """Built op by op; each op brings the function that computes it in the reference framework."""

    def __init__(self, *inputs):
        self.arrays = [np.asarray(x) for x in inputs]
        self.values = [V(i, jnp.asarray(x)) for i, x in enumerate(self.arrays)]
        self.inputs = list(self.values)
        self.lines, self.steps = [], []

    def op(self, name, args, fn, /, **attrs):
        """Adds an op; gives its result, or a list if `fn` gives several."""
        results = fn(*[a.value for a in args])
        several = isinstance(results, (list, tuple))
        results = list(results) if several else [results]
        outs = [V(len(self.values) + i, r) for i, r in enumerate(results)]
        self.values += outs
        text = ", ".join(f"{k}={attr(v)}" for k, v in attrs.items())
        self.lines.append(
            "  {} = {}({}){} : {}".format(
                ", ".join(f"%{o.n}" for o in outs),
                name,
                ", ".join(f"%{a.n}" for a in args),
                f" {{{text}}}" if text else "",
                ", ".join(type_of(o.value) for o in outs),
            )
        )
        self.steps.append((fn, [a.n for a in args], [o.n for o in outs], several))
        return outs if several else outs[0]

    def text(self, outs, indent=""):
        ins = ", ".join(f"%{v.n}: {type_of(v.value)}" for v in self.inputs)
        returns = ", ".join(f"%{o.n}" for o in outs)
        lines = [f"graph ({ins}) {{"] + self.lines + [f"  return {returns}", "}"]
        return ("\n" + indent).join("\n".join(lines).split("\n"))

    def function(self, outs):
        """The same function in the reference framework."""

        def f(*inputs):
            env = dict(enumerate(inputs))
            for fn, args, results, several in self.steps:
                r = fn(*[env[a] for a in args])
                for n, x in zip(results, r if several else [r]):
                    env[n] = x
            return [env[o.n] for o in outs]

        return f
