"""What NumPy makes by indexing: grids, and arrays put together."""

import numpy as _np

from ._further import _tnp
from ._tensorloom import asarray


def _line(s):
    """The numbers of a slice; with a step of 1j times a number, so many with both ends."""
    tnp = _tnp()
    start = 0 if s.start is None else s.start
    if isinstance(s.step, complex):
        return tnp.linspace(start, s.stop, int(abs(s.step)))
    return tnp.arange(start, s.stop, 1 if s.step is None else s.step)


class _Mesh:
    """Indexed by slices, it gives their numbers as coordinates of a grid."""

    def __init__(self, sparse):
        self._sparse = sparse

    def __getitem__(self, index):
        if isinstance(index, slice):
            return _line(index)
        lines = _tnp().meshgrid(*(_line(s) for s in index), indexing="ij", sparse=self._sparse)
        return lines if self._sparse else _tnp().stack(lines)


class _Joined:
    """Indexed by slices, numbers and arrays, it gives them one after the other."""

    def __init__(self, columns):
        self._columns = columns

    def __getitem__(self, index):
        tnp = _tnp()
        items = [_line(i) if isinstance(i, slice) else tnp.atleast_1d(asarray(i)) for i in (index if isinstance(index, tuple) else (index,))]
        if self._columns:
            items = [i[:, None] if i.ndim == 1 else i for i in items]
        return tnp.concatenate(items, -1 if self._columns else 0)


mgrid, ogrid = _Mesh(False), _Mesh(True)
r_, c_ = _Joined(False), _Joined(True)
s_, index_exp = _np.s_, _np.index_exp
