//! `bench ops` measures every op and routine on generated cases against PyTorch and JAX. The page lists the slowest ratios first.

use crate::bench::{BenchOptions, BenchResult, BenchServer, environment, median, processor, seconds, show, to_json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PEERS: [&str; 2] = ["torch", "jax"];

/// Runs the cases one after another. `--only` selects ops by name.
pub(crate) fn run(root: &Path, o: &BenchOptions) -> Result<(), String> {
    crate::run("cargo", &["build", "--release", "-p", "tensorloom-cpu", "--example", "ops_bench"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let ours = target.join("release/examples/ops_bench");
    let listed = Command::new(&ours).arg("--list").output().map_err(|e| e.to_string())?;
    let listed = String::from_utf8_lossy(&listed.stdout).to_string();
    let wanted =
        |c: &&str| o.only.is_empty() || o.only.iter().any(|op| Some(op.as_str()) == c.split_whitespace().next());
    let cases: Vec<&str> = listed.lines().filter(wanted).collect();
    if cases.is_empty() {
        return Err(format!("no case is of {}; `ops_bench --list` names them", o.only.join(", ")));
    }
    let start = |name: &str, python: &Path| -> Result<BenchServer, String> {
        let reps = o.reps.to_string();
        match name {
            "ours" => BenchServer::start(Command::new(&ours).args(["--reps", &reps])),
            _ => BenchServer::start(Command::new(python).arg(root.join("bench/ops.py")).args([name, &reps])),
        }
    };
    let python = if o.peers { environment(root, &target)? } else { PathBuf::new() };
    let mut servers = vec![("ours", start("ours", &python)?)];
    if o.peers {
        for peer in PEERS {
            servers.push((peer, start(peer, &python)?));
        }
    }
    let mut rows = Vec::new();
    for case in cases {
        let mut row = BenchResult {
            case: case.into(),
            ours: vec![],
            peers: BTreeMap::new(),
            answers: vec![],
            peer_answers: BTreeMap::new(),
            memory: vec![],
        };
        for _ in 0..o.rounds {
            for (name, server) in &mut servers {
                let Some(answer) = server.ask_after_delay(20, case) else {
                    // A peer process that crashed in a case is restarted for the next one.
                    *server = start(name, &python)?;
                    continue;
                };
                match (answer["s"].as_f64(), *name) {
                    (Some(s), "ours") => {
                        row.ours.push(s);
                        row.answers.push(answer);
                    }
                    (Some(s), _) => row.peers.entry(name.to_string()).or_default().push(s),
                    (None, "ours") => return Err(format!("{case}: {answer}")),
                    (None, _) => {}
                }
            }
        }
        if row.ours.is_empty() {
            return Err(format!("our program did not answer {case}"));
        }
        println!("{}", show(&row));
        rows.push(row);
    }
    if let Some(path) = &o.json {
        let text: String = rows.iter().map(|r| format!("{}\n", to_json(r))).collect();
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if o.peers && o.only.is_empty() {
        let path = root.join("docs/bench/ops.md");
        std::fs::write(&path, page(rows, o)).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn page(mut rows: Vec<BenchResult>, o: &BenchOptions) -> String {
    rows.sort_by(|a, b| a.ratio().unwrap_or(f64::MAX).total_cmp(&b.ratio().unwrap_or(f64::MAX)));
    let ratios: Vec<f64> = rows.iter().filter_map(BenchResult::ratio).collect();
    let share = |limit: f64| 100.0 * ratios.iter().filter(|r| **r >= limit).count() as f64 / ratios.len().max(1) as f64;
    let middle = if ratios.is_empty() { 0.0 } else { median(&ratios) };
    let mut text = format!(
        "# Every op beside PyTorch and JAX\n\nWritten by `cargo xtask bench ops --peers`: {}, median of {} rounds of {} timings; our \
         program and the peers take turns, case by case, and glibc is told to keep the peers' memory. Cases are generated \
         (`crates/cpu/examples/ops_bench/list.rs`). A ratio is the best peer's time over ours: above 1, ours is faster; the worst come \
         first.\n\n{} cases with a peer: {:.0}% at 0.9 or above, {:.0}% at 0.6 or above, the median at {middle:.2}.\n\n\
         | case | ours | PyTorch eager | JAX jit | compile | ratio |\n| --- | --- | --- | --- | --- | --- |\n",
        processor(),
        o.rounds,
        o.reps,
        ratios.len(),
        share(0.9),
        share(0.6),
    );
    for r in &rows {
        let peer = |name: &str| r.peers.get(name).map_or("–".to_string(), |s| seconds(median(s)));
        let compile = r.answers.first().and_then(|a| a["compile_s"].as_f64()).unwrap_or(0.0);
        let ratio = r.ratio().map_or("–".to_string(), |x| format!("{x:.2}"));
        let (ours, torch, jax) = (seconds(median(&r.ours)), peer("torch"), peer("jax"));
        let _ = writeln!(text, "| {} | {ours} | {torch} | {jax} | {} | {ratio} |", r.case, seconds(compile));
    }
    text
}
