"""Writes programs.json: what JAX gives for the programs of crates/web/tests/programs.mjs.

    python golden/web/programs.py
"""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import grad, jacfwd, jacrev, hessian, jvp, lax, nn, vjp, vmap

jax.config.update("jax_threefry_partitionable", True)
jax.config.update("jax_default_matmul_precision", "highest")


def noise(shape, seed=0):
    n = math.prod(shape)
    v = [math.sin(12.9898 * (i + 1) + 78.233 * seed) for i in range(n)]
    return jnp.array(np.array(v, np.float32).reshape(shape))


programs = {}


def program(name):
    def keep(f):
        programs[name] = f()
    return keep


@program("linear regression by gradient descent")
def _():
    x = noise([50, 3])
    y = x @ jnp.array([1, -2, 0.5]) + 0.3
    loss = lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2)
    p, losses = {"w": jnp.zeros(3), "b": jnp.float32(0)}, []
    for _ in range(20):
        v, g = jax.value_and_grad(loss)(p)
        p = jax.tree.map(lambda a, b: a - 0.5 * b, p, g)
        losses.append(v)
    return {"p": p, "losses": losses}


@program("logistic regression by Newton's method")
def _():
    x = noise([40, 2], 1)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0.1).astype(jnp.float32)
    loss = lambda w: jnp.mean(nn.softplus(x @ w) - (x @ w) * y) + 0.05 * jnp.sum(w**2)
    w = jnp.zeros(2)
    for _ in range(4):
        w = w - jnp.linalg.solve(hessian(loss)(w), grad(loss)(w))
    return [w, loss(w)]


@program("two layers with Adam")
def _():
    x, labels = noise([16, 4], 2), jnp.arange(16) % 3
    p = {"l1": {"w": noise([4, 8], 3) * 0.5, "b": jnp.zeros(8)}, "l2": [noise([8, 3], 4) * 0.5, jnp.zeros(3)]}
    logits = lambda p: nn.gelu(x @ p["l1"]["w"] + p["l1"]["b"]) @ p["l2"][0] + p["l2"][1]
    loss = lambda p: -jnp.mean(jnp.sum(nn.log_softmax(logits(p)) * nn.one_hot(labels, 3), -1))
    m = jax.tree.map(jnp.zeros_like, p)
    v = jax.tree.map(jnp.zeros_like, p)
    losses = []
    for t in range(1, 11):
        value, g = jax.value_and_grad(loss)(p)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        step = lambda p, m, v: p - 0.05 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        p = jax.tree.map(step, p, m, v)
        losses.append(value)
    return losses


@program("a recurrent network through time")
def _():
    w, u, xs = noise([5, 5], 5) * 0.4, noise([2, 5], 6), noise([12, 3, 2], 7)

    def loss(w, u):
        def f(h, x):
            n = jnp.tanh(h @ w + x @ u)
            return n, jnp.sum(n)
        h, ys = lax.scan(f, jnp.zeros([3, 5]), xs)
        return jnp.mean(ys**2) + jnp.sum(h)
    return grad(loss, (0, 1))(w, u)


@program("a Kalman filter")
def _():
    zs = noise([30], 8) + jnp.linspace(0, 3, 30)

    def likelihood(q):
        def f(c, z):
            m, v = c
            p = v + q
            s = p + 0.5
            k = p / s
            r = z - m
            return (m + k * r, p * (1 - k)), jnp.log(s) + r * r / s
        return 0.5 * jnp.sum(lax.scan(f, (jnp.float32(0), jnp.float32(1)), zs)[1])
    q = jnp.float32(0.1)
    return [likelihood(q), grad(likelihood)(q), grad(grad(likelihood))(q)]


@program("a differential equation, and its gradient")
def _():
    def solve(k, y0):
        f = lambda c, _: ((c[0] + 0.05 * c[1], c[1] - 0.05 * k * c[0]), None)
        return lax.scan(f, (y0, jnp.zeros(2)), None, length=50)[0][0]
    a = (jnp.float32(2), jnp.array([1, 0.5]))
    y, back = vjp(solve, *a)
    return [y, y, back(jnp.ones(2))]


@program("causal attention")
def _():
    q, k, v = [noise([2, 6, 4], s) for s in (1, 2, 3)]
    mask = jnp.tril(jnp.ones([6, 6]))
    head = lambda q, k, v: nn.softmax(jnp.where(mask > 0, q @ k.T / 2, -1e9)) @ v
    f = vmap(head)
    return [f(q, k, v), grad(lambda q: jnp.sum(f(q, k, v) ** 2))(q)]


@program("gradients of each example")
def _():
    x, y, w = noise([5, 3], 1), noise([5], 2), noise([3], 3)
    each = vmap(grad(lambda w, x, y: (x @ w - y) ** 2), (None, 0, 0))(w, x, y)
    return [each, jnp.linalg.norm(each, axis=1)]


@program("Hessian times a vector, three ways")
def _():
    f = lambda x: jnp.sum(jnp.sin(x) * jnp.roll(x, 1) * x)
    x, v = noise([4], 4), noise([4], 5)
    h = hessian(f)(x) @ v
    return [h, h, h]


@program("Newton's root in a loop")
def _():
    return jnp.sqrt(jnp.array([2, 9, 50.0]))


