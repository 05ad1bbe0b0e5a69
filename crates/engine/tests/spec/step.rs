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
