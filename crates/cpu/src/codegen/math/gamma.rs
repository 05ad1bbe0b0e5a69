//! lgamma and digamma. f32 lanes are computed in f64, half a register at a time: an absolute error in f64 is small compared with
//! any f32 result near the zeros of the functions.
//! lgamma of f64 has a form with factors for its zeros. Negative numbers use the lane helper.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::double::F64Ops;
use super::float::Float;
use compiler::loops::{Op, Reg};
use ir::special::DIGAMMA;
use ir::{Binary, Compare, Unary};

/// The shift of numbers before the asymptotic series.
const SHIFT: usize = 7;

/// The minimum argument of Stirling's series for f64.
const STIRLING: usize = 8;

/// The polynomial lgamma(2 + u) / (u·(1 + u)) for u from -1 to 1, the highest power first.
const NEAR: [f64; 27] = [
    1.4756784497956257e-09,
    -3.045083104616406e-09,
    -3.6707781973177215e-09,
    7.546982106044216e-09,
    1.4354602538186547e-08,
    -2.9689377236178223e-08,
    8.980752931319328e-09,
    -1.9155798912805917e-08,
    1.0090082501416391e-07,
    -2.1160209415295267e-07,
    3.9829198619176525e-07,
    -8.417878185566207e-07,
    1.8101965374585382e-06,
    -3.851628024568635e-06,
    8.221641184688458e-06,
    -1.7660549436859962e-05,
    3.816898383928973e-05,
    -8.30953205143401e-05,
    0.00018255262896164608,
    -0.0004057073767183402,
    0.0009153769228592748,
    -0.0021081308352055112,
    0.00499864116468036,
    -0.012384192193336403,
    0.03296500062115597,
    -0.10031730167435421,
    0.42278433509846713,
];

/// Computes lgamma of f32. At most 2 ulp.
pub(super) fn lgamma(lo: &mut Lower<'_>, x: V) -> V {
    let y = halves(lo, x, lgamma_right);
    outside(lo, false, Unary::Lgamma, x, y)
}

/// Computes digamma of f32. At most 2 ulp.
pub(super) fn digamma(lo: &mut Lower<'_>, x: V) -> V {
    let y = halves(lo, x, digamma_right);
    outside(lo, false, Unary::Digamma, x, y)
}

/// Computes lgamma of f64. At most 3 ulp.
pub(super) fn lgamma_f64(lo: &mut Lower<'_>, x: V) -> V {
    let y = lgamma_exact(lo, x);
    outside(lo, true, Unary::Lgamma, x, y)
}

/// Computes digamma of f64. At most 4 ulp of the larger of the result and 1.
pub(super) fn digamma_f64(lo: &mut Lower<'_>, x: V) -> V {
    let y = digamma_right(lo, x);
    outside(lo, true, Unary::Digamma, x, y)
}

/// Computes Hurwitz's zeta function; for s = 2, the derivative of digamma, with vector code. At most 2 ulp.
pub(crate) fn zeta(lo: &mut Lower<'_>, s: V, x: V) -> V {
    let y = halves(lo, x, trigamma_right);
    let mut f = Float::new(lo, false);
    let (zero, top, two) = (f.k(0.0), f.k(f64::INFINITY), f.k(2.0));
    let right = f.compare(Compare::Gt, x, zero);
    let finite = f.compare(Compare::Lt, x, top);
    let square = f.compare(Compare::Eq, s, two);
    let inside = f.and_mask(right, finite);
    let inside = f.and_mask(inside, square);
    let odd = f.not_mask(inside);
    f.fix_lanes(odd, y, &Op::Binary(Binary::Zeta, Reg(0), Reg(0)), &[s, x])
}

fn halves(lo: &mut Lower<'_>, x: V, f: fn(&mut Lower<'_>, V) -> V) -> V {
    let lanes = lo.l;
    if 8 * lanes <= lo.full().bytes() {
        return half(lo, x, f);
    }
    let high = lo.high_half(x);
    lo.l = lanes / 2;
    let low = half(lo, x, f);
    let high = half(lo, high, f);
    lo.l = lanes;
    lo.join_halves(low, high)
}

fn half(lo: &mut Lower<'_>, x: V, f: fn(&mut Lower<'_>, V) -> V) -> V {
    let w = lo.w64();
    let x = lo.v2(&enc::CVTPS2PD, w, x);
    let y = f(lo, x);
    lo.v2(&enc::CVTPD2PS, w, y)
}

fn outside(lo: &mut Lower<'_>, wide: bool, op: Unary, x: V, y: V) -> V {
    let mut f = Float::new(lo, wide);
    let (zero, top) = (f.k(0.0), f.k(f64::INFINITY));
    let right = f.compare(Compare::Gt, x, zero);
    let finite = f.compare(Compare::Lt, x, top);
    let inside = f.and_mask(right, finite);
    let odd = f.not_mask(inside);
    f.fix_lanes(odd, y, &Op::Unary(op, Reg(0)), &[x])
}

/// Returns x + `by` where x is small, x elsewhere; and the mask of small x.
fn shifted(f: &mut Float<'_, '_>, x: V, by: usize) -> (V, V) {
    let limit = f.k(by as f64);
    let small = f.compare(Compare::Lt, x, limit);
    let up = f.add(x, limit);
    (f.select(small, up, x), small)
}

