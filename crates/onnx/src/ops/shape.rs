//! Ops that move elements or change shapes.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::{NodeContext, axis, broadcast_shapes};
use ir::{Compare, DType, GraphBuilder, Literal, Scalar, Type, Value};

/// A tensor with the same element type as `t`.
fn like(t: ImportedTensor, v: Value) -> ImportedValue {
    ImportedValue::Tensor(ImportedTensor { v, elem: t.elem })
}

fn like_operand(t: ImportedTensor, v: Value) -> Result<NodeOutputs> {
    Ok(vec![like(t, v)])
}

pub(super) fn identity(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let item = cx.item(0).cloned().ok_or_else(|| Error::node_error("its input 0 is missing"))?;
    Ok(vec![item])
}

pub(super) fn reshape(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let asked = match cx.item(1) {
        Some(_) => cx.static_amounts(1, "shape")?,
        None => cx.amounts("shape")?.ok_or_else(|| Error::node_error("its shape is missing"))?,
    };
    let from = cx.shape(t.v);
    let allow_zero = cx.flag("allowzero");
    let mut shape = Vec::with_capacity(asked.len());
    let mut open = None;
    for (i, &d) in asked.iter().enumerate() {
        shape.push(match d {
            0 if !allow_zero => *from
                .get(i)
                .ok_or_else(|| Error::node_error(format!("{asked:?} copies axis {i}, which {from:?} doesn't have")))?,
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            d => usize::try_from(d).map_err(|_| Error::node_error(format!("{asked:?} is not a shape")))?,
        });
    }
    if let Some(i) = open {
        let rest = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
        let all: usize = from.iter().product();
        let fits = rest.filter(|n| all % n == 0);
        shape[i] = all / fits.ok_or_else(|| Error::node_error(format!("{from:?} cannot be reshaped to {asked:?}")))?;
    }
    let v = cx.reshape(t.v, &shape)?;
    like_operand(t, v)
}

pub(super) fn transpose(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let rank = cx.rank(t.v);
    let perm: Vec<usize> = match cx.ints("perm") {
        Some(perm) => perm.iter().map(|&p| axis(p, rank)).collect::<Result<_>>()?,
        None => (0..rank).rev().collect(),
    };
    let v = cx.permute(t.v, &perm)?;
    like_operand(t, v)
}

pub(super) fn squeeze(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let axes = match cx.axes(1, shape.len())? {
        Some(axes) => axes,
        None => (0..shape.len()).filter(|&a| shape[a] == 1).collect(),
    };
    if let Some(a) = axes.iter().find(|&&a| shape[a] != 1) {
        return Err(Error::node_error(format!("axis {a} of {shape:?} is not 1 and can't be removed")));
    }
    let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect();
    let v = cx.reshape(t.v, &kept)?;
    like_operand(t, v)
}

pub(super) fn unsqueeze(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let count = match cx.item(1) {
        Some(_) => cx.static_ints(1, "axes")?.len(),
        None => cx.ints("axes").map_or(0, <[i64]>::len),
    };
    let axes = cx.axes(1, shape.len() + count)?.ok_or_else(|| Error::node_error("its axes are missing"))?;
    let mut rest = shape.iter();
    let mut out = Vec::new();
    for a in 0..shape.len() + count {
        out.push(if axes.contains(&a) { 1 } else { rest.next().copied().unwrap_or(1) });
    }
    let v = cx.reshape(t.v, &out)?;
    like_operand(t, v)
}

pub(super) fn flatten(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let a = cx.int("axis", 1);
    let at = if a == shape.len() as i64 { shape.len() } else { axis(a, shape.len())? };
    let v = cx.reshape(t.v, &[shape[..at].iter().product(), shape[at..].iter().product()])?;
    like_operand(t, v)
}

pub(super) fn concat(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let xs: Vec<ImportedTensor> = (0..cx.args.len()).map(|i| cx.operand(i)).collect::<Result<_>>()?;
    concat_all(cx, &xs, false)
}

