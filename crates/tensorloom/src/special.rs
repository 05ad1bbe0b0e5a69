//! Special functions, by SciPy's names.

use crate::Operand;
use crate::np;
use crate::record::float_of;
use crate::{DType, Tensor, custom_jvp};
#[cfg(feature = "nn")]
use crate::{ReduceAxes, nn};
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

/// Computes a formula of many steps in f32 where the operands are narrower, so that it is rounded once.
#[track_caller]
fn widely(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    let x = real(x);
    let d = x.dtype();
    if d.bits() < 32 { f(&x.cast(DType::F32)).cast(d) } else { f(&x) }
}

/// The same of two operands.
#[track_caller]
fn both_widely(x: impl Into<Operand>, y: impl Into<Operand>, f: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> Tensor {
    let (x, y) = reals(x, y);
    let d = x.dtype();
    if d.bits() < 32 { f(&x.cast(DType::F32), &y.cast(DType::F32)).cast(d) } else { f(&x, &y) }
}

/// A polynomial; the coefficient of the highest power comes first.
#[track_caller]
fn poly(x: &Tensor, coefficients: &[f64]) -> Tensor {
    let first = np::full_like(x, coefficients[0]);
    coefficients[1..].iter().fold(first, |p, &c| p * x + c)
}

/// The error function.
#[track_caller]
pub fn erf(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).erf()
}

/// `1 − erf(x)`, exact where that is small.
#[track_caller]
pub fn erfc(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).erfc()
}

/// The inverse of [`erf`].
#[track_caller]
pub fn erfinv(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).erf_inv()
}

/// `log |Γ(x)|`.
#[track_caller]
pub fn gammaln(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).lgamma()
}

/// The derivative of `log Γ`.
#[track_caller]
pub fn digamma(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).digamma()
}

/// The same as [`digamma`].
#[track_caller]
pub fn psi(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    digamma(x)
}

/// `(Γ(x) − 1)/(x − 1)` from 1 to 2, in powers of `2x − 3`.
const GAMMA: [f64; 24] = [
    1.4207456698685333e-11,
    -4.262232729052156e-11,
    4.262202766755453e-11,
    -1.2786526988534392e-10,
    6.073591877674475e-10,
    -1.8220565690409002e-9,
    5.128637678194673e-9,
    -1.5385389527431098e-8,
    4.6476218840626244e-8,
    -1.394155718062839e-7,
    4.179779206593494e-7,
    -1.2536045591879817e-6,
    3.759320210828939e-6,
    -1.1269297434868639e-5,
    3.377420206799004e-5,
    -0.00010104936956059049,
    0.0003029056714231793,
    -0.0008966859145638211,
    0.0027282579087041913,
    -0.0075734486774399245,
    0.025654118558025404,
    -0.05247781969921857,
    0.259884546543369,
    -0.22754614909448398,
];
/// `log Γ(x) − (x − ½)·log x + x − ½·log 2π`, times x, in powers of `1/x²`: right of 10.
const STIRLING: [f64; 8] = [
    -3617.0 / 122400.0,
    1.0 / 156.0,
    -691.0 / 360360.0,
    1.0 / 1188.0,
    -1.0 / 1680.0,
    1.0 / 1260.0,
    -1.0 / 360.0,
    1.0 / 12.0,
];

/// What Stirling's formula lacks of `log Γ`, right of 10.
#[track_caller]
fn stirling_rest(x: &Tensor) -> Tensor {
    let r = 1.0 / x;
    poly(&r.square(), &STIRLING) * r
}

/// `Γ` right of 1: by factors to the interval from 1 to 2, by Stirling's formula beyond 24. Factorials are exact.
#[track_caller]
fn gamma_right(x: &Tensor) -> Tensor {
    let far = np::greater(x, 24.0);
    let (near_x, far_x) = (np::where_(&far, 1.0, x), np::where_(&far, x, 24.0));
    let one = np::ones_like(x);
    let (mut product, mut left) = (one.clone(), near_x.clone());
    for k in 1..24 {
        let factor = &near_x - f64::from(k);
        let some = np::greater_equal(&factor, 1.0);
        product = np::where_(&some, &(&product * &factor), &product);
        left = np::where_(&some, &factor, &left);
    }
    let near = (poly(&(&left * 2.0 - 3.0), &GAMMA) * (&left - 1.0) + 1.0) * product;
    // The power in two halves: it leaves the range before the result does.
    let half = np::power(&far_x, &(&far_x * 0.5 - 0.25));
    let whole = &half * (-&far_x).exp() * half * (stirling_rest(&far_x).exp() * (2.0 * PI).sqrt());
    // Further out the result is infinite, and the formula may be no number.
    let whole = np::where_(&np::greater(x, largest_gamma(x)), f64::INFINITY, whole);
    np::where_(&far, &whole, &near)
}

