"""Activations, losses and other functions of networks, by the names of JAX and PyTorch."""

from . import initializers
from . import numpy as _n
from ._functions import fill as _fill
from ._rounded import rounded as _rounded

_table = {}
_fill("nn", _table)
globals().update({n: f for n, f in _table.items() if not n.startswith("_")})


def gelu(x, approximate=True):
    """The Gaussian error linear unit; by tanh, unless `approximate` is false."""
    return _table["gelu"](x, approximate)


def one_hot(x, num_classes, *, dtype="float32", axis=-1):
    """Indices as vectors of zeros with a one."""
    return _table["one_hot"](x, num_classes, axis, dtype)


def leaky_relu(x, negative_slope=0.01):
    """x, or a part of it where it is negative."""
    return _table["leaky_relu"](x, negative_slope)


def elu(x, alpha=1.0):
    """x, or alpha (eˣ - 1) where it is negative."""
    return _table["elu"](x, alpha)


def celu(x, alpha=1.0):
    """x, or alpha (e^(x / alpha) - 1) where it is negative."""
    return _table["celu"](x, alpha)


def glu(x, axis=-1):
    """The first half times the sigmoid of the second."""
    return _table["glu"](x, axis)


def squareplus(x, b=4.0):
    """A smooth ramp without exponentials."""
    return _table["squareplus"](x, b)


def softmax(x, axis=-1, where=None):
    """Exponentials that sum to 1; with `where`, of those elements alone."""
    if where is None and not isinstance(axis, (tuple, list)):
        return _table["softmax"](x, axis)
    return _rounded(lambda x: _softmax(x, axis, where), x)


def _softmax(x, axis, where):
    kept = x if where is None else _n.where(where, x, -_n.inf)
    e = _n.exp(kept - _stop(_n.max(kept, axis=axis, keepdims=True)))
    y = e / _n.sum(e if where is None else _n.where(where, e, 0.0), axis=axis, keepdims=True)
    return y if where is None else _n.where(where, y, 0.0)


def log_softmax(x, axis=-1):
    """The logarithm of `softmax`."""
    if isinstance(axis, (tuple, list)):
        return _rounded(lambda x: x - logsumexp(x, axis, keepdims=True), x)
    return _table["log_softmax"](x, axis)


def _stop(x):
    """The same values; gradients don't pass."""
    return _n.stop_gradient(x)


def logsumexp(a, axis=None, b=None, keepdims=False, where=None):
    """The logarithm of a sum of exponentials, each times `b` if that is given."""
    a = _n.asarray(a)
    if b is None and where is None:
        return _table["logsumexp"](a, (axis, keepdims))
    if b is None:
        return _rounded(lambda a: _logsumexp(a, axis, None, keepdims, where), a)
    return _rounded(lambda a, b: _logsumexp(a, axis, b, keepdims, where), a, b)


def _logsumexp(a, axis, b, keepdims, where):
    kept = a if where is None else _n.where(where, a, -_n.inf)
    most = _stop(_n.max(kept, axis=axis, keepdims=True))
    most = _n.where(_n.isfinite(most), most, 0.0)
    e = _n.exp(kept - most)
    y = _n.log(_n.sum(e if b is None else e * b, axis=axis, keepdims=True)) + most
    return y if keepdims else _n.squeeze(y, axis if axis is not None else tuple(range(a.ndim)))


def standardize(x, axis=-1, epsilon=1e-5):
    """With mean 0 and variance 1 along axes."""
    return _table["standardize"](x, axis, epsilon)


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False):
    """Attention of `[batch, length, heads, size]`; fewer heads of keys and values serve several of queries."""
    given = [query, key, value] if bias is None else [query, key, value, bias]
    return _rounded(lambda q, k, v, bias=None: _attention(q, k, v, bias, mask, scale, is_causal), *given)


def _attention(q, k, v, bias, mask, scale, is_causal):
    single = q.ndim == 3
    if single:
        q, k, v = q[None], k[None], v[None]
    groups = q.shape[2] // k.shape[2]
    k, v = (_n.repeat(x, groups, 2) if groups > 1 else x for x in (k, v))
    s = _n.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if bias is None else s + bias
    if is_causal:
        causal = _n.tril(_n.ones(s.shape[-2:], "bool"))
        mask = causal if mask is None else _n.logical_and(mask, causal)
    s = s if mask is None else _n.where(mask, s, -1e30)
    y = _n.einsum("bhqk,bkhd->bqhd", softmax(s, axis=-1), v)
    return y[0] if single else y
