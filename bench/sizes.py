"""Ordinary sizes: loom against transformers and peft on a model of Qwen2-0.5B's shape with random weights.

    python bench/sizes.py LOOM [--folder DIR] [--turns N] [--threads N] [--only f32|bf16|lora] [--prompt N..]

Needs torch, transformers, peft and tokenizers. Both sides run in turns, as processes of their own, so that what else
the machine does falls on both; what is printed are medians, and the median of each turn's ratio. Times are those of the wall, but
for rows that say CPU, which a busy machine changes less. The peer's prompt is the faster of two.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

NEW = 32


def make(folder):
    """The model in f32 and bf16, with a small tokenizer, and texts to train on."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    model = model.to_empty(device="cpu")
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.fill_(1.0) if "norm" in name else p.normal_(0, 0.02, generator=draw)
        model.tie_weights()
    model.save_pretrained(folder / "f32")
    model.to(torch.bfloat16).save_pretrained(folder / "bf16")


def tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    words = ["the cat sat on the mat", "a dog ran over the hill", "rain fell all night long"]
    text = " ".join(words[i * 7 % 3] + f" {i}" for i in range(20000))
    (folder / "texts.txt").write_text(text)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator([text[:50000]], trainer)
    for kind in ["f32", "bf16"]:
        tok.save(str(folder / kind / "tokenizer.json"))


GENERATE = """
import sys, time, json, torch
torch.set_num_threads(int(sys.argv[4]))
from transformers import AutoModelForCausalLM
ids = torch.tensor([[i * 37 % 151936 for i in range(int(sys.argv[2]))]])
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[1].rsplit("/", 1)[1]]
t0 = time.time()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=dtype).eval()
t1 = time.time()
with torch.no_grad():
    out = model(ids, use_cache=True, logits_to_keep=1)
    new, cache = [int(out.logits[0, -1].argmax())], out.past_key_values
    t2 = time.time()
    for _ in range(int(sys.argv[3]) - 1):
        out = model(torch.tensor([[new[-1]]]), past_key_values=cache, use_cache=True)
        new.append(int(out.logits[0, -1].argmax()))
    t3 = time.time()
    # Once more, with every page of the weights touched.
    del out, cache
    t4 = time.time()
    model(ids, use_cache=True, logits_to_keep=1)
    t5 = time.time()
print("RESULT", json.dumps(dict(first=t2 - t0, prompt=min(t2 - t1, t5 - t4), speed=(len(new) - 1) / (t3 - t2), ids=new)))
"""

# From the command on: what it takes to import, to load and to do a step.
LORA = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[2]))
from transformers import AutoModelForCausalLM
from peft import LoraConfig, get_peft_model
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
adam = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
ids = torch.randint(0, 500, (1, 257))
for step in range(int(sys.argv[3])):
    started = time.time()
    loss = model(input_ids=ids[:, :-1], labels=ids[:, :-1], use_cache=False).loss
    loss.backward()
    adam.step()
    adam.zero_grad()
    print("STEP", time.time() - started, flush=True)
