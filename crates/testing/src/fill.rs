//! Sample data for a type.

use crate::Rng;
use ir::{DType, Literal, Scalar, Type};

/// What the elements of a sample look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// In ±2, no two neighbours close, away from 0 and from integers and halves: no kink of any op is near.
    Smooth,
    /// Uniform in this range.
    Between(f64, f64),
    /// Few different small values, so that many are equal.
    Ties,
    /// Zeros of both signs, infinities, NaN, the largest and smallest numbers, halves; for integers their limits.
    Special,
    /// Integers in `0..n`.
    Index(usize),
}

impl Fill {
    /// A tensor of such elements.
    pub fn of(self, ty: &Type, rng: &mut Rng) -> Literal {
        Literal::from_fn(ty.clone(), |_| self.scalar(ty.dtype, rng))
    }

    /// One such element.
    pub fn scalar(self, dtype: DType, rng: &mut Rng) -> Scalar {
        if dtype == DType::Bool {
            return Scalar::bool(rng.chance(0.5));
        }
        if dtype.is_float() {
            return Scalar::from_f64(dtype, self.float(dtype, rng));
        }
        let signed = dtype.int_min() < 0;
        let small = |rng: &mut Rng| rng.range(if signed { -9 } else { 0 }, 10);
        match self {
            Fill::Smooth | Fill::Between(..) => Scalar::from_i64(dtype, small(rng)),
            Fill::Ties => Scalar::from_i64(dtype, rng.range(0, 3)),
            Fill::Special => match rng.below(8) {
                0 => Scalar::from_i64(dtype, dtype.int_min()),
                1 => Scalar::from_bits(dtype, dtype.int_max()),
                2 => Scalar::zero(dtype),
                3 => Scalar::from_i64(dtype, -1),
                4 => Scalar::from_bits(dtype, rng.bits()),
                _ => Scalar::from_i64(dtype, small(rng)),
            },
            Fill::Index(n) => Scalar::from_i64(dtype, rng.below(n) as i64),
        }
    }

    fn float(self, dtype: DType, rng: &mut Rng) -> f64 {
        match self {
            Fill::Smooth => {
                // Fractions in (0.1, 0.4) of a half keep away from integers and halves alike.
                let cell = rng.range(-4, 4) as f64 * 0.5;
                cell + rng.between(0.1, 0.4)
            }
            Fill::Between(lo, hi) => rng.between(lo, hi),
            Fill::Ties => rng.range(-1, 2) as f64,
            Fill::Special => {
                let max = ir::scalar::finite_max(dtype);
                let rows = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, max, -max, 0.5, -0.5, 1.5, 2.5, 1.0];
                if rng.chance(0.6) { *rng.pick(&rows) } else { rng.between(-3.0, 3.0) }
            }
            Fill::Index(n) => rng.below(n) as f64,
        }
    }
}
