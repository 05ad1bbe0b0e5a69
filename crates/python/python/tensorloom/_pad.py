"""`pad`, with the modes and arguments of NumPy."""

import numpy as _np

from ._tensorloom import asarray


def _pairs(value, ndim, what):
    """A value, or one before and one behind for each axis, as NumPy spreads it."""
    try:
        return _np.broadcast_to(_np.asarray(value), (ndim, 2)).tolist()
    except ValueError:
        raise ValueError(f"{what} is {value!r}; give a number, a pair, or a pair for each of {ndim} axes") from None


def pad(array, pad_width, mode="constant", constant_values=0, *, end_values=0, stat_length=None, reflect_type="even"):
    """Adds elements before and after each axis. Modes are those of NumPy; a number is a constant."""
    from . import numpy as tnp

    array = asarray(array)
    if isinstance(pad_width, dict):
        given = {axis % array.ndim: width for axis, width in pad_width.items()}
        pad_width = [_pairs(given.get(axis, 0), 1, "pad_width")[0] for axis in range(array.ndim)]
    widths = [[int(n) for n in pair] for pair in _pairs(pad_width, array.ndim, "pad_width")]
    if min((n for pair in widths for n in pair), default=0) < 0:
        raise ValueError(f"pad_width is {pad_width!r}; widths must not be negative")
    if isinstance(mode, (int, float)) or mode == "empty":
        mode, constant_values = "constant", 0 if mode == "empty" else mode
    if mode in ("edge", "reflect", "symmetric", "wrap") and (reflect_type == "even" or mode in ("edge", "wrap")):
        for n, pair in zip(array.shape, widths):
            if n == 0 and max(pair):
                raise ValueError(f"pad in mode {mode!r} cannot extend an empty axis")
        # One element has no neighbour to be reflected.
        alone = [[0, 0] if n == 1 and mode == "reflect" else pair for n, pair in zip(array.shape, widths)]
        array = tnp._table["pad"](array, [tuple(p) for p in alone], mode)
        rest = [(b - d, a - c) for (b, a), (d, c) in zip(widths, alone)]
        return tnp._table["pad"](array, rest, "edge") if any(map(any, rest)) else array
    if mode == "constant":
        one = _pairs(constant_values, 1, "constant_values")[0][0] if _np.ndim(constant_values) == 0 else None
        if isinstance(one, (int, float)) and float(one) == one and not isinstance(constant_values, type(array)):
            return tnp._table["pad"](array, [tuple(p) for p in widths], float(one))
        sides = _constant(tnp, constant_values)
    elif mode in _STATISTICS:
        sides = _statistics(tnp, mode, stat_length, array.shape)
    elif mode == "linear_ramp":
        sides = _ramp(tnp, end_values)
    elif mode in ("reflect", "symmetric") and reflect_type == "odd":
        sides = _odd(tnp, mode)
    else:
        raise ValueError(f"mode {mode!r}; use constant, edge, reflect, symmetric, wrap, linear_ramp, maximum, mean, median, minimum or empty")
    for axis, pair in enumerate(widths):
        if max(pair):
            parts = [sides(array, axis, n, k) for k, n in enumerate(pair)]
            array = tnp.concatenate([parts[0], array, parts[1]], axis)
    return array


def _sized(x, axis, n):
    return [n if i == axis else m for i, m in enumerate(x.shape)]


def _constant(tnp, values):
    def sides(x, axis, n, k):
        v = values if isinstance(values, type(x)) else _pairs(values, x.ndim, "constant_values")[axis][k]
        return tnp.broadcast_to(asarray(v, x.dtype) if isinstance(v, (int, float)) else asarray(v).astype(x.dtype), _sized(x, axis, n))

    return sides


_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


def _statistics(tnp, mode, lengths, shape):
    lengths = [[None, None]] * len(shape) if lengths is None else _pairs(lengths, len(shape), "stat_length")

    def sides(x, axis, n, k):
        size = shape[axis]
        count = size if lengths[axis][k] is None else min(int(lengths[axis][k]), size)
        if count < 1:
            raise ValueError(f"stat_length is {lengths[axis][k]} for an axis of {size} elements; mode {mode!r} needs at least one")
        part = tnp.take(x, tnp.arange(count) + (size - count if k else 0), axis)
        y = getattr(tnp, _STATISTICS[mode])(part if mode in ("maximum", "minimum") or x.dtype.kind == "f" else part.astype("float64"), axis, keepdims=True)
        y = tnp.round(y) if x.dtype.kind in "iu" and y.dtype != x.dtype else y
        return tnp.broadcast_to(y.astype(x.dtype), _sized(x, axis, n))

    return sides


def _ramp(tnp, ends):
    def sides(x, axis, n, k):
        end = _pairs(ends, x.ndim, "end_values")[axis][k]
        edge = tnp.take(x, asarray([x.shape[axis] - 1 if k else 0]), axis).astype("float64")
        steps = tnp.arange(n, dtype="float64") / max(n, 1)
        steps = steps.reshape([n if i == axis else 1 for i in range(x.ndim)])
        y = end + (edge - end) * (tnp.flip(steps, axis) if k else steps)
        return (y if x.dtype.kind == "f" else tnp.floor(y)).astype(x.dtype)

    return sides


def _odd(tnp, mode):
    """Reflections at the ends, turned around the element (or its outer edge) where they begin."""
    def sides(x, axis, n, k):
        size = x.shape[axis]
        if size == 0 and n:
            raise ValueError(f"pad in mode {mode!r} cannot extend an empty axis")
        places = _np.arange(size, size + n) if k else _np.arange(-n, 0)
        last = size - 1
        whole = 2 * last if mode == "reflect" else 2 * size
        # The extension f has f(p + whole) = f(p) + 2 (x[last] - x[0]), and f(mirror - p) = 2 x[last] - f(p).
        turns, rest = (places // whole, places % whole) if whole else (places * 0, places * 0)
        mirror = whole if mode == "reflect" else whole - 1
        turned = rest > last
        take = lambda at: tnp.take(x, asarray(at.astype(_np.int32)), axis)  # noqa: E731
        column = lambda v: asarray(v.astype(_np.int32)).astype(x.dtype).reshape([n if i == axis else 1 for i in range(x.ndim)])  # noqa: E731
        first, end = take(_np.zeros(1, int)), take(_np.full(1, last))
        y = take(_np.where(turned, mirror - rest, rest))
        return y * column(1 - 2 * turned) + end * column(2 * turned) + (end - first) * column(2 * turns)

    return sides
