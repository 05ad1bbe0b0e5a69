"""The peer's side of conv_bench: prints nanoseconds of one training step of a small CNN, or of one convolution."""
import sys, time, torch
import torch.nn.functional as F

def measure(step, reps):
    step()
    best = 1e18
    for _ in range(reps):
        t0 = time.perf_counter_ns()
        step()
        best = min(best, time.perf_counter_ns() - t0)
    print(best, flush=True)

for line in sys.stdin:
    n, size, pool, grad, reps, threads, *features = map(int, line.split())
    torch.set_num_threads(threads)
    x = torch.randn(n, features[0], size, size)
    ws = [torch.randn(o, c, 3, 3, requires_grad=bool(grad)) for c, o in zip(features, features[1:])]
    def step():
        h = x
        for w in ws:
            h = F.relu(F.conv2d(h, w, padding=1))
            if pool:
                h = F.max_pool2d(h, 2)
        if grad:
            torch.autograd.grad(h.square().sum(), ws)
    with torch.set_grad_enabled(bool(grad)):
        measure(step, reps)
