//! The backend test suite on the CPU: with several threads, with one thread, and through the slower code generators.

use tensorloom_cpu::Cpu;
use testing::backend::{BackendSuite, run_suite};
use testing::rng::run_seed;

#[test]
fn the_cpu_passes_at_any_thread_count() {
    for threads in [1, 2, 3] {
        // Random graphs and the complete table have a separate test.
        let what = BackendSuite { seed: run_seed(), graphs: 50, every: 7 };
        run_suite(&Cpu::new(threads), &what).assert_passed(&[
            ("table", 100),
            ("random", 30),
            ("promises", 12),
            ("queue", 6),
        ]);
    }
}

#[test]
fn the_reference_evaluator_passes() {
    let what = BackendSuite { seed: run_seed(), graphs: 300, every: 3 };
    run_suite(&Cpu::with_target(1, None), &what).assert_passed(&[
        ("table", 200),
        ("random", 200),
        ("promises", 12),
        ("queue", 6),
    ]);
}
