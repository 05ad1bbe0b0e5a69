"""Indexing by arrays of integers and bools, as NumPy does it."""

import math as _math
import operator as _operator

import numpy as _np

from . import numpy as tnp
from ._tensorloom import Tensor, _is_array, asarray


def _read(index):
    """An index with tensors in place of arrays of other libraries."""
    if isinstance(index, tuple):
        return tuple(map(_read, index))
    plain = (Tensor, slice, int, list, range, str, _np.ndarray, _np.generic)
    return index if index is None or index is Ellipsis or isinstance(index, plain) or not _is_array(index) else asarray(index)


def _expand(x, index):
    """The index with one entry for each axis: integers, slices, None, or tensors of integers."""
    items = list(index) if isinstance(index, tuple) else [index]
    out = []
    used = 0
    for place, i in enumerate(items):
        if isinstance(i, (list, range, _np.ndarray)) or (isinstance(i, bool)):
            i = asarray(list(i) if isinstance(i, range) else i)
            if i.size == 0 and i.dtype.kind == "f":
                i = i.astype("int32")
        elif isinstance(i, _np.generic):
            i = asarray(i)
        if isinstance(i, Tensor) and i.dtype.kind == "b":
            if i.ndim == 0:
                raise IndexError("a single bool must be the only index")
            under = x.shape[used:used + i.ndim]
            # As in NumPy, an axis of a mask may be empty; then nothing is taken.
            if len(under) != i.ndim or any(m not in (n, 0) for m, n in zip(i.shape, under)):
                raise IndexError(f"a mask of shape {i.shape} on axes of shape {x.shape[used:used + i.ndim]}")
            places = tnp.nonzero(i)
            out.extend(places)
            used += i.ndim
            continue
        if isinstance(i, Tensor) and i.dtype.kind == "f":
            raise IndexError("arrays of floats cannot be indices")
        if not (i is None or i is Ellipsis or isinstance(i, (Tensor, slice, int))):
            try:
                i = _operator.index(i)
            except TypeError:
                raise IndexError(f"{i!r} is not an index; use integers, slices, None, ... or arrays of integers and bools") from None
        if i is Ellipsis:
            out.append(i)
            # Axes behind the dots are counted from the end.
            behind = 0
            for j in items[place + 1:]:
                if j is None:
                    continue
                j = asarray(j) if isinstance(j, (list, _np.ndarray)) else j
                behind += j.ndim if isinstance(j, Tensor) and j.dtype.kind == "b" else 1
            used = x.ndim - behind
            continue
        if i is not None:
            used += 1
        out.append(i)
    count = sum(1 for i in out if i is not None and i is not Ellipsis)
    if count > x.ndim:
        raise IndexError(f"{count} indices for a tensor of {x.ndim} axes")
    fill = [slice(None)] * (x.ndim - count)
    if any(i is Ellipsis for i in out):
        at = next(k for k, i in enumerate(out) if i is Ellipsis)
        out[at:at + 1] = fill
    else:
        out += fill
    return out


def _plan(x, index):
    """Applies what is plain, and gives the tensor, and for each of its axes an array of indices or None; and whether the
    arrays stand side by side."""
    items = _expand(x, index)
    arrays = [i for i in items if isinstance(i, Tensor)]
    # Integers beside arrays count as arrays, for where the result's axes go.
    advanced = [k for k, i in enumerate(items) if isinstance(i, (Tensor, int)) and i is not None]
    together = advanced == list(range(advanced[0], advanced[-1] + 1)) if advanced else True
    basic, axes = [], []
    for i in items:
        if isinstance(i, Tensor):
            basic.append(slice(None))
            axes.append(i)
        elif isinstance(i, int) and not isinstance(i, bool) and arrays:
            basic.append(slice(None))
            axes.append(asarray(i, "int32"))
        else:
            basic.append(i)
            if not isinstance(i, int):
                axes.append(None)
    return tuple(basic), axes, together


