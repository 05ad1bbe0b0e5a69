use super::*;
use tensorloom_engine::{EngineOptions, Error};

fn limited(bytes: usize) -> Engine {
    let options = EngineOptions { memory_limit: Some(bytes), ..EngineOptions::default() };
    Engine::with_backends(vec![Arc::new(cpu::Cpu::new(1))], &options)
}

/// More than any machine has.
const HUGE: usize = 1 << 50;

#[test]
fn s6_7_memory_that_can_not_be_had_is_an_error_and_no_more() {
    let e = engine();
    let state = vec1(&e, &[1.0, 2.0]);
    state.add_scalar_(1.0);
    // In an op, in a plan with effects, in a region, when a tensor is made, in a read of a view.
    let huge = e.zeros(F, &[HUGE]);
    let err = (&huge + 1.0).sum().item::<f32>().unwrap_err();
    assert!(matches!(&err, Error::OutOfMemory { bytes, .. } if *bytes >= HUGE), "{err}");
    assert!(err.to_string().contains("memory.rs"), "{err}");
    let err = (&huge + &state.sum()).sum().item::<f32>().unwrap_err();
    assert!(matches!(err, Error::OutOfMemory { .. }), "{err}");
    let f = e.compile(|x: Tensor| (x.expand(&[HUGE as isize]).tanh(), state.mul_scalar_(2.0)));
    let (y, _) = f.call(vec1(&e, &[1.0])).unwrap();
    let err = y.to_vec::<f32>().unwrap_err();
    assert!(matches!(err, Error::OutOfMemory { .. }), "{err}");
    drop(y);
    assert!(!e.inspect().poisoned);
    // What the failed region would have written is still to come, and can't.
    assert!(matches!(state.to_vec::<f32>(), Err(Error::OutOfMemory { .. })));
    is(&(vec1(&e, &[1.0]) + 1.0), &[2.0]);
}

#[test]
fn s6_7_effects_wait_until_there_is_memory() {
    let e = limited(1 << 20);
    let x = vec1(&e, &[1.0, 2.0]);
    e.mark_step().unwrap();
    let ballast = e.arange(F, 200_000);
    e.force(&ballast).unwrap();
    // The first two stores would be fine; the third one's value needs more than there is.
    x.add_scalar_(1.0);
    let y = e.ones(F, &[100_000]);
    y.add_scalar_(2.0);
    x.mul_(&y.narrow(0, 0, 2));
    let err = e.mark_step().unwrap_err();
    assert!(matches!(err, Error::MemoryLimit { limit, .. } if limit == 1 << 20), "{err}");
    assert!(err.to_string().contains("raise"), "{err}");
    let seen = e.inspect();
    assert!(!seen.poisoned && seen.bases.iter().all(|b| b.commit_version == 0), "commits are of whole plans");
    assert!(e.mark_step().is_err());
    drop(ballast);
    e.mark_step().unwrap();
    is(&x, &[6.0, 9.0]);
    assert_eq!(y.sum().item::<f32>().unwrap(), 300_000.0);
}

#[test]
fn s6_7_a_region_that_finds_no_memory_for_its_results_has_changed_nothing() {
    let e = limited(1 << 20);
    let state = e.tensor(&[1.0f32; 1000], &[1000]);
    state.add_scalar_(1.0);
    e.mark_step().unwrap();
    let f = e.compile(|x: Tensor| {
        state.mul_scalar_(2.0);
        x.unsqueeze(0).expand(&[300, -1]).tanh()
    });
    // The state's new value would be written over the old one, but the result does not fit.
    let large = f.call(e.arange(F, 1000)).unwrap();
    assert!(matches!(large.to_vec::<f32>(), Err(Error::MemoryLimit { .. })));
    assert!(!e.inspect().poisoned);
    assert!(state.sum().item::<f32>().is_err(), "it waits for the region");
    let small = e.compile(|x: Tensor| x.tanh().sum());
    assert!(small.call(e.arange(F, 10)).unwrap().item::<f32>().unwrap() > 8.0);
}

