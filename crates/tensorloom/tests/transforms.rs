//! Transforms over trees, nested, on eager tensors and inside traces.

use std::collections::BTreeMap;
use tensorloom::*;

type F = f64;

fn t(x: &[F]) -> Tensor {
    tensor(x, &[x.len()])
}

fn s(x: F) -> Tensor {
    tensor_of(&[x], &[])
}

fn near(t: &Tensor, expected: &[F]) {
    let got = t.to_vec::<F>().unwrap();
    let close = |(a, b): (&F, &F)| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(close), "{got:?} vs {expected:?}");
}

#[derive(Tree)]
struct Layer {
    w: Tensor,
    b: Option<Tensor>,
    #[tree(fixed)]
    power: usize,
}

#[derive(Tree)]
struct Pair<T>(T, BTreeMap<String, T>);

#[test]
fn gradients_have_the_structure_of_their_arguments() {
    let f = |l: Layer| {
        let mut y = l.w.clone();
        (1..l.power).for_each(|_| y = &y * &l.w);
        (y + l.b.as_ref().unwrap()).sum()
    };
    let layer = |power| Layer { w: t(&[2.0, 3.0]), b: Some(s(1.0)), power };
    let g = grad(f).call(layer(3));
    near(&g.w, &[12.0, 27.0]);
    near(&g.b.unwrap(), &[2.0]);
    // A fixed field is part of the signature.
    let compiled = jit(grad(f));
    near(&compiled.call(layer(2)).w, &[4.0, 6.0]);
    near(&compiled.call(layer(3)).w, &[12.0, 27.0]);
    assert_eq!(compiled.stats().misses, 2);

    let map = |x| BTreeMap::from([("a".to_string(), s(x)), ("b".to_string(), s(x + 1.0))]);
    let g = grad(|Pair(x, m): Pair<Tensor>| &x * &m["a"] * &m["b"]).call(Pair(s(2.0), map(3.0)));
    near(&g.0, &[12.0]);
    near(&g.1["b"], &[6.0]);
}

#[test]
fn aux_and_argnums() {
    let f = |(x, n, v): (Tensor, Tensor, Vec<Tensor>)| ((&x * &v[0]).sum(), (n, vec![x.exp()]));
    let args = || (t(&[0.0, 1.0]), arange(3), vec![t(&[5.0, 6.0])]);
    let (g, (n, e)) = grad(f).argnums(Arg::<0>).has_aux().call(args());
    near(&g, &[5.0, 6.0]);
    assert_eq!(n.to_vec::<i64>().unwrap(), [0, 1, 2]);
    near(&e[0], &[1.0, 1f64.exp()]);
    let ((y, _), (gv, gx)) = value_and_grad(f).argnums((Arg::<2>, Arg::<0>)).has_aux().call(args());
    near(&y, &[6.0]);
    near(&gv[0], &[0.0, 1.0]);
    near(&gx, &[5.0, 6.0]);
}

