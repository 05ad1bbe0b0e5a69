//! Polynomials by their coefficients, highest power first.

use crate::{Tensor, engine_of, write};

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
    let n = p.numel().max(q.numel());
    widen(p, n) + widen(q, n)
}

/// The difference of two polynomials.
#[track_caller]
pub fn polysub(p: &Tensor, q: &Tensor) -> Tensor {
    let n = p.numel().max(q.numel());
    widen(p, n) - widen(q, n)
}

/// The product of two polynomials.
#[track_caller]
pub fn polymul(p: &Tensor, q: &Tensor) -> Tensor {
    super::convolve(p, q, "full")
}

/// The value of a polynomial, by Horner's scheme.
#[track_caller]
pub fn polyval(p: &Tensor, x: &Tensor) -> Tensor {
    if p.rank() == 0 || p.error().is_some() {
        let bad = || write::invalid("polyval", format!("{} is no list of coefficients", p.ty()));
        return p.error().map_or_else(bad, Tensor::from_error);
    }
    let zero = x * 0 + p.index(0, 0) * 0;
    (0..p.size(0)).fold(zero, |y, i| y * x + p.index(0, i as isize))
}

/// The derivative of a polynomial, `m` times.
#[track_caller]
pub fn polyder(p: &Tensor, m: usize) -> Tensor {
    (0..m).fold(p.clone(), |p, _| {
        let n = p.numel().max(1) - 1;
        let powers: Vec<f64> = (1..=n).rev().map(|k| k as f64).collect();
        p.narrow(0, 0, n) * engine_of(&p).tensor(&powers, &[n]).cast(p.dtype())
    })
}

/// An integral of a polynomial with constant 0, `m` times.
#[track_caller]
pub fn polyint(p: &Tensor, m: usize) -> Tensor {
    (0..m).fold(p.clone(), |p, _| {
        let n = p.numel();
        let powers: Vec<f64> = (1..=n).rev().map(|k| k as f64).collect();
        let divided = &p / engine_of(&p).tensor(&powers, &[n]).cast(p.dtype());
        super::concatenate(&[&divided, &engine_of(&p).zeros(divided.dtype(), &[1])], 0)
    })
}
