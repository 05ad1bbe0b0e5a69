"""Ops with sub-graphs: scan, call, remat."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from graph import Graph


def cell(d, width):
    """(w, h, x) -> (tanh(w·h + x), h·x)."""
    f = jnp.dtype(d)
    g = Graph(np.zeros((width, width), f), np.zeros(width, f), np.zeros(width, f))
    m, h, x = g.inputs
    name = {"float32": "f32", "float64": "f64"}[str(f)]
    mh = g.op("dot", [m, h], lambda a, b: lax.dot(a, b), lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], acc=name, out=name)
    s = g.op("add", [mh, x], lax.add)
    return g, [g.op("tanh", [s], lax.tanh), g.op("mul", [h, x], lax.mul)]


def write(w):
    rng = np.random.default_rng(7)
    for d in [np.float32, np.float64]:
        g, outs = cell(d, 3)
        body, f = g.text(outs, "  "), g.function(outs)
        for length in [0, 1, 5]:
            for reverse in [False, True]:
                for checkpoint in [0, 2]:
                    inputs = [rng.uniform(-1, 1, s).astype(d) for s in [(3, 3), (3,), (length, 3)]]
                    name = f"scan/{np.dtype(d).name}_{length}_{reverse}_{checkpoint}"

                    def scan(m, h, xs):
                        h, ys = lax.scan(lambda h, x: tuple(f(m, h, x)), h, xs, reverse=reverse)
                        return [h, ys]

                    attrs = dict(consts=1, carries=1, length=length, reverse=reverse, bounded=False, checkpoint=checkpoint, body=body)
                    w.op(name, "scan", inputs, scan, attrs)
        # A bounded scan: `count` iterations, zeros beyond.
        for count in [-3, 0, 2, 5, 9]:
            for reverse in [False, True]:
                n = int(np.clip(count, 0, 5))
                inputs = [np.int32(count)] + [rng.uniform(-1, 1, s).astype(d) for s in [(3, 3), (3,), (5, 3)]]

                def bounded(_, m, h, xs):
                    h, ys = lax.scan(lambda h, x: tuple(f(m, h, x)), h, xs[:n], reverse=reverse)
                    return [h, jnp.pad(ys, ((0, 5 - n), (0, 0)))]

                attrs = dict(consts=1, carries=1, length=5, reverse=reverse, bounded=True, checkpoint=0, body=body)
                w.op(f"scan/{np.dtype(d).name}_bounded_{count}_{reverse}", "scan", inputs, bounded, attrs)
        for op in ["call", "remat"]:
            inputs = [rng.uniform(-1, 1, s).astype(d) for s in [(3, 3), (3,), (3,)]]
            h = (lambda *x: jax.checkpoint(lambda *x: f(*x))(*x)) if op == "remat" else f
            w.op(f"{op}/{np.dtype(d).name}", op, inputs, h, dict(body=body, **({"policy": "nothing"} if op == "remat" else {})))
    branches(w, rng)
    loops(w, rng)


def graph_of(shapes, build, d=np.float32):
    g = Graph(*[np.zeros(s, d) for s in shapes])
    return g, build(g, *g.inputs)


def branches(w, rng):
    def one(g, a, b):
        return [g.op("add", [a, b], lax.add), a]

    def two(g, a, b):
        return [g.op("mul", [g.op("sin", [a], lax.sin), b], lax.mul), g.op("exp", [b], lax.exp)]

    def three(g, a, b):
        c = g.op("const", [], lambda: jnp.float32(2), value="f32[] [2.0]")
        return [g.op("broadcast", [c], lambda x: jnp.broadcast_to(x, (3,)), shape=[3], dims=[]), b]

    for k, builds in enumerate([[one], [one, two], [three, two, one]]):
        made = [graph_of([(3,), (3,)], f) for f in builds]
        texts = [g.text(outs, "  ") for g, outs in made]
        fns = [g.function(outs) for g, outs in made]
        for n in [-1, 0, 1, 2, 7]:
            args = [np.int32(n)] + [rng.uniform(-1, 1, 3).astype(np.float32) for _ in range(2)]
            w.op(f"cond/{k}_{n}", "cond", args, lambda i, a, b: lax.switch(i, fns, a, b), dict(branches=texts))


def loops(w, rng):
    """x grows until it passes a bound; reverse mode does not exist."""

    def go_on(g, bound, x, y):
        return [g.op("lt", [x, bound], lax.lt)]

    def step(g, c, x, y):
        return [g.op("add", [g.op("mul", [x, x], lax.mul), x], lax.add), g.op("mul", [g.op("sin", [y], lax.sin), c], lax.mul)]

    cond, cond_outs = graph_of([(), (), (2,)], go_on)
    body, body_outs = graph_of([(2,), (), (2,)], step)
    f, h = cond.function(cond_outs), body.function(body_outs)
    attrs = dict(cond_consts=1, body_consts=1, cond=cond.text(cond_outs, "  "), body=body.text(body_outs, "  "))
    for k, bound in enumerate([-1.0, 0.7, 5.0, 100.0]):
        args = [np.float32(bound), rng.uniform(-1, 1, 2).astype(np.float32), np.float32(0.5), rng.uniform(-1, 1, 2).astype(np.float32)]

        def loop(b, c, x, y):
            return list(lax.while_loop(lambda s: f(b, *s)[0], lambda s: tuple(h(c, *s)), (x, y)))

        w.op(f"while/{k}", "while", args, loop, attrs, reverse=False)
