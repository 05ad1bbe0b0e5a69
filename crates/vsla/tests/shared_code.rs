//! Code that ops share, counted in a process of its own: whatever runs beside it would compile too.

use tensorloom_vsla::{Backend, Tensor};

/// Other shapes of an op that is known cost no new code.
#[test]
fn s18_ops_one_by_one_share_their_code() {
    let backend = Backend::global();
    let add = |n: usize, m: usize| {
        let (a, b) = (Tensor::vector(&vec![1f64; n]), Tensor::vector(&vec![2f64; m]));
        let sum = a.add(&b).unwrap().to_vec::<f64>();
        let wanted: Vec<f64> =
            (0..n.max(m)).map(|i| f64::from(u8::from(i < n)) + 2.0 * f64::from(u8::from(i < m))).collect();
        assert_eq!(sum, wanted);
    };
    (100..110).for_each(|n| add(n, n));
    let before = backend.kernels();
    (110..400).for_each(|n| add(n, n));
    assert!(backend.kernels() <= before + 2, "{before} kernels became {}", backend.kernels());
    assert!(tensorloom_vsla::eager::cached_plans() > 0);
    tensorloom_vsla::eager::clear_plan_cache();
    add(7, 9);
}
