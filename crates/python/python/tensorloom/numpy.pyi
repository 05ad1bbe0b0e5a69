"""NumPy's functions on tensors."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

bfloat16: DType
bool_: DType
e: float
euler_gamma: float
float16: DType
float32: DType
float64: DType
floating: Any
from . import fft as fft
from . import linalg as linalg
inexact: Any
inf: float
int16: DType
int32: DType
int64: DType
int8: DType
integer: Any
nan: float
ndarray = Tensor
newaxis: None
number: Any
pi: float
signedinteger: Any
uint16: DType
uint32: DType
uint64: DType
uint8: DType
unsignedinteger: Any

def abs(x: ArrayLike) -> Tensor:
    """`|x|`."""

def absolute(x: ArrayLike) -> Tensor:
    """`|x|`."""

def acos(x: ArrayLike) -> Tensor:
    """Arc cosine."""

def acosh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic cosine."""

def add(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x + y`."""

def all(x: ArrayLike, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
    """Whether all are true."""

def allclose(x: ArrayLike, y: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08) -> bool:
    """Whether all elements are close."""

def amax(x: ArrayLike, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The largest."""

def amin(x: ArrayLike, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The least."""

def angle(x: ArrayLike) -> Tensor:
    """0, or π where a number is negative."""

def any(x: ArrayLike, axis: Axes = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
    """Whether any is true."""

def append(x: ArrayLike, y: ArrayLike, axis: Axes = None) -> Tensor:
    """Joins along an axis, or all elements in order."""

def apply_along_axis(f: Callable[..., Any], axis: Axes, x: ArrayLike, *args: Any, **kwargs: Any) -> Tensor:
    """A function of the lines along an axis."""

def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None) -> Tensor:
    """Numbers from start to stop, which is left out."""

def arccos(x: ArrayLike) -> Tensor:
    """Arc cosine."""

def arccosh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic cosine."""

def arcsin(x: ArrayLike) -> Tensor:
    """Arc sine."""

def arcsinh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic sine."""

def arctan(x: ArrayLike) -> Tensor:
    """Arc tangent."""

def arctan2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Angle of the point `(y, x)`."""

def arctanh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic tangent."""

def argmax(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element along an axis, or among all in order, as i64."""

def argmin(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element along an axis, or among all in order, as i64."""

def argpartition(x: ArrayLike, kth: ArrayLike, axis: Axes = -1) -> Tensor:
    """The order of `partition`."""

def argsort(x: ArrayLike, axis: Axes = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The order that sorts; equal elements keep theirs."""

def argwhere(x: ArrayLike, size: int | None = None) -> Tensor:
    """Indices of elements other than zero, a row for each."""

def around(x: ArrayLike, decimals: int = 0) -> Tensor:
    """The same as [`round`]."""

def array(x: ArrayLike, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
    change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied."""

def array_equal(x: ArrayLike, y: ArrayLike) -> bool:
    """Whether shapes and elements are equal."""

def array_equiv(x: ArrayLike, y: ArrayLike) -> bool:
    """Whether elements are equal after broadcasting."""

def array_split(x: ArrayLike, parts: int, axis: int = 0) -> list[Tensor]:
    """Parts along an axis, the first ones larger by one if they can't be equal."""

def asarray(x: ArrayLike, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
    change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied."""

def asin(x: ArrayLike) -> Tensor:
    """Arc sine."""

def asinh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic sine."""

def astype(x: ArrayLike, dtype: DTypeLike | None, copy: bool | None = True) -> Tensor:
    """The elements in another type."""

def atan(x: ArrayLike) -> Tensor:
    """Arc tangent."""

def atan2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Angle of the point `(y, x)`."""

def atanh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic tangent."""

def atleast_1d(*xs: Any) -> Any:
    """Arrays with one axis or more."""

def atleast_2d(*xs: Any) -> Any:
    """Arrays with two axes or more, new ones in front."""

def atleast_3d(*xs: Any) -> Any:
    """Arrays with three axes or more."""

def average(x: ArrayLike, axis: Axes = None, weights: ArrayLike | None = None, keepdims: bool = False) -> Tensor:
    """The mean with weights of the same shape, or of the size of the one axis."""

def bartlett(n: int) -> Tensor:
    """Bartlett's triangular window."""

def bincount(x: ArrayLike, weights: ArrayLike = None, minlength: int = 0, *, length: int | None = None) -> Tensor:
    """How often every number occurs, or the sums of their weights; inside of a trace it needs a `length`."""

def bitwise_and(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Bitwise and."""

def bitwise_count(x: ArrayLike) -> Tensor:
    """The number of ones among the bits of `|x|`, as u8."""

def bitwise_invert(x: ArrayLike) -> Tensor:
    """Bitwise or logical not."""

def bitwise_left_shift(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x · 2ʸ` for integers."""

def bitwise_not(x: ArrayLike) -> Tensor:
    """Bitwise or logical not."""

def bitwise_or(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Bitwise or."""

def bitwise_right_shift(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / 2ʸ` for integers, rounded down."""

def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Bitwise exclusive or."""

def blackman(n: int) -> Tensor:
    """Blackman's window."""

def block(arrays: ArrayLike) -> Tensor:
    """Arrays of nested lists put together, the innermost along the last axis."""

def broadcast_arrays(xs: Any, *more: Any) -> list[Tensor]:
    """Arrays in their common shape."""

def broadcast_shapes(shapes: Sequence[Sequence[int]]) -> list[int] | None:
    """The shape that shapes broadcast to, if they do."""

def broadcast_to(x: ArrayLike, shape: int | Sequence[int]) -> Tensor:
    """Repeats axes of size 1, and new ones in front, to a shape."""

def can_cast(from_: DTypeLike | Tensor, to: DTypeLike) -> bool:
    """Whether one type goes into another without loss, as NumPy decides."""

def cbrt(x: ArrayLike) -> Tensor:
    """Cube root, of negative numbers too."""

def ceil(x: ArrayLike) -> Tensor:
    """Smallest integer not below."""

def choose(which: ArrayLike, choices: Sequence[ArrayLike], mode: str = 'raise') -> Tensor:
    """The choice of an index, element by element."""

def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """Numbers moved into a range."""

def column_stack(xs: Sequence[ArrayLike]) -> Tensor:
    """Vectors as columns beside each other."""

def compress(flags: Sequence[bool], x: ArrayLike, axis: Axes = None) -> Tensor:
    """The slices along an axis, or the elements in order, whose flag is set."""

def concat(arrays: ArrayLike, axis: Axes = 0) -> Tensor:
    """Arrays one after the other along an axis."""

def concatenate(xs: Any, axis: Axes = 0) -> Tensor:
    """Arrays one after the other along an axis; along all of them if it is None."""

def conj(x: ArrayLike) -> Tensor:
    """The same: arrays here are real."""

def convolve(a: ArrayLike, b: ArrayLike, mode: str = 'full') -> Tensor:
    """The convolution of two vectors: `full`, `same` as the longer, or `valid` where they overlap wholly."""

def copy(x: ArrayLike) -> Tensor:
    """A copy."""

def copysign(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The size of `x` with the sign of `y`."""

def corrcoef(x: ArrayLike) -> Tensor:
    """The correlation coefficients of variables, which are rows."""

def correlate(a: ArrayLike, v: ArrayLike, mode: str = 'valid') -> Tensor:
    """The cross-correlation of two vectors."""

def cos(x: ArrayLike) -> Tensor:
    """Cosine."""

def cosh(x: ArrayLike) -> Tensor:
    """Hyperbolic cosine."""

def count_nonzero(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""

def cov(x: ArrayLike, ddof: int = 1) -> Tensor:
    """The covariance of variables, which are rows, over `n − ddof`."""

def cross(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The cross product along the last axis, which has 3 elements."""

def cumprod(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Running products along an axis, or of all elements in order."""

def cumsum(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Running sums along an axis, or of all elements in order."""

def cumulative_prod(x: ArrayLike, axis: Axes = None) -> Tensor:
    """The array API's [`cumprod`]."""

def cumulative_sum(x: ArrayLike, axis: Axes = None) -> Tensor:
    """The array API's [`cumsum`]."""

def deg2rad(x: ArrayLike) -> Tensor:
    """Degrees to radians."""

def degrees(x: ArrayLike) -> Tensor:
    """Radians to degrees."""

def delete(x: ArrayLike, indices: int | Sequence[int], axis: Axes = None) -> Tensor:
    """`x` without the slices at indices along an axis, or without those elements in order."""

def diag(x: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""

def diag_indices(n: int, ndim: int) -> list[Tensor]:
    """The indices of the diagonal of an array of `ndim` axes of size `n`."""

def diag_indices_from(x: ArrayLike) -> list[Tensor]:
    """The indices of the diagonal of an array."""

def diagflat(x: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with all elements on its k-th diagonal."""

def diagonal(x: ArrayLike, k: int = 0, a: int = 0, b: int = 1) -> Tensor:
    """The k-th diagonal of the planes of two axes; it becomes the last axis."""

def diff(x: ArrayLike, n: int = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours along an axis, `n` times."""

def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Tensor:
    """Which bin each element falls into, for increasing edges: the first edge above it, or not below with `right`."""

def divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / y` as floats."""

def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Tensor, Tensor]:
    """The quotient rounded down, and the remainder with the sign of `y`."""

def dot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Inner product of vectors, matrix product, or the sum over the last axis of `a` and the last but one of `b`."""

def dsplit(x: ArrayLike, parts: int) -> list[Tensor]:
    """Equal parts along the third axis."""

def dstack(xs: Sequence[ArrayLike]) -> Tensor:
    """Joins along the third axis."""

def ediff1d(x: ArrayLike) -> Tensor:
    """Differences of neighbours of all elements in order."""

def einsum(spec: str, *xs: Any) -> Tensor:
    """Einstein's summation."""

def empty(shape: int | Sequence[int], dtype: DTypeLike | None = 'float32') -> Tensor:
    """Zeros, since nothing here is left uninitialised."""

def empty_like(x: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros of a shape and type."""

def equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x == y`."""

def exp(x: ArrayLike) -> Tensor:
    """`eˣ`."""

def exp2(x: ArrayLike) -> Tensor:
    """`2ˣ`."""

def expand_dims(x: ArrayLike, axis: Axes) -> Tensor:
    """New axes of size 1."""

def expm1(x: ArrayLike) -> Tensor:
    """`eˣ − 1`, exact near 0."""

def extract(condition: ArrayLike, x: ArrayLike, size: int) -> Tensor:
    """The first `size` elements at which a condition holds; 0 beyond."""

def eye(n: int, m: int | None = None, k: int = 0, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Ones on a diagonal."""

def fabs(x: ArrayLike) -> Tensor:
    """Absolute values."""

def fill_diagonal(x: ArrayLike, value: ArrayLike) -> Tensor:
    """`x` with a value along its main diagonal."""

def flatnonzero(x: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
    """Flat indices of elements other than zero."""

def flip(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Reverses axes, or all."""

def fliplr(x: ArrayLike) -> Tensor:
    """Reverses the second axis."""

def flipud(x: ArrayLike) -> Tensor:
    """Reverses the first axis."""

def float_power(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`xʸ` as floats."""

def floor(x: ArrayLike) -> Tensor:
    """Largest integer not above."""

def floor_divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / y` rounded down."""

def fmax(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The larger of the numbers; NaN only if both are."""

def fmin(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The smaller of the numbers; NaN only if both are."""

def fmod(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Remainder with the sign of `x`."""

def frexp(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """Mantissa in ±[½, 1) and exponent as i32, so that `x = m · 2ᵉ`."""

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor from any object that speaks DLPack, of the same memory if that is possible; `copy` asks for a copy or forbids it.
    Nobody may change memory that is shared as long as the tensor, or what was computed from it, is in use."""

def fromfunction(f: Callable[..., Any], shape: int | Sequence[int], *, dtype: DTypeLike | None = 'float32') -> Tensor:
    """A function of the indices of every element."""

def full(shape: int | Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """An array of one number."""

def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """One number in a shape and type."""

def gcd(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Greatest common divisor."""

def geomspace(start: float, stop: float, n: int = 50, endpoint: bool = True, dtype: DTypeLike = 'float32') -> Tensor:
    """`n` numbers in geometric progression."""

def gradient(x: ArrayLike, step: float = 1.0, axis: int = 0) -> Tensor:
    """Slopes by central differences, and one-sided ones at the ends, of samples `step` apart along an axis."""

def greater(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x > y`."""

def greater_equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x >= y`."""

def hamming(n: int) -> Tensor:
    """Hamming's window."""

def hanning(n: int) -> Tensor:
    """Hann's window."""

def heaviside(x: ArrayLike, at_zero: ArrayLike) -> Tensor:
    """0 below 0, `at_zero` at 0, 1 above."""

def histogram(x: ArrayLike, bins: int = 10, range: tuple[float, float] | None = None) -> tuple[Tensor, Tensor]:
    """How many elements fall into each of equal bins, and the edges."""

def histogram2d(x: ArrayLike, y: ArrayLike, bins: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """[`histogramdd`] of two coordinates."""

def histogram_bin_edges(x: ArrayLike, bins: int = 10, range: tuple[float, float] | None = None) -> Tensor:
    """The edges of equal bins over a range, or over all elements."""

def histogramdd(points: ArrayLike, bins: int | Sequence[int]) -> tuple[Tensor, list[Tensor]]:
    """How many points, which are rows, fall into each of equal bins along every coordinate, and the edges."""

def hsplit(x: ArrayLike, parts: int) -> list[Tensor]:
    """Equal parts along the second axis, of a vector along its one."""

def hstack(xs: Sequence[ArrayLike]) -> Tensor:
    """Joins along the second axis, vectors along their one."""

def hypot(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`√(x² + y²)` without overflow."""

def identity(n: int, dtype: DTypeLike = 'float32') -> Tensor:
    """The identity matrix."""

def iinfo(dtype: DTypeLike = 'float32') -> tuple[int, int] | None:
    """The least and the largest number of an integer dtype; none for others."""

def imag(x: ArrayLike) -> Tensor:
    """Zeros: arrays here are real."""

def indices(shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """The index along each axis, stacked."""

def inner(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The sum of products over the last axes."""

def insert(x: ArrayLike, at: int, values: ArrayLike, axis: Axes = None) -> Tensor:
    """`x` with values before the slice at an index along an axis, or before that element in order."""

def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike) -> Tensor:
    """Linear interpolation of the points `(xp, fp)`, with `xp` increasing; constant outside."""

def intersect1d(a: ArrayLike, b: ArrayLike) -> Tensor:
    """What both arrays have."""

def invert(x: ArrayLike) -> Tensor:
    """Bitwise or logical not."""

def isclose(x: ArrayLike, y: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08) -> Tensor:
    """Which elements are close: `|x − y| ≤ atol + rtol·|y|`."""

def iscomplexobj(x: ArrayLike) -> bool:
    """Whether an array is complex: none here is."""

def isdtype(dtype: DTypeLike | None, kind: Any) -> bool:
    """Whether a type is of a kind of the array API's, such as "real floating"."""

def isfinite(x: ArrayLike) -> Tensor:
    """Whether neither infinite nor NaN."""

def isin(x: ArrayLike, set: ArrayLike) -> Tensor:
    """Which elements of `x` are among those of `set`."""

def isinf(x: ArrayLike) -> Tensor:
    """Whether infinite."""

def isnan(x: ArrayLike) -> Tensor:
    """Whether NaN."""

def isneginf(x: ArrayLike) -> Tensor:
    """Whether infinite and negative."""

def isposinf(x: ArrayLike) -> Tensor:
    """Whether infinite and positive."""

def isrealobj(x: ArrayLike) -> bool:
    """Whether an array is real."""

def isscalar(x: ArrayLike) -> bool:
    """Whether it is a number."""

def issubdtype(a: ArrayLike, b: ArrayLike) -> bool:
    """Whether a type is of a kind of NumPy's, such as `np.floating`."""

def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Indices of a grid."""

def kaiser(n: int, beta: float) -> Tensor:
    """Kaiser's window with a shape parameter."""

def kron(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The Kronecker product of two tensors of the same rank."""

def lcm(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Least common multiple."""

def ldexp(x: ArrayLike, n: ArrayLike) -> Tensor:
    """`x · 2ⁿ`."""

def left_shift(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x · 2ʸ` for integers."""

def less(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x < y`."""

def less_equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x <= y`."""

def lexsort(keys: Sequence[ArrayLike], axis: int = -1) -> Tensor:
    """The indices that sort by several keys along an axis, the last key first."""

def linspace(start: float, stop: float | None, num: int = 50, endpoint: bool = True, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Numbers at equal distances."""

def log(x: ArrayLike) -> Tensor:
    """Natural logarithm."""

def log10(x: ArrayLike) -> Tensor:
    """Logarithm to base 10."""

def log1p(x: ArrayLike) -> Tensor:
    """`log(1 + x)`, exact near 0."""

def log2(x: ArrayLike) -> Tensor:
    """Logarithm to base 2."""

def logaddexp(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`log(eˣ + eʸ)` without overflow."""

def logaddexp2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`log₂(2ˣ + 2ʸ)` without overflow."""

def logical_and(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Whether both hold."""

def logical_not(x: ArrayLike) -> Tensor:
    """Whether it doesn't hold."""

def logical_or(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Whether either holds."""

def logical_xor(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Whether exactly one holds."""

def logspace(start: float, stop: float, n: int = 50, endpoint: bool = True, base: float = 10.0, dtype: DTypeLike = 'float32') -> Tensor:
    """`n` powers of a base, their exponents evenly spaced."""

def matmul(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The matrix product with NumPy's rules."""

def matrix_transpose(x: ArrayLike) -> Tensor:
    """Exchanges the last two axes."""

def matvec(a: ArrayLike, x: ArrayLike) -> Tensor:
    """Matrices times vectors, after broadcasting."""

def max(x: ArrayLike, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The largest."""

def maximum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The larger; NaN if either is."""

def mean(x: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, *, where: ArrayLike = None) -> Tensor:
    """Means."""

def median(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The middle element in order, or the mean of the middle two, along an axis."""

def meshgrid(*xs: Any, indexing: str = 'xy') -> list[Tensor]:
    """Coordinates of a grid."""

def min(x: ArrayLike, axis: Axes = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The least."""

def minimum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The smaller; NaN if either is."""

def mod(x: ArrayLike, y: ArrayLike) -> Tensor:
    """What is left of a division, with the sign of the divisor."""

def modf(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """Fraction and integer part, both with the sign of `x`."""

def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Moves axes to other places."""

def multiply(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x · y`, elementwise."""

def nan_to_num(x: ArrayLike) -> Tensor:
    """NaN becomes 0, infinities the largest numbers there are."""

def nanargmax(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The index of the largest number; −1 if there is none."""

def nanargmin(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest number; −1 if there is none."""

def nancumprod(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Running products in which NaN counts as 1."""

def nancumsum(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Running sums in which NaN counts as 0."""

def nanmax(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest number; NaN if there is none."""

def nanmean(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean without NaN."""

def nanmedian(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """[`super::median`] without NaN."""

def nanmin(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest number; NaN if there is none."""

def nanpercentile(x: ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """What so many percent of the elements lie below; for several, a new axis in front."""

def nanprod(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product without NaN."""

def nanquantile(x: ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

def nanstd(x: ArrayLike, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation without NaN."""

def nansum(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum without NaN."""

def nanvar(x: ArrayLike, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The variance without NaN."""

def ndim(x: ArrayLike) -> int:
    """The number of axes."""

def negative(x: ArrayLike) -> Tensor:
    """`−x`."""

def nextafter(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The next float after `x` towards `y`."""

def nonzero(x: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> tuple[Tensor, ...]:
    """Indices of elements other than zero, an array for each axis; of a fixed `size`, filled up with `fill_value`."""

def not_equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x != y`."""

def ones(shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Ones."""

def ones_like(x: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """Ones of a shape and type."""

def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of elements of two vectors."""

def pad(x: ArrayLike, pad_width: Any, mode: float | str = 'constant', constant_values: ArrayLike = 0) -> Tensor:
    """Adds elements before and after each axis."""

def partition(x: ArrayLike, kth: ArrayLike, axis: Axes = -1) -> Tensor:
    """An order in which the kth element stands where sorting puts it: the sorted one."""

def percentile(x: ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """What so many percent of the elements lie below; for several, a new axis in front."""

def permute_dims(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Axes in another order."""

def piecewise(x: ArrayLike, condlist: Sequence[ArrayLike], funclist: Sequence[Any]) -> Tensor:
    """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""

def place(x: ArrayLike, mask: ArrayLike, values: ArrayLike) -> Tensor:
    """`x` with values, repeated as needed, at the places where a mask holds."""

def poly(roots: ArrayLike) -> Tensor:
    """The monic polynomial with these roots."""

def polyadd(p: ArrayLike, q: ArrayLike) -> Tensor:
    """The sum of two polynomials."""

def polyder(p: ArrayLike, m: int = 1) -> Tensor:
    """The derivative of a polynomial, `m` times."""

def polydiv(u: ArrayLike, v: ArrayLike) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of two polynomials; the remainder has as many coefficients as the dividend."""

def polyfit(x: ArrayLike, y: ArrayLike, degree: int) -> Tensor:
    """The polynomial of a degree that fits points best, by least squares."""

def polyint(p: ArrayLike, m: int = 1) -> Tensor:
    """An integral of a polynomial with constant 0, `m` times."""

def polymul(p: ArrayLike, q: ArrayLike) -> Tensor:
    """The product of two polynomials."""

def polysub(p: ArrayLike, q: ArrayLike) -> Tensor:
    """The difference of two polynomials."""

def polyval(p: ArrayLike, x: ArrayLike) -> Tensor:
    """The value of a polynomial, by Horner's scheme."""

def positive(x: ArrayLike) -> Tensor:
    """`x` itself."""

def pow(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`xʸ`."""

def power(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`xʸ`."""

def prod(x: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """Products."""

def promote_types(a: DTypeLike = 'float32', b: DTypeLike = 'float32') -> DType | None:
    """The dtype of results of two dtypes."""

def ptp(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element less the smallest."""

def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike) -> Tensor:
    """The array with elements at flat places replaced."""

def put_along_axis(x: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int) -> Tensor:
    """`x` with one value for each index along an axis; the other axes go along."""

def quantile(x: ArrayLike, q: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

def rad2deg(x: ArrayLike) -> Tensor:
    """Radians to degrees."""

def radians(x: ArrayLike) -> Tensor:
    """Degrees to radians."""

def rand(shape: int | Sequence[int]) -> Tensor:
    """f32 numbers between 0 and 1, from the process's generator; see [`manual_seed`]."""

def randint(low: int, high: int, shape: int | Sequence[int]) -> Tensor:
    """i64 numbers from `low` to below `high`, from the process's generator; see [`manual_seed`]."""

def randn(shape: int | Sequence[int]) -> Tensor:
    """f32 numbers of the standard normal distribution, from the process's generator; see [`manual_seed`]."""

def ravel(x: ArrayLike) -> Tensor:
    """All elements in order."""

def ravel_multi_index(index: Sequence[ArrayLike], shape: int | Sequence[int]) -> Tensor:
    """The flat index into a shape of indices along each axis, which are moved inside."""

def real(x: ArrayLike) -> Tensor:
    """The same: arrays here are real."""

def reciprocal(x: ArrayLike) -> Tensor:
    """`1/x`."""

def remainder(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The remainder with the sign of `y`."""

def repeat(x: ArrayLike, repeats: int | ArrayLike, axis: Axes = None) -> Tensor:
    """Each entry several times, or as often as a list says."""

def reshape(x: ArrayLike, shape: int | Sequence[int]) -> Tensor:
    """The same elements under another shape; one size may be −1."""

def resize(x: ArrayLike, shape: int | Sequence[int]) -> Tensor:
    """The elements in order, repeated or cut to a shape."""

def result_type(*xs: Any) -> DType:
    """The type of an operation of arrays and types."""

def right_shift(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / 2ʸ` for integers, rounded down."""

def rint(x: ArrayLike) -> Tensor:
    """Nearest integer, ties to even."""

def roll(x: ArrayLike, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Entries moved around."""

def rollaxis(x: ArrayLike, axis: Axes, start: float = 0) -> Tensor:
    """An axis moved before another."""

def rot90(x: ArrayLike, k: int = 1, a: int = 0, b: int = 1) -> Tensor:
    """Turns by `k` right angles in the plane of two axes."""

def round(x: ArrayLike, decimals: int = 0) -> Tensor:
    """Rounds to a number of decimals, ties to even."""

def searchsorted(sorted_: ArrayLike, values: ArrayLike, side: str = 'left', sorter: ArrayLike = None) -> Tensor:
    """Where values would stand in a sorted array."""

def select(conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
    """The first choice whose condition holds, else the default."""

def setdiff1d(a: ArrayLike, b: ArrayLike) -> Tensor:
    """What the first array has and the second has not."""

def setxor1d(a: ArrayLike, b: ArrayLike) -> Tensor:
    """What one of two arrays has."""

def shape(x: ArrayLike) -> tuple[int, ...]:
    """Sizes."""

def sign(x: ArrayLike) -> Tensor:
    """−1, 0 or 1."""

def signbit(x: ArrayLike) -> Tensor:
    """Whether the sign is minus, of −0 and NaN too."""

def sin(x: ArrayLike) -> Tensor:
    """Sine."""

def sinc(x: ArrayLike) -> Tensor:
    """`sin(πx)/(πx)`, 1 at 0."""

def sinh(x: ArrayLike) -> Tensor:
    """Hyperbolic sine."""

def size(x: ArrayLike) -> int:
    """The number of elements."""

def sort(x: ArrayLike, axis: Axes = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in order."""

def spacing(x: ArrayLike) -> Tensor:
    """The distance to the next float away from zero."""

def split(x: ArrayLike, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
    """Parts of equal size, or parts that end before these places."""

def split_at(x: ArrayLike, ends: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts that end before these indices."""

def sqrt(x: ArrayLike) -> Tensor:
    """Square root."""

def square(x: ArrayLike) -> Tensor:
    """`x·x`."""

def squeeze(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Without axes of size 1."""

def stack(xs: Any, axis: Axes = 0) -> Tensor:
    """Arrays along a new axis."""

def std(x: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
    """Standard deviations."""

def stop_gradient(x: ArrayLike) -> Tensor:
    """The same values; gradients don't pass."""

def subtract(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x − y`."""

def sum(x: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """Sums."""

def swapaxes(x: ArrayLike, a: int, b: int) -> Tensor:
    """Exchanges two axes."""

def take(x: ArrayLike, indices: ArrayLike, axis: Axes = None) -> Tensor:
    """Entries of an axis; of all elements if it is None."""

def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int) -> Tensor:
    """One index for each element; the other axes go along and broadcast."""

def tan(x: ArrayLike) -> Tensor:
    """Tangent."""

def tanh(x: ArrayLike) -> Tensor:
    """Hyperbolic tangent."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2) -> Tensor:
    """Contracts axes of two arrays."""

def tile(x: ArrayLike, reps: int | Sequence[int]) -> Tensor:
    """Copies side by side."""

def trace(x: ArrayLike, k: int = 0) -> Tensor:
    """The sum along the k-th diagonal."""

def transpose(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Axes in another order; reversed if none is given."""

def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The area under samples by trapezoids `dx` wide, along an axis."""

def tri(n: int, m: int | None = None, k: int = 0, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Ones on and below a diagonal."""

def tril(x: ArrayLike, k: int = 0) -> Tensor:
    """The part of matrices on and below a diagonal."""

def tril_indices(n: int, k: int, m: int) -> tuple[Tensor, Tensor]:
    """The indices on and below the k-th diagonal of an `n`×`m` matrix."""

def tril_indices_from(x: ArrayLike, k: int = 0) -> tuple[Tensor, Tensor]:
    """The indices on and below the k-th diagonal of a matrix."""

def trim_zeros(x: ArrayLike, trim: ArrayLike = 'fb') -> Tensor:
    """Without zeros at the ends."""

def triu(x: ArrayLike, k: int = 0) -> Tensor:
    """The part of matrices on and above a diagonal."""

def triu_indices(n: int, k: int, m: int) -> tuple[Tensor, Tensor]:
    """The indices on and above the k-th diagonal of an `n`×`m` matrix."""

def triu_indices_from(x: ArrayLike, k: int = 0) -> tuple[Tensor, Tensor]:
    """The indices on and above the k-th diagonal of a matrix."""

def true_divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / y` as floats."""

def trunc(x: ArrayLike) -> Tensor:
    """The integer part."""

def union1d(x: ArrayLike, y: ArrayLike, size: int) -> Tensor:
    """The first `size` distinct elements of two tensors together, in order."""

def unique(x: ArrayLike, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in order."""

def unique_counts(x: ArrayLike, size: int) -> tuple[Tensor, Tensor]:
    """The distinct elements and how often each occurs."""

def unique_inverse(x: ArrayLike, size: int) -> tuple[Tensor, Tensor]:
    """The distinct elements and, for each element, its place among them."""

def unique_values(x: ArrayLike, size: int) -> Tensor:
    """The array API's [`unique`]."""

def unravel_index(flat: ArrayLike, shape: int | Sequence[int]) -> list[Tensor]:
    """The indices along each axis of flat indices into a shape."""

def unstack(x: ArrayLike, axis: int = 0) -> list[Tensor]:
    """The slices along an axis, which disappears."""

def unwrap(x: ArrayLike, axis: int = -1) -> Tensor:
    """Changes jumps of more than half a period into their complements, along an axis."""

def vander(x: ArrayLike, n: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector as columns, highest first unless `increasing`."""

def var(x: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
    """Variances."""

def vdot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The inner product of all elements."""

def vecdot(a: ArrayLike, b: ArrayLike, axis: int = -1) -> Tensor:
    """Inner products along an axis, after broadcasting."""

def vecmat(x: ArrayLike, a: ArrayLike) -> Tensor:
    """Vectors times matrices, after broadcasting."""

def vectorize(f: Callable[..., Any], *, excluded: Sequence[int] = ()) -> Callable[..., Any]:
    """A function of numbers as one of arrays, which are broadcast."""

def vsplit(x: ArrayLike, parts: int) -> list[Tensor]:
    """Equal parts along the first axis."""

def vstack(xs: Sequence[ArrayLike]) -> Tensor:
    """Joins rows."""

def where(condition: ArrayLike, x: ArrayLike = None, y: ArrayLike = None) -> Any:
    """Elements of x where the condition holds, of y elsewhere; or the places where it holds."""

def zeros(shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Zeros."""

def zeros_like(x: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """Zeros of a shape and type."""
