"""PyTorch on an NVIDIA GPU: the cases of `tensorloom-bench --device cuda` that are about GPUs, under the same names."""

LLAMAS = {  # vocabulary, width, layers, heads, key heads, hidden, batch, sequence
    "train_124m": (50304, 768, 12, 12, 12, 2048, 32, 1024),
    "train_1b": (32000, 2048, 16, 32, 8, 8192, 8, 2048),
    "train_qwen05b": (151936, 896, 24, 14, 2, 4864, 8, 2048),
}

ATTENTIONS = {  # batch, heads, key heads, sequence, width of a head
    "attention_12x64": (32, 12, 12, 1024, 64),
    "attention_32x64": (8, 32, 8, 2048, 64),
    "attention_16x128": (4, 16, 16, 4096, 128),
}


DECODES = {"decode_1b_b1": 1, "decode_1b_b32": 32}  # sequences; 512 of 1024 cached positions are filled


class TorchCuda:
    def __init__(self, compiled):
        import torch

        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        self.torch = torch
        self.wrap = torch.compile if compiled else (lambda f: f)

    def case(self, name):
        torch, wrap = self.torch, self.wrap
        F = torch.nn.functional
        wide = {"device": "cuda", "dtype": torch.float32}
        if name == "eager_train_124m":
            self.wrap = lambda f: f
            return self.llama(*LLAMAS["train_124m"]), 1
        if name in LLAMAS:
            return self.llama(*LLAMAS[name]), 1
        if name in DECODES:
            return self.decode(DECODES[name], *LLAMAS["train_1b"][:6]), 16
        if name in ATTENTIONS:
            return self.attention(*ATTENTIONS[name]), 4
        if name == "chain1g":
            x = torch.randn(1 << 28, **wide)
            f = wrap(lambda x: F.gelu(1.5 * x + 0.5, approximate="tanh") * torch.sigmoid(x) + x)
            return self.waiting(lambda: f(x)), 4
        if name == "sort2^20":
            x = torch.randn(1 << 20, **wide)
            return self.waiting(lambda: torch.sort(x)), 4
        if name == "cumsum2^24":
            x = torch.randn(1 << 24, **wide)
            return self.waiting(lambda: torch.cumsum(x, 0)), 4
        if name == "top50_of_32x50304":
            x = torch.randn(32, 50304, **wide)
            return self.waiting(lambda: torch.topk(x, 50)), 4
        if name == "softmax1g":
            x = torch.randn(1 << 18, 1024, **wide)
            f = wrap(lambda x: F.softmax(x, -1))
            return self.waiting(lambda: f(x)), 4
        if name == "layernorm1g":
            x, w, b = torch.randn(1 << 18, 1024, **wide), torch.ones(1024, **wide), torch.zeros(1024, **wide)
            f = wrap(lambda x: F.layer_norm(x, (1024,), w, b))
            return self.waiting(lambda: f(x)), 4
        return None

    def peak_mib(self):
        return self.torch.cuda.max_memory_allocated() / 2**20

    def waiting(self, run):
        def inner():
            run()
            self.torch.cuda.synchronize()

        return inner

    def attention(self, batch, heads, kv, seq, wide):
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        make = lambda h: torch.randn(batch, h, seq, wide, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        q, k, v, grad = make(heads), make(kv), make(kv), make(heads).detach()

        def step():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
                torch.autograd.grad(out, (q, k, v), grad)

        return self.waiting(step)

    def decode(self, batch, vocab, width, layers, heads, kv, hidden, room=1024, filled=512):
        """A token for each sequence, with a static cache."""
        torch = self.torch
        F = torch.nn.functional
        each = width // heads
        options = {"device": "cuda", "dtype": torch.bfloat16}
        w = lambda *shape: torch.randn(*shape, **options) * 0.02
        embedding, norm = w(vocab, width), torch.ones(width, **options)
        blocks = [
            (torch.ones(width, **options), w((heads + 2 * kv) * each, width), w(width, width))
            + (torch.ones(width, **options), w(2 * hidden, width), w(width, hidden))
            for _ in range(layers)
        ]
        caches = [torch.zeros(2, batch, kv, room, each, **options) for _ in range(layers)]
        ids = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
        at = torch.tensor([filled], device="cuda")
        turns = 1 / 10000 ** (torch.arange(0, each, 2, device="cuda").float() / each)

        def block(x, cos, sin, mask, at, cache, n1, qkv, o, n2, up, down):
            def rotate(y):
                left, right = y.chunk(2, -1)
                return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)

            parts = F.linear(F.rms_norm(x, (width,), n1, 1e-6), qkv).split([heads * each, kv * each, kv * each], -1)
            q, k, v = (p.view(batch, 1, -1, each).transpose(1, 2) for p in parts)
            cache[0].index_copy_(2, at, rotate(k))
            cache[1].index_copy_(2, at, v)
            y = F.scaled_dot_product_attention(rotate(q), cache[0], cache[1], attn_mask=mask, enable_gqa=heads != kv)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, 1, width), o)
            gate, more = F.linear(F.rms_norm(x, (width,), n2, 1e-6), up).chunk(2, -1)
            return x + F.linear(F.silu(gate) * more, down)

        def before():
            angles = at.float()[:, None] * turns
            mask = (torch.arange(room, device="cuda") <= at)[None, None, None, :]
            return F.embedding(ids, embedding), angles.cos().bfloat16(), angles.sin().bfloat16(), mask

        after = self.wrap(lambda x: F.linear(F.rms_norm(x, (width,), norm, 1e-6), embedding))
        block, before = self.wrap(block), self.wrap(before)

        def step():
            x, cos, sin, mask = before()
            for weights, cache in zip(blocks, caches):
                x = block(x, cos, sin, mask, at, cache, *weights)
            return after(x)

        # A graph recorded by hand: `reduce-overhead` refuses caches that are written in place.
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
        return self.waiting(graph.replay)

    def llama(self, vocab, width, layers, heads, kv, hidden, batch, seq):
        torch = self.torch
        nn, F = torch.nn, torch.nn.functional
        each = width // heads

        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(width))

            def forward(self, x):
                return F.rms_norm(x, (width,), self.w.to(x.dtype), 1e-6)

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = Norm(), Norm()
                self.qkv = nn.Linear(width, (heads + 2 * kv) * each, bias=False)
                self.o = nn.Linear(width, width, bias=False)
                self.up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

            def forward(self, x, cos, sin):
                b, t, _ = x.shape
                parts = self.qkv(self.n1(x)).split([heads * each, kv * each, kv * each], -1)
                q, k, v = (p.view(b, t, -1, each).transpose(1, 2) for p in parts)

                def rotate(y):
                    left, right = y.chunk(2, -1)
                    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)

                y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=heads != kv)
                x = x + self.o(y.transpose(1, 2).reshape(b, t, width))
                gate, up = self.up(self.n2(x)).chunk(2, -1)
                return x + self.down(F.silu(gate) * up)

        class Llama(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.n = nn.Embedding(vocab, width), Norm()
                self.blocks = nn.ModuleList(Block() for _ in range(layers))
                angles = torch.outer(torch.arange(seq).float(), 1 / 10000 ** (torch.arange(0, each, 2).float() / each))
                self.register_buffer("cos", angles.cos().bfloat16())
                self.register_buffer("sin", angles.sin().bfloat16())
                nn.init.normal_(self.e.weight, std=0.02)

            def forward(self, ids, targets):
                x = self.e(ids).bfloat16()
                for block in self.blocks:
                    x = block(x, self.cos, self.sin)
                logits = F.linear(self.n(x), self.e.weight.to(x.dtype))
                return F.cross_entropy(logits.view(-1, vocab).float(), targets.view(-1))

        model = Llama().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        f = self.wrap(model)
        ids, targets = (torch.randint(0, vocab, (batch, seq), device="cuda") for _ in range(2))

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = f(ids, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return self.waiting(step)
