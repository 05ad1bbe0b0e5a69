"""Packed storage, bit by bit: GGUF's blocks by the `gguf` package, nf4 by bitsandbytes, floats of few bits by ml_dtypes.

Needs `gguf` and `bitsandbytes` beside the packages of `requirements.txt`.
"""

import bitsandbytes.functional as bnb
import ml_dtypes
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf import quants

from graph import type_of

FP4 = ml_dtypes.float4_e2m1fn
E8M0 = ml_dtypes.float8_e8m0fnu
E4M3 = ml_dtypes.float8_e4m3fn
E5M2 = ml_dtypes.float8_e5m2


def write(w):
    rng = np.random.default_rng(18)
    gguf(w, rng)
    nibbles(w, rng)
    bytes_(w, rng)
    normal(w, rng)


def put(w, name, by, composite, params, inputs, outs, **options):
    types = ", ".join(type_of(np.asarray(x)) for x in inputs)
    pairs = ", ".join(f"[{k}, {v}]" for k, v in params.items())
    w.put(name, by, f"composite {composite} [{pairs}] ({types})", inputs, outs, exact=True, **options)


def rows(rng, shape):
    """Numbers of several sizes, with zeros, ties and a row of nothing."""
    x = rng.standard_normal(shape).astype(np.float32) * np.exp2(rng.integers(-6, 6, shape[:-1] + (1,))).astype(np.float32)
    x[0, :4] = [0.0, -0.0, x[0, 5], -x[0, 5]]
    x[-1] = 0
    return x


