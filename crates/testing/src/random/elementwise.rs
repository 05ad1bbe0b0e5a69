//! Generators of elementwise ops.

use super::{GraphGenerator, Move};
use crate::FillKind;
use ir::ops::{Bitcast, Cast, Clamp, Fma, Iota, Quantize, Select, StopGradient};
use ir::{Binary, Compare, DType, Type, Unary, Value};

pub(super) const MOVES: &[Move] = &[
    (16, true, unary),
    (16, true, binary),
    (3, true, compare),
    (4, true, select),
    (2, true, clamp),
    (2, true, fma),
    (4, true, cast),
    (1, false, bitcast),
    (1, false, quantize),
    (1, false, stop_gradient),
    (2, true, leaf),
];

fn unary(g: &mut GraphGenerator) -> Option<()> {
    let op = *g.rng.pick(Unary::ALL);
    let mut x = g.pick(|t| op.domain().contains(t.dtype))?;
    if g.smooth() && g.ty(x).dtype == DType::F64 {
        x = guarded(g, op, x)?;
    }
    g.one(op, &[x])?;
    Some(())
}

/// A function of `x` whose values are in the op's domain for every `x`.
fn guarded(g: &mut GraphGenerator, op: Unary, x: Value) -> Option<Value> {
    use Unary::*;
    let (scale, offset) = match op {
        Log | Log2 | Log10 | Sqrt | Rsqrt | Lgamma | Digamma | Reciprocal => (0.8, 1.2),
        Log1p | Asin | Acos | Atanh | ErfInv => (0.7, 0.0),
        Acosh => (0.7, 2.2),
        Tan => (1.1, 0.0),
        // Fast-growing functions of growing arguments soon overflow f64.
        Exp | Exp2 | Expm1 | Sinh | Cosh => (1.5, 0.0),
        _ => return Some(x),
    };
    let t = g.one(Tanh, &[x])?;
    let s = g.full(t, scale)?;
    let t = g.one(Binary::Mul, &[t, s])?;
    let o = g.full(t, offset)?;
    g.one(Binary::Add, &[t, o])
}

fn binary(g: &mut GraphGenerator) -> Option<()> {
    let op = *g.rng.pick(Binary::ALL);
    let a = g.pick(|t| op.domain().contains(t.dtype))?;
    let ty = g.ty(a);
    let mut b = g.like(&ty)?;
    let mut a = a;
    if g.smooth() && ty.dtype == DType::F64 {
        if matches!(op, Binary::Div | Binary::Atan2) {
            b = guarded(g, Unary::Log, b)?;
        }
        if op == Binary::Pow {
            a = guarded(g, Unary::Log, a)?;
            b = guarded(g, Unary::Log, b)?;
        }
    }
    g.one(op, &[a, b])?;
    Some(())
}

fn compare(g: &mut GraphGenerator) -> Option<()> {
    let a = g.pick(|_| true)?;
    let b = g.like(&g.ty(a))?;
    let op = *g.rng.pick(Compare::ALL);
    g.one(op, &[a, b])?;
    Some(())
}

fn select(g: &mut GraphGenerator) -> Option<()> {
    let a = g.any()?;
    let ty = g.ty(a);
    let b = g.like(&ty)?;
    let c = g.like(&Type::new(DType::Bool, &ty.shape))?;
    g.one(Select, &[c, a, b])?;
    Some(())
}

fn clamp(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (lo, hi) = (g.like(&ty)?, g.like(&ty)?);
    g.one(Clamp, &[x, lo, hi])?;
    Some(())
}

fn fma(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (y, z) = (g.like(&ty)?, g.like(&ty)?);
    g.one(Fma, &[x, y, z])?;
    Some(())
}

fn cast(g: &mut GraphGenerator) -> Option<()> {
    if g.smooth() {
        let x = g.pick(|t| t.dtype != DType::F64)?;
        g.one(Cast(DType::F64), &[x])?;
    } else {
        let x = g.any()?;
        let to = *g.rng.pick(&DType::ALL);
        g.one(Cast(to), &[x])?;
    }
    Some(())
}

fn bitcast(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let to = *g.rng.pick(&DType::ALL);
    g.one(Bitcast(to), &[x])?;
    Some(())
}

fn quantize(g: &mut GraphGenerator) -> Option<()> {
    let x = g.pick(|t| t.dtype.is_float())?;
    let to = *g.rng.pick(&DType::ALL);
    g.one(Quantize(to), &[x])?;
    Some(())
}

fn stop_gradient(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    g.one(StopGradient, &[x])?;
    Some(())
}

fn leaf(g: &mut GraphGenerator) -> Option<()> {
    let dtype = if g.smooth() { DType::F64 } else { *g.rng.pick(&DType::ALL) };
    let shape = super::random_shape(&mut g.rng, g.options);
    if g.rng.bernoulli(0.5) {
        let axis = g.axis(shape.len())?;
        g.one(Iota { dtype, shape: shape.into_iter().collect(), axis }, &[])?;
    } else {
        let fill = if g.smooth() { FillKind::Smooth } else { FillKind::Special };
        let literal = fill.random_tensor(&Type::new(dtype, &shape), &mut g.rng);
        g.constant(literal)?;
    }
    Some(())
}
