//! §6.5 tensor manipulation, §6.7 reductions, §6.11 tensor creation.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use crate::lower::declare::parse_dtype;
use crate::lower::sequence::{PositionAxis, SequenceDependence};
use ir::ops::ReduceKind;
use ir::ops::gather::GatherMode;
use ir::{DType, GraphBuilder, Scalar, Type, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    match p.name {
        "split" => split(l, p),
        "concat" => {
            let xs = p.tensors()?;
            let rank = xs.first().map_or(0, |x| l.b.ty(*x).rank());
            let axis = p.axis(p.int("dim").unwrap_or(-1), rank)?;
            Ok(vec![l.b.concat(&xs, axis)?])
        }
        "view" | "reshape" => {
            let x = p.tensor(0)?;
            let shape = view_shape(p, l.b.ty(x).numel())?;
            let y = l.b.reshape(x, &shape)?;
            // A size that equals the number of positions by coincidence is not a position axis.
            if let (Some(SequenceDependence::PerPosition(axis, None)), dims) =
                (l.kind(y), p.ints("shape").unwrap_or_default())
                && p.time_axis != PositionAxis::At(axis)
                && dims.get(axis) != Some(&-1)
            {
                l.set_cross_position(&[y], "a view across positions");
            }
            Ok(vec![y])
        }
        "transpose" => {
            let x = p.tensor(0)?;
            let rank = l.b.ty(x).rank();
            let mut order: Vec<usize> = (0..rank).collect();
            let (a, b) = (p.int("dim0").unwrap_or(0), p.int("dim1").unwrap_or(1));
            order.swap(p.axis(a, rank)?, p.axis(b, rank)?);
            Ok(vec![l.b.permute(x, &order)?])
        }
        "permute" => {
            let x = p.tensor(0)?;
            let rank = l.b.ty(x).rank();
            let dims = p.ints("dims").unwrap_or_default();
            let order = dims.iter().map(|&d| p.axis(d, rank)).collect::<LowerResult<Vec<_>>>()?;
            Ok(vec![l.b.permute(x, &order)?])
        }
        "contiguous" | "copy" => Ok(vec![p.tensor(0)?]),
        "fork" => {
            let count = p.int("count").unwrap_or(1).clamp(0, 64) as usize;
            Ok(vec![p.tensor(0)?; count])
        }
        "positions" => {
            let shape = view_shape(p, 0)?;
            let last = shape.len().saturating_sub(1);
            let mut ids = l.b.iota(DType::I32, &shape, last)?;
            let counts = l.counts_from_position(|_| p.time_axis == PositionAxis::At(last));
            if let Some(position) = l.position.filter(|_| counts) {
                let start = l.b.splat(position, &shape)?;
                ids = l.b.add(ids, start)?;
            }
            match (p.time_axis, counts) {
                (_, true) => l.set_dependence(ids, SequenceDependence::rows(last)),
                (PositionAxis::None, _) => {}
                _ => l.set_cross_position(&[ids], "`positions` of another shape"),
            }
            if counts || l.position.is_none() {
                l.counted.push(ids);
            }
            Ok(vec![ids])
        }
        "reduce_sum" | "reduce_mean" | "reduce_max" => reduce(l, p),
        "cumsum" => {
            let x = p.tensor(0)?;
            let axis = p.axis(p.int("dim").unwrap_or(-1), l.b.ty(x).rank())?;
            Ok(vec![l.b.cumulative(ReduceKind::Sum, x, axis, false)?])
        }
        "take_rows" => {
            let (x, indices) = (p.tensor(0)?, p.tensor(1)?);
            let [batch, _, width] = l.b.ty(x).shape[..] else {
                return Err(PrimitiveError::InvalidArgument("needs x [B, T, C]".into()));
            };
            let wide = l.b.broadcast(indices, &[batch, 1, width], &[0])?;
            let row = l.b.take_along_axis(x, wide, 1, GatherMode::Clip)?;
            Ok(vec![l.b.reshape(row, &[batch, width])?])
        }
        _ => {
            let dtype = match p.word("dtype") {
                Some(name) => parse_dtype(name, p.span)?,
                None => l.options.dtype,
            };
            let value = match p.name {
                "zeros" => 0.0,
                "ones" => 1.0,
                _ => p.float("value").unwrap_or(0.0),
            };
            let ty = Type::new(dtype, &view_shape(p, 0)?);
            let filled = l.b.full(&ty, Scalar::from_f64(dtype, value))?;
            match p.time_axis {
                PositionAxis::None => {}
                PositionAxis::At(axis) => l.set_dependence(filled, SequenceDependence::rows(axis)),
                PositionAxis::Unknown => l.set_cross_position(&[filled], "a shape that depends on the sequence length"),
            }
            Ok(vec![filled])
        }
    }
}

