//! exp and functions based on it: exp2, expm1, logistic, tanh.
//!
//! x = n ln 2 + r with |r| ≤ ln 2 / 2, so eˣ = 2ⁿ eʳ. Adding 1.5 · 2²³ leaves the rounded n in the low bits of a float.

use super::super::enc;
use super::super::inst::{FmaKind, V};
use super::super::lower::Lower;
use super::float::Float;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN2: f32 = std::f32::consts::LN_2;
/// ln 2 minus its f32 value.
const LN2_REST: f32 = -1.904_654_2e-9;
/// 1.5 · 2²³.
const MAGIC: f32 = 12_582_912.0;
/// The polynomial (eʳ - 1 - r) / r².
const EXP: [f32; 5] = [0.001_392_637_6, 0.008_363_333_5, 0.041_666_552, 0.166_665_76, 0.5];
/// The polynomial (2ʳ - 1) / r.
const EXP2: [f32; 6] = [0.000_154_533_61, 0.001_339_109_4, 0.009_618_082, 0.055_503_566, 0.240_226_5, LN2];

/// A reduced argument: `shifted` has n in its low bits, `n` is the same as a float.
struct Reduced {
    shifted: V,
    n: V,
    r: V,
}

fn reduce(lo: &mut Lower<'_>, x: V) -> Reduced {
    let (log2e, magic) = (lo.k(LOG2_E), lo.k(MAGIC));
    let shifted = lo.mad(x, log2e, magic);
    let n = lo.sub(shifted, magic);
    let (hi, rest) = (lo.k(LN2), lo.k(LN2_REST));
    let r = lo.nmad(n, hi, x);
    let r = lo.nmad(n, rest, r);
    Reduced { shifted, n, r }
}

/// Computes eʳ.
fn exp_poly(lo: &mut Lower<'_>, r: V) -> V {
    let p = lo.poly(r, &EXP);
    let one = lo.k(1.0);
    let p = lo.mad(p, r, one);
    lo.mad(p, r, one)
}

/// Computes `p * 2ⁿ` for n from -190 to 190, rounded once.
fn scale(lo: &mut Lower<'_>, p: V, shifted: V, n: V) -> V {
    if lo.wide_target() {
        let w = lo.w32();
        return lo.v3(&enc::SCALEFPS, w, p, n);
    }
    // In two steps, of which only the second can round.
    let magic = lo.c32(MAGIC.to_bits());
    let i = lo.isub(shifted, magic);
    let half = lo.sar(i, 1);
    let rest = lo.isub(i, half);
    let one = lo.k(1.0);
    let mut p = p;
    for part in [half, rest] {
        let e = lo.shl(part, 23);
        let power = lo.iadd(e, one);
        p = lo.mul(p, power);
    }
    p
}

/// Computes 1 - eˣ for finite x of moderate size, where eˣ is normal.
pub(super) fn one_minus_exp(lo: &mut Lower<'_>, x: V) -> V {
    let Reduced { shifted, r, .. } = reduce(lo, x);
    let p = exp_poly(lo, r);
    let e = lo.shl(shifted, 23);
    let one = lo.k(1.0);
    let power = lo.iadd(e, one);
    lo.nmad(p, power, one)
}

/// Computes eˣ. At most 1 ulp.
pub(super) fn exp(lo: &mut Lower<'_>, x: V) -> V {
    let x = lo.clamp(x, Some(-105.0), Some(90.0));
    let Reduced { shifted, n, r } = reduce(lo, x);
    let p = exp_poly(lo, r);
    scale(lo, p, shifted, n)
}

/// Computes e⁻ˣ for x from -130 to 130: like [`exp`], without its bounds, and without a negation.
pub(super) fn exp_of_minus(lo: &mut Lower<'_>, x: V) -> V {
    let (log2e, magic) = (lo.k(LOG2_E), lo.k(MAGIC));
    let shifted = lo.nmad(x, log2e, magic);
    let n = lo.sub(shifted, magic);
    let (hi, rest) = (lo.k(LN2), lo.k(LN2_REST));
    // The negated reduced argument: odd powers change their sign.
    let r = lo.mad(n, hi, x);
    let r = lo.mad(n, rest, r);
    let p = lo.poly(r, &[EXP[0], -EXP[1], EXP[2], -EXP[3], EXP[4]]);
    let (minus, one) = (lo.k(-1.0), lo.k(1.0));
    let p = lo.mad(p, r, minus);
    let p = lo.mad(p, r, one);
    scale(lo, p, shifted, n)
}

/// Computes 2ˣ. At most 1 ulp.
pub(super) fn exp2(lo: &mut Lower<'_>, x: V) -> V {
    let x = lo.clamp(x, Some(-151.0), Some(129.0));
    let magic = lo.k(MAGIC);
    let shifted = lo.add(x, magic);
    let n = lo.sub(shifted, magic);
    let r = lo.sub(x, n);
    let p = lo.poly(r, &EXP2);
    let one = lo.k(1.0);
    let p = lo.mad(p, r, one);
    scale(lo, p, shifted, n)
}

