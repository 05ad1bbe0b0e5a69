//! Algebraic simplification: each rule is an equation that holds for every value, including NaN, infinities and −0.

use ir::ops::{Broadcast, Permute, Reshape};
use ir::{Binary, Builder, Graph, GraphBuilder, Op, Result, Scalar, Shape, Unary, Value, Values};

/// Applies the rules until nothing changes, also in sub-graphs. `wide` is the maximum number of operands of a concatenation.
pub fn simplify(graph: &Graph, wide: usize) -> Result<Graph> {
    let simple = super::rewrite_graph(graph, |b, node, args| match rewrite(b, &node.op, args, wide)? {
        Some(v) => Ok(Values::from_slice(&[v])),
        None => super::copy_node(b, graph, node, args, &mut |g| simplify(g, wide)),
    })?;
    Ok(simple.pruned())
}

/// The simplified value, if a rule applies. The operands are already simplified.
fn rewrite(b: &mut Builder, op: &Op, args: &[Value], wide: usize) -> Result<Option<Value>> {
    Ok(match op {
        Op::Binary(k) => binary(b, *k, args[0], args[1])?,
        // --x = x
        Op::Unary(Unary::Neg) => negated_operand(b, args[0]),
        // cast to its own dtype = x
        Op::Cast(c) if b.ty(args[0]).dtype == c.0 => Some(args[0]),
        // Markers for transforms have no effect.
        Op::Name(name) if name.is_nofuse() => None,
        Op::StopGradient(_) | Op::Name(_) => Some(args[0]),
        Op::Collective(c) if c.kind == ir::ops::CollectiveKind::PVary => Some(args[0]),
        // A reduction over no elements is its identity, for any other axes.
        Op::Reduce(r) if b.ty(args[0]).numel() == 0 => {
            let ty = b.ty(args[0]);
            let shape: Shape = (0..ty.rank()).filter(|a| !r.axes.contains(a)).map(|a| ty.shape[a]).collect();
            Some(b.full(&ty.with_shape(&shape), r.kind.identity(ty.dtype))?)
        }
        // Padding an empty tensor gives only padding.
        Op::Pad(_) if b.ty(args[0]).numel() == 0 => {
            let ty = op.infer(&[b.ty(args[0]), b.ty(args[1])]).ok().and_then(|t| t.into_iter().next());
            ty.map(|t| b.splat(args[1], &t.shape)).transpose()?
        }
        // concat(x, empty) = concat(x)
        Op::Concat(c) if args.len() > 1 && args.iter().any(|&a| b.ty(a).shape[c.axis] == 0) => {
            let mut kept: Vec<Value> = args.iter().copied().filter(|&a| b.ty(a).shape[c.axis] != 0).collect();
            if kept.is_empty() {
                kept.push(args[0]);
            }
            match kept[..] {
                [one] => Some(one),
                _ => rewrite(b, op, &kept, wide)?.map_or_else(|| b.concat(&kept, c.axis), Ok).map(Some)?,
            }
        }
        // concat(x₁, .., xₙ) = concat(concat(x₁, ..), concat(..), ..): a kernel reads a bounded number of buffers.
        Op::Concat(c) if args.len() > wide => {
            let parts: Vec<Value> = args.chunks(wide).map(|part| b.concat(part, c.axis)).collect::<Result<_>>()?;
            match parts.len() > wide {
                true => rewrite(b, op, &parts, wide)?,
                false => Some(b.concat(&parts, c.axis)?),
            }
        }
        Op::Reshape(r) => match def(b, args[0]) {
            _ if b.ty(args[0]).shape == r.shape => Some(args[0]),
            // reshape(reshape(x)) = reshape(x)
            Some((Op::Reshape(_), &[inner])) => Some(b.reshape(inner, &r.shape)?),
            _ => None,
        },
        Op::Permute(p) => match def(b, args[0]) {
            _ if p.perm.iter().enumerate().all(|(i, &a)| i == a) => Some(args[0]),
            // permute(permute(x)) = permute(x)
            Some((Op::Permute(q), &[inner])) => {
                let perm: Shape = p.perm.iter().map(|&i| q.perm[i]).collect();
                Some(b.permute(inner, &perm)?)
            }
            // permute(f(permute(x))) = f'(x)
            _ => super::transpose_folding::fold_permutation(b, args[0], &p.perm)?,
        },
        Op::Broadcast(o) => match def(b, args[0]) {
            _ if b.ty(args[0]).shape == o.shape => Some(args[0]),
            // broadcast(broadcast(x)) = broadcast(x)
            Some((Op::Broadcast(i), &[inner])) => {
                let dims: Shape = i.dims.iter().map(|&d| o.dims[d]).collect();
                Some(b.broadcast(inner, &o.shape, &dims)?)
            }
            _ => None,
        },
        // a reduction over no axes = x
        Op::Reduce(r) if r.axes.is_empty() => Some(args[0]),
        // concat(x) = x
        Op::Concat(_) if args.len() == 1 => Some(args[0]),
        _ => None,
    })
}

