//! The reference interpreter: slow and simple. Every backend and every pass is compared with it.
//!
//! Sums of floats, including contractions, are accumulated in f64 and rounded once at the end.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::literal::Literal;
use crate::ops::dot::Dot;
use crate::ops::{Op, ReduceKind, Semantics, View};
use crate::scalar::{Binary, Scalar};
use crate::types::{Shape, Type, for_each_index, offset};

/// Runs a graph on concrete inputs.
pub fn run(graph: &Graph, inputs: &[Literal]) -> Result<Vec<Literal>> {
    if inputs.len() != graph.inputs().len() {
        return Err(Error::Run(format!("the graph takes {} inputs, got {}", graph.inputs().len(), inputs.len())));
    }
    let live = graph.live_values();
    let mut values: Vec<Option<Literal>> = vec![None; graph.num_values()];
    for (i, (&v, x)) in graph.inputs().iter().zip(inputs).enumerate() {
        if graph.ty(v) != x.ty() {
            return Err(Error::Run(format!("input {i} must be {}, got {}", graph.ty(v), x.ty())));
        }
        values[v.0 as usize] = Some(x.clone());
    }
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        let args: Vec<Literal> =
            node.args.iter().map(|a| values[a.0 as usize].clone().expect("operands come first")).collect();
        let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
        types.iter().try_for_each(|ty| check_allocation(ty)).map_err(|e| e.at(&node.loc))?;
        let outs = eval(&node.op, &args, &types).map_err(|e| e.at(&node.loc))?;
        for (&v, out) in node.outs.iter().zip(outs) {
            debug_assert_eq!(graph.ty(v), out.ty(), "{} gave another type than it inferred", node.op.name());
            values[v.0 as usize] = Some(out);
        }
    }
    Ok(graph.outputs().iter().map(|v| values[v.0 as usize].clone().expect("outputs are live")).collect())
}

/// Returns an error for values that are too large to allocate; a failed allocation would abort the process.
fn check_allocation(ty: &Type) -> Result<()> {
    const SMALL: usize = 1 << 24;
    match ty.bytes() <= SMALL || Vec::<u8>::new().try_reserve_exact(ty.bytes()).is_ok() {
        true => Ok(()),
        false => Err(Error::Run(format!("{ty} has {} bytes, which do not fit into memory", ty.bytes()))),
    }
}

/// Results of one op.
pub fn eval(op: &Op, args: &[Literal], outs: &[Type]) -> Result<Vec<Literal>> {
    Ok(match op.semantics() {
        Semantics::Elementwise(expr) => {
            let mut scratch = Vec::with_capacity(args.len());
            vec![Literal::from_fn(outs[0].clone(), |i| {
                scratch.clear();
                scratch.extend(args.iter().map(|a| a.get(i)));
                expr.eval(&scratch)
            })]
        }
        Semantics::Reduce(kind, axes) => vec![reduce(kind, &axes, &args[0], &outs[0])],
        Semantics::View(view) => vec![rearrange(&view, args, &outs[0])],
        Semantics::DotGeneral(dot) => vec![contract(&dot, &args[0], &args[1], &outs[0])],
        Semantics::Constant => vec![leaf(op)?],
        Semantics::Inline(graph) => run(&graph, args)?,
        Semantics::Index(_) | Semantics::Opaque => op.eval(args)?,
    })
}

fn leaf(op: &Op) -> Result<Literal> {
    match op {
        Op::Const(c) => Ok(c.0.clone()),
        other => Err(Error::Run(format!("{} is not a constant", other.name()))),
    }
}

/// Sums floats in f64; all other reductions use the accumulator dtype.
fn accumulate(op: Binary, items: impl Iterator<Item = Scalar>, identity: Scalar) -> Scalar {
    let dtype = identity.dtype();
    if dtype.is_float() && op == Binary::Add {
        return Scalar::from_f64(dtype, items.fold(identity.to_f64(), |acc, x| acc + x.to_f64()));
    }
    let acc = if op == Binary::Mul { dtype.accumulator() } else { dtype };
    items.fold(identity.cast(acc), |a, x| op.eval(a, x.cast(acc))).cast(dtype)
}

