"""Random numbers by key, as in JAX: the same key gives the same numbers."""

from ._functions import fill as _fill

_fill("random", globals())