fn binary(b: &mut Builder, op: Binary, x: Value, y: Value) -> Result<Option<Value>> {
    let d = b.ty(x).dtype;
    let (cx, cy) = (constant(b, x), constant(b, y));
    let is = |c: Option<Scalar>, v: f64| c == Some(Scalar::from_f64(d, v));
    let one = |c: Option<Scalar>| c == Some(Scalar::one(d));
    Ok(match op {
        // x·1 = x
        Binary::Mul if one(cy) => Some(x),
        Binary::Mul if one(cx) => Some(y),
        // x/1 = x
        Binary::Div if one(cy) => Some(x),
        // x + (−0) = x; x + 0 is not x for x = −0
        Binary::Add if d.is_float() && is(cy, -0.0) => Some(x),
        Binary::Add if d.is_float() && is(cx, -0.0) => Some(y),
        // x − 0 = x
        Binary::Sub if is(cy, 0.0) => Some(x),
        // integers: x + 0 = x
        Binary::Add if d.is_int() && is(cy, 0.0) => Some(x),
        Binary::Add if d.is_int() && is(cx, 0.0) => Some(y),
        // x + (−y) = x − y
        Binary::Add => match (negated_operand(b, x), negated_operand(b, y)) {
            (_, Some(y)) => Some(b.sub(x, y)?),
            (Some(x), _) => Some(b.sub(y, x)?),
            _ => None,
        },
        // x − (−y) = x + y
        Binary::Sub => match negated_operand(b, y) {
            Some(y) => Some(b.add(x, y)?),
            _ => None,
        },
        // x^2 = x·x and x^1 = x, exactly as pow defines them
        Binary::Pow if is(cy, 1.0) && d.is_float() => Some(x),
        Binary::Pow if is(cy, 2.0) && d.is_float() => Some(b.mul(x, x)?),
        _ => None,
    })
}

fn def(b: &Builder, v: Value) -> Option<(&Op, &[Value])> {
    b.graph.node_of(v).map(|n| (&n.op, &n.args[..]))
}

/// The operand of which a value is the negation.
fn negated_operand(b: &Builder, v: Value) -> Option<Value> {
    match def(b, v) {
        Some((Op::Unary(Unary::Neg), &[x])) => Some(x),
        _ => None,
    }
}

/// The scalar value of a constant whose elements are all equal.
fn constant(b: &Builder, v: Value) -> Option<Scalar> {
    let node = b.graph.node_of(v)?;
    match &node.op {
        Op::Const(c) => crate::fuse::uniform(&c.0),
        Op::Broadcast(Broadcast { .. }) | Op::Reshape(Reshape { .. }) | Op::Permute(Permute { .. }) => {
            constant(b, node.args[0])
        }
        _ => None,
    }
}
