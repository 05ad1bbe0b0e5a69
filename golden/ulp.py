"""Functions of f64 at random and hard arguments, computed by MPFR with 200 bits.

Writes `data/ulp.txt`: a line is `op args y e`, with the bits of the arguments (two are joined by a comma) and of the nearest result, and by how many
thousandths of a unit in its last place the exact result is above. With a count and a seed it prints so many random lines of each function
instead, for `cargo run --release --example ulp_points`. Run: python ulp.py [count [seed]]
"""

import math
import random
import struct
import sys
from pathlib import Path

import gmpy2
import mpmath as mp
from gmpy2 import mpfr

gmpy2.get_context().precision = 200
mp.mp.prec = 200
INF = math.inf


def erf_inv(x):
    if abs(x) > 0.5:
        # By its complement, as the digits of x end.
        tail = 1 - mp.mpf(abs(float(x)))
        y = mp.sqrt(-mp.log(tail))
        for _ in range(60):
            step = (mp.erfc(y) - tail) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
            y += step / (1 - y * step)
            if abs(step) < mp.mpf(2) ** -180 * y:
                break
        return gmpy2.mpfr(mp.nstr(math.copysign(1, x) * y, 60))
    return gmpy2.mpfr(mp.nstr(mp.erfinv(mp.mpf(float(x))), 60))


def logistic(x):
    return 1 / (1 + gmpy2.exp(-x))


def lgamma(x):
    return gmpy2.lgamma(x)[0]


# The function, and ranges for random arguments: `u` uniform, `e` uniform in the exponent with either sign, `p` positive.
FUNCTIONS = {
    "exp": (gmpy2.exp, [("u", -745, 709.7), ("u", -1, 1), ("e", 1e-20, 700)]),
    "exp2": (gmpy2.exp2, [("u", -1074, 1023.9), ("u", -1, 1), ("e", 1e-20, 1000)]),
    "expm1": (gmpy2.expm1, [("u", -40, 709.7), ("u", -1, 1), ("e", 5e-324, 40)]),
    "log": (gmpy2.log, [("p", 5e-324, 1e308), ("u", 0.5, 2), ("near", 1, 0)]),
    "log2": (gmpy2.log2, [("p", 5e-324, 1e308), ("u", 0.5, 2), ("near", 1, 0)]),
    "log10": (gmpy2.log10, [("p", 5e-324, 1e308), ("u", 0.5, 2), ("near", 1, 0)]),
    "log1p": (gmpy2.log1p, [("u", -0.999999, 1), ("e", 5e-324, 0.9), ("p", 1e-300, 1e308)]),
    "sqrt": (gmpy2.sqrt, [("p", 5e-324, 1e308)]),
    "rsqrt": (lambda x: 1 / gmpy2.sqrt(x), [("p", 5e-324, 1e308)]),
    "reciprocal": (lambda x: 1 / x, [("e", 1e-308, 1e308)]),
    "sin": (gmpy2.sin, [("u", -10, 10), ("e", 1e-308, 1e308), ("pi", 0, 0)]),
    "cos": (gmpy2.cos, [("u", -10, 10), ("e", 1e-308, 1e308), ("pi", 0, 0)]),
    "tan": (gmpy2.tan, [("u", -10, 10), ("e", 1e-308, 1e308), ("pi", 0, 0)]),
    "asin": (gmpy2.asin, [("u", -1, 1), ("e", 5e-324, 1), ("near", 1, -1)]),
    "acos": (gmpy2.acos, [("u", -1, 1), ("e", 1e-308, 1), ("near", 1, -1)]),
    "atan": (gmpy2.atan, [("u", -4, 4), ("e", 5e-324, 1e308)]),
    "sinh": (gmpy2.sinh, [("u", -710, 710), ("u", -2, 2), ("e", 5e-324, 700)]),
    "cosh": (gmpy2.cosh, [("u", -710, 710), ("u", -2, 2), ("e", 1e-20, 700)]),
    "tanh": (gmpy2.tanh, [("u", -20, 20), ("u", -1, 1), ("e", 5e-324, 20)]),
    "asinh": (gmpy2.asinh, [("u", -4, 4), ("e", 5e-324, 1e308)]),
    "acosh": (gmpy2.acosh, [("u", 1, 4), ("p", 1, 1e308), ("near", 1, 1)]),
    "atanh": (gmpy2.atanh, [("u", -1, 1), ("e", 5e-324, 0.9), ("near", 1, -1)]),
    "erf": (gmpy2.erf, [("u", -6, 6), ("e", 1e-308, 1)]),
    "erfc": (gmpy2.erfc, [("u", -6, 26.5), ("u", -1, 1), ("e", 1e-20, 26)]),
    "erf_inv": (erf_inv, [("u", -1, 1), ("e", 1e-308, 0.9), ("near", 1, -1)]),
    "lgamma": (lgamma, [("u", 1e-3, 20), ("p", 1e-308, 1e300), ("u", -20, 0)]),
    "digamma": (gmpy2.digamma, [("u", 1e-3, 20), ("p", 1e-300, 1e300), ("u", -20, 0)]),
    "logistic": (logistic, [("u", -745, 40), ("u", -2, 2), ("e", 1e-20, 700)]),
    "pow": (lambda x, y: x**y, [("pow", 0, 0)]),
    "atan2": (gmpy2.atan2, [("pair", 0, 0)]),
}
HARD = {
    # Arguments near multiples of π/2, and those whose results are nearly half way between two numbers.
    "sin": [float.fromhex("0x1.6ac5b262ca1ffp+849"), 22.0, 355.0, 103993.0, 5419351.0, 0.5, 1e22],
    "cos": [float.fromhex("0x1.6ac5b262ca1ffp+849"), 11.0, 344.0, 51819.0, 1e22, 0.5],
    "tan": [float.fromhex("0x1.6ac5b262ca1ffp+849"), 11.0, 344.0, 1e22, 0.5],
    "exp": [float.fromhex(s) for s in ("0x1.accfbe46b4efp-1", "-0x1.7fe45a3a3e5f9p-12", "0x1.62e42fefa39efp+9", "-0x1.74910d52d3051p+9")],
    "log": [float.fromhex(s) for s in ("0x1.62a88613629b6p+678", "0x1.ab50b409c8aeep-1", "0x1.fffffffffffffp-1", "0x1.0000000000001p+0")],
    "log2": [float.fromhex(s) for s in ("0x1.fffffffffffffp-1", "0x1.0000000000001p+0", "0x1.b355bp+0", "0x1.61555f75885b4p+0")],
    "log10": [float.fromhex(s) for s in ("0x1.fffffffffffffp-1", "0x1.0000000000001p+0", "0x1.9ee99d5d4e4a3p+62")] + [float(f"1e{k}") for k in range(-307, 309, 7)],
    # Left of 0, where gamma functions are near 1 in size.
    "lgamma": [2.4570247382208005, 0.5, 1.0 - 2.0**-30, 2.0 + 2.0**-30, 171.0, 1e305]
    + [side / math.factorial(n) - n for n in range(2, 18) for side in (-1, -1.01, 0.99, 1)],
    "digamma": [1.5, 0.5, 10.0, 1e-5, 1.4616321449683622] + [0.5 + k / 128 for k in range(1, 24)],
}
HARD_PAIRS = {
    "pow": [(10.0, float(k)) for k in range(-300, 301, 13)] + [(float.fromhex("0x1.55555555555p-2"), 0.5), (1 + 2.0**-52, 2.0**52)]
    + [(1 - 2.0**-53, 2.0**62), (1.0000001, 7e9), (0.9999999, 7e9), (2.0, 0.5), (3.0, 1 / 3), (1e300, 1.0), (1e-300, 1.0), (9.0, 3.0)],
    "atan2": [(5e-324, 5e-324), (1e-310, 3e-310), (5e-324, 1.0), (1e-310, -1e-310), (1e308, 1.7e308), (1e-320, 2.5e-321)],
}


