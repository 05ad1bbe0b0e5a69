//! Operand locations: registers, spill slots, the constant pool.

use super::super::asm::{Evex, PMem, PRm, RAX, RCX, RSP, W};
use super::super::enc::{self, Enc, Tuple};
use super::super::inst::{Base, Class, Mem, Rm, Src, V};
use super::super::regalloc::Loc;
use super::{AREA, Emitter, K_SCRATCH};

impl Emitter<'_> {
    pub(super) fn loc(&self, v: V) -> Loc {
        self.alloc.loc[v.0 as usize]
    }

    pub(super) fn slot(off: u32) -> PMem {
        PMem::At { base: RSP, index: None, disp: (AREA + off) as i32 }
    }

    /// Returns a general register that contains `v`; a spilled one is loaded into `scratch`.
    pub(super) fn gpr(&mut self, v: V, scratch: u8) -> u8 {
        match self.loc(v) {
            Loc::Reg(r) => r,
            Loc::Slot(off) => {
                self.asm.load(scratch, Self::slot(off), 8, false);
                scratch
            }
            Loc::None => scratch,
        }
    }

    /// Returns the register to write `v` into, and the slot to store it to afterwards.
    pub(super) fn dst(&self, v: V, scratch: u8) -> (u8, Option<u32>) {
        match self.loc(v) {
            Loc::Reg(r) => (r, None),
            Loc::Slot(off) => (scratch, Some(off)),
            Loc::None => (scratch, None),
        }
    }

    pub(super) fn write_back(&mut self, v: V, r: u8, slot: Option<u32>) {
        let Some(off) = slot else { return };
        match self.classes[v.0 as usize] {
            Class::Gpr => self.asm.store(r, Self::slot(off), 8),
            Class::Vec => self.plain(&enc::MOVUPS_ST, self.full, r, 0, PRm::M(Self::slot(off))),
            Class::Mask => self.plain(&enc::KMOVW_ST, W::X, r, 0, PRm::M(Self::slot(off))),
        }
    }

    /// Returns a vector or mask register that contains `v`.
    pub(super) fn vreg(&mut self, v: V, scratch: u8) -> u8 {
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

    pub(super) fn plain(&mut self, e: &Enc, w: W, reg: u8, vvvv: u8, rm: PRm) {
        self.asm.vec(e, w, reg, vvvv, rm, None, Evex::default());
    }

    pub(super) fn mem(&mut self, m: Mem) -> PMem {
        let base = match m.base {
            Base::Reg(v) => self.gpr(v, RAX),
            Base::Frame => RSP,
        };
        let index = m.index.map(|(v, s)| (self.gpr(v, RCX), s));
        PMem::At { base, index, disp: m.disp }
    }

    /// Returns the operand and whether it is an element to broadcast.
    pub(super) fn rm(&mut self, e: &Enc, rm: Rm, scratch: u8) -> (PRm, bool) {
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
    pub(super) fn fill(&mut self, w: W, reg: u8, rm: PRm, broadcast: bool, wide: bool) {
        match rm {
            PRm::R(r) if r == reg => {}
            _ if broadcast && wide => self.plain(&enc::PBROADCASTQ, w, reg, 0, rm),
            _ if broadcast => self.plain(&enc::BROADCASTSS, w, reg, 0, rm),
            _ => self.plain(&enc::MOVUPS, w, reg, 0, rm),
        }
    }

    pub(super) fn src(&mut self, s: Src) -> Result<PRm, i32> {
        match s {
            Src::I(i) => Err(i),
            Src::R(v) => Ok(match self.loc(v) {
                Loc::Slot(off) => PRm::M(Self::slot(off)),
                _ => PRm::R(self.gpr(v, RAX)),
            }),
        }
    }
}
