//! x to the power y in f32, through f64: exp(y log |x|), half a register at a time. At most 1 ulp.

use super::super::enc;
use super::super::inst::{Rm, V};
use super::super::lower::Lower;
use super::double::Double;
use ir::{Binary, Compare, DType};

const F: DType = DType::F32;

pub(crate) fn pow(lo: &mut Lower<'_>, x: V, y: V) -> V {
    let a = lo.abs(x);
    let lanes = lo.l;
    let r = if 8 * lanes <= lo.full().bytes() {
        positive(lo, a, y)
    } else {
        let (ah, yh) = (lo.high_half(a), lo.high_half(y));
        lo.l = lanes / 2;
        let low = positive(lo, a, y);
        let high = positive(lo, ah, yh);
        lo.l = lanes;
        lo.join_halves(low, high)
    };
    // A negative base: odd powers are negative, powers that are not whole are NaN (unless the base is infinite).
    let whole = is_whole(lo, y);
    let half = lo.k(0.5);
    let half_y = lo.mul(y, half);
    let even = is_whole(lo, half_y);
    let not_even = lo.mask_not(even);
    let odd = lo.mask_logic(Binary::And, whole, not_even);
    let sign = lo.and(x, 0x8000_0000);
    let signed = lo.or(r, sign);
    let r = lo.choose(odd, signed, r);
    let (zero, lowest) = (lo.k(0.0), lo.k(f32::NEG_INFINITY));
    let negative = lo.compare(Compare::Lt, F, x, zero);
    let finite = lo.compare(Compare::Gt, F, x, lowest);
    let bad = lo.mask_logic(Binary::And, negative, finite);
    let broken = lo.mask_not(whole);
    let bad = lo.mask_logic(Binary::And, bad, broken);
    let nan = lo.k(f32::NAN);
    let r = lo.choose(bad, nan, r);
    // One to any power, anything to the power zero, and minus one to an infinite power are one.
    let one = lo.k(1.0);
    let base_one = lo.compare(Compare::Eq, F, x, one);
    let power_zero = lo.compare(Compare::Eq, F, y, zero);
    let unit = lo.compare(Compare::Eq, F, a, one);
    let b = lo.abs(y);
    let inf = lo.k(f32::INFINITY);
    let infinite = lo.compare(Compare::Eq, F, b, inf);
    let edge = lo.mask_logic(Binary::And, unit, infinite);
    let m = lo.mask_logic(Binary::Or, base_one, power_zero);
    let m = lo.mask_logic(Binary::Or, m, edge);
    lo.choose(m, one, r)
}

fn is_whole(lo: &mut Lower<'_>, y: V) -> V {
    let (enc, w) = (if lo.wide_target() { &enc::RNDSCALEPS } else { &enc::ROUNDPS }, lo.w32());
    let rounded = lo.v2i(enc, w, y, 11);
    lo.compare(Compare::Eq, F, y, Rm::R(rounded))
}

fn positive(lo: &mut Lower<'_>, a: V, y: V) -> V {
    let w = lo.w64();
    let (a, y) = (lo.v2(&enc::CVTPS2PD, w, a), lo.v2(&enc::CVTPS2PD, w, y));
    let log = Double(lo).log(a);
    let t = lo.v3(&enc::MULPD, w, log, y);
    let e = Double(lo).exp(t);
    lo.v2(&enc::CVTPD2PS, w, e)
}
