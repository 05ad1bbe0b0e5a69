//! Conversions, also to and from emulated types.

use super::NodeOutputs;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::NodeContext;
use ir::ops::{Bitcast, Clamp, Quantize};
use ir::{Binary, Compare, DType, GraphBuilder, Scalar, Unary, Value};

pub(super) fn cast(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.operand(0)?;
    let (dtype, carried) = cx.dtype_of(cx.int("to", 0))?;
    convert(cx, x, dtype, carried)
}

pub(super) fn cast_like(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, like) = (cx.operand(0)?, cx.operand(1)?);
    let dtype = cx.dtype(like.v);
    convert(cx, x, dtype, like.elem)
}

fn convert(cx: &mut NodeContext, x: ImportedTensor, dtype: DType, carried: Option<Elem>) -> Result<NodeOutputs> {
    let saturate = cx.int("saturate", 1) != 0;
    let round_mode = cx.string("round_mode", "up");
    let v = to_elem(cx, x.v, dtype, carried, saturate, &round_mode)?;
    Ok(vec![ImportedValue::Tensor(ImportedTensor { v, elem: carried })])
}

/// Converts a value to another element type.
pub(super) fn to_elem(
    cx: &mut NodeContext,
    x: Value,
    dtype: DType,
    carried: Option<Elem>,
    saturate: bool,
    round_mode: &str,
) -> Result<Value> {
    let Some(elem) = carried else {
        let small = matches!(dtype, DType::F8E4M3 | DType::F8E5M2);
        let from = cx.dtype(x);
        if small && from != dtype {
            let wide = if from.is_float() { x } else { cx.cast(x, DType::F32)? };
            return Ok(if saturate { cx.one(Quantize(dtype).into(), &[wide])? } else { cx.cast(wide, dtype)? });
        }
        return Ok(cx.cast(x, dtype)?);
    };
    if let Some((_, hi)) = elem.small_range() {
        // The lowest bits, as in casts to integers; fractions of floats are dropped first.
        let n = 1i64 << elem.bits();
        let wide = cx.cast(x, DType::I32)?;
        let mask = cx.full_like(wide, (n - 1) as f64)?;
        let low = cx.binary(Binary::And, wide, mask)?;
        let top = cx.full_like(wide, hi as f64)?;
        let above = cx.compare(Compare::Gt, low, top)?;
        let signed = cx.offset(low, -(n as f64))?;
        let y = cx.select(above, signed, low)?;
        return Ok(cx.cast(y, dtype)?);
    }
    let wide = cx.cast(x, DType::F32)?;
    if elem == Elem::Float8E8M0 {
        return power_of_two(cx, wide, saturate, round_mode);
    }
    let Some(f) = elem.small_float() else {
        return Err(Error::node_error(format!("conversion to {} is not supported", elem.name())));
    };
    round_small(cx, wide, f, saturate)
}

/// Rounds f32 to the numbers of a small float: half to even, with the precision of the number's binade.
fn round_small(cx: &mut NodeContext, x: Value, f: crate::elem::SmallFloat, saturate: bool) -> Result<Value> {
    let ty = cx.ty(x);
    let wide = cx.cast(x, DType::F64)?;
    let a = cx.unary(Unary::Abs, wide)?;
    // The exponent's bits alone are the largest power of two not above the number.
    let bits = cx.one(Bitcast(DType::U64).into(), &[a])?;
    let u64s = ty.with_dtype(DType::U64);
    let mask = cx.full(&u64s, Scalar::from_bits(DType::U64, 0x7ff0_0000_0000_0000))?;
    let bits = cx.binary(Binary::And, bits, mask)?;
    let power = cx.one(Bitcast(DType::F64).into(), &[bits])?;
    let least = cx.full_like(power, 2f64.powi(1 - f.bias))?;
    let power = cx.binary(Binary::Max, power, least)?;
    let step = cx.scale(power, 2f64.powi(-(f.fraction as i32)))?;
    let q = cx.div(a, step)?;
    let q = cx.unary(Unary::Round, q)?;
    let r = cx.mul(q, step)?;
    let max = cx.full_like(r, f.max)?;
    let beyond = cx.compare(Compare::Gt, r, max)?;
    let limit = if saturate || !f.nan { max } else { cx.full_like(r, f64::NAN)? };
    let r = cx.select(beyond, limit, r)?;
    // Infinity times the step is NaN before it is replaced.
    let inf = cx.full_like(a, f64::INFINITY)?;
    let infinite = cx.compare(Compare::Eq, a, inf)?;
    let r = cx.select(infinite, limit, r)?;
    let r = if f.nan {
        let nan = cx.compare(Compare::Ne, wide, wide)?;
        let nans = cx.full_like(r, f64::NAN)?;
        cx.select(nan, nans, r)?
    } else {
        // In types without a NaN, NaN becomes 0, as in the reference.
        let nan = cx.compare(Compare::Ne, wide, wide)?;
        let zeros = cx.full_like(r, 0.0)?;
        cx.select(nan, zeros, r)?
    };
    let zero = cx.full_like(wide, 0.0)?;
    let below = cx.compare(Compare::Lt, wide, zero)?;
    let minus = cx.neg(r)?;
    let y = cx.select(below, minus, r)?;
    Ok(cx.cast(y, DType::F32)?)
}

