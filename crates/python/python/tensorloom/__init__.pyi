"""Tensors, transforms and compiled functions."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

ArrayLike = Any
"""A tensor, a number, nested lists of numbers, or an array of NumPy or of anyone who speaks DLPack or the buffer protocol."""
Axes = int | Sequence[int] | None
DTypeLike = Any
"""A `DType`, its name, or a type of NumPy."""
ComplexLike = Any
"""A tensor, or a pair of real and imaginary part."""

class _At:
    def __getitem__(self, index: Any, /) -> _Place: ...

class _Place:
    def get(self, mode: str | None = None, fill_value: float | None = None, **options: Any) -> Tensor: ...
    def apply(self, f: Callable[..., Any], **options: Any) -> Tensor: ...
    def set(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def add(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def subtract(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def multiply(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def mul(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def divide(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def power(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def min(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def max(self, values: ArrayLike, **options: Any) -> Tensor: ...

Array = Tensor
__version__: str
bfloat16: DType
bool_: DType
float16: DType
float32: DType
float64: DType
float8_e4m3fn: DType
float8_e5m2: DType
from . import array_api as array_api
from . import fft as fft
from . import initializers as initializers
from . import lax as lax
from . import linalg as linalg
from . import models as models
from . import nn as nn
from . import numpy as numpy
from . import optim as optim
from . import random as random
from . import safetensors as safetensors
from . import special as special
from . import tree as tree
from . import tree_util as tree_util
from . import vsla as vsla
int16: DType
int32: DType
int64: DType
int8: DType
uint16: DType
uint32: DType
uint64: DType
uint8: DType

class DType:
    """An element type. Equal to its name, and to NumPy's type of that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __eq__(self, other: Any, /) -> Any: ...

    def __ge__(self, other: Any, /) -> bool: ...

    def __gt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __le__(self, other: Any, /) -> bool: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __ne__(self, other: Any, /) -> Any: ...

    def __repr__(self) -> str: ...

    @property
    def dtype(self) -> DType:
        """NumPy's type of this name, by which NumPy takes this one for its own: `np.zeros(3, dtype=x.dtype)`."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""

    @property
    def kind(self) -> str:
        """"b" for bool, "i" and "u" for integers, "f" for floats."""

    @property
    def name(self) -> str:
        """Its name."""

class ShapeDtypeStruct:
    """The shape and type of an array that isn't there."""

    def __eq__(self, other: ArrayLike) -> Any:
        """__eq__"""

    def __hash__(self) -> int:
        """__hash__"""

    def __repr__(self) -> str:
        """__repr__"""

    ndim: Any

