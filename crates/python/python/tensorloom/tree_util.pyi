"""Trees by the older names of JAX; `tree` has the shorter ones."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def register_dataclass(kind: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None) -> Any:
    """The same for a dataclass, whose fields are children unless `meta_fields` names them."""

def register_pytree_node(kind: Any, flatten_func: Callable[[Any], Any], unflatten_func: Callable[[Any, Any], Any]) -> Any:
    """Makes objects of a class trees: `flatten_func(x)` gives children and a static part, `unflatten_func(static, children)` an object."""

def register_pytree_node_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten` and `tree_unflatten`; a decorator."""

def tree_all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf of a tree is true."""

def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree, and its structure."""

def tree_flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree with the keys that lead to them, and its structure."""

def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves of a tree, in order."""

def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree of the same structure with `f` of what stands at each place of the trees."""

def tree_map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """As `map`, with the keys that lead to a place as the first argument."""

def tree_reduce(f: Callable[..., Any], tree: Any, initial: Any = None, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Folds the leaves of a tree."""

def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The structure of a tree."""

def tree_transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of trees turned inside out: a tree of structure `inner` whose leaves are trees of structure `outer`."""

def tree_unflatten(treedef: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves."""
