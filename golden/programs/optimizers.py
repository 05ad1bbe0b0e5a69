"""Writes optimizers.golden: five steps of each optimiser and thirty of each schedule, as PyTorch (Lion: its paper) has them.

    python golden/programs/optimizers.py

    optimizer <name> <numbers>          then `param`, five `grad` and `after` lines: floats in hex
    schedule <name> <numbers>           then `lrs`, the learning rate at each step
"""

import pathlib

import numpy as np
import torch

rng = np.random.default_rng(5)
lines = []


def row(kind, a):
    lines.append(f"{kind} {np.asarray(a, '<f4').tobytes().hex()}")


def optimizer(text, make, params=None):
    p0 = rng.normal(size=6).astype("f4")
    grads = [rng.normal(size=6).astype("f4") for _ in range(5)]
    lines.append(f"optimizer {text}")
    row("param", p0)
    p = torch.tensor(p0, requires_grad=True)
    opt = make([p])
    for g in grads:
        p.grad = torch.tensor(g)
        opt.step()
        row("grad", g)
        row("after", p.detach().numpy())


class Lion:
    def __init__(self, params, lr, betas, weight_decay):
        self.p, self.lr, self.betas, self.decay, self.m = params[0], lr, betas, weight_decay, torch.zeros_like(params[0])

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        self.p.mul_(1 - self.lr * self.decay)
        self.p.sub_(torch.sign(b1 * self.m + (1 - b1) * self.p.grad), alpha=self.lr)
        self.m = b2 * self.m + (1 - b2) * self.p.grad


O = torch.optim
optimizer("sgd 0 0 0 0", lambda p: O.SGD(p, 0.1))
optimizer("sgd 0.9 0 0 0.01", lambda p: O.SGD(p, 0.1, momentum=0.9, weight_decay=0.01))
optimizer("sgd 0.9 0.3 0 0", lambda p: O.SGD(p, 0.1, momentum=0.9, dampening=0.3))
optimizer("sgd 0.8 0 1 0.1", lambda p: O.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.1))
optimizer("adam 0.9 0.999 0", lambda p: O.Adam(p, 0.1))
optimizer("adam 0.8 0.95 0.1", lambda p: O.Adam(p, 0.1, (0.8, 0.95), weight_decay=0.1))
optimizer("adamw 0.9 0.999 0.01", lambda p: O.AdamW(p, 0.1))
optimizer("adamw 0.7 0.9 0.2", lambda p: O.AdamW(p, 0.1, (0.7, 0.9), weight_decay=0.2))
optimizer("lion 0.9 0.99 0", lambda p: Lion(p, 0.1, (0.9, 0.99), 0.0))
optimizer("lion 0.8 0.9 0.1", lambda p: Lion(p, 0.1, (0.8, 0.9), 0.1))


def schedule(text, make, steps=30):
    opt = O.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    s = make(opt)
    lrs = []
    for _ in range(steps):
        lrs.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    lines.append(f"schedule {text}")
    lines.append("lrs " + " ".join(map(repr, lrs)))


L = O.lr_scheduler
schedule("steps 7 0.3", lambda o: L.StepLR(o, 7, 0.3))
schedule("cosine 30 0.01", lambda o: L.CosineAnnealingLR(o, 30, 0.01))
schedule("linear 0.1 1 12", lambda o: L.LinearLR(o, 0.1, 1.0, 12))
schedule("onecycle 31 0.3 25 1e4", lambda o: L.OneCycleLR(o, 0.5, total_steps=31, cycle_momentum=False))
schedule("lambda", lambda o: L.LambdaLR(o, lambda i: 0.95**i))
path = pathlib.Path(__file__).parent / "optimizers.golden"
path.write_text("\n".join(lines) + "\n")
