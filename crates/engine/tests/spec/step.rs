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
fn programs_for_other_shapes_share_their_machine_code() {
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
    // Sizes are arguments; what is left differs by classes of sizes: whether loops are cut in parts, and in how many.
    for i in 0..60 {
        step(17 + 3 * i, 33 + 5 * i);
    }
    let seen = e.inspect();
    assert!(seen.kernels > 500, "every shape has its programs: {}", seen.kernels);
    assert!(seen.machine_kernels < 60, "{}", seen.machine_kernels);
}
