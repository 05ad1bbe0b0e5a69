"""cast between all dtypes, quantize, bitcast."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from graph import FLOATS, INTS, NAMES

inf, nan = float("inf"), float("nan")


def samples(d):
    if d == "bool":
        return np.array([True, False])
    if d in INTS:
        info = np.iinfo(NAMES[d])
        middle = [0, 1, 2, 17, 100, info.max // 2, info.max // 2 + 1, info.max // 7, 2**24 + 1, 2**53 + 1, 2**31, 300, 65519, 65520, 448, 464, 465]
        values = [info.min, info.max] + [v for v in middle if v <= info.max] + ([-1, -2, -100] if info.min < 0 else [])
        return np.array(values, NAMES[d])
    values = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.7, -3.7, 127.5, 128.0, 255.5, 300.0, -300.0]
    values += [448.0, 464.0, 465.0, 57344.0, 61439.0, 61441.0, 65504.0, 65519.0, 65520.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64]
    values += [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 2**-9, 1e-3, 2.0**-9, 2.0**-10, 2.0**-17, 3.3e38, 1e30]
    return np.array(values).astype(NAMES[d])


def write(w):
    for a in NAMES:
        for b in NAMES:
            x = samples(a)
            w.op(f"cast/{a}_to_{b}", "cast", [x], lambda x, b=b: lax.convert_element_type(x, NAMES[b]), {"dtype": b}, exact=True, grad=False)
    rng = np.random.default_rng(4)
    for a in ["f64", "f32", "f16", "bf16"]:
        for b in ["f64", "f32", "f16", "bf16"]:
            x = (rng.integers(-32, 32, 6) / 8).astype(NAMES[a])
            w.op(f"cast/grad_{a}_to_{b}", "cast", [x], lambda x, b=b: lax.convert_element_type(x, NAMES[b]), {"dtype": b},
                 tol=(8e-3, 1e-3, "the cotangent is rounded to the narrower of the two dtypes"))
    # quantize saturates where cast overflows: clip to the finite range first, then cast.
    for a in FLOATS:
        for b in FLOATS:
            if a == b:
                continue
            x = samples(a)

            def quantize(x, b=b):
                top = float(ml_dtypes.finfo(NAMES[b]).max)
                return lax.convert_element_type(jnp.clip(x.astype(jnp.float64), -top, top), NAMES[b])

            w.op(f"quantize/{a}_to_{b}", "quantize", [x], quantize, {"dtype": b}, exact=True, grad=False)
        for b in INTS:
            x = samples(a)
            w.op(f"quantize/{a}_to_{b}", "quantize", [x], lambda x, b=b: lax.convert_element_type(x, NAMES[b]), {"dtype": b}, exact=True, grad=False)
    sizes = {d: np.dtype(t).itemsize for d, t in NAMES.items() if d != "bool"}
    for a in sizes:
        for b in sizes:
            if a != b and sizes[a] == sizes[b]:
                x = rng.integers(0, 256, 6 * sizes[a], dtype=np.uint8).view(NAMES[a])
                if a in FLOATS:
                    x = samples(a)[:8]
                    x = x[~np.isnan(x.astype(np.float64))]
                w.op(f"bitcast/{a}_to_{b}", "bitcast", [x], lambda x, b=b: lax.bitcast_convert_type(x, NAMES[b]), {"dtype": b}, exact=True, grad=False)