/// Computes eʳ - 1.
fn expm1_poly(lo: &mut Lower<'_>, r: V) -> V {
    let q = lo.poly(r, &EXP);
    let s = lo.mul(r, r);
    lo.mad(s, q, r)
}

/// Returns (eʳ - 1, 2ⁿ⁻²) of x = n ln 2 + r, for n from -124 to 129.
pub(super) fn exp_quarter(lo: &mut Lower<'_>, x: V) -> (V, V) {
    let Reduced { shifted, r, .. } = reduce(lo, x);
    let p = expm1_poly(lo, r);
    let e = lo.shl(shifted, 23);
    let quarter = lo.k(0.25);
    (p, lo.iadd(e, quarter))
}

/// Computes eˣ - 1. At most 2 ulp.
pub(super) fn expm1(lo: &mut Lower<'_>, given: V) -> V {
    let x = lo.clamp(given, Some(-20.0), Some(88.8));
    let Reduced { shifted, r, .. } = reduce(lo, x);
    let p = expm1_poly(lo, r);
    // 2ⁿ⁻¹ (eʳ - 1) + (2ⁿ⁻¹ - 1/2), doubled: 2ⁿ itself may overflow.
    let e = lo.shl(shifted, 23);
    let half = lo.k(0.5);
    let s = lo.iadd(e, half);
    let t = lo.sub(s, half);
    let y = lo.mad(p, s, t);
    let y = lo.add(y, y);
    let size = lo.abs(given);
    let y = Float::new(lo, false).keep_tiny(size, y);
    lo.with_sign(y, given)
}

/// Computes 1 / (1 + e⁻ˣ) as 2⁻³² / (2⁻³² + 2⁻³² e⁻ˣ), so that nothing overflows while the result underflows.
/// At most 2.5 ulp.
pub(super) fn logistic(lo: &mut Lower<'_>, x: V) -> V {
    const SCALE: f32 = 1.0 / 4_294_967_296.0;
    let x = lo.clamp(x, Some(-105.0), Some(60.0));
    let (log2e, magic) = (lo.k(LOG2_E), lo.k(MAGIC));
    // n and r of -x.
    let shifted = lo.nmad(x, log2e, magic);
    let n = lo.sub(shifted, magic);
    let (hi, rest) = (lo.k(LN2), lo.k(LN2_REST));
    // x + n ln 2 = -r
    let minus_r = lo.mad(n, hi, x);
    let minus_r = lo.mad(n, rest, minus_r);
    // e⁻ʳ - 1 from -r: the odd powers change their sign.
    let q = lo.poly(minus_r, &[EXP[0], -EXP[1], EXP[2], -EXP[3], EXP[4]]);
    let s = lo.mul(minus_r, minus_r);
    let em1 = lo.fma_kind(FmaKind::Sub, false, s, q, minus_r);
    let small = lo.k(SCALE);
    let e = lo.shl(shifted, 23);
    let power = lo.iadd(e, small);
    // The sum of two powers of two is exact where it matters.
    let both = lo.add(power, small);
    let d = lo.mad(em1, power, both);
    let one = lo.kr(SCALE);
    lo.div(one, d)
}

/// Computes t / (t + 1) with t = (e²ˣ - 1) / 2. At most 2.5 ulp.
pub(super) fn tanh(lo: &mut Lower<'_>, given: V) -> V {
    let a = lo.abs(given);
    let a = lo.clamp(a, None, Some(9.02));
    let (log2e, magic) = (lo.k(2.0 * LOG2_E), lo.k(MAGIC));
    let shifted = lo.mad(a, log2e, magic);
    let n = lo.sub(shifted, magic);
    // h = r / 2, with the powers of two in the coefficients. The error of ln 2's f32 value grows with n, but so does
    // t, and t / (t + 1) depends less and less on it.
    let hi = lo.k(LN2 / 2.0);
    let h = lo.nmad(n, hi, a);
    let q = lo.poly(h, &[EXP[0] * 32.0, EXP[1] * 16.0, EXP[2] * 8.0, EXP[3] * 4.0, EXP[4] * 2.0]);
    let s = lo.mul(h, h);
    // (eʳ - 1) / 2
    let p = lo.mad(s, q, h);
    let e = lo.shl(shifted, 23);
    let (one, half, minus_half) = (lo.k(1.0), lo.k(0.5), lo.k(-0.5));
    let power = lo.iadd(e, one);
    let t = lo.mad(power, half, minus_half);
    let t = lo.mad(p, power, t);
    let d = lo.add(t, one);
    let y = lo.div(t, d);
    lo.with_sign(y, given)
}
