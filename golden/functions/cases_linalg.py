"""Cases of `linalg`."""

import jax
import jax.numpy as jnp
import numpy as np

from make import given, noise, number, signed

la = jnp.linalg


def definite(n, seed=1, batch=()):
    """Positive definite matrices whose elements are exact in f32."""
    k = int(np.prod(batch))
    a = np.array([number("s", noise(seed, i)) for i in range(k * n * n)]).reshape(*batch, n, n)
    return given(np.round((a @ a.swapaxes(-1, -2) + n * np.eye(n)) * 64) / 64)


def regular(n, seed=1, batch=()):
    k = int(np.prod(batch))
    a = np.array([number("s", noise(seed, i)) for i in range(k * n * n)]).reshape(*batch, n, n)
    return given(a + 3 * np.eye(n))


def write(w):
    for n, batch in ((1, ()), (3, ()), (4, ()), (3, (2,))):
        a, r = definite(n, batch=batch), regular(n, batch=batch)
        w.case("linalg.cholesky", la.cholesky, a, loose=4)
        w.case("linalg.inv", la.inv, r, loose=8)
        w.case("linalg.det", la.det, r, loose=4)
        w.case("linalg.slogdet", la.slogdet, r, loose=4)
        w.case("linalg.eigvalsh", la.eigvalsh, a, loose=8)
        w.case("linalg.eigh", lambda x: (lambda v, q: (v, q * q))(*la.eigh(x)), a, loose=64)
        w.case("linalg.solve", la.solve, r, signed(*batch, n, 2, seed=5), loose=8)
        w.case("linalg.lu", lambda x: jax.lax.linalg.lu(x), r, loose=8)
        for k in (0, 1, 3, -2):
            w.case("linalg.matrix_power", lambda x: la.matrix_power(x, k), r, k=k, loose=16)
        w.case("linalg.trace", la.trace, r, grad=True)
        w.case("linalg.diagonal", lambda x: la.diagonal(x), r)
    w.case("linalg.det", la.det, given([[0.0, 1.0], [1.0, 0.0]]), loose=4)
    w.case("linalg.det", la.det, given([[0.0, 2.0, 1.0], [1.0, 0.5, 0.0], [3.0, 1.0, 2.0]]), loose=4)
    w.case("linalg.solve", la.solve, regular(3), signed(3, seed=5), loose=8)
    w.case("linalg.solve", la.solve, regular(3, batch=(2,)), signed(3, 1, seed=5), loose=8)
    for m, n in ((4, 2), (3, 3), (2, 4)):
        a = signed(m, n, seed=3)
        w.case("linalg.qr", lambda x: la.qr(x), a, grad=m >= n, full=0, loose=16)
        w.case("linalg.qr", lambda x: la.qr(x, "complete"), a, grad=False, full=1, loose=16)
        w.case("linalg.svd", lambda x: (lambda u, s, v: (u * u, s, v * v))(*la.svd(x, full_matrices=False)), a, loose=64)
        w.case("linalg.svdvals", la.svdvals, a, loose=8)
        w.case("linalg.pinv", la.pinv, a, loose=32)
        w.case("linalg.matrix_rank", lambda x: la.matrix_rank(x), a, grad=False)
        w.case("linalg.lstsq", lambda x, b: (lambda x, r, k, s: (x, 1 + jnp.ravel(r), k, s))(*la.lstsq(x, b)), a, signed(m, 2, seed=4), grad=False, loose=32)
        w.case("linalg.lstsq", lambda x, b: la.lstsq(x, b)[0], a, signed(m, seed=4), only=1, loose=64)
        for ord in (None, "fro", "nuc", 1, 2, -1, -2, np.inf, -np.inf):
            for keep in (0, 1):
                w.case("linalg.matrix_norm", lambda x: la.matrix_norm(x, ord="fro" if ord is None else ord, keepdims=bool(keep)), a, ord=ord, keep=keep, loose=8)
            w.case("linalg.norm", lambda x: la.norm(x, ord), a, ord=ord, axes="n", keep=0, loose=8)
        for ord in (None, 1, 2, -2, np.inf, "fro"):
            if m == n or ord in (None, 2, -2):
                w.case("linalg.cond", lambda x: la.cond(x, ord), a, ord=ord, loose=64)
    w.case("linalg.matrix_rank", lambda x: la.matrix_rank(x), given([[1.0, 2.0], [2.0, 4.0]]), grad=False)
    for ord in (1, 2, 3, 0.5, 0, np.inf, -np.inf, -1):
        w.case("linalg.vector_norm", lambda x: la.vector_norm(x, ord=ord, axis=-1), signed(2, 4), grad=ord != 0, ord=ord, axes=-1, keep=0)
        w.case("linalg.norm", lambda x: la.norm(x, ord, axis=0, keepdims=True), signed(4, 2), grad=ord != 0, ord=ord, axes=0, keep=1)
    w.case("linalg.vector_norm", lambda x: la.vector_norm(x), signed(2, 3), ord=2, axes="n", keep=0)
    w.case("linalg.norm", lambda x: la.norm(x), signed(2, 3, 2), ord=None, axes="n", keep=0)
    axes(w)
    for left in (1, 0):
        for lower in (1, 0):
            for trans in (0, 1):
                f = lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=bool(left), lower=bool(lower), transpose_a=bool(trans))
                w.case("linalg.triangular_solve", f, regular(3), signed(3, 3, seed=2), left=left, lower=lower, transpose=trans, loose=8)
    w.case("linalg.multi_dot", lambda *x: la.multi_dot(x), signed(2, 4), signed(4, 3, seed=2), signed(3, 5, seed=3))
    w.case("linalg.multi_dot", lambda *x: la.multi_dot(x), signed(4), signed(4, 3, seed=2), signed(3, seed=3))
    w.case("linalg.tensorinv", lambda x: la.tensorinv(x, 1), given((np.array([number("s", noise(3, i)) for i in range(16)]).reshape(4, 4) + 3 * np.eye(4)).reshape(4, 2, 2)), ind=1, loose=16)
    w.case("linalg.tensorsolve", la.tensorsolve, given((np.array([number("s", noise(3, i)) for i in range(16)]).reshape(4, 4) + 3 * np.eye(4)).reshape(4, 2, 2)), signed(4, seed=2), loose=16)
    w.case("linalg.cross", la.cross, signed(2, 3), signed(2, 3, seed=2))
    w.case("linalg.matmul", la.matmul, signed(2, 3), signed(3, 2, seed=2))
    w.case("linalg.outer", la.outer, signed(2), signed(3, seed=2))
    w.case("linalg.vecdot", la.vecdot, signed(2, 3), signed(2, 3, seed=2))
    w.case("linalg.matrix_transpose", la.matrix_transpose, signed(2, 3))
    w.case("linalg.tensordot", lambda a, b: la.tensordot(a, b, axes=((1,), (0,))), signed(2, 3), signed(3, 2, seed=2))


def axes(w):
    """Norms of matrices along axes in either order, and of integers."""
    for ord in (None, "fro", "nuc", 1, -1, 2, np.inf, -np.inf):
        for a, t in (((1, 0), "1,0"), ((0, 1), "0,1"), ((2, 0), "2,0"), ((0, -1), "0,-1")):
            w.case("linalg.norm", lambda x: la.norm(x, ord, axis=a, keepdims=t == "2,0"), signed(2, 3, 4), grad=ord in (None, 1), ord=ord, axes=t, keep=int(t == "2,0"), loose=8)
    w.case("linalg.norm", lambda x: np.linalg.norm(np.asarray(x, "float64")), given([100, 100, 100], "i8"), ord=None, axes="n", keep=0, floats=("f32",))
