"""Composed functions at tails and extremes, computed with 80 digits.

Writes `data/tails.txt`: a line is `function dtype args y`, with the bits of the arguments in that dtype, joined by commas, and the bits of the
result as f64. Results beyond the range of the dtype are written as the infinity or the number that they round to. Run: python tails.py
"""

import math
import struct
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 80
INF, NAN = math.inf, math.nan
F = mp.mpf


def gamma(x):
    if x == 0:
        return math.copysign(INF, x)
    if x == -INF or (x < 0 and x == math.floor(x)):
        return NAN
    if x > 1e4:
        return INF
    if x < -1e4:
        return 0.0 * (-1.0) ** (int(math.floor(x)) % 2)
    return mp.gamma(F(x))


def gammaln(x):
    if x == 0 or math.isinf(x) or (x < 0 and x == math.floor(x)):
        return INF
    if x > 0:
        return mp.loggamma(F(x))
    return mp.log(mp.pi / abs(mp.sinpi(F(x)))) - mp.loggamma(1 - F(x))


def ndtr(x):
    return 0.0 if x < -1e4 else 1.0 if x > 1e4 else mp.erfc(-F(x) / mp.sqrt(2)) / 2


def log_ndtr(x):
    if x == -INF:
        return -INF
    if x > 1e3:
        return -0.0
    if x < -1e3:
        u = -F(x)
        return -u * u / 2 - mp.log(2 * mp.pi) / 2 - mp.log(u) + mp.log(1 - 1 / u**2 + 3 / u**4 - 15 / u**6)
    if x > 0:
        return mp.log1p(-mp.erfc(F(x) / mp.sqrt(2)) / 2)
    return mp.log(mp.erfc(-F(x) / mp.sqrt(2)) / 2)


def ndtri(p):
    if not 0 <= p <= 1:
        return NAN
    if p in (0, 1):
        return INF if p else -INF
    if p == 0.5:
        return 0.0
    q = F(p) if p < 0.5 else 1 - F(p)
    x = mp.sqrt(-2 * mp.log(q)) if q < 0.1 else F(1)
    for _ in range(80):
        tail = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(tail) - mp.log(q)) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x += step
        if abs(step) < F(10) ** -60 * abs(x):
            break
    return -x if p < 0.5 else x


def bessel(n, scaled):
    def f(x):
        odd = math.copysign(1.0, x) if n else 1.0
        if math.isinf(x):
            return 0.0 * odd if scaled else INF * odd
        if x == 0:
            return x if n else 1.0
        if abs(x) > 1e4:
            a = F(abs(x))
            y = (1 - (4 * n - 1) / (8 * a) + (4 * n - 1) * (4 * n - 9) / (128 * a * a)) / mp.sqrt(2 * mp.pi * a)
            return y * odd if scaled else INF * odd
        y = mp.besseli(n, F(x))
        return y * mp.exp(-abs(F(x))) if scaled else y

    return f


def logit(p):
    if not 0 <= p <= 1:
        return NAN
    if p in (0, 1):
        return INF if p else -INF
    return mp.log(F(p)) - mp.log1p(-F(p))


def entr(x):
    return 0.0 if x == 0 else -INF if x < 0 or x == INF else -F(x) * mp.log(F(x))


def cbrt(x):
    return x if x == 0 or math.isinf(x) else mp.sign(F(x)) * mp.cbrt(abs(F(x)))


def log10(x):
    return NAN if x < 0 else -INF if x == 0 else x if x == INF else mp.log10(F(x))


def softplus(x):
    return INF if x == INF else 0.0 if x < -1e4 else F(x) if x > 1e4 else mp.log1p(mp.exp(F(x)))


def log1mexp(x):
    if x < 0:
        return NAN
    return -INF if x == 0 else -0.0 if x > 1e4 else mp.log1p(-mp.exp(-F(x))) if x > 1 else mp.log(-mp.expm1(-F(x)))


def betaln(a, b):
    if INF in (a, b):
        return -INF
    a, b = F(a), F(b)
    with mp.workdps(700):
        return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def beta(a, b):
    y = betaln(a, b)
    return 0.0 if y < -1e4 else mp.exp(y)


