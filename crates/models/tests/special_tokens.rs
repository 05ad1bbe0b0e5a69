//! Special tokens equal those that transformers finds in the same files (`golden/special_tokens.py`).
//!
//! `TENSORLOOM_TOKENIZERS=DIR` compares real tokenizers too: each folder of DIR with the script's output beside it.

use ir::DType;
use lang::consteval::ConstValue;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{TextDataset, TokenDataset};
use tensorloom_models::{Architecture, ChatTemplate, Model, SpecialTokens, Tokenizer, eos_ids};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-special-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ids(value: &Json) -> Vec<i32> {
    let list = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    list.iter().filter_map(|id| id.as_i64().map(|id| id as i32)).collect()
}

/// Compares a directory with transformers' result; returns the number of texts with equal tokens.
fn compare(dir: &Path, wanted: &Json, name: &str) -> usize {
    let tokenizer = Tokenizer::from_dir(dir).unwrap_or_else(|e| panic!("{name}: {e}"));
    let found = tokenizer.special_tokens();
    let named: BTreeMap<String, String> = serde_json::from_value(wanted["named"].clone()).expect("names");
    let own: BTreeMap<String, String> =
        found.named.iter().filter(|(name, _)| named.contains_key(*name)).map(|(a, b)| (a.clone(), b.clone())).collect();
    assert_eq!(own, named, "{name}");
    for (field, own) in [("bos", found.bos), ("eos", found.eos), ("pad", found.pad)] {
        // transformers adds a class's default token to a vocabulary that lacks it; no model was trained with such a token. With a
        // tokenizer that no file describes, texts end with the token that stops generation; transformers has no end token for it.
        let described =
            ["tokenizer_config.json", "special_tokens_map.json"].iter().any(|name| dir.join(name).is_file());
        if field == "eos" && !described && wanted[field].is_null() {
            assert_eq!(own, found.eos_ids.first().copied(), "{name}");
            continue;
        }
        let beyond = own.is_none() && tokenizer.size() as u64 <= wanted[field].as_u64().unwrap_or(0);
        assert!(
            beyond || ids(&wanted[field]) == Vec::from_iter(own),
            "{name}: {field} is {own:?}, not {}",
            wanted[field]
        );
    }
    let mut equal = 0;
    for (i, text) in wanted["texts"].as_array().expect("texts").iter().enumerate() {
        let content = text[0].as_str().expect("a text");
        let (plain, whole) = (
            tokenizer.encode(content).expect("encodes"),
            tokenizer.encode_with_special_tokens(content).expect("encodes"),
        );
        let around = |whole: &[i32], plain: &[i32]| {
            let at = whole.windows(plain.len().max(1)).position(|part| part == plain).unwrap_or(0);
            (whole[..at].to_vec(), whole[(at + plain.len()).min(whole.len())..].to_vec())
        };
        assert_eq!(around(&whole, &plain), around(&ids(&text[1]), &ids(&text[2])), "{name}: around text {i}");
        if plain != ids(&text[2]) {
            println!("{name}: text {i} is {plain:?}, not {}", text[2]);
        }
        equal += usize::from(plain == ids(&text[2]) && whole == ids(&text[1]));
    }
    assert_eq!(eos_ids(dir, Some(&tokenizer)).expect("reads"), found.eos_ids, "{name}");
    if wanted.get("stops").is_some() {
        // Where transformers has no end token and would never stop, generation uses the next file's.
        let config = std::fs::read(dir.join("config.json")).unwrap_or_else(|_| b"{}".to_vec());
        let config: Json = serde_json::from_slice(&config).expect("JSON");
        let next = [&wanted["stops"], &config["eos_token_id"], &json!(found.eos)].map(ids);
        let stops = next.into_iter().find(|ids| !ids.is_empty()).unwrap_or_default();
        assert_eq!(found.eos_ids, stops, "{name}");
    }
    equal
}