#[test]
fn nested_in_any_order() {
    let f = |x: Tensor| x.sin() * x.square();
    let d2 = |x: F| -x.sin() * x * x + 4.0 * x * x.cos() + 2.0 * x.sin();
    let d1 = |x: F| x.cos() * x * x + 2.0 * x * x.sin();
    let x = [0.3, 1.1, -0.7];
    let (v1, v2): (Vec<F>, Vec<F>) = (x.iter().map(|&x| d1(x)).collect(), x.iter().map(|&x| d2(x)).collect());
    near(&grad(f).call(s(0.3)), &v1[..1]);
    near(&grad(grad(f)).call(s(0.3)), &v2[..1]);
    near(&grad(jit(grad(f))).call(s(0.3)), &v2[..1]);
    near(&jit(grad(jit(grad(f)))).call(s(0.3)), &v2[..1]);
    near(&vmap(grad(grad(f))).call(t(&x)), &v2);
    near(&jit(vmap(grad(grad(f)))).call(t(&x)), &v2);
    near(&vmap(jit(grad(checkpoint(grad(f))))).call(t(&x)), &v2);
    near(&grad(|x: Tensor| vmap(grad(f)).call(x).sum()).call(t(&x)), &v2);
    let push = |x: Tensor| jvp(grad(f), x, s(1.0)).1;
    near(&push(s(0.3)), &v2[..1]);
    near(&vmap(push).call(t(&x)), &v2);
    near(&jit(vmap(push)).call(t(&x)), &v2);
    let elementwise = |x: Tensor| jvp(f, x.clone(), &x * 0.0 + 1.0).1;
    near(&jvp(elementwise, t(&x), t(&[1.0; 3])).1, &v2);
    let (y, back) = vjp(vmap(grad(f)), t(&x));
    near(&y, &v1);
    near(&back.call(t(&[1.0; 3])), &v2);
    let (y, push) = linearize(jit(vmap(grad(f))), t(&x));
    near(&y, &v1);
    near(&push.call(t(&[1.0; 3])), &v2);
    near(&vmap(push).call(tensor_of(&[1.0f64, 0.0, 0.0, 0.0, 1.0, 0.0], &[2, 3])), &[v2[0], 0.0, 0.0, 0.0, v2[1], 0.0]);
}

#[test]
fn inner_derivatives_see_outer_arguments() {
    // d/dx (x · d/dy (x·y²)) = d/dx (2x²y) = 4xy.
    let y = s(3.0);
    let f = |x: Tensor| {
        let inner = grad(|y: Tensor| &x * &y * &y);
        &x * inner.call(y.clone())
    };
    near(&grad(f).call(s(2.0)), &[24.0]);
    near(&jit(grad(f)).call(s(2.0)), &[24.0]);
    near(&grad(jit(f)).call(s(2.0)), &[24.0]);
    near(&vmap(grad(f)).call(t(&[2.0, 1.0])), &[24.0, 12.0]);
}

#[test]
fn jacobians_and_hessians() {
    let f = |x: Tensor| (x.square().cumsum_last(), x.sum());
    let x = t(&[1.0, 2.0]);
    for (j, k) in [jacfwd(f).call(x.clone()), jacrev(f).call(x.clone()), jit(jacrev(f)).call(x.clone())] {
        near(&j, &[2.0, 0.0, 2.0, 4.0]);
        near(&k, &[1.0, 1.0]);
    }
    let cubic = |x: Tensor| (&x * &x * &x).sum();
    near(&hessian(cubic).call(x.clone()), &[6.0, 0.0, 0.0, 12.0]);
    near(&jacrev(jacfwd(cubic)).call(x.clone()), &[6.0, 0.0, 0.0, 12.0]);
    near(&vmap(hessian(cubic)).call(x.reshape(&[2, 1])), &[6.0, 12.0]);
}

trait Cumsum {
    fn cumsum_last(&self) -> Tensor;
}

impl Cumsum for Tensor {
    fn cumsum_last(&self) -> Tensor {
        let op = ir::ops::Cumulative { kind: ir::ops::ReduceKind::Sum, axis: self.rank() - 1, reverse: false };
        Tensor::apply(op, &[self], 1).swap_remove(0)
    }
}

#[test]
fn vmap_axes() {
    let m = tensor(&(0..24).map(F::from).collect::<Vec<_>>(), &[2, 3, 4]);
    let f = |(x, y): (Tensor, Tensor)| (x.sum(), &x * &y);
    let (a, b) = vmap(f).in_axes([Some(-1), None]).out_axes([0, 1]).call((m.clone(), s(2.0)));
    assert_eq!((a.shape(), b.shape()), (&[4][..], &[2, 4, 3][..]));
    near(&a, &[60.0, 66.0, 72.0, 78.0]);
    let shared = vmap(|(x, y): (Tensor, Tensor)| (&x + 1.0, y.exp()))
        .in_axes([Some(0), None])
        .out_axes([Some(0), None])
        .call((t(&[1.0, 2.0]), s(0.0)));
    near(&shared.0, &[2.0, 3.0]);
    near(&shared.1, &[1.0]);
    let none = vmap(|(): ()| s(3.0)).axis_size(2).call(());
    near(&none, &[3.0, 3.0]);
}

