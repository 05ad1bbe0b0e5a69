"""Writes programs.golden: random PyTorch programs with the values and gradients that PyTorch gives them.

    python golden/programs/make.py

A program is a list of statements on named tensors; `crates/tensorloom/tests/programs.rs` runs the same statements on our
tensors. Tensors are written as shape and little-endian f32 (or i64) in hex.

    program <number>
    leaf <name> <shape> <hex>            a tensor that requires gradients
    data <name> <shape> <hex>            one that doesn't
    index <name> <shape> <hex>           i64
    <name> = <op> <args>                 a new tensor or view
    <op>_ <name> <args>                  in place
    nograd <statement>                   the statement inside no_grad
    backward <name> | retain <name>      backward, once or with retain_graph
    zero <name>                          takes a leaf's gradient away
    read <name> <shape> <hex>            the value at this point
    fails <statement>                    PyTorch refuses it (and so must we); backward that fails ends the program
    value <name> <shape> <hex>           at the end
    grad <name> <shape> <hex> | grad <name> none

Mixed in all of them: views and views of views, in-place writes to both, detach, no_grad, checkpoint, dropout with a given mask,
accumulated gradients, several backwards.
"""

import pathlib
import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
HERE = pathlib.Path(__file__).parent
COUNT = 360


def bodies(k):
    return [
        lambda x, y: torch.tanh(x * y) + x,
        lambda x, y: torch.sigmoid(x) * torch.cos(y),
        lambda x, y: torch.softmax(x * y, -1) - y,
    ][k]


def ints(text):
    return [int(t) for t in text.strip("[]").split(",") if t]


