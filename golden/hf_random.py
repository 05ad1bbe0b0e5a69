"""Compares `loom logits` and `loom generate` with transformers on random configurations of every model of the library.

    cargo build -p tensorloom-cli
    HF_HUB_OFFLINE=1 python golden/hf_random.py target/debug/loom --seed 1 --count 100 [llama phi3 ..]

Sizes, heads, biases, activations, windows, kinds of rotations, tied heads, dtypes of the weights, shards and older
spellings of `config.json` are drawn; logits, loss, all gradients and twelve greedy tokens must agree. It prints what
differs with its configuration, and ends with 1 if anything did.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers as tf
from safetensors.torch import load_file

from hf import NO_ENDS, saved_as

NEW = 12
ROTATIONS = ("default", "linear", "dynamic", "yarn", "llama3")
YARN = [{}, dict(beta_fast=16.0, beta_slow=2.0), dict(attention_factor=1.3), dict(mscale=0.7, mscale_all_dim=1.1),
        dict(truncate=False)]


class Draw:
    """Random configurations."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *of):
        return self.random.choice(of)

    def flag(self):
        return self.pick(True, False)

    def sizes(self, grouped=True):
        heads, width = self.pick(2, 4, 6), self.pick(4, 8, 16)
        sizes = dict(vocab_size=self.pick(64, 97, 128), hidden_size=heads * width, num_attention_heads=heads,
                     num_hidden_layers=self.pick(1, 2, 3), intermediate_size=self.pick(40, 48, 100),
                     max_position_embeddings=self.pick(64, 128, 2048), **NO_ENDS)
        if grouped:
            sizes["num_key_value_heads"] = self.pick(*[k for k in (1, 2, heads) if heads % k == 0])
        return sizes, width

    def rotated(self, kinds=ROTATIONS):
        sizes, width = self.sizes()
        kind = self.pick(*kinds)
        rope = dict(rope_type=kind, rope_theta=self.pick(10000.0, 500000.0, 1e6))
        if kind in ("linear", "dynamic"):
            rope["factor"] = self.pick(2.0, 4.0)
        if kind == "dynamic":
            sizes["max_position_embeddings"] = self.pick(8, 64)
        if kind == "yarn":
            rope |= dict(factor=4.0, original_max_position_embeddings=self.pick(16, 32)) | self.pick(*YARN)
        if kind == "llama3":
            rope |= dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
        return sizes | dict(rope_parameters=rope, tie_word_embeddings=self.flag()), width

    def llama(self):
        sizes, width = self.rotated()
        return tf.LlamaConfig(**sizes, attention_bias=self.flag(), mlp_bias=self.flag(), head_dim=self.pick(width, 16),
                              hidden_act=self.pick("silu", "gelu", "relu", "gelu_pytorch_tanh"))

    def window(self):
        return self.pick({}, dict(use_sliding_window=True, sliding_window=4, max_window_layers=0))

    def qwen2(self):
        return tf.Qwen2Config(**self.rotated()[0], **self.window())

    def qwen3(self):
        sizes = self.rotated()[0]
        return tf.Qwen3Config(**sizes, head_dim=self.pick(8, 16), attention_bias=self.flag(), **self.window())

    def mistral(self):
        sizes, width = self.rotated()
        return tf.MistralConfig(**sizes, sliding_window=self.pick(None, 3, 4), head_dim=self.pick(width, 8))

    def gemma(self):
        sizes = self.rotated(("default", "linear"))[0]
        return tf.GemmaConfig(**sizes, head_dim=self.pick(8, 16), attention_bias=self.flag())

    def mixtral(self):
        sizes = self.rotated(("default", "linear"))[0]
        return tf.MixtralConfig(**sizes, num_local_experts=self.pick(2, 4, 8), num_experts_per_tok=self.pick(1, 2),
                                sliding_window=self.pick(None, 4))

    def phi3(self):
        sizes, width = self.sizes()
        kind, rope = self.pick("default", "longrope", "partial"), {}
        if kind == "longrope":
            original, half = self.pick(4, 32), width // 2
            sizes |= dict(max_position_embeddings=64, original_max_position_embeddings=original)
            rope = dict(rope_type=kind, rope_theta=10000.0, original_max_position_embeddings=original,
                        short_factor=[1.0 + 0.1 * i for i in range(half)],
                        long_factor=[1.5 + 0.2 * i for i in range(half)])
        if kind == "partial" and width >= 8:
            rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
        sizes |= dict(rope_parameters=rope) if rope else {}
        return tf.Phi3Config(**sizes, sliding_window=self.pick(None, 4), tie_word_embeddings=self.flag())

    def gpt2(self):
        heads, width = self.pick(2, 4), self.pick(4, 8)
        return tf.GPT2Config(
            vocab_size=self.pick(64, 97), n_embd=heads * width, n_layer=self.pick(1, 2, 3), n_head=heads,
            n_positions=64, n_inner=self.pick(None, 40), scale_attn_weights=self.flag(),
            activation_function=self.pick("gelu_new", "gelu", "relu", "silu"), tie_word_embeddings=self.flag(),
            **NO_ENDS)

    def gpt_neox(self):
        sizes, width = self.sizes(grouped=False)
        return tf.GPTNeoXConfig(
            **sizes, rotary_pct=self.pick(0.25, 0.5, 1.0) if width >= 8 else 1.0, use_parallel_residual=self.flag(),
            attention_bias=self.flag(), tie_word_embeddings=self.flag(), hidden_act=self.pick("gelu", "relu"))

    def mamba(self):
        return tf.MambaConfig(
            vocab_size=self.pick(64, 97), hidden_size=self.pick(16, 32), num_hidden_layers=self.pick(1, 2, 3),
            state_size=self.pick(4, 8, 16), conv_kernel=self.pick(2, 4), expand=self.pick(1, 2),
            time_step_rank=self.pick("auto", 4), use_bias=self.flag(), use_conv_bias=self.flag(),
            tie_word_embeddings=self.flag(), **NO_ENDS)


