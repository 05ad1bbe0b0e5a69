//! Our side of the CPU benchmarks: prints one JSON object a line, `{"case": .., "s": ..}`, with the median time of a run.

mod cases;
mod llama;
mod measure;

use std::process::ExitCode;

/// `--only a,b` picks cases, `--reps n` sets how many timings a median is of, `--threads n` the pool.
fn main() -> ExitCode {
    let mut options = measure::Options { only: Vec::new(), reps: 7, threads: 2 };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let value = args.next();
        match (a.as_str(), value) {
            ("--only", Some(v)) => options.only = v.split(',').map(str::to_string).collect(),
            ("--reps", Some(v)) if v.parse::<usize>().is_ok_and(|n| n > 0) => options.reps = v.parse().unwrap_or(7),
            ("--threads", Some(v)) if v.parse::<usize>().is_ok_and(|n| n > 0) => {
                options.threads = v.parse().unwrap_or(2);
            }
            (other, _) => {
                eprintln!("wrong argument {other:?}; usage: [--only CASE,..] [--reps N] [--threads N]");
                return ExitCode::from(2);
            }
        }
    }
    match cases::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
