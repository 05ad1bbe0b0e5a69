//! The error functions erf and erfc, and the inverse of erf.

use super::super::enc;
use super::super::inst::V;
use super::super::lower::Lower;
use super::double::F64Ops;
use super::erf_table;
use super::exp::{exp_of_minus, one_minus_exp};
use super::float::Float;
use super::log::log;
use ir::{Compare, DType};

/// Computes x + x P(x²) near zero, 1 - exp(Q(|x|)) elsewhere. At most 2 ulp.
pub(super) fn erf(lo: &mut Lower<'_>, x: V) -> V {
    let a = lo.abs(x);
    let t = lo.clamp(a, None, Some(4.0));
    let s = lo.mul(t, t);
    // Near zero.
    let p =
        lo.poly(s, &[-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1]);
    let near = lo.mad(p, t, t);
    // Elsewhere.
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

/// Computes exp(-x²)·t·P(t) with t = 1/(1 + |x|/2) for positive x, and 2 minus that for negative x. The square is computed in two
/// parts, of which the second corrects the first. At most 7 ulp, also in the far tail.
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
    let e = exp_of_minus(lo, square);
    let right = lo.mul(e, q);
    let two = lo.kr(2.0);
    let left = lo.sub(two, right);
    let zero = lo.k(0.0);
    let negative = lo.compare(Compare::Lt, DType::F32, x, zero);
    lo.choose(negative, left, right)
}

/// The polynomial exp(x²)·erfc(x)/t in powers of t.
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

/// Computes the inverse of erf by Giles's polynomials in w = -log((1 - x)(1 + x)). At most 4 ulp.
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
    let y = lo.mul(near, x);
    let mut f = Float::new(lo, false);
    let limit = f.k(5.0);
    let outside = f.not_less(w, limit);
    f.if_any_lane(outside, y, |f| {
        let root = f.sqrt(w);
        let offset = f.k(3.0);
        let t = f.sub(root, offset);
        let far = f.lo.poly(t, &TAIL);
        let y = f.mul(far, x);
        at_the_edge(f, a, x, y)
    })
}

