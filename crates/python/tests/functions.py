"""Functions of one namespace, `m`: JAX's NumPy or ours. Each takes tensors of shape (3, 4) and (4,) and gives one number or an
array; inputs are between 0.2 and 1.5. `lib` is jax or tensorloom."""

import numpy as _np

ELEMENTWISE = [
    "sin", "cos", "tan", "tanh", "sinh", "cosh", "exp", "expm1", "log", "log1p", "log2", "sqrt", "square", "reciprocal", "arctan",
    "arcsinh", "cbrt", "exp2", "abs", "sign", "negative", "log10", "sinc",
]
BINARY = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "arctan2", "hypot", "logaddexp", "fmax", "copysign"]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "var", "std"]


def _more():
    """Functions beyond the first week, one each; linear algebra on a positive definite matrix made of `x`."""
    spd = lambda m, x: x @ x.T + 2.0 * m.eye(3)  # noqa: E731
    return {
        "arcsin": lambda m, lib, x, y: m.arcsin(x / 2) * y,
        "arccos": lambda m, lib, x, y: m.arccos(x / 2) * y,
        "arctanh": lambda m, lib, x, y: m.arctanh(x / 2) * y,
        "arccosh": lambda m, lib, x, y: m.arccosh(x + 1.5) * y,
        "logaddexp2": lambda m, lib, x, y: m.logaddexp2(x, y),
        "deg2rad": lambda m, lib, x, y: m.deg2rad(x) * y,
        "rad2deg": lambda m, lib, x, y: m.rad2deg(x) * y,
        "float_power": lambda m, lib, x, y: m.float_power(x, y),
        "nan_to_num": lambda m, lib, x, y: m.nan_to_num(m.where(x > 1.0, m.nan, x)) * y,
        "heaviside": lambda m, lib, x, y: m.heaviside(x - 0.7, 0.5) * y,
        "median": lambda m, lib, x, y: m.median(x, axis=1),
        "quantile": lambda m, lib, x, y: m.quantile(x * y, 0.3, axis=1),
        "percentile": lambda m, lib, x, y: m.percentile(x * y, 40.0),
        "average": lambda m, lib, x, y: m.average(x, axis=1, weights=y),
        "ptp": lambda m, lib, x, y: m.ptp(x * y, axis=0),
        "nansum": lambda m, lib, x, y: m.nansum(m.where(x > 1.0, m.nan, x * y), axis=0),
        "nanmean": lambda m, lib, x, y: m.nanmean(m.where(x > 1.4, m.nan, x * y)),
        "cov": lambda m, lib, x, y: m.cov(x),
        "corrcoef": lambda m, lib, x, y: m.corrcoef(x),
        "trapezoid": lambda m, lib, x, y: m.trapezoid(x, axis=1),
        "interp": lambda m, lib, x, y: m.interp(x, m.array([0.0, 0.5, 1.0, 2.0]), y),
        "inner": lambda m, lib, x, y: m.inner(x, y),
        "vdot": lambda m, lib, x, y: m.vdot(x[0], y),
        "kron": lambda m, lib, x, y: m.kron(x[0], y),
        "cross": lambda m, lib, x, y: m.cross(x[:, :3], y[:3]),
        "trace": lambda m, lib, x, y: m.trace(x),
        "diagonal": lambda m, lib, x, y: m.diagonal(x) * y[:3],
        "diag": lambda m, lib, x, y: m.diag(y) @ x.T,
        "triu": lambda m, lib, x, y: m.triu(x, 1) * y,
        "rot90": lambda m, lib, x, y: m.rot90(x) * y[:3],
        "moveaxis": lambda m, lib, x, y: m.moveaxis(x[None], 0, 2) * y[:, None],
        "swapaxes": lambda m, lib, x, y: m.swapaxes(x, 0, 1) * y[:3],
        "expand_dims": lambda m, lib, x, y: m.squeeze(m.expand_dims(x, 1), 1) * y,
        "broadcast_to": lambda m, lib, x, y: m.broadcast_to(y, (3, 4)) * x,
        "split": lambda m, lib, x, y: m.split(x, 2, axis=1)[1] * y[:2],
        "array_split": lambda m, lib, x, y: m.array_split(x, 3, axis=1)[0] * y[:2],
        "hstack": lambda m, lib, x, y: m.hstack([x[0], y]),
        "vstack": lambda m, lib, x, y: m.vstack([x, y]),
        "column_stack": lambda m, lib, x, y: m.column_stack([x[0], y]),
        "append": lambda m, lib, x, y: m.append(x, y),
        "convolve": lambda m, lib, x, y: m.convolve(x[0], y),
        "correlate": lambda m, lib, x, y: m.correlate(x[0], y, mode="full"),
        "polyval": lambda m, lib, x, y: m.polyval(y, x),
        "gradient": lambda m, lib, x, y: m.gradient(y * 2.0),
        "meshgrid": lambda m, lib, x, y: m.meshgrid(x[0], y)[0] * y[:, None],
        "argmax as an index": lambda m, lib, x, y: x[m.argmax(x[:, 0])] * y,
        "at set": lambda m, lib, x, y: x.at[1].set(y * 2),
        "at add": lambda m, lib, x, y: x.at[m.array([0, 0]), m.array([1, 1])].add(y[:2]),
        "logsumexp": lambda m, lib, x, y: lib.nn.logsumexp(x * y, axis=1),
        "gelu": lambda m, lib, x, y: lib.nn.gelu(x - 0.7) * y,
        "elu": lambda m, lib, x, y: lib.nn.elu(x - 0.7) * y,
        "selu": lambda m, lib, x, y: lib.nn.selu(x - 0.7) * y,
        "celu": lambda m, lib, x, y: lib.nn.celu(x - 0.7) * y,
        "softplus": lambda m, lib, x, y: lib.nn.softplus(x) * y,
        "leaky_relu": lambda m, lib, x, y: lib.nn.leaky_relu(x - 0.7) * y,
        "log_sigmoid": lambda m, lib, x, y: lib.nn.log_sigmoid(x) * y,
        "soft_sign": lambda m, lib, x, y: lib.nn.soft_sign(x) * y,
        "hard_tanh": lambda m, lib, x, y: lib.nn.hard_tanh(x) * y,
        "one_hot": lambda m, lib, x, y: lib.nn.one_hot(m.argmax(x, axis=1), 4) * y,
        "inverse": lambda m, lib, x, y: m.linalg.inv(spd(m, x)),
        "determinant": lambda m, lib, x, y: m.linalg.det(spd(m, x)),
        "log of the determinant": lambda m, lib, x, y: m.linalg.slogdet(spd(m, x))[1],
        "solve": lambda m, lib, x, y: m.linalg.solve(spd(m, x), y[:3]),
        "cholesky": lambda m, lib, x, y: m.linalg.cholesky(spd(m, x)),
        "eigenvalues": lambda m, lib, x, y: m.linalg.eigvalsh(spd(m, x)),
        "singular values": lambda m, lib, x, y: m.linalg.svd(x, compute_uv=False),
        "matrix_power": lambda m, lib, x, y: m.linalg.matrix_power(x[:, :3], 3),
        "norm of a matrix": lambda m, lib, x, y: m.linalg.norm(x * y),
        "lax.map": lambda m, lib, x, y: lib.lax.map(lambda r: m.sin(r) * y, x),
        "switch": lambda m, lib, x, y: lib.lax.switch(1, [lambda a: a, lambda a: a * 3, lambda a: -a], x) * y,
        "associative_scan": lambda m, lib, x, y: lib.lax.associative_scan(lambda a, b: a * b, x) * y,
        "dynamic_slice": lambda m, lib, x, y: lib.lax.dynamic_slice(x, (1, 1), (2, 3)) * y[:3],
        "jacobian inside": lambda m, lib, x, y: lib.jacrev(lambda z: m.sin(z) * z)(y) @ x.T,
        "hessian inside": lambda m, lib, x, y: lib.hessian(lambda z: (z**3).sum())(y) @ x.T,
        "gradients of rows": lambda m, lib, x, y: lib.vmap(lib.grad(lambda r: (m.tanh(r) * y).sum()))(x),
        "numbers of NumPy on the left": lambda m, lib, x, y: _np.float32(2.0) * x + _np.arange(4, dtype="float32") / y,
        "arrays of NumPy on the left": lambda m, lib, x, y: _np.ones((2, 3), "float32") @ x - _np.ones(4, "float32") ** y,
    }


