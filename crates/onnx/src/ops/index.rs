//! Gather and scatter.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::{NodeContext, axis};
use ir::ops::{Gather, GatherMode, Scatter, ScatterKind, ScatterMode, SliceDims};
use ir::types::Shape;
use ir::{Binary, Compare, DType, GraphBuilder, Literal, Scalar, Type, Value};

fn like(t: ImportedTensor, v: Value) -> Result<NodeOutputs> {
    Ok(vec![ImportedValue::Tensor(ImportedTensor { v, elem: t.elem })])
}

/// Converts indices that may count from the end of an axis of `size`.
fn from_front(cx: &mut NodeContext, i: Value, size: usize) -> Result<Value> {
    let i = if cx.dtype(i).is_int() { i } else { return Err(Error::node_error("its indices must be integers")) };
    if cx.dtype(i).kind() == ir::DTypeKind::Unsigned {
        return Ok(i);
    }
    let zero = cx.full_like(i, 0.0)?;
    let below = cx.compare(Compare::Lt, i, zero)?;
    let n = cx.full_like(i, size as f64)?;
    let moved = cx.add(i, n)?;
    Ok(cx.select(below, moved, i)?)
}

pub(super) fn gather(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, i) = (cx.operand(0)?, cx.x(1)?);
    let shape = cx.shape(t.v);
    let axis = cx.axis(0, shape.len())?;
    let i = from_front(cx, i, shape[axis])?;
    let v = cx.take(t.v, i, axis, GatherMode::Clip)?;
    like(t, v)
}

/// The index vectors of a tensor's elements, with the index along one axis replaced: `[.., rank]`.
fn places(cx: &mut NodeContext, i: Value, axis: usize, rank: usize) -> Result<Value> {
    let shape = cx.shape(i);
    let mut column = shape.clone();
    column.push(1);
    let mut parts = Vec::new();
    let dtype = cx.dtype(i);
    for a in 0..rank {
        let p = if a == axis { i } else { cx.iota(dtype, &shape, a)? };
        parts.push(cx.reshape(p, &column)?);
    }
    Ok(if parts.len() == 1 { parts[0] } else { cx.concat(&parts, rank)? })
}

/// Slices of one element at index vectors.
fn points(rank: usize) -> SliceDims {
    let all: Shape = (0..rank).collect();
    SliceDims {
        offset: Shape::new(),
        collapsed: all.clone(),
        operand_batch: Shape::new(),
        index_batch: Shape::new(),
        index_map: all,
    }
}

pub(super) fn gather_elements(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, i) = (cx.operand(0)?, cx.x(1)?);
    let shape = cx.shape(t.v);
    let axis = cx.axis(0, shape.len())?;
    if cx.rank(i) != shape.len() {
        return Err(Error::node_error("its indices must have the data's rank"));
    }
    let i = from_front(cx, i, shape[axis])?;
    let same = cx.shape(i).iter().zip(&shape).enumerate().all(|(a, (x, y))| a == axis || x == y);
    let v = if same {
        cx.take_along_axis(t.v, i, axis, GatherMode::Clip)?
    } else {
        let at = places(cx, i, axis, shape.len())?;
        let ones: Shape = shape.iter().map(|_| 1).collect();
        cx.one(Gather { dims: points(shape.len()), slice_sizes: ones, mode: GatherMode::Clip }.into(), &[t.v, at])?
    };
    like(t, v)
}

/// Converts index vectors that may count from the end.
fn vectors(cx: &mut NodeContext, i: Value, sizes: &[usize]) -> Result<Value> {
    let shape = cx.shape(i);
    let i = cx.cast(i, DType::I64)?;
    let list: Vec<i64> = sizes.iter().map(|&d| d as i64).collect();
    let n = cx.indices(&list)?;
    let n = cx.broadcast_along(n, &shape, shape.len() - 1)?;
    let zero = cx.full_like(i, 0.0)?;
    let below = cx.compare(Compare::Lt, i, zero)?;
    let moved = cx.add(i, n)?;
    Ok(cx.select(below, moved, i)?)
}

/// The dimension numbers of GatherND and ScatterND with `batch` leading batch axes.
fn nd(rank: usize, batch: usize, depth: usize, index_rank: usize) -> SliceDims {
    let walking = rank - batch - depth;
    SliceDims {
        offset: (index_rank - 1..index_rank - 1 + walking).collect(),
        collapsed: (batch..batch + depth).collect(),
        operand_batch: (0..batch).collect(),
        index_batch: (0..batch).collect(),
        index_map: (batch..batch + depth).collect(),
    }
}