OPS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "cos": torch.cos,
    "relu": torch.relu,
    "neg": torch.neg,
    "abs": torch.abs,
    "square": torch.square,
    "silu": F.silu,
    "gelu": F.gelu,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layernorm": lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b, 1e-5),
    "rmsnorm": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
    "scale": lambda x, c: x * c,
    "offset": lambda x, c: x + c,
    "rsub": lambda x, c: c - x,
    "clamp": lambda x, a, b: torch.clamp(x, a, b),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (torch.sigmoid(y) + 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "matmul": torch.matmul,
    "where": lambda x, y: torch.where(x > y, x, y * 2.0),
    "transpose": lambda x, a, b: x.transpose(a, b),
    "reshape": lambda x, s: x.reshape(s),
    "view": lambda x, s: x.view(s),
    "slice": lambda x, a, i, j, k: x[(slice(None),) * a + (slice(i, j, k),)],
    "index": lambda x, a, i: x.select(a, i),
    "unsqueeze": lambda x, a: x.unsqueeze(a),
    "expand": lambda x, s: x.expand(s),
    "flip": lambda x, a: x.flip(a),
    "copy": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "sum_axes": lambda x, a, k: x.sum(a, keepdim=bool(k)),
    "mean_axes": lambda x, a, k: x.mean(a, keepdim=bool(k)),
    "max_axes": lambda x, a, k: x.amax(a, keepdim=bool(k)),
    "min_axes": lambda x, a, k: x.amin(a, keepdim=bool(k)),
    "var_axes": lambda x, a, c, k: x.var(a, correction=c, keepdim=bool(k)),
    "std_axes": lambda x, a, c, k: x.std(a, correction=c, keepdim=bool(k)),
    "logsumexp": lambda x, a, k: x.logsumexp(a, keepdim=bool(k)),
    "cumsum": lambda x, a: x.cumsum(a),
    "cumprod": lambda x, a: x.cumprod(a),
    "sort": lambda x, a, d: x.sort(dim=a, descending=bool(d), stable=True)[0],
    "topk": lambda x, k, a, d: x.topk(k, a, largest=bool(d))[0],
    "gather": lambda x, a, i: x.gather(a, i),
    "index_select": lambda x, a, i: x.index_select(a, i),
    "scatter": lambda x, a, i, s: x.scatter(a, i, s),
    "scatter_add": lambda x, a, i, s: x.scatter_add(a, i, s),
    "scatter_reduce": lambda x, a, i, s, how, own: x.scatter_reduce(
        a, i, s, ["sum", "prod", "mean", "amax", "amin"][how], include_self=bool(own)
    ),
    "index_add": lambda x, a, i, s: x.index_add(a, i, s),
    "index_copy": lambda x, a, i, s: x.index_copy(a, i, s),
    "index_fill": lambda x, a, i, c: x.index_fill(a, i, c),
    "masked_fill": lambda x, m, c: x.masked_fill(m > 0, c),
    "tril": lambda x, k: x.tril(k),
    "triu": lambda x, k: x.triu(k),
    "dropout": lambda x, m, r: torch.where(m > 0, x / (1 - r), torch.zeros(())),
    "concat": lambda x, y, a: torch.cat([x, y], a),
    "stack": lambda x, y, a: torch.stack([x, y], a),
    "checkpoint": lambda x, y, k: checkpoint(bodies(k), x, y, use_reentrant=False),
    "conv1d": lambda x, w, b, s, p, d, g: F.conv1d(x, w, b, s, p, d, g),
    "conv2d": lambda x, w, b, s, p, d, g: F.conv2d(x, w, b, s, p, d, g),
    "max_pool1d": lambda x, k, s, p: F.max_pool1d(x, k, s, p),
    "max_pool2d": lambda x, k, s, p: F.max_pool2d(x, k, s, p),
    "avg_pool1d": lambda x, k, s, p: F.avg_pool1d(x, k, s, p),
    "avg_pool2d": lambda x, k, s, p: F.avg_pool2d(x, k, s, p),
    "group_norm": lambda x, w, b, g: F.group_norm(x, g, w, b),
    "embedding": lambda w, i: F.embedding(i, w),
    "cross_entropy": lambda x, i, s: F.cross_entropy(x, i, label_smoothing=s),
    "cross_entropy_ignore": lambda x, i, k: F.cross_entropy(x, i, ignore_index=k),
    "nll_loss": lambda x, i: F.nll_loss(x, i),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "l1_loss": lambda x, y: F.l1_loss(x, y),
    "smooth_l1_loss": lambda x, y, b: F.smooth_l1_loss(x, y, beta=b),
    "huber_loss": lambda x, y, b: F.huber_loss(x, y, delta=b),
    "bce_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
    "bce": lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y)),
    "kl_div": lambda x, y: F.kl_div(x, torch.softmax(y, -1), reduction="mean"),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1, eps=1e-8),
    "prod": lambda x: x.prod(),
    "add_": lambda x, y: x.add_(y),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x, c: x.fill_(c),
    "add_scalar_": lambda x, c: x.add_(c),
    "mul_scalar_": lambda x, c: x.mul_(c),
    "tanh_": lambda x: x.tanh_(),
    "sigmoid_": lambda x: x.sigmoid_(),
    "sin_": lambda x: x.sin_(),
    "neg_": lambda x: x.neg_(),
    "relu_": lambda x: x.relu_(),
    "square_": lambda x: x.square_(),
    "clamp_": lambda x, a, b: x.clamp_(a, b),
    "addcmul_": lambda x, y, z, c: x.addcmul_(y, z, value=c),
    "addcdiv_": lambda x, y, c: x.addcdiv_(y, torch.sigmoid(x.detach()) + 0.5, value=c),
    "lerp_": lambda x, y, c: x.lerp_(y, c),
    "masked_fill_": lambda x, m, c: x.masked_fill_(m > 0, c),
    "scatter_add_": lambda x, a, i, s: x.scatter_add_(a, i, s),
    "scatter_": lambda x, a, i, s: x.scatter_(a, i, s),
    "index_add_": lambda x, a, i, s: x.index_add_(a, i, s),
    "index_copy_": lambda x, a, i, s: x.index_copy_(a, i, s),
}


VIEWS = "transpose reshape view slice index unsqueeze expand detach contiguous".split()


class Reject(Exception):
    pass


