"""`loom serve` under load, from outside: one stream, then many that begin again as soon as they end.

    python bench/serve.py LOOM [--streams 64] [--seconds 120] [--width 256] [--layers 4] [--threads N]

Makes a small model, starts the server as a process of its own and prints tokens a second, first-token times, errors and the server's
memory over time. Needs nothing but Python.
"""

import argparse
import asyncio
import json
import pathlib
import re
import subprocess
import tempfile
import threading
import time

NEW = 32


async def one(port, prompt, seed):
    """Time to the first token, tokens, and whether it ended as it should."""
    body = json.dumps(dict(model="model", prompt=prompt, max_tokens=NEW, stream=True, ignore_eos=True, seed=seed)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started, first, ended = time.perf_counter(), None, False
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    async for line in reader:
        if line.startswith(b"data: "):
            first = first or time.perf_counter() - started
            ended |= line.startswith(b"data: [DONE]")
    writer.close()
    return first, ended


async def many(port, streams, seconds):
    until, firsts, errors = time.perf_counter() + seconds, [], 0
    started = time.perf_counter()

    async def again(i):
        nonlocal errors
        n = 0
        while time.perf_counter() < until:
            first, ended = await one(port, f"the cat {i} sat on the mat {n} and sang", i * 1000 + n)
            errors += not ended
            firsts.append(first or float("inf"))
            n += 1

    await asyncio.gather(*[again(i) for i in range(streams)])
    return NEW * (len(firsts) - errors) / (time.perf_counter() - started), sorted(firsts), errors


def memory(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loom")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = f"d_model={args.width},n_layers={args.layers},heads=4,kv_heads=2,d_ff={2 * args.width}"
        subprocess.run([args.loom, "train", "--steps", "1", "--synthetic-bytes", "20000", "--vocab-size", "300", "--set", sizes, "--seq-len", "32", "--micro-batch-size", "1",
                        "--out", f"{folder}/model"], check=True, capture_output=True)
        server = subprocess.Popen([args.loom, "serve", f"{folder}/model", "--port", "0", "--max-batch", str(args.streams), "--max-seq-len", "256",
                                   "--threads", str(args.threads)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = int(re.search(r":(\d+)\s*$", server.stdout.readline())[1])
            alone, _, bad = asyncio.run(many(port, 1, max(2, args.seconds / 8)))
            asyncio.run(many(port, args.streams, 1))
            seen, over = [memory(server.pid)], threading.Event()

            def watch():
                while not over.wait(args.seconds / 8):
                    seen.append(memory(server.pid))

            watching = threading.Thread(target=watch)
            watching.start()
            speed, firsts, errors = asyncio.run(many(port, args.streams, args.seconds))
            over.set()
            watching.join()
            seen.append(memory(server.pid))
        finally:
            server.terminate()
            server.wait()
    at = lambda share: 1e3 * firsts[int((len(firsts) - 1) * share)]
    print(f"| tokens a second | {alone:.0f} | {speed:.0f} ({speed / alone:.1f} times) |")
    print(f"| first token, median / 95 % | – | {at(0.5):.0f} / {at(0.95):.0f} ms |")
    print(f"| requests, errors | – | {len(firsts)}, {errors + bad} |")
    print(f"| resident memory, every {args.seconds / 8:.0f} s | – | {' '.join(f'{x:.1f}' for x in seen)} MB |")


if __name__ == "__main__":
    main()
