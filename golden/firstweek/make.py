"""Writes what PyTorch and JAX compute for the programs of `crates/tensorloom/examples` that a first week would bring.

    python golden/firstweek/make.py

One file a program, `NAME.safetensors`: what goes in under `init/` (parameters by PyTorch's names) and `data/`, what comes
out under `out/`. `crates/tensorloom/tests/firstweek.rs` runs the examples' own functions on the same.
"""

import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


class File:
    def __init__(self, name, seed):
        torch.manual_seed(seed)
        self.name, self.all = name, {}

    def put(self, name, t):
        t = torch.from_numpy(np.asarray(t).copy()) if not isinstance(t, torch.Tensor) else t
        self.all[name] = t.detach().clone().contiguous()

    def init(self, model):
        for n, p in model.state_dict().items():
            self.put(f"init/{n}", p)

    def end(self, model):
        for n, p in model.state_dict().items():
            self.put(f"out/{n}", p)

    def save(self):
        path = HERE / f"{self.name}.safetensors"
        save_file(self.all, path)
        print(path.name, path.stat().st_size)


def epochs(n, batch, seed, count):
    """The order of our DataLoader: jax.random.permutation by fold_in(key(seed), epoch)."""
    for e in range(count):
        key = jax.random.fold_in(jax.random.key(seed), e)
        order = np.asarray(jax.random.permutation(key, n))
        for i in range(0, n, batch):
            yield torch.from_numpy(order[i : i + batch].astype(np.int64))


def linear_regression():
    f = File("linear_regression", 1)
    x = torch.randn(40, 3)
    y = x @ torch.tensor([[2.0], [-1.0], [0.5]]) + 0.7 + 0.1 * torch.randn(40, 1)
    f.put("data/x", x), f.put("data/y", y)
    m = nn.Linear(3, 1)
    f.init(m)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5)
    losses = []
    for _ in range(60):
        loss = F.mse_loss(m(x), y)
        opt.zero_grad(), loss.backward(), opt.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses))
    ones = torch.cat([x, torch.ones(40, 1)], 1)
    f.put("out/exact", torch.linalg.lstsq(ones.double(), y.double()).solution.squeeze(-1).float())
    f.save()


def moons():
    f = File("moons", 2)
    n = 48
    t = torch.rand(n) * np.pi
    side = torch.arange(n) % 2
    x = torch.stack([torch.cos(t) * (1 - 2 * side) + side, torch.sin(t) * (1 - 2 * side) + 0.5 * side], 1)
    x = x + 0.1 * torch.randn(n, 2)
    y = side.float().unsqueeze(1)
    f.put("data/x", x), f.put("data/y", y)
    m = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    f.init(m)
    opt = torch.optim.AdamW(m.parameters(), lr=0.02, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=40)
    losses = []
    for ids in epochs(n, 20, 5, 8):
        loss = F.binary_cross_entropy_with_logits(m(x[ids]), y[ids])
        opt.zero_grad(), loss.backward(), opt.step(), sched.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses))
    f.put("out/accuracy", ((m(x) > 0).float() == y).float().mean())
    f.save()


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 2 * 2, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


def cnn():
    f = File("cnn", 3)
    n = 36
    y = torch.arange(n) % 3
    x = 0.3 * torch.randn(n, 1, 8, 8)
    for i in range(n):
        at = int(torch.randint(1, 7, ()))
        if y[i] == 0:
            x[i, 0, at, :] += 1.5
        elif y[i] == 1:
            x[i, 0, :, at] += 1.5
        else:
            x[i, 0] += 1.5 * torch.eye(8)
    f.put("data/x", x), f.put("data/y", y)
    m = Cnn()
    f.init(m)
    opt = torch.optim.Adam(m.parameters(), lr=0.01)
    losses = []
    for ids in epochs(n, 12, 7, 4):
        loss = F.cross_entropy(m(x[ids]), y[ids], label_smoothing=0.1)
        opt.zero_grad(), loss.backward(), opt.step()
        losses.append(loss.item())
    f.put("out/losses", torch.tensor(losses))
    f.end(m)
    m.eval()
    f.put("out/logits", m(x))
    f.save()


