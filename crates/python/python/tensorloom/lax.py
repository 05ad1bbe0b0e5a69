"""Loops, branches and primitives, by the names of JAX."""

import builtins as _builtins
import enum as _enum
import math as _math

from . import _tensorloom as _core
from . import numpy as _n
from . import special as _special
from ._functions import fill as _fill
from ._tensorloom import Tensor as _Tensor
from ._tensorloom import associative_scan as _associative_scan
from ._tensorloom import cond as _cond
from ._tensorloom import fori_loop as _fori_loop
from ._tensorloom import map as _map
from ._tensorloom import scan as _scan
from ._tensorloom import while_loop as _while_loop

_table = {}
_fill("lax", _table)
globals().update({n: f for n, f in _table.items() if not n.startswith("_")})


# Loops

def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    """A loop with a carry: `f(carry, x) -> (carry, y)` over the first axis of `xs`. `unroll` changes nothing here."""
    return _scan(f, init, xs, length, reverse)


def map(f, xs, *, batch_size=None):  # noqa: A001
    """`f` for each entry of the first axis, one after the other. `batch_size` changes nothing here."""
    return _map(f, xs)


def associative_scan(fn, elems, reverse=False, axis=0):
    """A running reduction by an associative function of two trees."""
    return _associative_scan(fn, elems, reverse, axis)


def while_loop(cond_fun, body_fun, init_val):
    """`body_fun(carry)` while `cond_fun(carry)`."""
    return _while_loop(cond_fun, body_fun, init_val)


def cond(pred, true_fun, false_fun, *operands):
    """`true_fun(*operands)` or `false_fun(*operands)`; one of them runs."""
    return _cond(pred, true_fun, false_fun, *operands)


def fori_loop(lower, upper, body_fun, init_val, *, unroll=None):
    """`body_fun(i, carry)` for i from `lower` to `upper`. With bounds of a trace it is a `while_loop`, which has no reverse mode."""
    if not isinstance(lower, _Tensor) and not isinstance(upper, _Tensor):
        return _fori_loop(int(lower), int(upper), body_fun, init_val)
    if not _builtins.any(isinstance(b, _Tensor) and b._traced for b in (lower, upper)):
        return _fori_loop(int(lower), int(upper), body_fun, init_val)
    lower, upper = (_n.asarray(b).astype("int32") for b in (lower, upper))
    return while_loop(lambda c: c[0] < upper, lambda c: (c[0] + 1, body_fun(c[0], c[1])), (lower, init_val))[1]


def switch(index, branches, *operands):
    """The branch of an index, which is moved into their range."""
    branches = list(branches)
    if not branches:
        raise ValueError("switch needs at least one branch")
    index = _n.clip(_n.asarray(index), 0, len(branches) - 1)

    def choose(low, high):
        if high - low == 1:
            return branches[low]
        middle = (low + high) // 2
        return lambda *x: cond(index < middle, choose(low, middle), choose(middle, high), *x)

    return choose(0, len(branches))(*operands)


def stop_gradient(x):
    """The same values; gradients don't pass."""
    from . import tree

    return tree.map(lambda t: _core._stop_gradient(t), x)


# One operand, two operands

def _same(name, f):
    def run(x):
        return f(x)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`{name}` of every element."
    return run


def _both(name, f):
    def run(x, y):
        return f(x, y)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`{name}` of two arrays, element by element."
    return run


for _name, _f in {
    **{n: getattr(_n, n) for n in "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh exp exp2 expm1 floor log log1p sign sin sinh sqrt square tan tanh".split()},
    "neg": _n.negative, "is_finite": _n.isfinite, "bitwise_not": _n.bitwise_invert, "reciprocal": _n.reciprocal, "rsqrt": lambda x: 1.0 / _n.sqrt(x),
    "logistic": lambda x: _tables()["nn"].sigmoid(x), "erf": _special.erf, "erfc": _special.erfc, "lgamma": _special.gammaln, "digamma": _special.digamma,
    "population_count": lambda x: _n.bitwise_count(_bits_of(x)).astype(_n.asarray(x).dtype),
}.items():
    globals()[_name] = _same(_name, _f)
