//! §6.9: routing tokens to experts and back. Products of experts are `grouped_gemm`, over the routed tokens only.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use crate::lower::sequence::SequenceDependence;
use ir::composites::softmax;
use ir::ops::gather::GatherMode;
use ir::ops::{Dot, ReduceKind, Sort, TopK};
use ir::{Binary, Compare, DType, GraphBuilder, Unary, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    match p.name {
        "moe_router" => router(l, p),
        "moe_compute_offsets" => {
            let experts = p.int("num_experts").and_then(|n| usize::try_from(n).ok());
            let experts = experts.ok_or_else(|| PrimitiveError::InvalidArgument("needs num_experts".into()))?;
            let indices = p.tensor(0)?;
            let found = offsets(l, indices, experts)?;
            if let SequenceDependence::PerPosition(..) =
                l.all_rows(&[(indices, 0)], "expert indices that are not computed per position")
            {
                l.set_dependence(found, SequenceDependence::Offsets(indices));
            }
            Ok(vec![found])
        }
        "moe_permute" => {
            let (x, indices) = (p.tensor(0)?, p.tensor(1)?);
            let order = order(l, indices)?;
            let k = l.b.ty(indices).shape[1];
            let k = l.b.full_like(order, k as f64)?;
            let token = l.b.binary(Binary::Div, order, k)?;
            let mut permuted = l.b.take(x, token, 0, GatherMode::Clip)?;
            // Rows may be weighted before the experts (Llama 4).
            if let Some(weights) = p.optional(3)? {
                let ty = l.b.ty(permuted);
                let each = l.b.reshape(weights, &[ty.shape[0]])?;
                let each = l.b.take(each, order, 0, GatherMode::Clip)?;
                let each = l.b.cast(each, ty.dtype)?;
                let each = l.b.broadcast(each, &ty.shape, &[0])?;
                permuted = l.b.mul(permuted, each)?;
            }
            if let SequenceDependence::PerPosition(..) =
                l.all_rows(&[(x, 0), (indices, 0)], "expert indices that are not computed per position")
            {
                l.set_dependence(order, SequenceDependence::PerPosition(0, Some(indices)));
                l.set_dependence(permuted, SequenceDependence::PerPosition(0, Some(indices)));
            }
            Ok(vec![permuted, order])
        }
        _ => {
            // The inverse permutation gives the row of each (token, choice); the choices of a token are summed with their weights.
            let (rows, weights, order) = (p.tensor(0)?, p.tensor(1)?, p.tensor(2)?);
            let given = weights;
            let inverse = sort(1).permutation(&mut l.b, &[order])?;
            let chosen = l.b.take(rows, inverse, 0, GatherMode::Clip)?;
            let (tokens, k) = match l.b.ty(weights).shape[..] {
                [tokens, k] => (tokens, k),
                _ => return Err(PrimitiveError::InvalidArgument("needs weights [n, k]".into())),
            };
            let width = l.b.ty(rows).shape[1];
            let chosen = l.b.reshape(chosen, &[tokens, k, width])?;
            let dtype = l.b.ty(chosen).dtype;
            let weights = l.b.cast(weights, dtype)?;
            let weights = l.b.broadcast(weights, &[tokens, k, width], &[0, 1])?;
            let weighted = l.b.mul(chosen, weights)?;
            let sum = l.b.sum(weighted, &[1])?;
            if let (
                Some(SequenceDependence::PerPosition(0, Some(a))),
                Some(SequenceDependence::PerPosition(0, Some(b))),
                Some(SequenceDependence::PerPosition(0, None)),
            ) = (l.kind(rows), l.kind(order), l.kind(given))
                && a == b
            {
                l.set_dependence(sum, SequenceDependence::rows(0));
            }
            Ok(vec![sum])
        }
    }
}