def bits(x):
    return struct.pack(">d", x).hex()


def argument(kind, low, high, rng):
    if kind == "u":
        return rng.uniform(low, high)
    if kind in "ep":
        size = math.exp(rng.uniform(math.log(low) if low > 1e-308 else -744.4, math.log(high)))
        return size if kind == "p" else rng.choice((-size, size))
    if kind == "near":
        side = 1 if high == 1 else -1 if high == -1 else rng.choice((-1, 1))
        x = low + side * 2.0 ** -rng.uniform(1, 52)
        return x if high != -1 else rng.choice((-x, x))
    if kind == "pi":
        return round(math.exp(rng.uniform(0, 35))) * math.pi / 2
    if kind == "pow":
        # A result within the range, or whole powers of small numbers.
        if rng.random() < 0.2:
            return rng.randint(2, 1000) / rng.choice((1, 2, 10, 16)), float(rng.randint(-30, 30))
        x = math.exp(rng.uniform(-700, 700)) if rng.random() < 0.5 else rng.uniform(0.5, 2)
        return x, rng.uniform(-744, 709) / (math.log(x) or 1)
    return tuple(rng.choice((-1, 1)) * math.exp(rng.uniform(-740, 700) if rng.random() < 0.3 else rng.uniform(-9, 9)) for _ in "xy")


def line(op, x):
    args = x if isinstance(x, tuple) else (x,)
    exact = FUNCTIONS[op][0](*(mpfr(a, 200) for a in args))
    y = float(exact)
    if not math.isfinite(y) or y == 0 or not gmpy2.is_finite(exact):
        return None
    e = round(float((exact - mpfr(y, 200)) / mpfr(math.ulp(y), 200) * 1000))
    return f"{op} {','.join(map(bits, args))} {bits(y)} {e}"


def lines(op, count, rng):
    for x in HARD.get(op, []) + [-x for x in HARD.get(op, [])] + HARD_PAIRS.get(op, []):
        with_sign = op in ("sin", "cos", "tan", "exp") or isinstance(x, tuple) or x > 0 or x in HARD.get(op, [])
        if with_sign and (made := line(op, x)):
            yield made
    ranges = FUNCTIONS[op][1]
    for i in range(count):
        kind, low, high = ranges[i % len(ranges)]
        if made := line(op, argument(kind, low, high, rng)):
            yield made


def main():
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    if len(sys.argv) > 1:
        for op in FUNCTIONS:
            for text in lines(op, int(sys.argv[1]), rng):
                print(text)
        return
    out = [text for op in FUNCTIONS for text in lines(op, 150, rng)]
    Path(__file__).with_name("data").joinpath("ulp.txt").write_text("\n".join(out) + "\n")
    print(len(out), "lines")


if __name__ == "__main__":
    main()
