use super::*;
use tensorloom_engine::{Binding, EffectToken, StoreKind, after_all};

fn kinds(e: &Engine) -> Vec<&'static str> {
    e.inspect().pending.iter().map(|p| p.kind).collect()
}

#[test]
fn s3_1_after_all_is_associative_commutative_and_idempotent() {
    let t = [EffectToken(3), EffectToken(1), EffectToken(2)];
    let ab = after_all([t[0], t[1]]);
    assert_eq!(after_all(ab.iter().copied().chain([t[2]])), after_all([t[2], t[1], t[0]]));
    assert_eq!(after_all([t[0], t[0]]), after_all([t[0]]));
}

#[test]
fn s3_2_effects_advance_tok_global_even_if_nobody_looks() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    let y = vec1(&e, &[1.0]);
    let before = e.inspect().tok_global;
    x.add_(&y);
    let after = e.inspect().tok_global;
    assert!(after > before);
    drop(x);
    assert_eq!(kinds(&e), ["loc_store_materialize", "loc_store_semantic", "base_commit"]);
}

#[test]
fn s3_3_the_join_rule_orders_accesses_to_different_locs() {
    let e = engine();
    let (x, y) = (vec1(&e, &[1.0]), vec1(&e, &[2.0]));
    x.add_scalar_(1);
    y.add_scalar_(1);
    let pending = e.inspect().pending;
    for (i, event) in pending.iter().enumerate() {
        // Each event follows the one before, through tok_global, and produces a fresh token.
        assert_eq!(event.after.contains(&EffectToken(event.token.0.wrapping_sub(1))), i > 0);
        assert!(event.after.iter().all(|t| *t < event.token));
    }
    // A load of x joins the loc's own token with tok_global.
    let x_token = e.inspect().locs[0].token.unwrap();
    let global = e.inspect().tok_global.unwrap();
    let _read = x.tanh();
    let load = e.inspect().pending.into_iter().next_back().unwrap();
    assert_eq!(load.kind, "loc_load");
    assert!(load.after.contains(&x_token) && load.after.contains(&global));
    assert_eq!(e.inspect().tok_global, Some(load.token));
    assert_eq!(e.inspect().locs[0].token, Some(load.token));
}

#[test]
fn s1_2_reading_a_pure_value_forces_no_effects() {
    let e = engine();
    let (x, y) = (vec1(&e, &[1.0]), vec1(&e, &[2.0]));
    let z = x.tanh();
    y.add_scalar_(1);
    z.item::<f32>().unwrap();
    assert_eq!(e.inspect().pending.len(), 3, "the mutation of y has not run");
    is(&y, &[3.0]);
    assert_eq!(e.inspect().pending.len(), 0);
}

#[test]
fn s1_2_reading_forces_what_comes_before_and_not_what_comes_after() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    let y = &x * 10.0;
    x.add_scalar_(1);
    is(&y, &[20.0]);
    assert_eq!(kinds(&e), ["loc_load", "loc_store_semantic", "base_commit"]);
    is(&x, &[3.0]);
}

#[test]
fn s3_4_plan_linear_order_is_by_event_key_and_respects_tokens() {
    let run = || {
        let e = engine();
        let (x, y) = (vec1(&e, &[1.0]), vec1(&e, &[2.0]));
        x.add_(&y);
        y.mul_(&x);
        x.sub_(&y);
        e.mark_step().unwrap();
        e.inspect().last_plan
    };
    let (a, b) = (run(), run());
    assert_eq!(a, b, "the same program gives the same plan");
    assert!(a.is_sorted_by_key(|p| p.key));
    let stores: Vec<_> = a.iter().filter(|p| p.kind == "loc_store_semantic").map(|p| p.version).collect();
    assert_eq!(stores, [Some(1), Some(1), Some(2)]);
}

#[test]
fn s3_5_versions_are_persisted_when_the_force_completes() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    x.add_scalar_(1);
    let i = e.inspect();
    assert_eq!((i.bases[0].commit_version, i.bases[0].scheduled_commits), (0, 2));
    assert_eq!((i.locs[0].version, i.locs[0].logical_version, i.locs[0].has_value), (0, 2, false));
    e.mark_step().unwrap();
    let i = e.inspect();
    assert_eq!((i.bases[0].commit_version, i.bases[0].scheduled_commits), (2, 2));
    assert_eq!((i.locs[0].version, i.locs[0].logical_version, i.locs[0].has_value), (2, 2, true));
}

#[test]
fn s3_6_base_commit_is_unique() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let v = x.slice(0, 0, 1, 1);
    x.add_scalar_(1);
    v.fill_(7);
    x.copy_(&vec1(&e, &[1.0, 1.0]));
    e.mark_step().unwrap();
    let plan = e.inspect().last_plan;
    let mut commits: Vec<_> = plan.iter().filter_map(|p| p.commit).collect();
    assert_eq!(commits.len(), 3, "one for each mutation");
    assert!(commits.iter().all(|(base, _)| Some(*base) == x.base_id()));
    commits.dedup_by_key(|c| c.1);
    assert_eq!(commits.len(), 3, "every mutation has a number of its own");
    assert_eq!(e.inspect().bases.iter().find(|b| Some(b.id) == x.base_id()).unwrap().commit_version, 3);
}

#[test]
fn s3_6_stores_into_fresh_storage_leave_the_storage_version() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    e.mark_step().unwrap();
    let first = e.inspect().locs[0].storage_id;
    let old = &x + 0.0;
    x.add_scalar_(1);
    e.mark_step().unwrap();
    let i = e.inspect();
    assert_ne!(i.locs[0].storage_id, first);
    assert_eq!(i.locs[0].storage_version, Some(0));
    is(&old, &[2.0]);
    is(&x, &[3.0]);
}

#[test]
fn s3_7_mutation_rebinds_to_a_pending_loc_whose_initialiser_is_elided() {
    let e = engine();
    let x = vec1(&e, &[1.0]);
    assert_eq!(e.inspect().bases[0].binding, Binding::Ssa);
    x.add_scalar_(1);
    let i = e.inspect();
    let Binding::PendingLoc { loc, init_tok: Some(init) } = i.bases[0].binding else { panic!("{:?}", i.bases[0]) };
    assert_eq!((i.bases[0].binding_version, i.bases[0].logical_version), (1, 1));
    assert_eq!(i.pending[0].token, init);
    assert_eq!(i.pending[0].store, Some(StoreKind::Materialize));
    assert!(i.pending[1].after.contains(&init), "the first access comes after the initialiser");
    e.mark_step().unwrap();
    let i = e.inspect();
    assert!(i.last_plan[0].elided, "the semantic store makes it needless");
    assert_eq!(i.last_plan[1].version, Some(1));
    assert_eq!(i.bases[0].binding, Binding::Loc(loc), "6.3: a pending loc with a value is a loc");
    assert_eq!(i.bases[0].binding_version, 2);
}

#[test]
fn s3_7_the_seed_is_the_value_before_the_mutation() {
    let e = engine();
    let x = vec1(&e, &[1.0, 2.0]);
    let y = &x + 1.0;
    x.slice(0, 1, 2, 1).fill_(9);
    is(&y, &[2.0, 3.0]);
    is(&x, &[1.0, 9.0]);
}
