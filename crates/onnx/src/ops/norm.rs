//! Normalization ops.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, axis};
use ir::composites::norm;
use ir::{DType, GraphBuilder, Unary, Value};

/// `(x - mean) / sqrt(var + eps)` over axes, and mean and 1/sqrt with those axes kept as 1.
fn standardised(cx: &mut NodeContext, x: Value, axes: &[usize], eps: f64) -> Result<(Value, Value, Value)> {
    let shape = cx.shape(x);
    let m = cx.mean(x, axes)?;
    let wide = cx.expand_reduced(m, &shape, axes)?;
    let d = cx.sub(x, wide)?;
    let s = cx.mul(d, d)?;
    let v = cx.mean(s, axes)?;
    let v = cx.offset(v, eps)?;
    let r = cx.unary(Unary::Rsqrt, v)?;
    let wide = cx.expand_reduced(r, &shape, axes)?;
    Ok((cx.mul(d, wide)?, m, r))
}

/// Applies one scale and one bias per channel.
fn per_channel(cx: &mut NodeContext, y: Value, scale: Value, bias: Value) -> Result<Value> {
    let shape = cx.shape(y);
    let (scale, bias) = (cx.broadcast_along(scale, &shape, 1)?, cx.broadcast_along(bias, &shape, 1)?);
    let y = cx.mul(y, scale)?;
    Ok(cx.add(y, bias)?)
}

pub(super) fn batch(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale, bias) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let (mut m, mut v) = (cx.x(3)?, cx.x(4)?);
    let (eps, momentum) = (cx.float("epsilon", 1e-5), cx.float("momentum", 0.9));
    let shape = cx.shape(x);
    if shape.len() < 2 {
        return Err(Error::node_error("its input must be [N, C, ..]"));
    }
    let dtype = cx.dtype(x);
    // Statistics may have a wider dtype than the data.
    let stats = cx.dtype(m);
    let wide = if stats.size() > dtype.accumulator().size() { stats } else { dtype.accumulator() };
    let xw = cx.cast(x, wide)?;
    let mut outs = Vec::new();
    if cx.flag("training_mode") {
        let axes: Vec<usize> = (0..shape.len()).filter(|&a| a != 1).collect();
        let now = cx.mean(xw, &axes)?;
        let centre = cx.broadcast_along(now, &shape, 1)?;
        let d = cx.sub(xw, centre)?;
        let s = cx.mul(d, d)?;
        let var = cx.mean(s, &axes)?;
        for (old, new) in [(m, now), (v, var)] {
            let new = cx.cast(new, stats)?;
            let (a, b) = (cx.scale(old, momentum)?, cx.scale(new, 1.0 - momentum)?);
            outs.push(cx.add(a, b)?);
        }
        (m, v) = (now, var);
    }
    let (m, v) = (cx.cast(m, wide)?, cx.cast(v, wide)?);
    let v = cx.offset(v, eps)?;
    let r = cx.unary(Unary::Rsqrt, v)?;
    let (m, r) = (cx.broadcast_along(m, &shape, 1)?, cx.broadcast_along(r, &shape, 1)?);
    let d = cx.sub(xw, m)?;
    let y = cx.mul(d, r)?;
    let (scale, bias) = (cx.cast(scale, wide)?, cx.cast(bias, wide)?);
    let y = per_channel(cx, y, scale, bias)?;
    let y = cx.cast(y, dtype)?;
    Ok(std::iter::once(y).chain(outs).map(Into::into).collect())
}

pub(super) fn instance(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale, bias) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let rank = cx.rank(x);
    if rank < 3 {
        return Err(Error::node_error("its input must be [N, C, ..]"));
    }
    let eps = cx.float("epsilon", 1e-5);
    let (y, _, _) = standardised(cx, x, &(2..rank).collect::<Vec<_>>(), eps)?;
    one(per_channel(cx, y, scale, bias)?)
}

pub(super) fn group(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale, bias) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let shape = cx.shape(x);
    let g = cx.count("num_groups", 0)?;
    if shape.len() < 2 || shape[1] % g != 0 {
        return Err(Error::node_error(format!("the channels of {shape:?} are not divisible into {g} groups")));
    }
    let eps = cx.float("epsilon", 1e-5);
    let dtype = cx.dtype(x);
    let flat = cx.reshape(x, &[shape[0], g, shape[1] / g * shape[2..].iter().product::<usize>()])?;
    let wide = cx.cast(flat, dtype.accumulator())?;
    let (y, _, _) = standardised(cx, wide, &[2], eps)?;
    let y = cx.cast(y, dtype)?;
    // Before version 21 there is one number per group.
    let (scale, bias) = if cx.shape(scale) == [g] && g != shape[1] {
        let spread = |cx: &mut NodeContext, v: Value| -> Result<Value> {
            let v = cx.broadcast(v, &[g, shape[1] / g], &[0])?;
            Ok(cx.reshape(v, &[shape[1]])?)
        };
        (spread(cx, scale)?, spread(cx, bias)?)
    } else {
        (scale, bias)
    };
    let y = cx.reshape(y, &shape)?;
    one(per_channel(cx, y, scale, bias)?)
}

