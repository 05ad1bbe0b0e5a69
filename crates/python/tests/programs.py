"""Programs of the kind that people write with JAX, in names that both have: `jax` is jax or tensorloom, `jnp` its `numpy`.

Left out, since JAX has no integers of 64 bits unless told to: sums of bools and of small integers, and bools beside Python's integers.
Each gives a tree of arrays. `golden_programs.py` keeps what JAX gives.
"""

from collections import namedtuple
from functools import partial

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def data(jnp, *shape, scale=1.0, shift=0.0):
    """Numbers that depend on nothing."""
    n = 1
    for s in shape:
        n *= s
    return (jnp.sin(jnp.arange(n, dtype="float32") * 1.7 + shift) * scale).reshape(shape)


def mlp(jax, jnp, sizes):
    return [
        {"w": data(jnp, a, b, scale=a**-0.5, shift=i), "b": jnp.zeros(b)} for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:]))
    ]


def forward(jnp, params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@program
def gradient_descent_over_a_tree(jax, jnp):
    params = mlp(jax, jnp, [3, 8, 2])
    x, y = data(jnp, 5, 3), data(jnp, 5, 2, shift=3.0)
    loss = lambda p: ((forward(jnp, p, x) - y) ** 2).mean()  # noqa: E731

    @jax.jit
    def step(p):
        value, g = jax.value_and_grad(loss)(p)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value

    losses = []
    for _ in range(5):
        params, value = step(params)
        losses.append(value)
    return params, losses


@program
def adam_by_hand(jax, jnp):
    params = {"a": data(jnp, 4), "b": (data(jnp, 2, 3), [data(jnp, 1)])}
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    loss = lambda p: sum(jnp.sum((x - 1.0) ** 2) for x in jax.tree.leaves(p))  # noqa: E731

    @jax.jit
    def step(i, p, m, v):
        g = jax.grad(loss)(p)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
        c1, c2 = 1 - 0.9 ** (i + 1), 1 - 0.999 ** (i + 1)
        return jax.tree.map(lambda p, m, v: p - 0.1 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), p, m, v), m, v

    for i in range(4):
        params, m, v = step(i, params, m, v)
    return params


@program
def recurrent_network_by_scan(jax, jnp):
    p = {"wx": data(jnp, 3, 4), "wh": data(jnp, 4, 4, scale=0.3), "b": data(jnp, 4, scale=0.1)}
    xs = data(jnp, 6, 2, 3)

    def cell(h, x):
        h = jnp.tanh(x @ p["wx"] + h @ p["wh"] + p["b"])
        return h, h

    h, hs = jax.lax.scan(cell, jnp.zeros((2, 4)), xs)
    return h, hs


@program
def gradient_through_scan_over_trees(jax, jnp):
    def loss(p, xs):
        def cell(carry, x):
            h, count = carry
            h = jnp.tanh(x["a"] * p["w"] + h + x["b"])
            return (h, count + 1), {"h": h.sum(), "n": count}

        (h, n), out = jax.lax.scan(cell, (p["h"], 0), xs)
        return (h**2).sum() + out["h"].sum(), (n, out["n"])

    p = {"w": data(jnp, 4), "h": data(jnp, 4, shift=1.0)}
    xs = {"a": data(jnp, 5, 4, shift=2.0), "b": data(jnp, 5, 4, shift=3.0)}
    return jax.value_and_grad(loss, has_aux=True)(p, xs)


@program
def reverse_scan_and_length(jax, jnp):
    a = jax.lax.scan(lambda c, x: (c * 0.5 + x, c), 0.0, data(jnp, 5), reverse=True)
    b = jax.lax.scan(lambda c, _: (c * 2, c), 1, None, length=4)
    c = jax.lax.scan(lambda c, x: (c + x, None), jnp.float32(0), data(jnp, 4), unroll=2)
    return a, b, c[0]


@program
def fori_and_while(jax, jnp):
    x = data(jnp, 4)
    f = lambda i, c: c + x * i  # noqa: E731
    a = jax.lax.fori_loop(0, 5, f, x)
    b = jax.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] * 1.5), (0, x))
    c = jax.jit(lambda n: jax.lax.fori_loop(0, n, f, x))(3)
    return a, b, c


@program
def newton_by_while(jax, jnp):
    @jax.jit
    def root(a):
        return jax.lax.while_loop(lambda s: jnp.abs(s * s - a) > 1e-4, lambda s: 0.5 * (s + a / s), a)

    return root(2.0), jax.vmap(root)(jnp.array([4.0, 9.0, 2.0]))


