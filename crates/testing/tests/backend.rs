//! The suite for backends on a device that is nothing like a CPU, and on the same device broken in several ways.

use tensorloom_testing::backend::{Suite, suite};
use tensorloom_testing::fake::{Fake, Fault};
use tensorloom_testing::rng::run_seed;

#[test]
fn a_late_device_with_narrow_limits_passes() {
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    let what = Suite { seed: run_seed(), graphs: 1500 * rounds, every: 1 };
    suite(&Fake::new(what.seed), &what).expect(&[
        ("table", 700),
        ("random", 200),
        ("exact", 30),
        ("promises", 12),
        ("queue", 4),
    ]);
}

#[test]
fn each_fault_is_noticed() {
    for fault in [Fault::Fence, Fault::Offset, Fault::Alias, Fault::Read] {
        let what = Suite { seed: 11, graphs: 40, every: 40 };
        let report = suite(&Fake::broken(3, fault), &what);
        println!("{fault:?}: {report}");
        assert!(!report.failures.is_empty(), "{fault:?} passes");
    }
}

#[test]
fn what_runs_on_the_host_is_named() {
    let row = tensorloom_testing::rows::all()
        .into_iter()
        .find(|r| r.op() == "sort" && r.inputs[0].ty().dtype == ir::DType::F32);
    let row = row.expect("sort has rows in f32");
    let (_, notes) = compiler::explain(&row.graph, &Fake::new(1), &compiler::Options::default()).unwrap();
    let text = notes.to_string();
    assert!(text.contains("sort") && text.contains("on the host"), "{text}");
}
