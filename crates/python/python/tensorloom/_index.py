"""Indexing by arrays of integers and bools, as NumPy does it."""

import numpy as _np

from . import numpy as tnp
from ._tensorloom import Tensor, asarray


def _expand(x, index):
    """The index with one entry for each axis: integers, slices, None, or tensors of integers."""
    items = list(index) if isinstance(index, tuple) else [index]
    out = []
    used = 0
    for i in items:
        if isinstance(i, (list, _np.ndarray)) or (isinstance(i, bool)):
            i = asarray(i)
            if i.size == 0 and i.dtype.kind == "f":
                i = i.astype("int32")
        elif isinstance(i, _np.generic):
            i = asarray(i)
        if isinstance(i, Tensor) and i.dtype.kind == "b":
            if i.ndim == 0:
                raise IndexError("a single bool stands alone as an index")
            if tuple(i.shape) != tuple(x.shape[used:used + i.ndim]):
                raise IndexError(f"a mask of shape {i.shape} on axes of shape {x.shape[used:used + i.ndim]}")
            places = tnp.nonzero(i)
            out.extend(places)
            used += i.ndim
            continue
        if isinstance(i, Tensor) and i.dtype.kind == "f":
            raise IndexError("arrays of floats are no indices")
        if i is Ellipsis:
            out.append(i)
            rest = items[items.index(Ellipsis) + 1:] if False else None
            # Axes behind the dots are counted from the end.
            behind = 0
            for j in items[len(out):] if rest is None else rest:
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


def _places(view, axes):
    """One array of flat places on the indexed axes, moved to the front, with the shape of the indices."""
    arrays = tnp.broadcast_arrays([a for a in axes if a is not None])
    sizes = [view.shape[k] for k, a in enumerate(axes) if a is not None]
    flat = None
    for a, n in zip(arrays, sizes):
        a = a.astype("int64")
        if a.size and not _traced(a):
            low, high = int(a.min()), int(a.max())
            if low < -n or high >= n:
                raise IndexError(f"index {low if low < -n else high} of an axis of size {n}")
        a = tnp.where(a < 0, a + n, a)
        flat = a if flat is None else flat * n + a
    return flat, sizes


def _traced(x):
    return "traced" in repr(x) if not x.size else _is_traced(x)


def _is_traced(x):
    from ._tensorloom import TracerError

    try:
        x.reshape(-1)[0].item()
    except TracerError:
        return True
    return False


def get(x, index):
    """x[index]."""
    alone = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if isinstance(alone, (bool, _np.bool_)) or (getattr(alone, "ndim", None) == 0 and asarray(alone).dtype.kind == "b"):
        # One bool takes everything, or nothing, along a new axis.
        return x[None] if bool(alone) else x[None][0:0]
    basic, axes, together = _plan(x, index)
    view = x[basic]
    if all(a is None for a in axes):
        return view
    flat, sizes = _places(view, axes)
    chosen = [k for k, a in enumerate(axes) if a is not None]
    others = [k for k, a in enumerate(axes) if a is None]
    moved = tnp.permute_dims(view, chosen + others) if view.ndim > 1 else view
    rest = [view.shape[k] for k in others]
    total = 1
    for n in sizes:
        total *= n
    rows = moved.reshape((total, *rest))
    out = tnp.take(rows, flat.reshape(-1), 0).reshape((*flat.shape, *rest))
    if together:
        # The axes of the index stand where the first array stood.
        at = sum(1 for k in others if k < chosen[0])
        n = flat.ndim
        if at:
            order = [*range(n, n + at), *range(n), *range(n + at, out.ndim)]
            out = tnp.permute_dims(out, order)
    return out


def set(x, index, value):  # noqa: A001
    """x[index] = value."""
    value = asarray(value) if not isinstance(value, (int, float)) else value
    mask = index if isinstance(index, (Tensor, _np.ndarray)) else None
    if mask is not None and asarray(mask).dtype.kind == "b" and (isinstance(value, (int, float)) or value.ndim == 0):
        mask = asarray(mask)
        mask = mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
        x[...] = tnp.where(tnp.broadcast_to(mask, x.shape), asarray(value).astype(x.dtype), x)
        return
    # The places of what is written, by indexing the places of everything.
    places = get(tnp.arange(0, x.size, 1, dtype="int64").reshape(x.shape), index) if x.size else None
    if places is None or not places.size:
        return
    value = tnp.broadcast_to(asarray(value).astype(x.dtype), places.shape).reshape(-1)
    x[...] = tnp.put(x.reshape(-1), places.reshape(-1), value).reshape(x.shape)
