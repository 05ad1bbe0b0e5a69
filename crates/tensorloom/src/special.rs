//! Special functions, by SciPy's names.

use crate::Operand;
use crate::np::{self, Along};
use crate::write::float_of;
use crate::{Tensor, nn};
use std::f64::consts::{LN_2, PI, SQRT_2};

#[track_caller]
fn real(x: &Tensor) -> Tensor {
    x.cast(float_of(x.dtype()))
}

#[track_caller]
fn reals(x: impl Into<Operand>, y: impl Into<Operand>) -> (Tensor, Tensor) {
    let (x, y) = np::pair(x.into(), y.into());
    (real(&x), real(&y))
}

/// The error function.
#[track_caller]
pub fn erf(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).erf()
}

/// `1 − erf(x)`, exact where that is small.
#[track_caller]
pub fn erfc(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).erfc()
}

/// The inverse of [`erf`].
#[track_caller]
pub fn erfinv(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).erf_inv()
}

/// `log |Γ(x)|`.
#[track_caller]
pub fn gammaln(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).lgamma()
}

/// The derivative of `log Γ`.
#[track_caller]
pub fn digamma(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).digamma()
}

/// The same as [`digamma`].
#[track_caller]
pub fn psi(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    digamma(x)
}

/// `Γ(x)`.
#[track_caller]
pub fn gamma(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let x = real(x);
    // Γ is negative between −1 and 0, −3 and −2, ..
    let below = np::floor(&x);
    let odd = np::not_equal(np::remainder(&below, 2.0), 0.0).and(&np::less(&x, 0.0));
    let size = x.lgamma().exp();
    let y = odd.select(&(-&size), &size);
    let pole = np::less(&x, 0.0).and(&x.eq(&below));
    np::where_(&pole, f64::NAN, &y)
}

/// `n!`, as `Γ(n + 1)`; 0 for negative numbers.
#[track_caller]
pub fn factorial(n: &Tensor) -> Tensor {
    let _here = crate::write::here();
    np::where_(&np::less(n, 0), 0.0, gamma(&(real(n) + 1.0)))
}

/// `log |B(a, b)|`.
#[track_caller]
pub fn betaln(a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (a, b) = reals(a, b);
    a.lgamma() + b.lgamma() - (&a + &b).lgamma()
}

/// `B(a, b) = Γ(a)·Γ(b)/Γ(a + b)`.
#[track_caller]
pub fn beta(a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (a, b) = reals(a, b);
    gamma(&a) * gamma(&b) / gamma(&(&a + &b))
}

/// The logarithm of the multivariate Γ of order `d`.
#[track_caller]
pub fn multigammaln(a: &Tensor, d: usize) -> Tensor {
    let _here = crate::write::here();
    let a = real(a);
    let start = np::full_like(&a, (d * (d.max(1) - 1)) as f64 / 4.0 * PI.ln());
    (0..d).fold(start, |s, j| s + (&a - j as f64 / 2.0).lgamma())
}

/// `1/(1 + e⁻ˣ)`.
#[track_caller]
pub fn expit(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    real(x).sigmoid()
}

/// `log(p/(1 − p))`.
#[track_caller]
pub fn logit(p: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let p = real(p);
    p.log() - (-&p).log1p()
}

/// `log Σ eˣ` without overflow.
#[track_caller]
pub fn logsumexp(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    nn::logsumexp(x, axes)
}

/// Softmax along an axis.
#[track_caller]
pub fn softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::write::here();
    nn::softmax(x, axis)
}

/// Logarithm of softmax along an axis.
#[track_caller]
pub fn log_softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::write::here();
    nn::log_softmax(x, axis)
}

/// `x·log y`, 0 for `x = 0`.
#[track_caller]
pub fn xlogy(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (x, y) = reals(x, y);
    let none = np::equal(&x, 0.0).and(&np::isnan(&y).not());
    np::where_(&none, 0.0, &x * np::where_(&none, 1.0, &y).log())
}

/// `x·log(1 + y)`, 0 for `x = 0`.
#[track_caller]
pub fn xlog1py(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (x, y) = reals(x, y);
    let none = np::equal(&x, 0.0).and(&np::isnan(&y).not());
    np::where_(&none, 0.0, &x * np::where_(&none, 0.0, &y).log1p())
}

/// `−x·log x`, 0 at 0 and −∞ below.
#[track_caller]
pub fn entr(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let x = real(x);
    np::where_(&np::less(&x, 0.0), f64::NEG_INFINITY, -xlogy(&x, &x))
}

