"""LoRA and IA3 adapters by peft on the tiny models of golden/hf.py: crates/models/tests/data/lora/ and ia3/.

    HF_HUB_OFFLINE=1 python golden/lora.py                  # write the adapters and what peft computes with them
    HF_HUB_OFFLINE=1 python golden/lora.py --check DIR BASE # peft reads an adapter of ours: logits, merged and not

The adapters are as if they had been trained: B is not zero, factors are not one. `steps` in both folders are a few steps of
PyTorch's AdamW on an adapter of the tiny Llama, from the adapter beside them.
"""

import argparse
import json
import pathlib

import peft
import torch
import transformers as tf
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

DATA = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
IDS = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]]
CASES = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn", "c_fc"], "phi3": ["qkv_proj", "down_proj"]}
# Targets, and those of them whose inputs are multiplied. Qwen2 and GPT-2 have biases, GPT-2's weights are transposed.
FACTORS = {
    "llama": (["k_proj", "v_proj", "down_proj"], ["down_proj"]),
    "qwen2": (["q_proj", "k_proj", "o_proj", "gate_proj"], ["o_proj"]),
    "gpt2": (["c_attn", "mlp.c_proj"], ["mlp.c_proj"]),
}
RATES = [1e-3, 4e-3, 1e-2, 5e-3]


def base(name):
    return tf.AutoModelForCausalLM.from_pretrained(DATA / name, dtype=torch.float32).eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor(IDS), use_cache=False).logits.clone().contiguous()


def write(kind, name, config):
    torch.manual_seed(len(name))
    model = peft.get_peft_model(base(name), config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            if "lora_B" in path:
                p.copy_(0.3 * torch.randn_like(p))
            if "ia3_l" in path:
                p.copy_(1 + 0.4 * torch.randn_like(p))
    folder = DATA / kind / name
    save(model, folder, name)
    beside = logits(model)
    merged = logits(model.merge_and_unload())
    plain = logits(base(name))
    save_file({"logits": beside, "merged": merged}, folder / "expected.safetensors")
    print(kind, name, "merged differs by", float((beside - merged).abs().max()),
          "from base", float((beside - plain).abs().max()))


def save(model, folder, name):
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)
    described = json.loads((folder / "adapter_config.json").read_text())
    described["base_model_name_or_path"] = name
    described["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(described, indent=1) + "\n")


def train(kind):
    """Clipping by global norm, decay on matrices alone, as golden/train.py."""
    torch.manual_seed(3)
    model = peft.PeftModel.from_pretrained(base("llama"), DATA / kind / "llama", is_trainable=True).eval()
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if min(p.shape) > 1]
    others = [p for p in trained if min(p.shape) == 1]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    steps = []
    for rate in RATES:
        tokens = torch.randint(0, 64, (2, 8))
        ids, labels = tokens[:, :-1], tokens[:, 1:]
        out = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(out.reshape(-1, 64), labels.reshape(-1))
        adam.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        steps.append(dict(ids=ids.flatten().tolist(), labels=labels.flatten().tolist(), rate=rate,
                          loss=float(loss.detach()), norm=float(norm)))
    folder = DATA / kind / "steps"
    save(model, folder, "llama")
    (folder / "expected.json").write_text(json.dumps(dict(steps=steps)) + "\n")
    print(kind, [round(s["loss"], 4) for s in steps], [round(s["norm"], 3) for s in steps])


def words():
    """A tokenizer that fits the tiny vocabulary, so that text can be trained on."""
    known = "the a cat dog bird sat ran sang on in under mat house tree and then it was happy sad . <|endoftext|>".split()
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(known)}, unk_token="the"))
    inner.pre_tokenizer = Whitespace()
    inner.add_special_tokens(["<|endoftext|>"])
    inner.save(str(DATA / "lora" / "tokenizer.json"))


def check(folder, name):
    model = peft.PeftModel.from_pretrained(base(name), folder).eval()
    beside = logits(model)
    merged = logits(model.merge_and_unload())
    save_file({"logits": beside, "merged": merged}, pathlib.Path(folder) / "expected.safetensors")
    print(f"{folder}: beside and merged differ by {float((beside - merged).abs().max()):.2e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs=2, metavar=("DIR", "BASE"))
    args = parser.parse_args()
    if args.check:
        check(*args.check)
    else:
        for name, targets in CASES.items():
            write("lora", name, peft.LoraConfig(
                r=4, lora_alpha=12, target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                fan_in_fan_out=name == "gpt2"))
        for name, (targets, inputs) in FACTORS.items():
            write("ia3", name, peft.IA3Config(
                target_modules=targets, feedforward_modules=inputs, task_type="CAUSAL_LM",
                fan_in_fan_out=name == "gpt2"))
        train("lora")
        train("ia3")
        words()