/// The nearest powers of two, by the rounding mode.
fn power_of_two(cx: &mut NodeContext, x: Value, saturate: bool, mode: &str) -> Result<Value> {
    let ty = cx.ty(x);
    let a = cx.unary(Unary::Abs, x)?;
    let u32s = ty.with_dtype(DType::U32);
    let bits = cx.one(Bitcast(DType::U32).into(), &[a])?;
    let constant = |cx: &mut NodeContext, b: u64| cx.full(&u32s, Scalar::from_bits(DType::U32, b));
    let (fraction_mask, shift, one, half) =
        (constant(cx, 0x7f_ffff)?, constant(cx, 23)?, constant(cx, 1)?, constant(cx, 0x40_0000)?);
    let exponent = cx.binary(Binary::Shr, bits, shift)?;
    let fraction = cx.binary(Binary::And, bits, fraction_mask)?;
    let zero = constant(cx, 0)?;
    let up = match mode {
        "up" => cx.compare(Compare::Gt, fraction, zero)?,
        "down" => cx.compare(Compare::Lt, fraction, zero)?,
        "nearest" => cx.compare(Compare::Ge, fraction, half)?,
        other => return Err(Error::node_error(format!("unknown rounding mode `{other}`: use up, down or nearest"))),
    };
    let more = cx.add(exponent, one)?;
    let e = cx.select(up, more, exponent)?;
    let most = constant(cx, if saturate { 254 } else { 255 })?;
    let e = cx.binary(Binary::Min, e, most)?;
    // 2^(e - 127); e = 0 is the subnormal 2^-127.
    let p = cx.binary(Binary::Shl, e, shift)?;
    let p = cx.one(Bitcast(DType::F32).into(), &[p])?;
    let lowest = cx.full_like(p, 2f64.powi(-127))?;
    let none = cx.compare(Compare::Eq, e, zero)?;
    let p = cx.select(none, lowest, p)?;
    let over = constant(cx, 255)?;
    let over = cx.compare(Compare::Eq, e, over)?;
    let nan = cx.compare(Compare::Ne, x, x)?;
    let bad = cx.binary(Binary::Or, over, nan)?;
    let nans = cx.full_like(p, f64::NAN)?;
    Ok(cx.select(bad, nans, p)?)
}

pub(super) fn bit_cast(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let (dtype, carried) = cx.dtype_of(cx.int("to", 0))?;
    if carried.is_some() {
        return Err(Error::node_error("the bit layout of that type is not supported"));
    }
    if cx.dtype(x) == DType::Bool || dtype == DType::Bool {
        // A bool is stored as a byte 0 or 1.
        let x = cx.cast(x, DType::U8)?;
        return super::one(cx.cast(x, dtype)?);
    }
    super::one(if cx.dtype(x) == dtype { x } else { cx.one(Bitcast(dtype).into(), &[x])? })
}

/// Saturating conversion of integers, computed in a wider type.
pub(super) fn saturated(cx: &mut NodeContext, x: Value, lo: f64, hi: f64) -> Result<Value> {
    let (lo, hi) = (cx.full_like(x, lo)?, cx.full_like(x, hi)?);
    Ok(cx.one(Clamp.into(), &[x, lo, hi])?)
}
