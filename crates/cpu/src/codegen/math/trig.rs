//! sin and cos. Arguments beyond 71476 go to the lane helper.
//!
//! |x| = n π/2 + r with |r| ≤ π/4; π/2 in three parts, of which the first product cancels exactly.

use super::super::asm::Cc;
use super::super::inst::V;
use super::super::lower::Lower;
use compiler::loops::{Op, Reg};
use ir::{Compare, DType, Unary};

const MAGIC: f32 = 12_582_912.0;
const PI_2: [f32; 3] = [1.570_796_4, -4.371_139e-8, -1.715_124_5e-15];

fn sin_cos(lo: &mut Lower<'_>, op: Unary, x: V) -> V {
    let a = lo.abs(x);
    let (two_pi, magic) = (lo.k(std::f32::consts::FRAC_2_PI), lo.k(MAGIC));
    let shifted = lo.mad(a, two_pi, magic);
    let n = lo.sub(shifted, magic);
    let mut r = a;
    for part in PI_2 {
        let c = lo.k(part);
        r = lo.nmad(n, c, r);
    }
    let s = lo.mul(r, r);
    let p = lo.poly(s, &[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]);
    let p = lo.mul(p, s);
    let sine = lo.mad(p, r, r);
    let p = lo.poly(s, &[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5]);
    let one = lo.k(1.0);
    let cosine = lo.mad(p, s, one);
    // The quadrant: odd ones swap the functions, the second bit is the sign.
    let quadrant = if op == Unary::Cos {
        let one = lo.c32(1);
        lo.iadd(shifted, one)
    } else {
        shifted
    };
    let odd = lo.and(quadrant, 1);
    let zero = lo.c32(0);
    let swap = lo.compare(Compare::Ne, DType::I32, odd, zero);
    let y = lo.choose(swap, cosine, sine);
    let bit = lo.and(quadrant, 2);
    let sign = lo.shl(bit, 30);
    let y = lo.xor(y, sign);
    let y = if op == Unary::Sin {
        let own = lo.and(x, 0x8000_0000);
        lo.xor(y, own)
    } else {
        y
    };
    // Large arguments: the helper evaluates all lanes.
    let limit = lo.k(71_476.0);
    let large = lo.compare(Compare::Gt, DType::F32, a, limit);
    let out = lo.vec();
    lo.mov(out, y);
    let done = lo.label();
    let any = lo.any(large);
    lo.test(any);
    lo.branch(Cc::E, done);
    let slow = lo.call(&Op::Unary(op, Reg(0)), DType::F32, DType::F32, &[x]);
    let y = lo.choose(large, slow, y);
    lo.mov(out, y);
    lo.bind(done);
    out
}

/// At most 2 ulp.
pub(super) fn sin(lo: &mut Lower<'_>, x: V) -> V {
    sin_cos(lo, Unary::Sin, x)
}

/// At most 2 ulp.
pub(super) fn cos(lo: &mut Lower<'_>, x: V) -> V {
    sin_cos(lo, Unary::Cos, x)
}
