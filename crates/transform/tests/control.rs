//! `cond` and `while` through every transform.

mod checks;

use checks::*;
use ir::ops::{Cond, While};
use ir::{Binary, Builder, Compare, DType, Graph, GraphBuilder, Literal, Unary, Value, interp};

/// Over (w: f64[3], x: f64[3], n: i32[]): three branches that need different operands, with one known
/// output, one output that depends on `x` only in some branches, and an integer.
fn branches() -> Vec<Graph> {
    let new = || {
        let mut b = Builder::new();
        let v = [b.input(F, &[3]), b.input(F, &[3]), b.input(DType::I32, &[])];
        (b, v)
    };
    let (mut b, [w, x, n]) = new();
    let s = b.unary(Unary::Sin, x).unwrap();
    let y = b.mul(s, w).unwrap();
    let zero = b.unary(Unary::Cos, w).unwrap();
    let first = b.finish(&[y, zero, n]);
    let (mut b, [w, x, n]) = new();
    let e = b.unary(Unary::Exp, x).unwrap();
    let y = b.mul(e, x).unwrap();
    let z = b.mul(w, w).unwrap();
    let two = b.full_like(n, 2.0).unwrap();
    let m = b.mul(n, two).unwrap();
    let second = b.finish(&[y, z, m]);
    let (mut b, [w, _x, n]) = new();
    let y = b.unary(Unary::Tanh, w).unwrap();
    let one = b.full_like(y, 1.5).unwrap();
    let third = b.finish(&[y, one, n]);
    vec![first, second, third]
}

fn switch() -> Graph {
    let (i, x, n) = (ints(&[], &[0]), random(&[3], 1), ints(&[], &[1]));
    graph(&[&i, &x, &x, &n], |b, v| Ok(b.emit(Cond::new(branches()).into(), v)?.to_vec()))
}

fn operands(index: i32, seed: u64) -> Vec<Literal> {
    vec![ints(&[], &[index]), random(&[3], seed), random(&[3], seed + 1), ints(&[], &[seed as i32])]
}

#[test]
fn cond_takes_the_branch_of_its_clamped_index() {
    let g = switch();
    for (index, branch) in [(0, 0), (1, 1), (2, 2), (-7, 0), (9, 2)] {
        let x = operands(index, 3);
        gives(&g, &x, &run(&branches()[branch], &x[1..]));
    }
}

#[test]
fn cond_is_differentiable_in_both_modes_and_twice() {
    for index in [0, 1, 2] {
        check_grads(&switch(), &operands(index, 5), &[1, 2], 1e-7);
        check_grads(&switch(), &operands(index, 5), &[2], 1e-7);
        check_grads(&switch(), &operands(index, 5), &[1], 1e-7);
    }
}

#[test]
fn cond_over_a_batch_equals_a_loop() {
    let rows: Vec<_> = [(1, 4), (0, 9), (5, 6), (-1, 2)].iter().map(|&(i, s)| operands(i, s)).collect();
    check_vmap(&switch(), &rows);
    check_vmap(&tensorloom_transform::grad(&loss(&switch()), &[1, 2]).unwrap(), &rows);
}

#[test]
fn residuals_of_branches_share_their_places() {
    let lin = tensorloom_transform::linearize(&switch(), &[false, false, true, false]).unwrap();
    // The index, the operands w and x, and one residual vector: cos x in the first branch, or eˣ in the second.
    assert_eq!(lin.residuals, 4, "{}", lin.known);
    let (mut b, mut c) = (Builder::new(), Builder::new());
    let (x, z) = (b.input(F, &[]), c.input(F, &[]));
    let y = b.unary(Unary::Sin, x).unwrap();
    let pair = Cond::new([b.finish(&[y]), c.finish(&[z])]);
    let scalar = random(&[], 1);
    let g = graph(&[&ints(&[], &[0]), &scalar], |b, v| Ok(b.emit(pair.into(), v)?.to_vec()));
    check_grads(&g, &[ints(&[], &[0]), scalar], &[1], 1e-8);
}

#[test]
fn bad_conds_are_problems() {
    let x = random(&[3], 1);
    let i = ints(&[], &[0]);
    let mut b = Builder::new();
    let v = b.graph.input(x.ty().clone());
    let id = b.finish(&[v]);
    let emit = |op: Cond, types: &[&Literal]| {
        let mut b = Builder::new();
        let v: Vec<Value> = types.iter().map(|l| b.graph.input(l.ty().clone())).collect();
        b.emit(op.into(), &v).is_err()
    };
    assert!(emit(Cond::new([]), &[&i, &x]));
    assert!(emit(Cond::new([id.clone()]), &[]));
    assert!(emit(Cond::new([id.clone()]), &[&x, &x]));
    assert!(emit(Cond::new([id.clone()]), &[&i, &i]));
    assert!(emit(Cond::new([id.clone(), branches().remove(0)]), &[&i, &x]));
    assert!(!emit(Cond::new([id]), &[&i, &x]));
}

