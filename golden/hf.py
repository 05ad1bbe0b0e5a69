"""Makes tiny random HuggingFace checkpoints with what transformers computes from them.

    HF_HUB_OFFLINE=1 python golden/hf.py            # write crates/models/tests/data/<model>/
    HF_HUB_OFFLINE=1 python golden/hf.py --check DIR llama # transformers reads an export: equal logits

Each folder holds config.json and model.safetensors as transformers saves them, and expected.safetensors with `logits`,
`loss` and `grad.<parameter>`, and expected.json with the ids, the prompt and 32 greedy tokens.
"""

import argparse
import json
import pathlib
import shutil

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
IDS = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]]
PROMPT = [1, 5, 7]
COMMON = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
GATED = dict(COMMON, intermediate_size=48)
NO_ENDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)

MODELS = {
    "llama": lambda: tf.LlamaConfig(**GATED, num_key_value_heads=2, **NO_ENDS),
    "llama3": lambda: tf.LlamaConfig(
        **GATED, num_key_value_heads=2, tie_word_embeddings=True, **NO_ENDS,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=16)),
    "qwen2": lambda: tf.Qwen2Config(**GATED, num_key_value_heads=2, **NO_ENDS),
    "mistral": lambda: tf.MistralConfig(**GATED, num_key_value_heads=2, sliding_window=4, head_dim=8, **NO_ENDS),
    "qwen3": lambda: tf.Qwen3Config(**GATED, num_key_value_heads=2, head_dim=16, **NO_ENDS),
    "gemma": lambda: tf.GemmaConfig(**GATED, num_key_value_heads=1, head_dim=8, **NO_ENDS),
    "gpt2": lambda: tf.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, **NO_ENDS),
    "phi3": lambda: tf.Phi3Config(**GATED, num_key_value_heads=2, **NO_ENDS),
    "gpt_neox": lambda: tf.GPTNeoXConfig(
        **dict(GATED, intermediate_size=64), rotary_pct=0.5, tie_word_embeddings=False, **NO_ENDS),
    "mixtral": lambda: tf.MixtralConfig(
        **GATED, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **NO_ENDS),
    "mixtral_gelu": lambda: tf.MixtralConfig(
        **dict(GATED, num_hidden_layers=1), num_key_value_heads=2, num_local_experts=3, num_experts_per_tok=2,
        hidden_act="gelu", **NO_ENDS),
    "mamba_gelu": lambda: tf.MambaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, state_size=8, conv_kernel=3, expand=2, time_step_rank=4,
        hidden_act="gelu_pytorch_tanh", **NO_ENDS),
    "gpt_neox_yarn": lambda: tf.GPTNeoXConfig(
        **dict(GATED, intermediate_size=64, num_hidden_layers=1), tie_word_embeddings=False, **NO_ENDS,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, partial_rotary_factor=0.5,
                             original_max_position_embeddings=16)),
    "gpt_neox_linear": lambda: tf.GPTNeoXConfig(
        **dict(GATED, intermediate_size=64, num_hidden_layers=1), tie_word_embeddings=False, **NO_ENDS,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0, partial_rotary_factor=1.0)),
    "mamba": lambda: tf.MambaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=8, conv_kernel=4, expand=2, time_step_rank=4,
        **NO_ENDS),
}


def build(name):
    torch.manual_seed(sum(map(ord, name)))
    config = MODELS[name]()
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=None).eval()
    # A tied embedding that is large answers every token with itself.
    wide = 0.1 if config.tie_word_embeddings else 1.0
    with torch.no_grad():
        for path, p in model.named_parameters():
            if "A_log" in path:
                continue
            if p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (wide if "embed" in path or "wte" in path else 0.4))
    return model


def saved_as(kind, path, g):
    """The names and parts under which a parameter is in the checkpoint, where those differ from the ones in memory."""
    if path == "lm_head.weight" and kind == "gpt_neox":
        return [("embed_out.weight", g)]
    moe = path.replace(".mlp.", ".block_sparse_moe.")
    if path.endswith("experts.gate_up_proj"):
        base = moe.removesuffix(".gate_up_proj")
        halves = [(f"{base}.{e}", x.chunk(2)) for e, x in enumerate(g)]
        return [(f"{b}.w1.weight", w1) for b, (w1, _) in halves] + [(f"{b}.w3.weight", w3) for b, (_, w3) in halves]
    if path.endswith("experts.down_proj"):
        return [(f"{moe.removesuffix('.down_proj')}.{e}.w2.weight", x) for e, x in enumerate(g)]
    return [(moe if path.endswith("mlp.gate.weight") else path, g)]


def expected(model):
    ids = torch.tensor(IDS)
    model.zero_grad()
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    tensors = {"logits": out.logits, "loss": out.loss}
    for path, p in model.named_parameters():
        tensors |= {f"grad.{n}": g for n, g in saved_as(model.config.model_type, path, p.grad)}
    tensors = {n: t.detach().clone().contiguous() for n, t in tensors.items()}
    tokens, gap = list(PROMPT), float("inf")
    for _ in range(32):
        with torch.no_grad():
            last = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        top = last.topk(2).values
        gap = min(gap, float(top[0] - top[1]))
        tokens.append(int(last.argmax()))
    return tensors, tokens[len(PROMPT):], gap


def write(name):
    model = build(name)
    tensors, tokens, gap = expected(model)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(tensors, folder / "expected.safetensors")
    text = json.dumps(dict(ids=IDS, prompt=PROMPT, tokens=tokens))
    (folder / "expected.json").write_text(text + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir()) // 1024
    print(f"{name}: {size} KB, smallest gap between the best two tokens {gap:.4f}, {len(set(tokens))} different tokens")
    saved = set(load_file(folder / "model.safetensors"))
    known = {n.removeprefix("grad.") for n in tensors if n.startswith("grad.")}
    assert saved == known, (sorted(saved - known)[:4], sorted(known - saved)[:4])


def check(folder, name):
    model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    want = load_file(HERE / name / "expected.safetensors")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(IDS), use_cache=False).logits
    worst = float((logits - want["logits"]).abs().max())
    print(f"{folder}: largest difference {worst:.2e}")
    assert worst < 1e-5


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs=2, metavar=("DIR", "MODEL"))
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    for name in [] if args.check else args.names or MODELS:
        write(name)
    if args.check:
        check(*args.check)
