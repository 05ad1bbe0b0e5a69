//! sin, cos and tan. Arguments above 71476 (2³⁰ in f64) use the lane helper.
//!
//! |x| = n π/2 + r with |r| ≤ π/4; π/2 has three parts, and subtracting the first product is exact.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::float::Float;
use compiler::loops::{Op, Reg};
use ir::{Compare, DType, Unary};

const MAGIC_NARROW: f64 = 12_582_912.0;
const MAGIC: f64 = 6_755_399_441_055_744.0;
const PI_2_NARROW: [f64; 3] = [1.570_796_4, -4.371_139e-8, -1.715_124_5e-15];
const PI_2: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
const SIN: [f64; 7] = [
    -7.586636882825159e-13,
    1.6058530596645953e-10,
    -2.50521062259944e-08,
    2.755731921932058e-06,
    -0.0001984126984126504,
    0.008333333333333331,
    -0.16666666666666666,
];
const COS: [f64; 8] = [
    4.745838412531023e-14,
    -1.1470460319209511e-11,
    2.0876755787492604e-09,
    -2.755731922139249e-07,
    2.4801587301584632e-05,
    -0.0013888888888888887,
    0.041666666666666664,
    -0.5,
];

/// Returns the rounded n in the low bits of a float, sin r and cos r.
fn parts(f: &mut Float<'_, '_>, a: V) -> (V, V, V) {
    let (two_pi, magic) = (f.k(std::f64::consts::FRAC_2_PI), f.k(f.pick(MAGIC_NARROW, MAGIC)));
    let shifted = f.mad(a, two_pi, magic);
    let n = f.sub(shifted, magic);
    let mut r = a;
    for part in f.pick(PI_2_NARROW, PI_2) {
        let c = f.k(part);
        r = f.nmad(n, c, r);
    }
    let s = f.mul(r, r);
    let p = f.pick(&[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1][..], &SIN[..]);
    let p = f.poly(s, p);
    let p = f.mul(p, s);
    let sine = f.mad(p, r, r);
    let p = f.pick(&[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5][..], &COS[..]);
    let p = f.poly(s, p);
    let one = f.k(1.0);
    let cosine = f.mad(p, s, one);
    (shifted, sine, cosine)
}

fn bit(f: &mut Float<'_, '_>, x: V, n: u64) -> V {
    let w = f.lo.w(f.dtype());
    let (e, c) = if f.wide { (&enc::PANDQ, f.lo.c64(n)) } else { (&enc::PANDD, f.lo.c32(n as u32)) };
    f.lo.v3(e, w, x, c)
}

fn shifted_up(f: &mut Float<'_, '_>, x: V, n: u8) -> V {
    let w = f.lo.w(f.dtype());
    let e = if f.wide { &enc::PSLLQ_I } else { &enc::PSLLD_I };
    f.lo.v2i(e, w, x, n + if f.wide { 32 } else { 0 })
}

fn is_odd(f: &mut Float<'_, '_>, quadrant: V) -> V {
    let odd = bit(f, quadrant, 1);
    let (d, zero) = if f.wide { (DType::I64, f.lo.c64(0)) } else { (DType::I32, f.lo.c32(0)) };
    f.lo.compare(Compare::Ne, d, odd, zero)
}

/// Replaces lanes with large arguments by the helper's results.
fn fix_large_arguments(f: &mut Float<'_, '_>, op: Unary, x: V, a: V, y: V) -> V {
    let limit = f.k(f.pick(71_476.0, (1u64 << 30) as f64));
    let large = f.compare(Compare::Gt, a, limit);
    f.fix_lanes(large, y, &Op::Unary(op, Reg(0)), &[x])
}

fn sin_cos(lo: &mut Lower<'_>, wide: bool, op: Unary, x: V) -> V {
    let mut f = Float::new(lo, wide);
    let f = &mut f;
    let a = f.abs(x);
    let (shifted, sine, cosine) = parts(f, a);
    // Odd quadrants swap the functions; the second bit of the quadrant is the sign.
    let quadrant = if op == Unary::Cos {
        let w = f.lo.w(f.dtype());
        let (e, one) = if wide { (&enc::PADDQ, f.lo.c64(1)) } else { (&enc::PADDD, f.lo.c32(1)) };
        f.lo.v3(e, w, shifted, one)
    } else {
        shifted
    };
    let swap = is_odd(f, quadrant);
    let y = f.select(swap, cosine, sine);
    let second = bit(f, quadrant, 2);
    let sign = shifted_up(f, second, 30);
    let y = f.xor(y, sign);
    let y = if op == Unary::Sin {
        let own = f.sign(x);
        f.xor(y, own)
    } else {
        y
    };
    fix_large_arguments(f, op, x, a, y)
}

/// Computes sin. At most 2 ulp.
pub(super) fn sin(lo: &mut Lower<'_>, wide: bool, x: V) -> V {
    sin_cos(lo, wide, Unary::Sin, x)
}

/// Computes cos. At most 2 ulp.
pub(super) fn cos(lo: &mut Lower<'_>, wide: bool, x: V) -> V {
    sin_cos(lo, wide, Unary::Cos, x)
}

/// Computes sin / cos, or -cos / sin in odd quadrants. At most 3.5 ulp.
pub(super) fn tan(lo: &mut Lower<'_>, wide: bool, x: V) -> V {
    let mut f = Float::new(lo, wide);
    let f = &mut f;
    let a = f.abs(x);
    let (shifted, sine, cosine) = parts(f, a);
    let swap = is_odd(f, shifted);
    let (num, den) = (f.select(swap, cosine, sine), f.select(swap, sine, cosine));
    let y = f.div(num, den);
    let odd = bit(f, shifted, 1);
    let sign = shifted_up(f, odd, 31);
    let y = f.xor(y, sign);
    let own = f.sign(x);
    let y = f.xor(y, own);
    fix_large_arguments(f, Unary::Tan, x, a, y)
}
