"""Cases of `nn`."""

import jax
import jax.nn as nn
import jax.numpy as jnp

from make import boolean, given, integer, natural, positive, signed

EDGES = [0.0, 1.0, -1.0, 3.0, -3.0, 20.0, -20.0, 90.0, -90.0]


def write(w):
    plain = (
        "relu relu6 sigmoid softplus sparse_plus sparse_sigmoid soft_sign silu swish log_sigmoid hard_sigmoid hard_silu "
        "hard_swish hard_tanh tanh selu mish identity"
    ).split()
    for name in plain:
        f = getattr(nn, name)
        w.case(f"nn.{name}", f, signed(2, 3))
        w.case(f"nn.{name}", lambda x: f(x * 4), signed(12, seed=2), times=4)
        w.case(f"nn.{name}", f, given(EDGES), grad=name not in ("hard_sigmoid", "hard_silu", "hard_swish", "sparse_plus", "sparse_sigmoid", "hard_tanh"))
    for p in (0.01, 0.2):
        w.case("nn.leaky_relu", lambda x: nn.leaky_relu(x, p), signed(2, 5), p=p)
    for p in (1.0, 0.5):
        w.case("nn.elu", lambda x: nn.elu(x, p), signed(2, 5), p=p)
        w.case("nn.celu", lambda x: nn.celu(x, p), signed(2, 5), p=p)
    for p in (4.0, 1.0):
        w.case("nn.squareplus", lambda x: nn.squareplus(x, p), signed(2, 5), p=p)
    for a in (1, 0):
        w.case("nn.gelu", lambda x: nn.gelu(x, bool(a)), signed(2, 5), approximate=a)
        w.case("nn.gelu", lambda x: nn.gelu(x, bool(a)), given([-5.0, -1.0, 0.0, 3.0, 9.0]), approximate=a)
    w.case("nn.log1mexp", nn.log1mexp, positive(7))
    w.case("nn.log1mexp", nn.log1mexp, given([1e-3, 0.5, 5.0, 40.0]))
    for a in (-1, 0):
        w.case("nn.glu", lambda x: nn.glu(x, a), signed(4, 6), axis=a)
        w.case("nn.softmax", lambda x: nn.softmax(x, a), signed(3, 4), axis=a)
        w.case("nn.log_softmax", lambda x: nn.log_softmax(x, a), signed(3, 4), axis=a)
    w.case("nn.softmax", lambda x: nn.softmax(x, 1), signed(2, 3, 2), axis=1)
    w.case("nn.log_softmax", lambda x: nn.log_softmax(x, 1), signed(2, 3, 2), axis=1)
    w.case("nn.softmax", lambda x: nn.softmax(x, 0), given([1000.0, 1001.0, float("-inf")]), grad=False, axis=0)
    for a, keep in ((None, 0), (0, 0), (-1, 1), ((0, 1), 0)):
        t = "n" if a is None else ",".join(map(str, a if isinstance(a, tuple) else (a,)))
        w.case("nn.logsumexp", lambda x: nn.logsumexp(x, a, keepdims=bool(keep)), signed(3, 4), axes=t, keep=keep)
        w.case("nn.logmeanexp", lambda x: nn.logmeanexp(x, a, keepdims=bool(keep)), signed(3, 4), axes=t, keep=keep)
    inf = float("inf")
    w.case("nn.logsumexp", lambda x: nn.logsumexp(x, 1), given([[-inf, -inf], [inf, 1.0], [1000.0, 999.0]]), grad=False, axes=1, keep=0)
    for a in (-1, 0):
        w.case("nn.standardize", lambda x: nn.standardize(x, a, epsilon=1e-5), signed(3, 4), axes=a, eps=1e-5)
    for a in (-1, 0):
        w.case("nn.one_hot", lambda x: nn.one_hot(x, 4, axis=a, dtype="float64"), given([0, 3, 1, 7, -1], "i32"), axis=a, n=4, dtype="f")
    w.case("nn.one_hot", lambda x: nn.one_hot(x, 8, dtype="int32"), natural(2, 3), axis=-1, n=8, dtype="i32")
    attention(w)


def attended(q, k, v, bias=None, mask=None, causal=False, scale=None):
    """`jax.nn.dot_product_attention`, whose scores are f32 whatever it is given, in f64."""
    n, t, s = q.shape[-2], q.shape[-3], k.shape[-3]
    rep = n // k.shape[-2]
    kk, vv = jnp.repeat(k, rep, -2), jnp.repeat(v, rep, -2)
    scores = jnp.einsum("...tnh,...snh->...nts", q, kk) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((t, s), bool)), scores, -jnp.inf)
    y = jnp.einsum("...nts,...snh->...tnh", nn.softmax(scores, -1), vv)
    theirs = nn.dot_product_attention(q, k, v, bias=bias, mask=mask, is_causal=causal, scale=scale)
    if not isinstance(y, jax.core.Tracer):
        assert jnp.allclose(y, theirs, 1e-5, 1e-5)
    return y


def attention(w):
    name = "nn.dot_product_attention"
    for causal in (0, 1):
        for kv in (1, 2):
            f = lambda q, k, v: attended(q, k, v, causal=bool(causal))
            w.case(name, f, signed(1, 3, 2, 4), signed(1, 5, kv, 4, seed=2), signed(1, 5, kv, 4, seed=3), causal=causal)
    f = lambda q, k, v: attended(q, k, v, scale=0.25)
    w.case(name, f, signed(3, 2, 4), signed(3, 2, 4, seed=2), signed(3, 2, 4, seed=3), scale=0.25)
    qkv = signed(2, 3, 2, 4), signed(2, 3, 2, 4, seed=2), signed(2, 3, 2, 4, seed=3)
    w.case(name, lambda q, k, v, b: attended(q, k, v, bias=b), *qkv, signed(2, 2, 3, 3, seed=4))
    mask = given([[[[True, False, True], [True, True, False], [False, True, True]]]] * 2, "bool")
    w.case(name, lambda q, k, v, m: attended(q, k, v, mask=m), *qkv, mask)
