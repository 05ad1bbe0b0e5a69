"""Golden values of convolutions and Kronecker products, by NumPy in f64.

Operands come from a generator that the tests repeat, so the file holds results alone, and of long results a sample.
Run with NumPy installed:  python golden/vsla/make.py
"""

import json
import pathlib

import numpy as np


def operand(seed, n):
    """Numbers in [-1, 1) from a 64-bit linear congruential generator."""
    state, out = seed, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 33) / 2**30 - 1.0)
    return np.array(out, dtype=np.float64)


def sample(n):
    """All places of a short result, 33 spread over a long one."""
    if n <= 40:
        return list(range(n))
    return sorted({round(i * (n - 1) / 32) for i in range(33)})


LENGTHS = [
    (0, 0), (0, 5), (1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 9), (5, 7), (8, 8), (16, 3), (17, 64), (31, 33), (63, 65),
    (64, 64), (65, 100), (100, 1000), (127, 129), (200, 200), (255, 257), (512, 512), (600, 1000), (1000, 3), (1024, 1025),
    (2000, 4097), (5000, 5000), (10000, 64), (10000, 10000),
]

conv = []
for m, n in LENGTHS:
    a, b = operand(m + 1, m), operand(n + 1000003, n)
    y = np.convolve(a, b) if m and n else np.zeros(0)
    at = sample(len(y))
    conv.append({"m": m, "n": n, "length": len(y), "at": at, "values": [float(y[i]) for i in at]})

kron = []
for s, t in [((2,), (2,)), ((3,), (5,)), ((2, 3), (4, 1)), ((1, 2, 2), (3, 1, 2))]:
    a, b = operand(7, int(np.prod(s))).reshape(s), operand(9, int(np.prod(t))).reshape(t)
    y = np.kron(a, b)
    kron.append({"a": s, "b": t, "shape": y.shape, "values": [float(x) for x in y.ravel()]})

out = pathlib.Path(__file__).with_name("algebra.json")
out.write_text(json.dumps({"numpy": np.__version__, "conv": conv, "kron": kron}, indent=None) + "\n")
