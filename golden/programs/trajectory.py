"""Writes trajectory.golden: twenty AdamW steps of a small transformer in PyTorch, the learning rate changing every step.

    python golden/programs/trajectory.py

    param <name> <shape> <hex>           before the first step, little-endian f32
    ids <shape> <hex>, labels ..         i64, one batch for each step
    step <learning rate> <loss>          the loss before the step's update
    final <name> <shape> <hex>           after the last step
"""

import pathlib

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)
VOCAB, WIDTH, HEADS, HIDDEN, BATCH, SEQ, STEPS = 13, 8, 2, 16, 2, 6, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        mask = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(SEQ, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.position(torch.arange(SEQ))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


lines = []


def write(kind, t, dtype):
    a = t.detach().contiguous().numpy().astype(dtype)
    lines.append(f"{kind} [{','.join(map(str, a.shape))}] {a.tobytes().hex()}")


model = Model()
for name, p in model.named_parameters():
    write(f"param {name}", p, "<f4")
ids, labels = torch.randint(0, VOCAB, (STEPS, BATCH, SEQ)), torch.randint(0, VOCAB, (STEPS, BATCH, SEQ))
write("ids", ids, "<i8")
write("labels", labels, "<i8")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-2, total_steps=STEPS, cycle_momentum=False)
for i in range(STEPS):
    lr = optimizer.param_groups[0]["lr"]
    optimizer.zero_grad()
    loss = F.cross_entropy(model(ids[i]).view(-1, VOCAB), labels[i].view(-1))
    loss.backward()
    optimizer.step()
    scheduler.step() if i + 1 < STEPS else None
    lines.append(f"step {lr!r} {loss.item()!r}")
for name, p in model.named_parameters():
    write(f"final {name}", p, "<f4")
path = pathlib.Path(__file__).parent / "trajectory.golden"
path.write_text("\n".join(lines) + "\n")
print(path, path.stat().st_size)
