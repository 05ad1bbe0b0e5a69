"""Functions of `special`, by the names of SciPy."""

from .. import nn as _nn
from .. import special as _special

globals().update({name: f for name, f in vars(_special).items() if not name.startswith("_")})
# With weights and conditions.
logsumexp = _nn.logsumexp
