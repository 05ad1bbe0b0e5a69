//! Compares small random models of many architectures, each in several odd configurations, with transformers: outputs, every
//! gradient, greedy tokens with caches, and the export read back. `golden/hf_more.py` generates the data; weights are derived
//! from their names on both sides.

use cpu::Cpu;
use ir::DType;
use lang::library::LibraryLoader;
use lang::resolve::{MemoryLoader, ModuleProgram};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use tensorloom_models::{Classifier, Model, NamedTensor, write_tensors};

/// Numbers in [-1, 1) derived from a name: the upper 24 bits of splitmix64, seeded with its FNV-1a hash.
fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> + use<> {
    let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    (1..=count as u64).map(move |i| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 40) as f32 / 8_388_608.0 - 1.0
    })
}

fn sizes(json: &Json) -> Vec<usize> {
    json.as_array().expect("a shape").iter().map(|n| n.as_u64().expect("a size") as usize).collect()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn tensor(name: &str, shape: Vec<usize>, values: impl Iterator<Item = f32>) -> NamedTensor {
    let bytes = values.flat_map(f32::to_le_bytes).collect();
    NamedTensor { name: name.to_string(), shape, dtype: DType::F32, bytes }
}

/// The tensor of a checkpoint with this name.
fn weight((name, shape): (&String, &Json)) -> NamedTensor {
    let shape = sizes(shape);
    let lower = name.to_lowercase();
    let norm = (lower.contains("norm") || lower.contains("ln_")) && name.ends_with("weight");
    let offset = if norm || name.ends_with(".D") { 1.0 } else { 0.0 };
    let vector = shape.len() == 1 || name == "logit_scale";
    let (factor, offset) = if vector { (0.25, offset) } else { (0.5, 0.0) };
    let values = uniform(name, shape.iter().product());
    tensor(name, shape, values.map(|u| u * factor + offset))
}

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-more-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn close(what: &str, found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let size = wanted.iter().fold(1f64, |m, x| m.max(x.abs()));
    let worst = found.iter().zip(wanted).fold(0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs()));
    assert!(worst <= 1e-4 * size, "{what}: off by {worst} of {size}");
}

/// Compares the largest element, and the inner products with two random tensors: an error in any element changes one of them.
fn check_gradients(what: &str, found: &[NamedTensor], wanted: &Json) {
    let wanted = wanted.as_object().expect("gradients");
    let names: Vec<&str> = found.iter().map(|g| g.name.trim_start_matches("grad.")).collect();
    let mut known: Vec<&str> = wanted.keys().map(String::as_str).collect();
    known.sort_unstable();
    assert_eq!(names, known, "{what}");
    for gradient in found {
        let name = gradient.name.trim_start_matches("grad.");
        let want = numbers(&wanted[name]);
        let values = gradient.to_f32_vec();
        let largest = values.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        let close = |a: f64, b: f64, bound: f64| assert!((a - b).abs() <= bound, "{what}: {name}: {a}, not {b}");
        close(largest, want[0], 1e-3 * want[0] + 5e-6);
        for (i, letter) in ["a", "b"].into_iter().enumerate() {
            let key = format!("{name} {letter}");
            let drawn = uniform(&key, values.len());
            let product: f64 = values.iter().zip(drawn).map(|(x, u)| f64::from(*x) * f64::from(u)).sum();
            let bound = (1e-3 * want[0] + 5e-6) * (values.len() as f64).sqrt();
            close(product, want[1 + i], bound);
        }
    }
}

fn check(name: &str) {
    check_by(name, || None);
}

/// A model that the library does not have, loaded with a user module; its export is loaded without it.
fn check_own(name: &str) {
    let path = data(name, "module");
    let text = std::fs::read_to_string(path).expect("the module");
    check_by(name, || {
        let loader = MemoryLoader::new().with(name, "v1.0.0", &text);
        Some(ModuleProgram::load(name, &LibraryLoader(loader)))
    });
}

fn data(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/more").join(format!("{name}.{ending}"))
}