class Program:
    def __init__(self, seed, dtype=torch.float32):
        self.dtype = dtype
        self.r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.env, self.ids, self.lines, self.leaves = {}, {}, [], []
        self.count, self.given = 0, {}

    def write(self, kind, name, t):
        a = t.detach().contiguous().numpy()
        a = a.astype("<i8" if t.dtype == torch.int64 else "<f4")
        self.lines.append(f"{kind} {name} [{','.join(map(str, a.shape))}] {a.tobytes().hex() or '-'}")

    def fresh(self):
        self.count += 1
        return f"t{self.count}"

    def make(self, shape, kind):
        name = self.fresh()
        t = torch.tensor(self.np.uniform(-1.5, 1.5, shape).astype("f4")).to(self.dtype)
        if kind == "leaf":
            self.leaves.append(name)
        self.write(kind, name, t)
        if kind == "leaf":
            t.requires_grad_()
        self.env[name] = t
        self.given[name] = t.detach().clone()
        return name

    def index(self, shape, n, unique_axis=None):
        name = self.fresh()
        if unique_axis is None:
            a = self.np.integers(0, n, shape)
        else:
            a = np.argsort(self.np.random([*shape[:unique_axis], n, *shape[unique_axis + 1 :]]), unique_axis)
            a = np.take(a, range(shape[unique_axis]), unique_axis)
        t = torch.tensor(a.astype("i8"))
        self.write("index", name, t)
        self.ids[name] = t
        return name

    def value(self, word):
        if word in self.env:
            return self.env[word]
        if word in self.ids:
            return self.ids[word]
        if word.startswith("["):
            return ints(word)
        return float(word) if "." in word else int(word)

    def pick(self, ok=lambda t: True):
        names = [n for n, t in self.env.items() if ok(t)]
        if not names:
            raise Reject
        # Later tensors are more interesting.
        return self.r.choice(names[-8:] + names)

    def alike(self, x):
        return self.pick(lambda t: t.shape == x.shape)

    def number(self):
        return repr(round(self.r.uniform(-1.2, 1.2), 2))

    def statement(self):
        """A random op with arguments: (words, in place)."""
        r = self.r
        if r.random() < 0.28:
            return self.in_place()
        kind = r.random()
        n = self.pick(lambda t: t.dim() > 0)
        x = self.env[n]
        axis = r.randrange(x.dim())
        if kind < 0.2:
            op = r.choice("tanh sigmoid sin cos relu neg abs square silu gelu softmax log_softmax".split())
            return [op, n]
        if kind < 0.26:
            return r.choice([["scale", n, self.number()], ["offset", n, self.number()], ["rsub", n, self.number()],
                             ["clamp", n, "-0.6", "0.7"]])
        if kind < 0.45:
            op = r.choice("add sub mul mul div maximum minimum where".split())
            m = self.pick(lambda t: t.dim() == 0 or t.shape == x.shape or t.shape == x.shape[1:])
            return [op, n, m]
        if kind < 0.5:
            m = self.pick(lambda t: t.dim() == 2 and t.shape[0] == x.shape[-1])
            return ["matmul", n, m]
        if kind < 0.7:
            size = x.shape[axis]
            start = r.randrange(size)
            choices = [
                ["transpose", n, str(axis), str(r.randrange(x.dim()))],
                ["slice", n, str(axis), str(start), str(r.randint(start + 1, size)), str(r.choice([1, 1, 2]))],
                ["index", n, str(axis), str(start)],
                ["unsqueeze", n, str(r.randrange(x.dim() + 1))],
                ["reshape", n, "[-1]"],
                ["view", n, f"[{x.numel()}]"],
                ["view", n, f"[{x.shape[0]},-1]"],
                ["expand", n, f"[2,{','.join(map(str, x.shape))}]"],
                ["detach", n],
                ["copy", n],
                ["contiguous", n],
                ["flip", n, f"[{axis}]"],
            ]
            return r.choice(choices)
        if kind < 0.8:
            op = r.choice("sum_axes mean_axes max_axes min_axes logsumexp var_axes std_axes".split())
            keep = str(r.randrange(2))
            if op in ("var_axes", "std_axes"):
                if x.shape[axis] < 2:
                    raise Reject
                return [op, n, f"[{axis}]", "1", keep]
            return [op, n, f"[{axis}]", keep]
        if kind < 0.85:
            return r.choice([["cumsum", n, str(axis)], ["cumprod", n, str(axis)], ["sort", n, str(axis), str(r.randrange(2))],
                             ["topk", n, str(r.randint(1, x.shape[axis])), str(axis), str(r.randrange(2))]])
        if kind < 0.95:
            return self.indexed(n, x, axis)
        m = self.alike(x)
        mask = self.make(tuple(x.shape), "data")
        return r.choice([
            ["dropout", n, mask, "0.3"],
            ["concat", n, m, str(axis)],
            ["stack", n, m, str(r.randrange(x.dim() + 1))],
            ["checkpoint", n, m, str(r.randrange(3))],
            ["checkpoint", n, m, str(r.randrange(3))],
            ["layernorm", n, self.make((x.shape[-1],), "leaf"), self.make((x.shape[-1],), "leaf")],
            ["rmsnorm", n, self.make((x.shape[-1],), "leaf")],
        ])

    def indexed(self, n, x, axis):
        r = self.r
        op = r.choice("gather index_select scatter scatter_add scatter_reduce index_add index_copy index_fill masked_fill tril".split())
        size = x.shape[axis]
        if op == "tril":
            if x.dim() < 2:
                raise Reject
            return [r.choice(["tril", "triu"]), n, str(r.randint(-1, 1))]
        if op == "masked_fill":
            return [op, n, self.make(tuple(x.shape), "data"), self.number()]
        k = r.randint(1, size)
        if op in ("index_select", "index_add", "index_fill"):
            i = self.index([k], size)
        elif op == "index_copy":
            i = self.index([k], size, 0)
        else:
            shape = [k if a == axis else r.randint(1, s) for a, s in enumerate(x.shape)]
            i = self.index(shape, size, axis if op in ("scatter",) else None)
        if op in ("gather", "index_select"):
            return [op, n, str(axis), i]
        if op == "index_fill":
            return [op, n, str(axis), i, self.number()]
        if op in ("index_add", "index_copy"):
            s = self.make(tuple(k if a == axis else d for a, d in enumerate(x.shape)), r.choice(["leaf", "data"]))
            return [op, n, str(axis), i, s]
        s = self.make(tuple(shape), r.choice(["leaf", "data"]))
        if op == "scatter_reduce":
            return [op, n, str(axis), i, s, str(r.randrange(5)), str(r.randrange(2))]
        return [op, n, str(axis), i, s]

    def in_place(self):
        r = self.r
        names = [n for n, t in self.env.items() if n not in self.leaves and t.dim() > 0]
        if r.random() < 0.06:
            names = self.leaves
        if not names:
            raise Reject
        n = r.choice(names[-6:] + names)
        x = self.env[n]
        axis = r.randrange(x.dim()) if x.dim() else 0
        kind = r.random()
        if kind < 0.35:
            m = self.pick(lambda t: t.dim() == 0 or t.shape == x.shape or t.shape == x.shape[1:])
            return [r.choice("add_ sub_ mul_ mul_ copy_".split()), n, m]
        if kind < 0.55:
            return r.choice([["zero_", n], ["fill_", n, self.number()], ["add_scalar_", n, self.number()],
                             ["mul_scalar_", n, self.number()], ["clamp_", n, "-0.8", "0.9"]])
        if kind < 0.75:
            return [r.choice("tanh_ sigmoid_ sin_ neg_ relu_ square_".split()), n]
        m = self.alike(x)
        if kind < 0.9:
            mask = self.make(tuple(x.shape), "data")
            return r.choice([["addcmul_", n, m, self.alike(x), self.number()], ["lerp_", n, m, self.number()],
                             ["addcdiv_", n, m, self.number()], ["masked_fill_", n, mask, self.number()]])
        if x.dim() == 0:
            raise Reject
        k = r.randint(1, x.shape[axis])
        s = self.make(tuple(k if a == axis else d for a, d in enumerate(x.shape)), r.choice(["leaf", "data"]))
        if r.random() < 0.5:
            i = self.index([k], x.shape[axis], 0)
            return [r.choice(["index_add_", "index_copy_"]), n, str(axis), i, s]
        i = self.index([k if a == axis else d for a, d in enumerate(x.shape)], x.shape[axis], axis)
        return [r.choice(["scatter_", "scatter_add_"]), n, str(axis), i, s]

    def run(self, words):
        op, args = words[0], [self.value(w) for w in words[1:]]
        return OPS[op](*args)

    def step(self):
        """One statement more; False if the program is over."""
        keep = len(self.lines), dict(self.env), dict(self.ids), list(self.leaves), self.count
        try:
            words = self.statement()
        except Reject:
            self.lines, self.env, self.ids, self.leaves, self.count = self.lines[: keep[0]], *keep[1:]
            return True
        text = " ".join(words)
        # PyTorch forbids most uses of a view that was made under no_grad, so none is.
        quiet = self.r.random() < 0.12 and words[0] not in VIEWS
        inplace = words[0].endswith("_")
        if self.r.random() < 0.08 and not inplace:
            self.read()
        try:
            if quiet:
                with torch.no_grad():
                    y = self.run(words)
            else:
                y = self.run(words)
        except RuntimeError as e:
            message = str(e)
            refused = "leaf Variable" in message or "view of a leaf" in message or "more than one element of the written-to" in message
            if inplace and refused:
                self.lines.append(f"fails {'nograd ' if quiet else ''}{text}")
                return True
            # Shapes that don't fit, or a rule of PyTorch's own about its views: not in the program.
            self.lines, self.env, self.ids, self.leaves, self.count = self.lines[: keep[0]], *keep[1:]
            return True
        if inplace:
            self.lines.append(f"{'nograd ' if quiet else ''}{text}")
            return True
        name = self.fresh()
        self.lines.append(f"{'nograd ' if quiet else ''}{name} = {text}")
        self.env[name] = y
        return True

    def read(self):
        n = self.pick()
        self.write("read", n, self.env[n])

    def backward(self, last):
        names = [n for n, t in self.env.items() if t.requires_grad and n not in self.leaves]
        if not names:
            return True
        n = self.r.choice(names[-4:])
        s = self.fresh()
        square = self.r.random() < 0.5
        if not square:
            self.env[s] = self.env[n].sum()
            self.lines.append(f"{s} = sum {n}")
        else:
            q = self.fresh()
            self.env[q] = self.env[n].square()
            self.env[s] = self.env[q].sum()
            self.lines.append(f"{q} = square {n}")
            self.lines.append(f"{s} = sum {q}")
        retain = not last or self.r.random() < 0.3
        word = "retain" if retain else "backward"
        try:
            self.env[s].backward(retain_graph=retain)
        except RuntimeError as e:
            if "modified by an inplace operation" in str(e) or "second time" in str(e):
                self.lines.append(f"fails {word} {s}")
                return False
            raise
        self.lines.append(f"{word} {s}")
        if self.r.random() < 0.15 and self.leaves:
            leaf = self.r.choice(self.leaves)
            self.env[leaf].grad = None
            self.lines.append(f"zero {leaf}")
        return True

    def text(self, number):
        self.lines.append(f"program {number}")
        shapes = [(2, 3), (3,), (3, 4), (2, 3), (4,), (2, 2, 3), (3, 3)]
        for k in range(self.r.randint(2, 4)):
            self.make(self.r.choice(shapes), "leaf")
        for _ in range(2):
            self.make(self.r.choice(shapes), "data")
        alive = True
        for part in range(self.r.choice([1, 1, 2, 3])):
            for _ in range(self.r.randint(6, 16)):
                self.step()
            alive = alive and self.backward(last=False)
            if not alive:
                break
        if alive:
            for _ in range(3):
                self.step()
            alive = self.backward(last=True)
        for n, t in self.env.items():
            # What was given and never changed is not written twice.
            if n not in self.given or not torch.equal(t.detach(), self.given[n]):
                self.write("value", n, t)
        # Where backward fails, what it did before is PyTorch's own affair.
        for n in self.leaves if alive else []:
            g = self.env[n].grad
            if g is None:
                self.lines.append(f"grad {n} none")
            else:
                self.write("grad", n, g)
        numbers = [t for t in self.env.values()] + [self.env[n].grad for n in self.leaves if self.env[n].grad is not None]
        self.numbers = [t.detach().double() for t in numbers if t.numel()]
        return all(torch.isfinite(t).all() and t.abs().max() < 40 for t in self.numbers), alive


