//! Checks for every op: derivatives against finite differences, both modes against each other, batches against a
//! loop, and the text round trip.
#![allow(dead_code, reason = "each test file uses some of the checks")]

use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Value, interp, text, verify};

pub(crate) const F: DType = DType::F64;

/// Numbers in (-1, 1) that differ by `seed`.
pub(crate) fn random(shape: &[usize], seed: u64) -> Literal {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Literal::from_fn(Type::new(F, shape), |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(F, (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    })
}

pub(crate) fn floats(shape: &[usize], data: &[f64]) -> Literal {
    Literal::new(shape, data)
}

pub(crate) fn ints(shape: &[usize], data: &[i32]) -> Literal {
    Literal::new(shape, data)
}

/// A graph of one expression over inputs of these types.
pub(crate) fn graph(types: &[&Literal], f: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>) -> Graph {
    let mut b = Builder::new();
    let ins: Vec<Value> = types.iter().map(|l| b.graph.input(l.ty().clone())).collect();
    let outs = f(&mut b, &ins).unwrap();
    let g = b.finish(&outs);
    verify::verify(&g).unwrap();
    g
}

pub(crate) fn run(g: &Graph, x: &[Literal]) -> Vec<Literal> {
    interp::run(g, x).unwrap()
}

#[track_caller]
pub(crate) fn close(a: &Literal, b: &Literal, tol: f64) {
    assert_eq!(a.ty(), b.ty());
    for (i, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
        let (x, y) = (x.to_f64(), y.to_f64());
        let same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tol * (1.0 + y.abs());
        assert!(same, "element {i}: {x} is not {y}");
    }
}

#[track_caller]
pub(crate) fn gives(g: &Graph, x: &[Literal], expected: &[Literal]) {
    let got = run(g, x);
    assert_eq!(got.len(), expected.len());
    for (a, b) in got.iter().zip(expected) {
        close(a, b, 1e-12);
    }
}

/// Σ w·(y + y²) over the float outputs, with a different weight for each element.
pub(crate) fn loss(g: &Graph) -> Graph {
    let mut b = Builder::new();
    let ins: Vec<Value> = g.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(g, &ins).unwrap();
    let mut total = b.scalar(F, 0.0).unwrap();
    for (k, y) in outs.into_iter().enumerate() {
        let ty = b.ty(y);
        if ty.dtype == F {
            let w = b.constant(random(&ty.shape, 77 + k as u64)).unwrap();
            let sq = b.mul(y, y).unwrap();
            let both = b.add(sq, y).unwrap();
            let weighted = b.mul(w, both).unwrap();
            let sum = b.sum_all(weighted).unwrap();
            total = b.add(total, sum).unwrap();
        }
    }
    b.finish(&[total])
}

fn bumped(x: &[Literal], wrt: usize, at: usize, by: f64) -> Vec<Literal> {
    let mut y = x.to_vec();
    y[wrt] = Literal::from_fn(x[wrt].ty().clone(), |j| {
        let v = x[wrt].get(j).to_f64();
        Scalar::from_f64(F, if j == at { v + by } else { v })
    });
    y
}

fn finite_difference(g: &Graph, x: &[Literal], wrt: usize) -> Literal {
    let eps = 1e-5;
    let f = |x: &[Literal]| run(g, x)[0].get(0).to_f64();
    Literal::from_fn(x[wrt].ty().clone(), |i| {
        let slope = (f(&bumped(x, wrt, i, eps)) - f(&bumped(x, wrt, i, -eps))) / (2.0 * eps);
        Scalar::from_f64(F, slope)
    })
}

/// Checks gradients, second-order gradients and both modes, with respect to the float inputs in `wrt`; then the text form.
#[track_caller]
pub(crate) fn check_grads(g: &Graph, x: &[Literal], wrt: &[usize], tol: f64) {
    let f = loss(g);
    let first = tensorloom_transform::grad(&f, wrt).unwrap();
    verify::verify(&first).unwrap();
    let got = run(&first, x);
    for (k, &i) in wrt.iter().enumerate() {
        close(&got[k], &finite_difference(&f, x, i), tol);
    }
    let norm = loss(&first);
    let second = tensorloom_transform::grad(&norm, wrt).unwrap();
    verify::verify(&second).unwrap();
    let got = run(&second, x);
    for (k, &i) in wrt.iter().enumerate() {
        close(&got[k], &finite_difference(&norm, x, i), 10.0 * tol);
    }
    check_modes(g, x, wrt);
    for graph in [g, &first, &second] {
        check_text(graph);
    }
}

/// Checks `⟨ct, jvp(dx)⟩ = ⟨vjp(ct), dx⟩`, and forward mode against finite differences along `dx`.
#[track_caller]
pub(crate) fn check_modes(g: &Graph, x: &[Literal], wrt: &[usize]) {
    let active: Vec<bool> = (0..x.len()).map(|i| wrt.contains(&i)).collect();
    let dx: Vec<Literal> =
        (0..x.len()).filter(|i| active[*i]).map(|i| random(&x[i].ty().shape, 500 + i as u64)).collect();
    let outs = g.outputs().len();
    let (fwd, _) = tensorloom_transform::jvp(g, &active, &vec![true; outs]).unwrap();
    verify::verify(&fwd).unwrap();
    let dy = run(&fwd, &[x, &dx].concat()).split_off(outs);
    let cts: Vec<Literal> = dy.iter().enumerate().map(|(k, d)| random(&d.ty().shape, 900 + k as u64)).collect();
    let order: Vec<usize> = (0..x.len()).filter(|i| active[*i]).collect();
    let back = tensorloom_transform::vjp(g, &order).unwrap();
    let grads = run(&back, &[x, &cts].concat()).split_off(outs);
    let dot = |a: &[Literal], b: &[Literal]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| a.scalars().zip(b.scalars()).map(|(p, q)| p.to_f64() * q.to_f64()).sum::<f64>()).sum()
    };
    let (forward, backward) = (dot(&cts, &dy), dot(&grads, &dx));
    assert!((forward - backward).abs() <= 1e-9 * (1.0 + forward.abs()), "{forward} {backward}");
}

