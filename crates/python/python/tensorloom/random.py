"""Random numbers from keys, with the names, arguments and bits of JAX."""

from ._functions import fill as _fill
from ._tensorloom import asarray as _asarray

_table = {}
_fill("random", _table)
globals().update({n: f for n, f in _table.items() if not n.startswith("_")})


def _shape(shape, *arrays):
    """A shape; that of the parameters where none is given."""
    if shape is not None:
        return (shape,) if isinstance(shape, int) else tuple(shape)
    import numpy as np

    return np.broadcast_shapes(*(tuple(getattr(a, "shape", ())) for a in arrays))


def key(seed, *, impl=None):
    """The key of a seed. The generator is Threefry, JAX's own default."""
    if impl not in (None, "threefry2x32"):
        raise ValueError(f"impl {impl!r}; only \"threefry2x32\" is supported")
    return _table["key"](int(seed) % 2**64)


PRNGKey = key


def key_data(key):
    """The numbers of a key: the key itself."""
    return key


def wrap_key_data(key_bits_array, *, impl=None):
    """The key of two numbers."""
    return _asarray(key_bits_array, "uint32")


def clone(key):
    """The same key."""
    return key.__copy__()


def split(key, num=2):
    """New keys from one."""
    if isinstance(num, int):
        return _table["split"](key, num)
    n = 1
    for s in num:
        n *= s
    return _table["split"](key, n).reshape((*num, 2))


def fold_in(key, data):
    """A key from a key and a number."""
    from . import numpy as tnp

    if isinstance(data, int):
        return _table["fold_in"](key, data % 2**32)
    # A number of a trace: what JAX computes of it, the hash of the number's own key.
    from . import _random

    return _random.fold_in(key, tnp.asarray(data))


def bits(key, shape=(), dtype="uint32"):
    """Random bits."""
    return _table["bits"](key, _shape(shape), dtype)


def uniform(key, shape=(), dtype="float32", minval=0.0, maxval=1.0):
    """Numbers between two others."""
    return _table["uniform"](key, _shape(shape), dtype, minval, maxval)


def normal(key, shape=(), dtype="float32"):
    """Normal numbers."""
    return _table["normal"](key, _shape(shape), dtype)


def randint(key, shape, minval, maxval, dtype="int32"):
    """Integers from `minval` on and below `maxval`."""
    return _table["randint"](key, _shape(shape), dtype, int(minval), int(maxval))


def bernoulli(key, p=0.5, shape=None, *, mode=None):
    """True with a probability."""
    return _table["bernoulli"](key, _shape(shape, p), p)


def categorical(key, logits, axis=-1, shape=None, replace=True, *, mode=None):
    """Indices along an axis, each with the probability of its logit."""
    logits = _asarray(logits)
    axis %= logits.ndim
    batch = tuple(n for i, n in enumerate(logits.shape) if i != axis)
    shape = batch if shape is None else _shape(shape)
    if shape[len(shape) - len(batch):] != batch:
        raise ValueError(f"shape {shape} must end with the shape of the logits without their axis, {batch}")
    if not replace:
        from . import lax
        from . import numpy as tnp

        prefix = shape[:len(shape) - len(batch)]
        count = 1
        for n in prefix:
            count *= n
        scores = tnp.moveaxis(gumbel(key, logits.shape, logits.dtype) + logits, axis, -1)
        return tnp.moveaxis(lax.top_k(scores, count)[1], -1, 0).reshape((*prefix, *batch))
    return _table["categorical"](key, logits, axis, shape[:len(shape) - len(batch)])


def truncated_normal(key, lower, upper, shape=None, dtype="float32"):
    """Normal numbers between two others."""
    return _table["truncated_normal"](key, _shape(shape, lower, upper), dtype, float(lower), float(upper))


def permutation(key, x, axis=0, independent=False):
    """The numbers below `x`, or the entries of an array, in random order."""
    if isinstance(x, int):
        return _table["permutation"](key, x)
    if independent:
        raise NotImplementedError("permutation does not support independent=True; use vmap")
    return _table["shuffle"](key, x, axis)


def choice(key, a, shape=(), replace=True, p=None, axis=0, *, mode=None):
    """Entries of an array, or numbers below `a`."""
    from . import numpy as tnp

    if isinstance(a, int):
        a = tnp.arange(a)
    a = _asarray(a)
    if a.ndim == 1 and axis in (0, -1):
        return _table["choice"](key, a, _shape(shape), replace, p)
    return tnp.take(a, _table["choice"](key, tnp.arange(a.shape[axis]), _shape(shape), replace, p), axis)