def steady(seed, p):
    """Whether f64 gives the same numbers: a program that only rounding decides says nothing."""
    exact = Program(seed, torch.float64)
    exact.text(0)
    pairs = list(zip(p.numbers, exact.numbers))
    return len(p.numbers) == len(exact.numbers) and all(
        ((a - b).abs() <= 8e-6 * b.abs() + 1.5e-6 * max(1.0, b.abs().max().item())).all() for a, b in pairs
    )


LAYERS = [
    # op, then leaves by shape, labels as ("index", shape, classes), and words
    ("conv1d", (2, 4, 9), (6, 4, 3), (6,), "1", "0", "1", "1"),
    ("conv1d", (2, 4, 9), (6, 2, 3), (6,), "2", "1", "2", "2"),
    ("conv2d", (1, 3, 6, 5), (4, 3, 3, 3), (4,), "1", "1", "1", "1"),
    ("conv2d", (2, 4, 7, 7), (4, 1, 3, 3), (4,), "2", "2", "2", "4"),
    ("max_pool1d", (2, 3, 9), "3", "2", "1"),
    ("max_pool2d", (1, 2, 6, 6), "2", "2", "0"),
    ("avg_pool1d", (2, 3, 8), "3", "2", "1"),
    ("avg_pool2d", (1, 2, 6, 6), "3", "3", "1"),
    ("group_norm", (2, 6, 4), (6,), (6,), "3"),
    ("embedding", (5, 3), ("index", [2, 4], 5)),
    ("cross_entropy", (4, 5), ("index", [4], 5), "0.0"),
    ("cross_entropy", (4, 5), ("index", [4], 5), "0.2"),
    ("cross_entropy_ignore", (6, 3), ("index", [6], 3), "1"),
    ("nll_loss", (4, 5), ("index", [4], 5)),
    ("mse_loss", (3, 4), (3, 4)),
    ("l1_loss", (3, 4), (3, 4)),
    ("smooth_l1_loss", (3, 4), (3, 4), "0.7"),
    ("huber_loss", (3, 4), (3, 4), "0.7"),
    ("bce_with_logits", (3, 4), (3, 4)),
    ("bce", (3, 4), (3, 4)),
    ("kl_div", (3, 4), (3, 4)),
    ("cosine_similarity", (3, 4), (3, 4)),
    ("prod", (5,)),
]


