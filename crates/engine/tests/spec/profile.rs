//! Profiles, and what is still held.

use crate::{F, engine, vec1};
use tensorloom_engine::{Phase, module, no_grad, phase};

#[test]
fn a_profile_names_phases_modules_and_ops() {
    let e = engine();
    let w = e.full(F, &[8, 8], 0.1).requires_grad_();
    let x = e.tensor(&[1.0f32; 32], &[4, 8]);
    let step = || {
        let y = module("first", || module("inner", || x.matmul(&w)));
        let loss = module("second", || y.tanh()).sum();
        loss.backward().unwrap();
        phase(Phase::Optimizer, || no_grad(|| w.sub_(&(0.1 * w.grad().unwrap()))));
        w.zero_grad();
        e.mark_step().unwrap();
    };
    // Buffers settle in a few steps: those of one step go back to the pool while the next one runs.
    (0..5).for_each(|_| step());
    let ((), profile) = e.profile(step);
    let names =
        |rows: Vec<(String, tensorloom_engine::ProfileSums)>| rows.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    let phases = names(profile.phases());
    assert!(["forward", "backward", "optimizer"].iter().all(|p| phases.iter().any(|x| x == p)), "{phases:?}");
    let modules = names(profile.modules());
    assert!(modules.contains(&"first.inner".to_string()) && modules.contains(&"second".to_string()), "{modules:?}");
    // The product's derivative belongs to the product's module.
    let back = profile.records.iter().filter(|r| r.phase == Phase::Backward && r.module == "first.inner");
    assert!(back.count() > 0, "{:#?}", profile.records);
    let product = profile.records.iter().find(|r| r.op.contains("dot")).expect("a product ran");
    assert_eq!(product.bytes, 4 * (4 * 8 + 8 * 8 + 4 * 8));
    assert!(product.at.contains("profile.rs"));
    assert!(profile.pool_reuse() > 0.9, "{}", profile.pool_reuse());
    assert_eq!(profile.live_before, profile.live_after.len());
    let text = profile.to_string();
    assert!(text.contains("first.inner") && text.contains("buffers reused"), "{text}");
    let trace = profile.trace();
    assert_eq!(trace.matches("\"ph\": \"X\"").count(), profile.records.len());
    assert_eq!(trace.matches('{').count(), trace.matches('}').count());
}

#[test]
fn a_region_shows_its_steps_and_how_much_it_fuses() {
    let e = engine();
    let x = e.full(F, &[64], 1.0);
    let f = e.compile(|x: tensorloom_engine::Tensor| ((&x * 2.0).tanh() + 1.0).exp());
    let ((), profile) = e.profile(|| drop(f.call(x.clone()).unwrap().to_vec::<f32>().unwrap()));
    assert!(!profile.steps().is_empty());
    assert!(profile.fusion_rate() > 0.5, "{}", profile.fusion_rate());
}

#[test]
fn what_is_held_names_its_line() {
    let e = engine();
    let kept = vec1(&e, &[1.0]).exp();
    let leaks = e.live_tensors();
    assert_eq!(leaks.len(), 1);
    assert!(leaks[0].created_at.to_string().contains("profile.rs"), "{leaks:?}");
    drop(kept);
    assert!(e.live_tensors().is_empty());
}

/// What backward needs of a composite is a further result of it, so it runs once.
#[test]
fn composites_run_once_for_value_and_gradient() {
    let e = engine();
    let x = e.tensor(&(0..12).map(|i| (i as f32).sin()).collect::<Vec<_>>(), &[3, 4]).requires_grad_();
    let (w, b) = (e.ones(F, &[4]).requires_grad_(), e.zeros(F, &[4]).requires_grad_());
    let (done, p) = e.profile(|| {
        let y = x.rmsnorm(&w, 1e-6).layernorm(&w, &b, 1e-6).softmax().relu();
        (&y * &y).sum().backward()?;
        e.mark_step()
    });
    done.unwrap();
    for name in ["rmsnorm", "layernorm", "softmax", "relu"] {
        assert_eq!(p.records.iter().filter(|r| r.op == name).count(), 1, "{name}\n{p}");
    }
}

/// Every use of a view records it anew, but what was computed from it is not computed again for backward.
#[test]
fn backward_uses_the_values_of_the_forward_pass_behind_views_too() {
    let e = engine();
    let w = e.tensor(&[0.5f32; 16], &[4, 4]).requires_grad_();
    let (done, p) = e.profile(|| {
        let q = w.tanh().view(&[2, 2, 4]);
        let (a, b) = (q.narrow(-1, 0, 2).exp(), q.narrow(-1, 2, 2).sin());
        let y = (&a * &b).matmul(&e.ones(F, &[2, 3])).square().sum();
        y.backward()?;
        e.mark_step()?;
        y.item::<f32>()
    });
    assert!(done.unwrap().is_finite());
    for (name, times) in [("tanh", 1), ("exp", 1), ("sin", 1), ("cos", 1), ("dot", 2)] {
        assert_eq!(p.records.iter().filter(|r| r.op == name).count(), times, "{name}\n{:#?}", p.records);
    }
}

/// One line that runs in several modules: each has its own share of the backward pass.
#[test]
fn repeated_blocks_have_their_own_backward() {
    let e = engine();
    let ws: Vec<_> = (0..3).map(|i| e.full(F, &[8, 8], 0.1 + 0.1 * i as f64).requires_grad_()).collect();
    let x = e.tensor(&[1.0f32; 32], &[4, 8]);
    let step = || {
        let block = |x: tensorloom_engine::Tensor, w: &tensorloom_engine::Tensor| x.matmul(w).tanh();
        let blocks = ws.iter().enumerate();
        let y = blocks.fold(x.clone(), |x, (i, w)| module(&format!("block{i}"), || block(x, w)));
        y.sum().backward().unwrap();
        e.force(&ws.iter().map(|w| w.grad().unwrap()).collect::<Vec<_>>()).unwrap();
        ws.iter().for_each(|w| w.zero_grad());
        e.mark_step().unwrap();
    };
    step();
    let ((), profile) = e.profile(step);
    let dots = |phase: Phase, module: &str| {
        let all = profile.records.iter();
        all.filter(|r| r.phase == phase && r.module == module && r.op.contains("dot")).count()
    };
    for i in 0..3 {
        let name = format!("block{i}");
        // The first block's input needs no gradient.
        let products = (dots(Phase::Forward, &name), dots(Phase::Backward, &name));
        assert_eq!(products, (1, if i == 0 { 1 } else { 2 }), "{name}: {:#?}", profile.records);
    }
    assert!(profile.records.iter().all(|r| r.at.contains("profile.rs")), "{:#?}", profile.records);
}
