//! What a newcomer runs: `loom` without words, here for fewer steps.
//!
//! `LOOM_FULL=1` runs all of it, which takes about two minutes on two idle cores.

use models::train::write_stories;
use std::collections::BTreeSet;
use std::process::Command;

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

#[test]
fn the_default_learns_to_write_stories() {
    let full = std::env::var_os("LOOM_FULL").is_some();
    let folder = std::env::temp_dir().join(format!("tensorloom-main-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(&folder);
    if !full {
        command.args([
            "train",
            "--steps",
            "150",
            "--micro-batch-size",
            "4",
            "--seq-len",
            "128",
            "--warmup-steps",
            "20",
            "--synthetic-bytes",
            "1000000",
        ]);
    }
    let output = command.output().expect("loom runs");
    let (shown, lines) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{lines}");
    assert!(lines.contains("step 1/"), "{lines}");

    // The vocabulary of 1024 begins at a loss of about 6.9; knowing only which words are frequent gives about 5.
    let bound = if full { 0.55 } else { 2.2 };
    let loss = shown.lines().find_map(|line| line.strip_prefix("validation loss "));
    let loss: f64 = loss.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{shown}"));
    assert!(loss < bound, "validation loss {loss}, should be below {bound}");

    // The story is made of the grammar's words and sentences.
    let story = shown.trim_start().lines().next().unwrap_or("");
    let known: BTreeSet<String> = words(&write_stories(9, 1 << 20)).collect();
    let (all, strange): (Vec<String>, Vec<String>) =
        (words(story).collect(), words(story).filter(|word| !known.contains(word)).collect());
    assert!(story.starts_with("Once upon a time") && all.len() > 12, "{story}");
    let allowed = if full { 0 } else { all.len() / 5 };
    assert!(strange.len() <= allowed, "{strange:?} in: {story}");
    for file in ["config.json", "model.safetensors", "tokenizer.json", "index.html", "run.toml"] {
        assert!(folder.join("runs/1").join(file).is_file(), "{file}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
