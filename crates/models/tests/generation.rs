//! Beam search compared with transformers, speculative decoding, batched and constrained generation.

use cpu::Cpu;
use ir::DType;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensorloom_models::{
    BatchEngine, BatchGenerateOptions, BatchOptions, BeamSearchOptions, Constrainer, GenerateOptions, Model,
    SamplingOptions, Tokenizer,
};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn golden(name: &str) -> Model {
    Model::load(&data().join(name), DType::F32).unwrap_or_else(|e| panic!("{e}"))
}

fn slots(model: Model, rows: usize) -> BatchEngine {
    let sizes = BatchOptions { max_batch: rows, max_seq_len: 48, prefill_chunk: 4, prefix_cache_bytes: 0 };
    BatchEngine::new(Arc::new(model), &[], sizes, Arc::new(Cpu::new(2))).unwrap_or_else(|e| panic!("{e}"))
}

fn ints(json: &Json) -> Vec<i32> {
    json.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an int") as i32).collect()
}

/// `golden/beams.py` generates the expected values.
#[test]
fn beams_find_what_transformers_finds() {
    let text = std::fs::read_to_string(data().join("beams.json")).expect("golden");
    let cases: Vec<Json> = serde_json::from_str(&text).expect("JSON");
    let mut known: Option<(String, BatchEngine)> = None;
    for case in &cases {
        let name = case["model"].as_str().expect("a name").to_string();
        if known.as_ref().is_none_or(|(own, _)| *own != name) {
            known = Some((name.clone(), slots(golden(&name), 5)));
        }
        let Some((_, slots)) = &mut known else { continue };
        let number = |field: &str| case[field].as_u64().expect("a number") as usize;
        let ends = case["end"].as_i64().map(|id| id as i32).into_iter().collect();
        let beams = BeamSearchOptions {
            num_beams: number("beams"),
            max_new_tokens: number("most"),
            length_penalty: 1.0,
            eos_ids: ends,
        };
        let found = slots.beam_search(&ints(&case["prompt"]), &beams).unwrap_or_else(|e| panic!("{e}"));
        let texts = case["texts"].as_array().expect("a list");
        assert_eq!(found.len(), texts.len());
        for (found, want) in found.iter().zip(texts) {
            let score = want["score"].as_f64().expect("a score");
            assert_eq!(found.ids, ints(&want["ids"]), "{name} {} {}", case["prompt"], case["end"]);
            assert!((found.score - score).abs() < 1e-4, "{name}: {} {score}", found.score);
        }
        assert!(slots.is_empty());
    }
}

/// A long prompt that is prefilled in chunks gives the same results as the whole sequence.
#[test]
fn long_prompts_in_parts_are_the_whole() {
    let cpu = Cpu::new(2);
    let pairs = [("vocab_size", 48), ("d_model", 32), ("n_layers", 2), ("heads", 4), ("kv_heads", 2), ("d_ff", 48)];
    let pairs = pairs.into_iter().chain([("max_seq", 1024)]);
    let given = pairs.map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(n))).collect();
    let architecture = tensorloom_models::Architecture::from_library("llama", given).unwrap_or_else(|e| panic!("{e}"));
    let model = Model::new_random(architecture, DType::F32, 5).unwrap_or_else(|e| panic!("{e}"));
    for length in [256, 257, 512, 700] {
        let prompt: Vec<i32> = (0..length).map(|i| i * 7 % 48).collect();
        let whole =
            model.evaluate_on(&[prompt.clone()], None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
        let want = &whole[whole.len() - 48..];
        let mut decoding = model.decode_session(length as usize + 4, &cpu).expect("fits");
        let found = decoding.append(&prompt).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(decoding.ids(), prompt);
        let worst = found.iter().zip(want).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst < 1e-4, "{length}: {worst}");
        assert!(decoding.append(&[1, 2, 3, 4]).is_ok() && decoding.append(&[1; 64]).is_err());
    }
}

