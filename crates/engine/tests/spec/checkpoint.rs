use super::*;
use tensorloom_engine::Error;

fn body(x: &Tensor, w: &Tensor) -> Tensor {
    (x * w).tanh().exp()
}

#[test]
fn s10_gradients_are_those_of_the_plain_function() {
    let e = engine();
    let run = |checkpointed: bool| {
        let w = vec1(&e, &[0.5, -0.5]).requires_grad_();
        let x = vec1(&e, &[1.0, 2.0]).requires_grad_();
        let y = if checkpointed { e.checkpoint(&x, |x| body(&x, &w)).unwrap() } else { body(&x, &w) };
        y.sum().backward().unwrap();
        [&w, &x].map(|t| t.grad().unwrap().to_vec::<f32>().unwrap())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn s10_5_a_body_must_not_change_what_is_outside() {
    let e = engine();
    let (x, state) = (vec1(&e, &[1.0]), vec1(&e, &[1.0]));
    let err = e.checkpoint(&x, |x| state.add_(&x)).unwrap_err();
    assert!(matches!(err, Error::CheckpointImpureRegion { .. }), "{err}");
    let err = e.checkpoint(&x, |x| x.zero_()).unwrap_err();
    assert!(matches!(err, Error::CheckpointImpureRegion { .. }), "{err}");
    let inside = e.checkpoint(&x, |x| (&x * 2.0).add_scalar_(1)).unwrap();
    is(&inside, &[3.0]);
    is(&state, &[1.0]);
    let loss = e.checkpoint(&x, |x| {
        assert!(matches!(x.sum().backward(), Err(Error::CheckpointReentrancy { .. })));
        assert!(matches!(x.item::<f32>(), Err(Error::HostReadInCompile { .. })));
        x
    });
    loss.unwrap();
}

#[test]
fn s10_6_a_compiled_region_inside_must_only_read() {
    let e = engine();
    let (x, state) = (vec1(&e, &[1.0]), vec1(&e, &[1.0]));
    let pure = e.compile(|x: Tensor| &x * 3.0);
    is(&e.checkpoint(&x, |x| pure.call(x).unwrap()).unwrap(), &[3.0]);
    let writes = e.compile(|x: Tensor| state.add_(&x));
    e.checkpoint(&x, |x| {
        assert!(matches!(writes.call(x.clone()), Err(Error::CheckpointCompiledNotPure { .. })));
        x
    })
    .unwrap();
}

#[test]
fn s11_7_a_replayed_draw_is_the_same_and_advances_nothing() {
    let e = engine();
    e.manual_seed(3);
    let w = e.ones(F, &[64]).requires_grad_();
    let y = e.checkpoint(&w, |w| w.dropout(0.5).square()).unwrap();
    let kept = y.to_vec::<f32>().unwrap();
    y.sum().backward().unwrap();
    let g = w.grad().unwrap().to_vec::<f32>().unwrap();
    for (y, g) in kept.iter().zip(&g) {
        assert_eq!(*g, 2.0 * y, "the same mask in both passes");
    }
    assert!(kept.contains(&0.0) && kept.contains(&4.0));
    let after = e.rand(&[4]).to_vec::<f32>().unwrap();
    e.manual_seed(3);
    e.ones(F, &[64]).dropout(0.5);
    assert_eq!(e.rand(&[4]).to_vec::<f32>().unwrap(), after, "one draw happened, not two");
}

#[test]
fn s3_4_checkpoints_and_saved_slots_stand_in_the_plan() {
    let e = engine();
    let w = vec1(&e, &[0.5]).requires_grad_();
    let y = &e.checkpoint(&w, |w| w.tanh()).unwrap() * &w;
    e.force(&y).unwrap();
    let kinds: Vec<_> = e.inspect().last_plan.iter().map(|p| p.kind).collect();
    assert_eq!(kinds, ["checkpoint_boundary", "publish_saved_slot"]);
}
