"""What `jax.scipy` has of SciPy: `linalg`, `special`, `stats`."""

from . import linalg, special, stats
