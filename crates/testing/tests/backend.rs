//! The backend suite on the simulated device, and on the same device with several injected faults.

use tensorloom_testing::backend::{BackendSuite, run_suite};
use tensorloom_testing::fake_device::{FakeDevice, InjectedFault};
use tensorloom_testing::rng::run_seed;

#[test]
fn a_late_device_with_narrow_limits_passes() {
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    let what = BackendSuite { seed: run_seed(), graphs: 1500 * rounds, every: 1 };
    run_suite(&FakeDevice::new(what.seed), &what).assert_passed(&[
        ("table", 700),
        ("random", 200),
        ("exact", 30),
        ("promises", 12),
        ("queue", 4),
    ]);
}

#[test]
fn each_fault_is_noticed() {
    for fault in [
        InjectedFault::MissingReadFence,
        InjectedFault::ShiftedReads,
        InjectedFault::AliasedOutput,
        InjectedFault::MissingWriteFence,
    ] {
        let what = BackendSuite { seed: 11, graphs: 40, every: 40 };
        let report = run_suite(&FakeDevice::with_fault(3, fault), &what);
        println!("{fault:?}: {report}");
        assert!(!report.failures.is_empty(), "{fault:?} passes");
    }
}

#[test]
fn what_runs_on_the_host_is_named() {
    let row = tensorloom_testing::samples::all_samples()
        .into_iter()
        .find(|r| r.op() == "sort" && r.inputs[0].ty().dtype == ir::DType::F32);
    let row = row.expect("sort has rows in f32");
    let (_, notes) = compiler::explain(&row.graph, &FakeDevice::new(1), &compiler::Options::default()).unwrap();
    let text = notes.to_string();
    assert!(text.contains("sort") && text.contains("on the host"), "{text}");
}
