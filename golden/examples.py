"""Tokens and labels of training examples as TRL makes them: prompts with completions, preferences, conversations.

    python golden/examples.py                 # write crates/models/tests/data/examples.json

The functions that prepare a data set are TRL's own (trl 1.16.0), read from its files, so that neither PyTorch nor `datasets` is
needed. Conversations are labelled by `return_assistant_tokens_mask` of transformers.
"""

import ast
import contextlib
import importlib.util
import json
import pathlib
import random
import sys
import tempfile
import types
import typing

import transformers as tf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/examples.json"
SEQ = 40
WORDS = ["the", " cat", "cat", " sat", " ", "  ", "\n", "\n\n", "é", " 😀", "日本", "ing", "s", " and", ".", "<", "</s>", "<|end|>", "a", " the cat"]
MARKED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}END{% endgeneration %}"
    "{% else %}{{ m.content }}END{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# What closes a message; and templates that write an open conversation differently.
ENDS = ["<|end|>", "<|end|>\n", "</s>", "\n", "😀", "", " é"]
OPEN = ["<|assistant|>\n", "<|assistant|>\n<think>\n", "<|assistant|>"]


def trl(file, names):
    """Functions of a file of TRL, without its imports."""
    root = pathlib.Path(importlib.util.find_spec("trl").origin).parent
    tree = ast.parse((root / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in found:
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
    return ast.Module(found, [])


class Dataset:
    """The rows of a data set, as `datasets.Dataset` has them."""

    def __init__(self, rows):
        self.rows, self.format = rows, {"type": None}

    column_names = property(lambda self: sorted({name for row in self.rows for name in row}))

    def __iter__(self):
        return iter(self.rows)

    def map(self, function, fn_kwargs=None, remove_columns=None, **_):
        removed = [remove_columns] if isinstance(remove_columns, str) else remove_columns or []
        rows = []
        for row in self.rows:
            made = function(json.loads(json.dumps(row)), **(fn_kwargs or {}))
            rows.append({**{name: value for name, value in row.items() if name not in removed}, **made})
        return Dataset(rows)

    def filter(self, function, **_):
        return Dataset([row for row in self.rows if function(row)])


def preparers():
    def space():
        logger = types.SimpleNamespace(warning=print, warning_once=lambda text: None)
        nothing = contextlib.nullcontext
        return dict(Dataset=Dataset, ProcessorMixin=tf.ProcessorMixin, Any=typing.Any, logger=logger, json=json, global_then_local_main_first=nothing)

    data = ["_tokenize", "common_prefix_length", "extract_prompt", "is_conversational", "is_conversational_from_value", "maybe_convert_to_chatml", "get_dataset_column_names"]
    made = []
    for file in ["trainer/sft_trainer.py", "trainer/dpo_trainer.py"]:
        names = space()
        exec(compile(trl("data_utils.py", data), "data_utils", "exec"), names)
        exec(compile(trl(file, ["_prepare_dataset"]), file, "exec"), names)
        made.append(names["_prepare_dataset"])
    return made


def tokenizer_files():
    """Small tokenizers: byte-level with an end behind prompts, with BOS, with BOS and EOS, and one in the form of SentencePiece's."""
    rng = random.Random(5)
    corpus = ["".join(rng.choices(WORDS[:-6] + WORDS[-2:], k=40)) for _ in range(200)]
    special = ["<s>", "</s>", "<|end|>"]

    def template(before, after):
        single = [*before, "$A", *after]
        return processors.TemplateProcessing(single=single, pair=single + ["$B"], special_tokens=[("<s>", 0), ("</s>", 1)])

    def bytes_level(post):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        made.train_from_iterator(corpus, trainer)
        made.post_processor = post
        return made

    def pieces(post):
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        alphabet = sorted({c for text in corpus for c in text.replace(" ", "▁")} - {"日", "本", "😀"})
        trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=[*special, "<unk>", *(f"<0x{b:02X}>" for b in range(256))], initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False)
        made.train_from_iterator(corpus, trainer)
        made.post_processor = post
        file = json.loads(made.to_str())
        file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 4]
        return Tokenizer.from_str(json.dumps(file))

    return {
        "bytes": bytes_level(processors.ByteLevel(trim_offsets=True)),
        "bytes, BOS": bytes_level(template(["<s>"], [])),
        "bytes, BOS and EOS": bytes_level(template(["<s>"], ["</s>"])),
        "pieces, BOS": pieces(template(["<s>"], [])),
    }


