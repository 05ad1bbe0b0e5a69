"""Rows of different lengths, side by side in one array: nothing is padded."""

import numpy as np

from . import ops
from ._lib import array


class Ragged:
    """Rows of different lengths whose entries have one shape.

    >>> r = Ragged([[1.0, 2.0, 3.0], [], [4.0]])
    >>> r.sum().tolist(), r.lengths.tolist()
    ([6.0, 0.0, 4.0], [3, 0, 1])

    `values` are the entries of all rows, one after the other; `lengths` says how many belong to each. Operations on entries run
    over those that there are.
    """

    __array_priority__ = 1000

    def __init__(self, rows, dtype=None):
        rows = [np.asarray(r) for r in rows]
        full = [r for r in rows if r.size or r.ndim > 1]
        if any(r.ndim == 0 for r in rows):
            raise ValueError("a row must be a list or an array, not a number")
        tails = {r.shape[1:] for r in full}
        if len(tails) > 1:
            raise ValueError(f"entries of several shapes: {sorted(tails)}")
        kind = np.dtype(dtype) if dtype is not None else np.result_type(*full) if full else np.dtype(np.float64)
        kind = np.dtype(np.float64) if kind.kind in "iub" else kind
        tail = tails.pop() if tails else ()
        self.lengths = np.array([len(r) for r in rows], np.int64)
        parts = [r.reshape((len(r), *tail)).astype(kind) for r in rows]
        self.values = array(np.concatenate(parts) if parts else np.empty((0, *tail), kind))

    @classmethod
    def packed(cls, values, lengths):
        """From entries one after the other, and the lengths of rows."""
        self = cls.__new__(cls)
        self.values, self.lengths = array(values), np.asarray(lengths, np.int64)
        if self.lengths.ndim != 1 or (self.lengths < 0).any() or self.lengths.sum() != len(self.values):
            raise ValueError(f"{len(self.values)} entries don't make rows of lengths {self.lengths.tolist()}")
        return self

    @classmethod
    def from_padded(cls, x, lengths):
        """From an array of rows of one length, of which only the beginnings count."""
        x, lengths = np.asarray(x), np.asarray(lengths, np.int64)
        if x.ndim < 2 or len(lengths) != len(x) or (lengths > x.shape[1]).any() or (lengths < 0).any():
            raise ValueError(f"lengths {lengths.tolist()} don't fit rows of shape {x.shape}")
        return cls.packed(x[np.arange(x.shape[1]) < lengths[:, None]], lengths)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        """A row; of a slice, some of them."""
        if isinstance(i, slice):
            return Ragged.packed(np.concatenate([self[j] for j in range(len(self))[i]] or [self.values[:0]]), self.lengths[i])
        i = range(len(self))[i]
        start = int(self.lengths[:i].sum())
        return self.values[start:start + int(self.lengths[i])]

    def __iter__(self):
        return iter(self.rows())

    def __repr__(self):
        return f"Ragged({len(self)} rows of lengths {self.lengths.tolist()}, entries {self.values.shape[1:]}, {self.values.dtype})"

    def rows(self):
        """A list of arrays, one for each row."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self) else []

    def tolist(self):
        """Lists of lists."""
        return [r.tolist() for r in self.rows()]

    def padded(self, fill=0.0):
        """An array of rows of one length, with something behind the shorter ones."""
        width = int(self.lengths.max(initial=0))
        out = np.full((len(self), width, *self.values.shape[1:]), fill, self.values.dtype)
        out[np.arange(width) < self.lengths[:, None]] = self.values
        return out

    def stacked(self):
        """The rows as one tensor in their ambient shape, zeros behind the shorter ones."""
        return ops.stack(self.rows()) if len(self) and self.values.size else self.padded()

    def map(self, f):
        """A function of all entries at once, which keeps their number: `r.map(vsla.tanh)`."""
        values = np.asarray(f(self.values))
        if values.shape[:1] != self.values.shape[:1]:
            raise ValueError(f"the function returned shape {values.shape} for {self.values.shape}; it must keep the number of entries")
        return Ragged.packed(values, self.lengths)

    def matmul(self, w):
        """Each entry, a vector, times a matrix."""
        if self.values.ndim != 2:
            raise ValueError(f"entries of shape {self.values.shape[1:]} are not vectors")
        w = array(w)
        if w.ndim != 2 or w.shape[0] != self.values.shape[1]:
            raise ValueError(f"a matrix of shape {w.shape} for vectors of {self.values.shape[1]}")
        w = w.astype(self.values.dtype)
        return Ragged.packed(ops.matmul(self.values, w) if len(self.values) else np.empty((0, w.shape[1]), w.dtype), self.lengths)

    __matmul__ = matmul

    def _owners(self):
        return np.repeat(np.arange(len(self)), self.lengths)

    def sum(self):
        """The sum of each row's entries."""
        if not len(self.values) or not len(self):
            return np.zeros((len(self), *self.values.shape[1:]), self.values.dtype)
        return ops.scatter(self.values, self._owners(), len(self))

    def mean(self):
        """The mean of each row's entries; NaN of a row without any."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.sum() / self.lengths.reshape(-1, *[1] * (self.values.ndim - 1)).astype(self.values.dtype)

    def max(self):
        """The largest of each row's entries; -inf of a row without any."""
        out = np.full((len(self), *self.values.shape[1:]), -np.inf, self.values.dtype)
        np.maximum.at(out, self._owners(), self.values)
        return out

    def _with(self, other, f, plain):
        if not isinstance(other, Ragged):
            return self.map(lambda v: plain(v, np.asarray(other, v.dtype)))
        if len(other) != len(self):
            raise ValueError(f"{len(self)} rows and {len(other)}")
        if (other.lengths == self.lengths).all() and other.values.shape == self.values.shape:
            return Ragged.packed(f(self.values, other.values) if self.values.size else self.values, self.lengths)
        # Rows of different lengths meet in their ambient shape.
        return Ragged([f(a, b) if a.size and b.size else plain(*_grown(a, b)) for a, b in zip(self.rows(), other.rows())])

    def __add__(self, other):
        """Row by row, in their ambient shapes; a number or an array is added to each entry."""
        return self._with(other, ops.add, np.add)

    def __sub__(self, other):
        """Row by row, in their ambient shapes; a number or an array is taken off each entry."""
        return self._with(other, ops.sub, np.subtract)

    def __mul__(self, other):
        """Row by row, in their ambient shapes; each entry times a number or an array."""
        return self._with(other, ops.hadamard, np.multiply)

    __radd__ = __add__
    __rmul__ = __mul__

    def attention(self, keys, values, heads):
        """Attention of each row's entries to those of its own row; `keys` and `values` have the same rows."""
        for other in (keys, values):
            if not isinstance(other, Ragged) or not np.array_equal(other.lengths, self.lengths):
                raise ValueError("keys and values must be ragged arrays with the same rows")
        lengths = [n for n in self.lengths.tolist() if n]
        return Ragged.packed(ops.attention(self.values, keys.values, values.values, heads, lengths), self.lengths)


def _grown(a, b):
    """Two rows, of which one has no entries, with as many zeros as the other has."""
    n, tail = max(len(a), len(b)), (a if len(a) else b).shape[1:]
    return [np.concatenate([x.reshape((len(x), *tail)), np.zeros((n - len(x), *tail), x.dtype)]) for x in (a, b)]
