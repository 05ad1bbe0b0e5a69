//! The suite for backends on a WebGPU adapter with default limits and a browser's rules: lavapipe where there is no other.
//!
//! `TENSORLOOM_WGPU=1` takes the second adapter, `TENSORLOOM_ROUNDS=100` a hundred times the graphs. Where there is no adapter tests are
//! skipped; with `CI` set they fail.

#![cfg(feature = "wgpu")]

use compiler::Backend;
use gpu::wgpu::{Choice, Wgpu, adapters};
use oracle::backend::{Suite, suite};
use oracle::rng::run_seed;
use std::sync::Arc;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The adapter to test on.
fn open(strict: bool) -> Option<Wgpu> {
    let choice = Choice { number: number("TENSORLOOM_WGPU").unwrap_or(0) as usize, strict };
    match Wgpu::open(choice, Arc::new(cpu::Cpu::new(1))) {
        Ok(w) => {
            println!("{}", w.name());
            Some(w)
        }
        Err(e) if std::env::var_os("CI").is_some() => panic!("no adapter: {e}"),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

#[test]
fn an_adapter_with_default_limits_passes_the_suite() {
    let Some(w) = open(true) else { return };
    let rounds = number("TENSORLOOM_ROUNDS").unwrap_or(1);
    let what = Suite { seed: run_seed(), graphs: 60 * rounds, every: if rounds > 1 { 1 } else { 12 } };
    let report = suite(&w, &what);
    report.failures.iter().for_each(|f| println!("{f}\n"));
    report.expect(&[("table", 60), ("random", 10), ("promises", 12)]);
}

#[test]
fn adapters_are_named_and_numbered() {
    let all = adapters();
    println!("{all:?}");
    let missing = Wgpu::open(Choice { number: 1000, strict: false }, Arc::new(cpu::Cpu::new(1)));
    let message = missing.err().expect("nobody has so many").to_string();
    assert!(message.contains("wgpu:1000") || message.contains("install a driver"), "{message}");
}
