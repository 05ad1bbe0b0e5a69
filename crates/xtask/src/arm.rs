//! Runs tests on aarch64, under an emulator on machines of another architecture.

use crate::run_with;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

/// Tests of the CPU backend that an emulator finishes in minutes: the unit tests (generated code against its evaluator, matrix
/// products, library routines), then tests that compare whole programs with the interpreter.
const SUITES: &[&str] =
    &["--lib", "--test=backend", "--test=rearrange", "--test=special_values", "--test=thread", "--test=ulp"];

/// Runs the test suites of the CPU backend for aarch64. Cargo's environment variables select another linker and runner, and
/// `RUSTC` selects another compiler.
pub(crate) fn test() -> Result<(), String> {
    let mut missing = Vec::new();
    if !standard_library()?.is_dir() {
        missing.push(format!("its standard library: `rustup target add {TARGET}`"));
    }
    let mut env = Vec::new();
    if std::env::var_os(LINKER).is_none() {
        match found("aarch64-linux-gnu-gcc") {
            true => env.push((LINKER, "aarch64-linux-gnu-gcc")),
            false => missing.push("a linker: Debian's gcc-aarch64-linux-gnu and libc6-dev-arm64-cross".to_string()),
        }
    }
    if std::env::var_os(RUNNER).is_none() && !cfg!(target_arch = "aarch64") {
        match ["qemu-aarch64-static -L /usr/aarch64-linux-gnu", "qemu-aarch64 -L /usr/aarch64-linux-gnu"]
            .into_iter()
            .find(|r| r.split(' ').next().is_some_and(found))
        {
            Some(runner) => env.push((RUNNER, runner)),
            None => missing.push("an emulator: Debian's qemu-user-static".to_string()),
        }
    }
    if !missing.is_empty() {
        return Err(format!("{TARGET} can't be tested here; missing:\n- {}", missing.join("\n- ")));
    }
    let words = [&["test", "-p", "tensorloom-cpu", "--target", TARGET, "--no-fail-fast"], SUITES].concat();
    run_with("cargo", &words, &env)
}

/// Returns the folder where the compiler expects the standard library of the target.
fn standard_library() -> Result<PathBuf, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let sysroot = Command::new(&rustc).args(["--print", "sysroot"]).output().map_err(|e| format!("{rustc}: {e}"))?;
    Ok(Path::new(String::from_utf8_lossy(&sysroot.stdout).trim()).join("lib/rustlib").join(TARGET))
}

fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
