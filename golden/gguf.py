"""Writes a GGUF file with a tensor of every kind, by the `gguf` package, and the logits that transformers computes from it.

    python golden/gguf.py               # writes crates/models/tests/data/gguf
    python golden/gguf.py --check FILE  # lets transformers read a file; prints logits of ids 1..9
    python golden/gguf.py --check FILE --config DIR  # with a directory's configuration; prints how far its logits are
"""

import json
import pathlib
import sys

import numpy as np
import torch

# The package, not this file.
sys.path = [p for p in sys.path if pathlib.Path(p or ".").resolve() != pathlib.Path(__file__).parent.resolve()]
import gguf
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).parent.parent / "crates/models/tests/data/gguf"
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2], T.Q6_K: [208]}


def blocks(rng, kind, rows, k):
    """Random blocks whose numbers are of the usual size."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, k // block, size), dtype=np.uint8)
    for at in HALVES[kind]:
        data[..., at : at + 2] = np.full((rows, k // block, 1), 1e-3, np.float16).view(np.uint8)
    data = data.reshape(rows, -1)
    y = gguf.quants.dequantize(data, kind)
    # To a deviation of about 0.05.
    factor = 0.05 / y.std()
    data = data.reshape(rows, k // block, size)
    for at in HALVES[kind]:
        spread = factor * rng.uniform(0.5, 1.5, (rows, k // block, 1))
        data[..., at : at + 2] = (1e-3 * spread).astype(np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def write(path):
    rng = np.random.default_rng(3)
    d, ff, vocab, heads, kv = 256, 256, 64, 4, 2
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(128)
    w.add_embedding_length(d)
    w.add_block_count(1)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(d // heads)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([chr(33 + i) for i in range(vocab - 1)] + ["<|endoftext|>"])
    w.add_token_types([1] * (vocab - 1) + [3])
    w.add_token_merges([])
    w.add_eos_token_id(vocab - 1)

    def put(name, kind, rows, k):
        w.add_tensor(name, blocks(rng, kind, rows, k), raw_dtype=kind)

    put("token_embd.weight", T.Q8_0, vocab, d)
    put("output.weight", T.Q5_1, vocab, d)
    w.add_tensor("output_norm.weight", rng.uniform(0.5, 1.5, d).astype(np.float32))
    w.add_tensor("blk.0.attn_norm.weight", rng.uniform(0.5, 1.5, d).astype(np.float32))
    w.add_tensor("blk.0.ffn_norm.weight", rng.uniform(0.5, 1.5, d).astype(np.float32))
    put("blk.0.attn_q.weight", T.Q4_K, d, d)
    put("blk.0.attn_k.weight", T.Q4_K, d // heads * kv, d)
    put("blk.0.attn_v.weight", T.Q6_K, d // heads * kv, d)
    put("blk.0.attn_output.weight", T.Q5_K, d, d)
    put("blk.0.ffn_gate.weight", T.Q2_K, ff, d)
    put("blk.0.ffn_up.weight", T.Q3_K, ff, d)
    put("blk.0.ffn_down.weight", T.Q4_0, d, ff)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(path, ids, config=None):
    path = pathlib.Path(path)
    given = {"config": AutoConfig.from_pretrained(config)} if config else {}
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, **given)
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def main():
    if sys.argv[1:2] == ["--check"] and sys.argv[3:4] == ["--config"]:
        ids = [list(range(1, 10))]
        y = logits(sys.argv[2], ids, sys.argv[4])
        with torch.no_grad():
            wanted = AutoModelForCausalLM.from_pretrained(sys.argv[4], dtype=torch.float32)(torch.tensor(ids)).logits.numpy()
        print(f"at most {np.abs(y - wanted).max():.3g} of {np.abs(wanted).max():.3g}")
        return
    if sys.argv[1:2] == ["--check"]:
        y = logits(sys.argv[2], [list(range(1, 10))])
        print(" ".join(f"{x:.6f}" for x in y[0, -1, :12]))
        return
    OUT.mkdir(exist_ok=True)
    write(str(OUT / "kinds.gguf"))
    ids = [[3, 17, 5, 60, 2, 2, 41, 8], [1, 2, 3, 4, 5, 6, 7, 8]]
    save_file({"logits": logits(OUT / "kinds.gguf", ids)}, str(OUT / "expected.safetensors"))
    (OUT / "expected.json").write_text(json.dumps({"ids": ids}) + "\n")


if __name__ == "__main__":
    main()
