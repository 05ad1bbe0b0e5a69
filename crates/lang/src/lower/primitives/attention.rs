//! §6.4: attention and rotary embeddings, with KV caches in a decode step.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use crate::consteval::ConstValue as Const;
use crate::lower::graph::LoweredOperand;
use crate::lower::rope_table::RopeTable;
use crate::lower::sequence::SequenceDependence;
use ir::composites::attention::{AttentionOptions, attention};
use ir::composites::rope::{RopeLayout, RopeOptions, rope};
use ir::{Binary, Compare, DType, GraphBuilder, Literal, Scalar, Type, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    match p.name {
        "rope" => apply_rope(l, p),
        _ => attend(l, p),
    }
}

fn attend(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (q, mut k, mut v) = (p.tensor(0)?, p.tensor(1)?, p.tensor(2)?);
    let window = p.int("window_size").map(|n| n as f64);
    let chunk = p.int("chunk_size").map(|n| n as f64);
    for (name, size) in [("window_size", window), ("softcap", p.float("softcap")), ("chunk_size", chunk)] {
        if let Some(size) = size.filter(|size| *size < 0.0) {
            return Err(PrimitiveError::InvalidArgument(format!(
                "invalid `{name}={size}`: use 0 or None to disable it"
            )));
        }
    }
    let mut options = AttentionOptions {
        causal: p.flag("causal"),
        window: p.int("window_size").and_then(|w| usize::try_from(w).ok()).filter(|w| *w > 0),
        scale: p.float("softmax_scale"),
        softcap: p.float("softcap").filter(|c| *c > 0.0),
        ..AttentionOptions::default()
    };
    let mut further = Vec::new();
    let mut kind = None;
    let added = attention_bias(l, p, q, k)?;
    if l.position.is_some() && !options.causal {
        kind = Some(l.mixed("attention that is not causal"));
    } else if l.position.is_some() && added.is_some() {
        kind = Some(l.mixed("attention with a bias or a mask"));
    } else if let (Some(position), Some(capacity)) = (l.position, l.options.decode) {
        kind = Some(
            l.all_rows(&[(q, 2), (k, 2), (v, 2)], "attention to positions that are not in the past of the sequence"),
        );
        let steps = l.b.ty(k).shape[2];
        (k, v) = (append_to_cache(l, k, position, capacity)?, append_to_cache(l, v, position, capacity)?);
        let scalar = Type::new(DType::I32, &[]);
        options.q_offset = Some(scalar.clone());
        options.kv_lengths = Some(scalar);
        further = vec![position, l.b.offset(position, steps as f64)?];
    }
    if let Some(chunk) = p.int("chunk_size").filter(|size| *size > 0) {
        // A query attends only to its own chunk: chunks are segments.
        let (queries, keys) = (l.b.ty(q).shape[2], l.b.ty(k).shape[2]);
        let mut own = l.b.iota(DType::I32, &[queries], 0)?;
        own = match options.q_offset.as_ref().and(l.position) {
            Some(position) => {
                let start = l.b.splat(position, &[queries])?;
                l.b.add(own, start)?
            }
            None => l.b.offset(own, keys as f64 - queries as f64)?,
        };
        let theirs = l.b.iota(DType::I32, &[keys], 0)?;
        for positions in [own, theirs] {
            let size = l.b.full_like(positions, chunk as f64)?;
            further.push(l.b.binary(Binary::Div, positions, size)?);
        }
        options.segment_ids = Some((Type::new(DType::I32, &[queries]), Type::new(DType::I32, &[keys])));
    }
    if let Some(slopes) = p.named.get("alibi_slopes") {
        let slopes = slopes.tensor(p.span)?;
        if kind.is_some() && !matches!(l.kind(slopes), None | Some(SequenceDependence::Invariant(_))) {
            kind = Some(l.mixed("slopes that depend on the sequence length"));
        }
        options.alibi_slopes = Some(l.b.ty(slopes));
        further.push(slopes);
    }
    if let Some(Const::List(slopes)) = p.attributes.get("alibi_slopes") {
        let number = |slope: &Const| match slope {
            Const::Float(x) => *x,
            other => other.as_int().map(|n| n as f64),
        };
        let slopes: Option<Vec<f64>> = slopes.iter().map(number).collect();
        let slopes = slopes.ok_or_else(|| PrimitiveError::InvalidArgument("needs numbers as `alibi_slopes`".into()))?;
        let ty = Type::new(DType::F32, &[slopes.len()]);
        let slopes = l.b.constant(Literal::from_fn(ty.clone(), |i| Scalar::from_f64(DType::F32, slopes[i])))?;
        options.alibi_slopes = Some(ty);
        further.push(slopes);
    }
    let added = match added {
        Some(_) if p.flag("alibi") => {
            return Err(PrimitiveError::InvalidArgument("takes either `alibi` or a bias and a mask".into()));
        }
        None if p.flag("alibi") => {
            let (queries, keys) = (l.b.ty(q), l.b.ty(k).shape[2]);
            Some(l.b.constant(alibi(queries.shape[1], keys, p.float("softmax_scale"), queries.shape[3]))?)
        }
        added => added,
    };
    if let Some(added) = added {
        options.mask = Some(l.b.ty(added));
        further.push(added);
    }
    let composite = attention(&l.b.ty(q), &l.b.ty(k), &l.b.ty(v), &options)?;
    let args: Vec<Value> = [q, k, v].into_iter().chain(further).collect();
    let results = l.b.emit(composite.into(), &args)?.to_vec();
    if let Some(kind) = kind {
        results.iter().for_each(|result| l.set_dependence(*result, kind.clone()));
    }
    Ok(results)
}

