"""Trees of tuples, lists and dicts."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def all(tree: Any) -> bool:
    """Whether every tensor of a tree is true."""

def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in order."""

def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """A tree of the same structure with `f` of the tensors that stand at each place of the trees."""

def reduce(f: Callable[..., Any], tree: Any, initial: Any = None) -> Any:
    """Folds the tensors of a tree."""
