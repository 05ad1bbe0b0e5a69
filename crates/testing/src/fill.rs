//! Random data for a type.

use crate::Rng;
use ir::{DType, Literal, Scalar, Type};

/// The distribution of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FillKind {
    /// In ±2, no two adjacent elements close, not near 0, integers or halves: no kink of any op is near.
    Smooth,
    /// Uniform in this range.
    Uniform(f64, f64),
    /// Few different small values, so that many elements are equal.
    Duplicates,
    /// Zeros of both signs, infinities, NaN, the largest and smallest numbers, halves; the limits of integer types.
    Special,
    /// Integers in `0..n`.
    IndexBelow(usize),
}

impl FillKind {
    /// A tensor of random elements.
    pub fn random_tensor(self, ty: &Type, rng: &mut Rng) -> Literal {
        Literal::from_fn(ty.clone(), |_| self.random_scalar(ty.dtype, rng))
    }

    /// One random element.
    pub fn random_scalar(self, dtype: DType, rng: &mut Rng) -> Scalar {
        if dtype == DType::Bool {
            return Scalar::bool(rng.bernoulli(0.5));
        }
        if dtype.is_float() {
            return Scalar::from_f64(dtype, self.float(dtype, rng));
        }
        let signed = dtype.int_min() < 0;
        let small = |rng: &mut Rng| rng.range(if signed { -9 } else { 0 }, 10);
        match self {
            FillKind::Smooth | FillKind::Uniform(..) => Scalar::from_i64(dtype, small(rng)),
            FillKind::Duplicates => Scalar::from_i64(dtype, rng.range(0, 3)),
            FillKind::Special => match rng.below(8) {
                0 => Scalar::from_i64(dtype, dtype.int_min()),
                1 => Scalar::from_bits(dtype, dtype.int_max()),
                2 => Scalar::zero(dtype),
                3 => Scalar::from_i64(dtype, -1),
                4 => Scalar::from_bits(dtype, rng.bits()),
                _ => Scalar::from_i64(dtype, small(rng)),
            },
            FillKind::IndexBelow(n) => Scalar::from_i64(dtype, rng.below(n) as i64),
        }
    }

    fn float(self, dtype: DType, rng: &mut Rng) -> f64 {
        match self {
            FillKind::Smooth => {
                // Fractions in (0.1, 0.4) of a half are not near integers or halves.
                let cell = rng.range(-4, 4) as f64 * 0.5;
                cell + rng.uniform(0.1, 0.4)
            }
            FillKind::Uniform(lo, hi) => rng.uniform(lo, hi),
            FillKind::Duplicates => rng.range(-1, 2) as f64,
            FillKind::Special => {
                let max = ir::scalar::finite_max(dtype);
                let rows = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, max, -max, 0.5, -0.5, 1.5, 2.5, 1.0];
                if rng.bernoulli(0.6) { *rng.pick(&rows) } else { rng.uniform(-3.0, 3.0) }
            }
            FillKind::IndexBelow(n) => rng.below(n) as f64,
        }
    }
}
