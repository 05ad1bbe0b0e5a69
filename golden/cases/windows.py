"""Convolution, pooling, running reductions and places of extrema."""

import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from jax import lax
from graph import INTS, NAMES, Graph

inf, nan = float("inf"), float("nan")

# x, kernel, strides, low, high, base dilation, window dilation, groups, batch groups
CONV = [
    ((2, 2, 5), (3, 2, 3), [1], [0], [0], [1], [1], 1, 1),
    ((1, 2, 5), (2, 2, 2), [2], [1], [2], [1], [2], 1, 1),
    ((1, 1, 4), (1, 1, 3), [1], [-1], [2], [2], [1], 1, 1),
    ((1, 1, 6), (1, 1, 2), [3], [0], [-1], [1], [3], 1, 1),
    ((1, 2, 3, 4), (2, 2, 2, 3), [1, 2], [1, 0], [0, 1], [1, 1], [1, 1], 1, 1),
    ((1, 1, 5, 5), (2, 1, 3, 3), [2, 2], [1, 1], [1, 1], [1, 1], [1, 1], 1, 1),
    ((1, 1, 3, 3, 3), (1, 1, 2, 2, 2), [1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1], 1, 1),
    ((2, 4, 4), (6, 2, 3), [1], [1], [1], [1], [1], 2, 1),
    ((1, 3, 5), (3, 1, 2), [2], [0], [1], [1], [1], 3, 1),
    ((4, 2, 4), (4, 2, 2), [1], [0], [0], [1], [1], 1, 2),
    ((0, 1, 3), (2, 1, 2), [1], [0], [0], [1], [1], 1, 1),
    ((1, 1, 2), (1, 1, 4), [1], [0], [0], [1], [1], 1, 1),
]


def window_attrs(strides, low, high, base, window):
    return dict(strides=strides, low=low, high=high, base_dilation=base, window_dilation=window)