class Tensor:
    """A tensor: an array whose computation is recorded, and done when it is read."""

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""

    def __abs__(self) -> Tensor: ...

    def __add__(self, other: Any, /) -> Tensor: ...

    def __and__(self, other: Any, /) -> Tensor: ...

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        """An array of NumPy's."""

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The array API's namespace."""

    __array_priority__: Any

    def __bool__(self) -> bool: ...

    def __complex__(self) -> complex:
        """The one element."""

    def __divmod__(self, other: Any, /) -> tuple[Tensor, Tensor]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule of the same memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The processor."""

    def __eq__(self, other: Any, /) -> Any: ...

    def __float__(self) -> float: ...

    def __floordiv__(self, other: Any, /) -> Tensor: ...

    def __ge__(self, other: Any, /) -> Tensor: ...

    def __getitem__(self, key: Any, /) -> Tensor: ...

    def __gt__(self, other: Any, /) -> Tensor: ...

    def __hash__(self) -> int: ...

    def __index__(self) -> int: ...

    def __int__(self) -> int: ...

    def __invert__(self) -> Tensor: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __le__(self, other: Any, /) -> Tensor: ...

    def __len__(self) -> int: ...

    def __lshift__(self, other: Any, /) -> Tensor: ...

    def __lt__(self, other: Any, /) -> Tensor: ...

    def __matmul__(self, other: Any, /) -> Tensor: ...

    def __mod__(self, other: Any, /) -> Tensor: ...

    def __mul__(self, other: Any, /) -> Tensor: ...

    def __ne__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Tensor: ...

    def __or__(self, other: Any, /) -> Tensor: ...

    def __pos__(self) -> Tensor: ...

    def __pow__(self, other: Any, mod: None = None, /) -> Tensor: ...

    def __radd__(self, other: Any, /) -> Tensor: ...

    def __rand__(self, other: Any, /) -> Tensor: ...

    def __rdivmod__(self, other: Any, /) -> tuple[Tensor, Tensor]: ...

    def __repr__(self) -> str: ...

    def __rfloordiv__(self, other: Any, /) -> Tensor: ...

    def __rlshift__(self, other: Any, /) -> Tensor: ...

    def __rmatmul__(self, other: Any, /) -> Tensor: ...

    def __rmod__(self, other: Any, /) -> Tensor: ...

    def __rmul__(self, other: Any, /) -> Tensor: ...

    def __ror__(self, other: Any, /) -> Tensor: ...

    def __round__(self, ndigits: ArrayLike = None) -> Tensor:
        """Rounded to so many decimals, to the even one of two; without them, one number as an integer of Python's."""

    def __rpow__(self, other: Any, mod: None = None, /) -> Tensor: ...

    def __rrshift__(self, other: Any, /) -> Tensor: ...

    def __rshift__(self, other: Any, /) -> Tensor: ...

    def __rsub__(self, other: Any, /) -> Tensor: ...

    def __rtruediv__(self, other: Any, /) -> Tensor: ...

    def __rxor__(self, other: Any, /) -> Tensor: ...

    def __setitem__(self, key: Any, value: ArrayLike, /) -> None: ...

    def __sub__(self, other: Any, /) -> Tensor: ...

    def __truediv__(self, other: Any, /) -> Tensor: ...

    def __xor__(self, other: Any, /) -> Tensor: ...

    def block_until_ready(self) -> Tensor:
        """Computes it now."""

    @property
    def device(self) -> str:
        """Where it is."""

    @property
    def dtype(self) -> DType:
        """Element type."""

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

    def numpy(self, copy: bool | None = False) -> Any:
        """An array of NumPy's of the same memory, read-only; with `copy=True`, one of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    def to_device(self, device: str | None, /, *, stream: Any = None) -> Tensor:
        """to_device"""

    def tolist(self) -> Any:
        """Nested lists of numbers."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The elements where they lie, read-only."""

    def abs(self) -> Tensor:
        """`|x|`."""

    def absolute(self) -> Tensor:
        """`|x|`."""

    def acos(self) -> Tensor:
        """Arc cosine."""

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""

    def add(self, y: ArrayLike) -> Tensor:
        """`x + y`."""

    def all(self, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
        """Whether all are true."""

    def allclose(self, y: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08) -> bool:
        """Whether all elements are close."""

    def amax(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The largest."""

    def amin(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The least."""

    def angle(self) -> Tensor:
        """0, or π where a number is negative."""

    def any(self, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
        """Whether any is true."""

    def append(self, y: ArrayLike, axis: Axes = None) -> Tensor:
        """Joins along an axis, or all elements in order."""

    def arccos(self) -> Tensor:
        """Arc cosine."""

    def arccosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""

    def arcsin(self) -> Tensor:
        """Arc sine."""

    def arcsinh(self) -> Tensor:
        """Inverse hyperbolic sine."""

    def arctan(self) -> Tensor:
        """Arc tangent."""

    def arctan2(self, y: ArrayLike) -> Tensor:
        """Angle of the point `(y, x)`."""

    def arctanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""

    def argmax(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the first largest element along an axis, or among all in order, as i64."""

    def argmin(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the first smallest element along an axis, or among all in order, as i64."""

    def argpartition(self, kth: ArrayLike, axis: Axes = -1) -> Tensor:
        """The order of `partition`."""

    def argsort(self, axis: Axes = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
        """The order that sorts; equal elements keep theirs."""

    def argwhere(self, size: int | None = None) -> Tensor:
        """Indices of elements other than zero, a row for each."""

    def around(self, decimals: int = 0) -> Tensor:
        """The same as [`round`]."""

    def array_equal(self, y: ArrayLike) -> bool:
        """Whether shapes and elements are equal."""

    def array_equiv(self, y: ArrayLike) -> bool:
        """Whether elements are equal after broadcasting."""

    def array_split(self, parts: int, axis: int = 0) -> list[Tensor]:
        """Parts along an axis, the first ones larger by one if they can't be equal."""

    def asin(self) -> Tensor:
        """Arc sine."""

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""

    def astype(self, dtype: DTypeLike | None, copy: bool | None = True) -> Tensor:
        """The elements in another type."""

    def atan(self) -> Tensor:
        """Arc tangent."""

    def atan2(self, y: ArrayLike) -> Tensor:
        """Angle of the point `(y, x)`."""

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""

    def average(self, axis: Axes = None, weights: ArrayLike | None = None, keepdims: bool = False) -> Tensor:
        """The mean with weights of the same shape, or of the size of the one axis."""

    def bincount(self, weights: ArrayLike = None, minlength: int = 0, *, length: int | None = None) -> Tensor:
        """How often every number occurs, or the sums of their weights; inside of a trace it needs a `length`."""

    def bitwise_and(self, y: ArrayLike) -> Tensor:
        """Bitwise and."""

    def bitwise_count(self) -> Tensor:
        """The number of ones among the bits of `|x|`, as u8."""

    def bitwise_invert(self) -> Tensor:
        """Bitwise or logical not."""

    def bitwise_left_shift(self, y: ArrayLike) -> Tensor:
        """`x · 2ʸ` for integers."""

    def bitwise_not(self) -> Tensor:
        """Bitwise or logical not."""

    def bitwise_or(self, y: ArrayLike) -> Tensor:
        """Bitwise or."""

    def bitwise_right_shift(self, y: ArrayLike) -> Tensor:
        """`x / 2ʸ` for integers, rounded down."""

    def bitwise_xor(self, y: ArrayLike) -> Tensor:
        """Bitwise exclusive or."""

    def broadcast_shapes(self) -> list[int] | None:
        """The shape that shapes broadcast to, if they do."""

    def broadcast_to(self, *dims: Any, **options: Any) -> Tensor:
        """Repeats axes of size 1, and new ones in front, to a shape."""

    def cbrt(self) -> Tensor:
        """Cube root, of negative numbers too."""

    def ceil(self) -> Tensor:
        """Smallest integer not below."""

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
        """Numbers moved into a range."""

    def compress(self, x: ArrayLike, axis: Axes = None) -> Tensor:
        """The slices along an axis, or the elements in order, whose flag is set."""

    def conj(self) -> Tensor:
        """The same: arrays here are real."""

    def convolve(self, b: ArrayLike, mode: str = 'full') -> Tensor:
        """The convolution of two vectors: `full`, `same` as the longer, or `valid` where they overlap wholly."""

    def copy(self) -> Tensor:
        """A copy."""

    def copysign(self, y: ArrayLike) -> Tensor:
        """The size of `x` with the sign of `y`."""

    def corrcoef(self) -> Tensor:
        """The correlation coefficients of variables, which are rows."""

    def correlate(self, v: ArrayLike, mode: str = 'valid') -> Tensor:
        """The cross-correlation of two vectors."""

    def cos(self) -> Tensor:
        """Cosine."""

    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""

    def count_nonzero(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """How many elements are not zero."""

    def cov(self, ddof: int = 1) -> Tensor:
        """The covariance of variables, which are rows, over `n − ddof`."""

    def cross(self, b: ArrayLike) -> Tensor:
        """The cross product along the last axis, which has 3 elements."""

    def cumprod(self, axis: Axes = None) -> Tensor:
        """Running products along an axis, or of all elements in order."""

    def cumsum(self, axis: Axes = None) -> Tensor:
        """Running sums along an axis, or of all elements in order."""

    def cumulative_prod(self, axis: Axes = None) -> Tensor:
        """The array API's [`cumprod`]."""

    def cumulative_sum(self, axis: Axes = None) -> Tensor:
        """The array API's [`cumsum`]."""

    def deg2rad(self) -> Tensor:
        """Degrees to radians."""

    def degrees(self) -> Tensor:
        """Radians to degrees."""

    def delete(self, indices: int | Sequence[int], axis: Axes = None) -> Tensor:
        """`x` without the slices at indices along an axis, or without those elements in order."""

    def diag(self, k: int = 0) -> Tensor:
        """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""

    def diag_indices_from(self) -> list[Tensor]:
        """The indices of the diagonal of an array."""

    def diagflat(self, k: int = 0) -> Tensor:
        """A matrix with all elements on its k-th diagonal."""

    def diagonal(self, k: int = 0, a: int = 0, b: int = 1) -> Tensor:
        """The k-th diagonal of the planes of two axes; it becomes the last axis."""

    def diff(self, n: int = 1, axis: int = -1) -> Tensor:
        """Differences of neighbours along an axis, `n` times."""

    def digitize(self, bins: ArrayLike, right: bool = False) -> Tensor:
        """Which bin each element falls into, for increasing edges: the first edge above it, or not below with `right`."""

    def divide(self, y: ArrayLike) -> Tensor:
        """`x / y` as floats."""

    def divmod(self, y: ArrayLike) -> tuple[Tensor, Tensor]:
        """The quotient rounded down, and the remainder with the sign of `y`."""

    def dot(self, b: ArrayLike) -> Tensor:
        """Inner product of vectors, matrix product, or the sum over the last axis of `a` and the last but one of `b`."""

    def dsplit(self, parts: int) -> list[Tensor]:
        """Equal parts along the third axis."""

    def ediff1d(self) -> Tensor:
        """Differences of neighbours of all elements in order."""

    def empty_like(self, dtype: DTypeLike | None = None) -> Tensor:
        """Zeros of a shape and type."""

    def equal(self, y: ArrayLike) -> Tensor:
        """`x == y`."""

    def exp(self) -> Tensor:
        """`eˣ`."""

    def exp2(self) -> Tensor:
        """`2ˣ`."""

    def expand_dims(self, axis: Axes) -> Tensor:
        """New axes of size 1."""

    def expm1(self) -> Tensor:
        """`eˣ − 1`, exact near 0."""

    def fabs(self) -> Tensor:
        """Absolute values."""

    def fill_diagonal(self, value: ArrayLike) -> Tensor:
        """`x` with a value along its main diagonal."""

    def flatnonzero(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
        """Flat indices of elements other than zero."""

    def flip(self, axis: Axes = None) -> Tensor:
        """Reverses axes, or all."""

    def fliplr(self) -> Tensor:
        """Reverses the second axis."""

    def flipud(self) -> Tensor:
        """Reverses the first axis."""

    def float_power(self, y: ArrayLike) -> Tensor:
        """`xʸ` as floats."""

    def floor(self) -> Tensor:
        """Largest integer not above."""

    def floor_divide(self, y: ArrayLike) -> Tensor:
        """`x / y` rounded down."""

    def fmax(self, y: ArrayLike) -> Tensor:
        """The larger of the numbers; NaN only if both are."""

    def fmin(self, y: ArrayLike) -> Tensor:
        """The smaller of the numbers; NaN only if both are."""

    def fmod(self, y: ArrayLike) -> Tensor:
        """Remainder with the sign of `x`."""

    def frexp(self) -> tuple[Tensor, Tensor]:
        """Mantissa in ±[½, 1) and exponent as i32, so that `x = m · 2ᵉ`."""

    def full_like(self, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
        """One number in a shape and type."""

    def gcd(self, y: ArrayLike) -> Tensor:
        """Greatest common divisor."""

    def gradient(self, step: float = 1.0, axis: int = 0) -> Tensor:
        """Slopes by central differences, and one-sided ones at the ends, of samples `step` apart along an axis."""

    def greater(self, y: ArrayLike) -> Tensor:
        """`x > y`."""

    def greater_equal(self, y: ArrayLike) -> Tensor:
        """`x >= y`."""

    def heaviside(self, at_zero: ArrayLike) -> Tensor:
        """0 below 0, `at_zero` at 0, 1 above."""

    def histogram(self, bins: int = 10, range: tuple[float, float] | None = None) -> tuple[Tensor, Tensor]:
        """How many elements fall into each of equal bins, and the edges."""

    def histogram2d(self, y: ArrayLike, bins: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """[`histogramdd`] of two coordinates."""

    def histogram_bin_edges(self, bins: int = 10, range: tuple[float, float] | None = None) -> Tensor:
        """The edges of equal bins over a range, or over all elements."""

    def histogramdd(self, bins: int | Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """How many points, which are rows, fall into each of equal bins along every coordinate, and the edges."""

    def hsplit(self, parts: int) -> list[Tensor]:
        """Equal parts along the second axis, of a vector along its one."""

    def hypot(self, y: ArrayLike) -> Tensor:
        """`√(x² + y²)` without overflow."""

    def imag(self) -> Tensor:
        """Zeros: arrays here are real."""

    def inner(self, b: ArrayLike) -> Tensor:
        """The sum of products over the last axes."""

    def insert(self, at: int, values: ArrayLike, axis: Axes = None) -> Tensor:
        """`x` with values before the slice at an index along an axis, or before that element in order."""

    def interp(self, xp: ArrayLike, fp: ArrayLike) -> Tensor:
        """Linear interpolation of the points `(xp, fp)`, with `xp` increasing; constant outside."""

    def intersect1d(self, b: ArrayLike) -> Tensor:
        """What both arrays have."""

    def invert(self) -> Tensor:
        """Bitwise or logical not."""

    def isclose(self, y: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08) -> Tensor:
        """Which elements are close: `|x − y| ≤ atol + rtol·|y|`."""

    def iscomplexobj(self) -> bool:
        """Whether an array is complex: none here is."""

    def isfinite(self) -> Tensor:
        """Whether neither infinite nor NaN."""

    def isin(self, set: ArrayLike) -> Tensor:
        """Which elements of `x` are among those of `set`."""

    def isinf(self) -> Tensor:
        """Whether infinite."""

    def isnan(self) -> Tensor:
        """Whether NaN."""

    def isneginf(self) -> Tensor:
        """Whether infinite and negative."""

    def isposinf(self) -> Tensor:
        """Whether infinite and positive."""

    def isrealobj(self) -> bool:
        """Whether an array is real."""

    def isscalar(self) -> bool:
        """Whether it is a number."""

    def issubdtype(self, b: ArrayLike) -> bool:
        """Whether a type is of a kind of NumPy's, such as `np.floating`."""

    def kron(self, b: ArrayLike) -> Tensor:
        """The Kronecker product of two tensors of the same rank."""

    def lcm(self, y: ArrayLike) -> Tensor:
        """Least common multiple."""

    def ldexp(self, n: ArrayLike) -> Tensor:
        """`x · 2ⁿ`."""

    def left_shift(self, y: ArrayLike) -> Tensor:
        """`x · 2ʸ` for integers."""

    def less(self, y: ArrayLike) -> Tensor:
        """`x < y`."""

    def less_equal(self, y: ArrayLike) -> Tensor:
        """`x <= y`."""

    def lexsort(self, axis: int = -1) -> Tensor:
        """The indices that sort by several keys along an axis, the last key first."""

    def log(self) -> Tensor:
        """Natural logarithm."""

    def log10(self) -> Tensor:
        """Logarithm to base 10."""

    def log1p(self) -> Tensor:
        """`log(1 + x)`, exact near 0."""

    def log2(self) -> Tensor:
        """Logarithm to base 2."""

    def logaddexp(self, y: ArrayLike) -> Tensor:
        """`log(eˣ + eʸ)` without overflow."""

    def logaddexp2(self, y: ArrayLike) -> Tensor:
        """`log₂(2ˣ + 2ʸ)` without overflow."""

    def logical_and(self, y: ArrayLike) -> Tensor:
        """Whether both hold."""

    def logical_not(self) -> Tensor:
        """Whether it doesn't hold."""

    def logical_or(self, y: ArrayLike) -> Tensor:
        """Whether either holds."""

    def logical_xor(self, y: ArrayLike) -> Tensor:
        """Whether exactly one holds."""

    def matmul(self, b: ArrayLike) -> Tensor:
        """The matrix product with NumPy's rules."""

    def matrix_transpose(self) -> Tensor:
        """Exchanges the last two axes."""

    def matvec(self, x: ArrayLike) -> Tensor:
        """Matrices times vectors, after broadcasting."""

    def max(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The largest."""

    def maximum(self, y: ArrayLike) -> Tensor:
        """The larger; NaN if either is."""

    def mean(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
        """Means."""

    def median(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The middle element in order, or the mean of the middle two, along an axis."""

    def min(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The least."""

    def minimum(self, y: ArrayLike) -> Tensor:
        """The smaller; NaN if either is."""

    def mod(self, y: ArrayLike) -> Tensor:
        """What is left of a division, with the sign of the divisor."""

    def modf(self) -> tuple[Tensor, Tensor]:
        """Fraction and integer part, both with the sign of `x`."""

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """Moves axes to other places."""

    def multiply(self, y: ArrayLike) -> Tensor:
        """`x · y`, elementwise."""

    def nan_to_num(self) -> Tensor:
        """NaN becomes 0, infinities the largest numbers there are."""

    def nanargmax(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the largest number; −1 if there is none."""

    def nanargmin(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the smallest number; −1 if there is none."""

    def nancumprod(self, axis: Axes = None) -> Tensor:
        """Running products in which NaN counts as 1."""

    def nancumsum(self, axis: Axes = None) -> Tensor:
        """Running sums in which NaN counts as 0."""

    def nanmax(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest number; NaN if there is none."""

    def nanmean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean without NaN."""

    def nanmedian(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """[`super::median`] without NaN."""

    def nanmin(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The smallest number; NaN if there is none."""

    def nanpercentile(self, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """What so many percent of the elements lie below; for several, a new axis in front."""

    def nanprod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The product without NaN."""

    def nanquantile(self, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

    def nanstd(self, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The standard deviation without NaN."""

    def nansum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum without NaN."""

    def nanvar(self, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The variance without NaN."""

    def negative(self) -> Tensor:
        """`−x`."""

    def nextafter(self, y: ArrayLike) -> Tensor:
        """The next float after `x` towards `y`."""

    def nonzero(self, *, size: int | None = None, fill_value: ArrayLike = None) -> tuple[Tensor, ...]:
        """Indices of elements other than zero, an array for each axis; of a fixed `size`, filled up with `fill_value`."""

    def not_equal(self, y: ArrayLike) -> Tensor:
        """`x != y`."""

    def ones_like(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
        """Ones of a shape and type."""

    def outer(self, b: ArrayLike) -> Tensor:
        """All products of elements of two vectors."""

    def pad(self, pad_width: Any, mode: float | str = 'constant', constant_values: ArrayLike = 0) -> Tensor:
        """Adds elements before and after each axis."""

    def partition(self, kth: ArrayLike, axis: Axes = -1) -> Tensor:
        """An order in which the kth element stands where sorting puts it: the sorted one."""

    def percentile(self, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """What so many percent of the elements lie below; for several, a new axis in front."""

    def permute_dims(self, *dims: Any, **options: Any) -> Tensor:
        """Axes in another order."""

    def piecewise(self, condlist: Sequence[ArrayLike], funclist: Sequence[Any]) -> Tensor:
        """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""

    def place(self, mask: ArrayLike, values: ArrayLike) -> Tensor:
        """`x` with values, repeated as needed, at the places where a mask holds."""

    def poly(self) -> Tensor:
        """The monic polynomial with these roots."""

    def polyadd(self, q: ArrayLike) -> Tensor:
        """The sum of two polynomials."""

    def polyder(self, m: int = 1) -> Tensor:
        """The derivative of a polynomial, `m` times."""

    def polydiv(self, v: ArrayLike) -> tuple[Tensor, Tensor]:
        """Quotient and remainder of two polynomials; the remainder has as many coefficients as the dividend."""

    def polyfit(self, y: ArrayLike, degree: int) -> Tensor:
        """The polynomial of a degree that fits points best, by least squares."""

    def polyint(self, m: int = 1) -> Tensor:
        """An integral of a polynomial with constant 0, `m` times."""

    def polymul(self, q: ArrayLike) -> Tensor:
        """The product of two polynomials."""

    def polysub(self, q: ArrayLike) -> Tensor:
        """The difference of two polynomials."""

    def polyval(self, x: ArrayLike) -> Tensor:
        """The value of a polynomial, by Horner's scheme."""

    def positive(self) -> Tensor:
        """`x` itself."""

    def pow(self, y: ArrayLike) -> Tensor:
        """`xʸ`."""

    def power(self, y: ArrayLike) -> Tensor:
        """`xʸ`."""

    def prod(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """Products."""

    def promote_types(self, b: DTypeLike = 'float32') -> DType | None:
        """The dtype of results of two dtypes."""

    def ptp(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element less the smallest."""

    def put(self, indices: ArrayLike, values: ArrayLike) -> Tensor:
        """The array with elements at flat places replaced."""

    def put_along_axis(self, indices: ArrayLike, values: ArrayLike, axis: int) -> Tensor:
        """`x` with one value for each index along an axis; the other axes go along."""

    def quantile(self, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

    def rad2deg(self) -> Tensor:
        """Radians to degrees."""

    def radians(self) -> Tensor:
        """Degrees to radians."""

    def randint(self, high: int, shape: int | Sequence[int]) -> Tensor:
        """i64 numbers from `low` to below `high`, from the process's generator; see [`manual_seed`]."""

    def ravel(self) -> Tensor:
        """All elements in order."""

    def ravel_multi_index(self, shape: int | Sequence[int]) -> Tensor:
        """The flat index into a shape of indices along each axis, which are moved inside."""

    def real(self) -> Tensor:
        """The same: arrays here are real."""

    def reciprocal(self) -> Tensor:
        """`1/x`."""

    def remainder(self, y: ArrayLike) -> Tensor:
        """The remainder with the sign of `y`."""

    def repeat(self, repeats: int | ArrayLike, axis: Axes = None) -> Tensor:
        """Each entry several times, or as often as a list says."""

    def reshape(self, *dims: Any, **options: Any) -> Tensor:
        """The same elements under another shape; one size may be −1."""

    def resize(self, shape: int | Sequence[int]) -> Tensor:
        """The elements in order, repeated or cut to a shape."""

    def right_shift(self, y: ArrayLike) -> Tensor:
        """`x / 2ʸ` for integers, rounded down."""

    def rint(self) -> Tensor:
        """Nearest integer, ties to even."""

    def roll(self, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
        """Entries moved around."""

    def rollaxis(self, axis: Axes, start: float = 0) -> Tensor:
        """An axis moved before another."""

    def rot90(self, k: int = 1, a: int = 0, b: int = 1) -> Tensor:
        """Turns by `k` right angles in the plane of two axes."""

    def round(self, decimals: int = 0) -> Tensor:
        """Rounds to a number of decimals, ties to even."""

    def searchsorted(self, values: ArrayLike, side: str = 'left', sorter: ArrayLike = None) -> Tensor:
        """Where values would stand in a sorted array."""

    def select(self, choices: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
        """The first choice whose condition holds, else the default."""

    def setdiff1d(self, b: ArrayLike) -> Tensor:
        """What the first array has and the second has not."""

    def setxor1d(self, b: ArrayLike) -> Tensor:
        """What one of two arrays has."""

    def sign(self) -> Tensor:
        """−1, 0 or 1."""

    def signbit(self) -> Tensor:
        """Whether the sign is minus, of −0 and NaN too."""

    def sin(self) -> Tensor:
        """Sine."""

    def sinc(self) -> Tensor:
        """`sin(πx)/(πx)`, 1 at 0."""

    def sinh(self) -> Tensor:
        """Hyperbolic sine."""

    def sort(self, axis: Axes = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
        """Elements in order."""

    def spacing(self) -> Tensor:
        """The distance to the next float away from zero."""

    def split(self, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
        """Parts of equal size, or parts that end before these places."""

    def split_at(self, ends: int | Sequence[int], axis: int = 0) -> list[Tensor]:
        """Parts that end before these indices."""

    def sqrt(self) -> Tensor:
        """Square root."""

    def square(self) -> Tensor:
        """`x·x`."""

    def squeeze(self, axis: Axes = None) -> Tensor:
        """Without axes of size 1."""

    def std(self, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
        """Standard deviations."""

    def stop_gradient(self) -> Tensor:
        """The same values; gradients don't pass."""

    def subtract(self, y: ArrayLike) -> Tensor:
        """`x − y`."""

    def sum(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """Sums."""

    def swapaxes(self, a: int, b: int) -> Tensor:
        """Exchanges two axes."""

    def take(self, indices: ArrayLike, axis: Axes = None) -> Tensor:
        """Entries of an axis; of all elements if it is None."""

    def take_along_axis(self, indices: ArrayLike, axis: int) -> Tensor:
        """One index for each element; the other axes go along and broadcast."""

    def tan(self) -> Tensor:
        """Tangent."""

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""

    def tensordot(self, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Tensor:
        """Contracts axes of two arrays."""

    def tile(self, *dims: Any, **options: Any) -> Tensor:
        """Copies side by side."""

    def trace(self, k: int = 0) -> Tensor:
        """The sum along the k-th diagonal."""

    def transpose(self, *dims: Any, **options: Any) -> Tensor:
        """Axes in another order; reversed if none is given."""

    def trapezoid(self, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
        """The area under samples by trapezoids `dx` wide, along an axis."""

    def tril(self, k: int = 0) -> Tensor:
        """The part of matrices on and below a diagonal."""

    def tril_indices_from(self, k: int = 0) -> tuple[Tensor, Tensor]:
        """The indices on and below the k-th diagonal of a matrix."""

    def trim_zeros(self, trim: ArrayLike = 'fb') -> Tensor:
        """Without zeros at the ends."""

    def triu(self, k: int = 0) -> Tensor:
        """The part of matrices on and above a diagonal."""

    def triu_indices_from(self, k: int = 0) -> tuple[Tensor, Tensor]:
        """The indices on and above the k-th diagonal of a matrix."""

    def true_divide(self, y: ArrayLike) -> Tensor:
        """`x / y` as floats."""

    def trunc(self) -> Tensor:
        """The integer part."""

    def union1d(self, y: ArrayLike, size: int) -> Tensor:
        """The first `size` distinct elements of two tensors together, in order."""

    def unique(self, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
        """The different elements in order."""

    def unique_counts(self, size: int) -> tuple[Tensor, Tensor]:
        """The distinct elements and how often each occurs."""

    def unique_inverse(self, size: int) -> tuple[Tensor, Tensor]:
        """The distinct elements and, for each element, its place among them."""

    def unique_values(self, size: int) -> Tensor:
        """The array API's [`unique`]."""

    def unravel_index(self, shape: int | Sequence[int]) -> list[Tensor]:
        """The indices along each axis of flat indices into a shape."""

    def unstack(self, axis: int = 0) -> list[Tensor]:
        """The slices along an axis, which disappears."""

    def unwrap(self, axis: int = -1) -> Tensor:
        """Changes jumps of more than half a period into their complements, along an axis."""

    def vander(self, n: int | None = None, increasing: bool = False) -> Tensor:
        """Powers of a vector as columns, highest first unless `increasing`."""

    def var(self, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
        """Variances."""

    def vdot(self, b: ArrayLike) -> Tensor:
        """The inner product of all elements."""

    def vecdot(self, b: ArrayLike, axis: int = -1) -> Tensor:
        """Inner products along an axis, after broadcasting."""

    def vecmat(self, a: ArrayLike) -> Tensor:
        """Vectors times matrices, after broadcasting."""

    def vsplit(self, parts: int) -> list[Tensor]:
        """Equal parts along the first axis."""

    def zeros_like(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
        """Zeros of a shape and type."""

    @property
    def at(self) -> _At:
        """Indexed, it gives arrays with some elements changed: `x.at[0].set(1.0)`."""

    def flatten(self) -> Tensor:
        """All elements in a row."""

class TensorError(ValueError):
    """An operation doesn't fit its operands; the message names the op and the shapes."""

class TracerError(TypeError):
    """A tensor of a trace has no value: it was read inside of jit, vmap, scan or another transform."""

def asarray(x: ArrayLike, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
    change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied."""

def block_until_ready(x: ArrayLike) -> Any:
    """Computes everything in a tree and gives it back."""

def checkpoint(f: Callable[..., Any], *, prevent_cse: bool = True, policy: None = None, static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Keeps only the arguments of a function for backward, where the rest is computed again."""

class custom_jvp:
    """A function with a forward rule of its own, which `defjvp` or `defjvps` gives."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """__call__"""

    def defjvp(self, rule: ArrayLike, symbolic_zeros: ArrayLike = False) -> Any:
        """`rule(primals, tangents)` gives the result and its tangent."""

    def defjvps(self, *rules: Any) -> Any:
        """A rule for each argument: `rule(tangent, result, *args)`, or None for zero."""

class custom_vjp:
    """A function with a reverse rule of its own, which `defvjp` gives."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """__call__"""

    def defvjp(self, fwd: ArrayLike, bwd: ArrayLike, symbolic_zeros: ArrayLike = False, optimize_remat: ArrayLike = False) -> Any:
        """`fwd(*args)` gives the result and what `bwd(residuals, cotangent)` needs to give a cotangent for each argument."""

def default_backend() -> str:
    """Where tensors are."""

def device_count(backend: ArrayLike = None) -> int:
    """How many devices there are for tensors."""

def device_get(x: ArrayLike) -> Any:
    """A tree with NumPy's arrays in place of tensors."""

def device_put(x: ArrayLike, device: str | None = None) -> Any:
    """A tree with tensors in place of NumPy's arrays; the one device is the processor."""

def devices(backend: ArrayLike = None) -> list[str]:
    """Where tensors may be."""

def dtype(x: ArrayLike) -> DType:
    """The type that an object names."""

def eval_shape(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives, without computing it: a tree of `ShapeDtypeStruct`. Arguments may be such too."""

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor from any object that speaks DLPack, of the same memory if that is possible; `copy` asks for a copy or forbids it.
    Nobody may change memory that is shared as long as the tensor, or what was computed from it, is in use."""

def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function that gives a float of no axes."""

def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The second derivatives of a function that gives one number."""

def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian of a function, column by column."""

def jacobian(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian of a function, row by row."""

def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian of a function, row by row."""

def jit(f: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = (), donate_argnames: str | Sequence[str] = ()) -> Callable[..., Any]:
    """Compiles a function: traced once for each signature, run as one program.

    Arguments named by `static_argnums` and `static_argnames` are part of the program; they must be hashable. An argument that has both
    a place and a name is static either way, however it is given. Donated arguments are taken for JAX's sake: memory that nobody refers to
    is used again in any case, and what somebody refers to stays."""

def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, Any]:
    """The value of a function and its derivative along the tangents; with `has_aux`, what else it gives behind them."""

def linearize(f: Callable[..., Any], *args: Any) -> tuple[Any, Callable[..., Any]]:
    """Value and the linear function of tangents at these arguments."""

def make_graph(f: Callable[..., Any], *args: Any) -> str:
    """The program of a function as text."""

def make_jaxpr(f: Callable[..., Any]) -> Callable[..., str]:
    """A function of the same arguments that gives the program of `f` as text."""

def remat(f: Callable[..., Any], *, prevent_cse: bool = True, policy: None = None, static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Keeps only the arguments of a function for backward, where the rest is computed again."""

def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The value of a function and its gradient with respect to the arguments that `argnums` names."""

def vjp(f: Callable[..., Any], *primals: Sequence[Any], has_aux: bool = False) -> tuple[Any, Callable[..., Any]]:
    """The value of a function and the function from its cotangents to those of the arguments; with `has_aux`, what else it gives."""

def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, axis_name: str | None = None, axis_size: int | None = None) -> Callable[..., Any]:
    """Calls a function for every entry of an axis of its arguments, all at once. There are no collectives over `axis_name`."""
