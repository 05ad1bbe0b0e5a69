use super::*;
use tensorloom_engine::{Error, no_grad};

#[test]
fn s1_6_a_compiled_call_executes_nothing() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let f = e.compile(|x: Tensor| (&x + 1.0).tanh());
    let y = f.call(x.clone()).unwrap();
    assert_eq!(e.inspect().pools[0].allocations, 1, "only x has memory");
    let expected = (&x + 1.0).tanh().to_vec::<f32>().unwrap();
    is(&y, &expected);
}

#[test]
fn s1_6_host_reads_while_staging_are_errors() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let outside = vec1(&e, &[1.0]);
    let f = e.compile(|x: Tensor| {
        for t in [&x, &(&x + 1.0), &outside] {
            assert!(matches!(t.to_vec::<f32>(), Err(Error::HostReadInCompile { .. })));
        }
        x
    });
    f.call(x).unwrap();
}

#[test]
fn s1_6_tensors_of_a_trace_do_not_escape() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let kept = std::sync::Mutex::new(None);
    let f = e.compile(|x: Tensor| {
        *kept.lock().unwrap() = Some(&x + 1.0);
        &x * 2.0
    });
    let y = f.call(x.clone()).unwrap();
    let stale = kept.lock().unwrap().take().unwrap();
    assert!(matches!(stale.to_vec::<f32>(), Err(Error::InvalidTraceTensorEscape { .. })));
    assert!((&stale + &x).check().is_err());
    is(&y, &[2.0]);
}

#[test]
fn s6_8_a_region_cannot_be_entered_from_inside_execution() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let f = e.compile(|x: Tensor| {
        assert!(matches!(e.mark_step(), Err(Error::EngineBusy { .. })));
        x.tanh()
    });
    f.call(x).unwrap();
}

#[test]
fn s8_2_variants_are_found_again_and_numbers_are_inputs() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    for lr in [0.1, 0.2, 0.3] {
        let f = e.compile(|x: Tensor| &x * lr);
        let y = f.call(x.clone()).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(y, [lr as f32, 2.0 * lr as f32]);
    }
    assert_eq!(e.inspect().variants, (1, 2, 1));
    e.compile(|x: Tensor| &x * 0.1).call(e.ones(F, &[3])).unwrap();
    assert_eq!(e.inspect().variants.0, 2, "another shape is another variant");
}

#[test]
fn s8_3_arguments_that_alias_are_one_base() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let f = e.compile(|(a, b): (Tensor, Tensor)| {
        a.add_scalar_(10);
        &b * 1.0
    });
    is(&f.call((x.clone(), x.slice(0, 1, 2, 1))).unwrap(), &[12.0]);
    let separate = f.call((vec1(&e, &[1.0, 2.0]), vec1(&e, &[2.0]))).unwrap();
    is(&separate, &[2.0]);
    assert_eq!(e.inspect().variants.0, 2, "aliasing is part of the variant");
}

#[test]
fn s8_10_in_place_ops_in_a_region_are_functionalised_and_stored_at_exit() {
    let e = engine();
    let state = vec1(&e, &[1.0, 2.0, 3.0]);
    let f = e.compile(|x: Tensor| {
        state.add_(&x);
        state.slice(0, 0, 1, 1).mul_scalar_(10);
        let early = &state * 1.0;
        state.zero_();
        early
    });
    let y = f.call(vec1(&e, &[1.0, 1.0, 1.0])).unwrap();
    let pending: Vec<_> = e.inspect().pending.iter().map(|p| p.kind).collect();
    assert_eq!(pending, ["loc_store_materialize", "loc_store_semantic", "base_commit", "base_commit", "base_commit"]);
    let keys: Vec<_> = e.inspect().pending.iter().map(|p| p.key.instance).collect();
    assert!(keys.iter().all(|k| *k == keys[0]), "8.6.0: one call, one schedule");
    is(&y, &[20.0, 3.0, 4.0]);
    is(&state, &[0.0, 0.0, 0.0]);
    e.mark_step().unwrap();
    assert_eq!(e.inspect().bases.iter().find(|b| Some(b.id) == state.base_id()).unwrap().commit_version, 3);
}