#[test]
fn special_tokens_are_those_of_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/special_tokens.json");
    let golden: Json = serde_json::from_slice(&std::fs::read(path).expect("golden")).expect("JSON");
    let mut texts = 0;
    for (n, case) in golden["cases"].as_array().expect("cases").iter().enumerate() {
        let folder = Folder::new(&n.to_string());
        for (name, content) in case["files"].as_object().expect("files") {
            let content = match name.as_str() {
                "tokenizer.json" => {
                    let mut whole = golden["tokenizer"].clone();
                    whole["post_processor"] = content["post_processor"].clone();
                    for (i, special) in content["special"].as_array().expect("flags").iter().enumerate() {
                        whole["added_tokens"][i]["special"] = special.clone();
                    }
                    whole
                }
                _ => content.clone(),
            };
            std::fs::write(folder.0.join(name), content.to_string()).expect("written");
        }
        let name = format!("case {n}: {}", case["files"]);
        let equal = compare(&folder.0, &case["found"], &name);
        assert_eq!(Some(equal), case["found"]["texts"].as_array().map(Vec::len), "{name}");
        texts += equal;
    }
    assert!(texts >= 240, "{texts}");
}

/// A small Llama model with this vocabulary size.
fn model(rows: usize) -> Model {
    let sizes =
        [("vocab_size", rows as i64), ("d_model", 8), ("n_layers", 1), ("heads", 1), ("kv_heads", 1), ("d_ff", 8)];
    let sizes =
        sizes.into_iter().chain([("max_seq", 16)]).map(|(name, n)| (name.to_string(), ConstValue::int(n))).collect();
    Architecture::from_library("llama", sizes).and_then(|a| Model::new_random(a, DType::BF16, 3)).expect("a model")
}

/// `TENSORLOOM_TOKENIZERS=DIR`: real tokenizers are converted to GGUF and back, or rejected because of their pre-tokenizer.
#[test]
fn real_tokenizers_come_back_from_gguf() {
    let Ok(dir) = std::env::var("TENSORLOOM_TOKENIZERS") else { return };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path()).collect();
    folders.sort();
    let out = Folder::new("gguf");
    let (mut same, mut refused) = (0, 0);
    for folder in folders.iter().filter(|folder| folder.join("tokenizer.json").is_file()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let wanted = Tokenizer::from_dir(folder).unwrap_or_else(|e| panic!("{name}: {e}"));
        let path = out.0.join("model.gguf");
        if let Err(error) = model(wanted.size()).save_gguf(&path, Some(&wanted)) {
            println!("{name}: {error}");
            refused += 1;
            continue;
        }
        let found = Tokenizer::from_dir(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(found.special_tokens(), wanted.special_tokens(), "{name}");
        for text in ["the cat sat", " on <s> the </s> mat<|im_end|>", "x\n\n  1234 it's"] {
            assert_eq!(
                found.encode_with_special_tokens(text).expect("encodes"),
                wanted.encode_with_special_tokens(text).expect("encodes"),
                "{name}: {text}"
            );
        }
        let own = |dir: &Path| ChatTemplate::from_dir(dir).map(|template| template.is_from_model()).ok();
        assert_eq!(own(&path), own(folder), "{name}");
        same += 1;
    }
    println!("{same} come back as they were, {refused} are refused");
    assert!(same > 0);
}

/// `TENSORLOOM_VOCABULARIES=DIR`: the vocabularies of llama.cpp (`models/ggml-vocab-*.gguf`) encode the texts beside them
/// (`.inp`) to the tokens in `.out`.
#[test]
fn vocabularies_encode_as_llama_cpp_does() {
    let Ok(dir) = std::env::var("TENSORLOOM_VOCABULARIES") else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "gguf"));
    files.sort();
    let beside = |path: &Path, end: &str| std::fs::read_to_string(format!("{}{end}", path.display())).ok();
    for path in files {
        let (Some(texts), Some(ids)) = (beside(&path, ".inp"), beside(&path, ".out")) else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let tokenizer = match Tokenizer::from_dir(&path) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let rows: Vec<Vec<i32>> =
            ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().expect("an id")).collect()).collect();
        let pairs = texts.iter().zip(&rows);
        let wrong: Vec<&&str> = pairs
            .filter(|(text, ids)| tokenizer.encode(text).ok().as_ref() != Some(ids))
            .map(|(text, _)| text)
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        println!("{name}: {} texts", rows.len());
    }
}

