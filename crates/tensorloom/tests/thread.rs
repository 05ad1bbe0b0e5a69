//! One program through every layer: SGD in place on `scan(rmsnorm(tanh(x·w + b)))` with a mean-squared error.

use ir::ops::Scan;
use ir::{Builder, Graph, GraphBuilder, Scalar, interp};
use std::sync::Arc;
use tensorloom::trace::trace;
use tensorloom::{DType, Engine, Literal, Tensor, Type, no_grad};

const F: DType = DType::F32;
const BATCH: usize = 4;
const D: usize = 8;
const LENGTH: usize = 5;
const STEPS: usize = 4;

fn engine() -> Engine {
    Engine::new(Arc::new(cpu::Cpu::new(1)))
}

fn types() -> Vec<Type> {
    let t = |s: &[usize]| Type::new(F, s);
    vec![t(&[D, D]), t(&[D]), t(&[D]), t(&[BATCH, D]), t(&[LENGTH, BATCH, D]), t(&[LENGTH, BATCH, D])]
}

fn data() -> Vec<Literal> {
    let mut state = 7u64;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(F, (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5)
    };
    let mut next = next;
    types().into_iter().map(|t| Literal::from_fn(t, &mut next)).collect()
}

/// The loss of (w, bias, gain, h0, xs, target), written with tensor methods; the scan's body is traced.
fn loss(x: &[Tensor]) -> Tensor {
    let t = |s: &[usize]| Type::new(F, s);
    let types = [t(&[D, D]), t(&[D]), t(&[D]), t(&[BATCH, D]), t(&[BATCH, D])];
    let body = trace(&types, |a| {
        let h = ((&a[3] + &a[4]).matmul(&a[0]) + &a[1]).tanh().rmsnorm(&a[2], 1e-6);
        vec![h.clone(), h]
    })
    .unwrap();
    assert!(body.captures.is_empty());
    let scan = Scan::over(3, 1, LENGTH, body.graph);
    let ys = Tensor::apply(scan, &x[..5].iter().collect::<Vec<_>>(), 2).swap_remove(1);
    (&ys - &x[5]).square().mean()
}

fn step(x: &[Tensor], lr: f64) -> Tensor {
    let loss = loss(x);
    loss.backward().unwrap();
    no_grad(|| {
        for p in &x[..3] {
            p.sub_(&(lr * p.grad().unwrap()));
            p.zero_grad();
        }
    });
    loss
}

fn tensors(engine: &Engine) -> Vec<Tensor> {
    let x: Vec<Tensor> = data().iter().map(|l| engine.literal(l)).collect();
    x[..3].iter().for_each(|p| drop(p.requires_grad_()));
    x
}

fn lr(i: usize) -> f64 {
    0.5 / (1.0 + i as f64)
}

type Trajectory = Vec<Vec<f32>>;

fn eager() -> Trajectory {
    let e = engine();
    let x = tensors(&e);
    let mut out = Vec::new();
    for i in 0..STEPS {
        let l = step(&x, lr(i));
        out.push(l.to_vec().unwrap());
        e.mark_step().unwrap();
        x[..3].iter().for_each(|p| out.push(p.to_vec().unwrap()));
    }
    out
}

fn compiled() -> Trajectory {
    let e = engine();
    let x = tensors(&e);
    let mut out = Vec::new();
    for i in 0..STEPS {
        let region = e.compile(|x: Vec<Tensor>| step(&x, lr(i)));
        let l = region.call(x.clone()).unwrap();
        e.mark_step().unwrap();
        out.push(l.to_vec().unwrap());
        x[..3].iter().for_each(|p| out.push(p.to_vec().unwrap()));
    }
    let (_, hits, misses) = e.inspect().variants;
    assert_eq!((hits, misses), (STEPS as u64 - 1, 1), "one program serves every learning rate");
    out
}

fn interpreted() -> Trajectory {
    let traced = trace(&types(), |x| vec![loss(x)]).unwrap();
    let grad: Graph = transform::value_and_grad(&traced.graph, &[0, 1, 2]).unwrap();
    let mut x = data();
    let mut out = Vec::new();
    for i in 0..STEPS {
        let got = interp::run(&grad, &x).unwrap();
        out.push(got[0].to_vec());
        for k in 0..3 {
            let mut b = Builder::new();
            let (w, g) = (b.graph.input(x[k].ty().clone()), b.graph.input(x[k].ty().clone()));
            let lr = b.full_like(g, lr(i)).unwrap();
            let by = b.mul(lr, g).unwrap();
            let new = b.sub(w, by).unwrap();
            let update = b.finish(&[new]);
            x[k] = interp::run(&update, &[x[k].clone(), got[1 + k].clone()]).unwrap().swap_remove(0);
            out.push(x[k].to_vec());
        }
    }
    out
}

fn close(a: &Trajectory, b: &Trajectory) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.len(), b.len());
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= 2e-5 * (1.0 + y.abs()), "{x} {y}");
        }
    }
}

#[test]
fn sgd_in_place_is_the_same_uncompiled_compiled_and_interpreted() {
    let expected = interpreted();
    assert!(expected[4 * (STEPS - 1)][0] < expected[0][0], "the loss falls");
    close(&eager(), &expected);
    close(&compiled(), &expected);
}

#[test]
fn a_shape_error_names_the_line_of_the_op() {
    let e = engine();
    let x = e.zeros(F, &[2, 3]);
    let w = e.zeros(F, &[4, 5]);
    let line = line!() + 1;
    let y = x.matmul(&w);
    let z = (&y.tanh() + 1.0).sum();
    let text = z.item::<f32>().unwrap_err().to_string();
    let place = format!("{}:{line}", file!());
    assert!(text.contains(&place), "{text}");
    assert!(text.contains("f32[2,3]") && text.contains("f32[4,5]"), "{text}");
    assert!(y.check().is_err() && y.dims::<2>().is_err());
    assert_eq!(x.dims::<2>().unwrap(), [2, 3]);
}

#[test]
fn an_in_place_op_with_an_invalid_operand_changes_nothing_and_mark_step_tells() {
    let e = engine();
    let x = e.ones(F, &[2]);
    x.add_(&e.zeros(F, &[3]));
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 1.0]);
    let text = e.mark_step().unwrap_err().to_string();
    assert!(text.contains("add(f32[2], f32[3])") && text.contains(file!()), "{text}");
    e.mark_step().unwrap();
}
