//! Functions of one number.

use super::binary::sign_bit;
use crate::record::{self, float_of};
use crate::{DType, Tensor};
use ir::ops::{Bitcast, StopGradient};
use ir::{Binary, Compare, GraphBuilder, Unary, Value};
use std::f64::consts::PI;

/// Records a function of floats; integers become floats first.
#[track_caller]
pub(crate) fn real(x: &Tensor, f: impl FnOnce(&mut dyn GraphBuilder, Value) -> ir::Result<Value>) -> Tensor {
    record::one(&[x], |b, v| {
        let d = float_of(b.ty(v[0]).dtype);
        let x = b.cast(v[0], d)?;
        f(b, x)
    })
}

macro_rules! reals {
    ($($(#[$doc:meta])* $name:ident $(| $alias:ident)* => $op:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Tensor {
            let _here = crate::record::here();
            real(x, |b, x| b.unary(Unary::$op, x))
        }
        $(pub use self::$name as $alias;)*
    )* };
}

reals! {
    /// `eˣ`.
    exp => Exp,
    /// `2ˣ`.
    exp2 => Exp2,
    /// `eˣ − 1`, exact near 0.
    expm1 => Expm1,
    /// Natural logarithm.
    log => Log,
    /// Logarithm to base 2.
    log2 => Log2,
    /// Logarithm to base 10.
    log10 => Log10,
    /// `log(1 + x)`, exact near 0.
    log1p => Log1p,
    /// Square root.
    sqrt => Sqrt,
    /// `1/x`.
    reciprocal => Reciprocal,
    /// Sine.
    sin => Sin,
    /// Cosine.
    cos => Cos,
    /// Tangent.
    tan => Tan,
    /// Arc sine.
    asin | arcsin => Asin,
    /// Arc cosine.
    acos | arccos => Acos,
    /// Arc tangent.
    atan | arctan => Atan,
    /// Hyperbolic sine.
    sinh => Sinh,
    /// Hyperbolic cosine.
    cosh => Cosh,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// Inverse hyperbolic sine.
    asinh | arcsinh => Asinh,
    /// Inverse hyperbolic cosine.
    acosh | arccosh => Acosh,
    /// Inverse hyperbolic tangent.
    atanh | arctanh => Atanh,
}

/// Records a function that leaves integers as they are.
#[track_caller]
fn rounding(x: &Tensor, op: Unary) -> Tensor {
    if x.error().is_none() && !x.dtype().is_float() {
        return x.clone();
    }
    record::one(&[x], |b, v| b.unary(op, v[0]))
}

macro_rules! roundings {
    ($($(#[$doc:meta])* $name:ident $(| $alias:ident)* => $op:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Tensor {
            let _here = crate::record::here();
            rounding(x, Unary::$op)
        }
        $(pub use self::$name as $alias;)*
    )* };
}

roundings! {
    /// Largest integer not above.
    floor => Floor,
    /// Smallest integer not below.
    ceil => Ceil,
    /// The integer part.
    trunc => Trunc,
}

/// Nearest integer, ties to even, as a float.
#[track_caller]
pub fn rint(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| b.unary(Unary::Round, x))
}

/// Rounds to a number of decimals, ties to even.
#[track_caller]
pub fn round(x: &Tensor, decimals: i32) -> Tensor {
    let _here = crate::record::here();
    if decimals == 0 {
        return rounding(x, Unary::Round);
    }
    let scale = 10f64.powi(decimals.abs());
    // Tens and hundreds are divided by whole numbers, which are exact.
    record::rounded([x], |[x]| if decimals < 0 { (&x / scale).round() * scale } else { (&x * scale).round() / scale })
}

/// The same as [`round`].
#[track_caller]
pub fn around(x: &Tensor, decimals: i32) -> Tensor {
    let _here = crate::record::here();
    round(x, decimals)
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident $(| $alias:ident)* => $op:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor) -> Tensor {
            let _here = crate::record::here();
            record::one(&[x], |b, v| b.unary(Unary::$op, v[0]))
        }
        $(pub use self::$name as $alias;)*
    )* };
}

/// `|x|`; bools are themselves.
#[track_caller]
pub fn abs(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| if b.ty(v[0]).dtype == DType::Bool { Ok(v[0]) } else { b.unary(Unary::Abs, v[0]) })
}

/// The same as [`abs`].
#[track_caller]
pub fn absolute(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    abs(x)
}

numbers! {
    /// `−x`.
    negative => Neg,
    /// −1, 0 or 1.
    sign => Sign,
    /// Bitwise or logical not.
    invert | bitwise_not | bitwise_invert => Not,
}

/// `x` itself.
#[track_caller]
pub fn positive(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x.clone()
}

/// `x·x`; bools are squared as numbers of i8, as in NumPy.
#[track_caller]
pub fn square(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if x.error().is_none() && x.dtype() == DType::Bool { x.cast(DType::I8) } else { x.square() }
}

/// Cube root, of negative numbers too.
#[track_caller]
pub fn cbrt(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| {
        let d = b.ty(x).dtype;
        let x = b.cast(x, if d.bits() < 32 { DType::F32 } else { d })?;
        let y = cube_root(b, x)?;
        b.cast(y, d)
    })
}

