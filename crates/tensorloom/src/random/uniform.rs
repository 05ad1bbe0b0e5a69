//! Uniform floats, and what is one function away from them.

use super::bits::{draw, unsigned};
use crate::{DType, Operand, Tensor, record};
use ir::ops::{Bitcast, Fma};
use ir::{Binary, GraphBuilder, Scalar, Type, Unary, Value};

/// Bits of the mantissa.
pub(super) fn mantissa(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F64 => Some(52),
        DType::F32 => Some(23),
        DType::F16 => Some(10),
        DType::BF16 => Some(7),
        _ => None,
    }
}

/// The smallest normal number.
pub(super) fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 2f64.powi(-14),
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Floats in `[0, 1)`: a random mantissa under the exponent of 1, less 1.
pub(super) fn unit(b: &mut dyn GraphBuilder, key: Value, shape: &[usize], dtype: DType) -> ir::Result<Value> {
    let Some(mantissa) = mantissa(dtype) else {
        return Err(record::misfit("uniform", &[Type::scalar(dtype)], "samples must be f16, bf16, f32 or f64"));
    };
    let width = dtype.bits();
    // Few bits of mantissa are drawn from 8 bits.
    let drawn = if mantissa < 8 { 8 } else { width };
    let bits = draw(b, key, shape, unsigned(drawn))?;
    let bits = b.cast(bits, unsigned(width))?;
    let by = b.full_like(bits, (drawn - mantissa) as f64)?;
    let bits = b.binary(Binary::Shr, bits, by)?;
    let one = Scalar::from_bits(unsigned(width), Scalar::from_f64(dtype, 1.0).bits());
    let ty = b.ty(bits);
    let one = b.full(&ty, one)?;
    let bits = b.binary(Binary::Or, bits, one)?;
    let x = b.one(Bitcast(dtype).into(), &[bits])?;
    b.offset(x, -1.0)
}

/// Uniform in `[low, high)` for bounds that broadcast to the shape.
pub(super) fn between(b: &mut dyn GraphBuilder, x: Value, low: Value, high: Value) -> ir::Result<Value> {
    let span = b.sub(high, low)?;
    // With one rounding, as XLA's CPU code does it.
    let moved = b.one(Fma.into(), &[x, span, low])?;
    b.binary(Binary::Max, low, moved)
}

/// Uniform in `[low, high)` for numbers.
pub(super) fn uniform_in(
    b: &mut dyn GraphBuilder,
    key: Value,
    shape: &[usize],
    dtype: DType,
    low: f64,
    high: f64,
) -> ir::Result<Value> {
    let x = unit(b, key, shape, dtype)?;
    let (low, high) = (b.full_like(x, low)?, b.full_like(x, high)?);
    between(b, x, low, high)
}

/// Records a sample from a key and parameters, which are cast and broadcast.
#[track_caller]
pub(super) fn sample<const N: usize>(
    key: &Tensor,
    shape: &[usize],
    dtype: DType,
    params: [Operand; N],
    f: impl FnOnce(&mut dyn GraphBuilder, Value, [Value; N]) -> ir::Result<Value>,
) -> Tensor {
    let tensors: Vec<Tensor> = params.iter().filter_map(|p| p.tensor().cloned()).collect();
    let args: Vec<&Tensor> = [key].into_iter().chain(&tensors).collect();
    record::one(&args, |b, v| {
        let mut given = v[1..].iter();
        let mut values = [v[0]; N];
        for (p, out) in params.iter().zip(&mut values) {
            let x = match p {
                Operand::Number(n) => b.constant(ir::Literal::scalar(record::scalar_of("uniform", dtype, *n)?))?,
                Operand::Tensor(_) => b.cast(*given.next().expect("one for each tensor"), dtype)?,
            };
            *out = b.broadcast_to(x, shape)?;
        }
        f(b, v[0], values)
    })
}

/// Uniform floats in `[minval, maxval)`.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let x = random::uniform(&random::key(0), &[1000], DType::F32, -1.0, 1.0);
/// assert!(x.to_vec::<f32>()?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn uniform(
    key: &Tensor,
    shape: &[usize],
    dtype: DType,
    minval: impl Into<Operand>,
    maxval: impl Into<Operand>,
) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [minval.into(), maxval.into()], |b, key, [low, high]| {
        let x = unit(b, key, shape, dtype)?;
        between(b, x, low, high)
    })
}

/// Exponential with mean 1.
#[track_caller]
pub fn exponential(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| exponential_of(b, key, shape, dtype))
}

