//! The files beside a model's weights are kept: directories with random companion files and token settings are fine-tuned,
//! adapted and merged, quantized, written as GGUF and read back. `TENSORLOOM_ROUNDS` sets the number of random directories.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{NoProgress, TrainSettings, run};
use tensorloom_models::{Adapter, Architecture, ChatTemplate, Model, QuantizationConfig, Tokenizer, files};
use tensorloom_models::{copy_companions, files_without_gguf_form, merge_companions};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-kept-{name}-{}", std::process::id()));
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

/// A random number generator.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

fn write(dir: &Path, name: &str, content: &Json) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    let text = content.as_str().map_or_else(|| content.to_string(), String::from);
    std::fs::write(path, text).expect("written");
}

/// A small Llama model with random companion files.
fn base(dir: &Path, draws: &mut Draws) {
    let sizes = [
        ("vocab_size", 300),
        ("d_model", 32),
        ("n_layers", 1),
        ("heads", 2),
        ("kv_heads", 1),
        ("d_ff", 32),
        ("max_seq", 64),
    ];
    let sizes: BTreeMap<String, ConstValue> = sizes.map(|(name, n)| (name.to_string(), ConstValue::int(n))).into();
    let model =
        Architecture::from_library("llama", sizes).and_then(|a| Model::new_random(a, DType::F32, 3)).expect("a model");
    model.export(dir).expect("exported");
    let text = "the cat sat on the mat and the dog ran away from it over and over again\n";
    Tokenizer::train([text].into_iter().cycle().take(20), 290).expect("trains").write(dir).expect("written");
    let mut tokenizer: Json =
        serde_json::from_slice(&std::fs::read(dir.join("tokenizer.json")).expect("read")).expect("JSON");
    let mut size = tokenizer["model"]["vocab"].as_object().expect("a vocabulary").len() as u64;
    let mut tokens = vec!["<|endoftext|>"];
    for token in ["<s>", "<|im_end|>", "<tool>", "[PAD]"] {
        tokenizer["added_tokens"].as_array_mut().expect("a list").push(json!({
            "id": size, "content": token, "single_word": false, "lstrip": draws.yes(), "rstrip": false, "normalized": false,
            "special": draws.yes()
        }));
        tokens.push(token);
        size += 1;
    }
    if draws.yes() {
        let piece =
            json!([{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }]);
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing", "single": piece, "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [size - 4], "tokens": ["<s>"] } }
        });
    }
    write(dir, "tokenizer.json", &tokenizer);
    let mut config = Map::new();
    config.insert("bos_token".into(), "<s>".into());
    for name in ["eos_token", "pad_token", "image_token"] {
        if name == "eos_token" || draws.yes() {
            let token = draws.of(&tokens);
            let object = json!({ "content": token, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false });
            config.insert(name.into(), if draws.yes() { token.into() } else { object });
        }
    }
    let template = "{% for m in messages %}{{ bos_token }}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}";
    match draws.below(4) {
        0 => drop(config.insert("chat_template".into(), template.into())),
        1 => write(dir, "chat_template.jinja", &template.into()),
        2 => {
            let list =
                json!([{ "name": "default", "template": template }, { "name": "tool_use", "template": "{{ tools }}" }]);
            config.insert("chat_template".into(), list);
        }
        _ => {}
    }
    write(dir, "tokenizer_config.json", &Json::Object(config));
    let ids = |draws: &mut Draws| match draws.below(3) {
        0 => json!(draws.below(290)),
        1 => json!([draws.below(290), draws.below(290)]),
        _ => json!([draws.below(290), draws.below(290), draws.below(290), draws.below(290)]),
    };
    if draws.yes() {
        let config = json!({ "eos_token_id": ids(draws), "bos_token_id": draws.below(290), "temperature": 0.6 });
        write(dir, "generation_config.json", &config);
    }
    let path = dir.join("config.json");
    let mut config: Json = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    if draws.yes() {
        config["eos_token_id"] = ids(draws);
        config["pad_token_id"] = json!(draws.below(290));
    }
    write(dir, "config.json", &config);
    for (name, content) in [
        ("README.md", json!("# A model")),
        ("LICENSE", json!("A licence")),
        ("special_tokens_map.json", json!({ "eos_token": "<|im_end|>", "bos_token": "<s>" })),
        ("vocab.json", json!({})),
        ("merges.txt", json!("#version: 0.2")),
        ("preprocessor_config.json", json!({ "size": 3 })),
        (
            "modules.json",
            json!([{ "path": "", "type": "sentence_transformers.models.Transformer" }, { "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" }]),
        ),
        ("some/folder/notes.txt", json!("kept")),
    ] {
        if draws.yes() {
            write(dir, name, &content);
            if name == "modules.json" {
                write(dir, "1_Pooling/config.json", &json!({ "pooling_mode_lasttoken": true }));
            }
        }
    }
    // Weights in another format, and files of an earlier run, are not copied.
    write(dir, "pytorch_model.bin", &"x".into());
    write(dir, "run.toml", &"x".into());
    write(dir, "checkpoints/1/state", &"x".into());
}

