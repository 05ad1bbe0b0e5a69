"""The array API's extension for linear algebra."""

from collections import namedtuple as _namedtuple

import numpy as _np

from . import array_api as _xp
from . import linalg as _linalg
from . import numpy as _n
from ._tensorloom import Tensor


class linalg:  # noqa: N801
    """The extension for linear algebra."""

    _eigh = _namedtuple("eigh_result", "eigenvalues eigenvectors")
    _qr = _namedtuple("qr_result", "Q R")
    _slogdet = _namedtuple("slogdet_result", "sign logabsdet")
    _svd = _namedtuple("svd_result", "U S Vh")

    matmul = staticmethod(_xp.matmul)
    matrix_transpose = staticmethod(_xp.matrix_transpose)
    tensordot = staticmethod(_xp.tensordot)
    vecdot = staticmethod(_xp.vecdot)

    @staticmethod
    def cholesky(x, /, *, upper=False):
        """Cholesky's factor."""
        y = _linalg.cholesky(x)
        return _n.matrix_transpose(y) if upper else y

    @staticmethod
    def cross(x1, x2, /, *, axis=-1):
        """Products of vectors in space."""
        x1, x2 = _xp._pair(x1, x2)
        x1, x2 = _n.broadcast_arrays([x1, x2])
        x1, x2 = _n.moveaxis(x1, axis, -1), _n.moveaxis(x2, axis, -1)
        return _n.moveaxis(_n.cross(x1, x2), -1, axis)

    @staticmethod
    def det(x, /):
        """Determinants."""
        return _linalg.det(x)

    @staticmethod
    def diagonal(x, /, *, offset=0):
        """The diagonals of matrices."""
        return _n.diagonal(x, offset, -2, -1)

    @staticmethod
    def eigh(x, /):
        """Eigenvalues and vectors of symmetric matrices."""
        return linalg._eigh(*_linalg.eigh(x))

    @staticmethod
    def eigvalsh(x, /):
        """Eigenvalues of symmetric matrices."""
        return _linalg.eigvalsh(x)

    @staticmethod
    def inv(x, /):
        """Inverse matrices."""
        return _linalg.inv(x)

    @staticmethod
    def matrix_norm(x, /, *, keepdims=False, ord="fro"):  # noqa: A002
        """Norms of matrices."""
        y = _linalg.matrix_norm(x, ord=ord)
        return y[..., None, None] if keepdims else y

    @staticmethod
    def matrix_power(x, n, /):
        """Powers of matrices."""
        return _linalg.matrix_power(x, n)

    @staticmethod
    def matrix_rank(x, /, *, rtol=None):
        """Ranks of matrices."""
        s = _linalg.svdvals(x)
        tol = (max(x.shape[-2:]) * _xp.finfo(x.dtype).eps) if rtol is None else rtol
        tol = tol[..., None] if isinstance(tol, Tensor) and tol.ndim else tol
        return _n.count_nonzero(s > _n.max(s, -1, keepdims=True) * tol, -1)

    @staticmethod
    def outer(x1, x2, /):
        """All products of two vectors."""
        x1, x2 = _xp._pair(x1, x2)
        return _n.outer(x1, x2)

    @staticmethod
    def pinv(x, /, *, rtol=None):
        """Pseudo-inverses."""
        u, s, vh = linalg.svd(x, full_matrices=False)
        tol = (max(x.shape[-2:]) * _xp.finfo(x.dtype).eps) if rtol is None else rtol
        tol = tol[..., None] if isinstance(tol, Tensor) and tol.ndim else tol
        keep = s > _n.max(s, -1, keepdims=True) * tol
        s = _n.where(keep, 1 / _n.where(keep, s, 1.0), 0.0)
        return _n.matmul(_n.matrix_transpose(vh) * s[..., None, :], _n.matrix_transpose(u))

    @staticmethod
    def qr(x, /, *, mode="reduced"):
        """Orthogonal and triangular factors."""
        if mode not in ("reduced", "complete"):
            raise ValueError(f"mode {mode!r}; use \"reduced\" or \"complete\"")
        return linalg._qr(*_linalg.qr(x, mode))

    @staticmethod
    def slogdet(x, /):
        """Signs and logarithms of determinants."""
        return linalg._slogdet(*_linalg.slogdet(x))

    @staticmethod
    def solve(x1, x2, /):
        """Solutions of linear equations."""
        x1, x2 = _xp._pair(x1, x2)
        if x2.ndim == 1:
            return _linalg.solve(x1, _n.broadcast_to(x2[:, None], (*x1.shape[:-2], x2.shape[0], 1)))[..., 0]
        lead = _np.broadcast_shapes(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
        x1 = _n.broadcast_to(x1, (*lead, *x1.shape[-2:]))
        return _linalg.solve(x1, _n.broadcast_to(x2, (*lead, *x2.shape[-2:])))

    @staticmethod
    def svd(x, /, *, full_matrices=True):
        """Singular values and vectors."""
        return linalg._svd(*_linalg.svd(x, full_matrices))

    @staticmethod
    def svdvals(x, /):
        """Singular values."""
        return _linalg.svdvals(x)

    @staticmethod
    def trace(x, /, *, offset=0, dtype=None):
        """Sums of diagonals."""
        return _xp.sum(_n.diagonal(x, offset, -2, -1), axis=-1, dtype=dtype)

    @staticmethod
    def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):  # noqa: A002
        """Norms of vectors."""
        axes = _xp._axes(x, axis)
        a = _n.abs(x)
        if ord == _xp.inf:
            return _xp.max(a, axis=axes, keepdims=keepdims)
        if ord == -_xp.inf:
            return _xp.min(a, axis=axes, keepdims=keepdims)
        if ord == 0:
            return _xp.astype(_xp.count_nonzero(x, axis=axes, keepdims=keepdims), x.dtype)
        if ord == 1:
            return _xp.sum(a, axis=axes, keepdims=keepdims)
        if ord == 2:
            return _n.sqrt(_xp.sum(x * x, axis=axes, keepdims=keepdims))
        return _xp.sum(a ** float(ord), axis=axes, keepdims=keepdims) ** (1.0 / ord)
