//! Instructions on f32 or f64 lanes under common names, for functions that are written once for both.

use super::super::asm::Cc;
use super::super::enc::{self, Enc};
use super::super::inst::{FmaKind, Rm, V};
use super::super::lower::Lower;
use compiler::loops::Op;
use ir::{Binary, Compare, DType};

/// Lanes of one float type.
pub(super) struct Float<'a, 'b> {
    pub(super) lo: &'a mut Lower<'b>,
    /// Whether lanes are f64 rather than f32.
    pub(super) wide: bool,
}

impl<'a, 'b> Float<'a, 'b> {
    pub(super) fn new(lo: &'a mut Lower<'b>, wide: bool) -> Float<'a, 'b> {
        Float { lo, wide }
    }

    pub(super) fn dtype(&self) -> DType {
        if self.wide { DType::F64 } else { DType::F32 }
    }

    /// Returns the argument for this width.
    pub(super) fn pick<T>(&self, narrow: T, wide: T) -> T {
        if self.wide { wide } else { narrow }
    }

    pub(super) fn k(&mut self, x: f64) -> Rm {
        if self.wide { self.lo.c64(x.to_bits()) } else { self.lo.c32((x as f32).to_bits()) }
    }

    /// Returns a constant as a first source.
    pub(super) fn kr(&mut self, x: f64) -> V {
        if self.wide { self.lo.r64(x.to_bits()) } else { self.lo.r32((x as f32).to_bits()) }
    }

    fn v3(&mut self, narrow: &'static Enc, wide: &'static Enc, a: V, b: impl Into<Rm>) -> V {
        let (e, w) = (self.pick(narrow, wide), self.lo.w(self.dtype()));
        self.lo.v3(e, w, a, b)
    }