/// A training document is encoded with the tokenizer's special tokens, and followed by the end token.
#[test]
fn documents_have_what_the_tokenizer_puts_around_them() {
    let texts = ["the cat sat", "on the mat", "the cat\na"];
    for (before, after, eos) in
        [(None, None, "a"), (Some("b"), None, "a"), (Some("b"), Some("a"), "a"), (None, Some("c"), "a")]
    {
        let folder = directory("documents", &[("tokenizer_config.json", json!({ "eos_token": eos }))]);
        let bare = Tokenizer::from_dir(&folder.0).expect("reads");
        let piece = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let known =
            |token: &str| (token.to_string(), json!({ "id": token, "ids": [bare.id(token)], "tokens": [token] }));
        let single: Vec<Json> = before
            .map(piece)
            .into_iter()
            .chain([json!({ "Sequence": { "id": "A", "type_id": 0 } })])
            .chain(after.map(piece))
            .collect();
        let path = folder.0.join("tokenizer.json");
        let mut tokenizer: Json = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
        if before.is_some() || after.is_some() {
            let known: Map<String, Json> = before.into_iter().chain(after).map(known).collect();
            tokenizer["post_processor"] = json!({ "type": "TemplateProcessing", "single": single, "pair": single.iter().chain([&json!({ "Sequence": { "id": "B", "type_id": 1 } })]).collect::<Vec<_>>(), "special_tokens": known });
        }
        std::fs::write(&path, tokenizer.to_string()).expect("written");
        let tokenizer = Tokenizer::from_dir(&folder.0).expect("reads");
        let data = folder.0.join("data.jsonl");
        let lines: Vec<String> =
            texts.iter().cycle().take(40).map(|text| json!({ "text": text }).to_string()).collect();
        std::fs::write(&data, lines.join("\n")).expect("written");
        let texts_of = TextDataset::open(&data).expect("opens");
        let out = folder.0.join("ids");
        TokenDataset::prepare(&texts_of, &tokenizer, tokenizer.size(), &out, &mut |_, _| true).expect("encoded");
        let bytes = std::fs::read(out.join("tokens.bin")).expect("read");
        let found: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let document = |text: &&str| {
            let mut ids = tokenizer.encode_with_special_tokens(text).expect("encodes");
            assert_eq!(ids.len(), tokenizer.encode(text).expect("encodes").len() + before.iter().chain(&after).count());
            ids.extend(tokenizer.id(eos).filter(|end| ids.last() != Some(end)));
            ids
        };
        let wanted: Vec<i32> = texts.iter().map(document).collect::<Vec<_>>().concat();
        assert_eq!(found[..wanted.len()], wanted, "{before:?} {after:?}");
    }
}

/// The tokenizer class of a directory.
fn class(dir: &Path) -> Json {
    let text = std::fs::read(dir.join("tokenizer_config.json")).unwrap_or_default();
    serde_json::from_slice::<Json>(&text).unwrap_or_default()["tokenizer_class"].clone()
}

#[test]
fn real_tokenizers_have_the_special_tokens_of_transformers() {
    let Ok(dir) = std::env::var("TENSORLOOM_TOKENIZERS") else { return };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path()).collect();
    folders.sort();
    let mut count = 0;
    for folder in folders.iter().filter(|folder| folder.join("transformers.json").is_file()) {
        let wanted: Json =
            serde_json::from_slice(&std::fs::read(folder.join("transformers.json")).expect("read")).expect("JSON");
        let equal = compare(folder, &wanted, &folder.display().to_string());
        // Some classes of transformers override the pre-tokenizer of tokenizer.json.
        if Some(equal) != wanted["texts"].as_array().map(Vec::len) {
            println!("{}: {equal} texts have equal ids; tokenizer_class {}", folder.display(), class(folder));
        }
        count += 1;
    }
    println!("{count} tokenizers");
    assert!(count > 0);
}

/// A directory with these files; `tokenizer.json` is a small trained one.
fn directory(name: &str, files: &[(&str, Json)]) -> Folder {
    let folder = Folder::new(name);
    let tokenizer = Tokenizer::train(["the cat sat on the mat"].into_iter().cycle().take(20), 270).expect("trains");
    tokenizer.write(&folder.0).expect("written");
    for (name, content) in files {
        std::fs::write(folder.0.join(name), content.to_string()).expect("written");
    }
    folder
}

