"""Functions of NumPy and JAX that are made of those of the table."""

import builtins as _b
import math as _math

import numpy as _np

from ._tensorloom import asarray


def _tnp():
    from . import numpy as tnp

    return tnp


def _reduction(name, neutral, combine):
    """A reduction with NumPy's `dtype`, `initial` and `where`."""
    def run(x, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        tnp = _tnp()
        x = asarray(x)
        x = x if dtype is None else x.astype(dtype)
        if where is not None:
            x = tnp.where(where, x, neutral(x.dtype) if initial is None or name in ("sum", "prod") else initial)
        y = tnp._table[name](x, axis, keepdims=keepdims)
        y = y if dtype is None or y.dtype == dtype else y.astype(dtype)
        return y if initial is None else getattr(tnp, combine)(y, initial)

    run.__name__ = run.__qualname__ = name
    return run


def _least(dtype):
    return -_math.inf if dtype.kind == "f" else (0 if dtype.kind in "ub" else int(_np.iinfo(dtype.name).min))


def _most(dtype):
    return _math.inf if dtype.kind == "f" else (1 if dtype.kind == "b" else int(_np.iinfo(dtype.name).max))


sum = _reduction("sum", lambda d: 0, "add")  # noqa: A001
sum.__doc__ = "Sums."
prod = _reduction("prod", lambda d: 1, "multiply")
prod.__doc__ = "Products."


def max(x, axis=None, keepdims=False, initial=None, where=None):  # noqa: A001
    """The largest."""
    return _extreme("max", _least, "maximum", x, axis, keepdims, initial, where)


def min(x, axis=None, keepdims=False, initial=None, where=None):  # noqa: A001
    """The least."""
    return _extreme("min", _most, "minimum", x, axis, keepdims, initial, where)


def _extreme(name, neutral, combine, x, axis, keepdims, initial, where):
    return _EXTREMES[name](x, axis, None, keepdims, initial, where)


_EXTREMES = {"max": _reduction("max", _least, "maximum"), "min": _reduction("min", _most, "minimum")}
amax, amin = max, min


def any(x, axis=None, keepdims=False, *, where=None):  # noqa: A001
    """Whether any is true."""
    tnp = _tnp()
    return tnp._table["any"](x if where is None else tnp.logical_and(asarray(x) != 0, where), axis, keepdims=keepdims)


def all(x, axis=None, keepdims=False, *, where=None):  # noqa: A001
    """Whether all are true."""
    tnp = _tnp()
    return tnp._table["all"](x if where is None else tnp.logical_or(asarray(x) != 0, tnp.logical_not(where)), axis, keepdims=keepdims)


def mean(x, axis=None, dtype=None, keepdims=False, *, where=None):
    """Means."""
    tnp = _tnp()
    x = asarray(x)
    x = x if dtype is None else x.astype(dtype)
    if where is None:
        return tnp._table["mean"](x, axis, keepdims=keepdims)
    n = tnp.count_nonzero(tnp.broadcast_to(where, x.shape), axis=axis, keepdims=keepdims)
    return sum(x, axis, keepdims=keepdims, where=where) / n


def var(x, axis=None, dtype=None, ddof=0, keepdims=False, *, where=None, correction=None):
    """Variances."""
    tnp = _tnp()
    x = asarray(x)
    x = x if dtype is None else x.astype(dtype)
    less = ddof if correction is None else correction
    if where is None and isinstance(less, int):
        return tnp._table["var"](x, axis, less, keepdims=keepdims)
    d = x - mean(x, axis, keepdims=True, where=where)
    n = tnp.count_nonzero(tnp.broadcast_to(True if where is None else where, x.shape), axis=axis, keepdims=keepdims)
    return sum(d * d, axis, keepdims=keepdims, where=where) / (n - less)


def std(x, axis=None, dtype=None, ddof=0, keepdims=False, *, where=None, correction=None):
    """Standard deviations."""
    return _tnp().sqrt(var(x, axis, dtype, ddof, keepdims, where=where, correction=correction))


def sort(x, axis=-1, *, descending=False, stable=True):
    """Elements in order."""
    tnp = _tnp()
    x = asarray(x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    y = tnp._table["sort"](x, axis)
    return tnp.flip(y, axis) if descending else y


def argsort(x, axis=-1, *, descending=False, stable=True):
    """The order that sorts; equal elements keep theirs."""
    tnp = _tnp()
    x = asarray(x)
    if axis is None:
        x, axis = x.reshape(-1), 0
    if not descending:
        return tnp._table["argsort"](x, axis)
    back = tnp._table["argsort"](tnp.flip(x, axis), axis)
    return (x.shape[axis] - 1) - tnp.flip(back, axis)


def partition(x, kth, axis=-1):
    """An order in which the kth element stands where sorting puts it: the sorted one."""
    return sort(x, axis)


def argpartition(x, kth, axis=-1):
    """The order of `partition`."""
    return argsort(x, axis)


def split(x, indices_or_sections, axis=0):
    """Parts of equal size, or parts that end before these places."""
    tnp = _tnp()
    if isinstance(indices_or_sections, int):
        return tnp._table["split"](x, indices_or_sections, axis)
    return tnp._table["split_at"](x, [int(i) for i in indices_or_sections], axis)


def atleast_1d(*xs):
    """Arrays with one axis or more."""
    return _each(xs, lambda x: x if x.ndim else x.reshape(1))


def atleast_2d(*xs):
    """Arrays with two axes or more, new ones in front."""
    return _each(xs, lambda x: x if x.ndim > 1 else x.reshape((1, -1) if x.ndim else (1, 1)))


def atleast_3d(*xs):
    """Arrays with three axes or more."""
    return _each(xs, lambda x: x if x.ndim > 2 else (x[..., None] if x.ndim == 2 else x.reshape((1, -1, 1))))


def _each(xs, f):
    out = [f(asarray(x)) for x in xs]
    return out[0] if len(out) == 1 else out


def mod(x, y):
    """What is left of a division, with the sign of the divisor."""
    return _tnp().remainder(x, y)


def fabs(x):
    """Absolute values."""
    return _tnp().abs(x)


def concat(arrays, axis=0):
    """Arrays one after the other along an axis."""
    return _tnp().concatenate(arrays, axis)


def copy(x):
    """A copy."""
    return asarray(x).__copy__()


def conj(x):
    """The same: arrays here are real."""
    return copy(x)


def real(x):
    """The same: arrays here are real."""
    return copy(x)


def imag(x):
    """Zeros: arrays here are real."""
    return _tnp().zeros_like(x)


def rollaxis(x, axis, start=0):
    """An axis moved before another."""
    x = asarray(x)
    axis, start = axis % x.ndim, start if start >= 0 else start + x.ndim
    return _tnp().moveaxis(x, axis, start - 1 if axis < start else start)


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


def choose(which, choices, mode="raise"):
    """The choice of an index, element by element."""
    tnp = _tnp()
    which = asarray(which)
    n = len(choices)
    if mode == "wrap":
        which = which % n
    elif mode == "clip" or which._traced:
        which = tnp.clip(which, 0, n - 1)
    elif which.size and (int(which.min()) < 0 or int(which.max()) >= n):
        raise ValueError(f"an index outside of {n} choices")
    out = choices[0]
    for k in range(1, n):
        out = tnp.where(which == k, choices[k], out)
    return tnp.where(which == 0, choices[0], out)


def piecewise(x, condlist, funclist):
    """A function by cases: the last condition that holds decides; one function more than conditions is for the rest."""
    tnp = _tnp()
    x = asarray(x)
    value = lambda f: f(x) if callable(f) else tnp.full(x.shape, f, x.dtype)  # noqa: E731
    rest = value(funclist[-1]) if len(funclist) > len(condlist) else tnp.zeros_like(x)
    for c, f in zip(condlist, funclist):
        rest = tnp.where(c, value(f), rest)
    return rest


def apply_along_axis(f, axis, x, *args, **kwargs):
    """A function of the lines along an axis."""
    import tensorloom

    tnp = _tnp()
    x = tnp.moveaxis(asarray(x), axis, -1)
    axis %= x.ndim
    g = lambda line: asarray(f(line, *args, **kwargs))  # noqa: E731
    for _ in range(x.ndim - 1):
        g = tensorloom.vmap(g)
    y = g(x)
    more = y.ndim - (x.ndim - 1)
    return tnp.moveaxis(y, tuple(range(y.ndim - more, y.ndim)), tuple(range(axis, axis + more))) if more else y


def vectorize(f, *, excluded=()):
    """A function of numbers as one of arrays, which are broadcast."""
    import tensorloom

    def run(*args):
        tnp = _tnp()
        moving = [i for i in range(len(args)) if i not in excluded]
        arrays = tnp.broadcast_arrays([asarray(args[i]) for i in moving])
        shape = arrays[0].shape

        def one(*xs):
            full = list(args)
            for i, x in zip(moving, xs):
                full[i] = x
            return f(*full)

        out = tensorloom.vmap(one)(*(a.reshape(-1) for a in arrays))
        return tensorloom.tree.map(lambda t: t.reshape((*shape, *t.shape[1:])), out)

    return run


def ix_(*args):
    """Indices of a grid."""
    n = len(args)
    return tuple(asarray(a).reshape([-1 if k == i else 1 for k in range(n)]) for i, a in enumerate(args))


def _sets(f):
    def run(a, b):
        return asarray(f(asarray(a).numpy(), asarray(b).numpy()))

    run.__name__ = run.__qualname__ = f.__name__
    return run


intersect1d, setdiff1d, setxor1d = _sets(_np.intersect1d), _sets(_np.setdiff1d), _sets(_np.setxor1d)
intersect1d.__doc__, setdiff1d.__doc__ = "What both arrays have.", "What the first array has and the second has not."
setxor1d.__doc__ = "What one of two arrays has."


def trim_zeros(x, trim="fb"):
    """Without zeros at the ends."""
    return asarray(_np.trim_zeros(asarray(x).numpy(), trim))


def fromfunction(f, shape, *, dtype="float32"):
    """A function of the indices of every element."""
    tnp = _tnp()
    grids = tnp.meshgrid(*(tnp.arange(0, n, 1, dtype) for n in shape), indexing="ij")
    return f(*grids)


def can_cast(from_, to):
    """Whether one type goes into another without loss, as NumPy decides."""
    name = lambda d: getattr(d, "dtype", d).name if hasattr(getattr(d, "dtype", d), "name") else str(d)  # noqa: E731
    return _b.bool(_np.can_cast(name(from_), name(to)))


def issubdtype(a, b):
    """Whether a type is of a kind of NumPy's, such as `np.floating`."""
    name = lambda d: d.name if hasattr(d, "name") else d  # noqa: E731
    if str(name(a)).startswith(("bfloat", "float8")):
        return b in (_np.floating, _np.inexact, _np.number, _np.generic, float) or a == b
    return _np.issubdtype(name(a), name(b))


def isdtype(dtype, kind):
    """Whether a type is of a kind of the array API's, such as "real floating"."""
    from . import array_api

    return array_api.isdtype(dtype, kind)


def iscomplexobj(x):
    """Whether an array is complex: none here is."""
    return False


def isrealobj(x):
    """Whether an array is real."""
    return True


floating, integer, signedinteger, unsignedinteger, inexact, number = (
    _np.floating, _np.integer, _np.signedinteger, _np.unsignedinteger, _np.inexact, _np.number)


def angle(x):
    """0, or π where a number is negative."""
    tnp = _tnp()
    return tnp.where(asarray(x) < 0, _math.pi, 0.0)


def nonzero(x, *, size=None, fill_value=None):
    """Indices of elements other than zero, an array for each axis; of a fixed `size`, filled up with `fill_value`."""
    tnp = _tnp()
    x = asarray(x)
    if x.ndim == 0:
        raise ValueError("nonzero needs an axis")
    return tuple(_filled(tnp, t, x, size, fill_value) for t in tnp._table["nonzero"](x, tnp._count(x) if size is None else size))


def _filled(tnp, t, x, size, fill_value):
    if size is None:
        return t
    return tnp.where(tnp.arange(size) < tnp._table["count_nonzero"](x), t, 0 if fill_value is None else fill_value)


def flatnonzero(x, *, size=None, fill_value=None):
    """Flat indices of elements other than zero."""
    return nonzero(asarray(x).reshape(-1), size=size, fill_value=fill_value)[0]


def _quantiles(name, scale):
    def run(x, q, axis=None, keepdims=False):
        tnp = _tnp()
        f = tnp._table[name]
        if isinstance(q, (int, float)) or getattr(q, "ndim", 1) == 0:
            return f(x, float(q), axis, keepdims=keepdims)
        q = _np.asarray(q)
        return tnp.stack([f(x, float(p), axis, keepdims=keepdims) for p in q.reshape(-1)]).reshape((*q.shape, *_shape_of(x, axis, keepdims)))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"What so many {scale} of the elements lie below; for several, a new axis in front."
    return run


def _shape_of(x, axis, keepdims):
    shape = asarray(x).shape
    axes = range(len(shape)) if axis is None else [a % len(shape) for a in ([axis] if isinstance(axis, int) else axis)]
    return [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]


quantile, nanquantile = _quantiles("quantile", "parts of 1"), _quantiles("nanquantile", "parts of 1")
percentile, nanpercentile = _quantiles("percentile", "percent"), _quantiles("nanpercentile", "percent")


def bincount(x, weights=None, minlength=0, *, length=None):
    """How often every number occurs, or the sums of their weights; inside of a trace it needs a `length`."""
    tnp = _tnp()
    x = asarray(x)
    if length is None:
        length = _b.max(int(minlength), int(x.max()) + 1 if x.size else 0)
    if weights is None:
        return tnp._table["bincount"](x, length)
    weights = asarray(weights)
    return tnp.zeros((length,), weights.dtype).at[x].add(weights)
