//! The checks for every composite.

use ir::ops::{Composite, Derivative};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, Value, composites, interp, text, verify};

pub(crate) const F: DType = DType::F64;

/// A stream of numbers in [-1, 1), the same in every run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    }

    pub(crate) fn fill(&mut self, shape: &[usize]) -> Literal {
        Literal::from_fn(Type::new(F, shape), |_| Scalar::from_f64(F, self.next()))
    }
}

/// The f64 literal with `value(i)` at position `i`: the expected values were computed from the same formula in the reference
/// framework.
pub(crate) fn wave(shape: &[usize], step: f64) -> Literal {
    Literal::from_fn(Type::new(F, shape), |i| Scalar::from_f64(F, (i as f64 * step + step).sin() * 2.0))
}

pub(crate) fn types(x: &[Literal]) -> Vec<Type> {
    x.iter().map(|l| l.ty().clone()).collect()
}

/// A graph of one composite, with its public results.
pub(crate) fn graph_of(c: &Composite) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = c.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(c.clone().into(), &args).unwrap();
    b.finish(&outs[..c.num_public_outputs])
}

pub(crate) fn run(c: &Composite, x: &[Literal]) -> Vec<Literal> {
    let g = graph_of(c);
    verify::verify(&g).unwrap();
    interp::run(&g, x).unwrap()
}

pub(crate) fn close(a: &Literal, b: &Literal, tol: f64) {
    assert_eq!(a.ty(), b.ty());
    close_to(a, &b.to_vec::<f64>(), tol);
}

#[track_caller]
pub(crate) fn close_to(a: &Literal, b: &[f64], tol: f64) {
    assert_eq!(a.ty().numel(), b.len());
    for (i, (x, &y)) in a.scalars().zip(b).enumerate() {
        let x = x.to_f64();
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tol * (1.0 + y.abs());
        assert!(same, "at {i}: {x}, expected {y}\n{:?}\n{b:?}", a.to_vec::<f64>());
    }
}

/// `Σ w·y + y²` over the public float results, with fixed weights: a scalar whose second derivatives depend on those of the
/// composite. Infinite results are excluded.
fn loss_of(c: &Composite) -> Graph {
    let mut numbers = Numbers::new(7);
    let mut b = Builder::new();
    let args: Vec<Value> = c.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(c.clone().into(), &args).unwrap();
    let mut total = b.scalar(F, 0.0).unwrap();
    for &y in &outs[..c.num_public_outputs] {
        let ty = b.ty(y);
        if !ty.dtype.is_float() {
            continue;
        }
        let finite = b.unary(ir::Unary::IsFinite, y).unwrap();
        let y = b.zero_unless(finite, y).unwrap();
        let w = b.constant(numbers.fill(&ty.shape)).unwrap();
        let s = b.add(w, y).unwrap();
        let p = b.mul(s, y).unwrap();
        let s = b.sum_all(p).unwrap();
        total = b.add(total, s).unwrap();
    }
    b.finish(&[total])
}

fn through_body(c: &Composite) -> Composite {
    Composite { derivative: Derivative::Body, ..c.clone() }
}

fn float_inputs(g: &Graph) -> Vec<usize> {
    let types = g.input_types();
    (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect()
}

fn finite_difference(graph: &Graph, x: &[Literal], wrt: usize) -> Literal {
    let f = |x: &[Literal]| interp::run(graph, x).unwrap()[0].get(0).to_f64();
    let eps = 1e-5;
    Literal::from_fn(x[wrt].ty().clone(), |i| {
        let bump = |by: f64| {
            let mut y = x.to_vec();
            y[wrt] = Literal::from_fn(x[wrt].ty().clone(), |j| {
                let v = x[wrt].get(j).to_f64();
                Scalar::from_f64(F, if i == j { v + by } else { v })
            });
            f(&y)
        };
        let slope = (bump(eps) - bump(-eps)) / (2.0 * eps);
        // A -inf of a mask is not perturbed.
        Scalar::from_f64(F, if x[wrt].get(i).to_f64().is_finite() { slope } else { 0.0 })
    })
}

fn squared_norm(g: &Graph) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = g.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(g, &args).unwrap();
    let mut total = b.scalar(F, 0.0).unwrap();
    for v in outs {
        let sq = b.mul(v, v).unwrap();
        let s = b.sum_all(sq).unwrap();
        total = b.add(total, s).unwrap();
    }
    b.finish(&[total])
}

