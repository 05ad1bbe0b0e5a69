"""What transformers makes of small random classifiers: probabilities of classes for texts of several lengths.

    HF_HUB_OFFLINE=1 python golden/classes.py      # writes crates/models/tests/data/more/classes.json

Weights are drawn from their names, as in `hf_more.py`.
"""

import json
import random

import torch
import transformers as tf

from hf_more import BERT, GROUPED, HERE, fill

NAMES = {0: "cat", 1: "dog", 2: "bird"}
LABELS = dict(id2label=NAMES, label2id={name: i for i, name in NAMES.items()}, pad_token_id=0)
GATED = {key: value for key, value in GROUPED.items() if key != "pad_token_id"}
GPT2 = dict(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=64, bos_token_id=None, eos_token_id=None)
CASES = [
    (tf.LlamaForSequenceClassification, tf.LlamaConfig(**GATED, **LABELS)),
    (tf.Qwen2ForSequenceClassification, tf.Qwen2Config(**GATED, **LABELS, tie_word_embeddings=True)),
    (tf.GPT2ForSequenceClassification, tf.GPT2Config(**GPT2, **LABELS)),
    (tf.BertForSequenceClassification, tf.BertConfig(**dict(BERT, **LABELS))),
]


def main():
    tf.logging.set_verbosity_error()
    found = []
    for kind, config in CASES:
        torch.manual_seed(0)
        config.architectures = [kind.__name__]
        model, stored = fill(kind(config).eval())
        draw = random.Random(kind.__name__)
        rows = []
        for length in (1, 5, 23):
            # No id that stands for padding: the last one is scored.
            ids = [draw.randrange(2, config.vocab_size) for _ in range(length)]
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([ids])).logits[0]
            rows.append(dict(ids=ids, probabilities=[float(f"{x:.7g}") for x in scores.softmax(-1).tolist()]))
        found.append(dict(config=dict(json.loads(config.to_json_string()), architectures=[kind.__name__]),
                          shapes={key: list(t.shape) for key, t in stored.items()}, rows=rows))
    (HERE / "classes.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print([[row["probabilities"] for row in case["rows"]] for case in found])


if __name__ == "__main__":
    main()