@program
def cond_and_switch(jax, jnp):
    x = data(jnp, 3)
    f = lambda k, x: jax.lax.switch(k, [lambda x: x, lambda x: x * 2, lambda x: x - 1], x)  # noqa: E731
    g = jax.jit(lambda p, x: jax.lax.cond(p, lambda a, b: a + b, lambda a, b: a - b, x, 2.0 * x))
    return f(1, x), f(7, x), g(True, x), g(False, x), jax.vmap(g)(x > 0, x), jax.grad(lambda x: g(True, x).sum())(x)


@program
def custom_gradient(jax, jnp):
    @jax.custom_vjp
    def clip_gradient(x, low, high):
        return x

    clip_gradient.defvjp(
        lambda x, low, high: (x, (low, high)), lambda res, g: (jnp.clip(g, res[0], res[1]), None, None)
    )
    f = lambda x: (clip_gradient(x, -0.5, 0.5) * data(jnp, 6, scale=3.0)).sum()  # noqa: E731
    return jax.grad(f)(data(jnp, 6)), jax.vmap(jax.grad(lambda x: clip_gradient(x, -0.5, 0.5) * 3.0))(data(jnp, 3))


@program
def custom_gradient_with_static_argument(jax, jnp):
    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def scaled(k, x):
        return x * k

    scaled.defvjp(lambda k, x: (x * k, x.sum()), lambda k, s, g: (g * k + s,))
    return scaled(3.0, data(jnp, 4)), jax.grad(lambda x: scaled(3.0, x).sum())(data(jnp, 4))


@program
def custom_forward_rule(jax, jnp):
    @jax.custom_jvp
    def log1pexp(x):
        return jnp.log(1.0 + jnp.exp(x))

    @log1pexp.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * dx

    return jax.grad(log1pexp)(100.0), jax.jvp(log1pexp, (data(jnp, 3),), (data(jnp, 3, shift=1.0),)), jax.grad(jax.grad(log1pexp))(0.5)


@program
def at_updates(jax, jnp):
    x = data(jnp, 4, 5)
    i = jnp.array([0, 2, 2])
    f = lambda x: (  # noqa: E731
        x.at[1].set(0.0), x.at[:, 2].add(1.0), x.at[i].add(2.0), x.at[i, jnp.array([1, 1, 1])].multiply(3.0),
        x.at[1:3, ::2].max(0.1), x.at[-1, -1].min(-5.0), x.at[..., 0].divide(2.0), x.at[0, 1].get(), x.at[2].power(2),
    )
    return f(x), jax.jit(f)(x), jax.grad(lambda x: (x.at[i].add(x[i] * 2.0) ** 2).sum())(x)


@program
def at_updates_out_of_bounds(jax, jnp):
    x = data(jnp, 4)
    f = jax.jit(lambda x, i: (x.at[i].set(9.0), x.at[i].add(1.0, mode="drop"), x[i]))
    return f(x, 10), f(x, -1), f(x, 2), x.at[jnp.array([1, 7])].set(5.0)


@program
def masks(jax, jnp):
    x = data(jnp, 3, 4)
    return x[x > 0], jnp.where(x > 0, x, 0.0), x.at[x > 0].set(-1.0), jnp.nonzero(x > 0), jnp.nonzero(x > 0, size=3, fill_value=-1)


@program
def batched_matrices(jax, jnp):
    a, b = data(jnp, 3, 4, 5), data(jnp, 3, 5, 2)
    f = lambda x, y: x @ y  # noqa: E731
    outer = jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(a, b)
    tree = jax.vmap(lambda t, s: t["x"] * s + t["y"], in_axes=({"x": 0, "y": None}, None))({"x": a, "y": a[0]}, 2.0)
    return jax.vmap(f)(a, b), outer, tree, jax.vmap(lambda x: x.sum(0), in_axes=1, out_axes=1)(a), jax.vmap(f, (1, None), 0)(a, b[0, :, :])


@program
def derivatives_of_derivatives(jax, jnp):
    f = lambda x: jnp.sin(x) * jnp.exp(-x * x)  # noqa: E731
    g = f
    out = []
    for _ in range(4):
        out.append(g(0.3))
        g = jax.grad(g)
    x = data(jnp, 3)
    h = lambda x: (x**3).sum() + x[0] * x[1]  # noqa: E731
    v = jnp.array([1.0, 2.0, 3.0])
    hvp = jax.jvp(jax.grad(h), (x,), (v,))[1]
    return out, jax.hessian(h)(x), hvp, jax.jacfwd(jax.jacrev(lambda x: x * x.sum()))(x)


