//! 16-bit floats for routines: conversions and comparisons without branches or calls, so that loops over them
//! are vectorized. They must agree with `ir::round`.

use half::{bf16, f16};

/// A float of 16 bits.
pub(super) trait HalfFloat: Copy {
    /// The bits of infinity.
    const INFINITY: u16;
    fn bits(self) -> u16;
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn of_f32(x: f32) -> Self;

    /// Rounds to nearest by way of an f32 that is rounded to odd, so that the second rounding is
    /// correct.
    #[inline(always)]
    fn of_f64(x: f64) -> Self {
        let near = x as f32;
        let back = near as f64;
        let bits = near.to_bits();
        let exact = (back == x) | x.is_nan() | near.is_infinite();
        let cut = bits.wrapping_sub((back.abs() > x.abs()) as u32);
        Self::of_f32(f32::from_bits(if exact { bits } else { cut | 1 }))
    }

    #[inline(always)]
    fn not_a_number(self) -> bool {
        self.bits() & 0x7fff > Self::INFINITY
    }

    /// Returns an integer that sorts like the numbers; both zeros are 0.
    #[inline(always)]
    fn sort_key(self) -> i16 {
        let sign = self.bits() as i16 >> 15;
        ((self.bits() & 0x7fff) as i16 ^ sign).wrapping_sub(sign)
    }

    #[inline(always)]
    fn below(self, b: Self) -> bool {
        (self.sort_key() < b.sort_key()) & !self.not_a_number() & !b.not_a_number()
    }
}

impl HalfFloat for bf16 {
    const INFINITY: u16 = 0x7f80;

    #[inline(always)]
    fn bits(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    #[inline(always)]
    fn of_f32(x: f32) -> bf16 {
        let bits = x.to_bits();
        let number = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        bf16::from_bits(if x.is_nan() { bits >> 16 | 0x40 } else { number } as u16)
    }
}

impl HalfFloat for f16 {
    const INFINITY: u16 = 0x7c00;

    #[inline(always)]
    fn bits(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let bits = self.to_bits() as u32;
        let (sign, rest) = ((bits & 0x8000) << 16, bits & 0x7fff);
        // Exponents are biased by 15 in f16 and by 127 in f32. Subnormal numbers, below 2⁻¹⁴, have exponent 0 and a unit of 2⁻²⁴.
        let tiny = (rest as i32 as f32 * 2f32.powi(-24)).to_bits();
        let wide = (rest << 13) + if rest >= 0x7c00 { 224 << 23 } else { 112 << 23 };
        let wide = if rest > 0x7c00 { wide | 1 << 22 } else { wide };
        f32::from_bits(sign | if rest < 0x400 { tiny } else { wide })
    }
    #[inline(always)]
    fn of_f32(x: f32) -> f16 {
        let bits = x.to_bits();
        let (sign, rest) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
        let biased = rest.wrapping_sub(112 << 23);
        let normal = biased.wrapping_add(0xfff + (biased >> 13 & 1)) >> 13;
        let normal = if normal > 0x7c00 { 0x7c00 } else { normal };
        // The last place of a number near 1/2 is the unit of subnormal f16 numbers, so adding 1/2 rounds.
        let tiny = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let number = if rest < 113 << 23 { tiny } else { normal };
        let nan = 0x7e00 | rest >> 13 & 0x3ff;
        f16::from_bits((sign | if rest > 0xff << 23 { nan } else { number }) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_converts_as_the_reference_does() {
        for bits in 0..=u16::MAX {
            let (b, h) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert_eq!(HalfFloat::to_f32(b).is_nan(), b.to_f64().is_nan());
            assert_eq!(HalfFloat::to_f32(h).is_nan(), h.to_f64().is_nan());
            if !b.is_nan() {
                assert_eq!((HalfFloat::to_f32(b) as f64).to_bits(), b.to_f64().to_bits(), "{bits:#x}");
            }
            if !h.is_nan() {
                assert_eq!((HalfFloat::to_f32(h) as f64).to_bits(), h.to_f64().to_bits(), "{bits:#x}");
            }
        }
    }

    #[test]
    fn comparisons_are_those_of_the_reference() {
        let some: Vec<u16> = (0..=u16::MAX).filter(|b| b % 97 == 0 || b & 0x7f < 2 || b & 0x7f > 0x7d).collect();
        for &a in &some {
            for &b in some.iter().step_by(3) {
                assert_eq!(bf16::from_bits(a).below(bf16::from_bits(b)), bf16::from_bits(a) < bf16::from_bits(b));
                assert_eq!(f16::from_bits(a).below(f16::from_bits(b)), f16::from_bits(a) < f16::from_bits(b));
            }
        }
    }

    #[test]
    fn numbers_round_as_the_reference_rounds() {
        let mut state = 1u64;
        let check = |x: f64| {
            let (b, h) = (bf16::of_f64(x).to_bits(), f16::of_f64(x).to_bits());
            assert_eq!(b, ir::round::to_bf16(x), "{x:e} to bf16");
            assert_eq!(h, ir::round::to_f16(x), "{x:e} to f16");
        };
        for bits in 0..=u16::MAX {
            for value in [bf16::from_bits(bits).to_f64(), f16::from_bits(bits).to_f64()] {
                // Midpoints between adjacent numbers, and numbers next to them.
                for part in [0.0, 1.0 / 256.0, 1.0 / 512.0, 1.0 / 2048.0, 1.0 / 4096.0] {
                    for nudge in [0.0, 1e-15, -1e-15, 1e-9] {
                        check(value * (1.0 + part) * (1.0 + nudge));
                    }
                }
            }
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            check(f64::from_bits(state));
            check(f32::from_bits((state >> 32) as u32) as f64);
        }
        for tiny in [2f64.powi(-24), 2f64.powi(-25), 1.5 * 2f64.powi(-25), 2f64.powi(-133), 2f64.powi(-134), 1e-300] {
            check(tiny);
            check(-tiny);
        }
    }

    /// An f32 sum, rounded again, is the correctly rounded sum: an f32 has more than twice as many significant bits.
    #[test]
    fn sums_round_once() {
        let some: Vec<u16> = (0..=u16::MAX).filter(|b| b % 211 == 0 || b & 0x7f == 0x7f).collect();
        for &a in &some {
            for &b in &some {
                let (x, y) = (bf16::from_bits(a), bf16::from_bits(b));
                let sum = bf16::of_f32(HalfFloat::to_f32(x) + HalfFloat::to_f32(y));
                let want = bf16::from_bits(ir::round::to_bf16(x.to_f64() + y.to_f64()));
                assert!(sum.to_bits() == want.to_bits() || sum.is_nan() && want.is_nan(), "{x} + {y}: {sum}, {want}");
                let (x, y) = (f16::from_bits(a), f16::from_bits(b));
                let sum = f16::of_f32(HalfFloat::to_f32(x) + HalfFloat::to_f32(y));
                let want = f16::from_bits(ir::round::to_f16(x.to_f64() + y.to_f64()));
                assert!(sum.to_bits() == want.to_bits() || sum.is_nan() && want.is_nan(), "{x} + {y}: {sum}, {want}");
            }
        }
    }
}