for _name, _f in {
    "add": _n.add, "sub": _n.subtract, "mul": _n.multiply, "pow": _n.power, "max": _n.maximum, "min": _n.minimum, "rem": _n.fmod,
    "atan2": _n.atan2, "nextafter": _n.nextafter, "eq": _n.equal, "ne": _n.not_equal, "lt": _n.less, "le": _n.less_equal, "gt": _n.greater, "ge": _n.greater_equal,
    "bitwise_and": _n.bitwise_and, "bitwise_or": _n.bitwise_or, "bitwise_xor": _n.bitwise_xor, "shift_left": _n.left_shift,
    "shift_right_arithmetic": _n.right_shift,
}.items():
    globals()[_name] = _both(_name, _f)
del _name, _f


def _tables():
    from . import nn

    return {"nn": nn}


def div(x, y):
    """The quotient; of integers, rounded towards zero."""
    x, y = _n.asarray(x), _n.asarray(y)
    if x.dtype.kind == "f" or y.dtype.kind == "f":
        return _n.divide(x, y)
    q = _n.floor_divide(x, y)
    return q + _n.logical_and(_n.logical_xor(x < 0, y < 0), q * y != x).astype(q.dtype)


def integer_pow(x, y):
    """A power with a whole exponent."""
    return _n.power(x, y)


def erf_inv(x):
    """The inverse of the error function."""
    return _special.erfinv(x)


def round(x, rounding_method=0):  # noqa: A001
    """The nearest integer: away from zero (0), or the even one (1) of two."""
    if rounding_method:
        return _n.rint(x)
    x = _n.asarray(x)
    whole = _n.trunc(x)
    return whole + _n.where(_n.abs(x - whole) >= 0.5, _n.sign(x), 0.0)


def clamp(min, x, max):  # noqa: A002
    """Numbers moved into a range."""
    return _n.clip(x, min, max)


def select(pred, on_true, on_false):
    """Elements of one array where the condition holds, of the other elsewhere."""
    return _n.where(pred, on_true, on_false)


def select_n(which, *cases):
    """The case of an index, or of a bool, for every element."""
    which = _n.asarray(which)
    out = cases[0]
    for k, c in enumerate(cases[1:], 1):
        out = _n.where(which == k if which.dtype.kind != "b" else which, c, out)
    return out


def convert_element_type(operand, new_dtype):
    """The elements in another type."""
    return _n.asarray(operand).astype(new_dtype)


# Shapes

def reshape(operand, new_sizes, dimensions=None):
    """The elements in another shape."""
    x = _n.asarray(operand)
    return (x if dimensions is None else _n.permute_dims(x, list(dimensions))).reshape(tuple(new_sizes))


def transpose(operand, permutation):
    """The axes in another order."""
    return _n.permute_dims(operand, list(permutation))


def expand_dims(array, dimensions):
    """New axes of size 1."""
    return _n.expand_dims(array, tuple(dimensions))


def squeeze(array, dimensions):
    """Without some axes of size 1."""
    return _n.squeeze(array, tuple(dimensions))


def broadcast(operand, sizes):
    """New axes in front."""
    x = _n.asarray(operand)
    return _n.broadcast_to(x, (*sizes, *x.shape))


def broadcast_in_dim(operand, shape, broadcast_dimensions):
    """An array in a larger shape, with its axes at given places."""
    x = _n.asarray(operand)
    sizes = [1] * len(shape)
    for k, axis in enumerate(broadcast_dimensions):
        sizes[axis] = x.shape[k]
    return _n.broadcast_to(x.reshape(sizes), shape)


def concatenate(operands, dimension):
    """Arrays one after the other."""
    return _n.concatenate(list(operands), dimension)


def split(operand, sizes, axis=0):
    """Parts of these sizes."""
    ends, at = [], 0
    for n in sizes[:-1]:
        at += n
        ends.append(at)
    return _n.split(operand, ends, axis)


def rev(operand, dimensions):
    """Axes in reverse order."""
    return _n.flip(operand, tuple(dimensions))


def slice(operand, start_indices, limit_indices, strides=None):  # noqa: A001
    """A part of an array, by its first and last places."""
    x = _n.asarray(operand)
    steps = [1] * x.ndim if strides is None else strides
    return x[tuple(_builtins.slice(int(a), int(b), int(s)) for a, b, s in zip(start_indices, limit_indices, steps))]


