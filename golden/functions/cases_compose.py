"""Nested transforms: what each order of grad (g), vmap (v) and jvp (j) to depth 3 gives for some functions.

Every transform makes a function of a 3×3 matrix of one:

    g(f)(x) = the gradient of sum(W * f) at x
    v(f)(x) = the sum over the batch of vmap(f) on [x, x / 2]
    j(f)(x) = the tangent of f at x along V

`gv` is g(v(f)). jit and checkpoint change no values, so they don't occur here.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from make import noise, number, signed

W = jnp.array([number("s", noise(100, i)) for i in range(9)]).reshape(3, 3)
V = jnp.array([number("s", noise(101, i)) for i in range(9)]).reshape(3, 3)
KERNEL = jnp.array([number("s", noise(102, i)) for i in range(4)]).reshape(1, 1, 2, 2)


def step(c, x):
    c = jnp.tanh(c * 0.5 + x)
    return c, c * x


def spectrum(x):
    z = jnp.fft.fft(x)
    return z.real * x + z.imag


FUNCTIONS = {
    "elementwise": lambda x: jnp.sin(x) * x,
    "matmul": lambda x: x @ x.T + x,
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "scan": lambda x: lax.scan(step, x[0], x)[1],
    "cond": lambda x: lax.cond(jnp.sum(x) > 0, lambda x: jnp.sin(x), lambda x: x * x * x, x),
    "cholesky": lambda x: jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(3)),
    "sort": lambda x: jnp.sort(x, 0) * x,
    "fft": spectrum,
    "conv": lambda x: lax.conv_general_dilated(x[None, None], KERNEL, (1, 1), "SAME")[0, 0] * x,
}

TRANSFORMS = {
    "g": lambda f: lambda x: jax.grad(lambda x: jnp.sum(f(x) * W))(x),
    "v": lambda f: lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, 0.5 * x])), 0),
    "j": lambda f: lambda x: jax.jvp(f, (x,), (V,))[1],
}


def write(w):
    for name, f in FUNCTIONS.items():
        for depth in range(4):
            for order in itertools.product("gvj", repeat=depth):
                g = f
                for t in reversed(order):
                    g = TRANSFORMS[t](g)
                w.case(f"compose.{name}", jax.jit(g), signed(3, 3, seed=5), grad=False, floats=("f64",), order="".join(order) or "-")
