//! The error function.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::exp::{exp, one_minus_exp};
use super::log::log;
use ir::{Compare, DType};

/// x + x P(x²) near zero, 1 - exp(Q(|x|)) beyond. At most 2 ulp.
pub(super) fn erf(lo: &mut Lower<'_>, x: V) -> V {
    let a = lo.abs(x);
    let t = lo.clamp(a, None, Some(4.0));
    let s = lo.mul(t, t);
    // Near zero.
    let p =
        lo.poly(s, &[-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1]);
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

/// exp(-x²)·t·P(t) with t = 1/(1 + |x|/2) right of 0, 2 less that left of it. The square is taken in two parts, of which
/// the second corrects the first. At most 4 ulp, in the far tail too.
pub(super) fn erfc(lo: &mut Lower<'_>, x: V) -> V {
    let a = lo.abs(x);
    let a = lo.clamp(a, None, Some(10.6));
    let (half, one) = (lo.k(0.5), lo.k(1.0));
    let below = lo.mad(a, half, one);
    let first = lo.kr(1.0);
    let t = lo.div(first, below);
    let p = lo.poly(t, &SCALED);
    let q = lo.mul(p, t);
    let square = lo.mul(a, a);
    let rest = lo.nmad(a, a, square);
    let q = lo.mad(q, rest, q);
    let minus = lo.sign_flipped(square);
    let e = exp(lo, minus);
    let right = lo.mul(e, q);
    let two = lo.kr(2.0);
    let left = lo.sub(two, right);
    let zero = lo.k(0.0);
    let negative = lo.compare(Compare::Lt, DType::F32, x, zero);
    lo.choose(negative, left, right)
}

/// exp(x²)·erfc(x)/t, in powers of t.
const SCALED: [f32; 11] = [
    0.036_898_073,
    -0.197_699_6,
    0.398_620_13,
    -0.315_114_4,
    0.002_094_486_7,
    0.020_400_332,
    0.061_134_603,
    0.183_877_94,
    0.245_475_2,
    0.282_223_5,
    0.282_089_74,
];

/// The inverse of erf by Giles's polynomials in w = -log((1 - x)(1 + x)). At most 4 ulp.
pub(super) fn erf_inv(lo: &mut Lower<'_>, x: V) -> V {
    let a = lo.abs(x);
    let one = lo.k(1.0);
    let above = lo.add(a, one);
    let first = lo.kr(1.0);
    let below = lo.sub(first, a);
    let product = lo.mul(above, below);
    let log = log(lo, product);
    let w = lo.sign_flipped(log);
    let offset = lo.k(2.5);
    let t = lo.sub(w, offset);
    let near = lo.poly(t, &CENTRE);
    let wide = lo.w32();
    let root = lo.v2(&enc::SQRTPS, wide, w);
    let offset = lo.k(3.0);
    let t = lo.sub(root, offset);
    let far = lo.poly(t, &TAIL);
    let limit = lo.k(5.0);
    let central = lo.compare(Compare::Lt, DType::F32, w, limit);
    let p = lo.choose(central, near, far);
    let y = lo.mul(p, x);
    // The polynomial of an infinite w is of no use.
    let edge = lo.compare(Compare::Eq, DType::F32, a, one);
    let inf = lo.k(f32::INFINITY);
    let infinite = lo.mul(x, inf);
    lo.choose(edge, infinite, y)
}

const CENTRE: [f32; 9] = [
    2.810_226_4e-8,
    3.432_739_4e-7,
    -3.523_387_7e-6,
    -4.391_506_5e-6,
    0.000_218_580_87,
    -0.001_253_725,
    -0.004_177_681_6,
    0.246_640_73,
    1.501_409_4,
];
const TAIL: [f32; 9] = [
    -0.000_200_214_26,
    0.000_100_950_56,
    0.001_349_343_2,
    -0.003_673_428_4,
    0.005_739_507_7,
    -0.007_622_461_3,
    0.009_438_87,
    1.001_674,
    2.832_976_8,
];

impl Lower<'_> {
    fn sign_flipped(&mut self, x: V) -> V {
        let bit = self.c32(0x8000_0000);
        self.xor(x, bit)
    }
}
