//! Converts tokenizers between GGUF's lists of tokens and merges and `tokenizer.json`.

use super::header::{GgufValue, Header};
use super::sizes::string_list;
use super::write::MetadataValue;
use crate::chat_files::DEFAULT_NAME;
use crate::special_tokens::SpecialTokens;
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// The marker of a file without a tokenizer; without it, such files are rejected.
const NO_TOKENIZER: &str = "none";

/// The metadata entry of a file without a tokenizer.
pub(super) fn no_tokenizer_pair() -> (String, MetadataValue) {
    ("tokenizer.ggml.model".into(), MetadataValue::Text(NO_TOKENIZER.into()))
}

/// Names of Llama 3's pre-tokenizer.
const LLAMA3: [&str; 3] = ["llama-bpe", "llama3", "llama-v3"];

/// Pattern for words by upper and lower case, with their possible suffix and the grouping of digits.
fn cased_word_pattern(suffix: &str, digits: &str) -> String {
    let (upper, lower) = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]");
    let before = r"[^\r\n\p{L}\p{N}]?";
    format!(
        r"{before}{upper}*{lower}+{suffix}|{before}{upper}+{lower}*{suffix}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// The cased letters of DeepSeek's first tokenizers.
const CASED_LETTERS: &str = "A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\
    \u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\
    \u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\
    \u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}\
    -\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\
    \u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\
    \u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\
    \u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\
    \u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}\
    -\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\
    \u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}";

/// The pre-tokenizer with this name in llama.cpp.
fn pre_tokenizer(pre: &str) -> Result<Json, String> {
    let part = |pattern: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let sequence = |parts: Vec<Json>| json!({ "type": "Sequence", "pretokenizers": parts });
    let split = |pattern: &str| sequence(vec![part(pattern), bytes.clone()]);
    let digits = |count: &str| {
        split(&format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{count}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    // Texts are split as in GPT-2; some first split off single digits.
    let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    Ok(match pre {
        "gpt-2" | "default" | "phi-2" | "mpt" | "olmo" | "jais" => gpt2,
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
            json!({ "type": "Sequence", "pretokenizers": [{ "type": "Digits", "individual_digits": true }, gpt2] })
        }
        pre if LLAMA3.contains(&pre) || matches!(pre, "dbrx" | "smaug-bpe") => digits("{1,3}"),
        "qwen2" | "stablelm2" => digits(""),
        "gpt-4o" | "llama4" => split(&cased_word_pattern(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")),
        "tekken" => split(&cased_word_pattern("", r"\p{N}")),
        "deepseek-v3" => sequence(vec![
            part(r"\p{N}{1,3}"),
            part("[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+"),
            part(
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
            ),
            bytes,
        ]),
        "deepseek-llm" | "deepseek-coder" => {
            let (words, marks) = match pre {
                "deepseek-llm" => (
                    format!(r"\s?[{CASED_LETTERS}]+"),
                    "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
                ),
                _ => (r"\s?\p{L}+".to_string(), r"\s?\p{P}+"),
            };
            let mut parts = vec![part("[\r\n]"), part(&words), part(marks)];
            parts.extend((pre == "deepseek-llm").then(|| part(r"\s+$")));
            let single = json!({ "type": "Digits", "individual_digits": true });
            parts.extend([part("[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+"), single, bytes]);
            sequence(parts)
        }
        "falcon" => sequence(vec![
            json!({ "type": "Punctuation", "behavior": "Contiguous" }),
            gpt2,
            json!({ "type": "Digits", "individual_digits": false }),
            part("[0-9][0-9][0-9]"),
        ]),
        other => return Err(format!("unknown pre-tokenizer `{other}` (`tokenizer.ggml.pre`): use token IDs")),
    })
}

/// The key of a complete `tokenizer.json`, which contains more than the lists do.
const TOKENIZER_JSON_KEY: &str = "tokenizer.huggingface.json";

/// Builds a `tokenizer.json` from a file's tokens.
pub(super) fn to_json(header: &Header, special_tokens: &SpecialTokens) -> Result<Json, String> {
    if let Some(text) = header.text(TOKENIZER_JSON_KEY) {
        return serde_json::from_str(text).map_err(|e| format!("its `{TOKENIZER_JSON_KEY}` is not valid JSON: {e}"));
    }
    let model = header.text("tokenizer.ggml.model").filter(|model| *model != NO_TOKENIZER);
    let model = model.ok_or("the file has no tokenizer (`tokenizer.ggml.model`): use token IDs")?;
    let tokens = string_list(header, "tokenizer.ggml.tokens")?;
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, token) in tokens.iter().enumerate() {
        // A string can have only one ID; duplicates are ignored.
        ids.entry(token).or_insert(id);
    }
    // 3 is a control token, 4 a user-defined one.
    let kinds: Vec<i128> = match header.list("tokenizer.ggml.token_type") {
        Some(list) => list.iter().map(|v| if let GgufValue::Int(n) = v { *n } else { 1 }).collect(),
        None => Vec::new(),
    };
    let special = |id: usize| matches!(kinds.get(id), Some(3 | 4));
    let added: Vec<Json> = ids
        .iter()
        .map(|(token, id)| (*id, *token))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .filter(|(id, _)| special(*id))
        .map(|(id, token)| {
            let control = kinds.get(id) == Some(&3);
            json!({ "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": control })
        })
        .collect();
    let vocab: Map<String, Json> = ids.iter().map(|(token, id)| (token.to_string(), json!(id))).collect();
    let (merges, pre, decoder, normalizer, fallback) = match model {
        "gpt2" => {
            // An empty list may be omitted.
            let merges = match header.list("tokenizer.ggml.merges") {
                Some(_) => string_list(header, "tokenizer.ggml.merges")?,
                None => Vec::new(),
            };
            let pairs: Result<Vec<Json>, String> = merges
                .iter()
                .map(|m| {
                    m.split_once(' ')
                        .map(|(a, b)| json!([a, b]))
                        .ok_or_else(|| format!("the merge `{m}` does not have two parts"))
                })
                .collect();
            let pre = header.text("tokenizer.ggml.pre").unwrap_or("default");
            let byte_level =
                json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
            let normalizer = if pre == "qwen2" { json!({ "type": "NFC" }) } else { Json::Null };
            (pairs?, pre_tokenizer(pre)?, byte_level, normalizer, false)
        }
        "llama" => {
            let scores = header.list("tokenizer.ggml.scores").ok_or("the array `tokenizer.ggml.scores` is missing")?;
            let score = |id: usize| match scores.get(id) {
                Some(GgufValue::Float(x)) => *x,
                _ => 0.0,
            };
            let prefix = !matches!(header.pairs.get("tokenizer.ggml.add_space_prefix"), Some(GgufValue::Bool(false)));
            let mut normalizers = Vec::new();
            if prefix {
                normalizers.push(json!({ "type": "Prepend", "prepend": "\u{2581}" }));
            }
            normalizers.push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" }));
            let mut decoders = vec![
                json!({ "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " }),
                json!({ "type": "ByteFallback" }),
                json!({ "type": "Fuse" }),
            ];
            if prefix {
                decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
            }
            (
                merges_of_scores(&ids, &special, &score),
                Json::Null,
                json!({ "type": "Sequence", "decoders": decoders }),
                json!({ "type": "Sequence", "normalizers": normalizers }),
                true,
            )
        }
        other => {
            return Err(format!(
                "the tokenizer type `{other}` is not supported, only gpt2 and llama are: use token IDs"
            ));
        }
    };
    let unknown = header.int("tokenizer.ggml.unknown_token_id").and_then(|id| tokens.get(usize::try_from(id).ok()?));
    // With Llama 3's pre-tokenizer, llama.cpp does not split words that are tokens.
    let whole_words = header.text("tokenizer.ggml.pre").is_some_and(|pre| LLAMA3.contains(&pre) || pre == "tekken");
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": post_processor(header, special_tokens), "decoder": decoder,
        "model": { "type": "BPE", "dropout": null, "unk_token": if fallback { json!(unknown) } else { Json::Null },
                   "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": fallback,
                   "byte_fallback": fallback, "ignore_merges": whole_words, "vocab": vocab, "merges": merges }
    }))
}

