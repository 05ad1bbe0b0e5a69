"""Small whole programs of a first week, as the calls of `first_week.py`: `J` is jax or tensorloom, `m` its `numpy`."""

from typing import NamedTuple

from first_week import d, day


class State(NamedTuple):
    """What a training loop carries."""

    params: dict
    step: int


@day
def logistic_regression(J, m):  # noqa: N803
    X, y = (d(m, 20, 3), (d(m, 20) > 0).astype(m.float32))
    def loss(w, b):
        z = X @ w + b
        return m.mean(m.logaddexp(0, z) - y * z) + 0.01 * m.sum(w ** 2)
    w, b = (m.zeros(3), 0.0)
    g = J.jit(J.grad(loss, argnums=(0, 1)))
    for _ in range(10):
        gw, gb = g(w, b)
        w, b = (w - 0.5 * gw, b - 0.5 * gb)
    return [
        w, b, m.mean((X @ w + b > 0) == y),
    ]


@day
def gaussian_process(J, m):  # noqa: N803
    x = m.linspace(0, 3, 8)
    xs = m.linspace(0, 3, 5)
    k = lambda a, b, l: m.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / l ** 2)
    def nll(l):
        K = k(x, x, l) + 0.01 * m.eye(8)
        L = m.linalg.cholesky(K)
        a = J.scipy.linalg.cho_solve((L, True), m.sin(x))
        return 0.5 * m.dot(m.sin(x), a) + m.sum(m.log(m.diag(L)))
    return [
        nll(1.0), J.grad(nll)(1.0), k(xs, x, 1.0) @ m.linalg.solve(k(x, x, 1.0) + 0.01 * m.eye(8), m.sin(x)),
    ]


@day
def kalman(J, m):  # noqa: N803
    A, H, Q, R = (m.array([[1.0, 0.1], [0, 1.0]]), m.array([[1.0, 0.0]]), 0.01 * m.eye(2), m.array([[0.1]]))
    def step(s, z):
        mu, P = s
        mu = A @ mu
        P = A @ P @ A.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ m.linalg.inv(S)
        mu = mu + K @ (z - H @ mu)
        P = (m.eye(2) - K @ H) @ P
        return ((mu, P), mu)
    return [
        J.lax.scan(step, (m.zeros(2), m.eye(2)), d(m, 6, 1)),
    ]


@day
def hmm_forward(J, m):  # noqa: N803
    T = J.nn.log_softmax(d(m, 3, 3), axis=1)
    E = J.nn.log_softmax(d(m, 3, 4), axis=1)
    obs = m.array([0, 3, 1, 2, 2])
    def f(a, o):
        a = J.nn.logsumexp(a[:, None] + T, axis=0) + E[:, o]
        return (a, a)
    a0 = m.log(m.ones(3) / 3) + E[:, obs[0]]
    last, al = J.lax.scan(f, a0, obs[1:])
    def v(s, o):
        sc = s[:, None] + T
        return (sc.max(0) + E[:, o], sc.argmax(0))
    return [
        J.nn.logsumexp(last), al, J.lax.scan(v, a0, obs[1:]),
    ]


@day
def metropolis(J, m):  # noqa: N803
    lp = lambda x: -0.5 * m.sum(x ** 2)
    def step(s, k):
        x, n = s
        k1, k2 = J.random.split(k)
        p = x + 0.5 * J.random.normal(k1, x.shape)
        a = m.log(J.random.uniform(k2)) < lp(p) - lp(x)
        return ((m.where(a, p, x), n + a), x)
    return [
        J.lax.scan(step, (m.ones(2), 0), J.random.split(J.random.PRNGKey(3), 20)),
    ]


@day
def life(J, m):  # noqa: N803
    b = (d(m, 6, 6) > 0.2).astype(m.int32)
    def step(b, _):
        n = sum((m.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)))
        return (((n == 3) | (b == 1) & (n == 2)).astype(m.int32), b.sum())
    return [
        J.lax.scan(step, b, None, length=5),
    ]


@day
def mandelbrot(J, m):  # noqa: N803
    x, y = m.meshgrid(m.linspace(-2, 1, 8), m.linspace(-1, 1, 6))
    def body(i, s):
        zr, zi, n = s
        a = zr * zr + zi * zi < 4
        nr, ni = (zr * zr - zi * zi + x, 2 * zr * zi + y)
        return (m.where(a, nr, zr), m.where(a, ni, zi), n + a.astype(m.int32))
    return [
        J.lax.fori_loop(0, 20, body, (m.zeros_like(x), m.zeros_like(x), m.zeros(x.shape, m.int32)))[2],
    ]


