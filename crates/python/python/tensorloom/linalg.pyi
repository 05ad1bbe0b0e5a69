"""Linear algebra, by the names of NumPy and JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def cholesky(a: ArrayLike, *, upper: Any = False) -> Tensor:
    """Cholesky's factor."""

def cond(x: ArrayLike, ord: float | str | None = None) -> Tensor:
    """The condition number for a norm; the default is the ratio of the extreme singular values."""

def cross(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The cross product along the last axis, which has 3 elements."""

def det(a: ArrayLike) -> Tensor:
    """The determinant of square matrices."""

def diagonal(x: ArrayLike, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""

def eigh(a: ArrayLike, UPLO: ArrayLike = None, symmetrize_input: bool = True) -> Any:
    """Eigenvalues and vectors of symmetric matrices, of which both halves are given."""

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

def norm(x: ArrayLike, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Norms of vectors and matrices."""

def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of elements of two vectors."""

def pinv(a: ArrayLike, rcond: float | None = None) -> Tensor:
    """The pseudo-inverse; singular values up to `rcond` times the largest count as 0."""

def qr(a: ArrayLike, mode: str = 'reduced') -> Any:
    """Orthogonal and triangular factors; with `mode="r"` the second alone."""

def slogdet(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size."""

def solve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Solves `A·X = B`; a `B` of one axis is one vector."""

def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular vectors and values: `u, s, vh`; or the values alone."""

def svdvals(a: ArrayLike) -> Tensor:
    """The singular values in descending order."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Tensor:
    """Contracts axes of two arrays."""

def tensorinv(a: ArrayLike, ind: ArrayLike = 2) -> Tensor:
    """The inverse of `tensordot` with an array."""

def tensorsolve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The `x` with `tensordot(a, x, x's axes) = b`."""

def trace(x: ArrayLike, offset: int = 0) -> Tensor:
    """Sums of the diagonals of matrices."""

def triangular_solve(a: ArrayLike, b: ArrayLike, left: bool = False, lower: bool = False, transpose: bool = False) -> Tensor:
    """Solves `op(A)·X = B` for triangular `A`, or `X·op(A) = B` unless `left`; `op` transposes if asked."""

def vecdot(a: ArrayLike, b: ArrayLike, axis: Axes = -1) -> Tensor:
    """Products of vectors."""

def vector_norm(x: ArrayLike, ord: float | str | None = None, axis: Axes = None) -> Tensor:
    """The p-norm along axes, as of one vector."""
