"""Keys from numbers that a trace computes."""

from . import numpy as tnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(key, a, b):
    """Threefry-2x32 of two numbers under a key of two."""
    k0, k1 = key[0], key[1]
    keys = (k0, k1, k0 ^ k1 ^ tnp.asarray(0x1BD11BDA, "uint32"))
    a, b = a + keys[0], b + keys[1]
    for r in range(5):
        for n in _ROTATIONS[r % 2]:
            a = a + b
            b = ((b << n) | (b >> (32 - n))) ^ a
        a, b = a + keys[(r + 1) % 3], b + keys[(r + 2) % 3] + tnp.asarray(r + 1, "uint32")
    return a, b


def fold_in(key, data):
    """`random.fold_in` of a tensor."""
    data = data.astype("uint32")
    return tnp.stack(_threefry(key, tnp.zeros_like(data), data))