/// With a good draft model, a bad one, and the model itself, the tokens are unchanged, greedy and sampled.
#[test]
fn guesses_change_nothing() {
    let cpu = Cpu::new(2);
    let model = golden("llama");
    let drafts = [golden("llama"), golden("llama3"), golden("qwen2"), golden("gpt2")];
    let drawn =
        SamplingOptions { temperature: 0.9, top_p: 0.9, repetition_penalty: 1.2, seed: 4, ..SamplingOptions::GREEDY };
    for sampling in [SamplingOptions::GREEDY, drawn] {
        for prompt in [vec![1, 5, 7], vec![40]] {
            let plain = model.generate_with(&prompt, 23, &sampling, &cpu, &mut |_| true).expect("runs");
            for (i, draft) in drafts.iter().enumerate() {
                for count in [1, 3, 5] {
                    let writing = GenerateOptions {
                        max_new_tokens: 23,
                        sampling: Some(sampling),
                        draft: Some((draft, count)),
                        ..GenerateOptions::default()
                    };
                    let mut heard = Vec::new();
                    let found = model
                        .generate_with_options(&prompt, &writing, &cpu, &mut |id| {
                            heard.push(id);
                            true
                        })
                        .unwrap_or_else(|e| panic!("{e}"));
                    assert_eq!(found.ids, plain.ids, "draft {i}, {count} at once");
                    assert_eq!(heard, plain.ids);
                    let (right, all) = found.draft_accepted;
                    assert!(right <= all && all > 0);
                    if i == 0 && sampling == SamplingOptions::GREEDY {
                        assert_eq!(right, all, "its own guesses are right");
                    }
                }
            }
        }
    }
    let other = golden("mamba");
    let writing = GenerateOptions { max_new_tokens: 9, draft: Some((&other, 2)), ..GenerateOptions::default() };
    assert!(
        model.generate_with_options(&[1], &writing, &cpu, &mut |_| true).is_err(),
        "a recurrent state cannot be rolled back"
    );
}

#[test]
fn prompts_together_give_what_each_gives() {
    let cpu = Cpu::new(2);
    let model = golden("qwen2");
    let prompts: Vec<Vec<i32>> = (0..7).map(|i| (0..1 + 2 * i).map(|j| (7 * i + 5 * j) % 64).collect()).collect();
    let mut slots = slots(golden("qwen2"), 3);
    for sampling in [SamplingOptions::GREEDY, SamplingOptions { temperature: 1.0, seed: 9, ..SamplingOptions::GREEDY }]
    {
        let mut found: Vec<Vec<i32>> = vec![Vec::new(); prompts.len()];
        let wanted = BatchGenerateOptions { max_new_tokens: 11, sampling, eos_ids: Vec::new() };
        let mut done = |i: usize, ids: &[i32]| {
            found[i] = ids.to_vec();
            Ok(())
        };
        slots.generate_batch(&prompts, &wanted, &mut done).unwrap_or_else(|e| panic!("{e}"));
        for (i, prompt) in prompts.iter().enumerate() {
            let own = SamplingOptions { seed: sampling.seed + i as u64, ..sampling };
            let plain = model.generate_with(prompt, 11, &own, &cpu, &mut |_| true).expect("runs");
            assert_eq!(found[i], plain.ids, "prompt {i}");
        }
    }
}

