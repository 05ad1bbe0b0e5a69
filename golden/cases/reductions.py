"""Reductions and contractions."""

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from graph import FLOATS, INTS, NAMES, Graph

inf, nan = float("inf"), float("nan")
REDUCE = {"reduce_sum": jnp.sum, "reduce_prod": jnp.prod, "reduce_max": jnp.max, "reduce_min": jnp.min}
AXES = [((3, 4), [1]), ((3, 4), [0]), ((2, 3, 2), [0, 2]), ((), []), ((2, 3), [0, 1]), ((3, 0), [0]), ((4, 1), [1])]


def write(w):
    rng = np.random.default_rng(6)
    for op, f in REDUCE.items():
        for k, (shape, axes) in enumerate(AXES):
            for d in ["f32", "f64"]:
                x = rng.uniform(-2, 2, shape).astype(NAMES[d])
                w.op(f"{op}/{d}_{k}", op, [x], lambda x: f(x, axis=tuple(axes)).astype(x.dtype), {"axes": axes})
        if op in ["reduce_sum", "reduce_prod"]:
            w.op(f"{op}/nothing", op, [np.zeros((0, 3), np.float32)], lambda x: f(x, axis=0), {"axes": [0]})
        else:
            w.op(f"{op}/nothing", op, [np.zeros((0, 3), np.float32)],
                 lambda x: f(x, axis=0, initial=-inf if op == "reduce_max" else inf), {"axes": [0]}, grad=False)
        for d in ["f16", "bf16"] + INTS:
            if d in INTS:
                info = np.iinfo(NAMES[d])
                x = rng.integers(info.min, info.max, (3, 4), dtype=NAMES[d], endpoint=True)
            else:
                x = rng.uniform(-2, 2, (3, 4)).astype(NAMES[d])
            w.op(f"{op}/{d}", op, [x], lambda x: f(x, axis=1).astype(x.dtype), {"axes": [1]}, grad=False)
        x = np.array([[1, nan, 2], [inf, -inf, 1], [inf, 1, 2], [-inf, 0, 3], [0.0, inf, 1]], np.float32)
        w.op(f"{op}/special", op, [x], lambda x: f(x, axis=1), {"axes": [1]}, grad=False)
        ties = rng.integers(-1, 2, (4, 6)).astype(np.float32)
        w.op(f"{op}/ties", op, [ties], lambda x: f(x, axis=1), {"axes": [1]})
        zeros = np.array([[0, 2, 3], [0, 0, 3], [1, 2, 3]], np.float32)
        w.op(f"{op}/zeros", op, [zeros], lambda x: f(x, axis=1), {"axes": [1]})
        g = Graph(rng.uniform(-2, 2, (2, 3)).astype(np.float32))
        v = g.op("flip", g.inputs, lambda x: lax.rev(x, [0, 1]), axes=[0, 1])
        w.graph(f"{op}/flipped", g, [g.op(op, [v], lambda x: f(x, axis=0), axes=[0])])
    w.torch_op("reduce_max/ties_torch", "reduce_max", [ties], lambda x: torch.amax(x, 1), lambda x: jnp.max(x, 1), {"axes": [1]})
    w.torch_op("reduce_min/ties_torch", "reduce_min", [ties], lambda x: torch.amin(x, 1), lambda x: jnp.min(x, 1), {"axes": [1]})
    w.torch_op("reduce_prod/zeros_torch", "reduce_prod", [zeros], lambda x: torch.prod(x, 1), lambda x: jnp.prod(x, 1), {"axes": [1]})
    w.torch_op("reduce_sum/torch", "reduce_sum", [zeros], lambda x: torch.sum(x, 1), lambda x: jnp.sum(x, 1), {"axes": [1]})
    for op, f in [("reduce_any", jnp.any), ("reduce_all", jnp.all), ("reduce_max", jnp.max), ("reduce_min", jnp.min)]:
        for k, (shape, axes) in enumerate(AXES):
            x = rng.integers(0, 2, shape) > 0
            w.op(f"{op}/bool_{k}", op, [x], lambda x: f(x, axis=tuple(axes)), {"axes": axes})
    dots(w, rng)


DOT = [
    # shapes, batch axes, contracted axes
    ((2, 3), (3, 4), [], [], [1], [0]),
    ((2, 3), (4, 3), [], [], [1], [1]),
    ((3,), (3,), [], [], [0], [0]),
    ((2,), (3,), [], [], [], []),
    ((), (), [], [], [], []),
    ((2, 3, 4), (2, 4, 5), [0], [0], [2], [1]),
    ((3, 2, 4), (5, 4, 3), [2], [1], [0], [2]),
    ((2, 3, 4), (4, 2, 5), [], [], [2, 0], [0, 1]),
    ((2, 3, 4), (3, 4, 2), [1, 0], [0, 2], [2], [1]),
    ((2, 0), (0, 3), [], [], [1], [0]),
    ((0, 2), (2, 3), [], [], [1], [0]),
]


def dots(w, rng):
    for d in ["f32", "f64", "f16", "bf16"] + INTS:
        acc = {"f16": "f32", "bf16": "f32"}.get(d, d)
        for k, (a, b, lb, rb, lc, rc) in enumerate(DOT if d in ["f32", "f64"] else DOT[:1] + DOT[5:7]):
            draw = lambda s: (rng.integers(0, 100, s) if d in INTS else rng.uniform(-1, 1, s)).astype(NAMES[d])
            attrs = dict(lhs_batch=lb, rhs_batch=rb, lhs_contract=lc, rhs_contract=rc, acc=acc, out=d)
            w.op(
                f"dot/{d}_{k}", "dot", [draw(a), draw(b)],
                lambda x, y: lax.dot_general(x, y, ((lc, rc), (lb, rb)), preferred_element_type=NAMES[acc]).astype(NAMES[d]),
                attrs, grad=d in ["f32", "f64"],
            )
    attrs = dict(lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0])
    for a, out in [("bf16", "f32"), ("f16", "f32"), ("i8", "i32"), ("u8", "u32")]:
        draw = lambda s: (rng.integers(0, 100, s) if a in INTS else rng.uniform(-1, 1, s)).astype(NAMES[a])
        w.op(
            f"dot/{a}_to_{out}", "dot", [draw((2, 3)), draw((3, 2))],
            lambda x, y: lax.dot(x, y, preferred_element_type=NAMES[out]), dict(attrs, acc=out, out=out), grad=False,
        )
    x = np.array([[1, inf, 0], [nan, 1, 2]], np.float32)
    y = np.array([[1, 0], [2, 1], [inf, 1]], np.float32)
    w.op("dot/special", "dot", [x, y], lambda x, y: lax.dot(x, y), dict(attrs, acc="f32", out="f32"), grad=False)
    a, b = rng.uniform(-1, 1, (3, 4)).astype(np.float32), rng.uniform(-1, 1, (4, 2)).astype(np.float32)
    w.torch_op("dot/torch", "dot", [a, b], torch.matmul, jnp.matmul, dict(attrs, acc="f32", out="f32"))
