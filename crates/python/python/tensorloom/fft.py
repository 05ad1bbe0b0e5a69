"""Functions of `fft`, by the names of JAX and SciPy."""

from ._functions import fill as _fill

_fill("fft", globals())
