"""Linear algebra, by the names of NumPy and JAX."""

from . import numpy as _n
from ._functions import fill as _fill

_table = {}
_fill("linalg", _table)
globals().update({n: f for n, f in _table.items() if not n.startswith("_")})


def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
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
    if isinstance(axis, (tuple, list)) and len(axis) == 2:
        # A matrix's rows are the first of the two, and its columns the second.
        if axis[0] % x.ndim == axis[1] % x.ndim:
            raise ValueError(f"axis {axis} names one axis twice")
        y = _table["norm"](_n.moveaxis(x, axis, (-2, -1)), ord, (-2, -1))
    else:
        y = _table["norm"](x, ord, axis)
    return _n._kept_axes(x, axis, y) if keepdims else y


def eigh(a, UPLO=None, symmetrize_input=True):  # noqa: N803
    """Eigenvalues and vectors of symmetric matrices, of which both halves are given."""
    return _table["eigh"](a)


def eigvalsh(a, UPLO=None, *, symmetrize_input=True):  # noqa: N803
    """Eigenvalues of symmetric matrices, of which both halves are given."""
    return _table["eigvalsh"](a)


def matrix_norm(x, *, ord="fro", keepdims=False):  # noqa: A002
    """Norms of matrices."""
    return _table["matrix_norm"](x, ord, keepdims)


def vector_norm(x, *, axis=None, keepdims=False, ord=2):  # noqa: A002
    """Norms of vectors, or of all elements."""
    x = _n.asarray(x)
    y = _table["vector_norm"](x, ord, axis)
    return _n._kept_axes(x, axis, y) if keepdims else y


def matrix_rank(M, rtol=None, *, tol=None, hermitian=False):  # noqa: N803
    """How many singular values are not small, relative to the largest."""
    return _table["matrix_rank"](M, tol if rtol is None else rtol)


def pinv(a, rtol=None, hermitian=False, *, rcond=None):
    """The pseudo-inverse."""
    return _table["pinv"](a, rcond if rtol is None else rtol)


def cond(x, p=None):
    """How much a matrix stretches at most and at least, as a ratio."""
    return _table["cond"](x, p)


def cross(a, b, /, *, axis=-1):
    """Products of vectors of three numbers."""
    return _n.cross(a, b, axis=axis)


def multi_dot(arrays, *, precision=None):
    """The product of several matrices, in the cheapest order."""
    return _table["multi_dot"](arrays)


def matmul(a, b, *, precision=None, preferred_element_type=None):
    """Products of matrices."""
    return _n.matmul(a, b, preferred_element_type=preferred_element_type)


def lstsq(a, b, rcond=None, *, numpy_resid=False):
    """The x for which `a @ x` is closest to b; the sums of squares that are left, the rank, and the singular values."""
    return _table["lstsq"](a, b, rcond)


def tensorsolve(a, b, axes=None):
    """The x of `tensordot(a, x, x.ndim) = b`."""
    a = _n.asarray(a)
    if axes is not None:
        a = _n.moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    return _table["tensorsolve"](a, b)


def cholesky(a, *, upper=False, symmetrize_input=True):
    """Cholesky's factor."""
    y = _table["cholesky"](a)
    return _n.matrix_transpose(y) if upper else y


def tensorinv(a, ind=2):
    """The inverse of `tensordot` with an array."""
    return _table["tensorinv"](a, ind)


def diagonal(x, *, offset=0):
    """The diagonals of matrices."""
    return _table["diagonal"](x, offset, -2, -1)


def trace(x, *, offset=0, dtype=None):
    """Sums of the diagonals of matrices."""
    return _n.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(a, b, axis=-1, *, precision=None, preferred_element_type=None):
    """Products of vectors."""
    return _n.vecdot(a, b, axis, preferred_element_type=preferred_element_type)


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None):
    """Contracts axes of two arrays."""
    return _n.tensordot(a, b, axes, preferred_element_type=preferred_element_type)