fn round_trips(g: &Graph) {
    verify::verify(g).unwrap();
    let printed = g.to_string();
    let parsed = text::parse(&printed).unwrap();
    assert_eq!(parsed.to_string(), printed);
    assert_eq!(parsed.structural_hash(), g.structural_hash());
}

/// Checks first and second derivatives, forward mode against reverse mode, and the text form.
pub(crate) fn check_grads(c: &Composite, x: &[Literal]) {
    let f = loss_of(c);
    let wrt = float_inputs(&f);
    let g = tensorloom_transform::grad(&f, &wrt).unwrap();
    round_trips(&f);
    round_trips(&g);
    let got = interp::run(&g, x).unwrap();
    let body = tensorloom_transform::grad(&loss_of(&through_body(c)), &wrt).unwrap();
    let expected = interp::run(&body, x).unwrap();
    for (k, &i) in wrt.iter().enumerate() {
        close(&got[k], &finite_difference(&f, x, i), 1e-6);
        close(&got[k], &expected[k], 1e-10);
    }
    let norm = squared_norm(&g);
    let second = tensorloom_transform::grad(&norm, &wrt).unwrap();
    verify::verify(&second).unwrap();
    let bend = interp::run(&second, x).unwrap();
    for (k, &i) in wrt.iter().enumerate() {
        close(&bend[k], &finite_difference(&norm, x, i), 1e-5);
    }
    let active: Vec<bool> = (0..x.len()).map(|i| wrt.contains(&i)).collect();
    let (forward, has) = tensorloom_transform::jvp(&f, &active, &[true]).unwrap();
    assert_eq!(has, [true]);
    let mut numbers = Numbers::new(3);
    let mut args = x.to_vec();
    args.extend(wrt.iter().map(|&i| numbers.fill(&x[i].ty().shape)));
    let dy = interp::run(&forward, &args).unwrap()[1].get(0).to_f64();
    let dot: f64 = got
        .iter()
        .zip(&args[x.len()..])
        .flat_map(|(g, d)| g.scalars().zip(d.scalars()).map(|(a, b)| a.to_f64() * b.to_f64()).collect::<Vec<_>>())
        .sum();
    assert!((dy - dot).abs() <= 1e-10 * (1.0 + dot.abs()), "jvp {dy}, vjp {dot}");
}

/// Whether the graph itself contains a composite with this name, where a backend can match it.
pub(crate) fn holds(g: &Graph, name: &str) -> bool {
    g.nodes().iter().any(|n| matches!(&n.op, Op::Composite(c) if c.name == name))
}

fn part(x: &Literal, k: usize) -> Literal {
    let t = x.ty().unbatched();
    Literal::from_bytes(t.clone(), &x.bytes()[k * t.bytes()..(k + 1) * t.bytes()]).unwrap()
}

/// A batch of `x`: scaled copies, so that all entries differ and integers stay in their range.
fn stacked(x: &Literal, size: usize) -> Literal {
    let n = x.ty().numel();
    Literal::from_fn(x.ty().batched(size), |i| {
        let (k, s) = (i / n.max(1), x.get(i % n.max(1)));
        if s.dtype().is_float() {
            Scalar::from_f64(s.dtype(), s.to_f64() * (1.0 - 0.25 * k as f64))
        } else {
            // The integer of another row.
            x.get((i + k) % n.max(1))
        }
    })
}