/// The ALiBi bias of each head and key, `[1, heads, 1, keys]`: the same for all queries, since softmax is invariant to adding a
/// constant to a row. Slopes, positions and their products are rounded to bf16, as in the training of Falcon.
fn alibi(heads: usize, keys: usize, scale: Option<f64>, width: usize) -> Literal {
    let round = |x: f64| Scalar::from_f64(DType::BF16, x).to_f64();
    let whole = 1 << heads.max(1).ilog2();
    let slope = |of: usize, power: usize| (-8.0 * power as f64 / of as f64).exp2();
    // Beyond a power of two, every second slope of the next power of two.
    let slopes =
        (0..heads).map(|h| if h < whole { slope(whole, h + 1) } else { slope(2 * whole, 2 * (h - whole) + 1) });
    let slopes: Vec<f64> = slopes.map(round).collect();
    let scale = scale.unwrap_or(1.0 / (width as f64).sqrt());
    Literal::from_fn(Type::new(DType::F32, &[1, heads, 1, keys]), |i| {
        let cost = round(slopes[i / keys] * round((i % keys) as f64));
        Scalar::from_f64(DType::F32, cost * scale)
    })
}

/// The bias that is added to the scores: `bias` ([T, S], or with heads, or with batch and heads in front), and `mask`, whose
/// zeros mask keys of each sequence.
fn attention_bias(l: &mut Lowerer<'_>, p: &PrimitiveCall, q: Value, k: Value) -> LowerResult<Option<Value>> {
    let (bias, mask) = (p.optional(3)?, p.optional(4)?);
    let bias = match bias {
        None => None,
        Some(bias) => {
            let ty = l.b.ty(bias);
            if ty.rank() > 4 {
                return Err(PrimitiveError::InvalidArgument(format!(
                    "cannot add a bias of {} dimensions to its scores",
                    ty.rank()
                )));
            }
            let lead = vec![1; 3usize.saturating_sub(ty.rank())];
            let acc = ty.dtype.accumulator();
            let wide = l.b.cast(bias, acc)?;
            Some(l.b.reshape(wide, &[&lead[..], &ty.shape[..]].concat())?)
        }
    };
    let Some(mask) = mask else { return Ok(bias) };
    let ty = l.b.ty(mask);
    let [batch, keys] = ty.shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs a mask [B, S], one number for each key".into()));
    };
    let zero = l.b.full_like(mask, 0.0)?;
    let seen = l.b.compare(Compare::Ne, mask, zero)?;
    let Some(bias) = bias else { return Ok(Some(l.b.reshape(seen, &[batch, 1, 1, keys])?)) };
    let (own, mut shape) = (l.b.ty(bias), l.b.ty(q).shape);
    shape[3] = l.b.ty(k).shape[2];
    shape[1] = own.shape[own.rank() - 3];
    let bias = super::shape::broadcast_to(l, bias, &shape)?;
    let seen = l.b.broadcast(seen, &shape, &[0, 3])?;
    let hidden = l.b.full_like(bias, f64::NEG_INFINITY)?;
    Ok(Some(l.b.select(seen, bias, hidden)?))
}

