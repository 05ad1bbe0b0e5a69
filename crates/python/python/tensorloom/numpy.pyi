"""NumPy's functions on tensors."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from builtins import bool as _bool
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

bfloat16: DType
bool: DType
bool_: DType
c_: _Joined
double: DType
e: float
euler_gamma: float
float16: DType
float32: DType
float64: DType
float8_e4m3fn: DType
float8_e5m2: DType
float_: DType
floating: Any
from . import fft as fft
from . import linalg as linalg
index_exp: IndexExpression
inexact: Any
inf: float
int16: DType
int32: DType
int64: DType
int8: DType
int_: DType
integer: Any
mgrid: _Mesh
nan: float
ndarray = Tensor
newaxis: None
number: Any
ogrid: _Mesh
pi: float
r_: _Joined
s_: IndexExpression
signedinteger: Any
single: DType
uint16: DType
uint32: DType
uint64: DType
uint8: DType
uint: DType
unsignedinteger: Any

def abs(x: ArrayLike) -> Tensor:
    """`|x|`; bools are themselves."""

def absolute(x: ArrayLike) -> Tensor:
    """The same as [`abs`]."""

def acos(x: ArrayLike) -> Tensor:
    """Arc cosine."""

def acosh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic cosine."""

def add(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """Sums; of two bools, whether one of them is true."""

def all(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, *, where: ArrayLike = None) -> Tensor:
    """Whether all are true."""

def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: ArrayLike = False) -> _bool:
    """Whether all elements are close: a bool of Python's, or of a trace."""

