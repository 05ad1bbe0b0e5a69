use super::*;
use tensorloom_engine::Error;

#[test]
fn s1_4_tidy_disposes_what_is_neither_returned_nor_kept() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let (mut lost, mut kept) = (None, None);
    let y = e.tidy(|| {
        let a = &x + 1.0;
        let b = &a + 1.0;
        lost = Some(a);
        let k = &b * 2.0;
        e.keep(&k);
        kept = Some(k);
        (b, Vec::<Tensor>::new())
    });
    is(&y.0, &[3.0]);
    is(&kept.unwrap(), &[6.0]);
    let lost = lost.unwrap();
    assert!(matches!(lost.to_vec::<f32>(), Err(Error::DisposedTensor { .. })));
    let err = (&lost + 1.0).check().unwrap_err().to_string();
    assert!(err.contains("lifetime.rs"), "{err}");
}

#[test]
fn s1_4_what_an_inner_tidy_returns_belongs_to_the_outer_one() {
    let e = engine();
    let mut inner = None;
    e.tidy(|| {
        let t = e.tidy(|| e.zeros(F, &[1]));
        inner = Some(t);
    });
    assert!(inner.unwrap().check().is_ok(), "returning marks a tensor as escaping");
}

#[test]
fn s1_4_dispose_is_idempotent_and_never_executes() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    x.dispose();
    x.dispose();
    e.dispose(&x);
    assert_eq!(e.inspect().pending.len(), 3);
    e.mark_step().unwrap();
    let i = e.inspect();
    assert_eq!((i.bases.len(), i.locs.len()), (0, 0), "its base and its state are gone");
}

#[test]
fn s1_4_drop_only_enqueues_and_entry_points_drain() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let y = vec1(&e, &[1.0]);
    drop(x);
    assert_eq!(e.inspect().bases.len(), 2, "nothing has changed yet");
    y.item::<f32>().unwrap();
    assert_eq!(e.inspect().bases.len(), 1);
}

#[test]
fn s14_buffers_of_dead_tensors_are_used_again() {
    let e = engine();
    let mut x = e.ones(F, &[1000]);
    for _ in 0..50 {
        x = &x + 1.0;
        x.item::<f32>().err();
        e.force(&x).unwrap();
    }
    let p = e.inspect().pools[0];
    assert!(p.allocations <= 8, "{p:?}");
    drop(x);
    e.mark_step().unwrap();
    assert_eq!(e.inspect().pools[0].live_bytes, 0, "no leaks");
}

#[test]
fn long_chains_drop_without_recursion() {
    let e = engine();
    let mut x = e.ones(F, &[2]);
    for _ in 0..100_000 {
        x = &x + &x;
    }
    drop(x);
    e.mark_step().unwrap();
    assert_eq!(e.inspect().bases.len(), 0);
}

#[test]
fn s1_3_text_shows_identity_and_no_data() {
    let e = engine();
    let x = vec1(&e, &[42.5]);
    let text = format!("{x} {x:?}");
    assert!(text.contains("f32[1]") && !text.contains("42.5"), "{text}");
}

#[test]
fn tensors_are_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Tensor>();
    check::<Engine>();
}

#[test]
fn s1_4_recording_and_dropping_without_reading_does_not_grow() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    for _ in 0..10_000 {
        drop(&x + 1.0);
    }
    assert!(e.inspect().bases.len() < 2_100, "{}", e.inspect().bases.len());
}
