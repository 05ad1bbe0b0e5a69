"""Linear algebra of complex matrices, by that of real ones: a matrix A + iB acts as [[A, -B], [B, A]] does."""

import math as _math

import numpy as _np

from . import linalg as _linalg
from . import numpy as _n
from . import _complex as _c
from ._complex import ComplexTensor, conj, divide, lift, matmul, multiply, subtract


def _real(x):
    """The real matrix that acts like a complex one."""
    top = _n.concatenate([x.real, -x.imag], -1)
    return _n.concatenate([top, _n.concatenate([x.imag, x.real], -1)], -2)


def _half(x):
    """Columns of a real matrix, upper half and lower half, as complex ones."""
    n = x.shape[-2] // 2
    return ComplexTensor(x[..., :n, :], x[..., n:, :])


def _adjoint(x):
    return conj(x.mT)


def _eye(n, like):
    re = _n.broadcast_to(_n.eye(n, n, 0, like.real.dtype), (*like.shape[:-2], n, n))
    return ComplexTensor(re, _n.zeros_like(re))


def _size2(x, axis):
    """Squares of norms along an axis."""
    return _n.sum(x.real * x.real + x.imag * x.imag, axis, keepdims=True)


def solve(x1, x2):
    a, b = _c.pair(x1, x2)
    one = b.ndim == 1
    b = b[:, None] if one else b
    lead = _np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    m, v = _real(a), _n.concatenate([b.real, b.imag], -2)
    m, v = _n.broadcast_to(m, (*lead, *m.shape[-2:])), _n.broadcast_to(v, (*lead, *v.shape[-2:]))
    y = _half(_linalg.solve(m, v))
    return y[..., 0] if one else y


def inv(x):
    return solve(x, _eye(x.shape[-1], x))


def _pivots(x):
    """The pivots of an elimination that takes the largest of each column, and the sign of its exchanges."""
    n, out = x.shape[-1], []
    sign = _n.ones(x.shape[:-2], x.real.dtype)
    for k in range(n):
        at = _n.argmax(_c.abs_(x[..., :, 0]), -1)
        sign = _n.where(at == 0, sign, -sign)
        # The chosen row comes first, the first takes its place.
        rows = _n.broadcast_to(_n.arange(n - k), (*x.shape[:-2], n - k))
        at = _n.expand_dims(at, -1)
        order = _n.where(rows == 0, at, _n.where(rows == at, 0, rows))
        order = _n.broadcast_to(_n.expand_dims(order, -1), x.shape)
        x = ComplexTensor(*(_n.take_along_axis(t, order, -2) for t in (x.real, x.imag)))
        pivot = x[..., 0, 0]
        out.append(pivot)
        none = _n.expand_dims(_c._is_zero(pivot), -1)
        safe = ComplexTensor(_n.where(none, 1.0, pivot.real[..., None]), pivot.imag[..., None])
        factor = divide(x[..., 1:, 0], safe)
        x = subtract(x[..., 1:, 1:], multiply(factor[..., :, None], x[..., 0:1, 1:]))
    return out, sign


def det(x):
    pivots, sign = _pivots(x)
    y = lift(sign, x.dtype)
    for p in pivots:
        y = multiply(y, p)
    return y


def slogdet(x):
    pivots, sign = _pivots(x)
    y, size = lift(sign, x.dtype), _n.zeros(x.shape[:-2], x.real.dtype)
    for p in pivots:
        y, size = multiply(y, _c.sign(p)), size + _c._log_size(p.real, p.imag)
    return y, size


def cholesky(x, upper=False):
    n, out = x.shape[-1], []
    for k in range(n):
        root = _n.sqrt(x.real[..., k:k + 1, k])
        below = _n.arange(n) >= k
        column = ComplexTensor(_n.where(below, x.real[..., :, k] / root, 0.0), _n.where(below, x.imag[..., :, k] / root, 0.0))
        out.append(column)
        x = subtract(x, multiply(column[..., :, None], conj(column)[..., None, :]))
    y = ComplexTensor(*(_n.stack([getattr(c, part) for c in out], -1) for part in ("real", "imag"))) if n else x
    return _adjoint(y) if upper else y


def qr(x, complete=False):
    """By Householder's reflections."""
    m, n = x.shape[-2:]
    if m == 0 or n == 0:
        k = m if complete else min(m, n)
        return _eye(m, x)[..., :, :k], x[..., :k, :]
    # Columns are measured by squares, which stay in range for elements up to 1.
    size = _n.max(_n.maximum(_n.abs(x.real), _n.abs(x.imag)), (-2, -1), keepdims=True)
    size = _n.where(size == 0, 1.0, size)
    q, r = _eye(m, x), ComplexTensor(x.real / size, x.imag / size)
    rows = _n.arange(m)
    for k in range(min(m, n)):
        column = r[..., :, k]
        v = ComplexTensor(_n.where(rows >= k, column.real, 0.0), _n.where(rows >= k, column.imag, 0.0))
        first = v[..., k:k + 1]
        turn = _c.sign(first)
        none = _c._is_zero(turn)
        norm = _n.sqrt(_size2(v, -1))
        re = _n.where(none, norm, turn.real * norm)
        im = _n.where(none, 0.0, turn.imag * norm)
        at = rows == k
        v = ComplexTensor(v.real + _n.where(at, re, 0.0), v.imag + _n.where(at, im, 0.0))
        length = _size2(v, -1)
        scale = _n.where(length == 0, 0.0, 2.0 / _n.where(length == 0, 1.0, length))
        u = v[..., :, None]
        w = conj(v)[..., None, :]
        w = ComplexTensor(w.real * scale[..., None], w.imag * scale[..., None])
        r = subtract(r, multiply(u, matmul(w, r)))
        q = subtract(q, matmul(matmul(q, u), w))
    k = m if complete else min(m, n)
    return q[..., :, :k], ComplexTensor(_n.triu(r.real * size), _n.triu(r.imag * size))[..., :k, :]


