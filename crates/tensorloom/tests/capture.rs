//! What traced functions capture from outside, and what they change in place.

use std::sync::Arc;
use tensorloom::lax::{self, cond, scan};
use tensorloom::{
    Engine, Error, Tensor, checkpoint, compile, engine, grad, jit, jvp, no_grad, ones, tensor_of, value_and_grad, vjp,
    vmap,
};

fn a() -> Tensor {
    tensor_of(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])
}

fn one() -> Tensor {
    tensor_of(&[1.0f64], &[1])
}

#[track_caller]
fn is(t: &Tensor, expected: &[f64]) {
    assert_eq!(t.to_vec::<f64>().unwrap(), expected);
}

/// `aᵀ a`.
const GRAM: [f64; 9] = [17.0, 22.0, 27.0, 22.0, 29.0, 36.0, 27.0, 36.0, 45.0];

fn gram(a: &Tensor) -> Tensor {
    a.t().matmul(a)
}

#[test]
fn a_view_of_an_outer_trace_is_not_the_tensor_itself() {
    let by_vmap = |a: Tensor| vmap(|s: Tensor| gram(&a) * s).call(one());
    is(&jit(by_vmap).call(a()), &GRAM);
    is(&vmap(by_vmap).call(a().unsqueeze(0)), &GRAM);
    is(&jit(|a: Tensor| jit(|s: Tensor| gram(&a) * s).call(one())).call(a()), &GRAM);
    is(&jit(|a: Tensor| checkpoint(|s: Tensor| gram(&a) * s).call(one())).call(a()), &GRAM);
    is(&compile(by_vmap).call(a()).unwrap(), &GRAM);
    let by_cond = |a: Tensor| {
        let yes = one().sum().gt(&tensor_of(&[0.0f64], &[]));
        cond(&yes, |s: Tensor| gram(&a) * s, |s: Tensor| gram(&a) - s, one())
    };
    is(&jit(by_cond).call(a()), &GRAM);
    let by_scan = |a: Tensor| scan(|(c, s): (Tensor, Tensor)| (c + gram(&a) * s, ()), gram(&a) * 0.0, one()).0;
    is(&jit(by_scan).call(a()), &GRAM);
    let twice = |a: Tensor| {
        let outer = |(c, s): (Tensor, Tensor)| {
            let inner = |(c, s): (Tensor, Tensor)| (c + gram(&a) * s, ());
            (scan(inner, c, s.unsqueeze(0)).0, ())
        };
        scan(outer, gram(&a) * 0.0, one()).0
    };
    is(&twice(a()), &GRAM);
    is(&jit(twice).call(a()), &GRAM);
}

