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