/// Computes lgamma by Stirling's series; the effect of a shift is the logarithm of a product.
fn lgamma_right(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let (y, small) = shifted(&mut f, x, SHIFT);
    let mut product = x;
    for i in 1..SHIFT {
        let c = f.k(i as f64);
        let next = f.add(x, c);
        product = f.mul(product, next);
    }
    let one = f.kr(1.0);
    let product = f.select(small, product, one);
    let log = F64Ops(f.lo).log(y);
    let less = F64Ops(f.lo).log(product);
    let r = f.div(one, y);
    let z = f.mul(r, r);
    let series = f.poly(
        z,
        &[1.0 / 156.0, -691.0 / 360_360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0],
    );
    let half = f.k(0.5);
    let below = f.sub(y, half);
    let rest = f.k(0.918_938_533_204_672_8);
    let t = f.mas(below, log, y);
    let t = f.add(t, rest);
    let t = f.mad(series, r, t);
    f.sub(t, less)
}

/// Below 8, uses `Γ(x) = Γ(y)·p` with y from 1 to 3 and `p` a product, or 1/x below 1, so that adding the logarithms has no
/// cancellation. From 8 on uses Stirling's
/// series.
fn lgamma_exact(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let (one, two) = (f.kr(1.0), f.kr(2.0));
    let low = f.compare(Compare::Lt, x, one);
    let far = f.k(STIRLING as f64);
    let high = f.not_less(x, far);
    // Reduce y to below 3, and collect the product of the factors.
    let (mut y, mut product) = (x, one);
    for i in 1..=STIRLING - 2 {
        let i = f.k(i as f64);
        let less = f.sub(x, i);
        let there = f.not_less(less, two);
        let more = f.mul(product, less);
        product = f.select(there, more, product);
        y = f.select(there, less, y);
    }
    // y - 1 and y - 2 are exact; below 1, x + 1 is used instead of x.
    let (below, under) = (f.sub(y, one), f.sub(y, two));
    let v = f.select(low, x, below);
    let u = f.select(low, below, under);
    let near = f.poly(u, &NEAR);
    let uv = f.mul(u, v);
    // One logarithm serves all cases.
    let of = f.select(low, x, product);
    let of = f.select(high, x, of);
    let log = F64Ops(f.lo).log(of);
    let negative = f.neg(log);
    let add = f.select(low, negative, log);
    let inside = f.mad(uv, near, add);
    let r = f.div(one, x);
    let z = f.mul(r, r);
    let series = f.poly(
        z,
        &[1.0 / 156.0, -691.0 / 360_360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0],
    );
    let half = f.k(0.5);
    let t = f.sub(x, half);
    let t = f.mas(t, log, x);
    let rest = f.k(0.918_938_533_204_672_8);
    let t = f.add(t, rest);
    let t = f.mad(series, r, t);
    f.select(high, t, inside)
}

/// Computes log s + w·P(w) with w = 1 / s² and s = x - ½; below 2 it is that of x + 2, minus 1 / (x + 1) and 1 / x.
fn digamma_right(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let (one, two, half) = (f.kr(1.0), f.k(2.0), f.k(0.5));
    let small = f.compare(Compare::Lt, x, two);
    let (more, less) = (f.k(1.5), f.sub(x, half));
    let raised = f.add(x, more);
    let s = f.select(small, raised, less);
    // 1 / s and 1 / (x + 1) with one division.
    let next = f.add(x, one);
    let next = f.select(small, next, one);
    let both = f.mul(s, next);
    let both = f.div(one, both);
    let r = f.mul(both, next);
    let w = f.mul(r, r);
    let log = F64Ops(f.lo).log(s);
    let series = f.poly(w, &DIGAMMA);
    let y = f.mad(series, w, log);
    let step = f.mul(both, s);
    let lower = f.sub(y, step);
    let first = f.div(one, x);
    let lower = f.sub(lower, first);
    f.select(small, lower, y)
}

/// Computes 1/y + 1/2y² + Σ B₂ₖ / y²ᵏ⁺¹; the correction for a shift is Σ 1/(x + i)², computed as one fraction.
fn trigamma_right(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let (y, small) = shifted(&mut f, x, SHIFT);
    let (mut num, mut den) = (f.kr(1.0), f.mul(x, x));
    for i in 1..SHIFT {
        let c = f.k(i as f64);
        let next = f.add(x, c);
        let next = f.mul(next, next);
        num = f.mad(num, next, den);
        den = f.mul(den, next);
    }
    let shift = f.div(num, den);
    let zero = f.kr(0.0);
    let shift = f.select(small, shift, zero);
    let one = f.kr(1.0);
    let r = f.div(one, y);
    let z = f.mul(r, r);
    let series = f.poly(z, &[7.0 / 6.0, -691.0 / 2730.0, 5.0 / 66.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 1.0 / 6.0]);
    let rz = f.mul(r, z);
    let t = f.mad(series, rz, r);
    let half = f.k(0.5);
    let t = f.mad(z, half, t);
    f.add(t, shift)
}