/// The merges in SentencePiece's order: the pair with the best resulting token first. Every split of a token into two is a merge.
fn merges_of_scores(
    ids: &BTreeMap<&str, usize>,
    special: &dyn Fn(usize) -> bool,
    score: &dyn Fn(usize) -> f64,
) -> Vec<Json> {
    let mut by_id: Vec<(usize, &str)> = ids.iter().map(|(t, id)| (*id, *t)).filter(|(id, _)| !special(*id)).collect();
    by_id.sort_unstable();
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for (id, token) in by_id {
        // Byte tokens are written <0x41> and are never merged.
        if token.len() == 6 && token.starts_with("<0x") {
            continue;
        }
        let cuts = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        let mut own: Vec<(usize, usize, &str, &str)> =
            cuts.filter_map(|(a, b)| Some((*ids.get(a)?, *ids.get(b)?, a, b))).collect();
        own.sort_unstable();
        merges.extend(own.into_iter().map(|(_, _, a, b)| (score(id), a, b)));
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0));
    merges.into_iter().map(|(_, a, b)| json!([a, b])).collect()
}

/// Whether a BOS token is added to every text; the defaults are those of llama.cpp.
fn adds_bos(header: &Header) -> bool {
    match header.pairs.get("tokenizer.ggml.add_bos_token") {
        Some(GgufValue::Bool(adds)) => *adds,
        _ => {
            let pre = header.text("tokenizer.ggml.pre").unwrap_or_default();
            header.text("tokenizer.ggml.model") == Some("llama") || LLAMA3.contains(&pre)
        }
    }
}

