"""Asks several programs for the same cases in turn and prints medians and ratios: for machines without cargo.

Usage: python compare.py [--rounds N] [--cases A,B,..] [--json FILE] NAME=COMMAND NAME=COMMAND ..
The first program is the one whose ratio is printed: the best of the others over it. Each program reads case names from
standard input and answers with a JSON object a line (tensorloom-bench and peers.py do).
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--cases", required=True)
parser.add_argument("--json")
parser.add_argument("programs", nargs="+")
options = parser.parse_args()

servers = {}
for program in options.programs:
    name, command = program.split("=", 1)
    servers[name] = subprocess.Popen(
        shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def ask(name, case):
    server = servers[name]
    try:
        server.stdin.write(case + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline()).get("s")
    except (BrokenPipeError, ValueError):
        return None


names = list(servers)
rows = {}
print("| case | " + " | ".join(f"{n}, ms" for n in names) + f" | best other / {names[0]} |", flush=True)
print("|" + " --- |" * (len(names) + 2), flush=True)
for case in options.cases.split(","):
    times = {n: [] for n in names}
    for _ in range(options.rounds):
        for n in names:
            seconds = ask(n, case)
            if seconds is not None:
                times[n].append(seconds)
            # Threads of one program may spin for a while.
            time.sleep(0.25)
    rows[case] = times
    shown = [f"{statistics.median(times[n]) * 1e3:.4g}" if times[n] else "-" for n in names]
    ratios = [
        min(times[n][i] for n in names[1:] if len(times[n]) > i) / own
        for i, own in enumerate(times[names[0]])
        if any(len(times[n]) > i for n in names[1:])
    ]
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-"
    print(f"| {case} | " + " | ".join(shown) + f" | {ratio} |", flush=True)
if options.json:
    json.dump(rows, open(options.json, "w"))
sys.exit(0)
