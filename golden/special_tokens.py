"""Special tokens as transformers finds them in the files of a directory.

    HF_HUB_OFFLINE=1 python golden/special_tokens.py             # write crates/models/tests/data/special_tokens.json
    HF_HUB_OFFLINE=1 python golden/special_tokens.py --dir DIR   # write DIR/*/transformers.json for real tokenizers

The first draws random side files around one small tokenizer; the second describes each tokenizer in the folders of DIR. Both are
compared by `crates/models/tests/special_tokens.rs`.
"""

import json
import pathlib
import random
import sys
import tempfile

import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/special_tokens.json"
TEXTS = ["the cat sat", "", "on <s> the </s> mat<|im_end|>", "<|endoftext|> x <eot> y [PAD]"]
SPECIAL = ["<s>", "</s>", "<|endoftext|>", "<|im_end|>", "<pad>", "<unk>"]
OTHERS = ["<eot>", "[PAD]", "<tool>", "<img>"]
CLASSES = [None, "PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2TokenizerFast", "LlamaTokenizerFast"]
KINDS = [None, "gpt2", "llama", "mistral", "qwen2", "phi3", "gpt_neox"]


def tiny():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["the cat sat on the mat"] * 20, trainer)
    return json.loads(made.to_str())


def template(bos, eos, ids):
    single = ([bos] if bos else []) + ["$A"] + ([eos] if eos else [])
    pair = single + ["$B"]
    made = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(t, ids[t]) for t in {bos, eos} if t])
    return json.loads(made.__getstate__())


def draw(rng, base):
    """Side files of a directory: some of them, with tokens as text or as objects, lists of ends, nulls."""
    ids = {t["content"]: t["id"] for t in base["added_tokens"]}
    tokens = SPECIAL + (OTHERS if rng.random() < 0.4 else [])
    tokenizer = json.loads(json.dumps(base))
    if rng.random() < 0.4:
        tokenizer["post_processor"] = template(rng.choice([None] + SPECIAL[:3]), rng.choice([None, None] + SPECIAL[:3]), ids)
    for token in tokenizer["added_tokens"]:
        token["special"] = rng.random() < 0.8
    files = {"tokenizer.json": tokenizer}

    def value():
        token = rng.choice(tokens)
        if rng.random() < 0.5:
            return token
        flags = {name: rng.random() < 0.2 for name in ("lstrip", "rstrip", "single_word", "normalized")}
        return {"content": token, "__type": "AddedToken", **flags}

    def named():
        names = ["bos_token", "eos_token", "pad_token", "unk_token", "sep_token"]
        found = {name: value() for name in names if rng.random() < 0.5}
        found.update({name: None for name in names if rng.random() < 0.1})
        return found

    if rng.random() < 0.85:
        config = named()
        if (kind := rng.choice(CLASSES)) is not None:
            config["tokenizer_class"] = kind
        for name in ("add_bos_token", "add_eos_token"):
            if rng.random() < 0.3:
                config[name] = rng.random() < 0.5
        if rng.random() < 0.4:
            known = [dict(t) for t in tokenizer["added_tokens"]]
            for token in rng.sample(OTHERS, rng.randint(0, 3)):
                known.append(dict(id=len(known) + 274, content=token, lstrip=False, rstrip=False, single_word=False,
                                  normalized=False, special=rng.random() < 0.5))
            config["added_tokens_decoder"] = {str(t.pop("id")): t for t in known}
        if rng.random() < 0.2:
            config["additional_special_tokens"] = rng.sample(tokens, 2)
        files["tokenizer_config.json"] = config
    if rng.random() < 0.4:
        found = {name: token for name, token in named().items() if token is not None}
        files["special_tokens_map.json"] = found

    def ends():
        return rng.choice([None, rng.randint(0, 279), [rng.randint(0, 279) for _ in range(rng.randint(1, 3))]])

    config = {}
    if (kind := rng.choice(KINDS)) is not None:
        config["model_type"] = kind
    for name in ("bos_token_id", "pad_token_id"):
        if rng.random() < 0.5:
            config[name] = rng.randint(0, 279)
    if rng.random() < 0.6:
        config["eos_token_id"] = ends()
    files["config.json"] = config
    if rng.random() < 0.6:
        config = {"eos_token_id": ends()} if rng.random() < 0.8 else {}
        if rng.random() < 0.5:
            config["bos_token_id"] = rng.randint(0, 279)
        files["generation_config.json"] = config
    return files


def listed(ids):
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def describe(folder):
    """What transformers makes of a directory."""
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    found = dict(
        named={name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)},
        bos=tokenizer.bos_token_id,
        eos=tokenizer.eos_token_id,
        pad=tokenizer.pad_token_id,
        added=sorted([id, str(t), t.special] for id, t in tokenizer.added_tokens_decoder.items()),
        texts=[[text, tokenizer(text).input_ids, tokenizer(text, add_special_tokens=False).input_ids] for text in TEXTS],
    )
    try:
        generation = tf.GenerationConfig.from_pretrained(folder)
    except (OSError, TypeError):
        try:
            generation = tf.GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)
        except (OSError, TypeError):  # a tokenizer without a model
            return found
    found.update(stops=listed(generation.eos_token_id), start=generation.bos_token_id)
    return found


def synthetic(count):
    rng, base, cases = random.Random(7), tiny(), []
    tokenizer = dict(base)
    while len(cases) < count:
        files = draw(rng, base)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (pathlib.Path(folder) / name).write_text(json.dumps(content))
            try:
                found = describe(folder)
            except Exception as error:  # what transformers itself can't read is no example
                print("left out:", type(error).__name__, str(error)[:80])
                continue
        own = files.pop("tokenizer.json")
        files["tokenizer.json"] = dict(post_processor=own["post_processor"], special=[t["special"] for t in own["added_tokens"]])
        cases.append(dict(files=files, found=found))
    out = dict(transformers=tf.__version__, tokenizer=tokenizer, cases=cases)
    OUT.write_text(json.dumps(out, separators=(",", ":"), ensure_ascii=True) + "\n")
    print(len(cases), "cases,", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    if "--dir" not in sys.argv:
        synthetic(60)
    else:
        for folder in sorted(pathlib.Path(sys.argv[sys.argv.index("--dir") + 1]).iterdir()):
            if (folder / "tokenizer.json").is_file():
                try:
                    found = describe(folder)
                except Exception as error:
                    print(folder.name, "left out:", type(error).__name__, str(error)[:100])
                    continue
                (folder / "transformers.json").write_text(json.dumps(found))
                print(folder.name, found["eos"], found["bos"])
