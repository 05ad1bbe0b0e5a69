//! The error function.

use super::super::inst::V;
use super::super::lower::Lower;
use super::exp::one_minus_exp;
use ir::{Compare, DType};

/// x + x P(x²) near zero, 1 - exp(Q(|x|)) beyond. At most 2 ulp.
pub(super) fn erf(lo: &mut Lower<'_>, x: V) -> V {
    let a = lo.abs(x);
    let t = lo.clamp(a, None, Some(4.0));
    let s = lo.mul(t, t);
    // Near zero.
    let p = lo.poly(
        s,
        &[
            -5.967_617e-4,
            4.991_194_2e-3,
            -2.676_813_5e-2,
            1.128_199_25e-1,
            -3.761_253_4e-1,
            1.283_791_7e-1,
        ],
    );
    let near = lo.mad(p, t, t);
    // Beyond.
    let (c1, c0) = (lo.k(-1.728_534_7e-5), lo.k(3.831_971_3e-4));
    let r = lo.mad(t, c1, c0);
    let (c1, c0) = (lo.k(-3.883_964_4e-3), lo.k(2.425_462_2e-2));
    let u = lo.mad(t, c1, c0);
    let r = lo.mad(r, s, u);
    let c = lo.k(-1.067_778_8e-1);
    let r = lo.mad(r, t, c);
    let c = lo.k(-6.348_467e-1);
    let r = lo.mad(r, t, c);
    let c = lo.k(-1.287_175_1e-1);
    let r = lo.mad(r, t, c);
    let minus_t = lo.sign_flipped(t);
    let r = lo.mad(r, t, minus_t);
    let far = one_minus_exp(lo, r);
    let limit = lo.k(0.927_734_4);
    let beyond = lo.compare(Compare::Gt, DType::F32, t, limit);
    let y = lo.choose(beyond, far, near);
    lo.with_sign(y, x)
}

impl Lower<'_> {
    fn sign_flipped(&mut self, x: V) -> V {
        let bit = self.c32(0x8000_0000);
        self.xor(x, bit)
    }
}