def exponential(key, shape=(), dtype="float32"):
    """Exponential numbers."""
    return _table["exponential"](key, _shape(shape), dtype)


def gumbel(key, shape=(), dtype="float32", *, mode=None):
    """Numbers of Gumbel's distribution."""
    return _table["gumbel"](key, _shape(shape), dtype)


def laplace(key, shape=(), dtype="float32"):
    """Numbers of Laplace's distribution."""
    return _table["laplace"](key, _shape(shape), dtype)


def logistic(key, shape=(), dtype="float32"):
    """Logistic numbers."""
    return _table["logistic"](key, _shape(shape), dtype)


def cauchy(key, shape=(), dtype="float32"):
    """Numbers of Cauchy's distribution."""
    return _table["cauchy"](key, _shape(shape), dtype)


def maxwell(key, shape=(), dtype="float32"):
    """Numbers of Maxwell's distribution."""
    return _table["maxwell"](key, _shape(shape), dtype)


def rademacher(key, shape=(), dtype="int32"):
    """-1 or 1."""
    return _table["rademacher"](key, _shape(shape), dtype)


def _drawn(name, what, parameters, own="float32"):
    """A function of a key, the parameters of a distribution, a shape and a type; `parameters` are names, with numbers where they have them."""
    names = [p.partition("=")[0] for p in parameters.split()]
    env = {"_f": _table[name], "_shape": _shape}
    # In the order of JAX; the table has the parameters behind shape and type.
    head = ", ".join(["key", *parameters.split(), "shape=None", f"dtype={own!r}"])
    exec(f"def {name}({head}):\n    return _f(key, _shape(shape, {', '.join(names)}), dtype, {', '.join(names)})", env)
    made = env[name]
    made.__module__ = __name__
    made.__doc__ = f"Numbers of the {what} distribution."
    return made


gamma, loggamma = _drawn("gamma", "gamma", "a"), _drawn("loggamma", "gamma (their logarithms)", "a")
chisquare, pareto, t = _drawn("chisquare", "chi-square", "df"), _drawn("pareto", "Pareto", "b"), _drawn("t", "Student", "df")
poisson, geometric = _drawn("poisson", "Poisson", "lam", "int32"), _drawn("geometric", "geometric", "p", "int32")
beta, weibull_min = _drawn("beta", "beta", "a b"), _drawn("weibull_min", "Weibull", "scale concentration")
binomial, lognormal = _drawn("binomial", "binomial", "n p"), _drawn("lognormal", "log-normal", "sigma=1.0")
rayleigh, wald, f = _drawn("rayleigh", "Rayleigh", "scale"), _drawn("wald", "inverse normal", "mean"), _drawn("f", "F", "dfnum dfden")
triangular, generalized_normal = _drawn("triangular", "triangular", "left mode right"), _drawn("generalized_normal", "generalised normal", "p")
double_sided_maxwell = _drawn("double_sided_maxwell", "two-sided Maxwell", "loc scale")


def ball(key, d, p=2, shape=(), dtype="float32"):
    """Points of the unit ball of a norm."""
    return _table["ball"](key, d, p, _shape(shape), dtype)


def orthogonal(key, n, shape=(), dtype="float32"):
    """Orthogonal matrices."""
    return _table["orthogonal"](key, n, _shape(shape), dtype)


def multinomial(key, n, p, *, shape=None, dtype="float32"):
    """How often each of several cases comes in n draws. `shape` is that of the result, with the cases along its last axis."""
    p = _asarray(p)
    shape = tuple(p.shape) if shape is None else _shape(shape)
    if not shape or shape[-1] != p.shape[-1]:
        raise ValueError(f"shape {shape} doesn't end with the number of cases, {p.shape[-1] if p.ndim else 'of which there is no axis'}")
    return _table["multinomial"](key, shape[:-1], dtype, n, p)


def shuffle(key, x, axis=0):
    """The entries of an array in random order."""
    return _table["shuffle"](key, x, axis)


def dirichlet(key, alpha, shape=None, dtype="float32"):
    """Numbers of Dirichlet's distribution."""
    alpha = _asarray(alpha)
    return _table["dirichlet"](key, alpha, tuple(alpha.shape[:-1]) if shape is None else _shape(shape), dtype)


def multivariate_normal(key, mean, cov, shape=None, dtype="float32"):
    """Normal vectors of a mean and a covariance."""
    mean = _asarray(mean)
    return _table["multivariate_normal"](key, mean, cov, tuple(mean.shape[:-1]) if shape is None else _shape(shape), dtype)
