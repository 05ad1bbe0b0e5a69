//! Injected faults in derivatives and batching: the checks must detect each of them.
//!
//! A mutant changes the result graph of a transform like a wrong rule would: a lost sign, a missing transpose, exchanged
//! residuals. Values stay correct; only tangents, gradients or batches are wrong. (`examples/mutants.rs` does the
//! same to the sources.)

use ir::ops::{Clamp, Const, Cumulative, Dot, Flip, Gather, Pad, Permute, Reduce, ReduceKind, Scan, Slice};
use ir::{Binary, Builder, Compare, Graph, GraphBuilder, Literal, Op, Scalar, Unary, Value};
use tensorloom_testing::check::{self, Transforms};
use tensorloom_testing::{Rng, samples};

/// The replacement of a node: an op over operands, or an operand.
enum Instead {
    Op(Box<Op>, Vec<Value>),
    Value(Value),
}

type Change = fn(&Op, &[Value]) -> Option<Instead>;

/// Copies a graph into `b`, and changes every node that the mutant matches if the result type-checks.
fn changed(b: &mut Builder, graph: &Graph, args: &[Value], change: Change) -> Vec<Value> {
    let copied = graph.inline_with(args, |node, operands| {
        let types: Vec<ir::Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
        match change(&node.op, operands) {
            Some(Instead::Value(v)) if types.len() == 1 && b.ty(v) == types[0] => return Ok([v].into_iter().collect()),
            Some(Instead::Op(op, operands)) => {
                let have: Vec<ir::Type> = operands.iter().map(|&v| b.ty(v)).collect();
                if op.infer(&have).is_ok_and(|t| t == types) {
                    return b.emit(*op, &operands);
                }
            }
            _ => {}
        }
        b.emit(node.op.clone(), operands)
    });
    copied.expect("a changed node type-checks")
}

/// The graph with its first `values` outputs unchanged and the others from the mutant.
fn wrong_after(graph: &Graph, values: usize, change: Change) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let right = b.inline(graph, &args).expect("a valid graph");
    let wrong = changed(&mut b, graph, &args, change);
    let outs: Vec<Value> = right[..values].iter().chain(&wrong[values..]).copied().collect();
    b.finish(&outs)
}

fn in_vjp(change: Change) -> Transforms {
    Transforms {
        vjp: Box::new(move |g, wrt| Ok(wrong_after(&transform::vjp(g, wrt)?, g.outputs().len(), change))),
        ..Transforms::default()
    }
}

fn in_jvp(change: Change) -> Transforms {
    Transforms {
        jvp: Box::new(move |g, active| {
            let (graph, has) = transform::jvp(g, active, &[])?;
            Ok((wrong_after(&graph, g.outputs().len(), change), has))
        }),
        ..Transforms::default()
    }
}

fn in_vmap(change: Change) -> Transforms {
    Transforms {
        vmap: Box::new(move |g, axes, outs, size| {
            Ok(wrong_after(&transform::vmap_axes(g, axes, outs, size)?, 0, change))
        }),
        ..Transforms::default()
    }
}

/// A vjp whose gradients `f` modifies.
fn with_gradients(f: fn(&mut Builder, &mut [Value])) -> Transforms {
    Transforms {
        vjp: Box::new(move |g, wrt| {
            let graph = transform::vjp(g, wrt)?;
            let mut b = Builder::new();
            let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
            let mut outs = b.inline(&graph, &args)?;
            f(&mut b, &mut outs[g.outputs().len()..]);
            Ok(b.finish(&outs))
        }),
        ..Transforms::default()
    }
}

fn op(op: impl Into<Op>, args: &[Value]) -> Option<Instead> {
    Some(Instead::Op(Box::new(op.into()), args.to_vec()))
}

fn replaced(from: Unary, to: Unary, found: &Op, x: &[Value]) -> Option<Instead> {
    (*found == Op::Unary(from)).then(|| op(to, x)).flatten()
}

fn forget_minus(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Unary(Unary::Neg)).then(|| Instead::Value(x[0]))
}

fn add_for_sub(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Binary(Binary::Sub)).then(|| op(Binary::Add, x)).flatten()
}

