//! asin, acos, atan and atan2 on lanes of either width.
//!
//! Each is a polynomial in z = t² on a short range, t + t z P(z); all other arguments are reduced to it by symmetry.

use super::super::inst::V;
use super::float::Float;
use ir::Compare;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// π/2 minus its f64 value.
const PI_2_REST: f64 = 6.123233995736766e-17;
/// π/2 minus its f32 value.
const PI_2_REST_NARROW: f64 = -4.371139000186241e-8;
/// tan π/8.
const TAN_PI_8: f64 = 0.41421356237309503;

/// The polynomial of atan on 0 to 1, for f32.
const ATAN_NARROW: [f64; 9] = [
    -0.0017935916548594832,
    0.010914458893239498,
    -0.031177546828985214,
    0.05795726552605629,
    -0.08403429388999939,
    0.1095217764377594,
    -0.14264239370822906,
    0.19998547434806824,
    -0.33333298563957214,
];
/// The polynomial of atan up to tan π/8, for f64.
const ATAN: [f64; 12] = [
    0.016284375050043393,
    -0.03456931506332609,
    0.045515447340221615,
    -0.05230443640686948,
    0.05878927554473807,
    -0.0666642476020052,
    0.07692296368042296,
    -0.09090908753259112,
    0.11111111105150588,
    -0.14285714285659779,
    0.19999999999999804,
    -0.3333333333333333,
];
const ASIN_NARROW: [f64; 6] = [
    0.03369084745645523,
    0.017149237915873528,
    0.031100662425160408,
    0.04459940269589424,
    0.07500094175338745,
    0.1666666567325592,
];
const ASIN: [f64; 13] = [
    0.028757851367421566,
    -0.014851887071247204,
    0.01740087944269402,
    0.005457506718640358,
    0.01032281435018578,
    0.011479177415184906,
    0.013971212973552933,
    0.017352392720869973,
    0.02237217294214989,
    0.030381944138531247,
    0.04464285714635543,
    0.07499999999998433,
    0.16666666666666669,
];

impl Float<'_, '_> {
    fn pi_2_rest(&self) -> f64 {
        self.pick(PI_2_REST_NARROW, PI_2_REST)
    }

    /// Computes atan(num / den) for 0 ≤ num ≤ den, not both zero or infinite. In f64 above tan π/8 it is
    /// π/4 + atan((num - den) / (num + den)).
    fn atan_ratio(&mut self, num: V, den: V) -> V {
        if !self.wide {
            let t = self.div(num, den);
            let z = self.mul(t, t);
            let p = self.poly(z, &ATAN_NARROW);
            let tz = self.mul(t, z);
            return self.mad(p, tz, t);
        }
        // Scale by a half, so that the sum of two huge numbers stays finite; scale tiny numbers up, so that they keep all digits.
        let (half, least) = (self.kr(0.5), self.k(2f64.powi(-900)));
        let tiny = self.compare(Compare::Lt, den, least);
        let up = self.k(2f64.powi(200));
        let by = self.select(tiny, up, half);
        let (hn, hd) = (self.mul(num, by), self.mul(den, by));
        let limit = self.k(TAN_PI_8);
        let edge = self.mul(hd, limit);
        let far = self.compare(Compare::Gt, hn, edge);
        let (less, more) = (self.sub(hn, hd), self.add(hn, hd));
        let (n, d) = (self.select(far, less, num), self.select(far, more, den));
        let t = self.div(n, d);
        let z = self.mul(t, t);
        let p = self.poly(z, &ATAN);
        let tz = self.mul(t, z);
        let (zero, quarter) = (self.kr(0.0), self.k(FRAC_PI_4));
        let base = self.select(far, quarter, zero);
        let rest = self.k(self.pi_2_rest() / 2.0);
        let rest = self.select(far, rest, zero);
        let small = self.mad(p, tz, rest);
        let y = self.add(small, t);
        self.add(base, y)
    }

    /// Computes atan. At most 2 ulp.
    pub(super) fn atan(&mut self, x: V) -> V {
        let a = self.abs(x);
        let one = self.k(1.0);
        let first = self.kr(1.0);
        let large = self.compare(Compare::Gt, a, one);
        let (num, den) = (self.select(large, one, a), self.select(large, a, first));
        let y = self.atan_ratio(num, den);
        let y = self.from_pole(large, y);
        self.with_sign(y, x)
    }

