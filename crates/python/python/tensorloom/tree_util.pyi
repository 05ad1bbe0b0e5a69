"""Trees by the older names of JAX; `tree` has the shorter ones."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

PyTreeDef = TreeDef

class DictKey:
    """A key of a dict."""

    field: Any

class FlattenedIndexKey:
    """A place among the children of an object that doesn't name them."""

    field: Any

class GetAttrKey:
    """An attribute of an object."""

    field: Any

class Partial(partial):
    """A function with some of its arguments, as a tree: the arguments are children, the function is static."""

class SequenceKey:
    """A place in a list or tuple."""

    field: Any

def all_leaves(iterable: ArrayLike, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether everything that is given is a leaf."""

def keystr(keys: ArrayLike, *, simple: ArrayLike = False, separator: ArrayLike = '') -> str:
    """A path as text: `['a'][0].w`; or its parts alone with something between them."""

def register_dataclass(kind: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None) -> Any:
    """The same for a dataclass, whose fields are children unless `meta_fields` names them."""

def register_pytree_node(kind: Any, flatten_func: Callable[[Any], Any], unflatten_func: Callable[[Any, Any], Any]) -> Any:
    """Makes objects of a class trees: `flatten_func(x)` gives children and a static part, `unflatten_func(static, children)` an object."""

def register_pytree_node_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten` and `tree_unflatten`; a decorator."""

def register_pytree_with_keys(kind: Any, flatten_with_keys: ArrayLike, unflatten_func: Callable[[Any, Any], Any], flatten_func: Callable[[Any], Any] | None = None) -> Any:
    """As `register_node`, where `flatten_with_keys(x)` gives pairs of a key and a child, and a static part."""

def register_pytree_with_keys_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten_with_keys` and `tree_unflatten`; a decorator."""

def register_static(kind: Any) -> Any:
    """Makes objects of a class trees without leaves: they are part of a structure, and of a program; a decorator."""

def tree_all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf of a tree is true."""

def tree_broadcast(prefix_tree: ArrayLike, full_tree: ArrayLike, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree like `full_tree` whose leaves are those of `prefix_tree`, which ends where it may."""

def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree, and its structure."""

def tree_flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree with the keys that lead to them, and its structure."""

def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree, in order."""

def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree, each with the keys that lead to it."""

def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree of the same structure with `f` of what stands at each place of the trees."""

def tree_map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """As `map`, with the keys that lead to a place as the first argument."""

def tree_reduce(function: ArrayLike, tree: Any, *initializer: Any, is_leaf: Callable[[Any], bool] | None = None, **named: Any) -> Any:
    """Folds the leaves of a tree, from an initial value if one is given."""

def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The structure of a tree."""

def tree_transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of trees turned inside out: a tree of structure `inner` whose leaves are trees of structure `outer`."""

def tree_unflatten(treedef: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves."""

def treedef_children(treedef: Any) -> Any:
    """The structures of the children of a node."""

def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a structure is that of a leaf."""

def treedef_tuple(treedefs: ArrayLike) -> Any:
    """The structure of a tuple of trees of these structures."""