/// The expert of each row, in the row order of `moe_permute`.
pub(in crate::lower) fn sorted_experts(l: &mut Lowerer<'_>, indices: Value) -> ir::Result<Value> {
    let n = l.b.ty(indices).numel();
    let flat = l.b.reshape(indices, &[n])?;
    let sorted = l.b.emit(sort(1).into(), &[flat])?[0];
    if l.kind(indices) == Some(SequenceDependence::rows(0)) {
        l.set_dependence(sorted, SequenceDependence::PerPosition(0, Some(indices)));
    }
    Ok(sorted)
}

/// `y` in the rows of one expert, `others` elsewhere.
pub(in crate::lower) fn where_expert(
    l: &mut Lowerer<'_>,
    chosen: Value,
    number: usize,
    y: Value,
    others: Option<Value>,
) -> ir::Result<Value> {
    let others = match others {
        Some(others) => others,
        None => l.b.full_like(y, 0.0)?,
    };
    let own = l.b.full_like(chosen, number as f64)?;
    let own = l.b.compare(Compare::Eq, chosen, own)?;
    let shape = l.b.ty(y).shape;
    let own = l.b.broadcast(own, &shape, &[0])?;
    l.b.select(own, y, others)
}

fn sort(num_keys: usize) -> Sort {
    Sort { axis: 0, num_keys, descending: false }
}

/// The permutation of (token, choice) pairs by expert; stable within an expert.
fn order(l: &mut Lowerer<'_>, indices: Value) -> LowerResult<Value> {
    let n = l.b.ty(indices).numel();
    let flat = l.b.reshape(indices, &[n])?;
    Ok(sort(1).permutation(&mut l.b, &[flat])?)
}

/// The start of each expert's rows: the number of choices of lower-numbered experts.
fn offsets(l: &mut Lowerer<'_>, indices: Value, experts: usize) -> LowerResult<Value> {
    let n = l.b.ty(indices).numel();
    let flat = l.b.reshape(indices, &[n])?;
    let shape = [experts + 1, n];
    let choice = l.b.broadcast(flat, &shape, &[1])?;
    let dtype = l.b.ty(choice).dtype;
    let expert = l.b.iota(dtype, &shape, 0)?;
    let before = l.b.compare(Compare::Lt, choice, expert)?;
    let before = l.b.cast(before, DType::I32)?;
    Ok(l.b.reduce(ReduceKind::Sum, before, &[1])?)
}

/// The `k` best experts of each row with their scores. A bias only affects the selection, and so do groups: only experts of the
/// best groups are selected, where a group's score is that of its best expert, or the sum of its two best (DeepSeek).
fn choose(l: &mut Lowerer<'_>, p: &PrimitiveCall, scores: Value, k: usize) -> LowerResult<(Value, Value)> {
    let ty = l.b.ty(scores);
    let [tokens, experts] = ty.shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs rows of scores".into()));
    };
    let size = |name: &str| p.int(name).and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1);
    let (groups, best) = (size("groups"), size("top_groups"));
    if experts % groups != 0 || best > groups || k > best * (experts / groups) {
        let words = format!("cannot choose {k} of {experts} experts in {best} of {groups} groups");
        return Err(PrimitiveError::InvalidArgument(words));
    }
    let bias = p.optional(2)?;
    if bias.is_none() && groups == best {
        let chosen = l.b.emit(TopK { k, axis: 1 }.into(), &[scores])?;
        return Ok((chosen[0], chosen[1]));
    }
    let mut wanted = scores;
    if let Some(bias) = bias {
        let bias = l.b.cast(bias, ty.dtype)?;
        let bias = l.b.broadcast(bias, &ty.shape, &[1])?;
        wanted = l.b.add(wanted, bias)?;
    }
    if best < groups {
        let inside = experts / groups;
        let apart = l.b.reshape(wanted, &[tokens, groups, inside])?;
        let merit = match p.word("group_score") {
            Some("top2") => {
                let two = l.b.emit(TopK { k: inside.min(2), axis: 2 }.into(), &[apart])?[0];
                l.b.sum(two, &[2])?
            }
            _ => l.b.reduce(ReduceKind::Max, apart, &[2])?,
        };
        // A group is selected if fewer than `best` groups have a higher score, or the same score and a lower index: ranks are unique.
        let rank = l.b.emit(TopK { k: groups, axis: 1 }.into(), &[merit])?[1];
        let taken = l.b.slice_axis(rank, 1, 0, best)?;
        let shape = [tokens, best, groups];
        let taken = l.b.broadcast(taken, &shape, &[0, 1])?;
        let group = l.b.iota(DType::I32, &shape, 2)?;
        let hit = l.b.compare(Compare::Eq, taken, group)?;
        let hit = l.b.cast(hit, DType::I32)?;
        let hit = l.b.reduce(ReduceKind::Max, hit, &[1])?;
        let hit = l.b.broadcast(hit, &[tokens, groups, inside], &[0, 1])?;
        let hit = l.b.reshape(hit, &[tokens, experts])?;
        let zero = l.b.full_like(hit, 0.0)?;
        let open = l.b.compare(Compare::Ne, hit, zero)?;
        let none = l.b.full_like(wanted, f64::NEG_INFINITY)?;
        wanted = l.b.select(open, wanted, none)?;
    }
    let indices = l.b.emit(TopK { k, axis: 1 }.into(), &[wanted])?[1];
    let weights = l.b.take_along_axis(scores, indices, 1, GatherMode::Clip)?;
    Ok((weights, indices))
}