#[test]
fn s6_7_writes_that_nobody_can_see_do_not_stand_in_the_way() {
    let e = limited(1 << 20);
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1.0);
    let large = e.zeros(F, &[1 << 20]);
    large.add_scalar_(1.0);
    x.add_scalar_(1.0);
    assert!(matches!(e.mark_step(), Err(Error::MemoryLimit { .. })));
    drop(large);
    e.mark_step().unwrap();
    is(&x, &[3.0]);
    let i = e.inspect();
    assert_eq!((i.pending.len(), i.locs.len()), (0, 1), "nothing is left of it");
}

#[test]
fn a_limit_holds_for_what_waits_to_be_used_again_too() {
    let e = limited(8 << 20);
    // Each size leaves a buffer behind that the next can't use.
    for k in 1..12 {
        let t = e.arange(DType::U8, k * 600_000);
        e.force(&t).unwrap();
        let p = e.inspect().pools[0];
        assert!(p.live_bytes + p.free_bytes <= 8 << 20, "{p:?}");
        drop(t);
        e.mark_step().unwrap();
    }
    let err = e.tensor(&vec![0u8; 9 << 20], &[9 << 20]).check().unwrap_err();
    assert!(matches!(err, Error::MemoryLimit { .. }), "{err}");
}

#[test]
fn the_pool_keeps_what_the_program_lately_used_and_no_more() {
    let e = engine();
    let step = |n: usize| {
        let x = e.ones(F, &[n]);
        let y = (&x + 1.0).tanh() * &x;
        e.force(&y.sum()).unwrap();
        drop((x, y));
        e.mark_step().unwrap();
        e.inspect().pools[0]
    };
    let large = step(8 << 20);
    assert!(large.free_bytes >= 32 << 20, "what a step used is there for the next: {large:?}");
    let again = step(8 << 20);
    assert_eq!(again.allocations, large.allocations, "a step that repeats takes nothing from the system");
    let mut small = step(1 << 10);
    for _ in 0..3 {
        small = step(1 << 10);
    }
    assert!(small.free_bytes <= 1 << 20, "{small:?}");
    assert!(small.free_bytes <= small.peak_bytes);
}

#[test]
fn buffers_are_counted_by_size() {
    let e = engine();
    for _ in 0..3 {
        let t = e.zeros(F, &[1000]) + 1.0;
        e.force(&t).unwrap();
        drop(t);
        e.mark_step().unwrap();
    }
    let sizes = e.allocation_histogram(0);
    let of = sizes.iter().find(|s| s.bytes >= 4000).unwrap();
    assert!(of.allocations > 0 && of.reuses > 0 && of.free > 0 && of.live == 0, "{of:?}");
    let p = e.inspect().pools[0];
    let sums = sizes.iter().fold((0, 0, 0), |s, x| (s.0 + x.allocations, s.1 + x.reuses, s.2 + x.free * x.bytes));
    assert_eq!(sums, (p.allocations, p.reuses, p.free_bytes));
    e.clear_caches();
    let p = e.inspect();
    assert_eq!((p.pools[0].free_bytes, p.kernels, p.variants.0), (0, 0, 0));
    is(&(vec1(&e, &[1.0]) + 1.0), &[2.0]);
}

#[test]
fn sums_of_bytes_make_no_wide_copy() {
    let e = engine();
    let x = e.tensor(&vec![3u8; 4 << 20], &[2, 2 << 20]);
    let check = |t: Tensor, expected: &[f64]| {
        let before = e.inspect().pools[0];
        assert_eq!(t.to_vec::<f64>().unwrap(), expected);
        let after = e.inspect().pools[0];
        assert!(after.peak_bytes < (4 << 20) + (1 << 20), "{before:?} {after:?}");
    };
    check(x.sum(), &[(12 << 20) as f64]);
    check(x.sum_axes(&[1], false), &[(6 << 20) as f64; 2]);
    check(x.mean(), &[3.0]);
    check(x.narrow(1, 5, 100).t().sum(), &[600.0]);
    check(x.sum_in(DType::F64, &[0, 1], false), &[(12 << 20) as f64]);
    check(x.narrow(1, 0, 3).prod_axes(&[1], false), &[27.0, 27.0]);
    assert_eq!((x.sum().dtype(), x.mean().dtype()), (DType::I64, DType::F32));
    let err = x.sum_axes(&[7], false).check().unwrap_err().to_string();
    assert!(err.contains("reduce_sum") && err.contains('7'), "{err}");
}
