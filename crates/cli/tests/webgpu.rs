//! `loom` on a WebGPU adapter against the CPU: lavapipe where there is no other. Skipped without an adapter, unless `CI` is set.
//!
//! `LOOM_WEBGPU_STEPS=1000` trains longer.

#![cfg(feature = "wgpu")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn loom(args: &[&str], device: &str) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(root).args(args).args(["--device", device]).output().expect("loom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether there is an adapter to test on.
fn adapter() -> bool {
    let found = gpu_name();
    if found.is_none() && std::env::var_os("CI").is_some() {
        panic!("no WebGPU adapter");
    }
    println!("{}", found.as_deref().unwrap_or("skipped: no WebGPU adapter"));
    found.is_some()
}

fn gpu_name() -> Option<String> {
    device::open("wgpu").ok().map(|d| d.name())
}

/// A folder of a test's own, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-webgpu-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Losses of a run by step.
fn losses(out: &str) -> Vec<(i64, f64)> {
    let log = std::fs::read_to_string(Path::new(out).join("log.jsonl")).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|l| Some((l.get("step")?.as_i64()?, l.get("last")?.as_f64()?))).collect()
}

/// Trains on both devices; the losses must stay within a bound of each other.
fn follows(name: &str, args: &[&str], bound: f64) {
    let folder = Folder::new(name);
    let [on_cpu, on_gpu] = ["cpu", "wgpu"].map(|device| {
        let out = folder.path(device);
        let mut all = args.to_vec();
        all.extend(["--out", &out]);
        let output = loom(&all, device);
        assert!(output.status.success(), "{device}: {}", text(&output.stderr));
        losses(&out)
    });
    assert!(on_cpu.len() > 1 && on_cpu.len() == on_gpu.len(), "{on_cpu:?} {on_gpu:?}");
    let worst = on_cpu.iter().zip(&on_gpu).map(|(c, g)| (c.1 - g.1).abs()).fold(0.0, f64::max);
    println!(
        "{name}: {} losses, at most {worst:e} apart, from {} to {}",
        on_cpu.len(),
        on_cpu[0].1,
        on_cpu[on_cpu.len() - 1].1
    );
    assert!(worst <= bound, "{worst} apart: {on_cpu:?} {on_gpu:?}");
}

const SIZES: &str = "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true";

#[test]
fn a_tiny_llama_trains_as_on_the_cpu() {
    if !adapter() {
        return;
    }
    let steps = std::env::var("LOOM_WEBGPU_STEPS").unwrap_or("100".into());
    let mut args = vec![
        "train",
        "--steps",
        &steps,
        "--set",
        SIZES,
        "--synthetic-bytes",
        "60000",
        "--vocab-size",
        "300",
        "--log-every",
        "5",
    ];
    args.extend([
        "--micro-batch-size",
        "4",
        "--seq-len",
        "32",
        "--warmup-steps",
        "4",
        "--eval-every",
        "100",
        "--eval-batches",
        "2",
    ]);
    args.extend(["--checkpoint-every", "1000", "--sample-every", "1000"]);
    follows("llama", &args, 1e-3);
}

#[test]
fn adapters_train_as_on_the_cpu() {
    if !adapter() {
        return;
    }
    let folder = Folder::new("text");
    let data = folder.path("text.txt");
    let lines = "the cat sat on the mat . then the dog ran .\n<|endoftext|>\n".repeat(80);
    std::fs::write(&data, lines).expect("written");
    let mut args = vec!["train", "--model", "crates/models/tests/data/gpt2", "--data", &data];
    args.extend([
        "--tokenizer",
        "crates/models/tests/data/lora/tokenizer.json",
        "--lora",
        "rank=4,alpha=8,targets=c_attn",
    ]);
    args.extend(["--steps", "20", "--micro-batch-size", "2", "--seq-len", "32", "--lr", "0.02", "--log-every", "2"]);
    follows("lora", &args, 1e-3);
}

#[test]
fn greedy_text_is_the_cpus() {
    if !adapter() {
        return;
    }
    for model in ["llama", "gpt2", "mixtral", "mamba"] {
        let dir = format!("crates/models/tests/data/{model}");
        let [on_cpu, on_gpu] = ["cpu", "wgpu"].map(|device| {
            let args = ["generate", &dir, "--token-ids", "1,5,7", "--max-new-tokens", "12", "--greedy", "--json"];
            let output = loom(&args, device);
            assert!(output.status.success(), "{model} on {device}: {}", text(&output.stderr));
            text(&output.stdout)
        });
        assert_eq!(on_cpu, on_gpu, "{model}");
    }
}
