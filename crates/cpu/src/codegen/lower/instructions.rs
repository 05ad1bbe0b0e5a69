//! Short names for the instructions that lowering emits.

use super::super::asm::{Alu, Cc, W};
use super::super::enc::Enc;
use super::super::inst::{FmaKind, Inst, Mem, Rm, Src, V};
use super::Lower;

/// Vector instructions with a fresh destination.
impl Lower<'_> {
    /// Emits `enc(a, b)` at a width.
    pub(crate) fn v3(&mut self, enc: &'static Enc, w: W, a: V, b: impl Into<Rm>) -> V {
        let dst = self.vec();
        self.to(dst, enc, w, a, b);
        dst
    }

    /// Emits `enc(b)` at a width.
    pub(crate) fn v2(&mut self, enc: &'static Enc, w: W, b: impl Into<Rm>) -> V {
        self.v3(enc, w, V::NONE, b)
    }

    /// Emits `enc(a, b, imm)` at a width.
    pub(crate) fn v3i(&mut self, enc: &'static Enc, w: W, a: V, b: impl Into<Rm>, imm: u8) -> V {
        let (dst, b) = (self.vec(), b.into());
        let (imm, mask) = (Some(imm), V::NONE);
        self.emit(Inst::Vec { enc, w, dst, a, b, imm, mask });
        dst
    }

    /// Emits `enc(b, imm)` at a width.
    pub(crate) fn v2i(&mut self, enc: &'static Enc, w: W, b: impl Into<Rm>, imm: u8) -> V {
        self.v3i(enc, w, V::NONE, b, imm)
    }

    /// Emits an instruction with a destination of any class.
    pub(crate) fn to(&mut self, dst: V, enc: &'static Enc, w: W, a: V, b: impl Into<Rm>) {
        let (b, imm, mask) = (b.into(), None, V::NONE);
        self.emit(Inst::Vec { enc, w, dst, a, b, imm, mask });
    }

    /// Emits `a * b + c` on f32 or f64 lanes.
    pub(crate) fn fma(&mut self, wide: bool, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.fma_kind(FmaKind::Add, wide, a, b, c)
    }

    /// Emits `a * b` added to or subtracted from `c`.
    pub(crate) fn fma_kind(&mut self, kind: FmaKind, wide: bool, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        let w = if wide { self.w64() } else { self.w32() };
        let (dst, b, c) = (self.vec(), b.into(), c.into());
        self.emit(Inst::Fma { kind, wide, w, dst, a, b, c });
        dst
    }

    /// Emits `mem = src`.
    pub(crate) fn store_vec(&mut self, enc: &'static Enc, w: W, src: V, mem: Mem) {
        let (mask, imm) = (V::NONE, None);
        self.emit(Inst::Store { enc, w, src, mem, mask, imm });
    }
}

/// General-purpose instructions.
impl Lower<'_> {
    /// Emits `dst = src`, in any register file.
    pub(crate) fn mov(&mut self, dst: V, src: V) {
        self.emit(Inst::Mov { dst, src });
    }

    /// Emits `dst = imm`.
    pub(crate) fn imm(&mut self, dst: V, imm: i64) {
        self.emit(Inst::Imm { dst, imm });
    }

    /// Emits `dst = dst op src`, or only sets the flags.
    pub(crate) fn alu(&mut self, op: Alu, dst: V, src: Src) {
        self.emit(Inst::Alu { op, dst, src });
    }

    /// Emits `dst *= src`.
    pub(crate) fn imul(&mut self, dst: V, src: Src) {
        self.emit(Inst::Imul { dst, src });
    }

    /// Emits the address of a memory operand.
    pub(crate) fn lea(&mut self, dst: V, mem: Mem) {
        self.emit(Inst::Lea { dst, mem });
    }

    /// Sets the flags from a register.
    pub(crate) fn test(&mut self, a: V) {
        self.emit(Inst::Test { a, b: a });
    }

    /// Loads `size` bytes, zero-extended.
    pub(crate) fn load_gpr(&mut self, dst: V, mem: Mem, size: u8) {
        let signed = false;
        self.emit(Inst::Load { dst, mem, size, signed });
    }

    /// Stores the low `size` bytes.
    pub(crate) fn store_gpr(&mut self, src: V, mem: Mem, size: u8) {
        self.emit(Inst::StoreG { src, mem, size });
    }

    /// Places a label here.
    pub(crate) fn bind(&mut self, label: u32) {
        self.emit(Inst::Label { label });
    }

    pub(crate) fn jump(&mut self, label: u32) {
        self.emit(Inst::Jmp { label });
    }

    pub(crate) fn branch(&mut self, cc: Cc, label: u32) {
        self.emit(Inst::Jcc { cc, label });
    }
}