/// The files of a directory, by name.
fn listed(dir: &Path, under: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(dir.join(under)).expect("a folder").flatten() {
        let name = format!("{under}{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => listed(dir, &format!("{name}/"), found),
            false => drop(found.insert(name, std::fs::read(entry.path()).expect("read"))),
        }
    }
}

/// Every companion file is unchanged; the special tokens and the template are the base's.
fn kept(base: &Path, made: &Path, how: &str) {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    listed(base, "", &mut before);
    listed(made, "", &mut after);
    for name in ["config.json", "model.safetensors", "pytorch_model.bin", "run.toml", "checkpoints/1/state"] {
        before.remove(name);
    }
    assert!(!after.contains_key("pytorch_model.bin") && !after.contains_key("checkpoints/1/state"), "{how}");
    for (name, content) in &before {
        let found = after.get(name).unwrap_or_else(|| panic!("{how}: {name} is gone; there are {:?}", after.keys()));
        assert!(content == found, "{how}: {name} has changed");
    }
    same_tokens(base, made, how);
    let ids = |dir: &Path| {
        let config: Json =
            serde_json::from_slice(&std::fs::read(dir.join("config.json")).expect("read")).expect("JSON");
        ["bos_token_id", "eos_token_id", "pad_token_id"].map(|name| config.get(name).cloned().unwrap_or_default())
    };
    assert_eq!(ids(base), ids(made), "{how}");
}

fn same_tokens(base: &Path, made: &Path, how: &str) {
    let [wanted, found] = [base, made].map(|dir| Tokenizer::from_dir(dir).unwrap_or_else(|e| panic!("{how}: {e}")));
    assert_eq!(found.special_tokens(), wanted.special_tokens(), "{how}");
    for text in ["the cat sat", "on<|im_end|> the <tool> <s>[PAD]", ""] {
        assert_eq!(
            found.encode_with_special_tokens(text).expect("encodes"),
            wanted.encode_with_special_tokens(text).expect("encodes"),
            "{how}: {text}"
        );
        let ids = wanted.encode(text).expect("encodes");
        assert_eq!(found.decode(&ids).expect("decodes"), wanted.decode(&ids).expect("decodes"), "{how}: {text}");
    }
    let talk = [json!({ "role": "user", "content": "Hi" })];
    let [wanted, found] = [base, made].map(|dir| {
        let template = ChatTemplate::from_dir(dir).unwrap_or_else(|e| panic!("{how}: {e}"));
        (template.is_from_model(), template.render(&talk, true, &Map::new()).expect("renders"))
    });
    assert_eq!(found, wanted, "{how}");
}