"""


def run(command, first=None):
    """Wall, CPU seconds and peak of a process, its output, and when a line that begins so appeared."""
    started = time.time()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines, seen = [], None
    for line in child.stdout:
        lines.append(line.rstrip())
        if first and seen is None and line.startswith(first):
            seen = time.time() - started
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    text = "\n".join(lines)
    if child.returncode:
        sys.exit(f"{' '.join(command)[:200]}\n{text}")
    return dict(wall=time.time() - started, cpu=usage.ru_utime + usage.ru_stime, peak=usage.ru_maxrss / 1024, text=text,
                seen=seen)


def generate(args, folder, kind, prompt):
    ours, theirs = [], []
    given = ",".join(str(i * 37 % 151936) for i in range(prompt))
    for _ in range(args.turns):
        found = run([args.loom, "generate", str(folder / kind), "--token-ids", given, "--max-new-tokens", str(NEW),
                     "--dtype", kind, "--threads", str(args.threads)])
        times = re.search(r"time to first token ([\d.]+) s(?: \(prefill ([\d.]+) s\))?, then ([\d.]+)", found["text"])
        ids = [int(i) for i in found["text"].splitlines()[0].split(",")]
        found.update(first=float(times[1]), prompt=float(times[2] or "nan"), speed=float(times[3]), ids=ids)
        ours.append(found)
        found = run([sys.executable, "-c", GENERATE, str(folder / kind), str(prompt), str(NEW), str(args.threads)])
        found.update(json.loads(re.search(r"RESULT (.*)", found["text"])[1]))
        theirs.append(found)
    weights = (folder / kind / "model.safetensors").stat().st_size / 2**20
    cache = 24 * 2 * 2 * 64 * (prompt + NEW) * (4 if kind == "f32" else 2) / 2**20
    line(kind, f"load to first token, {prompt} ids, s", ours, theirs, "first", "≤ 0.6")
    line(kind, f"prompt of {prompt}, s", ours, theirs, "prompt", "≤ 0.91" if prompt == 512 else "")
    line(kind, "tokens a second", ours, theirs, "speed", "≥ 1.5")
    line(kind, "CPU seconds of the process", ours, theirs, "cpu", "")
    peak = statistics.median(x["peak"] for x in ours)
    print(f"| {kind} | peak, MB | {peak:.0f} | {statistics.median(x['peak'] for x in theirs):.0f} | "
          f"{peak / (weights + cache):.3f} of weights and cache | ≤ 1.05 |")
    same = sum(a == b for a, b in zip(ours[0]["ids"], theirs[0]["ids"]))
    print(f"| {kind} | tokens equal | {same} of {NEW} | | | {'all' if kind == 'f32' else ''} |", flush=True)


def lora(args, folder):
    ours, theirs = [], []
    for turn in range(args.turns):
        out = folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        found = run([args.loom, "train", "--model", str(folder / "f32"), "--data", str(folder / "texts.txt"), "--lora",
                     "rank=8,alpha=16,targets=q,v", "--micro-batch-size", "1", "--seq-len", "256", "--steps", "1", "--out", str(out),
                     "--threads", str(args.threads), "--eval-batches", "1"], first="first step after")
        ours.append(found)
        found = run([sys.executable, "-c", LORA, str(folder / "f32"), str(args.threads), "1"], first="STEP")
        theirs.append(found)
    line("LoRA", "command to first step, s", ours, theirs, "seen", "≤ 1.2")
    line("LoRA", "whole command, s", ours, theirs, "wall", "")
    line("LoRA", "CPU seconds of the process", ours, theirs, "cpu", "")
    line("LoRA", "peak, MB", ours, theirs, "peak", "≤ 1.1")


def line(kind, what, ours, theirs, key, bar):
    a, b = [x[key] for x in ours], [x[key] for x in theirs]
    ratio = statistics.median(x / y for x, y in zip(a, b))
    print(f"| {kind} | {what} | {statistics.median(a):.2f} | {statistics.median(b):.2f} | {ratio:.2f} | {bar} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loom")
    parser.add_argument("--folder", default="/tmp/sizes")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["f32", "bf16", "lora"])
    parser.add_argument("--prompt", type=int, nargs="*", default=[128, 512])
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    if not (folder / "f32/model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        # In a process of its own: what this one once held would count as the peak of those it starts.
        maker = multiprocessing.get_context("spawn").Process(target=make, args=(folder,))
        maker.start()
        maker.join()
        if maker.exitcode:
            sys.exit("the model could not be made")
    if not (folder / "f32/tokenizer.json").exists():
        tokenizer(folder)
    print("| | what | loom | peer | ratio | bar |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for kind in ["f32", "bf16"]:
        for prompt in args.prompt if args.only in (None, kind) else []:
            generate(args, folder, kind, prompt)
    if args.only in (None, "lora"):
        lora(args, folder)


if __name__ == "__main__":
    main()