def layer(number, spec):
    """One layer or loss, with the gradients of all that it is given."""
    p = Program(1000 + number)
    p.lines.append(f"program {number}")
    words = [spec[0]]
    for part in spec[1:]:
        if isinstance(part, str):
            words.append(part)
        elif part[0] == "index":
            words.append(p.index(part[1], part[2]))
        else:
            words.append(p.make(part, "leaf"))
    name, square, total = p.fresh(), p.fresh(), p.fresh()
    p.env[name] = p.run(words)
    p.env[square] = p.env[name].square()
    p.env[total] = p.env[square].sum()
    p.env[total].backward()
    p.lines += [f"{name} = {' '.join(words)}", f"{square} = square {name}", f"{total} = sum {square}", f"backward {total}"]
    p.write("value", name, p.env[name])
    for leaf in p.leaves:
        p.write("grad", leaf, p.env[leaf].grad)
    return "\n".join(p.lines)


def main():
    out, number, seed, failing = [], 0, 0, 0
    while number < COUNT:
        seed += 1
        p = Program(seed)
        try:
            good, alive = p.text(number)
        except Reject:
            continue
        if not good or not steady(seed, p) or (not alive and failing >= COUNT // 5):
            continue
        failing += not alive
        number += 1
        out.append("\n".join(p.lines))
    out += [layer(number + i, spec) for i, spec in enumerate(LAYERS)]
    path = HERE / "programs.golden"
    path.write_text("\n\n".join(out) + "\n")
    print(path, path.stat().st_size, "bytes,", failing, "programs whose backward fails")


main()
