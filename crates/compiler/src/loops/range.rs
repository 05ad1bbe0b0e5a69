//! Intervals of integers, used to prove that 32 bits are sufficient and that an index is inside its buffer.

use ir::{Binary, DType, DTypeKind, Scalar, Unary};
use smallvec::SmallVec;

/// A closed interval of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntRange {
    /// The lower bound.
    pub lo: i128,
    /// The upper bound, inclusive.
    pub hi: i128,
}

impl IntRange {
    /// The interval from `lo` to `hi`.
    pub const fn new(lo: i128, hi: i128) -> IntRange {
        IntRange { lo, hi }
    }

    /// The interval of one number.
    pub fn single(x: i64) -> IntRange {
        IntRange::new(x as i128, x as i128)
    }

    /// All values of an integer dtype. A bool in memory is a byte that may have been written by another program.
    pub fn of_dtype(d: DType) -> IntRange {
        match d.kind() {
            DTypeKind::Float => IntRange::of_dtype(DType::I64),
            DTypeKind::Bool => IntRange::new(0, 255),
            _ => IntRange::new(d.int_min() as i128, d.int_max() as i128),
        }
    }

    /// Whether it is a subset of another interval.
    pub fn is_within(self, other: IntRange) -> bool {
        self.lo >= other.lo && self.hi <= other.hi
    }

    /// Whether it fits in an i32, with a margin for a few loop steps.
    pub fn fits_i32(self) -> bool {
        self.is_within(IntRange::new(i32::MIN as i128, i32::MAX as i128))
    }

    /// The smallest interval that contains both.
    pub fn union(self, o: IntRange) -> IntRange {
        IntRange::new(self.lo.min(o.lo), self.hi.max(o.hi))
    }

    /// The range of a sum.
    pub fn add(self, o: IntRange) -> IntRange {
        IntRange::new(self.lo.saturating_add(o.lo), self.hi.saturating_add(o.hi))
    }

    /// The range of a product; beyond 100 bits the result is unbounded, so that sums of products fit in 128 bits.
    pub fn mul(self, o: IntRange) -> IntRange {
        const MOST: i128 = 1 << 100;
        let ends = [(self.lo, o.lo), (self.lo, o.hi), (self.hi, o.lo), (self.hi, o.hi)];
        let products = ends.map(|(a, b)| a.checked_mul(b).filter(|p| (-MOST..=MOST).contains(p)));
        let all = products.into_iter().collect::<Option<SmallVec<[i128; 4]>>>();
        let ends = all.as_ref().and_then(|all| Some((*all.iter().min()?, *all.iter().max()?)));
        let (lo, hi) = ends.unwrap_or((-MOST, MOST));
        IntRange::new(lo, hi)
    }

    fn sub(self, o: IntRange) -> IntRange {
        IntRange::new(self.lo - o.hi, self.hi - o.lo)
    }

    /// The range after wrapping to a dtype: all values, if it does not fit.
    fn wrapped(self, d: DType) -> IntRange {
        if self.is_within(IntRange::of_dtype(d)) { self } else { IntRange::of_dtype(d) }
    }

    /// The value of a scalar, if it is an integer.
    pub fn of(s: Scalar) -> IntRange {
        match s.dtype().kind() {
            DTypeKind::Float => IntRange::of_dtype(DType::I64),
            DTypeKind::Signed => IntRange::single(s.to_i64()),
            _ => IntRange::new(s.bits() as i128, s.bits() as i128),
        }
    }

    /// The range of a conversion between integers, or from a float to an integer.
    pub fn cast(self, from: DType, to: DType) -> IntRange {
        match (from.kind(), to.kind()) {
            (DTypeKind::Float, _) | (_, DTypeKind::Float) => IntRange::of_dtype(to),
            (DTypeKind::Bool, DTypeKind::Bool) => self,
            (_, DTypeKind::Bool) => IntRange::new(0, 1),
            _ => self.wrapped(to),
        }
    }

    /// The range of a unary function of a dtype.
    pub fn unary(op: Unary, d: DType, x: IntRange) -> IntRange {
        match op {
            _ if d.is_float() => IntRange::of_dtype(d),
            Unary::Neg => IntRange::new(-x.hi, -x.lo).wrapped(d),
            Unary::Abs => {
                let most = x.lo.abs().max(x.hi.abs());
                let least = if x.lo <= 0 && x.hi >= 0 { 0 } else { x.lo.abs().min(x.hi.abs()) };
                IntRange::new(least, most).wrapped(d)
            }
            Unary::Sign => IntRange::new(-1, 1),
            Unary::PopulationCount => IntRange::new(0, 64),
            _ => IntRange::of_dtype(d),
        }
    }

    /// The range of a binary function of a dtype.
    pub fn binary(op: Binary, d: DType, a: IntRange, b: IntRange) -> IntRange {
        if !d.is_int() {
            return IntRange::of_dtype(d);
        }
        match op {
            Binary::Add => a.add(b).wrapped(d),
            Binary::Sub => a.sub(b).wrapped(d),
            Binary::Mul => a.mul(b).wrapped(d),
            Binary::Max => IntRange::new(a.lo.max(b.lo), a.hi.max(b.hi)),
            Binary::Min => IntRange::new(a.lo.min(b.lo), a.hi.min(b.hi)),
            // Only division by a known positive number; another divisor may be zero or negative.
            Binary::Div if b.lo == b.hi && b.lo > 0 => IntRange::new(a.lo / b.lo, a.hi / b.lo),
            Binary::Div if b.lo > 0 => IntRange::new(a.lo.min(0), a.hi.max(0)),
            Binary::Rem if b.lo > 0 => {
                let most = b.hi - 1;
                IntRange::new(if a.lo < 0 { (-most).max(a.lo) } else { 0 }, if a.hi > 0 { most.min(a.hi) } else { 0 })
            }
            Binary::And if a.lo >= 0 && b.lo >= 0 => IntRange::new(0, a.hi.min(b.hi)),
            _ => IntRange::of_dtype(d),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stays_in_its_range() {
        let d = DType::I8;
        let ends = [-128i64, -100, -3, -1, 0, 1, 2, 5, 127];
        for op in Binary::ALL.iter().copied().filter(|op| op.domain().contains(d)) {
            for (i, &lo) in ends.iter().enumerate() {
                for &hi in &ends[i..] {
                    for (j, &l2) in ends.iter().enumerate() {
                        for &h2 in &ends[j..] {
                            let r = IntRange::binary(
                                op,
                                d,
                                IntRange::new(lo.into(), hi.into()),
                                IntRange::new(l2.into(), h2.into()),
                            );
                            for a in [lo, (lo + hi) / 2, hi] {
                                for b in [l2, (l2 + h2) / 2, h2] {
                                    let x = op.eval(Scalar::from_i64(d, a), Scalar::from_i64(d, b)).to_i64();
                                    assert!(IntRange::single(x).is_within(r), "{op:?} {a} {b} = {x}, not in {r:?}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