#[test]
fn custom_rules_compose() {
    let clip = custom_vjp(|x: Tensor| (x.square(), x), |(x, ct): (Tensor, Tensor)| (&x * 2.0 * ct).clamp(-1.0, 1.0));
    let f = |x: Tensor| clip.call(x).sum();
    near(&grad(f).call(t(&[0.1, 5.0])), &[0.2, 1.0]);
    near(&jit(grad(f)).call(t(&[0.1, 5.0])), &[0.2, 1.0]);
    near(&vmap(grad(f)).call(t(&[0.1, 5.0])), &[0.2, 1.0]);
    near(&jit(vmap(grad(|x: Tensor| clip.call(x)))).call(t(&[0.1, 5.0])), &[0.2, 1.0]);
    // A captured tensor is an argument in disguise.
    let w = t(&[2.0, 3.0]);
    let scaled = custom_jvp(|x: Tensor| &x * &w, |(_, dx): (Tensor, Tensor)| dx * &w * 10.0);
    near(&grad(|x: Tensor| scaled.call(x).sum()).call(t(&[1.0, 1.0])), &[20.0, 30.0]);
    near(&jvp(|x: Tensor| scaled.call(x), t(&[1.0, 1.0]), t(&[1.0, 2.0])).1, &[20.0, 60.0]);
}

#[test]
fn jit_lifts_what_it_captures() {
    let w = t(&[1.0, 2.0]);
    let f = jit(|x: Tensor| (&x * &w).sum());
    near(&f.call(t(&[1.0, 1.0])), &[3.0]);
    w.mul_scalar_(10.0);
    near(&f.call(t(&[1.0, 1.0])), &[30.0]);
    near(&f.call(t(&[1.0])), &[30.0]);
    assert_eq!((f.stats().hits, f.stats().misses), (1, 2));
    // Gradients reach it from outside, through backward and through grad.
    let v = t(&[1.0, 2.0]).requires_grad_();
    jit(|x: Tensor| (&x * &v).sum()).call(t(&[5.0, 6.0])).backward().unwrap();
    near(&v.grad().unwrap(), &[5.0, 6.0]);
    let through = |v: Tensor| jit(|x: Tensor| (&x * &v * &v).sum()).call(t(&[5.0, 6.0]));
    near(&grad(through).call(t(&[1.0, 2.0])), &[10.0, 24.0]);
    near(&jit(grad(through)).call(t(&[1.0, 2.0])), &[10.0, 24.0]);
}

#[test]
fn results_that_need_no_arguments() {
    near(&grad(|_: Tensor| s(1.0)).call(t(&[1.0, 2.0])), &[0.0, 0.0]);
    let (y, dy) = jvp(|x: Tensor| (x.clone(), arange(2), s(4.0)), s(1.0), s(5.0));
    near(&y.2, &[4.0]);
    near(&dy.0, &[5.0]);
    assert_eq!(dy.1.to_vec::<i64>().unwrap(), [0, 0]);
    near(&dy.2, &[0.0]);
    near(&jit(|_: Tensor| s(7.0)).call(s(0.0)), &[7.0]);
    near(&jit(|x: Tensor| x).call(s(8.0)), &[8.0]);
}

