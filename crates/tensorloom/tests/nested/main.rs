//! Random nestings of transforms against what they mean, element by element.
//!
//! `LOOM_NESTED_SECONDS=600` runs new programs for as long, from `LOOM_NESTED_SEED` if it is set.

mod plain;
mod program;
mod traced;

use program::{Program, program};
use std::time::{Duration, Instant};
use testing::rng::{Rng, run_seed};

/// Programs in a run of the suite.
const PROGRAMS: u64 = 300;

fn inputs(p: &Program, rng: &mut Rng) -> Vec<Vec<f64>> {
    p.inputs.iter().map(|s| (0..s.iter().product()).map(|_| rng.uniform(-1.0, 1.0)).collect()).collect()
}

/// What differs, or whether anything could be compared.
fn check(seed: u64, size: usize) -> Result<bool, String> {
    let mut rng = Rng::new(seed);
    let p = program(&mut rng, size);
    let inputs = inputs(&p, &mut rng);
    let expected = plain::run(&p, &inputs);
    if expected.iter().flatten().any(|x| !x.is_finite() || x.abs() > 1e6) {
        return Ok(false);
    }
    let fail = |what: String| Err(format!("seed {seed}, size {size}: {what}\ninputs {inputs:?}\n{p}"));
    let found = match traced::run(&p, &inputs) {
        Ok(found) => found,
        Err(e) => return fail(e.to_string()),
    };
    for (i, (x, y)) in found.iter().zip(&expected).enumerate() {
        let near = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-9 * (1.0 + y.abs());
        if x.len() != y.len() || !x.iter().zip(y).all(near) {
            return fail(format!("value {i} is {x:?}, not {y:?}"));
        }
    }
    Ok(true)
}

#[test]
fn nested_transforms_do_what_they_mean() {
    let seconds = std::env::var("LOOM_NESTED_SECONDS").ok().and_then(|s| s.parse().ok());
    let first = std::env::var("LOOM_NESTED_SEED").ok().and_then(|s| s.parse().ok());
    let first = first.unwrap_or_else(|| if seconds.is_some() { run_seed() } else { 1 });
    let (start, mut compared, mut tried) = (Instant::now(), 0, 0);
    loop {
        let go_on = match seconds {
            Some(s) => start.elapsed() < Duration::from_secs(s),
            None => tried < PROGRAMS,
        };
        if !go_on {
            break;
        }
        match check(first.wrapping_add(tried), (tried % 7) as usize) {
            Ok(c) => compared += u64::from(c),
            Err(text) => panic!("after {tried} programs: {text}"),
        }
        tried += 1;
    }
    println!("{compared} of {tried} programs compared, 0 differences");
    assert!(compared * 10 > tried * 9, "{compared} of {tried} programs could be compared");
}
