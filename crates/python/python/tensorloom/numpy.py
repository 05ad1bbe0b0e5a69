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
asarray = array = _core.asarray

# The functions of the table, before those here stand in front of them.
_table = dict(globals())


def _count(mask):
    return int(_table["count_nonzero"](mask))


def arange(start, stop=None, step=1, dtype=None):
    """Numbers from start to stop, which is left out."""
    if stop is None:
        start, stop = 0, start
    numbers = (start, stop, step)
    if step == 0:
        raise ValueError("a step of 0 goes nowhere")
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


def concatenate(xs, axis=0):
    """Arrays one after the other along an axis; along all of them if it is None."""
    xs = [asarray(x) for x in xs]
    if axis is None:
        return _table["concatenate"]([x.reshape(-1) for x in xs], 0)
    return _table["concatenate"](_promoted(xs), axis)


def _promoted(xs):
    if not xs:
        raise ValueError("no array is given where at least one is needed")
    kind = result_type(*xs)
    return [x if x.dtype == kind else x.astype(kind) for x in xs]


def stack(xs, axis=0):
    """Arrays along a new axis."""
    return _table["stack"](_promoted([asarray(x) for x in xs]), axis)


def result_type(*xs):
    """The type of an operation of arrays and types."""
    kinds = []
    numbers = []
    for x in xs:
        if isinstance(x, (_builtins.bool, int, float)):
            numbers.append(x)
        else:
            kinds.append(x.dtype if hasattr(x, "dtype") and not isinstance(x, _core.DType) else _core.dtype(x))
    if not kinds:
        return asarray(numbers[0]).dtype
    out = kinds[0]
    for k in kinds[1:]:
        found = _table["promote_types"](out, k)
        if found is None:
            raise TypeError(f"{out} and {k} have no common type")
        out = found
    for n in numbers:
        if isinstance(n, float) and out.kind != "f":
            out = float32
    return out


def argwhere(x, size=None):
    """Indices of elements other than zero, a row for each."""
    x = asarray(x)
    return _table["argwhere"](x, _count(x) if size is None else size)


def where(condition, x=None, y=None):
    """Elements of x where the condition holds, of y elsewhere; or the places where it holds."""
    if x is None and y is None:
        return nonzero(condition)
    numbers = (int, float, _builtins.bool)
    if isinstance(x, numbers) and isinstance(y, numbers):
        x = asarray(x)
    return _table["where"](condition, x, y)


def broadcast_arrays(xs, *more):
    """Arrays in their common shape."""
    xs = [xs, *more] if isinstance(xs, Tensor) else list(xs)
    return _table["broadcast_arrays"](xs)


def unique(x, return_index=False, return_inverse=False, return_counts=False):
    """The different elements in order."""
    values, index, inverse, counts = _unique_all(x)
    out = [values]
    out += [index] if return_index else []
    out += [inverse] if return_inverse else []
    out += [counts] if return_counts else []
    return out[0] if len(out) == 1 else tuple(out)


