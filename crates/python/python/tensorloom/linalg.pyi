"""Functions of `linalg`, by the names of JAX and SciPy."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def cholesky(a: ArrayLike) -> Tensor:
    """The lower factor `L` of positive definite matrices `L·Lᵀ`; NaN where a matrix is not positive definite."""

def cond(x: ArrayLike, ord: float | str | None = None) -> Tensor:
    """The condition number for a norm; the default is the ratio of the extreme singular values."""

def cross(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The cross product along the last axis, which has 3 elements."""

def det(a: ArrayLike) -> Tensor:
    """The determinant of square matrices."""

def diagonal(x: ArrayLike, k: int, a: int, b: int) -> Tensor:
    """The k-th diagonal of the planes of two axes; it becomes the last axis."""

def eigh(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """Eigenvalues of symmetric matrices in ascending order, and eigenvectors as columns."""

def eigvalsh(a: ArrayLike) -> Tensor:
    """Eigenvalues of symmetric matrices in ascending order."""

def inv(a: ArrayLike) -> Tensor:
    """The inverse of square matrices."""

def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Least squares: the `x` of least size that makes `‖A·x − b‖` smallest, the squared residuals of the columns, the rank, and the singular values."""

def lu(a: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
    """`L` and `U` in one matrix, the pivots, and the permutation with `A[p] = L·U`."""

def matmul(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The matrix product with NumPy's rules."""

def matrix_norm(x: ArrayLike, ord: float | str | None = None, keep: bool = False) -> Tensor:
    """A norm of the matrices in the last two axes, which stay with size 1 if `keep`."""

def matrix_power(a: ArrayLike, n: int) -> Tensor:
    """A square matrix multiplied by itself; a negative power inverts it first."""

def matrix_rank(x: ArrayLike, rtol: float | None = None) -> Tensor:
    """How many singular values are above `rtol` times the largest."""

def matrix_transpose(x: ArrayLike) -> Tensor:
    """Exchanges the last two axes."""

def multi_dot(xs: Sequence[ArrayLike]) -> Tensor:
    """The product of several matrices in the order that costs least; the first and the last may be vectors."""

def norm(x: ArrayLike, ord: float | str | None = None, axis: Axes = None) -> Tensor:
    """The norm of vectors (one axis) or matrices (two axes); of all elements for `()`."""

def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of elements of two vectors."""

def pinv(a: ArrayLike, rcond: float | None = None) -> Tensor:
    """The pseudo-inverse; singular values up to `rcond` times the largest count as 0."""

def qr(a: ArrayLike, full: bool = False) -> tuple[Tensor, Tensor]:
    """`Q` with orthonormal columns and upper triangular `R`, so that `A = Q·R`; square `Q` if `full`."""

def slogdet(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size."""

def solve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Solves `A·X = B`; a `B` of one axis is one vector."""

def svd(a: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
    """`U`, the singular values in descending order, and `Vᵀ`, with as many vectors as values: `A = U·diag(s)·Vᵀ`."""

def svdvals(a: ArrayLike) -> Tensor:
    """The singular values in descending order."""

def tensorinv(a: ArrayLike, ind: int) -> Tensor:
    """The inverse of a tensor whose first `ind` axes together are as large as the others."""

def tensorsolve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The `x` with `tensordot(a, x, x's axes) = b`."""

def trace(x: ArrayLike, k: int = 0) -> Tensor:
    """The sum along the k-th diagonal."""

def triangular_solve(a: ArrayLike, b: ArrayLike, left: bool = False, lower: bool = False, transpose: bool = False) -> Tensor:
    """Solves `op(A)·X = B` for triangular `A`, or `X·op(A) = B` unless `left`; `op` transposes if asked."""

def vecdot(a: ArrayLike, b: ArrayLike, axis: int) -> Tensor:
    """Inner products along an axis, after broadcasting."""

def vector_norm(x: ArrayLike, ord: float | str | None = None, axis: Axes = None) -> Tensor:
    """The p-norm along axes, as of one vector."""