def _all():
    out = {}

    def put(name, f):
        out[name] = f

    for n in ELEMENTWISE:
        put(f"{n}", lambda m, lib, x, y, n=n: getattr(m, n)(x) * y)
    for n in BINARY:
        put(f"{n}", lambda m, lib, x, y, n=n: getattr(m, n)(x, y))
    for n in REDUCTIONS:
        put(f"{n} of all", lambda m, lib, x, y, n=n: getattr(m, n)(x * y))
        put(f"{n} along 0", lambda m, lib, x, y, n=n: getattr(m, n)(m.sin(x) * y, axis=0))
        put(f"{n} along 1, kept", lambda m, lib, x, y, n=n: x - getattr(m, n)(x * y, axis=1, keepdims=True))
    put("matmul", lambda m, lib, x, y: x @ y)
    put("outer", lambda m, lib, x, y: m.outer(x[0], y))
    put("gram", lambda m, lib, x, y: x @ x.T)
    put("einsum", lambda m, lib, x, y: m.einsum("ij,j,ik->jk", x, y, x))
    put("dot", lambda m, lib, x, y: m.dot(x, y))
    put("tensordot", lambda m, lib, x, y: m.tensordot(x, y, axes=1))
    put("where", lambda m, lib, x, y: m.where(x > y, x * 2, y * y))
    put("clip", lambda m, lib, x, y: m.clip(x, 0.4, 1.1) * y)
    put("concatenate", lambda m, lib, x, y: m.concatenate([x, x * y], axis=0))
    put("stack", lambda m, lib, x, y: m.stack([x[0], y, y * y]))
    put("reshape", lambda m, lib, x, y: m.sin(x.reshape(4, 3)) * y[:3])
    put("transpose", lambda m, lib, x, y: m.transpose(x) * y[:, None])
    put("slices", lambda m, lib, x, y: x[1:, ::2] * y[::2])
    put("negative slices", lambda m, lib, x, y: x[::-1, ::-1] * y)
    put("new axes", lambda m, lib, x, y: x[:, None, :] * y[None, :, None])
    put("ellipsis", lambda m, lib, x, y: x[..., 1] + y[..., 0])
    put("arrays as indices", lambda m, lib, x, y: x[m.array([2, 0, 0])] * y)
    put("two arrays as indices", lambda m, lib, x, y: x[m.array([2, 0]), m.array([1, 3])] * y[:2])
    put("array and slice", lambda m, lib, x, y: x[1:, m.array([1, 3, 3])])
    put("pad", lambda m, lib, x, y: m.pad(x, ((1, 0), (0, 2))) * 2)
    put("roll", lambda m, lib, x, y: m.roll(x, 1, axis=1) * y)
    put("flip", lambda m, lib, x, y: m.flip(x, 0) * y)
    put("tile", lambda m, lib, x, y: m.tile(y, (3, 1)) * x)
    put("repeat", lambda m, lib, x, y: m.repeat(y, 3))
    put("cumsum", lambda m, lib, x, y: m.cumsum(x, axis=1) * y)
    put("cumprod", lambda m, lib, x, y: m.cumprod(x, axis=0))
    put("sort", lambda m, lib, x, y: m.sort(x * y, axis=-1))
    put("take", lambda m, lib, x, y: m.take(x, m.array([0, 2]), axis=1))
    put("take_along_axis", lambda m, lib, x, y: m.take_along_axis(x, m.argsort(x, axis=1), axis=1))
    put("diff", lambda m, lib, x, y: m.diff(x, axis=1))
    put("tril", lambda m, lib, x, y: m.tril(x) * y)
    put("softmax", lambda m, lib, x, y: lib.nn.softmax(x * 3) * y)
    put("log_softmax", lambda m, lib, x, y: lib.nn.log_softmax(x) * y)
    put("relu", lambda m, lib, x, y: lib.nn.relu(x - 0.7) * y)
    put("sigmoid", lambda m, lib, x, y: lib.nn.sigmoid(x) * y)
    put("silu", lambda m, lib, x, y: lib.nn.silu(x) * y)
    put("polynomial", lambda m, lib, x, y: 3 * x**3 - 2.5 * x + 1 / (x + y))
    put("numbers on the left", lambda m, lib, x, y: 2 - x / 3 + 2**y)
    put("floor division", lambda m, lib, x, y: (x // 0.3) * y + x % 0.3)
    put("norm", lambda m, lib, x, y: m.sqrt((x * x).sum(axis=-1)) * 2)
    put("layer norm", lambda m, lib, x, y: (x - x.mean(-1, keepdims=True)) / m.sqrt(x.var(-1, keepdims=True) + 1e-5) * y)
    put("scan", lambda m, lib, x, y: lib.lax.scan(lambda c, r: (m.tanh(c * r + y), c.sum()), y, x)[0])
    put("scan's results", lambda m, lib, x, y: lib.lax.scan(lambda c, r: (c + r, c * r), y, x)[1])
    put("fori_loop", lambda m, lib, x, y: lib.lax.fori_loop(0, 4, lambda i, c: c * 0.9 + i * y, y))
    put("cond", lambda m, lib, x, y: lib.lax.cond(x.sum() > 1.0, lambda a: a * 2, lambda a: a - 1, x))
    put("nested grad", lambda m, lib, x, y: lib.grad(lambda z: (m.sin(z) * z).sum())(x) * y)
    put("nested vmap", lambda m, lib, x, y: lib.vmap(lambda r: m.outer(r, y).sum(0))(x))
    put("nested jit", lambda m, lib, x, y: lib.jit(lambda z: m.exp(z) * y)(x))
    put("checkpoint", lambda m, lib, x, y: lib.checkpoint(lambda z: m.sin(m.sin(z)))(x) * y)
    put("jvp inside", lambda m, lib, x, y: lib.jvp(lambda z: m.sin(z) * z, (x,), (x,))[1])
    put("vjp inside", lambda m, lib, x, y: lib.vjp(lambda z: m.sin(z) * z, x)[1](x)[0])
    put("stop_gradient", lambda m, lib, x, y: lib.lax.stop_gradient(x) * x)
    for name, f in _more().items():
        put(name, f)
    put("trees", lambda m, lib, x, y: (lambda t: t["a"] * t["b"][0])({"a": x, "b": [y, 1.0]}))
    return out


FUNCTIONS = _all()
