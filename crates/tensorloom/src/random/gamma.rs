//! Gamma samples by Marsaglia and Tsang's rejection, and what is made of them.

use crate::{DType, Operand, Tensor, lax, vmap};

/// The number in the dtype of `like`.
#[track_caller]
pub(super) fn like(x: &Tensor, n: f64) -> Tensor {
    crate::engine_of(x).full(x.dtype(), &[], n)
}

/// One sample, or its logarithm, for one key and one `alpha`.
#[track_caller]
fn one(key: &Tensor, alpha: &Tensor, log: bool) -> Tensor {
    let dtype = alpha.dtype();
    let (zero, unit) = (like(alpha, 0.0), like(alpha, 1.0));
    let large = alpha.ge(&unit);
    // Below 1 the sample is one of alpha + 1 times a power of a uniform.
    let boosted = large.select(alpha, &(alpha + 1.0));
    let d = &boosted - 1.0 / 3.0;
    let c = like(alpha, 1.0 / 3.0) / d.sqrt();
    let rejected = |(_, x, v, u): (Tensor, Tensor, Tensor, Tensor)| {
        let outside = u.ge(&(1.0 - 0.0331 * (&x * &x)));
        let below = u.log().ge(&(&x * 0.5 + &d * ((1.0 - &v) + v.log())));
        outside.and(&below)
    };
    let again = |(key, ..): (Tensor, Tensor, Tensor, Tensor)| {
        let keys = super::split(&key, 3);
        let k = |i| keys.index(0, i);
        let (_, x, v) = lax::while_loop(
            |(_, _, v): (Tensor, Tensor, Tensor)| v.le(&zero),
            |(key, ..): (Tensor, Tensor, Tensor)| {
                let (next, sub) = super::split2(&key);
                let x = super::normal(&sub, &[], dtype);
                let v = 1.0 + &x * &c;
                (next, x, v)
            },
            (k(1), zero.clone(), like(alpha, -1.0)),
        );
        let u = super::uniform(&k(2), &[], dtype, 0.0, 1.0);
        (k(0), &x * &x, &v * &v * &v, u)
    };
    let (key, sub) = super::split2(key);
    let (_, _, v, _) = lax::while_loop(rejected, again, (key, zero.clone(), unit.clone(), like(alpha, 2.0)));
    if log {
        let e = -super::exponential(&sub, &[], dtype);
        let boost = large.or(&e.eq(&zero)).select(&zero, &(&e * (1.0 / alpha)));
        d.log() + v.log() + boost
    } else {
        let u = 1.0 - super::uniform(&sub, &[], dtype, 0.0, 1.0);
        let boost = large.select(&unit, &u.pow(&(1.0 / alpha)));
        d * v * boost
    }
}

#[track_caller]
fn many(key: &Tensor, shape: &[usize], dtype: DType, alpha: Operand, log: bool) -> Tensor {
    let n: usize = shape.iter().product();
    let signed: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
    let alpha = match alpha {
        Operand::Tensor(t) => t.cast(dtype).expand(&signed).reshape(&[-1]),
        Operand::Number(x) => crate::engine_of(key).full(dtype, &[n], x),
    };
    if n == 0 {
        return alpha.reshape(&signed);
    }
    let keys = super::split(key, n);
    vmap(|(k, a): (Tensor, Tensor)| one(&k, &a, log)).call((keys, alpha)).reshape(&signed)
}

/// Gamma with a shape parameter and scale 1.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let x = random::gamma(&random::key(5), &[2000], DType::F32, 3.0);
/// assert!((x.mean().item::<f32>()? - 3.0).abs() < 0.2);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn gamma(key: &Tensor, shape: &[usize], dtype: DType, alpha: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    many(key, shape, dtype, alpha.into(), false)
}

/// The logarithm of a gamma sample, exact where the sample itself would be 0.
#[track_caller]
pub fn loggamma(key: &Tensor, shape: &[usize], dtype: DType, alpha: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    many(key, shape, dtype, alpha.into(), true)
}

/// Beta with two shape parameters.
#[track_caller]
pub fn beta(key: &Tensor, shape: &[usize], dtype: DType, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (ka, kb) = super::split2(key);
    let (x, y) = (loggamma(&ka, shape, dtype, a), loggamma(&kb, shape, dtype, b));
    let top = x.maximum(&y);
    let (x, y) = ((x - &top).exp(), (y - &top).exp());
    &x / (&x + &y)
}

/// Dirichlet with concentrations along the last axis; `shape` is that of the batch.
#[track_caller]
pub fn dirichlet(key: &Tensor, alpha: &Tensor, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let wide: Vec<usize> = shape.iter().copied().chain(alpha.shape().last().copied()).collect();
    loggamma(key, &wide, dtype, alpha).softmax()
}

/// χ² with degrees of freedom.
#[track_caller]
pub fn chisquare(key: &Tensor, shape: &[usize], dtype: DType, df: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let half = df.into().to_tensor_like(&crate::engine_of(key).zeros(dtype, &[])) / 2.0;
    loggamma(key, shape, dtype, &half).exp() * 2.0
}

/// Student's t with degrees of freedom.
#[track_caller]
pub fn t(key: &Tensor, shape: &[usize], dtype: DType, df: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (kn, kg) = super::split2(key);
    let half = df.into().to_tensor_like(&crate::engine_of(key).zeros(dtype, &[])) / 2.0;
    let n = super::normal(&kn, shape, dtype);
    n * (&half / gamma(&kg, shape, dtype, &half)).sqrt()
}

/// The distribution with density proportional to `exp(−|x|ᵖ)`.
#[track_caller]
pub fn generalized_normal(key: &Tensor, shape: &[usize], dtype: DType, p: f64) -> Tensor {
    let _here = crate::record::here();
    let (kg, kr) = super::split2(key);
    let g = gamma(&kg, shape, dtype, 1.0 / p);
    super::rademacher(&kr, shape, dtype) * g.powf(1.0 / p)
}

/// Uniform in the unit ball of the p-norm in `d` dimensions; `shape` is that of the batch.
#[track_caller]
pub fn ball(key: &Tensor, d: usize, p: f64, shape: &[usize], dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let (kg, ke) = super::split2(key);
    let wide: Vec<usize> = shape.iter().copied().chain([d]).collect();
    let g = generalized_normal(&kg, &wide, dtype, p);
    let e = super::exponential(&ke, shape, dtype);
    let norm = (g.abs().powf(p).sum_axes(&[-1], false) + e).powf(1.0 / p);
    &g / norm.unsqueeze(-1)
}

/// Fisher's F with degrees of freedom of numerator and denominator.
#[track_caller]
pub fn f(key: &Tensor, shape: &[usize], dtype: DType, dfnum: f64, dfden: f64) -> Tensor {
    let _here = crate::record::here();
    let (kd, kn) = super::split2(key);
    let (n, d) = (chisquare(&kn, shape, dtype, dfnum), chisquare(&kd, shape, dtype, dfden));
    (n / dfnum) / (d / dfden)
}