def slice_in_dim(operand, start_index, limit_index, stride=1, axis=0):
    """A part of one axis."""
    x = _n.asarray(operand)
    index = [_builtins.slice(None)] * x.ndim
    index[axis] = _builtins.slice(start_index, limit_index, stride)
    return x[tuple(index)]


def index_in_dim(operand, index, axis=0, keepdims=True):
    """An entry of an axis."""
    return _n.take(operand, _n.asarray([index] if keepdims else index), axis)


def dynamic_slice(operand, start_indices, slice_sizes):
    """A part of a fixed size that begins at given places; it is moved to where it fits."""
    return _table["dynamic_slice"](operand, [_n.asarray(i) for i in start_indices], list(slice_sizes))


def dynamic_update_slice(operand, update, start_indices):
    """An array with a part replaced."""
    x = _n.asarray(operand)
    return _table["dynamic_update_slice"](x, _n.asarray(update).astype(x.dtype), [_n.asarray(i) for i in start_indices])


def dynamic_slice_in_dim(operand, start_index, slice_size, axis=0):
    """A part of one axis, of a fixed size."""
    return _table["dynamic_slice_in_dim"](operand, start_index, slice_size, axis)


def dynamic_index_in_dim(operand, index, axis=0, keepdims=True):
    """The entry of an axis at an index."""
    return _table["dynamic_index_in_dim"](operand, index, axis, keepdims)


def dynamic_update_slice_in_dim(operand, update, start_index, axis):
    """An array with a part of one axis replaced."""
    return _table["dynamic_update_slice_in_dim"](operand, update, start_index, axis)


def dynamic_update_index_in_dim(operand, update, index, axis):
    """An array with an entry of one axis replaced."""
    x, update = _n.asarray(operand), _n.asarray(update)
    update = update if update.ndim == x.ndim else _n.expand_dims(update, axis)
    return _table["dynamic_update_slice_in_dim"](x, update, index, axis)


def pad(operand, padding_value, padding_config):
    """Elements before, after and between those of each axis; negative amounts cut."""
    x = _n.asarray(operand)
    for axis, (low, high, between) in enumerate(padding_config):
        n = x.shape[axis]
        if between and n > 1:
            spread = [*x.shape]
            spread.insert(axis + 1, between)
            x = _n.concatenate([_n.expand_dims(x, axis + 1), _n.full(spread, padding_value, x.dtype)], axis + 1)
            n = n + (n - 1) * between
            x = x.reshape((*x.shape[:axis], -1, *x.shape[axis + 2:]))
            x = slice_in_dim(x, 0, n, axis=axis)
        x = slice_in_dim(x, _builtins.max(-low, 0), n - _builtins.max(-high, 0), axis=axis)
        for size, front in ((low, True), (high, False)):
            if size > 0:
                shape = [*x.shape]
                shape[axis] = size
                more = _n.full(shape, padding_value, x.dtype)
                x = _n.concatenate([more, x] if front else [x, more], axis)
    return x


def full(shape, fill_value, dtype=None):
    """An array of one number."""
    return _n.full(shape, fill_value, dtype)


def full_like(x, fill_value, dtype=None, shape=None):
    """One number in a shape and type."""
    return _n.full_like(x, fill_value, dtype, shape)


def iota(dtype, size):
    """0, 1, 2, .."""
    return _n.arange(0, size, 1, dtype)


def broadcasted_iota(dtype, shape, dimension):
    """0, 1, 2, .. along an axis."""
    return broadcast_in_dim(iota(dtype, shape[dimension]), shape, (dimension,))


# Products

