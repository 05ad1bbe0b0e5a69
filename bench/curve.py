"""A run of `loom train`, repeated by PyTorch: the same weights at first, the same sequences in the same order, the same rates.

    loom train --steps 1 --lr 0 --weight-decay 0 --set d_model=128,n_layers=4,heads=4,kv_heads=4,d_ff=512,tied=true --out START
    loom train --model START --dtype bf16 --device cuda --steps 100 --log-every 1 --out RUN
    python bench/curve.py RUN [--device cuda] [--dtype f32]

Prints the losses of both and how far they are apart. For Llamas, and for the usual objective. bf16 means what it means to the trainer:
masters, moments and the update in f32, everything else in bf16 with sums of products and the loss in f32. `--dtype` takes the place of the run's.
"""

import argparse
import json
import math
import pathlib
import struct
import tomllib

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


def tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16}
    found = {}
    for name, about in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            a, b = (8 + length + o for o in about["data_offsets"])
            found[name] = torch.frombuffer(bytearray(raw[a:b]), dtype=kinds[about["dtype"]]).reshape(about["shape"])
    return found


def mixed(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def order(count, seed, stream):
    """The trainer's order of a pass: a Feistel network under keys of SplitMix64."""
    state = (seed ^ stream * 0xD1B54A32D192ED03) & MASK
    state = mixed(state + 0x9E3779B97F4A7C15 & MASK)
    keys = []
    for _ in range(6):
        state = state + 0x9E3779B97F4A7C15 & MASK
        keys.append(mixed(state))
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1

    def turn(x):
        left, right = x >> half, x & mask
        for key in keys:
            left, right = right, left ^ (mixed(right ^ key) & mask)
        return left << half | right

    def at(place):
        place = turn(place)
        while place >= count:
            place = turn(place)
        return place

    return at


def batches(run, settings):
    data = run / "data"
    ids = torch.frombuffer(bytearray((data / "tokens.bin").read_bytes()), dtype=torch.int32).long()
    seq, rows = settings["seq-len"], settings["micro-batch-size"] * settings["gradient-accumulation-steps"]
    starts = torch.frombuffer(bytearray((data / f"starts-{seq}.bin").read_bytes()), dtype=torch.int64).tolist()
    for step in range(settings["steps"]):
        places = range(step * rows, (step + 1) * rows)
        chosen = [order(len(starts), settings["seed"], 1000 + p // len(starts))(p % len(starts)) for p in places]
        yield torch.stack([ids[starts[c]:starts[c] + seq + 1] for c in chosen])


def llama(config, weights, ids, dtype):
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    each = config["hidden_size"] // heads
    w = lambda name: weights[name].to(dtype)
    eps = config["rms_norm_eps"]
    norm = lambda x, name: (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(dtype) * w(name)
    angles = torch.arange(ids.shape[1], device=ids.device)[:, None] / config["rope_parameters"]["rope_theta"] ** (
        torch.arange(0, each, 2, device=ids.device) / each)
    cos, sin = (torch.cat([f(angles)] * 2, -1).to(dtype) for f in (torch.cos, torch.sin))

    def turned(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    x = w("model.embed_tokens.weight")[ids]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm.weight")
        split = lambda name, n: (h @ w(f"{p}self_attn.{name}.weight").T).unflatten(-1, (n, each)).transpose(1, 2)
        q, k, v = turned(split("q_proj", heads)), turned(split("k_proj", kv)), split("v_proj", kv)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
        x = x + o.transpose(1, 2).flatten(2) @ w(p + "self_attn.o_proj.weight").T
        h = norm(x, p + "post_attention_layernorm.weight")
        gate, up = (h @ w(f"{p}mlp.{n}_proj.weight").T for n in ("gate", "up"))
        x = x + (F.silu(gate) * up) @ w(p + "mlp.down_proj.weight").T
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return (norm(x, "model.norm.weight") @ w(head).T).float()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("run", type=pathlib.Path)
    options.add_argument("--device", default="cpu")
    options.add_argument("--dtype", choices=["f32", "bf16"])
    options = options.parse_args()
    settings = tomllib.loads((options.run / "run.toml").read_text())
    start = pathlib.Path(settings["model"])
    config = json.loads((start / "config.json").read_text())
    weights = {n: t.float().to(options.device).requires_grad_() for n, t in tensors(start / "model.safetensors").items()}
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype or settings["dtype"]]
    matrices = [w for w in weights.values() if w.ndim >= 2]
    others = [w for w in weights.values() if w.ndim < 2]
    groups = [dict(params=matrices, weight_decay=settings["weight-decay"]), dict(params=others, weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, lr=1.0, betas=(settings["beta1"], settings["beta2"]), eps=1e-8)
    losses = []
    for step, tokens in enumerate(batches(options.run, settings)):
        tokens = tokens.to(options.device)
        logits = llama(config, weights, tokens[:, :-1], dtype)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        if settings["max-grad-norm"] > 0:
            torch.nn.utils.clip_grad_norm_(weights.values(), settings["max-grad-norm"])
        if step < settings["warmup-steps"]:
            share = (step + 1) / settings["warmup-steps"]
        else:
            done = min(1, (step - settings["warmup-steps"]) / max(1, settings["steps"] - settings["warmup-steps"]))
            share = settings["min-lr-ratio"] + (1 - settings["min-lr-ratio"]) * 0.5 * (1 + math.cos(math.pi * done))
        for group in adam.param_groups:
            group["lr"] = settings["lr"] * share
        adam.step()
        losses.append(float(loss.detach()))
    lines = [json.loads(line) for line in (options.run / "log.jsonl").read_text().splitlines()]
    ours = {line["step"]: line["last"] for line in lines if "last" in line}
    apart = [(abs(value - losses[step - 1]), step) for step, value in ours.items()]
    for step, value in ours.items():
        if step in (1, 2, 5, 10) or step % 20 == 0:
            print(f"step {step}: loom {value:.5f}, PyTorch {losses[step - 1]:.5f}")
    print(f"{len(apart)} losses, at most {max(apart)[0]:.2e} apart (step {max(apart)[1]}),"
          f" {sum(a for a, _ in apart) / len(apart):.2e} in the mean, dtype {dtype}")


main()
