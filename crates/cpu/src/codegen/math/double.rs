//! f64 lanes: exp, exp2, log, log2, log1p, expm1, tanh, logistic. The error is at most 2 ulp, except for logistic's 3.
//!
//! The argument reductions are those of the f32 functions; log is fdlibm's, with s = f / (2 + f).

use super::super::enc::{self, Enc};
use super::super::inst::{FmaKind, Rm, V};
use super::super::lower::Lower;
use super::float::Float;
use ir::{Compare, DType, Unary};

/// 1.5 · 2⁵².
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// ln 2 with 21 trailing zero bits, and the remainder.
pub(super) const LN2_HI: f64 = 6.931_471_803_691_238e-1;
pub(super) const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
/// The polynomial (eʳ - 1 - r) / r².
const EXP: [f64; 11] = [
    2.0914685161418067e-9,
    2.5105214474751413e-8,
    2.7557273647451087e-7,
    2.7557255406285044e-6,
    2.480158732554432e-5,
    0.00019841269874815834,
    0.001388888888888375,
    0.008333333333326136,
    0.04166666666666667,
    0.1666666666666667,
    0.5,
];
const LOG: [f64; 7] = [
    1.479_819_860_511_658_6e-1,
    1.531_383_769_920_937_3e-1,
    1.818_357_216_161_805e-1,
    2.222_219_843_214_978_4e-1,
    2.857_142_874_366_239e-1,
    3.999_999_999_940_942e-1,
    6.666_666_666_666_735e-1,
];

/// Emits a function of f64 lanes, if it has an inline form.
pub(super) fn unary(lo: &mut Lower<'_>, op: Unary, x: V) -> Option<V> {
    let mut d = F64Ops(lo);
    Some(match op {
        Unary::Exp => d.exp(x),
        Unary::Expm1 => d.expm1(x),
        Unary::Tanh => d.tanh(x),
        Unary::Logistic => d.logistic(x),
        Unary::Exp2 => d.exp2(x),
        Unary::Log => d.log(x),
        Unary::Log2 => d.log2(x),
        Unary::Log1p => d.log1p(x),
        _ => return None,
    })
}

/// f64 instructions by short names.
pub(super) struct F64Ops<'a, 'b>(pub(super) &'a mut Lower<'b>);

impl F64Ops<'_, '_> {
    fn k(&mut self, x: f64) -> Rm {
        self.0.c64(x.to_bits())
    }

    fn pd(&mut self, e: &'static Enc, a: V, b: impl Into<Rm>) -> V {
        let w = self.0.w64();
        self.0.v3(e, w, a, b)
    }

    fn shl(&mut self, x: V, n: u8) -> V {
        let w = self.0.w64();
        self.0.v2i(&enc::PSLLQ_I, w, x, n)
    }