TEXT = "to be, or not to be: that is the question. whether tis nobler in the mind to suffer "


class CharLstm(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, 8)
        self.lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, vocab)

    def forward(self, ids, state=None):
        y, state = self.lstm(self.embed(ids), state)
        return self.head(y), state


def char_lstm():
    f = File("char_lstm", 4)
    letters = sorted(set(TEXT))
    ids = torch.tensor([letters.index(c) for c in TEXT])
    m = CharLstm(len(letters))
    f.init(m)
    opt = torch.optim.Adam(m.parameters(), lr=0.01)
    losses, norms = [], []
    x = torch.stack([ids[i : i + 20] for i in range(0, 60, 15)])
    y = torch.stack([ids[i + 1 : i + 21] for i in range(0, 60, 15)])
    for _ in range(12):
        logits, _ = m(x)
        loss = F.cross_entropy(logits.reshape(-1, len(letters)), y.reshape(-1))
        opt.zero_grad(), loss.backward()
        norms.append(nn.utils.clip_grad_norm_(m.parameters(), 0.25).item())
        opt.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses)), f.put("out/norms", torch.tensor(norms))
    # Greedy, one letter at a time, with the state carried on.
    out, state, last = [], None, ids[:1].unsqueeze(0)
    with torch.no_grad():
        for _ in range(10):
            logits, state = m(last, state)
            last = logits[:, -1:].argmax(-1)
            out.append(last.item())
    f.put("out/said", torch.tensor(out))
    f.save()


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 12, bidirectional=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        _, h = self.gru(x)
        return self.head(torch.cat([h[0], h[1]], -1))


def forecast():
    f = File("forecast", 5)
    series = torch.sin(torch.arange(80) * 0.3) + 0.05 * torch.randn(80)
    f.put("data/series", series)
    m = Forecast()
    f.init(m)
    x = torch.stack([series[i : i + 12] for i in range(60)], 1).unsqueeze(-1)
    y = series[12:72].unsqueeze(-1)
    opt = torch.optim.Adam(m.parameters(), lr=0.02)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.02, total_steps=15, cycle_momentum=False)
    losses = []
    for _ in range(14):
        loss = F.huber_loss(m(x), y, delta=0.5)
        opt.zero_grad(), loss.backward(), opt.step(), sched.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses)), f.put("out/next", m(x[:, -3:]))
    f.save()


def kmeans():
    f = File("kmeans", 6)
    centers = np.array([[0, 0], [4, 4], [0, 5], [5, 0]], np.float32)
    r = np.random.default_rng(6)
    x = np.concatenate([c + r.normal(size=(20, 2)) for c in centers]).astype(np.float32)
    f.put("data/x", x)
    f.put("data/start", x[[3, 24, 45, 66]])

    def assign(c):
        return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)

    def body(s):
        c, _, n = s
        one = jax.nn.one_hot(assign(c), 4)
        new = (one.T @ x) / jnp.maximum(one.sum(0), 1)[:, None]
        return new, jnp.abs(new - c).max(), n + 1

    c, _, n = jax.lax.while_loop(lambda s: (s[1] > 1e-4) & (s[2] < 50), body, (jnp.asarray(x[[3, 24, 45, 66]]), jnp.float32(1), jnp.int32(0)))
    f.put("out/centers", c), f.put("out/rounds", n), f.put("out/labels", np.asarray(assign(c)).astype(np.int64))
    f.save()