fn lost_residual(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Binary(Binary::Mul)).then(|| Instead::Value(x[0]))
}

fn wrong_residual(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Binary(Binary::Mul)).then(|| op(Binary::Mul, &[x[1], x[1]])).flatten()
}

fn mul_for_div(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Binary(Binary::Div)).then(|| op(Binary::Mul, x)).flatten()
}

fn lost_sum(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Binary(Binary::Add)).then(|| Instead::Value(x[0]))
}

fn forgotten_transpose(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Permute(_)).then(|| Instead::Value(x[0]))
}

fn permutation_not_inverted(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Permute(p) = o else { return None };
    let mut perm = p.perm.clone();
    p.perm.iter().enumerate().for_each(|(i, &a)| perm[a] = i);
    op(Permute { perm }, x)
}

fn forgotten_flip(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Flip(_)).then(|| Instead::Value(x[0]))
}

fn low_for_high(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Pad(p) = o else { return None };
    op(Pad { low: p.high.clone(), high: p.low.clone(), ..p.clone() }, x)
}

fn first_slice(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Slice(s) = o else { return None };
    let mut s: Slice = s.clone();
    for a in 0..s.start.len() {
        s.limit[a] -= s.start[a];
        s.start[a] = 0;
    }
    op(s, x)
}

fn max_for_sum(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Reduce(r) = o else { return None };
    (r.kind == ReduceKind::Sum).then(|| op(Reduce { kind: ReduceKind::Max, axes: r.axes.clone() }, x)).flatten()
}

fn wrong_axis(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Reduce(r) = o else { return None };
    op(Reduce { kind: r.kind, axes: r.axes.iter().map(|a| a.saturating_sub(1)).collect() }, x)
}

fn other_branch(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Select(_)).then(|| op(ir::ops::Select, &[x[0], x[2], x[1]])).flatten()
}

fn wrong_comparison(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Compare(Compare::Gt)).then(|| op(Compare::Lt, x)).flatten()
}

fn sine_for_cosine(o: &Op, x: &[Value]) -> Option<Instead> {
    replaced(Unary::Cos, Unary::Sin, o, x)
}

fn missing_factor(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Const(c) = o else { return None };
    let ty = c.0.ty();
    (ty.dtype == ir::DType::F64 && ty.rank() == 0)
        .then(|| op(Const(Literal::scalar(Scalar::from_f64(ty.dtype, c.0.get(0).to_f64() * 2.0))), x))
        .flatten()
}

fn same_direction(o: &Op, x: &[Value]) -> Option<Instead> {
    match o {
        Op::Scan(s) => op(Scan { reverse: !s.reverse, ..s.clone() }, x),
        Op::Cumulative(c) => op(Cumulative { reverse: !c.reverse, ..c.clone() }, x),
        _ => None,
    }
}

fn factors_exchanged(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Dot(d) = o else { return None };
    op(Dot { lhs_contract: d.rhs_contract.clone(), rhs_contract: d.lhs_contract.clone(), ..d.clone() }, x)
}

fn overwritten_sum(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Scatter(s) = o else { return None };
    op(ir::ops::Scatter { kind: ir::ops::ScatterKind::Set, ..s.clone() }, x)
}

fn wrong_place(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Gather(g) = o else { return None };
    let mut dims = g.dims.clone();
    dims.index_map.iter_mut().for_each(|a| *a = a.saturating_sub(1));
    op(Gather { dims, ..g.clone() }, x)
}

fn flipped_batch(o: &Op, x: &[Value]) -> Option<Instead> {
    let Op::Flip(f) = o else { return None };
    op(Flip { axes: f.axes.iter().map(|a| a.saturating_sub(1)).collect() }, x)
}

fn unclamped(o: &Op, x: &[Value]) -> Option<Instead> {
    matches!(o, Op::Clamp(Clamp)).then(|| Instead::Value(x[0]))
}

