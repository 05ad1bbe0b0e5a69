"""Writes `layers.safetensors` and `show.txt`: what PyTorch's layers and losses compute, and how NumPy prints.

    python golden/layers/make.py

Names are `case/part`; a case's parameters are `case/param/NAME`, gradients `case/grad/NAME`. The loss behind gradients is
the sum of `case/weights` times the result.
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
OUT = {}


def put(name, t):
    OUT[name] = t.detach().clone().contiguous()


def module(case, m):
    for name, p in list(m.named_parameters()) + list(m.named_buffers()):
        put(f"{case}/param/{name}", p)


def gradients(case, m, inputs):
    for name, p in m.named_parameters():
        put(f"{case}/grad/{name}", p.grad)
    for name, t in inputs.items():
        put(f"{case}/grad/{name}", t.grad)


def recurrent(kind, layers, bidirectional, batch_first, bias, given, single):
    flags = "".join(str(int(f)) for f in [bidirectional, batch_first, bias, given, single])
    case = f"{kind}.{layers}.{flags}"
    make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind]
    m = make(3, 4, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias)
    module(case, m)
    shape = (5, 3) if single else ((2, 5, 3) if batch_first else (5, 2, 3))
    x = torch.randn(shape, requires_grad=True)
    put(f"{case}/x", x)
    inputs = {"x": x}
    state = None
    sides = layers * (2 if bidirectional else 1)
    if given:
        names = ["h", "c"] if kind == "lstm" else ["h"]
        for n in names:
            inputs[n] = torch.randn((sides, 4) if single else (sides, 2, 4), requires_grad=True)
            put(f"{case}/{n}", inputs[n])
        state = (inputs["h"], inputs["c"]) if kind == "lstm" else inputs["h"]
    y, last = m(x, state)
    put(f"{case}/y", y)
    for n, t in zip(["hn", "cn"], last if kind == "lstm" else [last]):
        put(f"{case}/{n}", t)
    weights = torch.randn_like(y)
    put(f"{case}/weights", weights)
    (y * weights).sum().backward()
    gradients(case, m, inputs)


def batch_norm(shape):
    m = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape)](shape[1])
    case = f"batch_norm.{len(shape)}"
    with torch.no_grad():
        m.weight.copy_(torch.rand_like(m.weight) + 0.5)
        m.bias.copy_(torch.randn_like(m.bias))
    module(case, m)
    for i in range(3):
        x = (torch.randn(shape) * (i + 1) + i).requires_grad_()
        y = m(x)
        put(f"{case}/x{i}", x)
        put(f"{case}/y{i}", y)
        for n, b in m.named_buffers():
            put(f"{case}/{n}{i}", b)
        if i == 2:
            weights = torch.randn_like(y)
            put(f"{case}/weights", weights)
            (y * weights).sum().backward()
            gradients(case, m, {"x2": x})
    m.eval()
    x = torch.randn(shape)
    put(f"{case}/x", x)
    put(f"{case}/y", m(x))


def cross_entropy():
    logits = torch.randn(6, 5) * 2
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    weight = torch.rand(5) + 0.2
    target = torch.softmax(torch.randn(6, 5), -1)
    put("cross_entropy/logits", logits)
    put("cross_entropy/labels", labels)
    put("cross_entropy/class_weights", weight)
    put("cross_entropy/probabilities", target)
    w = torch.randn(6)
    put("cross_entropy/weights", w)
    for reduction in ["mean", "sum", "none"]:
        for smoothing in [0.0, 0.1]:
            for weighted in [0, 1]:
                for kind in ["plain", "ignore", "soft"]:
                    x = logits.clone().requires_grad_()
                    kw = dict(reduction=reduction, label_smoothing=smoothing)
                    if weighted:
                        kw["weight"] = weight
                    if kind == "ignore":
                        kw["ignore_index"] = 2
                    loss = torch.nn.functional.cross_entropy(x, target if kind == "soft" else labels, **kw)
                    ((loss * w).sum() if reduction == "none" else loss).backward()
                    case = f"cross_entropy.{kind}.{reduction}.{smoothing}.{weighted}"
                    put(f"{case}/y", loss)
                    put(f"{case}/grad/logits", x.grad)


def clip():
    for norm in [1.0, 2.0, 3.0, float("inf")]:
        for limit in [0.5, 100.0]:
            params = [torch.zeros(3, 2, requires_grad=True), torch.zeros(4, requires_grad=True), torch.zeros(2, requires_grad=True)]
            for p in params[:2]:
                p.grad = torch.randn_like(p)
            case = f"clip.{norm}.{limit}"
            for i, p in enumerate(params[:2]):
                put(f"{case}/before{i}", p.grad)
            put(f"{case}/norm", torch.nn.utils.clip_grad_norm_(params, limit, norm_type=norm))
            for i, p in enumerate(params[:2]):
                put(f"{case}/after{i}", p.grad)
    p = torch.zeros(5, requires_grad=True)
    p.grad = torch.randn(5) * 2
    put("clip_value/before", p.grad)
    torch.nn.utils.clip_grad_value_([p], 0.7)
    put("clip_value/after", p.grad)


def scaler():
    """Steps of Adam behind a scaler; the gradients of some overflow."""
    w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    put("scaler/w", w)
    opt = torch.optim.Adam([w], lr=0.1)
    s = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    factors = [1.0, 1.0, float("inf"), 1.0, 1.0, 1.0, float("nan"), 1.0]
    put("scaler/factors", torch.tensor(factors))
    scales, ws = [], []
    for f in factors:
        opt.zero_grad()
        s.scale((w * w).sum() * f).backward()
        s.step(opt)
        s.update()
        scales.append(s.get_scale())
        ws.append(w.detach().clone())
    put("scaler/scales", torch.tensor(scales))
    put("scaler/ws", torch.stack(ws))


def show():
    r = np.random.default_rng(1)
    arrays = [
        np.array([1.0, 2.5], np.float32),
        np.array([[1, 20], [300, -4]], np.int64),
        np.array([True, False]),
        np.array(3.0, np.float32),
        np.array(-7, np.int32),
        np.zeros((0, 3), np.float32),
        np.array([np.nan, np.inf, -np.inf, 1.0], np.float32),
        np.array([np.nan, np.inf], np.float32),
        np.array([1e-5, 1.0, 1e5], np.float32),
        np.array([1e10, -2.5], np.float64),
        np.array([0.1, 0.25, 1 / 3], np.float32),
        np.array([0.1, 0.25, 1 / 3], np.float64),
        np.array([0.1, 0.25, 1 / 3], np.float16),
        np.array([-0.0, 0.0], np.float32),
        np.array([1e-300, 1e300], np.float64),
        np.array([123456789.0, 1.0], np.float32),
        np.array([16777216.0, 1.5], np.float32),
        r.normal(size=(2, 3, 4)).astype(np.float32),
        r.normal(size=(3, 30)).astype(np.float32),
        r.integers(0, 255, (4, 25)).astype(np.uint8),
        np.arange(1001),
        np.arange(24000).reshape(2, 3, 4000).astype(np.float32),
        np.arange(12 * 12 * 12).reshape(12, 12, 12),
        r.normal(size=(40, 40)).astype(np.float64),
        r.normal(size=(2, 2, 2, 2)).astype(np.float32),
        (r.normal(size=(5, 5)) * 10.0 ** r.integers(-3, 4, (5, 5))).astype(np.float32),
        np.array([[1.0]], np.float32),
        np.arange(7, dtype=np.uint64) + np.uint64(2**63),
    ]
    for kind in range(40):
        size = tuple(int(n) for n in r.integers(1, 6, r.integers(1, 4)))
        scale = 10.0 ** r.integers(-6, 9)
        a = r.normal(size=size) * scale if kind % 2 else np.round(r.normal(size=size) * 100) / 10.0 ** (kind % 4)
        arrays.append(a.astype([np.float32, np.float64, np.float16][kind % 3]))
    texts = []
    for i, a in enumerate(arrays):
        put(f"show/{i:02}", torch.from_numpy(a.copy()))
        text = np.array2string(a, separator=", ", prefix="tensor(", suffix=")")
        texts.append(text.replace("True", "true").replace("False", "false"))
    (HERE / "show.txt").write_text("\n---\n".join(texts) + "\n")


def main():
    torch.manual_seed(0)
    for kind in ["lstm", "gru"]:
        recurrent(kind, 1, False, False, True, False, False)
        recurrent(kind, 1, True, False, True, True, False)
        recurrent(kind, 2, False, True, True, True, False)
        recurrent(kind, 2, True, True, True, False, False)
        recurrent(kind, 3, True, False, False, True, False)
        recurrent(kind, 2, True, False, True, True, True)
    for shape in [(4, 3), (3, 2, 5), (2, 3, 4, 4)]:
        batch_norm(shape)
    cross_entropy()
    clip()
    scaler()
    show()
    save_file(OUT, HERE / "layers.safetensors")
    print(len(OUT), "tensors,", (HERE / "layers.safetensors").stat().st_size, "bytes")


main()