def amax(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The largest."""

def amin(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The least."""

def angle(z: ArrayLike, deg: ArrayLike = False) -> Tensor:
    """0, or π where a number has a minus sign; in degrees, 180."""

def any(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, *, where: ArrayLike = None) -> Tensor:
    """Whether any is true."""

def append(arr: ArrayLike, values: ArrayLike, axis: Axes = None) -> Tensor:
    """Joins along an axis, or all elements in order."""

def apply_along_axis(func1d: ArrayLike, axis: Axes, arr: ArrayLike, *args: Any, **kwargs: Any) -> Tensor:
    """A function of the lines along an axis."""

def apply_over_axes(func: ArrayLike, a: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """A reduction over one axis after the other; axes stay."""

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

def argmax(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The index of the first largest element along an axis, or among all in order, as i64."""

def argmin(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The index of the first smallest element along an axis, or among all in order, as i64."""

def argpartition(a: ArrayLike, kth: ArrayLike, axis: Axes = -1) -> Tensor:
    """The order of `partition`."""

def argsort(a: ArrayLike, axis: Axes = -1, *, kind: Any = None, order: ArrayLike = None, stable: _bool = True, descending: _bool = False) -> Tensor:
    """The order that sorts; equal elements keep theirs."""

def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
    """Indices of elements other than zero, a row for each."""

def around(a: ArrayLike, decimals: int = 0) -> Tensor:
    """The same as [`round`]."""

def array(object: ArrayLike, dtype: DTypeLike | None = None, copy: _bool | None = True, order: ArrayLike = 'K', ndmin: ArrayLike = 0) -> Tensor:
    """A tensor of a number, a list or an array; with `ndmin` axes at least, new ones in front."""

def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: ArrayLike = False) -> Tensor:
    """Whether two arrays have one shape and equal elements."""

def array_equiv(a1: ArrayLike, a2: ArrayLike) -> _bool:
    """Whether elements are equal after broadcasting."""

def array_repr(arr: ArrayLike, max_line_width: ArrayLike = None, precision: ArrayLike = None, suppress_small: ArrayLike = None) -> str:
    """How an array is shown."""

def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
    """Parts, the first of which may be larger by one; or parts that end before these places."""

def array_str(a: ArrayLike, max_line_width: ArrayLike = None, precision: ArrayLike = None, suppress_small: ArrayLike = None) -> str:
    """The elements of an array as text."""

def asarray(x: ArrayLike, dtype: DTypeLike | None = None, *, copy: _bool | None = None) -> Tensor:
    """A tensor from an object, in a dtype if one is given. `copy=False` uses the memory of an array, or raises; then nobody may
    change it as long as the tensor, or what was computed from it, is in use. Otherwise arrays that may be written to are copied."""

def asin(x: ArrayLike) -> Tensor:
    """Arc sine."""

def asinh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic sine."""

def astype(x: ArrayLike, dtype: DTypeLike | None, copy: _bool | None = True) -> Tensor:
    """The elements in another type."""

def atan(x: ArrayLike) -> Tensor:
    """Arc tangent."""

def atan2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Angle of the point `(y, x)`."""

def atanh(x: ArrayLike) -> Tensor:
    """Inverse hyperbolic tangent."""

def atleast_1d(*arys: Any) -> Any:
    """Arrays with one axis or more."""

def atleast_2d(*arys: Any) -> Any:
    """Arrays with two axes or more, new ones in front."""

def atleast_3d(*arys: Any) -> Any:
    """Arrays with three axes or more."""

def average(a: ArrayLike, axis: Axes = None, weights: ArrayLike = None, returned: ArrayLike = False, keepdims: _bool = False) -> Any:
    """Means with weights; with `returned`, the sums of the weights too."""

def bartlett(M: int) -> Tensor:
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

def blackman(M: int) -> Tensor:
    """Blackman's window."""

def block(arrays: ArrayLike) -> Tensor:
    """Arrays of nested lists put together, the innermost along the last axis."""

def broadcast_arrays(*args: Any) -> list[Tensor]:
    """Arrays in their common shape; several, or a list of them."""

def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together."""

def broadcast_to(array: ArrayLike, shape: int | Sequence[int]) -> Tensor:
    """Repeats axes of size 1, and new ones in front, to a shape."""

def can_cast(from_: DTypeLike | Tensor, to: DTypeLike) -> _bool:
    """Whether one type goes into another without loss, as NumPy decides."""

def cbrt(x: ArrayLike) -> Tensor:
    """Cube root, of negative numbers too."""

def ceil(x: ArrayLike) -> Tensor:
    """Smallest integer not below."""

def choose(a: ArrayLike, choices: Sequence[ArrayLike], mode: str = 'raise') -> Tensor:
    """The choice of an index, element by element."""

def clip(arr: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None, *, a_min: ArrayLike = None, a_max: ArrayLike = None) -> Tensor:
    """Numbers moved into a range."""

def column_stack(tup: ArrayLike, *, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays beside each other."""

def compress(condition: ArrayLike, a: ArrayLike, axis: Axes = None, *, size: int | None = None, fill_value: ArrayLike = 0) -> Tensor:
    """The entries along an axis for which a condition holds; of a fixed `size` inside of a trace."""

def concat(arrays: ArrayLike, axis: Axes = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays one after the other along an axis."""

def concatenate(arrays: ArrayLike, axis: Axes = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays one after the other along an axis; along all of them if it is None."""

def conj(x: ArrayLike) -> Tensor:
    """The same: arrays here are real."""

def conjugate(x: ArrayLike) -> Tensor:
    """The same: arrays here are real."""

def convolve(a: ArrayLike, v: ArrayLike, mode: str = 'full') -> Tensor:
    """The convolution of two vectors: `full`, `same` as the longer, or `valid` where they overlap wholly."""

def copy(a: ArrayLike, order: ArrayLike = None) -> Tensor:
    """A copy."""

def copysign(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The size of `x` with the sign of `y`."""

def corrcoef(x: ArrayLike, y: ArrayLike = None, rowvar: ArrayLike = True) -> Tensor:
    """Correlations of rows, or of columns if not `rowvar`."""

def correlate(a: ArrayLike, v: ArrayLike, mode: str = 'valid') -> Tensor:
    """The cross-correlation of two vectors."""

def cos(x: ArrayLike) -> Tensor:
    """Cosine."""

def cosh(x: ArrayLike) -> Tensor:
    """Hyperbolic cosine."""

def count_nonzero(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """How many elements are not zero."""

def cov(m: int | None, y: ArrayLike = None, rowvar: ArrayLike = True, bias: ArrayLike = False, ddof: int | None = None, fweights: ArrayLike = None, aweights: ArrayLike = None) -> Tensor:
    """Covariances of rows, or of columns if not `rowvar`; `fweights` say how often an observation was made, `aweights` what it counts."""

def cross(a: ArrayLike, b: ArrayLike, axisa: ArrayLike = -1, axisb: ArrayLike = -1, axisc: ArrayLike = -1, axis: Axes = None) -> Tensor:
    """Products of vectors of three, or of two numbers."""

def cumprod(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
    """Along an axis, from the first element to each; of all elements in a row if it is None."""

def cumsum(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
    """Along an axis, from the first element to each; of all elements in a row if it is None."""

def cumulative_prod(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: _bool = False) -> Tensor:
    """Along an axis, from the first element to each; `include_initial` puts that of no elements in front."""

def cumulative_sum(x: ArrayLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, include_initial: _bool = False) -> Tensor:
    """Along an axis, from the first element to each; `include_initial` puts that of no elements in front."""

def deg2rad(x: ArrayLike) -> Tensor:
    """Degrees to radians."""

def degrees(x: ArrayLike) -> Tensor:
    """Radians to degrees."""

def delete(arr: ArrayLike, obj: int | Sequence[int], axis: Axes = None) -> Tensor:
    """`x` without the slices at indices along an axis, or without those elements in order."""

def diag(v: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""

def diag_indices(n: int, ndim: ArrayLike = 2) -> tuple[Tensor, ...]:
    """Where the diagonal of an array of `ndim` axes of n is."""

def diag_indices_from(arr: ArrayLike) -> list[Tensor]:
    """The indices of the diagonal of an array."""

def diagflat(v: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with all elements on its k-th diagonal."""

def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The k-th diagonal of the planes of two axes; it becomes the last axis."""

def diff(a: ArrayLike, n: int = 1, axis: Axes = -1, prepend: ArrayLike = None, append: ArrayLike = None) -> Tensor:
    """Differences of neighbours, n times; of the array with others before and behind it."""

def digitize(x: ArrayLike, bins: ArrayLike, right: _bool = False) -> Tensor:
    """Which bin each element falls into, for edges in increasing or decreasing order: how many edges are not beyond it, or with `right` how many it is beyond."""

def divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / y` as floats."""

def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Tensor, Tensor]:
    """The quotient rounded down, and the remainder with the sign of `y`."""

def dot(a: ArrayLike, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products of matrices and vectors. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 2."""

def dstack(tup: ArrayLike, *, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays beside each other."""

def dtype(x: ArrayLike) -> DType:
    """The type that an object names."""

def ediff1d(ary: ArrayLike, to_end: ArrayLike = None, to_begin: ArrayLike = None) -> Tensor:
    """Differences of neighbours in a row, with others before and behind them."""

def einsum(subscripts: ArrayLike, *operands: Any, optimize: ArrayLike = True, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Einstein's summation, by a text or by lists of axes: `einsum("ij,jk", x, y)`, `einsum(x, [0, 1], y, [1, 2])`."""

def einsum_path(subscripts: ArrayLike, *operands: Any, optimize: ArrayLike = 'greedy') -> Any:
    """The order of products that NumPy proposes, and a text about it."""

def empty(shape: int | Sequence[int], dtype: DTypeLike | None = 'float32') -> Tensor:
    """Zeros, since nothing here is left uninitialised."""

def empty_like(prototype: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """Zeros of a shape and type."""

def equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x == y`."""

def exp(x: ArrayLike) -> Tensor:
    """`eˣ`."""

def exp2(x: ArrayLike) -> Tensor:
    """`2ˣ`."""

def expand_dims(a: ArrayLike, axis: Axes) -> Tensor:
    """New axes of size 1."""

def expm1(x: ArrayLike) -> Tensor:
    """`eˣ − 1`, exact near 0."""

def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Tensor:
    """The elements where a condition holds; of a fixed `size` inside of a trace."""

def eye(N: ArrayLike, M: ArrayLike = None, k: int = 0, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Ones on a diagonal."""

def fabs(x: ArrayLike) -> Tensor:
    """Absolute values, as floats."""

def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: ArrayLike = False, *, inplace: ArrayLike = False) -> Tensor:
    """The array with another diagonal."""

def finfo(dtype: DTypeLike | None) -> Any:
    """Limits of a type of floats."""

def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
    """Flat indices of elements other than zero."""

def flip(m: ArrayLike, axis: Axes = None) -> Tensor:
    """Reverses axes, or all."""

def fliplr(m: ArrayLike) -> Tensor:
    """Reverses the second axis."""

def flipud(m: ArrayLike) -> Tensor:
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

def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: _bool | None = None) -> Tensor:
    """A tensor from any object that speaks DLPack, of the same memory if that is possible; `copy` asks for a copy or forbids it.
    Nobody may change memory that is shared as long as the tensor, or what was computed from it, is in use."""

def frombuffer(buffer: ArrayLike, dtype: DTypeLike | None = 'float32', count: ArrayLike = -1, offset: int = 0) -> Tensor:
    """The numbers in bytes."""

def fromfile(file: ArrayLike, dtype: DTypeLike | None = 'float32', count: ArrayLike = -1, sep: ArrayLike = '', offset: int = 0) -> Tensor:
    """The numbers in a file."""

def fromfunction(function: ArrayLike, shape: int | Sequence[int], *, dtype: DTypeLike | None = 'float32', **kwargs: Any) -> Tensor:
    """A function of the indices of every element."""

def fromiter(iter: ArrayLike, dtype: DTypeLike | None, count: ArrayLike = -1) -> Tensor:
    """The numbers that an iterator gives."""

def fromstring(string: ArrayLike, dtype: DTypeLike | None = 'float32', count: ArrayLike = -1, *, sep: ArrayLike) -> Tensor:
    """The numbers in a text."""

def full(shape: int | Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """An array of one number."""

def full_like(a: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """One number in a shape and type."""

def gcd(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Greatest common divisor."""

def geomspace(start: float, stop: float | None, num: int = 50, endpoint: _bool = True, dtype: DTypeLike | None = None, axis: Axes = 0) -> Tensor:
    """Numbers with equal ratios."""

def get_printoptions() -> dict[str, Any]:
    """How arrays are shown."""

def gradient(f: Callable[..., Any], *varargs: Any, axis: Axes = None, edge_order: ArrayLike = None) -> Any:
    """Differences in the middle, one-sided at the ends: an array for each axis. Distances are 1, one number, or one for each axis."""

def greater(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x > y`."""

def greater_equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x >= y`."""

def hamming(M: int) -> Tensor:
    """Hamming's window."""

def hanning(M: int) -> Tensor:
    """Hann's window."""

def heaviside(x: ArrayLike, at_zero: ArrayLike) -> Tensor:
    """0 below 0, `at_zero` at 0, 1 above."""

def histogram(a: ArrayLike, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, Tensor]:
    """How many numbers are in each range, or the sums of their weights, or their density; and the ends of the ranges."""

def histogram2d(x: ArrayLike, y: ArrayLike, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, Tensor, Tensor]:
    """How many points are in each rectangle of a grid; and the ends of the ranges along both axes."""

def histogram_bin_edges(a: ArrayLike, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None) -> Tensor:
    """The ends of so many equal ranges; those that are given, if `bins` is a list."""

def histogramdd(sample: ArrayLike, bins: ArrayLike = 10, range: ArrayLike = None, weights: ArrayLike = None, density: ArrayLike = None) -> tuple[Tensor, list[Tensor]]:
    """How many points are in each box of a grid; and the ends of the ranges along each axis."""

def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 1."""

def hstack(tup: ArrayLike, *, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays beside each other."""

def hypot(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`√(x² + y²)` without overflow."""

def i0(x: ArrayLike) -> Tensor:
    """The modified Bessel function of order 0."""

def identity(n: int, dtype: DTypeLike = 'float32') -> Tensor:
    """The identity matrix."""

def iinfo(int_type: ArrayLike) -> Any:
    """Limits of a type of integers."""

def imag(val: ArrayLike) -> Tensor:
    """Zeros: arrays here are real."""

def indices(dimensions: Sequence[int] | None, dtype: DTypeLike | None = 'int32', sparse: ArrayLike = False) -> Any:
    """The indices of every element of an array of these sizes; `sparse`, an array for each axis that broadcasts."""

def inner(a: ArrayLike, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products along the last axes. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

def insert(arr: ArrayLike, obj: int, values: ArrayLike, axis: Axes = None) -> Tensor:
    """`x` with values before the slice at an index along an axis, or before that element in order."""

def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike = None, right: ArrayLike = None, period: ArrayLike = None) -> Tensor:
    """A function by straight lines between points; `left` and `right` are its values outside, `period` makes it periodic."""

def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: ArrayLike = False, return_indices: ArrayLike = False) -> Any:
    """What both arrays have, in order; with `return_indices`, where both have it first."""

def invert(x: ArrayLike) -> Tensor:
    """Bitwise or logical not."""

def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: ArrayLike = False) -> Tensor:
    """Whether elements are close; NaN is close to NaN if `equal_nan`."""

def iscomplex(x: ArrayLike) -> Tensor:
    """Whether elements are complex: none is."""

def iscomplexobj(x: ArrayLike) -> _bool:
    """Whether an array is complex: none here is."""

def isdtype(dtype: DTypeLike | None, kind: Any) -> _bool:
    """Whether a type is of a kind of the array API's, such as "real floating"."""

def isfinite(x: ArrayLike) -> Tensor:
    """Whether neither infinite nor NaN."""

def isin(element: ArrayLike, test_elements: ArrayLike, assume_unique: ArrayLike = False, invert: ArrayLike = False) -> Tensor:
    """Whether each element is among others, or not if `invert`."""

def isinf(x: ArrayLike) -> Tensor:
    """Whether infinite."""

def isnan(x: ArrayLike) -> Tensor:
    """Whether NaN."""

def isneginf(x: ArrayLike) -> Tensor:
    """Whether infinite and negative."""

def isposinf(x: ArrayLike) -> Tensor:
    """Whether infinite and positive."""

def isreal(x: ArrayLike) -> Tensor:
    """Whether elements are real: all are."""

def isrealobj(x: ArrayLike) -> _bool:
    """Whether an array is real."""

def isscalar(element: ArrayLike) -> _bool:
    """Whether it is a number."""

def issubdtype(arg1: ArrayLike, arg2: ArrayLike) -> _bool:
    """Whether a type is of a kind of NumPy's, such as `np.floating`."""

def iterable(y: ArrayLike) -> _bool:
    """Whether something can be gone through."""

def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Indices of a grid."""

def kaiser(M: int, beta: float) -> Tensor:
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

def linspace(start: float, stop: float | None, num: int = 50, endpoint: _bool = True, retstep: ArrayLike = False, dtype: DTypeLike | None = None, axis: Axes = 0) -> Any:
    """Numbers at equal distances; between arrays, along a new axis. With `retstep`, the distance too."""

def load(file: ArrayLike, *args: Any, **kwargs: Any) -> Any:
    """Reads a file of NumPy's: an array, or what gives arrays of NumPy's by their names (`.npz`)."""

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

def logspace(start: float, stop: float | None, num: int = 50, endpoint: _bool = True, base: ArrayLike = 10.0, dtype: DTypeLike | None = None, axis: Axes = 0) -> Tensor:
    """Powers of a base whose exponents are at equal distances."""

def mask_indices(n: int, mask_func: ArrayLike, k: int = 0) -> tuple[Tensor, ...]:
    """Where a function of a matrix and a diagonal, such as `triu`, leaves elements."""

def matmul(a: ArrayLike, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products of matrices. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

def matrix_transpose(x: ArrayLike) -> Tensor:
    """Exchanges the last two axes."""

def matvec(a: ArrayLike, x: ArrayLike) -> Tensor:
    """Matrices times vectors, after broadcasting."""

def max(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The largest."""

def maximum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The larger; NaN if either is."""

def mean(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, *, where: ArrayLike = None) -> Tensor:
    """Means."""

def median(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The number in the middle, or the mean of the two there."""

def meshgrid(*xi: Any, copy: _bool | None = True, sparse: ArrayLike = False, indexing: str = 'xy') -> list[Tensor]:
    """Coordinates of a grid; `sparse`, arrays that broadcast to it."""

def min(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The least."""

def minimum(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The smaller; NaN if either is."""

def mod(x: ArrayLike, y: ArrayLike) -> Tensor:
    """What is left of a division, with the sign of the divisor."""

def modf(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """Fraction and integer part, both with the sign of `x`."""

def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Moves axes to other places."""

def multiply(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """Products; of two bools, whether both are true."""

def nan_to_num(x: ArrayLike, copy: _bool | None = True, nan: ArrayLike = 0.0, posinf: ArrayLike = None, neginf: ArrayLike = None) -> Tensor:
    """Finite numbers in place of NaN and infinities."""

def nanargmax(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The index of the largest number; −1 if there is none."""

def nanargmin(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The index of the smallest number; −1 if there is none."""

def nancumprod(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
    """Along an axis, from the first element to each; of all elements in a row if it is None."""

def nancumsum(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None) -> Tensor:
    """Along an axis, from the first element to each; of all elements in a row if it is None."""

def nanmax(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The largest of the elements that are numbers."""

def nanmean(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, where: ArrayLike = None) -> Tensor:
    """The mean of the elements that are numbers."""

def nanmedian(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The number in the middle, or the mean of the two there. NaN doesn't count."""

def nanmin(a: ArrayLike, axis: Axes = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """The least of the elements that are numbers."""

def nanpercentile(a: ArrayLike, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: _bool = False) -> Tensor:
    """What so many percent of the elements lie below; for several, a new axis in front."""

def nanprod(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """`prod` of the elements that are numbers."""

def nanquantile(a: ArrayLike, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: _bool = False) -> Tensor:
    """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

def nanquantile_by(x: ArrayLike, q: float, axis: Axes, method: str) -> Tensor:
    """[`quantile_by`] without NaN."""

def nanstd(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: _bool = False, where: ArrayLike = None) -> Tensor:
    """The standard deviation of the elements that are numbers."""

def nansum(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """`sum` of the elements that are numbers."""

def nanvar(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: _bool = False, where: ArrayLike = None) -> Tensor:
    """The variance of the elements that are numbers."""

def ndim(a: ArrayLike) -> int:
    """The number of axes."""

def negative(x: ArrayLike) -> Tensor:
    """`−x`."""

def nextafter(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The next float after `x` towards `y`."""

def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> tuple[Tensor, ...]:
    """Indices of elements other than zero, an array for each axis; of a fixed `size`, filled up with `fill_value`."""

def not_equal(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x != y`."""

def ones(shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Ones."""

def ones_like(a: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """Ones of a shape and type."""

def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of elements of two vectors."""

def packbits(a: ArrayLike, axis: Axes = None, bitorder: ArrayLike = 'big') -> Tensor:
    """Eight bits to each byte."""

def pad(array: ArrayLike, pad_width: Any, mode: str = 'constant', constant_values: ArrayLike = 0, *, end_values: ArrayLike = 0, stat_length: Any = None, reflect_type: str = 'even') -> Tensor:
    """Adds elements before and after each axis. Modes are those of NumPy; a number is a constant."""

def partition(a: ArrayLike, kth: ArrayLike, axis: Axes = -1) -> Tensor:
    """An order in which the kth element stands where sorting puts it: the sorted one."""

def percentile(a: ArrayLike, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: _bool = False) -> Tensor:
    """What so many percent of the elements lie below; for several, a new axis in front."""

def permute_dims(a: ArrayLike, axes: Axes = None) -> Tensor:
    """Axes in another order."""

def piecewise(x: ArrayLike, condlist: Sequence[ArrayLike], funclist: Sequence[Any]) -> Tensor:
    """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""

def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: ArrayLike = False) -> Tensor:
    """The array with the elements of a mask replaced, one after the other."""

def poly(seq_of_zeros: ArrayLike) -> Tensor:
    """The monic polynomial with these roots."""

def polyadd(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The sum of two polynomials."""

def polyder(p: ArrayLike, m: int = 1) -> Tensor:
    """The derivative of a polynomial, `m` times."""

def polydiv(u: ArrayLike, v: ArrayLike) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of two polynomials; the remainder has as many coefficients as the dividend."""

def polyfit(x: ArrayLike, y: ArrayLike, deg: ArrayLike, rcond: ArrayLike = None, full: ArrayLike = False, w: ArrayLike = None, cov: ArrayLike = False) -> Tensor:
    """The polynomial of a degree through points, with weights."""

def polyint(p: ArrayLike, m: int | None = 1, k: int = 0) -> Tensor:
    """The integral of a polynomial, m times; `k` are its constants."""

def polymul(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The product of two polynomials."""

def polysub(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The difference of two polynomials."""

def polyval(p: ArrayLike, x: ArrayLike) -> Tensor:
    """The value of a polynomial, by Horner's scheme."""

def positive(x: ArrayLike) -> Tensor:
    """`x` itself."""

def pow(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`xʸ`."""

def power(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`xʸ`."""

def printoptions(*args: Any, **kwargs: Any) -> Any:
    """How arrays are shown inside of `with`."""

def prod(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """Products."""

def promote_types(type1: DTypeLike = 'float32', type2: DTypeLike = 'float32') -> DType | None:
    """The dtype of results of two dtypes."""

def ptp(a: ArrayLike, axis: Axes = None, keepdims: _bool = False) -> Tensor:
    """The largest element less the smallest."""

def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: ArrayLike = False) -> Tensor:
    """The array with elements at flat places replaced; by `mode`, places outside are moved to the end ("clip") or counted on ("wrap")."""

def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: Axes, inplace: ArrayLike = False, *, mode: str | None = None) -> Tensor:
    """The array with elements along an axis replaced, for each place its own."""

def quantile(a: ArrayLike, q: ArrayLike, axis: Axes = None, overwrite_input: ArrayLike = False, method: ArrayLike = 'linear', keepdims: _bool = False) -> Tensor:
    """What so many parts of 1 of the elements lie below; for several, a new axis in front."""

def quantile_by(x: ArrayLike, q: float, axis: Axes, method: str) -> Tensor:
    """[`quantile`] by one of NumPy's methods, by its name: `"lower"`, `"hazen"`, `"inverted_cdf"`, .."""

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

def ravel(a: ArrayLike, order: ArrayLike = 'C') -> Tensor:
    """All elements in a row."""

def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: int | Sequence[int]) -> Tensor:
    """The flat index into a shape of indices along each axis, which are moved inside."""

def real(val: ArrayLike) -> Tensor:
    """The same: arrays here are real."""

def reciprocal(x: ArrayLike) -> Tensor:
    """`1/x`."""

def remainder(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The remainder with the sign of `y`."""

def repeat(a: ArrayLike, repeats: int | ArrayLike, axis: Axes = None, *, total_repeat_length: ArrayLike = None) -> Tensor:
    """Each entry several times, or as often as a list says; then a trace needs to know how many there will be."""

def reshape(a: ArrayLike, shape: int | Sequence[int], order: ArrayLike = 'C', *, copy: _bool | None = None) -> Tensor:
    """The elements in another shape; with `order="F"`, the first axis runs fastest."""

def resize(a: ArrayLike, new_shape: int | Sequence[int]) -> Tensor:
    """The elements in order, repeated or cut to a shape."""

def result_type(*xs: Any) -> DType:
    """The type of an operation of arrays and types."""

def right_shift(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / 2ʸ` for integers, rounded down."""

def rint(x: ArrayLike) -> Tensor:
    """Nearest integer, ties to even, as a float."""

def roll(a: ArrayLike, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Entries moved around."""

def rollaxis(a: ArrayLike, axis: Axes, start: float = 0) -> Tensor:
    """An axis moved before another."""

def rot90(m: int | None, k: int = 1, axes: int | Sequence[int] | Sequence[Sequence[int]] = (0, 1)) -> Tensor:
    """Turned by quarters from the first of two axes to the second."""

def round(a: ArrayLike, decimals: int = 0) -> Tensor:
    """Rounds to a number of decimals, ties to even."""

def save(file: ArrayLike, arr: ArrayLike, allow_pickle: ArrayLike = True) -> None:
    """Writes an array to a file of NumPy's (`.npy`)."""

def savez(file: ArrayLike, *args: Any, **kwds: Any) -> None:
    """Writes arrays to a file of NumPy's (`.npz`), by names or as `arr_0`, `arr_1`, .."""

def searchsorted(a: ArrayLike, v: ArrayLike, side: str = 'left', sorter: ArrayLike = None, *, method: ArrayLike = None) -> Tensor:
    """Where values would stand in a sorted array."""

def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
    """The first choice whose condition holds, else the default."""

def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """How arrays are shown from now on, those of NumPy too."""

def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: ArrayLike = False) -> Tensor:
    """What the first array has and the second has not."""

def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: ArrayLike = False) -> Tensor:
    """What one of two arrays has."""

def shape(a: ArrayLike) -> tuple[int, ...]:
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

def size(a: ArrayLike, axis: Axes = None) -> int:
    """The number of elements, or of those along axes."""

def sort(a: ArrayLike, axis: Axes = -1, *, kind: Any = None, order: ArrayLike = None, stable: _bool = True, descending: _bool = False) -> Tensor:
    """Elements in order; equal ones keep theirs, whatever `kind` says."""

def spacing(x: ArrayLike) -> Tensor:
    """The distance to the next float away from zero."""

def split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: Axes = 0) -> list[Tensor]:
    """Parts of equal size, or parts that end before these places."""

def split_at(x: ArrayLike, ends: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts that end before these indices."""

def sqrt(x: ArrayLike) -> Tensor:
    """Square root."""

def square(x: ArrayLike) -> Tensor:
    """`x·x`; bools are squared as numbers of i8, as in NumPy."""

def squeeze(a: ArrayLike, axis: Axes = None) -> Tensor:
    """Without axes of size 1."""

def stack(arrays: ArrayLike, axis: Axes = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays along a new axis."""

def std(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: _bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
    """Standard deviations."""

def stop_gradient(x: ArrayLike) -> Tensor:
    """The same values; gradients don't pass."""

def subtract(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x − y`."""

def sum(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: _bool = False, initial: Any = None, where: ArrayLike = None) -> Tensor:
    """Sums."""

def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Tensor:
    """Exchanges two axes."""

def take(a: ArrayLike, indices: ArrayLike, axis: Axes = None, mode: str | None = None, fill_value: ArrayLike = None, unique_indices: ArrayLike = False, indices_are_sorted: ArrayLike = False) -> Tensor:
    """Entries of an axis; of all elements if it is None. Those outside are errors, or by `mode` moved to the end ("clip"), counted on
    from the start ("wrap"), or replaced ("fill")."""

def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: Axes = -1, mode: str | None = None, fill_value: ArrayLike = None) -> Tensor:
    """Elements along an axis, for each place its own; those outside as `take` has them."""

def tan(x: ArrayLike) -> Tensor:
    """Tangent."""

def tanh(x: ArrayLike) -> Tensor:
    """Hyperbolic tangent."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Contracts axes of two arrays."""

def tile(A: ArrayLike, reps: int | Sequence[int]) -> Tensor:
    """Copies side by side."""

def trace(a: ArrayLike, offset: int = 0, axis1: ArrayLike = 0, axis2: ArrayLike = 1, dtype: DTypeLike | None = None) -> Tensor:
    """Sums of diagonals."""

def transpose(a: ArrayLike, axes: Axes = None) -> Tensor:
    """Axes in another order; reversed if none is given."""

def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The area under samples by trapezoids `dx` wide, along an axis."""

def tri(N: ArrayLike, M: ArrayLike = None, k: int = 0, dtype: DTypeLike | None = 'float32') -> Tensor:
    """Ones on and below a diagonal."""

def tril(m: int | None, k: int = 0) -> Tensor:
    """The part of matrices on and below a diagonal."""

def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Where a matrix of n rows and m columns is on or below a diagonal."""

def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tensor, Tensor]:
    """The indices on and below the k-th diagonal of a matrix."""

def trim_zeros(filt: ArrayLike, trim: ArrayLike = 'fb') -> Tensor:
    """Without zeros at the ends."""

def triu(m: int | None, k: int = 0) -> Tensor:
    """The part of matrices on and above a diagonal."""

def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Where a matrix of n rows and m columns is on or above a diagonal."""

def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tensor, Tensor]:
    """The indices on and above the k-th diagonal of a matrix."""

def true_divide(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`x / y` as floats."""

def trunc(x: ArrayLike) -> Tensor:
    """The integer part."""

def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
    """What one of two arrays has, in order."""

def unique(ar: ArrayLike, return_index: _bool = False, return_inverse: _bool = False, return_counts: _bool = False, axis: Axes = None, equal_nan: ArrayLike = True, size: int | None = None, fill_value: ArrayLike = None) -> Any:
    """The different elements in order, or the different entries along an axis; with `size` so many, filled up with `fill_value`."""

def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
    """The different elements, where they stand first, which of them each is, and how many there are of each."""

def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
    """The different elements, and how many there are of each."""

def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
    """The different elements, and which of them each is."""

def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = None) -> Tensor:
    """The different elements."""

def unpackbits(a: ArrayLike, axis: Axes = None, count: ArrayLike = None, bitorder: ArrayLike = 'big') -> Tensor:
    """The bits of bytes."""

def unravel_index(indices: ArrayLike, shape: int | Sequence[int]) -> list[Tensor]:
    """The indices along each axis of flat indices into a shape."""

def unstack(x: ArrayLike, axis: int = 0) -> list[Tensor]:
    """The slices along an axis, which disappears."""

def unwrap(p: ArrayLike, discont: ArrayLike = None, axis: Axes = -1, period: ArrayLike = 6.283185307179586) -> Tensor:
    """Angles without jumps: where neighbours differ by more than half a period, whole periods are added."""

def vander(x: ArrayLike, N: int | None = None, increasing: _bool = False) -> Tensor:
    """Powers of a vector as columns, highest first unless `increasing`."""

def var(a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, ddof: int = 0, keepdims: _bool = False, *, where: ArrayLike = None, correction: float | None = None) -> Tensor:
    """Variances."""

def vdot(a: ArrayLike, b: ArrayLike, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """The product of all elements. They are summed in f32 at least whatever `precision` says; the result has the preferred type."""

def vecdot(x1: ArrayLike, x2: ArrayLike, axis: Axes = -1, *, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """Products of vectors along an axis."""

def vecmat(x: ArrayLike, a: ArrayLike) -> Tensor:
    """Vectors times matrices, after broadcasting."""

def vectorize(pyfunc: ArrayLike, *, excluded: Sequence[int] = (), signature: ArrayLike = None) -> Callable[..., Any]:
    """A function of numbers as one of arrays, which are broadcast; with a signature such as "(n),(n)->()", one of arrays of fewer axes."""

def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 0."""

def vstack(tup: ArrayLike, *, dtype: DTypeLike | None = None) -> Tensor:
    """Arrays beside each other."""

def where(condition: ArrayLike, x: ArrayLike = None, y: ArrayLike = None, *, size: int | None = None, fill_value: ArrayLike = None) -> Any:
    """Elements of x where the condition holds, of y elsewhere; or the places where it holds."""

def zeros(shape: int | Sequence[int], dtype: DTypeLike = 'float32') -> Tensor:
    """Zeros."""

def zeros_like(a: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """Zeros of a shape and type."""
