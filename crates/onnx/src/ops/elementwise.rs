//! Elementwise ops, with NumPy's broadcasting.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::item::ImportedValue;
use crate::node::NodeContext;
use ir::ops::{Clamp, Composite};
use ir::{Binary, Compare, DType, GraphBuilder, Unary, Value};

/// `f(x)`.
pub(super) fn unary(cx: &mut NodeContext, f: Unary) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    one(cx.unary(f, x)?)
}

/// `f(a, b)`; older versions take more than two operands.
pub(super) fn binary(cx: &mut NodeContext, f: Binary) -> Result<NodeOutputs> {
    // Before version 7, an operand was broadcast from the left, at an axis.
    if cx.flag("broadcast") && cx.attr("axis").is_some() {
        return Err(Error::node_error(
            "broadcasting at an axis (before opset 7) is not supported; convert the model to opset 13",
        ));
    }
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    one(cx.broadcast_binary(f, a, b)?)
}

/// Folds all operands from the left.
pub(super) fn variadic(cx: &mut NodeContext, f: Binary, mean: bool) -> Result<NodeOutputs> {
    let xs: Vec<Value> = (0..cx.args.len()).map(|i| cx.x(i)).collect::<Result<_>>()?;
    let xs = cx.broadcast_all(&xs)?;
    let (&first, rest) = xs.split_first().ok_or_else(|| Error::node_error("it has no inputs"))?;
    let mut acc = first;
    for &x in rest {
        acc = cx.binary(f, acc, x)?;
    }
    if mean {
        acc = cx.scale(acc, 1.0 / xs.len() as f64)?;
    }
    one(acc)
}

/// A comparison `a ⋈ b`.
pub(super) fn compare(cx: &mut NodeContext, f: Compare) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let xs = cx.broadcast_all(&[a, b])?;
    one(cx.compare(f, xs[0], xs[1])?)
}

/// The remainder of floor division, or C's `fmod`.
pub(super) fn modulo(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let xs = cx.broadcast_all(&[a, b])?;
    let r = cx.binary(Binary::Rem, xs[0], xs[1])?;
    if cx.flag("fmod") {
        return one(r);
    }
    // The result has the divisor's sign: r + b where r is not 0 and their signs differ.
    let zero = cx.full_like(r, 0.0)?;
    let some = cx.compare(Compare::Ne, r, zero)?;
    let (below, divisor_below) = (cx.compare(Compare::Lt, r, zero)?, cx.compare(Compare::Lt, xs[1], zero)?);
    let differ = cx.compare(Compare::Ne, below, divisor_below)?;
    let wrong = cx.binary(Binary::And, some, differ)?;
    let moved = cx.add(r, xs[1])?;
    one(cx.select(wrong, moved, r)?)
}

/// The exponent may have a different dtype than the base.
pub(super) fn pow(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    let (base, exponent) = (cx.dtype(a), cx.dtype(b));
    if base == exponent || base.is_float() {
        let b = cx.cast(b, base)?;
        return one(cx.broadcast_binary(Binary::Pow, a, b)?);
    }
    let wide = if exponent.is_float() { DType::F64 } else { DType::I64 };
    let (a, b) = (cx.cast(a, wide)?, cx.cast(b, wide)?);
    let p = cx.broadcast_binary(Binary::Pow, a, b)?;
    one(cx.cast(p, base)?)
}

pub(super) fn bit_shift(cx: &mut NodeContext) -> Result<NodeOutputs> {
    match cx.string("direction", "").as_str() {
        "LEFT" => binary(cx, Binary::Shl),
        "RIGHT" => binary(cx, Binary::Shr),
        other => Err(Error::node_error(format!("unknown direction `{other}`: use LEFT or RIGHT"))),
    }
}

pub(super) fn is_nan(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    one(cx.compare(Compare::Ne, x, x)?)
}

