//! The suite for backends, on the CPU: with several threads, with one, and through the slower code generators.

use tensorloom_cpu::Cpu;
use testing::backend::{Suite, suite};
use testing::rng::run_seed;

#[test]
fn the_cpu_passes_at_any_thread_count() {
    for threads in [1, 2, 3] {
        // Random graphs and the whole table have a test of their own.
        let what = Suite { seed: run_seed(), graphs: 50, every: 7 };
        suite(&Cpu::new(threads), &what).expect(&[("table", 100), ("random", 30), ("promises", 12), ("queue", 6)]);
    }
}

#[test]
fn the_reference_evaluator_passes() {
    let what = Suite { seed: run_seed(), graphs: 300, every: 3 };
    suite(&Cpu::with_target(1, None), &what).expect(&[("table", 200), ("random", 200), ("promises", 12), ("queue", 6)]);
}