def convolutions(w, rng):
    for k, (x, kernel, strides, low, high, base, window, groups, batch) in enumerate(CONV):
        for d in ["f32", "f64"]:
            attrs = dict(window_attrs(strides, low, high, base, window), groups=groups, batch_groups=batch, acc=d, out=d)

            def f(x, k):
                return lax.conv_general_dilated(
                    x, k, strides, list(zip(low, high)), base, window, feature_group_count=groups, batch_group_count=batch,
                )

            args = [rng.uniform(-1, 1, s).astype(NAMES[d]) for s in [x, kernel]]
            w.op(f"conv/{d}_{k}", "conv", args, f, attrs)
    for k, (pad, stride, dilation, groups) in enumerate([(0, 1, 1, 1), (1, 2, 1, 2), (2, 1, 2, 1)]):
        x = rng.uniform(-1, 1, (2, 4, 7)).astype(np.float32)
        kernel = rng.uniform(-1, 1, (4, 4 // groups, 3)).astype(np.float32)
        attrs = dict(window_attrs([stride], [pad], [pad], [1], [dilation]), groups=groups, batch_groups=1, acc="f32", out="f32")
        like = lambda x, k: lax.conv_general_dilated(x, k, [stride], [(pad, pad)], [1], [dilation], feature_group_count=groups)
        w.torch_op(f"conv/torch{k}", "conv", [x, kernel], lambda x, k: F.conv1d(x, k, None, stride, pad, dilation, groups), like, attrs)


POOL = [
    ((5,), [3], [1], [0], [0], [1], [1]),
    ((3, 4), [2, 2], [2, 1], [1, 0], [1, 0], [1, 1], [1, 1]),
    ((6,), [2], [2], [1], [1], [1], [2]),
    ((4,), [3], [1], [1], [0], [2], [1]),
    ((2,), [4], [1], [0], [0], [1], [1]),
    ((2, 0), [1, 1], [1, 1], [0, 0], [0, 0], [1, 1], [1, 1]),
]
POOLS = {
    "sum": (lax.add, lambda d: 0),
    "prod": (lax.mul, lambda d: 1),
    "max": (lax.max, lambda d: -inf if d[0] in "fb" else np.iinfo(NAMES[d]).min),
    "min": (lax.min, lambda d: inf if d[0] in "fb" else np.iinfo(NAMES[d]).max),
}


def pools(w, rng):
    for kind, (op, init) in POOLS.items():
        for k, (shape, window, strides, low, high, base, dilation) in enumerate(POOL):
            for d in ["f32", "f64", "i32"]:
                x = (rng.integers(-9, 9, shape) if d == "i32" else rng.uniform(-2, 2, shape)).astype(NAMES[d])

                def f(x):
                    start = np.array(init(d), NAMES[d])
                    return lax.reduce_window(x, start, op, window, strides, list(zip(low, high)), base, dilation)

                attrs = dict(window=window, **window_attrs(strides, low, high, base, dilation))
                # JAX differentiates sums, and extrema without dilations.
                grad = d != "i32" and (kind == "sum" or (kind in ["max", "min"] and max(base + dilation) == 1))
                w.op(f"reduce_window_{kind}/{d}_{k}", f"reduce_window_{kind}", [x], f, attrs, grad=grad, reverse=grad)
    for kind, op, init in [("any", lax.bitwise_or, False), ("all", lax.bitwise_and, True)]:
        x = rng.integers(0, 2, 8) > 0
        attrs = dict(window=[3], **window_attrs([1], [1], [1], [1], [1]))
        w.op(f"reduce_window_{kind}/bool", f"reduce_window_{kind}", [x], lambda x: lax.reduce_window(x, np.array(init), op, [3], [1], [(1, 1)]), attrs)
    x = rng.uniform(-2, 2, (2, 3, 8)).astype(np.float32)
    attrs = dict(window=[1, 1, 3], **window_attrs([1, 1, 2], [0, 0, 1], [0, 0, 1], [1] * 3, [1] * 3))
    like = lambda x: lax.reduce_window(x, np.float32(-inf), lax.max, [1, 1, 3], [1, 1, 2], [(0, 0), (0, 0), (1, 1)])
    w.torch_op("reduce_window_max/torch", "reduce_window_max", [x], lambda x: F.max_pool1d(x, 3, 2, 1), like, attrs)
    # Of equal elements the first has the gradient, as in PyTorch.
    ties = rng.integers(0, 2, (2, 3, 8)).astype(np.float32)
    w.torch_op("reduce_window_max/ties_torch", "reduce_window_max", [ties], lambda x: F.max_pool1d(x, 3, 2, 1), like, attrs)
    like = lambda x: lax.reduce_window(x, np.float32(0), lax.add, [1, 1, 3], [1, 1, 2], [(0, 0), (0, 0), (1, 1)])
    w.torch_op("reduce_window_sum/torch", "reduce_window_sum", [x], lambda x: F.avg_pool1d(x, 3, 2, 1) * 3, like, attrs)
    # The linear maps behind max pooling: as PyTorch's indices read and write.
    keys, values = rng.uniform(-2, 2, (1, 1, 6)).astype(np.float32), rng.uniform(-2, 2, (1, 1, 6)).astype(np.float32)
    attrs = dict(window=[1, 1, 2], **window_attrs([1, 1, 2], [0] * 3, [0] * 3, [1] * 3, [1] * 3))

    def read(keys, values):
        _, at = F.max_pool1d(keys, 2, 2, return_indices=True)
        return values.gather(2, at)

    def write(keys, values):
        _, at = F.max_pool1d(keys, 2, 2, return_indices=True)
        return torch.zeros_like(keys).scatter_add(2, at, values)

    w.torch_op("window_gather_max/torch", "window_gather_max", [keys, values], read, lambda k, v: v[:, :, :3], attrs)
    w.torch_op("window_scatter_max/torch", "window_scatter_max", [keys, values[:, :, :3]], write, lambda k, v: k, attrs)
    w.torch_op("window_gather_min/torch", "window_gather_min", [keys, values], lambda k, v: read(-k, v), lambda k, v: v[:, :, :3], attrs)
    w.torch_op("window_scatter_min/torch", "window_scatter_min", [keys, values[:, :, :3]], lambda k, v: write(-k, v), lambda k, v: k, attrs)


CUM = {"cumsum": lax.cumsum, "cumprod": lax.cumprod, "cummax": lax.cummax, "cummin": lax.cummin}


def running(w, rng):
    for op, f in CUM.items():
        for reverse in [False, True]:
            for k, (shape, axis) in enumerate([((5,), 0), ((2, 4), 1), ((3, 2), 0), ((0, 2), 0), ((2, 0), 0)]):
                for d in ["f32", "f64", "i32"]:
                    x = (rng.integers(-9, 9, shape) if d == "i32" else rng.uniform(-2, 2, shape)).astype(NAMES[d])
                    # JAX's derivative of running extrema needs elements to scan.
                    grad = x.size > 0 or op in ["cumsum", "cumprod"]
                    w.op(f"{op}/{d}_{k}_{reverse}", op, [x], lambda x: f(x, axis=axis, reverse=reverse), dict(axis=axis, reverse=reverse), grad=grad)
        for d in [i for i in INTS if i != "i32"] + ["f16", "bf16"]:
            x = rng.integers(0, 5, (2, 4)).astype(NAMES[d])
            w.op(f"{op}/{d}", op, [x], lambda x: f(x, axis=1), dict(axis=1, reverse=False), grad=False)
    zeros = np.array([2, 0, 3, 0, 4], np.float32)
    w.torch_op("cumprod/zeros_torch", "cumprod", [zeros], lambda x: torch.cumprod(x, 0), lambda x: jnp.cumprod(x), dict(axis=0, reverse=False))
    ties = rng.integers(0, 3, 8).astype(np.float32)
    w.torch_op("cummax/ties_torch", "cummax", [ties], lambda x: torch.cummax(x, 0).values, lambda x: lax.cummax(x), dict(axis=0, reverse=False))
    w.torch_op("cummin/ties_torch", "cummin", [ties], lambda x: torch.cummin(x, 0).values, lambda x: lax.cummin(x), dict(axis=0, reverse=False))
    b = rng.integers(0, 2, 6) > 0
    w.op("cumany/bool", "cumany", [b], lambda x: lax.cummax(x.astype(jnp.int32)) > 0, dict(axis=0, reverse=False))
    w.op("cumall/bool", "cumall", [b], lambda x: lax.cummin(x.astype(jnp.int32)) > 0, dict(axis=0, reverse=False))


def places(w, rng):
    for op, f in [("argmax", lax.argmax), ("argmin", lax.argmin)]:
        for index in ["i32", "i64"]:
            for d in INTS + ["f32", "f64", "f16", "bf16", "bool"]:
                x = rng.integers(0, 2 if d == "bool" else 4, (3, 6)).astype(NAMES[d])
                for axis in [0, 1]:
                    w.op(f"{op}/{d}_{index}_{axis}", op, [x], lambda x: f(x, axis, NAMES[index]), dict(axis=axis, index=index), grad=False)
        x = np.array([[1, nan, 3, nan], [inf, -inf, inf, 0], [-inf, 0, 5, -inf]], np.float32)
        w.op(f"{op}/special", op, [x], lambda x: f(x, 1, np.int32), dict(axis=1, index="i32"), grad=False)


def write(w):
    rng = np.random.default_rng(9)
    convolutions(w, rng)
    pools(w, rng)
    running(w, rng)
    places(w, rng)
