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
from . import errors as errors
from . import fft as fft
from . import flatten_util as flatten_util
from . import image as image
from . import initializers as initializers
from . import lax as lax
from . import linalg as linalg
from . import models as models
from . import nn as nn
from . import numpy as numpy
from . import ops as ops
from . import optim as optim
from . import random as random
from . import safetensors as safetensors
from . import scipy as scipy
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

    @property
    def ndim(self) -> int:
        """Number of axes."""

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
        """A capsule of the same memory, marked as read-only; of a copy before version 1.0, which has no such mark."""

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

    def __reversed__(self) -> Iterator[Any]:
        """The entries of the first axis, from the last on."""

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

    def astype(self, dtype: DTypeLike | None, copy: bool | None = True) -> Tensor:
        """The elements in another type."""

    @property
    def at(self) -> _At:
        """Indexed, it gives arrays with some elements changed: `x.at[0].set(1.0)`."""

    def block_until_ready(self) -> Tensor:
        """Computes it now."""

    def compress(self, condition: ArrayLike, axis: Axes = None, **named: Any) -> Tensor:
        """The entries along an axis for which a condition holds."""

    def copy(self, order: ArrayLike = 'C') -> Tensor:
        """A copy."""

    @property
    def device(self) -> str:
        """Where it is."""

    def devices(self) -> set[str]:
        """Where it is: a set of one."""

    @property
    def dtype(self) -> DType:
        """Element type."""

    def flatten(self, order: ArrayLike = 'C') -> Tensor:
        """All elements in a row."""

    @property
    def imag(self) -> Tensor:
        """Zeros: a tensor is real."""

    def item(self, *args: Any) -> Any:
        """The one element as a number of Python's; or the element at a place, counted through all of them or by its indices."""

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

    def ravel(self, order: ArrayLike = 'C') -> Tensor:
        """All elements in a row."""

    @property
    def real(self) -> Tensor:
        """The tensor itself: it is real."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    def to_device(self, device: str | None, /, *, stream: Any = None) -> Tensor:
        """to_device"""

    def tobytes(self, order: ArrayLike = 'C') -> bytes:
        """The elements as bytes."""

    def tolist(self) -> Any:
        """Nested lists of numbers."""

    def view(self, dtype: DTypeLike | None = None) -> Tensor:
        """The same bits as numbers of another type; not inside of a trace."""

    @property
    def weak_type(self) -> bool:
        """Whether its type gives way to others: never."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The elements where they lie, read-only."""

    def abs(self) -> Tensor:
        """`|x|`; bools are themselves."""

    def absolute(self) -> Tensor:
        """The same as [`abs`]."""

    def acos(self) -> Tensor:
        """Arc cosine."""

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""

    def add(self, y: ArrayLike, /) -> Tensor:
        """Sums; of two bools, whether one of them is true."""

    def all(self, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
        """Whether all are true."""

    def allclose(self, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: ArrayLike = False) -> bool:
        """Whether all elements are close: a bool of Python's, or of a trace."""

    def amax(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The largest."""

    def amin(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The least."""

    def angle(self, deg: ArrayLike = False) -> Tensor:
        """0, or π where a number has a minus sign; in degrees, 180."""

    def any(self, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
        """Whether any is true."""

    def append(self, values: ArrayLike, axis: Axes = None) -> Tensor:
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

    def argsort(self, axis: Axes = -1, *, kind: Any = None, order: ArrayLike = None, stable: bool = True, descending: bool = False) -> Tensor:
        """The order that sorts; equal elements keep theirs."""

    def argwhere(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
        """Indices of elements other than zero, a row for each."""

    def around(self, decimals: int = 0) -> Tensor:
        """The same as [`round`]."""

    def array_equal(self, a2: ArrayLike, equal_nan: ArrayLike = False) -> Tensor:
        """Whether two arrays have one shape and equal elements."""

    def array_equiv(self, a2: ArrayLike) -> bool:
        """Whether elements are equal after broadcasting."""

    def array_repr(self, max_line_width: ArrayLike = None, precision: ArrayLike = None, suppress_small: ArrayLike = None) -> str:
        """How an array is shown."""

    def array_split(self, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
        """Parts, the first of which may be larger by one; or parts that end before these places."""

    def array_str(self, max_line_width: ArrayLike = None, precision: ArrayLike = None, suppress_small: ArrayLike = None) -> str:
        """The elements of an array as text."""

    def asin(self) -> Tensor:
        """Arc sine."""

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""

    def atan(self) -> Tensor:
        """Arc tangent."""

    def atan2(self, y: ArrayLike) -> Tensor:
        """Angle of the point `(y, x)`."""

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""

    def average(self, axis: Axes = None, weights: ArrayLike = None, returned: ArrayLike = False, keepdims: bool = False) -> Any:
        """Means with weights; with `returned`, the sums of the weights too."""

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

    def broadcast_to(self, *dims: Any, **options: Any) -> Tensor:
        """Repeats axes of size 1, and new ones in front, to a shape."""

    def cbrt(self) -> Tensor:
        """Cube root, of negative numbers too."""

    def ceil(self) -> Tensor:
        """Smallest integer not below."""

    def choose(self, choices: Sequence[ArrayLike], mode: str = 'raise') -> Tensor:
        """The choice of an index, element by element."""

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None, *, a_min: ArrayLike = None, a_max: ArrayLike = None) -> Tensor:
        """Numbers moved into a range."""

    def conj(self) -> Tensor:
        """The same: arrays here are real."""

    def conjugate(self) -> Tensor:
        """The same: arrays here are real."""

    def convolve(self, v: ArrayLike, mode: str = 'full') -> Tensor:
        """The convolution of two vectors: `full`, `same` as the longer, or `valid` where they overlap wholly."""

    def copysign(self, y: ArrayLike) -> Tensor:
        """The size of `x` with the sign of `y`."""

    def corrcoef(self, y: ArrayLike = None, rowvar: ArrayLike = True) -> Tensor:
        """Correlations of rows, or of columns if not `rowvar`."""

    def correlate(self, v: ArrayLike, mode: str = 'valid') -> Tensor:
        """The cross-correlation of two vectors."""

    def cos(self) -> Tensor:
        """Cosine."""

    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""

    def count_nonzero(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """How many elements are not zero."""

    def cov(self, y: ArrayLike = None, rowvar: ArrayLike = True, bias: ArrayLike = False, ddof: int | None = None, fweights: ArrayLike = None, aweights: ArrayLike = None) -> Tensor:
        """Covariances of rows, or of columns if not `rowvar`; `fweights` say how often an observation was made, `aweights` what it counts."""

    def cross(self, b: ArrayLike, axisa: ArrayLike = -1, axisb: ArrayLike = -1, axisc: ArrayLike = -1, axis: Axes = None) -> Tensor:
        """Products of vectors of three, or of two numbers."""

    def cumprod(self, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
        """Along an axis, from the first element to each; of all elements in a row if it is None."""

    def cumsum(self, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
        """Along an axis, from the first element to each; of all elements in a row if it is None."""

    def cumulative_prod(self, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Tensor:
        """Along an axis, from the first element to each; `include_initial` puts that of no elements in front."""

    def cumulative_sum(self, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Tensor:
        """Along an axis, from the first element to each; `include_initial` puts that of no elements in front."""

    def deg2rad(self) -> Tensor:
        """Degrees to radians."""

    def degrees(self) -> Tensor:
        """Radians to degrees."""

    def delete(self, obj: int | Sequence[int], axis: Axes = None) -> Tensor:
        """`x` without the slices at indices along an axis, or without those elements in order."""

    def diag(self, k: int = 0) -> Tensor:
        """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""

    def diag_indices_from(self) -> list[Tensor]:
        """The indices of the diagonal of an array."""

    def diagflat(self, k: int = 0) -> Tensor:
        """A matrix with all elements on its k-th diagonal."""

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The k-th diagonal of the planes of two axes; it becomes the last axis."""

    def diff(self, n: int = 1, axis: Axes = -1, prepend: ArrayLike = None, append: ArrayLike = None) -> Tensor:
        """Differences of neighbours, n times; of the array with others before and behind it."""

    def digitize(self, bins: ArrayLike, right: bool = False) -> Tensor:
        """Which bin each element falls into, for edges in increasing or decreasing order: how many edges are not beyond it, or with `right` how many it is beyond."""

    def divide(self, y: ArrayLike) -> Tensor:
        """`x / y` as floats."""

    def divmod(self, y: ArrayLike) -> tuple[Tensor, Tensor]:
        """The quotient rounded down, and the remainder with the sign of `y`."""

    def dot(self, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """Products of matrices and vectors. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
        """`split` along axis 2."""

    def ediff1d(self, to_end: ArrayLike = None, to_begin: ArrayLike = None) -> Tensor:
        """Differences of neighbours in a row, with others before and behind them."""

    def empty_like(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
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
        """Absolute values, as floats."""

    def fill_diagonal(self, val: ArrayLike, wrap: ArrayLike = False, *, inplace: ArrayLike = False) -> Tensor:
        """The array with another diagonal."""

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

    def greater(self, y: ArrayLike) -> Tensor:
        """`x > y`."""

    def greater_equal(self, y: ArrayLike) -> Tensor:
        """`x >= y`."""

    def heaviside(self, at_zero: ArrayLike) -> Tensor:
        """0 below 0, `at_zero` at 0, 1 above."""

    def histogram(self, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, Tensor]:
        """How many numbers are in each range, or the sums of their weights, or their density; and the ends of the ranges."""

    def histogram2d(self, y: ArrayLike, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, Tensor, Tensor]:
        """How many points are in each rectangle of a grid; and the ends of the ranges along both axes."""

    def histogram_bin_edges(self, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None) -> Tensor:
        """The ends of so many equal ranges; those that are given, if `bins` is a list."""

    def histogramdd(self, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, list[Tensor]]:
        """How many points are in each box of a grid; and the ends of the ranges along each axis."""

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
        """`split` along axis 1."""

    def hypot(self, y: ArrayLike) -> Tensor:
        """`√(x² + y²)` without overflow."""

    def i0(self) -> Tensor:
        """The modified Bessel function of order 0."""

    def inner(self, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """Products along the last axes. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

    def insert(self, obj: int, values: ArrayLike, axis: Axes = None) -> Tensor:
        """`x` with values before the slice at an index along an axis, or before that element in order."""

    def interp(self, xp: ArrayLike, fp: ArrayLike, left: ArrayLike = None, right: ArrayLike = None, period: ArrayLike = None) -> Tensor:
        """A function by straight lines between points; `left` and `right` are its values outside, `period` makes it periodic."""

    def intersect1d(self, ar2: ArrayLike, assume_unique: ArrayLike = False, return_indices: ArrayLike = False) -> Any:
        """What both arrays have, in order; with `return_indices`, where both have it first."""

    def invert(self) -> Tensor:
        """Bitwise or logical not."""

    def isclose(self, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: ArrayLike = False) -> Tensor:
        """Whether elements are close; NaN is close to NaN if `equal_nan`."""

    def iscomplex(self) -> Tensor:
        """Whether elements are complex: none is."""

    def iscomplexobj(self) -> bool:
        """Whether an array is complex: none here is."""

    def isfinite(self) -> Tensor:
        """Whether neither infinite nor NaN."""

    def isinf(self) -> Tensor:
        """Whether infinite."""

    def isnan(self) -> Tensor:
        """Whether NaN."""

    def isneginf(self) -> Tensor:
        """Whether infinite and negative."""

    def isposinf(self) -> Tensor:
        """Whether infinite and positive."""

    def isreal(self) -> Tensor:
        """Whether elements are real: all are."""

    def isrealobj(self) -> bool:
        """Whether an array is real."""

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

    def matmul(self, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """Products of matrices. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

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
        """The number in the middle, or the mean of the two there."""

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

    def multiply(self, y: ArrayLike, /) -> Tensor:
        """Products; of two bools, whether both are true."""

    def nan_to_num(self, copy: bool | None = True, nan: ArrayLike = 0.0, posinf: ArrayLike = None, neginf: ArrayLike = None) -> Tensor:
        """Finite numbers in place of NaN and infinities."""

    def nanargmax(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the largest number; −1 if there is none."""

    def nanargmin(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The index of the smallest number; −1 if there is none."""

    def nancumprod(self, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
        """Along an axis, from the first element to each; of all elements in a row if it is None."""

    def nancumsum(self, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
        """Along an axis, from the first element to each; of all elements in a row if it is None."""

    def nanmax(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The largest of the elements that are numbers."""

    def nanmean(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, where: ArrayLike = None) -> Tensor:
        """The mean of the elements that are numbers."""

    def nanmedian(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The number in the middle, or the mean of the two there. NaN doesn't count."""

    def nanmin(self, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """The least of the elements that are numbers."""

    def nanpercentile(self, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: bool = False) -> Tensor:
        """What so many percent of the elements lie below; for several, a new axis in front."""

    def nanprod(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """`prod` of the elements that are numbers."""

    def nanquantile(self, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: bool = False) -> Tensor:
        """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

    def nanquantile_by(self, q: float, axis: Axes, method: str) -> Tensor:
        """[`quantile_by`] without NaN."""

    def nanstd(self, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, where: ArrayLike = None) -> Tensor:
        """The standard deviation of the elements that are numbers."""

    def nansum(self, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
        """`sum` of the elements that are numbers."""

    def nanvar(self, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, where: ArrayLike = None) -> Tensor:
        """The variance of the elements that are numbers."""

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

    def packbits(self, axis: Axes = None, bitorder: ArrayLike = 'big') -> Tensor:
        """Eight bits to each byte."""

    def pad(self, pad_width: Any, mode: str = 'constant', constant_values: ArrayLike = 0, *, end_values: ArrayLike = 0, stat_length: Any = None, reflect_type: str = 'even') -> Tensor:
        """Adds elements before and after each axis. Modes are those of NumPy; a number is a constant."""

    def partition(self, kth: ArrayLike, axis: Axes = -1) -> Tensor:
        """An order in which the kth element stands where sorting puts it: the sorted one."""

    def percentile(self, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: bool = False) -> Tensor:
        """What so many percent of the elements lie below; for several, a new axis in front."""

    def permute_dims(self, *dims: Any, **options: Any) -> Tensor:
        """Axes in another order."""

    def piecewise(self, condlist: Sequence[ArrayLike], funclist: Sequence[Any]) -> Tensor:
        """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""

    def place(self, mask: ArrayLike, vals: ArrayLike, *, inplace: ArrayLike = False) -> Tensor:
        """The array with the elements of a mask replaced, one after the other."""

    def poly(self) -> Tensor:
        """The monic polynomial with these roots."""

    def polyadd(self, a2: ArrayLike) -> Tensor:
        """The sum of two polynomials."""

    def polyder(self, m: int = 1) -> Tensor:
        """The derivative of a polynomial, `m` times."""

    def polydiv(self, v: ArrayLike) -> tuple[Tensor, Tensor]:
        """Quotient and remainder of two polynomials; the remainder has as many coefficients as the dividend."""

    def polyfit(self, y: ArrayLike, deg: ArrayLike, rcond: ArrayLike = None, full: ArrayLike = False, w: ArrayLike = None, cov: ArrayLike = False) -> Tensor:
        """The polynomial of a degree through points, with weights."""

    def polyint(self, m: int | None = 1, k: int = 0) -> Tensor:
        """The integral of a polynomial, m times; `k` are its constants."""

    def polymul(self, a2: ArrayLike) -> Tensor:
        """The product of two polynomials."""

    def polysub(self, a2: ArrayLike) -> Tensor:
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

    def ptp(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element less the smallest."""

    def put(self, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: ArrayLike = False) -> Tensor:
        """The array with elements at flat places replaced; by `mode`, places outside are moved to the end ("clip") or counted on ("wrap")."""

    def put_along_axis(self, indices: ArrayLike, values: ArrayLike, axis: Axes, inplace: ArrayLike = False, *, mode: str | None = None) -> Tensor:
        """The array with elements along an axis replaced, for each place its own."""

    def quantile(self, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: bool = False) -> Tensor:
        """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

    def quantile_by(self, q: float, axis: Axes, method: str) -> Tensor:
        """[`quantile`] by one of NumPy's methods, by its name: `"lower"`, `"hazen"`, `"inverted_cdf"`, .."""

    def rad2deg(self) -> Tensor:
        """Radians to degrees."""

    def radians(self) -> Tensor:
        """Degrees to radians."""

    def randint(self, high: int, shape: int | Sequence[int]) -> Tensor:
        """i64 numbers from `low` to below `high`, from the process's generator; see [`manual_seed`]."""

    def reciprocal(self) -> Tensor:
        """`1/x`."""

    def remainder(self, y: ArrayLike) -> Tensor:
        """The remainder with the sign of `y`."""

    def repeat(self, repeats: int | ArrayLike, axis: Axes = None, *, total_repeat_length: ArrayLike = None) -> Tensor:
        """Each entry several times, or as often as a list says; then a trace needs to know how many there will be."""

    def reshape(self, *dims: Any, **options: Any) -> Tensor:
        """The elements in another shape; with `order="F"`, the first axis runs fastest."""

    def resize(self, new_shape: int | Sequence[int]) -> Tensor:
        """The elements in order, repeated or cut to a shape."""

    def right_shift(self, y: ArrayLike) -> Tensor:
        """`x / 2ʸ` for integers, rounded down."""

    def rint(self) -> Tensor:
        """Nearest integer, ties to even, as a float."""

    def roll(self, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
        """Entries moved around."""

    def rollaxis(self, axis: Axes, start: float = 0) -> Tensor:
        """An axis moved before another."""

    def rot90(self, k: int = 1, axes: int | Sequence[int] | Sequence[Sequence[int]] = (0, 1)) -> Tensor:
        """Turned by quarters from the first of two axes to the second."""

    def round(self, decimals: int = 0) -> Tensor:
        """Rounds to a number of decimals, ties to even."""

    def searchsorted(self, v: ArrayLike, side: str = 'left', sorter: ArrayLike = None, *, method: ArrayLike = None) -> Tensor:
        """Where values would stand in a sorted array."""

    def setdiff1d(self, ar2: ArrayLike, assume_unique: ArrayLike = False) -> Tensor:
        """What the first array has and the second has not."""

    def setxor1d(self, ar2: ArrayLike, assume_unique: ArrayLike = False) -> Tensor:
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

    def sort(self, axis: Axes = -1, *, kind: Any = None, order: ArrayLike = None, stable: bool = True, descending: bool = False) -> Tensor:
        """Elements in order; equal ones keep theirs, whatever `kind` says."""

    def spacing(self) -> Tensor:
        """The distance to the next float away from zero."""

    def split(self, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
        """Parts of equal size, or parts that end before these places."""

    def split_at(self, ends: int | Sequence[int], axis: int = 0) -> list[Tensor]:
        """Parts that end before these indices."""

    def sqrt(self) -> Tensor:
        """Square root."""

    def square(self) -> Tensor:
        """`x·x`; bools are squared as numbers of i8, as in NumPy."""

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

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Exchanges two axes."""

    def take(self, indices: ArrayLike, axis: Axes = None, mode: str | None = None, fill_value: ArrayLike = None, unique_indices: ArrayLike = False, indices_are_sorted: ArrayLike = False) -> Tensor:
        """Entries of an axis; of all elements if it is None. Those outside are errors, or by `mode` moved to the end ("clip"), counted on
    from the start ("wrap"), or replaced ("fill")."""

    def take_along_axis(self, indices: ArrayLike, axis: Axes = -1, mode: str | None = None, fill_value: ArrayLike = None) -> Tensor:
        """Elements along an axis, for each place its own; those outside as `take` has them."""

    def tan(self) -> Tensor:
        """Tangent."""

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""

    def tensordot(self, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """Contracts axes of two arrays."""

    def tile(self, *dims: Any, **options: Any) -> Tensor:
        """Copies side by side."""

    def trace(self, offset: int = 0, axis1: ArrayLike = 0, axis2: ArrayLike = 1, dtype: DTypeLike | None = None) -> Tensor:
        """Sums of diagonals."""

    def transpose(self, *dims: Any, **options: Any) -> Tensor:
        """Axes in another order; reversed if none is given."""

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

    def union1d(self, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
        """What one of two arrays has, in order."""

    def unique(self, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Axes = None, equal_nan: ArrayLike = True, size: int | None = None, fill_value: ArrayLike = None) -> Any:
        """The different elements in order, or the different entries along an axis; with `size` so many, filled up with `fill_value`."""

    def unique_all(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
        """The different elements, where they stand first, which of them each is, and how many there are of each."""

    def unique_counts(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
        """The different elements, and how many there are of each."""

    def unique_inverse(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
        """The different elements, and which of them each is."""

    def unique_values(self, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
        """The different elements."""

    def unpackbits(self, axis: Axes = None, count: ArrayLike = None, bitorder: ArrayLike = 'big') -> Tensor:
        """The bits of bytes."""

    def unravel_index(self, shape: int | Sequence[int]) -> list[Tensor]:
        """The indices along each axis of flat indices into a shape."""

    def unstack(self, axis: int = 0) -> list[Tensor]:
        """The slices along an axis, which disappears."""

    def unwrap(self, discont: ArrayLike = None, axis: Axes = -1, period: ArrayLike = 6.283185307179586) -> Tensor:
        """Angles without jumps: where neighbours differ by more than half a period, whole periods are added."""

    def vander(self, N: int | None = None, increasing: bool = False) -> Tensor:
        """Powers of a vector as columns, highest first unless `increasing`."""

    def var(self, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
        """Variances."""

    def vdot(self, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """The product of all elements. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

    def vecdot(self, x2: ArrayLike, axis: Axes = -1, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
        """Products of vectors along an axis."""

    def vecmat(self, a: ArrayLike) -> Tensor:
        """Vectors times matrices, after broadcasting."""

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
        """`split` along axis 0."""

    def zeros_like(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
        """Zeros of a shape and type."""

class TensorError(ValueError):
    """The operands of an operation do not match; the message names the op and the shapes."""

class TracerError(TypeError):
    """A tensor of a trace has no value: it was read inside of jit, vmap, scan or another transform."""

def asarray(x: ArrayLike, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
    change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied."""

def block_until_ready(x: ArrayLike) -> Any:
    """Computes everything in a tree and gives it back."""

def checkpoint(f: Callable[..., Any], *, prevent_cse: bool = True, policy: None = None, static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Keeps only the arguments of a function for backward, where the rest is computed again."""

def clear_caches() -> None:
    """Changes nothing: a compiled function's programs go with it."""

def custom_gradient(fun: ArrayLike) -> Callable[..., Any]:
    """A function with a reverse rule of its own: `fun` gives its result and the function from a cotangent to those of the arguments."""

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

def disable_jit(disable: ArrayLike = True) -> Any:
    """Inside of it, compiled functions are called as they were written, so that values can be looked at: `with tl.disable_jit(): ..`"""

def dtype(x: ArrayLike) -> DType:
    """The type that an object names."""

def eval_shape(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives, without computing it: a tree of `ShapeDtypeStruct`. Arguments may be such too."""

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor from any object that speaks DLPack, of the same memory if that is possible; `copy` asks for a copy or forbids it.
    Nobody may change memory that is shared as long as the tensor, or what was computed from it, is in use."""

def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function that gives a float of no axes."""

def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The second derivatives of a function that gives one number."""

def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of a function, column by column."""

def jacobian(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of a function, row by row."""

def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of a function, row by row."""

def jit(f: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = (), donate_argnames: str | Sequence[str] = (), keep_unused: ArrayLike = False, device: str | None = None, backend: ArrayLike = None, inline: ArrayLike = False) -> Callable[..., Any]:
    """Compiles a function: traced once for each signature, run as one program.

    Arguments named by `static_argnums` and `static_argnames` are part of the program; they must be hashable. An argument that has both
    a place and a name is static either way, however it is given. Donated arguments are taken for JAX's sake: memory that nobody refers to
    is used again in any case, and what somebody refers to stays. So are `keep_unused` and `inline`; the device is "cpu"."""

def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, Any]:
    """The value of a function and its derivative along the tangents; with `has_aux`, what else it gives behind them."""

def linear_transpose(fun: ArrayLike, *primals: Sequence[Any]) -> Callable[..., Any]:
    """The function that takes a linear one backwards. Arguments give shapes and types alone."""

def linearize(f: Callable[..., Any], *primals: Sequence[Any], has_aux: bool = False) -> tuple[Any, Callable[..., Any]]:
    """The value of a function and its derivative there as a function of tangents; with `has_aux`, what else it gives behind them."""

def local_device_count(backend: ArrayLike = None) -> int:
    """How many devices there are for tensors of this process."""

def local_devices(process_index: ArrayLike = None, backend: ArrayLike = None, host_id: ArrayLike = None) -> list[str]:
    """Where tensors of this process may be."""

def make_graph(f: Callable[..., Any], *args: Any) -> str:
    """The program of a function as text."""

def make_jaxpr(f: Callable[..., Any], static_argnums: int | Sequence[int] = ()) -> Callable[..., str]:
    """A function of the same arguments that gives the program of `f` as text."""

def named_call(fun: ArrayLike, *, name: ArrayLike = None) -> Callable[..., Any]:
    """The same function; programs here have no names for their parts."""

def named_scope(name: ArrayLike) -> Any:
    """Changes nothing; programs here have no names for their parts."""

def process_count(backend: ArrayLike = None) -> int:
    """How many processes there are: 1."""

def process_index(backend: ArrayLike = None) -> int:
    """The number of this process: 0."""

def remat(f: Callable[..., Any], *, prevent_cse: bool = True, policy: None = None, static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Keeps only the arguments of a function for backward, where the rest is computed again."""

def set_debug(level: int) -> None:
    """Prints every program that is compiled from now on to standard error, in place of the environment variable `LOOM_DEBUG`.

    Level 0 prints nothing, 1 the graph, 2 also the graph after each compiler pass, 3 also the steps and buffers, 4 also the loops of each
    kernel, 5 also the code of each kernel."""

def typeof(x: ArrayLike) -> ShapeDtypeStruct:
    """The shape and type of an array."""

def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The value of a function and its gradient with respect to the arguments that `argnums` names."""

def vjp(f: Callable[..., Any], *primals: Sequence[Any], has_aux: bool = False) -> tuple[Any, Callable[..., Any]]:
    """The value of a function and the function from its cotangents to those of the arguments; with `has_aux`, what else it gives."""

def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, axis_name: str | None = None, axis_size: int | None = None) -> Callable[..., Any]:
    """Calls a function for every entry of an axis of its arguments, all at once. There are no collectives over `axis_name`."""