#[track_caller]
fn fails(t: &Tensor, words: &[&str]) {
    let text = t.check().expect_err("it is invalid").to_string();
    for w in words.iter().chain(&["transforms.rs:"]) {
        assert!(text.contains(w), "{w:?} is not in: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn bad_calls_name_the_line() {
    fails(&grad(|x: Tensor| x).call(t(&[1.0, 2.0])), &["grad", "f64[2]", "rank 0"]);
    fails(&grad(|x: Tensor| x.sum()).call(arange(3)), &["i64[3]", "only floats", "argnums"]);
    fails(&grad(|x: Tensor| x.cast(DType::I32).sum()).call(s(1.0)), &["i64[]"]);
    fails(&vmap(|x: Tensor| x).call(s(1.0)), &["vmap", "no axis 0"]);
    fails(&vmap(|x: Tensor| x).out_axes(3).call(t(&[1.0])), &["axis 3"]);
    fails(&vmap(|(x, _): (Tensor, Tensor)| x).call((t(&[1.0]), t(&[1.0, 2.0]))), &["2 elements", "others have 1"]);
    fails(&vmap(|x: Tensor| x).in_axes([None, Some(1), None]).call(t(&[1.0])), &["3 in_axes"]);
    fails(&jit(|x: Tensor| x.matmul(&t(&[1.0, 2.0]))).call(t(&[1.0])), &["matmul"]);
    fails(&grad(|x: Tensor| x.matmul(&t(&[1.0, 2.0]))).call(t(&[1.0])), &["matmul"]);
    fails(&jvp(|x: Tensor| x, s(1.0), t(&[1.0])).1, &["tangent", "f64[1]"]);
    fails(&vjp(|x: Tensor| x, s(1.0)).1.call(t(&[1.0])), &["cotangent", "f64[1]"]);
    let wrong = custom_vjp(|x: Tensor| (x.sum(), ()), |(_, ct): ((), Tensor)| ct);
    fails(&wrong.call(t(&[1.0, 2.0])), &["custom_vjp", "f64[]", "f64[2]"]);
    // One error travels through everything after it.
    let bad = t(&[1.0]).matmul(&t(&[1.0, 2.0]));
    fails(&jit(vmap(grad(|x: Tensor| x.sum()))).call(bad), &["matmul"]);
}

#[test]
fn host_reads_in_a_trace_are_errors() {
    let mut seen = String::new();
    let cell = std::cell::RefCell::new(&mut seen);
    let f = jit(|x: Tensor| {
        **cell.borrow_mut() = x.item::<F>().unwrap_err().to_string();
        x
    });
    f.call(s(1.0));
    assert!(seen.contains("transforms.rs:") && seen.contains("staged"), "{seen}");
}

#[test]
fn programs_with_many_operands() {
    // More values than one kernel takes buffers: as results, as operands of one op, as what a gradient keeps.
    let xs: Vec<Tensor> = (0..150).map(|i| t(&[f64::from(i), 1.0])).collect();
    let stacked = jit(|xs: Vec<Tensor>| Tensor::stack(&xs.iter().collect::<Vec<_>>(), 0)).call(xs.clone());
    near(&stacked.index(1, 0), &(0..150).map(f64::from).collect::<Vec<_>>());
    let sum = |xs: Vec<Tensor>| xs.iter().skip(1).fold(xs[0].clone(), |a, b| a * 0.5 + b).sum();
    let want = (0..150).map(|i| 0.5f64.powi(149 - i) * f64::from(i)).sum::<f64>() + 2.0 - 0.5f64.powi(149);
    near(&jit(sum).call(xs.clone()), &[want]);
    let g = jit(grad(sum)).call(xs.clone());
    near(&g[148], &[0.5, 0.5]);
    let each = jit(|x: Tensor| (0..150).map(|i| (&x * f64::from(i)).exp()).collect::<Vec<_>>()).call(t(&[0.0]));
    near(&each[149], &[1.0]);
    let deep = |x: Tensor| (0..250).fold(x.clone(), |y, i| (&y * (0.5 + f64::from(i) * 1e-3)).sin() + &x * 0.5).sum();
    let (x, h) = (t(&[0.3, -0.8]), 1e-6);
    let (up, down) = (deep(&x + h).item::<F>().unwrap(), deep(&x - h).item::<F>().unwrap());
    let slope = jit(grad(deep)).call(x).sum().item::<F>().unwrap();
    assert!((slope - (up - down) / (2.0 * h)).abs() < 1e-6, "{slope}");
}
