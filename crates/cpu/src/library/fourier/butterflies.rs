//! Butterflies: transforms of a few elements in registers.

use super::lanes::{FftVector, Z, and, minus, number, plus, quarter, scaled};
use crate::gemm::vector::Float;
use crate::thresholds::Threshold;

/// Computes the transform of four elements.
///
/// # Safety
/// The machine has the vectors.
#[inline(always)]
unsafe fn dft4<V: FftVector>(a: [Z<V>; 4]) -> [Z<V>; 4] {
    // SAFETY: as above.
    unsafe {
        let (t0, t1) = (plus(a[0], a[2]), minus(a[0], a[2]));
        let (t2, t3) = (plus(a[1], a[3]), minus(a[1], a[3]));
        let [b1, b3] = quarter(t1, t3);
        [plus(t0, t2), b1, minus(t0, t2), b3]
    }
}

/// The largest radix with a specialized butterfly.
const REGISTERS: usize = 13;

pub(super) const THRESHOLDS: &[Threshold] = &[Threshold::new(
    "fourier.registers",
    REGISTERS,
    "a prime factor of a length: up to here it is transformed in registers",
)];

/// The radices with specialized butterflies, in the order in which they are fastest.
pub(super) const SMALL: [usize; 8] = [8, 4, 2, 3, 5, 7, 11, REGISTERS];

/// Returns a number broadcast to all lanes.
///
/// # Safety
/// The machine has the vectors.
///
/// # Safety
/// The machine has the vectors, and `table` is valid for the factors of radix `R`.
#[inline(always)]
unsafe fn constant<V: FftVector>(x: f64) -> V {
    // SAFETY: as above.
    unsafe { V::splat(V::Elem::from_f64(x)) }
}

/// Computes the transform of `R` elements.
/// `table` has the cosines and sines for radices of 7 and more ([`super::direct_dft::table`]).
#[inline(always)]
pub(super) unsafe fn small<V: FftVector, const R: usize>(a: [Z<V>; R], table: *const V::Elem) -> [Z<V>; R] {
    let mut b = a;
    // SAFETY: as above.
    unsafe {
        match R {
            1 => {}
            2 => (b[0], b[1]) = (plus(a[0], a[1]), minus(a[0], a[1])),
            3 => {
                let t = plus(a[1], a[2]);
                let c = and(t, constant(-0.5), a[0]);
                let d = scaled(minus(a[1], a[2]), constant(0.866_025_403_784_438_6));
                b[0] = plus(a[0], t);
                [b[1], b[2]] = quarter(c, d);
            }
            4 => [b[0], b[1], b[2], b[3]] = dft4([a[0], a[1], a[2], a[3]]),
            8 => {
                let even = dft4([a[0], a[2], a[4], a[6]]);
                let odd = dft4([a[1], a[3], a[5], a[7]]);
                // Multiply by the first, second and third power of the eighth root of unity.
                let eighth = constant::<V>(std::f64::consts::FRAC_1_SQRT_2);
                let (o1, o3) = (odd[1], odd[3]);
                let first = (o1.0.add(o1.1).mul(eighth), o1.1.sub(o1.0).mul(eighth));
                let third = (o3.1.sub(o3.0).mul(eighth), o3.0.add(o3.1).mul(eighth));
                (b[0], b[4]) = (plus(even[0], odd[0]), minus(even[0], odd[0]));
                (b[1], b[5]) = (plus(even[1], first), minus(even[1], first));
                [b[2], b[6]] = quarter(even[2], odd[2]);
                // The imaginary part of the third has the opposite sign.
                b[3] = (even[3].0.add(third.0), even[3].1.sub(third.1));
                b[7] = (even[3].0.sub(third.0), even[3].1.add(third.1));
            }
            5 => {
                let (c1, c2) = (constant(0.309_016_994_374_947_45), constant(-0.809_016_994_374_947_5));
                let (s1, s2) = (constant(0.951_056_516_295_153_5), constant(0.587_785_252_292_473_1));
                let (t1, t2) = (plus(a[1], a[4]), plus(a[2], a[3]));
                let (t3, t4) = (minus(a[1], a[4]), minus(a[2], a[3]));
                let first = and(t2, c2, and(t1, c1, a[0]));
                let second = and(t2, c1, and(t1, c2, a[0]));
                let d1 = and(t4, s2, scaled(t3, s1));
                let d2 = minus(scaled(t3, s2), scaled(t4, s1));
                b[0] = plus(a[0], plus(t1, t2));
                [b[1], b[4]] = quarter(first, d1);
                [b[2], b[3]] = quarter(second, d2);
            }
            _ => {
                let half = R / 2;
                let mut all = a[0];
                // Sums and differences of elements at the same distance from both ends.
                let (mut sums, mut differences) = (a, a);
                for j in 1..=half {
                    sums[j] = plus(a[j], a[R - j]);
                    differences[j] = minus(a[j], a[R - j]);
                    all = plus(all, sums[j]);
                }
                b[0] = all;
                for k in 1..=half {
                    let own = table.add((k - 1) * 2 * half);
                    let (cos, sin) = number(own);
                    let (mut even, mut odd) = (and(sums[1], cos, a[0]), scaled(differences[1], sin));
                    for j in 2..=half {
                        let (cos, sin) = number(own.add(2 * (j - 1)));
                        even = and(sums[j], cos, even);
                        odd = and(differences[j], sin, odd);
                    }
                    [b[k], b[R - k]] = quarter(even, odd);
                }
            }
        }
    }
    b
}
