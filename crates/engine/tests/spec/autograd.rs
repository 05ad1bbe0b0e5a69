use super::*;
use tensorloom_engine::{BackwardOptions, Error, LocRole, no_grad};

#[test]
fn s9_1_backward_is_lazy_and_rooted_in_tok_global() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let before = e.inspect().tok_global;
    (&w * &w).sum().backward().unwrap();
    let i = e.inspect();
    assert!(i.tok_global > before);
    let loc = i.locs.iter().find(|l| l.role == LocRole::GradState).unwrap();
    assert!(!loc.has_value, "nothing has run");
    e.mark_step().unwrap();
    assert!(e.inspect().locs[0].has_value, "the step ran backward though nobody read the gradient");
    is(&w.grad().unwrap(), &[2.0, 4.0]);
}

#[test]
fn s9_4_gradients_accumulate_in_leaves_alone() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let y = &w * 3.0;
    y.sum().backward().unwrap();
    assert!(y.grad().is_none());
    (&w * &w).sum().backward().unwrap();
    is(&w.grad().unwrap(), &[5.0, 7.0]);
    // A leaf used through a view, twice.
    w.zero_grad();
    (w.reshape(&[2, 1]).sum() + w.index(0, 0) * 10.0).backward().unwrap();
    is(&w.grad().unwrap(), &[11.0, 1.0]);
}

#[test]
fn s9_5_zero_grad_leaves_a_tombstone() {
    let e = engine();
    let w = vec1(&e, &[1.0]).requires_grad_();
    w.sum().backward().unwrap();
    let g = w.grad().unwrap();
    w.zero_grad();
    assert!(w.grad().is_none());
    assert!(matches!(g.to_vec::<f32>(), Err(Error::InvalidatedGrad { .. })));
    assert!((&g + 1.0).check().is_err());
    w.sum().backward().unwrap();
    is(&w.grad().unwrap(), &[1.0]);
    w.zero_grad_in_place();
    is(&w.grad().unwrap(), &[0.0]);
}

#[test]
fn s9_6_retain_grad_keeps_gradients_of_inner_tensors() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
    let a = &w * 2.0;
    let b = &a * &a;
    let v = b.reshape(&[2, 1]);
    a.retain_grad().unwrap();
    v.retain_grad().unwrap();
    (&v * 5.0).sum().backward().unwrap();
    is(&v.grad().unwrap(), &[5.0, 5.0]);
    is(&a.grad().unwrap(), &[20.0, 40.0]);
    is(&w.grad().unwrap(), &[40.0, 80.0]);
    assert!(b.grad().is_none());
    assert!(e.retain_grad(&e.zeros(F, &[1])).is_err());
}

