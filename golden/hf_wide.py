"""What transformers makes of models with the widths of real ones, two layers deep.

    HF_HUB_OFFLINE=1 python golden/hf_wide.py        # write crates/models/tests/data/wide/<model>/

Weights are not stored: `weights` here and in `crates/models/tests/wide.rs` draw the same ones. Each folder holds config.json
and expected.json: a prompt, greedy tokens, and the logits behind the prompt and behind the last token but one.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers as tf

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/wide"
NEW = 12
COMMON = dict(vocab_size=384, num_hidden_layers=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=None,
              pad_token_id=None)

MODELS = {
    "qwen2": lambda: tf.Qwen2Config(**COMMON, hidden_size=896, intermediate_size=4864, num_attention_heads=14,
                                    num_key_value_heads=2),
    "llama_1024": lambda: tf.LlamaConfig(**COMMON, hidden_size=1024, intermediate_size=2816, num_attention_heads=16,
                                         num_key_value_heads=16),
    "llama_2048": lambda: tf.LlamaConfig(**COMMON, hidden_size=2048, intermediate_size=5632, num_attention_heads=16,
                                         num_key_value_heads=4),
    "gemma": lambda: tf.GemmaConfig(**COMMON, hidden_size=1024, intermediate_size=2816, num_attention_heads=4,
                                    num_key_value_heads=1, head_dim=128),
    "gpt2": lambda: tf.GPT2Config(vocab_size=384, n_embd=768, n_layer=2, n_head=12, n_positions=128, tie_word_embeddings=False,
                                  bos_token_id=None, eos_token_id=None),
    "mamba": lambda: tf.MambaConfig(vocab_size=384, hidden_size=768, num_hidden_layers=2, state_size=16,
                                    bos_token_id=None, eos_token_id=None, pad_token_id=None),
}


def uniform(name, count):
    """Numbers in [-1, 1) that follow from a name: splitmix64 from its FNV-1a hash on, the upper 24 bits."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)


def weights(name, shape, embedding):
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    if len(shape) == 1:
        return u * np.float32(0.125) + np.float32("norm" in name or "ln_" in name or name.endswith(".D"))
    if name.endswith("A_log"):
        return u
    if "embed" in name or "wte" in name or "wpe" in name:
        return u * np.float32(embedding)
    # A power of two near the deviation that keeps lengths: products with it are exact everywhere.
    return u * np.float32(2.0 ** (1 - (shape[-1].bit_length() - 1) // 2))


def write(name):
    config = MODELS[name]()
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.tie_weights()
    # A tied embedding that is large answers every token with itself.
    embedding = 2.0 ** -6 if name == "gemma" else 0.25
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.copy_(torch.from_numpy(weights(path, tuple(p.shape), embedding)))
    prompt = [1, 300, 17, 255, 64, 128, 2]
    tokens, gap, logits = list(prompt), float("inf"), []
    for _ in range(NEW):
        with torch.no_grad():
            last = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        top = last.topk(2).values
        gap = min(gap, float(top[0] - top[1]))
        tokens.append(int(last.argmax()))
        logits.append(last)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    shapes = {path: list(p.shape) for path, p in model.named_parameters()}
    show = lambda row: [float(np.float32(x)) for x in row.tolist()]
    text = json.dumps(dict(embedding=embedding, prompt=prompt, tokens=tokens[len(prompt):], shapes=shapes, first=show(logits[0]),
                           last=show(logits[-1])))
    (folder / "expected.json").write_text(text + "\n")
    print(f"{name}: gap {gap:.4f} of {float(logits[-1].std()):.3f}, tokens {tokens[len(prompt):]}")


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        write(name)