/// The post-processor of a `tokenizer.json`, which adds the tokens before and after a text.
fn post_processor(header: &Header, special: &SpecialTokens) -> Json {
    let adds_eos = header.pairs.get("tokenizer.ggml.add_eos_token") == Some(&GgufValue::Bool(true));
    let token = |adds: bool, name: &str, id: Option<i32>| {
        special.named.get(name).zip(id).filter(|_| adds).map(|(text, id)| (text.clone(), id))
    };
    let bos = token(adds_bos(header), "bos_token", special.bos);
    let eos = token(adds_eos, "eos_token", special.eos);
    if bos.is_none() && eos.is_none() {
        return Json::Null;
    }
    let template = |sequence: &str, kind: u8| -> Vec<Json> {
        let piece = |(text, _): &(String, i32)| json!({ "SpecialToken": { "id": text, "type_id": kind } });
        let text = json!({ "Sequence": { "id": sequence, "type_id": kind } });
        bos.iter().map(piece).chain([text]).chain(eos.iter().map(piece)).collect()
    };
    let known: Map<String, Json> = bos
        .iter()
        .chain(&eos)
        .map(|(text, id)| (text.clone(), json!({ "id": text, "ids": [id], "tokens": [text] })))
        .collect();
    let pair = [template("A", 0), template("B", 1)].concat();
    json!({ "type": "TemplateProcessing", "single": template("A", 0), "pair": pair, "special_tokens": known })
}