def xlogy(x, y):
    if x == 0:
        return 0.0
    if y == 0:
        return -math.copysign(INF, x)
    return math.copysign(INF, x) if y == INF else F(x) * mp.log(F(y))


def xlog1py(x, y):
    return 0.0 if x == 0 else math.copysign(INF, x) if y == INF else F(x) * mp.log1p(F(y))


def rel_entr(x, y):
    if x == 0 or y == 0:
        return 0.0 if x == 0 else INF
    return F(x) * (mp.log(F(x)) - mp.log(F(y)))


def kl_div(x, y):
    y0 = rel_entr(x, y)
    return y0 if y0 == INF else y0 - F(x) + F(y)


def hypot(x, y):
    if math.isinf(x) or math.isinf(y):
        return INF
    return NAN if math.isnan(x + y) else mp.sqrt(F(x) ** 2 + F(y) ** 2)


def log_sum(base):
    def f(x, y):
        if math.isnan(x) or math.isnan(y):
            return NAN
        if INF in (x, y):
            return INF
        if -INF in (x, y):
            return max(x, y)
        d, ln = abs(F(x) - F(y)), mp.log(base) if base else 1
        return F(max(x, y)) + (mp.log1p(mp.exp(-d * ln)) / ln if d < 1e4 else 0)

    return f


def ldexp(x, n):
    return F(x) * F(2) ** int(n) if x and math.isfinite(x) else x


def bce(p, t):
    low = lambda v: max(v, F(-100))
    return -(F(t) * low(mp.log(F(p)) if p else F(-100)) + (1 - F(t)) * low(mp.log1p(-F(p)) if p < 1 else F(-100)))


def bce_logits(x, t):
    return softplus(-x) * F(t) + softplus(x) * (1 - F(t))


def smooth_l1(x, y):
    d = abs(F(x) - F(y))
    return d * d / 2 if d < 1 else d - F("0.5")


