//! Checks for every op: text round trip, gradients of first and second order against finite differences, forward
//! against reverse mode, and every combination of batched operands against a loop.

use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, Value, interp, text, verify};

const F: DType = DType::F64;

/// A graph of one function of `inputs`, built by `f`.
pub(crate) fn graph(inputs: &[Literal], f: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Value>) -> Graph {
    let mut b = Builder::new();
    let x: Vec<Value> = inputs.iter().map(|l| b.graph.input(l.ty().clone())).collect();
    let y = f(&mut b, &x).unwrap_or_else(|e| panic!("{e}"));
    b.finish(&[y])
}

/// Pseudo-random numbers between -1 and 1, different for each `seed`.
pub(crate) fn random(shape: &[usize], seed: u64) -> Literal {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Literal::from_fn(Type::new(F, shape), |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Scalar::from_f64(F, (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    })
}

pub(crate) fn run(g: &Graph, x: &[Literal]) -> Vec<Literal> {
    interp::run(g, x).unwrap_or_else(|e| panic!("{e}"))
}

/// The value of the first output.
pub(crate) fn value(inputs: &[Literal], f: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Value>) -> Literal {
    run(&graph(inputs, f), inputs).remove(0)
}

pub(crate) fn close(what: &str, a: &Literal, b: &Literal, tol: f64) {
    assert_eq!(a.ty(), b.ty(), "{what}");
    for (i, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
        let (p, q) = (x.to_f64(), y.to_f64());
        assert!(
            x == y || (p.is_nan() && q.is_nan()) || (p - q).abs() <= tol * (1.0 + q.abs()),
            "{what}: element {i}: {p} and {q}\n{a:?}\n{b:?}"
        );
    }
}

/// Runs all checks of one function. Float inputs must be f64, at a point where the function is smooth.
pub(crate) fn check(
    what: &str,
    inputs: &[Literal],
    f: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Value>,
) -> Vec<Literal> {
    let g = graph(inputs, f);
    verify::verify(&g).unwrap_or_else(|e| panic!("{what}: {e}"));
    let out = run(&g, inputs);
    let floats: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].ty().dtype == F).collect();
    round_trips(what, &g);
    batches(what, &g, inputs);
    if out[0].ty().dtype == F && !floats.is_empty() {
        let loss = summed(&g, Unary::Sin);
        let first = tensorloom_transform::grad(&loss, &floats).unwrap_or_else(|e| panic!("{what}: {e}"));
        verify::verify(&first).unwrap_or_else(|e| panic!("{what}: {e}"));
        round_trips(what, &first);
        equals_differences(&format!("{what}: grad"), &loss, &first, inputs, &floats, 1e-7);
        forward_equals_reverse(what, &loss, &first, inputs, &floats);
        batches(&format!("{what}: grad"), &first, inputs);
        let norm = summed(&first, Unary::Sin);
        let second = tensorloom_transform::grad(&norm, &floats).unwrap_or_else(|e| panic!("{what}: {e}"));
        equals_differences(&format!("{what}: second order"), &norm, &second, inputs, &floats, 1e-6);
    }
    out
}

fn round_trips(what: &str, g: &Graph) {
    let printed = g.to_string();
    let parsed = text::parse(&printed).unwrap_or_else(|e| panic!("{what}: {e}\n{printed}"));
    assert_eq!(&parsed, g, "{what}");
}

/// A weighted sum of a nonlinear function of all outputs, so that linear ops have a second derivative too.
fn summed(g: &Graph, of: Unary) -> Graph {
    let mut b = Builder::new();
    let x: Vec<Value> = g.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut total = b.scalar(F, 0.0).unwrap();
    for y in b.inline(g, &x).unwrap() {
        let ty = b.ty(y);
        let weights = b.constant(random(&ty.shape, 77)).unwrap();
        let curved = b.unary(of, y).unwrap();
        let product = b.mul(curved, weights).unwrap();
        let sum = b.sum_all(product).unwrap();
        total = b.add(total, sum).unwrap();
    }
    b.finish(&[total])
}

