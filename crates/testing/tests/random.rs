//! Laws checked on random graphs, with a new seed in each run.

use tensorloom_testing::check::{self, GradOutcome};
use tensorloom_testing::random::{Sample, SampleOptions, sample, shrink};
use tensorloom_testing::{Coverage, Rng, rng::run_seed};

/// Runs `f` over `count` graphs; a failure reports the seed that reproduces the graph.
fn each(count: u64, options: SampleOptions, f: impl Fn(&Sample, &mut Rng) -> Result<(), String>) -> Coverage {
    let seed = run_seed();
    let mut coverage = Coverage::default();
    // TENSORLOOM_ROUNDS=50 runs more graphs, to find rare bugs.
    let rounds: u64 = std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    for k in 0..count * rounds {
        let s = sample(seed.wrapping_add(k), &options);
        coverage.add(&s.graph);
        if f(&s, &mut Rng::new(s.seed)).is_err() {
            let small = shrink(&s, |c| f(c, &mut Rng::new(c.seed)).is_err());
            let error = f(&small, &mut Rng::new(s.seed)).unwrap_err();
            panic!("TENSORLOOM_SEED={} fails first: {error}\nshrunk from {s}", s.seed);
        }
    }
    coverage
}

#[test]
fn text_round_trips() {
    let coverage = each(10_000, SampleOptions::ANY, |s, _| {
        check::check_verifier(&s.graph)?;
        check::check_text_roundtrip(&s.graph)
    });
    println!("{coverage}");
    // The generator must cover all ops, with many dtypes and many pairs of ops.
    assert!(coverage.names().len() > 140, "{coverage}");
    assert!(coverage.ops.len() > 1000, "{coverage}");
    assert!(coverage.pairs.len() > 8000, "{coverage}");
}

#[test]
fn gradients_equal_finite_differences() {
    let settled = std::cell::Cell::new(0);
    let coverage = each(2_000, SampleOptions::SMOOTH, |s, rng| {
        if check::check_grads(&s.graph, &s.inputs, rng)? == GradOutcome::Agrees {
            settled.set(settled.get() + 1);
        }
        Ok(())
    });
    println!("{} of 2000 settled; {coverage}", settled.get());
    assert!(settled.get() > 1_800, "finite differences settle for {} graphs only", settled.get());
}

#[test]
fn second_derivatives_equal_finite_differences() {
    let settled = std::cell::Cell::new(0);
    each(500, SampleOptions::SMOOTH, |s, rng| {
        if check::check_second_order(&s.graph, &s.inputs, rng)? == GradOutcome::Agrees {
            settled.set(settled.get() + 1);
        }
        Ok(())
    });
    assert!(settled.get() > 400, "finite differences settle for {} graphs only", settled.get());
}

#[test]
fn vmap_equals_a_loop() {
    each(500, SampleOptions::ANY, |s, rng| check::check_vmap(&s.graph, &s.inputs, rng));
}

#[test]
fn gradients_of_batches_equal_finite_differences() {
    each(300, SampleOptions::SMOOTH, |s, rng| {
        let (wide, inputs) = check::batched(&s.graph, &s.inputs, rng)?;
        check::check_grads(&wide, &inputs, rng).map(|_| ())
    });
}