fn reduce(kind: ReduceKind, axes: &[usize], x: &Literal, out: &Type) -> Literal {
    if axes.is_empty() {
        return x.clone();
    }
    let ty = x.ty();
    let strides = ty.strides();
    let kept: Vec<usize> = (0..ty.rank()).filter(|a| !axes.contains(a)).collect();
    let kept_strides: Vec<usize> = kept.iter().map(|&a| strides[a]).collect();
    let axis_sizes: Vec<usize> = axes.iter().map(|&a| ty.shape[a]).collect();
    let axis_strides: Vec<usize> = axes.iter().map(|&a| strides[a]).collect();
    let mut inner = Vec::new();
    for_each_index(&axis_sizes, |i| inner.push(offset(i, &axis_strides)));
    let mut results = Vec::with_capacity(out.numel());
    for_each_index(&out.shape, |i| {
        let base = offset(i, &kept_strides);
        let items = inner.iter().map(|k| x.get(base + k));
        results.push(accumulate(kind.combine(), items, kind.identity(out.dtype)));
    });
    Literal::from_fn(out.clone(), |i| results[i])
}

/// The index of the operand element that a view shows at a result index, or `None` for padding.
pub fn view_source(view: &View, operand: &Type, out: &Type, index: &[usize]) -> Option<usize> {
    let strides = operand.strides();
    Some(match view {
        View::Reshape => offset(index, &out.strides()),
        View::Permute(perm) => index.iter().zip(perm).map(|(i, &p)| i * strides[p]).sum(),
        View::Broadcast(dims) => {
            dims.iter().enumerate().map(|(a, &d)| if operand.shape[a] == 1 { 0 } else { index[d] * strides[a] }).sum()
        }
        View::Slice(start, step) => (0..index.len()).map(|a| (start[a] + index[a] * step[a]) * strides[a]).sum(),
        View::Pad(low, interior) => {
            let mut at = 0;
            for a in 0..index.len() {
                let i = index[a] as i64 - low[a];
                let step = interior[a] as i64 + 1;
                if i < 0 || i % step != 0 || i / step >= operand.shape[a] as i64 {
                    return None;
                }
                at += (i / step) as usize * strides[a];
            }
            at
        }
        View::Flip(axes) => (0..index.len())
            .map(|a| if axes.contains(&a) { operand.shape[a] - 1 - index[a] } else { index[a] } * strides[a])
            .sum(),
    })
}

fn rearrange(view: &View, args: &[Literal], out: &Type) -> Literal {
    let x = &args[0];
    let mut items = Vec::with_capacity(out.numel());
    for_each_index(&out.shape, |index| {
        items.push(match view_source(view, x.ty(), out, index) {
            Some(i) => x.get(i),
            None => args[1].get(0),
        });
    });
    Literal::from_fn(out.clone(), |i| items[i])
}

fn contract(dot: &Dot, a: &Literal, b: &Literal, out: &Type) -> Literal {
    let (sa, sb) = (a.ty().strides(), b.ty().strides());
    let pick = |s: &[usize], axes: &[usize]| -> Shape { axes.iter().map(|&i| s[i]).collect() };
    let (fa, fb) = (dot.lhs_free(a.ty().rank()), dot.rhs_free(b.ty().rank()));
    let nb = dot.lhs_batch.len();
    let sizes = pick(&a.ty().shape, &dot.lhs_contract);
    let (ka, kb) = (pick(&sa, &dot.lhs_contract), pick(&sb, &dot.rhs_contract));
    let mut inner = Vec::new();
    for_each_index(&sizes, |k| inner.push((offset(k, &ka), offset(k, &kb))));
    let (ba, bb) = (pick(&sa, &dot.lhs_batch), pick(&sb, &dot.rhs_batch));
    let (ra, rb) = (pick(&sa, &fa), pick(&sb, &fb));
    let numbers = |l: &Literal| -> Vec<f64> {
        if out.dtype.is_float() { l.scalars().map(Scalar::to_f64).collect() } else { Vec::new() }
    };
    let (left_numbers, right_numbers) = (numbers(a), numbers(b));
    let mut results = Vec::with_capacity(out.numel());
    for_each_index(&out.shape, |i| {
        let (batch, free) = i.split_at(nb);
        let (left, right) = free.split_at(fa.len());
        let at_a = offset(batch, &ba) + offset(left, &ra);
        let at_b = offset(batch, &bb) + offset(right, &rb);
        let value = if out.dtype.is_float() {
            // Not `sum()`, which returns -0 for an empty sequence.
            let product = |(p, q): &(usize, usize)| left_numbers[at_a + p] * right_numbers[at_b + q];
            let sum = inner.iter().map(product).fold(0.0, |acc, x| acc + x);
            Scalar::from_f64(out.dtype, sum)
        } else {
            let products = inner
                .iter()
                .map(|(p, q)| Binary::Mul.eval(a.get(at_a + p).cast(dot.acc), b.get(at_b + q).cast(dot.acc)));
            accumulate(Binary::Add, products, Scalar::zero(dot.acc)).cast(out.dtype)
        };
        results.push(value);
    });
    Literal::from_fn(out.clone(), |i| results[i])
}
