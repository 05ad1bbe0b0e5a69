"""Errors, by the names of JAX: all are `TracerError`."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

ConcretizationTypeError = TracerError
TracerArrayConversionError = TracerError
TracerBoolConversionError = TracerError
TracerIntegerConversionError = TracerError
UnexpectedTracerError = TracerError

class TracerError(TypeError):
    """A tensor of a trace has no value: it was read inside of jit, vmap, scan or another transform."""
