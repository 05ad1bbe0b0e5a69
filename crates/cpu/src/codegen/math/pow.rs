//! x to the power y: exp(y log |x|), and log10. f32 lanes are computed in f64, half a register at a time, with an error of at
//! most 1 ulp. In f64, the logarithm has two parts, and so has the exponential before its last addition: the error is at most 1
//! ulp, and the result is exact where it is representable.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::double::{F64Ops, LN2_HI, LN2_LO};
use super::float::Float;
use ir::Compare;
use std::f64::consts::LOG10_E;

/// 1 / log 10 minus its f64 value.
const LOG10_E_REST: f64 = 1.098319650216765e-17;

pub(crate) fn pow(lo: &mut Lower<'_>, wide: bool, x: V, y: V) -> V {
    let usual = magnitude(lo, wide, x, y, false);
    let mut f = Float::new(lo, wide);
    // Most lanes have a positive base that is not a special number, and a finite exponent.
    let odd_base = f.is_special(x);
    let b = f.abs(y);
    let inf = f.k(f64::INFINITY);
    let odd_power = f.not_less(b, inf);
    let odd = f.or_mask(odd_base, odd_power);
    f.if_any_lane(odd, usual, |f| of_any(f.lo, wide, x, y))
}

/// Computes |x| to the power y in f64, by halves where f32 lanes fill a register.
fn magnitude(lo: &mut Lower<'_>, wide: bool, a: V, y: V, any: bool) -> V {
    let lanes = lo.l;
    if wide {
        return wide_magnitude(lo, a, y, any);
    }
    if 8 * lanes <= lo.full().bytes() {
        return positive(lo, a, y, any);
    }
    let (ah, yh) = (lo.high_half(a), lo.high_half(y));
    lo.l = lanes / 2;
    let low = positive(lo, a, y, any);
    let high = positive(lo, ah, yh, any);
    lo.l = lanes;
    lo.join_halves(low, high)
}

/// Handles all numbers.
fn of_any(lo: &mut Lower<'_>, wide: bool, x: V, y: V) -> V {
    let a = Float::new(lo, wide).abs(x);
    let r = magnitude(lo, wide, a, y, true);
    let mut f = Float::new(lo, wide);
    // For a negative base, odd powers are negative, and powers that are not integers are NaN (unless the base is infinite).
    let whole = is_whole(&mut f, y);
    let half = f.k(0.5);
    let half_y = f.mul(y, half);
    let even = is_whole(&mut f, half_y);
    let not_even = f.not_mask(even);
    let odd = f.and_mask(whole, not_even);
    let signed = f.with_sign(r, x);
    let r = f.select(odd, signed, r);
    let (zero, lowest) = (f.k(0.0), f.k(f64::NEG_INFINITY));
    let negative = f.compare(Compare::Lt, x, zero);
    let finite = f.compare(Compare::Gt, x, lowest);
    let bad = f.and_mask(negative, finite);
    let broken = f.not_mask(whole);
    let bad = f.and_mask(bad, broken);
    let nan = f.k(f64::NAN);
    let r = f.select(bad, nan, r);
    // One to any power, anything to the power zero, and minus one to an infinite power are one.
    let one = f.k(1.0);
    let base_one = f.compare(Compare::Eq, x, one);
    let power_zero = f.compare(Compare::Eq, y, zero);
    let unit = f.compare(Compare::Eq, a, one);
    let b = f.abs(y);
    let inf = f.k(f64::INFINITY);
    let infinite = f.compare(Compare::Eq, b, inf);
    let edge = f.and_mask(unit, infinite);
    let m = f.or_mask(base_one, power_zero);
    let m = f.or_mask(m, edge);
    f.select(m, one, r)
}

fn is_whole(f: &mut Float<'_, '_>, y: V) -> V {
    let rounded = f.round_to_integer(y, 11);
    f.compare(Compare::Eq, y, rounded)
}

fn positive(lo: &mut Lower<'_>, a: V, y: V, any: bool) -> V {
    let w = lo.w64();
    let (a, y) = (lo.v2(&enc::CVTPS2PD, w, a), lo.v2(&enc::CVTPS2PD, w, y));
    let mut d = F64Ops(lo);
    let log = if any { d.log(a) } else { d.log_normal(a) };
    let t = lo.v3(&enc::MULPD, w, log, y);
    let e = F64Ops(lo).exp_for_f32(t);
    lo.v2(&enc::CVTPD2PS, w, e)
}

/// Computes a to the power y in f64, for a ≥ 0, and unless `any` only for normal ones.
fn wide_magnitude(lo: &mut Lower<'_>, a: V, y: V, any: bool) -> V {
    let (high, low) = log(lo, a, any);
    let mut f = Float::new(lo, true);
    let t = f.mul(y, high);
    let rest = f.mas(y, high, t);
    let rest = f.mad(y, low, rest);
    // Where the result overflows or underflows, the rest may be NaN and must not be used.
    let size = f.abs(t);
    let limit = f.k(800.0);
    let usual = f.compare(Compare::Lt, size, limit);
    let zero = f.kr(0.0);
    let rest = f.select(usual, rest, zero);
    F64Ops(f.lo).exp_sum(t, rest)
}