#[test]
fn a_detached_name_does_not_stop_the_gradients_of_the_tensor() {
    // The detached one is captured first; the gradient is that of `x·c` with `c` constant.
    let f = |x: Tensor| vmap(|s: Tensor| (x.detach() * &x * s).sum()).call(one()).sum();
    is(&grad(f).call(a()), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    is(&jit(grad(f)).call(a()), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let w = a().requires_grad_();
    let region = compile(|s: Tensor| vmap(|s: Tensor| (w.detach() * &w * s).sum()).call(s).sum());
    region.call(one()).unwrap().backward().unwrap();
    is(&w.grad().unwrap(), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

fn tenfold(x: Tensor) -> Tensor {
    x.mul_scalar_(10.0);
    x.index(0, 0).add_scalar_(1.0);
    x.sum()
}

#[test]
fn a_function_may_change_its_arguments_and_nobody_else_sees_it() {
    let x = tensor_of(&[1.0f64, 1.0], &[2]);
    let rows = tensor_of(&[1.0f64, 1.0, 2.0, 2.0], &[2, 2]);
    let check = |y: Tensor, expected: &[f64]| {
        is(&y, expected);
        is(&x, &[1.0, 1.0]);
        is(&rows, &[1.0, 1.0, 2.0, 2.0]);
    };
    check(jit(tenfold).call(x.clone()), &[21.0]);
    check(vmap(tenfold).call(rows.clone()), &[21.0, 41.0]);
    check(checkpoint(tenfold).call(x.clone()), &[21.0]);
    check(grad(tenfold).call(x.clone()), &[10.0, 10.0]);
    check(value_and_grad(tenfold).call(x.clone()).0, &[21.0]);
    check(jit(grad(tenfold)).call(x.clone()), &[10.0, 10.0]);
    check(vmap(grad(tenfold)).call(rows.clone()), &[10.0; 4]);
    check(jvp(tenfold, x.clone(), x.clone()).1, &[20.0]);
    check(vjp(tenfold, x.clone()).1.call(tensor_of(&[1.0f64], &[])), &[10.0, 10.0]);
    let zero = tensor_of(&[0.0f64], &[]);
    check(scan(|(c, x): (Tensor, Tensor)| (c.add_(&tenfold(x)), ()), zero.clone(), rows.clone()).0, &[62.0]);
    is(&zero, &[0.0]);
    let yes = x.sum().gt(&zero);
    check(cond(&yes, tenfold, |x: Tensor| x.sum(), x.clone()), &[21.0]);
    let small = |c: Tensor| c.mul_scalar_(2.0).lt(&tensor_of(&[9.0f64], &[]));
    check(lax::while_loop(small, |c: Tensor| c.add_scalar_(1.0), tensor_of(&[1.0f64], &[])), &[5.0]);
    // An argument that is not differentiated is the function's own too.
    let second = |(x, y): (Tensor, Tensor)| (x * tenfold(y)).sum();
    check(grad(second).argnums(tensorloom::Arg::<0>).call((x.clone(), x.clone())), &[21.0, 21.0]);
    // A compiled region's arguments are the program's tensors (§8.10).
    let mine = x.copy();
    is(&compile(tenfold).call(mine.clone()).unwrap(), &[21.0]);
    is(&mine, &[11.0, 10.0]);
}

#[test]
fn what_was_read_before_a_write_keeps_its_value_and_gradient() {
    let f = |x: Tensor| {
        let y = &x * &x;
        x.mul_scalar_(3.0);
        (y * x).sum()
    };
    let x = tensor_of(&[1.0f64, 2.0], &[2]);
    is(&jit(f).call(x.clone()), &[27.0]);
    is(&grad(f).call(x.clone()), &[9.0, 36.0]);
    is(&jit(grad(f)).call(x.clone()), &[9.0, 36.0]);
}

#[test]
fn a_change_that_is_not_recorded_lets_gradients_pass() {
    let f = |x: Tensor| {
        let y = &x * 2.0;
        no_grad(|| y.mul_scalar_(10.0));
        (&y * &x).sum()
    };
    let x = tensor_of(&[1.0f64, 2.0], &[2]);
    // y is 20x; its gradient is that of 2x: 20x + 2x.
    is(&f(x.clone()), &[100.0]);
    is(&grad(f).call(x.clone()), &[22.0, 44.0]);
    is(&value_and_grad(f).call(x.clone()).0, &[100.0]);
    is(&jit(grad(f)).call(x.clone()), &[22.0, 44.0]);
    let w = x.copy().requires_grad_();
    f(w.clone()).backward().unwrap();
    is(&w.grad().unwrap(), &[22.0, 44.0]);
    let w = x.copy().requires_grad_();
    compile(|()| f(w.clone()).backward().unwrap()).call(()).unwrap();
    is(&w.grad().unwrap(), &[22.0, 44.0]);
}

#[test]
fn a_write_to_a_captured_tensor_fails_the_trace() {
    let w = ones(&[2]);
    let x = ones(&[2]);
    let f = |x: Tensor| {
        w.add_scalar_(1.0);
        (&x * &w).sum()
    };
    let refused = |t: Tensor| {
        let e = t.check().unwrap_err();
        assert!(matches!(e, Error::InPlace { .. }), "{e}");
        assert!(e.to_string().contains("pass it in"), "{e}");
    };
    refused(jit(f).call(x.clone()));
    refused(vmap(f).call(ones(&[2, 2])));
    refused(checkpoint(f).call(x.clone()));
    refused(jit(grad(f)).call(x.clone()));
    refused(scan(|(c, x): (Tensor, Tensor)| (c + f(x), ()), ones(&[]), ones(&[2, 2])).0);
    refused(jit(|x: Tensor| vmap(|s: Tensor| x.mul_(&s).sum()).call(ones(&[2]))).call(x.clone()));
    // A view of it is no way around.
    refused(jit(|x: Tensor| (w.index(0, 0).fill_(3.0), &x * &w).1).call(x.clone()));
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 1.0]);
    // An error that was looked at is the function's own business.
    let handled = jit(|x: Tensor| if w.add_scalar_(1.0).check().is_err() { x } else { -x });
    assert_eq!(handled.call(x.clone()).to_vec::<f32>().unwrap(), [1.0, 1.0]);
    engine().mark_step().ok();
}

#[test]
fn a_write_through_a_detached_name_must_not_lose_gradients() {
    let f = |x: Tensor| {
        let d = (&x * 2.0).detach();
        d.mul_(&x);
        d.sum()
    };
    let w = tensor_of(&[1.0f64, 2.0], &[2]).requires_grad_();
    let refused = |e: Error| assert!(e.to_string().contains("detached"), "{e}");
    let d = (&w * 2.0).detach();
    refused(d.mul_(&w).check().unwrap_err());
    let e = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let own = e.tensor(&[1.0f64, 2.0], &[2]).requires_grad_();
    e.compile(|()| f(own.clone())).call(()).unwrap();
    refused(e.mark_step().unwrap_err());
    refused(grad(f).call(a().flatten()).check().unwrap_err());
    refused(jit(grad(f)).call(a().flatten()).check().unwrap_err());
    // Without gradients, and without somebody who wants them, it is a write like any other.
    is(&no_grad(|| d.mul_(&w)), &[2.0, 8.0]);
    let x = tensor_of(&[1.0f64, 2.0], &[2]);
    is(&f(x.clone()), &[10.0]);
    is(&compile(|()| f(x.clone())).call(()).unwrap(), &[10.0]);
    engine().mark_step().ok();
}

#[test]
fn any_write_that_fails_fails_the_trace() {
    let x = ones(&[2]);
    let bad = |x: Tensor| (x.add_(&ones(&[3])), x).1;
    assert!(jit(bad).call(x.clone()).check().unwrap_err().to_string().contains("add"));
    // In a region as outside of one: the engine remembers.
    let e = Engine::new(Arc::new(cpu::Cpu::new(1)));
    e.compile(bad).call(e.ones(tensorloom::DType::F32, &[2])).unwrap();
    assert!(e.mark_step().is_err());
    let w = ones(&[2]).requires_grad_();
    assert!(
        jit(|x: Tensor| (w.zero_grad(), x).1).call(x.clone()).check().unwrap_err().to_string().contains("zero_grad")
    );
    engine().mark_step().ok();
}

#[test]
fn what_was_compiled_without_gradients_is_not_used_with_them() {
    let f = jit(|x: Tensor| (&x * &x).sum());
    let x = tensor_of(&[3.0f64], &[1]);
    is(&no_grad(|| f.call(x.clone())), &[9.0]);
    is(&grad(|x: Tensor| f.call(x)).call(x.clone()), &[6.0]);
    let g = jit(|x: Tensor| x.matmul(&x));
    let narrow = tensorloom::autocast(tensorloom::DType::BF16, || g.call(ones(&[2, 2])));
    assert_eq!((narrow.dtype(), g.call(ones(&[2, 2])).dtype()), (tensorloom::DType::BF16, tensorloom::DType::F32));
}

#[test]
fn tensors_of_two_engines_do_not_mix() {
    let e = Engine::new(Arc::new(cpu::Cpu::new(1)));
    // The first tensors of two engines have equal handles and bases.
    let f = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let (a, b) = (e.tensor(&[1.0f32], &[1]), f.tensor(&[2.0f32], &[1]));
    let refused = |t: Tensor| {
        let text = t.check().unwrap_err().to_string();
        assert!(text.contains("two engines"), "{text}");
    };
    refused(jit(|s: Tensor| &a * s * &b).call(e.ones(tensorloom::DType::F32, &[1])));
    refused(vmap(|s: Tensor| &a * s * &b).call(e.ones(tensorloom::DType::F32, &[1])));
    refused(jit(|s: Tensor| s * &b).call(a.clone()));
    refused(jit(|s: Tensor| vmap(|r: Tensor| &a * r).call(s) * &b).call(a.clone()));
    let region = e.compile(|s: Tensor| s * &b);
    assert!(region.call(a.clone()).unwrap_err().to_string().contains("two engines"));
    let body = e.checkpoint(&a, |s| s * &b);
    assert!(body.unwrap_err().to_string().contains("two engines"));
    // Each for itself is fine, also by one compiled function.
    let double = jit(|s: Tensor| s * 2.0);
    assert_eq!(double.call(a).to_vec::<f32>().unwrap(), [2.0]);
    assert_eq!(double.call(b).to_vec::<f32>().unwrap(), [4.0]);
}
