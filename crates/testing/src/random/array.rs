//! Views, reductions and contractions.

use super::{GraphGenerator, Move};
use ir::Type;
use ir::ops::{Broadcast, Concat, Dot, Flip, Pad, Permute, Reduce, ReduceKind, Reshape, Slice};
use ir::types::Shape;

pub(super) const MOVES: &[Move] = &[
    (4, true, reshape),
    (4, true, permute),
    (4, true, broadcast),
    (4, true, slice),
    (4, true, pad),
    (3, true, flip),
    (3, true, concat),
    (7, true, reduce),
    (7, true, dot),
];

fn reshape(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let mut shape: Vec<usize> = ty.shape.to_vec();
    match g.rng.below(4) {
        0 => shape = vec![ty.numel()],
        1 => {
            let at = g.rng.below(shape.len() + 1);
            shape.insert(at, 1);
        }
        2 if shape.len() > 1 => {
            let at = g.rng.below(shape.len() - 1);
            let d = shape.remove(at);
            shape[at] *= d;
        }
        _ => {
            let at = shape.iter().position(|d| d % 2 == 0)?;
            shape[at] /= 2;
            shape.insert(at, 2);
        }
    }
    g.one(Reshape { shape: shape.into_iter().collect() }, &[x])?;
    Some(())
}

fn permute(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let rank = g.ty(x).rank();
    let perm = g.rng.permutation(rank).into_iter().collect();
    g.one(Permute { perm }, &[x])?;
    Some(())
}

fn broadcast(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (mut shape, mut dims) = (Shape::new(), Shape::new());
    for &d in &ty.shape {
        if g.rng.bernoulli(0.3) {
            shape.push(*g.rng.pick(&[1, 2, 3]));
        }
        dims.push(shape.len());
        shape.push(if d == 1 && g.rng.bernoulli(0.7) { *g.rng.pick(&[2, 3]) } else { d });
    }
    if g.rng.bernoulli(0.3) {
        shape.push(if g.smooth() { 2 } else { *g.rng.pick(&[0, 1, 2]) });
    }
    g.one(Broadcast { shape, dims }, &[x])?;
    Some(())
}

fn slice(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let (mut start, mut limit, mut stride) = (Shape::new(), Shape::new(), Shape::new());
    for &d in &g.ty(x).shape {
        let a = g.rng.below(d + 1);
        let b = g.rng.below(d + 1);
        let (lo, hi) = if g.smooth() && d > 0 && a == b { (0, d) } else { (a.min(b), a.max(b)) };
        start.push(lo);
        limit.push(hi);
        stride.push(1 + g.rng.below(3));
    }
    g.one(Slice { start, limit, stride }, &[x])?;
    Some(())
}

fn pad(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let fill = g.like(&Type::scalar(ty.dtype))?;
    let amount = |g: &mut GraphGenerator| (0..ty.rank()).map(|_| g.rng.range(-1, 3)).collect();
    let (low, high) = (amount(g), amount(g));
    let interior = (0..ty.rank()).map(|_| g.rng.below(2)).collect();
    g.one(Pad { low, high, interior }, &[x, fill])?;
    Some(())
}

fn flip(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let rank = g.ty(x).rank();
    let axes = g.some_axes(rank).into_iter().collect();
    g.one(Flip { axes }, &[x])?;
    Some(())
}

fn concat(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let axis = g.axis(ty.rank())?;
    let mut parts = vec![x];
    for _ in 0..g.rng.below(3) {
        let mut t = ty.clone();
        t.shape[axis] = 1 + g.rng.below(2);
        parts.push(g.like(&t)?);
    }
    g.one(Concat { axis }, &parts)?;
    Some(())
}

fn reduce(g: &mut GraphGenerator) -> Option<()> {
    let kind = *g.rng.pick(&ReduceKind::ALL);
    let x = g.pick(|t| {
        let op = Reduce { kind, axes: Shape::new() };
        ir::Rules::infer(&op, std::slice::from_ref(t)).is_ok()
    })?;
    let rank = g.ty(x).rank();
    let axes = g.some_axes(rank).into_iter().collect();
    g.one(Reduce { kind, axes }, &[x])?;
    Some(())
}

fn dot(g: &mut GraphGenerator) -> Option<()> {
    let smooth = g.smooth();
    let a = g.pick(|t| t.dtype != ir::DType::Bool && (!smooth || t.dtype == ir::DType::F64))?;
    let ty = g.ty(a);
    let (mut lhs_batch, mut lhs_contract) = (Shape::new(), Shape::new());
    for axis in g.rng.permutation(ty.rank()) {
        match g.rng.below(4) {
            0 => lhs_batch.push(axis),
            1 | 2 => lhs_contract.push(axis),
            _ => {}
        }
    }
    // The right operand's axes, in random order: batch, contracted, and optionally a free one.
    let mut axes: Vec<(usize, bool, usize)> = Vec::new();
    axes.extend(lhs_batch.iter().enumerate().map(|(i, &x)| (ty.shape[x], true, i)));
    axes.extend(lhs_contract.iter().enumerate().map(|(i, &x)| (ty.shape[x], false, i)));
    if g.rng.bernoulli(0.6) {
        axes.push((*g.rng.pick(&[1, 2, 3]), false, usize::MAX));
    }
    let order = g.rng.permutation(axes.len());
    let mut shape = Shape::new();
    let mut rhs_batch: Shape = lhs_batch.iter().map(|_| 0).collect();
    let mut rhs_contract: Shape = lhs_contract.iter().map(|_| 0).collect();
    for (place, &k) in order.iter().enumerate() {
        let (size, batch, i) = axes[k];
        shape.push(size);
        match (batch, i) {
            (_, usize::MAX) => {}
            (true, i) => rhs_batch[i] = place,
            (false, i) => rhs_contract[i] = place,
        }
    }
    let b = g.like(&Type::new(ty.dtype, &shape))?;
    let acc = ty.dtype.accumulator();
    let out = if g.rng.bernoulli(0.8) { ty.dtype } else { acc };
    let op = Dot { lhs_batch, rhs_batch, lhs_contract, rhs_contract, acc, out };
    g.one(op, &[a, b])?;
    Some(())
}
