//! The suite for backends on a WebGPU adapter with default limits and a browser's rules: lavapipe where there is no other.
//!
//! `TENSORLOOM_WGPU=1` takes the second adapter, `TENSORLOOM_ROUNDS=100` a hundred times the graphs. Where there is no adapter tests are
//! skipped; with `CI` set they fail.

#![cfg(feature = "wgpu")]

use compiler::{Backend, Error, Options};
use gpu::wgpu::{Choice, Wgpu, adapters};
use ir::{Build, Builder, DType, Graph, Literal, Scalar};
use oracle::backend::{Suite, bind, load, results, run, suite};
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

/// The sum of the elementwise product of two matrix products, each of which is in memory.
fn two_products(n: usize) -> (Graph, Vec<Literal>) {
    let f = DType::F32;
    let mut b = Builder::new();
    let (x, y) = (b.input(f, &[n, 4]), b.input(f, &[4, n]));
    let (z, w) = (b.input(f, &[n, 4]), b.input(f, &[4, n]));
    let made = (|| {
        let (p, q) = (b.matmul(x, y)?, b.matmul(z, w)?);
        let r = b.mul(p, q)?;
        b.sum_all(r)
    })();
    let graph = b.finish(&[made.expect("it type-checks")]);
    let ones = |shape: &[usize]| Literal::full(shape, Scalar::from_f64(f, 1.0));
    (graph, vec![ones(&[n, 4]), ones(&[4, n]), ones(&[n, 4]), ones(&[4, n])])
}

#[test]
fn an_arena_above_the_binding_limit_runs_and_one_above_the_buffer_limit_is_refused() {
    let Some(w) = open(true) else { return };
    // Two values of 97 MiB at once, where a binding has 128.
    let n = 5056;
    let (graph, inputs) = two_products(n);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    assert!(exe.arena_bytes() > 128 << 20, "{} bytes", exe.arena_bytes());
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    exe.run(&mut b).unwrap();
    let got = results(&*exe, &b).unwrap()[0].get(0).to_f64();
    let want = 16.0 * (n * n) as f64;
    assert!((got - want).abs() < 1e-5 * want, "{got} instead of {want}");
    // Two of 162 MiB: more than a kernel can bind of one value, and more than a buffer may have.
    let (graph, inputs) = two_products(6528);
    match run(&w, &graph, &inputs, &Options::default()) {
        Err(Error::OutOfMemory { bytes, hint }) if bytes > 128 << 20 && !hint.is_empty() => {}
        other => panic!("{other:?}"),
    }
    // And the device goes on.
    let (graph, inputs) = two_products(64);
    let got = run(&w, &graph, &inputs, &Options::default()).unwrap()[0].get(0).to_f64();
    assert_eq!(got, 16.0 * 64.0 * 64.0);
}

#[test]
fn a_lost_device_is_an_error_and_a_new_one_works() {
    let Some(w) = open(false) else { return };
    let (graph, inputs) = two_products(32);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    exe.run(&mut b).unwrap();
    w.lose();
    for _ in 0..2 {
        let e = exe.run(&mut b).expect_err("it is gone").to_string();
        assert!(e.contains("was lost") && e.contains("open the device again"), "{e}");
    }
    assert!(w.alloc(64).is_err());
    let Some(new) = open(false) else { return };
    let got = run(&new, &graph, &inputs, &Options::default()).unwrap()[0].get(0).to_f64();
    assert_eq!(got, 16.0 * 32.0 * 32.0);
}

#[test]
fn steps_leave_nothing_behind() {
    let Some(w) = open(false) else { return };
    let (graph, inputs) = two_products(40);
    let exe = load(&w, &graph, &Options::default()).unwrap();
    let mut b = bind(&w, &*exe, &inputs).unwrap();
    let steps = number("TENSORLOOM_STEPS").unwrap_or(100);
    let mut first = None;
    for k in 0..steps {
        exe.run(&mut b).unwrap();
        results(&*exe, &b).unwrap();
        let now = (w.usage(), w.kernels());
        if k >= 5 {
            assert_eq!(*first.get_or_insert(now), now, "step {k}");
        }
    }
}

#[test]
fn types_that_webgpu_lacks_are_refused_by_name() {
    let Some(w) = open(true) else { return };
    for d in [DType::F64, DType::I64, DType::U64] {
        let mut b = Builder::new();
        let x = b.input(d, &[4]);
        let y = b.add(x, x).expect("one type");
        let e = compiler::compile(&b.finish(&[y]), &w, &Options::default()).expect_err("it has none").to_string();
        assert!(e.contains(d.name()) && e.contains("cast it"), "{e}");
    }
}
