"""Writes dtypes.golden: the dtype and the values of every public function for operands of every dtype.

Run it with the packages of `../requirements.txt`:

    python golden/functions/dtypes.py

For each function one call of `cases_*.py` is repeated with its operands in each of 13 dtypes: the float operands where there
are some, else all. JAX says what dtype the result has and, computed in float64, which values. Lines are those of `make.py`;
where a call is refused the results are the word `refused`. A line that begins with `#` says why results differ from JAX's:

- without f64 operands, functions of real numbers give f32 for integers (JAX gives its default float, here float64),
- sums, products and running sums of unsigned integers below u64 are i64 (JAX: uint64),
- what DIFFERENT below lists, by function and dtype.
"""

import importlib
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import ml_dtypes
import numpy as np

import make

sys.modules["make"] = make

DTYPES = ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
FILES = ["np", "nn", "special", "linalg", "fft", "lax"]
NUMPYS = {"bf16": ml_dtypes.bfloat16} | {d: make.DTYPES[d] for d in DTYPES if d != "bf16"}

# Function (or `module.*`), dtypes, what it gives, and why. `refused` is an error; a dtype stands in place of JAX's.
INTEGERS = [d for d in DTYPES if d not in FLOATS]
DIFFERENT = []


def different(name, d):
    for names, dtypes, gives, why in DIFFERENT:
        if d in dtypes and (name in names.split() or name.split(".")[0] + ".*" in names.split()):
            return gives, why
    return None


class Cases:
    """Takes the calls of `cases_*.py` in the place of a writer."""

    def __init__(self):
        self.all = {}

    def case(self, name, fn, *inputs, **params):
        self.all.setdefault(name, []).append((fn, inputs, {k: v for k, v in params.items() if k not in ("grad", "floats")}))


def chosen(cases):
    """The first call with finite float operands, else with any operands."""
    finite = lambda inputs: all(np.all(np.isfinite(np.asarray(i.array, "float64"))) for i in inputs)  # noqa: E731
    for wanted in (lambda i: any(x.dtype == "f" for x in i), lambda i: len(i) > 0):
        for fn, inputs, params in cases:
            if wanted(inputs) and finite(inputs):
                return fn, inputs, params
    return None


def operand(i, d):
    """An operand in another dtype: kinds of numbers that it has no place for become small integers."""
    if i.values is None:
        kind = i.kind
        if d == "bool":
            kind = "b"
        elif d not in FLOATS:
            kind = {"s": "i" if d[0] == "i" else "n", "i": "i" if d[0] == "i" else "n", "p": "n", "u": "b"}.get(kind, kind)
        return make.Input("f" if d == "f64" else d, i.shape, kind, i.seed) if d != "bf16" else Bf16(i.shape, kind, i.seed)
    values = np.asarray(i.values, "float64").reshape(-1)
    if d == "bool":
        values = values != 0
    elif d not in FLOATS:
        values = np.clip(np.trunc(np.abs(values) if d[0] == "u" else values), -100, 100).astype("int64")
    else:
        values = values.astype(NUMPYS[d]).astype("float64")
    values = values.tolist()
    return make.Input("f" if d == "f64" else d, i.shape, values=values) if d != "bf16" else Bf16(i.shape, values=values)


class Bf16(make.Input):
    def __init__(self, shape, kind=None, seed=0, values=None):
        super().__init__("f32", shape, kind, seed, values)
        self.dtype, self.array = "bf16", self.array.astype(ml_dtypes.bfloat16)


def text(y, dtype):
    y = np.asarray(y).astype(NUMPYS[dtype])
    return f"{dtype}[{'x'.join(map(str, y.shape))}] {np.ascontiguousarray(y).tobytes().hex() or '-'}"


def dtype_of(y, d):
    name = "bf16" if y.dtype == ml_dtypes.bfloat16 else make.NAMES[str(y.dtype)]
    if name == "f64" and d != "f64":
        return d if d in FLOATS else "f32"
    return "i64" if name == "u64" and d != "u64" else name


def results(fn, inputs, d):
    """Values in float64, and the dtypes that they are rounded to."""
    ys = [np.asarray(y) for y in make.listed(fn(*[jax.numpy.asarray(i.array) for i in inputs]))]
    dtypes = [dtype_of(y, d) for y in ys]
    if d in FLOATS and d != "f64":
        wide = [jax.numpy.asarray(i.array.astype("float64") if i.dtype == d else i.array) for i in inputs]
        ys = [np.asarray(y) for y in make.listed(fn(*wide))]
    return ys, dtypes


def lines_of(name, cases):
    call = chosen(cases)
    if call is None:
        return [], []
    fn, inputs, params = call
    floats = any(i.dtype == "f" for i in inputs)
    kind = "f" if floats else inputs[0].dtype
    lines, without = [], []
    for d in DTYPES:
        own = [operand(i, d) if i.dtype == kind else i for i in inputs]
        head = ";".join(i.text("f64") for i in own)
        tail = ";".join(f"{k}:{d if v == 'f' else v}" for k, v in params.items()) or "-"
        head = f"{name} {head} {tail.replace(' ', '')} = "
        known = different(name, d)
        if known and known[0] == "refused":
            lines.append(head + "refused")
            continue
        try:
            ys, dtypes = results(fn, own, d)
        except Exception as e:  # noqa: BLE001
            without.append((d, f"{type(e).__name__}: {e}".split("\n")[0][:90]))
            continue
        if known:
            dtypes = [known[0]] * len(dtypes)
        lines.append(head + ",".join(text(y, t) for y, t in zip(ys, dtypes)))
    return lines, without


def main():
    sys.path.insert(0, str(make.HERE))
    out = ["# Functions of real numbers give f32 for integers; sums of unsigned integers below u64 are i64: docs/broadcasting.md."]
    out += [f"# {names} of {' '.join(dtypes)}: {gives}, since {why}" for names, dtypes, gives, why in DIFFERENT]
    missing = {}
    for file in FILES:
        w = Cases()
        importlib.import_module(f"cases_{file}").write(w)
        for name, cases in w.all.items():
            lines, without = lines_of(name, cases)
            out += lines
            for d, why in without:
                missing.setdefault((name, why), []).append(d)
        print(file, len(out), flush=True)
    for (name, why), dtypes in missing.items():
        out.append(f"# {name} of {' '.join(dtypes)}: JAX has none")
        print(name, dtypes, why)
    path = make.HERE / "dtypes.golden"
    path.write_text("\n".join(out) + "\n")
    print(len(out), "lines,", path.stat().st_size // 1024, "KiB")


if __name__ == "__main__":
    main()
