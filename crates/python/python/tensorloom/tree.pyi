"""Trees of tuples, lists, dicts, named tuples and registered classes, by the names of JAX; `None` is a tree without leaves."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



class DictKey:
    """A key of a dict."""

    field: Any

class FlattenedIndexKey:
    """A place among the children of an object that doesn't name them."""

    field: Any

class GetAttrKey:
    """An attribute of an object."""

    field: Any

class SequenceKey:
    """A place in a list or tuple."""

    field: Any

class TreeDef:
    """The structure of a tree."""

    def __eq__(self, other: ArrayLike) -> Any:
        """__eq__"""

    def __hash__(self) -> int:
        """__hash__"""

    def __repr__(self) -> str:
        """__repr__"""

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree of this structure with these leaves."""

def all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Tensor:
    """Whether every leaf of a tree is true."""

def broadcast(prefix_tree: ArrayLike, full_tree: ArrayLike, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree like `full_tree` whose leaves are those of `prefix_tree`, which ends where it may."""

def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree, and its structure."""

def flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree with the keys that lead to them, and its structure."""

def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, in order."""

def leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, each with the keys that lead to it."""

def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree of the same structure with `f` of what stands at each place of the trees."""

def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """As `map`, with the keys that lead to a place as the first argument."""

def reduce(function: ArrayLike, tree: Any, *initializer: Any, is_leaf: Callable[[Any], bool] | None = None, **named: Any) -> Any:
    """Folds the leaves of a tree, from an initial value if one is given."""

def register_dataclass(kind: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None) -> Any:
    """The same for a dataclass, whose fields are children unless `meta_fields` names them."""

def register_node(kind: Any, flatten_func: Callable[[Any], Any], unflatten_func: Callable[[Any, Any], Any]) -> None:
    """Makes objects of a class trees: `flatten_func(x)` gives children and a static part, `unflatten_func(static, children)` an object."""

def register_node_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten` and `tree_unflatten`; a decorator."""

def register_node_with_keys(kind: Any, flatten_with_keys: ArrayLike, unflatten_func: Callable[[Any, Any], Any], flatten_func: Callable[[Any], Any] | None = None) -> None:
    """As `register_node`, where `flatten_with_keys(x)` gives pairs of a key and a child, and a static part."""

def register_node_with_keys_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten_with_keys` and `tree_unflatten`; a decorator."""

def register_static(kind: Any) -> Any:
    """Makes objects of a class trees without leaves: they are part of a structure, and of a program; a decorator."""

def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure of a tree."""

def transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of trees turned inside out: a tree of structure `inner` whose leaves are trees of structure `outer`."""

def unflatten(treedef: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves."""