#[test]
fn s8_11_a_region_without_results_still_has_its_effects() {
    let e = engine();
    let state = vec1(&e, &[1.0]);
    let f = e.compile(|()| drop(state.add_scalar_(1)));
    f.call(()).unwrap();
    f.call(()).unwrap();
    e.mark_step().unwrap();
    is(&state, &[3.0]);
    assert_eq!(e.inspect().variants, (1, 1, 1));
}

#[test]
fn s8_returned_arguments_stay_the_same_tensor() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let f = e.compile(|x: Tensor| {
        x.add_scalar_(1);
        (x.index(0, 0), x)
    });
    let (v, y) = f.call(x.clone()).unwrap();
    assert_eq!((v.base_id(), y.base_id()), (x.base_id(), x.base_id()));
    is(&v, &[2.0]);
    x.zero_();
    is(&y, &[0.0, 0.0]);
}

#[test]
fn s9_2_backward_and_update_inside_one_region() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let f = e.compile(|x: Tensor| {
        let loss = (&w * &x).square().sum();
        loss.backward().unwrap();
        no_grad(|| w.sub_(&(0.1 * w.grad().unwrap())));
        loss
    });
    let x = vec1(&e, &[1.0, 1.0]);
    is(&f.call(x.clone()).unwrap(), &[5.0]);
    is(&w, &[0.8, 1.6]);
    is(&w.grad().unwrap(), &[2.0, 4.0]);
    // The gradient was not cleared: the second call adds to it.
    f.call(x).unwrap();
    let g = w.grad().unwrap().to_vec::<f32>().unwrap();
    assert!((g[0] - 3.6).abs() < 1e-5 && (g[1] - 7.2).abs() < 1e-5, "{g:?}");
}

#[test]
fn backward_through_a_compiled_call() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let f = e.compile(|x: Tensor| (&x * &x).sum());
    let y = f.call(&w * 3.0).unwrap();
    y.backward().unwrap();
    is(&w.grad().unwrap(), &[18.0, 36.0]);
}

#[test]
fn errors_inside_a_region_come_out_with_their_line() {
    let e = engine();
    let f = e.compile(|x: Tensor| x.matmul(&x));
    let err = f.call(e.zeros(F, &[2, 3])).unwrap_err().to_string();
    assert!(err.contains("regions.rs"), "{err}");
    let state = e.zeros(F, &[2]);
    let g = e.compile(|x: Tensor| drop(state.add_(&x)));
    g.call(e.zeros(F, &[3])).unwrap();
    assert!(e.mark_step().is_err(), "an error that nobody read");
    is(&state, &[0.0, 0.0]);
}

#[test]
fn s9_2_backward_in_a_region_goes_on_into_history_outside() {
    // With a leaf that both halves use, a tensor from outside in a loc, and one that the region changes before it is used.
    let run = |region: bool| {
        let e = engine();
        let w = vec1(&e, &[0.5, -1.5, 2.0]).requires_grad_();
        let u = vec1(&e, &[3.0, 1.0, -1.0]).requires_grad_();
        let a = &w * &w;
        let b = (&u * 2.0).sin();
        b.mul_(&w);
        let inside = |x: Tensor| {
            let loss = (&a * &x * &u + &b.exp() * &w).sum();
            loss.backward().unwrap();
            loss
        };
        let x = vec1(&e, &[1.0, 2.0, 3.0]);
        let loss = if region { e.compile(inside).call(x).unwrap() } else { inside(x) };
        e.force(&loss).unwrap();
        [w.grad(), u.grad()].map(|g| g.unwrap().to_vec::<f32>().unwrap())
    };
    let (lazy, region) = (run(false), run(true));
    for (x, y) in lazy.iter().flatten().zip(region.iter().flatten()) {
        assert!((x - y).abs() <= 1e-5 * x.abs().max(1.0), "{lazy:?} {region:?}");
    }
}

#[test]
fn s9_2_a_gradient_that_is_completed_outside_cannot_be_read_inside() {
    let e = engine();
    let w = vec1(&e, &[0.5, -1.5]).requires_grad_();
    let a = &w * &w;
    let f = e.compile(|x: Tensor| {
        (&a * &x).sum().backward().unwrap();
        w.grad().unwrap() * 2.0
    });
    let err = f.call(vec1(&e, &[1.0, 1.0])).unwrap_err();
    assert!(matches!(&err, Error::Autograd { .. }) && err.to_string().contains("after the call"), "{err}");
}
