"""Writes the golden files of the function library: what JAX and NumPy compute for each public function.

Run it with the packages of `../requirements.txt`:

    python golden/functions/make.py             # all files
    python golden/functions/make.py fft nn      # some

A line is

    <function> <inputs> <parameters> = <results> | <gradients>

Inputs are separated by `;` (`-` is none). `f32:s2x3#7` is an f32 tensor of shape [2, 3] whose elements follow from its
kind (`s`) and its seed (7) by the formula of `number` below, which the test knows too; `f32:3=1.0,nan` spells them out.
Parameters are `key:value`, separated by `;`. Results and gradients are `type hex`, separated by `,`, in little-endian
bytes. A gradient is that of the sum of all float results, each weighted by the kind-`s` numbers of seed 100 + its place;
it is given for every float input, or not at all.

Everything is computed in float64. A line for f32 has the same inputs, which are exact in f32, and rounds the results, so
that it doesn't contain the noise of another implementation.
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import importlib
import pathlib

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

HERE = pathlib.Path(__file__).parent
FILES = ["np", "nn", "special", "linalg", "fft", "lax", "optim", "compose"]
NAMES = {
    "float32": "f32", "float64": "f64", "bool": "bool", "float16": "f16", "bfloat16": "bf16",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}
DTYPES = {v: k for k, v in NAMES.items()} | {"f": "float64"}


def noise(seed, i):
    x = (seed * 7919 + i * 104729 + 12345) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 2246822519 & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 3266489917 & 0xFFFFFFFF
    x ^= x >> 16
    return x & 255


def number(kind, k):
    """A number from one of 256, exact in f32: `s`igned, `p`ositive, `u`nit interval, `i`nteger, `n`atural, `b`ool."""
    return {
        "s": (2 * k - 255) / 128,
        "p": (k + 32) / 128,
        "u": (2 * k + 1) / 512,
        "i": k % 10 - 3,
        "n": k % 8,
        "b": k & 1,
    }[kind]


class Input:
    def __init__(self, dtype, shape, kind=None, seed=0, values=None):
        self.dtype, self.shape, self.kind, self.seed, self.values = dtype, shape, kind, seed, values
        if values is None:
            values = [number(kind, noise(seed, i)) for i in range(int(np.prod(shape)))]
        self.array = np.array(values, dtype=DTYPES[dtype]).reshape(shape)

    def text(self, float_name):
        dtype = float_name if self.dtype == "f" else self.dtype
        shape = "x".join(map(str, self.shape)) or "."
        if self.values is None:
            return f"{dtype}:{self.kind}{shape}#{self.seed}"
        flat = ",".join(repr(x) for x in np.asarray(self.values).reshape(-1).tolist()) or "."
        return f"{dtype}:{shape}={flat}"


def _inputs(kind, dtype):
    def make(*shape, seed=1, dtype=dtype):
        return Input(dtype, shape, kind, seed)

    return make


signed, positive, unit = _inputs("s", "f"), _inputs("p", "f"), _inputs("u", "f")
integer, natural, boolean = _inputs("i", "i32"), _inputs("n", "i32"), _inputs("b", "bool")


def given(values, dtype="f", shape=None):
    shape = shape or np.shape(values)
    return Input(dtype, shape, values=values)


def weights(shape, k):
    n = int(np.prod(shape))
    return np.array([number("s", noise(100 + k, i)) for i in range(n)]).reshape(shape)


def tensor(x, float_name):
    x = np.asarray(x)
    if x.dtype == np.float64:
        x = x.astype(DTYPES[float_name])
    kind = f"{NAMES[str(x.dtype)]}[{'x'.join(map(str, x.shape))}]"
    return f"{kind} {np.ascontiguousarray(x).tobytes().hex() or '-'}"


def listed(y):
    return list(y) if isinstance(y, (tuple, list)) else [y]


class Writer:
    def __init__(self):
        self.lines = []

    def case(self, name, fn, *inputs, grad=True, floats=("f32", "f64"), **params):
        arrays = [jnp.asarray(i.array) for i in inputs]
        outs = [np.asarray(y) for y in listed(fn(*arrays))]
        wrt = [k for k, i in enumerate(inputs) if i.dtype == "f"]
        of = [k for k, y in enumerate(outs) if y.dtype == np.float64]
        grads = []
        if grad and wrt and of:

            def loss(*xs):
                full = list(arrays)
                for k, x in zip(wrt, xs):
                    full[k] = x
                ys = listed(fn(*full))
                return sum(jnp.sum(ys[k] * weights(outs[k].shape, k)) for k in of)

            grads = jax.grad(loss, argnums=tuple(range(len(wrt))))(*[arrays[k] for k in wrt])
            grads = [np.asarray(g) for g in grads]
        bound = any(i.dtype == "f" for i in inputs) or any(y.dtype == np.float64 for y in outs)
        for f in floats if bound else ("f32",):
            head = ";".join(i.text(f) for i in inputs) or "-"
            tail = ";".join(f"{k}:{f if v == 'f' else v}" for k, v in params.items()) or "-"
            line = f"{name} {head} {tail.replace(' ', '')} = {','.join(tensor(y, f) for y in outs)}"
            if grads:
                line += " | " + ",".join(tensor(g, f) for g in grads)
            self.lines.append(line)


def main():
    sys.path.insert(0, str(HERE))
    total = 0
    for file in sys.argv[1:] or FILES:
        w = Writer()
        importlib.import_module(f"cases_{file}").write(w)
        path = HERE / f"{file}.golden"
        path.write_text("\n".join(w.lines) + "\n")
        total += len(w.lines)
        print(f"{file}: {len(w.lines)} lines, {path.stat().st_size // 1024} KiB")
    print(total, "lines")


if __name__ == "__main__":
    sys.modules["make"] = sys.modules["__main__"]
    main()