class Precision(_enum.Enum):
    """How exact a product is to be. Here all are as `HIGHEST` is: products of floats are summed in f32 at least."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def dot(lhs, rhs, *, dimension_numbers=None, precision=None, preferred_element_type=None):
    """The product of vectors and matrices, or over any axes."""
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    return _n.dot(lhs, rhs, preferred_element_type=preferred_element_type)


def batch_matmul(lhs, rhs, precision=None):
    """Products of matrices."""
    return _n.matmul(lhs, rhs)


def dot_general(lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None):
    """A contraction over any axes: `((contracted left, right), (batch left, right))`."""
    (cl, cr), (bl, br) = dimension_numbers
    a, b = _n.asarray(lhs), _n.asarray(rhs)
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    na, nb = [next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]
    for i, j in (*zip(cl, cr), *zip(bl, br)):
        nb[j] = na[i]
    out = [na[i] for i in bl] + [n for i, n in enumerate(na) if i not in (*cl, *bl)] + [n for j, n in enumerate(nb) if j not in (*cr, *br)]
    return _n.einsum(f"{''.join(na)},{''.join(nb)}->{''.join(out)}", a, b, preferred_element_type=preferred_element_type)


def _layout(numbers, rank):
    """Where batch, features and the spatial axes stand in input, kernel and result."""
    if numbers is None:
        plain = list(range(rank))
        return plain, plain, plain
    lhs, rhs, out = numbers
    space = [c for c in lhs if c not in "NC"]
    place = lambda text, first: [text.index(c) for c in (*first, *space)]  # noqa: E731
    try:
        return place(lhs, "NC"), place(rhs, "OI"), place(out, "NC")
    except ValueError:
        raise ValueError(f"the layouts {lhs}, {rhs}, {out} don't name the same axes") from None


def conv_general_dilated(
    lhs, rhs, window_strides, padding, lhs_dilation=None, rhs_dilation=None, dimension_numbers=None, feature_group_count=1,
    batch_group_count=1, precision=None, preferred_element_type=None,
):
    """A convolution as deep learning means it; `[N, C, ..]` by `[O, I, ..]` unless `dimension_numbers` say otherwise."""
    x, k = _n.asarray(lhs), _n.asarray(rhs)
    a, b, c = _layout(dimension_numbers, x.ndim)
    ones = [1] * (x.ndim - 2)
    y = _core._conv(
        _n.permute_dims(x, a), _n.permute_dims(k, b), list(window_strides), padding if isinstance(padding, str) else [tuple(p) for p in padding],
        list(lhs_dilation or ones), list(rhs_dilation or ones), feature_group_count, batch_group_count)
    back = [0] * len(c)
    for i, p in enumerate(c):
        back[p] = i
    return _n.permute_dims(y, back)


def conv(lhs, rhs, window_strides, padding, precision=None, preferred_element_type=None):
    """A convolution of `[N, C, ..]` by `[O, I, ..]`."""
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=None, preferred_element_type=None):
    """A convolution of `[N, C, ..]` by `[O, I, ..]` with everything given."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


