"""Linear algebra, by the names of NumPy and JAX."""

from . import numpy as _n
from ._functions import fill as _fill

_table = {}
_fill("linalg", _table)
globals().update({n: f for n, f in _table.items() if not n.startswith("_")})


def svd(a, full_matrices=True, compute_uv=True):
    """Singular vectors and values: `u, s, vh`; or the values alone."""
    if not compute_uv:
        return _table["svdvals"](a)
    u, s, vh = _table["svd"](a)
    if full_matrices:
        u, vh = _completed(u), _n.matrix_transpose(_completed(_n.matrix_transpose(vh)))
    return u, s, vh


def _completed(u):
    """Orthogonal columns with those that are missing to a square matrix."""
    m, k = u.shape[-2:]
    if m == k:
        return u
    q, _ = _table["qr"](u, True)
    return _n.concatenate([u, q[..., k:]], -1)


def qr(a, mode="reduced"):
    """Orthogonal and triangular factors; with `mode="r"` the second alone."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode {mode!r}; use \"reduced\", \"complete\" or \"r\"")
    q, r = _table["qr"](a, mode == "complete")
    return r if mode == "r" else (q, r)


def norm(x, ord=None, axis=None, keepdims=False):  # noqa: A002
    """Norms of vectors and matrices."""
    x = _n.asarray(x)
    y = _table["norm"](x, ord, axis)
    if not keepdims:
        return y
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])


def eigh(a, UPLO=None, symmetrize_input=True):  # noqa: N803
    """Eigenvalues and vectors of symmetric matrices, of which both halves are given."""
    return _table["eigh"](a)


def cholesky(a, *, upper=False):
    """Cholesky's factor."""
    y = _table["cholesky"](a)
    return _n.matrix_transpose(y) if upper else y


def tensorinv(a, ind=2):
    """The inverse of `tensordot` with an array."""
    return _table["tensorinv"](a, ind)


def diagonal(x, offset=0):
    """The diagonals of matrices."""
    return _table["diagonal"](x, offset, -2, -1)


def trace(x, offset=0):
    """Sums of the diagonals of matrices."""
    return _table["trace"](x, offset)


def vecdot(a, b, axis=-1):
    """Products of vectors."""
    return _table["vecdot"](a, b, axis)


def tensordot(a, b, axes=2):
    """Contracts axes of two arrays."""
    return _n.tensordot(a, b, axes)
