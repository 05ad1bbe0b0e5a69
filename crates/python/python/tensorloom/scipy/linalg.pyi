"""Linear algebra, by the names of SciPy."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from .. import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def block_diag(*arrs: Any) -> Tensor:
    """Matrices along the diagonal of one."""

def cho_factor(a: ArrayLike, lower: Any = False) -> tuple[Tensor, bool]:
    """Cholesky's factor and whether it is the lower one, for `cho_solve`."""

def cho_solve(c_and_lower: ArrayLike, b: ArrayLike) -> Tensor:
    """The x of `a @ x = b`, by the factor of a."""

def cholesky(a: ArrayLike, lower: Any = False) -> Tensor:
    """Cholesky's factor, the upper one unless `lower`."""

def det(a: ArrayLike) -> Tensor:
    """The determinant of square matrices."""

def eigh(a: ArrayLike, b: ArrayLike = None, lower: Any = True, eigvals_only: ArrayLike = False) -> Any:
    """Eigenvalues and vectors of symmetric matrices."""

def expm(A: ArrayLike, *, max_squarings: ArrayLike = 16) -> Tensor:
    """The exponential of a matrix, by scaling and squaring."""

def hilbert(n: int) -> Tensor:
    """The matrix of 1 / (i + j + 1)."""

def inv(a: ArrayLike) -> Tensor:
    """The inverse of square matrices."""

def lu(a: ArrayLike, permute_l: ArrayLike = False) -> Any:
    """Factors `p, l, u` with `a = p @ l @ u`; or `p @ l` and u."""

def lu_factor(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """Both triangular factors in one matrix, and which rows were exchanged."""

def lu_solve(lu_and_piv: ArrayLike, b: ArrayLike, trans: ArrayLike = 0) -> Tensor:
    """The x of `a @ x = b`, by the factors of a."""

def qr(a: ArrayLike, mode: str = 'full') -> Any:
    """Orthogonal and triangular factors: whole ("full"), small ("economic"), or the second alone ("r")."""

def solve(a: ArrayLike, b: ArrayLike, lower: Any = False, assume_a: ArrayLike = 'gen') -> Tensor:
    """The x of `a @ x = b`; with `assume_a="pos"`, by Cholesky's factor."""

def solve_triangular(a: ArrayLike, b: ArrayLike, trans: ArrayLike = 0, lower: Any = False, unit_diagonal: ArrayLike = False) -> Tensor:
    """The x of `a @ x = b` with a triangular matrix; of its transpose if `trans`."""

def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular vectors and values: `u, s, vh`; or the values alone."""

def toeplitz(c: ArrayLike, r: ArrayLike = None) -> Tensor:
    """The matrix whose diagonals are constant, by its first column and row."""