    pub(super) fn add(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::ADDPS, &enc::ADDPD, a, b)
    }

    pub(super) fn sub(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::SUBPS, &enc::SUBPD, a, b)
    }

    pub(super) fn mul(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::MULPS, &enc::MULPD, a, b)
    }

    pub(super) fn div(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::DIVPS, &enc::DIVPD, a, b)
    }

    /// Returns the lesser; `b` where either is NaN.
    pub(super) fn min(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::MINPS, &enc::MINPD, a, b)
    }

    pub(super) fn or(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::PORD, &enc::PORQ, a, b)
    }

    pub(super) fn xor(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.v3(&enc::PXORD, &enc::PXORQ, a, b)
    }

    pub(super) fn sqrt(&mut self, x: V) -> V {
        let (e, w) = (self.pick(&enc::SQRTPS, &enc::SQRTPD), self.lo.w(self.dtype()));
        self.lo.v2(e, w, x)
    }

    /// Rounds to an integer: mode 8 is to nearest, 11 towards zero.
    pub(super) fn round_to_integer(&mut self, x: V, how: u8) -> V {
        let e = match (self.wide, self.lo.wide_target()) {
            (false, false) => &enc::ROUNDPS,
            (true, false) => &enc::ROUNDPD,
            (false, true) => &enc::RNDSCALEPS,
            (true, true) => &enc::RNDSCALEPD,
        };
        let w = self.lo.w(self.dtype());
        self.lo.v2i(e, w, x, how)
    }

    /// Computes `a * b + c`.
    pub(super) fn mad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.lo.fma_kind(FmaKind::Add, self.wide, a, b, c)
    }

    /// Computes `a * b - c`.
    pub(super) fn mas(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.lo.fma_kind(FmaKind::Sub, self.wide, a, b, c)
    }

    /// Computes `c - a * b`.
    pub(super) fn nmad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.lo.fma_kind(FmaKind::Neg, self.wide, a, b, c)
    }

    /// Evaluates a polynomial; the coefficient of the highest power comes first. A long one is split into several polynomials in
    /// a power of `x`, each by Horner's rule, because the out-of-order window is too small to overlap one long chain with those
    /// of the next lanes. The last two steps use Horner's rule in any case,
    /// so that the rounding errors of the others hardly matter.
    pub(super) fn poly(&mut self, x: V, coefficients: &[f64]) -> V {
        let chains = match coefficients.len() {
            0..=8 => return self.horner(x, coefficients.iter().copied()),
            9..=14 => 2,
            _ => 4,
        };
        let (high, last) = coefficients.split_at(coefficients.len() - 2);
        let square = self.mul(x, x);
        let by = if chains == 4 { self.mul(square, square) } else { square };
        let mut chain = |i: usize| {
            let own: Vec<f64> = high.iter().rev().copied().skip(i).step_by(chains).collect();
            self.horner(by, own.into_iter().rev())
        };
        let (even, odd) = (chain(0), chain(1));
        let mut p = if chains == 2 {
            self.mad(odd, x, even)
        } else {
            let (second, third) = (chain(2), chain(3));
            let (low, top) = (self.mad(odd, x, even), self.mad(third, x, second));
            self.mad(top, square, low)
        };
        for &c in last {
            let c = self.k(c);
            p = self.mad(p, x, c);
        }
        p
    }

    fn horner(&mut self, x: V, mut coefficients: impl Iterator<Item = f64>) -> V {
        let mut next = || coefficients.next();
        let (Some(first), Some(second)) = (next(), next()) else { unreachable!("at least two coefficients") };
        let (first, second) = (self.k(first), self.k(second));
        let mut p = self.mad(x, first, second);
        for c in coefficients {
            let c = self.k(c);
            p = self.mad(p, x, c);
        }
        p
    }

    fn sign_bit(&mut self) -> Rm {
        if self.wide { self.lo.c64(1 << 63) } else { self.lo.c32(1 << 31) }
    }

    pub(super) fn abs(&mut self, x: V) -> V {
        let m = if self.wide { self.lo.c64(!(1 << 63)) } else { self.lo.c32(!(1 << 31)) };
        self.v3(&enc::PANDD, &enc::PANDQ, x, m)
    }

    pub(super) fn neg(&mut self, x: V) -> V {
        let bit = self.sign_bit();
        self.xor(x, bit)
    }

    /// Returns only the sign bit.
    pub(super) fn sign(&mut self, x: V) -> V {
        let bit = self.sign_bit();
        self.v3(&enc::PANDD, &enc::PANDQ, x, bit)
    }

    /// Puts the sign of `of` onto `x`, whose sign must be clear or already equal.
    pub(super) fn with_sign(&mut self, x: V, of: V) -> V {
        let s = self.sign(of);
        self.or(x, s)
    }

    pub(super) fn compare(&mut self, op: Compare, a: V, b: impl Into<Rm>) -> V {
        let d = self.dtype();
        self.lo.compare(op, d, a, b.into())
    }

    /// Returns a mask of special numbers: subnormal, zero, negative, infinite or NaN.
    pub(super) fn is_special(&mut self, x: V) -> V {
        let w = self.lo.w(self.dtype());
        if self.wide {
            let (least, span) = (self.lo.c64(1 << 52), self.lo.c64(0x7fe0 << 48));
            let above = self.lo.v3(&enc::PSUBQ, w, x, least);
            return self.lo.cmp_int(true, true, Compare::Ge, above, span);
        }
        let (least, span) = (self.lo.c32(1 << 23), self.lo.c32(0x7f00 << 16));
        let above = self.lo.v3(&enc::PSUBD, w, x, least);
        self.lo.cmp_int(false, true, Compare::Ge, above, span)
    }

    /// Returns a mask that is on where `a` is not less than `b`; also on for NaN.
    pub(super) fn not_less(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.lo.cmp_float(self.wide, 0x15, a, b)
    }

    pub(super) fn and_mask(&mut self, a: V, b: V) -> V {
        self.lo.mask_logic(Binary::And, a, b)
    }

    pub(super) fn or_mask(&mut self, a: V, b: V) -> V {
        self.lo.mask_logic(Binary::Or, a, b)
    }

    pub(super) fn not_mask(&mut self, a: V) -> V {
        self.lo.mask_not(a)
    }

    /// Returns `m ? a : b`.
    pub(super) fn select(&mut self, m: V, a: impl Into<Rm>, b: V) -> V {
        let d = self.dtype();
        self.lo.select(d, m, a, b)
    }

    /// Returns `y`, but `size` itself where that is tiny: halving a subnormal number loses its last bit.
    pub(super) fn keep_tiny(&mut self, size: V, y: V) -> V {
        let limit = self.k(self.pick(1.0 / (1u64 << 50) as f64, 1.0 / (1u128 << 100) as f64));
        let tiny = self.compare(Compare::Lt, size, limit);
        self.select(tiny, size, y)
    }

    /// Returns `y`, but the result of the lane helper where `m` is on; the helper is called only if some lane needs it.
    pub(super) fn fix_lanes(&mut self, m: V, y: V, op: &Op, args: &[V]) -> V {
        let d = self.dtype();
        self.if_any_lane(m, y, |f| f.lo.call(op, d, d, args))
    }

    /// Returns `y`, but the result of `f` where `m` is on; its instructions run only if some lane needs them.
    pub(super) fn if_any_lane(&mut self, m: V, y: V, f: impl FnOnce(&mut Self) -> V) -> V {
        let out = self.lo.vec();
        self.lo.mov(out, y);
        let done = self.lo.label();
        let any = self.lo.any(m);
        self.lo.test(any);
        self.lo.branch(Cc::E, done);
        let slow = f(self);
        let y = self.select(m, slow, y);
        self.lo.mov(out, y);
        self.lo.bind(done);
        out
    }
}
