//! Options of regions, and what the engine tells about itself.

use super::*;
use tensorloom_engine::{CompileOptions, no_grad};

#[test]
fn options_of_a_region() {
    let e = engine();
    let x = e.tensor(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    let plain = e.compile(|x: Tensor| x.matmul(&x));
    let options = CompileOptions { autocast: Some(DType::BF16), ..CompileOptions::default() };
    let narrow = e.compile_with(options, |x: Tensor| x.matmul(&x));
    assert_eq!(plain.call(x.clone()).unwrap().dtype(), F);
    assert_eq!(narrow.call(x.clone()).unwrap().dtype(), DType::BF16);
    assert_eq!(x.matmul(&x).dtype(), F, "outside nothing changes");
    // Composites as the device's kernels or as the ops they are: two programs, one result.
    let by_kernel = e.compile(|x: Tensor| x.softmax());
    let options = CompileOptions { fuse_composites: false, ..CompileOptions::default() };
    let by_ops = e.compile_with(options, |x: Tensor| x.softmax());
    let (a, b) = (by_kernel.call(x.clone()).unwrap(), by_ops.call(x.clone()).unwrap());
    let near = |(x, y): (&f32, &f32)| (x - y).abs() < 1e-6;
    assert!(a.to_vec::<f32>().unwrap().iter().zip(&b.to_vec::<f32>().unwrap()).all(near));
    assert_ne!(by_kernel.keys(), by_ops.keys());
    // State beside the old one instead of over it.
    for in_place in [true, false] {
        let state = e.tensor(&[0.0f32; 4096], &[4096]);
        state.add_scalar_(1.0);
        e.mark_step().unwrap();
        let before = e.inspect().locs.iter().map(|l| l.storage_id).collect::<Vec<_>>();
        let options = CompileOptions { in_place, ..CompileOptions::default() };
        e.compile_with(options, |()| drop(state.mul_scalar_(2.0))).call(()).unwrap();
        e.mark_step().unwrap();
        let after = e.inspect().locs.iter().map(|l| l.storage_id).collect::<Vec<_>>();
        assert_eq!(before == after, in_place);
        assert_eq!(state.sum().item::<f32>().unwrap(), 8192.0);
    }
    let options = CompileOptions { name: Some("gate".into()), ..CompileOptions::default() };
    let named = e.compile_with(options, |x: Tensor| x.tanh());
    let (done, p) = e.profile(|| named.call(x.clone()).unwrap().to_vec::<f32>());
    done.unwrap();
    assert_eq!(p.modules()[0].0, "gate");
}

#[test]
fn programs_of_regions_can_be_listed_and_forgotten() {
    let e = engine();
    let f = e.compile(|x: Tensor| (&x * 2.0).tanh().sum());
    for n in [2, 3, 2] {
        f.call(e.arange(F, n)).unwrap().item::<f32>().unwrap();
    }
    let keys = e.variant_keys();
    assert_eq!(keys.len(), 2);
    let mut hashes: Vec<u64> = keys.iter().map(|k| k.hash).collect();
    hashes.sort_unstable();
    assert_eq!(f.keys(), hashes);
    let last = &keys[1];
    assert_eq!(last.inputs[0].to_string(), "f32[2]", "the least recently used comes first: {keys:?}");
    assert_eq!((last.outputs[0].to_string().as_str(), last.device), ("f32[]", 0));
    assert!(last.ops >= 3 && last.steps >= 1 && last.donated.is_empty());
    e.clear_caches();
    assert!(e.variant_keys().is_empty());
    let misses = e.inspect().variants.2;
    assert!((f.call(e.arange(F, 2)).unwrap().item::<f32>().unwrap() - 2f32.tanh()).abs() < 1e-6);
    assert_eq!(e.inspect().variants.2, misses + 1);
}

#[test]
fn events_are_logged_in_order() {
    let run = || {
        let e = engine();
        let x = vec1(&e, &[1.0]);
        x.add_scalar_(1);
        e.mark_step().unwrap();
        assert!(e.event_log().is_empty(), "nobody asked");
        e.enable_event_log(5);
        x.add_scalar_(1);
        e.mark_step().unwrap();
        x.mul_scalar_(3.0);
        is(&x, &[9.0]);
        e.event_log()
    };
    let log = run();
    let kinds: Vec<&str> = log.iter().map(|l| l.event.kind).collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"loc_load"), "the read");
    assert!(kinds.contains(&"loc_store_semantic") && kinds.contains(&"base_commit"), "{kinds:?}");
    assert!(log.windows(2).all(|w| (w[0].plan, w[0].event.key) < (w[1].plan, w[1].event.key)), "{log:?}");
    assert_eq!(run(), log, "every run tells the same");
}

#[test]
fn what_backward_keeps_is_listed() {
    let e = engine();
    let w = e.tensor(&[1.0f32; 6], &[2, 3]).requires_grad_();
    let x = e.tensor(&[2.0f32; 6], &[3, 2]);
    let h = w.matmul(&x);
    let y = h.exp();
    let loss = (&y + &h).sum();
    let saved = e.saved_tensors(&loss).unwrap();
    let rows: Vec<(String, String)> = saved.iter().map(|s| (s.op.clone(), s.ty.to_string())).collect();
    assert_eq!(rows[0], ("exp".into(), "f32[2,2]".into()), "its result: {rows:?}");
    assert!(rows.contains(&("dot".into(), "f32[3,2]".into())), "{rows:?}");
    assert!(saved.iter().all(|s| !s.modified && !s.freed && s.at.to_string().contains("look.rs")));
    assert_eq!(e.inspect().pending.len(), 0, "looking records nothing");
    no_grad(|| y.add_scalar_(1.0));
    let saved = e.saved_tensors(&loss).unwrap();
    assert!(saved.iter().any(|s| s.op == "exp" && s.modified), "{saved:?}");
    assert!(loss.backward().is_err());
    let fine = (&w * &w).sum();
    fine.backward().unwrap();
    assert!(e.saved_tensors(&fine).unwrap().iter().all(|s| s.freed || s.computed || s.op == "mul"));
    assert!(e.saved_tensors(&x).unwrap().is_empty());
}

#[test]
fn a_profile_says_what_was_not_fused() {
    let e = engine();
    let x = e.tensor(&[0.5f32; 4096], &[64, 64]);
    let (done, p) = e.profile(|| ((&x + 1.0).tanh() + (&x * 2.0).tanh()).to_vec::<f32>());
    done.unwrap();
    let tanh = p.unfused.iter().find(|u| u.op == "tanh f32[64,64]").unwrap_or_else(|| panic!("{p}"));
    assert_eq!((tanh.count, tanh.reason.as_str()), (2, "it ran outside of a compiled region"));
    let f = e.compile(|x: Tensor| ((&x + 1.0).tanh() + (&x * 2.0).tanh()).exp());
    let (done, p) = e.profile(|| f.call(x.clone()).unwrap().to_vec::<f32>());
    done.unwrap();
    assert!(p.unfused.is_empty(), "all of it is one kernel:\n{p}");
}