/// Where `Γ` leaves the range of a dtype.
fn largest_gamma(x: &Tensor) -> f64 {
    if x.dtype() == DType::F64 { 172.0 } else { 36.0 }
}

#[track_caller]
fn gamma_value(x: &Tensor) -> Tensor {
    let below = np::floor(x);
    let right = np::greater_equal(x, 1.0);
    let left = np::less(x, 0.0);
    // Γ(x + 1)/x between 0 and 1, π/(sin πx · Γ(1 − x)) below, whose argument is exact as −x·Γ(−x). Where that leaves the range its reciprocal
    // may not: in factors.
    let (below_one, far) = (np::less(x, -1.0), np::less(x, 12.0 - largest_gamma(x)));
    let first = np::where_(&below_one, &-x, 1.0);
    let factors = (1..=16).fold(first, |f, j| f * np::where_(&far, &(-x - f64::from(j)), 1.0));
    let near = np::where_(&below_one, &-x, &(1.0 - x));
    let reflected = np::where_(&far, &(-x - 16.0), &near);
    let size = gamma_right(&np::where_(&right, x, &np::where_(&left, &reflected, &(x + 1.0))));
    let whole = x.round();
    let sine = np::where_(&left, &((x - &whole) * PI).sin(), 1.0);
    let odd = np::not_equal(np::remainder(&whole, 2.0), 0.0);
    let reflected = PI / &size / factors / np::where_(&odd, &-&sine, &sine);
    let y = np::where_(&right, &size, &np::where_(&left, &reflected, &(&size / x)));
    let pole = np::less(x, 0.0).and(&x.eq(&below));
    np::where_(&pole, f64::NAN, &y)
}

/// `Γ(x)`.
#[track_caller]
pub fn gamma(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let rule = custom_jvp(
        |x: Tensor| gamma_value(&x),
        |(x, dx): (Tensor, Tensor)| {
            let y = gamma_value(&x);
            y * x.digamma() * dx
        },
    );
    widely(x, |x| rule.call(x.clone()))
}

/// `n!`, as `Γ(n + 1)`; 0 for negative numbers.
#[track_caller]
pub fn factorial(n: &Tensor) -> Tensor {
    let _here = crate::record::here();
    np::where_(&np::less(n, 0), 0.0, gamma(&(real(n) + 1.0)))
}

/// `log |B(a, b)|`; where an argument is large, from what Stirling's formula leaves over, as large logarithms would cancel.
#[track_caller]
fn beta_logarithm(a: &Tensor, b: &Tensor) -> Tensor {
    let (small, large) = (np::minimum(a, b), np::maximum(a, b));
    let far = np::greater_equal(&large, 10.0).and(&np::greater(&small, 0.0));
    let both = far.and(&np::greater_equal(&small, 10.0));
    let plain = {
        let (a, b) = (np::where_(&far, 1.0, a), np::where_(&far, 1.0, b));
        a.lgamma() + b.lgamma() - (&a + &b).lgamma()
    };
    let q = np::where_(&far, &large, 10.0);
    let p = np::where_(&far, &small, 1.0);
    // log Γ(q) − log Γ(p + q), of which large parts are taken out.
    let ratio = &p / &q;
    // log(q/(p + q)), and p/q of which may be below the last digit of 1.
    let log = -ratio.log1p();
    let sum = &p + &q;
    let rest = stirling_rest(&q) - stirling_rest(&sum);
    let one = (&p + (&q - 0.5) * &log) + rest - &p * sum.log() + p.lgamma();
    let r = np::where_(&both, &p, 10.0);
    let share = &r / &q;
    let two = (&r - 0.5) * (share.log() - share.log1p()) - &q * share.log1p() - q.log() * 0.5
        + (0.5 * (2.0 * PI).ln())
        + (stirling_rest(&r) + stirling_rest(&q) - stirling_rest(&(&r + &q)));
    let y = np::where_(&far, &np::where_(&both, &two, &one), &plain);
    np::where_(&far.and(&np::isinf(&large)), f64::NEG_INFINITY, &y)
}

/// `log |B(a, b)|`.
#[track_caller]
pub fn betaln(a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    both_widely(a, b, beta_logarithm)
}

/// `B(a, b) = Γ(a)·Γ(b)/Γ(a + b)`.
#[track_caller]
pub fn beta(a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    both_widely(a, b, |a, b| {
        let far = np::greater(&np::maximum(a, b), 10.0).and(&np::greater(&np::minimum(a, b), 0.0));
        let (c, d) = (np::where_(&far, 1.0, a), np::where_(&far, 1.0, b));
        // The quotient first: one factor alone may leave the range.
        let (small, large) = (np::minimum(&c, &d), np::maximum(&c, &d));
        let near = gamma(&small) * (gamma(&large) / gamma(&(&c + &d)));
        np::where_(&far, &beta_logarithm(a, b).exp(), &near)
    })
}

