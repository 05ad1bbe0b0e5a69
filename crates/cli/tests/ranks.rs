//! `loom launch` and `loom train --mesh` as processes: losses of one process, a killed rank, resuming.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-ranks-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// A run of a tiny model.
fn train(out: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let text = "train --model llama --set d_model=16,n_layers=1,heads=2,kv_heads=2,d_ff=32,max_seq=16 --stories 20000 \
                --vocab 300 --batch 4 --seq 16 --eval-batches 1 --log-every 1 --checkpoint-every 4 --sample-every 100000 --threads 1";
    let mut words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
    words.extend(["--out".into(), out.display().to_string(), "--steps".into(), steps.to_string()]);
    words.extend(more.iter().map(|w| w.to_string()));
    words
}

fn loom(words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loom")).args(words).output().unwrap()
}

fn launch(n: usize, words: &[String]) -> Output {
    let head = ["launch".to_string(), "-n".to_string(), n.to_string(), "loom".to_string()];
    loom(&[&head[..], words].concat())
}

/// The losses of a run's log.
fn losses(out: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(out.join("log.jsonl")).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|json| json.get("last").or(json.get("valid")).and_then(|l| l.as_f64())).collect()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn ranks_that_are_processes_train_like_one() {
    let (one, two) = (temporary("one"), temporary("two"));
    succeeded(&loom(&train(&one, 6, &[])));
    succeeded(&launch(2, &train(&two, 6, &["--mesh", "fsdp=2"])));
    let (one_losses, two_losses) = (losses(&one), losses(&two));
    assert!(one_losses.len() >= 7, "{one_losses:?}");
    for (a, b) in one_losses.iter().zip(&two_losses) {
        assert!((a - b).abs() < 1e-5 * a.abs().max(1.0), "{one_losses:?}\n{two_losses:?}");
    }
    // One HuggingFace directory at the end, as from one process.
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert_eq!(one.join(file).exists(), two.join(file).exists(), "{file}");
    }
    for path in [one, two] {
        let _ = std::fs::remove_dir_all(path);
    }
}

fn rank(rank: usize, address: &str, words: &[String]) -> Child {
    let mut c = Command::new(env!("CARGO_BIN_EXE_loom"));
    c.args(words).env("LOOM_RANK", rank.to_string()).env("LOOM_WORLD_SIZE", "2").env("LOOM_ADDRESS", address);
    c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_killed_rank_is_named_and_the_run_resumes_with_the_same_bits() {
    let (straight, broken) = (temporary("straight"), temporary("broken"));
    succeeded(&launch(2, &train(&straight, 300, &["--mesh", "dp=2"])));
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = train(&broken, 300, &["--mesh", "dp=2"]);
    let (mut first, mut second) = (rank(0, &address, &words), rank(1, &address, &words));
    // As soon as there is a checkpoint beyond the first.
    let until = Instant::now() + Duration::from_secs(120);
    let count = || losses(&broken).len();
    while !broken.join("log.jsonl").exists() || count() < 6 {
        assert!(Instant::now() < until, "nothing happens");
        std::thread::sleep(Duration::from_millis(2));
    }
    second.kill().unwrap();
    second.wait().unwrap();
    let killed = Instant::now();
    let said = loop {
        if first.try_wait().unwrap().is_some() {
            break String::from_utf8_lossy(&first.wait_with_output().unwrap().stderr).to_string();
        }
        assert!(killed.elapsed() < Duration::from_secs(10), "rank 0 hangs");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(said.contains("rank 1 is gone"), "{said}");
    succeeded(&launch(2, &train(&broken, 300, &["--mesh", "dp=2", "--resume"])));
    let model = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
    assert!(model(&straight) == model(&broken), "resuming changes bits");
    for path in [straight, broken] {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[test]
fn a_mesh_without_its_ranks_is_an_error_with_the_command_to_give() {
    let out = temporary("none");
    let output = loom(&train(&out, 1, &["--mesh", "dp=2,tp=2"]));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && said.contains("loom launch -n 4 loom train"), "{said}");
    let output = launch(3, &train(&out, 1, &["--mesh", "dp=2"]));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && said.contains("has 2 ranks, and 3 were started"), "{said}");
    let output = loom(&train(&out, 1, &["--mesh", "dp"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("as in `dp=2,tp=4`"));
}
