"""Every field of the configuration classes that the library reads, with its default, as transformers has them.

    HF_HUB_OFFLINE=1 python golden/hf_fields.py      # write crates/models/tests/data/fields.json
"""

import json
import pathlib

import transformers as tf

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/fields.json"
CLASSES = {
    "GemmaForCausalLM": tf.GemmaConfig,
    "GPT2LMHeadModel": tf.GPT2Config,
    "GPTNeoXForCausalLM": tf.GPTNeoXConfig,
    "LlamaForCausalLM": tf.LlamaConfig,
    "MambaForCausalLM": tf.MambaConfig,
    "MistralForCausalLM": tf.MistralConfig,
    "MixtralForCausalLM": tf.MixtralConfig,
    "Phi3ForCausalLM": tf.Phi3Config,
    "Qwen2ForCausalLM": tf.Qwen2Config,
    "Qwen3ForCausalLM": tf.Qwen3Config,
}


def fields(config):
    """What `save_pretrained` may write: the class's fields, whether they are at their defaults or not."""
    return dict(sorted(config.to_dict().items()))


if __name__ == "__main__":
    found = {name: fields(make()) for name, make in CLASSES.items()}
    OUT.write_text(json.dumps(dict(transformers=tf.__version__, classes=found), indent=1) + "\n")
    for name, all in found.items():
        print(name, len(all))