def _unique_all(x):
    x = asarray(x)
    got = _np.unique(x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values, index, inverse, counts = (asarray(g) for g in got)
    return values, index, inverse.reshape(x.shape), counts


def tensordot(a, b, axes=2):
    """Contracts axes of two arrays."""
    a, b = asarray(a), asarray(b)
    if isinstance(axes, int):
        axes = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [i % a.ndim if a.ndim else i for i in left], [i % b.ndim if b.ndim else i for i in right]
    if len(left) != len(right) or [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError(f"axes {left} of {a.shape} and {right} of {b.shape} don't fit")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    na, nb = [next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]
    for i, j in zip(left, right):
        nb[j] = na[i]
    rest = [n for i, n in enumerate(na) if i not in left] + [n for j, n in enumerate(nb) if j not in right]
    return _table["einsum"](f"{''.join(na)},{''.join(nb)}->{''.join(rest)}", _promoted([a, b]))


def einsum(spec, *xs):
    """Einstein's summation."""
    return _table["einsum"](spec, [asarray(x) for x in xs])


def moveaxis(x, source, destination):
    """Moves axes to other places."""
    one = lambda a: [a] if isinstance(a, int) else list(a)  # noqa: E731
    return _table["moveaxis"](x, one(source), one(destination))


def linspace(start, stop, num=50, endpoint=True, dtype="float32"):
    """Numbers at equal distances."""
    return _table["linspace"](float(start), float(stop), num, endpoint, dtype)


def meshgrid(*xs, indexing="xy"):
    """Coordinates of a grid."""
    return _table["meshgrid"](_promoted([asarray(x) for x in xs]), indexing) if xs else []


def _diagonal(k, rows, columns):
    """A diagonal of a matrix; those beyond it are alike, however far away."""
    return _builtins.max(-rows, _builtins.min(columns, k))


def eye(n, m=None, k=0, dtype="float32"):
    """Ones on a diagonal."""
    m = n if m is None else m
    return _table["eye"](n, m, _diagonal(k, n, m), dtype)


def tri(n, m=None, k=0, dtype="float32"):
    """Ones on and below a diagonal."""
    m = n if m is None else m
    return _table["tri"](n, m, _diagonal(k, n, m), dtype)


def tril(x, k=0):
    """The part of matrices on and below a diagonal."""
    x = asarray(x)
    return _table["tril"](x, _diagonal(k, *x.shape[-2:]) if x.ndim > 1 else k)


def triu(x, k=0):
    """The part of matrices on and above a diagonal."""
    x = asarray(x)
    return _table["triu"](x, _diagonal(k, *x.shape[-2:]) if x.ndim > 1 else k)


def full(shape, fill_value, dtype=None):
    """An array of one number."""
    if isinstance(fill_value, Tensor) or hasattr(fill_value, "shape"):
        v = asarray(fill_value)
        return broadcast_to(v if dtype is None else v.astype(dtype), shape)  # noqa: F821
    kind = asarray(fill_value).dtype if dtype is None else _core.dtype(dtype)
    if isinstance(fill_value, _builtins.bool):
        return broadcast_to(asarray(fill_value).astype(kind), shape)  # noqa: F821
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


def zeros_like(x, dtype=None, shape=None):
    """Zeros of a shape and type."""
    return _like(x, 0, dtype, shape)


def ones_like(x, dtype=None, shape=None):
    """Ones of a shape and type."""
    return _like(x, 1, dtype, shape)


def full_like(x, fill_value, dtype=None, shape=None):
    """One number in a shape and type."""
    return _like(x, fill_value, dtype, shape)


def empty(shape, dtype="float32"):
    """Zeros, since nothing here is left uninitialised."""
    return zeros(shape, dtype)


def empty_like(x, dtype=None):
    """Zeros of a shape and type."""
    return zeros_like(x, dtype)


def expand_dims(x, axis):
    """New axes of size 1."""
    return _table["expand_dims"](x, axis)


def clip(x, min=None, max=None):  # noqa: A002
    """Numbers moved into a range."""
    return _table["clip"](asarray(x), min, max)


def repeat(x, repeats, axis=None):
    """Each entry several times, or as often as a list says."""
    x = asarray(x)
    if isinstance(repeats, int):
        return _table["repeat"](x, repeats, axis)
    counts = asarray(repeats).numpy()
    if axis is None:
        x, axis = x.reshape(-1), 0
    counts = _np.broadcast_to(counts, (x.shape[axis],))
    return take(x, asarray(_np.repeat(_np.arange(x.shape[axis]), counts)), axis)


def take(x, indices, axis=None):
    """Entries of an axis; of all elements if it is None."""
    x, indices = asarray(x), asarray(indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    out = _table["take"](x, indices.reshape(-1), axis)
    axis %= x.ndim
    return out.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))


def tile(x, reps):
    """Copies side by side."""
    x = asarray(x)
    reps = [reps] if isinstance(reps, int) else list(reps)
    if len(reps) < x.ndim:
        reps = [1] * (x.ndim - len(reps)) + reps
    elif len(reps) > x.ndim:
        x = x.reshape((*[1] * (len(reps) - x.ndim), *x.shape))
    return _table["tile"](x, reps)


def roll(x, shift, axis=None):
    """Entries moved around."""
    x = asarray(x)
    if isinstance(shift, int):
        return _table["roll"](x, shift, axis) if not isinstance(axis, (tuple, list)) else _rolled(x, [shift] * len(axis), axis)
    return _rolled(x, shift, [axis] * len(shift) if isinstance(axis, int) else axis)


def _rolled(x, shifts, axes):
    for s, a in zip(shifts, axes):
        x = _table["roll"](x, s, a)
    return x


def searchsorted(sorted_, values, side="left", sorter=None):
    """Where values would stand in a sorted array."""
    sorted_, values = _promoted([asarray(sorted_), asarray(values)])
    if sorter is not None:
        sorted_ = take(sorted_, sorter, 0)
    return _table["searchsorted"](sorted_, values, side == "right")


def pad(x, pad_width, mode="constant", constant_values=0):
    """Adds elements before and after each axis."""
    x = asarray(x)
    if isinstance(pad_width, int):
        pad_width = [(pad_width, pad_width)] * x.ndim
    elif pad_width and isinstance(pad_width[0], int):
        pad_width = [tuple(pad_width)] * x.ndim
    return _table["pad"](x, [tuple(p) for p in pad_width], float(constant_values) if mode == "constant" else mode)


def squeeze(x, axis=None):
    """Without axes of size 1."""
    return _table["squeeze"](x, axis)


def stop_gradient(x):
    """The same values; gradients don't pass."""
    return _core._stop_gradient(x)


def put(x, indices, values):
    """The array with elements at flat places replaced."""
    return _table["put"](x, indices, values)


def shape(x):
    """Sizes."""
    return tuple(asarray(x).shape)


def isscalar(x):
    """Whether it is a number."""
    return isinstance(x, (int, float, _builtins.bool))


def allclose(x, y, rtol=1e-5, atol=1e-8):
    """Whether all elements are close."""
    return _builtins.bool(_table["isclose"](asarray(x), asarray(y), rtol, atol).all())


from ._more import *  # noqa: E402, F403
from . import fft, linalg  # noqa: E402, F401
