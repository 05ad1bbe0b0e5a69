//! Repository tasks: `cargo xtask {tidy|test|web|bench|device|ulp|sanitize|install-c|wheel|book|api|lines|size}`.

mod api;
mod arm;
mod bench;
mod bench_ops;
mod bench_vsla;
mod book;
mod device;
mod install;
mod lines;
mod size;
mod tidy;
mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy
       cargo xtask test [web|models|arm]
       cargo xtask web     (the package for JavaScript, the program for models, and the pages, into target/web)
       cargo xtask bench {cpu|vsla|ops} [--peers] [--only CASE,..] [--reps N] [--rounds N] [--json FILE]
       cargo xtask device FOLDER     (programs and scripts for a machine with a GPU)
       cargo xtask ulp [FUNCTION]     (all 2^32 inputs of every vector function, some minutes each)
       cargo xtask sanitize [address|thread|miri]
       cargo xtask install-c PREFIX     (the C library, header, pkg-config, CMake; below $DESTDIR)
       cargo xtask wheel [--out FOLDER]     (the package for Python, tried in a fresh environment)
       cargo xtask book     (its pictures, links and pages, into target/book)
       cargo xtask api [--write]     (what is public, against docs/api)
       cargo xtask lines [REVISION]     (lines of Rust per crate, source and tests, against a revision or the last tag)
       cargo xtask size     (a release build from nothing: its core-seconds and the size of loom, against docs/bench/build.md)";

/// Features that tests and documentation are built with in addition to the defaults.
const FEATURES: &str = "tensorloom-cli/full,tensorloom-cli/wgpu,tensorloom/train,tensorloom/include,tensorloom/onnx,tensorloom/serve,tensorloom/vsla,tensorloom/dist";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["tidy"] => tidy::tidy(&root()),
        ["test"] => test(),
        ["test", "web"] => web::test(&root()),
        ["test", "models"] => web::test_models(&root()),
        ["test", "arm"] => arm::test(),
        ["web"] => web::build(&root(), true).and_then(|_| web::models(&root())).map(|_| ()),
        ["bench", suite @ ("cpu" | "vsla"), rest @ ..] => match bench::BenchOptions::parse(rest) {
            Ok(o) => bench::run(&root(), if *suite == "cpu" { &bench::CPU } else { &bench_vsla::SUITE }, &o),
            Err(e) => return wrong_use(&e),
        },
        ["bench", "ops", rest @ ..] => match bench::BenchOptions::parse(rest) {
            Ok(o) => bench_ops::run(&root(), &o),
            Err(e) => return wrong_use(&e),
        },
        ["device", folder] => device::device(&root(), folder),
        ["install-c", prefix] => install::install(&root(), prefix),
        ["book"] => book::book(&root()),
        ["lines"] => lines::lines(&root(), None),
        ["lines", revision] => lines::lines(&root(), Some(revision)),
        ["size"] => size::size(&root()),
        ["api"] => api::api(&root(), false),
        ["api", "--write"] => api::api(&root(), true),
        ["wheel", rest @ ..] => {
            let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
            run(&python, &[&["crates/python/wheel.py"], rest].concat())
        }
        ["ulp", name @ ..] if name.len() <= 1 => {
            let mut words = vec!["run", "--release", "-p", "tensorloom-cpu", "--example", "ulp_sweep", "--"];
            words.extend(name);
            run("cargo", &words)
        }
        ["sanitize"] => sanitize("address").and_then(|()| sanitize("thread")).and_then(|()| sanitize("miri")),
        ["sanitize", which @ ("address" | "thread" | "miri")] => sanitize(which),
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

/// Returns the root folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Runs the format check, `tidy`, then all tests of all crates.
fn test() -> Result<(), String> {
    run("cargo", &["fmt", "--all", "--check"])?;
    tidy::tidy(&root())?;
    // This enables all commands and features; the default build leaves some of them out.
    run("cargo", &["test", "--workspace", "--features", FEATURES, "--no-fail-fast"])
}

/// Runs the tests of unsafe code under sanitizers and Miri: memory accesses of the CPU backend and of the callers of generated
/// code, data races in the thread pool, undefined behaviour in the code that Miri can interpret.
fn sanitize(which: &str) -> Result<(), String> {
    let host = "x86_64-unknown-linux-gnu";
    if which == "miri" {
        let words = ["+nightly", "miri", "test", "-p", "tensorloom-cpu", "--lib", "--", "memory::", "pool::"];
        return run_with("cargo", &words, &[("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks")]);
    }
    let flags = format!("-Zsanitizer={which}");
    let target = format!("target/sanitize-{which}");
    let mut words = vec!["+nightly", "test", "-p", "tensorloom-cpu", "--target", host];
    if which == "thread" {
        // The standard library must be instrumented too; otherwise its locks are reported as races.
        words.extend(["-Zbuild-std", "--lib", "--", "pool::", "gemm::"]);
    } else {
        words.extend(["--lib", "--tests"]);
    }
    let env = [
        ("RUSTFLAGS", flags.as_str()),
        ("CARGO_TARGET_DIR", target.as_str()),
        ("TENSORLOOM_ROUNDS", "1"),
        // Some tests request more memory than the machine has.
        ("ASAN_OPTIONS", "allocator_may_return_null=1"),
    ];
    run_with("cargo", &words, &env)
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    run_with(program, args, &[])
}

fn run_with(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    println!("$ {program} {}", args.join(" "));
    let status = Command::new(program).args(args).envs(env.iter().copied()).current_dir(root()).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("`{program} {}` ended with {s}", args.join(" "))),
        Err(e) => Err(format!("`{program}` can't be run: {e}")),
    }
}
