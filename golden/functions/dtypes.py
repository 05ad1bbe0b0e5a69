"""Writes dtypes.golden: the dtype and the values of every public function for operands of every dtype.

Run it with the packages of `../requirements.txt`:

    python golden/functions/dtypes.py

For each function one call of `cases_*.py` is repeated with its operands in each of 13 dtypes: the float operands where there
are some, else all. JAX says what dtype the result has and, computed in float64, which values. Lines are those of `make.py`, but

- without f64 operands, functions of real numbers give f32 for integers (JAX gives its default float, here float64),
- sums, products and running sums of unsigned integers below u64 are i64 (JAX: uint64).

A line that begins with `#` names dtypes that JAX refuses. What else differs on purpose is listed, with its reason, in
`crates/tensorloom/tests/functions/dtypes.rs`.
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

# Integers divided by zero: docs/numerics.md says what they give here.
DIVIDE = {"np.floor_divide", "np.divmod", "np.remainder", "np.fmod"}
# What depends on the dtype itself is not computed in float64.
OWN = {"np.spacing": lambda x: np.spacing(np.asarray(x)), "np.nextafter": None, "np.finfo": None}


class Cases:
    """Takes the calls of `cases_*.py` in the place of a writer: the first with finite float operands of each function, else
    the first with any."""

    def __init__(self):
        self.lines, self.without, self.ranks = {}, {}, {}

    def case(self, name, fn, *inputs, **params):
        rank = 3 if any(i.dtype == "f" for i in inputs) else 2 * int(len(inputs) > 0)
        if any(not np.all(np.isfinite(np.asarray(i.array, "float64"))) for i in inputs):
            # Only where there is no other call: numbers that integers don't have are replaced.
            rank, inputs = 1, [finite(i) for i in inputs]
        if rank > self.ranks.get(name, 0):
            params = {k: v for k, v in params.items() if k not in ("grad", "floats")}
            self.ranks[name] = rank
            self.lines[name], self.without[name] = lines_of(name, OWN.get(name) or fn, inputs, params)


def finite(i):
    values = np.asarray(i.array, "float64")
    return make.Input(i.dtype, i.shape, values=np.where(np.isfinite(values), values, 0.5).reshape(-1).tolist()) if i.dtype == "f" else i


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


def results(name, fn, inputs, d):
    """Values in float64, and the dtypes that they are rounded to."""
    ys = [np.asarray(y) for y in make.listed(fn(*[jax.numpy.asarray(i.array) for i in inputs]))]
    dtypes = [dtype_of(y, d) for y in ys]
    if d in FLOATS and d != "f64" and name not in OWN:
        wide = [jax.numpy.asarray(i.array.astype("float64") if i.dtype == d else i.array) for i in inputs]
        ys = [np.asarray(y) for y in make.listed(fn(*wide))]
    return ys, dtypes


def lines_of(name, fn, inputs, params):
    floats = any(i.dtype == "f" for i in inputs)
    kind = "f" if floats else inputs[0].dtype
    lines, without = [], []
    for d in DTYPES:
        own = [operand(i, d) if i.dtype == kind else i for i in inputs]
        if name in DIVIDE and d not in FLOATS:
            own[1] = make.Input(d, own[1].shape, values=[x or 1 for x in own[1].array.reshape(-1).tolist()])
        head = ";".join(i.text("f64") for i in own)
        tail = ";".join(f"{k}:{d if v == 'f' else v}" for k, v in params.items()) or "-"
        head = f"{name} {head} {tail.replace(' ', '')} = "
        try:
            ys, dtypes = results(name, fn, own, d)
        except Exception:  # noqa: BLE001
            without.append(d)
            continue
        lines.append(head + ",".join(text(y, t) for y, t in zip(ys, dtypes)))
    return lines, without


def main():
    sys.path.insert(0, str(make.HERE))
    out = ["# Functions of real numbers give f32 for integers; sums of unsigned integers below u64 are i64: docs/broadcasting.md."]
    missing = {}
    for file in FILES:
        w = Cases()
        importlib.import_module(f"cases_{file}").write(w)
        for name, lines in w.lines.items():
            out += lines
            for d in w.without[name]:
                missing.setdefault(name, []).append(d)
        print(file, len(out), flush=True)
    for name, dtypes in missing.items():
        out.append(f"# {name} of {' '.join(dtypes)}: JAX has none")
        print(name, dtypes)
    path = make.HERE / "dtypes.golden"
    path.write_text("\n".join(out) + "\n")
    print(len(out), "lines,", path.stat().st_size // 1024, "KiB")


if __name__ == "__main__":
    main()
