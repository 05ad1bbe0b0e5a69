"""Trees as vectors."""

from . import numpy as _n
from . import tree as _tree


def ravel_pytree(pytree):
    """All numbers of a tree in one vector, and the function from such a vector to a tree."""
    leaves, treedef = _tree.flatten(pytree)
    leaves = [_n.asarray(x) for x in leaves]
    ends = [0]
    for x in leaves:
        ends.append(ends[-1] + x.size)

    def unravel(vector):
        vector = _n.asarray(vector)
        if vector.shape != (ends[-1],):
            raise ValueError(f"a vector of shape {vector.shape} for a tree of {ends[-1]} numbers")
        return treedef.unflatten([vector[a:b].reshape(x.shape).astype(x.dtype) for a, b, x in zip(ends, ends[1:], leaves)])

    return _n.concatenate([x.reshape(-1) for x in leaves]) if leaves else _n.zeros(0), unravel
