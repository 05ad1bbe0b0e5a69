//! Emits allocated instructions as bytes: spilled operands, two-address forms, prologue and the helper trampoline.

mod operands;
mod sequences;

use super::Target;
use super::asm::{Alu, Asm, Evex, PMem, PRm, RAX, RBP, RCX, RDI, RDX, RSI, RSP, W};
use super::enc::{self};
use super::inst::{Class, Inst, V};
use super::pool::Pool;
use super::regalloc::{Allocation, Files, Loc};

/// The bytes at the bottom of the frame that pass lanes to helpers and scalar loops.
pub(crate) const AREA: u32 = 512;

/// The allocatable general registers; rax, rcx and rdx are reserved for the emitter.
const GPRS: [u8; 12] = [RDI, RSI, 8, 9, 10, 11, 3, RBP, 12, 13, 14, 15];
const SAVED: [u8; 6] = [3, RBP, 12, 13, 14, 15];
const LOW: [u8; 30] = {
    let mut r = [0; 30];
    let mut i = 0;
    while i < 30 {
        r[i] = i as u8;
        i += 1;
    }
    r
};
/// The mask register that is reserved for the emitter.
const K_SCRATCH: u8 = 7;

/// Returns the allocatable registers of a target.
pub(crate) fn files(t: Target) -> Files<'static> {
    match t {
        Target::Avx512 => Files { gpr: &GPRS, vec: &LOW, mask: &[1, 2, 3, 4, 5, 6], vec_bytes: 64 },
        _ => Files { gpr: &GPRS, vec: LOW.split_at(14).0, mask: &[], vec_bytes: 32 },
    }
}

/// Emits a whole kernel.
pub(crate) fn emit(
    insts: &[Inst],
    classes: &[Class],
    alloc: &Allocation,
    pool: &Pool,
    target: Target,
    labels: u32,
) -> Vec<u8> {
    let wide = target == Target::Avx512;
    let scratch = if wide { [30, 31] } else { [14, 15] };
    let full = if wide { W::Z } else { W::Y };
    let mut e = Emitter {
        asm: Asm::default(),
        classes,
        alloc,
        pool,
        wide,
        scratch,
        full,
        trampoline: labels,
        called: false,
        next_label: labels + 1,
    };
    let saved: Vec<u8> = SAVED.into_iter().filter(|&r| alloc.gprs_used & 1 << r != 0).collect();
    let frame = AREA + alloc.slot_bytes + 64;
    for &r in &saved {
        e.asm.push(r);
    }
    e.asm.mov(RAX, RSP);
    e.asm.alu_imm(Alu::Sub, RSP, frame as i32);
    e.asm.alu_imm(Alu::And, RSP, -64);
    let old_rsp = PMem::At { base: RSP, index: None, disp: frame as i32 - 64 };
    e.asm.store(RAX, old_rsp, 8);
    // The four arguments arrive in rdi, rsi, rdx, rcx; the first instructions load them from the transfer area.
    for (i, r) in [RDI, RSI, RDX, RCX].into_iter().enumerate() {
        e.asm.store(r, PMem::At { base: RSP, index: None, disp: 8 * i as i32 }, 8);
    }
    for i in insts {
        e.inst(i);
    }
    e.asm.load(RSP, old_rsp, 8, false);
    for &r in saved.iter().rev() {
        e.asm.pop(r);
    }
    e.asm.vzeroupper();
    e.asm.ret();
    if e.called {
        e.trampoline();
    }
    e.asm.finish(pool.bytes())
}

struct Emitter<'a> {
    asm: Asm,
    classes: &'a [Class],
    alloc: &'a Allocation,
    pool: &'a Pool,
    wide: bool,
    scratch: [u8; 2],
    full: W,
    trampoline: u32,
    called: bool,
    next_label: u32,
}

