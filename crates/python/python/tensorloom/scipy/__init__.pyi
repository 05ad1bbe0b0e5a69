"""What `jax.scipy` has of SciPy: `linalg`, `special`, `stats`."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from .. import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor

from . import linalg as linalg
from . import special as special
from . import stats as stats
