//! Random numbers: Threefry with the node's seed as its key, so that a model gives reproducible numbers.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::item::ImportedValue;
use crate::node::NodeContext;
use ir::ops::Bitcast;
use ir::{Binary, Compare, DType, GraphBuilder, Scalar, Type, Unary, Value};

/// The key of the node: its seed, or else derived from its first output's name.
fn key(cx: &NodeContext) -> [u64; 2] {
    match cx.float_opt("seed").or_else(|| cx.int_opt("seed").map(|i| i as f64)) {
        Some(seed) => [seed.to_bits() >> 32, seed.to_bits() & 0xffff_ffff],
        None => {
            let name = cx.node.output.first().map_or("", String::as_str);
            let hash =
                name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            [hash >> 32, hash & 0xffff_ffff]
        }
    }
}

/// Uniform f32 in [0, 1).
fn uniform(cx: &mut NodeContext, shape: &[usize]) -> Result<Value> {
    let ty = Type::checked(DType::U32, shape)?;
    let n = ty.numel();
    let [k0, k1] = key(cx).map(|k| Scalar::from_bits(DType::U32, k));
    let flat = Type::new(DType::U32, &[n]);
    let (k0, k1) = (cx.full(&flat, k0)?, cx.full(&flat, k1)?);
    let count = cx.iota(DType::U32, &[n], 0)?;
    let zero = cx.zeros(&flat)?;
    let [bits, _] = cx.threefry2x32([k0, k1], [count, zero])?;
    let nine = cx.full(&flat, Scalar::from_bits(DType::U32, 9))?;
    let bits = cx.binary(Binary::Shr, bits, nine)?;
    let one = cx.full(&flat, Scalar::from_bits(DType::U32, 0x3f80_0000))?;
    let bits = cx.binary(Binary::Or, bits, one)?;
    let f = cx.one(Bitcast(DType::F32).into(), &[bits])?;
    let f = cx.offset(f, -1.0)?;
    Ok(cx.reshape(f, shape)?)
}

/// The requested shape and dtype: those of the operand, unless attributes override them.
fn requested_type(cx: &mut NodeContext, like: bool) -> Result<(Vec<usize>, DType)> {
    let given = cx.int_opt("dtype").map(|n| cx.dtype_of(n)).transpose()?.map(|d| d.0);
    if like {
        let t = cx.operand(0)?;
        let own = cx.dtype(t.v);
        let float = if own.is_float() { own } else { DType::F32 };
        return Ok((cx.shape(t.v), given.unwrap_or(float)));
    }
    let shape = cx.amounts("shape")?.unwrap_or_default();
    let shape: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
    Ok((shape.ok_or_else(|| Error::node_error("a negative size"))?, given.unwrap_or(DType::F32)))
}

pub(super) fn random_uniform(cx: &mut NodeContext, like: bool) -> Result<NodeOutputs> {
    let (shape, dtype) = requested_type(cx, like)?;
    let (low, high) = (cx.float("low", 0.0), cx.float("high", 1.0));
    let u = uniform(cx, &shape)?;
    let u = cx.scale(u, high - low)?;
    let u = cx.offset(u, low)?;
    one(cx.cast(u, dtype)?)
}

pub(super) fn random_normal(cx: &mut NodeContext, like: bool) -> Result<NodeOutputs> {
    let (shape, dtype) = requested_type(cx, like)?;
    let (mean, scale) = (cx.float("mean", 0.0), cx.float("scale", 1.0));
    let u = uniform(cx, &shape)?;
    // In (-1, 1): half a step away from the ends.
    let u = cx.scale(u, 2.0)?;
    let u = cx.offset(u, -1.0 + f64::powi(2.0, -23))?;
    let z = cx.unary(Unary::ErfInv, u)?;
    let z = cx.scale(z, std::f64::consts::SQRT_2 * scale)?;
    let z = cx.offset(z, mean)?;
    one(cx.cast(z, dtype)?)
}

pub(super) fn bernoulli(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let p = cx.x(0)?;
    let dtype = cx.int_opt("dtype").map_or(Ok(cx.dtype(p)), |n| cx.dtype_of(n).map(|d| d.0))?;
    let shape = cx.shape(p);
    let u = uniform(cx, &shape)?;
    let p = cx.cast(p, DType::F32)?;
    let hit = cx.compare(Compare::Lt, u, p)?;
    one(cx.cast(hit, dtype)?)
}

/// Samples indices from unnormalized log probabilities.
pub(super) fn multinomial(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let &[batch, classes] = &cx.shape(x)[..] else { return Err(Error::node_error("its input must be a matrix")) };
    let n = cx.count("sample_size", 1)?;
    let dtype = cx.dtype_of(cx.int("dtype", 6))?.0;
    let x = cx.cast(x, DType::F32)?;
    let p = super::elementwise::softmax_along(cx, x, 1, super::elementwise::SoftmaxKind::Softmax)?;
    let c = cx.cumulative(ir::ops::ReduceKind::Sum, p, 1, false)?;
    let u = uniform(cx, &[batch, n])?;
    let all = [batch, n, classes];
    let (c, u) = (cx.broadcast(c, &all, &[0, 2])?, cx.broadcast(u, &all, &[0, 1])?);
    let below = cx.compare(Compare::Ge, u, c)?;
    let below = cx.cast(below, DType::I64)?;
    let i = cx.sum(below, &[2])?;
    let last = cx.full_like(i, classes as f64 - 1.0)?;
    let i = cx.binary(Binary::Min, i, last)?;
    one(cx.cast(i, dtype)?)
}

pub(super) fn dropout(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let training = match cx.item(2) {
        Some(_) => super::control::scalar_bool(&cx.static_operand(2, "training_mode")?)?,
        None => false,
    };
    let all = cx.full(&Type::new(DType::Bool, &shape), Scalar::bool(true))?;
    if !training {
        return Ok(vec![x.into(), all.into()]);
    }
    let ratio = match cx.opt(1)? {
        Some(r) => r,
        None => cx.scalar(DType::F32, 0.5)?,
    };
    let ratio = cx.cast(ratio, DType::F32)?;
    let ratio = cx.reshape(ratio, &[])?;
    let wide = cx.splat(ratio, &shape)?;
    let u = uniform(cx, &shape)?;
    let kept = cx.compare(Compare::Ge, u, wide)?;
    let rest = cx.neg(wide)?;
    let rest = cx.offset(rest, 1.0)?;
    let rest = cx.cast(rest, cx.dtype(x))?;
    let y = cx.div(x, rest)?;
    let y = cx.zero_unless(kept, y)?;
    Ok(vec![ImportedValue::from(y), ImportedValue::from(kept)])
}