_CHANNELS_LAST = {3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"), 5: ("NHWDC", "HWDIO", "NHWDC")}


def conv_transpose(
    lhs, rhs, strides, padding, rhs_dilation=None, dimension_numbers=None, transpose_kernel=False, precision=None, preferred_element_type=None,
    use_consistent_padding=False,
):
    """A convolution with strides between the elements of the input; `[N, .., C]` by `[.., I, O]` unless `dimension_numbers` say otherwise."""
    x, k = _n.asarray(lhs), _n.asarray(rhs)
    numbers = _CHANNELS_LAST[x.ndim] if dimension_numbers is None else dimension_numbers
    _, b, _ = _layout(numbers, x.ndim)
    dilation = list(rhs_dilation or [1] * (x.ndim - 2))
    sizes = [(k.shape[axis] - 1) * r + 1 for axis, r in zip(b[2:], dilation)]
    if isinstance(padding, str):
        pads = []
        for size, stride in zip(sizes, strides):
            if padding == "SAME":
                total = size + stride - 2
                low = size - 1 if stride > size - 1 else -(-total // 2)
            elif padding == "VALID":
                total = size + stride - 2 + _builtins.max(size - stride, 0)
                low = size - 1
            else:
                raise ValueError(f"padding {padding!r}; use \"SAME\", \"VALID\" or pairs of numbers")
            pads.append((low, total - low))
    else:
        pads = [tuple(p) for p in padding]
        if use_consistent_padding:
            pads = [(s - 1 - low, s - 1 - high) for s, (low, high) in zip(sizes, pads)]
    if transpose_kernel:
        k = _n.swapaxes(_n.flip(k, tuple(b[2:])), b[0], b[1])
    return conv_general_dilated(x, k, [1] * (x.ndim - 2), pads, list(strides), dilation, numbers)


def conv_general_dilated_patches(
    lhs, filter_shape, window_strides, padding, lhs_dilation=None, rhs_dilation=None, dimension_numbers=None, precision=None,
    preferred_element_type=None,
):
    """What each window sees, as features: `[N, C, ..]` to `[N, C times the window, ..]`."""
    x = _n.asarray(lhs)
    a, _, c = _layout(dimension_numbers, x.ndim)
    x = _n.permute_dims(x, a)
    count = _math.prod(filter_shape)
    kernel = _n.tile(_n.eye(count, dtype=x.dtype).reshape((count, 1, *filter_shape)), (x.shape[1], 1, *[1] * len(filter_shape)))
    y = conv_general_dilated(x, kernel, window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count=x.shape[1])
    back = [0] * len(c)
    for i, p in enumerate(c):
        back[p] = i
    return _n.permute_dims(y, back)


def reduce_window(operand, init_value, computation, window_dimensions, window_strides, padding):
    """Windows reduced to one element each, by `add`, `max`, `min` or `mul`; `init_value` is what that leaves alone."""
    names = {"add": "sum", "mul": "prod", "multiply": "prod", "max": "max", "maximum": "max", "min": "min", "minimum": "min"}
    kind = names.get(getattr(computation, "__name__", None))
    if kind is None:
        raise NotImplementedError("windows can only be reduced by add, max, min or mul")
    neutral = {"sum": 0, "prod": 1, "max": -_math.inf, "min": _math.inf}[kind]
    if not isinstance(init_value, _Tensor) and init_value != neutral:
        raise NotImplementedError(f"the initial value of a window reduction must be {neutral}, not {init_value}")
    pad = padding if isinstance(padding, str) else [tuple(p) for p in padding]
    return _core._reduce_window(operand, kind, list(window_dimensions), list(window_strides), pad)


# Reductions

def _reduction(name, f):
    def run(operand, axes):
        return f(operand, axis=tuple(axes))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`{name}` over axes."
    return run


reduce_max, reduce_min, reduce_sum = _reduction("reduce_max", _n.max), _reduction("reduce_min", _n.min), _reduction("reduce_sum", _n.sum)
reduce_prod, reduce_and, reduce_or = _reduction("reduce_prod", _n.prod), _reduction("reduce_and", _n.all), _reduction("reduce_or", _n.any)


def argmax(operand, axis, index_dtype="int32"):
    """Where the largest of an axis is."""
    return _n.argmax(operand, axis).astype(index_dtype)


def argmin(operand, axis, index_dtype="int32"):
    """Where the least of an axis is."""
    return _n.argmin(operand, axis).astype(index_dtype)


def cumsum(operand, axis=0, reverse=False):
    """Running sums."""
    return _running(_n.cumsum, operand, axis, reverse)


def cumprod(operand, axis=0, reverse=False):
    """Running products."""
    return _running(_n.cumprod, operand, axis, reverse)


def cummax(operand, axis=0, reverse=False):
    """Running maxima."""
    return associative_scan(_n.maximum, _n.asarray(operand), reverse, axis)


def cummin(operand, axis=0, reverse=False):
    """Running minima."""
    return associative_scan(_n.minimum, _n.asarray(operand), reverse, axis)


def _running(f, x, axis, reverse):
    x = _n.asarray(x)
    y = _n.flip(f(_n.flip(x, axis), axis=axis), axis) if reverse else f(x, axis=axis)
    return y if y.dtype == x.dtype else y.astype(x.dtype)


def sort(operand, dimension=-1, is_stable=True, num_keys=1):
    """Elements in order; several arrays, by the first `num_keys` of them."""
    if isinstance(operand, (tuple, list)):
        return tuple(_table["sort_by"]([_n.asarray(x) for x in operand], dimension, num_keys, False))
    return _n.sort(operand, dimension)


def top_k(operand, k, *, axis=-1):
    """The largest of an axis, and where they are."""
    x = _n.asarray(operand)
    if axis % x.ndim == x.ndim - 1:
        return _table["top_k"](x, k)
    return tuple(_n.moveaxis(t, -1, axis) for t in _table["top_k"](_n.moveaxis(x, axis, -1), k))


def approx_max_k(operand, k, reduction_dimension=-1, recall_target=0.95, reduction_input_size_override=-1, aggregate_to_topk=True):
    """The largest of an axis, and where they are; here exactly."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand, k, reduction_dimension=-1, recall_target=0.95, reduction_input_size_override=-1, aggregate_to_topk=True):
    """The least of an axis, and where they are; here exactly."""
    values, places = top_k(-_n.asarray(operand), k, axis=reduction_dimension)
    return -values, places


def sort_key_val(keys, values, dimension=-1, is_stable=True):
    """Two arrays in the order of the first."""
    return sort((keys, values), dimension, is_stable, 1)


def cumlogsumexp(operand, axis=0, reverse=False):
    """Running logarithms of sums of exponentials."""
    return associative_scan(_n.logaddexp, _n.asarray(operand), reverse, axis)


def reduce(operands, init_values, computation, dimensions):
    """A reduction over axes by an associative function of two numbers, from an initial value on."""
    x = _n.moveaxis(_n.asarray(operands), tuple(dimensions), tuple(range(len(dimensions))))
    x = x.reshape((-1, *x.shape[len(dimensions):]))
    start = _n.broadcast_to(_n.asarray(init_values).astype(x.dtype), x.shape[1:])
    if not x.shape[0]:
        return start
    return computation(start, associative_scan(computation, x)[-1])


def collapse(operand, start_dimension, stop_dimension=None):
    """Some axes as one."""
    x = _n.asarray(operand)
    a, b, _ = _builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    return x if b - a < 2 and a < b else x.reshape((*x.shape[:a], _math.prod(x.shape[a:b]), *x.shape[b:]))


def tile(x, reps):
    """Copies side by side."""
    return _n.tile(x, tuple(reps))


def broadcast_shapes(*shapes):
    """The shape that arrays of these shapes have together."""
    return _n.broadcast_shapes(*shapes)


def zeros_like_array(x):
    """Zeros of a shape and type."""
    return _n.zeros_like(x)


def bitcast_convert_type(operand, new_dtype):
    """The same bits as numbers of another type: several of a smaller one along a new last axis, or one of a larger one in place of the
    last axis; not inside of a trace."""
    x, new = _n.asarray(operand), _core.dtype(new_dtype)
    if x.dtype.itemsize == new.itemsize:
        return x.view(new)
    if x.dtype.itemsize > new.itemsize:
        parts = x.dtype.itemsize // new.itemsize
        return x.reshape((*x.shape, 1)).view(new).reshape((*x.shape, parts))
    if not x.ndim or x.shape[-1] * x.dtype.itemsize != new.itemsize:
        raise ValueError(f"the last axis of {x.dtype}{list(x.shape)} must be one {new}")
    return x.view(new).reshape(x.shape[:-1])


def _bits_of(x):
    """Integers as unsigned ones of the same bits."""
    x = _n.asarray(x)
    return x.astype("u" + x.dtype.name) if x.dtype.kind == "i" else x


def shift_right_logical(x, y):
    """Shifted to the right with zeros from the left."""
    x = _n.asarray(x)
    if x.dtype.kind == "u":
        return _n.right_shift(x, y)
    return _n.right_shift(x.astype("u" + x.dtype.name), _n.asarray(y).astype("u" + x.dtype.name)).astype(x.dtype)


def optimization_barrier(operand):
    """The same values; nothing is moved across anyway."""
    return operand


def reduce_precision(operand, exponent_bits, mantissa_bits):
    """Rounded to a type of fewer bits and back: bfloat16 (8 and 7) or float16 (5 and 10)."""
    kind = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}.get((exponent_bits, mantissa_bits))
    if kind is None:
        raise NotImplementedError(f"{exponent_bits} and {mantissa_bits} bits; there are 8 and 7 (bfloat16), 5 and 10 (float16)")
    x = _n.asarray(operand)
    return x.astype(kind).astype(x.dtype)
