"""A LoRA adapter by peft on the tiny models of golden/hf.py: crates/models/tests/data/lora/.

    HF_HUB_OFFLINE=1 python golden/lora.py                  # write the adapters and what peft computes with them
    HF_HUB_OFFLINE=1 python golden/lora.py --check DIR BASE # peft reads an adapter of ours: logits, merged and not

The adapters are as if they had been trained: B is not zero.
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


def base(name):
    return tf.AutoModelForCausalLM.from_pretrained(DATA / name, dtype=torch.float32).eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor(IDS), use_cache=False).logits.clone().contiguous()


def write(name, targets):
    torch.manual_seed(len(name))
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, lora_dropout=0.0, bias="none",
                             task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2")
    model = peft.get_peft_model(base(name), config).eval()
    with torch.no_grad():
        for path, p in model.named_parameters():
            if "lora_B" in path:
                p.copy_(0.3 * torch.randn_like(p))
    folder = DATA / "lora" / name
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)
    described = json.loads((folder / "adapter_config.json").read_text())
    described["base_model_name_or_path"] = name
    (folder / "adapter_config.json").write_text(json.dumps(described, indent=1) + "\n")
    beside = logits(model)
    merged = logits(model.merge_and_unload())
    plain = logits(base(name))
    save_file({"logits": beside, "merged": merged}, folder / "expected.safetensors")
    print(name, "merged differs by", float((beside - merged).abs().max()), "from base", float((beside - plain).abs().max()))


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
            write(name, targets)
        words()
