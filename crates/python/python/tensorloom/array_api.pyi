"""The namespace of the array API standard, version 2024.12."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from builtins import bool as _bool
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

__array_api_version__: str
bool: DType
complex128: Any
complex64: Any
e: float
float32: DType
float64: DType
inf: float
int16: DType
int32: DType
int64: DType
int8: DType
nan: float
newaxis: None
pi: float
uint16: DType
uint32: DType
uint64: DType
uint8: DType

class ComplexTensor:
    """A complex array: the tensors `real` and `imag`, of one shape and type."""

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""

    def __abs__(self) -> Any:
        """__abs__"""

    def __add__(self, other: ArrayLike) -> Any:
        """__add__"""

    def __array__(self, dtype: DTypeLike | None = None, copy: _bool | None = None) -> Any:
        """An array of NumPy's."""

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The array API's namespace."""

    def __bool__(self) -> _bool:
        """__bool__"""

    def __complex__(self) -> complex:
        """The one element."""

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: _bool | None = None) -> Any:
        """A capsule of the same memory, marked as read-only; of a copy before version 1.0, which has no such mark."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The processor."""

    def __eq__(self, other: ArrayLike) -> Any:
        """__eq__"""

    def __float__(self) -> float:
        """__float__"""

    def __ge__(self, other: ArrayLike) -> Any:
        """__ge__"""

    def __getitem__(self, index: ArrayLike) -> Any:
        """__getitem__"""

    def __gt__(self, other: ArrayLike) -> Any:
        """__gt__"""

    def __hash__(self) -> int:
        """__hash__"""

    def __index__(self) -> int:
        """__index__"""

    def __int__(self) -> int:
        """__int__"""

    def __iter__(self) -> Iterator[Any]:
        """__iter__"""

    def __le__(self, other: ArrayLike) -> Any:
        """__le__"""

    def __len__(self) -> int:
        """__len__"""

    def __lt__(self, other: ArrayLike) -> Any:
        """__lt__"""

    def __matmul__(self, other: ArrayLike) -> Any:
        """__matmul__"""

    def __mul__(self, other: ArrayLike) -> Any:
        """__mul__"""

    def __ne__(self, other: ArrayLike) -> Any:
        """__ne__"""

    def __neg__(self) -> Any:
        """__neg__"""

    def __pos__(self) -> Any:
        """__pos__"""

    def __pow__(self, other: ArrayLike) -> Any:
        """__pow__"""

    def __radd__(self, other: ArrayLike) -> Any:
        """__radd__"""

    def __repr__(self) -> str:
        """__repr__"""

    def __rmatmul__(self, other: ArrayLike) -> Any:
        """__rmatmul__"""

    def __rmul__(self, other: ArrayLike) -> Any:
        """__rmul__"""

    def __rpow__(self, other: ArrayLike) -> Any:
        """__rpow__"""

    def __rsub__(self, other: ArrayLike) -> Any:
        """__rsub__"""

    def __rtruediv__(self, other: ArrayLike) -> Any:
        """__rtruediv__"""

    def __setitem__(self, index: ArrayLike, value: float) -> None:
        """__setitem__"""

    __slots__: Any

    def __sub__(self, other: ArrayLike) -> Any:
        """__sub__"""

    def __truediv__(self, other: ArrayLike) -> Any:
        """__truediv__"""

    def astype(self, dtype: DTypeLike | None, copy: _bool | None = True) -> Any:
        """The elements in another type."""

    def block_until_ready(self) -> Tensor:
        """Computes it now."""

    def conj(self) -> Any:
        """With the imaginary part negated."""

    @property
    def device(self) -> str:
        """Where it is."""

    @property
    def dtype(self) -> DType:
        """Element type."""

    @property
    def imag(self) -> Tensor:
        """imag"""

    def item(self) -> Any:
        """The one element as a number of Python's."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    def numpy(self) -> Any:
        """A copy as an array of NumPy's."""

    @property
    def real(self) -> Tensor:
        """real"""

    def reshape(self, *shape: int | Sequence[int]) -> Any:
        """The elements in another shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    def to_device(self, device: str | None, /, *, stream: Any = None) -> Tensor:
        """The array on a device."""

    def tolist(self) -> Any:
        """Nested lists of numbers."""

def __array_namespace_info__() -> Any:
    """What this namespace can do."""

def abs(x: ArrayLike, /) -> Tensor:
    """`|x|`; bools are themselves."""

def acos(x: ArrayLike, /) -> Tensor:
    """Arc cosine."""

def acosh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic cosine."""

def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Sums; of two bools, whether one of them is true."""

def all(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """Whether all are true."""

def any(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """Whether any is true."""

def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Numbers from start to stop, which is left out."""