/// The keys of special tokens in GGUF.
const SPECIAL_ID_KEYS: [(&str, &str); 7] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("cls_token", "tokenizer.ggml.cls_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];
/// Tokens that stop generation besides end-of-text; llama.cpp has keys for two.
const STOP_ID_KEYS: [&str; 2] = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
/// All tokens that stop generation, if the keys above are not sufficient.
const ALL_STOP_IDS_KEY: &str = "tensorloom.eos_token_ids";
/// Control tokens at which llama.cpp stops generation in any case.
const END_OF_TURN_TOKENS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_turn|>",
    "<end_of_utterance>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Reads the special tokens of a file.
pub(super) fn special_tokens(header: &Header) -> SpecialTokens {
    let tokens = string_list(header, "tokenizer.ggml.tokens").unwrap_or_default();
    let sentences = header.text("tokenizer.ggml.model") == Some("llama");
    let mut found = SpecialTokens::default();
    let id = |key: &str| header.int(key).and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    for (name, key) in SPECIAL_ID_KEYS {
        // SentencePiece's defaults, which files may omit.
        let usual = match name {
            "bos_token" if sentences => Some(1),
            "eos_token" if sentences => Some(2),
            _ => None,
        };
        let Some(id) = id(key).or(usual) else { continue };
        let Some(token) = usize::try_from(id).ok().and_then(|id| tokens.get(id)) else { continue };
        found.named.insert(name.to_string(), token.to_string());
        match name {
            "bos_token" => found.bos = Some(id),
            "eos_token" => found.eos = Some(id),
            "pad_token" => found.pad = Some(id),
            _ => {}
        }
    }
    let further: Vec<(String, String)> = match header.text(OWN_NAMES).map(serde_json::from_str) {
        Some(Ok(Json::Object(names))) => {
            names.iter().filter_map(|(name, token)| Some((name.clone(), token.as_str()?.to_string()))).collect()
        }
        _ => Vec::new(),
    };
    found.named.extend(further);
    found.start = id("tensorloom.bos_token_id").or(found.bos);
    found.eos_ids = match header.list(ALL_STOP_IDS_KEY) {
        Some(list) => {
            list.iter().filter_map(|v| if let GgufValue::Int(n) = v { i32::try_from(*n).ok() } else { None }).collect()
        }
        None => {
            let kinds = header.list("tokenizer.ggml.token_type").unwrap_or_default();
            let control = |i: usize| matches!(kinds.get(i), Some(GgufValue::Int(3 | 4)));
            let ends = (0..tokens.len()).filter(|i| control(*i) && END_OF_TURN_TOKENS.contains(&tokens[*i]));
            let named = [found.eos, id(STOP_ID_KEYS[0]), id(STOP_ID_KEYS[1])].into_iter().flatten();
            let mut all: Vec<i32> = named.chain(ends.filter_map(|i| i32::try_from(i).ok())).collect();
            let mut seen = BTreeSet::new();
            all.retain(|id| seen.insert(*id));
            all
        }
    };
    found
}

/// The key for a model's own special tokens, as JSON.
const OWN_NAMES: &str = "tensorloom.special_tokens";
const TEMPLATE: &str = "tokenizer.chat_template";

/// The chat templates of a file by name.
pub(super) fn templates(header: &Header) -> BTreeMap<String, String> {
    let own = |key: &str| key.strip_prefix(TEMPLATE).and_then(|rest| rest.strip_prefix('.')).map(String::from);
    let all = header.pairs.iter().filter_map(|(key, value)| match value {
        GgufValue::Text(text) if key == TEMPLATE => Some((DEFAULT_NAME.to_string(), text.clone())),
        GgufValue::Text(text) => Some((own(key)?, text.clone())),
        _ => None,
    });
    all.collect()
}

/// The metadata for special tokens and chat templates; IDs from `rows` on exceed the model's embedding table.
pub(super) fn special_pairs(
    tokenizer: &Tokenizer,
    templates: &BTreeMap<String, String>,
    rows: usize,
) -> Result<Vec<(String, MetadataValue)>, String> {
    let special = tokenizer.special_tokens();
    let known = |id: i32| u32::try_from(id).ok().filter(|id| (*id as usize) < rows);
    let mut pairs = Vec::new();
    for (name, key) in SPECIAL_ID_KEYS {
        let id = match name {
            // The end-of-text token need not have a name.
            "eos_token" => special.eos,
            "bos_token" => special.bos,
            "pad_token" => special.pad,
            _ => special.named.get(name).and_then(|token| tokenizer.id(token)),
        };
        pairs.extend(id.and_then(known).map(|id| (key.to_string(), MetadataValue::U32(id))));
    }
    let further: Vec<u32> =
        special.eos_ids.iter().filter(|id| Some(**id) != special.eos).filter_map(|id| known(*id)).collect();
    pairs.extend(STOP_ID_KEYS.iter().zip(&further).map(|(key, id)| (key.to_string(), MetadataValue::U32(*id))));
    let stops = special.eos_ids.iter().filter_map(|id| known(*id)).map(|id| id as i32);
    pairs.push((ALL_STOP_IDS_KEY.into(), MetadataValue::Ints(stops.collect())));
    if let Some(start) = special.start.filter(|start| Some(*start) != special.bos).and_then(known) {
        pairs.push(("tensorloom.bos_token_id".into(), MetadataValue::U32(start)));
    }
    let own = special.named.iter().filter(|(name, _)| !SPECIAL_ID_KEYS.iter().any(|(known, _)| known == name));
    let own: Map<String, Json> = own.map(|(name, token)| (name.clone(), token.as_str().into())).collect();
    if !own.is_empty() {
        pairs.push((OWN_NAMES.into(), MetadataValue::Text(Json::Object(own).to_string())));
    }
    let (before, after) = tokenizer.surrounding_ids().map_err(|e| e.to_string())?;
    let fits = |ids: &[i32], own: Option<i32>| ids.is_empty() || ids.len() == 1 && own == Some(ids[0]);
    if !fits(&before, special.bos) || !fits(&after, special.eos) {
        return Err(format!(
            "its tokenizer adds the token IDs {before:?} before and {after:?} after every text, but GGUF supports \
             only `bos_token` and `eos_token`"
        ));
    }
    pairs.push(("tokenizer.ggml.add_bos_token".into(), MetadataValue::Flag(!before.is_empty())));
    pairs.push(("tokenizer.ggml.add_eos_token".into(), MetadataValue::Flag(!after.is_empty())));
    for (name, text) in templates {
        let key = if name == DEFAULT_NAME { TEMPLATE.to_string() } else { format!("{TEMPLATE}.{name}") };
        pairs.push((key, MetadataValue::Text(text.clone())));
    }
    let others: Vec<String> = templates.keys().filter(|name| *name != DEFAULT_NAME).cloned().collect();
    if !others.is_empty() {
        pairs.push(("tokenizer.chat_templates".into(), MetadataValue::Texts(others)));
    }
    Ok(pairs)
}

/// Removes options of a pre-tokenizer that do not affect the split.
fn normalize_pre_tokenizer(pre: &Json) -> Json {
    match pre {
        Json::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "trim_offsets");
            let mut kept: Map<String, Json> =
                kept.map(|(name, value)| (name.clone(), normalize_pre_tokenizer(value))).collect();
            // Every character matches one of the named patterns, so the parts between matches are empty.
            if kept.get("behavior") == Some(&json!("Removed")) && kept.get("invert") == Some(&Json::Bool(true)) {
                kept.insert("behavior".into(), "Isolated".into());
                kept.insert("invert".into(), false.into());
            }
            Json::Object(kept)
        }
        Json::Array(list) => list.iter().map(normalize_pre_tokenizer).collect(),
        other => other.clone(),
    }
}