/// Checks forward mode against finite differences along one direction, for ops without reverse mode.
#[track_caller]
pub(crate) fn check_jvp(g: &Graph, x: &[Literal], wrt: &[usize], tol: f64) {
    let active: Vec<bool> = (0..x.len()).map(|i| wrt.contains(&i)).collect();
    let dx: Vec<Literal> = (0..x.len()).map(|i| random(&x[i].ty().shape, 500 + i as u64)).collect();
    let outs = g.outputs().len();
    let (fwd, has) = tensorloom_transform::jvp(g, &active, &vec![false; outs]).unwrap();
    verify::verify(&fwd).unwrap();
    let given: Vec<Literal> = (0..x.len()).filter(|i| active[*i]).map(|i| dx[i].clone()).collect();
    let got = run(&fwd, &[x, &given].concat());
    let eps = 1e-6;
    let moved = |by: f64| -> Vec<Literal> {
        let shift = |i: usize| {
            Literal::from_fn(x[i].ty().clone(), |j| {
                Scalar::from_f64(F, x[i].get(j).to_f64() + by * dx[i].get(j).to_f64())
            })
        };
        run(g, &(0..x.len()).map(|i| if active[i] { shift(i) } else { x[i].clone() }).collect::<Vec<_>>())
    };
    let (up, down) = (moved(eps), moved(-eps));
    for (at, k) in (outs..).zip((0..outs).filter(|&k| has[k])) {
        let slope = Literal::from_fn(up[k].ty().clone(), |j| {
            Scalar::from_f64(F, (up[k].get(j).to_f64() - down[k].get(j).to_f64()) / (2.0 * eps))
        });
        close(&got[at], &slope, tol);
    }
    check_text(&fwd);
}

#[track_caller]
pub(crate) fn check_text(g: &Graph) {
    let printed = g.to_string();
    let parsed = text::parse(&printed).unwrap();
    assert_eq!(parsed.to_string(), printed);
    assert_eq!(parsed.structural_hash(), g.structural_hash());
}

fn stack(xs: &[&Literal]) -> Literal {
    let bytes: Vec<u8> = xs.iter().flat_map(|l| l.bytes().to_vec()).collect();
    Literal::from_bytes(xs[0].ty().batched(xs.len()), &bytes).unwrap()
}

/// Checks `vmap` against a loop for every combination of batched operands; `rows[k]` are the operands of the k-th element.
#[track_caller]
pub(crate) fn check_vmap(g: &Graph, rows: &[Vec<Literal>]) {
    let n = g.inputs().len();
    let size = rows.len();
    for mask in 1..1u32 << n {
        let batched: Vec<bool> = (0..n).map(|i| mask >> i & 1 == 1).collect();
        let want = vec![true; g.outputs().len()];
        let (wide, _) = tensorloom_transform::vmap(g, &batched, &want, size).unwrap();
        verify::verify(&wide).unwrap();
        let x: Vec<Literal> = (0..n)
            .map(|i| match batched[i] {
                true => stack(&rows.iter().map(|r| &r[i]).collect::<Vec<_>>()),
                false => rows[0][i].clone(),
            })
            .collect();
        let got = run(&wide, &x);
        for (k, row) in rows.iter().enumerate() {
            let one: Vec<Literal> =
                (0..n).map(|i| if batched[i] { row[i].clone() } else { rows[0][i].clone() }).collect();
            for (a, e) in got.iter().zip(run(g, &one)) {
                let t = e.ty();
                let part = &a.bytes()[k * t.bytes()..(k + 1) * t.bytes()];
                close(&Literal::from_bytes(t.clone(), part).unwrap(), &e, 1e-9);
            }
        }
    }
}