/// Concatenates along the attribute `axis`, or stacks along a new one.
pub(super) fn concat_all(cx: &mut NodeContext, xs: &[ImportedTensor], stack: bool) -> Result<NodeOutputs> {
    let &first = xs.first().ok_or_else(|| Error::node_error("it has no inputs to concatenate"))?;
    let rank = cx.rank(first.v);
    let axis = cx.axis(1, rank + usize::from(stack))?;
    let mut vs = Vec::new();
    for x in xs {
        let mut shape = cx.shape(x.v);
        if stack {
            if axis > shape.len() {
                return Err(Error::node_error("tensors to be stacked need one shape"));
            }
            shape.insert(axis, 1);
        }
        vs.push(cx.reshape(x.v, &shape)?);
    }
    let v = if vs.len() == 1 { vs[0] } else { cx.concat(&vs, axis)? };
    like_operand(first, v)
}

/// The sizes of the parts of an axis.
fn split_sizes(cx: &mut NodeContext, size: usize, outputs: usize) -> Result<Vec<usize>> {
    let given = match cx.item(1) {
        Some(_) => Some(cx.static_amounts(1, "split")?),
        None => cx.amounts("split")?,
    };
    if let Some(given) = given {
        let list: Option<Vec<usize>> = given.iter().map(|&n| usize::try_from(n).ok()).collect();
        let list = list.filter(|l| l.iter().sum::<usize>() == size);
        return list.ok_or_else(|| Error::node_error(format!("parts of {given:?} do not add up to an axis of {size}")));
    }
    let n = cx.int_opt("num_outputs").map_or(Some(outputs), |n| usize::try_from(n).ok());
    let n = n
        .filter(|&n| n > 0 && n <= outputs.max(1))
        .ok_or_else(|| Error::node_error("num_outputs does not match its outputs"))?;
    let chunk = size.div_ceil(n);
    Ok((0..n).map(|i| chunk.min(size.saturating_sub(i * chunk))).collect())
}

pub(super) fn split(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let axis = cx.axis(0, shape.len())?;
    let outputs = cx.node.output.len();
    let sizes = split_sizes(cx, shape[axis], outputs)?;
    let mut at = 0;
    let mut outs = Vec::new();
    for n in sizes {
        let v = cx.slice_axis(t.v, axis, at, at + n)?;
        outs.push(like(t, v));
        at += n;
    }
    Ok(outs)
}

pub(super) fn split_to_sequence(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let axis = cx.axis(0, shape.len())?;
    let size = shape[axis];
    let given = match cx.item(1) {
        Some(_) => Some((cx.static_operand(1, "split")?.ty().rank(), cx.static_amounts(1, "split")?)),
        None => None,
    };
    let (sizes, keep): (Vec<usize>, bool) = match given {
        None => (vec![1; size], cx.int("keepdims", 1) != 0),
        Some((0, list)) => {
            let n = usize::try_from(list[0])
                .ok()
                .filter(|&n| n > 0)
                .ok_or_else(|| Error::node_error("the size of the parts must not be 0"))?;
            ((0..size.div_ceil(n)).map(|i| n.min(size - i * n)).collect(), true)
        }
        Some((_, list)) => {
            let sizes: Option<Vec<usize>> = list.iter().map(|&n| usize::try_from(n).ok()).collect();
            let sizes = sizes.filter(|s| s.iter().sum::<usize>() == size);
            (
                sizes.ok_or_else(|| {
                    Error::node_error(format!("parts of {list:?} do not add up to an axis of {size}"))
                })?,
                true,
            )
        }
    };
    if sizes.len() > 1 << 14 {
        return Err(Error::node_error("more than 16384 parts"));
    }
    let mut items = Vec::new();
    let mut at = 0;
    for n in sizes {
        let mut v = cx.slice_axis(t.v, axis, at, at + n)?;
        if !keep {
            let mut s = shape.clone();
            s.remove(axis);
            v = cx.reshape(v, &s)?;
        }
        items.push(like(t, v));
        at += n;
    }
    Ok(vec![ImportedValue::Sequence(items)])
}