/// `x·log(x/y)`, the terms of relative entropy; ∞ outside of positive numbers.
#[track_caller]
pub fn rel_entr(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (x, y) = reals(x, y);
    let both = np::greater(&x, 0.0).and(&np::greater(&y, 0.0));
    let none = np::equal(&x, 0.0).and(&np::greater_equal(&y, 0.0));
    let (safe_x, safe_y) = (np::where_(&both, &x, 1.0), np::where_(&both, &y, 1.0));
    let y = &safe_x * (safe_x.log() - safe_y.log());
    np::where_(&both, &y, np::where_(&none, 0.0, np::full_like(&y, f64::INFINITY)))
}

/// `x·log(x/y) − x + y`, the terms of the Kullback–Leibler divergence; ∞ outside of positive numbers.
#[track_caller]
pub fn kl_div(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::write::here();
    let (x, y) = reals(x, y);
    rel_entr(&x, &y) - &x + &y
}

/// The distribution function of the standard normal.
#[track_caller]
pub fn ndtr(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    (real(x) * (-1.0 / SQRT_2)).erfc() * 0.5
}

/// The inverse of [`ndtr`].
#[track_caller]
pub fn ndtri(p: &Tensor) -> Tensor {
    let _here = crate::write::here();
    (real(p) * 2.0 - 1.0).erf_inv() * SQRT_2
}

/// `log ndtr(x)`, exact far below 0 too.
#[track_caller]
pub fn log_ndtr(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let x = real(x);
    let far = np::less(&x, -5.0);
    let near = np::where_(&far, 0.0, &x);
    let upper = (-((&near * (1.0 / SQRT_2)).erfc() * 0.5)).log1p();
    let lower = (&near * (-1.0 / SQRT_2)).erfc().log() - LN_2;
    let near = np::where_(&np::greater(&x, 0.0), &upper, &lower);
    // The tail is φ(x)/|x| times a continued fraction, evaluated from its end.
    let u = -np::where_(&far, &x, -5.0);
    let fraction = (1..=60).rev().fold(np::zeros_like(&u), |f, k| (k as f64) / (&u + &f));
    let tail = u.square() * -0.5 - (2.0 * PI).ln() * 0.5 - (&u + fraction).log();
    np::where_(&far, &tail, &near)
}

/// Where the power series of the Bessel functions gives way to the series in 1/x.
const FAR: f64 = 16.0;

/// `Iₙ(x)·e^−|x|` of order 0 or 1.
#[track_caller]
fn bessel(x: &Tensor, order: u32) -> Tensor {
    let x = real(x);
    let a = x.abs();
    let far = np::greater(&a, FAR);
    // Σ qᵏ/(k!·(k+n)!) with q = x²/4, nested so that nothing overflows.
    let near_x = np::where_(&far, 0.0, &x);
    let q = near_x.square() * 0.25;
    let n = f64::from(order);
    let series = (1..=48).rev().fold(np::ones_like(&q), |s, k| {
        let k = k as f64;
        1.0 + &q * (1.0 / (k * (k + n))) * s
    });
    let series = if order == 0 { series } else { &near_x * 0.5 * series };
    let near = series * (-near_x.abs()).exp();
    // The asymptotic series, its terms (4n² − (2k−1)²)/(8k·x) nested.
    let far_a = np::where_(&far, &a, FAR);
    let r = 1.0 / (&far_a * 8.0);
    let mu = 4.0 * n * n;
    let tail = (1..=14).rev().fold(np::ones_like(&r), |s, k| {
        let k = k as f64;
        1.0 - &r * ((mu - (2.0 * k - 1.0).powi(2)) / k) * s
    });
    let tail = tail / (&far_a * (2.0 * PI)).sqrt();
    let tail = if order == 0 { tail } else { tail * x.sign() };
    np::where_(&far, &tail, &near)
}

/// The modified Bessel function of order 0, scaled by `e^−|x|`.
#[track_caller]
pub fn i0e(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    bessel(x, 0)
}

/// The modified Bessel function of order 0.
#[track_caller]
pub fn i0(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let x = real(x);
    bessel(&x, 0) * x.abs().exp()
}

/// The modified Bessel function of order 1, scaled by `e^−|x|`.
#[track_caller]
pub fn i1e(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    bessel(x, 1)
}

/// The modified Bessel function of order 1.
#[track_caller]
pub fn i1(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let x = real(x);
    bessel(&x, 1) * x.abs().exp()
}
