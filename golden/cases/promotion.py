"""The promotion table: one case a pair of dtypes, with the common dtype or none."""

import jax.numpy as jnp
from graph import DTYPES, NAMES
import numpy as np


def write(w):
    for a, x in NAMES.items():
        for b, y in NAMES.items():
            try:
                common = DTYPES[np.dtype(jnp.promote_types(x, y))]
            except Exception:
                common = "none"
            w.chunks.append(f"promote {a} {b} {common}")
            w.count += 1