pub(super) fn slice(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let rank = shape.len();
    let (starts, ends, axes, steps) = if cx.version < 10 {
        let get = |name: &str| cx.ints(name).map(<[i64]>::to_vec);
        let missing = || Error::node_error("its starts or ends are missing");
        (get("starts").ok_or_else(missing)?, get("ends").ok_or_else(missing)?, get("axes"), None)
    } else {
        let axes = cx.item(3).is_some().then(|| cx.static_ints(3, "axes")).transpose()?;
        let steps = cx.item(4).is_some().then(|| cx.static_ints(4, "steps")).transpose()?;
        (cx.static_ints(1, "starts")?, cx.static_ints(2, "ends")?, axes, steps)
    };
    let n = starts.len();
    let axes = axes.unwrap_or_else(|| (0..n as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; n]);
    if ends.len() != n || axes.len() != n || steps.len() != n {
        return Err(Error::node_error("its starts, ends, axes and steps have different lengths"));
    }
    let (mut low, mut high, mut stride) = (vec![0usize; rank], shape.clone(), vec![1usize; rank]);
    let mut flipped = Vec::new();
    for i in 0..n {
        let a = axis(axes[i], rank)?;
        let size = shape[a] as i64;
        let at = |x: i64| if x < 0 { x.saturating_add(size) } else { x };
        let step = steps[i];
        if step == 0 {
            return Err(Error::node_error("a step of 0"));
        }
        if step > 0 {
            let (s, e) = (at(starts[i]).clamp(0, size), at(ends[i]).clamp(0, size));
            (low[a], high[a], stride[a]) = (s as usize, e.max(s) as usize, step.min(size.max(1)) as usize);
        } else {
            // From `s` down to above `e`: the same elements in ascending order, then reversed.
            let (s, e) = (at(starts[i]).clamp(-1, size - 1), at(ends[i]).clamp(-1, size - 1));
            let back = step.unsigned_abs().min(size.max(1) as u64) as i64;
            let count = if s > e { (s - e + back - 1) / back } else { 0 };
            let first = s - (count - 1).max(0) * back;
            let lo = if count == 0 { 0 } else { first };
            let hi = if count == 0 { 0 } else { s + 1 };
            (low[a], high[a], stride[a]) = (lo as usize, hi as usize, back as usize);
            flipped.push(a);
        }
    }
    let mut v = cx.slice(t.v, &low, &high, &stride)?;
    if !flipped.is_empty() {
        flipped.sort_unstable();
        flipped.dedup();
        v = cx.flip(v, &flipped)?;
    }
    like_operand(t, v)
}

