"""NumPy's functions on tensors."""

import builtins as _builtins
import math as _math

import numpy as _np

from . import _tensorloom as _core
from ._functions import fill as _fill
from ._tensorloom import (
    DType, Tensor, asarray, bfloat16, bool_, float16, float32, float64, from_dlpack, int8, int16, int32, int64, uint8, uint16,
    uint32, uint64,
)

_fill("", globals())
_fill("np", globals())

pi, e, inf, nan, newaxis, euler_gamma = _math.pi, _math.e, _math.inf, _math.nan, None, 0.5772156649015329
ndarray = Tensor
asarray = _core.asarray
float_, double, single, int_, uint = float32, float64, float32, int32, uint32
bool = bool_  # noqa: A001
dtype, float8_e4m3fn, float8_e5m2 = _core.dtype, _core.float8_e4m3fn, _core.float8_e5m2

# The functions of the table, before those here stand in front of them.
_table = dict(globals())


def array(object, dtype=None, copy=True, order="K", ndmin=0):  # noqa: A002
    """A tensor of a number, a list or an array; with `ndmin` axes at least, new ones in front."""
    x = asarray(object, dtype, copy=copy)
    return x if x.ndim >= ndmin else x.reshape((*[1] * (ndmin - x.ndim), *x.shape))


def _count(mask):
    return int(_table["count_nonzero"](mask))


def arange(start, stop=None, step=1, dtype=None):
    """Numbers from start to stop, which is left out."""
    if stop is None:
        start, stop = 0, start
    numbers = (start, stop, step)
    if step == 0:
        raise ValueError("the step must not be 0")
    n = _builtins.max(0, _math.ceil((stop - start) / step))
    floats = _builtins.any(isinstance(x, float) for x in numbers)
    kind = _core.dtype(dtype if dtype is not None else ("float32" if floats else "int32"))
    if kind.kind == "f" or floats:
        # As NumPy: the first and the step, in full precision.
        return asarray(_np.arange(n, dtype=_np.float64) * step + start).astype(kind)
    wide = _np.uint64 if kind == "uint64" else _np.int64
    return asarray(_np.arange(start, start + n * step, step, dtype=wide)).astype(kind)


def astype(x, dtype, copy=True):
    """The elements in another type."""
    return _table["astype"](x, dtype)


def concatenate(arrays, axis=0, dtype=None):
    """Arrays one after the other along an axis; along all of them if it is None."""
    arrays = _core._arrays(*arrays) if dtype is None else [asarray(x).astype(dtype) for x in arrays]
    if axis is None:
        return _table["concatenate"]([x.reshape(-1) for x in arrays], 0)
    return _table["concatenate"](_promoted(arrays), axis)


def _promoted(xs):
    if not xs:
        raise ValueError("no array is given, but at least one is needed")
    kind = result_type(*xs)
    return [x if x.dtype == kind else x.astype(kind) for x in xs]


def stack(arrays, axis=0, dtype=None):
    """Arrays along a new axis."""
    arrays = _core._arrays(*arrays) if dtype is None else [asarray(x).astype(dtype) for x in arrays]
    return _table["stack"](_promoted(arrays), axis)


def result_type(*xs):
    """The type of an operation of arrays and types."""
    kinds = []
    numbers = []
    for x in xs:
        if isinstance(x, (_builtins.bool, int, float)) and not hasattr(x, "dtype"):
            numbers.append(x)
        else:
            kinds.append(x.dtype if hasattr(x, "dtype") and not isinstance(x, _core.DType) else _core.dtype(x))
    if not kinds:
        return asarray(numbers[0]).dtype
    out = kinds[0]
    for k in kinds[1:]:
        found = _table["promote_types"](out, k)
        if found is None:
            raise TypeError(f"{out} and {k} have no common dtype")
        out = found
    for n in numbers:
        if isinstance(n, float) and out.kind != "f":
            out = float32
    return out


def broadcast_arrays(*args):
    """Arrays in their common shape; several, or a list of them."""
    xs = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return _table["broadcast_arrays"](list(xs))


