//! `loom train --profile` from outside.

use std::path::Path;
use std::process::Command;

const SIZES: &str = "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true";

/// The parts of a step: a table, and a trace of the same parts one after another.
#[test]
fn a_profile_says_where_the_time_of_a_step_goes() {
    let out = std::env::temp_dir().join(format!("tensorloom-profile-{}", std::process::id()));
    let mut run = Command::new(env!("CARGO_BIN_EXE_loom"));
    run.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    run.args([
        "train",
        "--profile",
        "--steps",
        "5",
        "--set",
        SIZES,
        "--synthetic-bytes",
        "60000",
        "--vocab-size",
        "300",
        "--micro-batch-size",
        "4",
    ]);
    run.args(["--seq-len", "32", "--eval-batches", "2", "--threads", "1", "--out"]).arg(&out);
    let run = run.output().expect("loom runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let file = |name: &str| std::fs::read_to_string(out.join(name)).expect("a profile");
    let trace: serde_json::Value = serde_json::from_str(&file("profile.json")).expect("JSON");
    let events: Vec<_> = trace["traceEvents"].as_array().expect("events").iter().filter(|e| e["ph"] == "X").collect();
    let mut at = 0.0;
    for e in &events {
        assert!((e["ts"].as_f64().expect("a time") - at).abs() < 1e-3, "{e}");
        at += e["dur"].as_f64().expect("a time");
    }
    let products: Vec<_> = events.iter().filter(|e| e["args"]["operations"].as_f64() > Some(0.0)).collect();
    // Each of two layers has four products, and each of those two more backward; then there are the logits.
    assert!(products.len() >= 24, "{} products of {} parts", products.len(), events.len());
    // The smallest operand of a product has more than a number for each row of a batch.
    assert!(products.iter().all(|e| e["args"]["bytes"].as_u64() > Some(4 * 4 * 32)), "{products:?}");
    let table = file("profile.txt");
    let whole = format!("one step: {:.3} ms in {} parts; a copy moves", at / 1e3, events.len());
    assert!(table.contains(&whole), "{whole}\n{table}");
    let rows = table.lines().skip_while(|l| !l.ends_with("  part")).skip(1).map(|l| l.split_whitespace());
    let (mut share, mut calls) = (0.0, 0);
    for row in rows {
        let row: Vec<&str> = row.collect();
        share += row[1].parse::<f64>().expect("a share");
        calls += row[2].parse::<usize>().expect("a number");
    }
    assert_eq!(calls, events.len(), "{table}");
    assert!((share - 100.0).abs() < 5.0, "{share}% in all\n{table}");
    let _ = std::fs::remove_dir_all(&out);
}