def _independent(vectors, values, count):
    """Of columns that span each space twice, orthogonal ones that span it once; and their values, in order."""
    left, kept, places = vectors, [], []
    for _ in range(count):
        at = _n.argmax(_size2(left, -2)[..., 0, :], -1)
        places.append(at)
        where = _n.broadcast_to(at[..., None, None], (*left.shape[:-1], 1))
        v = ComplexTensor(*(_n.take_along_axis(t, where, -1) for t in (left.real, left.imag)))
        # Once more against those before: what is left over may be short.
        for old in kept:
            v = subtract(v, multiply(matmul(_adjoint(old), v), old))
        size = _n.sqrt(_size2(v, -2))
        v = ComplexTensor(v.real / size, v.imag / size)
        kept.append(v)
        left = subtract(left, matmul(v, matmul(_adjoint(v), left)))
    at = _n.stack(places, -1)
    order = _n.argsort(at, -1)
    values = _n.take_along_axis(values, _n.take_along_axis(at, order, -1), -1)
    parts = []
    for part in ("real", "imag"):
        whole = _n.concatenate([getattr(v, part) for v in kept], -1)
        parts.append(_n.take_along_axis(whole, _n.broadcast_to(order[..., None, :], whole.shape), -1))
    return ComplexTensor(*parts), values


def eigh(x):
    n = x.shape[-1]
    if n == 0:
        return _n.zeros(x.shape[:-1], x.real.dtype), x
    values, vectors = _linalg.eigh(_real(x))
    vectors, values = _independent(_half(vectors), values, n)
    return values, vectors


def eigvalsh(x):
    return _linalg.eigvalsh(_real(x))[..., ::2]


def svd(x, full_matrices=True):
    m, n = x.shape[-2:]
    if m < n:
        u, s, vh = svd(_adjoint(x), full_matrices)
        return _adjoint(vh), s, _adjoint(u)
    if n == 0:
        return _eye(m, x)[..., :, :m if full_matrices else 0], _n.zeros((*x.shape[:-2], 0), x.real.dtype), _eye(0, x)
    _, s, vh = _linalg.svd(_real(x), False)
    v, s = _independent(_half(_n.matrix_transpose(vh)), s, n)
    # The columns of x v are orthogonal, as long as the singular values; those that are zero find a direction in `qr`.
    q, r = qr(matmul(x, v), complete=full_matrices)
    d = ComplexTensor(*(_n.diagonal(t, 0, -2, -1) for t in (r.real, r.imag)))
    turn = _c.sign(d)
    none = _c._is_zero(turn)
    turn = ComplexTensor(_n.where(none, 1.0, turn.real), turn.imag)[..., None, :]
    u = multiply(q[..., :, :n], turn)
    if full_matrices and m > n:
        u = ComplexTensor(*(_n.concatenate([getattr(u, p), getattr(q, p)[..., :, n:]], -1) for p in ("real", "imag")))
    return u, s, _adjoint(v)


def svdvals(x):
    return _linalg.svdvals(_real(x))[..., ::2]


def pinv(x, rtol=None):
    u, s, vh = svd(x, False)
    tol = _tolerance(x, rtol)
    keep = s > _n.max(s, -1, keepdims=True) * tol
    s = _n.where(keep, 1 / _n.where(keep, s, 1.0), 0.0)
    v = _adjoint(vh)
    return matmul(ComplexTensor(v.real * s[..., None, :], v.imag * s[..., None, :]), _adjoint(u))


def _tolerance(x, rtol):
    if rtol is None:
        return max(x.shape[-2:]) * float(_np.finfo(x.real.dtype.name).eps)
    return rtol[..., None] if getattr(rtol, "ndim", 0) else rtol


def matrix_rank(x, rtol=None):
    s = svdvals(x)
    return _n.count_nonzero(s > _n.max(s, -1, keepdims=True) * _tolerance(x, rtol), -1)


def matrix_power(x, n):
    if n < 0:
        x, n = inv(x), -n
    out = _eye(x.shape[-1], x)
    while n:
        out = matmul(out, x) if n % 2 else out
        n //= 2
        x = matmul(x, x) if n else x
    return out


def matrix_norm(x, keepdims=False, ord="fro"):  # noqa: A002
    if ord in ("nuc", 2, -2):
        s = svdvals(x)
        y = _n.sum(s, -1) if ord == "nuc" else (_n.max(s, -1) if ord == 2 else _n.min(s, -1))
    elif ord in ("fro", None):
        size = _c.abs_(x)
        y = _n.sqrt(_n.sum(size * size, (-2, -1)))
    elif ord in (1, -1, _math.inf, -_math.inf):
        sums = _n.sum(_c.abs_(x), -2 if abs(ord) == 1 else -1)
        y = _n.max(sums, -1) if ord > 0 else _n.min(sums, -1)
    else:
        raise ValueError(f"norm {ord!r}; use 1, 2, inf, their negatives, \"fro\" or \"nuc\"")
    return y[..., None, None] if keepdims else y