@program
def jacobians_of_trees(jax, jnp):
    f = lambda p: {"u": p["a"] * p["b"].sum(), "v": p["b"] ** 2}  # noqa: E731
    p = {"a": data(jnp, 2), "b": data(jnp, 3)}
    return jax.jacrev(f)(p), jax.jacfwd(f)(p), jax.jacrev(lambda x, y: x * y, argnums=(0, 1))(data(jnp, 2), data(jnp, 2, shift=1.0))


@program
def vjp_and_linearize(jax, jnp):
    f = lambda x, p: (jnp.sin(x) * p["k"], x.sum())  # noqa: E731
    x, p = data(jnp, 3), {"k": data(jnp, 3, shift=2.0)}
    y, back = jax.vjp(f, x, p)
    z, push = jax.linearize(lambda x: jnp.sin(x) ** 2, x)
    (a, aux_back, aux) = jax.vjp(lambda x: (x**2, {"s": x.sum()}), x, has_aux=True)
    return y, back((x, 1.0)), z, push(x), a, aux_back(x), aux


@program
def static_arguments(jax, jnp):
    @partial(jax.jit, static_argnums=1, static_argnames=("mode",))
    def f(x, n, mode="sum"):
        for _ in range(n):
            x = x * 2
        return getattr(jnp, mode)(x)

    @partial(jax.jit, static_argnames="shape")
    def g(x, shape):
        return x.reshape(shape)

    return f(data(jnp, 3), 2), f(data(jnp, 3), 3, mode="mean"), g(data(jnp, 6), shape=(2, 3)), g(data(jnp, 6), shape=(3, 2))


@program
def named_tuples_and_none(jax, jnp):
    State = namedtuple("State", "params step extra")
    s = State({"w": data(jnp, 2)}, 0, None)

    @jax.jit
    def step(s):
        return s._replace(params=jax.tree.map(lambda x: x * 0.5, s.params), step=s.step + 1)

    s = step(step(s))
    return s.params, s.step, s.extra is None, isinstance(s, State)


@program
def trees(jax, jnp):
    t = {"b": [data(jnp, 2), (data(jnp, 1), None)], "a": 3.0}
    leaves, structure = jax.tree.flatten(t)
    back = jax.tree.unflatten(structure, [x * 2 for x in leaves])
    total = jax.tree.reduce(lambda a, b: a + jnp.sum(b), t, 0.0)
    return leaves, back, total, jax.tree.structure(t) == jax.tree.structure(back), len(jax.tree.leaves(t)), jax.tree.map(jnp.shape, t["b"][0])


@program
def random_keys(jax, jnp):
    key = jax.random.PRNGKey(42)
    k1, k2 = jax.random.split(key)
    many = jax.random.split(k1, 3)
    return (
        key, k1, k2, many, jax.random.fold_in(key, 7), jax.random.normal(k1, (4,)), jax.random.uniform(k2, (2, 2)),
        jax.random.uniform(k2, (3,), minval=-1.0, maxval=2.0), jax.random.randint(k1, (5,), 0, 10), jax.random.bernoulli(k1, 0.3, (6,)),
        jax.random.permutation(k2, 7), jax.vmap(lambda k: jax.random.normal(k, (2,)))(many), jax.random.normal(k1), jax.random.uniform(k2),
        jax.random.bits(k1, (3,)),
    )


@program
def more_random(jax, jnp):
    k = jax.random.key(3)
    kd = jax.random.PRNGKey(3)
    logits = jnp.log(jnp.array([0.1, 0.2, 0.7]))
    return (
        jax.random.normal(k, (3,)), jax.random.exponential(kd, (3,)), jax.random.gumbel(kd, (3,)), jax.random.categorical(kd, logits),
        jax.random.categorical(kd, logits, shape=(5,)), jax.random.truncated_normal(kd, -1.0, 1.0, (4,)), jax.random.choice(kd, 5, (3,)),
        jax.random.permutation(kd, jnp.arange(12).reshape(4, 3)), jax.random.laplace(kd, (3,)), jax.random.cauchy(kd, (3,)),
    )


