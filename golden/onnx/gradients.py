"""Gradients of ONNX's node tests by PyTorch, for `crates/onnx/tests/suite/gradients.rs`.

    python golden/onnx/gradients.py      # reads data/nodes.bin.zz, writes data/gradients.txt

Each case whose op PyTorch has is computed in f64, on inputs a little beside the test's own (`beside`), and only where PyTorch's result for the
test's own inputs is what the test expects. A line is the case, an input, and the gradient of the sum of outputs times cosines.
Needs the packages `onnx` and `torch`.
"""

import pathlib
import zlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

HERE = pathlib.Path(__file__).parent / "data"
MOST = 200


def varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return n, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 1:
            at += 8
            continue
        n, at = varint(data, at)
        yield key >> 3, data[at:at + n]
        at += n


def beside(x):
    i = np.arange(x.size, dtype=np.float64).reshape(x.shape)
    return x.astype(np.float64) + 0.01 + 0.03 * (((i + 1) * 0.6180339887498949) % 1.0)


def axes(a, i, rank):
    given = a.get("axes", i[1].tolist() if len(i) > 1 and i[1] is not None else None)
    if given is None or len(given) == 0:
        return None if a.get("noop_with_empty_axes") else list(range(rank))
    return list(given)


def reduce(f):
    def run(a, *i):
        dims = axes(a, i, i[0].dim())
        return i[0] if dims is None else f(i[0], dims, bool(a.get("keepdims", 1)))
    return run


def product(x, dims, keep):
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


def pads(a, dims):
    p = a.get("pads", [0] * 2 * dims)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET") or p[:dims] != p[dims:]:
        raise NotImplementedError
    return p[:dims]


def conv(a, x, w, b=None):
    d = x.dim() - 2
    f = [F.conv1d, F.conv2d, F.conv3d][d - 1]
    return f(x, w, b, a.get("strides", [1] * d), pads(a, d), a.get("dilations", [1] * d), a.get("group", 1))


def conv_transpose(a, x, w, b=None):
    d = x.dim() - 2
    if "output_shape" in a:
        raise NotImplementedError
    f = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][d - 1]
    return f(x, w, b, a.get("strides", [1] * d), pads(a, d), a.get("output_padding", [0] * d), a.get("group", 1), a.get("dilations", [1] * d))


def pool(f):
    def run(a, x):
        d = x.dim() - 2
        if a.get("ceil_mode") or a.get("dilations", [1] * d) != [1] * d:
            raise NotImplementedError
        more = dict(count_include_pad=bool(a.get("count_include_pad", 0))) if f == "avg" else {}
        g = getattr(F, f"{f}_pool{d}d")
        return g(x, a["kernel_shape"], a.get("strides", [1] * d), pads(a, d), **more)
    return run


def gemm(a, x, y, c=None):
    out = a.get("alpha", 1.0) * (x.T if a.get("transA") else x) @ (y.T if a.get("transB") else y)
    return out if c is None else out + a.get("beta", 1.0) * c


def clip(a, x, low=None, high=None):
    return torch.clamp(x, low if low is not None else a.get("min"), high if high is not None else a.get("max")) if low is not None or high is not None or a else x


def layer_norm(a, x, w, b=None):
    axis = a.get("axis", -1) % x.dim()
    return F.layer_norm(x, x.shape[axis:], w, b, a.get("epsilon", 1e-5))


def scatter_elements(a, x, i, u):
    axis = a.get("axis", 0)
    kind = {b"none": None, b"add": "sum", b"mul": "prod", b"max": "amax", b"min": "amin"}[a.get("reduction", b"none")]
    i = torch.where(i < 0, i + x.shape[axis], i)
    return x.scatter(axis, i, u) if kind is None else x.scatter_reduce(axis, i, u, kind)


def split(a, x, sizes=None):
    axis = a.get("axis", 0)
    if sizes is None and "split" not in a:
        raise NotImplementedError
    return torch.split(x, sizes.tolist() if sizes is not None else a["split"], axis)


def slices(a, x, starts, ends, dims=None, steps=None):
    steps = steps.tolist() if steps is not None else [1] * len(starts)
    if any(s < 0 for s in steps):
        raise NotImplementedError
    where = [slice(None)] * x.dim()
    for n, d in enumerate(dims.tolist() if dims is not None else range(len(starts))):
        where[d] = slice(int(starts[n]), int(min(ends[n], 2**31)), steps[n])
    return x[tuple(where)]


def pad(a, x, p, value=None, dims=None):
    if dims is not None:
        raise NotImplementedError
    mode = a.get("mode", b"constant").decode()
    if mode not in ("constant",):
        raise NotImplementedError
    p = p.tolist()
    flat = [n for d in reversed(range(x.dim())) for n in (p[d], p[d + x.dim()])]
    return F.pad(x, flat, value=float(value) if value is not None else 0.0)