/// Replaces the result at ±1, where w is infinite and the polynomial is not valid.
fn at_the_edge(f: &mut Float<'_, '_>, a: V, x: V, y: V) -> V {
    let (one, inf) = (f.k(1.0), f.k(f64::INFINITY));
    let edge = f.compare(Compare::Eq, a, one);
    let infinite = f.mul(x, inf);
    f.select(edge, infinite, y)
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

/// Computes the inverse of erf in f64. At most 8 ulp.
pub(super) fn erf_inv_f64(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let a = f.abs(x);
    let one = f.kr(1.0);
    let (above, below) = (f.add(a, one), f.sub(one, a));
    let product = f.mul(above, below);
    let log = F64Ops(f.lo).log(product);
    let w = f.neg(log);
    let offset = f.k(3.125);
    let t = f.sub(w, offset);
    let near = f.poly(t, &WIDE_CENTRE);
    let y = f.mul(near, x);
    let limit = f.k(6.25);
    let outside = f.not_less(w, limit);
    f.if_any_lane(outside, y, |f| {
        let root = f.sqrt(w);
        let offset = f.k(3.25);
        let t = f.sub(root, offset);
        let middle = f.poly(t, &WIDE_MIDDLE);
        let offset = f.k(5.0);
        let t = f.sub(root, offset);
        let far = f.poly(t, &WIDE_TAIL);
        let limit = f.k(16.0);
        let within = f.compare(Compare::Lt, w, limit);
        let p = f.select(within, middle, far);
        let y = f.mul(p, x);
        at_the_edge(f, a, x, y)
    })
}

const WIDE_CENTRE: [f64; 23] = [
    -3.644_412_064_017_82e-21,
    -1.685_059_138_182_016_6e-19,
    1.285_848_071_525_64e-18,
    1.115_787_767_802_518e-17,
    -1.333_171_662_854_621e-16,
    2.097_276_787_596_856_2e-17,
    6.637_638_134_358_324e-15,
    -4.054_566_272_975_207e-14,
    -8.151_934_197_605_472e-14,
    2.633_509_315_308_232_3e-12,
    -1.297_513_325_345_353_2e-11,
    -5.415_412_054_294_628e-11,
    1.051_212_273_321_532_3e-9,
    -4.112_633_980_346_984e-9,
    -2.907_036_995_788_200_5e-8,
    4.234_787_782_793_240_4e-7,
    -1.365_469_200_083_467_9e-6,
    -1.388_252_336_278_646_9e-5,
    0.000_186_734_208_034_057_14,
    -0.000_740_702_534_166_267,
    -0.006_033_670_871_430_149,
    0.240_158_182_425_589_62,
    1.653_654_562_683_102_7,
];
const WIDE_MIDDLE: [f64; 19] = [
    2.213_737_692_177_578_7e-9,
    9.075_656_193_888_539e-8,
    -2.751_740_629_706_454_5e-7,
    1.823_962_921_438_922_8e-8,
    1.502_740_396_890_982_8e-6,
    -4.013_867_526_981_546e-6,
    2.923_444_908_995_544_6e-6,
    1.247_530_448_167_177_9e-5,
    -4.731_822_900_905_573_4e-5,
    6.828_485_145_957_318e-5,
    2.403_111_038_709_789_4e-5,
    -0.000_355_037_520_362_847_5,
    0.000_953_289_379_737_380_5,
    -0.001_688_275_556_023_504_7,
    0.002_491_442_096_107_851,
    -0.003_751_208_507_569_241_2,
    0.005_370_914_553_590_064,
    1.005_258_967_694_159_2,
    3.083_885_610_492_221,
];
const WIDE_TAIL: [f64; 17] = [
    -2.710_992_061_643_857_3e-11,
    -2.555_641_816_996_525e-10,
    1.507_657_269_350_054_8e-9,
    -3.789_465_440_126_737e-9,
    7.615_701_208_078_339e-9,
    -1.496_002_662_714_924e-8,
    2.914_795_345_090_108e-8,
    -6.771_199_775_845_234e-8,
    2.290_048_222_802_665_5e-7,
    -9.929_827_294_231_7e-7,
    4.526_062_597_223_154e-6,
    -1.968_177_810_553_167e-5,
    7.599_527_703_001_776e-5,
    -0.000_215_030_119_300_444_77,
    -0.000_138_719_318_336_231_22,
    1.010_300_464_864_534_4,
    4.849_906_401_408_584,
];

impl Lower<'_> {
    fn sign_flipped(&mut self, x: V) -> V {
        let bit = self.c32(0x8000_0000);
        self.xor(x, bit)
    }
}

