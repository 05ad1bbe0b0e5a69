"""Functions of one number where they are awkward: at zeros, poles, branch points, tiny and huge numbers.

Writes `data/special.txt`: a line is `op dtype x y`, with `x` the bits of the argument in that dtype and `y` the bits of
the result as f64, computed with 60 digits by mpmath; `zeta s dtype q y` likewise. Run: python special.py
"""

import math
import struct
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 60
INF, NAN = math.inf, math.nan

# Beyond what 60 digits reduce, sines are asked for with more.
mp_sin = lambda f: lambda x: with_digits(f, x)


def with_digits(f, x):
    with mp.workdps(400):
        return f(mp.mpf(x))


def lgamma(x):
    if x > 0:
        return mp.loggamma(x)
    return mp.log(mp.pi / abs(mp.sinpi(x))) - mp.loggamma(1 - mp.mpf(x))


def digamma(x):
    if x > 0:
        return mp.digamma(x)
    return mp.digamma(1 - mp.mpf(x)) - mp.pi * mp.cospi(x) / mp.sinpi(x)


def zeta(s, q):
    """Hurwitz's zeta for s = 2 or 3 by reflection left of 0."""
    if q > 0:
        return mp.zeta(s, q)
    c, sin = mp.cospi(q), mp.sinpi(q)
    if s == 2:
        return mp.pi**2 / sin**2 - mp.zeta(2, 1 - mp.mpf(q))
    return mp.zeta(3, 1 - mp.mpf(q)) + mp.pi**3 * c / sin**3


# The function inside its domain, and what it is at 0, inf, -inf and outside.
FUNCTIONS = {
    "exp": (mp.exp, None, (1, INF, 0.0)),
    "exp2": (lambda x: mp.mpf(2) ** x, None, (1, INF, 0.0)),
    "expm1": (mp.expm1, None, ("x", INF, -1.0)),
    "log": (mp.log, lambda x: x > 0, (-INF, INF, NAN)),
    "log2": (lambda x: mp.log(x) / mp.log(2), lambda x: x > 0, (-INF, INF, NAN)),
    "log1p": (mp.log1p, lambda x: x > -1, ("x", INF, NAN)),
    "sqrt": (mp.sqrt, lambda x: x > 0, ("x", INF, NAN)),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), lambda x: x > 0, ("1/x", 0.0, NAN)),
    "reciprocal": (lambda x: 1 / mp.mpf(x), None, ("1/x", 0.0, -0.0)),
    "sin": (mp_sin(mp.sin), None, ("x", NAN, NAN)),
    "cos": (mp_sin(mp.cos), None, (1, NAN, NAN)),
    "tan": (mp_sin(mp.tan), None, ("x", NAN, NAN)),
    "asin": (mp.asin, lambda x: abs(x) <= 1, ("x", NAN, NAN)),
    "acos": (mp.acos, lambda x: abs(x) <= 1, (mp.pi / 2, NAN, NAN)),
    "atan": (mp.atan, None, ("x", mp.pi / 2, -mp.pi / 2)),
    "sinh": (mp.sinh, None, ("x", INF, -INF)),
    "cosh": (mp.cosh, None, (1, INF, INF)),
    "tanh": (mp.tanh, None, ("x", 1, -1)),
    "asinh": (mp.asinh, None, ("x", INF, -INF)),
    "acosh": (mp.acosh, lambda x: x >= 1, (NAN, INF, NAN)),
    "atanh": (mp.atanh, lambda x: abs(x) < 1, ("x", NAN, NAN)),
    "erf": (mp.erf, None, ("x", 1, -1)),
    "erfc": (mp.erfc, None, (1, 0.0, 2)),
    "erf_inv": (mp.erfinv, lambda x: abs(x) < 1, ("x", NAN, NAN)),
    "lgamma": (lgamma, lambda x: x > 0 or x != math.floor(x), (INF, INF, INF)),
    "digamma": (digamma, lambda x: x > 0 or x != math.floor(x), ("-1/x", INF, NAN)),
    "logistic": (lambda x: 1 / (1 + mp.exp(-mp.mpf(x))), None, (0.5, 1, 0.0)),
}
# Poles and edges that are not NaN.
EDGES = {("log1p", -1.0): -INF, ("atanh", 1.0): INF, ("atanh", -1.0): -INF, ("erf_inv", 1.0): INF, ("erf_inv", -1.0): -INF}