pub(super) fn is_inf(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let mut found = Vec::new();
    for (name, inf) in [("detect_negative", f64::NEG_INFINITY), ("detect_positive", f64::INFINITY)] {
        if cx.int(name, 1) != 0 {
            let inf = cx.full_like(x, inf)?;
            found.push(cx.compare(Compare::Eq, x, inf)?);
        }
    }
    match found[..] {
        [a, b] => one(cx.binary(Binary::Or, a, b)?),
        [a] => one(a),
        _ => {
            let ty = cx.ty(x).with_dtype(DType::Bool);
            one(cx.zeros(&ty)?)
        }
    }
}

pub(super) fn select(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (c, a, b) = (cx.x(0)?, cx.operand(1)?, cx.operand(2)?);
    let xs = cx.broadcast_all(&[c, a.v, b.v])?;
    let v = cx.select(xs[0], xs[1], xs[2])?;
    Ok(vec![ImportedValue::Tensor(crate::item::ImportedTensor { v, elem: a.elem })])
}

pub(super) fn clip(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let bounds = match cx.version < 11 {
        true => {
            let bound = |cx: &mut NodeContext, name: &str| cx.float_opt(name).map(|b| cx.full_like(x, b)).transpose();
            (bound(cx, "min")?, bound(cx, "max")?)
        }
        false => {
            let shape = cx.shape(x);
            let bound = |cx: &mut NodeContext, i: usize| -> Result<Option<Value>> {
                let Some(b) = cx.opt(i)? else { return Ok(None) };
                let b = cx.reshape(b, &[])?;
                Ok(Some(cx.splat(b, &shape)?))
            };
            (bound(cx, 1)?, bound(cx, 2)?)
        }
    };
    one(match bounds {
        (Some(lo), Some(hi)) => cx.one(Clamp.into(), &[x, lo, hi])?,
        (Some(lo), None) => cx.binary(Binary::Max, x, lo)?,
        (None, Some(hi)) => cx.binary(Binary::Min, x, hi)?,
        (None, None) => x,
    })
}

/// A composite of the library.
pub(super) fn composite(cx: &mut dyn GraphBuilder, x: Value, c: ir::Result<Composite>) -> Result<Value> {
    let op = c?;
    Ok(cx.emit(op.into(), &[x])?[0])
}

pub(super) fn relu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let ty = cx.ty(x);
    if !ty.dtype.is_float() {
        let zero = cx.zeros(&ty)?;
        return one(cx.binary(Binary::Max, x, zero)?);
    }
    one(composite(cx, x, ir::composites::activation::relu(&ty))?)
}

pub(super) fn gelu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    use ir::composites::activation::{Gelu, gelu};
    let x = cx.x(0)?;
    let form = match cx.string("approximate", "none").as_str() {
        "none" => Gelu::Erf,
        "tanh" => Gelu::Tanh,
        other => return Err(Error::node_error(format!("unknown approximation `{other}`: use none or tanh"))),
    };
    let ty = cx.ty(x);
    one(composite(cx, x, gelu(&ty, form))?)
}

/// `if x < 0 { f(x) } else { x }`; `f` is evaluated only on negative values, so that its derivative elsewhere doesn't matter.
fn below_zero(
    cx: &mut dyn GraphBuilder,
    x: Value,
    f: impl FnOnce(&mut dyn GraphBuilder, Value) -> Result<Value>,
) -> Result<Value> {
    let zero = cx.full_like(x, 0.0)?;
    let below = cx.compare(Compare::Lt, x, zero)?;
    let safe = cx.select(below, x, zero)?;
    let y = f(cx, safe)?;
    Ok(cx.select(below, y, x)?)
}

pub(super) fn leaky_relu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha) = (cx.x(0)?, cx.float("alpha", 0.01));
    one(below_zero(cx, x, |cx, x| Ok(cx.scale(x, alpha)?))?)
}

pub(super) fn prelu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, slope) = (cx.x(0)?, cx.x(1)?);
    let xs = cx.broadcast_all(&[x, slope])?;
    let slope = xs[1];
    one(below_zero(cx, xs[0], |cx, x| Ok(cx.mul(x, slope)?))?)
}

pub(super) fn elu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha) = (cx.x(0)?, cx.float("alpha", 1.0));
    one(expm1_below(cx, x, 1.0, alpha)?)
}

