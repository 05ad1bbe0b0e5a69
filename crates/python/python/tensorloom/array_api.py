"""The namespace of the array API standard, version 2024.12.

Functions are those of `tensorloom.numpy` with the standard's names, keywords and conventions. Complex arrays are pairs of real tensors
(`ComplexTensor`), known here alone.
"""

import builtins as _b
import functools as _functools
import math as _math
from collections import namedtuple as _namedtuple

import numpy as _np

from . import numpy as _n
from . import _tensorloom as _core
from ._tensorloom import (
    Tensor, bool_ as bool, float32, float64, from_dlpack as _from_dlpack, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
from . import _complex as _c
from . import _complex_linalg as _cl
from ._array_fft import fft
from ._complex import ComplexTensor, complex64, complex128
from ._rounded import rounded as _rounded

__array_api_version__ = "2024.12"
e, inf, nan, newaxis, pi = _math.e, _math.inf, _math.nan, None, _math.pi

_INTS = (int8, int16, int32, int64)
_UINTS = (uint8, uint16, uint32, uint64)
_FLOATS = (float32, float64)
_COMPLEX = (complex64, complex128)
_ALL = {d.name: d for d in (bool, *_INTS, *_UINTS, *_FLOATS, *_COMPLEX)}
_ARRAYS = (Tensor, ComplexTensor)


def _kind(x):
    """The type of an array, or the type that something names."""
    return x.dtype if isinstance(x, _ARRAYS) else _c.of_name(x) or _core.dtype(x)


def _device(device):
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r}; arrays are on \"cpu\"")


# Creation

def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """An array from an object."""
    _device(device)
    if _c.listed(obj) or dtype is not None and _c.of_name(dtype):
        return _c.asarray(obj, dtype=dtype, copy=copy)
    return _core.asarray(obj, dtype, copy=copy)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """Numbers from start to stop, which is left out."""
    _device(device)
    return _n.arange(start, stop, step, dtype)


def empty(shape, *, dtype=None, device=None):
    """Zeros."""
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    """Zeros of a shape and type."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Ones on a diagonal."""
    _device(device)
    return _n.eye(n_rows, n_cols, k, dtype or float32)


def from_dlpack(x, /, *, device=None, copy=None):
    """An array from one of another library."""
    _device(device)
    if isinstance(x, ComplexTensor):
        return x.__copy__() if copy else x
    if getattr(getattr(x, "dtype", None), "kind", None) == "c":
        return _c.asarray(x, copy=copy)
    return _from_dlpack(x, copy=copy)


def full(shape, fill_value, *, dtype=None, device=None):
    """An array of one number."""
    _device(device)
    return _n.full(_shape(shape), fill_value, dtype)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """One number in a shape and type."""
    _device(device)
    return _n.full(x.shape, fill_value, dtype or x.dtype)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """Numbers at equal distances."""
    _device(device)
    return _core.asarray(_np.linspace(start, stop, num, endpoint=endpoint)).astype(dtype or float32)


def meshgrid(*arrays, indexing="xy"):
    """Coordinates of a grid."""
    return list(_n.meshgrid(*arrays, indexing=indexing))