pub(super) fn tile(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let repeats = cx.static_amounts(1, "repeats")?;
    if repeats.len() != shape.len() || repeats.iter().any(|&r| r < 0) {
        return Err(Error::node_error(format!("repeats {repeats:?} don't fit the shape {shape:?}")));
    }
    let (mut wide, mut dims, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (i, (&d, &r)) in shape.iter().zip(&repeats).enumerate() {
        wide.extend([r as usize, d]);
        dims.push(2 * i + 1);
        out.push(d.checked_mul(r as usize).ok_or_else(|| Error::node_error("repeats that are too many"))?);
    }
    let b = cx.broadcast(t.v, &wide, &dims)?;
    let v = cx.reshape(b, &out)?;
    like_operand(t, v)
}

pub(super) fn expand(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let asked = cx.static_amounts(1, "shape")?;
    let asked: Option<Vec<usize>> = asked.iter().map(|&d| usize::try_from(d).ok()).collect();
    let asked = asked.ok_or_else(|| Error::node_error("a negative size"))?;
    let shape = broadcast_shapes(&[cx.shape(t.v), asked])?;
    let v = cx.broadcast_to(t.v, &shape)?;
    like_operand(t, v)
}

pub(super) fn shape(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape: Vec<i64> = cx.shape(t.v).iter().map(|&d| d as i64).collect();
    let n = shape.len() as i64;
    let at = |x: i64| if x < 0 { x.saturating_add(n) } else { x }.clamp(0, n);
    let (start, end) = (at(cx.int("start", 0)), at(cx.int("end", n)));
    one(cx.indices(&shape[start as usize..end.max(start) as usize])?)
}

pub(super) fn size(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let n: usize = cx.shape(t.v).iter().product();
    one(cx.constant(Literal::new(&[], &[n as i64]))?)
}

pub(super) fn constant(cx: &mut NodeContext) -> Result<NodeOutputs> {
    if let Some(t) = cx.attr("value").and_then(|a| a.t.as_ref()) {
        let (x, carried) = cx.imp.literal(t)?;
        let v = cx.constant(x)?;
        return Ok(vec![ImportedTensor { v, elem: carried }.into()]);
    }
    if let Some(s) = cx.attr("sparse_value").and_then(|a| a.sparse_tensor.as_ref()) {
        let x = cx.imp.densify(s)?;
        return one(cx.constant(x)?);
    }
    let float = cx.dtype_of(1)?.0;
    let floats =
        |shape: &[usize], list: &[f64]| Literal::from_fn(Type::new(float, shape), |i| Scalar::from_f64(float, list[i]));
    let x = if let Some(x) = cx.float_opt("value_float") {
        floats(&[], &[x])
    } else if let Some(list) = cx.floats("value_floats") {
        floats(&[list.len()], &list)
    } else if let Some(x) = cx.int_opt("value_int") {
        Literal::new(&[], &[x])
    } else if let Some(list) = cx.ints("value_ints") {
        Literal::new(&[list.len()], list)
    } else {
        return Err(Error::node_error("it has no value that is a number; strings are not supported"));
    };
    one(cx.constant(x)?)
}

pub(super) fn constant_of_shape(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let asked = cx.static_amounts(0, "shape")?;
    let shape: Option<Vec<usize>> = asked.iter().map(|&d| usize::try_from(d).ok()).collect();
    let shape = shape.ok_or_else(|| Error::node_error(format!("{asked:?} is not a shape")))?;
    let (value, carried) = match cx.attr("value").and_then(|a| a.t.as_ref()) {
        Some(t) => cx.imp.literal(t)?,
        None => (Literal::scalar(Scalar::zero(cx.dtype_of(1)?.0)), None),
    };
    if value.ty().numel() != 1 {
        return Err(Error::node_error("its value must be one element"));
    }
    let v = cx.full(&Type::checked(value.ty().dtype, &shape)?, value.get(0))?;
    Ok(vec![ImportedTensor { v, elem: carried }.into()])
}

pub(super) fn range(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let dtype = cx.dtype(cx.x(0)?);
    let get = |cx: &mut NodeContext, i: usize, what: &str| -> Result<Scalar> {
        let x = cx.static_operand(i, what)?;
        if x.ty().numel() == 1 {
            Ok(x.get(0))
        } else {
            Err(Error::node_error(format!("its {what} must be one number")))
        }
    };
    let (start, limit, delta) = (get(cx, 0, "start")?, get(cx, 1, "limit")?, get(cx, 2, "delta")?);
    let n = if dtype.is_float() {
        ((limit.to_f64() - start.to_f64()) / delta.to_f64()).ceil().max(0.0)
    } else {
        let (s, l, d) = (i128::from(start.to_i64()), i128::from(limit.to_i64()), i128::from(delta.to_i64()));
        if d == 0 {
            return Err(Error::node_error("a delta of 0"));
        }
        let span = if d > 0 { l - s } else { s - l };
        ((span + d.abs() - 1) / d.abs()).max(0) as f64
    };
    if !(n < 1e12) {
        return Err(Error::node_error(format!("a range of {n} numbers")));
    }
    let ty = Type::checked(dtype, &[n as usize])?;
    let i = cx.iota(dtype, &ty.shape, 0)?;
    let (d, s) = (cx.full(&ty, delta)?, cx.full(&ty, start)?);
    let scaled = cx.mul(i, d)?;
    one(cx.add(scaled, s)?)
}

pub(super) fn eye_like(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    if shape.len() != 2 {
        return Err(Error::node_error("its input must be a matrix"));
    }
    let dtype = cx.int_opt("dtype").map_or(Ok(cx.dtype(t.v)), |n| cx.dtype_of(n).map(|d| d.0))?;
    let k = cx.int("k", 0);
    let (i, j) = (cx.iota(DType::I64, &shape, 0)?, cx.iota(DType::I64, &shape, 1)?);
    let k = cx.full(&Type::new(DType::I64, &shape), Scalar::from_i64(DType::I64, k))?;
    let i = cx.add(i, k)?;
    let on = cx.compare(Compare::Eq, i, j)?;
    one(cx.cast(on, dtype)?)
}

pub(super) fn trilu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    if shape.len() < 2 {
        return Err(Error::node_error("its input must have at least two axes"));
    }
    let k = match cx.item(1) {
        Some(_) => cx.x(1)?,
        None => cx.constant(Literal::new(&[], &[0i64]))?,
    };
    let k = cx.reshape(k, &[])?;
    let k = cx.splat(k, &shape)?;
    let (i, j) = (cx.iota(DType::I64, &shape, shape.len() - 2)?, cx.iota(DType::I64, &shape, shape.len() - 1)?);
    let edge = cx.add(i, k)?;
    let keep = if cx.int("upper", 1) != 0 { Compare::Ge } else { Compare::Le };
    let keep = cx.compare(keep, j, edge)?;
    let zero = cx.zeros(&cx.ty(t.v))?;
    let v = cx.select(keep, t.v, zero)?;
    like_operand(t, v)
}

