use super::*;
use tensorloom_engine::{GradScaler, autocast, no_grad};

#[test]
fn s12_autocast_narrows_products_and_widens_sums() {
    let e = engine();
    let (x, w) = (e.ones(F, &[2, 3]), e.ones(F, &[3, 4]));
    let f = e.compile(|(x, w): (Tensor, Tensor)| {
        autocast(DType::BF16, || {
            let y = x.matmul(&w);
            let s = y.sum();
            (y, s)
        })
    });
    let (y, s) = f.call((x.clone(), w.clone())).unwrap();
    assert_eq!((y.dtype(), s.dtype()), (DType::BF16, F));
    is(&s, &[24.0]);
    assert_eq!(x.matmul(&w).dtype(), F, "outside the scope nothing changes");
}

#[test]
fn s12_updates_are_gated_by_finite_gradients() {
    let e = engine();
    let w = vec1(&e, &[1.0]).requires_grad_();
    let scaler = GradScaler::with_options(&e, 8.0, 2.0, 0.5, 2);
    let step = e.compile(|x: Tensor| {
        let loss = (&w * &x).sum();
        scaler.scale(&loss).backward().unwrap();
        let finite = scaler.unscale_(std::slice::from_ref(&w)).unwrap();
        no_grad(|| w.copy_where_(&finite, &(&w - &(0.5 * w.grad().unwrap()))));
        scaler.update_(&finite);
        w.zero_grad();
        finite
    });
    let mut scales = Vec::new();
    for x in [1.0, f32::INFINITY, 1.0, 1.0, 1.0] {
        step.call(vec1(&e, &[x])).unwrap();
        scales.push(scaler.get_scale().item::<f32>().unwrap());
    }
    assert_eq!(scales, [8.0, 4.0, 4.0, 8.0, 8.0]);
    is(&w, &[-1.0]);
    assert_eq!(e.inspect().variants.0, 1);
}