/// The cases in which PyTorch raises, and those in which it does not.
#[test]
fn s9_3_saved_tensors_must_not_be_modified() {
    type Case = (&'static str, bool, fn(&Tensor, &Tensor) -> Tensor);
    let cases: [Case; 15] = [
        ("mul keeps its operands", true, |w, x| {
            let y = w * x;
            x.add_scalar_(1);
            y.sum()
        }),
        ("add keeps nothing", false, |w, x| {
            let y = w + x;
            x.add_scalar_(1);
            y.sum()
        }),
        ("exp keeps its result", true, |w, _| {
            let y = w.exp();
            y.add_scalar_(1);
            y.sum()
        }),
        ("exp does not keep its operand", false, |w, x| {
            let z = w + x;
            let y = z.exp();
            z.add_scalar_(1);
            y.sum()
        }),
        ("tanh keeps its result", true, |w, _| {
            let y = w.tanh();
            no_grad(|| y.zero_());
            y.sum()
        }),
        ("matmul keeps its operands", true, |w, x| {
            let y = w.matmul(x);
            x.zero_();
            y
        }),
        ("a write through a view counts", true, |w, x| {
            let y = w * x;
            x.slice(0, 0, 1, 1).zero_();
            y.sum()
        }),
        ("a leaf updated before backward", true, |w, _| {
            let y = w * w;
            no_grad(|| w.sub_(&w.detach()));
            y.sum()
        }),
        ("a mutation before the use is fine", false, |w, x| {
            x.add_scalar_(1);
            (w * x).sum()
        }),
        ("what is copied to is not what exp keeps", false, |w, x| {
            x.copy_(&w.exp());
            x.add_scalar_(1);
            x.sum()
        }),
        ("nor is what a view of it is copied to", false, |w, x| {
            let y = w.exp();
            x.copy_(&y.reshape(&[1, 2]).t().index(1, 0));
            x.slice(0, 0, 1, 1).copy_(&y.slice(0, 1, 2, 1));
            x.add_scalar_(1);
            x.sum() + y.sum()
        }),
        ("nor is a copy", false, |w, _| {
            let y = w.exp();
            let copies = [y.copy(), y.expand(&[2, 2]).t().reshape(&[4])];
            copies.iter().for_each(|c| drop(c.add_scalar_(1)));
            y.sum() + copies[0].sum() + copies[1].sum()
        }),
        ("what is copied from is", true, |w, x| {
            let y = w.exp();
            x.copy_(&y);
            y.add_scalar_(1);
            x.sum()
        }),
        ("an op in place keeps its result", true, |w, x| {
            x.copy_(w);
            x.tanh_();
            x.add_scalar_(1);
            x.sum()
        }),
        ("a product in place keeps its operand", true, |w, x| {
            let y = w + 1.0;
            y.mul_(x);
            x.add_scalar_(1);
            y.sum()
        }),
    ];
    for (name, raises, f) in cases {
        let e = engine();
        let w = vec1(&e, &[1.0, 2.0]).requires_grad_();
        let x = vec1(&e, &[3.0, 4.0]);
        let got = f(&w, &x).backward();
        match got {
            Err(Error::SavedTensorModified { .. }) => assert!(raises, "{name}"),
            Err(e) => panic!("{name}: {e}"),
            Ok(()) => assert!(!raises, "{name}"),
        }
    }
}

#[test]
fn s9_7_a_second_backward_needs_retain_graph() {
    let e = engine();
    let w = vec1(&e, &[3.0]).requires_grad_();
    let y = (&w * &w).sum();
    y.backward_with(BackwardOptions { retain_graph: true, ..BackwardOptions::default() }).unwrap();
    y.backward().unwrap();
    is(&w.grad().unwrap(), &[12.0]);
    assert!(matches!(y.backward(), Err(Error::BackwardGraphFreed { .. })));
    // A graph that keeps nothing can be used again, as in PyTorch.
    let z = (&w + 1.0).sum();
    z.backward().unwrap();
    z.backward().unwrap();
    is(&w.grad().unwrap(), &[14.0]);
}

#[test]
fn double_backward_with_create_graph() {
    let e = engine();
    let w = vec1(&e, &[2.0]).requires_grad_();
    let y = (&w * &w * &w).sum();
    y.backward_with(BackwardOptions { create_graph: true, ..BackwardOptions::default() }).unwrap();
    let g = w.grad().unwrap();
    is(&g, &[12.0]);
    let y2 = (&g * 1.0).sum();
    w.zero_grad();
    y2.backward().unwrap();
    is(&w.grad().unwrap(), &[12.0]);
}

#[test]
fn gradients_of_gradients_without_touching_leaves() {
    let e = engine();
    let x = vec1(&e, &[2.0]).requires_grad_();
    let y = (&x * &x * &x).sum();
    let g = e.gradients(&y, &[&x], true).unwrap().swap_remove(0).unwrap();
    let h = e.gradients(&g.sum(), &[&x], true).unwrap().swap_remove(0).unwrap();
    let t = e.gradients(&h.sum(), &[&x], false).unwrap().swap_remove(0).unwrap();
    is(&g, &[12.0]);
    is(&h, &[12.0]);
    is(&t, &[6.0]);
    assert!(x.grad().is_none());
    assert!(!t.requires_grad());
}

#[test]
fn gradients_flow_through_in_place_ops_and_views() {
    let e = engine();
    let w = vec1(&e, &[1.0, 2.0, 3.0]).requires_grad_();
    let y = &w * 2.0;
    y.slice(0, 0, 1, 1).mul_scalar_(10);
    y.index(0, 2).zero_();
    (&y * &vec1(&e, &[1.0, 1.0, 5.0])).sum().backward().unwrap();
    is(&w.grad().unwrap(), &[20.0, 2.0, 0.0]);
}

#[test]
fn a_change_under_no_grad_keeps_the_history_and_uses_the_new_value() {
    let e = engine();
    let w = vec1(&e, &[1.0]).requires_grad_();
    let y = &w * 2.0;
    no_grad(|| y.add_scalar_(1));
    (&y * &y).sum().backward().unwrap();
    is(&w.grad().unwrap(), &[12.0]);
}

#[test]
fn no_grad_and_detach_cut_history() {
    let e = engine();
    let w = vec1(&e, &[1.0]).requires_grad_();
    let y = no_grad(|| &w * 2.0);
    assert!(!y.requires_grad());
    assert!(y.sum().backward().is_err());
    let d = w.detach();
    assert!(!d.requires_grad());
    (&w * &d).sum().backward().unwrap();
    is(&w.grad().unwrap(), &[1.0]);
    assert!((&w + 1.0).backward().is_err(), "only scalars");
}

#[test]
fn reading_the_loss_first_changes_nothing() {
    let e = engine();
    let w = vec1(&e, &[0.5]).requires_grad_();
    let y = w.tanh().exp().sum();
    let v = y.item::<f32>().unwrap();
    y.backward().unwrap();
    let g = w.grad().unwrap().item::<f32>().unwrap();
    let t = 0.5f32.tanh();
    assert!((v - t.exp()).abs() < 1e-6);
    assert!((g - t.exp() * (1.0 - t * t)).abs() < 1e-5);
}
