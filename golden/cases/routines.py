"""Fourier transforms, linear algebra, grouped products, random bits."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core.primitives import threefry2x32_p
from graph import NAMES, Graph

F32 = (2e-5, 1e-5, "both sides round a transform of several steps in f32")


def fourier(w, rng):
    for d, tol in [("f32", F32), ("f64", None)]:
        draw = lambda s: rng.uniform(-1, 1, s).astype(NAMES[d])
        for k, (shape, axes) in enumerate([((4,), [0]), ((5,), [0]), ((2, 3), [1]), ((2, 3), [1, 0]), ((4, 3, 2), [0, 2]), ((1,), [0]), ((0, 3), [1])]):
            pair = [draw(shape), draw(shape)]
            parts = lambda z: [z.real, z.imag]
            w.op(f"fft/{d}_{k}", "fft", pair, lambda a, b: parts(jnp.fft.fftn(lax.complex(a, b), axes=axes)), dict(axes=axes), tol=tol)
            w.op(f"ifft/{d}_{k}", "ifft", pair, lambda a, b: parts(jnp.fft.ifftn(lax.complex(a, b), axes=axes)), dict(axes=axes), tol=tol)
            w.op(f"rfft/{d}_{k}", "rfft", pair[:1], lambda a: parts(jnp.fft.rfftn(a, axes=axes)), dict(axes=axes), tol=tol)
        for k, (shape, axes, length) in enumerate([((3,), [0], 4), ((3,), [0], 5), ((2, 3), [0, 1], 4), ((2, 3), [1], 5), ((1,), [0], 1)]):
            pair = [draw(shape), draw(shape)]
            sizes = [shape[a] for a in axes[:-1]] + [length]
            w.op(f"irfft/{d}_{k}", "irfft", pair, lambda a, b: jnp.fft.irfftn(lax.complex(a, b), s=sizes, axes=axes), dict(axes=axes, length=length), tol=tol)


def linalg(w, rng):
    for d, tol in [("f32", (1e-4, 2e-5, "factorisations in f32 amplify rounding by the condition number")), ("f64", None)]:
        for k, shape in enumerate([(3, 3), (2, 2, 2), (1, 1), (4, 4), (0, 2, 2)]):
            x = rng.uniform(-1, 1, shape)
            a = (x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])).astype(NAMES[d])
            w.op(f"cholesky/{d}_{k}", "cholesky", [a], lambda a: lax.linalg.cholesky(a), tol=tol)
            # Eigenvectors have either sign: their squares don't.
            s = (x + np.swapaxes(x, -1, -2)).astype(NAMES[d])
            g = Graph(s)
            values, vectors = g.op("eigh", g.inputs, lambda a: list(reversed(lax.linalg.eigh(a))))
            squares = g.op("mul", [vectors, vectors], lax.mul)
            w.graph(f"eigh/{d}_{k}", g, [values, squares], tol=tol)
            m = (x + 2 * np.eye(shape[-1])[::-1]).astype(NAMES[d])
            w.op(f"lu/{d}_{k}", "lu", [m], lambda a: list(lax.linalg.lu(a)), tol=tol)
        for k, shape in enumerate([(3, 2), (2, 3), (3, 3), (2, 3, 2)]):
            a = rng.uniform(-1, 1, shape).astype(NAMES[d])
            tall = shape[-2] >= shape[-1]
            w.op(f"qr/{d}_{k}", "qr", [a], lambda a: list(jnp.linalg.qr(a)), dict(full=False), tol=tol, grad=tall)
            w.op(f"qr/full_{d}_{k}", "qr", [a], lambda a: list(jnp.linalg.qr(a, mode="complete")), dict(full=True), tol=tol, grad=False)
            w.op(f"svd/values_{d}_{k}", "svd", [a], lambda a: [jnp.linalg.svd(a, compute_uv=False)], dict(vectors=False), tol=tol)
            g = Graph(a)
            u, s, v = g.op("svd", g.inputs, lambda a: list(jnp.linalg.svd(a, full_matrices=False)), vectors=True)
            w.graph(f"svd/{d}_{k}", g, [g.op("mul", [u, u], lax.mul), s, g.op("mul", [v, v], lax.mul)], tol=tol)
            w.op(f"lu/rectangular_{d}_{k}", "lu", [a], lambda a: list(lax.linalg.lu(a)), tol=tol)
        for bits in range(16):
            left, lower, transpose, unit = [bool(bits & m) for m in (1, 2, 4, 8)]
            a = (rng.uniform(-1, 1, (3, 3)) + 2 * np.eye(3)).astype(NAMES[d])
            b = rng.uniform(-1, 1, (3, 2) if left else (2, 3)).astype(NAMES[d])

            def solve(a, b):
                return lax.linalg.triangular_solve(a, b, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit)

            w.op(f"triangular_solve/{d}_{bits}", "triangular_solve", [a, b], solve, dict(left=left, lower=lower, transpose=transpose, unit=unit), tol=tol)


def ragged(w, rng):
    for d in ["f32", "f64"]:
        for k, sizes in enumerate([[2, 3], [0, 5], [1, 1], [5, 0], [0, 0]]):
            offsets = np.cumsum([0] + sizes).astype(np.int32)
            a, b = rng.uniform(-1, 1, (5, 3)).astype(NAMES[d]), rng.uniform(-1, 1, (2, 3, 2)).astype(NAMES[d])

            def rows(a, b, o):
                group = jnp.sum(jnp.arange(5)[:, None] >= o[None, 1:], axis=1)
                inside = (jnp.arange(5) >= o[0]) & (jnp.arange(5) < o[-1])
                y = jnp.einsum("mk,mkn->mn", a, b[jnp.clip(group, 0, 1)])
                return jnp.where(inside[:, None], y, 0)

            if sum(sizes) == 5:
                f = lambda a, b, o: lax.ragged_dot(a, b, o[1:] - o[:-1])
            else:
                f = rows
            w.op(f"ragged_dot/rows_{d}_{k}", "ragged_dot", [a, b, offsets], f, dict(mode="rows", batch=0, acc=d, out=d))
            c = rng.uniform(-1, 1, (5, 2)).astype(NAMES[d])

            def contract(a, c, o):
                row = jnp.arange(5)[None, :]
                mask = ((row >= o[:-1, None]) & (row < o[1:, None])).astype(a.dtype)
                return jnp.einsum("gr,rm,rn->gmn", mask, a, c)

            w.op(f"ragged_dot/contract_{d}_{k}", "ragged_dot", [a, c, offsets], contract, dict(mode="contract", batch=0, acc=d, out=d))


def random_bits(w, rng):
    for k, shape in enumerate([(8,), (), (2, 3), (0,)]):
        args = [rng.integers(0, 2**32, shape, dtype=np.uint32) for _ in range(4)]
        w.op(f"threefry2x32/{k}", "threefry2x32", args, lambda *x: list(threefry2x32_p.bind(*x)))
    key = jax.random.key_data(jax.random.key(42))
    bits = np.array(jax.random.bits(jax.random.key(42), (6,), jnp.uint32))
    # JAX's partitionable scheme: the counter is the 64-bit position, the bits are the two words xored.
    args = [np.full(6, key[0], np.uint32), np.full(6, key[1], np.uint32), np.zeros(6, np.uint32), np.arange(6, dtype=np.uint32)]
    g = Graph(*args)
    a, b = g.op("threefry2x32", g.inputs, lambda *x: list(threefry2x32_p.bind(*x)))
    out = g.op("xor", [a, b], lax.bitwise_xor)
    assert (np.asarray(out.value) == bits).all()
    w.graph("threefry2x32/random_bits", g, [out])
    w.op("name/f32", "name", [rng.uniform(-1, 1, 3).astype(np.float32)], lambda x: x, dict(name='"h"'))


def write(w):
    rng = np.random.default_rng(10)
    fourier(w, rng)
    linalg(w, rng)
    ragged(w, rng)
    random_bits(w, rng)
