//! Instructions that need a sequence: fused multiply-adds by operand locations, division, the helper's trampoline.

use super::super::asm::{Alu, Cc, Evex, PMem, PRm, RAX, RBP, RCX, RDI, RDX, RSI, RSP, W};
use super::super::enc;
use super::super::helper;
use super::super::inst::{FmaKind, Rm, V};
use super::Emitter;

impl Emitter<'_> {
    #[expect(clippy::too_many_arguments, reason = "these are the fields of the instruction")]
    pub(super) fn fma(&mut self, kind: FmaKind, wide: bool, w: W, d: u8, a: V, b: Rm, c: Rm) {
        let s1 = self.scratch[1];
        let [e132, e213, e231] = match (kind, wide) {
            (FmaKind::Add, false) => [&enc::FMADD132PS, &enc::FMADD213PS, &enc::FMADD231PS],
            (FmaKind::Sub, false) => [&enc::FMSUB132PS, &enc::FMSUB213PS, &enc::FMSUB231PS],
            (FmaKind::Neg, false) => [&enc::FNMADD132PS, &enc::FNMADD213PS, &enc::FNMADD231PS],
            (FmaKind::Add, true) => [&enc::FMADD132PD, &enc::FMADD213PD, &enc::FMADD231PD],
            (FmaKind::Sub, true) => [&enc::FMSUB132PD, &enc::FMSUB213PD, &enc::FMSUB231PD],
            (FmaKind::Neg, true) => [&enc::FNMADD132PD, &enc::FNMADD213PD, &enc::FNMADD231PD],
        };
        let a = self.vreg(a, s1);
        let (b, b_broadcast) = self.rm(e231, b, s1);
        let (c, c_broadcast) = self.rm(e231, c, s1);
        let x = |broadcast| Evex { broadcast, ..Evex::default() };
        match (b, c) {
            (PRm::R(b), PRm::R(c)) if d == c => self.asm.vec(e231, w, d, a, PRm::R(b), None, x(false)),
            (PRm::R(b), _) if d == a => self.asm.vec(e213, w, d, b, c, None, x(c_broadcast)),
            (PRm::R(b), _) if d == b => self.asm.vec(e213, w, d, a, c, None, x(c_broadcast)),
            (PRm::R(b), PRm::R(_)) => {
                self.fill(w, d, c, false, wide);
                self.asm.vec(e231, w, d, a, PRm::R(b), None, x(false));
            }
            (PRm::R(b), PRm::M(_)) => {
                self.fill(w, d, PRm::R(a), false, wide);
                self.asm.vec(e213, w, d, b, c, None, x(c_broadcast));
            }
            (PRm::M(_), PRm::R(c)) if d == a && d != c => self.asm.vec(e132, w, d, c, b, None, x(b_broadcast)),
            (PRm::M(_), _) if d == a => {
                // d is also a source: c waits in the scratch register, which a does not use.
                self.fill(w, s1, c, c_broadcast, wide);
                self.asm.vec(e132, w, d, s1, b, None, x(b_broadcast));
            }
            (PRm::M(_), _) => {
                self.fill(w, d, c, c_broadcast, wide);
                self.asm.vec(e231, w, d, a, b, None, x(b_broadcast));
            }
        }
    }

    /// Divides with `x / 0 = -1` and `x % 0 = x`; the quotient of the smallest integer by -1 wraps.
    pub(super) fn divide(&mut self, dst: V, a: V, b: V, signed: bool, rem: bool) {
        let n = self.next_label;
        self.next_label += 3;
        let (zero, minus, end) = (n, n + 1, n + 2);
        let divisor = self.gpr(b, RCX);
        if divisor != RCX {
            self.asm.mov(RCX, divisor);
        }
        let dividend = self.gpr(a, RAX);
        self.asm.mov(RAX, dividend);
        self.asm.test(RCX, RCX);
        self.asm.jcc(Cc::E, zero);
        if signed {
            self.asm.alu_imm(Alu::Cmp, RCX, -1);
            self.asm.jcc(Cc::E, minus);
        }
        self.asm.div(RCX, signed);
        self.asm.jmp(end);
        self.asm.bind(minus);
        self.asm.neg(RAX);
        self.asm.mov_imm(RDX, 0);
        self.asm.jmp(end);
        self.asm.bind(zero);
        self.asm.mov(RDX, RAX);
        self.asm.mov_imm(RAX, -1);
        self.asm.bind(end);
        let (d, slot) = self.dst(dst, RAX);
        self.asm.mov(d, if rem { RDX } else { RAX });
        self.write_back(dst, d, slot);
    }

    /// Saves every register, calls the lane helper with the transfer area and the code in rax, and restores the registers.
    pub(super) fn trampoline(&mut self) {
        const CALLER_SAVED: [u8; 6] = [RSI, RDI, 8, 9, 10, 11];
        self.asm.bind(self.trampoline);
        self.asm.push(RBP);
        self.asm.mov(RBP, RSP);
        for r in CALLER_SAVED {
            self.asm.push(r);
        }
        let (n, step) = if self.wide { (32u8, 64) } else { (16, 32) };
        let masks = n as i32 * step;
        self.asm.alu_imm(Alu::Sub, RSP, masks + 128);
        self.asm.alu_imm(Alu::And, RSP, -64);
        let at = |disp| PMem::At { base: RSP, index: None, disp };
        for r in 0..n {
            self.plain(&enc::MOVUPS_ST, self.full, r, 0, PRm::M(at(r as i32 * step)));
        }
        if self.wide {
            for k in 1..7u8 {
                self.plain(&enc::KMOVW_ST, W::X, k, 0, PRm::M(at(masks + 8 * k as i32)));
            }
        }
        self.asm.lea(RDI, PMem::At { base: RBP, index: None, disp: 16 });
        self.asm.mov(RSI, RAX);
        self.asm.vzeroupper();
        self.asm.mov_imm(RAX, helper::lanes as *const () as i64);
        self.asm.call_reg(RAX);
        for r in 0..n {
            self.plain(&enc::MOVUPS, self.full, r, 0, PRm::M(at(r as i32 * step)));
        }
        if self.wide {
            for k in 1..7u8 {
                self.plain(&enc::KMOVW, W::X, k, 0, PRm::M(at(masks + 8 * k as i32)));
            }
        }
        self.asm.lea(RSP, PMem::At { base: RBP, index: None, disp: -48 });
        for r in CALLER_SAVED.into_iter().rev() {
            self.asm.pop(r);
        }
        self.asm.pop(RBP);
        self.asm.ret();
    }
}