/// The derivatives are those of the power; the value is corrected, and exact where it is representable.
fn cube_root(b: &mut dyn GraphBuilder, x: Value) -> ir::Result<Value> {
    let zero = b.full_like(x, 0.0)?;
    let negative = sign_bit(b, x)?;
    let minus = b.neg(x)?;
    let size = b.select(negative, minus, x)?;
    let third = b.full_like(x, 1.0 / 3.0)?;
    let power = b.binary(Binary::Pow, size, third)?;
    // A short number, whose square is exact; one step of Halley's method from there.
    let (bits, low) = if b.ty(x).dtype == DType::F64 { (DType::I64, 30) } else { (DType::I32, 12) };
    let start = b.one(Bitcast(bits).into(), &[power])?;
    let ty = b.ty(start);
    let mask = b.full(&ty, ir::Scalar::from_i64(bits, -(1 << low)))?;
    let start = b.binary(Binary::And, start, mask)?;
    let dtype = b.ty(x).dtype;
    let t = b.one(Bitcast(dtype).into(), &[start])?;
    let square = b.mul(t, t)?;
    let over = b.div(size, square)?;
    let (less, more) = (b.sub(over, t)?, b.add(over, t)?);
    let more = b.add(more, t)?;
    let step = b.div(less, more)?;
    let step = b.mul(t, step)?;
    let better = b.add(t, step)?;
    // Not at 0 and infinity.
    let usual = b.unary(Unary::IsFinite, better)?;
    let fix = b.sub(better, power)?;
    let fix = b.select(usual, fix, zero)?;
    let fix = b.one(StopGradient.into(), &[fix])?;
    let y = b.add(power, fix)?;
    let other = b.neg(y)?;
    b.select(negative, other, y)
}

/// `sin(πx)/(πx)`, 1 at 0.
#[track_caller]
pub fn sinc(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::rounded([x], |[x]| {
        real(&x, |b, x| {
            let p = b.scale(x, PI)?;
            let (zero, one) = (b.full_like(p, 0.0)?, b.full_like(p, 1.0)?);
            let at_zero = b.compare(Compare::Eq, p, zero)?;
            let safe = b.select(at_zero, one, p)?;
            let s = b.unary(Unary::Sin, safe)?;
            let y = b.div(s, safe)?;
            // 1 − p²/6 has the derivatives of sinc at 0.
            let sq = b.mul(p, p)?;
            let sixth = b.scale(sq, -1.0 / 6.0)?;
            let near = b.offset(sixth, 1.0)?;
            b.select(at_zero, near, y)
        })
    })
}

/// Degrees to radians.
#[track_caller]
pub fn deg2rad(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| b.scale(x, PI / 180.0))
}

/// Degrees to radians.
#[track_caller]
pub fn radians(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    deg2rad(x)
}

/// Radians to degrees.
#[track_caller]
pub fn rad2deg(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| b.scale(x, 180.0 / PI))
}

/// Radians to degrees.
#[track_caller]
pub fn degrees(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    rad2deg(x)
}

/// Fraction and integer part, both with the sign of `x`.
#[track_caller]
pub fn modf(x: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let whole = real(x, |b, x| b.unary(Unary::Trunc, x));
    let part = x - &whole;
    (is_infinite(x).select(&(x * 0.0).stop_gradient().sign(), &part), whole)
}

#[track_caller]
fn is_infinite(x: &Tensor) -> Tensor {
    super::isinf(x)
}

/// Mantissa in ±[½, 1) and exponent as i32, so that `x = m · 2ᵉ`.
#[track_caller]
pub fn frexp(x: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let x = &x.cast(float_of(x.dtype()));
    let special = x.is_finite().not().or(&x.eq(&(x * 0.0)));
    let exponent = {
        let raw = (x.abs().log2().floor() + 1.0).stop_gradient();
        special.select(&(x * 0.0).stop_gradient(), &raw)
    };
    let zero = exponent.is_finite().not();
    let exponent = zero.select(&crate::engine_of(x).zeros(x.dtype(), &[]), &exponent);
    // In two halves, so that neither power leaves the range; then the mantissa is brought into its interval.
    let half = (&exponent * 0.5).floor();
    let m = x * (-&half).exp2() * (-(&exponent - &half)).exp2();
    let big = m.abs().ge(&crate::engine_of(x).ones(x.dtype(), &[])).and(&special.not());
    let m = big.select(&(&m * 0.5), &m);
    let e = exponent.cast(DType::I32) + big.cast(DType::I32);
    (special.select(x, &m), e)
}

/// NaN becomes 0, infinities the largest numbers there are.
#[track_caller]
pub fn nan_to_num(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if x.error().is_some() || !x.dtype().is_float() {
        return x.clone();
    }
    record::one(&[x], |b, v| {
        let d = b.ty(v[0]).dtype;
        let most = largest(d);
        let (low, high) = (b.full_like(v[0], -most)?, b.full_like(v[0], most)?);
        let y = b.one(ir::ops::Clamp.into(), &[v[0], low, high])?;
        let own = b.compare(Compare::Eq, v[0], v[0])?;
        b.zero_unless(own, y)
    })
}

/// The largest finite number of a float dtype.
pub(crate) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        _ => f64::from(f32::MAX),
    }
}
