//! Chores of this repository: `cargo xtask {tidy|test|bench|install-c}`.

mod bench;
mod bench_vsla;
mod install;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy
       cargo xtask test
       cargo xtask bench {cpu|vsla} [--peers] [--only CASE,..] [--reps N] [--rounds N] [--json FILE]
       cargo xtask install-c PREFIX";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["tidy"] => tidy::tidy(&root()),
        ["test"] => test(),
        ["bench", suite @ ("cpu" | "vsla"), rest @ ..] => match bench::Options::parse(rest) {
            Ok(o) => bench::run(&root(), if *suite == "cpu" { &bench::CPU } else { &bench_vsla::SUITE }, &o),
            Err(e) => return wrong_use(&e),
        },
        ["install-c", prefix] => install::install(&root(), prefix),
        _ => return wrong_use("there is no such chore"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn wrong_use(what: &str) -> ExitCode {
    eprintln!("{what}\n{USAGE}");
    ExitCode::from(2)
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Formatting, tidiness, then every test of every crate.
fn test() -> Result<(), String> {
    run("cargo", &["fmt", "--all", "--check"])?;
    tidy::tidy(&root())?;
    run("cargo", &["test", "--workspace", "--no-fail-fast"])
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    println!("$ {program} {}", args.join(" "));
    let status = Command::new(program).args(args).current_dir(root()).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("`{program} {}` ended with {s}", args.join(" "))),
        Err(e) => Err(format!("`{program}` can't be run: {e}")),
    }
}
