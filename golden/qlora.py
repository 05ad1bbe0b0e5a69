"""QLoRA on the tiny Llama: the base's matrices in nf4 by bitsandbytes, an adapter by peft: crates/models/tests/data/qlora/.

Needs `bitsandbytes` beside the packages of `requirements.txt`. The adapter is that of golden/lora.py. Written are the logits, beside and
merged, the gradient of the adapter for a batch, and a few steps of AdamW.
"""

import json

import bitsandbytes.functional as bnb
import peft
import torch
from safetensors.torch import save_file

import lora

GROUP = 32


def dequantised():
    model = lora.base("llama")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not (name == "lm_head" and model.config.tie_word_embeddings):
            with torch.no_grad():
                w = module.weight
                # Rows that don't divide into groups stay as they are.
                if w.shape[1] % GROUP != 0:
                    continue
                q, state = bnb.quantize_4bit(w.detach().contiguous(), blocksize=GROUP, quant_type="nf4")
                w.copy_(bnb.dequantize_4bit(q, state).reshape(w.shape))
    return model


def main():
    folder = lora.DATA / "qlora"
    folder.mkdir(exist_ok=True)
    model = peft.PeftModel.from_pretrained(dequantised(), lora.DATA / "lora/llama", is_trainable=True).eval()
    tensors = {"logits": lora.logits(model)}
    torch.manual_seed(5)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    adam = torch.optim.AdamW(trained.values(), lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    steps = []
    for rate in lora.RATES:
        tokens = torch.randint(0, 64, (2, 8))
        ids, labels = tokens[:, :-1], tokens[:, 1:]
        out = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(out.reshape(-1, 64), labels.reshape(-1))
        adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        if not steps:
            for name, p in trained.items():
                tensors["grad." + name] = p.grad.clone().contiguous()
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        steps.append(dict(ids=ids.flatten().tolist(), labels=labels.flatten().tolist(), rate=rate,
                          loss=float(loss.detach()), norm=float(norm)))
    tensors["merged"] = lora.logits(model.merge_and_unload())
    save_file(tensors, folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps(dict(steps=steps)) + "\n")
    print([round(s["loss"], 4) for s in steps], list(tensors)[:4])


if __name__ == "__main__":
    main()