def _places(view, axes, beyond=None):
    """One array of flat places on the indexed axes, moved to the front, with the shape of the indices. Indices beyond an axis are an
    error where their values are known, else its last entry; with `beyond`, that place stands for all of them."""
    arrays = tnp.broadcast_arrays([a for a in axes if a is not None])
    sizes = [view.shape[k] for k, a in enumerate(axes) if a is not None]
    flat = inside = None
    for a, n in zip(arrays, sizes):
        a = a.astype("int64")
        if a.size and not a._traced and beyond is None:
            low, high = int(a.min()), int(a.max())
            if low < -n or high >= n:
                raise IndexError(f"index {low if low < -n else high} is out of range for an axis of size {n}")
        a = tnp.where(a < 0, a + n, a)
        if beyond is not None:
            fits = tnp.logical_and(a >= 0, a < n)
            inside = fits if inside is None else tnp.logical_and(inside, fits)
        if a._traced:
            a = tnp.clip(a, 0, n - 1)
        flat = a if flat is None else flat * n + a
    return flat if beyond is None else tnp.where(inside, flat, beyond(sizes)), sizes


def get(x, index, beyond=None):
    """x[index]. Where `beyond` is a number, it is taken for indices outside."""
    index = _read(index)
    alone = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if isinstance(alone, (bool, _np.bool_)) or (getattr(alone, "ndim", None) == 0 and asarray(alone).dtype.kind == "b"):
        # One bool takes everything, or nothing, along a new axis.
        return x[None] if bool(alone) else x[None][0:0]
    basic, axes, together = _plan(x, index)
    view = x[basic]
    if all(a is None for a in axes):
        return view
    total = lambda sizes: _math.prod(sizes)  # noqa: E731
    flat, sizes = _places(view, axes, None if beyond is None else total)
    chosen = [k for k, a in enumerate(axes) if a is not None]
    others = [k for k, a in enumerate(axes) if a is None]
    moved = tnp.permute_dims(view, chosen + others) if view.ndim > 1 else view
    rest = [view.shape[k] for k in others]
    rows = moved.reshape((total(sizes), *rest))
    if beyond is not None:
        rows = tnp.concatenate([rows, tnp.full((1, *rest), beyond, x.dtype)], 0)
    out = tnp.take(rows, flat.reshape(-1), 0).reshape((*flat.shape, *rest))
    if together:
        # The axes of the index stand where the first array stood.
        at = sum(1 for k in others if k < chosen[0])
        n = flat.ndim
        if at:
            order = [*range(n, n + at), *range(n), *range(n + at, out.ndim)]
            out = tnp.permute_dims(out, order)
    return out


def _as(value, dtype):
    """A value in a type; numbers of Python's keep their digits, in lists too."""
    return asarray(value, dtype) if isinstance(value, (int, float, list, tuple)) else asarray(value).astype(dtype)


def set(x, index, value):  # noqa: A001
    """x[index] = value."""
    index = _read(index)
    value = _as(value, x.dtype) if not isinstance(value, (int, float)) else value
    mask = index if isinstance(index, (Tensor, _np.ndarray)) else None
    if mask is not None and asarray(mask).dtype.kind == "b" and (isinstance(value, (int, float)) or value.ndim == 0):
        mask = asarray(mask)
        mask = mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
        x[...] = tnp.where(tnp.broadcast_to(mask, x.shape), _as(value, x.dtype), x)
        return
    # The places of what is written, by indexing the places of everything.
    places = get(tnp.arange(0, x.size, 1, dtype="int64").reshape(x.shape), index) if x.size else None
    if places is None or not places.size:
        return
    value = tnp.broadcast_to(_as(value, x.dtype), places.shape).reshape(-1)
    x[...] = tnp.put(x.reshape(-1), places.reshape(-1), value).reshape(x.shape)


class At:
    """`x.at`: indexed, it gives arrays with some elements changed; `x` stays what it is."""

    def __init__(self, x):
        self._x = x

    def __getitem__(self, index):
        return _Place(self._x, index)


