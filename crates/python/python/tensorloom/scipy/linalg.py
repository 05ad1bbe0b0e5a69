"""Linear algebra, by the names of SciPy."""

import math as _math

from .. import linalg as _l
from .. import numpy as _n

inv, det = _l.inv, _l.det


def solve(a, b, lower=False, assume_a="gen"):
    """The x of `a @ x = b`; with `assume_a="pos"`, by Cholesky's factor."""
    return cho_solve(cho_factor(a), b) if assume_a == "pos" else _l.solve(a, b)


def svd(a, full_matrices=True, compute_uv=True):
    """Singular vectors and values: `u, s, vh`; or the values alone."""
    return _l.svd(a, full_matrices, compute_uv)


def eigh(a, b=None, lower=True, eigvals_only=False):
    """Eigenvalues and vectors of symmetric matrices."""
    if b is not None:
        raise NotImplementedError("eigh takes one matrix")
    return _l.eigvalsh(a) if eigvals_only else _l.eigh(a)


def cholesky(a, lower=False):
    """Cholesky's factor, the upper one unless `lower`."""
    return _l.cholesky(a, upper=not lower)


def cho_factor(a, lower=False):
    """Cholesky's factor and whether it is the lower one, for `cho_solve`."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower, b):
    """The x of `a @ x = b`, by the factor of a."""
    c, lower = c_and_lower
    return solve_triangular(c, solve_triangular(c, b, trans=0 if lower else 1, lower=lower), trans=1 if lower else 0, lower=lower)


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False):
    """The x of `a @ x = b` with a triangular matrix; of its transpose if `trans`."""
    a, b = _n.asarray(a), _n.asarray(b)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans {trans!r}; use 0 or 1")
    a = _n.tril(a) if lower else _n.triu(a)
    if unit_diagonal:
        a = a - a * _n.eye(a.shape[-1], dtype=a.dtype) + _n.eye(a.shape[-1], dtype=a.dtype)
    line = b.ndim == 1 or b.ndim < a.ndim
    x = _l.triangular_solve(a, b[..., None] if line else b, True, lower, trans in (1, 2, "T", "C"))
    return x[..., 0] if line else x


def lu(a, permute_l=False):
    """Factors `p, l, u` with `a = p @ l @ u`; or `p @ l` and u."""
    m, pivots = lu_factor(a)
    rows, columns = m.shape[-2:]
    k = min(rows, columns)
    lower = _n.tril(m[..., :, :k], -1) + _n.eye(rows, k, dtype=m.dtype)
    upper = _n.triu(m[..., :k, :])
    p = _n.swapaxes(_n.eye(rows, dtype=m.dtype)[_order(pivots, rows)], -1, -2)
    return (p @ lower, upper) if permute_l else (p, lower, upper)


def lu_factor(a):
    """Both triangular factors in one matrix, and which rows were exchanged."""
    m, pivots, _ = _l.lu(a)
    return m, pivots


def _order(pivots, rows):
    """Where each row came from, when rows were exchanged one after the other."""
    order = _n.arange(rows)
    for i in range(pivots.shape[-1]):
        j = pivots[i]
        a, b = order[i], order[j]
        order = order.at[i].set(b).at[j].set(a)
    return order


def lu_solve(lu_and_piv, b, trans=0):
    """The x of `a @ x = b`, by the factors of a."""
    m, pivots = lu_and_piv
    b = _n.asarray(b)
    order = _order(pivots, m.shape[-1])
    if trans in (0, "N"):
        return solve_triangular(m, solve_triangular(m, b[order], lower=True, unit_diagonal=True))
    x = solve_triangular(m, solve_triangular(m, b, trans=1), trans=1, lower=True, unit_diagonal=True)
    return _n.zeros_like(x).at[order].set(x)


def qr(a, mode="full"):
    """Orthogonal and triangular factors: whole ("full"), small ("economic"), or the second alone ("r")."""
    if mode == "r":
        return (_l.qr(a, "complete")[1],)
    if mode not in ("full", "economic"):
        raise ValueError(f"mode {mode!r}; use \"full\", \"economic\" or \"r\"")
    return _l.qr(a, "complete" if mode == "full" else "reduced")


def block_diag(*arrs):
    """Matrices along the diagonal of one."""
    blocks = [_n.atleast_2d(a) for a in arrs] or [_n.zeros((1, 0))]
    width = sum(b.shape[1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        rows.append(_n.pad(b, [(0, 0), (at, width - at - b.shape[1])]))
        at += b.shape[1]
    return _n.concatenate(rows, 0)


def toeplitz(c, r=None):
    """The matrix whose diagonals are constant, by its first column and row."""
    c = _n.asarray(c).reshape(-1)
    r = c if r is None else _n.asarray(r).reshape(-1)
    line = _n.concatenate([_n.flip(c), r[1:]])
    i, j = _n.arange(c.shape[0])[:, None], _n.arange(r.shape[0])[None, :]
    return line[(c.shape[0] - 1) - i + j]


def hilbert(n):
    """The matrix of 1 / (i + j + 1)."""
    i = _n.arange(n)
    return 1.0 / (i[:, None] + i[None, :] + 1).astype("float32")


# Coefficients of Padé's approximation of order 7, and the norm up to which it is as good as f32.
_PADE = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_PADE_13 = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0, 670442572800.0,
    33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)


def expm(A, *, max_squarings=16):  # noqa: N803
    """The exponential of a matrix, by scaling and squaring."""
    a = _n.asarray(A)
    a = a if a.dtype.kind == "f" else a.astype("float32")
    b, limit = (_PADE_13, 5.371920351148152) if a.dtype == "float64" else (_PADE, 3.925724783138660)
    norm = _n.max(_n.sum(_n.abs(a), axis=-2), axis=-1)
    times = _n.clip(_n.ceil(_n.log2(_n.maximum(norm / limit, 1.0))), 0, max_squarings)
    a = a / (2.0**times)[..., None, None].astype(a.dtype)
    eye = _n.broadcast_to(_n.eye(a.shape[-1], dtype=a.dtype), a.shape)
    squared, power, odd, even = a @ a, eye, None, None
    for k in range(0, len(b), 2):
        even = power * b[k] if even is None else even + power * b[k]
        odd = power * b[k + 1] if odd is None else odd + power * b[k + 1]
        power = power @ squared
    odd = a @ odd
    y = _l.solve(even - odd, even + odd)
    for i in range(max_squarings if times._traced else int(_n.max(times)) if times.size else 0):
        y = _n.where((times > i)[..., None, None], y @ y, y)
    return _n.where(_n.isfinite(norm)[..., None, None], y, _math.nan)
