"""Reductions of segments, by the names of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def segment_max(data: bytes, segment_ids: ArrayLike, num_segments: ArrayLike = None, indices_are_sorted: ArrayLike = False, unique_indices: ArrayLike = False, bucket_size: ArrayLike = None, mode: str | None = None) -> Tensor:
    """The max of the entries of each segment; inside of a trace it needs `num_segments`."""

def segment_min(data: bytes, segment_ids: ArrayLike, num_segments: ArrayLike = None, indices_are_sorted: ArrayLike = False, unique_indices: ArrayLike = False, bucket_size: ArrayLike = None, mode: str | None = None) -> Tensor:
    """The min of the entries of each segment; inside of a trace it needs `num_segments`."""

def segment_prod(data: bytes, segment_ids: ArrayLike, num_segments: ArrayLike = None, indices_are_sorted: ArrayLike = False, unique_indices: ArrayLike = False, bucket_size: ArrayLike = None, mode: str | None = None) -> Tensor:
    """The prod of the entries of each segment; inside of a trace it needs `num_segments`."""

def segment_sum(data: bytes, segment_ids: ArrayLike, num_segments: ArrayLike = None, indices_are_sorted: ArrayLike = False, unique_indices: ArrayLike = False, bucket_size: ArrayLike = None, mode: str | None = None) -> Tensor:
    """The sum of the entries of each segment; inside of a trace it needs `num_segments`."""
