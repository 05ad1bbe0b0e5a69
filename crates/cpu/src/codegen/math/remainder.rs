//! The remainder of a division of floats, exact like Rust's `%`.
//!
//! Where the quotient is below 2²⁴ (2⁵³ in f64), truncating the rounded quotient gives the true integer or one more. The
//! remainder is exact in both cases, and its sign shows whether it was one more. Other lanes use the helper.

use super::super::inst::V;
use super::super::lower::Lower;
use super::float::Float;
use compiler::loops::{Op, Reg};
use ir::{Binary, Compare};

pub(crate) fn rem(lo: &mut Lower<'_>, wide: bool, x: V, y: V) -> V {
    let mut f = Float::new(lo, wide);
    let (ax, ay) = (f.abs(x), f.abs(y));
    let q = f.div(ax, ay);
    // Also NaN and infinite quotients: a divisor of 0, an infinite dividend. A tiny quotient may have lost bits of the divisor.
    let limit = f.k(f.pick((1u64 << 23) as f64, (1u64 << 52) as f64));
    let mut odd = f.not_less(q, limit);
    let top = f.k(f64::INFINITY);
    let infinite = f.compare(Compare::Eq, ay, top);
    odd = f.or_mask(odd, infinite);
    let whole = f.round_to_integer(q, 11);
    let r = f.nmad(whole, ay, ax);
    let more = f.add(r, ay);
    let zero = f.k(0.0);
    let under = f.compare(Compare::Lt, r, zero);
    let r = f.select(under, more, r);
    let r = f.with_sign(r, x);
    f.fix_lanes(odd, r, &Op::Binary(Binary::Rem, Reg(0), Reg(0)), &[x, y])
}
