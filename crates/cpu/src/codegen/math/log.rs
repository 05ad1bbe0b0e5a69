//! log, log2, log1p.
//!
//! x = 2ᵉ (1 + f) with 1 + f between √½ and √2.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::float::Float;
use ir::Compare;
use ir::DType;

/// The polynomial (log(1 + f) - f + f²/2) / f³.
const LOG: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// The parts of x = 2ᵉ (1 + f), with log(1 + f) = f + `rest`.
struct Parts {
    e: V,
    f: V,
    rest: V,
}

/// Returns the parts of any number; subnormal ones are scaled up first.
fn parts(lo: &mut Lower<'_>, x: V) -> Parts {
    let tiny = lo.k(f32::MIN_POSITIVE);
    let small = lo.compare(Compare::Lt, DType::F32, x, tiny);
    let two_25 = lo.k(33_554_432.0);
    let scaled = lo.mul(x, two_25);
    let x = lo.choose(small, scaled, x);
    let Parts { e, f, rest } = normal_parts(lo, x);
    let less = lo.k(25.0);
    let lower = lo.sub(e, less);
    Parts { e: lo.choose(small, lower, e), f, rest }
}

/// Returns the parts of a number that is not subnormal.
fn normal_parts(lo: &mut Lower<'_>, x: V) -> Parts {
    let w = lo.w32();
    let sqrt_half = lo.c32(0x3f35_04f3);
    let i = lo.isub(x, sqrt_half);
    let e = lo.sar(i, 23);
    let exponent = lo.shl(e, 23);
    let m = lo.isub(x, exponent);
    let e = lo.v2(&enc::CVTDQ2PS, w, e);
    let one = lo.k(1.0);
    let f = lo.sub(m, one);
    let z = lo.mul(f, f);
    let p = lo.poly(f, &LOG);
    let half = lo.k(-0.5);
    let p = lo.mad(p, f, half);
    let rest = lo.mul(z, p);
    Parts { e, f, rest }
}

/// Replaces `y` by the result for 0, infinity, negative numbers and NaN.
fn specials(lo: &mut Lower<'_>, x: V, y: V) -> V {
    let inf = lo.k(f32::INFINITY);
    let top = lo.compare(Compare::Eq, DType::F32, x, inf);
    let y = lo.choose(top, inf, y);
    let zero = lo.k(0.0);
    let bottom = lo.compare(Compare::Eq, DType::F32, x, zero);
    let minus_inf = lo.k(f32::NEG_INFINITY);
    let y = lo.choose(bottom, minus_inf, y);
    // Not greater or equal: negative or NaN.
    let bad = lo.cmp_float(false, 0x19, x, zero);
    let nan = lo.k(f32::NAN);
    lo.choose(bad, nan, y)
}

/// Computes a function from the parts of x. Zero, subnormal, negative and infinite numbers are handled in a branch that is
/// skipped if there are none.
fn by_parts(lo: &mut Lower<'_>, x: V, join: fn(&mut Lower<'_>, Parts) -> V) -> V {
    let own = normal_parts(lo, x);
    let y = join(lo, own);
    let mut f = Float::new(lo, false);
    let unusual = f.is_special(x);
    f.if_any_lane(unusual, y, |f| {
        let own = parts(f.lo, x);
        let y = join(f.lo, own);
        specials(f.lo, x, y)
    })
}

/// Computes e log 2 + f + `rest`.
fn joined(lo: &mut Lower<'_>, Parts { e, f, rest }: Parts) -> V {
    let (low, high) = (lo.k(-2.121_944_4e-4), lo.k(0.693_359_4));
    let y = lo.mad(e, low, rest);
    let y = lo.add(y, f);
    lo.mad(e, high, y)
}

/// Computes log. At most 1 ulp.
pub(super) fn log(lo: &mut Lower<'_>, x: V) -> V {
    by_parts(lo, x, joined)
}

/// Computes log₂. At most 2 ulp.
pub(super) fn log2(lo: &mut Lower<'_>, x: V) -> V {
    by_parts(lo, x, |lo, Parts { e, f, rest }| {
        // log₂ e - 1, so that the terms with factor 1 are added exactly.
        let more = lo.k(0.442_695_04);
        let a = lo.mul(rest, more);
        let a = lo.mad(f, more, a);
        let a = lo.add(a, rest);
        let a = lo.add(a, f);
        lo.add(a, e)
    })
}

/// Computes log(u) + (x - (u - 1)) / u with u = 1 + x, which is never subnormal. At most 2 ulp.
pub(super) fn log1p(lo: &mut Lower<'_>, x: V) -> V {
    let one = lo.k(1.0);
    let u = lo.add(x, one);
    let back = lo.sub(u, one);
    let c = lo.sub(x, back);
    let c = lo.div(c, u);
    let own = normal_parts(lo, u);
    let y = joined(lo, own);
    let y = lo.add(y, c);
    let mut f = Float::new(lo, false);
    let unusual = f.is_special(u);
    let y = f.if_any_lane(unusual, y, |f| specials(f.lo, u, y));
    // log1p has the sign of its argument, also at zero.
    lo.with_sign(y, x)
}