@program
def initial_values(jax, jnp):
    make, key = jax.nn.initializers, jax.random.PRNGKey(1)
    out = {
        n: getattr(make, n)()(key, (3, 4))
        for n in "glorot_uniform glorot_normal he_uniform he_normal lecun_uniform lecun_normal normal uniform truncated_normal xavier_uniform".split()
    }
    return out, make.zeros(key, (2,)), make.constant(3.0)(key, (2,)), make.he_normal(in_axis=1, out_axis=0)(key, (4, 3, 2)), make.variance_scaling(0.5, "fan_out", "normal")(key, (2, 3))


@program
def texts_of_numbers(jax, jnp):
    x = jnp.asarray(1.25)
    return f"{x:.3f}", f"{jnp.asarray(7):d}", format(jnp.float32(0.5), ".1e"), f"{float(x)} {int(jnp.asarray(3))} {bool(jnp.asarray(True))}", [1, 2, 3][jnp.asarray(1)] == 2


@program
def branches_by_name(jax, jnp):
    x = data(jnp, 3)
    a = jax.lax.cond(x[0] > -1, lambda v: v * 2, lambda v: v, x)
    b = jax.lax.while_loop(cond_fun=lambda c: c["i"] < 3, body_fun=lambda c: {"i": c["i"] + 1, "x": c["x"] * 2}, init_val={"i": 0, "x": x})
    c = jax.lax.fori_loop(lower=0, upper=3, body_fun=lambda i, c: c + i, init_val=0)
    return a, b, c, jnp.select([x > 0.5, x > 0], [x, x * 10]), jax.lax.map(f=lambda v: v + 1, xs=x)


@program
def einsums(jax, jnp):
    a, b, c = data(jnp, 2, 3, 4), data(jnp, 2, 4, 5), data(jnp, 5)
    return (
        jnp.einsum("bij,bjk->bik", a, b), jnp.einsum("bij,bjk,k->bi", a, b, c), jnp.einsum("ij->ji", a[0]), jnp.einsum("ii", a[0, :3, :3]),
        jnp.einsum("...ij,...jk", a, b), jnp.einsum("i,j->ij", c, c), jax.grad(lambda a: jnp.einsum("bij,bjk->", a, b))(a),
    )


@program
def dtypes(jax, jnp):
    i, f, h, b = jnp.arange(3), data(jnp, 3), data(jnp, 3).astype(jnp.bfloat16), data(jnp, 3) > 0
    made = {
        "i+f": i + f, "i*2.5": i * 2.5, "i/2": i / 2, "h+f": h + f, "h*2.0": h * 2.0, "b*f": b * f, "i//2": i // 2, "f**2": f**2,
        "i**2": i**2, "mean i": i.mean(), "u8+i32": i.astype("uint8") + i, "i8+u8": i.astype("int8") + i.astype("uint8"),
        "1/i": 1 / (i + 1), "-b": ~b, "f16+bf16": f.astype("float16") + h, "sqrt i": jnp.sqrt(i),
    }
    return {k: (str(v.dtype), v.astype("float32")) for k, v in made.items()}


@program
def creation(jax, jnp):
    return (
        jnp.arange(2, 10, 3), jnp.arange(0.0, 1.0, 0.25), jnp.linspace(0, 1, 5), jnp.eye(3, k=1), jnp.full((2, 2), 7), jnp.array([[1, 2], [3, 4]]),
        jnp.array([1.0, 2]), jnp.zeros((2, 0)).shape, jnp.ones_like(jnp.arange(3)), jnp.tri(3), jnp.diag(data(jnp, 3)), jnp.identity(2),
        jnp.logspace(0, 2, 3), jnp.meshgrid(jnp.arange(2), jnp.arange(3)), jnp.array([True, False]), jnp.array(3).dtype.name,
    )


@program
def reductions(jax, jnp):
    x = data(jnp, 3, 4)
    return (
        x.sum(), x.mean(0), x.max(axis=1, keepdims=True), x.std(), x.var(axis=0, ddof=1), x.argmax(), x.argmin(axis=1), jnp.median(x),
        jnp.percentile(x, 30.0), jnp.prod(x, axis=1), x.min(initial=-2.0), jnp.sum(x, where=x > 0), jnp.any(x > 0.9), jnp.all(x > -2, axis=0),
        jnp.cumsum(x, axis=1), jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1), jax.nn.logsumexp(x, axis=-1), jnp.ptp(x), jnp.average(x, weights=x**2),
        jnp.nansum(jnp.log(x - 0.5)), jnp.count_nonzero(x > 0), jnp.quantile(x, jnp.array([0.2, 0.8]), axis=1),
    )


