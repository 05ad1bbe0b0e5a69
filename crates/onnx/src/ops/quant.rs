//! Quantization ops.

use super::cast::{saturated, to_elem};
use super::{NodeOutputs, one};
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::{NodeContext, axis};
use ir::{DType, GraphBuilder, Unary, Value};

/// Broadcasts scales or zero points to the data's shape: one in total, one per index of an axis, or one per block.
fn broadcast_qparams(cx: &mut NodeContext, v: Value, shape: &[usize]) -> Result<Value> {
    let own = cx.shape(v);
    let count: usize = own.iter().product();
    if count == 1 && own.len() < 2 {
        let v = cx.reshape(v, &[])?;
        return Ok(cx.splat(v, shape)?);
    }
    let a = axis(cx.int("axis", 1), shape.len())?;
    if own.len() == 1 {
        return cx.broadcast_along(v, shape, a);
    }
    let block = usize::try_from(cx.int("block_size", 0)).unwrap_or(0);
    let fits = own.len() == shape.len()
        && own
            .iter()
            .zip(shape)
            .enumerate()
            .all(|(i, (&o, &s))| if i == a { o > 0 && block > 0 && s.div_ceil(block) == o } else { o == s });
    if !fits {
        return Err(Error::node_error(format!(
            "scales {own:?} don't fit {shape:?} in blocks of {block} along axis {a}"
        )));
    }
    // Each is repeated for its block; the last block may be shorter.
    let mut wide = own.clone();
    wide.insert(a + 1, block);
    let dims: Vec<usize> = (0..own.len()).map(|i| if i <= a { i } else { i + 1 }).collect();
    let v = cx.broadcast(v, &wide, &dims)?;
    let mut flat = own.clone();
    flat[a] = own[a].checked_mul(block).ok_or_else(|| Error::node_error("blocks that are too large"))?;
    let v = cx.reshape(v, &flat)?;
    Ok(cx.slice_axis(v, a, 0, shape[a])?)
}

/// The range of a quantized integer type.
fn range(dtype: DType, carried: Option<Elem>) -> Option<(f64, f64)> {
    match carried {
        Some(elem) => elem.small_range().map(|(lo, hi)| (lo as f64, hi as f64)),
        None if dtype.is_int() => Some((dtype.int_min() as f64, dtype.int_max() as f64)),
        None => None,
    }
}

pub(super) fn quantize(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale) = (cx.x(0)?, cx.operand(1)?.v);
    let zero = cx.item(2).is_some().then(|| cx.operand(2)).transpose()?;
    let (dtype, carried) = match (zero, cx.int("output_dtype", 0)) {
        (Some(z), _) => (cx.dtype(z.v), z.elem),
        (None, 0) => (DType::U8, None),
        (None, n) => cx.dtype_of(n)?,
    };
    let shape = cx.shape(x);
    let given = cx.dtype(x);
    let wide = match cx.int("precision", 0) {
        0 if given.is_float() && cx.dtype(scale) == given => given,
        0 => DType::F32,
        n => cx.dtype_of(n)?.0,
    };
    let (x, scale) = (cx.cast(x, wide)?, cx.cast(scale, wide)?);
    let s = broadcast_qparams(cx, scale, &shape)?;
    let q = cx.div(x, s)?;
    let v = match range(dtype, carried) {
        Some((lo, hi)) => {
            let q = cx.cast(q, DType::F32)?;
            let q = cx.unary(Unary::Round, q)?;
            let q = saturated(cx, q, -2e9, 2e9)?;
            let mut q = cx.cast(q, DType::I64)?;
            if let Some(z) = zero {
                let z = cx.cast(z.v, DType::I64)?;
                let z = broadcast_qparams(cx, z, &shape)?;
                q = cx.add(q, z)?;
            }
            let q = saturated(cx, q, lo, hi)?;
            cx.cast(q, dtype)?
        }
        None => {
            let saturate = cx.int("saturate", 1) != 0;
            to_elem(cx, q, dtype, carried, saturate, "up")?
        }
    };
    Ok(vec![ImportedValue::Tensor(ImportedTensor { v, elem: carried })])
}

pub(super) fn dequantize(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, scale) = (cx.operand(0)?, cx.operand(1)?);
    let shape = cx.shape(x.v);
    let out = match cx.int("output_dtype", 0) {
        0 if scale.elem.is_some() => DType::F32,
        0 => cx.dtype(scale.v),
        n => cx.dtype_of(n)?.0,
    };
    let mut wide = cx.cast(x.v, DType::F32)?;
    if out == DType::F64 {
        wide = cx.cast(x.v, DType::F64)?;
    }
    let acc = cx.dtype(wide);
    if cx.item(2).is_some() && range(cx.dtype(x.v), x.elem).is_some() {
        let z = cx.operand(2)?.v;
        let z = cx.cast(z, acc)?;
        let z = broadcast_qparams(cx, z, &shape)?;
        wide = cx.sub(wide, z)?;
    }
    let s = cx.cast(scale.v, acc)?;
    let s = broadcast_qparams(cx, s, &shape)?;
    let y = cx.mul(wide, s)?;
    one(cx.cast(y, out)?)
}

