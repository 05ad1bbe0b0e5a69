"""Writes golden_programs.json: what JAX gives for the programs of programs.py, and optax for its optimisers.

    python golden_programs.py        (needs jax and optax)
"""

import json

import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import optax
import first_programs  # noqa: F401
from first_week import WEEK
from programs import OPTIMIZERS, PROGRAMS, SCHEDULES, trained


def leaves(x):
    """Leaves with where they stand; numbers as lists."""
    out = []
    flatten(x, "", out)
    return out


def flatten(x, at, out):
    if x is None:
        return
    if isinstance(x, dict):
        for k in sorted(x):
            flatten(x[k], f"{at}.{k}", out)
    elif isinstance(x, (list, tuple)):
        for i, y in enumerate(x):
            flatten(y, f"{at}[{i}]", out)
    elif isinstance(x, (str, bool)):
        out.append([at, x])
    else:
        x = np.asarray(x)
        # Six digits are what is compared.
        numbers = [float(f"{v:.7g}") if x.dtype.kind not in "iub" else int(v) for v in x.reshape(-1).astype(np.float64 if x.dtype.kind not in "iub" else x.dtype)]
        out.append([at, list(x.shape), numbers])


def main():
    out = {name: leaves(f(jax, jnp)) for name, f in PROGRAMS.items()}
    trainings = {name: leaves(trained(jax, jnp, optax, make)) for name, make in OPTIMIZERS.items()}
    schedules = {name: leaves([make(optax)(i) for i in (0, 3, 10, 25, 60)]) for name, make in SCHEDULES.items()}
    week = {name: leaves(f(jax, jnp)) for name, f in WEEK.items()}
    json.dump({"programs": out, "week": week, "optimizers": trainings, "schedules": schedules}, open("golden_programs.json", "w"), separators=(",", ":"))
    print(len(out), "programs,", len(trainings), "optimisers")


if __name__ == "__main__":
    main()