@day
def pagerank(J, m):  # noqa: N803
    A = (d(m, 5, 5) > 0).astype(m.float32)
    P = A / m.maximum(A.sum(0, keepdims=True), 1)
    def cond(s):
        return m.logical_and(m.max(m.abs(s[0] - s[1])) > 1e-06, s[2] < 100)
    def body(s):
        r, _, i = s
        return (0.85 * P @ r + 0.15 / 5, r, i + 1)
    return [
        J.lax.while_loop(cond, body, (m.ones(5) / 5, m.zeros(5), 0))[0],
    ]


@day
def cnn(J, m):  # noqa: N803
    k = J.random.PRNGKey(0)
    ks = J.random.split(k, 3)
    p = {'c1': J.random.normal(ks[0], (3, 3, 1, 4)) * 0.1, 'c2': J.random.normal(ks[1], (3, 3, 4, 8)) * 0.1, 'w': J.random.normal(ks[2], (8 * 2 * 2, 10)) * 0.1}
    def f(p, x):
        dn = ('NHWC', 'HWIO', 'NHWC')
        for n in ('c1', 'c2'):
            x = J.nn.relu(J.lax.conv_general_dilated(x, p[n], (1, 1), 'SAME', dimension_numbers=dn))
            x = J.lax.reduce_window(x, -m.inf, J.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')
        return x.reshape(x.shape[0], -1) @ p['w']
    x, y = (d(m, 4, 8, 8, 1), m.array([1, 2, 3, 4]))
    loss = lambda p: -m.mean(m.take_along_axis(J.nn.log_softmax(f(p, x)), y[:, None], axis=1))
    return [
        loss(p), J.jit(J.grad(loss))(p),
    ]


@day
def vae(J, m):  # noqa: N803
    k = J.random.PRNGKey(1)
    p = {'e': J.random.normal(k, (6, 4)) * 0.3, 'd': J.random.normal(k, (2, 6)) * 0.3}
    x = J.nn.sigmoid(d(m, 5, 6))
    def elbo(p, key):
        h = x @ p['e']
        mu, lv = m.split(h, 2, axis=-1)
        z = mu + m.exp(0.5 * lv) * J.random.normal(key, mu.shape)
        r = z @ p['d']
        return m.mean(m.sum(m.maximum(r, 0) - r * x + m.log1p(m.exp(-m.abs(r))), -1) - 0.5 * m.sum(1 + lv - mu ** 2 - m.exp(lv), -1))
    return [
        J.value_and_grad(elbo)(p, J.random.fold_in(k, 7)),
    ]


@day
def transformer_block(J, m):  # noqa: N803
    B, T, D, H = (2, 5, 8, 2)
    p = {'qkv': d(m, D, 3 * D) * 0.2, 'o': d(m, D, D) * 0.2, 'w1': d(m, D, 16) * 0.2, 'w2': d(m, 16, D) * 0.2, 'g': m.ones(D)}
    ln = lambda x, g: g * (x - x.mean(-1, keepdims=True)) / m.sqrt(x.var(-1, keepdims=True) + 1e-05)
    def f(p, x):
        q, k, v = m.split(ln(x, p['g']) @ p['qkv'], 3, -1)
        sh = lambda t: t.reshape(B, T, H, D // H).transpose(0, 2, 1, 3)
        a = m.einsum('bhqd,bhkd->bhqk', sh(q), sh(k)) / m.sqrt(D / H)
        a = m.where(m.tril(m.ones((T, T), bool)), a, -m.inf)
        x = x + m.einsum('bhqk,bhkd->bqhd', J.nn.softmax(a, -1), sh(v)).reshape(B, T, D) @ p['o']
        return x + J.nn.gelu(ln(x, p['g']) @ p['w1']) @ p['w2']
    x = d(m, B, T, D)
    return [
        f(p, x), J.grad(lambda p: f(p, x).sum())(p), J.jit(J.checkpoint(f))(p, x),
    ]


@day
def newton(J, m):  # noqa: N803
    f = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    x = m.array([-1.0, 1.5])
    for _ in range(6):
        x = x - m.linalg.solve(J.hessian(f)(x), J.grad(f)(x))
    return [
        x, f(x),
    ]


@day
def hvp(J, m):  # noqa: N803
    f = lambda x: m.sum(m.exp(x) * m.sin(x))
    x = d(m, 4)
    v = m.ones(4)
    return [
        J.jvp(J.grad(f), (x,), (v,))[1], J.grad(lambda x: m.vdot(J.grad(f)(x), v))(x),
    ]


@day
def pendulum(J, m):  # noqa: N803
    def rhs(s):
        return m.array([s[1], -m.sin(s[0])])
    def rk4(s, _):
        h = 0.1
        a = rhs(s)
        b = rhs(s + h / 2 * a)
        c_ = rhs(s + h / 2 * b)
        e = rhs(s + h * c_)
        return (s + h / 6 * (a + 2 * b + 2 * c_ + e), s)
    return [
        J.lax.scan(rk4, m.array([1.0, 0.0]), None, length=10), J.jacrev(lambda s: J.lax.scan(rk4, s, None, length=5)[0])(m.array([1.0, 0.0])),
    ]


@day
def beam(J, m):  # noqa: N803
    lg = J.nn.log_softmax(d(m, 5, 7))
    s, i = J.lax.top_k(lg.reshape(-1), 4)
    return [
        s, i // 7, i % 7, m.unravel_index(i, (5, 7)),
    ]


@day
def train_state(J, m):  # noqa: N803
    s = State({'w': d(m, 3)}, 0)
    @J.jit
    def up(s, x):
        g = J.grad(lambda p: ((p['w'] * x).sum() - 1) ** 2)(s.params)
        return s._replace(params=J.tree.map(lambda p, g: p - 0.1 * g, s.params, g), step=s.step + 1)
    for _ in range(3):
        s = up(s, m.ones(3))
    return [
        s.params, s.step,
    ]


@day
def per_sample_clip(J, m):  # noqa: N803
    f = lambda w, x, y: (m.dot(w, x) - y) ** 2
    g = J.vmap(J.grad(f), in_axes=(None, 0, 0))(d(m, 3), d(m, 5, 3), d(m, 5))
    n = m.linalg.norm(g, axis=1, keepdims=True)
    return [
        (g / m.maximum(1, n)).mean(0),
    ]


@day
def batchnorm(J, m):  # noqa: N803
    def bn(x, st, tr):
        if tr:
            mu, v = (x.mean(0), x.var(0))
            st = {'m': 0.9 * st['m'] + 0.1 * mu, 'v': 0.9 * st['v'] + 0.1 * v}
        else:
            mu, v = (st['m'], st['v'])
        return ((x - mu) / m.sqrt(v + 1e-05), st)
    f = J.jit(bn, static_argnums=2)
    y, st = f(d(m, 6, 3), {'m': m.zeros(3), 'v': m.ones(3)}, True)
    return [
        y, st, f(d(m, 2, 3), st, False)[0],
    ]


@day
def dqn(J, m):  # noqa: N803
    q = lambda w, s: s @ w
    w, t = (d(m, 4, 2), d(m, 4, 2) * 0.5)
    s, a, r, s2, dn = (d(m, 6, 4), m.array([0, 1, 0, 1, 1, 0]), d(m, 6), d(m, 6, 4) * 0.7, m.array([0, 0, 1, 0, 0, 1]))
    loss = lambda w: m.mean(m.square(q(w, s)[m.arange(6), a] - J.lax.stop_gradient(r + 0.9 * (1 - dn) * q(t, s2).max(1))))
    return [
        loss(w), J.grad(loss)(w),
    ]


@day
def advantages(J, m):  # noqa: N803
    r, v = (d(m, 8), d(m, 9) * 0.3)
    def f(g, x):
        r, v, v2 = x
        g = r + 0.99 * v2 - v + 0.95 * 0.99 * g
        return (g, g)
    return [
        J.lax.scan(f, 0.0, (r, v[:-1], v[1:]), reverse=True)[1], m.cumsum(r[::-1])[::-1],
    ]


@day
def implicit(J, m):  # noqa: N803
    @J.custom_vjp
    def sq(a):
        return J.lax.fori_loop(0, 30, lambda i, x: 0.5 * (x + a / x), a)
    sq.defvjp(lambda a: (lambda y: (y, y))(sq(a)), lambda y, g: (g / (2 * y),))
    return [
        sq(3.0), J.grad(sq)(3.0), J.vmap(J.grad(sq))(m.array([1.0, 4.0])),
    ]


@day
def quantile_loss(J, m):  # noqa: N803
    y = d(m, 11)
    q = m.array([0.1, 0.5, 0.9])
    p = m.quantile(y, q)
    e = y[:, None] - p
    return [
        p, m.maximum(q * e, (q - 1) * e).mean(0), m.percentile(y, 75), m.median(y),
    ]


@day
def padding_masks(J, m):  # noqa: N803
    lens = m.array([2, 4, 1])
    mask = m.arange(4)[None] < lens[:, None]
    x = d(m, 3, 4)
    return [
        mask, (x * mask).sum(1) / lens, m.where(mask, x, -m.inf).max(1), J.nn.softmax(m.where(mask, x, -1000000000.0)),
        x.at[m.arange(3), lens - 1].get(), m.cumsum(mask, 1) * mask,
    ]


@day
def one_hots(J, m):  # noqa: N803
    y = m.array([2, 0, 1])
    return [
        m.eye(3)[y], J.nn.one_hot(y, 3) * 0.9 + 0.1 / 3, (y[:, None] == m.arange(3)).astype(int), m.argmax(m.eye(3)[y], -1), m.bincount(y, length=3),
        m.zeros((3, 3)).at[m.arange(3), y].set(1),
    ]