/// Computes erf r + erf' r · d · (1 - r d + ..), with r the nearest point of a table and d = |x| - r. At most 2 ulp.
pub(super) fn erf_f64(lo: &mut Lower<'_>, x: V) -> V {
    let mut f = Float::new(lo, true);
    let a = f.abs(x);
    let top = f.kr(erf_table::TOP);
    let a = f.min(top, a);
    let (steps, magic, step) = (f.k(1.0 / erf_table::STEP), f.k(MAGIC), f.k(erf_table::STEP));
    let shifted = f.mad(a, steps, magic);
    let n = f.sub(shifted, magic);
    let r = f.mul(n, step);
    let d = f.sub(a, r);
    let w = f.lo.w64();
    // The low bits of a NaN give an index inside of the table, too.
    let places = f.lo.c64(erf_table::PLACES as u64 - 1);
    let place = f.lo.v3(&enc::PANDQ, w, shifted, places);
    let table = f.lo.gpr();
    f.lo.imm(table, erf_table::table().as_ptr() as i64);
    let value = f.lo.gather(&enc::GATHERQPD, DType::F64, table, 0, place, None);
    let slope = f.lo.gather(&enc::GATHERQPD, DType::F64, table, 8 * erf_table::PLACES as i64, place, None);
    // Hermite polynomials of r divided by factorials, from d² on; at d⁶ only the term that matters near zero.
    let s = f.mul(r, r);
    let (m, c) = (f.k(2.0 / 3.0), f.k(-1.0 / 3.0));
    let c2 = f.mad(s, m, c);
    let (m, c) = (f.k(-1.0 / 3.0), f.k(0.5));
    let c3 = f.mad(s, m, c);
    let (m, c) = (f.k(4.0 / 30.0), f.k(-0.4));
    let c4 = f.mad(s, m, c);
    let c = f.k(0.1);
    let c4 = f.mad(c4, s, c);
    let (m, c) = (f.k(-4.0 / 90.0), f.k(20.0 / 90.0));
    let c5 = f.mad(s, m, c);
    let c = f.k(-15.0 / 90.0);
    let c5 = f.mad(c5, s, c);
    let (rd, square) = (f.mul(r, d), f.mul(d, d));
    let low = f.mad(c3, rd, c2);
    let high = f.mad(c5, rd, c4);
    let c = f.k(-1.0 / 42.0);
    let high = f.mad(square, c, high);
    let p = f.mad(high, square, low);
    let p = f.mul(p, square);
    let p = f.sub(p, rd);
    let one = f.k(1.0);
    let p = f.add(p, one);
    let rise = f.mul(slope, d);
    let y = f.mad(rise, p, value);
    f.with_sign(y, x)
}

/// 1.5 · 2⁵².
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// Computes erfc in f64. At most 6 ulp.
pub(super) fn erfc_f64(lo: &mut Lower<'_>, x: V) -> V {
    let a = Float::new(lo, true).abs(x);
    let right = erfc_right(lo, a);
    let mut f = Float::new(lo, true);
    let two = f.kr(2.0);
    let left = f.sub(two, right);
    let zero = f.k(0.0);
    let negative = f.compare(Compare::Lt, x, zero);
    f.select(negative, left, right)
}

/// Computes exp(-a²)·t·P(2t - 1) with t = 1/(1 + a/2); the square is computed in two parts.
fn erfc_right(lo: &mut Lower<'_>, a: V) -> V {
    let mut f = Float::new(lo, true);
    let top = f.kr(27.5);
    let a = f.min(top, a);
    let (half, one, two, minus) = (f.k(0.5), f.k(1.0), f.k(2.0), f.k(-1.0));
    let below = f.mad(a, half, one);
    let first = f.kr(1.0);
    let t = f.div(first, below);
    let y = f.mad(t, two, minus);
    let p = f.poly(y, &ERFC);
    let q = f.mul(p, t);
    let square = f.mul(a, a);
    let rest = f.nmad(a, a, square);
    let q = f.mad(q, rest, q);
    let minus = f.neg(square);
    let e = F64Ops(f.lo).exp(minus);
    Float::new(lo, true).mul(e, q)
}

/// The polynomial exp(x²)·erfc(x)/t in powers of 2t - 1.
const ERFC: [f64; 26] = [
    8.576007829816574e-10,
    -4.2576633754934105e-09,
    3.7213708293253024e-09,
    1.8220977914003588e-08,
    -4.8888645742098493e-08,
    1.0362222252270165e-08,
    1.5229005349619087e-07,
    -2.9383534658710087e-07,
    7.770404681448737e-09,
    1.0044832004749002e-06,
    -1.8268159445871584e-06,
    -5.637231338933697e-07,
    8.062260436199155e-06,
    -1.084795588598662e-05,
    -1.7074882492185135e-05,
    7.223535993972837e-05,
    -1.7185650415161436e-05,
    -0.00033153675214353474,
    0.0004186480247266933,
    0.0015453060296260074,
    -0.003239592533516199,
    -0.010755330944746682,
    0.018221115753430554,
    0.13973604627802746,
    0.34358034220690536,
    0.5107913526210115,
];