def pca():
    f = File("pca", 7)
    r = np.random.default_rng(7)
    x = (r.normal(size=(50, 3)) @ r.normal(size=(3, 8)) + 0.05 * r.normal(size=(50, 8))).astype(np.float32)
    f.put("data/x", x)
    centered = x - jnp.mean(x, 0)
    u, s, vt = jnp.linalg.svd(centered, full_matrices=False)
    f.put("out/ratio", s**2 / jnp.sum(s**2))
    f.put("out/projector", vt[:3].T @ vt[:3])
    f.put("out/restored", centered @ vt[:3].T @ vt[:3] + jnp.mean(x, 0))
    f.save()


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 12)
        self.mean = nn.Linear(12, 2)
        self.log_var = nn.Linear(12, 2)
        self.decode = nn.Linear(2, 12)
        self.out = nn.Linear(12, 8)

    def loss(self, x, noise):
        h = F.relu(self.encode(x))
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.exp(log_var / 2) * noise
        y = self.out(F.relu(self.decode(z)))
        kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(y, x, reduction="sum") / len(x) + kl


def vae():
    f = File("vae", 8)
    x = (torch.rand(24, 8) < torch.linspace(0.1, 0.9, 8)).float()
    f.put("data/x", x)
    m = Vae()
    f.init(m)
    opt = torch.optim.Adam(m.parameters(), lr=0.01)
    losses = []
    for i in range(15):
        noise = torch.from_numpy(np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(9), i), (24, 2), jnp.float32)).copy())
        loss = m.loss(x, noise)
        opt.zero_grad(), loss.backward(), opt.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses))
    f.save()


class Recommender(nn.Module):
    def __init__(self, users, films):
        super().__init__()
        self.user = nn.Embedding(users, 4)
        self.film = nn.Embedding(films, 4)
        self.user_bias = nn.Embedding(users, 1)
        self.film_bias = nn.Embedding(films, 1)

    def forward(self, u, i):
        return (self.user(u) * self.film(i)).sum(-1) + self.user_bias(u).squeeze(-1) + self.film_bias(i).squeeze(-1)


def recommender():
    f = File("recommender", 9)
    users, films, n = 12, 9, 60
    u, i = torch.randint(users, (n,)), torch.randint(films, (n,))
    r = (torch.randn(users, 2)[u] * torch.randn(films, 2)[i]).sum(-1).clamp(-2, 2)
    f.put("data/users", u), f.put("data/films", i), f.put("data/ratings", r)
    m = Recommender(users, films)
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(0.3)
    f.init(m)
    opt = torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-3, nesterov=True)
    losses = []
    for ids in epochs(n, 15, 11, 6):
        loss = F.mse_loss(m(u[ids], i[ids]), r[ids])
        opt.zero_grad(), loss.backward(), opt.step()
        losses.append(loss.item())
    f.end(m)
    f.put("out/losses", torch.tensor(losses))
    best = (m.user.weight @ m.film.weight.T + m.user_bias.weight + m.film_bias.weight.T)[0].topk(3)
    f.put("out/best", best.indices)
    f.save()


def newton():
    f = File("newton", 10)
    r = np.random.default_rng(10)
    x = r.normal(size=(60, 3)).astype(np.float32)
    x[:, 2] = 1
    y = (r.random(60) < 1 / (1 + np.exp(-(x @ np.array([1.5, -2, 0.3]))))).astype(np.float32)
    f.put("data/x", x), f.put("data/y", y)

    def loss(w):
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z) + 0.01 * jnp.sum(w * w)

    w, losses = jnp.zeros(3, jnp.float32), []
    for _ in range(6):
        losses.append(loss(w))
        w = w - jnp.linalg.solve(jax.hessian(loss)(w), jax.grad(loss)(w))
    f.put("out/w", w), f.put("out/losses", jnp.stack(losses))
    f.put("out/per_row", jax.vmap(lambda a, b: jax.grad(lambda w: jnp.logaddexp(0.0, a @ w) - b * (a @ w))(w))(x, y))
    f.save()


for program in [linear_regression, moons, cnn, char_lstm, forecast, kmeans, pca, vae, recommender, newton]:
    program()
