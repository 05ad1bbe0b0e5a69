"""Linear algebra, by the names of NumPy and JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def cholesky(a: ArrayLike, *, upper: Any = False, symmetrize_input: bool = True) -> Tensor:
    """Cholesky's factor."""

def cond(x: ArrayLike, p: ArrayLike = None) -> Any:
    """How much a matrix stretches at most and at least, as a ratio."""

def cross(a: ArrayLike, b: ArrayLike, /, *, axis: Axes = -1) -> Tensor:
    """Products of vectors of three numbers."""

def det(a: ArrayLike) -> Tensor:
    """The determinant of square matrices."""

def diagonal(x: ArrayLike, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""

def eigh(a: ArrayLike, UPLO: ArrayLike = None, symmetrize_input: bool = True) -> Any:
    """Eigenvalues and vectors of symmetric matrices, of which both halves are given."""

def eigvalsh(a: ArrayLike, UPLO: ArrayLike = None, *, symmetrize_input: bool = True) -> Tensor:
    """Eigenvalues of symmetric matrices, of which both halves are given."""

def inv(a: ArrayLike) -> Tensor:
    """The inverse of square matrices."""

def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike = None, *, numpy_resid: ArrayLike = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The x for which `a @ x` is closest to b; the sums of squares that are left, the rank, and the singular values."""

def lu(a: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
    """`L` and `U` in one matrix, the pivots, and the permutation with `A[p] = L·U`."""

def matmul(a: ArrayLike, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products of matrices."""

def matrix_norm(x: ArrayLike, *, ord: Any = 'fro', keepdims: bool = False) -> Tensor:
    """Norms of matrices."""

def matrix_power(a: ArrayLike, n: int) -> Tensor:
    """A square matrix multiplied by itself; a negative power inverts it first."""

def matrix_rank(M: ArrayLike, rtol: float | None = None, *, tol: ArrayLike = None, hermitian: ArrayLike = False) -> Tensor:
    """How many singular values are not small, relative to the largest."""

def matrix_transpose(x: ArrayLike) -> Tensor:
    """Exchanges the last two axes."""

def multi_dot(arrays: ArrayLike, *, precision: ArrayLike = None) -> Tensor:
    """The product of several matrices, in the cheapest order."""

def norm(x: ArrayLike, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Norms of vectors and matrices."""

def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of elements of two vectors."""

def pinv(a: ArrayLike, rtol: float | None = None, hermitian: ArrayLike = False, *, rcond: ArrayLike = None) -> Tensor:
    """The pseudo-inverse."""

def qr(a: ArrayLike, mode: str = 'reduced') -> Any:
    """Orthogonal and triangular factors; with `mode="r"` the second alone."""

def slogdet(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size."""

def solve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Solves `A·X = B`; a `B` of one axis is one vector."""

def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: ArrayLike = False) -> Any:
    """Singular vectors and values: `u, s, vh`; or the values alone."""

def svdvals(a: ArrayLike) -> Tensor:
    """The singular values in descending order."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Contracts axes of two arrays."""

def tensorinv(a: ArrayLike, ind: ArrayLike = 2) -> Tensor:
    """The inverse of `tensordot` with an array."""

def tensorsolve(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None) -> Tensor:
    """The x of `tensordot(a, x, x.ndim) = b`."""

def trace(x: ArrayLike, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Sums of the diagonals of matrices."""

def triangular_solve(a: ArrayLike, b: ArrayLike, left: bool = False, lower: bool = False, transpose: bool = False) -> Tensor:
    """Solves `op(A)·X = B` for triangular `A`, or `X·op(A) = B` unless `left`; `op` transposes if asked."""

def vecdot(a: ArrayLike, b: ArrayLike, axis: Axes = -1, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products of vectors."""

def vector_norm(x: ArrayLike, *, axis: Axes = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norms of vectors, or of all elements."""