def argmax(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """Where the largest is."""

def argmin(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """Where the least is."""

def argsort(x: ArrayLike, /, *, axis: Axes = -1, descending: _bool = False, stable: _bool = True) -> Tensor:
    """The order that sorts; equal elements keep theirs."""

def asarray(obj: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None, copy: _bool | None = None) -> Tensor:
    """An array from an object."""

def asin(x: ArrayLike, /) -> Tensor:
    """Arc sine."""

def asinh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic sine."""

def astype(x: ArrayLike, dtype: DTypeLike | None, /, *, copy: _bool | None = True, device: str | None = None) -> Tensor:
    """The elements in another type."""

def atan(x: ArrayLike, /) -> Tensor:
    """Arc tangent."""

def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Angle of the point `(y, x)`."""

def atanh(x: ArrayLike, /) -> Tensor:
    """Inverse hyperbolic tangent."""

def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Bitwise and."""

def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """Bitwise or logical not."""

def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x · 2ʸ` for integers."""

def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Bitwise or."""

def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x / 2ʸ` for integers, rounded down."""

def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Bitwise exclusive or."""

def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Arrays in their common shape."""

def broadcast_to(x: ArrayLike, /, shape: int | Sequence[int]) -> Tensor:
    """An array in a larger shape."""

def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> _bool:
    """Whether one type goes into another by promotion."""

def ceil(x: ArrayLike, /) -> Tensor:
    """Smallest integer not below."""

def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """Numbers moved into a range."""

def concat(arrays: ArrayLike, /, *, axis: Axes = 0) -> Tensor:
    """Arrays one after the other."""

def conj(x: ArrayLike, /) -> Tensor:
    """With the imaginary part negated."""

def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The size of `x` with the sign of `y`."""

def cos(x: ArrayLike, /) -> Tensor:
    """Cosine."""

def cosh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic cosine."""

def count_nonzero(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """How many are other than zero."""

def cumulative_prod(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: _bool = False) -> Tensor:
    """Running products."""

def cumulative_sum(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: _bool = False) -> Tensor:
    """Running sums."""

def diff(x: ArrayLike, /, *, axis: Axes = -1, n: int = 1, prepend: ArrayLike = None, append: ArrayLike = None) -> Tensor:
    """Differences of neighbours."""

def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x / y` as floats."""

def empty(shape: int | Sequence[int], *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros."""

def empty_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros of a shape and type."""

def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x == y`."""

def exp(x: ArrayLike, /) -> Tensor:
    """`eˣ`."""

def expand_dims(x: ArrayLike, /, axis: Axes = 0) -> Tensor:
    """A new axis of size 1."""

def expm1(x: ArrayLike, /) -> Tensor:
    """`eˣ − 1`, exact near 0."""

def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones on a diagonal."""

class fft:
    """The extension for Fourier transforms."""

    def fft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The transform along an axis."""

    def fftfreq(self, n: int, /, *, d: ArrayLike = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Any:
        """The frequencies of `fft`."""

    def fftn(self, x: ArrayLike, /, *, s: ArrayLike = None, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None, norm: ArrayLike = 'backward') -> Any:
        """The transform along several axes."""

    def fftshift(self, x: ArrayLike, /, *, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None) -> Any:
        """Frequency 0 in the middle."""

    def hfft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The real spectrum of a signal that is its own mirror image."""

    def ifft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The inverse transform along an axis."""

    def ifftn(self, x: ArrayLike, /, *, s: ArrayLike = None, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None, norm: ArrayLike = 'backward') -> Any:
        """The inverse transform along several axes."""

    def ifftshift(self, x: ArrayLike, /, *, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None) -> Any:
        """The inverse of `fftshift`."""

    def ihfft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The inverse of `hfft`."""

    def irfft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The real numbers of half a spectrum."""

    def irfftn(self, x: ArrayLike, /, *, s: ArrayLike = None, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None, norm: ArrayLike = 'backward') -> Any:
        """The real numbers of half a spectrum along several axes."""

    def rfft(self, x: ArrayLike, /, *, n: int | None = None, axis: Axes = -1, norm: ArrayLike = 'backward') -> Any:
        """The transform of real numbers."""

    def rfftfreq(self, n: int, /, *, d: ArrayLike = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Any:
        """The frequencies of `rfft`."""

    def rfftn(self, x: ArrayLike, /, *, s: ArrayLike = None, axes: int | Sequence[int] | Sequence[Sequence[int]] | None = None, norm: ArrayLike = 'backward') -> Any:
        """The transform of real numbers along several axes."""

def finfo(type: DTypeLike | Tensor, /) -> Any:
    """Facts of a float type."""

def flip(x: ArrayLike, /, *, axis: Axes = None) -> Tensor:
    """Entries in reverse order."""

def floor(x: ArrayLike, /) -> Tensor:
    """Largest integer not above."""

def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient rounded down; infinities and signed zeros as the quotient has them."""

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: _bool | None = None) -> Tensor:
    """An array from one of another library."""

def full(shape: int | Sequence[int], fill_value: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """An array of one number."""

def full_like(x: ArrayLike, /, fill_value: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """One number in a shape and type."""

def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x > y`."""

def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x >= y`."""

def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`√(x² + y²)` without overflow."""

def iinfo(type: DTypeLike | Tensor, /) -> Any:
    """Facts of an integer type."""

def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part."""

def isdtype(dtype: DTypeLike | None, kind: Any) -> _bool:
    """Whether a type is of a kind."""

def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether neither infinite nor NaN."""

def isinf(x: ArrayLike, /) -> Tensor:
    """Whether infinite."""

def isnan(x: ArrayLike, /) -> Tensor:
    """Whether NaN."""

def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x < y`."""

def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x <= y`."""

class linalg:
    """The extension for linear algebra."""

    def cholesky(self, x: ArrayLike, /, *, upper: Any = False) -> Any:
        """Cholesky's factor."""

    def cross(self, x1: ArrayLike, x2: ArrayLike, /, *, axis: Axes = -1) -> Any:
        """Products of vectors in space."""

    def det(self, x: ArrayLike, /) -> Any:
        """Determinants."""

    def diagonal(self, x: ArrayLike, /, *, offset: int = 0) -> Any:
        """The diagonals of matrices."""

    def eigh(self, x: ArrayLike, /) -> Any:
        """Eigenvalues and vectors of symmetric matrices."""

    def eigvalsh(self, x: ArrayLike, /) -> Any:
        """Eigenvalues of symmetric matrices."""

    def inv(self, x: ArrayLike, /) -> Any:
        """Inverse matrices."""

    def matmul(self, x1: ArrayLike, x2: ArrayLike, /) -> Any:
        """The product of matrices."""

    def matrix_norm(self, x: ArrayLike, /, *, keepdims: _bool = False, ord: Any = 'fro') -> Any:
        """Norms of matrices."""

    def matrix_power(self, x: ArrayLike, n: int, /) -> Any:
        """Powers of matrices."""

    def matrix_rank(self, x: ArrayLike, /, *, rtol: float | None = None) -> Any:
        """Ranks of matrices."""

    def matrix_transpose(self, x: ArrayLike, /) -> Any:
        """The last two axes exchanged."""

    def outer(self, x1: ArrayLike, x2: ArrayLike, /) -> Any:
        """All products of two vectors."""

    def pinv(self, x: ArrayLike, /, *, rtol: float | None = None) -> Any:
        """Pseudo-inverses."""

    def qr(self, x: ArrayLike, /, *, mode: str = 'reduced') -> Any:
        """Orthogonal and triangular factors."""

    def slogdet(self, x: ArrayLike, /) -> Any:
        """Signs and logarithms of determinants."""

    def solve(self, x1: ArrayLike, x2: ArrayLike, /) -> Any:
        """Solutions of linear equations."""

    def svd(self, x: ArrayLike, /, *, full_matrices: _bool = True) -> Any:
        """Singular values and vectors."""

    def svdvals(self, x: ArrayLike, /) -> Any:
        """Singular values."""

    def tensordot(self, x1: ArrayLike, x2: ArrayLike, /, *, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Any:
        """Contracts axes of two arrays."""

    def trace(self, x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Any:
        """Sums of diagonals."""

    def vecdot(self, x1: ArrayLike, x2: ArrayLike, /, *, axis: Axes = -1) -> Any:
        """Products of vectors."""

    def vector_norm(self, x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False, ord: Any = 2) -> Any:
        """Norms of vectors."""

def linspace(start: float, stop: float | None, /, num: int, *, dtype: DTypeLike | None = None, device: str | None = None, endpoint: _bool = True) -> Tensor:
    """Numbers at equal distances."""

def log(x: ArrayLike, /) -> Tensor:
    """Natural logarithm."""

def log10(x: ArrayLike, /) -> Tensor:
    """Logarithm to base 10."""

def log1p(x: ArrayLike, /) -> Tensor:
    """`log(1 + x)`, exact near 0."""

def log2(x: ArrayLike, /) -> Tensor:
    """Logarithm to base 2."""

def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`log(eˣ + eʸ)` without overflow."""

def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether both hold."""

def logical_not(x: ArrayLike, /) -> Tensor:
    """Whether it doesn't hold."""

def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether either holds."""

def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether exactly one holds."""

def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The product of matrices."""

def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """The last two axes exchanged."""

def max(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The largest."""

def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger; NaN if either is."""

def mean(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """Means."""

def meshgrid(*arrays: Any, indexing: str = 'xy') -> list[Tensor]:
    """Coordinates of a grid."""

def min(x: ArrayLike, /, *, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The least."""

def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller; NaN if either is."""

def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Moves axes to other places."""

def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Products; of two bools, whether both are true."""

def negative(x: ArrayLike, /) -> Tensor:
    """`−x`."""

def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The next float after `x` towards `y`."""

def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where elements are other than zero."""

def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x != y`."""

def ones(shape: int | Sequence[int], *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones."""

def ones_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones of a shape and type."""

def permute_dims(x: ArrayLike, /, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """The axes in another order."""

def positive(x: ArrayLike, /) -> Tensor:
    """A copy."""

def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`xʸ`."""

def prod(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False) -> Tensor:
    """Products."""

def real(x: ArrayLike, /) -> Tensor:
    """The real part."""

def reciprocal(x: ArrayLike, /) -> Tensor:
    """`1/x`."""

def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """What is left of a division, with the sign of the divisor."""

def repeat(x: ArrayLike, repeats: int | ArrayLike, /, *, axis: Axes = None) -> Tensor:
    """Each entry several times."""

def reshape(x: ArrayLike, /, shape: int | Sequence[int], *, copy: _bool | None = None) -> Tensor:
    """The elements in another shape."""

def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type of an operation of arrays and types."""

def roll(x: ArrayLike, /, shift: int | Sequence[int], *, axis: Axes = None) -> Tensor:
    """Entries moved around."""

def round(x: ArrayLike, /) -> Tensor:
    """The nearest integer, the even one of two."""

def searchsorted(x1: ArrayLike, x2: ArrayLike, /, *, side: str = 'left', sorter: ArrayLike = None) -> Tensor:
    """Where values would stand in a sorted array."""

def sign(x: ArrayLike, /) -> Tensor:
    """-1, 0 or 1; zeros lose their sign."""

def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign is minus, of −0 and NaN too."""

def sin(x: ArrayLike, /) -> Tensor:
    """Sine."""

def sinh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic sine."""

def sort(x: ArrayLike, /, *, axis: Axes = -1, descending: _bool = False, stable: _bool = True) -> Tensor:
    """Elements in order."""

def sqrt(x: ArrayLike, /) -> Tensor:
    """Square root."""

def square(x: ArrayLike, /) -> Tensor:
    """`x·x`; bools are squared as numbers of i8, as in NumPy."""

def squeeze(x: ArrayLike, /, axis: Axes) -> Tensor:
    """Without some axes of size 1."""

def stack(arrays: ArrayLike, /, *, axis: Axes = 0) -> Tensor:
    """Arrays along a new axis."""

def std(x: ArrayLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: _bool = False) -> Tensor:
    """Standard deviations."""

def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x − y`."""

def sum(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False) -> Tensor:
    """Sums."""

def take(x: ArrayLike, indices: ArrayLike, /, *, axis: Axes = None) -> Tensor:
    """Entries of an axis."""

def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: Axes = -1) -> Tensor:
    """Elements by an index for each place."""

def tan(x: ArrayLike, /) -> Tensor:
    """Tangent."""

def tanh(x: ArrayLike, /) -> Tensor:
    """Hyperbolic tangent."""

def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Tensor:
    """Contracts axes of two arrays."""

def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Tensor:
    """Copies side by side."""

def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The part on and below a diagonal."""

def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The part on and above a diagonal."""

def trunc(x: ArrayLike, /) -> Tensor:
    """The integer part."""

def unique_all(x: ArrayLike, /) -> Any:
    """Different elements, where they first stand, which one each is, and how often they occur."""

def unique_counts(x: ArrayLike, /) -> Any:
    """Different elements, and how often they occur."""

def unique_inverse(x: ArrayLike, /) -> Any:
    """Different elements, and which one each is."""

def unique_values(x: ArrayLike, /) -> Tensor:
    """Different elements."""

def unstack(x: ArrayLike, /, *, axis: Axes = 0) -> tuple[Tensor, ...]:
    """The entries of an axis."""

def var(x: ArrayLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: _bool = False) -> Tensor:
    """Variances."""

def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: Axes = -1) -> Tensor:
    """Products of vectors."""

def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Elements of one where the condition holds, of the other elsewhere."""

def zeros(shape: int | Sequence[int], *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros."""

def zeros_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros of a shape and type."""
