//! Integer division on lanes, through correctly rounded f64 division.
//!
//! If |a| < 2⁵¹, truncating the rounded a / b gives the integer quotient: a quotient that is not an integer is at least 1 / b
//! away from the next integer, and the rounding error is below a / b · 2⁻⁵³ < 1 / b.

use super::super::asm::{Cc, W};
use super::super::enc;
use super::super::inst::{Inst, Mem, Rm, V};
use super::Lower;
use ir::{Compare, DType};

/// 1.5 · 2⁵²: adding it to a small integer leaves the integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

impl Lower<'_> {
    /// Division or remainder, with XLA's semantics, of integers stored in 32 bits; `None` for u32 with AVX2.
    pub(super) fn divide32(&mut self, d: DType, rem: bool, a: V, b: V) -> Option<V> {
        let unsigned = d == DType::U32;
        if unsigned && !self.wide_target() {
            return None;
        }
        let (lanes, w) = (self.l, self.w32());
        let q = if 8 * lanes <= self.full().bytes() {
            self.divide_half(unsigned, a, b)
        } else {
            // Two halves, each in a full-width register.
            let (ah, bh) = (self.high_half(a), self.high_half(b));
            self.l = lanes / 2;
            let low = self.divide_half(unsigned, a, b);
            let high = self.divide_half(unsigned, ah, bh);
            self.l = lanes;
            self.join_halves(low, high)
        };
        let zero = self.c32(0);
        let by_zero = self.cmp_int(false, false, Compare::Eq, b, zero);
        let r = if rem {
            let p = self.v3(&enc::PMULLD, w, q, b);
            let r = self.v3(&enc::PSUBD, w, a, p);
            self.select(DType::I32, by_zero, a, r)
        } else {
            let ones = self.c32(u32::MAX);
            self.select(DType::I32, by_zero, ones, q)
        };
        Some(self.wrap(d, r))
    }

    fn divide_half(&mut self, unsigned: bool, a: V, b: V) -> V {
        let w = self.w64();
        let (to, from) = if unsigned { (&enc::CVTUDQ2PD, &enc::CVTTPD2UDQ) } else { (&enc::CVTDQ2PD, &enc::CVTTPD2DQ) };
        let (x, y) = (self.v2(to, w, a), self.v2(to, w, b));
        let q = self.v3(&enc::DIVPD, w, x, y);
        self.v2(from, w, q)
    }

    /// Returns the upper half of 32-bit lanes that fill a register.
    pub(crate) fn high_half(&mut self, v: V) -> V {
        let w = self.w32();
        let enc = if w == W::Z { &enc::EXTRACTF32X8 } else { &enc::EXTRACTF128 };
        self.v2i(enc, w, v, 1)
    }

    /// Joins two half-width registers.
    pub(crate) fn join_halves(&mut self, low: V, high: V) -> V {
        let w = self.w32();
        let enc = if w == W::Z { &enc::INSERTF32X8 } else { &enc::INSERTF128 };
        self.v3i(enc, w, low, high, 1)
    }

    /// Computes division or remainder of i64 lanes by a constant.
    pub(super) fn divide64_const(&mut self, rem: bool, a: V, b: i64) -> Option<V> {
        if b == 0 || b.unsigned_abs() >= 1 << 51 {
            return None;
        }
        let w = self.w64();
        let out = self.vec();
        let (slow, done) = (self.label(), self.label());
        // Lanes outside ±2⁵¹ use the slow path.
        let offset = self.c64(1 << 51);
        let shifted = self.v3(&enc::PADDQ, w, a, offset);
        let limit = self.c64(1 << 52);
        let big = self.cmp_int(true, true, Compare::Ge, shifted, limit);
        let any = self.any(big);
        self.test(any);
        self.branch(Cc::Ne, slow);
        let (bits, magic) = (self.c64(MAGIC.to_bits()), self.c64(MAGIC.to_bits()));
        let x = self.v3(&enc::PADDQ, w, a, bits);
        let x = self.v3(&enc::SUBPD, w, x, magic);
        let divisor = self.c64((b as f64).to_bits());
        let q = self.v3(&enc::DIVPD, w, x, divisor);
        let enc = if self.wide_target() { &enc::RNDSCALEPD } else { &enc::ROUNDPD };
        let q = self.v2i(enc, w, q, 11);
        let r = if rem { self.fma_kind(super::super::inst::FmaKind::Neg, true, q, divisor, x) } else { q };
        let r = self.v3(&enc::ADDPD, w, r, magic);
        self.to(out, &enc::PSUBQ, w, r, bits);
        self.jump(done);
        self.bind(slow);
        let c = self.r64(b as u64);
        let v = self.divide64_by_lane(true, rem, a, c);
        self.mov(out, v);
        self.bind(done);
        Some(out)
    }

    /// Divides 64-bit lanes: through f64 where all are small and no divisor is 0, otherwise one after the other.
    pub(super) fn divide64(&mut self, signed: bool, rem: bool, a: V, b: V) -> V {
        let w = self.w64();
        let out = self.vec();
        let (slow, done) = (self.label(), self.label());
        let (offset, limit) = if signed { (1 << 51, 1 << 52) } else { (0, 1 << 51) };
        let (offset, limit, zero) = (self.c64(offset), self.c64(limit), self.c64(0));
        let mut odd = self.cmp_int(true, true, Compare::Eq, b, zero);
        for x in [a, b] {
            let shifted = self.v3(&enc::PADDQ, w, x, offset);
            let big = self.cmp_int(true, true, Compare::Ge, shifted, limit);
            odd = self.mask_logic(ir::Binary::Or, odd, big);
        }
        let any = self.any(odd);
        self.test(any);
        self.branch(Cc::Ne, slow);
        let (bits, magic) = (self.c64(MAGIC.to_bits()), self.c64(MAGIC.to_bits()));
        let x = self.v3(&enc::PADDQ, w, a, bits);
        let x = self.v3(&enc::SUBPD, w, x, magic);
        let y = self.v3(&enc::PADDQ, w, b, bits);
        let y = self.v3(&enc::SUBPD, w, y, magic);
        let q = self.v3(&enc::DIVPD, w, x, y);
        let enc = if self.wide_target() { &enc::RNDSCALEPD } else { &enc::ROUNDPD };
        let q = self.v2i(enc, w, q, 11);
        let r = if rem { self.fma_kind(super::super::inst::FmaKind::Neg, true, q, y, x) } else { q };
        let r = self.v3(&enc::ADDPD, w, r, magic);
        self.to(out, &enc::PSUBQ, w, r, bits);
        self.jump(done);
        self.bind(slow);
        let v = self.divide64_by_lane(signed, rem, a, b);
        self.mov(out, v);
        self.bind(done);
        out
    }

    /// Divides 64-bit lanes one after the other.
    pub(super) fn divide64_by_lane(&mut self, signed: bool, rem: bool, a: V, b: V) -> V {
        let w = self.w64();
        for (v, at) in [(a, 0), (b, 64)] {
            let mem = Mem::frame(at);
            self.store_vec(&enc::MOVUPS_ST, w, v, mem);
        }
        for lane in 0..self.l as i32 {
            let (x, y, q) = (self.gpr(), self.gpr(), self.gpr());
            self.load_gpr(x, Mem::frame(8 * lane), 8);
            self.load_gpr(y, Mem::frame(64 + 8 * lane), 8);
            self.emit(Inst::DivRem { dst: q, a: x, b: y, signed, rem });
            self.store_gpr(q, Mem::frame(8 * lane), 8);
        }
        self.v2(&enc::MOVUPS, w, Rm::M(Mem::frame(0)))
    }
}