/// Returns llama.cpp's name of a pre-tokenizer.
fn pre_tokenizer_name(json: &Json) -> Result<&'static str, String> {
    let pre = json.get("pre_tokenizer").map(normalize_pre_tokenizer).unwrap_or_default();
    let whole_words = json.pointer("/model/ignore_merges") == Some(&Json::Bool(true));
    let normal = json.pointer("/normalizer/type").and_then(Json::as_str);
    let names: &[&str] = match (whole_words, normal) {
        (true, _) => &["llama-bpe", "tekken"],
        (false, Some("NFC")) => &["qwen2"],
        (false, _) => &["gpt-2", "smollm", "dbrx", "stablelm2"],
    };
    const ALL: [&str; 10] = [
        "gpt-2",
        "smollm",
        "llama-bpe",
        "qwen2",
        "gpt-4o",
        "tekken",
        "deepseek-v3",
        "deepseek-llm",
        "deepseek-coder",
        "falcon",
    ];
    for name in names.iter().copied().chain(ALL) {
        if normalize_pre_tokenizer(&pre_tokenizer(name)?) == pre {
            return Ok(name);
        }
    }
    Err("its pre-tokenizer (`pre_tokenizer` of tokenizer.json) has no name in GGUF".into())
}

/// Whether a BPE tokenizer was converted from SentencePiece, and whether it prepends a space to a text.
fn is_sentence_piece(json: &Json) -> Option<bool> {
    json.pointer("/model/byte_fallback").and_then(Json::as_bool).filter(|falls_back| *falls_back)?;
    let text = json.get("normalizer").map(Json::to_string).unwrap_or_default();
    let pre = json.get("pre_tokenizer").cloned().unwrap_or_default();
    let scheme = pre.get("prepend_scheme").and_then(Json::as_str);
    let known = match pre.get("type").and_then(Json::as_str) {
        None => text.contains("\"\u{2581}\""),
        Some("Metaspace") => pre.get("split") == Some(&Json::Bool(false)),
        // No space is left after the normalizer has replaced all of them.
        Some("Split") => text.contains("\"\u{2581}\"") && pre.pointer("/pattern/String") == Some(&json!(" ")),
        Some(_) => false,
    };
    known.then_some(text.contains("\"Prepend\"") || matches!(scheme, Some("always" | "first")))
}

