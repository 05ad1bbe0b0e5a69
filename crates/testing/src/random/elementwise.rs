//! Elementwise moves.

use super::{Gen, Move};
use crate::Fill;
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

fn unary(g: &mut Gen) -> Option<()> {
    let op = *g.rng.pick(Unary::ALL);
    let mut x = g.pick(|t| op.domain().contains(t.dtype))?;
    if g.smooth() && g.ty(x).dtype == DType::F64 {
        x = guarded(g, op, x)?;
    }
    g.one(op, &[x])?;
    Some(())
}

/// A function of `x` that lies in the op's domain whatever `x` is.
fn guarded(g: &mut Gen, op: Unary, x: Value) -> Option<Value> {
    use Unary::*;
    let (scale, offset) = match op {
        Log | Log2 | Log10 | Sqrt | Rsqrt | Lgamma | Digamma | Reciprocal => (0.8, 1.2),
        Log1p | Asin | Acos | Atanh | ErfInv => (0.7, 0.0),
        Acosh => (0.7, 2.2),
        Tan => (1.1, 0.0),
        // Growing functions of growing arguments leave the range of f64 soon.
        Exp | Exp2 | Expm1 | Sinh | Cosh => (1.5, 0.0),
        _ => return Some(x),
    };
    let t = g.one(Tanh, &[x])?;
    let s = g.full(t, scale)?;
    let t = g.one(Binary::Mul, &[t, s])?;
    let o = g.full(t, offset)?;
    g.one(Binary::Add, &[t, o])
}

fn binary(g: &mut Gen) -> Option<()> {
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

fn compare(g: &mut Gen) -> Option<()> {
    let a = g.pick(|_| true)?;
    let b = g.like(&g.ty(a))?;
    let op = *g.rng.pick(Compare::ALL);
    g.one(op, &[a, b])?;
    Some(())
}

fn select(g: &mut Gen) -> Option<()> {
    let a = g.any()?;
    let ty = g.ty(a);
    let b = g.like(&ty)?;
    let c = g.like(&Type::new(DType::Bool, &ty.shape))?;
    g.one(Select, &[c, a, b])?;
    Some(())
}

fn clamp(g: &mut Gen) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (lo, hi) = (g.like(&ty)?, g.like(&ty)?);
    g.one(Clamp, &[x, lo, hi])?;
    Some(())
}

fn fma(g: &mut Gen) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (y, z) = (g.like(&ty)?, g.like(&ty)?);
    g.one(Fma, &[x, y, z])?;
    Some(())
}

fn cast(g: &mut Gen) -> Option<()> {
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

fn bitcast(g: &mut Gen) -> Option<()> {
    let x = g.any()?;
    let to = *g.rng.pick(&DType::ALL);
    g.one(Bitcast(to), &[x])?;
    Some(())
}

fn quantize(g: &mut Gen) -> Option<()> {
    let x = g.pick(|t| t.dtype.is_float())?;
    let to = *g.rng.pick(&DType::ALL);
    g.one(Quantize(to), &[x])?;
    Some(())
}

fn stop_gradient(g: &mut Gen) -> Option<()> {
    let x = g.any()?;
    g.one(StopGradient, &[x])?;
    Some(())
}

fn leaf(g: &mut Gen) -> Option<()> {
    let dtype = if g.smooth() { DType::F64 } else { *g.rng.pick(&DType::ALL) };
    let shape = super::random_shape(&mut g.rng, g.options);
    if g.rng.chance(0.5) {
        let axis = g.axis(shape.len())?;
        g.one(Iota { dtype, shape: shape.into_iter().collect(), axis }, &[])?;
    } else {
        let fill = if g.smooth() { Fill::Smooth } else { Fill::Special };
        let literal = fill.of(&Type::new(dtype, &shape), &mut g.rng);
        g.constant(literal)?;
    }
    Some(())
}
