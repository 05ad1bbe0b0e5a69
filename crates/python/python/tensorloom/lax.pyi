"""Loops, branches and primitives, by the names of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



class Precision(Enum):
    """How exact a product is to be. Here all are as `HIGHEST` is: products of floats are summed in f32 at least."""

    DEFAULT: Any

    HIGH: Any

    HIGHEST: Any

def abs(x: ArrayLike) -> Tensor:
    """`abs` of every element."""

def acos(x: ArrayLike) -> Tensor:
    """`acos` of every element."""

def acosh(x: ArrayLike) -> Tensor:
    """`acosh` of every element."""

def add(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`add` of two arrays, element by element."""

def approx_max_k(operand: ArrayLike, k: int, reduction_dimension: ArrayLike = -1, recall_target: ArrayLike = 0.95, reduction_input_size_override: ArrayLike = -1, aggregate_to_topk: ArrayLike = True) -> tuple[Tensor, Tensor]:
    """The largest of an axis, and where they are; here exactly."""

def approx_min_k(operand: ArrayLike, k: int, reduction_dimension: ArrayLike = -1, recall_target: ArrayLike = 0.95, reduction_input_size_override: ArrayLike = -1, aggregate_to_topk: ArrayLike = True) -> tuple[Tensor, Tensor]:
    """The least of an axis, and where they are; here exactly."""

def argmax(operand: ArrayLike, axis: Axes, index_dtype: DTypeLike = 'int32') -> Tensor:
    """Where the largest of an axis is."""

def argmin(operand: ArrayLike, axis: Axes, index_dtype: DTypeLike = 'int32') -> Tensor:
    """Where the least of an axis is."""

def asin(x: ArrayLike) -> Tensor:
    """`asin` of every element."""

def asinh(x: ArrayLike) -> Tensor:
    """`asinh` of every element."""

def associative_scan(fn: Callable[..., Any], elems: Any, reverse: bool = False, axis: Axes = 0) -> Any:
    """A running reduction by an associative function of two trees."""

def atan(x: ArrayLike) -> Tensor:
    """`atan` of every element."""

