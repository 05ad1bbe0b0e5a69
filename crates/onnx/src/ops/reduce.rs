//! Reductions, cumulative sums, extrema and sorting.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::NodeContext;
use ir::ops::{ArgReduce, ReduceKind, Sort, TopK};
use ir::{DType, GraphBuilder, Unary, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReduceOp {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    L1,
    L2,
    LogSum,
    LogSumExp,
    SumSquare,
}

pub(super) fn reduce(cx: &mut NodeContext, kind: ReduceOp) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axes = cx.axes(1, shape.len())?.unwrap_or_default();
    if axes.is_empty() && cx.flag("noop_with_empty_axes") {
        return one(match kind {
            ReduceOp::L1 => cx.unary(Unary::Abs, x)?,
            ReduceOp::L2 => cx.unary(Unary::Abs, x)?,
            ReduceOp::LogSum => cx.unary(Unary::Log, x)?,
            ReduceOp::SumSquare => cx.mul(x, x)?,
            _ => x,
        });
    }
    let mut axes = if axes.is_empty() { (0..shape.len()).collect() } else { axes };
    axes.sort_unstable();
    axes.dedup();
    let y = reduced(cx, x, &axes, kind)?;
    if cx.int("keepdims", 1) == 0 {
        return one(y);
    }
    let kept: Vec<usize> = shape.iter().enumerate().map(|(a, &d)| if axes.contains(&a) { 1 } else { d }).collect();
    one(cx.reshape(y, &kept)?)
}

fn reduced(cx: &mut NodeContext, x: Value, axes: &[usize], kind: ReduceOp) -> Result<Value> {
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    Ok(match kind {
        ReduceOp::Sum => cx.sum(x, axes)?,
        ReduceOp::Prod => cx.reduce(ReduceKind::Prod, x, axes)?,
        ReduceOp::Max => cx.reduce(ReduceKind::Max, x, axes)?,
        ReduceOp::Min => cx.reduce(ReduceKind::Min, x, axes)?,
        ReduceOp::Mean => cx.mean(x, axes)?,
        ReduceOp::L1 => {
            let a = cx.unary(Unary::Abs, x)?;
            cx.sum(a, axes)?
        }
        ReduceOp::L2 => {
            let s = cx.mul(x, x)?;
            let s = cx.sum(s, axes)?;
            // Integers have no square root, so it is computed in floats.
            let wide = if dtype.is_float() { s } else { cx.cast(s, DType::F64)? };
            let r = cx.unary(Unary::Sqrt, wide)?;
            cx.cast(r, dtype)?
        }
        ReduceOp::SumSquare => {
            let s = cx.mul(x, x)?;
            cx.sum(s, axes)?
        }
        ReduceOp::LogSum => {
            let s = cx.sum(x, axes)?;
            let wide = if dtype.is_float() { s } else { cx.cast(s, DType::F64)? };
            let l = cx.unary(Unary::Log, wide)?;
            cx.cast(l, dtype)?
        }
        ReduceOp::LogSumExp => {
            let wide = if dtype.is_float() { x } else { cx.cast(x, DType::F64)? };
            let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
            let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
            let mut flat: Vec<usize> = kept.iter().map(|&a| shape[a]).collect();
            flat.push(axes.iter().map(|&a| shape[a]).product());
            let rows = cx.permute(wide, &order)?;
            let rows = cx.reshape(rows, &flat)?;
            let c = ir::composites::softmax::logsumexp(&cx.ty(rows))?;
            let y = cx.emit(c.into(), &[rows])?[0];
            cx.cast(y, dtype)?
        }
    })
}

pub(super) fn arg_reduce(cx: &mut NodeContext, max: bool) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axis = cx.axis(0, shape.len())?;
    let last = cx.flag("select_last_index");
    let x = if last { cx.flip(x, &[axis])? } else { x };
    let mut i = cx.one(ArgReduce { max, axis, index: DType::I64 }.into(), &[x])?;
    if last {
        let n = cx.full_like(i, shape[axis] as f64 - 1.0)?;
        i = cx.sub(n, i)?;
    }
    if cx.int("keepdims", 1) != 0 {
        let mut kept = shape;
        kept[axis] = 1;
        i = cx.reshape(i, &kept)?;
    }
    one(i)
}

pub(super) fn cumulative(cx: &mut NodeContext, kind: ReduceKind) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axes = cx.static_ints(1, "axis")?;
    let axis = crate::node::axis(axes.first().copied().unwrap_or(0), shape.len())?;
    let (exclusive, reverse) = (cx.flag("exclusive"), cx.flag("reverse"));
    let x = if exclusive && shape[axis] > 0 {
        // Exclusive: the result is shifted by one.
        let dtype = cx.dtype(x);
        let fill = cx.constant(ir::Literal::scalar(kind.identity(dtype)))?;
        let (mut low, mut high) = (vec![0i64; shape.len()], vec![0i64; shape.len()]);
        (low[axis], high[axis]) = if reverse { (-1, 1) } else { (1, -1) };
        cx.pad(x, fill, &low, &high, &vec![0; shape.len()])?
    } else {
        x
    };
    one(cx.cumulative(kind, x, axis, reverse)?)
}

pub(super) fn top_k(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axis = cx.axis(-1, shape.len())?;
    let k = match cx.item(1) {
        Some(_) => cx.static_ints(1, "k")?.first().copied().unwrap_or(-1),
        None => cx.int("k", -1),
    };
    let k = usize::try_from(k).ok().filter(|&k| k <= shape[axis]);
    let k = k.ok_or_else(|| Error::node_error(format!("its k doesn't fit axis {axis} of {shape:?}")))?;
    if cx.int("largest", 1) != 0 {
        let outs = cx.emit(TopK { k, axis }.into(), &[x])?;
        let i = cx.cast(outs[1], DType::I64)?;
        return Ok(vec![outs[0].into(), i.into()]);
    }
    let place = cx.iota(DType::I64, &shape, axis)?;
    let outs = cx.emit(Sort { axis, num_keys: 1, descending: false }.into(), &[x, place])?;
    let (v, i) = (cx.slice_axis(outs[0], axis, 0, k)?, cx.slice_axis(outs[1], axis, 0, k)?);
    Ok(vec![v.into(), i.into()])
}