@program("the Mandelbrot set")
def _():
    cr, ci = jnp.meshgrid(jnp.linspace(-2, 0.5, 11), jnp.linspace(-1, 1, 7))
    x, y, n = jnp.zeros([7, 11]), jnp.zeros([7, 11]), jnp.zeros([7, 11], jnp.int32)
    for _ in range(20):
        inside = x * x + y * y < 4
        nx, ny = x * x - y * y + cr, x * y * 2 + ci
        x, y, n = jnp.where(inside, nx, x), jnp.where(inside, ny, y), n + inside
    return n


@program("the game of life")
def _():
    b = (noise([8, 8], 6) > 0.2).astype(jnp.int32)
    counts = []
    for _ in range(6):
        counts.append(jnp.sum(b))
        n = sum(jnp.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        b = ((n == 3) | ((b == 1) & (n == 2))).astype(jnp.int32)
    return [b, counts]


@program("k-means")
def _():
    x = noise([30, 2], 7)
    c = x[:3]
    for _ in range(5):
        one = nn.one_hot(jnp.argmin(jnp.sum((x[:, None] - c[None]) ** 2, -1), 1), 3)
        c = one.T @ x / jnp.maximum(jnp.sum(one, 0)[:, None], 1)
    return c


@program("principal axes")
def _():
    x = jnp.exp(noise([20, 4], 8) * 3)
    c = x - jnp.mean(x, 0, keepdims=True)
    u, s, vt = jnp.linalg.svd(c, full_matrices=False)
    return [s, jnp.sort(s), jnp.abs(c @ vt.T), [20, 4]]


@program("a low-pass filter")
def _():
    f = jnp.fft.rfft(noise([33], 9)) * (jnp.arange(17) < 5)
    return jnp.fft.irfft(f, 33)


@program("a hidden Markov model")
def _():
    seen = jnp.array([0, 1, 1, 2, 0, 2, 1])

    def loss(p):
        a, b = nn.log_softmax(p["move"]), nn.log_softmax(p["show"])
        f = lambda al, o: (nn.logsumexp(al[:, None] + a, 0) + b[:, o], None)
        return -nn.logsumexp(lax.scan(f, jnp.zeros(3), seen)[0])
    p = {"move": noise([3, 3], 1), "show": noise([3, 3], 2)}
    return [loss(p), grad(loss)(p)]


@program("optimal transport by Sinkhorn's steps")
def _():
    cost = (noise([4, 1], 3) - noise([1, 5], 4)) ** 2

    def distance(cost):
        u, v = jnp.zeros(4), jnp.zeros(5)
        for _ in range(30):
            u = -math.log(4) - nn.logsumexp(v[None] - 5 * cost, 1)
            v = -math.log(5) - nn.logsumexp(u[:, None] - 5 * cost, 0)
        return jnp.sum(jnp.exp(u[:, None] + v[None] - 5 * cost) * cost)
    return [distance(cost), grad(distance)(cost)]


@program("a convolution with pooling")
def _():
    x, k = noise([2, 3, 8, 8], 5), noise([4, 3, 3, 3], 6)
    pooled = lambda k: jnp.max(nn.relu(lax.conv(x, k, (1, 1), "SAME")).reshape(2, 4, 4, 2, 4, 2), axis=(3, 5))
    return [jnp.sum(pooled(k)), jnp.sum(grad(lambda k: jnp.sum(pooled(k)))(k), axis=(1, 2, 3))]


@program("layer normalisation of odd shapes")
def _():
    norm = lambda x, g: (x - jnp.mean(x, -1, keepdims=True)) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * g
    x, g = noise([3, 1, 7], 7), noise([7], 8)
    y = norm(x, g)
    return [y, y, grad(lambda x: jnp.sum(norm(x, g) * x))(x), jnp.zeros(3), jnp.ones([1, 2])]


@program("Jacobians of trees")
def _():
    f = lambda t, c: {"s": t["a"] * t["b"] + c, "t": [jnp.sum(jnp.sin(t["a"])) * c]}
    a = ({"a": noise([2], 1), "b": noise([2], 2)}, noise([2], 3))
    return [jacfwd(f)(*a), jacrev(f, (0, 1))(*a), jacfwd(f, 1)(*a), hessian(lambda t: jnp.sum(t["a"] ** 2 * t["b"]))(a[0])]


@program("a clipped gradient of one's own")
def _():
    f = lambda x: jnp.clip(2 * x, -0.1, 0.1)
    return [f(jnp.array([0.01, 3])), f(noise([2, 3], 4))]


@program("a beam of samples")
def _():
    p = nn.softmax(noise([10], 5) * 3)
    v, i = lax.top_k(p, 3)
    total = jnp.cumsum(jnp.flip(jnp.sort(p)))
    return [v, i, jnp.argmax(total > 0.7), jax.random.categorical(jax.random.key(3), jnp.log(p)), jax.random.uniform(jax.random.key(7), [2, 2])]


@program("a cumulative product by pairs")
def _():
    a, b = noise([9], 6), noise([9], 7)
    run = lambda a, b: lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b))[1]
    return [run(a, b), grad(lambda a: jnp.sum(run(a, b)))(a)]


def plain(v):
    if isinstance(v, (list, tuple)):
        return [plain(e) for e in v]
    if isinstance(v, dict):
        return {k: plain(e) for k, e in v.items()}
    v = np.asarray(v)
    return v.astype(np.float64).tolist() if v.dtype != bool else v.tolist()


out = pathlib.Path(__file__).with_name("programs.json")
lines = [f"{json.dumps(n)}: {json.dumps(plain(v))}" for n, v in programs.items()]
out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(len(programs), "programs")
