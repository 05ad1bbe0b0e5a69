use super::*;

#[test]
fn s6_1_mark_step_runs_effects_that_nobody_reads() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    assert!(!e.inspect().locs[0].has_value);
    e.mark_step().unwrap();
    let i = e.inspect();
    assert!(i.locs[0].has_value && i.pending.is_empty());
}

#[test]
fn s6_6_a_step_resets_tokens_and_counts() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    assert!(e.inspect().bases[0].mutated_since_step);
    let epoch = e.inspect().epoch;
    e.mark_step().unwrap();
    let i = e.inspect();
    assert_eq!(i.epoch, epoch + 1);
    assert_eq!(i.tok_global, None);
    assert!(i.locs.iter().all(|l| l.token.is_none()));
    assert!(!i.bases[0].mutated_since_step);
    x.add_scalar_(1);
    is(&x, &[3.0]);
}

#[test]
fn s6_4_state_of_live_tensors_outlives_steps() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    for i in 0..3 {
        x.add_scalar_(1);
        e.mark_step().unwrap();
        assert!(e.inspect().locs[0].retained);
        is(&x, &[2.0 + i as f32]);
    }
}

#[test]
fn s7_outside_regions_ops_run_one_by_one() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let y = (&x + 1.0).tanh().exp();
    e.force(&y).unwrap();
    assert_eq!(e.inspect().kernels, 3, "one program for each op");
}

#[test]
fn other_shapes_need_no_other_kernels() {
    let e = engine();
    let step = |n: usize, m: usize| {
        let x = e.full(F, &[n, m], 0.5);
        let w = e.full(F, &[m, 8], 0.25).requires_grad_();
        let y = (x.tanh() * 2.0 + &x).softmax().matmul(&w);
        let y = y.t().exp().sum_axes(&[0], false);
        y.mean().backward().unwrap();
        w.sub_(&w.detach()).check().unwrap_err();
        w.grad().unwrap().sum().item::<f32>().unwrap()
    };
    // What differs between few and many elements is seen first: loops may be cut in parts, scratch may be used.
    let sizes = |i: usize| (17 + 3 * i, 33 + 5 * i);
    let mut counts = Vec::new();
    for i in 0..40 {
        step(sizes(i).0, sizes(i).1);
        counts.push(e.inspect().machine_kernels);
    }
    for i in 0..40 {
        step(sizes(i).0 + 1, sizes(i).1 + 2);
    }
    assert_eq!(counts[39], e.inspect().machine_kernels, "{counts:?}");
    assert!(counts[39] < 40, "{counts:?}");
}