def loss(a, x, target, weight=None):
    f = F.nll_loss
    return f(x, target, weight, ignore_index=a.get("ignore_index", -100), reduction=a.get("reduction", b"mean").decode())


def cross_entropy(a, x, target, weight=None):
    return F.cross_entropy(x, target, weight, ignore_index=a.get("ignore_index", -100), reduction=a.get("reduction", b"mean").decode())


one = lambda f: lambda a, x: f(x)  # noqa: E731
two = lambda f: lambda a, x, y: f(x, y)  # noqa: E731
many = lambda f: lambda a, *xs: f(xs)  # noqa: E731


def chained(f):
    def run(xs):
        out = xs[0]
        for x in xs[1:]:
            out = f(out, x)
        return out
    return many(run)


OPS = {
    **{name: one(getattr(torch, name.lower())) for name in
       "Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Exp Log Neg Reciprocal Sigmoid Sin Sinh Sqrt Tan Tanh Det".split()},
    "Relu": one(F.relu), "Softplus": one(F.softplus), "Softsign": one(F.softsign), "HardSwish": one(F.hardswish), "Identity": one(lambda x: x * 1),
    "Add": two(torch.add), "Sub": two(torch.sub), "Mul": two(torch.mul), "Div": two(torch.div), "Pow": two(torch.pow), "MatMul": two(torch.matmul),
    "Max": chained(torch.maximum), "Min": chained(torch.minimum), "Sum": chained(torch.add), "Mean": many(lambda xs: sum(xs) / len(xs)),
    "PRelu": two(lambda x, s: torch.where(x >= 0, x, x * s)),
    "Celu": lambda a, x: F.celu(x, a.get("alpha", 1.0)), "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)), "ThresholdedRelu": lambda a, x: F.threshold(x, a.get("alpha", 1.0), 0.0),
    "Selu": lambda a, x: a.get("gamma", 1.05070102214813232421875) * torch.where(x > 0, x, a.get("alpha", 1.67326319217681884765625) * (torch.exp(x) - 1)),
    "HardSigmoid": lambda a, x: torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1), "Swish": lambda a, x: x * torch.sigmoid(a.get("alpha", 1.0) * x),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", b"none").decode()),
    "Shrink": lambda a, x: torch.where(x < -a.get("lambd", 0.5), x + a.get("bias", 0.0), torch.where(x > a.get("lambd", 0.5), x - a.get("bias", 0.0), x * 0)),
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)), "LogSoftmax": lambda a, x: F.log_softmax(x, a.get("axis", -1)),
    "ReduceSum": reduce(lambda x, d, k: x.sum(d, k)), "ReduceMean": reduce(lambda x, d, k: x.mean(d, k)), "ReduceMax": reduce(lambda x, d, k: x.amax(d, k)),
    "ReduceMin": reduce(lambda x, d, k: x.amin(d, k)), "ReduceL1": reduce(lambda x, d, k: x.abs().sum(d, k)), "ReduceProd": reduce(product),
    "ReduceL2": reduce(lambda x, d, k: (x * x).sum(d, k).sqrt()), "ReduceLogSum": reduce(lambda x, d, k: x.sum(d, k).log()),
    "ReduceLogSumExp": reduce(lambda x, d, k: x.logsumexp(d, k)), "ReduceSumSquare": reduce(lambda x, d, k: (x * x).sum(d, k)),
    "Conv": conv, "ConvTranspose": conv_transpose, "AveragePool": pool("avg"), "MaxPool": pool("max"), "Gemm": gemm, "Clip": clip,
    "GlobalAveragePool": one(lambda x: x.mean(list(range(2, x.dim())), True)), "GlobalMaxPool": one(lambda x: x.amax(list(range(2, x.dim())), True)),
    "LayerNormalization": layer_norm, "ScatterElements": scatter_elements, "Split": split, "Slice": slices, "Pad": pad, "Scatter": scatter_elements,
    "InstanceNormalization": lambda a, x, w, b: F.instance_norm(x, None, None, w, b, eps=a.get("epsilon", 1e-5)),
    "BatchNormalization": lambda a, x, w, b, m, v: F.batch_norm(x, m, v, w, b, False, 0.0, a.get("epsilon", 1e-5)),
    "GroupNormalization": lambda a, x, w, b: F.group_norm(x, a["num_groups"], w, b, a.get("epsilon", 1e-5)),
    "Gather": lambda a, x, i: x.index_select(a.get("axis", 0), torch.where(i < 0, i + x.shape[a.get("axis", 0)], i).flatten()).reshape(
        x.shape[:a.get("axis", 0)] + i.shape + x.shape[a.get("axis", 0) % x.dim() + 1:]),
    "GatherElements": lambda a, x, i: x.gather(a.get("axis", 0), torch.where(i < 0, i + x.shape[a.get("axis", 0)], i)),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]), "Transpose": lambda a, x: x.permute(a.get("perm", list(reversed(range(x.dim()))))),
    "Flatten": lambda a, x: x.reshape(int(np.prod(x.shape[:a.get("axis", 1) % (x.dim() + 1)])), -1), "Where": lambda a, c, x, y: torch.where(c, x, y),
    "Reshape": lambda a, x, s: x.reshape([int(x.shape[n]) if d == 0 and not a.get("allowzero") else int(d) for n, d in enumerate(s.tolist())]),
    "Expand": lambda a, x, s: x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(s.tolist()))), "Tile": lambda a, x, r: x.repeat(r.tolist()),
    "Trilu": lambda a, x, k=None: (torch.triu if a.get("upper", 1) else torch.tril)(x, int(k) if k is not None else 0),
    "Einsum": lambda a, *xs: torch.einsum(a["equation"].decode(), *xs), "CumSum": lambda a, x, d: torch.cumsum(x, int(d)) if not a else 1 / 0,
    "CumProd": lambda a, x, d: torch.cumprod(x, int(d)) if not a else 1 / 0,
    "LpNormalization": lambda a, x: F.normalize(x, float(a.get("p", 2)), a.get("axis", -1)), "NegativeLogLikelihoodLoss": loss,
    "SoftmaxCrossEntropyLoss": cross_entropy, "TopK": lambda a, x, k: torch.topk(x, int(k), a.get("axis", -1), bool(a.get("largest", 1)))[0],
    "RMSNormalization": lambda a, x, w: F.rms_norm(x, x.shape[a.get("axis", -1) % x.dim():], None, a.get("epsilon", 1e-5)) * w,
    "Dropout": lambda a, x, *_: x * 1, "DepthToSpace": lambda a, x: F.pixel_shuffle(x, a["blocksize"]) if a.get("mode") == b"CRD" else 1 / 0,
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)),
}


