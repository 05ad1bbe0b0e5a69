"""Counts of numbers by ranges."""

import numpy as _np

from ._further import _tnp
from ._tensorloom import _arrays, asarray


def histogram_bin_edges(a, bins=10, range=None, weights=None):  # noqa: A002
    """The ends of so many equal ranges; those that are given, if `bins` is a list."""
    if isinstance(bins, str):
        raise NotImplementedError(f"bins={bins!r}; give the number of bins, or their edges")
    if not isinstance(bins, int):
        return _arrays(a, bins)[1]
    return _tnp()._table["histogram_bin_edges"](a, bins, None if range is None else tuple(float(r) for r in range))


def _places(x, edges):
    """In which range each number is; behind the last one if it is in none. The last range has its end."""
    tnp = _tnp()
    n = edges.shape[0] - 1
    at = tnp.searchsorted(edges, x, side="right") - 1
    at = tnp.where(x == edges[-1], n - 1, at)
    return tnp.where(tnp.logical_or(at < 0, at >= n), n, at), n


def histogram(a, bins=10, range=None, weights=None, density=None):  # noqa: A002
    """How many numbers are in each range, or the sums of their weights, or their density; and the ends of the ranges."""
    tnp = _tnp()
    x = asarray(a).reshape(-1)
    if isinstance(bins, int) and weights is None and not density:
        return tnp._table["histogram"](x, bins, None if range is None else tuple(float(r) for r in range))
    edges = histogram_bin_edges(x, bins, range)
    counts, (edges,) = _counted([x], [edges], weights, density)
    return counts, edges


def _counted(columns, edges, weights, density):
    tnp = _tnp()
    found = [_places(x, e) for x, e in zip(columns, edges)]
    sizes = tuple(n for _, n in found)
    w = tnp.ones(columns[0].shape[0], "int64") if weights is None else asarray(weights).reshape(-1)
    kind = w.dtype if w.dtype.kind == "f" else asarray(0.0).dtype
    # Counts and weights of narrow floats are added exactly, or in float32. Those outside of a range go to a row behind the others,
    # which is cut off.
    wide = w.astype("float32") if w.dtype.kind == "f" and w.dtype.itemsize < 4 else w
    counts = tnp.zeros(tuple(n + 1 for n in sizes), wide.dtype).at[tuple(p for p, _ in found)].add(wide)
    counts = counts[tuple(slice(0, n) for n in sizes)]
    if not density:
        return counts if weights is None and len(sizes) == 1 else counts.astype(kind), edges
    total = counts.sum()
    counts = counts.astype(wide.dtype if w.dtype.kind == "f" else kind)
    for k, e in enumerate(edges):
        counts = counts / tnp.diff(e).reshape([-1 if i == k else 1 for i in _np.arange(len(edges))])
    return (counts / total).astype(kind), edges


def histogramdd(sample, bins=10, range=None, weights=None, density=None):  # noqa: A002
    """How many points are in each box of a grid; and the ends of the ranges along each axis."""
    x = asarray(sample)
    columns = [x[:, i] for i in _np.arange(x.shape[1]).tolist()]
    each = [bins] * len(columns) if isinstance(bins, int) else list(bins)
    if len(each) != len(columns):
        raise ValueError(f"{len(each)} numbers of ranges for points of {len(columns)} coordinates")
    ranges = [None] * len(columns) if range is None else list(range)
    edges = [histogram_bin_edges(c, b, r) for c, b, r in zip(columns, each, ranges)]
    counts, edges = _counted(columns, edges, weights, density)
    return counts, edges


def histogram2d(x, y, bins=10, range=None, weights=None, density=None):  # noqa: A002
    """How many points are in each rectangle of a grid; and the ends of the ranges along both axes."""
    alone = isinstance(bins, int) or len(bins) == 2
    points = _tnp().stack([asarray(x).reshape(-1), asarray(y).reshape(-1)], 1)
    counts, (a, b) = histogramdd(points, bins if alone else [bins, bins], range, weights, density)
    return counts, a, b