/// `[N, C, ..]` with blocks of the spatial axes from channels, and the inverse.
pub(super) fn depth_to_space(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let s = cx.shape(t.v);
    let b = block(cx, &s)?;
    if s[1] % (b * b) != 0 {
        return Err(Error::node_error(format!("{} channels are not divisible into blocks of {b}", s[1])));
    }
    let c = s[1] / (b * b);
    let v = match cx.string("mode", "DCR").as_str() {
        "CRD" => {
            let r = cx.reshape(t.v, &[s[0], c, b, b, s[2], s[3]])?;
            cx.permute(r, &[0, 1, 4, 2, 5, 3])?
        }
        "DCR" => {
            let r = cx.reshape(t.v, &[s[0], b, b, c, s[2], s[3]])?;
            cx.permute(r, &[0, 3, 4, 1, 5, 2])?
        }
        other => return Err(Error::node_error(format!("unknown mode `{other}`: use DCR or CRD"))),
    };
    let v = cx.reshape(v, &[s[0], c, s[2] * b, s[3] * b])?;
    like_operand(t, v)
}

pub(super) fn space_to_depth(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let s = cx.shape(t.v);
    let b = block(cx, &s)?;
    if s[2] % b != 0 || s[3] % b != 0 {
        return Err(Error::node_error(format!("{s:?} is not divisible into blocks of {b}")));
    }
    let r = cx.reshape(t.v, &[s[0], s[1], s[2] / b, b, s[3] / b, b])?;
    let r = match cx.string("mode", "DCR").as_str() {
        "CRD" => cx.permute(r, &[0, 1, 3, 5, 2, 4])?,
        _ => cx.permute(r, &[0, 3, 5, 1, 2, 4])?,
    };
    let v = cx.reshape(r, &[s[0], s[1] * b * b, s[2] / b, s[3] / b])?;
    like_operand(t, v)
}

fn block(cx: &NodeContext, shape: &[usize]) -> Result<usize> {
    if shape.len() != 4 {
        return Err(Error::node_error("its input must be [N, C, H, W]"));
    }
    let b = usize::try_from(cx.int("blocksize", 0)).ok().filter(|b| (1..1 << 16).contains(b));
    b.ok_or_else(|| Error::node_error("its blocksize must be positive"))
}

