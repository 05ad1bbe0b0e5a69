"""Prints the expected values in the tests beside this file, from PyTorch in f64."""

import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(shape, step):
    """The same numbers as `wave` in check.rs."""
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return (torch.sin(i * step + step) * 2).reshape(shape)


def show(name, t):
    numbers = ", ".join(repr(float(v)) for v in t.flatten())
    print(f"const {name}: [f64; {t.numel()}] = [{numbers}];")


def activation():
    x, up = wave([6], 0.7), wave([6], 0.4)
    show("RELU", F.relu(x))
    show("RELU2", F.relu(x) ** 2)
    show("GELU_ERF", F.gelu(x))
    show("GELU_TANH", F.gelu(x, approximate="tanh"))
    show("SILU", F.silu(x))
    show("SWIGLU", F.silu(x) * up)
    show("GEGLU", F.gelu(x) * up)


def norm():
    x, w, b, r = wave([2, 4], 0.7), wave([4], 0.3), wave([4], 1.1), wave([2, 4], 0.2)
    show("RMSNORM", F.rms_norm(x, [4], w, 1e-5))
    show("RMSNORM_PLAIN", F.rms_norm(x, [4], None, 1e-5))
    show("LAYERNORM", F.layer_norm(x, [4], w, b, 1e-5))
    show("LAYERNORM_PLAIN", F.layer_norm(x, [4], None, None, 1e-5))
    show("RESIDUAL_NORM", F.rms_norm(x + r, [4], w, 1e-5))


def softmax():
    x = wave([2, 3], 0.9)
    show("SOFTMAX", torch.softmax(x, -1))
    show("LOG_SOFTMAX", torch.log_softmax(x, -1))
    show("LOGSUMEXP", torch.logsumexp(x, -1))


def loss():
    x, labels = wave([4, 5], 0.9), torch.tensor([1, 4, -100, 0])
    plain = F.cross_entropy(x, labels, reduction="none")
    show("PLAIN", plain)
    show("SMOOTH", F.cross_entropy(x, labels, reduction="none", label_smoothing=0.1))
    show("Z_LOSS", plain + 0.01 * torch.logsumexp(x, -1) ** 2 * (labels != -100))
    x.requires_grad_()
    F.cross_entropy(x, labels, reduction="sum", label_smoothing=0.1).backward()
    show("SMOOTH_GRAD", x.grad)


def rope():
    t, d, r = 3, 6, 4
    x = wave([t, d], 0.5)
    angles = torch.arange(t)[:, None] / 10000 ** (torch.arange(0, r, 2).double() / r)
    show("COS", angles.cos())
    show("SIN", angles.sin())
    turned, passed = x[..., :r], x[..., r:]

    def halves(x):
        return torch.cat((-x[..., r // 2 :], x[..., : r // 2]), -1)

    def every_two(x):
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    wide = torch.cat((angles, angles), -1)
    show("HALVES", torch.cat((turned * wide.cos() + halves(turned) * wide.sin(), passed), -1))
    wide = angles.repeat_interleave(2, -1)
    show("INTERLEAVED", torch.cat((turned * wide.cos() + every_two(turned) * wide.sin(), passed), -1))


def attention():
    hq, hkv, tq, tk, d, dv, cap = 4, 2, 2, 3, 4, 2, 3.0
    q, k, v = wave([hq, tq, d], 0.7), wave([hkv, tk, d], 0.3), wave([hkv, tk, dv], 1.1)
    slopes, bias = wave([hq], 0.2), wave([1, tq, tk], 0.6)
    i, j = torch.arange(tq)[:, None] + tk - tq, torch.arange(tk)[None]
    causal = torch.where(j <= i, 0.0, -math.inf)
    window = torch.where((j <= i) & (i - j < 2), 0.0, -math.inf)
    distance = (i - j).abs()

    def heads(x):
        return x.repeat_interleave(hq // hkv, 0)

    def sdpa(mask):
        return F.scaled_dot_product_attention(q, heads(k), heads(v), attn_mask=mask)

    def scores(q, k):
        return q @ heads(k).transpose(-1, -2)

    show("GQA", F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True))
    show("CAUSAL", sdpa(causal))
    show("CAUSAL_LSE", torch.logsumexp(scores(q, k) / 2 + causal, -1))
    show("WINDOW", sdpa(window))
    show("ALIBI", sdpa(causal - slopes[:, None, None] * distance))
    capped = cap * torch.tanh(scores(q, k) * 0.8 / cap) + causal
    show("SOFTCAP", torch.softmax(capped, -1) @ heads(v))
    show("BIAS", sdpa(bias))

    args = [t.requires_grad_() for t in (q, k, v, slopes, bias)]
    s = cap * torch.tanh(scores(q, k) / 2 / cap) + causal - slopes[:, None, None] * distance + bias
    out, lse = torch.softmax(s, -1) @ heads(v), torch.logsumexp(s, -1)
    ((out * wave([hq, tq, dv], 0.9)).sum() + (lse * wave([hq, tq], 0.4)).sum()).backward()
    for name, t in zip(("DQ", "DK", "DV", "DSLOPES", "DBIAS"), args):
        show(name, t.grad)


for family in (activation, norm, softmax, loss, rope, attention):
    family()