def atan2(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`atan2` of two arrays, element by element."""

def atanh(x: ArrayLike) -> Tensor:
    """`atanh` of every element."""

def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: ArrayLike = None) -> Tensor:
    """Products of matrices."""

def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Tensor:
    """The same bits as numbers of another type: several of a smaller one along a new last axis, or one of a larger one in place of the
    last axis; not inside of a trace."""

def bitwise_and(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`bitwise_and` of two arrays, element by element."""

def bitwise_not(x: ArrayLike) -> Tensor:
    """`bitwise_not` of every element."""

def bitwise_or(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`bitwise_or` of two arrays, element by element."""

def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`bitwise_xor` of two arrays, element by element."""

def broadcast(operand: ArrayLike, sizes: dict[str, Any] | None) -> Tensor:
    """New axes in front."""

def broadcast_in_dim(operand: ArrayLike, shape: int | Sequence[int], broadcast_dimensions: Sequence[int]) -> Tensor:
    """An array in a larger shape, with its axes at given places."""

def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together."""

def broadcasted_iota(dtype: DTypeLike | None, shape: int | Sequence[int], dimension: int) -> Tensor:
    """0, 1, 2, .. along an axis."""

def cbrt(x: ArrayLike) -> Tensor:
    """`cbrt` of every element."""

def ceil(x: ArrayLike) -> Tensor:
    """`ceil` of every element."""

def clamp(min: ArrayLike | None, x: ArrayLike, max: ArrayLike | None) -> Tensor:
    """Numbers moved into a range."""

def collapse(operand: ArrayLike, start_dimension: ArrayLike, stop_dimension: ArrayLike = None) -> Tensor:
    """Some axes as one."""

def concatenate(operands: Any, dimension: int) -> Tensor:
    """Arrays one after the other."""

def cond(pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` or `false_fun(*operands)`; one of them runs."""

def conv(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Any, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """A convolution of `[N, C, ..]` by `[O, I, ..]`."""

def conv_general_dilated(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """A convolution as deep learning means it; `[N, C, ..]` by `[O, I, ..]` unless `dimension_numbers` say otherwise."""

def conv_general_dilated_patches(lhs: ArrayLike, filter_shape: ArrayLike, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """What each window sees, as features: `[N, C, ..]` to `[N, C times the window, ..]`."""

def conv_transpose(lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int] | None, padding: Any, rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, transpose_kernel: ArrayLike = False, precision: ArrayLike = None, preferred_element_type: ArrayLike = None, use_consistent_padding: ArrayLike = False) -> Tensor:
    """A convolution with strides between the elements of the input; `[N, .., C]` by `[.., I, O]` unless `dimension_numbers` say otherwise."""

def conv_with_general_padding(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """A convolution of `[N, C, ..]` by `[O, I, ..]` with everything given."""

def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Tensor:
    """The elements in another type."""

def cos(x: ArrayLike) -> Tensor:
    """`cos` of every element."""

def cosh(x: ArrayLike) -> Tensor:
    """`cosh` of every element."""

def cumlogsumexp(operand: ArrayLike, axis: Axes = 0, reverse: bool = False) -> Tensor:
    """Running logarithms of sums of exponentials."""

def cummax(operand: ArrayLike, axis: Axes = 0, reverse: bool = False) -> Tensor:
    """Running maxima."""

def cummin(operand: ArrayLike, axis: Axes = 0, reverse: bool = False) -> Tensor:
    """Running minima."""

def cumprod(operand: ArrayLike, axis: Axes = 0, reverse: bool = False) -> Tensor:
    """Running products."""

def cumsum(operand: ArrayLike, axis: Axes = 0, reverse: bool = False) -> Tensor:
    """Running sums."""

def digamma(x: ArrayLike) -> Tensor:
    """`digamma` of every element."""

def div(x: ArrayLike, y: ArrayLike) -> Tensor:
    """The quotient; of integers, rounded towards zero."""

def dot(lhs: ArrayLike, rhs: ArrayLike, *, dimension_numbers: Any = None, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """The product of vectors and matrices, or over any axes."""

def dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any, precision: ArrayLike = None, preferred_element_type: ArrayLike = None) -> Tensor:
    """A contraction over any axes: `((contracted left, right), (batch left, right))`."""

def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: Axes = 0, keepdims: bool = True) -> Tensor:
    """The entry of an axis at an index."""

def dynamic_slice(operand: ArrayLike, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> Tensor:
    """A part of a fixed size that begins at given places; it is moved to where it fits."""

def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: ArrayLike, axis: Axes = 0) -> Tensor:
    """A part of one axis, of a fixed size."""

def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: Axes) -> Tensor:
    """An array with an entry of one axis replaced."""

def dynamic_update_slice(operand: ArrayLike, update: ArrayLike, start_indices: Sequence[Any]) -> Tensor:
    """An array with a part replaced."""

def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: Axes) -> Tensor:
    """An array with a part of one axis replaced."""

def eq(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`eq` of two arrays, element by element."""

def erf(x: ArrayLike) -> Tensor:
    """`erf` of every element."""

def erf_inv(x: ArrayLike) -> Tensor:
    """The inverse of the error function."""

def erfc(x: ArrayLike) -> Tensor:
    """`erfc` of every element."""

def exp(x: ArrayLike) -> Tensor:
    """`exp` of every element."""

def exp2(x: ArrayLike) -> Tensor:
    """`exp2` of every element."""

def expand_dims(array: ArrayLike, dimensions: Sequence[int] | None) -> Tensor:
    """New axes of size 1."""

def expm1(x: ArrayLike) -> Tensor:
    """`expm1` of every element."""

def floor(x: ArrayLike) -> Tensor:
    """`floor` of every element."""

def fori_loop(lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Any, *, unroll: int | None = None) -> Any:
    """`body_fun(i, carry)` for i from `lower` to `upper`. With bounds of a trace it is a `while_loop`, which has no reverse mode."""

def full(shape: int | Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """An array of one number."""

def full_like(x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> Tensor:
    """One number in a shape and type."""

def ge(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`ge` of two arrays, element by element."""

def gt(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`gt` of two arrays, element by element."""

def index_add(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with values added at `x[i, j, ..]`."""

def index_in_dim(operand: ArrayLike, index: ArrayLike, axis: Axes = 0, keepdims: bool = True) -> Tensor:
    """An entry of an axis."""

def index_max(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with the larger at `x[i, j, ..]`."""

def index_min(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with the smaller at `x[i, j, ..]`."""

def index_mul(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with `x[i, j, ..]` multiplied."""

def index_set(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with `x[i, j, ..]` replaced; the last of several values for one place stays."""

def index_take(x: ArrayLike, index: Sequence[ArrayLike]) -> Tensor:
    """`x[i, j, ..]` for index tensors that broadcast together; outside gives JAX's fill value."""

def integer_pow(x: ArrayLike, y: ArrayLike) -> Tensor:
    """A power with a whole exponent."""

def iota(dtype: DTypeLike | None, size: int | None) -> Tensor:
    """0, 1, 2, .."""

def is_finite(x: ArrayLike) -> Tensor:
    """`is_finite` of every element."""

def le(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`le` of two arrays, element by element."""

def lgamma(x: ArrayLike) -> Tensor:
    """`lgamma` of every element."""

def log(x: ArrayLike) -> Tensor:
    """`log` of every element."""

def log1p(x: ArrayLike) -> Tensor:
    """`log1p` of every element."""

def logistic(x: ArrayLike) -> Tensor:
    """`logistic` of every element."""

def lt(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`lt` of two arrays, element by element."""

def map(f: Callable[..., Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` for each entry of the first axis, one after the other. `batch_size` changes nothing here."""

def max(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`max` of two arrays, element by element."""

def min(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`min` of two arrays, element by element."""

def mul(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`mul` of two arrays, element by element."""

def ne(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`ne` of two arrays, element by element."""

def neg(x: ArrayLike) -> Tensor:
    """`neg` of every element."""

def nextafter(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`nextafter` of two arrays, element by element."""

def optimization_barrier(operand: ArrayLike) -> Any:
    """The same values; nothing is moved across anyway."""

def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[Any]) -> Tensor:
    """Elements before, after and between those of each axis; negative amounts cut."""

def population_count(x: ArrayLike) -> Tensor:
    """`population_count` of every element."""

def pow(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`pow` of two arrays, element by element."""

def reciprocal(x: ArrayLike) -> Tensor:
    """`reciprocal` of every element."""

def reduce(operands: Any, init_values: ArrayLike, computation: Callable[..., Any], dimensions: Sequence[int] | None) -> Tensor:
    """A reduction over axes by an associative function of two numbers, from an initial value on."""

def reduce_and(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_and` over axes."""

def reduce_max(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_max` over axes."""

def reduce_min(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_min` over axes."""

def reduce_or(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_or` over axes."""

def reduce_precision(operand: ArrayLike, exponent_bits: ArrayLike, mantissa_bits: ArrayLike) -> Tensor:
    """Rounded to a type of fewer bits and back: bfloat16 (8 and 7) or float16 (5 and 10)."""

def reduce_prod(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_prod` over axes."""

def reduce_sum(operand: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """`reduce_sum` over axes."""

def reduce_window(operand: ArrayLike, init_value: float, computation: Callable[..., Any], window_dimensions: Sequence[int], window_strides: Sequence[int], padding: Any) -> Tensor:
    """Windows reduced to one element each, by `add`, `max`, `min` or `mul`; `init_value` is what that leaves alone."""

def rem(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`rem` of two arrays, element by element."""

def reshape(operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Tensor:
    """The elements in another shape."""

def rev(operand: ArrayLike, dimensions: Sequence[int] | None) -> Tensor:
    """Axes in reverse order."""

def round(x: ArrayLike, rounding_method: ArrayLike = 0) -> Tensor:
    """The nearest integer: away from zero (0), or the even one (1) of two."""

def rsqrt(x: ArrayLike) -> Tensor:
    """`rsqrt` of every element."""

def scan(f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, unroll: int | None = 1) -> tuple[Any, Any]:
    """A loop with a carry: `f(carry, x) -> (carry, y)` over the first axis of `xs`. `unroll` changes nothing here."""

def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Tensor:
    """Elements of one array where the condition holds, of the other elsewhere."""

def select_n(which: ArrayLike, *cases: Any) -> Tensor:
    """The case of an index, or of a bool, for every element."""

def shift_left(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`shift_left` of two arrays, element by element."""

def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`shift_right_arithmetic` of two arrays, element by element."""

def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Tensor:
    """Shifted to the right with zeros from the left."""

def sign(x: ArrayLike) -> Tensor:
    """`sign` of every element."""

def sin(x: ArrayLike) -> Tensor:
    """`sin` of every element."""

def sinh(x: ArrayLike) -> Tensor:
    """`sinh` of every element."""

def slice(operand: ArrayLike, start_indices: Sequence[Any], limit_indices: Sequence[int], strides: Sequence[int] | None = None) -> Tensor:
    """A part of an array, by its first and last places."""

def slice_in_dim(operand: ArrayLike, start_index: ArrayLike, limit_index: ArrayLike, stride: ArrayLike = 1, axis: Axes = 0) -> Tensor:
    """A part of one axis."""

def sort(operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Elements in order; several arrays, by the first `num_keys` of them."""

def sort_by(xs: Sequence[ArrayLike], axis: int, num_keys: int, descending: bool = False) -> list[Tensor]:
    """Sorts several tensors together by the first `num_keys` of them."""

def sort_key_val(keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True) -> Any:
    """Two arrays in the order of the first."""

def split(operand: ArrayLike, sizes: dict[str, Any] | None, axis: Axes = 0) -> list[Tensor]:
    """Parts of these sizes."""

def sqrt(x: ArrayLike) -> Tensor:
    """`sqrt` of every element."""

def square(x: ArrayLike) -> Tensor:
    """`square` of every element."""

def squeeze(array: ArrayLike, dimensions: Sequence[int] | None) -> Tensor:
    """Without some axes of size 1."""

def stop_gradient(x: ArrayLike) -> Any:
    """The same values; gradients don't pass."""

def sub(x: ArrayLike, y: ArrayLike) -> Tensor:
    """`sub` of two arrays, element by element."""

def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The branch of an index, which is moved into their range."""

def tan(x: ArrayLike) -> Tensor:
    """`tan` of every element."""

def tanh(x: ArrayLike) -> Tensor:
    """`tanh` of every element."""

def tile(x: ArrayLike, reps: int | Sequence[int]) -> Tensor:
    """Copies side by side."""

def top_k(operand: ArrayLike, k: int, *, axis: Axes = -1) -> tuple[Tensor, Tensor]:
    """The largest of an axis, and where they are."""

def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Tensor:
    """The axes in another order."""

def while_loop(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any) -> Any:
    """`body_fun(carry)` while `cond_fun(carry)`."""

def zeros_like_array(x: ArrayLike) -> Tensor:
    """Zeros of a shape and type."""
