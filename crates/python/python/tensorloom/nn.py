"""Functions of `nn`, by the names of JAX and SciPy."""

from ._functions import fill as _fill

_fill("nn", globals())