@program
def shapes(jax, jnp):
    x = data(jnp, 2, 3, 4)
    return (
        x.reshape(6, -1), x.transpose(2, 0, 1), x.swapaxes(0, 1), jnp.moveaxis(x, 0, -1), jnp.squeeze(x[:1]), x[None].shape, jnp.expand_dims(x, (0, 2)).shape,
        jnp.concatenate([x, x], 1), jnp.stack([x, x], -1).shape, jnp.split(x, 2, axis=2), jnp.array_split(jnp.arange(7), 3), jnp.vstack([x[0], x[1]]),
        jnp.hstack([x[0], x[1]]), jnp.broadcast_to(x[0, 0], (2, 4)), jnp.flip(x, 1), jnp.roll(x, 1, 0), jnp.tile(x[0], (2, 1)), jnp.repeat(x[0], 2, axis=0),
        jnp.pad(x[0], 1), jnp.pad(x[0], ((0, 1), (2, 0)), mode="edge"), x.ravel(), x.flatten().shape, jnp.atleast_2d(x[0, 0]).shape, jnp.rot90(x[0]),
        x.T.shape, x[..., ::-1], x[:, jnp.newaxis].shape, jnp.swapaxes(x, 0, 2).shape, jnp.triu(x[0]), jnp.diagonal(x[0]), jnp.split(x, [1, 3], axis=2),
    )


@program
def sorting(jax, jnp):
    x = data(jnp, 3, 5)
    return (
        jnp.sort(x), jnp.sort(x, axis=0), jnp.argsort(x, axis=1), jax.lax.top_k(x, 2), jnp.unique(jnp.array([3, 1, 3, 2])), jnp.searchsorted(jnp.sort(x[0]), 0.1),
        jnp.sort(x, descending=True), jnp.argsort(-x[0]), jnp.bincount(jnp.array([0, 2, 2, 5])), jnp.digitize(x[0], jnp.array([-0.5, 0.0, 0.5])),
        jnp.histogram(x, bins=4)[0], jnp.flatnonzero(x[0] > 0), jnp.argwhere(x > 0.9), jnp.take_along_axis(x, jnp.argmax(x, 1)[:, None], 1),
        jnp.interp(0.3, jnp.array([0.0, 1.0]), jnp.array([2.0, 4.0])), jnp.convolve(x[0], x[1, :3]), jnp.lexsort((x[0], x[1])),
    )


@program
def attention(jax, jnp):
    q, k, v = (data(jnp, 2, 5, 8, shift=s) for s in (0.0, 1.0, 2.0))

    def f(q, k, v):
        s = jnp.einsum("bqd,bkd->bqk", q, k) / jnp.sqrt(8.0)
        mask = jnp.tril(jnp.ones((5, 5), dtype=bool))
        s = jnp.where(mask, s, -jnp.inf)
        return jax.nn.softmax(s, axis=-1) @ v

    return f(q, k, v), jax.grad(lambda q: (f(q, k, v) ** 2).sum())(q)


@program
def layers(jax, jnp):
    x = data(jnp, 4, 6, scale=2.0)
    labels = jnp.array([0, 5, 2, 1])
    logp = jax.nn.log_softmax(x)
    nll = -jnp.take_along_axis(logp, labels[:, None], axis=1).mean()
    nll2 = -(jax.nn.one_hot(labels, 6) * logp).sum(-1).mean()
    norm = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return nll, nll2, norm, jax.nn.gelu(x), jax.nn.gelu(x, approximate=False), jax.nn.leaky_relu(x), jax.nn.elu(x), jax.nn.softplus(x), jax.nn.silu(x), jax.nn.standardize(x)


