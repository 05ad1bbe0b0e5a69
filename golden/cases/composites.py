"""The library's composites."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from jax import lax
from graph import NAMES

inf, nan = float("inf"), float("nan")
EPS = {"eps": "f64 1e-05"}


def write(w):
    rng = np.random.default_rng(11)
    draw = lambda shape, d="f32", scale=2.0: rng.uniform(-scale, scale, shape).astype(NAMES[d])
    activations(w, rng, draw)
    norms(w, rng, draw)
    rows(w, rng, draw)
    rope(w, rng, draw)
    attention(w, rng, draw)
    lookups(w, rng, draw)


def pointwise(w, name, params, inputs, fj, ft):
    w.composite(f"{name}/jax", name.split("/")[0], params, inputs, lambda *x: [fj(*x)])
    if ft and inputs[0].dtype in [np.float32, np.float64]:
        head = "composite {} [{}] ({})".format(
            name.split("/")[0], ", ".join(f"[{k}, {v}]" for k, v in params.items()),
            ", ".join(f"{'f32' if x.dtype == np.float32 else 'f64'}[{','.join(map(str, x.shape))}]" for x in inputs),
        )
        w.torch(f"{name}/torch", head, inputs, lambda *x: [ft(*x)])


def activations(w, rng, draw):
    for k, shape in enumerate([(3, 4), (6,), (2, 2, 2), (0, 4)]):
        for d in ["f32", "f64"]:
            n = f"{d}_{k}"
            pointwise(w, f"relu/{n}", {}, [draw(shape, d)], jax.nn.relu, F.relu)
            pointwise(w, f"relu2/{n}", {}, [draw(shape, d)], lambda x: jnp.square(jax.nn.relu(x)), lambda x: F.relu(x).square())
            pointwise(w, f"silu/{n}", {}, [draw(shape, d)], jax.nn.silu, F.silu)
            pointwise(w, f"gelu/erf_{n}", {"form": "erf"}, [draw(shape, d)], lambda x: jax.nn.gelu(x, approximate=False), F.gelu)
            pointwise(w, f"gelu/tanh_{n}", {"form": "tanh"}, [draw(shape, d)], jax.nn.gelu, lambda x: F.gelu(x, approximate="tanh"))
            pair = [draw(shape, d), draw(shape, d)]
            pointwise(w, f"swiglu/{n}", {}, pair, lambda g, u: jax.nn.silu(g) * u, lambda g, u: F.silu(g) * u)
            pointwise(w, f"geglu/{n}", {"form": "erf"}, pair, lambda g, u: jax.nn.gelu(g, approximate=False) * u, lambda g, u: F.gelu(g) * u)
            halves = lambda f: lambda x: f(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2 :]
            pointwise(w, f"swiglu/fused_{n}", {}, [draw(shape, d)], halves(jax.nn.silu), halves(F.silu))
            pointwise(w, f"geglu/fused_{n}", {"form": "tanh"}, [draw(shape, d)], halves(jax.nn.gelu), halves(lambda x: F.gelu(x, approximate="tanh")))
    special = np.array([0.0, -0.0, inf, nan, 1.0, -1.0, 30.0, -30.0], np.float32)
    for name, params, fj, ft in [
        ("relu", {}, jax.nn.relu, F.relu),
        ("relu2", {}, lambda x: jnp.square(jax.nn.relu(x)), lambda x: F.relu(x).square()),
        ("silu", {}, jax.nn.silu, F.silu),
        ("gelu", {"form": "erf"}, lambda x: jax.nn.gelu(x, approximate=False), F.gelu),
    ]:
        head = "composite {} [{}] (f32[8])".format(name, ", ".join(f"[{k}, {v}]" for k, v in params.items()))
        # PyTorch's gelu of infinity is NaN, by 0 · inf in its formula; ours is infinity.
        x = np.where(np.isinf(special), np.float32(2), special) if name == "gelu" else special
        w.torch(f"{name}/special_torch", head, [x], lambda x: [ft(x)], grad=False)
        for d in ["f16", "bf16"]:
            w.composite(f"{name}/{d}", name, params, [draw((2, 4), d)], lambda x: [fj(x)], grad=False)
    w.torch("relu/kink_torch", "composite relu [] (f32[3])", [np.array([0.0, -0.0, 1.0], np.float32)], lambda x: [F.relu(x)])


def norms(w, rng, draw):
    def rms(x, weight):
        return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5) * weight

    def layer(x, weight, bias):
        m = jnp.mean(x, -1, keepdims=True)
        v = jnp.var(x, -1, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5) * weight + bias

    for k, shape in enumerate([(3, 4), (5,), (2, 3, 4), (0, 3), (2, 1)]):
        n = shape[-1:]
        for d in ["f32", "f64"]:
            tag = f"{d}_{k}"
            # Rows of one element: x - mean is 0, and PyTorch's fused kernel leaves rounding there.
            torch_layer = shape[-1] > 1
            pointwise(w, f"rmsnorm/{tag}", EPS, [draw(shape, d), draw(n, d)], rms, lambda x, g: F.rms_norm(x, n, g, 1e-5))
            pointwise(w, f"rmsnorm/plain_{tag}", EPS, [draw(shape, d)], lambda x: rms(x, 1), lambda x: F.rms_norm(x, n, None, 1e-5))
            pointwise(w, f"layernorm/{tag}", EPS, [draw(shape, d), draw(n, d), draw(n, d)], layer, torch_layer and (lambda x, g, b: F.layer_norm(x, n, g, b, 1e-5)))
            pointwise(w, f"layernorm/weight_{tag}", EPS, [draw(shape, d), draw(n, d)], lambda x, g: layer(x, g, 0), None)
            pointwise(w, f"layernorm/plain_{tag}", EPS, [draw(shape, d)], lambda x: layer(x, 1, 0), lambda x: F.layer_norm(x, n, None, None, 1e-5))
            args = [draw(shape, d), draw(shape, d), draw(n, d)]
            w.composite(f"fused_residual_rmsnorm/{tag}", "fused_residual_rmsnorm", EPS, args, lambda r, x, g: [r + x, rms(r + x, g)])
            args = [draw(shape, d), draw((2,) + shape, d), draw(n, d), draw(n, d)]
            w.composite(f"qk_norm/{tag}", "qk_norm", EPS, args, lambda q, x, gq, gk: [rms(q, gq), rms(x, gk)])
    for d in ["f16", "bf16"]:
        wide = lambda f: lambda *x: [f(*[y.astype(jnp.float32) for y in x]).astype(x[0].dtype)]
        w.composite(f"rmsnorm/{d}", "rmsnorm", EPS, [draw((3, 4), d), draw((4,), d)], wide(rms), grad=False)
        w.composite(f"layernorm/{d}", "layernorm", EPS, [draw((3, 4), d), draw((4,), d), draw((4,), d)], wide(layer), grad=False)


def rows(w, rng, draw):
    for name, fj, ft in [
        ("softmax", lambda x: jax.nn.softmax(x, -1), lambda x: F.softmax(x, -1)),
        ("log_softmax", lambda x: jax.nn.log_softmax(x, -1), lambda x: F.log_softmax(x, -1)),
        ("logsumexp", lambda x: jax.nn.logsumexp(x, -1), lambda x: torch.logsumexp(x, -1)),
    ]:
        for k, shape in enumerate([(3, 4), (5,), (2, 3, 4), (0, 3), (2, 1)]):
            for d in ["f32", "f64"]:
                pointwise(w, f"{name}/{d}_{k}", {}, [draw(shape, d, 4.0)], fj, ft)
        for d in ["f16", "bf16"]:
            w.composite(f"{name}/{d}", name, {}, [draw((3, 4), d)], lambda x: [fj(x.astype(jnp.float32)).astype(x.dtype)], grad=False)
        special = np.array([[1e4, -1e4, 0], [-inf, 0, 1], [inf, 0, 1], [nan, 0, 1], [-inf, -inf, -inf], [88, 89, 90]], np.float32)
        w.torch(f"{name}/special_torch", f"composite {name} [] (f32[6,3])", [special], lambda x: [ft(x)], grad=False)


def rope(w, rng, draw):
    def rotate(x, cos, sin, pairs, inside):
        r = 2 * cos.shape[-1]
        if inside:
            cos, sin = cos[..., None, :], sin[..., None, :]
        head, tail = x[..., :r], x[..., r:]
        if pairs == "halves":
            a, b = head[..., : r // 2], head[..., r // 2 :]
        else:
            a, b = head[..., 0::2], head[..., 1::2]
        y, z = a * cos - b * sin, b * cos + a * sin
        if pairs == "halves":
            out = jnp.concatenate([y, z], -1)
        else:
            out = jnp.stack([y, z], -1).reshape(head.shape)
        return jnp.concatenate([out, tail], -1)

    for d in ["f32", "f64"]:
        for pairs in ["halves", "interleaved"]:
            for k, (x, table, inside) in enumerate([((2, 3, 4), (3, 2), False), ((3, 4), (3, 1), False), ((2, 3, 2, 4), (3, 2), True), ((2, 3, 2, 4), (2, 3, 2), True)]):
                params = {"pairs": pairs}
                if inside:
                    params["heads_inside"] = "true"
                args = [draw(x, d), draw(table, d), draw(table, d)]
                w.composite(f"rope/{pairs}_{d}_{k}", "rope", params, args, lambda x, c, s: [rotate(x, c, s, pairs, inside)])


def attend(q, k, v, scale=None, causal=False, window=None, softcap=None, offset=None, length=None, segments=None, slopes=None, mask=None):
    """The definition, in the open."""
    group = q.shape[-3] // k.shape[-3]
    k, v = jnp.repeat(k, group, -3), jnp.repeat(v, group, -3)
    tq, tk = q.shape[-2], k.shape[-2]
    s = jnp.einsum("...qd,...kd->...qk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * jnp.tanh(s / softcap)
    at = jnp.arange(tq)[:, None] + (tk - tq if offset is None else offset)
    to = jnp.arange(tk)[None, :]
    if slopes is not None:
        s = s - slopes[..., :, None, None] * jnp.abs(at - to)
    seen = jnp.ones((tq, tk), bool)
    if causal:
        seen &= to <= at
    if window:
        seen &= (at - to < window) & (causal | (to - at < window))
    if length is not None:
        seen &= to < length
    if segments is not None:
        seen &= segments[0][:, None] == segments[1][None, :]
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        s = s + mask
    s = jnp.where(seen, s, -jnp.inf)
    some = jnp.any(seen, -1, keepdims=True) & jnp.ones_like(s[..., :1], bool)
    safe = jnp.where(some, s, 0)
    p = jnp.where(seen & some, jax.nn.softmax(safe, -1), 0)
    lse = jnp.where(some[..., 0], jax.nn.logsumexp(safe, -1), -jnp.inf)
    return [jnp.einsum("...qk,...kd->...qd", p, v), lse]


def attention(w, rng, draw):
    qkv = lambda d, hq=2, hk=2, tq=3, tk=4, b=(): [draw(b + (hq, tq, 2), d, 1.5), draw(b + (hk, tk, 2), d, 1.5), draw(b + (hk, tk, 3), d, 1.5)]
    for d in ["f32", "f64"]:
        put = lambda name, params, args, f: w.composite(f"attention/{name}_{d}", "attention", params, args, f)
        put("plain", {}, qkv(d), lambda *x: attend(*x))
        put("causal", {"causal": "true"}, qkv(d), lambda *x: attend(*x, causal=True))
        put("scaled", {"scale": "f64 0.25"}, qkv(d), lambda *x: attend(*x, scale=0.25))
        put("window", {"window": "2"}, qkv(d), lambda *x: attend(*x, window=2))
        put("causal_window", {"causal": "true", "window": "2"}, qkv(d), lambda *x: attend(*x, causal=True, window=2))
        put("softcap", {"softcap": "f64 1.5", "causal": "true"}, qkv(d), lambda *x: attend(*x, softcap=1.5, causal=True))
        put("grouped", {"causal": "true"}, qkv(d, 4, 2), lambda *x: attend(*x, causal=True))
        put("batched", {}, qkv(d, 2, 1, b=(2,)), lambda *x: attend(*x))
        put("one_query", {"causal": "true"}, qkv(d, tq=1), lambda *x: attend(*x, causal=True))
        i = lambda n: np.int32(n)
        put("q_offset", {"causal": "true", "q_offset": "true"}, qkv(d) + [i(0)], lambda q, k, v, o: attend(q, k, v, causal=True, offset=o))
        for n in [0, 2, 4]:
            put(f"lengths{n}", {"lengths": "true"}, qkv(d) + [i(n)], lambda q, k, v, n: attend(q, k, v, length=n))
        seg = [np.array([0, 0, 1], np.int32), np.array([0, 1, 1, 2], np.int32)]
        put("segments", {"segments": "true"}, qkv(d) + seg, lambda q, k, v, a, b: attend(q, k, v, segments=(a, b)))
        put("slopes", {"slopes": "true", "causal": "true"}, qkv(d) + [draw((2,), d)], lambda q, k, v, s: attend(q, k, v, slopes=s, causal=True))
        mask = rng.integers(0, 2, (1, 3, 4)) > 0
        put("mask", {"mask": "bool"}, qkv(d) + [mask], lambda q, k, v, m: attend(q, k, v, mask=m))
        put("bias", {"mask": "add"}, qkv(d) + [draw((2, 3, 4), d)], lambda q, k, v, m: attend(q, k, v, mask=m))
        put("bias_shared", {"mask": "add"}, qkv(d) + [draw((1, 1, 4), d)], lambda q, k, v, m: attend(q, k, v, mask=m))
    for k, (causal, gqa) in enumerate([(False, False), (True, False), (True, True)]):
        args = qkv("f32", 4 if gqa else 2, 2, 4, 4, (2,))
        head = "composite attention [{}] ({})".format("[causal, true]" if causal else "", ", ".join(f"f32[{','.join(map(str, x.shape))}]" for x in args))

        def f(q, k, v):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)
            s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * q.shape[-1] ** -0.5
            if causal:
                s = s.masked_fill(torch.ones(4, 4).triu(1) > 0, -inf)
            return [out, torch.logsumexp(s, -1)]

        w.torch(f"attention/torch{k}", head, args, f)


def lookups(w, rng, draw):
    for k, ids in enumerate([(2, 3), (), (4,), (0,)]):
        table = draw((5, 3))
        for index in ["i32", "i64"]:
            i = np.asarray(rng.integers(0, 5, ids)).astype(NAMES[index])
            head = f"composite embedding [] (f32[5,3], {index}[{','.join(map(str, ids))}])"
            w.torch(f"embedding/{index}_{k}_torch", head, [table, i], lambda t, i: [F.embedding(i, t)])
            head = head.replace("[]", "[[padding_idx, 2]]", 1)
            w.torch(f"embedding/padding_{index}_{k}_torch", head, [table, i], lambda t, i: [F.embedding(i, t, padding_idx=2)])
    w.composite("embedding/outside", "embedding", {}, [draw((4, 2)), np.array([12, 0, 9], np.int32)], lambda t, i: [jnp.take(t, i, 0, mode="fill")])
    for k, rows_ in enumerate([(4,), (2, 3), ()]):
        for d in ["f32", "f64"]:
            x, y = draw(rows_ + (5,), d), np.asarray(rng.integers(0, 5, rows_)).astype(np.int64)
            shape = ",".join(map(str, rows_))
            types = f"({d}[{shape}{',' if shape else ''}5], i64[{shape}])"

            def loss(x, y, **options):
                flat = F.cross_entropy(x.reshape(-1, 5), y.reshape(-1), reduction="none", **options)
                return [flat.reshape(y.shape)]

            w.torch(f"cross_entropy/{d}_{k}_torch", f"composite cross_entropy [] {types}", [x, y], loss)
            w.torch(f"cross_entropy/smoothed_{d}_{k}_torch", f"composite cross_entropy [[label_smoothing, f64 0.1]] {types}", [x, y], lambda x, y: loss(x, y, label_smoothing=0.1))
            w.torch(f"cross_entropy/ignore_{d}_{k}_torch", f"composite cross_entropy [[ignore_index, 1]] {types}", [x, y], lambda x, y: loss(x, y, ignore_index=1))
            w.torch(f"cross_entropy/both_{d}_{k}_torch", f"composite cross_entropy [[ignore_index, 2], [label_smoothing, f64 0.2]] {types}", [x, y], lambda x, y: loss(x, y, ignore_index=2, label_smoothing=0.2))

            def z(x, y):
                lse = jax.nn.logsumexp(x, -1)
                return [lse - jnp.take_along_axis(x, y[..., None], -1)[..., 0] + 0.01 * lse**2]

            w.composite(f"cross_entropy/z_{d}_{k}", "cross_entropy", {"z_loss": "f64 0.01"}, [x, y], z)
    for k, shape in enumerate([(3, 4), (6,), (0, 2)]):
        for d in ["f32", "f64"]:
            keep = rng.integers(0, 2, shape) > 0
            w.composite(f"dropout/mask_{d}_{k}", "dropout", {"rate": "f64 0.25"}, [draw(shape, d), keep], lambda x, m: [jnp.where(m, x / 0.75, 0)])
            bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
            w.composite(f"dropout/bits_{d}_{k}", "dropout", {"rate": "f64 0.25"}, [draw(shape, d), bits], lambda x, b: [jnp.where(b >= np.uint32(2**30), x / 0.75, 0)])