def _tensordot(a, b, axes):
    """Contracts axes of two arrays."""
    a, b = _core._arrays(a, b)
    if isinstance(axes, int):
        axes = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [i % a.ndim if a.ndim else i for i in left], [i % b.ndim if b.ndim else i for i in right]
    if len(left) != len(right) or [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError(f"axes {left} of {a.shape} and {right} of {b.shape} differ in size")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    na, nb = [next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]
    for i, j in zip(left, right):
        nb[j] = na[i]
    rest = [n for i, n in enumerate(na) if i not in left] + [n for j, n in enumerate(nb) if j not in right]
    return _table["einsum"](f"{''.join(na)},{''.join(nb)}->{''.join(rest)}", _promoted([a, b]))


def moveaxis(a, source, destination):
    """Moves axes to other places."""
    one = lambda i: [i] if isinstance(i, int) else list(i)  # noqa: E731
    return _table["moveaxis"](a, one(source), one(destination))


def _diagonal(k, rows, columns):
    """A diagonal of a matrix; those beyond it are alike, however far away."""
    return _builtins.max(-rows, _builtins.min(columns, k))


def eye(N, M=None, k=0, dtype="float32"):
    """Ones on a diagonal."""
    M = N if M is None else M
    return _table["eye"](N, M, _diagonal(k, N, M), dtype)


def tri(N, M=None, k=0, dtype="float32"):
    """Ones on and below a diagonal."""
    M = N if M is None else M
    return _table["tri"](N, M, _diagonal(k, N, M), dtype)


def tril(m, k=0):
    """The part of matrices on and below a diagonal."""
    m = asarray(m)
    return _table["tril"](m, _diagonal(k, *m.shape[-2:]) if m.ndim > 1 else k)


def triu(m, k=0):
    """The part of matrices on and above a diagonal."""
    m = asarray(m)
    return _table["triu"](m, _diagonal(k, *m.shape[-2:]) if m.ndim > 1 else k)


def full(shape, fill_value, dtype=None):
    """An array of one number."""
    if isinstance(fill_value, Tensor) or hasattr(fill_value, "shape"):
        v = asarray(fill_value)
        return broadcast_to(v if dtype is None else v.astype(dtype), shape).__copy__()  # noqa: F821
    kind = asarray(fill_value).dtype if dtype is None else _core.dtype(dtype)
    if isinstance(fill_value, _builtins.bool):
        return broadcast_to(asarray(fill_value).astype(kind), shape).__copy__()  # noqa: F821
    return _table["full"](shape, fill_value, kind)


def zeros(shape, dtype="float32"):
    """Zeros."""
    return _table["zeros"](shape, dtype or "float32")


def ones(shape, dtype="float32"):
    """Ones."""
    return _table["ones"](shape, dtype or "float32")


def _like(x, value, dtype, shape=None):
    x = asarray(x)
    return full(x.shape if shape is None else shape, value, x.dtype if dtype is None else dtype)


def zeros_like(a, dtype=None, shape=None):
    """Zeros of a shape and type."""
    return _like(a, 0, dtype, shape)


def ones_like(a, dtype=None, shape=None):
    """Ones of a shape and type."""
    return _like(a, 1, dtype, shape)


def full_like(a, fill_value, dtype=None, shape=None):
    """One number in a shape and type."""
    return _like(a, fill_value, dtype, shape)


def empty(shape, dtype="float32"):
    """Zeros, since nothing here is left uninitialised."""
    return zeros(shape, dtype)


def empty_like(prototype, dtype=None, shape=None):
    """Zeros of a shape and type."""
    return zeros_like(prototype, dtype, shape)


def expand_dims(a, axis):
    """New axes of size 1."""
    return _table["expand_dims"](a, axis)


def clip(arr, min=None, max=None, *, a_min=None, a_max=None):  # noqa: A002
    """Numbers moved into a range."""
    min, max = a_min if min is None else min, a_max if max is None else max  # noqa: A001
    return _table["clip"](asarray(arr), min, max)


def _take(x, indices, axis):
    """Entries of an axis."""
    out = _table["take"](x, indices.reshape(-1), axis)
    return out.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))


def tile(A, reps):
    """Copies side by side."""
    A = asarray(A)
    reps = [reps] if isinstance(reps, int) else list(reps)
    if len(reps) < A.ndim:
        reps = [1] * (A.ndim - len(reps)) + reps
    elif len(reps) > A.ndim:
        A = A.reshape((*[1] * (len(reps) - A.ndim), *A.shape))
    return _table["tile"](A, reps)


def roll(a, shift, axis=None):
    """Entries moved around."""
    a = asarray(a)
    if axis is None and not isinstance(shift, int):
        shift = _builtins.sum(shift)
    if isinstance(shift, int):
        return _table["roll"](a, shift, axis) if not isinstance(axis, (tuple, list)) else _rolled(a, [shift] * len(axis), axis)
    return _rolled(a, shift, [axis] * len(shift) if isinstance(axis, int) else axis)


def _rolled(x, shifts, axes):
    for s, a in zip(shifts, axes):
        x = _table["roll"](x, s, a)
    return x


def searchsorted(a, v, side="left", sorter=None, *, method=None):
    """Where values would stand in a sorted array."""
    a, v = _promoted(_core._arrays(a, v))
    if sorter is not None:
        a = take(a, sorter, 0)
    return _table["searchsorted"](a, v, side == "right")


def squeeze(a, axis=None):
    """Without axes of size 1."""
    return _table["squeeze"](a, axis)


def _kept_axes(x, axis, y):
    """A result of a reduction with the axes that it dropped."""
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])


def stop_gradient(x):
    """The same values; gradients don't pass."""
    return _core._stop_gradient(x)


def shape(a):
    """Sizes."""
    return tuple(asarray(a).shape)


def isscalar(element):
    """Whether it is a number."""
    return isinstance(element, (int, float, _builtins.bool))


from ._more import *  # noqa: E402, F403
from ._further import *  # noqa: E402, F403
from ._further_numbers import *  # noqa: E402, F403
from ._grids import *  # noqa: E402, F403
from ._histograms import *  # noqa: E402, F403
from ._outside import *  # noqa: E402, F403
from ._pad import pad  # noqa: E402, F401
from ._sets import *  # noqa: E402, F403
from . import fft, linalg  # noqa: E402, F401
