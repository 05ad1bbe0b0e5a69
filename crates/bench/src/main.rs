//! Our side of the CPU benchmarks.
//!
//! Reads case names from standard input, one a line, and answers each with one JSON object: the median time of a run in
//! seconds and what else the case measures. `cargo xtask bench cpu` drives it and the peers in turn.

mod cases;
mod eager;
mod measure;
mod models;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// `--list` names the cases; `--reps n` sets how many timings a median is of, `--threads n` the pool's size.
fn main() -> ExitCode {
    let (mut reps, mut threads) = (7, 2);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match (a.as_str(), args.next().map(|v| v.parse::<usize>())) {
            ("--list", _) => {
                cases::NAMES.iter().chain(eager::NAMES).for_each(|n| println!("{n}"));
                return ExitCode::SUCCESS;
            }
            ("--reps", Some(Ok(n))) if n > 0 => reps = n,
            ("--threads", Some(Ok(n))) if n > 0 => threads = n,
            (other, _) => {
                eprintln!(
                    "wrong argument {other:?}; usage: tensorloom-bench [--list] [--reps N] [--threads N] < cases"
                );
                return ExitCode::from(2);
            }
        }
    }
    let cpu = cpu::Cpu::new(threads);
    let mut ready = BTreeMap::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let case = line.trim();
        let answer = match eager::NAMES.contains(&case) {
            true => eager::seconds(case, threads, reps).map(|s| format!("{{\"case\": {case:?}, \"s\": {s:e}}}")),
            false => cases::answer(&cpu, case, reps, &mut ready),
        };
        match answer {
            Ok(text) => println!("{text}"),
            Err(e) => println!("{{\"case\": {:?}, \"error\": {:?}}}", case, e.to_string()),
        }
        if std::io::stdout().flush().is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