#[test]
fn every_mutant_is_caught() {
    type Make = fn() -> Transforms;
    let mutants: &[(&str, Make)] = &[
        ("vjp: a minus is forgotten", || in_vjp(forget_minus)),
        ("vjp: a difference is a sum", || in_vjp(add_for_sub)),
        ("vjp: a factor is lost", || in_vjp(lost_residual)),
        ("vjp: a factor is another one", || in_vjp(wrong_residual)),
        ("vjp: a quotient is a product", || in_vjp(mul_for_div)),
        ("vjp: one of two uses is lost", || in_vjp(lost_sum)),
        ("vjp: a transpose is forgotten", || in_vjp(forgotten_transpose)),
        ("vjp: a permutation is not inverted", || in_vjp(permutation_not_inverted)),
        ("vjp: a flip is forgotten", || in_vjp(forgotten_flip)),
        ("vjp: padding is on the other side", || in_vjp(low_for_high)),
        ("vjp: a slice starts at 0", || in_vjp(first_slice)),
        ("vjp: a sum is a maximum", || in_vjp(max_for_sum)),
        ("vjp: the other branch of a select", || in_vjp(other_branch)),
        ("vjp: a comparison the wrong way round", || in_vjp(wrong_comparison)),
        ("vjp: a scan runs the same way", || in_vjp(same_direction)),
        ("vjp: contracted axes are exchanged", || in_vjp(factors_exchanged)),
        ("vjp: repeated indices overwrite", || in_vjp(overwritten_sum)),
        ("vjp: a constant factor is wrong", || in_vjp(missing_factor)),
        ("vjp: gradients of two inputs are exchanged", || with_gradients(|_, g| g.reverse())),
        ("vjp: the last gradient is zero", || {
            with_gradients(|b, g| {
                if let Some(last) = g.last_mut() {
                    *last = b.full_like(*last, 0.0).expect("zeros of a type");
                }
            })
        }),
        ("vjp: the first gradient is doubled", || {
            with_gradients(|b, g| {
                if let Some(first) = g.first_mut() {
                    *first = b.add(*first, *first).expect("of one type");
                }
            })
        }),
        ("jvp: a minus is forgotten", || in_jvp(forget_minus)),
        ("jvp: sine for cosine", || in_jvp(sine_for_cosine)),
        ("jvp: a factor is lost", || in_jvp(lost_residual)),
        ("jvp: one of two tangents is lost", || in_jvp(lost_sum)),
        ("jvp: a constant factor is wrong", || in_jvp(missing_factor)),
        ("jvp: a reduction over the wrong axis", || in_jvp(wrong_axis)),
        ("vmap: a reduction over the wrong axis", || in_vmap(wrong_axis)),
        ("vmap: the batch is flipped", || in_vmap(flipped_batch)),
        ("vmap: an axis stays in place", || in_vmap(forgotten_transpose)),
        ("vmap: an index reads along the batch", || in_vmap(wrong_place)),
        ("vmap: padding is on the other side", || in_vmap(low_for_high)),
        ("vmap: a clamp is lost", || in_vmap(unclamped)),
    ];
    let rows = samples::all_samples();
    let mut missed = Vec::new();
    for (name, make) in mutants {
        let t = make();
        let vmap = name.starts_with("vmap");
        let caught = rows.iter().filter(|r| vmap || (r.smooth && !r.forward_only)).find(|row| {
            let mut rng = Rng::new(5);
            match vmap {
                true => check::check_vmap_with(&t, &row.graph, &row.inputs, &mut rng).is_err(),
                false => check::check_grads_with(&t, &row.graph, &row.inputs, &mut rng).is_err(),
            }
        });
        match caught {
            Some(row) => println!("{name}: caught by {}", row.name),
            None => missed.push(name),
        }
    }
    println!("{} mutants", mutants.len());
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn the_right_transforms_pass() {
    // Without a mutation, the machinery above changes nothing.
    fn nothing(_: &Op, _: &[Value]) -> Option<Instead> {
        None
    }
    for t in [in_vjp(nothing), in_jvp(nothing), in_vmap(nothing)] {
        for row in samples::all_samples().iter().filter(|r| r.smooth && !r.forward_only).step_by(7) {
            let mut rng = Rng::new(5);
            check::check_grads_with(&t, &row.graph, &row.inputs, &mut rng).unwrap();
            check::check_vmap_with(&t, &row.graph, &row.inputs, &mut rng).unwrap();
        }
    }
}