fn settings(model: &Path, out: &Path, data: &Path, further: &[(&str, &str)]) -> TrainSettings {
    let mut settings = TrainSettings { out: out.to_path_buf(), ..TrainSettings::default() };
    let own = [("model", model.to_str().expect("a name")), ("data", data.to_str().expect("a name"))];
    let fixed = [
        ("steps", "1"),
        ("batch", "1"),
        ("seq", "16"),
        ("warmup", "0"),
        ("eval-batches", "1"),
        ("sample-every", "100"),
    ];
    for (name, value) in own.iter().chain(&fixed).chain(further) {
        settings.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    settings
}

#[test]
fn what_lies_beside_the_weights_stays() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (rounds, seed) = (number("TENSORLOOM_ROUNDS").unwrap_or(2), number("TENSORLOOM_SEED").unwrap_or(1));
    for round in 0..rounds {
        let mut draws = Draws(seed.wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let folder = Folder::new(&round.to_string());
        let at = |name: &str| folder.0.join(name);
        let dir = at("base");
        std::fs::create_dir_all(&dir).expect("made");
        base(&dir, &mut draws);
        let data = at("data.txt");
        std::fs::write(&data, "the cat sat on the mat and the dog ran away ".repeat(40)).expect("written");
        let backend = Cpu::new(1);
        run(&settings(&dir, &at("tuned"), &data, &[]), false, &[], &backend, &mut NoProgress)
            .unwrap_or_else(|e| panic!("{e}"));
        kept(&dir, &at("tuned"), "fine-tuned");

        let lora = [("lora", "rank=2,alpha=4,targets=q,v")];
        run(&settings(&dir, &at("lora"), &data, &lora), false, &[], &backend, &mut NoProgress)
            .unwrap_or_else(|e| panic!("{e}"));
        same_tokens(&dir, &at("lora"), "an adapter");
        let mut model = Model::load(&dir, DType::F32).expect("loads");
        let adapter = Adapter::read(&at("lora"), &model).expect("reads");
        model.merge(&adapter).expect("merges");
        model.export(&at("merged")).expect("exported");
        merge_companions(&dir, &at("lora"), &at("merged")).expect("copied");
        kept(&dir, &at("merged"), "merged");

        let mut model = Model::load(&at("merged"), DType::F16).expect("loads");
        let scheme: QuantizationConfig = "q8".parse().expect("known");
        model.quantize_with_calibration(&scheme, None).expect("packed");
        model.save_quantized(&at("packed")).expect("written");
        copy_companions(&at("merged"), &at("packed")).expect("copied");
        kept(&dir, &at("packed"), "quantised");
        assert!(Model::load(&at("packed"), DType::F32).is_ok());

        let gguf = at("model.gguf");
        model
            .save_gguf(&gguf, Some(&Tokenizer::from_dir(&at("packed")).expect("reads")))
            .unwrap_or_else(|e| panic!("{e}"));
        same_tokens(&dir, &gguf, "GGUF");
        // GGUF's list of omitted files equals the files that are missing afterwards.
        let left_out = files_without_gguf_form(&at("packed")).expect("listed");
        model = Model::load(&gguf, DType::F32).expect("reads back");
        model.export(&at("back")).expect("exported");
        copy_companions(&gguf, &at("back")).expect("written");
        same_tokens(&dir, &at("back"), "read back");
        assert!(left_out.iter().all(|name| !name.to_string_lossy().contains("tokenizer")), "{left_out:?}");
        let again = at("again.gguf");
        model.save_gguf(&again, Some(&Tokenizer::from_dir(&gguf).expect("reads"))).unwrap_or_else(|e| panic!("{e}"));
        same_tokens(&dir, &again, "GGUF of GGUF");
        files::write(&at("done"), b"").expect("written");
    }
}

/// transformers ignores an unknown `quant_method` with a warning and would initialize quantized matrices at random; it finds no
/// weights file instead. Directories of older versions can still be read.
#[test]
fn the_directory_of_a_quantised_model_is_no_whole_one() {
    let folder = Folder::new("packed");
    base(&folder.0.join("base"), &mut Draws(5));
    let mut model = Model::load(&folder.0.join("base"), DType::F32).expect("loads");
    model.quantize_with_calibration(&"q4".parse().expect("known"), None).expect("packed");
    let out = folder.0.join("packed");
    model.save_quantized(&out).expect("written");
    let config: Json = serde_json::from_slice(&std::fs::read(out.join("config.json")).expect("read")).expect("JSON");
    assert_eq!(config["quantization_config"]["quant_method"], "tensorloom");
    assert!(!out.join("model.safetensors").exists());
    let logits = |dir: &Path| {
        let model = Model::load(dir, DType::F32).unwrap_or_else(|e| panic!("{e}"));
        model.evaluate_on(&[vec![1, 5, 7]], None, &Cpu::new(1)).expect("evaluates").logits.to_f32_vec()
    };
    let wanted = logits(&out);
    std::fs::rename(out.join("tensorloom.safetensors"), out.join("model.safetensors")).expect("renamed");
    assert_eq!(logits(&out), wanted);
    // transformers would load another model's weights if they exist.
    for name in ["model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"] {
        std::fs::write(out.join(name), "{}").expect("written");
        let error = model.save_quantized(&out).expect_err("other weights").to_string();
        assert!(error.contains(name), "{error}");
        std::fs::remove_file(out.join(name)).expect("removed");
    }
    // A model without quantized parameters can be read by all programs.
    let plain = Model::load(&folder.0.join("base"), DType::F16).expect("loads");
    plain.save_quantized(&out).expect("written");
    let config: Json = serde_json::from_slice(&std::fs::read(out.join("config.json")).expect("read")).expect("JSON");
    assert!(config.get("quantization_config").is_none() && out.join("model.safetensors").exists());
}
