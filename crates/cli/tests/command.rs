//! The command from outside: exit codes, one-line errors, files written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn loom(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(root).args(args).output().expect("loom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tensorloom-cli-{}-{name}", std::process::id()))
}

/// Wrong use: exit code 2 and one line that has these words.
fn refused(args: &[&str], words: &[&str]) {
    let output = loom(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
}

const LLAMA: &str = "crates/models/tests/data/llama";

#[test]
fn wrong_use_is_one_line_and_exit_code_2() {
    refused(&["chec"], &["chec"]);
    refused(&["check"], &["no file"]);
    refused(&["check", "nothing.module"], &["nothing.module"]);
    refused(&["check", "--jsn", "x"], &["--json"]);
    refused(&["eval", LLAMA, "--out", "x"], &["--ids"]);
    refused(&["eval", LLAMA, "--ids", "1,x", "--out", "x"], &["1,5,7"]);
    refused(&["eval", LLAMA, "--ids", "1,2", "--ids", "1", "--out", "x"], &["equal length"]);
    refused(&["eval", "nowhere", "--ids", "1", "--out", "x"], &["nowhere", "directory"]);
    refused(&["eval", LLAMA, "--ids", "1", "--out", "x", "--dtype", "f8"], &["f32 or bf16"]);
    refused(&["generate", LLAMA, "--ids", "1,640"], &["640", "vocabulary"]);
    refused(&["generate", LLAMA, "--ids", "1", "--max-new", "1000"], &["at most 64"]);
    refused(&["compile", "llama", "--emit", "poem"], &["graph, schema or program"]);
}

#[test]
fn check_reports_every_mistake() {
    let output = loom(&["check", "--json", "crates/lang/tests/diagnostics/cases/E004.module"]);
    assert_eq!(output.status.code(), Some(1));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = list.as_array().expect("a list");
    assert!(list.len() > 5);
    for key in ["code", "severity", "file", "line", "column", "message"] {
        assert!(list[0].get(key).is_some(), "{key}");
    }
    let clean = loom(&["check", "--json", "llama"]);
    assert_eq!(clean.status.code(), Some(0));
    assert_eq!(text(&clean.stdout).trim(), "[]");
}

#[test]
fn eval_and_generate_print_what_they_promise() {
    let out = temporary("out.safetensors");
    let path = out.to_str().expect("a path");
    let args = ["eval", LLAMA, "--ids", "1,5,7", "--labels", "1,5,7", "--out", path];
    let output = loom(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(std::fs::metadata(&out).is_ok_and(|file| file.len() > 1000));
    let _ = std::fs::remove_file(&out);

    let output = loom(&["generate", LLAMA, "--ids", "1,5,7", "--max-new", "4", "--greedy", "--json"]);
    let ids: Vec<i64> = serde_json::from_slice(&output.stdout).expect("a list of ids");
    assert_eq!(ids, [40, 7, 0, 7]);
    assert!(text(&output.stderr).contains("tokens/s"));
}

/// Bytes that `loom explain` plans for forward and backward together.
fn planned(extra: &[&str]) -> usize {
    let sizes = ["d_model=64", "heads=4", "kv_heads=2", "n_layers=6", "d_ff=128", "vocab_size=64"];
    let mut args = vec!["explain", "llama", "--seq", "128"];
    args.extend(sizes.iter().flat_map(|size| ["--set", size]));
    args.extend(extra);
    let output = loom(&args);
    let shown = text(&output.stdout);
    let line = shown.lines().find(|line| line.contains("and backward")).unwrap_or_else(|| panic!("{shown}"));
    let bytes = line.split(" steps, ").nth(1).and_then(|rest| rest.split(' ').next());
    bytes.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn checkpoints_lower_the_planned_memory() {
    let (kept, again) = (planned(&[]), planned(&["--set", "checkpoint=true"]));
    assert!(again * 2 < kept, "{again} of {kept} bytes");
}

#[test]
fn verify_backward_tells_right_from_wrong() {
    let right = loom(&[
        "verify-backward",
        "crates/lang/tests/modules/check/linear.module",
        "--model",
        "Twice",
        "--set",
        "width=4",
    ]);
    assert_eq!(right.status.code(), Some(0), "{}", text(&right.stdout));
    let good = include_str!("../../lang/std/modules/linear.module");
    let broken = [
        ("(d_out, weight) -> matmul() -> d_in", "(d_out, weight) -> matmul(alpha=2.0) -> d_in"),
        ("(d_out, saved.in) -> matmul(transpose=TN", "(d_out, saved.in) -> matmul(alpha=-1.0, transpose=TN"),
        ("rows -> reduce_sum(dims=[0])", "rows -> reduce_mean(dims=[0])"),
    ];
    for (i, (from, to)) in broken.iter().enumerate() {
        assert!(good.contains(from));
        let file = temporary(&format!("broken{i}.module"));
        std::fs::write(&file, good.replace(from, to)).expect("written");
        let path = file.to_str().expect("a path");
        let sizes = ["--set", "in_dim=6", "--set", "out_dim=5", "--set", "use_bias=true", "--batch", "2"];
        let output = loom(&[&["verify-backward", path, "--model", "Linear"], &sizes[..]].concat());
        let _ = std::fs::remove_file(&file);
        assert_eq!(output.status.code(), Some(1), "{to}: {}", text(&output.stdout));
        assert!(text(&output.stdout).contains("DIFFERS"), "{to}");
    }
}
