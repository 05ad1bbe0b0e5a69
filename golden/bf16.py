"""Writes crates/models/tests/data/<model>/bf16.safetensors: the golden checkpoints in bfloat16.

    HF_HUB_OFFLINE=1 python golden/bf16.py [MODEL ...]

`logits` and `loss` are what transformers computes in bfloat16. `rounded` are the logits of the same rounded weights
computed in float32: what the bfloat16 model means, before the rounding of each step. `sure` marks the tokens (1 or 0)
whose experts don't depend on that rounding: no router comes nearer to a tie than TIE at them or at a token before.
At the others either choice of experts is right, and the logits jump.
"""

import pathlib
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
IDS = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]]
MODELS = ["llama", "qwen3", "gemma", "gpt2", "mixtral", "mamba"]
# Router logits are of size 4; bfloat16 keeps 8 bits of them, and of everything that led to them.
TIE = 0.05


def run(model, ids):
    choices, gaps = [], []

    def look(_module, _inputs, out):
        logits, _weights, chosen = out
        best, k = logits.float().sort(-1, descending=True).values, chosen.shape[-1]
        choices.append(chosen.sort(-1).values)
        gaps.append(best[:, k - 1] - best[:, k])

    hooks = [m.register_forward_hook(look) for name, m in model.named_modules() if name.endswith("mlp.gate")]
    with torch.no_grad():
        out = model(input_ids=ids, labels=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return out, choices, gaps


for name in sys.argv[1:] or MODELS:
    ids = torch.tensor(IDS)
    model = tf.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.bfloat16).eval()
    out, choices, _ = run(model, ids)
    wide, wide_choices, gaps = run(model.float(), ids)
    sure = torch.ones(ids.shape)
    for gap in gaps:
        sure = sure * (gap.reshape(ids.shape) >= TIE)
    sure = sure.cummin(1).values
    for layer, (a, b) in enumerate(zip(choices, wide_choices)):
        flipped = (a != b).any(-1).nonzero().flatten().tolist()
        print(f"{name}: layer {layer}: bfloat16 chooses other experts at tokens {flipped},"
              f" gaps in float32 {[round(float(gaps[layer][t]), 4) for t in flipped]}")
        assert all(sure.flatten()[t] == 0 for t in flipped)
    worst = ((out.logits.float() - wide.logits).abs().amax(-1) * sure).max()
    jump = (out.logits.float() - wide.logits).abs().max()
    print(f"{name}: loss {float(out.loss):.4f}, {int(sure.sum())} of {ids.numel()} tokens sure,"
          f" largest difference there {worst:.4f}, anywhere {jump:.4f}")
    tensors = {"logits": out.logits.float(), "loss": out.loss.float(), "rounded": wide.logits, "sure": sure}
    save_file({n: t.contiguous() for n, t in tensors.items()}, HERE / name / "bf16.safetensors")
