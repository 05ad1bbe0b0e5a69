"""Writes crates/models/tests/data/<model>/bf16.safetensors: logits and loss of the golden checkpoints in bfloat16.

    HF_HUB_OFFLINE=1 python golden/bf16.py [MODEL ...]
"""

import pathlib
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
IDS = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]]
MODELS = ["llama", "qwen3", "gemma", "gpt2"]

for name in sys.argv[1:] or MODELS:
    model = tf.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.bfloat16).eval()
    ids = torch.tensor(IDS)
    with torch.no_grad():
        out = model(input_ids=ids, labels=ids, use_cache=False)
    save_file({"logits": out.logits.float().contiguous(), "loss": out.loss.float()}, HERE / name / "bf16.safetensors")
    print(name, float(out.loss))