pub(super) fn pad(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let rank = shape.len();
    let (pads, fill) = if cx.version < 11 {
        let pads = cx.amounts("pads")?.ok_or_else(|| Error::node_error("its pads are missing"))?;
        let dtype = cx.dtype(t.v);
        let fill = cx.constant(Literal::scalar(Scalar::from_f64(dtype, cx.float("value", 0.0))))?;
        (pads, fill)
    } else {
        let pads = cx.static_amounts(1, "pads")?;
        let fill = match cx.item(2) {
            Some(_) => {
                let f = cx.operand(2)?.v;
                cx.reshape(f, &[])?
            }
            None => cx.constant(Literal::scalar(Scalar::zero(cx.dtype(t.v))))?,
        };
        (pads, fill)
    };
    let axes = match cx.item(3) {
        Some(_) => cx.axes(3, rank)?.unwrap_or_default(),
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Error::node_error(format!(
            "{} pads for {} axes; each needs one before and one after",
            pads.len(),
            axes.len()
        )));
    }
    let (mut low, mut high) = (vec![0i64; rank], vec![0i64; rank]);
    for (i, &a) in axes.iter().enumerate() {
        (low[a], high[a]) = (pads[i], pads[i + axes.len()]);
    }
    let mode = cx.string("mode", "constant");
    let v = match mode.as_str() {
        "constant" => cx.pad(t.v, fill, &low, &high, &vec![0; rank])?,
        "edge" | "reflect" | "wrap" => {
            let mut v = t.v;
            for a in 0..rank {
                if (low[a], high[a]) == (0, 0) {
                    continue;
                }
                let size = shape[a] as i64;
                let total = (low[a] + size + high[a]).max(0);
                // The source index of each element becomes a constant of the graph.
                if size == 0 || total > 1 << 24 {
                    return Err(Error::node_error(format!(
                        "axis {a} of {shape:?} can't be padded to {total} by {mode}"
                    )));
                }
                let place = |i: i64| match mode.as_str() {
                    "edge" => i.clamp(0, size - 1),
                    "wrap" => i.rem_euclid(size),
                    _ if size == 1 => 0,
                    _ => {
                        let period = 2 * (size - 1);
                        let r = i.rem_euclid(period);
                        if r < size { r } else { period - r }
                    }
                };
                let list: Vec<i64> = (0..total).map(|i| place(i - low[a])).collect();
                let at = cx.indices(&list)?;
                v = cx.take(v, at, a, ir::ops::GatherMode::Clip)?;
            }
            v
        }
        other => return Err(Error::node_error(format!("unknown mode `{other}`: use constant, edge, reflect or wrap"))),
    };
    like_operand(t, v)
}

pub(super) fn center_crop_pad(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let t = cx.operand(0)?;
    let shape = cx.shape(t.v);
    let target = cx.static_amounts(1, "shape")?;
    let axes = match cx.ints("axes") {
        Some(list) => list.iter().map(|&a| axis(a, shape.len())).collect::<Result<Vec<_>>>()?,
        None => (0..shape.len()).collect(),
    };
    if axes.len() != target.len() || target.iter().any(|&d| d < 0) {
        return Err(Error::node_error("its shape must have a size for each axis"));
    }
    let (mut low, mut high) = (vec![0i64; shape.len()], vec![0i64; shape.len()]);
    for (&a, &want) in axes.iter().zip(&target) {
        let have = shape[a] as i64;
        // The smaller half in front, for cropping and for padding.
        let d = want - have;
        let front = d.abs() / 2 * d.signum();
        (low[a], high[a]) = (front, d - front);
    }
    let dtype = cx.dtype(t.v);
    let fill = cx.constant(Literal::scalar(Scalar::zero(dtype)))?;
    let v = cx.pad(t.v, fill, &low, &high, &vec![0; shape.len()])?;
    like_operand(t, v)
}

/// Reverses the first `len[b]` elements along the time axis.
pub(super) fn reverse_sequence(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (t, lens) = (cx.operand(0)?, cx.x(1)?);
    let shape = cx.shape(t.v);
    let time = axis(cx.int("time_axis", 0), shape.len())?;
    let batch = axis(cx.int("batch_axis", 1), shape.len())?;
    let lens = cx.cast(lens, DType::I64)?;
    let v = reversed(cx, t.v, lens, time, batch)?;
    like_operand(t, v)
}

pub(super) fn reversed(cx: &mut NodeContext, x: Value, lens: Value, time: usize, batch: usize) -> Result<Value> {
    let shape = cx.shape(x);
    let lens = cx.broadcast_along(lens, &shape, batch)?;
    let i = cx.iota(DType::I64, &shape, time)?;
    let last = cx.offset(lens, -1.0)?;
    let back = cx.sub(last, i)?;
    let inside = cx.compare(Compare::Lt, i, lens)?;
    let at = cx.select(inside, back, i)?;
    Ok(cx.take_along_axis(x, at, time, ir::ops::GatherMode::Clip)?)
}