/// The attribute `shape`, with -1 replaced by the inferred size.
fn view_shape(p: &PrimitiveCall, elements: usize) -> LowerResult<Vec<usize>> {
    let dims = p.ints("shape").ok_or_else(|| PrimitiveError::InvalidArgument("needs a shape of numbers".into()))?;
    let known: i64 = dims.iter().filter(|d| **d >= 0).product();
    dims.iter()
        .map(|&d| match (usize::try_from(d), d) {
            (Ok(d), _) => Ok(d),
            (_, -1) if known > 0 => Ok(elements / known as usize),
            _ => Err(PrimitiveError::InvalidArgument(format!("got the invalid size {d}"))),
        })
        .collect()
}

fn split(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let x = p.tensor(0)?;
    let ty = l.b.ty(x);
    let axis = p.axis(p.int("dim").unwrap_or(-1), ty.rank())?;
    let sizes = p.ints("sizes").ok_or_else(|| PrimitiveError::InvalidArgument("needs sizes".into()))?;
    let total: i64 = sizes.iter().sum();
    if sizes.iter().any(|s| *s < 0) || total != ty.shape[axis] as i64 {
        let words = format!("has sizes that add up to {total}, but the axis has {}", ty.shape[axis]);
        return Err(PrimitiveError::InvalidArgument(words));
    }
    let mut start = 0;
    let mut parts = Vec::new();
    for size in sizes {
        let end = start + size as usize;
        parts.push(l.b.slice_axis(x, axis, start, end)?);
        start = end;
    }
    Ok(parts)
}

fn reduce(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let x = p.tensor(0)?;
    let ty = l.b.ty(x);
    let numbers = p.ints("dims").or_else(|| p.ints("dim"));
    let mut axes = match numbers {
        Some(numbers) => (numbers.iter().map(|&n| p.axis(n, ty.rank()))).collect::<LowerResult<Vec<_>>>()?,
        None => (0..ty.rank()).collect(),
    };
    axes.sort_unstable();
    axes.dedup();
    let count: usize = axes.iter().map(|&a| ty.shape[a]).product();
    let keep = |l: &mut Lowerer<'_>, y: Value| -> LowerResult<Value> {
        if !p.flag("keepdim") {
            return Ok(y);
        }
        let mut shape = ty.shape.to_vec();
        axes.iter().for_each(|&a| shape[a] = 1);
        Ok(l.b.reshape(y, &shape)?)
    };
    if p.name == "reduce_max" {
        let y = l.b.reduce(ReduceKind::Max, x, &axes)?;
        let place = l.b.argmax(x, axes.first().copied().unwrap_or(0), DType::I32)?;
        return Ok(vec![keep(l, y)?, keep(l, place)?]);
    }
    let wide = l.b.cast(x, ty.dtype.accumulator())?;
    let mut y = l.b.sum(wide, &axes)?;
    if p.name == "reduce_mean" {
        y = l.b.scale(y, 1.0 / count as f64)?;
    }
    let y = l.b.cast(y, ty.dtype)?;
    Ok(vec![keep(l, y)?])
}

/// The shape that two shapes broadcast to.
pub(super) fn broadcast_shape(a: &[usize], b: &[usize]) -> LowerResult<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(PrimitiveError::InvalidArgument(format!("cannot broadcast {a:?} with {b:?}"))),
        })
        .collect()
}

/// Broadcasts a tensor to a shape.
pub(super) fn broadcast_to(l: &mut Lowerer<'_>, x: Value, shape: &[usize]) -> LowerResult<Value> {
    let from = l.b.ty(x).shape;
    let skip = shape.len().saturating_sub(from.len());
    let kept: Vec<usize> = (0..from.len()).filter(|&i| from[i] == shape[i + skip]).collect();
    if kept.len() == from.len() {
        return Ok(l.b.broadcast_to(x, shape)?);
    }
    let narrow: Vec<usize> = kept.iter().map(|&i| from[i]).collect();
    let dims: Vec<usize> = kept.iter().map(|&i| i + skip).collect();
    let x = l.b.reshape(x, &narrow)?;
    Ok(l.b.broadcast(x, shape, &dims)?)
}