def gguf(w, rng):
    for q in [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]:
        name = q.name.lower()
        block, size = quants.GGML_QUANT_SIZES[q]
        n = 24 if block == 32 else 6
        data = rng.integers(0, 256, (3, n, size), dtype=np.uint8)
        # Every byte is met; the halves that are scales are finite.
        data.reshape(-1)[: 256] = np.arange(256)
        for at in {"q8_0": [0], "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q2_k": [80, 82], "q3_k": [108],
                   "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208]}[name]:
            half = rng.standard_normal((3, n)).astype(np.float16) * np.float16(2) ** rng.integers(-14, 6, (3, n)).astype(np.float16)
            half.reshape(-1)[:3] = [0.0, 6e-8, -65504]
            data[..., at : at + 2] = half.view(np.uint8).reshape(3, n, 2)
        data = data.reshape(3, n * size)
        put(w, f"dequantize/{name}", "gguf", "dequantize", {"format": name}, [data], [quants.dequantize(data, q)])
        if block == 32:
            x = rows(rng, (4, 160))
            put(w, f"quantize_blocks/{name}", "gguf", "quantize_blocks", {"format": name}, [x], [quants.quantize(x, q)])
            y = quants.dequantize(quants.quantize(x, q), q)
            ct = rng.standard_normal(x.shape).astype(np.float32)
            put(w, f"fake_quantize/{name}", "gguf", "fake_quantize", {"format": name}, [x], [y], ct=[(0, ct)], grads=[(0, ct)])


def pack(codes, high_first=False):
    a, b = codes[..., 0::2].astype(np.uint8) & 15, codes[..., 1::2].astype(np.uint8) & 15
    return (b | a << 4) if high_first else (a | b << 4)


def spread(scale, k):
    return np.repeat(scale.astype(np.float32), k // scale.shape[-1], axis=-1)


def nibbles(w, rng):
    every = np.arange(256, dtype=np.uint8)
    data = np.stack([every, rng.permutation(every)])
    codes = np.stack([data & 15, data >> 4], -1).reshape(2, 512)
    for d in ["f32", "f16", "bf16"]:
        dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[d]
        scale = rng.uniform(-2, 2, (2, 8)).astype(dtype)
        zero = rng.integers(0, 16, (2, 8)).astype(dtype)
        signed = codes.astype(np.uint8).view(np.int8).astype(np.float32)
        signed = np.where(signed > 7, signed - 16, signed)
        put(w, f"dequantize/int4_{d}", "numpy", "dequantize", {"format": "int4", "group": 64}, [data, scale],
            [signed * spread(scale, 512)])
        put(w, f"dequantize/u4_{d}", "numpy", "dequantize", {"format": "u4", "group": 64}, [data, scale, zero],
            [(codes.astype(np.float32) - spread(zero, 512)) * spread(scale, 512)])
        floats = codes.astype(np.uint8).view(FP4).astype(np.float32)
        put(w, f"dequantize/fp4_{d}", "ml_dtypes", "dequantize", {"format": "fp4_e2m1", "group": 64}, [data, scale],
            [floats * spread(scale, 512)])
        y = (floats * spread(scale, 512)).astype(ml_dtypes.bfloat16)
        put(w, f"dequantize/fp4_{d}_to_bf16", "ml_dtypes", "dequantize", {"format": "fp4_e2m1", "group": 64, "dtype": "bf16"},
            [data, scale], [y])
    # Every exponent of E8M0, NaN too; products that overflow are infinite in both.
    e = np.arange(256, dtype=np.uint8).reshape(16, 16)
    many = rng.integers(0, 256, (16, 256), dtype=np.uint8)
    codes = np.stack([many & 15, many >> 4], -1).reshape(16, 512)
    with np.errstate(over="ignore", invalid="ignore"):
        y = codes.astype(np.uint8).view(FP4).astype(np.float32) * spread(e.view(E8M0), 512)
    put(w, "dequantize/mxfp4", "ml_dtypes", "dequantize", {"format": "mxfp4"}, [many, e], [y])
    scale = np.arange(256, dtype=np.uint8)
    scale = np.where(scale & 127 == 127, 0, scale).astype(np.uint8).view(E4M3).reshape(16, 16)
    all_ = np.float32(0.37)
    codes = codes[:, :256]
    wide = scale.astype(np.float32) * all_
    y = codes.astype(np.uint8).view(FP4).astype(np.float32) * spread(wide, 256)
    put(w, "dequantize/nvfp4", "ml_dtypes", "dequantize", {"format": "nvfp4"}, [pack(codes), scale, all_], [y])

    x = rows(rng, (5, 128))
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 0.2499, 0.2501, 5.01, -0.25, -0.75, -2.5, -5.0, -6.0], np.float32)
    x[1] = np.tile(ties, 8)
    group = np.abs(x).reshape(5, 4, 32).max(-1)
    scale = (group / np.float32(6)).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, 0, np.float32(1) / scale).astype(np.float32)
    codes = np.clip(x * spread(inverse, 128), -6, 6).astype(FP4)
    put(w, "quantize_blocks/fp4", "ml_dtypes", "quantize_blocks", {"format": "fp4_e2m1", "group": 32}, [x],
        [pack(codes.view(np.uint8)), scale])
    # MXFP4 as OCP's specification has it: the exponent of the largest, less that of the largest code.
    with np.errstate(divide="ignore"):
        e = np.where(group > 0, np.floor(np.log2(group)) - 2 + 127, 0).astype(np.uint8)
    s = e.view(E8M0).astype(np.float32)
    codes = np.clip(x / spread(s, 128), -6, 6).astype(FP4)
    put(w, "quantize_blocks/mxfp4", "ml_dtypes", "quantize_blocks", {"format": "mxfp4"}, [x], [pack(codes.view(np.uint8)), e])
    y = codes.astype(np.float32) * spread(s, 128)
    ct = rng.standard_normal(x.shape).astype(np.float32)
    put(w, "fake_quantize/mxfp4", "ml_dtypes", "fake_quantize", {"format": "mxfp4"}, [x], [y], ct=[(0, ct)], grads=[(0, ct)])
    inside = np.abs(x) <= spread(s, 128) * 6
    assert not inside.all()
    put(w, "fake_quantize/mxfp4_clipped", "ml_dtypes", "fake_quantize", {"format": "mxfp4", "clipped": "true"}, [x], [y],
        ct=[(0, ct)], grads=[(0, np.where(inside, ct, 0))])
    # NVFP4.
    all_ = np.float32(np.abs(x).max() / (448 * 6))
    group = np.abs(x).reshape(5, 8, 16).max(-1)
    scale = np.clip(group / np.float32(6) / all_, 0, 448).astype(E4M3)
    wide = scale.astype(np.float32) * all_
    spread_ = spread(wide, 128)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(spread_ == 0, 0, x / spread_).astype(np.float32)
    codes = np.clip(y, -6, 6).astype(FP4)
    put(w, "quantize_blocks/nvfp4", "ml_dtypes", "quantize_blocks", {"format": "nvfp4"}, [x, all_],
        [pack(codes.view(np.uint8)), scale, all_])


