"""Reading and writing at computed places, and ordering."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from graph import FLOATS, INTS, NAMES, Graph

# operand, indices, offset, collapsed, operand_batch, index_batch, index_map, slice sizes
LAYOUTS = [
    ((4, 3), (2, 1), [1], [0], [], [], [0], [1, 3]),
    ((4, 3), (2, 2, 1), [0], [1], [], [], [1], [4, 1]),
    ((4,), (1,), [], [0], [], [], [0], [1]),
    ((4, 3), (5, 2), [], [0, 1], [], [], [0, 1], [1, 1]),
    ((2, 3), (2, 2, 1), [], [1], [0], [0], [1], [1, 1]),
    ((3, 4), (2, 1), [1, 2], [], [], [], [1], [3, 2]),
    ((2, 3, 2), (4, 1), [0, 2], [1], [], [], [1], [2, 1, 2]),
    ((4, 3), (0, 1), [1], [0], [], [], [0], [1, 3]),
]


def sample(rng, shape, d):
    if d == "bool":
        return rng.integers(0, 2, shape) > 0
    if d in INTS:
        return rng.integers(0, 100, shape).astype(NAMES[d])
    return rng.uniform(-2, 2, shape).astype(NAMES[d])


def dims(layout):
    _, _, offset, collapsed, ob, ib, im, _ = layout
    return dict(offset=offset, collapsed=collapsed, operand_batch=ob, index_batch=ib, index_map=im)


def gathers(w, rng):
    for k, layout in enumerate(LAYOUTS):
        x, i, offset, collapsed, ob, ib, im, sizes = layout
        numbers = lax.GatherDimensionNumbers(tuple(offset), tuple(collapsed), tuple(im), tuple(ob), tuple(ib))
        for d in ["f32", "f64"]:
            for inside in [True, False]:
                index = rng.integers(0 if inside else -3, 2 if inside else 7, i).astype(np.int32)
                for mode in ["clip", "fill"]:
                    attrs = dict(dims(layout), slice_sizes=sizes, mode=mode)
                    if mode == "fill":
                        attrs["fill"] = f"{d} 0.5"

                    def f(x, i):
                        return lax.gather(x, i, numbers, tuple(sizes), mode=mode, fill_value=0.5 if mode == "fill" else None)

                    w.op(f"gather/{d}_{k}_{mode}_{inside}", "gather", [sample(rng, x, d), index], f, attrs)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    for d in INTS + ["bool", "f16", "bf16"]:
        fill = {"bool": "bool true"}.get(d) or f"{d} 7"
        attrs = dict(dims(LAYOUTS[0]), slice_sizes=[1, 3], mode="fill", fill=fill)
        index = rng.integers(-3, 7, (6, 1)).astype(np.int64)
        value = True if d == "bool" else 7
        w.op(f"gather/{d}", "gather", [sample(rng, (4, 3), d), index], lambda x, i: lax.gather(x, i, numbers, (1, 3), mode="fill", fill_value=value), attrs, grad=False)


SCATTER = {"set": lax.scatter, "add": lax.scatter_add, "mul": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}


def scatters(w, rng):
    for k, layout in enumerate(LAYOUTS):
        x, i, offset, collapsed, ob, ib, im, sizes = layout
        numbers = lax.ScatterDimensionNumbers(tuple(offset), tuple(collapsed), tuple(im), tuple(ob), tuple(ib))
        gather = lax.GatherDimensionNumbers(tuple(offset), tuple(collapsed), tuple(im), tuple(ob), tuple(ib))
        for kind, fn in SCATTER.items():
            for mode in ["clip", "drop"]:
                a = sample(rng, x, "f32")
                # JAX leaves the winner of several updates open, so those of `set` go to different places.
                index = rng.integers(-3, 7, i).astype(np.int32)
                if kind in ["set", "mul"]:
                    index = np.stack([(np.arange(np.prod(i[:-1]), dtype=np.int32) * (n + 1)).reshape(i[:-1]) for n in range(i[-1])], -1)
                shape = lax.gather(a, index, gather, tuple(sizes), mode="clip").shape
                u = sample(rng, shape, "f32")
                if kind in ["set", "mul"] and mode == "clip" and k not in [0, 2, 7]:
                    continue
                grad = kind in ["set", "add"]

                def f(x, i, u):
                    return fn(x, i, u, numbers, mode=mode, unique_indices=kind == "mul")

                w.op(f"scatter_{kind}/{k}_{mode}", f"scatter_{kind}", [a, index, u], f, dict(dims(layout), mode=mode), grad=grad)
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    for d in INTS + ["f64"]:
        for kind, fn in SCATTER.items():
            index = np.array([[0], [5], [2], [-1]], np.int32) if kind == "set" else rng.integers(-2, 6, (4, 1)).astype(np.int32)
            args = [sample(rng, (4, 3), d), index, sample(rng, (4, 3), d)]
            w.op(f"scatter_{kind}/{d}", f"scatter_{kind}", args, lambda x, i, u: fn(x, i, u, numbers, mode="drop"), dict(dims(LAYOUTS[0]), mode="drop"), grad=False)


def dynamic(w, rng):
    for d in ["f32", "f64", "i32", "bool"]:
        for k, start in enumerate([(0, 0), (1, 2), (3, 1), (9, 9), (-2, 1), (-9, -9)]):
            starts = [np.int32(s) for s in start]
            x = sample(rng, (4, 3), d)
            f = lambda x, *s: lax.dynamic_slice(x, s, (2, 2), allow_negative_indices=False)
            w.op(f"dynamic_slice/{d}_{k}", "dynamic_slice", [x] + starts, f, dict(sizes=[2, 2]))
            u = sample(rng, (2, 2), d)
            f = lambda x, u, *s: lax.dynamic_update_slice(x, u, s, allow_negative_indices=False)
            w.op(f"dynamic_update_slice/{d}_{k}", "dynamic_update_slice", [x, u] + starts, f)
    for d in ["f32", "f64", "i32"]:
        for axis in [0, 1]:
            x = sample(rng, (4, 3), d)
            index = rng.integers(0, 6, (2, 3) if axis == 0 else (4, 2)).astype(np.int32)
            f = lambda x, i: jnp.take_along_axis(x, i, axis, mode="fill", fill_value=0)
            w.op(f"take_along/{d}_{axis}", "take_along", [x, index], f, dict(axis=axis))
            u = sample(rng, index.shape, d)

            def put(u, i):
                shape = list(u.shape)
                shape[axis] = 4
                places = list(jnp.indices(u.shape))
                places[axis] = i
                return jnp.zeros(shape, u.dtype).at[tuple(places)].add(u, mode="drop")

            w.op(f"put_along/{d}_{axis}", "put_along", [u, index], put, dict(axis=axis, size=4))


def ordered(w, rng):
    inf, nan = float("inf"), float("nan")
    for d in INTS + ["f32", "f64", "f16", "bf16", "bool"]:
        for descending in [False, True]:
            x = sample(rng, (3, 7), d)
            if d in INTS:
                x = x % 5
            attrs = dict(num_keys=1, descending=descending)
            w.op(f"sort/{d}_{descending}", "sort", [x], lambda x: [jnp.sort(x, axis=1, descending=descending)], dict(axis=1, **attrs))
            places = np.broadcast_to(np.arange(7, dtype=np.int32), (3, 7)).copy()

            def both(x, i):
                order = jnp.argsort(x, axis=1, stable=True, descending=descending)
                return [jnp.take_along_axis(x, order, 1), jnp.take_along_axis(i, order, 1)]

            w.op(f"sort/places_{d}_{descending}", "sort", [x, places], both, dict(axis=1, **attrs), grad=d in ["f32", "f64"])
        if d != "bool":
            w.op(f"top_k/{d}", "top_k", [x], lambda x: lax.top_k(x, 3), dict(k=3, axis=1), grad=d in ["f32", "f64"])
            w.op(f"top_k/front_{d}", "top_k", [x], lambda x: [jnp.moveaxis(y, 1, 0) for y in lax.top_k(jnp.moveaxis(x, 0, 1), 2)], dict(k=2, axis=0), grad=False)
    x = np.array([nan, 1, -inf, inf, 0.0, -0.0, 1, -1], np.float32)
    w.op("sort/special", "sort", [x], lambda x: [lax.sort(x)], dict(axis=0, num_keys=1, descending=False), grad=False)
    w.op("sort/special_descending", "sort", [x], lambda x: [jnp.sort(x, descending=True)], dict(axis=0, num_keys=1, descending=True), grad=False)
    k1, k2 = rng.integers(0, 3, 10).astype(np.int32), rng.integers(0, 3, 10).astype(np.float32)
    v = rng.uniform(-1, 1, 10).astype(np.float32)
    w.op("sort/two_keys", "sort", [k1, k2, v], lambda a, b, c: lax.sort((a, b, c), num_keys=2), dict(axis=0, num_keys=2, descending=False))
    w.op("sort/empty", "sort", [np.zeros((0, 2), np.float32)], lambda x: [lax.sort(x, dimension=0)], dict(axis=0, num_keys=1, descending=False))


def write(w):
    rng = np.random.default_rng(8)
    gathers(w, rng)
    scatters(w, rng)
    dynamic(w, rng)
    ordered(w, rng)