fn equals_differences(what: &str, f: &Graph, grads: &Graph, x: &[Literal], wrt: &[usize], tol: f64) {
    let got = run(grads, x);
    let eps = 1e-5;
    for (g, &w) in got.iter().zip(wrt) {
        let expected = Literal::from_fn(x[w].ty().clone(), |i| {
            let at = |by: f64| {
                let mut y = x.to_vec();
                y[w] = Literal::from_fn(x[w].ty().clone(), |j| {
                    Scalar::from_f64(F, x[w].get(j).to_f64() + if i == j { by } else { 0.0 })
                });
                run(f, &y)[0].get(0).to_f64()
            };
            Scalar::from_f64(F, (at(eps) - at(-eps)) / (2.0 * eps))
        });
        close(&format!("{what} of input {w}"), g, &expected, tol);
    }
}

fn forward_equals_reverse(what: &str, f: &Graph, grads: &Graph, x: &[Literal], wrt: &[usize]) {
    let active: Vec<bool> = (0..x.len()).map(|i| wrt.contains(&i)).collect();
    let (fwd, has) = tensorloom_transform::jvp(f, &active, &[true]).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(has, [true]);
    let directions: Vec<Literal> = wrt.iter().map(|&i| random(&x[i].ty().shape, 5 + i as u64)).collect();
    let forward = run(&fwd, &[x, &directions].concat())[1].get(0).to_f64();
    let reverse: f64 = (run(grads, x).iter().zip(&directions))
        .flat_map(|(g, d)| g.scalars().zip(d.scalars()).collect::<Vec<_>>())
        .map(|(a, b)| a.to_f64() * b.to_f64())
        .sum();
    assert!(
        (forward - reverse).abs() <= 1e-10 * (1.0 + reverse.abs()),
        "{what}: forward mode gives {forward}, reverse mode {reverse}"
    );
}

/// One input of a batch: floats are perturbed, integers rotate and increase.
fn variant(x: &Literal, k: usize) -> Literal {
    let n = x.ty().numel().max(1);
    let noise = random(&x.ty().shape, 100 + k as u64);
    Literal::from_fn(x.ty().clone(), |i| match x.ty().dtype.is_float() {
        true => Scalar::from_f64(x.ty().dtype, x.get(i).to_f64() + k as f64 * noise.get(i).to_f64()),
        false => Scalar::from_i64(x.ty().dtype, x.get((i + k) % n).to_i64().wrapping_add(k as i64)),
    })
}

fn batches(what: &str, g: &Graph, x: &[Literal]) {
    let n = x.len();
    for size in [2, 0] {
        for mask in 1u32..1 << n {
            let flags: Vec<bool> = (0..n).map(|i| mask >> i & 1 == 1).collect();
            let (wide, outs) = tensorloom_transform::vmap(g, &flags, &vec![true; g.outputs().len()], size)
                .unwrap_or_else(|e| panic!("{what}: vmap {flags:?}: {e}"));
            verify::verify(&wide).unwrap_or_else(|e| panic!("{what}: vmap {flags:?}: {e}"));
            assert!(outs.iter().all(|o| *o));
            let one = |i: usize, k: usize| if flags[i] { variant(&x[i], k) } else { x[i].clone() };
            let args: Vec<Literal> = (0..n)
                .map(|i| match flags[i] {
                    true => {
                        let bytes: Vec<u8> = (0..size).flat_map(|k| one(i, k).bytes().to_vec()).collect();
                        Literal::from_bytes(x[i].ty().batched(size), &bytes).unwrap()
                    }
                    false => x[i].clone(),
                })
                .collect();
            let got = run(&wide, &args);
            for k in 0..size {
                let single: Vec<Literal> = (0..n).map(|i| one(i, k)).collect();
                for (a, e) in got.iter().zip(run(g, &single)) {
                    let bytes = e.bytes().len();
                    let slice = Literal::from_bytes(e.ty().clone(), &a.bytes()[k * bytes..(k + 1) * bytes]).unwrap();
                    close(&format!("{what}: vmap {flags:?} at {k}"), &slice, &e, 1e-12);
                }
            }
        }
    }
}
