"""Loops, branches and primitives, by the names of JAX."""

from ._functions import fill as _fill
from ._tensorloom import associative_scan, cond, fori_loop, map, scan, while_loop  # noqa: A004

_fill("lax", globals())


def switch(index, branches, *operands):
    """The branch of an index, which is moved into their range."""
    from . import numpy as tnp

    branches = list(branches)
    if not branches:
        raise ValueError("switch needs a branch")
    index = tnp.clip(tnp.asarray(index), 0, len(branches) - 1)

    def choose(low, high):
        if high - low == 1:
            return branches[low]
        middle = (low + high) // 2
        return lambda *x: cond(index < middle, choose(low, middle), choose(middle, high), *x)

    return choose(0, len(branches))(*operands)


def stop_gradient(x):
    """The same values; gradients don't pass."""
    from . import _tensorloom as core
    from . import numpy as tnp

    return core.tree_map(lambda t: tnp.stop_gradient(t), x)