/// Writes the new positions of `[B, H, T, D]` into a cache, and returns the cache.
fn append_to_cache(l: &mut Lowerer<'_>, x: Value, position: Value, capacity: usize) -> LowerResult<Value> {
    let mut ty = l.b.ty(x);
    ty.shape[2] = capacity;
    let cache = l.b.graph.input(ty);
    let zero = l.b.scalar(DType::I32, 0.0)?;
    let filled = l.b.dynamic_update_slice(cache, x, &[zero, zero, position, zero])?;
    l.caches.push((cache, filled));
    Ok(filled)
}

fn apply_rope(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (q, k) = (p.tensor(0)?, p.tensor(1)?);
    let ty = l.b.ty(q);
    let [.., positions, dim] = ty.shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs [B, H, T, D]".into()));
    };
    let (cos, sin) = match p.operands.get(2) {
        // The size of such a table would not be bounded by the tensor's.
        Some(Some(LoweredOperand::Table(table))) if table.dim > dim => {
            return Err(PrimitiveError::InvalidArgument(format!(
                "rotates {} elements of heads that have {dim}",
                table.dim
            )));
        }
        Some(Some(LoweredOperand::Table(table))) => rows(l, table, positions)?,
        Some(Some(LoweredOperand::Tensor(freqs))) => {
            // [S, D/2, 2]: interleaved cosines and sines.
            let &[rows, half, 2] = &l.b.ty(*freqs).shape[..] else {
                return Err(PrimitiveError::InvalidArgument("needs rotations [S, D/2, 2]".into()));
            };
            let mut part = |i: usize| -> LowerResult<Value> {
                let x = l.b.slice_axis(*freqs, 2, i, i + 1)?;
                let x = l.b.reshape(x, &[rows, half])?;
                match l.position {
                    Some(position) => {
                        let zero = l.b.scalar(DType::I32, 0.0)?;
                        Ok(l.b.dynamic_slice(x, &[position, zero], &[positions, half])?)
                    }
                    None => Ok(l.b.slice_axis(x, 0, 0, positions)?),
                }
            };
            let found = (part(0)?, part(1)?);
            l.limit_positions(rows, if l.position.is_some() { 0 } else { positions }, p.span)?;
            if matches!(l.kind(*freqs), Some(SequenceDependence::Invariant(_))) {
                l.set_dependence(found.0, SequenceDependence::rows(0));
                l.set_dependence(found.1, SequenceDependence::rows(0));
            }
            found
        }
        _ => {
            let table = RopeTable::unscaled(dim, p.float("theta").unwrap_or(10000.0));
            rows(l, &table, positions)?
        }
    };
    let pairs = if p.flag("interleaved") { RopeLayout::Interleaved } else { RopeLayout::Halves };
    let layout = RopeOptions { layout: pairs, has_head_axis: false };
    let mut rotated = Vec::new();
    for x in [q, k] {
        let composite = rope(&l.b.ty(x), &l.b.ty(cos), &l.b.ty(sin), layout)?;
        rotated.push(l.b.emit(composite.into(), &[x, cos, sin])?[0]);
    }
    Ok(rotated)
}

/// Cosines and sines of the current positions; computed once for all layers.
fn rows(l: &mut Lowerer<'_>, table: &RopeTable, positions: usize) -> LowerResult<(Value, Value)> {
    let held = l.tables.iter().find(|(t, n, _)| t == table && *n == positions);
    if let Some((_, _, rows)) = held {
        return Ok(*rows);
    }
    let (cos, sin) = table.rows(l.options.decode.unwrap_or(positions), positions);
    let (mut cos, mut sin) = (l.b.constant(cos)?, l.b.constant(sin)?);
    if let Some(position) = l.position {
        let zero = l.b.scalar(DType::I32, 0.0)?;
        let sizes = [positions, table.dim / 2];
        cos = l.b.dynamic_slice(cos, &[position, zero], &sizes)?;
        sin = l.b.dynamic_slice(sin, &[position, zero], &sizes)?;
    }
    l.set_dependence(cos, SequenceDependence::rows(0));
    l.set_dependence(sin, SequenceDependence::rows(0));
    l.tables.push((table.clone(), positions, (cos, sin)));
    Ok((cos, sin))
}