SIZES = [1e-300, 1e-100, 1e-40, 1e-36, 1e-20, 1e-8, 1e-3, 0.1, 0.13, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9, 0.999, 1 - 2.0**-24, 1 - 2.0**-53, 1.0, 1 + 2.0**-52]
SIZES += [1 + 2.0**-23, 1.25, 1.5, 2.0, 2.5, 3.0, 4.9, 5.1, 7.5, 10.0, 12.3, 15.9, 16.1, 20.0, 22.0, 23.0, 24.0, 24.5, 30.0, 34.5, 37.0, 38.0, 50.0, 87.5, 88.5, 92.0]
SIZES += [100.0, 140.5, 160.5, 170.0, 171.5, 172.5, 200.0, 500.0, 709.0, 712.0, 745.0, 1e3, 1e4, 1e6, 1e10, 1e18, 1e30, 1e38, 1e100, 1e154, 1e200, 1e300, INF]
LINE = [0.0, -0.0, NAN] + [s * x for x in SIZES for s in (1, -1)]
UNIT = [0.0, 1.0, NAN, -0.5, 1.5, INF] + [x for x in SIZES if x < 1] + [1 - 2.0**-k for k in (2, 5, 10, 20, 24, 30, 40, 53)]
UNIT += [0.5 + s * 2.0**-k for k in (3, 10, 20, 23, 24, 40, 50, 52) for s in (1, -1)] + [5e-324, 1e-310, 1e-44, 0.1356, 0.1357, 0.8644, 0.02, 0.2]
RIGHT = [x for x in SIZES if x < INF]
ONE = {
    "gamma": (gamma, LINE), "gammaln": (gammaln, LINE), "ndtr": (ndtr, LINE), "log_ndtr": (log_ndtr, LINE), "ndtri": (ndtri, UNIT),
    "i0": (bessel(0, False), LINE), "i0e": (bessel(0, True), LINE), "i1": (bessel(1, False), LINE), "i1e": (bessel(1, True), LINE),
    "logit": (logit, UNIT), "entr": (entr, LINE), "cbrt": (cbrt, LINE), "log10": (log10, LINE), "softplus": (softplus, LINE),
    "log1mexp": (log1mexp, LINE), "log_sigmoid": (lambda x: -softplus(-x), LINE), "factorial": (lambda n: gamma(n + 1.0), [float(n) for n in range(171)]),
}
PAIRS = [(x, y) for x in RIGHT[::5] for y in RIGHT[1::5]] + [(x, y) for x in (0.3, 1.0, 2.5, 9.5, 10.5, 50.0, 1e5) for y in (0.7, 9.9, 10.1, 80.0, 1e4, 1e9)]
NEAR = [(x, x * (1 + d)) for x in (1e-3, 0.5, 3.0, 1e8) for d in (2.0**-20, -(2.0**-10), 0.3, -0.4)]
SPECIAL = [(x, y) for x in (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN) for y in (0.0, 2.0, -2.0, INF, -INF, NAN)]
WIDE = [(x * s, y * t) for x in RIGHT[::6] for y in RIGHT[::7] for s in (1, -1) for t in (1, -1)]
TWO = {
    "betaln": (betaln, PAIRS), "beta": (beta, PAIRS), "xlogy": (xlogy, PAIRS), "xlog1py": (xlog1py, PAIRS), "rel_entr": (rel_entr, PAIRS + NEAR),
    "kl_div": (kl_div, PAIRS + NEAR), "hypot": (hypot, WIDE + SPECIAL), "logaddexp": (log_sum(0), WIDE + SPECIAL), "logaddexp2": (log_sum(2), WIDE + SPECIAL),
    "ldexp": (ldexp, [(x * m, float(n)) for x in SIZES[:60:4] + [5e-324, 1e-310, 1e-45, 1e300, INF] for m in (1.0, -1.3) for n in (0, 1, -1, 60, -60, 127, 149, -149, -160, 280, -280, 1023, 1074, -1074, -1100, 2000, 2098, -2098, 5000, -5000)]),
    "binary_cross_entropy": (bce, [(p, t) for p in UNIT if 0 <= p <= 1 for t in (0.0, 0.25, 1.0)]),
    "binary_cross_entropy_with_logits": (bce_logits, [(x, t) for x in LINE if math.isfinite(x) for t in (0.0, 0.25, 1.0)]),
    "smooth_l1_loss": (smooth_l1, WIDE),
}


def bits(x):
    return struct.pack(">d", float(x)).hex()


def narrow(x):
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def rounded(y, dtype):
    """The result as f64; what an f32 can't hold becomes its infinity or zero."""
    if isinstance(y, float):
        return y
    if dtype == "f32":
        if abs(y) > F("3.4028235677973366e38"):
            return math.copysign(INF, y)
        return math.copysign(0.0, y) if abs(y) <= F(2) ** -150 else float(y)
    return float(y)


def main():
    lines = []
    for dtype in ("f64", "f32"):
        own = narrow if dtype == "f32" else float
        text = lambda x: struct.pack(">f", np.float32(x)).hex() if dtype == "f32" else bits(x)
        tables = [(n, f, [(x,) for x in xs]) for n, (f, xs) in ONE.items()] + [(n, f, xs) for n, (f, xs) in TWO.items()]
        for name, f, rows in tables:
            seen = {}
            for row in rows:
                row = tuple(own(x) for x in row)
                if dtype == "f32" and name not in ("hypot",) and any(math.isinf(x) for x in row) and len(row) == 2:
                    continue
                seen.setdefault(tuple(map(text, row)), row)
            for key, row in seen.items():
                if len(row) == 2 and name not in ("hypot", "logaddexp", "logaddexp2", "ldexp") and name in ("betaln", "beta", "rel_entr", "kl_div") and 0.0 in row:
                    continue
                y = NAN if any(map(math.isnan, row)) and name not in ("hypot",) else f(*row)
                if isinstance(y, mp.mpc):
                    y = NAN
                lines.append(f"{name} {dtype} {','.join(key)} {bits(rounded(y, dtype))}")
    Path(__file__).with_name("data").joinpath("tails.txt").write_text("\n".join(lines) + "\n")
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
