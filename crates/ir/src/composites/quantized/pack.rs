//! Quantization with plain ops: computes the parts of a tensor. GGUF formats and MXFP4 match their references bit by bit.

use super::format::{NF4, QuantFormat, QuantScheme};
use super::unpack::{bits, per_group, scales};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Value;
use crate::ops::gather::GatherMode;
use crate::ops::{Bitcast, Concat, Quantize, ReduceKind};
use crate::scalar::{Binary, Compare, Scalar, Unary};
use crate::types::Type;

/// The parts of `x`; `all` is the per-tensor scale of `Nvfp4`.
pub(super) fn pack(
    b: &mut Builder,
    packing: &QuantScheme,
    x: Value,
    all: Option<Value>,
    parts: &[Type],
) -> Result<Vec<Value>> {
    let x = b.cast(x, DType::F32)?;
    if packing.format.block_bytes().is_some() {
        return Ok(vec![blocks(b, packing, x)?]);
    }
    let shape = b.ty(x).shape;
    if packing.format == QuantFormat::U4 {
        return affine(b, packing, x, parts);
    }
    let most = group_absmax(b, packing, x)?;
    let mut stored = vec![x]; // The codes take its place.
    match packing.format {
        QuantFormat::Mxfp4 => stored.push(exponent(b, most)?),
        QuantFormat::Nvfp4 => {
            let all = all.unwrap_or(x);
            let dims: Vec<usize> = (0..b.ty(all).rank()).collect();
            let groups = b.ty(most).shape;
            let wide = b.broadcast(all, &groups, &dims)?;
            let sixth = b.full_like(most, 6.0)?;
            let own = b.div(most, sixth)?;
            let own = b.div(own, wide)?;
            stored.push(b.one(Quantize(DType::F8E4M3).into(), &[own])?);
            stored.push(all);
        }
        format => {
            let (top, _) = format.code_range().unwrap_or((1.0, 1.0));
            let top = b.full_like(most, top)?;
            let scale = b.div(most, top)?;
            stored.push(b.cast(scale, parts[1].dtype)?);
        }
    }
    // Codes are computed with the stored (rounded) scale, which decoding uses too.
    let scale = scales(b, packing, &stored)?;
    let inverse = inverse(b, scale)?;
    let inverse = per_group(b, inverse, &shape)?;
    let y = match packing.format {
        // Division by a power of two is exact, and its inverse may not be representable.
        QuantFormat::Mxfp4 | QuantFormat::Nvfp4 => {
            let wide = per_group(b, scale, &shape)?;
            let quotient = b.div(x, wide)?;
            let zero = b.full_like(quotient, 0.0)?;
            let nothing = b.compare(Compare::Eq, wide, zero)?;
            b.select(nothing, zero, quotient)?
        }
        _ => b.mul(x, inverse)?,
    };
    stored[0] = match packing.format {
        QuantFormat::Int8 => {
            let y = b.unary(Unary::Round, y)?;
            let y = within(b, y, -127.0, 127.0)?;
            b.cast(y, DType::I8)?
        }
        QuantFormat::Int4 => {
            let y = b.unary(Unary::Round, y)?;
            let y = within(b, y, -7.0, 7.0)?;
            let y = b.cast(y, DType::I8)?;
            let y = b.one(Bitcast(DType::U8).into(), &[y])?;
            let y = bits(b, Binary::And, y, 15)?;
            pairs(b, y, false)?
        }
        QuantFormat::Fp8E4M3 => b.one(Quantize(DType::F8E4M3).into(), &[y])?,
        QuantFormat::Fp8E5M2 => b.one(Quantize(DType::F8E5M2).into(), &[y])?,
        QuantFormat::Nf4 => {
            let codes = nf4(b, y)?;
            pairs(b, codes, true)?
        }
        _ => {
            let codes = e2m1(b, y)?;
            pairs(b, codes, false)?
        }
    };
    Ok(stored)
}