#[test]
fn a_form_is_kept() {
    let cpu = Cpu::new(2);
    let text = "a cat sat: 0123456789";
    let tokenizer = Tokenizer::train([text].into_iter().cycle().take(9), 262).expect("trains");
    let sizes = [("vocab_size", 262), ("d_model", 32), ("n_layers", 1), ("heads", 2), ("kv_heads", 2), ("d_ff", 32)];
    let given = sizes.iter().map(|(k, v)| (k.to_string(), lang::consteval::ConstValue::int(*v))).collect();
    let architecture = tensorloom_models::Architecture::from_library("llama", given).expect("fits");
    let model = Model::new_random(architecture, DType::F32, 3).expect("drawn");
    let maker = Constrainer::new(&tokenizer);
    let ends: Vec<i32> = tokenizer.eos_id().into_iter().collect();
    for seed in 0..5 {
        let sampling = Some(SamplingOptions { temperature: 1.0, seed, ..SamplingOptions::GREEDY });
        let constraint = Some(maker.regex("[0-9]{2}:(cat|sat)").expect("valid"));
        let writing =
            GenerateOptions { max_new_tokens: 40, sampling, constraint, eos_ids: &ends, ..GenerateOptions::default() };
        let found = model.generate_with_options(&[5], &writing, &cpu, &mut |_| true).expect("runs");
        let shown = tokenizer.decode(&found.ids).expect("decodes");
        assert!(shown.len() == 6 && shown[2..3] == *":" && ["cat", "sat"].contains(&&shown[3..]), "{shown}");
    }
}

/// Two checkpoints with unsupported architectures, loaded with user modules.
#[test]
fn a_module_of_ones_own_reads_a_checkpoint() {
    let root = std::env::temp_dir().join(format!("tensorloom-module-{}", std::process::id()));
    let cpu = Cpu::new(2);
    for (name, file) in [("llama", "llama"), ("gpt2", "gpt2")] {
        let dir = root.join(name);
        std::fs::create_dir_all(&dir).expect("made");
        for part in ["config.json", "model.safetensors"] {
            std::fs::copy(data().join(name).join(part), dir.join(part)).expect("copied");
        }
        // An unknown class name, and a custom field for the width.
        let text = std::fs::read_to_string(dir.join("config.json")).expect("read");
        let mut config: Json = serde_json::from_str(&text).expect("JSON");
        let width = if name == "gpt2" { "n_embd" } else { "hidden_size" };
        let fields = config.as_object_mut().expect("an object");
        fields.insert("architectures".into(), vec!["MyOwnModel"].into());
        let value = fields.remove(width).expect("there");
        fields.insert("my_width".into(), value);
        std::fs::write(dir.join("config.json"), config.to_string()).expect("written");
        assert!(Model::load(&dir, DType::F32).is_err());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../lang/std/models/{file}.module"));
        let source = std::fs::read_to_string(source).expect("read");
        // Llama inherits the field from the decoder that it extends: its own mapping takes precedence.
        let fields = "    param_mapping:\n";
        let own = match source.contains("extends") {
            true => source.replace(fields, &format!("{fields}      d_model: my_width\n")),
            false => source.replace(&format!("d_model: {width}"), "d_model: my_width"),
        };
        assert_ne!(own, source);
        let module = root.join(format!("mine_{name}.module"));
        std::fs::write(&module, own).expect("written");
        let program = || tensorloom_models::load_program(&module.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
        let model = Model::load_with_module(&dir, DType::F32, Some(program())).unwrap_or_else(|e| panic!("{e}"));
        let (plain, prompt) = (golden(name), [1, 5, 7]);
        let want = plain.generate_greedy(&prompt, 12, &cpu).expect("runs").ids;
        assert_eq!(model.generate_greedy(&prompt, 12, &cpu).expect("runs").ids, want);
        // An export can be loaded without the module.
        let out = root.join(format!("{name}-out"));
        model.export(&out).unwrap_or_else(|e| panic!("{e}"));
        let again = Model::load(&out, DType::F32).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.generate_greedy(&prompt, 12, &cpu).expect("runs").ids, want);
    }
    // A module without `hf_config` can't load a checkpoint.
    let module = root.join("bare.module");
    std::fs::write(&module, "model Bare(d: int = 4):\n  params:\n    w: [d, d]\n\n  forward:\n    in: [B, T, d]\n    out: [B, T, d]\n    graph:\n      in -> matmul(w, transpose=NT) -> out\n").expect("written");
    let program = tensorloom_models::load_program(&module.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
    let error =
        Model::load_with_module(&data().join("llama"), DType::F32, Some(program)).err().expect("refused").to_string();
    assert!(error.contains("hf_config"), "{error}");
    let _ = std::fs::remove_dir_all(&root);
}