    fn mad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.0.fma(true, a, b, c)
    }

    fn nmad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.0.fma_kind(FmaKind::Neg, true, a, b, c)
    }

    fn poly(&mut self, x: V, coefficients: &[f64]) -> V {
        Float::new(self.0, true).poly(x, coefficients)
    }

    fn clamp(&mut self, x: V, low: f64, high: f64) -> V {
        let (l, h) = (self.0.r64(low.to_bits()), self.0.r64(high.to_bits()));
        let x = self.pd(&enc::MAXPD, l, x);
        self.pd(&enc::MINPD, h, x)
    }

    fn with_sign(&mut self, x: V, of: V) -> V {
        let bit = self.0.c64(1 << 63);
        let s = self.pd(&enc::PANDQ, of, bit);
        self.pd(&enc::PORQ, x, s)
    }

    /// Reduces x = n ln 2 + r; returns (n in the low bits of a float, r, eʳ - 1).
    fn reduce(&mut self, x: V) -> (V, V) {
        let (log2e, magic) = (self.k(std::f64::consts::LOG2_E), self.k(MAGIC));
        let shifted = self.mad(x, log2e, magic);
        let n = self.pd(&enc::SUBPD, shifted, magic);
        let (hi, rest) = (self.k(LN2_HI), self.k(LN2_LO));
        let r = self.nmad(n, hi, x);
        let r = self.nmad(n, rest, r);
        let q = self.poly(r, &EXP);
        let s = self.pd(&enc::MULPD, r, r);
        (shifted, self.mad(s, q, r))
    }

    /// Computes 2ⁿ times a power of two, for n in the low bits of a float and a normal result.
    fn scale_by_power_of_two(&mut self, shifted: V, times: f64) -> V {
        let e = self.shl(shifted, 52);
        let times = self.k(times);
        self.pd(&enc::PADDQ, e, times)
    }

    /// Returns (eʳ - 1, 2ⁿ⁻²) of x = n ln 2 + r, for n from -1020 to 1025.
    pub(super) fn exp_quarter(&mut self, x: V) -> (V, V) {
        let (shifted, em1) = self.reduce(x);
        (em1, self.scale_by_power_of_two(shifted, 0.25))
    }

    pub(super) fn exp(&mut self, x: V) -> V {
        let x = self.clamp(x, -746.0, 710.0);
        let (shifted, em1) = self.reduce(x);
        self.scaled(shifted, em1)
    }

    /// Computes e to the power `x + rest`, for a rest far smaller than `x` or 0. The rounding error before the last addition is
    /// less than a quarter ulp.
    pub(super) fn exp_sum(&mut self, x: V, rest: V) -> V {
        let x = self.clamp(x, -746.0, 710.0);
        let (log2e, magic) = (self.k(std::f64::consts::LOG2_E), self.k(MAGIC));
        let shifted = self.mad(x, log2e, magic);
        let n = self.pd(&enc::SUBPD, shifted, magic);
        let (hi, lo) = (self.k(LN2_HI), self.k(LN2_LO));
        // Exact, since n hi is exact; then r, and the rounding error of r.
        let near = self.nmad(n, hi, x);
        let r = self.nmad(n, lo, near);
        let back = self.pd(&enc::SUBPD, near, r);
        let off = self.nmad(n, lo, back);
        let off = self.pd(&enc::ADDPD, off, rest);
        let q = self.poly(r, &EXP);
        let s = self.pd(&enc::MULPD, r, r);
        // (1 + r) + (r² q + off eʳ).
        let one = self.k(1.0);
        let sum = self.pd(&enc::ADDPD, r, one);
        let back = self.pd(&enc::SUBPD, sum, one);
        let left = self.pd(&enc::SUBPD, r, back);
        let whole = self.mad(s, q, sum);
        let small = self.mad(off, whole, left);
        let small = self.mad(s, q, small);
        let p = self.pd(&enc::ADDPD, sum, small);
        self.times_power(shifted, p)
    }

    /// Computes e to the power `x` for results that are converted to f32:
    /// results far outside of the f32 range stay within that of f64.
    pub(super) fn exp_for_f32(&mut self, x: V) -> V {
        let x = self.clamp(x, -200.0, 200.0);
        let (shifted, em1) = self.reduce(x);
        let s = self.scale_by_power_of_two(shifted, 1.0);
        self.mad(em1, s, s)
    }

    /// x = n + r; 2ʳ is e to the power r ln 2.
    fn exp2(&mut self, x: V) -> V {
        let x = self.clamp(x, -1076.0, 1025.0);
        let magic = self.k(MAGIC);
        let shifted = self.pd(&enc::ADDPD, x, magic);
        let n = self.pd(&enc::SUBPD, shifted, magic);
        let r = self.pd(&enc::SUBPD, x, n);
        let ln2 = self.k(std::f64::consts::LN_2);
        let r = self.pd(&enc::MULPD, r, ln2);
        let q = self.poly(r, &EXP);
        let s = self.pd(&enc::MULPD, r, r);
        let em1 = self.mad(s, q, r);
        self.scaled(shifted, em1)
    }

    /// Computes 2ⁿ (1 + `em1`), rounded once.
    fn scaled(&mut self, shifted: V, em1: V) -> V {
        let one = self.k(1.0);
        let p = self.pd(&enc::ADDPD, em1, one);
        self.times_power(shifted, p)
    }

    /// Computes 2ⁿ p, rounded once.
    fn times_power(&mut self, shifted: V, p: V) -> V {
        if self.0.wide_target() {
            let magic = self.k(MAGIC);
            let n = self.pd(&enc::SUBPD, shifted, magic);
            return self.pd(&enc::SCALEFPD, p, n);
        }
        // 2ⁿ in two steps, of which only the second can round: n from -1077 to 1025.
        let bits = self.0.c64(MAGIC.to_bits());
        let i = self.pd(&enc::PSUBQ, shifted, bits);
        let w = self.0.w64();
        let bias = self.0.c64(2048);
        // Half of n, rounded down, by a logical shift of a number made positive.
        let up = self.pd(&enc::PADDQ, i, bias);
        let half = self.0.v2i(&enc::PSRLQ_I, w, up, 1);
        let bias = self.0.c64(1024);
        let half = self.pd(&enc::PSUBQ, half, bias);
        let rest = self.pd(&enc::PSUBQ, i, half);
        let (a, b) = (self.scale_by_power_of_two(half, 1.0), self.scale_by_power_of_two(rest, 1.0));
        let p = self.pd(&enc::MULPD, p, a);
        self.pd(&enc::MULPD, p, b)
    }

    fn expm1(&mut self, given: V) -> V {
        let x = self.clamp(given, -50.0, 709.8);
        let (shifted, p) = self.reduce(x);
        let s = self.scale_by_power_of_two(shifted, 0.5);
        let half = self.k(0.5);
        let t = self.pd(&enc::SUBPD, s, half);
        let y = self.mad(p, s, t);
        let y = self.pd(&enc::ADDPD, y, y);
        let mut f = Float::new(self.0, true);
        let size = f.abs(given);
        let y = f.keep_tiny(size, y);
        self.with_sign(y, given)
    }

    /// Computes t / (t + 2) with t = e²ˣ - 1 = 2ⁿ - 1 + 2ⁿ r + 2ⁿ (eʳ - 1 - r). The rounding errors of terms that nearly cancel
    /// are kept until the end: of r, of the sum of the first terms, and of t + 2. At most 2 ulp.
    fn tanh(&mut self, given: V) -> V {
        let magnitude = self.0.c64(!(1 << 63));
        let a = self.pd(&enc::PANDQ, given, magnitude);
        let x = self.pd(&enc::ADDPD, a, a);
        let x = self.clamp(x, 0.0, 40.0);
        let (log2e, magic) = (self.k(std::f64::consts::LOG2_E), self.k(MAGIC));
        let shifted = self.mad(x, log2e, magic);
        let n = self.pd(&enc::SUBPD, shifted, magic);
        let (hi, rest) = (self.k(LN2_HI), self.k(LN2_LO));
        let near = self.nmad(n, hi, x);
        let r = self.nmad(n, rest, near);
        let left = self.pd(&enc::SUBPD, near, r);
        let left = self.nmad(n, rest, left);
        let q = self.poly(r, &EXP);
        let square = self.pd(&enc::MULPD, r, r);
        let curve = self.mad(square, q, left);
        let s = self.scale_by_power_of_two(shifted, 1.0);
        let (one, two) = (self.k(1.0), self.k(2.0));
        let base = self.pd(&enc::SUBPD, s, one);
        let first = self.mad(r, s, base);
        let left = self.pd(&enc::SUBPD, base, first);
        let left = self.mad(r, s, left);
        let curve = self.mad(curve, s, left);
        let t = self.pd(&enc::ADDPD, first, curve);
        let d = self.pd(&enc::ADDPD, t, two);
        let left = self.pd(&enc::SUBPD, d, two);
        let left = self.pd(&enc::SUBPD, t, left);
        let one = self.0.r64(1f64.to_bits());
        let inverse = self.pd(&enc::DIVPD, one, d);
        let y = self.pd(&enc::MULPD, t, inverse);
        let off = self.nmad(y, d, t);
        let off = self.nmad(y, left, off);
        let y = self.mad(off, inverse, y);
        self.with_sign(y, given)
    }

    /// As for f32, with 2⁻¹²⁸ in place of 2⁻³².
    fn logistic(&mut self, x: V) -> V {
        let small = 2f64.powi(-128);
        let x = self.clamp(x, -746.0, 100.0);
        let bit = self.0.c64(1 << 63);
        let minus = self.pd(&enc::PXORQ, x, bit);
        let (shifted, em1) = self.reduce(minus);
        let s = self.scale_by_power_of_two(shifted, small);
        let add = self.k(small);
        let both = self.pd(&enc::ADDPD, s, add);
        let d = self.mad(em1, s, both);
        let one = self.0.r64(small.to_bits());
        self.pd(&enc::DIVPD, one, d)
    }

    /// Splits x = 2ᵉ (1 + f) with 1 + f between √½ and √2; returns (e, f), and 1 + f itself.
    pub(super) fn split(&mut self, given: V) -> (V, V, V) {
        let tiny = self.k(f64::MIN_POSITIVE);
        let small = self.0.compare(Compare::Lt, DType::F64, given, tiny);
        let up = self.k(2f64.powi(54));
        let scaled = self.pd(&enc::MULPD, given, up);
        let x = self.0.select(DType::F64, small, scaled, given);
        let (e, f, m) = self.split_normal(x);
        let less = self.k(54.0);
        let lower = self.pd(&enc::SUBPD, e, less);
        (self.0.select(DType::F64, small, lower, e), f, m)
    }

    /// Splits a number that is not subnormal.
    pub(super) fn split_normal(&mut self, x: V) -> (V, V, V) {
        let w = self.0.w64();
        // The exponent of x / √½, converted to a float with the low bits of MAGIC (the sign bit is clear).
        let sqrt_half = self.0.c64(0x3fe6_a09e_667f_3bcd);
        let i = self.pd(&enc::PSUBQ, x, sqrt_half);
        let bias = self.0.c64(1024 << 52);
        let i = self.pd(&enc::PADDQ, i, bias);
        let e = self.0.v2i(&enc::PSRLQ_I, w, i, 52);
        let bits = self.0.c64(MAGIC.to_bits().wrapping_sub(1024));
        let e = self.pd(&enc::PADDQ, e, bits);
        let exponent = self.shl(e, 52);
        let m = self.pd(&enc::PSUBQ, x, exponent);
        let magic = self.k(MAGIC);
        let e = self.pd(&enc::SUBPD, e, magic);
        let one = self.k(1.0);
        let f = self.pd(&enc::SUBPD, m, one);
        (e, f, m)
    }

    /// Returns (s, h, h + r) with s = f / (2 + f), h = f²/2: log(1 + f) = f - h + s (h + r).
    fn log_parts(&mut self, f: V) -> (V, V, V) {
        let two = self.k(2.0);
        let d = self.pd(&enc::ADDPD, f, two);
        let s = self.pd(&enc::DIVPD, f, d);
        let z = self.pd(&enc::MULPD, s, s);
        let r = self.poly(z, &LOG);
        let r = self.pd(&enc::MULPD, r, z);
        let half = self.k(0.5);
        let h = self.pd(&enc::MULPD, f, half);
        let h = self.pd(&enc::MULPD, h, f);
        let hr = self.pd(&enc::ADDPD, h, r);
        (s, h, hr)
    }

    /// Computes e log 2 + log(1 + f).
    fn log_joined(&mut self, (e, f, _): (V, V, V)) -> V {
        let (s, h, hr) = self.log_parts(f);
        // e hi - ((h - (s (h + r) + e lo)) - f)
        let (hi, rest) = (self.k(LN2_HI), self.k(LN2_LO));
        let t = self.pd(&enc::MULPD, e, rest);
        let t = self.mad(s, hr, t);
        let t = self.pd(&enc::SUBPD, h, t);
        let t = self.pd(&enc::SUBPD, t, f);
        self.0.fma_kind(FmaKind::Sub, true, e, hi, t)
    }

    /// Computes log of a number that is neither zero, negative, subnormal nor infinite.
    pub(super) fn log_normal(&mut self, x: V) -> V {
        let parts = self.split_normal(x);
        self.log_joined(parts)
    }

    /// Computes a function of a number from its parts. Zero, subnormal, negative and infinite numbers are handled in a branch
    /// that is skipped if there are none.
    fn log_of(&mut self, x: V, usual: fn(&mut F64Ops<'_, '_>, (V, V, V)) -> V) -> V {
        let parts = self.split_normal(x);
        let y = usual(self, parts);
        let mut f = Float::new(self.0, true);
        let unusual = f.is_special(x);
        f.if_any_lane(unusual, y, |f| {
            let mut d = F64Ops(f.lo);
            let parts = d.split(x);
            let y = usual(&mut d, parts);
            d.log_specials(x, y)
        })
    }

    pub(super) fn log(&mut self, given: V) -> V {
        self.log_of(given, |d, parts| d.log_joined(parts))
    }

    /// Computes e + log(1 + f) / log 2.
    fn log2(&mut self, given: V) -> V {
        self.log_of(given, |d, (e, f, _)| {
            let (s, h, hr) = d.log_parts(f);
            let t = d.mad(s, hr, f);
            let l = d.pd(&enc::SUBPD, t, h);
            let log2e = d.k(std::f64::consts::LOG2_E);
            d.mad(l, log2e, e)
        })
    }

    /// Computes log(u) + (x - (u - 1)) / u with u = 1 + x, which is never subnormal.
    pub(super) fn log1p(&mut self, x: V) -> V {
        let one = self.k(1.0);
        let u = self.pd(&enc::ADDPD, x, one);
        let back = self.pd(&enc::SUBPD, u, one);
        let c = self.pd(&enc::SUBPD, x, back);
        let c = self.pd(&enc::DIVPD, c, u);
        let y = self.log_normal(u);
        let y = self.pd(&enc::ADDPD, y, c);
        let mut f = Float::new(self.0, true);
        let unusual = f.is_special(u);
        let y = f.if_any_lane(unusual, y, |f| F64Ops(f.lo).log_specials(u, y));
        self.with_sign(y, x)
    }

    pub(super) fn log_specials(&mut self, x: V, y: V) -> V {
        let inf = self.k(f64::INFINITY);
        let top = self.0.compare(Compare::Eq, DType::F64, x, inf);
        let y = self.0.select(DType::F64, top, inf, y);
        let zero = self.k(0.0);
        let bottom = self.0.compare(Compare::Eq, DType::F64, x, zero);
        let minus_inf = self.k(f64::NEG_INFINITY);
        let y = self.0.select(DType::F64, bottom, minus_inf, y);
        let bad = self.0.cmp_float(true, 0x19, x, zero);
        let nan = self.k(f64::NAN);
        self.0.select(DType::F64, bad, nan, y)
    }
}
