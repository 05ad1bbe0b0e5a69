//! Polynomials by their coefficients, highest power first.

use crate::{Tensor, engine_of, record};

/// Coefficients with zeros in front, to a length.
#[track_caller]
fn widen(p: &Tensor, n: usize) -> Tensor {
    let more = n.saturating_sub(p.numel());
    if more == 0 {
        return p.clone();
    }
    super::concatenate(&[&engine_of(p).zeros(p.dtype(), &[more]), p], 0)
}

/// The sum of two polynomials.
#[track_caller]
pub fn polyadd(p: &Tensor, q: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let n = p.numel().max(q.numel());
    widen(p, n) + widen(q, n)
}

/// The difference of two polynomials.
#[track_caller]
pub fn polysub(p: &Tensor, q: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let n = p.numel().max(q.numel());
    widen(p, n) - widen(q, n)
}

/// The product of two polynomials.
#[track_caller]
pub fn polymul(p: &Tensor, q: &Tensor) -> Tensor {
    let _here = crate::record::here();
    super::convolve(p, q, "full")
}

/// The value of a polynomial, by Horner's scheme.
#[track_caller]
pub fn polyval(p: &Tensor, x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if p.rank() == 0 || p.error().is_some() {
        let bad = || record::invalid("polyval", format!("{} is not a vector of coefficients", p.ty()));
        return p.error().map_or_else(bad, Tensor::from_error);
    }
    let zero = x * 0 + p.index(0, 0) * 0;
    (0..p.size(0)).fold(zero, |y, i| y * x + p.index(0, i as isize))
}

/// The derivative of a polynomial, `m` times.
///
/// Of integers and bools it is i64, or u64 of those, as the powers are.
#[track_caller]
pub fn polyder(p: &Tensor, m: usize) -> Tensor {
    let _here = crate::record::here();
    let wide = if m == 0 { p.dtype() } else { super::sum_dtype(p.dtype()) };
    (0..m).fold(p.cast(wide), |p, _| {
        let n = p.numel().max(1) - 1;
        let powers: Vec<f64> = (1..=n).rev().map(|k| k as f64).collect();
        p.narrow(0, 0, n) * engine_of(&p).tensor(&powers, &[n]).cast(p.dtype())
    })
}

/// An integral of a polynomial with constant 0, `m` times.
#[track_caller]
pub fn polyint(p: &Tensor, m: usize) -> Tensor {
    let _here = crate::record::here();
    (0..m).fold(p.cast(record::float_of(p.dtype())), |p, _| {
        let n = p.numel();
        let powers: Vec<f64> = (1..=n).rev().map(|k| k as f64).collect();
        let divided = &p / engine_of(&p).tensor(&powers, &[n]).cast(p.dtype());
        super::concatenate(&[&divided, &engine_of(&p).zeros(divided.dtype(), &[1])], 0)
    })
}

/// The monic polynomial with these roots.
#[track_caller]
pub fn poly(roots: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let roots = roots.cast(record::float_of(roots.dtype()));
    let one = engine_of(&roots).ones(roots.dtype(), &[1]);
    (0..roots.numel()).fold(one.clone(), |p, i| {
        let factor = super::concatenate(&[&one, &(-roots.index(0, i as isize)).unsqueeze(0)], 0);
        polymul(&p, &factor)
    })
}

/// Quotient and remainder of two polynomials; the remainder has as many coefficients as the dividend.
#[track_caller]
pub fn polydiv(u: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let (m, n) = (u.numel(), v.numel());
    if n == 0 || m == 0 || u.rank() != 1 || v.rank() != 1 {
        let bad = record::invalid("polydiv", format!("{} and {} are not vectors of coefficients", u.ty(), v.ty()));
        return (bad.clone(), bad);
    }
    let (u, v) = (u.cast(record::float_of(u.dtype())), v.cast(record::float_of(v.dtype())));
    if m < n {
        return (engine_of(&u).zeros(u.dtype(), &[1]), u);
    }
    let lead = v.index(0, 0);
    let mut rest = u;
    let mut quotient = Vec::new();
    for k in 0..=m - n {
        let d = rest.index(0, k as isize) / &lead;
        let pad = [(k, m - n - k)];
        rest = &rest - super::pad(&(&d * &v), &pad, super::PadMode::Constant(0.0.into()));
        quotient.push(d);
    }
    (Tensor::stack(&quotient.iter().collect::<Vec<_>>(), 0), rest)
}

/// The polynomial of a degree that fits points best, by least squares.
#[cfg(feature = "linalg")]
#[track_caller]
pub fn polyfit(x: &Tensor, y: &Tensor, degree: usize) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(record::float_of(x.dtype()));
    let powers = super::vander(&x, Some(degree + 1), false);
    // Columns of one length make the problem as well conditioned as scaling can.
    let scale = super::sum(&powers.square(), 0).sqrt();
    let (c, ..) = crate::linalg::lstsq(&(&powers / &scale), &y.cast(x.dtype()), None);
    if y.rank() == 1 { c / scale } else { c / scale.unsqueeze(-1) }
}