/// Reshapes so that the elements of each group have a separate axis.
fn grouped(b: &mut Builder, packing: &QuantScheme, x: Value) -> Result<Value> {
    let mut shape = b.ty(x).shape;
    let last = shape.len() - 1;
    let k = shape[last];
    shape[last] = k / packing.group;
    shape.push(packing.group);
    b.reshape(x, &shape)
}

/// The largest magnitude of each group.
fn group_absmax(b: &mut Builder, packing: &QuantScheme, x: Value) -> Result<Value> {
    let size = b.unary(Unary::Abs, x)?;
    let groups = grouped(b, packing, size)?;
    let axis = b.ty(groups).rank() - 1;
    b.reduce(ReduceKind::Max, groups, &[axis])
}

/// `1/x`, or 0 for 0.
fn inverse(b: &mut Builder, x: Value) -> Result<Value> {
    let (one, zero) = (b.full_like(x, 1.0)?, b.full_like(x, 0.0)?);
    let y = b.div(one, x)?;
    let nothing = b.compare(Compare::Eq, x, zero)?;
    b.select(nothing, zero, y)
}

fn within(b: &mut Builder, x: Value, low: f64, high: f64) -> Result<Value> {
    let (low, high) = (b.full_like(x, low)?, b.full_like(x, high)?);
    let x = b.binary(Binary::Max, x, low)?;
    b.binary(Binary::Min, x, high)
}

/// Packs two codes into each byte.
fn pairs(b: &mut Builder, codes: Value, high_first: bool) -> Result<Value> {
    let mut shape = b.ty(codes).shape;
    let last = shape.len() - 1;
    let k = shape[last];
    shape[last] = k / 2;
    let half = shape.clone();
    shape.push(2);
    let both = b.reshape(codes, &shape)?;
    let mut one = |at: usize| -> Result<Value> {
        let part = b.slice_axis(both, last + 1, at, at + 1)?;
        b.reshape(part, &half)
    };
    let (first, second) = (one(0)?, one(1)?);
    let (low, high) = if high_first { (second, first) } else { (first, second) };
    let high = bits(b, Binary::Shl, high, 4)?;
    b.binary(Binary::Or, low, high)
}

/// The number of bounds that a number exceeds, as u8; 0 for NaN.
fn count_above(b: &mut Builder, x: Value, bounds: &[(f32, bool)]) -> Result<Value> {
    let ty = b.ty(x);
    let mut count: Option<Value> = None;
    for &(bound, or_equal) in bounds {
        let bound = b.full(&ty, Scalar::from_bits(DType::F32, bound.to_bits() as u64))?;
        let over = b.compare(if or_equal { Compare::Ge } else { Compare::Gt }, x, bound)?;
        let over = b.cast(over, DType::U8)?;
        count = Some(match count {
            None => over,
            Some(count) => b.add(count, over)?,
        });
    }
    match count {
        Some(count) => Ok(count),
        None => b.cast(x, DType::U8),
    }
}

/// The nearest value of NF4; ties go to the lower one, as in bitsandbytes.
fn nf4(b: &mut Builder, x: Value) -> Result<Value> {
    let middles: Vec<(f32, bool)> = NF4.windows(2).map(|w| ((w[0] + w[1]) / 2.0, false)).collect();
    count_above(b, x, &middles)
}

/// The nearest value of E2M1, ties to the even code, saturating; the sign of zero is kept. NaN becomes the largest.
fn e2m1(b: &mut Builder, x: Value) -> Result<Value> {
    let size = b.unary(Unary::Abs, x)?;
    let same = b.compare(Compare::Eq, size, size)?;
    let most = b.full_like(size, 6.0)?;
    let size = b.select(same, size, most)?;
    let bounds = [(0.25, false), (0.75, true), (1.25, false), (1.75, true), (2.5, false), (3.5, true), (5.0, false)];
    let code = count_above(b, size, &bounds)?;
    let sign = b.one(Bitcast(DType::U32).into(), &[x])?;
    let sign = bits(b, Binary::Shr, sign, 28)?;
    let sign = bits(b, Binary::And, sign, 8)?;
    let sign = b.cast(sign, DType::U8)?;
    b.binary(Binary::Or, code, sign)
}