/// Computes probabilities in the accumulation dtype, the `top_k` largest, optionally normalized to 1, and the load-balancing loss.
fn router(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (x, gate) = (p.tensor(0)?, p.tensor(1)?);
    let (dtype, experts) = (l.b.ty(x).dtype, l.b.ty(gate).shape[0]);
    let k = p.int("top_k").and_then(|k| usize::try_from(k).ok());
    let k = k.ok_or_else(|| PrimitiveError::InvalidArgument("needs top_k".into()))?;
    let logits = l.b.one(Dot::last_axes(dtype, 2, 2).into(), &[x, gate])?;
    let wide = dtype.accumulator();
    let logits = l.b.cast(logits, wide)?;
    let probs = if p.flag("use_sigmoid") {
        l.b.unary(Unary::Logistic, logits)?
    } else {
        let c = softmax::softmax(&l.b.ty(logits))?;
        l.b.emit(c.into(), &[logits])?[0]
    };
    let (mut weights, indices) = choose(l, p, probs, k)?;
    // Each row is routed independently, however that is computed.
    if l.kind(probs) == Some(SequenceDependence::rows(0)) {
        l.set_dependence(weights, SequenceDependence::rows(0));
        l.set_dependence(indices, SequenceDependence::rows(0));
    }
    let shape = l.b.ty(weights).shape;
    if p.flag("normalize") {
        let sum = l.b.sum(weights, &[1])?;
        let sum = l.b.expand_reduced(sum, &shape, &[1])?;
        weights = l.b.div(weights, sum)?;
    }
    if let Some(scale) = p.float("scale").filter(|scale| *scale != 1.0) {
        weights = l.b.scale(weights, scale)?;
    }
    // Σ fraction of choices · mean probability, times the number of experts (Switch Transformer).
    let tokens = shape[0] as f64;
    let hot_shape = [shape[0], k, experts];
    let each = l.b.broadcast(indices, &hot_shape, &[0, 1])?;
    let expert = l.b.iota(DType::I32, &hot_shape, 2)?;
    let hot = l.b.compare(Compare::Eq, each, expert)?;
    let hot = l.b.cast(hot, wide)?;
    let share = l.b.sum(hot, &[0, 1])?;
    let mean = l.b.sum(probs, &[0])?;
    let product = l.b.mul(share, mean)?;
    let total = l.b.sum_all(product)?;
    let coefficient = p.float("aux_loss_coef").unwrap_or(0.01);
    let aux = l.b.scale(total, coefficient * experts as f64 / (tokens * tokens))?;
    let weights = l.b.cast(weights, dtype)?;
    Ok(vec![weights, indices, aux])
}
