//! Tokenizers: GGUF's lists of tokens and merges, and `tokenizer.json`.

use super::header::{Header, Value};
use super::sizes::texts;
use super::write::Pair;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// What files without a tokenizer say of it; without a word they are refused elsewhere.
const NONE: &str = "none";

/// The pair of a file without a tokenizer.
pub(super) fn none() -> (String, Pair) {
    ("tokenizer.ggml.model".into(), Pair::Text(NONE.into()))
}

/// How texts are cut before they are merged, by the names that llama.cpp has for it.
fn cutting(pre: &str) -> Result<Json, String> {
    let split = |pattern: &str| {
        json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false }
        ]})
    };
    let digits = |count: &str| {
        split(&format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{count}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    // Texts are cut as GPT-2 does it; some cut digits off one by one before.
    let gpt2 = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    Ok(match pre {
        "gpt-2" | "default" | "phi-2" | "mpt" | "olmo" | "jais" => gpt2,
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
            json!({ "type": "Sequence", "pretokenizers": [{ "type": "Digits", "individual_digits": true }, gpt2] })
        }
        "llama-bpe" | "llama3" | "llama-v3" | "dbrx" | "smaug-bpe" => digits("{1,3}"),
        "qwen2" | "stablelm2" => digits(""),
        other => return Err(format!("texts cut as `{other}` (`tokenizer.ggml.pre`) are not known; use ids")),
    })
}

/// A `tokenizer.json` for a file's tokens.
pub(super) fn to_json(header: &Header) -> Result<Json, String> {
    let model = header.text("tokenizer.ggml.model").filter(|model| *model != NONE);
    let model = model.ok_or("it brings no tokenizer (`tokenizer.ggml.model`); use ids")?;
    let tokens = texts(header, "tokenizer.ggml.tokens")?;
    let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, token) in tokens.iter().enumerate() {
        // A text can stand for one id; a second is never made.
        ids.entry(token).or_insert(id);
    }
    // 3 is a token of control, 4 one of a user.
    let kinds: Vec<i128> = match header.list("tokenizer.ggml.token_type") {
        Some(list) => list.iter().map(|v| if let Value::Int(n) = v { *n } else { 1 }).collect(),
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
            // A list of none may be left out.
            let merges = match header.list("tokenizer.ggml.merges") {
                Some(_) => texts(header, "tokenizer.ggml.merges")?,
                None => Vec::new(),
            };
            let pairs: Result<Vec<Json>, String> = merges
                .iter()
                .map(|m| {
                    m.split_once(' ')
                        .map(|(a, b)| json!([a, b]))
                        .ok_or_else(|| format!("the merge `{m}` has no two parts"))
                })
                .collect();
            let pre = header.text("tokenizer.ggml.pre").unwrap_or("default");
            let byte_level =
                json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
            let normalizer = if pre == "qwen2" { json!({ "type": "NFC" }) } else { Json::Null };
            (pairs?, cutting(pre)?, byte_level, normalizer, false)
        }
        "llama" => {
            let scores = header.list("tokenizer.ggml.scores").ok_or("it has no list `tokenizer.ggml.scores`")?;
            let score = |id: usize| match scores.get(id) {
                Some(Value::Float(x)) => *x,
                _ => 0.0,
            };
            let prefix = !matches!(header.pairs.get("tokenizer.ggml.add_space_prefix"), Some(Value::Bool(false)));
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
        other => return Err(format!("a tokenizer of kind `{other}` is not read: gpt2 and llama are; use ids")),
    };
    let unknown = header.int("tokenizer.ggml.unknown_token_id").and_then(|id| tokens.get(usize::try_from(id).ok()?));
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": null, "decoder": decoder,
        "model": { "type": "BPE", "dropout": null, "unk_token": if fallback { json!(unknown) } else { Json::Null },
                   "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": fallback,
                   "byte_fallback": fallback, "ignore_merges": false, "vocab": vocab, "merges": merges }
    }))
}

/// SentencePiece's order of merging: the pair that makes the best token first. Every way of cutting a token in two is a merge.
fn merges_of_scores(
    ids: &BTreeMap<&str, usize>,
    special: &dyn Fn(usize) -> bool,
    score: &dyn Fn(usize) -> f64,
) -> Vec<Json> {
    let mut by_id: Vec<(usize, &str)> = ids.iter().map(|(t, id)| (*id, *t)).filter(|(id, _)| !special(*id)).collect();
    by_id.sort_unstable();
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for (id, token) in by_id {
        // Bytes are written <0x41> and are never merged.
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

/// The pairs for a `tokenizer.json` of byte pairs.
pub(super) fn to_pairs(json: &Json, end: Option<i32>) -> Result<Vec<(String, Pair)>, String> {
    let model = json.get("model").filter(|m| m.get("type").and_then(Json::as_str).unwrap_or("BPE") == "BPE");
    let model = model.ok_or("its tokenizer is not of byte pairs, and can't be written as GGUF")?;
    let vocab = model.get("vocab").and_then(Json::as_object).ok_or("its tokenizer has no vocabulary")?;
    let pre = match json.get("pre_tokenizer") {
        Some(p) if p.get("type").and_then(Json::as_str) == Some("ByteLevel") => "gpt-2",
        Some(p) if *p == cutting("llama-bpe")? => "llama-bpe",
        Some(p) if *p == cutting("qwen2")? => "qwen2",
        _ => return Err("its tokenizer cuts texts in a way that has no name in GGUF".into()),
    };
    let mut tokens: BTreeMap<u64, &str> =
        vocab.iter().filter_map(|(token, id)| Some((id.as_u64()?, token.as_str()))).collect();
    let mut control = BTreeSet::new();
    for added in json.get("added_tokens").and_then(Json::as_array).into_iter().flatten() {
        let (id, text) = (added.get("id").and_then(Json::as_u64), added.get("content").and_then(Json::as_str));
        if let (Some(id), Some(text)) = (id, text) {
            tokens.insert(id, text);
            control.insert(id);
        }
    }
    let last = tokens.keys().next_back().copied().ok_or("its tokenizer has no tokens")?;
    if last > 1 << 22 {
        return Err(format!("its tokenizer has an id of {last}"));
    }
    let names: Vec<String> =
        (0..=last).map(|id| tokens.get(&id).map_or(format!("<unused{id}>"), |t| t.to_string())).collect();
    let kinds: Vec<i32> = (0..=last)
        .map(|id| {
            if control.contains(&id) {
                3
            } else if tokens.contains_key(&id) {
                1
            } else {
                5
            }
        })
        .collect();
    let merge = |m: &Json| match m {
        Json::String(text) => Some(text.clone()),
        Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    };
    let merges = model.get("merges").and_then(Json::as_array).into_iter().flatten().filter_map(merge).collect();
    let mut pairs = vec![
        ("tokenizer.ggml.model".to_string(), Pair::Text("gpt2".into())),
        ("tokenizer.ggml.pre".to_string(), Pair::Text(pre.into())),
        ("tokenizer.ggml.tokens".to_string(), Pair::Texts(names)),
        ("tokenizer.ggml.token_type".to_string(), Pair::Ints(kinds)),
        ("tokenizer.ggml.merges".to_string(), Pair::Texts(merges)),
        ("tokenizer.ggml.add_bos_token".to_string(), Pair::Flag(false)),
    ];
    if let Some(end) = end.and_then(|id| u32::try_from(id).ok()) {
        pairs.push(("tokenizer.ggml.eos_token_id".to_string(), Pair::U32(end)));
    }
    Ok(pairs)
}