def tensors(values, own):
    out = []
    for v in values:
        if v is not None and v.dtype.kind == "f":
            v = torch.tensor(own(v), dtype=torch.float64)
            v.requires_grad_(True)
        elif v is not None:
            v = torch.from_numpy(np.array(v))
        out.append(v)
    return out


def main():
    lines, counted = [], 0
    for _, data in fields(zlib.decompress((HERE / "nodes.bin.zz").read_bytes())):
        parts = list(fields(data))
        name = next(d for n, d in parts if n == 1).decode()
        model = onnx.ModelProto.FromString(next(d for n, d in parts if n == 2))
        node = model.graph.node[0]
        if node.op_type not in OPS:
            continue
        try:
            given = {info.name: numpy_helper.to_array(onnx.TensorProto.FromString(d))
                     for info, d in zip(model.graph.input, (d for n, d in parts if n == 3))}
            wanted = [numpy_helper.to_array(onnx.TensorProto.FromString(d)) for n, d in parts if n == 4]
            values = [given[i] if i else None for i in node.input]
            if sum(v.size for v in values if v is not None and v.dtype.kind == "f") > MOST or any(v is not None and v.size == 0 for v in values):
                continue
            if any(v is not None and v.dtype == np.float16 for v in values):
                continue  # what is written as f16 stays so
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            run = lambda xs: OPS[node.op_type](attributes, *xs)  # noqa: E731
            outs = run(tensors(values, lambda v: v.astype(np.float64)))
            outs = list(outs) if isinstance(outs, (tuple, list)) else [outs]
            # What comes behind the results that are compared has no gradient: indices, masks.
            if not all(np.allclose(o.detach().numpy(), w, 1e-3, 1e-5) for o, w in zip(outs, wanted)):
                print(f"{name}: another result")
                continue
            if any(w.dtype.kind == "f" for w in wanted[len(outs):]):
                continue
            xs = tensors(values, beside)
            outs = run(xs)
            outs = list(outs) if isinstance(outs, (tuple, list)) else [outs]
            total = sum((o * torch.cos(torch.arange(o.numel(), dtype=torch.float64) * 0.7 + k).reshape(o.shape)).sum() for k, o in enumerate(outs))
            total.backward()
        except Exception as e:
            print(f"{name}: {type(e).__name__}: {e}"[:150])
            continue
        found = {i: x.grad for i, x in zip(node.input, xs) if x is not None and x.requires_grad and x.grad is not None}
        if not found or not all(torch.isfinite(g).all() for g in found.values()):
            continue
        counted += 1
        lines += [" ".join([name, i] + [f"{v:.9g}" for v in g.flatten().tolist()]) for i, g in found.items()]
    (HERE / "gradients.txt").write_text("\n".join(lines) + "\n")
    print(f"{counted} cases, {len(lines)} gradients")


if __name__ == "__main__":
    main()
