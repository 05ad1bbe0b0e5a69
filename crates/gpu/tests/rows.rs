//! Random kernels that pass data through memory: the grid interpreter finds missing barriers; the results show
//! other errors.

mod grids;

use grids::rows::random_kernel;
use grids::{Seen, agrees};
use testing::{Rng, rng::run_seed};

#[test]
fn rows_pass_their_data_in_order() {
    let seed = run_seed();
    let count: u64 = std::env::var("TENSORLOOM_GRIDS").ok().and_then(|r| r.parse().ok()).unwrap_or(1000);
    let mut seen = Seen::default();
    for k in 0..count {
        let mut rng = Rng::new(seed.wrapping_add(k));
        let case = random_kernel(&mut rng);
        compiler::loops::verify(&case.kernel).unwrap_or_else(|e| panic!("{e}\n{}", case.kernel));
        if let Err(e) = agrees(&case, &mut rng, &mut seen) {
            panic!("TENSORLOOM_SEED={} fails first: {e}", seed.wrapping_add(k));
        }
    }
    println!("{count} kernels: {seen:?}");
    let rare = [seen.waiting, seen.wide, seen.spilled, seen.looped];
    assert!(seen.skipped == 0 && rare.iter().all(|n| *n as u64 > count / 200), "{seen:?}");
}