    /// Returns π/2 - y where `m` is on.
    fn from_pole(&mut self, m: V, y: V) -> V {
        let rest = self.kr(self.pi_2_rest());
        let other = self.sub(rest, y);
        let half = self.k(FRAC_PI_2);
        let other = self.add(other, half);
        self.select(m, other, y)
    }

    /// Computes the angle of (x, y). At most 3 ulp.
    pub(super) fn atan2(&mut self, y: V, x: V) -> V {
        let (ax, ay) = (self.abs(x), self.abs(y));
        let steep = self.compare(Compare::Gt, ay, ax);
        let (num, den) = (self.select(steep, ax, ay), self.select(steep, ay, ax));
        // If both are zero or both are infinite, the ratio is 0 or 1.
        let (zero, one, inf) = (self.k(0.0), self.kr(1.0), self.k(f64::INFINITY));
        let nothing = self.compare(Compare::Eq, den, zero);
        let all = self.compare(Compare::Eq, num, inf);
        let odd = self.or_mask(nothing, all);
        let den = self.select(odd, one, den);
        let num = self.select(all, one, num);
        let r = self.atan_ratio(num, den);
        let r = self.from_pole(steep, r);
        // Use the sign bit to test for negative x, since there are two zeros.
        let marked = self.with_sign(one, x);
        let left = self.compare(Compare::Lt, marked, zero);
        let rest = self.kr(2.0 * self.pi_2_rest());
        let other = self.sub(rest, r);
        let pi = self.k(PI);
        let other = self.add(other, pi);
        let r = self.select(left, other, r);
        let r = self.with_sign(r, y);
        // The minimum and maximum lose a NaN.
        let sum = self.add(x, y);
        let bad = self.lo.cmp_float(self.wide, 3, x, y);
        self.select(bad, sum, r)
    }

    /// Returns (|x| > 1/2, s, asin(s) - s): s is |x|, or √((1 - |x|)/2) above 1/2.
    fn asin_parts(&mut self, x: V) -> (V, V, V) {
        let a = self.abs(x);
        let half = self.k(0.5);
        let far = self.compare(Compare::Gt, a, half);
        let minus_half = self.kr(-0.5);
        // (1 - a) / 2.
        let z = self.mad(a, minus_half, half);
        let root = self.sqrt(z);
        let square = self.mul(a, a);
        let (z, s) = (self.select(far, z, square), self.select(far, root, a));
        let p = if self.wide { self.poly(z, &ASIN) } else { self.poly(z, &ASIN_NARROW) };
        let zs = self.mul(z, s);
        let more = self.mul(p, zs);
        (far, s, more)
    }

    /// Computes asin. At most 2.5 ulp.
    pub(super) fn asin(&mut self, x: V) -> V {
        let (far, s, more) = self.asin_parts(x);
        let near = self.add(s, more);
        // π/2 - 2 asin(s).
        let rest = self.kr(self.pi_2_rest());
        let (two, half) = (self.k(2.0), self.k(FRAC_PI_2));
        let t = self.nmad(more, two, rest);
        let t = self.nmad(s, two, t);
        let beyond = self.add(t, half);
        let y = self.select(far, beyond, near);
        self.with_sign(y, x)
    }

    /// Computes acos. At most 2.5 ulp.
    pub(super) fn acos(&mut self, x: V) -> V {
        let (far, s, more) = self.asin_parts(x);
        let zero = self.k(0.0);
        let left = self.compare(Compare::Lt, x, zero);
        let both = self.add(s, more);
        // Near zero: π/2 - asin(x). Near 1: 2 asin(s). Near -1: π - 2 asin(s).
        let signed = self.with_sign(both, x);
        let rest = self.kr(self.pi_2_rest());
        let near = self.sub(rest, signed);
        let half = self.k(FRAC_PI_2);
        let near = self.add(near, half);
        let right = self.add(both, both);
        let rest = self.kr(2.0 * self.pi_2_rest());
        let beyond = self.sub(rest, right);
        let pi = self.k(PI);
        let beyond = self.add(beyond, pi);
        let away = self.select(left, beyond, right);
        self.select(far, away, near)
    }
}
