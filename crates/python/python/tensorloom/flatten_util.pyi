"""Trees as vectors."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def ravel_pytree(pytree: ArrayLike) -> tuple[Tensor, Callable[[ArrayLike], Any]]:
    """All numbers of a tree in one vector, and the function from such a vector to a tree."""
