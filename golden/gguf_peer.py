"""Compares GGUF files with llama.cpp, both ways: tiny models of each family, written by `loom` in f32, q8 and q4 and read by llama.cpp,
and quantised by llama.cpp's own quantiser and read by `loom`.

    LLAMA_CPP_LIB_PATH=.. python golden/gguf_peer.py LOOM            # all families
    LLAMA_CPP_LIB_PATH=.. python golden/gguf_peer.py LOOM llama qwen3

It needs `llama-cpp-python` and transformers. Logits of wide files agree to rounding and greedy ids are the same; llama.cpp rounds
activations to 8 bits before products with packed matrices, so packed ones are compared by their distance.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

IDS = [3, 17, 5, 60, 2, 2, 41, 8]
NEW = 12


def families():
    import transformers as t

    common = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=128, bos_token_id=1, eos_token_id=0, pad_token_id=None)
    dense = dict(common, tie_word_embeddings=False)
    neo = {k: v for k, v in common.items() if k != "num_key_value_heads"}
    gemma = dict(common, head_dim=16, tie_word_embeddings=True)
    return {
        "llama": (t.LlamaConfig, dense),
        "llama3": (t.LlamaConfig, dict(dense, rope_theta=500000.0, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})),
        "mistral": (t.MistralConfig, dict(dense, sliding_window=None)),
        "mixtral": (t.MixtralConfig, dict(dense, num_local_experts=4, num_experts_per_tok=2)),
        "qwen2": (t.Qwen2Config, dense),
        "qwen3": (t.Qwen3Config, dict(dense, head_dim=16)),
        "qwen3_moe": (t.Qwen3MoeConfig, dict(dense, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                             norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])),
        "gemma": (t.GemmaConfig, gemma),
        "gemma2": (t.Gemma2Config, dict(gemma, query_pre_attn_scalar=16, sliding_window=4096, num_hidden_layers=4)),
        "gemma3": (t.Gemma3TextConfig, dict(gemma, query_pre_attn_scalar=16, sliding_window=64, num_hidden_layers=6)),
        "olmo2": (t.Olmo2Config, dense),
        "phi": (t.PhiConfig, dict(common, partial_rotary_factor=0.5)),
        "phi3": (t.Phi3Config, dict(dense, pad_token_id=0)),
        "stablelm": (t.StableLmConfig, dict(dense, partial_rotary_factor=0.25)),
        "gpt2": (t.GPT2Config, dict(vocab_size=96, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=0)),
        "gpt_neox": (t.GPTNeoXConfig, dict(neo, rotary_pct=0.25)),
        "falcon": (t.FalconConfig, dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, multi_query=True,
                                        bias=False, parallel_attn=True, alibi=False, new_decoder_architecture=False, bos_token_id=1,
                                        eos_token_id=0)),
        "mamba": (t.MambaConfig, dict(vocab_size=96, hidden_size=64, state_size=16, num_hidden_layers=3, time_step_rank=32,
                                      bos_token_id=1, eos_token_id=0, pad_token_id=0)),
    }


def make(name, folder):
    import torch
    import transformers as t

    config, given = families()[name]
    torch.manual_seed(hash_of(name))
    model = t.AutoModelForCausalLM.from_config(config(**given)).float()
    with torch.no_grad():
        for path, p in model.named_parameters():
            # Far from where training begins, so that every part counts.
            if p.ndim >= 2:
                p.copy_(torch.randn_like(p) * 0.12)
            elif "norm" in path or "ln_" in path:
                p.copy_(p + 0.3 * torch.randn_like(p))
    model.save_pretrained(folder)


def hash_of(name):
    return sum(ord(c) * (i + 1) for i, c in enumerate(name))


class Llama:
    """llama.cpp on one file."""

    def __init__(self, path):
        import llama_cpp as c

        self.c = c
        params = c.llama_model_default_params()
        self.model = c.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp can't read {path}")
        self.vocabulary = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))

    def run(self, ids, new):
        """Logits of the ids' last, and greedy ids behind them."""
        c = self.c
        params = c.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch, params.flash_attn_type = 256, 1, 1, 0
        # Keys and values as they are.
        params.type_k = params.type_v = 0
        context = c.llama_init_from_model(self.model, params)
        first, greedy, given = None, [], ids
        for _ in range(new):
            tokens = (c.llama_token * len(given))(*given)
            assert c.llama_decode(context, c.llama_batch_get_one(tokens, len(given))) == 0
            logits = np.ctypeslib.as_array(c.llama_get_logits_ith(context, -1), (self.vocabulary,)).copy()
            first = logits if first is None else first
            given = [int(logits.argmax())]
            greedy += given
        c.llama_free(context)
        return first, greedy

    def close(self):
        self.c.llama_model_free(self.model)


def quantise(source, to, kind):
    import llama_cpp as c

    params = c.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.pure = kind, 1, False
    if c.llama_model_quantize(str(source).encode(), str(to).encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"llama.cpp can't quantise {source}")


def loom(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"loom {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def ours(program, path):
    """Logits of the last id, and greedy ids."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "y.safetensors"
        loom(program, "logits", path, "--token-ids", ",".join(map(str, IDS)), "--out", out, "--device", "cpu")
        from safetensors.numpy import load_file

        logits = load_file(out)["logits"].reshape(len(IDS), -1)[-1]
    text = loom(program, "generate", path, "--token-ids", ",".join(map(str, IDS)), "--max-new-tokens", NEW, "--greedy", "--device", "cpu", "--json")
    return logits, json.loads(text)


def far(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def check(program, name, folder):
    make(name, folder / name)
    rows = []
    for form in ["wide", "q8", "q4"]:
        path = folder / f"{name}-{form}.gguf"
        loom(program, "quantize", folder / name, "--out", path, "--dtype", "f32", *([] if form == "wide" else ["--format", form]))
        mine, greedy = ours(program, path)
        other = Llama(path)
        theirs, wanted = other.run(IDS, NEW)
        other.close()
        rows.append((f"ours, {form}", far(mine[: len(theirs)], theirs), greedy[-NEW:] == wanted))
    # Formats by llama.cpp's quantiser; K-quants need rows of 256.
    for kind, number in [("Q8_0", 7), ("Q4_0", 2), ("Q4_1", 3), ("Q5_0", 8), ("Q5_1", 9)]:
        path = folder / f"{name}-{kind}.gguf"
        quantise(folder / f"{name}-wide.gguf", path, number)
        mine, greedy = ours(program, path)
        other = Llama(path)
        theirs, wanted = other.run(IDS, NEW)
        other.close()
        rows.append((f"theirs, {kind}", far(mine[: len(theirs)], theirs), greedy[-NEW:] == wanted))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("loom")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or families():
            for what, distance, same in check(args.loom, name, pathlib.Path(folder)):
                bound = 2e-3 if "wide" in what else 0.08
                good = distance < bound and (same or "wide" not in what)
                failed += not good
                print(f"{name:10} {what:14} {distance:.2e} {'same ids' if same else 'other ids'}{'' if good else '  FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
