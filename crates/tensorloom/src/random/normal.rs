//! Normal samples and their relatives.

use super::uniform::{between, sample, uniform_in, unit};
use crate::{DType, Operand, Tensor, record};
use ir::ops::Cholesky;
use ir::{GraphBuilder, Scalar, Unary, Value};
use std::f64::consts::SQRT_2;

/// The next number above or below in a dtype.
fn next(dtype: DType, x: f64, up: bool) -> f64 {
    let x = Scalar::from_f64(dtype, x);
    if x.to_f64() == 0.0 {
        let least = Scalar::from_bits(dtype, 1).to_f64();
        return if up { least } else { -least };
    }
    let away = (x.to_f64() > 0.0) == up;
    let bits = if away { x.bits() + 1 } else { x.bits() - 1 };
    if x.to_f64().is_infinite() && away {
        return x.to_f64();
    }
    Scalar::from_bits(dtype, bits).to_f64()
}

pub(super) fn normal_of(b: &mut dyn GraphBuilder, key: Value, shape: &[usize], dtype: DType) -> ir::Result<Value> {
    let u = uniform_in(b, key, shape, dtype, next(dtype, -1.0, true), 1.0)?;
    let x = b.unary(Unary::ErfInv, u)?;
    b.scale(x, SQRT_2)
}

/// Normal with mean 0 and variance 1.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let x = random::normal(&random::key(0), &[10_000], DType::F32);
/// assert!(x.mean().item::<f32>()?.abs() < 0.03);
/// assert!((x.square().mean().item::<f32>()? - 1.0).abs() < 0.05);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn normal(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| normal_of(b, key, shape, dtype))
}

/// Normal, cut to `(lower, upper)`.
#[track_caller]
pub fn truncated_normal(key: &Tensor, shape: &[usize], dtype: DType, lower: f64, upper: f64) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [lower.into(), upper.into()], |b, key, [low, high]| {
        let root = b.full_like(low, SQRT_2)?;
        let (l, h) = (b.div(low, root)?, b.div(high, root)?);
        let (l, h) = (b.unary(Unary::Erf, l)?, b.unary(Unary::Erf, h)?);
        let u = unit(b, key, shape, dtype)?;
        let u = between(b, u, l, h)?;
        let x = b.unary(Unary::ErfInv, u)?;
        let x = b.mul(root, x)?;
        let (l, h) = (b.full_like(x, next(dtype, lower, true))?, b.full_like(x, next(dtype, upper, false))?);
        b.one(ir::ops::Clamp.into(), &[x, l, h])
    })
}

/// `exp(sigma · normal)`.
#[track_caller]
pub fn lognormal(key: &Tensor, shape: &[usize], dtype: DType, sigma: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [sigma.into()], |b, key, [sigma]| {
        let x = normal_of(b, key, shape, dtype)?;
        let x = b.mul(x, sigma)?;
        b.unary(Unary::Exp, x)
    })
}

/// Maxwell: the length of a normal vector in three dimensions.
#[track_caller]
pub fn maxwell(key: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    sample(key, shape, dtype, [], |b, key, []| {
        let wide: Vec<usize> = shape.iter().copied().chain([3]).collect();
        let x = normal_of(b, key, &wide, dtype)?;
        let sq = b.mul(x, x)?;
        let sum = b.sum(sq, &[shape.len()])?;
        b.unary(Unary::Sqrt, sum)
    })
}

/// Maxwell with a random sign, scaled and moved.
#[track_caller]
pub fn double_sided_maxwell(
    key: &Tensor,
    shape: &[usize],
    dtype: DType,
    loc: impl Into<Operand>,
    scale: impl Into<Operand>,
) -> Tensor {
    let _here = crate::record::here();
    let (k1, k2) = super::split2(key);
    let size = maxwell(&k1, shape, dtype);
    let sign = super::rademacher(&k2, shape, dtype);
    let (scale, loc) = (scale.into().to_tensor_like(&size), loc.into().to_tensor_like(&size));
    sign * size * scale + loc
}

/// Normal vectors with a mean `[.., n]` and a covariance `[.., n, n]`; `shape` is that of the batch.
#[track_caller]
pub fn multivariate_normal(key: &Tensor, mean: &Tensor, cov: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    record::one(&[key, mean, cov], |b, v| {
        let (tm, tc) = (b.ty(v[1]), b.ty(v[2]));
        let n = tm.shape.last().copied().unwrap_or(0);
        if tm.rank() < 1 || tc.rank() < 2 || tc.shape[tc.rank() - 2..] != [n, n] {
            return Err(record::misfit(
                "multivariate_normal",
                &[tm, tc],
                "the mean must be [.., n] and the covariance [.., n, n]",
            ));
        }
        let wide: Vec<usize> = shape.iter().copied().chain([n]).collect();
        let matrices: Vec<usize> = wide.iter().copied().chain([n]).collect();
        let cov = b.cast(v[2], dtype)?;
        let factor = b.one(Cholesky.into(), &[cov])?;
        let factor = b.broadcast_to(factor, &matrices)?;
        let x = normal_of(b, v[0], &wide, dtype)?;
        let x = b.reshape(x, &[&wide[..], &[1]].concat())?;
        let y = b.one(ir::ops::Dot::batched_matmul(dtype, shape.len()).into(), &[factor, x])?;
        let y = b.reshape(y, &wide)?;
        let mean = b.cast(v[1], dtype)?;
        let mean = b.broadcast_to(mean, &wide)?;
        b.add(mean, y)
    })
}

/// Wald's distribution, the inverse Gaussian, with a mean.
#[track_caller]
pub fn wald(key: &Tensor, shape: &[usize], dtype: DType, mean: f64) -> Tensor {
    let _here = crate::record::here();
    let (k1, k2) = super::split2(key);
    let (v, z) = (normal(&k1, shape, dtype), super::uniform(&k2, shape, dtype, 0.0, 1.0));
    let y = v.square();
    let root = (&y * (4.0 * mean) + y.square() * (mean * mean)).sqrt();
    let x = &y * (mean * mean / 2.0) + mean - root * (mean / 2.0);
    z.le(&(mean / (&x + mean))).select(&x, &(mean * mean / &x))
}

/// Orthogonal matrices `[n, n]`, all directions equally likely; `shape` is that of the batch.
#[cfg(feature = "linalg")]
#[track_caller]
pub fn orthogonal(key: &Tensor, n: usize, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let wide: Vec<usize> = shape.iter().copied().chain([n, n]).collect();
    let (q, r) = crate::linalg::qr(&normal(key, &wide, dtype), false);
    q * crate::np::diagonal(&r, 0, -2, -1).sign().unsqueeze(-2)
}
