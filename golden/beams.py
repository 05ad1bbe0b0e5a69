"""Beam searches of transformers on the tiny checkpoints.

    HF_HUB_OFFLINE=1 python golden/beams.py        # write crates/models/tests/data/beams.json

Ends are chosen among the tokens that the plain search gives, so that some texts end early.
"""

import json
import pathlib

import torch
import transformers as tf

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
CASES = [("llama", 3, 12), ("gpt2", 4, 10), ("qwen2", 2, 16), ("gemma", 5, 8), ("mistral", 3, 9)]
PROMPTS = [[1, 5, 7], [40, 33, 12, 9, 3], [60]]


def main():
    found = []
    for name, beams, most in CASES:
        model = tf.AutoModelForCausalLM.from_pretrained(HERE / name).eval()
        for prompt in PROMPTS:
            ids = torch.tensor([prompt])
            ends = [None]
            for end in ends:
                out = model.generate(
                    ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False, max_new_tokens=most,
                    num_return_sequences=beams, return_dict_in_generate=True, output_scores=True, eos_token_id=end,
                    pad_token_id=0)
                texts = []
                for row, score in zip(out.sequences[:, len(prompt):].tolist(), out.sequences_scores.tolist()):
                    cut = row.index(end) + 1 if end is not None and end in row else len(row)
                    texts.append({"ids": row[:cut], "score": score})
                found.append({"model": name, "beams": beams, "most": most, "prompt": prompt, "end": end, "texts": texts})
                if end is None:
                    plain = texts[0]["ids"]
                    ends.extend([plain[len(plain) // 2], texts[-1]["ids"][-1]])
    (HERE / "beams.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
