"""Writes golden.json: what JAX gives for the functions of functions.py, their gradients, and under vmap.

    python golden.py        (needs jax)
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from functions import FUNCTIONS


def inputs():
    rng = np.random.default_rng(3)
    return [rng.uniform(0.2, 1.5, s).astype(np.float32) for s in [(3, 4), (4,), (2, 3, 4)]]


def flat(x):
    return [float(v) for v in np.asarray(x, np.float64).reshape(-1)]


def main():
    x, y, xs = map(jnp.asarray, inputs())
    out = {"inputs": [flat(v) for v in (x, y, xs)], "functions": {}}
    for name, f in FUNCTIONS.items():
        g = lambda a, b, f=f: f(jnp, jax, a, b)  # noqa: E731
        loss = lambda a, b, g=g: jnp.sum(g(a, b) ** 2)  # noqa: E731
        grads = jax.grad(loss, argnums=(0, 1))(x, y)
        out["functions"][name] = {
            "shape": list(np.shape(g(x, y))), "value": flat(g(x, y)), "grad": [flat(v) for v in grads],
            "vmap": flat(jax.vmap(g, in_axes=(0, None))(xs, y)),
        }
    json.dump(out, open("golden.json", "w"), separators=(",", ":"))
    print(len(out["functions"]), "functions")


if __name__ == "__main__":
    main()
