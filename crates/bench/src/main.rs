//! The benchmark program of Tensorloom.
//!
//! It reads case names from standard input, one per line, and answers each with one JSON object: the median time of a run in
//! seconds and the other measurements of the case. `cargo xtask bench` runs it and the peers alternately.

mod cases;
mod eager;
mod measure;
mod models;
#[path = "../../vsla/examples/ragged/encoder.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with examples and a test")]
mod ragged;
mod variable_shape;
mod vision;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// `--list` prints the cases; `--suite vsla` selects the variable-shape cases; `--reps n` sets the number of timings per median,
/// `--threads n` the size of the thread pool, `--device name` a device other than the CPU.
fn main() -> ExitCode {
    let (mut reps, mut threads, mut list, mut variable) = (7, 2, false, false);
    let mut device = None;
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let mut number = || args.next().and_then(|v| v.parse::<usize>().ok()).filter(|n| *n > 0);
        let known = match a.as_str() {
            "--list" => {
                list = true;
                true
            }
            "--reps" => number().map(|n| reps = n).is_some(),
            "--threads" => number().map(|n| threads = n).is_some(),
            "--device" => {
                device = args.next();
                device.is_some()
            }
            "--suite" => match args.next().as_deref() {
                Some("cpu") => true,
                Some("vsla") => {
                    variable = true;
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if !known {
            eprintln!(
                "wrong argument {a:?}; usage: tensorloom-bench [--suite cpu|vsla] [--list] [--reps N] [--threads N] [--device NAME] < cases"
            );
            return ExitCode::from(2);
        }
    }
    if list {
        match variable {
            true => variable_shape::names().iter().for_each(|n| println!("{n}")),
            false if device.is_some() => {
                cases::CASE_NAMES
                    .iter()
                    .chain(cases::LARGE_MEMORY_CASES)
                    .chain(eager::CASE_NAMES)
                    .for_each(|n| println!("{n}"));
            }
            false => {
                let small = eager::CASE_NAMES.iter().filter(|n| !eager::LARGE_MEMORY_CASES.contains(n));
                cases::CASE_NAMES.iter().chain(small).for_each(|n| println!("{n}"));
            }
        }
        return ExitCode::SUCCESS;
    }
    if variable {
        let backend = tensorloom_vsla::Backend::cpu(threads);
        return serve(|case| variable_shape::run_case(&backend, case, reps).map_err(|e| e.to_string()));
    }
    let backend: std::sync::Arc<dyn compiler::Backend> = match device.as_deref() {
        None | Some("cpu") => std::sync::Arc::new(cpu::Cpu::with_flush_denormals(threads)),
        Some(name) => match tensorloom::devices::open(name) {
            Ok(device) => device,
            Err(e) => {
                eprintln!("{e}");
                return ExitCode::from(2);
            }
        },
    };
    // Subnormal numbers are kept, as in the peers.
    let eager_device: std::sync::Arc<dyn compiler::Backend> = match device.as_deref() {
        None | Some("cpu") => std::sync::Arc::new(cpu::Cpu::new(threads)),
        Some(_) => backend.clone(),
    };
    let mut ready = BTreeMap::new();
    serve(|case| {
        let answer = match eager::CASE_NAMES.contains(&case) {
            true => eager::seconds(case, eager_device.clone(), reps)
                .map(|s| format!("{{\"case\": {case:?}, \"s\": {s:e}}}")),
            false => cases::run_case(&*backend, case, reps, &mut ready),
        };
        answer.map_err(|e| e.to_string())
    })
}

fn serve(mut answer: impl FnMut(&str) -> Result<String, String>) -> ExitCode {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match answer(line.trim()) {
            Ok(text) => println!("{text}"),
            Err(e) => println!("{{\"case\": {:?}, \"error\": {e:?}}}", line.trim()),
        }
        if std::io::stdout().flush().is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
