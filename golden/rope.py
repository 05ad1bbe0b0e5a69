"""Writes crates/lang/tests/data/rope.txt: cosines and sines of every rotary variant, as transformers computes them.

    HF_HUB_OFFLINE=1 python golden/rope.py

A case is a line of `name=value` words for `precompute_rope_freqs`, then one line with the cosines and sines of the last
position, first half of the features.
"""

import pathlib

import torch
import transformers as tf
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/lang/tests/data/rope.txt"
DIM, MAX = 16, 64
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0]
LONG = [1.1, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]
CASES = [  # rows, rope parameters
    (40, dict(rope_type="default", rope_theta=10000.0)),
    (64, dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    (48, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    (200, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    (300, dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=MAX)),
    (90, dict(rope_type="yarn", rope_theta=500000.0, factor=2.0, original_max_position_embeddings=32,
              beta_fast=16.0, beta_slow=2.0, attention_factor=1.25)),
    (300, dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=MAX, truncate=False,
               mscale=0.707, mscale_all_dim=1.0)),
    (20, dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32, factor=2.0,
              short_factor=SHORT, long_factor=LONG)),
    (64, dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32, factor=2.0,
              short_factor=SHORT, long_factor=LONG)),
    (512, dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32)),
]
WORDS = dict(rope_type="scaling", rope_theta="theta", original_max_position_embeddings="original_max_seq")


def main():
    lines = []
    for rows, parameters in CASES:
        config = tf.LlamaConfig(hidden_size=4 * DIM, num_attention_heads=4, max_position_embeddings=MAX,
                                rope_parameters=dict(parameters))
        rope = LlamaRotaryEmbedding(config)
        cos, sin = rope(torch.zeros(1, dtype=torch.float32), torch.arange(rows)[None])
        text = lambda v: str(v).lower() if isinstance(v, bool) else str(v).replace(" ", "")
        words = {WORDS.get(k, k): text(v) for k, v in parameters.items()}
        lines.append(f"rows={rows} max_seq={MAX} dim={DIM} " + " ".join(f"{k}={v}" for k, v in words.items()))
        values = torch.cat([cos[0, -1, : DIM // 2], sin[0, -1, : DIM // 2]])
        lines.append(" ".join(f"{float(v):.9g}" for v in values))
    HERE.write_text("\n".join(lines) + "\n")


main()