class _Place:
    """Places of an array. Updates of places outside are dropped, as in JAX."""

    def __init__(self, x, index):
        self._x, self._index = x, _read(index)

    def _flat(self):
        """The places as numbers; that behind the last stands for those outside."""
        x = self._x
        every = tnp.arange(0, x.size, 1, dtype="int64").reshape(x.shape)
        index = self._index if isinstance(self._index, tuple) else (self._index,)
        if any(isinstance(i, Tensor) and i.dtype.kind != "b" or isinstance(i, (list, _np.ndarray)) for i in index):
            return get(every, self._index, beyond=x.size)
        return every[self._index]

    def _mask(self):
        m = self._index
        if isinstance(m, (Tensor, _np.ndarray)) and asarray(m).dtype.kind == "b" and asarray(m).ndim:
            m = asarray(m)
            return tnp.broadcast_to(m.reshape((*m.shape, *[1] * (self._x.ndim - m.ndim))), self._x.shape)
        return None

    def _update(self, name, values, whole):
        from . import lax

        x, mask = self._x, self._mask()
        scalar = isinstance(values, (int, float)) or getattr(values, "ndim", 1) == 0
        if mask is not None and scalar:
            return tnp.where(mask, whole(x, _as(values, x.dtype)), x)
        places = self._flat()
        if not places.size:
            return x.__copy__()
        values = tnp.broadcast_to(_as(values, x.dtype), places.shape).reshape(-1)
        flat = tnp.concatenate([x.reshape(-1), tnp.zeros((1,), x.dtype)])
        out = getattr(lax, name)(flat, [places.reshape(-1)], values)
        return out[:-1].reshape(x.shape)

    def _by(self, mode):
        """The same places by what is to be done with those outside: updates of them are dropped, values filled in ("drop", "fill"), or they
        are moved to the end ("clip"). Else numbers outside are an error, and arrays are as with "drop"."""
        if mode in (None, "promise_in_bounds"):
            return self
        if mode not in ("drop", "fill", "clip"):
            raise ValueError(f"mode {mode!r}; use \"drop\", \"fill\", \"clip\" or \"promise_in_bounds\"")
        number = lambda i: isinstance(i, int) and not isinstance(i, bool)  # noqa: E731
        if mode != "clip":
            index = self._index if isinstance(self._index, tuple) else (self._index,)
            return _Place(self._x, tuple(asarray(i, "int32") if number(i) else i for i in index))
        items, axis = [], 0
        for i in _expand(self._x, self._index):
            n = self._x.shape[axis] if i is not None else 0
            if number(i):
                i = max(0, min(i + n if i < 0 else i, n - 1))
            elif isinstance(i, Tensor):
                i = tnp.clip(tnp.where(i < 0, i + n, i), 0, n - 1)
            items.append(i)
            axis += i is not None
        return _Place(self._x, tuple(items))

    def set(self, values, mode=None, **_):
        """Elements replaced."""
        return self._by(mode)._update("index_set", values, lambda a, b: tnp.broadcast_to(b, a.shape))

    def add(self, values, mode=None, **_):
        """With values added; places that come twice get both."""
        return self._by(mode)._update("index_add", values, lambda a, b: a + b)

    def subtract(self, values, mode=None, **_):
        """With values subtracted."""
        return self.add(-_as(values, self._x.dtype), mode)

    def multiply(self, values, mode=None, **_):
        """Multiplied by values."""
        return self._by(mode)._update("index_mul", values, lambda a, b: a * b)

    mul = multiply

    def divide(self, values, mode=None, **_):
        """Divided by values."""
        kind = self._x.dtype if self._x.dtype.kind == "f" else tnp.float32
        return At(self._x.astype(kind))[self._index].multiply(1.0 / _as(values, kind), mode)

    def min(self, values, mode=None, **_):  # noqa: A003
        """The lesser of an element and a value."""
        return self._by(mode)._update("index_min", values, tnp.minimum)

    def max(self, values, mode=None, **_):  # noqa: A003
        """The greater of an element and a value."""
        return self._by(mode)._update("index_max", values, tnp.maximum)

    def power(self, values, mode=None, **_):
        """To the power of values."""
        return self.set(self.get(mode) ** values, mode)

    def apply(self, f, mode=None, **_):
        """A function of the elements."""
        return self.set(f(self.get(mode)), mode)

    def get(self, mode=None, fill_value=None, **_):
        """The elements. With `mode="fill"`, places outside are `fill_value`; if there is none NaN, of integers the least, of unsigned ones
        the largest, of bools true."""
        place = self._by("fill" if mode is None and fill_value is not None else mode)
        if mode not in ("fill", "drop") and fill_value is None:
            return place._x[place._index]
        if fill_value is None:
            from ._further import _missing

            fill_value = _missing(self._x.dtype)
        return get(self._x, place._index, beyond=fill_value)
