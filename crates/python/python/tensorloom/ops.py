"""Reductions of segments, by the names of JAX."""

import math as _math

import numpy as _np

from . import numpy as _n
from ._rounded import rounded as _rounded


def _segments(name, update, neutral):
    def run(data, segment_ids, num_segments=None, indices_are_sorted=False, unique_indices=False, bucket_size=None, mode=None):
        data, ids = _n.asarray(data), _n.asarray(segment_ids)
        count = int(ids.max()) + 1 if num_segments is None else num_segments
        # Numbers below zero are outside here.
        ids = _n.where(ids < 0, count, ids)

        def reduced(data):
            start = _n.full((count, *data.shape[1:]), neutral(data.dtype), data.dtype)
            return getattr(start.at[ids], update)(data)

        return _rounded(reduced, data)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"The {name.partition('_')[2]} of the entries of each segment; inside of a trace it needs `num_segments`."
    return run


def _limit(dtype, largest):
    if dtype.kind == "f":
        return _math.inf if largest else -_math.inf
    if dtype.kind == "b":
        return largest
    facts = _np.iinfo(dtype.name)
    return int(facts.max if largest else facts.min)


segment_sum = _segments("segment_sum", "add", lambda d: 0)
segment_prod = _segments("segment_prod", "multiply", lambda d: 1)
segment_max = _segments("segment_max", "max", lambda d: _limit(d, False))
segment_min = _segments("segment_min", "min", lambda d: _limit(d, True))