/// MXFP4's shared exponent: the exponent of the largest magnitude minus 2, biased by 127 and rounded down as OCP specifies.
fn exponent(b: &mut Builder, most: Value) -> Result<Value> {
    let raw = b.one(Bitcast(DType::U32).into(), &[most])?;
    let e = bits(b, Binary::Shr, raw, 23)?;
    let e = bits(b, Binary::And, e, 255)?;
    let two = bits(b, Binary::Max, e, 2)?;
    let e = bits(b, Binary::Sub, two, 2)?;
    b.cast(e, DType::U8)
}

/// `U4`: a scale and an integer zero point for each group, whose range includes 0.
fn affine(b: &mut Builder, packing: &QuantScheme, x: Value, parts: &[Type]) -> Result<Vec<Value>> {
    let shape = b.ty(x).shape;
    let groups = grouped(b, packing, x)?;
    let axis = b.ty(groups).rank() - 1;
    let high = b.reduce(ReduceKind::Max, groups, &[axis])?;
    let low = b.reduce(ReduceKind::Min, groups, &[axis])?;
    let zero = b.full_like(high, 0.0)?;
    let (high, low) = (b.binary(Binary::Max, high, zero)?, b.binary(Binary::Min, low, zero)?);
    let range = b.sub(high, low)?;
    let steps = b.full_like(range, 15.0)?;
    let scale = b.div(range, steps)?;
    let scale = b.cast(scale, parts[1].dtype)?;
    let wide = b.cast(scale, DType::F32)?;
    let inverse = inverse(b, wide)?;
    let below = b.neg(low)?;
    let zero = b.mul(below, inverse)?;
    let zero = b.unary(Unary::Round, zero)?;
    let zero = within(b, zero, 0.0, 15.0)?;
    let (inverse, point) = (per_group(b, inverse, &shape)?, per_group(b, zero, &shape)?);
    let y = b.mul(x, inverse)?;
    let y = b.unary(Unary::Round, y)?;
    let y = b.add(y, point)?;
    let y = within(b, y, 0.0, 15.0)?;
    let codes = b.cast(y, DType::U8)?;
    let zero = b.cast(zero, parts[2].dtype)?;
    Ok(vec![pairs(b, codes, false)?, scale, zero])
}

