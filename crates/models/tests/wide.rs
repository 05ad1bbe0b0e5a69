//! Models with realistic widths and two layers: greedy tokens and logits of transformers, decoding on one thread and on several.
//! This covers code paths for large sizes. `golden/hf_wide.py` generates the expected values.

use cpu::Cpu;
use ir::DType;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use tensorloom_models::{Model, NamedTensor, SamplingOptions, write_tensors};

/// Numbers in [-1, 1) derived from a name: the upper 24 bits of splitmix64, seeded with its FNV-1a hash.
fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> {
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

/// The scale and the offset of a tensor's numbers.
fn scale(name: &str, shape: &[usize], embedding: f32) -> (f32, f32) {
    let ones = name.contains("norm") || name.contains("ln_") || name.ends_with(".D");
    match shape {
        [_] => (0.125, if ones { 1.0 } else { 0.0 }),
        _ if name.ends_with("A_log") => (1.0, 0.0),
        _ if ["embed", "wte", "wpe"].iter().any(|word| name.contains(word)) => (embedding, 0.0),
        [.., last] => (2f32.powi(1 - last.ilog2() as i32 / 2), 0.0),
        [] => (1.0, 0.0),
    }
}

/// A directory with the random weights, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check(name: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wide").join(name);
    let json: Json = serde_json::from_slice(&std::fs::read(data.join("expected.json")).expect("golden")).expect("JSON");
    let floats = |key: &str| -> Vec<f32> {
        json[key].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
    };
    let ints = |key: &str| -> Vec<i32> { floats(key).iter().map(|x| *x as i32).collect() };
    let embedding = json["embedding"].as_f64().expect("a number") as f32;
    let folder = Folder(std::env::temp_dir().join(format!("tensorloom-wide-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    std::fs::copy(data.join("config.json"), folder.0.join("config.json")).expect("a copy");
    let tensor = |(name, shape): (&String, &Json)| {
        let shape: Vec<usize> =
            shape.as_array().expect("a shape").iter().map(|n| n.as_u64().expect("a size") as usize).collect();
        let (factor, offset) = scale(name, &shape, embedding);
        let values = uniform(name, shape.iter().product());
        let bytes = values.flat_map(|u| (u * factor + offset).to_le_bytes()).collect();
        NamedTensor { name: name.clone(), shape, dtype: DType::F32, bytes }
    };
    let tensors: Vec<NamedTensor> = json["shapes"].as_object().expect("shapes").iter().map(tensor).collect();
    write_tensors(&folder.0.join("model.safetensors"), &tensors).expect("written");
    drop(tensors);

    let model = Model::load(&folder.0, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (prompt, tokens) = (ints("prompt"), ints("tokens"));
    for threads in [1, 2, 3] {
        let cpu = Cpu::new(threads);
        let found = model.generate_greedy(&prompt, tokens.len(), &cpu).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.ids, tokens, "{name}, {threads} threads");
        // The tokens are given, independent of the model's output: every step's logits are compared.
        let mut decoding = model.decode_session(prompt.len() + tokens.len(), &cpu).unwrap_or_else(|e| panic!("{e}"));
        let mut logits = decoding.append(&prompt).unwrap_or_else(|e| panic!("{e}"));
        close(&logits, &floats("first"), name, threads);
        for id in &tokens[..tokens.len() - 1] {
            logits = decoding.append(&[*id]).unwrap_or_else(|e| panic!("{e}"));
        }
        close(&logits, &floats("last"), name, threads);
    }
    let mut heard = Vec::new();
    let mut all = |id| {
        heard.push(id);
        true
    };
    model.generate_with(&prompt, 3, &SamplingOptions::GREEDY, &Cpu::new(2), &mut all).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(heard, tokens[..3], "{name}");
}

fn close(found: &[f32], wanted: &[f32], name: &str, threads: usize) {
    assert_eq!(found.len(), wanted.len());
    let size = wanted.iter().fold(0f32, |m, x| m.max(x.abs()));
    let worst = found.iter().zip(wanted).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst <= 2e-4 * size, "{name}, {threads} threads: {worst} of {size}");
}

macro_rules! models {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

models!(qwen2, llama_1024, llama_2048, gemma, gpt2, mamba);
