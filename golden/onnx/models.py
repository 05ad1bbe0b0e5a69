"""Tiny models of torch and transformers as ONNX, with what they compute and the gradients of their inputs.

    python golden/onnx/models.py golden/onnx/data/models.bin.zz

The file is that of nodes.py; in addition `repeated bytes grads = 7` holds, for each input of floats, the gradient of the
sum of the first output times cos(0), cos(1), ….
Needs torch, transformers, onnx, onnxscript.
"""

import io
import sys
import warnings
import zlib

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import numpy_helper

from nodes import double, field

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, c, out, stride):
        super().__init__()
        self.a = nn.Conv2d(c, out, 3, stride, 1, bias=False)
        self.an = nn.BatchNorm2d(out)
        self.b = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(out)
        self.short = nn.Sequential(nn.Conv2d(c, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.an(self.a(x)))
        return F.relu(self.bn(self.b(y)) + self.short(x))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Mobile(nn.Module):
    """Depthwise convolutions, hard activations, squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.wide = nn.Conv2d(8, 24, 1)
        self.depth = nn.Conv2d(24, 24, 5, 1, 2, groups=24)
        self.squeeze = nn.Conv2d(24, 6, 1)
        self.excite = nn.Conv2d(6, 24, 1)
        self.narrow = nn.Conv2d(24, 8, 1)

    def forward(self, x):
        x = F.hardswish(self.stem(x))
        y = F.hardswish(self.depth(F.relu6(self.wide(x))))
        s = F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.narrow(y * s)


class Unet(nn.Module):
    """Down and up again: transposed convolution, interpolation, group norm, pixel shuffle."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 8, 3, 2, 1)
        self.n = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.c = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        a = F.silu(self.a(F.pad(x, (1, 1, 1, 1), mode="reflect")))[:, :, 1:-1, 1:-1]
        b = F.silu(self.n(self.b(a)))
        y = torch.cat([a, self.up(b)], 1)
        y = F.pixel_shuffle(self.c(y), 2)
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 4, batch_first=True)

    def forward(self, ids):
        y, _ = self.lstm(self.embed(ids))
        y, h = self.gru(y)
        return y, h


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.place = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.head = nn.Linear(16, 7)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.layers(x)[:, 0])


class Mixed(nn.Module):
    """Functions that models use here and there."""

    def forward(self, x, i):
        a = torch.logsumexp(x, 1) + torch.cumsum(x, 1).amax(1) + x.std(1)
        v, k = torch.topk(x, 3, dim=1)
        g = torch.gather(x, 1, i) + x[:, ::2][:, :3] + torch.where(x > 0, x, x.exp())[:, :3]
        n = F.normalize(x, dim=1) @ torch.tril(torch.ones(6, 6)) + F.softplus(x) * torch.erf(x) + x.clamp(-0.5, 0.5)
        e = torch.einsum("bi,bj->bij", x, x).diagonal(dim1=1, dim2=2)
        return a, v * g, n + e, k


def logits(model):
    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits

    return Logits()


class Hidden(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def models():
    from transformers import (
        BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
        ViTConfig, ViTModel,
    )

    ids = torch.randint(0, 40, (2, 7))
    small = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
    yield "resnet", Resnet(), (torch.randn(2, 3, 32, 32),)
    yield "mobile", Mobile(), (torch.randn(1, 3, 16, 16),)
    yield "unet", Unet(), (torch.randn(1, 1, 12, 12),)
    yield "recurrent", Recurrent(), (torch.randint(0, 11, (2, 5)),)
    yield "encoder", Encoder(), (torch.randn(2, 3, 16, 16),)
    yield "mixed", Mixed(), (torch.randn(4, 6), torch.randint(0, 6, (4, 3)))
    yield "gpt2", logits(GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2))), (ids,)
    yield "llama", logits(LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2, max_position_embeddings=32))), (ids,)
    yield "qwen2", logits(Qwen2ForCausalLM(Qwen2Config(**small, num_key_value_heads=2, max_position_embeddings=32))), (ids,)
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    yield "bert", Hidden(BertModel(BertConfig(**small, max_position_embeddings=16))), (ids, mask)

    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            config = dict(small)
            config.pop("vocab_size")
            self.model = ViTModel(ViTConfig(**config, image_size=16, patch_size=4))

        def forward(self, x):
            return self.model(x).last_hidden_state

    yield "vit", Pixels(), (torch.randn(1, 3, 16, 16),)


def packed(name, model, args, dynamo):
    model = model.eval()
    for p in model.parameters():
        p.requires_grad_(False)
    # Statistics that are not 0 and 1.
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.5, 2)
            m.weight.uniform_(0.5, 1.5)
            m.bias.normal_(0, 0.3)
    path = io.BytesIO()
    if dynamo:
        program = torch.onnx.export(model, args, dynamo=True, opset_version=18, verbose=False)
        proto = program.model_proto
    else:
        torch.onnx.export(model, args, path, dynamo=False, opset_version=17)
        proto = onnx.load_from_string(path.getvalue())
    # Notes of the exporter are no part of the model.
    for node in proto.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    del proto.graph.value_info[:]
    inputs = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    outs = model(*inputs)
    outs = outs if isinstance(outs, tuple) else (outs,)
    floats = [a for a in inputs if a.requires_grad]
    grads = []
    if floats:
        c = torch.cos(torch.arange(outs[0].numel(), dtype=torch.float32)).reshape(outs[0].shape)
        grads = torch.autograd.grad((outs[0] * c).sum(), floats)
    data = field(1, f"{name}_{'dynamo' if dynamo else 'script'}".encode()) + field(2, proto.SerializeToString())
    for number, tensors in ((3, inputs), (4, outs), (7, grads)):
        for t in tensors:
            data += field(number, numpy_helper.from_array(np.ascontiguousarray(t.detach().numpy())).SerializeToString())
    return data + double(5, 1e-4) + double(6, 1e-5)


def main():
    torch.manual_seed(0)
    datas = []
    for name, model, args in models():
        for dynamo in (False, True):
            try:
                datas.append(packed(name, model, args, dynamo))
                print(name, dynamo, len(datas[-1]))
            except Exception as e:
                print(f"{name} {dynamo}: not exported: {type(e).__name__} {str(e).splitlines()[:1]}")
    message = b"".join(field(1, data) for data in datas)
    with open(sys.argv[1], "wb") as f:
        f.write(zlib.compress(message, 9))


if __name__ == "__main__":
    main()
