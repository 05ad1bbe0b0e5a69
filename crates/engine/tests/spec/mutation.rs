use super::*;
use tensorloom_engine::{LocRole, no_grad};

#[test]
fn s4_3_in_place_ops_change_all_aliases() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let alias = x.clone();
    let flat = x.reshape(&[2, 1]);
    x.add_(&vec1(&e, &[10.0, 10.0]));
    x.sub_(&e.full(F, &[], 1));
    x.mul_(&vec1(&e, &[2.0, 3.0]));
    x.div_(&vec1(&e, &[4.0, 1.0]));
    is(&alias, &[5.0, 33.0]);
    is(&flat, &[5.0, 33.0]);
    x.fill_(2.5);
    is(&flat, &[2.5, 2.5]);
    x.zero_();
    is(&alias, &[0.0, 0.0]);
}

#[test]
fn s4_3_the_destination_is_externalised_with_role_tensor_state() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.zero_();
    e.mark_step().unwrap();
    let locs = e.inspect().locs;
    assert_eq!(locs.len(), 1);
    assert_eq!(locs[0].role, LocRole::TensorState);
    assert!(locs[0].retained, "2.4: state is held strongly");
}

#[test]
fn s3_4_values_taken_before_a_mutation_keep_their_value_whenever_they_run() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.zero_();
    let mut seen = Vec::new();
    for i in 0..5 {
        seen.push(&x + 100.0);
        x.add_scalar_(i);
    }
    is(&x, &[10.0]);
    for (y, expected) in seen.iter().zip([100.0, 100.0, 101.0, 103.0, 106.0]) {
        is(y, &[expected]);
    }
}

#[test]
fn in_place_ops_refuse_results_that_do_not_fit() {
    let e = engine();
    let i = e.tensor(&[1i32, 2], &[2]);
    assert!(i.add_scalar_(0.5).check().is_err());
    assert!(i.add_(&e.ones(F, &[2])).check().is_err());
    assert!(i.add_(&e.ones(DType::I32, &[3, 2])).check().is_err());
    assert_eq!(i.to_vec::<i32>().unwrap(), [1, 2]);
    assert!(e.mark_step().is_ok(), "all errors were read");
}

#[test]
fn s5_reading_a_value_again_runs_nothing() {
    let e = engine();
    let x = vec1(&e, &[1.0]).tanh();
    let a = x.item::<f32>().unwrap();
    let kernels = e.inspect().pools[0];
    assert_eq!(x.item::<f32>().unwrap(), a);
    assert_eq!(e.inspect().pools[0].allocations, kernels.allocations);
}

#[test]
fn a_leaf_changes_in_place_only_without_gradients() {
    let e = engine();
    let w = vec1(&e, &[1.0]).requires_grad_();
    assert!(w.add_scalar_(1).check().is_err());
    assert!(w.reshape(&[1, 1]).add_scalar_(1).check().is_err());
    no_grad(|| w.add_scalar_(1)).check().unwrap();
    w.detach().add_scalar_(1).check().unwrap();
    is(&w, &[3.0]);
    assert!(w.requires_grad() && w.is_leaf());
}

#[test]
fn large_tensors_and_numbers() {
    let e = engine();
    let x = e.ones(F, &[512, 1024]);
    x.mul_scalar_(3);
    let y = &x * 2.0 - 1.0;
    assert_eq!(y.sum().item::<f32>().unwrap(), 5.0 * 512.0 * 1024.0);
    let f = e.compile(|x: Tensor| (&x * 0.5 + 1.0).mean());
    is(&f.call(y).unwrap(), &[3.5]);
}

#[test]
fn s5_3_a_store_takes_over_the_buffer_that_nobody_else_needs() {
    let e = engine();
    let x = e.zeros(F, &[1000]);
    x.add_scalar_(1);
    let held = |e: &Engine| {
        let i = e.inspect();
        let loc = i.locs.iter().find(|l| l.ty.shape[..] == [1000]).unwrap();
        (loc.storage_id.unwrap(), loc.storage_version.unwrap(), loc.version)
    };
    e.mark_step().unwrap();
    let (id, version, stores) = held(&e);
    // An op, a region, and a write through a view.
    let two = e.compile(|x: Tensor| drop(x.mul_scalar_(2)));
    for k in 1..=3 {
        x.add_scalar_(1);
        e.mark_step().unwrap();
        two.call(x.clone()).unwrap();
        e.mark_step().unwrap();
        x.slice(0, 0, 10, 1).fill_(0);
        e.mark_step().unwrap();
        assert_eq!(held(&e), (id, version + 3 * k, stores + 3 * k));
    }
    let last = ((1.0 + 1.0) * 2.0 + 1.0) * 2.0 + 1.0;
    assert_eq!(x.to_vec::<f32>().unwrap()[9..12], [0.0, last * 2.0, last * 2.0]);
}

#[test]
fn s5_3_a_buffer_that_somebody_needs_is_left_alone() {
    let e = engine();
    let w = vec1(&e, &[1.0, 1.0]).requires_grad_();
    let check = |take: &dyn Fn(&Tensor) -> Tensor| {
        let x = vec1(&e, &[1.0, 2.0]);
        x.add_scalar_(1);
        e.mark_step().unwrap();
        let y = take(&x);
        x.add_scalar_(1);
        e.compile(|x: Tensor| drop(x.mul_scalar_(3))).call(x.clone()).unwrap();
        e.mark_step().unwrap();
        is(&x, &[9.0, 12.0]);
        is(&y, &[2.0, 3.0]);
    };
    check(&|x| x + 0.0);
    check(&|x| x.copy());
    check(&|x| {
        let y = x * &w;
        e.force(&y).unwrap();
        y
    });
    // A value that was loaded, and is seen through a view.
    check(&|x| {
        let f = e.compile(|x: Tensor| x + 0.0);
        f.call(x.flip(&[0])).unwrap().flip(&[0])
    });
}

#[test]
fn an_update_in_place_takes_no_buffer_for_its_result() {
    let e = engine();
    let x = e.zeros(F, &[1000]);
    x.add_scalar_(1);
    e.mark_step().unwrap();
    let taken = || {
        let pool = e.inspect().pools[0];
        pool.allocations + pool.reuses
    };
    let step = e.compile(|()| drop(x.mul_scalar_(0.5)));
    for _ in 0..3 {
        let before = taken();
        step.call(()).unwrap();
        e.mark_step().unwrap();
        assert_eq!(taken() - before, 1, "the number");
    }
    is(&x.slice(0, 0, 1, 1), &[0.125]);
}

/// A value may be computed long before it is stored: what was read in between is what was there then.
#[test]
fn what_is_read_before_a_store_is_what_was_there() {
    for k in 0..16 {
        let e = engine();
        let x = vec1(&e, &[1.0, 4.0]);
        let was = if k & 1 == 0 {
            x.fill_(4.0);
            [4.0, 4.0]
        } else {
            x.mul_scalar_(1.0);
            [1.0, 4.0]
        };
        if k & 2 == 2 {
            e.mark_step().unwrap();
        }
        let root = x.sqrt();
        let read = x.sum();
        if k & 4 == 4 {
            x.mul_scalar_(3.0);
        }
        x.copy_(&root);
        if k & 8 == 0 {
            is(&x, &was.map(f32::sqrt));
        }
        is(&read, &[was[0] + was[1]]);
        is(&x, &was.map(f32::sqrt));
    }
}
