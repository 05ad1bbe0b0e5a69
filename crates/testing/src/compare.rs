//! Comparing tensors: exact for integers and bools, within a tolerance for floats; NaN equals NaN, infinities are exact.

use ir::{DType, Literal, Scalar};
use std::fmt;

/// The maximum distance of two floats: `|got - want| ≤ absolute + relative · |want|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative to the expected value.
    pub relative: f64,
    /// Absolute.
    pub absolute: f64,
}

impl Tolerance {
    /// Exact equality; also of the sign of zero (`-0.0` is not `0.0`).
    pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

    /// A tolerance.
    pub const fn new(relative: f64, absolute: f64) -> Tolerance {
        Tolerance { relative, absolute }
    }

    /// A few ulps of a dtype.
    pub fn for_dtype(dtype: DType) -> Tolerance {
        let relative = match dtype {
            DType::F64 => 1e-12,
            DType::F32 => 1e-5,
            DType::F16 => 2e-3,
            DType::BF16 => 1.6e-2,
            DType::F8E4M3 => 0.13,
            DType::F8E5M2 => 0.26,
            _ => 0.0,
        };
        Tolerance { relative, absolute: relative * 0.1 }
    }

    /// A multiple of this tolerance.
    pub fn scaled(self, factor: f64) -> Tolerance {
        Tolerance { relative: self.relative * factor, absolute: self.absolute * factor }
    }

    /// Whether two scalars of one dtype are close.
    pub fn is_close(self, got: Scalar, want: Scalar) -> bool {
        if !got.dtype().is_float() || got == want {
            return got == want;
        }
        let (a, b) = (got.to_f64(), want.to_f64());
        if a.is_nan() || b.is_nan() {
            return a.is_nan() && b.is_nan();
        }
        if a.is_infinite() || b.is_infinite() || self == Tolerance::EXACT {
            return a == b && a.is_sign_negative() == b.is_sign_negative();
        }
        (a - b).abs() <= self.absolute + self.relative * b.abs()
    }
}

/// The difference of two tensors.
#[derive(Clone, Debug)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

/// Compares two tensors; the error reports the first index where they differ, and the number of differences.
pub fn compare(got: &Literal, want: &Literal, tolerance: Tolerance) -> Result<(), Mismatch> {
    if got.ty() != want.ty() {
        return Err(Mismatch(format!("got {}, want {}", got.ty(), want.ty())));
    }
    let wrong: Vec<usize> = (0..got.ty().numel()).filter(|&i| !tolerance.is_close(got.get(i), want.get(i))).collect();
    let Some(&first) = wrong.first() else { return Ok(()) };
    let worst = wrong.iter().map(|&i| (got.get(i).to_f64() - want.get(i).to_f64()).abs()).fold(0.0, f64::max);
    Err(Mismatch(format!(
        "{} of {} elements of {} differ; first at {:?}: got {}, want {} (largest difference {worst:e}, allowed {:e} + {:e}·|want|)\n got {got:?}\nwant {want:?}",
        wrong.len(),
        got.ty().numel(),
        got.ty(),
        index_of(first, &got.ty().shape),
        got.get(first),
        want.get(first),
        tolerance.absolute,
        tolerance.relative,
    )))
}

fn index_of(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for a in (0..shape.len()).rev() {
        index[a] = at % shape[a];
        at /= shape[a];
    }
    index
}

/// Compares lists of tensors with the tolerance of each dtype times `factor`.
pub fn compare_all(got: &[Literal], want: &[Literal], factor: f64) -> Result<(), Mismatch> {
    if got.len() != want.len() {
        return Err(Mismatch(format!("{} results, want {}", got.len(), want.len())));
    }
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let tolerance = Tolerance::for_dtype(w.ty().dtype).scaled(factor);
        compare(g, w, tolerance).map_err(|m| Mismatch(format!("result {i}: {m}")))?;
    }
    Ok(())
}

/// Panics if [`compare`] finds a difference.
#[track_caller]
pub fn assert_close(got: &Literal, want: &Literal, tolerance: Tolerance) {
    if let Err(m) = compare(got, want, tolerance) {
        panic!("{m}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closeness() {
        let f = |x: f64| Scalar::from_f64(DType::F64, x);
        let t = Tolerance::new(1e-6, 0.0);
        for (a, b, close) in [
            (1.0, 1.0 + 5e-7, true),
            (1.0, 1.0 + 5e-6, false),
            (f64::NAN, f64::NAN, true),
            (f64::NAN, 1.0, false),
            (f64::INFINITY, f64::INFINITY, true),
            (f64::INFINITY, f64::NEG_INFINITY, false),
            (f64::INFINITY, 1e308, false),
            (0.0, -0.0, true),
        ] {
            assert_eq!(t.is_close(f(a), f(b)), close, "{a} {b}");
        }
        assert!(!Tolerance::EXACT.is_close(f(0.0), f(-0.0)));
        assert!(Tolerance::EXACT.is_close(f(f64::NAN), f(-f64::NAN)));
    }

    #[test]
    fn a_mismatch_names_its_place() {
        let a = Literal::new(&[2, 2], &[1i32, 2, 3, 4]);
        let b = Literal::new(&[2, 2], &[1i32, 2, 5, 4]);
        let text = compare(&a, &b, Tolerance::EXACT).unwrap_err().to_string();
        assert!(text.contains("1 of 4") && text.contains("[1, 0]") && text.contains("got 3, want 5"), "{text}");
    }
}