def load(made, source):
    """The tokenizer as transformers has it; offsets keep their spaces, or else marks that end in one have no last token."""
    with tempfile.TemporaryDirectory() as folder:
        file = json.loads(made.to_str())
        if (file["post_processor"] or {}).get("type") == "ByteLevel":
            file["post_processor"]["trim_offsets"] = False
        folder = pathlib.Path(folder)
        (folder / "tokenizer.json").write_text(json.dumps(file))
        config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>", chat_template=source)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return tf.AutoTokenizer.from_pretrained(folder)


def draw(rng, kind):
    text = lambda most: "".join(rng.choices(WORDS, k=rng.randint(1, most)))  # noqa: E731
    say = lambda role: dict(role=role, content=text(4))  # noqa: E731
    turns = lambda n: [say(["user", "assistant"][i % 2]) for i in range(n)]  # noqa: E731
    if kind == "completion":
        return dict(prompt=text(5), completion=text(5))
    if kind == "reply":
        prompt = turns(rng.choice([1, 3]))
        return dict(prompt=prompt, completion=[say("assistant"), *([say("user"), say("assistant")] if rng.random() < 0.2 else [])])
    if kind == "preference":
        shared = text(3)
        return dict(prompt=shared, chosen=text(4), rejected=text(4)) if rng.random() < 0.6 else dict(chosen=shared + text(3), rejected=shared + text(3))
    if kind == "preferred reply":
        prompt, chosen, rejected = turns(rng.choice([1, 3])), [say("assistant")], [say("assistant")]
        return dict(prompt=prompt, chosen=chosen, rejected=rejected) if rng.random() < 0.5 else dict(chosen=prompt + chosen, rejected=prompt + rejected)
    if kind == "from":
        names = {"role": "from", "content": "value"}
        return dict(conversations=[{names[name]: value for name, value in message.items()} for message in turns(rng.choice([2, 4, 5]))])
    return dict(messages=turns(rng.choice([2, 4, 5])))


def main():
    sft, dpo = preparers()
    rng = random.Random(3)
    files = tokenizer_files()
    out = dict(transformers=tf.__version__, seq=SEQ, tokenizers={name: json.loads(made.to_str()) for name, made in files.items()}, cases=[])
    kinds = ["completion"] * 3 + ["preference"] * 2 + ["reply", "preferred reply", "messages", "messages", "from"]
    while len(out["cases"]) < 400:
        name, kind = rng.choice(list(files)), rng.choice(kinds)
        source = MARKED.replace("END", rng.choice(ENDS)).replace("{% if add_generation_prompt %}<|assistant|>\n", "{% if add_generation_prompt %}" + rng.choice(OPEN))
        # A post-processor that ends texts would end them a second time in TRL, behind the text of the token.
        tokenizer = load(files[name.removesuffix(" and EOS")], source)
        record = draw(rng, kind)
        args = types.SimpleNamespace(dataset_num_proc=None, max_length=None, truncation_mode="keep_start", dataset_text_field="text", shuffle_dataset=False,
                                     assistant_only_loss=kind in ("messages", "from"))
        trainer = types.SimpleNamespace(_tokenizer=tokenizer, completion_only_loss=True, chat_template=source)
        try:
            if "chosen" in record:
                rows = list(dpo(trainer, Dataset([record]), tokenizer, args, "train"))
                rows = [[row["prompt_ids"] + row[side], [-100] * len(row["prompt_ids"]) + row[side]] for row in rows for side in ("chosen_ids", "rejected_ids")]
            else:
                rows = [[row["input_ids"], row["labels"]] for row in sft(trainer, Dataset([record]), tokenizer, args, False, None, "train")]
        except (RuntimeError, UnboundLocalError) as error:
            print("left out:", repr(error)[:90], file=sys.stderr)
            continue
        out["cases"].append(dict(tokenizer=name, template=source, record=record, rows=[dict(tokens=tokens[:SEQ], labels=labels[:SEQ]) for tokens, labels in rows]))
    OUT.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(out["cases"]), "cases,", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
