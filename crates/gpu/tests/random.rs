//! Every kernel of random graphs, lowered to a grid for all kinds of targets and evaluated.

mod grids;

use grids::device::Device;
use grids::{Seen, agrees, kernels};
use testing::random::{Sample, SampleOptions as Shape, sample, shrink};
use testing::{Rng, rng::run_seed};

/// Pairs each input with the first unused output of its type.
fn donations(graph: &ir::Graph) -> Vec<(usize, usize)> {
    let (inputs, outputs) = (graph.input_types(), graph.output_types());
    let mut taken = vec![false; outputs.len()];
    let mut pairs = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        if let Some(o) = (0..outputs.len()).find(|&o| !taken[o] && outputs[o] == *t) {
            taken[o] = true;
            pairs.push((i, o));
        }
    }
    pairs
}

fn judge(s: &Sample, seen: &mut Seen) -> Result<(), String> {
    let mut rng = Rng::new(s.seed);
    let donate = if rng.bernoulli(0.5) { donations(&s.graph) } else { Vec::new() };
    let device = Device::random(&mut rng);
    for case in kernels(&s.graph, &device, donate)? {
        agrees(&case, &mut rng, seen)?;
    }
    Ok(())
}

#[test]
fn kernels_of_random_graphs_are_what_the_reference_computes() {
    let seed = run_seed();
    let count: u64 = std::env::var("TENSORLOOM_GRIDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1500);
    let mut seen = Seen::default();
    for k in 0..count {
        let s = sample(seed.wrapping_add(k), &Shape::ANY);
        if judge(&s, &mut seen).is_err() {
            let fails = |s: &Sample| judge(s, &mut Seen::default()).err();
            let small = shrink(&s, |c| fails(c).is_some());
            panic!("TENSORLOOM_SEED={} fails first: {small}\n{}", s.seed, fails(&small).unwrap_or_default());
        }
    }
    println!("{count} graphs: {seen:?}");
    // The sample must contain enough of each kind.
    let rare = [seen.waiting, seen.aliased, seen.looped];
    assert!(seen.kernels as u64 > count && seen.skipped < seen.kernels / 50, "{seen:?}");
    assert!(rare.iter().all(|n| *n as u64 > count / 50), "{seen:?}");
}
