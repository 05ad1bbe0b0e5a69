//! Conversions, also to and from types that are only carried.

use super::Outs;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::item::{Item, Tensor};
use crate::node::Cx;
use ir::ops::{Bitcast, Clamp, Quantize};
use ir::{Binary, Build, Compare, DType, Scalar, Unary, Value};

pub(super) fn cast(cx: &mut Cx) -> Result<Outs> {
    let x = cx.any(0)?;
    let (dtype, carried) = cx.dtype_of(cx.int("to", 0))?;
    convert(cx, x, dtype, carried)
}

pub(super) fn cast_like(cx: &mut Cx) -> Result<Outs> {
    let (x, like) = (cx.any(0)?, cx.any(1)?);
    let dtype = cx.dtype(like.v);
    convert(cx, x, dtype, like.carried)
}

fn convert(cx: &mut Cx, x: Tensor, dtype: DType, carried: Option<Elem>) -> Result<Outs> {
    let saturate = cx.int("saturate", 1) != 0;
    let round_mode = cx.string("round_mode", "up");
    let v = to_elem(cx, x.v, dtype, carried, saturate, &round_mode)?;
    Ok(vec![Item::Tensor(Tensor { v, carried })])
}

/// A value as another element type.
pub(super) fn to_elem(
    cx: &mut Cx,
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
        // The lowest bits, as casts to integers take them; from floats the fraction is dropped first.
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
        return Err(Error::here(format!("conversion to {} is not supported", elem.name())));
    };
    round_small(cx, wide, f, saturate)
}

/// Rounds f32 to the numbers of a small float: to even, in steps of the power of two that the number lies at.
fn round_small(cx: &mut Cx, x: Value, f: crate::elem::SmallFloat, saturate: bool) -> Result<Value> {
    let ty = cx.ty(x);
    let wide = cx.cast(x, DType::F64)?;
    let a = cx.unary(Unary::Abs, wide)?;
    // The exponent's bits of the number are the power of two below it.
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
    // Infinity times the step is not a number before it is replaced.
    let inf = cx.full_like(a, f64::INFINITY)?;
    let infinite = cx.compare(Compare::Eq, a, inf)?;
    let r = cx.select(infinite, limit, r)?;
    let r = if f.nan {
        let nan = cx.compare(Compare::Ne, wide, wide)?;
        let nans = cx.full_like(r, f64::NAN)?;
        cx.select(nan, nans, r)?
    } else {
        // Without a NaN, one becomes 0, as the reference has it.
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
fn power_of_two(cx: &mut Cx, x: Value, saturate: bool, mode: &str) -> Result<Value> {
    let ty = cx.ty(x);
    let a = cx.unary(Unary::Abs, x)?;
    let u32s = ty.with_dtype(DType::U32);
    let bits = cx.one(Bitcast(DType::U32).into(), &[a])?;
    let constant = |cx: &mut Cx, b: u64| cx.full(&u32s, Scalar::from_bits(DType::U32, b));
    let (fraction_mask, shift, one, half) =
        (constant(cx, 0x7f_ffff)?, constant(cx, 23)?, constant(cx, 1)?, constant(cx, 0x40_0000)?);
    let exponent = cx.binary(Binary::Shr, bits, shift)?;
    let fraction = cx.binary(Binary::And, bits, fraction_mask)?;
    let zero = constant(cx, 0)?;
    let up = match mode {
        "up" => cx.compare(Compare::Gt, fraction, zero)?,
        "down" => cx.compare(Compare::Lt, fraction, zero)?,
        "nearest" => cx.compare(Compare::Ge, fraction, half)?,
        other => return Err(Error::here(format!("unknown rounding mode `{other}`: use up, down or nearest"))),
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

pub(super) fn bit_cast(cx: &mut Cx) -> Result<Outs> {
    let x = cx.x(0)?;
    let (dtype, carried) = cx.dtype_of(cx.int("to", 0))?;
    if carried.is_some() {
        return Err(Error::here("the bit layout of that type is not supported"));
    }
    if cx.dtype(x) == DType::Bool || dtype == DType::Bool {
        // A bool is one byte that is 0 or 1.
        let x = cx.cast(x, DType::U8)?;
        return super::one(cx.cast(x, dtype)?);
    }
    super::one(if cx.dtype(x) == dtype { x } else { cx.one(Bitcast(dtype).into(), &[x])? })
}

/// Saturating conversion of integers in a wide type.
pub(super) fn saturated(cx: &mut Cx, x: Value, lo: f64, hi: f64) -> Result<Value> {
    let (lo, hi) = (cx.full_like(x, lo)?, cx.full_like(x, hi)?);
    Ok(cx.one(Clamp.into(), &[x, lo, hi])?)
}