/// The logarithm of the multivariate Γ of order `d`.
#[track_caller]
pub fn multigammaln(a: &Tensor, d: usize) -> Tensor {
    let _here = crate::record::here();
    let a = real(a);
    let start = np::full_like(&a, (d * (d.max(1) - 1)) as f64 / 4.0 * PI.ln());
    (0..d).fold(start, |s, j| s + (&a - j as f64 / 2.0).lgamma())
}

/// `1/(1 + e⁻ˣ)`.
#[track_caller]
pub fn expit(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x).sigmoid()
}

/// `log(p/(1 − p))`.
#[track_caller]
pub fn logit(p: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(p, |p| {
        // Near ½ the logarithms cancel; there 2p − 1 is exact.
        let middle = np::greater(p, 0.25).and(&np::less(p, 0.75));
        let near = np::where_(&middle, p, 0.5) * 2.0 - 1.0;
        np::where_(&middle, &(near.atanh() * 2.0), &(p.log() - (-p).log1p()))
    })
}

/// `log Σ eˣ` without overflow.
#[cfg(feature = "nn")]
#[track_caller]
pub fn logsumexp(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    nn::logsumexp(x, axes)
}

/// Softmax along an axis.
#[cfg(feature = "nn")]
#[track_caller]
pub fn softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    nn::softmax(x, axis)
}

/// Logarithm of softmax along an axis.
#[cfg(feature = "nn")]
#[track_caller]
pub fn log_softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    nn::log_softmax(x, axis)
}

/// `x·log y`, 0 for `x = 0`.
#[track_caller]
pub fn xlogy(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = reals(x, y);
    let none = np::equal(&x, 0.0).and(&np::isnan(&y).not());
    np::where_(&none, 0.0, &x * np::where_(&none, 1.0, &y).log())
}

/// `x·log(1 + y)`, 0 for `x = 0`.
#[track_caller]
pub fn xlog1py(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = reals(x, y);
    let none = np::equal(&x, 0.0).and(&np::isnan(&y).not());
    np::where_(&none, 0.0, &x * np::where_(&none, 0.0, &y).log1p())
}

/// `−x·log x`, 0 at 0 and −∞ below.
#[track_caller]
pub fn entr(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let x = real(x);
    np::where_(&np::less(&x, 0.0), f64::NEG_INFINITY, -xlogy(&x, &x))
}

/// `x·log(x/y)`, the terms of relative entropy; ∞ outside of positive numbers.
#[track_caller]
pub fn rel_entr(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    both_widely(x, y, |x, y| {
        let both = np::greater(x, 0.0).and(&np::greater(y, 0.0));
        let none = np::equal(x, 0.0).and(&np::greater_equal(y, 0.0));
        let (safe_x, safe_y) = (np::where_(&both, x, 1.0), np::where_(&both, y, 1.0));
        // The difference of two near numbers is exact, that of their logarithms is not; a quotient may leave the range.
        let apart = (&safe_x - &safe_y) / &safe_y;
        let near = np::less(&apart.abs(), 0.5);
        let close = np::where_(&near, &apart, 0.0).log1p();
        let ratio = &safe_x / &safe_y;
        let inside = np::greater(&ratio, 1e-30).and(&np::less(&ratio, 1e30));
        let far = np::where_(&inside, &np::where_(&inside, &ratio, 1.0).log(), &(safe_x.log() - safe_y.log()));
        let term = &safe_x * np::where_(&near, &close, &far);
        let outside = np::where_(&np::isnan(x).or(&np::isnan(y)), f64::NAN, np::full_like(&term, f64::INFINITY));
        np::where_(&both, &term, &np::where_(&none, 0.0, outside))
    })
}

/// `x·log(x/y) − x + y`, the terms of the Kullback–Leibler divergence; ∞ outside of positive numbers.
#[track_caller]
pub fn kl_div(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = reals(x, y);
    rel_entr(&x, &y) - &x + &y
}

/// The distribution function of the standard normal.
#[track_caller]
pub fn ndtr(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    (real(x) * (-1.0 / SQRT_2)).erfc() * 0.5
}