/// `while i < limit: x = sin(x)·w + x, i = i + 1`, over (limit, w, i, x, k): `k` is carried unchanged.
fn loop_graph() -> Graph {
    let mut c = Builder::new();
    let limit = c.input(DType::I32, &[]);
    let (i, _x, _k) = (c.input(DType::I32, &[]), c.input(F, &[2]), c.input(F, &[]));
    let go = c.compare(Compare::Lt, i, limit).unwrap();
    let cond = c.finish(&[go]);
    let mut b = Builder::new();
    let w = b.input(F, &[2]);
    let (i, x, k) = (b.input(DType::I32, &[]), b.input(F, &[2]), b.input(F, &[]));
    let s = b.unary(Unary::Sin, x).unwrap();
    let p = b.mul(s, w).unwrap();
    let y = b.add(p, x).unwrap();
    let one = b.full_like(i, 1.0).unwrap();
    let j = b.add(i, one).unwrap();
    let body = b.finish(&[j, y, k]);
    let (n, v, k) = (ints(&[], &[0]), random(&[2], 1), random(&[], 2));
    graph(&[&n, &v, &n, &v, &k], |b, x| Ok(b.emit(While::new(1, 1, cond, body).into(), x)?.to_vec()))
}

fn loop_operands(limit: i32, seed: u64) -> Vec<Literal> {
    let v = |s| random(&[2], s);
    vec![ints(&[], &[limit]), v(seed), ints(&[], &[0]), v(seed + 1), random(&[], seed)]
}

#[test]
fn while_runs_until_its_predicate_fails() {
    for limit in [0, 1, 5, -2] {
        let x = loop_operands(limit, 3);
        let (w, mut v) = (x[1].to_vec::<f64>(), x[3].to_vec::<f64>());
        for _ in 0..limit.max(0) {
            v = v.iter().zip(&w).map(|(v, w)| v.sin() * w + v).collect();
        }
        gives(&loop_graph(), &x, &[ints(&[], &[limit.max(0)]), floats(&[2], &v), x[4].clone()]);
    }
}

#[test]
fn while_has_forward_mode_of_any_order_and_says_why_it_has_no_reverse_mode() {
    let g = loop_graph();
    for limit in [0, 3] {
        let x = loop_operands(limit, 3);
        check_jvp(&g, &x, &[1, 3], 1e-7);
        check_jvp(&g, &x, &[1], 1e-7);
        check_jvp(&g, &x, &[3, 4], 1e-7);
        let (twice, _) = tensorloom_transform::jvp(&g, &[false, true, false, true, false], &[false; 3]).unwrap();
        let wide = [&x[..], &[random(&[2], 8), random(&[2], 9)]].concat();
        check_jvp(&twice, &wide, &[1, 3, 5], 1e-6);
    }
    let error = tensorloom_transform::grad(&loss(&g), &[1]).unwrap_err().to_string();
    assert!(error.contains("use scan (a bounded scan stops early)"), "{error}");
}

#[test]
fn a_while_that_does_not_touch_the_gradient_is_no_obstacle() {
    let x = loop_operands(3, 4);
    let refs: Vec<&Literal> = x.iter().chain([&x[1]]).collect();
    let g = graph(&refs, |b, v| {
        let outs = b.inline(&loop_graph(), &v[..5])?;
        Ok(vec![b.mul(outs[1], v[5])?])
    });
    check_grads(&g, &[&x[..], &[random(&[2], 6)]].concat(), &[5], 1e-7);
}

#[test]
fn while_splits_off_the_carries_that_are_known() {
    let (fwd, _) = tensorloom_transform::jvp(&loop_graph(), &[false, true, false, false, false], &[false; 3]).unwrap();
    let s = tensorloom_transform::partial_eval(&fwd, &[true, true, true, true, true, false]).unwrap();
    assert_eq!(s.known_outs, [true, true, true, false]);
    let x = loop_operands(4, 3);
    let tangent = random(&[2], 8);
    let known = run(&s.known, &x);
    let rest = run(&s.unknown, &[&known[3..], std::slice::from_ref(&tangent)].concat());
    close(&rest[0], &run(&fwd, &[&x[..], &[tangent]].concat())[3], 1e-12);
}

#[test]
fn while_over_a_batch_runs_each_element_to_its_own_end() {
    let rows: Vec<_> = [(4, 3), (0, 5), (2, 7)].iter().map(|&(n, s)| loop_operands(n, s)).collect();
    check_vmap(&loop_graph(), &rows);
    let (empty, _) = tensorloom_transform::vmap(&loop_graph(), &[true; 5], &[true; 3], 0).unwrap();
    let none: Vec<Literal> = empty.input_types().into_iter().map(Literal::zeros).collect();
    assert_eq!(run(&empty, &none)[1].ty().shape.as_slice(), [0, 2]);
}

#[test]
fn bad_whiles_are_problems() {
    let new = |f: fn(&mut Builder, Value) -> Value| {
        let mut b = Builder::new();
        let x = b.input(F, &[]);
        let y = f(&mut b, x);
        b.finish(&[y])
    };
    let go = |b: &mut Builder, x| b.compare(Compare::Lt, x, x).unwrap();
    let stay = |b: &mut Builder, x| b.binary(Binary::Add, x, x).unwrap();
    let refused = |c: usize, n: usize, cond: Graph, body: Graph, args: usize| {
        let mut b = Builder::new();
        let x = b.input(F, &[]);
        b.emit(While::new(c, n, cond, body).into(), &vec![x; args]).is_err()
    };
    assert!(!refused(0, 0, new(go), new(stay), 1));
    assert!(refused(0, 0, new(stay), new(stay), 1));
    assert!(refused(0, 0, new(go), new(go), 1));
    assert!(refused(0, 0, new(go), new(stay), 2));
    assert!(refused(usize::MAX, 1, new(go), new(stay), 1));
    assert!(interp::run(&loop_graph(), &[]).is_err());
}
