"""Small random models of every family, exported by `loom export --onnx` and run by ONNX Runtime, against transformers.

    HF_HUB_OFFLINE=1 python golden/onnx/families.py --loom target/debug/loom [FAMILY ..]      # needs transformers, onnx, onnxruntime

Where torch and ONNX Runtime live in two environments, `--write FOLDER` makes models and expectations in one, and `--read FOLDER` runs
them in the other.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 1e-4
STEPS = 8


def families():
    """A class and a configuration for each family."""
    import transformers as tf

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    from hf_more import MODELS

    plain = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=20, max_position_embeddings=64)
    out = {
        "llama": (tf.LlamaForCausalLM, tf.LlamaConfig(**plain, num_key_value_heads=2)),
        "mistral": (tf.MistralForCausalLM, tf.MistralConfig(**plain, num_key_value_heads=2)),
        "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**plain, num_key_value_heads=2)),
        "mixtral": (tf.MixtralForCausalLM, tf.MixtralConfig(**plain, num_key_value_heads=2, num_local_experts=3)),
        "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=64)),
    }
    for name, (kind, configs) in MODELS.items():
        if kind is not None:
            out[name] = (kind, configs[0])
    return out


def inputs_of(name, config, rng):
    """What a family is run with."""
    ids = rng.integers(3, 25, (1, STEPS))
    if name == "t5":
        return {"input_ids": ids, "decoder_input_ids": rng.integers(3, 25, (1, STEPS))}
    if name == "whisper":
        length = 2 * config.max_source_positions
        return {"input_features": rng.standard_normal((1, config.num_mel_bins, length)).astype(np.float32), "decoder_input_ids": ids}
    if name == "clip":
        side = config.vision_config.image_size
        return {"input_ids": rng.integers(3, 25, (STEPS, STEPS)), "pixel_values": rng.standard_normal((STEPS, 3, side, side)).astype(np.float32)}
    return {"input_ids": ids}


def write(folder, loom, only):
    """Makes models, what transformers gives for them, and the exported files."""
    import torch

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    for name, (kind, config) in families().items():
        if only and name not in only:
            continue
        place = folder / name
        model = kind(config).eval().float()
        for p in model.parameters():
            p.data = torch.randn_like(p) * 0.2 if p.dim() > 1 else p.data + torch.randn_like(p) * 0.05
        model.save_pretrained(place)
        given = inputs_of(name, config, rng)
        with torch.no_grad():
            y = model(**{k: torch.from_numpy(v) for k, v in given.items()})
        y = next(getattr(y, n) for n in ("logits", "logits_per_text", "last_hidden_state") if getattr(y, n, None) is not None)
        np.savez(place / "want.npz", result=y.numpy(), **given)
        batch = str(next(iter(given.values())).shape[0] if name != "clip" else 1)
        run = subprocess.run([loom, "export", place, "--onnx", place / "model.onnx", "--seq-len", str(STEPS), "--batch-size", batch], capture_output=True, text=True)
        (place / "export.json").write_text(json.dumps({"rc": run.returncode, "text": (run.stderr or run.stdout).strip()}))


def read(folder):
    """Runs what was exported; true if all of it gives what transformers gives."""
    import onnx
    import onnxruntime

    good = True
    for place in sorted(p for p in folder.iterdir() if (p / "export.json").exists()):
        done = json.loads((place / "export.json").read_text())
        if done["rc"]:
            print(f"| {place.name} | refused: {done['text'][:120]} |")
            good = False
            continue
        onnx.checker.check_model(str(place / "model.onnx"))
        session = onnxruntime.InferenceSession(str(place / "model.onnx"))
        want = np.load(place / "want.npz")
        feed = {}
        for i in session.get_inputs():
            kind = {"tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(float)": np.float32}[i.type]
            feed[i.name] = want[i.name].astype(kind).reshape(i.shape)
        y = session.run(None, feed)[0]
        off = float(np.abs(y.reshape(-1) - want["result"].reshape(-1)).max()) if y.size == want["result"].size else float("inf")
        good &= off < TOLERANCE
        print(f"| {place.name} | {off:.1e} |")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loom", default="target/debug/loom")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--read", type=pathlib.Path)
    parser.add_argument("only", nargs="*")
    o = parser.parse_args()
    if o.read:
        sys.exit(not read(o.read))
    with tempfile.TemporaryDirectory() as folder:
        place = o.write or pathlib.Path(folder)
        write(place, o.loom, o.only)
        sys.exit(0 if o.write else not read(place))


if __name__ == "__main__":
    main()