/// Encodes GGUF blocks of 32.
fn blocks(b: &mut Builder, packing: &QuantScheme, x: Value) -> Result<Value> {
    let full = b.ty(x).shape;
    let x = grouped(b, packing, x)?;
    let shape = b.ty(x).shape;
    let axis = shape.len() - 1;
    let across = |b: &mut Builder, v: Value| -> Result<Value> { b.broadcast_to(v, &shape) };
    let keep = |b: &mut Builder, v: Value| -> Result<Value> {
        let mut one = shape.clone();
        one[axis] = 1;
        b.reshape(v, &one)
    };
    let divided = |b: &mut Builder, v: Value, by: f64| -> Result<Value> {
        let by = b.full_like(v, by)?;
        b.div(v, by)
    };
    let mut pieces = Vec::new();
    let codes = match packing.format {
        QuantFormat::Q8_0 => {
            let size = b.unary(Unary::Abs, x)?;
            let most = b.reduce(ReduceKind::Max, size, &[axis])?;
            let most = keep(b, most)?;
            let d = divided(b, most, 127.0)?;
            let id = inverse(b, d)?;
            let id = across(b, id)?;
            let y = b.mul(x, id)?;
            let y = round_away(b, y)?;
            let codes = b.cast(y, DType::I8)?;
            f16_bytes(b, d, &mut pieces)?;
            pieces.push(b.one(Bitcast(DType::U8).into(), &[codes])?);
            None
        }
        QuantFormat::Q4_0 | QuantFormat::Q5_0 => {
            let half_range = if packing.format == QuantFormat::Q4_0 { 8.0 } else { 16.0 };
            let size = b.unary(Unary::Abs, x)?;
            let at = b.argmax(size, axis, DType::I32)?;
            let at = keep(b, at)?;
            let most = b.take_along_axis(x, at, axis, GatherMode::Clip)?;
            let d = divided(b, most, -half_range)?;
            let id = inverse(b, d)?;
            let id = across(b, id)?;
            let y = b.mul(x, id)?;
            let y = b.offset(y, half_range + 0.5)?;
            f16_bytes(b, d, &mut pieces)?;
            Some((y, 2.0 * half_range - 1.0))
        }
        _ => {
            let top = if packing.format == QuantFormat::Q4_1 { 15.0 } else { 31.0 };
            let high = b.reduce(ReduceKind::Max, x, &[axis])?;
            let low = b.reduce(ReduceKind::Min, x, &[axis])?;
            let (high, low) = (keep(b, high)?, keep(b, low)?);
            let range = b.sub(high, low)?;
            let d = divided(b, range, top)?;
            let id = inverse(b, d)?;
            let (id, wide) = (across(b, id)?, across(b, low)?);
            let y = b.sub(x, wide)?;
            let y = b.mul(y, id)?;
            let y = b.offset(y, 0.5)?;
            f16_bytes(b, d, &mut pieces)?;
            f16_bytes(b, low, &mut pieces)?;
            Some((y, top))
        }
    };
    if let Some((y, top)) = codes {
        let y = b.unary(Unary::Trunc, y)?;
        let y = within(b, y, 0.0, top)?;
        let codes = b.cast(y, DType::U8)?;
        if top > 15.0 {
            pieces.push(fifth_bits(b, codes)?);
        }
        let low = bits(b, Binary::And, codes, 15)?;
        let first = b.slice_axis(low, axis, 0, 16)?;
        let second = b.slice_axis(low, axis, 16, 32)?;
        let second = bits(b, Binary::Shl, second, 4)?;
        pieces.push(b.binary(Binary::Or, first, second)?);
    }
    let joined = b.one(Concat { axis }.into(), &pieces)?;
    let bytes = packing.format.block_bytes().unwrap_or(1);
    let mut out = full.clone();
    out[axis - 1] = full[axis - 1] / packing.group * bytes;
    b.reshape(joined, &out)
}

/// The two bytes of an f16.
fn f16_bytes(b: &mut Builder, x: Value, pieces: &mut Vec<Value>) -> Result<()> {
    let half = b.cast(x, DType::F16)?;
    let raw = b.one(Bitcast(DType::U16).into(), &[half])?;
    let low = bits(b, Binary::And, raw, 255)?;
    let high = bits(b, Binary::Shr, raw, 8)?;
    pieces.push(b.cast(low, DType::U8)?);
    pieces.push(b.cast(high, DType::U8)?);
    Ok(())
}

/// Rounds to nearest, ties away from zero, like C's `roundf`.
fn round_away(b: &mut Builder, x: Value) -> Result<Value> {
    let size = b.unary(Unary::Abs, x)?;
    let whole = b.unary(Unary::Floor, size)?;
    let rest = b.sub(size, whole)?;
    let rest = b.scale(rest, 2.0)?;
    let more = b.unary(Unary::Floor, rest)?;
    let y = b.add(whole, more)?;
    let sign = b.unary(Unary::Sign, x)?;
    b.mul(sign, y)
}

/// The fifth bits of 32 codes, eight per byte.
fn fifth_bits(b: &mut Builder, codes: Value) -> Result<Value> {
    let mut shape = b.ty(codes).shape;
    let axis = shape.len() - 1;
    let flat = shape.clone();
    shape[axis] = 4;
    shape.push(8);
    let bit = bits(b, Binary::Shr, codes, 4)?;
    let bit = b.reshape(bit, &shape)?;
    let place = b.iota(DType::U8, &shape, axis + 1)?;
    let moved = b.binary(Binary::Shl, bit, place)?;
    let sums = b.sum(moved, &[axis + 1])?;
    let mut out = flat;
    out[axis] = 4;
    b.reshape(sums, &out)
}
