"""Trees by the older names of JAX; `tree` has the shorter ones."""

import functools as _functools

from . import tree as _tree
from ._keys import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, keystr
from .tree import TreeDef as PyTreeDef
from .tree import all as tree_all
from .tree import broadcast as tree_broadcast
from .tree import flatten as tree_flatten
from .tree import flatten_with_path as tree_flatten_with_path
from .tree import leaves as tree_leaves
from .tree import leaves_with_path as tree_leaves_with_path
from .tree import map as tree_map
from .tree import map_with_path as tree_map_with_path
from .tree import reduce as tree_reduce
from .tree import register_dataclass, register_static
from .tree import register_node as register_pytree_node
from .tree import register_node_class as register_pytree_node_class
from .tree import register_node_with_keys as register_pytree_with_keys
from .tree import register_node_with_keys_class as register_pytree_with_keys_class
from .tree import structure as tree_structure
from .tree import transpose as tree_transpose
from .tree import unflatten as tree_unflatten


class Partial(_functools.partial):
    """A function with some of its arguments, as a tree: the arguments are children, the function is static."""


_tree.register_node(
    Partial, lambda p: ((p.args, p.keywords), p.func), lambda func, children: Partial(func, *children[0], **children[1])
)


def all_leaves(iterable, is_leaf=None):
    """Whether everything that is given is a leaf."""
    return all(_tree.structure(x, is_leaf).num_nodes == 1 and _tree.structure(x, is_leaf).num_leaves == 1 for x in iterable)


def treedef_is_leaf(treedef):
    """Whether a structure is that of a leaf."""
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def treedef_children(treedef):
    """The structures of the children of a node."""
    return list(treedef.children)


def treedef_tuple(treedefs):
    """The structure of a tuple of trees of these structures."""
    treedefs = list(treedefs)
    return PyTreeDef(tuple, None, treedefs)
