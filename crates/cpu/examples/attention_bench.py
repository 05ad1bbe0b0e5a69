"""The peer's side of attention_bench: prints nanoseconds of one forward, or forward and backward."""
import sys, time, torch
import torch.nn.functional as F

for line in sys.stdin:
    b, h, hkv, tq, tk, d, causal, grad, reps, threads = map(int, line.split())
    torch.set_num_threads(threads)
    q, k, v = (torch.randn(b, n, t, d, requires_grad=bool(grad)) for n, t in [(h, tq), (hkv, tk), (hkv, tk)])
    g = torch.randn(b, h, tq, d)
    def step():
        o = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=h != hkv)
        if grad:
            torch.autograd.grad(o, [q, k, v], g)
    with torch.set_grad_enabled(bool(grad)):
        step()
        best = 1e18
        for _ in range(reps):
            t0 = time.perf_counter_ns()
            step()
            best = min(best, time.perf_counter_ns() - t0)
    print(best, flush=True)
