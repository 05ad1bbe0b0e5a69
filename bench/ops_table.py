"""The table of ops for machines without cargo, and while others use the machine.

    python ops_table.py run OPS_BENCH [--share I/N] [--seconds S] [--rounds R] [--reps K] [--only OP,..] [--cases FILE] > ROWS
    python ops_table.py page TITLE ROWS.. > docs/bench/ops.md
    python ops_table.py worst ROWS..

`run` asks our program (`cargo build --release -p tensorloom-cpu --example ops_bench`) and both peers for each case in turn and
prints a JSON line with all times as soon as a case is done; shares can run side by side, each pinned to cores of its own. A row
has the median and the least time of each round; of JAX the medians count. With LOOM_CPU_TIME set (and `--threads 1`), times are those of the processor, which
others on the machine disturb less. `page` writes the page from the least times of all rows of a case: noise only
adds.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def started(command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def run(o):
    listed = open(o.cases).read() if o.cases else subprocess.run([o.program, "--list"], capture_output=True, text=True).stdout
    cases = [c for c in listed.splitlines() if c and (not o.only or c.split()[0] in o.only.split(","))]
    # The same order everywhere, with slow ops far from each other.
    random.Random(7).shuffle(cases)
    share, of = map(int, o.share.split("/"))
    commands = {}
    if not o.no_ours:
        commands["ours"] = [o.program, "--reps", str(o.reps), "--threads", str(o.threads)]
    for peer in o.peers.split(","):
        if peer:
            commands[peer] = [sys.executable, os.path.join(HERE, "ops.py"), peer, str(o.reps), str(o.threads)]
    servers = {n: started(c) for n, c in commands.items()}
    end = time.time() + o.seconds
    for case in cases[share::of]:
        if time.time() > end:
            break
        row = {"case": case, "times": {n: [] for n in servers}, "least": {n: [] for n in servers}}
        for _ in range(o.rounds):
            for n in servers:
                time.sleep(0.02)
                try:
                    servers[n].stdin.write(case + "\n")
                    servers[n].stdin.flush()
                    answer = json.loads(servers[n].stdout.readline())
                except (BrokenPipeError, ValueError):
                    # Who died of a case is started anew for the next.
                    servers[n] = started(commands[n])
                    continue
                if answer.get("s") is not None:
                    row["times"][n].append(answer["s"])
                    row["least"][n].append(answer.get("min_s", answer["s"]))
                    row.setdefault("compile_s", answer.get("compile_s"))
                elif "error" in answer:
                    row.setdefault("errors", {})[n] = answer["error"]
        print(json.dumps(row), flush=True)
    for s in servers.values():
        s.kill()


def rows(files):
    found = {}
    for name in files:
        for line in open(name):
            r = json.loads(line)
            own = found.setdefault(r["case"], {"least": {}, "compile_s": r.get("compile_s"), "errors": {}})
            own["compile_s"] = own["compile_s"] or r.get("compile_s")
            own["errors"].update(r.get("errors", {}))
            # JAX computes on threads of its own, whose time is counted late: a single reading may lack a part.
            for n, t in [(n, r["times" if n == "jax" else "least"][n]) for n in r["least"]]:
                own["least"].setdefault(n, []).extend(t)
    for case, r in found.items():
        least = {n: min(t) for n, t in r["least"].items() if t}
        r["at"] = least
        peers = [t for n, t in least.items() if n != "ours"]
        r["ratio"] = min(peers) / least["ours"] if peers and "ours" in least else None
    return found


def shown(s):
    if s is None:
        return "–"
    for unit, by in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if s * by >= 1:
            return f"{s * by:.2f} {unit}"
    return f"{s * 1e9:.0f} ns"


def summary(found):
    ratios = sorted(r["ratio"] for r in found.values() if r["ratio"] is not None)
    part = lambda limit: 100 * sum(x >= limit for x in ratios) / max(1, len(ratios))
    return (f"{len(ratios)} cases with a peer: {part(0.9):.1f}% at 0.9 or above, {part(0.6):.1f}% at 0.6 or above, "
            f"the least {ratios[0]:.2f}, the median {ratios[len(ratios) // 2]:.2f}.")


def page(o):
    found = rows(o.files)
    print(f"# Every op beside PyTorch and JAX\n\n{open(o.title).read().strip() if os.path.exists(o.title) else o.title}\n\n"
          f"{summary(found)}\n\n| case | ours | PyTorch eager | JAX jit | compile | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for case, r in sorted(found.items(), key=lambda x: x[1]["ratio"] or 1e9):
        ratio = "–" if r["ratio"] is None else f"{r['ratio']:.2f}"
        t = [shown(r["at"].get(n)) for n in ("ours", "torch", "jax")]
        print(f"| {case} | {t[0]} | {t[1]} | {t[2]} | {shown(r['compile_s'])} | {ratio} |")


def worst(o):
    found = rows(o.files)
    print(summary(found))
    for case, r in sorted(found.items(), key=lambda x: x[1]["ratio"] or 1e9)[: o.n]:
        t = [shown(r["at"].get(n)) for n in ("ours", "torch", "jax")]
        print(f"{r['ratio'] or 0:6.2f} {t[0]:>10} {t[1]:>10} {t[2]:>10}  {case} {r['errors'].get('ours', '')}")


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
p = commands.add_parser("run")
p.add_argument("program")
p.add_argument("--share", default="0/1")
p.add_argument("--seconds", type=float, default=1e9)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--reps", type=int, default=5)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--only")
p.add_argument("--cases")
p.add_argument("--peers", default="torch,jax")
p.add_argument("--no-ours", action="store_true")
p.set_defaults(f=run)
p = commands.add_parser("page")
p.add_argument("title")
p.add_argument("files", nargs="+")
p.set_defaults(f=page)
p = commands.add_parser("worst")
p.add_argument("files", nargs="+")
p.add_argument("-n", type=int, default=80)
p.set_defaults(f=worst)
options = parser.parse_args()
options.f(options)