@program
def convolution(jax, jnp):
    x, w = data(jnp, 2, 3, 8, 8), data(jnp, 4, 3, 3, 3, scale=0.2)
    y = jax.lax.conv(x, w, (1, 1), "SAME")
    z = jax.lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    nhwc = jax.lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), [(1, 1), (0, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC"))
    pool = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    grads = jax.grad(lambda w: (jax.lax.conv(x, w, (1, 1), "SAME") ** 2).mean())(w)
    return y, z, nhwc, pool, grads


@program
def primitives(jax, jnp):
    x = data(jnp, 4, 5)
    lax = jax.lax
    return (
        lax.dynamic_slice(x, (1, 2), (2, 2)), lax.dynamic_update_slice(x, jnp.zeros((2, 2)), (3, 0)), lax.dynamic_index_in_dim(x, 2, 0),
        lax.slice(x, (0, 1), (3, 5), (1, 2)), lax.broadcast_in_dim(x[0], (3, 5), (1,)), lax.select(x > 0, x, -x), lax.clamp(-0.5, x, 0.5), lax.rsqrt(x + 2.0),
        lax.dot(x, x.T), lax.expand_dims(x, (0,)).shape, lax.cumsum(x, axis=1), lax.iota("int32", 4), lax.concatenate([x, x], 0), lax.rev(x, (0,)),
        lax.dot_general(x, x, (((1,), (1,)), ((), ()))), lax.reduce_max(x, (0,)), lax.convert_element_type(x, "int32"), lax.erf(x), lax.pad(x, 0.0, ((1, 0, 0), (0, 1, 1))),
        lax.associative_scan(jnp.add, x), lax.map(lambda r: r.sum(), x), lax.sort(x), lax.integer_pow(x, 3), lax.sign(x), lax.exp(x), lax.max(x, 0.2),
    )


@program
def linear_algebra(jax, jnp):
    a = data(jnp, 4, 4) + 3 * jnp.eye(4)
    s = a @ a.T
    u, d, vh = jnp.linalg.svd(a)
    return (
        jnp.linalg.inv(a), jnp.linalg.solve(a, data(jnp, 4)), jnp.linalg.det(a), jnp.linalg.cholesky(s), jnp.linalg.eigh(s)[0], d, (u * d) @ vh,
        jnp.linalg.slogdet(a), jnp.linalg.qr(a)[0].shape, jnp.linalg.matrix_power(a, 3), jnp.linalg.pinv(a[:, :2]), jnp.linalg.lstsq(a[:, :2], data(jnp, 4))[0],
        jax.grad(lambda a: jnp.linalg.slogdet(a)[1])(a), jnp.trace(a), jnp.kron(a[:2, :2], jnp.eye(2)), jnp.cross(a[0, :3], a[1, :3]), jnp.vdot(a, a),
    )


@program
def checkpointed(jax, jnp):
    @jax.checkpoint
    def block(p, x):
        return jnp.tanh(x @ p)

    def loss(ps, x):
        for p in ps:
            x = block(p, x)
        return (x**2).sum()

    return jax.jit(jax.grad(loss))([data(jnp, 3, 3, shift=i) for i in range(3)], data(jnp, 2, 3))


@program
def per_example_gradients(jax, jnp):
    params = mlp(jax, jnp, [3, 4, 1])
    loss = lambda p, x, y: ((forward(jnp, p, x) - y) ** 2).sum()  # noqa: E731
    g = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(params, data(jnp, 5, 3), data(jnp, 5, 1))
    norms = jnp.sqrt(sum(jnp.sum(x**2, axis=tuple(range(1, x.ndim))) for x in jax.tree.leaves(g)))
    return g, norms


@program
def model_agnostic_meta_learning(jax, jnp):
    loss = lambda p, x, y: ((x * p["a"] + p["b"] - y) ** 2).mean()  # noqa: E731

    def adapted(p, x, y):
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(loss)(p, x, y))

    def outer(p, xs, ys):
        return jax.vmap(lambda x, y: loss(adapted(p, x, y), x, y))(xs, ys).mean()

    return jax.jit(jax.value_and_grad(outer))({"a": 0.5, "b": 0.1}, data(jnp, 3, 4), data(jnp, 3, 4, shift=1.0))


@program
def long_short_term_memory(jax, jnp):
    def lstm(p, xs):
        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ p["wx"] + h @ p["wh"] + p["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((xs.shape[1], 3))
        return jax.lax.scan(cell, (zeros, zeros), xs)[1]

    p = {"wx": data(jnp, 2, 12), "wh": data(jnp, 3, 12, scale=0.5), "b": data(jnp, 12, scale=0.1)}
    return jax.value_and_grad(lambda p: (lstm(p, data(jnp, 4, 2, 2)) ** 2).sum())(p)


@program
def ordinary_differential_equation(jax, jnp):
    def f(y, t, p):
        return jnp.stack([y[1], -p * y[0] + 0 * t])

    def rk4(p, y0):
        def step(y, t):
            h = 0.1
            k1 = f(y, t, p)
            k2 = f(y + h / 2 * k1, t + h / 2, p)
            k3 = f(y + h / 2 * k2, t + h / 2, p)
            k4 = f(y + h * k3, t + h, p)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y, y

        return jax.lax.scan(step, y0, jnp.arange(20) * 0.1)[1]

    return rk4(2.0, jnp.array([1.0, 0.0])), jax.grad(lambda p: rk4(p, jnp.array([1.0, 0.0]))[-1, 0])(2.0)


@program
def registered_classes(jax, jnp):
    @jax.tree_util.register_pytree_node_class
    class Linear:
        def __init__(self, w, b, name):
            self.w, self.b, self.name = w, b, name

        def __call__(self, x):
            return x @ self.w + self.b

        def tree_flatten(self):
            return (self.w, self.b), self.name

        @classmethod
        def tree_unflatten(cls, name, children):
            return cls(*children, name)

    m = Linear(data(jnp, 3, 2), jnp.zeros(2), "first")
    g = jax.jit(jax.grad(lambda m, x: (m(x) ** 2).sum()))(m, data(jnp, 4, 3))
    m = jax.tree.map(lambda p, g: p - 0.1 * g, m, g)
    return m.w, m.b, m.name == "first", g.name == "first", len(jax.tree.leaves(m))


@program
def donated_arguments(jax, jnp):
    step = jax.jit(lambda s, x: (s * 0.9 + x, s.sum()), donate_argnums=0)
    s = data(jnp, 8)
    for i in range(3):
        s, total = step(s, data(jnp, 8, shift=float(i)))
    return s, total


@program
def shapes_without_values(jax, jnp):
    out = jax.eval_shape(lambda x, y: {"z": x @ y, "n": x.sum()}, data(jnp, 3, 4), data(jnp, 4, 2))
    return out["z"].shape, str(out["z"].dtype), out["n"].shape


@program
def functions_by_name(jax, jnp):
    f = lambda x, *, scale, shift=0.0: x * scale + shift  # noqa: E731
    x = data(jnp, 3)
    g = jax.grad(lambda x, k=2.0: (x**k).sum())
    return jax.jit(f)(x, scale=2.0), jax.jit(f)(x, scale=2.0, shift=1.0), g(x + 2), g(x + 2, k=3.0), jax.vmap(lambda x, s: x * s)(x, s=x)


@program
def scan_over_stacked_layers(jax, jnp):
    layers = [{"w": data(jnp, 4, 4, scale=0.1 * (i + 1)), "b": jnp.ones(4) * i} for i in range(3)]
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *layers)
    f = lambda x: jax.lax.scan(lambda h, p: (jnp.tanh(h @ p["w"] + p["b"]), None), x, stacked)[0]  # noqa: E731
    return f(data(jnp, 2, 4)), jax.grad(lambda x: f(x).sum())(data(jnp, 2, 4))


@program
def losses_by_indices(jax, jnp):
    logits, labels = data(jnp, 5, 7), jnp.array([1, 0, 6, 3, 3])
    f = lambda x: -jax.nn.log_softmax(x)[jnp.arange(5), labels].mean()  # noqa: E731
    return f(logits), jax.grad(f)(logits), (logits.argmax(1) == labels).mean(), jnp.eye(7)[labels]


@program
def nearest_centres(jax, jnp):
    x = data(jnp, 15, 2)

    def step(c, _):
        a = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)
        hot = jax.nn.one_hot(a, 3)
        return (hot.T @ x) / jnp.maximum(hot.sum(0)[:, None], 1), a

    return jax.lax.scan(step, x[:3], None, length=4)


