"""Trees of tuples, lists and dicts."""

from ._tensorloom import tree_leaves as leaves
from ._tensorloom import tree_map as map  # noqa: A004


def reduce(f, tree, initial=None):
    """Folds the tensors of a tree."""
    items = leaves(tree)
    if initial is None:
        if not items:
            raise TypeError("a tree without tensors and no initial value")
        initial, items = items[0], items[1:]
    for x in items:
        initial = f(initial, x)
    return initial


def all(tree):  # noqa: A001
    """Whether every tensor of a tree is true."""
    import builtins

    return builtins.all(bool(x) for x in leaves(tree))