/// The metadata for a BPE `tokenizer.json`; `rows` is the number of rows of the model's embedding table.
pub(super) fn to_pairs(json: &Json, rows: usize) -> Result<Vec<(String, MetadataValue)>, String> {
    let model = json.get("model").filter(|m| m.get("type").and_then(Json::as_str).unwrap_or("BPE") == "BPE");
    let model = model.ok_or("its tokenizer is not byte-pair encoding, so it cannot be written as GGUF")?;
    let vocab = model.get("vocab").and_then(Json::as_object).ok_or("its tokenizer has no vocabulary")?;
    let mut tokens: BTreeMap<u64, (&str, i32)> =
        vocab.iter().filter_map(|(token, id)| Some((id.as_u64()?, (token.as_str(), 1)))).collect();
    let prefix = is_sentence_piece(json);
    if prefix.is_some() {
        let unknown = model.get("unk_token").and_then(Json::as_str);
        for (text, kind) in tokens.values_mut() {
            *kind = match *text {
                text if Some(text) == unknown => 2,
                text if is_byte(text) => 6,
                _ => 1,
            };
        }
    }
    for added in json.get("added_tokens").and_then(Json::as_array).into_iter().flatten() {
        let (id, text) = (added.get("id").and_then(Json::as_u64), added.get("content").and_then(Json::as_str));
        let special = added.get("special").and_then(Json::as_bool).unwrap_or(false);
        if let (Some(id), Some(text)) = (id, text) {
            let unknown = matches!(tokens.get(&id), Some((_, 2)));
            tokens.insert(
                id,
                (
                    text,
                    if unknown {
                        2
                    } else if special {
                        3
                    } else {
                        4
                    },
                ),
            );
        }
    }
    if tokens.is_empty() || rows > 1 << 24 {
        return Err(format!("its tokenizer has {} tokens for a table of {rows} rows", tokens.len()));
    }
    // Readers require a token for every row.
    let ids = 0..rows as u64;
    let names = ids.clone().map(|id| tokens.get(&id).map_or(format!("<unused{id}>"), |(text, _)| text.to_string()));
    let kinds = ids.clone().map(|id| tokens.get(&id).map_or(5, |(_, kind)| *kind));
    let merge = |m: &Json| match m {
        Json::String(text) => text.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string())),
        Json::Array(pair) => Some((pair.first()?.as_str()?.to_string(), pair.get(1)?.as_str()?.to_string())),
        _ => None,
    };
    let merges: Vec<(String, String)> =
        model.get("merges").and_then(Json::as_array).into_iter().flatten().filter_map(merge).collect();
    let mut pairs = vec![
        ("tokenizer.ggml.tokens".to_string(), MetadataValue::Texts(names.collect())),
        ("tokenizer.ggml.token_type".to_string(), MetadataValue::Ints(kinds.collect())),
        (TOKENIZER_JSON_KEY.to_string(), MetadataValue::Text(json.to_string())),
    ];
    let Some(prefix) = prefix else {
        pairs.push(("tokenizer.ggml.model".into(), MetadataValue::Text("gpt2".into())));
        pairs.push(("tokenizer.ggml.pre".into(), MetadataValue::Text(pre_tokenizer_name(json)?.into())));
        let merges = merges.into_iter().map(|(a, b)| format!("{a} {b}")).collect();
        pairs.push(("tokenizer.ggml.merges".into(), MetadataValue::Texts(merges)));
        return Ok(pairs);
    };
    // SentencePiece produces the token with the best score first; an earlier merge gets a better score.
    let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
    for (rank, (a, b)) in merges.iter().enumerate() {
        ranks.entry(format!("{a}{b}")).or_insert(rank);
    }
    let last = ranks.len() as f32;
    let score = |id: u64| match tokens.get(&id) {
        Some((text, 1)) => -ranks.get(*text).map_or(last + 1.0, |rank| *rank as f32),
        _ => 0.0,
    };
    pairs.push(("tokenizer.ggml.model".into(), MetadataValue::Text("llama".into())));
    pairs.push(("tokenizer.ggml.pre".into(), MetadataValue::Text("default".into())));
    pairs.push(("tokenizer.ggml.scores".into(), MetadataValue::Floats(ids.map(score).collect())));
    pairs.push(("tokenizer.ggml.add_space_prefix".into(), MetadataValue::Flag(prefix)));
    Ok(pairs)
}

