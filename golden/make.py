"""Writes the golden data: what JAX and PyTorch compute for our graphs.

Run it with the packages of `requirements.txt`:

    python golden/make.py            # all files
    python golden/make.py views      # one file

Each file of `data/` is a list of cases, separated by empty lines; tensors are little-endian bytes in hex.

    case <name>
    by <jax | torch | numpy>
    exact                                   (floats must agree bit by bit)
    tolerance <relative> <absolute> <why>   (instead of 1e-5 relative for f32, and the like for other dtypes)
    graph ... }                             the graph in the text form, or
    composite <name> <params> (<types>)     a composite of the library
    in <type> <hex>                         inputs
    out <type> <hex>                        expected outputs
    ct <output> <type> <hex>                cotangents of float outputs, with the expected
    grad <input> <type> <hex>               cotangents of float inputs
    tan <input> <type> <hex>                tangents of float inputs, with the expected
    dout <output> <type> <hex>              tangents of float outputs

Data depends on nothing but the names of the cases, so running it again gives the same files.
"""

import os
import sys
import zlib

os.environ["JAX_PLATFORMS"] = "cpu"

import importlib
import pathlib

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

from graph import Graph, is_float, name_of, type_of, NAMES

HERE = pathlib.Path(__file__).parent
FILES = [
    "promotion",
    "elementwise",
    "conversions",
    "views",
    "reductions",
    "indexing",
    "windows",
    "routines",
    "control",
    "composites",
    "quantised",
]


def rng_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def tensor(x):
    x = np.ascontiguousarray(np.asarray(x)).reshape(np.shape(x))
    data = x.tobytes().hex() or "-"
    return f"{type_of(x)} {data}"


def randn(rng, like, lo=-1.0, hi=1.0):
    return rng.uniform(lo, hi, like.shape).astype(like.dtype)


class Writer:
    """One file of cases."""

    def __init__(self):
        self.chunks, self.count = [], 0

    def put(self, name, by, head, inputs, outs, ct=(), grads=(), tan=(), douts=(), exact=False, tol=None):
        lines = [f"case {name}", f"by {by}"]
        if exact:
            lines.append("exact")
        if tol:
            relative, absolute, why = tol
            lines.append(f"tolerance {relative} {absolute} {why}")
        lines.append(head)
        lines += [f"in {tensor(x)}" for x in inputs]
        lines += [f"out {tensor(x)}" for x in outs]
        for key, items in [("ct", ct), ("grad", grads), ("tan", tan), ("dout", douts)]:
            lines += [f"{key} {i} {tensor(x)}" for i, x in items]
        self.chunks.append("\n".join(lines))
        self.count += 1

    def case(self, name, head, inputs, fn, grad=True, reverse=True, exact=False, tol=None):
        """A case by JAX: `fn` maps the inputs to a list of outputs."""
        rng = rng_of(name)
        inputs = [np.asarray(x) for x in inputs]
        args = [jnp.asarray(x) for x in inputs]
        outs = fn(*args)
        # fp8 has no arithmetic of its own in XLA; derivatives are checked in the wider floats.
        smooth = lambda x: is_float(x) and not name_of(x).startswith("fp8")
        wrt = [i for i, x in enumerate(inputs) if smooth(x)]
        of = [k for k, y in enumerate(outs) if smooth(y)]
        extra = {}
        if grad and wrt and of and all(smooth(y) or not is_float(y) for y in outs):

            def g(*floats):
                full = list(args)
                for i, x in zip(wrt, floats):
                    full[i] = x
                ys = fn(*full)
                return [ys[k] for k in of]

            primals = [args[i] for i in wrt]
            ct = [randn(rng, outs[k]) for k in of]
            tan = [randn(rng, inputs[i]) for i in wrt]
            _, douts = jax.jvp(g, primals, [jnp.asarray(t) for t in tan])
            extra = dict(tan=zip(wrt, tan), douts=zip(of, douts))
            if reverse:
                _, back = jax.vjp(g, *primals)
                grads = back([jnp.asarray(c) for c in ct])
                extra.update(ct=zip(of, ct), grads=zip(wrt, grads))
        self.put(name, "jax", head, inputs, outs, exact=exact, tol=tol, **extra)

    def graph(self, name, g, outs, **options):
        """A case from a graph built op by op."""
        self.case(name, g.text(outs), g.arrays, g.function(outs), **options)

    def op(self, name, op, inputs, fn, attrs=None, **options):
        """A case of one op."""
        g = Graph(*inputs)
        outs = g.op(op, g.inputs, fn, **(attrs or {}))
        self.graph(name, g, outs if isinstance(outs, list) else [outs], **options)

    def composite(self, name, composite, params, inputs, fn, **options):
        """A case of a composite of the library."""
        types = ", ".join(type_of(np.asarray(x)) for x in inputs)
        pairs = ", ".join(f"[{k}, {v}]" for k, v in params.items())
        self.case(name, f"composite {composite} [{pairs}] ({types})", inputs, fn, **options)

    def torch(self, name, head, inputs, fn, grad=True, tol=None):
        """A case by PyTorch: `fn` maps tensors to a list of tensors; reverse mode alone."""
        import torch

        rng = rng_of(name)
        inputs = [np.asarray(x) for x in inputs]
        args = [torch.from_numpy(np.array(x)) for x in inputs]
        wrt = [i for i, x in enumerate(args) if x.is_floating_point()] if grad else []
        for i in wrt:
            args[i].requires_grad_(True)
        outs = fn(*args)
        of = [k for k, y in enumerate(outs) if y.is_floating_point()] if wrt else []
        ct = [rng.uniform(-1, 1, tuple(outs[k].shape)).astype(outs[k].detach().numpy().dtype) for k in of]
        grads = []
        if of:
            found = torch.autograd.grad(
                [outs[k] for k in of],
                [args[i] for i in wrt],
                [torch.from_numpy(np.asarray(c)) for c in ct],
                allow_unused=True,
            )
            grads = [np.zeros_like(inputs[i]) if f is None else f.numpy() for i, f in zip(wrt, found)]
        values = [y.detach().numpy() for y in outs]
        self.put(name, "torch", head, inputs, values, ct=zip(of, ct), grads=zip(wrt, grads), tol=tol)

    def torch_op(self, name, op, inputs, fn, like, attrs=None, **options):
        """A case of one op by PyTorch; `like` is the JAX function that gives the types."""
        g = Graph(*inputs)
        outs = g.op(op, g.inputs, like, **(attrs or {}))
        outs = outs if isinstance(outs, list) else [outs]
        self.torch(name, g.text(outs), inputs, lambda *x: [fn(*x)], **options)

    def save(self, path):
        path.write_text("\n\n".join(self.chunks) + "\n")


def main():
    total = 0
    for file in sys.argv[1:] or FILES:
        w = Writer()
        importlib.import_module(f"cases.{file}").write(w)
        path = HERE / "data" / f"{file}.golden"
        w.save(path)
        total += w.count
        print(f"{file}: {w.count} cases, {path.stat().st_size // 1024} KiB")
    print(f"{total} cases")


if __name__ == "__main__":
    main()
