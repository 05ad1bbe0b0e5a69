"""Steps of PyTorch's AdamW with a rate, a decay and a clip of their own for some tensors: crates/models/tests/data/scaled/.

    python golden/scaled.py

The model is written out in the language and travels in config.json; `@trainable(lr_scale, wd_scale, grad_clip)` and
`@frozen` are PyTorch's parameter groups.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/scaled"
RATES = [1e-2, 3e-2, 2e-2, 5e-2]
VOCAB, WIDTH = 12, 6
TEXT = f'''model Scaled(vocab_size: int = {VOCAB}, d_model: int = {WIDTH}):
  params:
    embedding: [vocab_size, d_model] @trainable(lr_scale=0.1)
    gain: [d_model] @trainable(grad_clip=0.05)
    mix: [d_model, d_model] @trainable(lr_scale=2.0, wd_scale=3.0, grad_clip=0.2)
    still: [d_model, d_model] @frozen
    head: [vocab_size, d_model] @trainable(wd_scale=0.0)

  forward:
    in: [B, T, int32]
    out: [B, T, vocab_size]
    graph:
      in -> embedding(embedding) -> x
      (x, gain) -> mul() -> matmul(mix, transpose=NT) -> silu() -> h
      h -> matmul(still, transpose=NT) -> s
      (x, s) -> add() -> y
      y -> matmul(head, transpose=NT) -> out
'''


def main():
    torch.manual_seed(7)
    shapes = dict(embedding=(VOCAB, WIDTH), gain=(WIDTH,), mix=(WIDTH, WIDTH), still=(WIDTH, WIDTH), head=(VOCAB, WIDTH))
    p = {n: torch.randn(s).requires_grad_(n != "still") for n, s in shapes.items()}
    HERE.mkdir(exist_ok=True)
    save_file({n: t.detach().clone() for n, t in p.items()}, HERE / "model.safetensors")
    own = dict(file="scaled", model="Scaled", given=dict(vocab_size=VOCAB, d_model=WIDTH), files=dict(scaled=TEXT))
    config = dict(architectures=["Scaled"], model_type="tensorloom", tensorloom=own)
    (HERE / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    scales = dict(embedding=(0.1, 0.1), gain=(1.0, 0.0), mix=(2.0, 0.3), head=(1.0, 0.0))  # rate, decay
    clips = dict(gain=0.05, mix=0.2)
    groups = [dict(params=[p[n]], scale=rate, weight_decay=decay) for n, (rate, decay) in scales.items()]
    adam = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for rate in RATES:
        tokens = torch.randint(0, VOCAB, (2, 6))
        ids, labels = tokens[:, :-1], tokens[:, 1:]
        x = p["embedding"][ids]
        h = torch.nn.functional.silu((x * p["gain"]) @ p["mix"].T)
        logits = (x + h @ p["still"].T) @ p["head"].T
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
        adam.zero_grad()
        loss.backward()
        own_norms = {n: float(torch.nn.utils.clip_grad_norm_([p[n]], c)) for n, c in clips.items()}
        norm = torch.nn.utils.clip_grad_norm_([t for t in p.values() if t.requires_grad], 1.0)
        for group in adam.param_groups:
            group["lr"] = rate * group["scale"]
        adam.step()
        steps.append(dict(ids=ids.flatten().tolist(), labels=labels.flatten().tolist(), rate=rate,
                          loss=float(loss.detach()), norm=float(norm)))
        print(round(steps[-1]["loss"], 4), round(steps[-1]["norm"], 4), own_norms)
    (HERE / "expected.json").write_text(json.dumps(dict(steps=steps)) + "\n")
    save_file({n: t.detach().clone() for n, t in p.items()}, HERE / "expected.safetensors")


if __name__ == "__main__":
    main()
