"""Views and leaves."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from graph import INTS, NAMES, Graph

RESHAPE = [((2, 3), (3, 2)), ((1,), ()), ((), (1, 1)), ((2, 0), (0, 7)), ((4,), (1, 2, 2)), ((2, 3, 4), (24,))]
PERMUTE = [((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 2), (1, 0)), ((2, 1, 3, 2), (3, 1, 0, 2))]
BROADCAST = [((3,), (2, 3), [1]), ((3,), (3, 2), [0]), ((), (2, 2), []), ((2, 1), (2, 4), [0, 1]), ((1,), (0, 4), [1]), ((0,), (2, 0), [1]), ((2, 3), (2, 5, 3), [0, 2])]
SLICE = [((5, 4), [1, 0], [5, 4], [2, 3]), ((3,), [2], [2], [1]), ((), [], [], []), ((0, 3), [0, 1], [0, 3], [1, 1]), ((7,), [0], [7], [10]), ((8,), [3], [8], [2])]
PAD = [((2, 3), [1, 0], [0, 2], [0, 1]), ((4,), [-1], [-2], [0]), ((4,), [-2], [3], [2]), ((3,), [2], [-4], [1]), ((), [], [], []), ((0,), [2], [1], [3]), ((5,), [-3], [1], [1])]
FLIP = [((2, 3), [1]), ((2, 3), [0, 1]), ((), []), ((0, 2), [0]), ((3, 2, 2), [0, 2])]
CONCAT = [([(2, 1), (2, 3), (2, 0)], 1), ([(3,)], 0), ([(0, 2), (0, 2)], 0), ([(2, 2), (1, 2)], 0)]


def write(w):
    rng = np.random.default_rng(5)

    def sample(shape, d):
        if d == "bool":
            return rng.integers(0, 2, shape) > 0
        if d in INTS:
            return rng.integers(0, 100, shape).astype(NAMES[d])
        return rng.uniform(-2, 2, shape).astype(NAMES[d])

    floats = ["f32", "f64"]
    small = ["f16", "bf16", "i8", "i32", "u64", "bool", "fp8_e4m3", "fp8_e5m2"]
    for d in floats + small:
        # All shapes in f32, the first two in the others.
        some = lambda rows: rows if d == "f32" else rows[:2]
        option = dict(exact=d in small, grad=d in floats)
        for k, (a, b) in enumerate(some(RESHAPE)):
            w.op(f"reshape/{d}_{k}", "reshape", [sample(a, d)], lambda x: jnp.reshape(x, b), {"shape": b}, **option)
        for k, (a, perm) in enumerate(some(PERMUTE)):
            w.op(f"permute/{d}_{k}", "permute", [sample(a, d)], lambda x: jnp.transpose(x, perm), {"perm": perm}, **option)
        for k, (a, b, dims) in enumerate(some(BROADCAST)):
            w.op(f"broadcast/{d}_{k}", "broadcast", [sample(a, d)], lambda x: lax.broadcast_in_dim(x, b, dims), {"shape": b, "dims": dims}, **option)
        for k, (a, start, limit, stride) in enumerate(some(SLICE)):
            w.op(f"slice/{d}_{k}", "slice", [sample(a, d)], lambda x: lax.slice(x, start, limit, stride), {"start": start, "limit": limit, "stride": stride}, **option)
        for k, (a, low, high, interior) in enumerate(some(PAD)):
            config = list(zip(low, high, interior))
            w.op(f"pad/{d}_{k}", "pad", [sample(a, d), sample((), d)], lambda x, f: lax.pad(x, f, config), {"low": low, "high": high, "interior": interior}, **option)
        for k, (a, axes) in enumerate(some(FLIP)):
            w.op(f"flip/{d}_{k}", "flip", [sample(a, d)], lambda x: lax.rev(x, axes), {"axes": axes}, **option)
        for k, (shapes, axis) in enumerate(some(CONCAT)):
            w.op(f"concat/{d}_{k}", "concat", [sample(s, d) for s in shapes], lambda *x: lax.concatenate(x, axis), {"axis": axis}, **option)
    for d in [x for x in NAMES if x != "bool"]:
        g = Graph()
        out = g.op("iota", [], lambda: lax.broadcasted_iota(NAMES[d], (2, 5), 1), dtype=d, shape=[2, 5], axis=1)
        w.graph(f"iota/{d}", g, [out], exact=True)
    # Views of views: reversed axes, padding and slices on top of each other.
    for k in range(12):
        g = Graph(sample((3, 4), "f32"))
        v = g.inputs[0]
        for step in range(5):
            shape, r = v.shape, len(v.shape)
            kind = rng.integers(0, 5)
            if kind == 0:
                axes = [int(a) for a in range(r) if rng.integers(0, 2)]
                v = g.op("flip", [v], lambda x, axes=axes: lax.rev(x, axes), axes=axes)
            elif kind == 1:
                perm = [int(p) for p in rng.permutation(r)]
                v = g.op("permute", [v], lambda x, perm=perm: jnp.transpose(x, perm), perm=perm)
            elif kind == 2:
                stride = [int(rng.integers(1, 3)) for _ in shape]
                start = [int(rng.integers(0, 2)) if n > 1 else 0 for n in shape]
                v = g.op("slice", [v], lambda x, a=start, b=shape, c=stride: lax.slice(x, a, b, c), start=start, limit=shape, stride=stride)
            elif kind == 3:
                low, high, interior = ([int(rng.integers(a, b)) for _ in shape] for a, b in [(-1, 3), (0, 2), (0, 2)])
                f = g.op("const", [], lambda: jnp.float32(0.5), value="f32[] [0.5]")
                v = g.op("pad", [v, f], lambda x, f, c=list(zip(low, high, interior)): lax.pad(x, f, c), low=low, high=high, interior=interior)
            else:
                n = int(np.prod(shape))
                to = [2, n // 2] if n % 2 == 0 and n > 0 else [n, 1]
                v = g.op("reshape", [v], lambda x, to=to: jnp.reshape(x, to), shape=to)
        w.graph(f"flip/views_of_views{k}", g, [g.op("mul", [v, v], lax.mul)])