@program
def loops_that_write(jax, jnp):
    a = jax.lax.fori_loop(1, 6, lambda i, a: a.at[i].set(a[i - 1] * 2 + i), jnp.ones(6))
    b = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, a: a.at[i, :].add(x[i]), jnp.zeros((3, 2))))(data(jnp, 3))
    return a, b, jnp.correlate(data(jnp, 5), data(jnp, 3)), jnp.convolve(data(jnp, 5), data(jnp, 3), mode="same")


@program
def many_keys(jax, jnp):
    keys = jax.random.split(jax.random.PRNGKey(1), 4)
    return jax.vmap(lambda k: jax.random.uniform(k, (3,)))(keys), jax.vmap(jax.random.split)(keys), jax.random.split(jax.random.PRNGKey(2), (2, 3))


@program
def unpacking(jax, jnp):
    a, b, c = data(jnp, 3)
    x, y = jnp.split(data(jnp, 4), 2)
    return a, b, c, x, y, list(data(jnp, 2, 2))[1], [v * 2 for v in data(jnp, 3)], jax.jit(lambda x: jnp.array([x.sum(), x.max(), x[0]]))(data(jnp, 4))


def _name(f):
    try:
        f()
    except (TypeError, ValueError, IndexError):
        # Which of them it is differs: shapes that don't fit are a TypeError in parts of JAX, and a ValueError here.
        return "an error"
    return "nothing"