fn check_by(name: &str, module: impl Fn() -> Option<ModuleProgram>) {
    let cases: Json = serde_json::from_slice(&std::fs::read(data(name, "json")).expect("golden")).expect("JSON");
    let cpu = Cpu::new(2);
    for (i, case) in cases.as_array().expect("cases").iter().enumerate() {
        let what = format!("{name} {i}");
        let folder = Folder::new(&format!("{name}-{i}"));
        std::fs::write(folder.0.join("config.json"), case["config"].to_string()).expect("written");
        let tensors: Vec<NamedTensor> = case["shapes"].as_object().expect("shapes").iter().map(weight).collect();
        write_tensors(&folder.0.join("model.safetensors"), &tensors).expect("written");
        if module().is_some() {
            let refused = Model::load(&folder.0, DType::F32).err().expect("the library has no such model");
            assert!(refused.to_string().contains("unknown architecture"), "{what}: {refused}");
        }
        let model = Model::load_with_module(&folder.0, DType::F32, module()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let exported = Folder::new(&format!("{name}-{i}-export"));
        model.export(&exported.0).unwrap_or_else(|e| panic!("{what}: {e}"));
        let again = Model::load(&exported.0, DType::F32).unwrap_or_else(|e| panic!("{what}: {e}"));
        match case.get("tokens") {
            Some(tokens) => decoder(&what, case, &model, &again, &ints(tokens), &cpu),
            None => any(&what, case, &model, &again, &cpu),
        }
    }
}

fn ints(json: &Json) -> Vec<i32> {
    numbers(json).into_iter().map(|x| x as i32).collect()
}

/// Compares the logits of token IDs, also by incremental decoding.
fn decoder(what: &str, case: &Json, model: &Model, again: &Model, tokens: &[i32], cpu: &Cpu) {
    let ids = &case["inputs"]["input_ids"];
    let steps = sizes(&ids["shape"])[1];
    let rows: Vec<Vec<i32>> = ints(&ids["values"]).chunks(steps).map(<[i32]>::to_vec).collect();
    let found = model.evaluate_on(&rows, Some(&rows), cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    let logits = numbers(&case["outputs"]["logits"]["values"]);
    close(what, &found.logits.to_f32_vec(), &logits);
    let loss = f64::from(found.loss.expect("labels were given").to_f32_vec()[0]);
    assert!((loss - case["loss"].as_f64().expect("a loss")).abs() < 1e-5, "{what}: loss {loss}");
    check_gradients(what, &found.gradients, &case["gradients"]);
    assert_eq!(model.full_recompute_reason(), None, "{what}");
    let prompt = ints(&case["prompt"]);
    let generated = model.generate_greedy(&prompt, tokens.len(), cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(generated.ids, tokens, "{what}");
    // A prefix at once, then one by one: the logits equal those of the whole sequence.
    let width = logits.len() / rows.iter().map(Vec::len).sum::<usize>();
    let mut decoding = model.decode_session(steps, cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut at = 0;
    for count in [3, 1, 2, 1] {
        let row = decoding.append(&rows[0][at..at + count]).unwrap_or_else(|e| panic!("{what}: {e}"));
        at += count;
        close(what, &row, &logits[(at - 1) * width..at * width]);
    }
    let logits_again = again.evaluate_on(&rows, None, cpu).unwrap_or_else(|e| panic!("{what}: {e}")).logits;
    assert_eq!(
        logits_again.to_f32_vec(),
        model.evaluate_on(&rows, None, cpu).expect("ran before").logits.to_f32_vec(),
        "{what}"
    );
}

/// Compares outputs for named input tensors.
fn any(what: &str, case: &Json, model: &Model, again: &Model, cpu: &Cpu) {
    let given: Vec<NamedTensor> = case["inputs"]
        .as_object()
        .expect("inputs")
        .iter()
        .map(|(name, value)| {
            let shape = sizes(&value["shape"]);
            let whole = name.contains("ids") || name.contains("mask");
            let floats = tensor(name, shape.clone(), numbers(&value["values"]).into_iter().map(|x| x as f32));
            let bytes = ints(&value["values"]).into_iter().flat_map(i32::to_le_bytes).collect();
            if whole { NamedTensor { name: name.clone(), shape, dtype: DType::I32, bytes } } else { floats }
        })
        .collect();
    let outputs = case["outputs"].as_object().expect("outputs");
    let seeds: Vec<NamedTensor> = outputs
        .iter()
        .map(|(name, value)| {
            let (name, shape) = (format!("d_{name}"), sizes(&value["shape"]));
            let values = uniform(&name, shape.iter().product());
            tensor(&name, shape, values)
        })
        .collect();
    let found = model.run(&given, &seeds, cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    let names: Vec<&str> = found.outputs.iter().map(|output| output.name.as_str()).collect();
    for (name, value) in outputs {
        let output = found.outputs.iter().find(|output| output.name == *name);
        let output = output.unwrap_or_else(|| panic!("{what}: `{name}` is not among {names:?}"));
        assert_eq!(output.shape, sizes(&value["shape"]), "{what}: {name}");
        close(&format!("{what}: {name}"), &output.to_f32_vec(), &numbers(&value["values"]));
    }
    check_gradients(what, &found.gradients, &case["gradients"]);
    if let Some(wanted) = case.get("answer") {
        answer(what, model, &given, case["start"].as_i64().expect("an id") as i32, &ints(wanted), cpu);
    }
    let after = again.run(&given, &[], cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(after.outputs, model.run(&given, &[], cpu).expect("ran before").outputs, "{what}");
}

/// Generates tokens after a first one, for given encoder inputs, and compares them.
fn answer(what: &str, model: &Model, given: &[NamedTensor], start: i32, wanted: &[i32], cpu: &Cpu) {
    assert!(model.is_encoder_decoder(), "{what}");
    let read: Vec<NamedTensor> = given
        .iter()
        .filter(|tensor| !tensor.name.starts_with("decoder") && !tensor.name.contains("mask"))
        .map(|tensor| {
            let mut one = tensor.clone();
            one.bytes.truncate(tensor.bytes.len() / tensor.shape[0]);
            one.shape[0] = 1;
            one
        })
        .collect();
    let writing = tensorloom_models::GenerateOptions { max_new_tokens: wanted.len(), ..Default::default() };
    let found = model.generate_seq2seq(&read, &[start], &writing, cpu, &mut |_| true);
    assert_eq!(found.unwrap_or_else(|e| panic!("{what}: {e}")).ids, wanted, "{what}");
    // The same logits as the whole sequence, with several tokens at once and one by one; and it stops on request.
    let mut answering = model.seq2seq_decoder(&read, wanted.len(), cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    let written: Vec<i32> = [start].into_iter().chain(wanted[..5].iter().copied()).collect();
    let bytes = written.iter().flat_map(|id| id.to_le_bytes()).collect();
    let ids = NamedTensor { name: "decoder_input_ids".into(), shape: vec![1, written.len()], dtype: DType::I32, bytes };
    let all: Vec<NamedTensor> = read.iter().cloned().chain([ids]).collect();
    let whole = model.run(&all, &[], cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
    let logits: Vec<f64> = whole.outputs[0].to_f32_vec().into_iter().map(f64::from).collect();
    let width = logits.len() / written.len();
    for part in [0..3, 3..4, 4..6] {
        let row = answering.append(&written[part.clone()]).unwrap_or_else(|e| panic!("{what}: {e}"));
        close(what, &row, &logits[(part.end - 1) * width..part.end * width]);
    }
    assert_eq!(answering.ids(), written, "{what}");
    assert!(!answering.recomputes_prefix(), "{what}: computes all rows for each id");
    assert!(answering.append(&vec![1; wanted.len()]).is_err(), "{what}: longer than it was to be");
    assert!(answering.append(&[1_000_000]).is_err() && answering.append(&[]).is_err(), "{what}");
    let stopped = model.generate_seq2seq(&read, &[start], &writing, cpu, &mut |_| false);
    assert_eq!(stopped.expect("ran before").ids, wanted[..1], "{what}");
    let refused =
        |given: &[NamedTensor]| model.seq2seq_decoder(given, 4, cpu).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused(&[]).contains("is missing"), "{what}");
    assert!(refused(&given[..1]).contains("batch size must be 1"), "{what}");
    assert!(refused(&all).contains("has no input `decoder_input_ids`"), "{what}");
}

/// A field that the class of transformers never reads is rejected, though the library's model could implement it.
#[test]
fn gemma3_does_not_bound_scores() {
    let cases: Json = serde_json::from_slice(&std::fs::read(data("gemma3", "json")).expect("golden")).expect("JSON");
    let folder = Folder::new("gemma3-bounded");
    let mut config = cases[0]["config"].clone();
    config["attn_logit_softcapping"] = serde_json::json!(2.0);
    std::fs::write(folder.0.join("config.json"), config.to_string()).expect("written");
    let tensors: Vec<NamedTensor> = cases[0]["shapes"].as_object().expect("shapes").iter().map(weight).collect();
    write_tensors(&folder.0.join("model.safetensors"), &tensors).expect("written");
    let error = Model::load(&folder.0, DType::F32).err().expect("refused").to_string();
    assert!(error.contains("`attn_logit_softcapping` is 2.0"), "{error}");
}

/// Decoders with a classification head, and an encoder with its own head; padded lengths.
#[test]
fn classifiers_give_what_transformers_gives() {
    let cases: Json = serde_json::from_slice(&std::fs::read(data("classes", "json")).expect("golden")).expect("JSON");
    let cpu = Cpu::new(2);
    for case in cases.as_array().expect("cases") {
        let what = case["config"]["architectures"][0].as_str().expect("a name");
        let folder = Folder::new(what);
        std::fs::write(folder.0.join("config.json"), case["config"].to_string()).expect("written");
        let tensors: Vec<NamedTensor> = case["shapes"].as_object().expect("shapes").iter().map(weight).collect();
        write_tensors(&folder.0.join("model.safetensors"), &tensors).expect("written");
        let found = Classifier::load(&folder.0, None, DType::F32);
        let mut classifier = found.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(classifier.classes(), ["cat", "dog", "bird"], "{what}");
        for row in case["rows"].as_array().expect("rows") {
            let found = classifier.classify(&ints(&row["ids"]), &cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
            let found: Vec<f32> = found.into_iter().map(|x| x as f32).collect();
            close(what, &found, &numbers(&row["probabilities"]));
        }
        assert!(classifier.classify(&[], &cpu).is_err() && classifier.classify(&[40], &cpu).is_err(), "{what}");
        // Without its head it is not a classifier.
        let headless: Vec<NamedTensor> = tensors.into_iter().filter(|t| !t.name.starts_with("score")).collect();
        write_tensors(&folder.0.join("model.safetensors"), &headless).expect("written");
        let refused = Classifier::load(&folder.0, None, DType::F32).err();
        assert_eq!(refused.is_some(), !what.starts_with("Bert"), "{what}");
    }
}

/// PEFT's adapters with a classification head: on a base model from which their updates were subtracted, they give the results of
/// transformers with the original model. The base is a classifier, whose own head is ignored, or a language model.
#[test]
fn adapters_with_a_head_give_what_the_merged_model_gives() {
    let cases: Json = serde_json::from_slice(&std::fs::read(data("classes", "json")).expect("golden")).expect("JSON");
    let (cpu, mut random) = (Cpu::new(2), tensorloom_models::SplitMix64::new(5, 1));
    let mut draw = |n: usize| -> Vec<f32> { (0..n).map(|_| random.below(2000) as f32 / 1e4 - 0.1).collect() };
    let tensor = |name: String, shape: &[usize], values: &[f32]| {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        NamedTensor { name, shape: shape.to_vec(), dtype: DType::F32, bytes }
    };
    let floats = |tensor: &NamedTensor| -> Vec<f32> {
        tensor.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let (rank, alpha, mut count) = (2, 6.0, 0);
    for case in cases.as_array().expect("cases") {
        let what = case["config"]["architectures"][0].as_str().expect("a name");
        let mut tensors: Vec<NamedTensor> = case["shapes"].as_object().expect("shapes").iter().map(weight).collect();
        let Some(at) = tensors.iter().position(|t| t.name == "score.weight") else { continue };
        let head = tensors.remove(at);
        let mut saved = vec![NamedTensor { name: "base_model.model.score.weight".into(), ..head.clone() }];
        // GPT-2 stores its matrices transposed.
        let (target, transposed) = if what.starts_with("GPT2") { ("c_attn", true) } else { ("q_proj", false) };
        for t in &mut tensors {
            let Some(module) = t.name.strip_suffix(".weight").filter(|module| module.ends_with(target)) else {
                continue;
            };
            let (n, wide) = (t.shape[1], if transposed { [t.shape[0], t.shape[1]] } else { [t.shape[1], t.shape[0]] });
            let (a, b, mut values) = (draw(rank * wide[0]), draw(wide[1] * rank), floats(t));
            for (i, x) in values.iter_mut().enumerate() {
                let (input, output) = if transposed { (i / n, i % n) } else { (i % n, i / n) };
                let update: f32 = (0..rank).map(|k| b[output * rank + k] * a[k * wide[0] + input]).sum();
                *x -= alpha / rank as f32 * update;
            }
            let name = |part: &str| format!("base_model.model.{module}.{part}.weight");
            saved.push(tensor(name("lora_A"), &[rank, wide[0]], &a));
            saved.push(tensor(name("lora_B"), &[wide[1], rank], &b));
            *t = tensor(t.name.clone(), &t.shape, &values);
        }
        assert!(saved.len() > 1, "{what}");
        let probabilities = |dir: &Path, base: Option<&Path>, ids: &Json| -> Vec<f32> {
            let found = Classifier::load(dir, base, DType::F32);
            let mut classifier = found.unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = classifier.classify(&ints(ids), &cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
            found.into_iter().map(|x| x as f32).collect()
        };
        let rows = case["rows"].as_array().expect("rows");
        for for_words in [false, true] {
            let folder = Folder::new(&format!("{what}-{for_words}"));
            let (base, dir) = (folder.0.join("base"), folder.0.join("adapter"));
            for dir in [&base, &dir] {
                std::fs::create_dir_all(dir).expect("made");
            }
            let (mut config, mut whole) = (case["config"].clone(), tensors.clone());
            if for_words {
                config["architectures"] =
                    serde_json::json!([what
                        .replace("ForSequenceClassification", if transposed { "LMHeadModel" } else { "ForCausalLM" })]);
                config["tie_word_embeddings"] = true.into();
            } else {
                whole.push(tensor("score.weight".into(), &head.shape, &draw(head.shape[0] * head.shape[1])));
            }
            std::fs::write(base.join("config.json"), config.to_string()).expect("written");
            write_tensors(&base.join("model.safetensors"), &whole).expect("written");
            write_tensors(&dir.join("adapter_model.safetensors"), &saved).expect("written");
            for modules in [serde_json::json!(["score"]), serde_json::json!(["classifier", "score"])] {
                let adapter = serde_json::json!({
                    "peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": base, "r": rank, "lora_alpha": alpha,
                    "target_modules": [target], "modules_to_save": modules
                });
                std::fs::write(dir.join("adapter_config.json"), adapter.to_string()).expect("written");
                for row in rows {
                    close(what, &probabilities(&dir, None, &row["ids"]), &numbers(&row["probabilities"]));
                }
            }
            // A head with one score gives a probability, or a regression value if the base's configuration says so.
            let one =
                tensor("base_model.model.score.weight".into(), &[1, head.shape[1]], &floats(&head)[..head.shape[1]]);
            let lone: Vec<NamedTensor> = [one].into_iter().chain(saved[1..].iter().cloned()).collect();
            write_tensors(&dir.join("adapter_model.safetensors"), &lone).expect("written");
            let found = probabilities(&dir, None, &rows[0]["ids"]);
            config["problem_type"] = "regression".into();
            std::fs::write(base.join("config.json"), config.to_string()).expect("written");
            let score = probabilities(&dir, Some(&base), &rows[0]["ids"]);
            assert!(
                found.len() == 1 && (found[0] - 1.0 / (1.0 + (-score[0]).exp())).abs() < 1e-5,
                "{found:?} {score:?}"
            );
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn granite_by_a_module_of_ones_own() {
    check_own("granite");
}

#[test]
fn olmo_by_a_module_of_ones_own() {
    check_own("olmo");
}

macro_rules! models {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

models!(
    gemma2,
    gemma3,
    olmo2,
    qwen3_moe,
    phi,
    stablelm,
    falcon,
    opt,
    deepseek_v2,
    deepseek_v3,
    llama4,
    mamba2,
    bert,
    bert_heads,
    roberta,
    vit,
    clip,
    whisper,
    t5,
);

/// Configurations with settings that GGUF's families can express, and with those that they can't.
#[test]
fn gguf_says_a_model_or_refuses_it() {
    let none = serde_json::json!({});
    let gemma2 = serde_json::json!({ "query_pre_attn_scalar": 6 });
    let gemma3 = serde_json::json!({ "query_pre_attn_scalar": 4 });
    let normal = serde_json::json!({ "norm_topk_prob": true });
    let silu = serde_json::json!({ "hidden_act": "silu" });
    let cases: [(&str, usize, &Json, &str); 19] = [
        ("gemma2", 0, &gemma2, ""),
        ("gemma2", 0, &none, "`query_scalar` = 10"),
        ("gemma2", 1, &gemma2, "cannot represent"),
        ("gemma3", 1, &gemma3, ""),
        ("gemma3", 0, &none, "cannot represent"),
        ("gemma3", 2, &none, "cannot represent"),
        ("olmo2", 0, &none, ""),
        ("olmo2", 1, &none, "cannot represent"),
        ("olmo2", 2, &none, "`yarn` cannot be written"),
        ("phi", 0, &none, ""),
        ("phi", 1, &none, "no GGUF name"),
        ("phi", 2, &none, "`activation` = \"gelu\""),
        ("stablelm", 0, &none, ""),
        ("stablelm", 1, &none, ""),
        ("stablelm", 2, &silu, ""),
        ("falcon", 0, &none, ""),
        ("falcon", 2, &none, "no GGUF name"),
        ("falcon", 3, &none, ""),
        ("qwen3_moe", 0, &normal, ""),
    ];
    let cpu = Cpu::new(2);
    for (name, i, changes, refused) in cases {
        let all: Json = serde_json::from_slice(&std::fs::read(data(name, "json")).expect("golden")).expect("JSON");
        let mut config = all[i]["config"].clone();
        for (field, value) in changes.as_object().expect("changes") {
            config[field] = value.clone();
        }
        let what = format!("{name} {i} {changes}");
        let folder = Folder::new(&format!("{name}-{i}-{}-gguf", refused.is_empty()));
        std::fs::write(folder.0.join("config.json"), config.to_string()).expect("written");
        let tensors: Vec<NamedTensor> = all[i]["shapes"].as_object().expect("shapes").iter().map(weight).collect();
        write_tensors(&folder.0.join("model.safetensors"), &tensors).expect("written");
        let model = Model::load(&folder.0, DType::F32).unwrap_or_else(|e| panic!("{what}: {e}"));
        let path = folder.0.join("model.gguf");
        match model.save_gguf(&path, None) {
            Err(e) => {
                assert!(!refused.is_empty() && e.to_string().contains(refused), "{what}: {e}");
                assert!(!path.exists(), "{what}");
            }
            Ok(()) => {
                assert!(refused.is_empty(), "{what} was written");
                let again = Model::load(&path, DType::F32).unwrap_or_else(|e| panic!("{what} as GGUF: {e}"));
                let ids = [vec![1, 5, 7, 2, 30, 33, 12, 9, 3, 3, 8]];
                let run = |m: &Model| m.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{what}: {e}"));
                // Norm weights around one are rounded once.
                let wanted: Vec<f64> = run(&model).logits.to_f32_vec().into_iter().map(f64::from).collect();
                close(&format!("{what} as GGUF"), &run(&again).logits.to_f32_vec(), &wanted);
            }
        }
    }
}
