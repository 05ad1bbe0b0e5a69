//! Adapters against peft: beside the weights and merged into them, of peft's making and of ours; training one.
//!
//! `golden/lora.py` makes the data.

use cpu::Cpu;
use ir::DType;
use models::train::{Settings, Silent, run};
use models::{Adapter, Model};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

const IDS: [[i32; 8]; 2] = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-lora-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0f32, |m, (x, y)| {
        assert!(x.is_finite() && y.is_finite());
        m.max((x - y).abs())
    })
}

/// Logits with the adapter beside the weights and merged into them equal peft's.
fn check(adapter: &str, base: &str) {
    let folder = data("lora").join(adapter);
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("golden tensors");
    let expected = SafeTensors::deserialize(&bytes).expect("golden tensors");
    let want = |name: &str| floats(expected.tensor(name).expect("golden tensor").data());
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    let cpu = Cpu::new(2);
    let mut model = Model::load(&data(base), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let plain = model.evaluate(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.floats();
    let adapter = Adapter::read(&folder, &model).unwrap_or_else(|e| panic!("{e}"));
    let beside = model.evaluate_adapted(&adapter, &ids, &cpu).unwrap_or_else(|e| panic!("{e}")).floats();
    model.merge(&adapter);
    let merged = model.evaluate(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.floats();
    assert!(difference(&plain, &beside) > 0.05, "the adapter does something");
    for (what, found, wanted) in
        [("beside", &beside, want("logits")), ("merged", &merged, want("merged")), ("both", &beside, merged.clone())]
    {
        let size = wanted.iter().fold(1f32, |m, x| m.max(x.abs()));
        let worst = difference(found, &wanted) / size;
        assert!(worst < 2e-5, "{what}: {worst} of the largest");
    }
}

#[test]
fn parts_of_a_fused_projection_equal_peft() {
    check("llama", "llama");
}

#[test]
fn transposed_weights_equal_peft() {
    check("gpt2", "gpt2");
}

#[test]
fn a_projection_that_is_fused_there_too_equals_peft() {
    check("phi3", "phi3");
}

/// `ours` was trained and written by this crate; peft read it and said what it computes.
#[test]
fn peft_reads_what_we_write() {
    check("ours", "llama");
}

#[test]
fn training_an_adapter_lowers_the_loss_and_merging_keeps_it() {
    let out = temporary("train");
    std::fs::create_dir_all(&out).expect("a folder");
    let text = "the cat sat on the mat . then the dog ran in the house . it was happy .\n<|endoftext|>\n".repeat(60);
    std::fs::write(out.join("text.txt"), text).expect("written");
    let base = data("llama");
    let mut settings = Settings { out: out.join("run"), ..Settings::default() };
    let pairs = [
        ("model", base.to_str().expect("a path")),
        ("data", out.join("text.txt").to_str().expect("a path")),
        ("tokenizer", data("lora/tokenizer.json").to_str().expect("a path")),
        ("lora", "rank=4,alpha=8,targets=q,v,gate,down"),
        ("steps", "60"),
        ("batch", "2"),
        ("seq", "32"),
        ("lr", "0.02"),
        ("warmup", "5"),
        ("prompt", "the cat"),
    ]
    .map(|(name, value)| (name, value.to_string()));
    for (name, value) in pairs {
        settings.set(name, &value).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let cpu = Cpu::new(2);
    let finished = run(&settings, false, &[], &cpu, &mut Silent).unwrap_or_else(|e| panic!("{e}"));
    let log = std::fs::read_to_string(out.join("run/log.jsonl")).expect("a log");
    let values =
        log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get("valid")?.as_f64());
    let first = values.into_iter().next().expect("a validation before the first step");
    let last = f64::from(finished.valid.expect("held-out data"));
    assert!(last < 0.5 * first, "{first} to {last}");

    // The adapter changes nothing but itself, and merging it gives the model that was trained.
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    let mut model = Model::load(&base, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let adapter = Adapter::read(&out.join("run"), &model).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(adapter.parameter_count(), 2 * 4 * ((32 + 32) + (32 + 16) + (32 + 48) + (48 + 32)));
    let beside = model.evaluate_adapted(&adapter, &ids, &cpu).unwrap_or_else(|e| panic!("{e}")).floats();
    model.merge(&adapter);
    model.export(&out.join("merged")).unwrap_or_else(|e| panic!("{e}"));
    let again = Model::load(&out.join("merged"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let merged = again.evaluate(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.floats();
    assert!(difference(&beside, &merged) < 1e-3);
    // How `ours` was made.
    if let Some(keep) = std::env::var_os("KEEP_ADAPTER") {
        let mut adapter = adapter;
        adapter.base = "llama".into();
        adapter.write(Path::new(&keep)).unwrap_or_else(|e| panic!("{e}"));
    }
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn targets_that_are_not_there_are_named() {
    let model = Model::load(&data("llama"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let options = models::LoraOptions::parse("targets=q,w").expect("valid");
    let error = Adapter::fresh(&model, "", &options, 1).expect_err("no module w").to_string();
    assert!(error.contains("`w`") && error.contains("q_proj"), "{error}");
}
