"""The same training loop in Python and in Rust, in turns; and what a call of a compiled function costs.

Usage: python bench/python_loop.py --rust target/release/examples/training_loop [--rounds N]
with the package `tensorloom` installed (`cargo xtask wheel` makes it) and
`cargo build --release -p tensorloom --example training_loop` run before. Prints the table of docs/bench/python.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

SIZES = {"mlp_32x64": (32, 64, 64, 10), "mlp_128x512": (128, 784, 512, 10)}


def wave(shape, scale):
    """Numbers that both sides make alike."""
    i = np.arange(int(np.prod(shape)))
    return tl.asarray(((((i * 37 + 11) % 101) / 50.0 - 1.0).astype(np.float32) * np.float32(scale)).reshape(shape))


def loss(params, x, y):
    h = tnp.tanh(x @ params[0] + params[1])
    h = tnp.tanh(h @ params[2] + params[3])
    d = h @ params[4] + params[5] - y
    return (d * d).mean()


@tl.jit
def step(params, x, y):
    value, grads = tl.value_and_grad(loss)(params, x, y)
    return [p - g * 0.1 for p, g in zip(params, grads)], value


def cpu():
    """Seconds that the threads of this process have run."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as f:
                total += int(f.read().split()[0])
        except OSError:  # it has ended
            pass
    return total / 1e9


def seconds(case):
    """Seconds of a step, by the clock and of CPU."""
    batch, width, hidden, out = SIZES[case]
    shapes = [(width, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, out), (out,)]
    params = [wave(s, 0.05) for s in shapes]
    x, y = wave((batch, width), 1.0), wave((batch, out), 0.5)

    def run(n):
        nonlocal params
        start, spent = time.perf_counter(), cpu()
        for _ in range(n):
            params, last = step(params, x, y)
        last.item()
        return (time.perf_counter() - start) / n, (cpu() - spent) / n

    once, _ = run(20)
    return run(min(20000, max(20, int(0.3 / once))))


def overhead(rounds):
    """Seconds of a call of a compiled function of small arguments: the best and the middle of many short batches, and of CPU."""
    f = tl.jit(lambda x, y: x + y)
    x, y = tnp.ones(16), tnp.ones(16)
    f(x, y).tolist()
    times, calls, spent = [], 100, time.thread_time()
    batches = rounds * 1000
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(calls):
            f(x, y)
        times.append((time.perf_counter() - start) / calls)
    return min(times), statistics.median(times), (time.thread_time() - spent) / calls / batches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rust", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rust = subprocess.Popen([options.rust], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    load = os.getloadavg()[0]
    best, middle, spent = (1e6 * s for s in overhead(options.rounds))
    print(f"call of a compiled function: {best:.2f} µs at best, {middle:.2f} µs in the middle, {spent:.2f} µs of CPU\n")
    print("| loop | Python, µs a step | Rust, µs a step | Python / Rust | the same of CPU |\n| --- | --- | --- | --- | --- |")
    for case in SIZES:
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(seconds(case))
            rust.stdin.write(case + "\n")
            rust.stdin.flush()
            answer = json.loads(rust.stdout.readline())
            theirs.append((answer["s"], answer["cpu"]))
        middle = [statistics.median(s for s, _ in side) * 1e6 for side in (ours, theirs)]
        by = [statistics.median(a[i] / b[i] for a, b in zip(ours, theirs)) for i in (0, 1)]
        print(f"| {case} | {middle[0]:.1f} | {middle[1]:.1f} | {by[0]:.3f} | {by[1]:.3f} |")
    rust.stdin.close()
    rust.wait()
    print(f"\nload of the machine when it began: {load:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