MAGNITUDES = [5e-324, 1e-310, 1e-300, 1e-100, 1e-45, 1e-40, 1e-30, 1e-20, 1e-8, 1e-4, 0.1, 0.25, 0.46, 0.5, 0.9, 0.927734375]
MAGNITUDES += [1 - 1e-3, 1 - 2.0**-24, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1 + 2.0**-23, 1.001, 1.5, math.pi / 2, 2.0, 2.5, 3.0]
MAGNITUDES += [math.pi, 4.2, 5.0, 9.9, 10.5, 11.999, 12.0, 14.2, 20.0, 26.5, 27.5, 37.0, 87.3, 88.8, 103.9, 104.5, 170.3, 700.0]
MAGNITUDES += [709.7, 710.5, 744.9, 746.0, 1e3 + 0.25, 1e4 + 0.5, 1e5 + 0.75, 1e6 + 0.25, 1e7 + 0.5, 16777216.0, 1e8, 1e12 + 0.5]
MAGNITUDES += [4503599627370495.5, 1e16, 1e20, 1e22, 1e38, 1e100, 1e154, 1e200, 1e300, 1.7976931348623157e308]
NEAR_POLES = [-1 - 1e-10, -1 + 1e-10, -2 - 2.0**-50, -3 + 2.0**-45, -10 - 1e-6, -100.0, -100.5, -1e4 - 1e-6, -0.6, -2.7, -4.4]


def bits64(x):
    return struct.pack(">d", float(x)).hex()


def bits32(x):
    return struct.pack(">f", np.float32(x)).hex()


def value(op, x):
    f, domain, (zero, up, down) = FUNCTIONS[op]
    if math.isnan(x):
        return NAN
    if x == 0:
        if isinstance(zero, str):
            return {"x": x, "1/x": math.copysign(INF, x), "-1/x": -math.copysign(INF, x)}[zero]
        return float(zero)
    if math.isinf(x):
        return float(up if x > 0 else down)
    if (op, x) in EDGES:
        return EDGES[op, x]
    if domain and not domain(x):
        return INF if op == "lgamma" else NAN
    if op in ("exp", "exp2", "expm1", "sinh", "cosh") and x > 1100:
        return INF
    if op in ("exp", "exp2", "logistic") and x < -1100:
        return 0.0
    if op == "expm1" and x < -1100:
        return -1.0
    if op in ("sinh", "cosh") and x < -1100:
        return -INF if op == "sinh" else INF
    if op == "erfc" and abs(x) > 100:
        return 0.0 if x > 0 else 2.0
    if op in ("tanh", "erf") and abs(x) > 1e3:
        return math.copysign(1.0, x)
    if op == "logistic" and x > 1100:
        return 1.0
    return float(f(mp.mpf(x)))


def main():
    lines = []
    xs = [0.0, -0.0, INF, -INF, NAN] + [s * m for m in MAGNITUDES for s in (1, -1)] + NEAR_POLES
    for dtype, bits in (("f64", bits64), ("f32", bits32)):
        seen = {}
        for x in xs:
            with np.errstate(over="ignore"):
                x = float(np.float32(x)) if dtype == "f32" else x
            seen.setdefault(bits(x), x)
        for op in FUNCTIONS:
            lines += [f"{op} {dtype} {b} {bits64(value(op, x))}" for b, x in seen.items()]
        for s in (2, 3):
            for b, x in seen.items():
                if math.isnan(x) or x == -INF:
                    y = NAN
                elif x == INF:
                    y = 0.0
                elif x <= 0 and x == math.floor(x):
                    y = INF
                else:
                    y = float(zeta(s, x)) if abs(x) < 1e120 else float(mp.mpf(x) ** (1 - s) / (s - 1))
                lines.append(f"zeta{s} {dtype} {b} {bits64(y)}")
    Path(__file__).with_name("data").joinpath("special.txt").write_text("\n".join(lines) + "\n")
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
