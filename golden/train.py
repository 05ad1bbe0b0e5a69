"""Steps of PyTorch's AdamW on the tiny Llama of golden/hf.py: crates/models/tests/data/train/.

    HF_HUB_OFFLINE=1 python golden/train.py

Clipping by global norm, decoupled decay on matrices alone, a rate that changes with every step.
"""

import json
import pathlib

import torch
import transformers as tf
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
RATES = [2e-4, 4e-4, 1e-3, 8e-4, 5e-4]


def main():
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_pretrained(DATA / "llama", dtype=torch.float32)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    adam = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for rate in RATES:
        tokens = torch.randint(0, 64, (2, 8))
        ids, labels = tokens[:, :-1], tokens[:, 1:]
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 64), labels.reshape(-1))
        adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        steps.append(dict(ids=ids.flatten().tolist(), labels=labels.flatten().tolist(), rate=rate,
                          loss=float(loss), norm=float(norm)))
    folder = DATA / "train"
    folder.mkdir(exist_ok=True)
    (folder / "expected.json").write_text(json.dumps(dict(steps=steps)) + "\n")
    save_file({n: p.detach().clone().contiguous() for n, p in model.named_parameters()}, folder / "expected.safetensors")
    print([round(s["loss"], 4) for s in steps], [round(s["norm"], 3) for s in steps])


if __name__ == "__main__":
    main()