fn depth(cx: &NodeContext, shape: &[usize], i: Value, batch: usize) -> Result<usize> {
    let indices = cx.shape(i);
    let depth = indices.last().copied().ok_or_else(|| Error::node_error("its indices must have an axis"))?;
    if batch + depth > shape.len() || batch >= indices.len() {
        return Err(Error::node_error(format!("indices {indices:?} don't fit data {shape:?} with {batch} batch axes")));
    }
    Ok(depth)
}

pub(super) fn gather_nd(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, i) = (cx.operand(0)?, cx.x(1)?);
    let shape = cx.shape(t.v);
    let batch = usize::try_from(cx.int("batch_dims", 0)).map_err(|_| Error::node_error("negative batch_dims"))?;
    let depth = depth(cx, &shape, i, batch)?;
    let i = vectors(cx, i, &shape[batch..batch + depth])?;
    let dims = nd(shape.len(), batch, depth, cx.rank(i));
    let slice_sizes = (0..shape.len()).map(|a| if a < batch + depth { 1 } else { shape[a] }).collect();
    let v = cx.one(Gather { dims, slice_sizes, mode: GatherMode::Clip }.into(), &[t.v, i])?;
    like(t, v)
}

fn reduction(cx: &NodeContext) -> Result<ScatterKind> {
    Ok(match cx.string("reduction", "none").as_str() {
        "none" => ScatterKind::Set,
        "add" => ScatterKind::Add,
        "mul" => ScatterKind::Mul,
        "max" => ScatterKind::Max,
        "min" => ScatterKind::Min,
        other => return Err(Error::node_error(format!("unknown reduction `{other}`"))),
    })
}

pub(super) fn scatter_elements(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, i, updates) = (cx.operand(0)?, cx.x(1)?, cx.operand(2)?);
    let shape = cx.shape(t.v);
    let axis = cx.axis(0, shape.len())?;
    if cx.rank(i) != shape.len() {
        return Err(Error::node_error("its indices must have the data's rank"));
    }
    let i = from_front(cx, i, shape[axis])?;
    let at = places(cx, i, axis, shape.len())?;
    let v = cx.one(
        Scatter { kind: reduction(cx)?, dims: points(shape.len()), mode: ScatterMode::Drop }.into(),
        &[t.v, at, updates.v],
    )?;
    like(t, v)
}

pub(super) fn scatter_nd(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, i, updates) = (cx.operand(0)?, cx.x(1)?, cx.operand(2)?);
    let shape = cx.shape(t.v);
    let depth = depth(cx, &shape, i, 0)?;
    let i = vectors(cx, i, &shape[..depth])?;
    let dims = nd(shape.len(), 0, depth, cx.rank(i));
    let v = cx.one(Scatter { kind: reduction(cx)?, dims, mode: ScatterMode::Drop }.into(), &[t.v, i, updates.v])?;
    like(t, v)
}

/// Writes `update` into a cache at an index per batch, along an axis; circular if requested.
pub(super) fn tensor_scatter(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, update) = (cx.operand(0)?, cx.operand(1)?);
    let (shape, new) = (cx.shape(t.v), cx.shape(update.v));
    let axis = cx.axis(-2, shape.len())?;
    if axis == 0 || new.len() != shape.len() {
        return Err(Error::node_error("its axis must not be the batch's, and the update needs the cache's rank"));
    }
    let i = cx.iota(DType::I64, &new, axis)?;
    let at = match cx.opt(2)? {
        None => i,
        Some(start) => {
            let start = cx.cast(start, DType::I64)?;
            let start = cx.broadcast_along(start, &new, 0)?;
            cx.add(i, start)?
        }
    };
    let at = if cx.string("mode", "linear") == "circular" {
        let n = cx.full_like(at, shape[axis] as f64)?;
        cx.binary(Binary::Rem, at, n)?
    } else {
        at
    };
    let at = places(cx, at, axis, shape.len())?;
    let op = Scatter { kind: ScatterKind::Set, dims: points(shape.len()), mode: ScatterMode::Drop };
    let v = cx.one(op.into(), &[t.v, at, update.v])?;
    like(t, v)
}