#[test]
fn generation_stops_where_the_first_file_says() {
    for (n, (generation, config, tokenizer, wanted)) in [
        (json!({ "eos_token_id": [5, 3] }), json!({ "eos_token_id": 7 }), json!({ "eos_token": "t" }), vec![5, 3]),
        (json!({ "eos_token_id": 4 }), json!({ "eos_token_id": [7, 8] }), json!({}), vec![4]),
        (json!({}), json!({ "eos_token_id": [7, 8] }), json!({ "eos_token": "<|endoftext|>" }), vec![7, 8]),
        (json!({ "eos_token_id": null }), json!({ "text_config": { "eos_token_id": 9 } }), json!({}), vec![9]),
        (json!({}), json!({}), json!({ "eos_token": "<|endoftext|>" }), vec![0]),
        (json!({}), json!({}), json!({ "eos_token": { "content": "<|endoftext|>", "lstrip": true } }), vec![0]),
        (json!({}), json!({}), json!({ "eos_token": null }), vec![]),
        // A name in the vocabulary has no effect.
        (json!({}), json!({}), json!({}), vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let files =
            [("generation_config.json", generation), ("config.json", config), ("tokenizer_config.json", tokenizer)];
        let folder = directory(&format!("stops-{n}"), &files);
        let found = Tokenizer::from_dir(&folder.0).expect("reads");
        assert_eq!(found.special_tokens().eos_ids, wanted, "{files:?}");
        assert_eq!(eos_ids(&folder.0, Some(&found)).expect("reads"), wanted, "{files:?}");
    }
}

#[test]
fn an_adapter_has_the_tokens_of_its_base() {
    let base = directory(
        "base",
        &[
            ("config.json", json!({ "eos_token_id": 7 })),
            ("generation_config.json", json!({ "eos_token_id": [7, 9] })),
            ("tokenizer_config.json", json!({ "eos_token": "e", "image_token": "<img>" })),
        ],
    );
    let folder = Folder::new("adapter");
    let config = json!({ "base_model_name_or_path": base.0, "peft_type": "LORA" });
    std::fs::write(folder.0.join("adapter_config.json"), config.to_string()).expect("written");
    let wanted = Tokenizer::from_dir(&base.0).expect("reads");
    let found = Tokenizer::from_dir(&folder.0).expect("the base's");
    assert_eq!(found.special_tokens(), wanted.special_tokens());
    assert_eq!(found.special_tokens().eos_ids, [7, 9]);
    assert_eq!(found.eos_id(), found.id("e"));
    // An adapter's own tokenizer takes precedence, and the base still determines where generation stops.
    wanted.write(&folder.0).expect("copied");
    std::fs::write(folder.0.join("tokenizer_config.json"), json!({ "eos_token": "a" }).to_string()).expect("written");
    let found = Tokenizer::from_dir(&folder.0).expect("reads");
    assert_eq!((found.eos_id(), &found.special_tokens().eos_ids[..]), (found.id("a"), &[7, 9][..]));
}

#[test]
fn damaged_files_are_told() {
    for (name, text) in [("tokenizer_config.json", "{"), ("config.json", "[]"), ("special_tokens_map.json", "3")] {
        let folder = directory("damaged", &[]);
        if name == "special_tokens_map.json" {
            std::fs::remove_file(folder.0.join("tokenizer_config.json")).expect("removed");
        }
        std::fs::write(folder.0.join(name), text).expect("written");
        let error = Tokenizer::from_dir(&folder.0).err().expect("refused").to_string();
        assert!(error.contains(name) && error.contains("JSON"), "{error}");
    }
    // For tokenizers in other formats, the error names the conversion.
    for (name, word) in
        [("vocab.json", "save_pretrained"), ("tokenizer.model", "save_pretrained"), ("other", "next to")]
    {
        let folder = directory("forms", &[(name, json!({}))]);
        std::fs::remove_file(folder.0.join("tokenizer.json")).expect("removed");
        let error = Tokenizer::from_dir(&folder.0).err().expect("refused").to_string();
        assert!(error.contains(word) && (name == "other" || error.contains(name)), "{error}");
    }
    let folder =
        directory("strange", &[("tokenizer_config.json", json!({ "eos_token": 3, "added_tokens_decoder": [] }))]);
    let found = Tokenizer::from_dir(&folder.0).expect("reads");
    assert_eq!(found.eos_id(), None);
    assert_eq!(found.special_tokens(), &SpecialTokens::default());
}
