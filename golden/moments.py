"""AdamW with moments in 8 bits, as bitsandbytes publishes it, in NumPy: crates/training/tests/data/moments/.

    python golden/moments.py

The table ("dynamic map"), blocks of 256 with their largest magnitude, the nearest entry, and negative first moments that are never
rounded to zero. The update is PyTorch's AdamW, from the moments before they are rounded.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "crates/training/tests/data/moments"
F = np.float32
BETA1, BETA2, EPS, DECAY, RATE = 0.9, 0.95, 1e-8, 0.1, 1e-2


def table(signed):
    data = [0.0, 1.0]
    for i in range(7):
        bounds = torch.linspace(0.1, 1, (2**i if signed else 2 ** (i + 1)) + 1, dtype=torch.float32)
        middles = (10 ** (i - 6)) * ((bounds[:-1] + bounds[1:]) / 2.0)
        data += middles.tolist()
        if signed:
            data += (-middles).tolist()
    return np.array(sorted(data), dtype=F)


def packed(x, codes):
    blocks = -(-x.size // 256)
    rows = np.zeros(blocks * 256, dtype=F)
    rows[: x.size] = x.reshape(-1)
    rows = rows.reshape(blocks, 256)
    most = np.abs(rows).max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.where(most[:, None] == 0, F(0), rows / most[:, None])
    middles = (codes[:-1] + codes[1:]) * F(0.5)
    found = np.searchsorted(middles, y, side="left")
    if codes[0] < 0:
        zero = int(np.flatnonzero(codes == 0)[0])
        found = np.where((y < 0) & (found == zero), found - 1, found)
    return found.astype(np.uint8), most


def wide(found, most, codes, shape):
    n = int(np.prod(shape))
    return (codes[found] * most[:, None]).reshape(-1)[:n].reshape(shape)


def main():
    signed, unsigned = table(True), table(False)
    draw = np.random.default_rng(7)
    shape = (40, 130)
    p = draw.normal(size=shape).astype(F)
    kept = dict(signed=signed, unsigned=unsigned, start=p.copy())
    first, second = (np.zeros((21, 256), np.uint8), np.zeros(21, F)), (np.zeros((21, 256), np.uint8), np.zeros(21, F))
    steps = []
    for t in range(6):
        ids = draw.integers(-1000, 1000, size=shape).astype(np.int32)
        if t == 2:
            ids[:4] = 0
        steps.append(ids)
        g = (ids.astype(F) * F(0.001)).astype(F)
        m = wide(*first, signed, shape) * F(BETA1) + g * F(1.0 - BETA1)
        v = wide(*second, unsigned, shape) * F(BETA2) + g * g * F(1.0 - BETA2)
        c1, c2 = F(1 / (1 - BETA1 ** (t + 1))), F(1 / (1 - BETA2 ** (t + 1)))
        change = (m * c1) / (np.sqrt(v * c2) + F(EPS)) + p * F(DECAY)
        p = p - change * F(RATE)
        first, second = packed(m, signed), packed(v, unsigned)
        kept |= {f"p{t}": p, f"first{t}": first[0], f"first_scale{t}": first[1], f"second{t}": second[0], f"second_scale{t}": second[1]}
    kept["ids"] = np.stack(steps)
    DATA.mkdir(exist_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in kept.items()}, DATA / "expected.safetensors")


main()