pub(super) fn exponential_of(b: &mut dyn GraphBuilder, key: Value, shape: &[usize], dtype: DType) -> ir::Result<Value> {
    let u = unit(b, key, shape, dtype)?;
    let n = b.neg(u)?;
    let l = b.unary(Unary::Log1p, n)?;
    b.neg(l)
}

/// Gumbel with location 0 and scale 1.
#[track_caller]
pub fn gumbel(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| gumbel_of(b, key, shape, dtype))
}

pub(super) fn gumbel_of(b: &mut dyn GraphBuilder, key: Value, shape: &[usize], dtype: DType) -> ir::Result<Value> {
    let u = uniform_in(b, key, shape, dtype, tiny(dtype), 1.0)?;
    let l = b.unary(Unary::Log, u)?;
    let n = b.neg(l)?;
    let l = b.unary(Unary::Log, n)?;
    b.neg(l)
}

/// Cauchy with location 0 and scale 1.
#[track_caller]
pub fn cauchy(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| {
        let eps = 2f64.powi(-(mantissa(dtype).unwrap_or(23) as i32));
        let u = uniform_in(b, key, shape, dtype, eps, 1.0)?;
        let centred = b.offset(u, -0.5)?;
        let x = b.scale(centred, std::f64::consts::PI)?;
        b.unary(Unary::Tan, x)
    })
}

/// Laplace with location 0 and scale 1.
#[track_caller]
pub fn laplace(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| {
        let eps = 2f64.powi(-(mantissa(dtype).unwrap_or(23) as i32) - 1);
        let u = uniform_in(b, key, shape, dtype, eps - 1.0, 1.0)?;
        let (sign, size) = (b.unary(Unary::Sign, u)?, b.unary(Unary::Abs, u)?);
        let n = b.neg(size)?;
        let l = b.unary(Unary::Log1p, n)?;
        b.mul(sign, l)
    })
}

/// Logistic with location 0 and scale 1.
#[track_caller]
pub fn logistic(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| {
        let u = uniform_in(b, key, shape, dtype, tiny(dtype), 1.0)?;
        let n = b.neg(u)?;
        let (x, y) = (b.unary(Unary::Log, u)?, b.unary(Unary::Log1p, n)?);
        b.sub(x, y)
    })
}

/// Pareto with a shape parameter.
#[track_caller]
pub fn pareto(key: &Tensor, shape: &[usize], dtype: DType, alpha: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [alpha.into()], |b, key, [alpha]| {
        let e = exponential_of(b, key, shape, dtype)?;
        let x = b.div(e, alpha)?;
        b.unary(Unary::Exp, x)
    })
}

/// Rayleigh with a scale.
#[track_caller]
pub fn rayleigh(key: &Tensor, shape: &[usize], dtype: DType, scale: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [scale.into()], |b, key, [scale]| {
        let u = unit(b, key, shape, dtype)?;
        let l = b.unary(Unary::Log, u)?;
        let x = b.scale(l, -2.0)?;
        let x = b.unary(Unary::Sqrt, x)?;
        b.mul(scale, x)
    })
}

/// Weibull with a scale and a concentration.
#[track_caller]
pub fn weibull_min(
    key: &Tensor,
    shape: &[usize],
    dtype: DType,
    scale: impl Into<Operand>,
    concentration: impl Into<Operand>,
) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [scale.into(), concentration.into()], |b, key, [scale, c]| {
        let e = exponential_of(b, key, shape, dtype)?;
        let r = b.unary(Unary::Reciprocal, c)?;
        let x = b.binary(Binary::Pow, e, r)?;
        b.mul(x, scale)
    })
}

/// Triangular over `[left, right]` with its peak at `mode`.
#[track_caller]
pub fn triangular(
    key: &Tensor,
    shape: &[usize],
    dtype: DType,
    left: impl Into<Operand>,
    mode: impl Into<Operand>,
    right: impl Into<Operand>,
) -> Tensor {
    let _here = crate::record::here();
    let params = [left.into(), mode.into(), right.into()];
    sample(key, shape, dtype, params, |b, key, [left, mode, right]| {
        let (rise, span, fall) = (b.sub(mode, left)?, b.sub(right, left)?, b.sub(right, mode)?);
        let split = b.div(rise, span)?;
        let u = unit(b, key, shape, dtype)?;
        let n = b.neg(u)?;
        let v = b.offset(n, 1.0)?;
        let mut side = |u: Value, by: Value| {
            let x = b.mul(u, span)?;
            let x = b.mul(x, by)?;
            b.unary(Unary::Sqrt, x)
        };
        let (low, high) = (side(u, rise)?, side(v, fall)?);
        let (low, high) = (b.add(left, low)?, b.sub(right, high)?);
        let below = b.compare(ir::Compare::Lt, u, split)?;
        b.select(below, low, high)
    })
}