/// The dtype of the statistics.
fn stash(cx: &NodeContext, dtype: DType) -> Result<DType> {
    let asked = cx.dtype_of(cx.int("stash_type", 1))?.0;
    Ok(if asked.size() > dtype.size() { asked } else { dtype })
}

pub(super) fn layer(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let shape = cx.shape(x);
    let first = cx.axis(-1, shape.len())?;
    let eps = cx.float("epsilon", 1e-5);
    let dtype = cx.dtype(x);
    let plain = first + 1 == shape.len() && cx.shape(scale) == [shape[first]];
    let fits = bias.is_none_or(|b| cx.shape(b) == [shape[first]]);
    if plain && fits && cx.outputs() < 2 && stash(cx, dtype)? == dtype.accumulator() {
        let (tx, ts, tb) = (cx.ty(x), cx.ty(scale), bias.map(|b| cx.ty(b)));
        let c = norm::layernorm(&tx, Some(&ts), tb.as_ref(), eps)?;
        let args: Vec<Value> = [x, scale].into_iter().chain(bias).collect();
        return one(cx.emit(c.into(), &args)?[0]);
    }
    let wide = stash(cx, dtype)?;
    let xw = cx.cast(x, wide)?;
    let axes: Vec<usize> = (first..shape.len()).collect();
    let (y, m, r) = standardised(cx, xw, &axes, eps)?;
    let y = cx.cast(y, dtype)?;
    let scale = cx.broadcast_to(scale, &shape)?;
    let mut y = cx.mul(y, scale)?;
    if let Some(b) = bias {
        let b = cx.broadcast_to(b, &shape)?;
        y = cx.add(y, b)?;
    }
    let kept: Vec<usize> = shape.iter().enumerate().map(|(a, &d)| if a < first { d } else { 1 }).collect();
    let (m, r) = (cx.reshape(m, &kept)?, cx.reshape(r, &kept)?);
    Ok(vec![y.into(), m.into(), r.into()])
}

pub(super) fn rms(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale) = (cx.x(0)?, cx.x(1)?);
    let shape = cx.shape(x);
    let first = cx.axis(-1, shape.len())?;
    let eps = cx.float("epsilon", 1e-5);
    let dtype = cx.dtype(x);
    let wide = stash(cx, dtype)?;
    if first + 1 == shape.len() && cx.ty(scale) == ir::Type::new(dtype, &[shape[first]]) && wide == dtype.accumulator()
    {
        let c = norm::rmsnorm(&cx.ty(x), &cx.ty(scale), eps)?;
        return one(cx.emit(c.into(), &[x, scale])?[0]);
    }
    let xw = cx.cast(x, wide)?;
    let axes: Vec<usize> = (first..shape.len()).collect();
    let s = cx.mul(xw, xw)?;
    let s = cx.mean(s, &axes)?;
    let s = cx.offset(s, eps)?;
    let r = cx.unary(Unary::Rsqrt, s)?;
    let r = cx.expand_reduced(r, &shape, &axes)?;
    let y = cx.mul(xw, r)?;
    let y = cx.cast(y, dtype)?;
    let scale = cx.cast(scale, dtype)?;
    let scale = cx.broadcast_to(scale, &shape)?;
    one(cx.mul(y, scale)?)
}

pub(super) fn mean_variance(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let list = cx.ints("axes").unwrap_or(&[0, 2, 3]);
    let axes: Vec<usize> = list.iter().map(|&a| axis(a, shape.len())).collect::<Result<_>>()?;
    let m = cx.mean(x, &axes)?;
    let wide = cx.expand_reduced(m, &shape, &axes)?;
    let d = cx.sub(x, wide)?;
    let s = cx.mul(d, d)?;
    let v = cx.mean(s, &axes)?;
    let r = cx.unary(Unary::Sqrt, v)?;
    let r = cx.offset(r, 1e-9)?;
    let r = cx.expand_reduced(r, &shape, &axes)?;
    one(cx.div(d, r)?)
}

pub(super) fn lp(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axis = cx.axis(-1, shape.len())?;
    let p = cx.int("p", 2);
    let s = super::conv::norm_power(cx, x, p)?;
    let s = cx.sum(s, &[axis])?;
    let n = super::conv::norm_root(cx, s, p)?;
    let n = cx.expand_reduced(n, &shape, &[axis])?;
    // An all-zero input gives 0.
    let zero = cx.full_like(n, 0.0)?;
    let empty = cx.compare(ir::Compare::Eq, n, zero)?;
    let one_ = cx.full_like(n, 1.0)?;
    let n = cx.select(empty, one_, n)?;
    one(cx.div(x, n)?)
}
