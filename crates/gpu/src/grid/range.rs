//! Intervals of integers: what proves that 32 bits are enough.

use ir::{Binary, Class, DType, Scalar, Unary};

/// All numbers from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) lo: i128,
    pub(super) hi: i128,
}

impl Range {
    pub(super) const fn new(lo: i128, hi: i128) -> Range {
        Range { lo, hi }
    }

    pub(super) fn point(x: i64) -> Range {
        Range::new(x as i128, x as i128)
    }

    /// Everything that a dtype holds, if it is an integer.
    pub(super) fn all(d: DType) -> Range {
        match d.class() {
            Class::Float => Range::all(DType::I64),
            _ => Range::new(d.int_min() as i128, d.int_max() as i128),
        }
    }

    pub(super) fn within(self, other: Range) -> bool {
        self.lo >= other.lo && self.hi <= other.hi
    }

    /// Whether an i32 holds it, with room for some steps of a loop.
    pub(super) fn narrow(self) -> bool {
        self.within(Range::new(i32::MIN as i128, i32::MAX as i128))
    }

    pub(super) fn join(self, o: Range) -> Range {
        Range::new(self.lo.min(o.lo), self.hi.max(o.hi))
    }

    pub(super) fn add(self, o: Range) -> Range {
        Range::new(self.lo + o.lo, self.hi + o.hi)
    }

    /// Saturating, so that sums of a few products stay within 128 bits.
    pub(super) fn mul(self, o: Range) -> Range {
        const MOST: i128 = 1 << 100;
        let ends = [(self.lo, o.lo), (self.lo, o.hi), (self.hi, o.lo), (self.hi, o.hi)];
        let products = ends.map(|(a, b)| a.saturating_mul(b).clamp(-MOST, MOST));
        Range::new(products.into_iter().min().unwrap_or(-MOST), products.into_iter().max().unwrap_or(MOST))
    }

    fn sub(self, o: Range) -> Range {
        Range::new(self.lo - o.hi, self.hi - o.lo)
    }

    /// What the dtype makes of it: anything, if it does not fit.
    fn wrapped(self, d: DType) -> Range {
        if self.within(Range::all(d)) { self } else { Range::all(d) }
    }

    pub(super) fn of(s: Scalar) -> Range {
        match s.dtype().class() {
            Class::Float => Range::all(DType::I64),
            Class::Signed => Range::point(s.to_i64()),
            _ => Range::new(s.bits() as i128, s.bits() as i128),
        }
    }

    /// The range of a conversion between integers, or of one from a float.
    pub(super) fn cast(self, from: DType, to: DType) -> Range {
        match (from.class(), to.class()) {
            (Class::Float, _) | (_, Class::Float) => Range::all(to),
            (_, Class::Bool) => Range::new(0, 1),
            _ => self.wrapped(to),
        }
    }

    pub(super) fn unary(op: Unary, d: DType, x: Range) -> Range {
        match op {
            _ if d.is_float() => Range::all(d),
            Unary::Neg => Range::new(-x.hi, -x.lo).wrapped(d),
            Unary::Abs => {
                let most = x.lo.abs().max(x.hi.abs());
                let least = if x.lo <= 0 && x.hi >= 0 { 0 } else { x.lo.abs().min(x.hi.abs()) };
                Range::new(least, most).wrapped(d)
            }
            Unary::Sign => Range::new(-1, 1),
            Unary::PopulationCount => Range::new(0, 64),
            _ => Range::all(d),
        }
    }

    pub(super) fn binary(op: Binary, d: DType, a: Range, b: Range) -> Range {
        if !d.is_int() {
            return Range::all(d);
        }
        match op {
            Binary::Add => a.add(b).wrapped(d),
            Binary::Sub => a.sub(b).wrapped(d),
            Binary::Mul => a.mul(b).wrapped(d),
            Binary::Max => Range::new(a.lo.max(b.lo), a.hi.max(b.hi)),
            Binary::Min => Range::new(a.lo.min(b.lo), a.hi.min(b.hi)),
            // By a known positive number; anything else may be zero or change signs.
            Binary::Div if b.lo == b.hi && b.lo > 0 => Range::new(a.lo / b.lo, a.hi / b.lo),
            Binary::Div if b.lo > 0 => Range::new(a.lo.min(0), a.hi.max(0)),
            Binary::Rem if b.lo > 0 => {
                let most = b.hi - 1;
                Range::new(if a.lo < 0 { (-most).max(a.lo) } else { 0 }, if a.hi > 0 { most.min(a.hi) } else { 0 })
            }
            Binary::And if a.lo >= 0 && b.lo >= 0 => Range::new(0, a.hi.min(b.hi)),
            _ => Range::all(d),
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
                            let r = Range::binary(
                                op,
                                d,
                                Range::new(lo.into(), hi.into()),
                                Range::new(l2.into(), h2.into()),
                            );
                            for a in [lo, (lo + hi) / 2, hi] {
                                for b in [l2, (l2 + h2) / 2, h2] {
                                    let x = op.eval(Scalar::from_i64(d, a), Scalar::from_i64(d, b)).to_i64();
                                    assert!(Range::point(x).within(r), "{op:?} {a} {b} = {x}, not in {r:?}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
