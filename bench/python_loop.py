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


def seconds(case):
    batch, width, hidden, out = SIZES[case]
    shapes = [(width, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, out), (out,)]
    params = [wave(s, 0.05) for s in shapes]
    x, y = wave((batch, width), 1.0), wave((batch, out), 0.5)

    def run(n):
        nonlocal params
        start = time.perf_counter()
        for _ in range(n):
            params, last = step(params, x, y)
        last.item()
        return (time.perf_counter() - start) / n

    once = run(20)
    return run(min(20000, max(20, int(0.3 / once))))


def overhead(rounds):
    """Seconds of a call of a compiled function of small arguments."""
    f = tl.jit(lambda x, y: x + y)
    x, y = tnp.ones(16), tnp.ones(16)
    f(x, y)
    times = []
    for _ in range(rounds * 20):
        start = time.perf_counter()
        for _ in range(2000):
            f(x, y)
        times.append((time.perf_counter() - start) / 2000)
    return min(times), statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rust", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rust = subprocess.Popen([options.rust], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    load = os.getloadavg()[0]
    best, middle = overhead(options.rounds)
    print(f"call of a compiled function: {best * 1e6:.2f} µs at best, {middle * 1e6:.2f} µs in the middle\n")
    print("| loop | Python, µs a step | Rust, µs a step | Python / Rust |\n| --- | --- | --- | --- |")
    for case in SIZES:
        ratios, ours, theirs = [], [], []
        for _ in range(options.rounds):
            ours.append(seconds(case))
            rust.stdin.write(case + "\n")
            rust.stdin.flush()
            theirs.append(json.loads(rust.stdout.readline())["s"])
            ratios.append(ours[-1] / theirs[-1])
        print(f"| {case} | {statistics.median(ours) * 1e6:.1f} | {statistics.median(theirs) * 1e6:.1f} | {statistics.median(ratios):.3f} |")
    print(f"\nload of the machine when it began: {load:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