/// Computes log x / log 10 in f64, from a logarithm in two parts. At most 1 ulp, and exact where it is representable.
pub(super) fn log10_f64(lo: &mut Lower<'_>, x: V) -> V {
    let usual = tenth_logarithm(lo, x, false);
    let mut f = Float::new(lo, true);
    let unusual = f.is_special(x);
    f.if_any_lane(unusual, usual, |f| {
        let y = tenth_logarithm(f.lo, x, true);
        F64Ops(f.lo).log_specials(x, y)
    })
}

fn tenth_logarithm(lo: &mut Lower<'_>, x: V, any: bool) -> V {
    let (high, low) = log(lo, x, any);
    let mut f = Float::new(lo, true);
    let (by, by_low) = (f.k(LOG10_E), f.k(LOG10_E_REST));
    let t = f.mul(high, by);
    let rest = f.mas(high, by, t);
    let rest = f.mad(high, by_low, rest);
    let rest = f.mad(low, by, rest);
    f.add(t, rest)
}

/// Computes log₁₀ of f32 lanes in f64. At most 1 ulp.
pub(super) fn log10_f32(lo: &mut Lower<'_>, x: V) -> V {
    let lanes = lo.l;
    if 8 * lanes <= lo.full().bytes() {
        return log10_by_double(lo, x);
    }
    let high = lo.high_half(x);
    lo.l = lanes / 2;
    let (low, high) = (log10_by_double(lo, x), log10_by_double(lo, high));
    lo.l = lanes;
    lo.join_halves(low, high)
}

fn log10_by_double(lo: &mut Lower<'_>, x: V) -> V {
    let w = lo.w64();
    let x = lo.v2(&enc::CVTPS2PD, w, x);
    let y = F64Ops(lo).log(x);
    let mut f = Float::new(lo, true);
    let by = f.k(LOG10_E);
    let y = f.mul(y, by);
    lo.v2(&enc::CVTPD2PS, w, y)
}

/// Returns log a as a sum with a relative error near 2⁻⁶⁵: 2s + s z (2/3 + z Q(z)) with s = f / (2 + f) and z = s².
fn log(lo: &mut Lower<'_>, a: V, any: bool) -> (V, V) {
    let mut d = F64Ops(lo);
    let (e, frac, _) = if any { d.split(a) } else { d.split_normal(a) };
    let mut f = Float::new(lo, true);
    let (one, two) = (f.kr(1.0), f.k(2.0));
    let d = f.add(frac, two);
    let back = f.sub(d, two);
    let d_low = f.sub(frac, back);
    let inverse = f.div(one, d);
    let s = f.mul(frac, inverse);
    let r = f.nmad(s, d, frac);
    let r = f.nmad(s, d_low, r);
    let s_low = f.mul(r, inverse);
    let z = f.mul(s, s);
    let z_low = f.mas(s, s, z);
    let twice = f.add(s, s);
    let z_low = f.mad(twice, s_low, z_low);
    let (third, third_low) = (f.k(0.6666666666666666), f.k(3.700743415417188e-17));
    let t = f.mul(z, third);
    let t_low = f.mas(z, third, t);
    let t_low = f.mad(z, third_low, t_low);
    let t_low = f.mad(z_low, third, t_low);
    let q = f.poly(z, &LOG);
    let zz = f.mul(z, z);
    let more = f.mul(zz, q);
    // (p, p_low) = t + more + t_low.
    let p = f.add(t, more);
    let back = f.sub(p, t);
    let p_low = f.sub(more, back);
    let p_low = f.add(p_low, t_low);
    let u = f.mul(s, p);
    let u_low = f.mas(s, p, u);
    let u_low = f.mad(s, p_low, u_low);
    let u_low = f.mad(s_low, p, u_low);
    let h = f.add(twice, u);
    let back = f.sub(h, twice);
    let low = f.sub(u, back);
    let low = f.add(low, u_low);
    let low = f.mad(s_low, two, low);
    // Add e log 2, whose first part is exact.
    let (hi, rest) = (f.k(LN2_HI), f.k(LN2_LO));
    let big = f.mul(e, hi);
    let sum = f.add(big, h);
    let back = f.sub(sum, big);
    let small = f.sub(h, back);
    let low = f.add(low, small);
    let low = f.mad(e, rest, low);
    let high = f.add(sum, low);
    let back = f.sub(high, sum);
    let low = f.sub(low, back);
    let high = if any { F64Ops(f.lo).log_specials(a, high) } else { high };
    (high, low)
}

/// The polynomial (log((1 + s)/(1 - s))/s - 2 - 2z/3) / z² in powers of z = s².
const LOG: [f64; 8] = [
    0.11723603622905411,
    0.11706195689881364,
    0.13334806212100603,
    0.15384594934597917,
    0.1818181833565416,
    0.22222222221654733,
    0.2857142857142937,
    0.4,
];
