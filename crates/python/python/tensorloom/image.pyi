"""Images in other sizes, by the names of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def resize(image: ArrayLike, shape: int | Sequence[int], method: ArrayLike, antialias: ArrayLike = True, precision: ArrayLike = None) -> Tensor:
    """An array in another size, each axis by itself: by the "nearest" element, or "linear", "cubic", "lanczos3", "lanczos5"."""