/// `alpha · (exp(x / width) - 1)` for negative `x`.
fn expm1_below(cx: &mut dyn GraphBuilder, x: Value, width: f64, alpha: f64) -> Result<Value> {
    below_zero(cx, x, |cx, x| {
        let x = cx.scale(x, 1.0 / width)?;
        let e = cx.unary(Unary::Expm1, x)?;
        Ok(cx.scale(e, alpha)?)
    })
}

pub(super) fn celu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha) = (cx.x(0)?, cx.float("alpha", 1.0));
    one(expm1_below(cx, x, alpha, alpha)?)
}

pub(super) fn selu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let (alpha, gamma) = (cx.float("alpha", 1.673_263_192_176_818_8), cx.float("gamma", 1.050_701_022_148_132_3));
    let y = expm1_below(cx, x, 1.0, alpha)?;
    one(cx.scale(y, gamma)?)
}

/// `max(0, min(1, alpha·x + beta))`.
fn hard_sigmoid_of(cx: &mut dyn GraphBuilder, x: Value, alpha: f64, beta: f64) -> Result<Value> {
    let y = cx.scale(x, alpha)?;
    let y = cx.offset(y, beta)?;
    let (lo, hi) = (cx.full_like(x, 0.0)?, cx.full_like(x, 1.0)?);
    Ok(cx.one(Clamp.into(), &[y, lo, hi])?)
}

pub(super) fn hard_sigmoid(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha, beta) = (cx.x(0)?, cx.float("alpha", 0.2), cx.float("beta", 0.5));
    one(hard_sigmoid_of(cx, x, alpha, beta)?)
}

pub(super) fn hard_swish(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let h = hard_sigmoid_of(cx, x, 1.0 / 6.0, 0.5)?;
    one(cx.mul(x, h)?)
}

/// `log(1 + exp(x))` without overflow.
pub(super) fn softplus_of(cx: &mut dyn GraphBuilder, x: Value) -> Result<Value> {
    let a = cx.unary(Unary::Abs, x)?;
    let a = cx.neg(a)?;
    let e = cx.unary(Unary::Exp, a)?;
    let l = cx.unary(Unary::Log1p, e)?;
    let zero = cx.full_like(x, 0.0)?;
    let m = cx.binary(Binary::Max, x, zero)?;
    Ok(cx.add(l, m)?)
}

pub(super) fn softplus(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    one(softplus_of(cx, x)?)
}

pub(super) fn mish(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let s = softplus_of(cx, x)?;
    let t = cx.unary(Unary::Tanh, s)?;
    one(cx.mul(x, t)?)
}

pub(super) fn softsign_of(cx: &mut dyn GraphBuilder, x: Value) -> Result<Value> {
    let a = cx.unary(Unary::Abs, x)?;
    let d = cx.offset(a, 1.0)?;
    Ok(cx.div(x, d)?)
}

pub(super) fn softsign(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    one(softsign_of(cx, x)?)
}

pub(super) fn thresholded_relu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha) = (cx.x(0)?, cx.float("alpha", 1.0));
    let bound = cx.full_like(x, alpha)?;
    let above = cx.compare(Compare::Gt, x, bound)?;
    one(cx.zero_unless(above, x)?)
}

pub(super) fn shrink(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, lambd, bias) = (cx.x(0)?, cx.float("lambd", 0.5), cx.float("bias", 0.0));
    let dtype = cx.dtype(x);
    // In f32, so that integers can have a fractional bias, as in the reference.
    let wide = if dtype.is_float() { x } else { cx.cast(x, DType::F32)? };
    let (low, high) = (cx.full_like(wide, -lambd)?, cx.full_like(wide, lambd)?);
    let (below, above) = (cx.compare(Compare::Lt, wide, low)?, cx.compare(Compare::Gt, wide, high)?);
    let (up, down) = (cx.offset(wide, bias)?, cx.offset(wide, -bias)?);
    let y = cx.zero_unless(above, down)?;
    let y = cx.select(below, up, y)?;
    one(cx.cast(y, dtype)?)
}

/// `x · sigmoid(alpha · x)`.
pub(super) fn swish(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, alpha) = (cx.x(0)?, cx.float("alpha", 1.0));
    one(swish_of(cx, x, alpha)?)
}

