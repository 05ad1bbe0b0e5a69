"""Files of tensors, by the names of the package `safetensors`: `save_file load_file save load metadata`."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of the bytes of a safetensors file by name."""

def load_file(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""

def metadata(path: str | PathLike[str]) -> dict[str, str]:
    """What stands beside the tensors of a file."""

def save(tensors: dict[str, ArrayLike], metadata: dict[str, str] | None = None) -> bytes:
    """A dict of tensors as the bytes of a safetensors file."""

def save_file(tensors: dict[str, ArrayLike], path: str | PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Writes a dict of tensors as a safetensors file, whole or not at all."""