def bytes_(w, rng):
    every = np.arange(256, dtype=np.uint8).reshape(2, 128)
    scale = rng.uniform(-2, 2, (2, 2)).astype(np.float32)
    put(w, "dequantize/int8", "numpy", "dequantize", {"format": "int8", "group": 64}, [every.view(np.int8), scale],
        [every.view(np.int8).astype(np.float32) * spread(scale, 128)])
    row = rng.uniform(-2, 2, (2, 1)).astype(np.float32)
    put(w, "dequantize/int8_rows", "numpy", "dequantize", {"format": "int8", "group": 128}, [every.view(np.int8), row],
        [every.view(np.int8).astype(np.float32) * row])
    for name, dtype in [("fp8_e4m3", E4M3), ("fp8_e5m2", E5M2)]:
        x = every.view(dtype)
        with np.errstate(invalid="ignore"):
            y = x.astype(np.float32) * spread(scale, 128)
        put(w, f"dequantize/{name}", "ml_dtypes", "dequantize", {"format": name, "group": 64}, [x, scale], [y])
        x = rows(rng, (4, 64))
        most = {"fp8_e4m3": 448, "fp8_e5m2": 57344}[name]
        s = (np.abs(x).max(-1, keepdims=True) / np.float32(most)).astype(np.float32)
        with np.errstate(divide="ignore"):
            inverse = np.where(s == 0, 0, np.float32(1) / s).astype(np.float32)
        codes = np.clip(x * inverse, -most, most).astype(dtype)
        put(w, f"quantize_blocks/{name}", "ml_dtypes", "quantize_blocks", {"format": name, "group": 64}, [x], [codes, s])
    x = rows(rng, (4, 64))
    s = (np.abs(x).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(s == 0, 0, np.float32(1) / s).astype(np.float32)
    codes = np.clip(np.rint(x * inverse), -127, 127).astype(np.int8)
    put(w, "quantize_blocks/int8", "numpy", "quantize_blocks", {"format": "int8", "group": 64}, [x], [codes, s])


def normal(w, rng):
    for group in [64, 128]:
        x = rng.standard_normal((6, 256)).astype(np.float32)
        x[0] = 0
        q, state = bnb.quantize_4bit(torch.from_numpy(x), blocksize=group, quant_type="nf4")
        data = q.numpy().reshape(6, 128)
        absmax = state.absmax.numpy().reshape(6, 256 // group)
        y = bnb.dequantize_4bit(q, state).numpy()
        put(w, f"quantize_blocks/nf4_{group}", "bitsandbytes", "quantize_blocks", {"format": "nf4", "group": group}, [x], [data, absmax])
        put(w, f"dequantize/nf4_{group}", "bitsandbytes", "dequantize", {"format": "nf4", "group": group}, [data, absmax], [y])
    every = np.tile(np.arange(256, dtype=np.uint8), 2).reshape(4, 128)
    absmax = rng.uniform(0, 3, (4, 4)).astype(np.float32)
    state = bnb.QuantState(torch.from_numpy(absmax.reshape(-1)), shape=torch.Size([4, 256]), code=state.code, blocksize=64,
                           quant_type="nf4", dtype=torch.float32)
    y = bnb.dequantize_4bit(torch.from_numpy(every.reshape(-1, 1)), state).numpy()
    put(w, "dequantize/nf4_every", "bitsandbytes", "dequantize", {"format": "nf4", "group": 64}, [every, absmax], [y])