MODELS = ["llama", "qwen2", "qwen3", "mistral", "gemma", "mixtral", "phi3", "gpt2", "gpt_neox", "mamba"]


def weights(model, dtype):
    """Random weights that `dtype` holds exactly."""
    wide = 0.1 if model.config.tie_word_embeddings else 1.0
    with torch.no_grad():
        for path, p in model.named_parameters():
            if "A_log" not in path:
                scale = wide if "embed" in path or "wte" in path else 0.3
                p.copy_(p + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) * scale)
            p.copy_(p.to(dtype).float())


def save(model, folder, dtype, shards):
    """As transformers saves it; buffers keep their precision."""
    for p in model.parameters():
        p.data, p.grad = p.data.to(dtype), None
    model.save_pretrained(folder, safe_serialization=True, **(dict(max_shard_size="20KB") if shards else {}))
    for p in model.parameters():
        p.data = p.data.float()


def older(folder, kind, draw):
    """The configuration in the words of transformers 4."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope:
        neox = kind == "gpt_neox"
        config["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta", 10000.0)
        if "partial_rotary_factor" in rope:
            config["rotary_pct" if neox else "partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        plain = rope.get("rope_type", "default") == "default"
        if not plain and draw.flag():
            rope["type"] = rope.pop("rope_type")
        config["rope_scaling"] = None if plain else rope
    path.write_text(json.dumps(config))


def loom(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"loom {words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def differences(got, want):
    for name, w in want.items():
        if name not in got:
            yield f"{name} is missing"
            continue
        g, w = got[name].float(), w.detach()
        size = float(w.abs().max())
        bound = 1e-4 * max(1.0, size) if name == "logits" else 1e-3 * size + 5e-6
        off = float((g - w).abs().max()) if g.shape == w.shape else float("inf")
        if not off <= bound:
            yield f"{name}: off by {off:.2e} of {size:.2e}"


def greedy(model, prompt):
    """New tokens, and how far the second best was from each. Rotations that follow the length need transformers' cache."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, use_cache=True)
        return ids[0].tolist()[len(prompt):], [1.0] * NEW
    tokens, gaps = list(prompt), []
    for _ in range(NEW):
        with torch.no_grad():
            last = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = last.topk(2).values
        gaps.append(float(best[0] - best[1]))
        tokens.append(int(last.argmax()))
    return tokens[len(prompt):], gaps


def one(program, name, draw, folder):
    config = getattr(draw, name)()
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    dtype = draw.pick(torch.float32, torch.float32, torch.bfloat16, torch.float16)
    weights(model, dtype)
    ids = torch.randint(0, config.vocab_size, (draw.pick(1, 2, 3), draw.pick(2, 5, 9, 17)))
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    want = {"logits": out.logits, "loss": out.loss}
    for path, p in model.named_parameters():
        if p.grad is not None:
            want |= {f"grad.{n}": g.clone() for n, g in saved_as(config.model_type, path, p.grad)}
    save(model, folder, dtype, draw.flag())
    if draw.flag():
        older(folder, name, draw)
    rows = [",".join(map(str, row)) for row in ids.tolist()]
    words = [w for row in rows for w in ("--token-ids", row)] + [w for row in rows for w in ("--labels", row)]
    loom(program, "logits", folder, "--out", folder / "out.safetensors", *words)
    wrong = list(differences(load_file(folder / "out.safetensors"), want))
    prompt = ids[0].tolist()
    tokens, gaps = greedy(model, prompt)
    new = json.loads(loom(program, "generate", folder, "--token-ids", rows[0], "--max-new-tokens", NEW, "--greedy", "--json"))
    new = new["ids"] if isinstance(new, dict) else new
    first = next((i for i in range(NEW) if new[i] != tokens[i]), None)
    if first is not None and gaps[first] > 1e-3:
        wrong.append(f"token {first} of {new}, not {tokens}")
    return config, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loom")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    tf.logging.set_verbosity_error()
    bad = 0
    for i in range(args.count):
        draw = Draw(f"{args.seed} {i}")
        torch.manual_seed(draw.random.randrange(1 << 30))
        name = draw.pick(*(args.models or MODELS))
        with tempfile.TemporaryDirectory() as folder:
            try:
                config, wrong = one(args.loom, name, draw, pathlib.Path(folder))
            except RuntimeError as e:
                config, wrong = None, [str(e)]
        bad += bool(wrong)
        print(f"{i} {name}: {'; '.join(wrong[:4]) or 'ok'}", flush=True)
        if wrong and config:
            print("  ", config.to_diff_dict())
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
