"""Functions of one namespace, `m`: JAX's NumPy or ours. Each takes tensors of shape (3, 4) and (4,) and gives one number or an
array; inputs are between 0.2 and 1.5. `lib` is jax or tensorloom."""

ELEMENTWISE = [
    "sin", "cos", "tan", "tanh", "sinh", "cosh", "exp", "expm1", "log", "log1p", "log2", "sqrt", "square", "reciprocal", "arctan",
    "arcsinh", "cbrt", "exp2", "abs", "sign", "negative", "log10", "sinc",
]
BINARY = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "arctan2", "hypot", "logaddexp", "fmax", "copysign"]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "var", "std"]


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
    put("trees", lambda m, lib, x, y: (lambda t: t["a"] * t["b"][0])({"a": x, "b": [y, 1.0]}))
    return out


FUNCTIONS = _all()