pub(super) fn one_hot(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (i, values) = (cx.x(0)?, cx.x(2)?);
    let depth = cx.static_operand(1, "depth")?;
    let depth = depth.scalars().next().map_or(-1, |s| s.to_i64());
    let depth = usize::try_from(depth).map_err(|_| Error::node_error("its depth must not be negative"))?;
    let shape = cx.shape(i);
    let a = axis(cx.int("axis", -1), shape.len() + 1)?;
    let i = cx.cast(i, DType::I64)?;
    let i = from_front(cx, i, depth)?;
    let mut out = shape.clone();
    out.insert(a, depth);
    let i = cx.expand_reduced(i, &out, &[a])?;
    let place = cx.iota(DType::I64, &out, a)?;
    let hit = cx.compare(Compare::Eq, i, place)?;
    if cx.shape(values) != [2] {
        return Err(Error::node_error("its values must be two: off and on"));
    }
    let pick = |cx: &mut NodeContext, k: usize| -> Result<Value> {
        let x = cx.slice_axis(values, 0, k, k + 1)?;
        let x = cx.reshape(x, &[])?;
        Ok(cx.splat(x, &out)?)
    };
    let (off, on) = (pick(cx, 0)?, pick(cx, 1)?);
    one(cx.select(hit, on, off)?)
}

/// The slices where a condition is true; it determines the shape, so it must be known.
pub(super) fn compress(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let condition = cx.static_operand(1, "condition")?;
    let at: Vec<i64> = (0..condition.ty().numel()).filter(|&i| condition.get(i).to_bool()).map(|i| i as i64).collect();
    let shape = cx.shape(t.v);
    let (x, axis) = match cx.int_opt("axis") {
        Some(a) => (t.v, axis(a, shape.len())?),
        None => (cx.reshape(t.v, &[shape.iter().product()])?, 0),
    };
    let size = cx.shape(x)[axis] as i64;
    if at.iter().any(|&i| i >= size) {
        return Err(Error::node_error(format!("its condition selects beyond the {size} slices")));
    }
    let i = cx.indices(&at)?;
    let v = cx.take(x, i, axis, GatherMode::Clip)?;
    like(t, v)
}

pub(super) fn non_zero(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.static_operand(0, "data")?;
    let found: Vec<usize> = (0..x.ty().numel()).filter(|&i| x.get(i).to_bool()).collect();
    let (shape, strides) = (x.ty().shape.clone(), x.ty().strides());
    let rank = shape.len();
    let n = found.len();
    let ty = Type::new(DType::I64, &[rank, n]);
    let index = |k: usize| (found[k % n] / strides[k / n] % shape[k / n].max(1)) as i64;
    one(cx.constant(Literal::from_fn(ty, |k| Scalar::from_i64(DType::I64, index(k))))?)
}

/// Unique elements or slices with their indices and counts.
pub(super) fn unique(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.static_operand(0, "data")?;
    let shape = x.ty().shape.to_vec();
    let (outer, n, inner) = match cx.int_opt("axis") {
        None => (1, x.ty().numel(), 1),
        Some(a) => {
            let a = axis(a, shape.len())?;
            (shape[..a].iter().product(), shape[a], shape[a + 1..].iter().product())
        }
    };
    let slice = |i: usize| -> Vec<Scalar> {
        (0..outer).flat_map(|o| (0..inner).map(move |k| (o * n + i) * inner + k)).map(|at| x.get(at)).collect()
    };
    let key = |s: &[Scalar]| -> Vec<f64> { s.iter().map(|s| s.to_f64()).collect() };
    let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| x == y || (x.is_nan() && y.is_nan()));
    let slices: Vec<Vec<f64>> = (0..n).map(|i| key(&slice(i))).collect();
    let mut order: Vec<usize> = (0..n).collect();
    let compare = |a: &Vec<f64>, b: &Vec<f64>| {
        let differing = a.iter().zip(b).map(|(x, y)| (x + 0.0).total_cmp(&(y + 0.0)));
        differing.into_iter().find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    };
    order.sort_by(|&i, &j| compare(&slices[i], &slices[j]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(g) if same(&slices[g[0]], &slices[i]) => g.push(i),
            _ => groups.push(vec![i]),
        }
    }
    if cx.int("sorted", 1) == 0 {
        groups.sort_by_key(|g| g[0]);
    }
    let m = groups.len();
    let mut out = shape.clone();
    match cx.int_opt("axis") {
        None => out = vec![m],
        Some(a) => out[axis(a, shape.len())?] = m,
    }
    let y = Literal::from_fn(x.ty().with_shape(&out), |k| {
        let (o, i, e) = (k / (m * inner), k / inner % m, k % inner);
        x.get((o * n + groups[i][0]) * inner + e)
    });
    let mut inverse = vec![0i64; n];
    for (g, members) in groups.iter().enumerate() {
        members.iter().for_each(|&i| inverse[i] = g as i64);
    }
    let firsts: Vec<i64> = groups.iter().map(|g| g[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|g| g.len() as i64).collect();
    let y = cx.constant(y)?;
    let rest = [firsts, inverse, counts].map(|list| cx.indices(&list));
    let mut outs: NodeOutputs = vec![y.into()];
    for v in rest {
        outs.push(v?.into());
    }
    Ok(outs)
}
