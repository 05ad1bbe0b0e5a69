"""Trees of tuples, lists, dicts, named tuples and registered classes, by the names of JAX; `None` is a tree without leaves."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



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

def reduce(f: Callable[..., Any], tree: Any, initial: Any = None, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Folds the leaves of a tree."""

def register_dataclass(kind: Any, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None) -> Any:
    """The same for a dataclass, whose fields are children unless `meta_fields` names them."""

def register_node(kind: Any, flatten_func: Callable[[Any], Any], unflatten_func: Callable[[Any, Any], Any]) -> None:
    """Makes objects of a class trees: `flatten_func(x)` gives children and a static part, `unflatten_func(static, children)` an object."""

def register_node_class(kind: Any) -> Any:
    """The same for a class with the methods `tree_flatten` and `tree_unflatten`; a decorator."""

def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure of a tree."""

def transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of trees turned inside out: a tree of structure `inner` whose leaves are trees of structure `outer`."""

def unflatten(treedef: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves."""