pub(super) fn swish_of(cx: &mut dyn GraphBuilder, x: Value, alpha: f64) -> Result<Value> {
    if alpha == 1.0 {
        let ty = cx.ty(x);
        return composite(cx, x, ir::composites::activation::silu(&ty));
    }
    let a = cx.scale(x, alpha)?;
    let s = cx.unary(Unary::Logistic, a)?;
    Ok(cx.mul(x, s)?)
}

/// The activations of recurrent layers by name, with their `alpha` and `beta`.
pub(super) fn activation(
    cx: &mut dyn GraphBuilder,
    name: &str,
    x: Value,
    alpha: Option<f64>,
    beta: Option<f64>,
) -> Result<Value> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "sigmoid" => cx.unary(Unary::Logistic, x)?,
        "tanh" => cx.unary(Unary::Tanh, x)?,
        "relu" => {
            let ty = cx.ty(x);
            composite(cx, x, ir::composites::activation::relu(&ty))?
        }
        "affine" => {
            let y = cx.scale(x, alpha.unwrap_or(1.0))?;
            cx.offset(y, beta.unwrap_or(0.0))?
        }
        "leakyrelu" => below_zero(cx, x, |cx, x| Ok(cx.scale(x, alpha.unwrap_or(0.01))?))?,
        "thresholdedrelu" => {
            let bound = cx.full_like(x, alpha.unwrap_or(1.0))?;
            let above = cx.compare(Compare::Gt, x, bound)?;
            cx.zero_unless(above, x)?
        }
        "scaledtanh" => {
            let y = cx.scale(x, beta.unwrap_or(1.0))?;
            let t = cx.unary(Unary::Tanh, y)?;
            cx.scale(t, alpha.unwrap_or(1.0))?
        }
        "hardsigmoid" => hard_sigmoid_of(cx, x, alpha.unwrap_or(0.2), beta.unwrap_or(0.5))?,
        "elu" => expm1_below(cx, x, 1.0, alpha.unwrap_or(1.0))?,
        "softsign" => softsign_of(cx, x)?,
        "softplus" => softplus_of(cx, x)?,
        other => return Err(Error::node_error(format!("unknown activation `{other}`"))),
    })
}

/// Along one axis; before version 13, over all axes from it on.
pub(super) fn softmax(cx: &mut NodeContext, kind: SoftmaxKind) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    if shape.is_empty() {
        let y = if kind == SoftmaxKind::LogSoftmax { 0.0 } else { 1.0 };
        return one(cx.full_like(x, y)?);
    }
    if cx.version < 13 {
        let axis = cx.axis(1, shape.len())?;
        let flat = cx.reshape(x, &[shape[..axis].iter().product(), shape[axis..].iter().product()])?;
        let y = softmax_along(cx, flat, 1, kind)?;
        return one(cx.reshape(y, &shape)?);
    }
    let axis = cx.axis(-1, shape.len())?;
    one(softmax_along(cx, x, axis, kind)?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SoftmaxKind {
    Softmax,
    LogSoftmax,
    Hardmax,
}

pub(super) fn softmax_along(cx: &mut NodeContext, x: Value, axis: usize, kind: SoftmaxKind) -> Result<Value> {
    use ir::composites::softmax;
    let rank = cx.rank(x);
    if kind == SoftmaxKind::Hardmax {
        let (shape, dtype) = (cx.shape(x), cx.dtype(x));
        let best = cx.argmax(x, axis, DType::I32)?;
        let best = cx.expand_reduced(best, &shape, &[axis])?;
        let place = cx.iota(DType::I32, &shape, axis)?;
        let hit = cx.compare(Compare::Eq, best, place)?;
        return Ok(cx.cast(hit, dtype)?);
    }
    let last = cx.move_axis(x, axis, rank - 1)?;
    let ty = cx.ty(last);
    let c = if kind == SoftmaxKind::LogSoftmax { softmax::log_softmax(&ty) } else { softmax::softmax(&ty) };
    let y = composite(cx, last, c)?;
    Ok(cx.move_axis(y, rank - 1, axis)?)
}