@program
def errors(jax, jnp):
    x = data(jnp, 3, 4)
    bad = {
        "shapes": lambda: x + jnp.ones(3), "matmul": lambda: x @ x, "grad of a vector": lambda: jax.grad(lambda x: x)(x), "bool of a trace": lambda: jax.jit(lambda x: 1 if x.sum() > 0 else 2)(x),
        "float of a trace": lambda: jax.jit(lambda x: float(x.sum()))(x), "reshape": lambda: x.reshape(5), "scan's carry": lambda: jax.lax.scan(lambda c, x: (x, c), jnp.zeros(2), x),
        "vmap sizes": lambda: jax.vmap(lambda a, b: a + b)(x, jnp.ones(2)), "grad of ints": lambda: jax.grad(lambda i: i * 1.0)(jnp.array(3)), "cond's branches": lambda: jax.lax.cond(True, lambda: jnp.ones(2), lambda: jnp.ones(3)),
        "too many indices": lambda: x[0, 0, 0], "unhashable static": lambda: jax.jit(lambda x, n: x, static_argnums=1)(x, [1]), "assignment": lambda: jax.jit(lambda x: jnp.concatenate([x, jnp.ones(2)]))(x),
        "trees": lambda: jax.tree.map(lambda a, b: a, {"a": 1.0}, {"b": 1.0}), "einsum": lambda: jnp.einsum("ij,jk->ik", x, x), "axis": lambda: x.sum(axis=3),
        "stack": lambda: jnp.stack([x, x[0]]), "array of a trace": lambda: jax.jit(lambda x: __import__("numpy").asarray(x))(x), "ints from a trace": lambda: jax.jit(lambda n: jnp.zeros(n))(3),
    }
    return {k: _name(f) for k, f in bad.items()}


OPTIMIZERS = {
    "sgd": lambda o: o.sgd(0.1), "momentum": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True), "adam": lambda o: o.adam(0.1), "nadam": lambda o: o.nadam(0.1),
    "adamw": lambda o: o.adamw(0.1, weight_decay=0.01), "adamax": lambda o: o.adamax(0.1), "amsgrad": lambda o: o.amsgrad(0.1), "adabelief": lambda o: o.adabelief(0.1),
    "yogi": lambda o: o.yogi(0.1), "radam": lambda o: o.radam(0.1), "adagrad": lambda o: o.adagrad(0.1), "adadelta": lambda o: o.adadelta(1.0),
    "rmsprop": lambda o: o.rmsprop(0.01), "rmsprop, centred": lambda o: o.rmsprop(0.01, centered=True, momentum=0.9), "lion": lambda o: o.lion(0.01), "lamb": lambda o: o.lamb(0.01),
    "sign": lambda o: o.sign_sgd(0.01), "a chain": lambda o: o.chain(o.clip_by_global_norm(0.5), o.add_decayed_weights(0.01), o.trace(0.9), o.scale(-0.1)),
    "a schedule": lambda o: o.adam(o.linear_schedule(0.1, 0.01, 4)), "clipped": lambda o: o.chain(o.clip(0.05), o.sgd(0.5)),
}
SCHEDULES = {
    "constant": lambda o: o.constant_schedule(0.3), "linear": lambda o: o.linear_schedule(1.0, 0.1, 20), "polynomial": lambda o: o.polynomial_schedule(1.0, 0.1, 2, 20, 5),
    "exponential": lambda o: o.exponential_decay(1.0, 10, 0.5), "stairs": lambda o: o.exponential_decay(1.0, 10, 0.5, staircase=True), "cosine": lambda o: o.cosine_decay_schedule(1.0, 40, 0.1),
    "warmup": lambda o: o.warmup_cosine_decay_schedule(0.0, 1.0, 5, 50, 0.1), "pieces": lambda o: o.piecewise_constant_schedule(1.0, {10: 0.5, 20: 0.1}),
}


def trained(jax, jnp, optim, make):
    """Parameters after a few steps of an optimiser."""
    optimizer = make(optim)
    params = {"w": data(jnp, 3, 2), "b": [data(jnp, 2)]}
    x, y = data(jnp, 6, 3, shift=1.0), data(jnp, 6, 2, shift=2.0)

    @jax.jit
    def step(params, state):
        loss = lambda p: ((jnp.tanh(x @ p["w"] + p["b"][0]) - y) ** 2).mean()  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(6):
        params, state = step(params, state)
    return params