/// Whether a token is SentencePiece's token for a byte: `<0x41>`.
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The header of a file with this metadata, without the complete `tokenizer.json`.
    fn header(pairs: Vec<(String, MetadataValue)>) -> Header {
        let value = |pair: MetadataValue| match pair {
            MetadataValue::U32(n) => GgufValue::Int(n.into()),
            MetadataValue::F32(x) => GgufValue::Float(x.into()),
            MetadataValue::Text(text) => GgufValue::Text(text),
            MetadataValue::Flag(flag) => GgufValue::Bool(flag),
            MetadataValue::Texts(all) => GgufValue::List(all.into_iter().map(GgufValue::Text).collect()),
            MetadataValue::Ints(all) => GgufValue::List(all.into_iter().map(|n| GgufValue::Int(n.into())).collect()),
            MetadataValue::Floats(all) => {
                GgufValue::List(all.into_iter().map(|x| GgufValue::Float(x.into())).collect())
            }
        };
        let kept = pairs.into_iter().filter(|(name, _)| name != TOKENIZER_JSON_KEY);
        Header { pairs: kept.map(|(name, pair)| (name, value(pair))).collect(), tensors: Vec::new(), data: 0 }
    }

    fn added(id: usize, content: &str, special: bool) -> Json {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": special })
    }

    /// A tokenizer as transformers converts it from SentencePiece: merges in the order of the scores of their results.
    fn sentences(prefix: bool) -> Json {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
        tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
        let merged = ["\u{2581}t", "he", "at", "\u{2581}the", "\u{2581}c", "hat", "\u{2581}that", "\u{2581}cat"];
        let merges = [
            ("\u{2581}", "t"),
            ("h", "e"),
            ("a", "t"),
            ("\u{2581}t", "he"),
            ("\u{2581}", "c"),
            ("h", "at"),
            ("\u{2581}t", "hat"),
            ("\u{2581}c", "at"),
        ];
        tokens.extend(["\u{2581}", "t", "h", "e", "a", "c"].map(String::from));
        tokens.extend(merged.map(String::from));
        let vocab: Map<String, Json> =
            tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
        let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
        let normalizers = match prefix {
            true => vec![json!({ "type": "Prepend", "prepend": "\u{2581}" }), replace],
            false => vec![replace],
        };
        json!({ "version": "1.0", "truncation": null, "padding": null,
                "added_tokens": [added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)],
                "normalizer": { "type": "Sequence", "normalizers": normalizers },
                "pre_tokenizer": null, "post_processor": null, "decoder": null,
                "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                           "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                           "vocab": vocab, "merges": merges.map(|(a, b)| json!([a, b])) } })
    }

    /// A byte-level tokenizer with a pre-tokenizer of llama.cpp.
    fn bytes(pre: &str) -> Json {
        let trained =
            Tokenizer::train(["the cat 1234 sat\n on THE mat"].into_iter().cycle().take(20), 290).expect("trains");
        let mut json = trained.to_json().expect("JSON");
        json["pre_tokenizer"] = pre_tokenizer(pre).expect("known");
        json["added_tokens"]
            .as_array_mut()
            .expect("a list")
            .extend([added(290, "<tool>", false), added(291, "<s>", true)]);
        json["model"]["ignore_merges"] = json!(matches!(pre, "llama-bpe" | "tekken"));
        json
    }

    fn tokenizer(json: &Json) -> Tokenizer {
        Tokenizer::of_json(json, SpecialTokens::default(), Path::new("test")).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The lists alone, which other programs read, give the same IDs as the tokenizer.
    #[test]
    fn the_lists_of_a_file_make_the_same_tokenizer() {
        let named = ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "stablelm2", "gpt-4o", "tekken", "deepseek-v3"];
        let named = [&named[..], &["deepseek-llm", "deepseek-coder", "falcon"]].concat();
        let all = named.iter().map(|pre| (*pre, bytes(pre)));
        for (name, json) in all.chain([("prefix", sentences(true)), ("no prefix", sentences(false))]) {
            let own = tokenizer(&json);
            let rows = own.size() + 3;
            let header =
                header(to_pairs(&own.to_json().expect("JSON"), rows).unwrap_or_else(|e| panic!("{name}: {e}")));
            assert_eq!(header.list("tokenizer.ggml.tokens").map(<[GgufValue]>::len), Some(rows), "{name}");
            let found =
                tokenizer(&to_json(&header, &SpecialTokens::default()).unwrap_or_else(|e| panic!("{name}: {e}")));
            for text in [
                "the cat",
                "that hat  the",
                "z\u{df} 12345 it's\n\n THE-mat",
                "",
                "a<tool> <s>the",
                "sat(1234)...\u{4e2d} \u{bd}  ",
            ] {
                // The IDs of rows without a token are unused.
                assert_eq!(found.encode(text).expect("encodes"), own.encode(text).expect("encodes"), "{name}: {text}");
            }
        }
    }

    #[test]
    fn tokens_have_their_kinds() {
        let kinds = |json: &Json, rows: usize| -> Vec<i128> {
            let header = header(to_pairs(json, rows).expect("pairs"));
            let list = header.list("tokenizer.ggml.token_type").expect("a list").iter();
            list.map(|v| if let GgufValue::Int(n) = v { *n } else { 0 }).collect()
        };
        let found = kinds(&sentences(true), 280);
        // Token types: unknown, control, bytes, normal, unused.
        assert_eq!((found[0], found[1], found[2], found[3], found[258], found[259], found[279]), (2, 3, 3, 6, 6, 1, 5));
        let found = kinds(&bytes("gpt-2"), 300);
        assert_eq!((found[0], found[5], found[290], found[291], found[299]), (3, 1, 4, 3, 5));
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        let mut json = bytes("gpt-2");
        json["pre_tokenizer"] = json!({ "type": "Whitespace" });
        assert!(to_pairs(&json, 300).err().expect("refused").contains("pre-tokenizer"));
        json["model"]["type"] = json!("WordPiece");
        assert!(to_pairs(&json, 300).err().expect("refused").contains("byte-pair"));
        for (after, name) in [("[CLS]", "BERT's"), ("<tool>", "another")] {
            let mut json = bytes("gpt-2");
            let piece = [
                json!({ "SpecialToken": { "id": after, "type_id": 0 } }),
                json!({ "Sequence": { "id": "A", "type_id": 0 } }),
            ];
            json["post_processor"] = json!({ "type": "TemplateProcessing", "single": piece, "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
                "special_tokens": { (after): { "id": after, "ids": [290], "tokens": [after] } } });
            let error =
                special_pairs(&tokenizer(&json), &BTreeMap::new(), 300).err().unwrap_or_else(|| panic!("{name}"));
            assert!(error.contains("290") && error.contains("bos_token"), "{error}");
        }
    }
}
