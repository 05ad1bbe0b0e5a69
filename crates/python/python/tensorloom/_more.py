"""Functions of NumPy and JAX that are made of those of the table."""

import builtins as _b
import math as _math
from collections import namedtuple as _namedtuple

import numpy as _np

from ._rounded import rounded as _rounded
from ._tensorloom import asarray
from ._tensorloom import dtype as _dtype


def _tnp():
    from . import numpy as tnp

    return tnp


def _reduction(name, neutral, combine):
    """A reduction with NumPy's `dtype`, `initial` and `where`."""
    def run(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        tnp = _tnp()
        x = asarray(a)
        x = x if dtype is None else x.astype(dtype)
        if initial is None and name in ("max", "min") and x.size == 0 and 0 in _reduced(x, axis):
            raise ValueError(f"{name} of no elements, of shape {x.shape}; give an initial value")
        if where is not None:
            x = tnp.where(where, x, neutral(x.dtype) if initial is None or name in ("sum", "prod") else initial)
        y = tnp._table[name](x, axis, keepdims=keepdims)
        y = y if dtype is None or y.dtype == dtype else y.astype(dtype)
        return y if initial is None else getattr(tnp, combine)(y, initial)

    run.__name__ = run.__qualname__ = name
    return run


def _reduced(x, axis):
    """Sizes of the axes that a reduction runs over."""
    return x.shape if axis is None else [x.shape[i] for i in ([axis] if isinstance(axis, int) else axis) if -x.ndim <= i < x.ndim]


def _least(dtype):
    return -_math.inf if dtype.kind == "f" else (0 if dtype.kind in "ub" else int(_np.iinfo(dtype.name).min))


def _most(dtype):
    return _math.inf if dtype.kind == "f" else (1 if dtype.kind == "b" else int(_np.iinfo(dtype.name).max))


sum = _reduction("sum", lambda d: 0, "add")  # noqa: A001
sum.__doc__ = "Sums."
prod = _reduction("prod", lambda d: 1, "multiply")
prod.__doc__ = "Products."


def max(a, axis=None, keepdims=False, initial=None, where=None):  # noqa: A001
    """The largest."""
    return _extreme("max", _least, "maximum", a, axis, keepdims, initial, where)


def min(a, axis=None, keepdims=False, initial=None, where=None):  # noqa: A001
    """The least."""
    return _extreme("min", _most, "minimum", a, axis, keepdims, initial, where)


def _extreme(name, neutral, combine, x, axis, keepdims, initial, where):
    return _EXTREMES[name](x, axis, None, keepdims, initial, where)


_EXTREMES = {"max": _reduction("max", _least, "maximum"), "min": _reduction("min", _most, "minimum")}
amax, amin = max, min


def ptp(a, axis=None, keepdims=False):
    """The largest element less the smallest."""
    a = asarray(a)
    if a.size == 0 and 0 in _reduced(a, axis):
        raise ValueError(f"ptp of no elements, of shape {a.shape}")
    return _tnp()._table["ptp"](a, axis, keepdims=keepdims)


def any(a, axis=None, keepdims=False, *, where=None):  # noqa: A001
    """Whether any is true."""
    tnp = _tnp()
    return tnp._table["any"](a if where is None else tnp.logical_and(asarray(a) != 0, where), axis, keepdims=keepdims)


def all(a, axis=None, keepdims=False, *, where=None):  # noqa: A001
    """Whether all are true."""
    tnp = _tnp()
    return tnp._table["all"](a if where is None else tnp.logical_or(asarray(a) != 0, tnp.logical_not(where)), axis, keepdims=keepdims)


def mean(a, axis=None, dtype=None, keepdims=False, *, where=None):
    """Means."""
    tnp = _tnp()
    a = asarray(a)
    if dtype is not None and _dtype(dtype).kind != "f":
        # Integers are added in their type, and what is behind the point of the quotient is dropped, as in NumPy.
        n = tnp.count_nonzero(tnp.broadcast_to(True if where is None else where, a.shape), axis=axis, keepdims=keepdims)
        return (sum(a, axis, dtype, keepdims, where=where).astype("float64") / n).astype(dtype)
    a = a if dtype is None else a.astype(dtype)
    if where is None:
        return tnp._table["mean"](a, axis, keepdims=keepdims)
    n = tnp.count_nonzero(tnp.broadcast_to(where, a.shape), axis=axis, keepdims=keepdims)
    a = a if a.dtype.kind == "f" else a.astype("float32")
    return _rounded(lambda x: sum(x, axis, keepdims=keepdims, where=where) / n, a)


def var(a, axis=None, dtype=None, ddof=0, keepdims=False, *, where=None, correction=None):
    """Variances."""
    tnp = _tnp()
    a = asarray(a)
    less = ddof if correction is None else correction
    if dtype is not None and _dtype(dtype).kind != "f":
        d = a - mean(a, axis, dtype, True, where=where)
        n = tnp.count_nonzero(tnp.broadcast_to(True if where is None else where, a.shape), axis=axis, keepdims=keepdims)
        return (sum(d * d, axis, dtype, keepdims, where=where).astype("float64") / tnp.maximum(n - less, 0)).astype(dtype)
    a = a if dtype is None else a.astype(dtype)
    if where is None and isinstance(less, int):
        return tnp._table["var"](a, axis, less, keepdims=keepdims)
    return _rounded(lambda x: _variance(x, axis, less, keepdims, where), a)


def _variance(x, axis, less, keepdims, where):
    """Variances where a condition holds, or with any number of degrees of freedom."""
    tnp = _tnp()
    d = x - mean(x, axis, keepdims=True, where=where)
    n = tnp.count_nonzero(tnp.broadcast_to(True if where is None else where, x.shape), axis=axis, keepdims=keepdims)
    return sum(d * d, axis, keepdims=keepdims, where=where) / tnp.maximum(n - less, 0)


def std(a, axis=None, dtype=None, ddof=0, keepdims=False, *, where=None, correction=None):
    """Standard deviations."""
    if dtype is not None and _dtype(dtype).kind != "f":
        return _tnp().sqrt(var(a, axis, dtype, ddof, keepdims, where=where, correction=correction)).astype(dtype)
    a = asarray(a) if dtype is None else asarray(a).astype(dtype)
    return _rounded(lambda x: _tnp().sqrt(var(x, axis, None, ddof, keepdims, where=where, correction=correction)), a)


def sort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """Elements in order; equal ones keep theirs, whatever `kind` says."""
    tnp = _tnp()
    a = asarray(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    y = tnp._table["sort"](a, axis)
    return tnp.flip(y, axis) if descending else y


def argsort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """The order that sorts; equal elements keep theirs."""
    tnp = _tnp()
    a = asarray(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    if not descending:
        return tnp._table["argsort"](a, axis)
    back = tnp._table["argsort"](tnp.flip(a, axis), axis)
    return (a.shape[axis] - 1) - tnp.flip(back, axis)


def partition(a, kth, axis=-1):
    """An order in which the kth element stands where sorting puts it: the sorted one."""
    return sort(a, axis)


def argpartition(a, kth, axis=-1):
    """The order of `partition`."""
    return argsort(a, axis)


def split(ary, indices_or_sections, axis=0):
    """Parts of equal size, or parts that end before these places."""
    tnp = _tnp()
    if isinstance(indices_or_sections, int):
        return tnp._table["split"](ary, indices_or_sections, axis)
    return tnp._table["split_at"](ary, [int(i) for i in indices_or_sections], axis)


def atleast_1d(*arys):
    """Arrays with one axis or more."""
    return _each(arys, lambda x: x if x.ndim else x.reshape(1))


def atleast_2d(*arys):
    """Arrays with two axes or more, new ones in front."""
    return _each(arys, lambda x: x if x.ndim > 1 else x.reshape((1, -1) if x.ndim else (1, 1)))


def atleast_3d(*arys):
    """Arrays with three axes or more."""
    return _each(arys, lambda x: x if x.ndim > 2 else (x[..., None] if x.ndim == 2 else x.reshape((1, -1, 1))))


def _each(xs, f):
    out = [f(asarray(x)) for x in xs]
    return out[0] if len(out) == 1 else out


def mod(x, y):
    """What is left of a division, with the sign of the divisor."""
    return _tnp().remainder(x, y)


def fabs(x):
    """Absolute values, as floats."""
    x = asarray(x)
    return _tnp().abs(x if x.dtype.kind == "f" else x.astype("float32"))


def concat(arrays, axis=0, dtype=None):
    """Arrays one after the other along an axis."""
    return _tnp().concatenate(arrays, axis, dtype)


def copy(a, order=None):
    """A copy."""
    return asarray(a).__copy__()


def conj(x):
    """The same: arrays here are real."""
    return copy(x)


conjugate = conj


def isreal(x):
    """Whether elements are real: all are."""
    return _tnp().ones_like(x, dtype="bool")


def iscomplex(x):
    """Whether elements are complex: none is."""
    return _tnp().zeros_like(x, dtype="bool")


def i0(x):
    """The modified Bessel function of order 0."""
    from . import special

    return special.i0(x)


def iterable(y):
    """Whether something can be gone through."""
    return _np.iterable(y) and getattr(y, "ndim", 1) > 0


def real(val):
    """The same: arrays here are real."""
    return copy(val)


def imag(val):
    """Zeros: arrays here are real."""
    return _tnp().zeros_like(val)


def rollaxis(a, axis, start=0):
    """An axis moved before another."""
    a = asarray(a)
    axis, start = axis % a.ndim, start if start >= 0 else start + a.ndim
    return _tnp().moveaxis(a, axis, start - 1 if axis < start else start)


def block(arrays):
    """Arrays of nested lists put together, the innermost along the last axis."""
    tnp = _tnp()

    def deep(a):
        return 1 + deep(a[0]) if isinstance(a, list) else 0

    depth = deep(arrays)

    def made(a, level):
        if not isinstance(a, list):
            a = asarray(a)
            return a.reshape((*[1] * (depth - a.ndim), *a.shape)) if a.ndim < depth else a
        return tnp.concatenate([made(b, level + 1) for b in a], level - depth)

    return made(arrays, 0)


def choose(a, choices, mode="raise"):
    """The choice of an index, element by element."""
    tnp = _tnp()
    a = asarray(a)
    n = len(choices)
    if mode == "wrap":
        a = a % n
    elif mode == "clip" or a._traced:
        a = tnp.clip(a, 0, n - 1)
    elif a.size and (int(a.min()) < 0 or int(a.max()) >= n):
        raise ValueError(f"an index is out of range for {n} choices")
    out = choices[0]
    for k in range(1, n):
        out = tnp.where(a == k, choices[k], out)
    return tnp.where(a == 0, choices[0], out)


def piecewise(x, condlist, funclist):
    """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""
    tnp = _tnp()
    x = asarray(x)
    value = lambda f: f(x) if callable(f) else tnp.full(x.shape, f, x.dtype)  # noqa: E731
    rest = value(funclist[-1]) if len(funclist) > len(condlist) else tnp.zeros_like(x)
    for c, f in zip(condlist, funclist):
        rest = tnp.where(c, value(f), rest)
    return rest


def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """A function of the lines along an axis."""
    import tensorloom

    tnp = _tnp()
    arr = tnp.moveaxis(asarray(arr), axis, -1)
    axis %= arr.ndim
    g = lambda line: asarray(func1d(line, *args, **kwargs))  # noqa: E731
    for _ in range(arr.ndim - 1):
        g = tensorloom.vmap(g)
    y = g(arr)
    more = y.ndim - (arr.ndim - 1)
    return tnp.moveaxis(y, tuple(range(y.ndim - more, y.ndim)), tuple(range(axis, axis + more))) if more else y


def vectorize(pyfunc, *, excluded=(), signature=None):
    """A function of numbers as one of arrays, which are broadcast; with a signature such as "(n),(n)->()", one of arrays of fewer axes."""
    import tensorloom

    cores = None if signature is None else [len([d for d in part.split(",") if d.strip()]) for part in _parts_of(signature)]

    def run(*args, **kwargs):
        tnp = _tnp()
        moving = [i for i in range(len(args)) if i not in excluded and args[i] is not None]
        if cores is not None and len(cores) != len(moving):
            raise ValueError(f"{len(moving)} arrays for the signature {signature!r}")
        arrays = [asarray(args[i]) for i in moving]
        inner = [0] * len(arrays) if cores is None else cores
        if _b.any(a.ndim < n for a, n in zip(arrays, inner)):
            raise ValueError(f"arrays of {[a.ndim for a in arrays]} axes for the signature {signature!r}")
        outer = [a.shape[:a.ndim - n] for a, n in zip(arrays, inner)]
        shape = tnp.broadcast_shapes(*outer) if outer else ()

        def one(*xs):
            full = list(args)
            for i, x in zip(moving, xs):
                full[i] = x
            return pyfunc(*full, **kwargs)

        if not shape:
            return one(*arrays)
        count = _math.prod(shape)
        flat = [tnp.broadcast_to(a, (*shape, *a.shape[len(o):])).reshape((count, *a.shape[len(o):])) for a, o in zip(arrays, outer)]
        out = tensorloom.vmap(one)(*flat)
        return tensorloom.tree.map(lambda t: t.reshape((*shape, *t.shape[1:])), out)

    return run


def _parts_of(signature):
    """What stands in the brackets of a signature's arguments."""
    left, arrow, _ = signature.partition("->")
    if not arrow:
        raise ValueError(f"signature {signature!r}; it must have the form \"(n),(n)->()\"")
    return [p.partition(")")[0] for p in left.split("(")[1:]]


def ix_(*args):
    """Indices of a grid."""
    n = len(args)
    return tuple(asarray(a).reshape([-1 if k == i else 1 for k in range(n)]) for i, a in enumerate(args))


def trim_zeros(filt, trim="fb"):
    """Without zeros at the ends."""
    return asarray(_np.trim_zeros(asarray(filt).numpy(), trim))


def fromfunction(function, shape, *, dtype="float32", **kwargs):
    """A function of the indices of every element."""
    tnp = _tnp()
    grids = tnp.meshgrid(*(tnp.arange(0, n, 1, dtype) for n in shape), indexing="ij")
    return function(*grids, **kwargs)


def can_cast(from_, to):
    """Whether one type goes into another without loss, as NumPy decides."""
    name = lambda d: getattr(d, "dtype", d).name if hasattr(getattr(d, "dtype", d), "name") else str(d)  # noqa: E731
    return _b.bool(_np.can_cast(name(from_), name(to)))


def issubdtype(arg1, arg2):
    """Whether a type is of a kind of NumPy's, such as `np.floating`."""
    name = lambda d: d.name if hasattr(d, "name") else d  # noqa: E731
    if str(name(arg1)).startswith(("bfloat", "float8")):
        return arg2 in (_np.floating, _np.inexact, _np.number, _np.generic, float) or arg1 == arg2
    return _np.issubdtype(name(arg1), name(arg2))


def isdtype(dtype, kind):
    """Whether a type is of a kind of the array API's, such as "real floating"."""
    from . import array_api

    return array_api.isdtype(dtype, kind)


_Finfo = _namedtuple("finfo", "bits eps max min smallest_normal smallest_subnormal tiny dtype")
_Iinfo = _namedtuple("iinfo", "bits max min dtype")
# Types that NumPy doesn't have: bits, of which of the exponent and of the fraction, and the largest number.
_FLOATS = {"bfloat16": (16, 8, 7, 2.0**127 * (2 - 2.0**-7)), "float8_e4m3fn": (8, 4, 3, 448.0), "float8_e5m2": (8, 5, 2, 57344.0)}


def finfo(dtype):
    """Limits of a type of floats."""
    d = _dtype(getattr(dtype, "dtype", dtype))
    if d.kind != "f":
        raise ValueError(f"{d} is not a float dtype; use iinfo for integers")
    if d.name in _FLOATS:
        bits, exponent, fraction, most = _FLOATS[d.name]
        least = 2.0 ** (2 - 2 ** (exponent - 1))
        return _Finfo(bits, 2.0**-fraction, most, -most, least, least * 2.0**-fraction, least, d)
    f = _np.finfo(d.name)
    return _Finfo(f.bits, *(float(v) for v in (f.eps, f.max, f.min, f.smallest_normal, f.smallest_subnormal, f.tiny)), d)


def iinfo(int_type):
    """Limits of a type of integers."""
    d = _dtype(getattr(int_type, "dtype", int_type))
    if d.kind not in "iu":
        raise ValueError(f"{d} is not an integer dtype; use finfo for floats")
    i = _np.iinfo(d.name)
    return _Iinfo(i.bits, int(i.max), int(i.min), d)


def iscomplexobj(x):
    """Whether an array is complex: none here is."""
    return False


def isrealobj(x):
    """Whether an array is real."""
    return True


floating, integer, signedinteger, unsignedinteger, inexact, number = (
    _np.floating, _np.integer, _np.signedinteger, _np.unsignedinteger, _np.inexact, _np.number)


def angle(z, deg=False):
    """0, or π where a number has a minus sign; in degrees, 180."""
    tnp = _tnp()
    z = asarray(z)
    z = z if tnp.issubdtype(z.dtype, tnp.floating) else z * 1.0
    turned = tnp.where(tnp.signbit(z), tnp.full_like(z, 180.0 if deg else _math.pi), tnp.zeros_like(z))
    return tnp.where(tnp.isnan(z), z, turned)


def nonzero(a, *, size=None, fill_value=None):
    """Indices of elements other than zero, an array for each axis; of a fixed `size`, filled up with `fill_value`."""
    tnp = _tnp()
    a = asarray(a)
    if a.ndim == 0:
        raise ValueError("nonzero needs an axis")
    return tuple(_filled(tnp, t, a, size, fill_value) for t in tnp._table["nonzero"](a, tnp._count(a) if size is None else size))


def _filled(tnp, t, x, size, fill_value):
    if size is None:
        return t
    return tnp.where(tnp.arange(size) < tnp._table["count_nonzero"](x), t, 0 if fill_value is None else fill_value)


def flatnonzero(a, *, size=None, fill_value=None):
    """Flat indices of elements other than zero."""
    return nonzero(asarray(a).reshape(-1), size=size, fill_value=fill_value)[0]


def bincount(x, weights=None, minlength=0, *, length=None):
    """How often every number occurs, or the sums of their weights; inside of a trace it needs a `length`."""
    tnp = _tnp()
    x = asarray(x)
    if x.dtype.kind == "f":
        raise TypeError(f"bincount counts integers; the array is {x.dtype}")
    if length is None:
        length = _b.max(int(minlength), int(x.max()) + 1 if x.size else 0)
    if weights is None:
        return tnp._table["bincount"](x, length)
    add = lambda w: tnp.zeros((length,), w.dtype).at[x].add(w)  # noqa: E731
    return _rounded(add, weights)