def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def ones(shape, *, dtype=None, device=None):
    """Ones."""
    return full(shape, 1, dtype=dtype or float32, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    """Ones of a shape and type."""
    return full_like(x, 1, dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None):
    """Zeros."""
    return full(shape, 0, dtype=dtype or float32, device=device)


def zeros_like(x, /, *, dtype=None, device=None):
    """Zeros of a shape and type."""
    return full_like(x, 0, dtype=dtype, device=device)


def tril(x, /, *, k=0):
    """The part on and below a diagonal."""
    return _n.tril(x, k)


def triu(x, /, *, k=0):
    """The part on and above a diagonal."""
    return _n.triu(x, k)


# Types

def astype(x, dtype, /, *, copy=True, device=None):
    """The elements in another type."""
    _device(device)
    if x.dtype == dtype:
        return x.__copy__() if copy else x
    return _n.astype(x, dtype)


def broadcast_arrays(*arrays):
    """Arrays in their common shape."""
    return list(_n.broadcast_arrays(list(arrays)))


def broadcast_to(x, /, shape):
    """An array in a larger shape."""
    return _n.broadcast_to(x, shape)


def can_cast(from_, to, /):
    """Whether one type goes into another by promotion."""
    try:
        return result_type(_kind(from_), to) == _kind(to)
    except TypeError:
        return False


_finfo = _namedtuple("finfo", "bits eps max min smallest_normal dtype")
_iinfo = _namedtuple("iinfo", "bits max min dtype")


def finfo(type, /):  # noqa: A002
    """Facts of a float type."""
    d = _kind(type)
    d = d.part if d in _COMPLEX else d
    if d not in _FLOATS:
        raise TypeError(f"{d} is not a float dtype")
    f = _np.finfo(d.name)
    return _finfo(f.bits, float(f.eps), float(f.max), float(f.min), float(f.smallest_normal), d)


def iinfo(type, /):  # noqa: A002
    """Facts of an integer type."""
    d = _kind(type)
    if d not in _INTS + _UINTS:
        raise TypeError(f"{d} is not an integer dtype")
    i = _np.iinfo(d.name)
    return _iinfo(i.bits, int(i.max), int(i.min), d)


def isdtype(dtype, kind):
    """Whether a type is of a kind."""
    if isinstance(kind, tuple):
        return _b.any(isdtype(dtype, k) for k in kind)
    kinds = {
        "bool": (bool,), "signed integer": _INTS, "unsigned integer": _UINTS, "integral": _INTS + _UINTS,
        "real floating": _FLOATS, "complex floating": _COMPLEX, "numeric": _INTS + _UINTS + _FLOATS + _COMPLEX,
    }
    if isinstance(kind, str):
        if kind not in kinds:
            raise ValueError(f"{kind!r} is not a kind of dtype")
        return dtype in kinds[kind]
    return dtype == kind


def result_type(*arrays_and_dtypes):
    """The type of an operation of arrays and types."""
    kinds = [_kind(x) for x in arrays_and_dtypes if not isinstance(x, (int, float, complex))]
    if not kinds:
        raise TypeError("there is no array or dtype among the arguments")
    if _b.any(_c.is_complex(x) for x in (*kinds, *arrays_and_dtypes)):
        return _c.common(*kinds)
    groups = {"b": 0, "i": 1, "u": 1, "f": 2}
    if len({groups[k.kind] for k in kinds}) > 1:
        raise TypeError("dtypes of different kinds do not promote: " + ", ".join(k.name for k in kinds))
    for x in arrays_and_dtypes:
        if isinstance(x, float) and kinds[0].kind != "f":
            raise TypeError(f"a float cannot be combined with {kinds[0]}")
    if uint64 in kinds and _b.any(k.kind == "i" for k in kinds):
        raise TypeError("uint64 and signed integers do not promote")
    return _n.result_type(*kinds)


class _Info:
    """What this namespace can do."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return "cpu"

    def devices(self):
        return ["cpu"]

    def default_dtypes(self, *, device=None):
        _device(device)
        return {"real floating": float32, "complex floating": complex64, "integral": int32, "indexing": int64}

    def dtypes(self, *, device=None, kind=None):
        _device(device)
        return {n: d for n, d in _ALL.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__():
    """What this namespace can do."""
    return _Info()


# Elementwise

def _pair(x, y):
    """Operands in their common type."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        raise TypeError("one of the operands must be an array")
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype != y.dtype:
        d = result_type(x, y)
        return x.astype(d), y.astype(d)
    return x, y


def _unary(name):
    f = getattr(_n, name)

    def run(x, /):
        return f(x)

    run.__name__, run.__doc__ = name, f.__doc__
    return run


def _binary(name, own=None):
    f = getattr(_n, own or name)

    def run(x1, x2, /):
        x1, x2 = _pair(x1, x2)
        return f(x1, x2)

    run.__name__, run.__doc__ = name, f.__doc__
    return run


def _same_for_integers(name):
    f = getattr(_n, name)

    def run(x, /):
        return x.__copy__() if x.dtype.kind in "iub" else f(x)

    run.__name__, run.__doc__ = name, f.__doc__
    return run


for _name in (
    "abs acos acosh asin asinh atan atanh bitwise_invert cos cosh exp expm1 isfinite isinf isnan log log1p log2 log10 "
    "logical_not negative reciprocal signbit sin sinh square sqrt tan tanh"
).split():
    globals()[_name] = _unary(_name)
for _name in "ceil floor trunc".split():
    globals()[_name] = _same_for_integers(_name)
for _name in (
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal greater "
    "greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter "
    "not_equal pow subtract"
).split():
    globals()[_name] = _binary(_name)


def positive(x, /):
    """A copy."""
    return x.__copy__()


def sign(x, /):
    """-1, 0 or 1; zeros lose their sign."""
    return _n.where(x == 0, zeros_like(x), _n.sign(x)) if x.dtype.kind == "f" else _n.sign(x)


def floor_divide(x1, x2, /):
    """The quotient rounded down; infinities and signed zeros as the quotient has them."""
    x1, x2 = _pair(x1, x2)
    return x1 // x2


def remainder(x1, x2, /):
    """What is left of a division, with the sign of the divisor."""
    x1, x2 = _pair(x1, x2)
    return x1 % x2


def round(x, /):  # noqa: A001
    """The nearest integer, the even one of two."""
    return x.__copy__() if x.dtype.kind in "iu" else _n.rint(x)


def clip(x, /, min=None, max=None):  # noqa: A002
    """Numbers moved into a range."""
    low = min.astype(x.dtype) if isinstance(min, Tensor) and min.dtype != x.dtype else min
    high = max.astype(x.dtype) if isinstance(max, Tensor) and max.dtype != x.dtype else max
    if low is None and high is None:
        return x.__copy__()
    return astype(_n.clip(x, low, high), x.dtype, copy=False)


def conj(x, /):
    """With the imaginary part negated."""
    return x.__copy__()


def real(x, /):
    """The real part."""
    return x.__copy__()


def imag(x, /):
    """The imaginary part."""
    return zeros_like(x)


# Indexing, manipulation

def take(x, indices, /, *, axis=None):
    """Entries of an axis."""
    if axis is None and x.ndim != 1:
        raise ValueError("an array of several axes needs an axis")
    return _n.take(x, indices, 0 if axis is None else axis)


def take_along_axis(x, indices, /, *, axis=-1):
    """Elements by an index for each place."""
    return _n.take_along_axis(x, indices, axis)


def concat(arrays, /, *, axis=0):
    """Arrays one after the other."""
    return _n.concatenate(list(arrays), axis)


def expand_dims(x, /, axis=0):
    """A new axis of size 1."""
    n = x.ndim + 1
    for a in (axis,) if isinstance(axis, int) else axis:
        if not -n <= a < n:
            raise IndexError(f"axis {a} is out of range for a result of {n} axes")
    return _n.expand_dims(x, axis)


def flip(x, /, *, axis=None):
    """Entries in reverse order."""
    return _n.flip(x, axis)


def moveaxis(x, source, destination, /):
    """Moves axes to other places."""
    return _n.moveaxis(x, source, destination)


def permute_dims(x, /, axes):
    """The axes in another order."""
    return _n.permute_dims(x, axes)


def repeat(x, repeats, /, *, axis=None):
    """Each entry several times."""
    return _n.repeat(x, repeats, axis)


def reshape(x, /, shape, *, copy=None):
    """The elements in another shape."""
    return _n.reshape(x, shape)


def roll(x, /, shift, *, axis=None):
    """Entries moved around."""
    return _n.roll(x, shift, axis)


def squeeze(x, /, axis):
    """Without some axes of size 1."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -x.ndim <= a < x.ndim or x.shape[a] != 1:
            raise ValueError(f"axis {a} of shape {tuple(x.shape)} is not of size 1")
    return _n.squeeze(x, axes) if axes else x.__copy__()


def stack(arrays, /, *, axis=0):
    """Arrays along a new axis."""
    return _n.stack(list(arrays), axis)


def tile(x, repetitions, /):
    """Copies side by side."""
    return _n.tile(x, repetitions)


def unstack(x, /, *, axis=0):
    """The entries of an axis."""
    return tuple(_n.unstack(x, axis))


# Searching, sets, sorting

def argmax(x, /, *, axis=None, keepdims=False):
    """Where the largest is."""
    return _n.argmax(x, axis, keepdims=keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    """Where the least is."""
    return _n.argmin(x, axis, keepdims=keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """How many are other than zero."""
    return _n.count_nonzero(x, axis, keepdims=keepdims)


def nonzero(x, /):
    """Where elements are other than zero."""
    return _n.nonzero(x)


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where values would stand in a sorted array."""
    return _n.searchsorted(x1, x2, side, sorter)


def where(condition, x1, x2, /):
    """Elements of one where the condition holds, of the other elsewhere."""
    if isinstance(x1, Tensor) or isinstance(x2, Tensor):
        x1, x2 = _pair(x1, x2)
    return _n.where(condition, x1, x2)


_UniqueAll = _namedtuple("unique_all_result", "values indices inverse_indices counts")
_UniqueCounts = _namedtuple("unique_counts_result", "values counts")
_UniqueInverse = _namedtuple("unique_inverse_result", "values inverse_indices")


def unique_all(x, /):
    """Different elements, where they first stand, which one each is, and how often they occur."""
    return _UniqueAll(*_n.unique_all(x))


def unique_counts(x, /):
    """Different elements, and how often they occur."""
    u = _n.unique_all(x)
    return _UniqueCounts(u[0], u[3])


def unique_inverse(x, /):
    """Different elements, and which one each is."""
    u = _n.unique_all(x)
    return _UniqueInverse(u[0], u[2])


def unique_values(x, /):
    """Different elements."""
    return _n.unique_all(x)[0]


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The order that sorts; equal elements keep theirs."""
    if not descending:
        return _n.argsort(x, axis)
    # Sorted backwards, equal elements are in reverse: so the axis is reversed before and after.
    n = x.shape[axis]
    back = _n.argsort(_n.flip(x, axis), axis)
    return (n - 1) - _n.flip(back, axis)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """Elements in order."""
    y = _n.sort(x, axis)
    return _n.flip(y, axis) if descending else y


# Sums and statistics

def _wide(x, dtype):
    """Small integers are summed as the default ones."""
    if dtype is not None:
        return x.astype(dtype) if x.dtype != dtype else x
    if x.dtype in (bool, int8, int16):
        return x.astype(int32)
    if x.dtype in (uint8, uint16):
        return x.astype(uint32)
    return x


def sum(x, /, *, axis=None, dtype=None, keepdims=False):  # noqa: A001
    """Sums."""
    x = _wide(x, dtype)
    return astype(_n.sum(x, axis, keepdims=keepdims), x.dtype, copy=False)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """Products."""
    x = _wide(x, dtype)
    return astype(_n.prod(x, axis, keepdims=keepdims), x.dtype, copy=False)


def _one_axis(x, axis):
    if axis is None:
        if x.ndim != 1:
            raise ValueError("an array of several axes needs an axis")
        return 0
    return axis


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running sums."""
    return _running(_n.cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running products."""
    return _running(_n.cumprod, x, axis, dtype, include_initial, 1)


def _running(f, x, axis, dtype, include_initial, first):
    axis = _one_axis(x, axis)
    x = _wide(x, dtype)
    y = astype(f(x, axis), x.dtype, copy=False)
    if include_initial:
        shape = list(x.shape)
        shape[axis] = 1
        y = concat([full(shape, first, dtype=y.dtype), y], axis=axis)
    return y


def max(x, /, *, axis=None, keepdims=False):  # noqa: A001
    """The largest."""
    return _n.max(x, axis, keepdims=keepdims)


def min(x, /, *, axis=None, keepdims=False):  # noqa: A001
    """The least."""
    return _n.min(x, axis, keepdims=keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    """Means."""
    return _n.mean(x, axis, keepdims=keepdims)


def _axes(x, axis):
    return tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis))


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Variances."""
    return _rounded(lambda x: _variance(x, _axes(x, axis), correction, keepdims), x)


def _variance(x, axes, correction, keepdims):
    n = 1
    for a in axes:
        n *= x.shape[a]
    d = x - _n.mean(x, axes, keepdims=True) if axes else x - x
    s = _n.sum(d * d, axes, keepdims=keepdims) if axes else d
    left = n - correction
    return s / left if left > 0 else s * nan


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """Standard deviations."""
    return _rounded(lambda x: _n.sqrt(_variance(x, _axes(x, axis), correction, keepdims)), x)


def all(x, /, *, axis=None, keepdims=False):  # noqa: A001
    """Whether all are true."""
    return _n.all(x if x.dtype == bool else x != 0, axis, keepdims=keepdims)


def any(x, /, *, axis=None, keepdims=False):  # noqa: A001
    """Whether any is true."""
    return _n.any(x if x.dtype == bool else x != 0, axis, keepdims=keepdims)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """Differences of neighbours."""
    parts = [p for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis=axis) if len(parts) > 1 else x
    return _n.diff(x, n, axis)


# Linear algebra

def matmul(x1, x2, /):
    """The product of matrices."""
    x1, x2 = _pair(x1, x2)
    return _n.matmul(x1, x2)


def matrix_transpose(x, /):
    """The last two axes exchanged."""
    return _n.matrix_transpose(x)


def tensordot(x1, x2, /, *, axes=2):
    """Contracts axes of two arrays."""
    return _n.tensordot(x1, x2, axes)


def vecdot(x1, x2, /, *, axis=-1):
    """Products of vectors."""
    x1, x2 = _pair(x1, x2)
    x1, x2 = _n.moveaxis(x1, axis, -1), _n.moveaxis(x2, axis, -1)
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"vectors of {x1.shape[-1]} and {x2.shape[-1]} elements")
    # As a product of matrices of one row and one column.
    y = _n.matmul(x1[..., None, :], x2[..., :, None]) if x1.ndim and x2.ndim else x1 * x2
    return astype(y[..., 0, 0], x1.dtype, copy=False)


from ._array_linalg import linalg  # noqa: E402


# Complex arrays

def _complex_like(x, value, dtype):
    return full(x.shape, value, dtype=x.dtype if dtype is None else dtype)


def _complex_sum(f):
    """A sum of complex numbers, or of real ones as complex."""
    def run(x, /, *, dtype=None, **more):
        x = _c.lift(x, x.dtype if dtype is None else _c.of_name(dtype))
        return _c.linear(f)(x, **more)

    return run


def _complex_running_product(x, /, *, axis=None, dtype=None, include_initial=False):
    axis = _one_axis(x, axis)
    x = _c.lift(x, x.dtype if dtype is None else _c.of_name(dtype))
    y = _c.running_product(x, axis)
    if not include_initial:
        return y
    shape = list(x.shape)
    shape[axis] = 1
    return concat([_c.full(shape, 1, dtype=x.dtype), y], axis=axis)


def _complex_where(condition, x1, x2, /):
    a, b = _c.pair(x1, x2)
    return _c.of(_n.where(condition, a.real, b.real), _n.where(condition, a.imag, b.imag))


def _complex_arrays(*arrays):
    shape = _np.broadcast_shapes(*(tuple(x.shape) for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def _complex_vecdot(x1, x2, /, *, axis=-1):
    a, b = _c.pair(x1, x2)
    return _c.bilinear(_real_functions["vecdot"])(_c.conj(a), b, axis=axis)


def _complex_vector_norm(x, /, **more):
    return linalg.vector_norm(_c.abs_(x), **more)


def _on_truth(name):
    return lambda x, /, **more: _real_functions[name](_c.truth(x), **more)


_real_functions = dict(globals())
_for_complex = {
    **{n: f for n, f in _c.UNARY.items()}, **_c.BINARY,
    **{n: _c.linear(globals()[n]) for n in (
        "broadcast_to tril triu take take_along_axis concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile "
        "unstack diff mean matrix_transpose").split()},
    **{n: _on_truth(n) for n in "all any nonzero count_nonzero".split()},
    "astype": _c.astype, "full": _c.full, "linspace": _c.linspace, "where": _complex_where, "broadcast_arrays": _complex_arrays,
    "zeros": lambda shape, *, dtype=None, device=None: _c.full(shape, 0, dtype=dtype),
    "empty": lambda shape, *, dtype=None, device=None: _c.full(shape, 0, dtype=dtype),
    "ones": lambda shape, *, dtype=None, device=None: _c.full(shape, 1, dtype=dtype),
    "full_like": lambda x, value, *, dtype=None, device=None: _complex_like(x, value, dtype),
    "zeros_like": lambda x, *, dtype=None, device=None: _complex_like(x, 0, dtype),
    "empty_like": lambda x, *, dtype=None, device=None: _complex_like(x, 0, dtype),
    "ones_like": lambda x, *, dtype=None, device=None: _complex_like(x, 1, dtype),
    "eye": lambda n, m=None, *, k=0, dtype=None, device=None: _c.lift(_real_functions["eye"](n, m, k=k, dtype=dtype.part), dtype),
    "meshgrid": lambda *xs, indexing="xy": _c.linear(_real_functions["meshgrid"])(*(_c.lift(x) for x in xs), indexing=indexing),
    "sum": _complex_sum(sum), "cumulative_sum": _complex_sum(cumulative_sum), "prod": _c.product,
    "cumulative_prod": _complex_running_product,
    "unique_all": lambda x: _UniqueAll(*_c.unique(x)), "unique_values": lambda x: _c.unique(x)[0],
    "unique_counts": lambda x: _UniqueCounts(*_c.unique(x)[::3]), "unique_inverse": lambda x: _UniqueInverse(*_c.unique(x)[:3:2]),
    "tensordot": _c.bilinear(tensordot), "vecdot": _complex_vecdot,
}
_linalg_for_complex = {
    "cholesky": _cl.cholesky, "cross": _c.bilinear(linalg.cross), "det": _cl.det, "diagonal": _c.linear(linalg.diagonal),
    "eigh": lambda x: linalg._eigh(*_cl.eigh(x)), "eigvalsh": _cl.eigvalsh, "inv": _cl.inv, "matrix_norm": _cl.matrix_norm,
    "matrix_power": _cl.matrix_power, "matrix_rank": _cl.matrix_rank, "outer": _c.bilinear(linalg.outer), "pinv": _cl.pinv,
    "qr": lambda x, *, mode="reduced": linalg._qr(*_cl.qr(x, mode == "complete")), "slogdet": lambda x: linalg._slogdet(*_cl.slogdet(x)),
    "solve": _cl.solve, "svd": lambda x, *, full_matrices=True: linalg._svd(*_cl.svd(x, full_matrices)), "svdvals": _cl.svdvals,
    "trace": _complex_sum(linalg.trace), "vector_norm": _complex_vector_norm,
    "matmul": _c.matmul, "matrix_transpose": _for_complex["matrix_transpose"], "tensordot": _for_complex["tensordot"], "vecdot": _complex_vecdot,
}


def _either(f, g):
    """A function of real arrays, or of complex ones where there are any."""
    @_functools.wraps(f)
    def run(*args, **named):
        for x in args:
            if _c.is_complex(x) or isinstance(x, (list, tuple)) and _b.any(isinstance(y, ComplexTensor) for y in x):
                return g(*args, **named)
        for x in named.values():
            if _c.is_complex(x):
                return g(*args, **named)
        return f(*args, **named)

    return run


for _name, _own in _for_complex.items():
    globals()[_name] = _either(globals()[_name], _own)
for _name, _own in _linalg_for_complex.items():
    setattr(linalg, _name, staticmethod(_either(getattr(linalg, _name), _own)))
del _name, _own
