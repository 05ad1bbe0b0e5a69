"""Arrays as sets. Their sizes depend on data: with a `size`, they are computed inside of a trace too."""

import builtins as _b

import numpy as _np

from ._further import _given, _tnp
from ._tensorloom import _arrays, asarray


def _numpy(x):
    """An array of NumPy, which has no bfloat16: its values are float32 there."""
    return (x.astype("float32") if x.dtype == "bfloat16" else x).numpy()


def _like(y, *xs):
    """A result of NumPy, in bfloat16 again where all arrays were."""
    y = asarray(y)
    return y.astype("bfloat16") if _b.all(x.dtype == "bfloat16" for x in xs) else y


def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, equal_nan=True, size=None, fill_value=None):
    """The different elements in order, or the different entries along an axis; with `size` so many, filled up with `fill_value`."""
    x = asarray(ar)
    if size is not None:
        if axis is not None:
            raise NotImplementedError("unique has a fixed size for elements, not for entries along an axis")
        found = _sized(x, size, fill_value)
    else:
        values, *places = _np.unique(_numpy(x), True, True, True, axis=axis, equal_nan=equal_nan)
        found = [_like(values, x), *(asarray(g) for g in places)]
        found[2] = found[2].reshape(x.shape if axis is None else -1)
    out = [t for t, wanted in zip(found, (True, return_index, return_inverse, return_counts)) if wanted]
    return out[0] if len(out) == 1 else tuple(out)


def _sized(x, size, fill_value):
    """Values, where they stand first, where each element went, and how many there are of each."""
    tnp = _tnp()
    flat = x.reshape(-1)
    n = flat.shape[0]
    order = tnp.argsort(flat)
    line = flat[order]
    first = tnp.concatenate([tnp.ones(_b.min(n, 1), "bool"), line[1:] != line[:-1]])
    held = tnp.arange(size) < tnp.count_nonzero(first)
    starts = tnp.nonzero(first, size=size, fill_value=n)[0]
    least = tnp.min(flat) if fill_value is None else fill_value
    values = tnp.where(held, tnp.take(line, starts, mode="clip"), least).astype(x.dtype)
    inverse = tnp.zeros(n, "int32").at[order].set(tnp.cumsum(first.astype("int32")) - 1).reshape(x.shape)
    index = tnp.where(held, tnp.take(order, starts, mode="clip"), order[0])
    counts = tnp.diff(starts, append=n)
    return [values, index, inverse, tnp.where(held, counts, 0)]


def union1d(ar1, ar2, *, size=None, fill_value=None):
    """What one of two arrays has, in order."""
    both = _tnp().concatenate([a.reshape(-1) for a in _arrays(ar1, ar2)])
    return unique(both, size=size, fill_value=fill_value)


def isin(element, test_elements, assume_unique=False, invert=False):
    """Whether each element is among others, or not if `invert`."""
    tnp = _tnp()
    y = tnp._table["isin"](element, test_elements)
    return tnp.logical_not(y) if invert else y


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    """What both arrays have, in order; with `return_indices`, where both have it first."""
    both = _arrays(ar1, ar2)
    values, *places = _np.intersect1d(*(_numpy(a) for a in both), assume_unique, True)
    return (_like(values, *both), *(asarray(g) for g in places)) if return_indices else _like(values, *both)


def _sets(f, doc):
    def run(ar1, ar2, assume_unique=False):
        both = _arrays(ar1, ar2)
        return _like(f(*(_numpy(a) for a in both), assume_unique), *both)

    return _given(run, f.__name__, doc)


setdiff1d = _sets(_np.setdiff1d, "What the first array has and the second has not.")
setxor1d = _sets(_np.setxor1d, "What one of two arrays has.")


def unique_values(x, /, *, size=None, fill_value=None):
    """The different elements."""
    return unique(x, size=size, fill_value=fill_value, equal_nan=False)


def unique_counts(x, /, *, size=None, fill_value=None):
    """The different elements, and how many there are of each."""
    return unique(x, return_counts=True, size=size, fill_value=fill_value, equal_nan=False)


def unique_inverse(x, /, *, size=None, fill_value=None):
    """The different elements, and which of them each is."""
    return unique(x, return_inverse=True, size=size, fill_value=fill_value, equal_nan=False)


def unique_all(x, /, *, size=None, fill_value=None):
    """The different elements, where they stand first, which of them each is, and how many there are of each."""
    return unique(x, True, True, True, size=size, fill_value=fill_value, equal_nan=False)