/// Checks `vmap` of the composite and of its gradient against a loop, for every choice of batched operands.
pub(crate) fn check_vmap(c: &Composite, x: &[Literal], shared: &[usize]) {
    let f = graph_of(c);
    let loss = loss_of(c);
    let g = tensorloom_transform::grad(&loss, &float_inputs(&loss)).unwrap();
    let n = x.len();
    let size = 2;
    for mask in 1..1u32 << n {
        // All combinations for a few operands; for many operands those with one or two batched, or one or two not batched.
        let ones = mask.count_ones() as usize;
        if n > 5 && ones > 2 && ones < n - 1 {
            continue;
        }
        let batched: Vec<bool> = (0..n).map(|i| mask >> i & 1 == 1).collect();
        let args: Vec<Literal> = (0..n).map(|i| if batched[i] { stacked(&x[i], size) } else { x[i].clone() }).collect();
        for graph in [&f, &g] {
            let (wide, outs) =
                tensorloom_transform::vmap(graph, &batched, &vec![true; graph.outputs().len()], size).unwrap();
            verify::verify(&wide).unwrap();
            assert!(outs.iter().all(|o| *o));
            if shared.iter().all(|&i| !batched[i]) && std::ptr::eq(graph, &f) {
                assert!(holds(&wide, &c.name), "{} is lost in\n{wide}", c.name);
                round_trips(&wide);
            }
            let got = interp::run(&wide, &args).unwrap();
            for k in 0..size {
                let one: Vec<Literal> =
                    (0..n).map(|i| if batched[i] { part(&args[i], k) } else { args[i].clone() }).collect();
                let expected = interp::run(graph, &one).unwrap();
                for (a, e) in got.iter().zip(&expected) {
                    close(&part(a, k), e, 1e-10);
                }
            }
        }
    }
}

/// Checks bf16 operands against f64 of the same values: results and gradients within the rounding error of bf16.
pub(crate) fn check_bf16(c: &Composite, x: &[Literal], tol: f64) {
    let cast = |x: &Literal, to: DType| {
        if x.ty().dtype.is_float() { Literal::from_fn(x.ty().with_dtype(to), |i| x.get(i).cast(to)) } else { x.clone() }
    };
    let narrow: Vec<Literal> = x.iter().map(|l| cast(l, DType::BF16)).collect();
    let wide: Vec<Literal> = narrow.iter().map(|l| cast(l, F)).collect();
    let small = composites::build(&c.name, &c.params, &types(&narrow)).unwrap();
    for (a, e) in run(&small, &narrow).iter().zip(run(c, &wide)) {
        close_to(a, &e.to_vec::<f64>(), tol);
    }
    let floats = float_inputs(&c.body);
    let (back, exact) = (graph_of(&small), graph_of(c));
    let (back, exact) =
        (tensorloom_transform::vjp(&back, &floats).unwrap(), tensorloom_transform::vjp(&exact, &floats).unwrap());
    let mut numbers = Numbers::new(9);
    let cts: Vec<Literal> = back.input_types()[x.len()..]
        .iter()
        .map(|t| cast(&cast(&numbers.fill(&t.shape), DType::BF16), t.dtype))
        .collect();
    let got = interp::run(&back, &[&narrow[..], &cts].concat()).unwrap();
    let wide_cts: Vec<Literal> = cts.iter().map(|l| cast(l, F)).collect();
    let expected = interp::run(&exact, &[&wide[..], &wide_cts].concat()).unwrap();
    for (a, e) in got[c.num_public_outputs..].iter().zip(&expected[c.num_public_outputs..]) {
        close_to(a, &e.to_vec::<f64>(), tol);
    }
}

/// Runs all checks.
pub(crate) fn check_all(c: &Composite, x: &[Literal], shared: &[usize]) {
    check_grads(c, x);
    check_vmap(c, x, shared);
    check_bf16(c, x, 0.02);
}

/// The types of the residuals for the gradient of the first operand.
pub(crate) fn kept(c: &Composite) -> Vec<String> {
    let wrt: Vec<bool> = (0..c.body.inputs().len()).map(|i| i == 0).collect();
    let l = tensorloom_transform::linearize(&graph_of(c), &wrt).unwrap();
    let types = l.known.output_types();
    types[c.num_public_outputs..].iter().map(Type::to_string).collect()
}
