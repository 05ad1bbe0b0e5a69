//! Boolean values: mask registers with AVX-512, all-ones 32-bit lanes with AVX2.

use super::super::asm::{Alu, W};
use super::super::enc;
use super::super::inst::{Class, Inst, Rm, Src, V};
use super::Lower;
use ir::{Binary, Compare, DType};

impl Lower<'_> {
    /// Returns a fresh register for a bool.
    pub(crate) fn fresh_mask(&mut self) -> V {
        let class = if self.wide_target() { Class::Mask } else { Class::Vec };
        self.fresh(class)
    }

    /// Returns one bit per lane in a general register (bits above the lanes are undefined).
    pub(crate) fn mask_bits(&mut self, m: V) -> V {
        let g = self.gpr();
        let (enc, w) = if self.wide_target() { (&enc::KMOVW_TO, W::X) } else { (&enc::MOVMSKPS, self.w32()) };
        self.to(g, enc, w, V::NONE, m);
        g
    }

    /// Returns a number that is not zero if the mask is on in any lane.
    pub(crate) fn any(&mut self, m: V) -> V {
        let bits = self.mask_bits(m);
        self.emit(Inst::Alu { op: Alu::And, dst: bits, src: Src::I((1 << self.l) - 1) });
        bits
    }

    /// Converts a mask to all-ones 32-bit lanes.
    pub(crate) fn mask_to_lanes(&mut self, m: V) -> V {
        if self.wide_target() { self.v2(&enc::PMOVM2D, self.w32(), m) } else { m }
    }

    /// Converts 32-bit lanes that are zero or all ones to a mask.
    pub(crate) fn lanes_to_mask(&mut self, v: V) -> V {
        if !self.wide_target() {
            return v;
        }
        let m = self.fresh_mask();
        self.to(m, &enc::PTESTMD, self.w32(), v, v);
        m
    }

    /// AVX2: converts a mask of 32-bit lanes to 64-bit lanes.
    pub(crate) fn widen_mask(&mut self, m: V) -> V {
        self.v2(&enc::PMOVSXDQ, self.w64(), m)
    }

    /// AVX2: converts a mask of 64-bit lanes to the common form.
    fn narrow_mask(&mut self, m: V) -> V {
        if self.w64() == W::X {
            return self.v2i(&enc::PSHUFD, W::X, m, 0x08);
        }
        let high = self.v2i(&enc::EXTRACTF128, W::Y, m, 1);
        self.v3i(&enc::SHUFPS, W::X, m, high, 0x88)
    }

    /// Emits a logical operation on masks.
    pub(crate) fn mask_logic(&mut self, op: Binary, a: V, b: V) -> V {
        let dst = self.fresh_mask();
        let (enc, w) = match (op, self.wide_target()) {
            (Binary::And | Binary::Min | Binary::Mul, true) => (&enc::KANDW, W::X),
            (Binary::Xor, true) => (&enc::KXORW, W::X),
            (_, true) => (&enc::KORW, W::X),
            (Binary::And | Binary::Min | Binary::Mul, false) => (&enc::PANDD, self.w32()),
            (Binary::Xor, false) => (&enc::PXORD, self.w32()),
            (_, false) => (&enc::PORD, self.w32()),
        };
        self.to(dst, enc, w, a, b);
        dst
    }

    pub(crate) fn mask_not(&mut self, m: V) -> V {
        let dst = self.fresh_mask();
        if self.wide_target() {
            self.to(dst, &enc::KNOTW, W::X, V::NONE, m);
        } else {
            let ones = self.c32(u32::MAX);
            self.to(dst, &enc::PXORD, self.w32(), m, ones);
        }
        dst
    }

    /// Emits `m ? a : b`, where `a` may be a constant.
    pub(crate) fn select(&mut self, d: DType, m: V, a: impl Into<Rm>, b: V) -> V {
        let a = a.into();
        if d == DType::Bool {
            // b ^ ((a ^ b) & m)
            let Rm::R(a) = a else { return b };
            let x = self.mask_logic(Binary::Xor, a, b);
            let y = self.mask_logic(Binary::And, x, m);
            return self.mask_logic(Binary::Xor, y, b);
        }
        let wide = d.size() == 8;
        let w = self.w(d);
        let dst = self.vec();
        if self.wide_target() {
            let enc = if wide { &enc::BLENDMPD } else { &enc::BLENDMPS };
            self.emit(Inst::Blendm { enc, w, dst, a: b, b: a, mask: m });
        } else {
            let mask = if wide { self.widen_mask(m) } else { m };
            self.emit(Inst::Blendv { wide, w, dst, a: b, b: a, mask });
        }
        dst
    }

    /// Compares f32 or f64 lanes by a `vcmpps` predicate.
    pub(crate) fn cmp_float(&mut self, wide: bool, predicate: u8, a: V, b: impl Into<Rm>) -> V {
        let w = if wide { self.w64() } else { self.w32() };
        let enc = match (wide, self.wide_target()) {
            (false, true) => &enc::KCMPPS,
            (true, true) => &enc::KCMPPD,
            (false, false) => &enc::CMPPS,
            (true, false) => &enc::CMPPD,
        };
        let dst = self.fresh_mask();
        self.emit(Inst::Vec { enc, w, dst, a, b: b.into(), imm: Some(predicate), mask: V::NONE });
        if wide && !self.wide_target() { self.narrow_mask(dst) } else { dst }
    }

    /// Compares integer lanes.
    pub(crate) fn cmp_int(&mut self, wide: bool, unsigned: bool, op: Compare, a: V, b: Rm) -> V {
        let w = if wide { self.w64() } else { self.w32() };
        if self.wide_target() {
            let predicate = match op {
                Compare::Eq => 0,
                Compare::Lt => 1,
                Compare::Le => 2,
                Compare::Ne => 4,
                Compare::Ge => 5,
                Compare::Gt => 6,
            };
            let enc = match (wide, unsigned) {
                (false, false) => &enc::PCMPD,
                (false, true) => &enc::PCMPUD,
                (true, false) => &enc::PCMPQ,
                (true, true) => &enc::PCMPUQ,
            };
            let dst = self.fresh_mask();
            self.emit(Inst::Vec { enc, w, dst, a, b, imm: Some(predicate), mask: V::NONE });
            return dst;
        }
        let (eq, gt) = if wide { (&enc::PCMPEQQ, &enc::PCMPGTQ) } else { (&enc::PCMPEQD, &enc::PCMPGTD) };
        // Unsigned order is signed order with the top bits flipped.
        let flip = |lo: &mut Self, x: Rm| {
            let (x, bit) = (lo.rm_reg(x, wide), if wide { lo.c64(1 << 63) } else { lo.c32(1 << 31) });
            if unsigned { lo.v3(if wide { &enc::PXORQ } else { &enc::PXORD }, w, x, bit) } else { x }
        };
        let dst = match op {
            Compare::Eq | Compare::Ne => self.v3(eq, w, a, b),
            Compare::Gt | Compare::Le => {
                let (a, b) = (flip(self, a.into()), flip(self, b));
                self.v3(gt, w, a, b)
            }
            Compare::Lt | Compare::Ge => {
                let (a, b) = (flip(self, a.into()), flip(self, b));
                self.v3(gt, w, b, a)
            }
        };
        let dst = if wide { self.narrow_mask(dst) } else { dst };
        match op {
            Compare::Ne | Compare::Le | Compare::Ge => self.mask_not(dst),
            _ => dst,
        }
    }

    /// Returns an operand in a register.
    pub(crate) fn rm_reg(&mut self, x: Rm, wide: bool) -> V {
        match x {
            Rm::R(v) => v,
            Rm::C(_) if self.wide_target() => {
                let enc = if wide { &enc::BROADCASTSD } else { &enc::BROADCASTSS };
                self.v2(enc, self.full(), x)
            }
            x => self.v2(&enc::MOVUPS, self.full(), x),
        }
    }
}