/// `−x − s` for `log ndtr(x) = −s²/2` and s from 1.99 to 38.7, in powers of (log s − 2.17..)·0.67..
const QUANTILE: [f64; 26] = [
    3.5966153284213883e-9,
    -2.9900469988551972e-9,
    -2.9293137423760502e-8,
    3.654570480046706e-8,
    9.75636348206749e-8,
    -2.0525677270252912e-7,
    -8.749815997455862e-8,
    6.471726554414299e-7,
    -6.186759651390083e-7,
    -8.239261140760855e-7,
    3.068759103827724e-6,
    -2.736667538749596e-6,
    -4.59471789571367e-6,
    1.6885250386155286e-5,
    -1.730553415014787e-5,
    -2.078639202141052e-5,
    0.0001066010430480115,
    -0.00018942144423682585,
    5.419771542484049e-5,
    0.0010124609669112416,
    -0.004073235091312,
    0.004581863975488596,
    0.028089794273868478,
    -0.15875227385109725,
    0.36714376511304286,
    -0.356277727837645,
];

#[track_caller]
fn quantile(p: &Tensor) -> Tensor {
    let upper = np::greater(p, 0.5);
    // Exact above ½.
    let side = np::where_(&upper, &(1.0 - p), p);
    let tail = np::less(&side, 0.1356);
    let s = (np::where_(&tail, &side, 0.1).log() * -2.0).sqrt();
    let u = (s.log() - 2.1719871193860687) * 0.6739214396583245;
    let outer = &s + poly(&u, &QUANTILE);
    let outer = np::where_(&np::equal(&side, 0.0), f64::INFINITY, outer);
    let outer = np::where_(&upper, &outer, &-&outer);
    let inner = (np::where_(&tail, 0.5, p) * 2.0 - 1.0).erf_inv() * SQRT_2;
    np::where_(&tail, &outer, &inner)
}

/// The inverse of [`ndtr`].
#[track_caller]
pub fn ndtri(p: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let rule = custom_jvp(
        |p: Tensor| quantile(&p),
        |(p, dp): (Tensor, Tensor)| (quantile(&p).square() * 0.5).exp() * (2.0 * PI).sqrt() * dp,
    );
    widely(p, |p| rule.call(p.clone()))
}

/// `log ndtr(x)`, exact far below 0 too.
#[track_caller]
pub fn log_ndtr(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(x, normal_logarithm)
}

#[track_caller]
fn normal_logarithm(x: &Tensor) -> Tensor {
    let far = np::less(x, -5.0);
    let near = np::where_(&far, 0.0, x);
    let upper = (-((&near * (1.0 / SQRT_2)).erfc() * 0.5)).log1p();
    let lower = (&near * (-1.0 / SQRT_2)).erfc().log() - LN_2;
    let near = np::where_(&np::greater(x, 0.0), &upper, &lower);
    // The tail is φ(x)/|x| times a continued fraction, evaluated from its end.
    let u = -np::where_(&far, x, -5.0);
    let fraction = (1..=60).rev().fold(np::zeros_like(&u), |f, k| (k as f64) / (&u + &f));
    let tail = u.square() * -0.5 - (2.0 * PI).ln() * 0.5 - (&u + fraction).log();
    np::where_(&far, &tail, &near)
}

/// Where the power series of the Bessel functions gives way to the series in 1/x.
const FAR: f64 = 24.0;

/// `Iₙ(x)·e^−|x|` of order 0 or 1.
#[track_caller]
fn bessel(x: &Tensor, order: u32) -> Tensor {
    let a = x.abs();
    let far = np::greater(&a, FAR);
    // Σ qᵏ/(k!·(k+n)!) with q = x²/4, nested so that nothing overflows.
    let near_x = np::where_(&far, 0.0, x);
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
    let tail = (1..=22).rev().fold(np::ones_like(&r), |s, k| {
        let k = k as f64;
        1.0 - &r * ((mu - (2.0 * k - 1.0).powi(2)) / k) * s
    });
    let tail = tail / (far_a.sqrt() * (2.0 * PI).sqrt());
    let tail = if order == 0 { tail } else { tail * x.sign() };
    np::where_(&far, &tail, &near)
}

/// `Iₙ(x)` from its scaled form; the exponential in two halves, as it leaves the range before the result does.
#[track_caller]
fn unscaled(x: &Tensor, order: u32) -> Tensor {
    let half = (x.abs() * 0.5).exp();
    let y = bessel(x, order) * &half * half;
    let endless = x.abs().eq(&np::full_like(x, f64::INFINITY));
    np::where_(&endless, &(if order == 0 { x.abs() } else { x.clone() }), &y)
}

/// The modified Bessel function of order 0, scaled by `e^−|x|`.
#[track_caller]
pub fn i0e(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(x, |x| bessel(x, 0))
}

/// The modified Bessel function of order 0.
#[track_caller]
pub fn i0(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(x, |x| unscaled(x, 0))
}

/// The modified Bessel function of order 1, scaled by `e^−|x|`.
#[track_caller]
pub fn i1e(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(x, |x| bessel(x, 1))
}

/// The modified Bessel function of order 1.
#[track_caller]
pub fn i1(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    widely(x, |x| unscaled(x, 1))
}