pub(super) fn dynamic_quantize(cx: &mut NodeContext) -> Result<NodeOutputs> {
    use ir::ops::ReduceKind;
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let axes: Vec<usize> = (0..shape.len()).collect();
    let (hi, lo) = (cx.reduce(ReduceKind::Max, x, &axes)?, cx.reduce(ReduceKind::Min, x, &axes)?);
    let zero = cx.full_like(hi, 0.0)?;
    let (hi, lo) = (cx.binary(ir::Binary::Max, hi, zero)?, cx.binary(ir::Binary::Min, lo, zero)?);
    let span = cx.sub(hi, lo)?;
    let n = cx.full_like(span, 255.0)?;
    let scale = cx.div(span, n)?;
    let m = cx.neg(lo)?;
    let z = cx.div(m, scale)?;
    let z = cx.unary(Unary::Round, z)?;
    let z = saturated(cx, z, 0.0, 255.0)?;
    let s = cx.splat(scale, &shape)?;
    let q = cx.div(x, s)?;
    let q = cx.unary(Unary::Round, q)?;
    let zs = cx.splat(z, &shape)?;
    let q = cx.add(q, zs)?;
    let q = saturated(cx, q, 0.0, 255.0)?;
    let (q, z) = (cx.cast(q, DType::U8)?, cx.cast(z, DType::U8)?);
    Ok(vec![q.into(), scale.into(), z.into()])
}

/// `x - z` in i32; `z` is one number, or one per row (`last` false) or column.
fn subtract_zero_point(cx: &mut NodeContext, x: Value, z: Option<Value>, last: bool) -> Result<Value> {
    let x = cx.cast(x, DType::I32)?;
    let Some(z) = z else { return Ok(x) };
    let shape = cx.shape(x);
    let z = cx.cast(z, DType::I32)?;
    let z = broadcast_zero_point(cx, z, &shape, last)?;
    Ok(cx.sub(x, z)?)
}

/// Reshapes for broadcasting: one number in total, or one per row or column of a matrix; other shapes are unchanged.
fn broadcast_zero_point(cx: &mut NodeContext, z: Value, shape: &[usize], last: bool) -> Result<Value> {
    let own = cx.shape(z);
    let count: usize = own.iter().product();
    if count == 1 {
        let z = cx.reshape(z, &[])?;
        return Ok(cx.splat(z, shape)?);
    }
    if own.len() == 1 && shape.len() >= 2 {
        return cx.broadcast_along(z, shape, if last { shape.len() - 1 } else { shape.len() - 2 });
    }
    Ok(cx.broadcast_to(z, shape)?)
}

pub(super) fn matmul_integer(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let (az, bz) = (cx.opt(2)?, cx.opt(3)?);
    let (a, b) = (subtract_zero_point(cx, a, az, false)?, subtract_zero_point(cx, b, bz, true)?);
    one(super::matmul::matmul_of(cx, a, b)?)
}

/// Requantizes sums in i32: `round(sum · factor) + zero`, saturated.
fn requantized(cx: &mut NodeContext, sums: Value, factor: Value, zero: ImportedTensor) -> Result<NodeOutputs> {
    let s = cx.cast(sums, DType::F32)?;
    let s = cx.mul(s, factor)?;
    let s = cx.unary(Unary::Round, s)?;
    let shape = cx.shape(s);
    let dtype = cx.dtype(zero.v);
    let z = cx.cast(zero.v, DType::F32)?;
    let z = broadcast_zero_point(cx, z, &shape, false)?;
    let s = cx.add(s, z)?;
    let Some((lo, hi)) = range(dtype, zero.elem) else {
        return Err(Error::node_error("its result must be quantized to integers"));
    };
    let s = saturated(cx, s, lo, hi)?;
    let v = cx.cast(s, dtype)?;
    Ok(vec![ImportedValue::Tensor(ImportedTensor { v, elem: zero.elem })])
}

pub(super) fn qlinear_matmul(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(3)?);
    let (az, bz) = (cx.opt(2)?, cx.opt(5)?);
    let (a, b) = (subtract_zero_point(cx, a, az, false)?, subtract_zero_point(cx, b, bz, true)?);
    let y = super::matmul::matmul_of(cx, a, b)?;
    let shape = cx.shape(y);
    let factor = |cx: &mut NodeContext, i: usize, last: bool| -> Result<Value> {
        let s = cx.x(i)?;
        let s = cx.cast(s, DType::F32)?;
        broadcast_zero_point(cx, s, &shape, last)
    };
    let (sa, sb, sy) = (factor(cx, 1, false)?, factor(cx, 4, true)?, factor(cx, 6, false)?);
    let f = cx.mul(sa, sb)?;
    let f = cx.div(f, sy)?;
    let zero = cx.operand(7)?;
    requantized(cx, y, f, zero)
}

pub(super) fn qlinear_conv(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w) = (cx.x(0)?, cx.x(3)?);
    let (xz, wz) = (cx.opt(2)?, cx.opt(5)?);
    let y = super::conv::conv_centred(cx, x, w, xz, wz)?;
    let bias = cx.opt(8)?;
    let y = super::conv::add_bias(cx, y, bias)?;
    let shape = cx.shape(y);
    let scale = |cx: &mut NodeContext, i: usize| -> Result<Value> {
        let s = cx.x(i)?;
        let s = cx.cast(s, DType::F32)?;
        match cx.shape(s).iter().product::<usize>() {
            1 => {
                let s = cx.reshape(s, &[])?;
                Ok(cx.splat(s, &shape)?)
            }
            n => {
                let s = cx.reshape(s, &[n])?;
                cx.broadcast_along(s, &shape, 1)
            }
        }
    };
    let (sx, sw, sy) = (scale(cx, 1)?, scale(cx, 4)?, scale(cx, 6)?);
    let f = cx.mul(sx, sw)?;
    let f = cx.div(f, sy)?;
    let zero = cx.operand(7)?;
    requantized(cx, y, f, zero)
}
