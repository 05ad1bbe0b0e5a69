//! Allocated instructions to bytes: spilled operands, two-address forms, prologue and the helper trampoline.

use super::asm::{Alu, Asm, Cc, Evex, PMem, PRm, RAX, RBP, RCX, RDI, RDX, RSI, RSP, W};
use super::enc::{self, Enc, Tuple};
use super::inst::{Base, Class, FmaKind, Inst, Mem, Rm, Src, V};
use super::pool::Pool;
use super::regalloc::{Allocation, Files, Loc};
use super::{Target, helper};

/// Bytes at the bottom of the frame through which lanes travel to helpers and scalar loops.
pub(crate) const AREA: u32 = 512;

/// rax, rcx and rdx are left to the emitter.
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
/// The mask register left to the emitter.
const K_SCRATCH: u8 = 7;

/// The registers that may be given out on a target.
pub(crate) fn files(t: Target) -> Files<'static> {
    match t {
        Target::Avx512 => Files {
            gpr: &GPRS,
            vec: &LOW,
            mask: &[1, 2, 3, 4, 5, 6],
            vec_bytes: 64,
        },
        Target::Avx2 => Files {
            gpr: &GPRS,
            vec: LOW.split_at(14).0,
            mask: &[],
            vec_bytes: 32,
        },
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
    let old_rsp = PMem::At {
        base: RSP,
        index: None,
        disp: frame as i32 - 64,
    };
    e.asm.store(RAX, old_rsp, 8);
    // The four arguments arrive in rdi, rsi, rdx, rcx; the first instructions fetch them from the transfer area.
    for (i, r) in [RDI, RSI, RDX, RCX].into_iter().enumerate() {
        e.asm.store(
            r,
            PMem::At {
                base: RSP,
                index: None,
                disp: 8 * i as i32,
            },
            8,
        );
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
    fn loc(&self, v: V) -> Loc {
        self.alloc.loc[v.0 as usize]
    }

    fn slot(off: u32) -> PMem {
        PMem::At {
            base: RSP,
            index: None,
            disp: (AREA + off) as i32,
        }
    }

    /// A general register holding `v`; a spilled one is loaded into `scratch`.
    fn gpr(&mut self, v: V, scratch: u8) -> u8 {
        match self.loc(v) {
            Loc::Reg(r) => r,
            Loc::Slot(off) => {
                self.asm.load(scratch, Self::slot(off), 8, false);
                scratch
            }
            Loc::None => scratch,
        }
    }

    /// The register to write `v` into, and the slot to store it to afterwards.
    fn dst(&self, v: V, scratch: u8) -> (u8, Option<u32>) {
        match self.loc(v) {
            Loc::Reg(r) => (r, None),
            Loc::Slot(off) => (scratch, Some(off)),
            Loc::None => (scratch, None),
        }
    }

    fn write_back(&mut self, v: V, r: u8, slot: Option<u32>) {
        let Some(off) = slot else { return };
        match self.classes[v.0 as usize] {
            Class::Gpr => self.asm.store(r, Self::slot(off), 8),
            Class::Vec => self.plain(&enc::MOVUPS_ST, self.full, r, 0, PRm::M(Self::slot(off))),
            Class::Mask => self.plain(&enc::KMOVW_ST, W::X, r, 0, PRm::M(Self::slot(off))),
        }
    }

    /// A vector or mask register holding `v`.
    fn vreg(&mut self, v: V, scratch: u8) -> u8 {
        match self.loc(v) {
            Loc::Reg(r) => r,
            Loc::Slot(off) => {
                let m = PRm::M(Self::slot(off));
                match self.classes[v.0 as usize] {
                    Class::Mask => {
                        // k0 can be a source of mask arithmetic, but not a write mask.
                        let k = if scratch == self.scratch[1] { 0 } else { K_SCRATCH };
                        self.plain(&enc::KMOVW, W::X, k, 0, m);
                        k
                    }
                    _ => {
                        self.plain(&enc::MOVUPS, self.full, scratch, 0, m);
                        scratch
                    }
                }
            }
            Loc::None => scratch,
        }
    }

    fn plain(&mut self, e: &Enc, w: W, reg: u8, vvvv: u8, rm: PRm) {
        self.asm.vec(e, w, reg, vvvv, rm, None, Evex::default());
    }

    fn mem(&mut self, m: Mem) -> PMem {
        let base = match m.base {
            Base::Reg(v) => self.gpr(v, RAX),
            Base::Frame => RSP,
        };
        let index = m.index.map(|(v, s)| (self.gpr(v, RCX), s));
        PMem::At {
            base,
            index,
            disp: m.disp,
        }
    }

    /// The operand and whether it is an element to broadcast.
    fn rm(&mut self, e: &Enc, rm: Rm, scratch: u8) -> (PRm, bool) {
        match rm {
            Rm::M(m) => (PRm::M(self.mem(m)), false),
            Rm::C(id) => {
                let (at, element) = self.pool.get(id);
                (PRm::M(PMem::Pool(at)), element && e.tuple == Tuple::Full)
            }
            Rm::R(v) => match (self.loc(v), self.classes[v.0 as usize]) {
                (Loc::Reg(r), _) => (PRm::R(r), false),
                (Loc::Slot(off), Class::Vec) if e.ext.is_none() && !e.to_rm && !e.reg_only => {
                    (PRm::M(Self::slot(off)), false)
                }
                (_, Class::Gpr) => (PRm::R(self.gpr(v, RAX)), false),
                _ => (PRm::R(self.vreg(v, scratch)), false),
            },
        }
    }

    /// Loads an operand into a vector register.
    fn fill(&mut self, w: W, reg: u8, rm: PRm, broadcast: bool, wide: bool) {
        match rm {
            PRm::R(r) if r == reg => {}
            _ if broadcast && wide => self.plain(&enc::PBROADCASTQ, w, reg, 0, rm),
            _ if broadcast => self.plain(&enc::BROADCASTSS, w, reg, 0, rm),
            _ => self.plain(&enc::MOVUPS, w, reg, 0, rm),
        }
    }

    fn inst(&mut self, i: &Inst) {
        let [s0, s1] = self.scratch;
        match *i {
            Inst::Vec {
                enc: e,
                w,
                dst,
                a,
                b,
                imm,
                mask,
            } => {
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
            Inst::Fma {
                kind,
                wide,
                w,
                dst,
                a,
                b,
                c,
            } => {
                let (d, slot) = self.dst(dst, s0);
                self.fma(kind, wide, w, d, a, b, c);
                self.write_back(dst, d, slot);
            }
            Inst::Blendv {
                wide,
                w,
                dst,
                a,
                b,
                mask,
            } => {
                let e = if wide { &enc::BLENDVPD } else { &enc::BLENDVPS };
                let a = self.vreg(a, s1);
                let (rm, _) = self.rm(e, b, s0);
                let mask_reg = self.vreg(mask, s0);
                let (d, slot) = self.dst(dst, s0);
                self.asm.vec(e, w, d, a, rm, Some(mask_reg << 4), Evex::default());
                self.write_back(dst, d, slot);
            }
            Inst::Blendm {
                enc: e,
                w,
                dst,
                a,
                b,
                mask,
            } => {
                let a = self.vreg(a, s1);
                let (rm, broadcast) = self.rm(e, b, s0);
                let mask = self.vreg(mask, K_SCRATCH);
                let (d, slot) = self.dst(dst, s0);
                self.asm.vec(
                    e,
                    w,
                    d,
                    a,
                    rm,
                    None,
                    Evex {
                        mask,
                        broadcast,
                        ..Evex::default()
                    },
                );
                self.write_back(dst, d, slot);
            }
            Inst::Store {
                enc: e,
                w,
                src,
                mem,
                mask,
                imm,
            } => {
                let r = self.vreg(src, s0);
                let m = self.mem(mem);
                let vex_mask = e.kind == enc::Kind::Vex && mask != V::NONE;
                let mask = mask
                    .some()
                    .map_or(0, |m| self.vreg(m, if vex_mask { s1 } else { K_SCRATCH }));
                if vex_mask {
                    self.asm.vec(e, w, r, mask, PRm::M(m), imm, Evex::default());
                } else {
                    let x = Evex {
                        mask,
                        ..Evex::default()
                    };
                    self.asm.vec(e, w, r, 0, PRm::M(m), imm, x);
                }
            }
            Inst::Gather {
                enc: e,
                w,
                dst,
                mask,
                base,
                disp,
                index,
                scale,
            } => {
                let base = self.gpr(base, RAX);
                let index = self.vreg(index, s0);
                let rm = PRm::M(PMem::At {
                    base,
                    index: Some((index, scale)),
                    disp,
                });
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
                    let x = Evex {
                        mask: K_SCRATCH,
                        vsib: true,
                        ..Evex::default()
                    };
                    self.asm.vec(e, w, d, 0, rm, None, x);
                } else {
                    // The mask is used up, so it is a copy; if index and destination took both scratch registers, it
                    // borrows another one.
                    let m = match (index == s0, d == s1) {
                        (false, _) => s0,
                        (true, false) => s1,
                        (true, true) => s0 - 1,
                    };
                    let borrowed = PRm::M(PMem::At {
                        base: RSP,
                        index: None,
                        disp: AREA as i32 - 64,
                    });
                    if m == s0 - 1 {
                        self.plain(&enc::MOVUPS_ST, self.full, m, 0, borrowed);
                    }
                    match self.loc(mask) {
                        Loc::Reg(r) => self.plain(&enc::MOVAPS, self.full, m, 0, PRm::R(r)),
                        _ => {
                            self.vreg(mask, m);
                        }
                    }
                    self.asm.vec(
                        e,
                        w,
                        d,
                        m,
                        rm,
                        None,
                        Evex {
                            vsib: true,
                            ..Evex::default()
                        },
                    );
                    if m == s0 - 1 {
                        self.plain(&enc::MOVUPS, self.full, m, 0, borrowed);
                    }
                }
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

    fn src(&mut self, s: Src) -> Result<PRm, i32> {
        match s {
            Src::I(i) => Err(i),
            Src::R(v) => Ok(match self.loc(v) {
                Loc::Slot(off) => PRm::M(Self::slot(off)),
                _ => PRm::R(self.gpr(v, RAX)),
            }),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "these are the fields of the instruction")]
    fn fma(&mut self, kind: FmaKind, wide: bool, w: W, d: u8, a: V, b: Rm, c: Rm) {
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
        let x = |broadcast| Evex {
            broadcast,
            ..Evex::default()
        };
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
                // d is also a source: c waits in the scratch, which a does not use.
                self.fill(w, s1, c, c_broadcast, wide);
                self.asm.vec(e132, w, d, s1, b, None, x(b_broadcast));
            }
            (PRm::M(_), _) => {
                self.fill(w, d, c, c_broadcast, wide);
                self.asm.vec(e231, w, d, a, b, None, x(b_broadcast));
            }
        }
    }

    /// `x / 0 = -1`, `x % 0 = x`, and the quotient of the smallest integer by -1 wraps.
    fn divide(&mut self, dst: V, a: V, b: V, signed: bool, rem: bool) {
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

    /// Saves every register, calls the lane helper with the transfer area and the code in rax, restores.
    fn trampoline(&mut self) {
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
        let at = |disp| PMem::At {
            base: RSP,
            index: None,
            disp,
        };
        for r in 0..n {
            self.plain(&enc::MOVUPS_ST, self.full, r, 0, PRm::M(at(r as i32 * step)));
        }
        if self.wide {
            for k in 1..7u8 {
                self.plain(&enc::KMOVW_ST, W::X, k, 0, PRm::M(at(masks + 8 * k as i32)));
            }
        }
        self.asm.lea(
            RDI,
            PMem::At {
                base: RBP,
                index: None,
                disp: 16,
            },
        );
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
        self.asm.lea(
            RSP,
            PMem::At {
                base: RBP,
                index: None,
                disp: -48,
            },
        );
        for r in CALLER_SAVED.into_iter().rev() {
            self.asm.pop(r);
        }
        self.asm.pop(RBP);
        self.asm.ret();
    }
}