impl Emitter<'_> {
    fn inst(&mut self, i: &Inst) {
        let [s0, s1] = self.scratch;
        match *i {
            Inst::Vec { enc: e, w, dst, a, b, imm, mask } => {
                let a = a.some().map_or(0, |a| self.vreg(a, s1));
                let (rm, broadcast) = self.rm(e, b, s0);
                let mask = mask.some().map_or(0, |m| self.vreg(m, K_SCRATCH));
                let scratch = match self.classes[dst.0 as usize] {
                    Class::Gpr => RDX,
                    Class::Vec => s0,
                    Class::Mask => K_SCRATCH,
                };
                let (d, slot) = self.dst(dst, scratch);
                let x = Evex {
                    mask,
                    zeroing: mask != 0 && self.classes[dst.0 as usize] == Class::Vec,
                    broadcast,
                    vsib: false,
                };
                match (e.ext, rm) {
                    (Some(n), _) => self.asm.vec(e, w, n, d, rm, imm, x),
                    (_, PRm::R(src)) if e.to_rm => self.asm.vec(e, w, src, 0, PRm::R(d), imm, x),
                    _ => self.asm.vec(e, w, d, a, rm, imm, x),
                }
                self.write_back(dst, d, slot);
            }
            Inst::Fma { kind, wide, w, dst, a, b, c } => {
                let (d, slot) = self.dst(dst, s0);
                self.fma(kind, wide, w, d, a, b, c);
                self.write_back(dst, d, slot);
            }
            Inst::Blendv { wide, w, dst, a, b, mask } => {
                let e = if wide { &enc::BLENDVPD } else { &enc::BLENDVPS };
                let a = self.vreg(a, s1);
                let (rm, _) = self.rm(e, b, s0);
                let mask_reg = self.vreg(mask, s0);
                let (d, slot) = self.dst(dst, s0);
                self.asm.vec(e, w, d, a, rm, Some(mask_reg << 4), Evex::default());
                self.write_back(dst, d, slot);
            }
            Inst::Blendm { enc: e, w, dst, a, b, mask } => {
                let a = self.vreg(a, s1);
                let (rm, broadcast) = self.rm(e, b, s0);
                let mask = self.vreg(mask, K_SCRATCH);
                let (d, slot) = self.dst(dst, s0);
                self.asm.vec(e, w, d, a, rm, None, Evex { mask, broadcast, ..Evex::default() });
                self.write_back(dst, d, slot);
            }
            Inst::Store { enc: e, w, src, mem, mask, imm } => {
                let r = self.vreg(src, s0);
                let m = self.mem(mem);
                let vex_mask = e.kind == enc::Kind::Vex && mask != V::NONE;
                let mask = mask.some().map_or(0, |m| self.vreg(m, if vex_mask { s1 } else { K_SCRATCH }));
                if vex_mask {
                    self.asm.vec(e, w, r, mask, PRm::M(m), imm, Evex::default());
                } else {
                    let x = Evex { mask, ..Evex::default() };
                    self.asm.vec(e, w, r, 0, PRm::M(m), imm, x);
                }
            }
            Inst::Gather { enc: e, w, dst, mask, base, disp, index, scale } => {
                let base = self.gpr(base, RAX);
                let index = self.vreg(index, s0);
                let rm = PRm::M(PMem::At { base, index: Some((index, scale)), disp });
                let (d, slot) = match self.loc(dst) {
                    Loc::Slot(off) => {
                        self.plain(&enc::MOVUPS, self.full, s1, 0, PRm::M(Self::slot(off)));
                        (s1, Some(off))
                    }
                    _ => self.dst(dst, s1),
                };
                if self.wide {
                    let m = self.vreg(mask, K_SCRATCH);
                    // The gather clears its mask.
                    if m != K_SCRATCH {
                        self.plain(&enc::KMOVW, W::X, K_SCRATCH, 0, PRm::R(m));
                    }
                    let x = Evex { mask: K_SCRATCH, vsib: true, ..Evex::default() };
                    self.asm.vec(e, w, d, 0, rm, None, x);
                } else {
                    // The gather clears its mask, so it uses a copy; if index and destination took both scratch registers, it
                    // borrows another one.
                    let m = match (index == s0, d == s1) {
                        (false, _) => s0,
                        (true, false) => s1,
                        (true, true) => s0 - 1,
                    };
                    let borrowed = PRm::M(PMem::At { base: RSP, index: None, disp: AREA as i32 - 64 });
                    if m == s0 - 1 {
                        self.plain(&enc::MOVUPS_ST, self.full, m, 0, borrowed);
                    }
                    match self.loc(mask) {
                        Loc::Reg(r) => self.plain(&enc::MOVAPS, self.full, m, 0, PRm::R(r)),
                        _ => {
                            self.vreg(mask, m);
                        }
                    }
                    self.asm.vec(e, w, d, m, rm, None, Evex { vsib: true, ..Evex::default() });
                    if m == s0 - 1 {
                        self.plain(&enc::MOVUPS, self.full, m, 0, borrowed);
                    }
                }
                self.write_back(dst, d, slot);
            }
            Inst::Permute { enc: e, w, dst, index, b } => {
                let (d, slot) = match self.loc(dst) {
                    Loc::Slot(off) => {
                        self.plain(&enc::MOVUPS, self.full, s1, 0, PRm::M(Self::slot(off)));
                        (s1, Some(off))
                    }
                    _ => self.dst(dst, s1),
                };
                let index = self.vreg(index, s0);
                // A spilled `b` is read from memory directly.
                let (rm, _) = self.rm(e, b, s0);
                self.asm.vec(e, w, d, index, rm, None, Evex::default());
                self.write_back(dst, d, slot);
            }
            Inst::Mov { dst, src } => match self.classes[dst.0 as usize] {
                Class::Gpr => {
                    let r = self.gpr(src, RAX);
                    match self.dst(dst, RAX) {
                        (d, None) => self.asm.mov(d, r),
                        (_, slot) => self.write_back(dst, r, slot),
                    }
                }
                class => {
                    if self.loc(dst) == self.loc(src) {
                        return;
                    }
                    let r = self.vreg(src, s0);
                    match self.dst(dst, if class == Class::Mask { K_SCRATCH } else { s0 }) {
                        (d, None) if class == Class::Mask => self.plain(&enc::KMOVW, W::X, d, 0, PRm::R(r)),
                        (d, None) => self.plain(&enc::MOVAPS, self.full, d, 0, PRm::R(r)),
                        (_, slot) => self.write_back(dst, r, slot),
                    }
                }
            },
            Inst::Imm { dst, imm } => {
                let (d, slot) = self.dst(dst, RAX);
                self.asm.mov_imm(d, imm);
                self.write_back(dst, d, slot);
            }
            Inst::Load { dst, mem, size, signed } => {
                let m = self.mem(mem);
                let (d, slot) = self.dst(dst, RAX);
                self.asm.load(d, m, size, signed);
                self.write_back(dst, d, slot);
            }
            Inst::StoreG { src, mem, size } => {
                let r = self.gpr(src, RDX);
                let m = self.mem(mem);
                self.asm.store(r, m, size);
            }
            Inst::Alu { op, dst, src } => {
                let s = self.src(src);
                let d = self.gpr(dst, RDX);
                match s {
                    Ok(rm) => self.asm.alu(op, d, rm),
                    Err(imm) => self.asm.alu_imm(op, d, imm),
                }
                if op != Alu::Cmp {
                    let slot = self.dst(dst, RDX).1;
                    self.write_back(dst, d, slot);
                }
            }
            Inst::Imul { dst, src } => {
                let s = self.src(src);
                let d = self.gpr(dst, RDX);
                match s {
                    Ok(rm) => self.asm.imul(d, rm),
                    Err(imm) => self.asm.imul_imm(d, PRm::R(d), imm),
                }
                let slot = self.dst(dst, RDX).1;
                self.write_back(dst, d, slot);
            }
            Inst::Lea { dst, mem } => {
                let m = self.mem(mem);
                let (d, slot) = self.dst(dst, RAX);
                self.asm.lea(d, m);
                self.write_back(dst, d, slot);
            }
            Inst::Shift { op, dst, imm } => {
                let d = self.gpr(dst, RDX);
                self.asm.shift_imm(op, d, imm);
                let slot = self.dst(dst, RDX).1;
                self.write_back(dst, d, slot);
            }
            Inst::Cmov { cc, dst, src } => {
                let s = self.gpr(src, RAX);
                let d = self.gpr(dst, RDX);
                self.asm.cmov(cc, d, PRm::R(s));
                let slot = self.dst(dst, RDX).1;
                self.write_back(dst, d, slot);
            }
            Inst::Test { a, b } => {
                let (a, b) = (self.gpr(a, RAX), self.gpr(b, RCX));
                self.asm.test(a, b);
            }
            Inst::Bt { a, bit } => {
                let (a, bit) = (self.gpr(a, RAX), self.gpr(bit, RCX));
                self.asm.bt(a, bit);
            }
            Inst::LowBits { dst, n } => {
                let n = self.gpr(n, RCX);
                let (d, slot) = self.dst(dst, RDX);
                self.asm.mov_imm(RAX, -1);
                self.plain(&enc::BZHI, W::X, d, n, PRm::R(RAX));
                self.write_back(dst, d, slot);
            }
            Inst::DivRem { dst, a, b, signed, rem } => self.divide(dst, a, b, signed, rem),
            Inst::Jcc { cc, label } => self.asm.jcc(cc, label),
            Inst::Jmp { label } => self.asm.jmp(label),
            Inst::Label { label } => self.asm.bind(label),
            Inst::LoopBegin { label } => {
                self.asm.align(32);
                self.asm.bind(label);
            }
            Inst::LoopEnd => {}
            Inst::Call { code } => {
                self.called = true;
                self.asm.mov_imm(RAX, code as i64);
                self.asm.call(self.trampoline);
            }
        }
    }
}
