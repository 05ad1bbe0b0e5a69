//! Conversion to small floats with a single rounding, to nearest, ties to even.
//!
//! A conversion through a wider float can round twice: a number just above the midpoint of two small floats may be rounded to the
//! midpoint, and then in the wrong direction. So the first step rounds *to odd*: it truncates, and sets the last bit if the
//! result is inexact. The second step can then decide on which side of the midpoint the number was.

use half::f16;

/// The bits of the nearest bf16.
pub fn to_bf16(x: f64) -> u16 {
    let bits = round_to_odd_f32(x).to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The bits of the nearest f16.
pub fn to_f16(x: f64) -> u16 {
    f16::from_f32(round_to_odd_f32(x)).to_bits()
}

/// Rounds to f32 towards zero, and sets the last bit if the result is inexact. NaN and numbers beyond the range are kept.
fn round_to_odd_f32(x: f64) -> f32 {
    let near = x as f32;
    if near as f64 == x || x.is_nan() || near.is_infinite() {
        return near;
    }
    let cut = if (near as f64).abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(cut | 1)
}

/// Rounds an integer to f64 towards zero, and sets the last bit if the result is inexact.
pub fn round_to_odd_f64(x: i128) -> f64 {
    let near = x as f64;
    let back = near as i128;
    if back == x {
        return near;
    }
    let cut = if back.unsigned_abs() > x.unsigned_abs() { near.to_bits() - 1 } else { near.to_bits() };
    f64::from_bits(cut | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// The nearest of all finite values of a type, by exhaustive comparison.
    fn nearest(x: f64, value: impl Fn(u16) -> f64) -> u16 {
        let mut best = 0u16;
        for bits in 0..=u16::MAX {
            let v = value(bits);
            if !v.is_finite() || v.is_sign_negative() != x.is_sign_negative() {
                continue;
            }
            let (d, b) = ((v - x).abs(), (value(best) - x).abs());
            let first = value(best).is_sign_negative() != x.is_sign_negative();
            if first || d < b || (d == b && bits & 1 == 0) {
                best = bits;
            }
        }
        best
    }

    #[test]
    fn numbers_around_every_kind_of_middle_go_to_the_nearest() {
        for (value, rounded, step) in [
            (&(|b| bf16::from_bits(b).to_f64()) as &dyn Fn(u16) -> f64, to_bf16 as fn(f64) -> u16, 1u16),
            (&|b| f16::from_bits(b).to_f64(), to_f16, 1),
        ] {
            for low in [0u16, 1, 2, 0x7f, 0x80, 0x3f80, 0x3f81, 0x3c00, 0x3c01, 0x7000] {
                let middle = (value(low) + value(low + step)) / 2.0;
                for nudge in [0.0, 1e-15, -1e-15, 1e-9, -1e-9, 3e-8] {
                    for sign in [1.0, -1.0] {
                        let x = middle * (1.0 + nudge) * sign;
                        assert_eq!(rounded(x), nearest(x, value), "{x:e} between {} and its next", value(low));
                    }
                }
            }
        }
        // The bits of an f32 just above the midpoint of two bf16 numbers.
        assert_eq!(to_bf16(f32::from_bits(0x3f80_8001) as f64), 0x3f81);
        assert_eq!(to_bf16(f64::MAX), 0x7f80);
        assert_eq!(to_f16(-1e300), 0xfc00);
        assert!(bf16::from_bits(to_bf16(f64::NAN)).is_nan());
    }

    #[test]
    fn integers_keep_what_was_cut_off() {
        for x in [(1i128 << 60) + 1, (1 << 60) - 1, -(1 << 62) - 3, i64::MAX as i128, u64::MAX as i128] {
            let odd = round_to_odd_f64(x);
            let unit = 2i128.pow(x.unsigned_abs().ilog2() - 52);
            assert!(odd.to_bits() & 1 == 1 && (odd as i128 - x).abs() < unit, "{x}");
        }
        assert_eq!(round_to_odd_f64(-7), -7.0);
    }
}
