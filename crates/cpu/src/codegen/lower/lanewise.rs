//! The lane loop: accesses that no vector instruction supports go element by element through the frame, in lane order.

use super::super::asm::{Alu, Cc, W};
use super::super::enc;
use super::super::inst::{Inst, Mem, Rm, Src, V};
use super::Lower;
use ir::DType;

/// The frame offsets of the lane loop's data and of its byte offsets.
const DATA: i32 = 0;
const OFFSETS: i32 = 256;

/// The step of the lane loop in memory.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// A constant number of bytes.
    Const(i64),
    /// The number of bytes in this register.
    Reg(V),
    /// The byte offsets in these lanes.
    Lanes(V),
}

impl Lower<'_> {
    /// Copies lanes one by one into the frame, then loads them as a vector.
    pub(super) fn load_by_lane(&mut self, d: DType, p: V, step: Step, on: Option<V>) -> V {
        let bits = on.map(|m| self.mask_bits(m));
        if bits.is_some() {
            let zero = self.r64(0);
            let full = self.full();
            for at in (0..self.l * d.size()).step_by(full.bytes()) {
                let mem = Mem::frame(DATA + at as i32);
                self.store_vec(&enc::MOVUPS_ST, full, zero, mem);
            }
        }
        self.by_lane(d, p, step, bits, true);
        self.unit_load(d, Mem::frame(DATA), None)
    }

    pub(super) fn store_by_lane(&mut self, d: DType, v: V, p: V, step: Step, on: Option<V>) {
        let bits = on.map(|m| self.mask_bits(m));
        self.unit_store(d, v, Mem::frame(DATA), None);
        self.by_lane(d, p, step, bits, false);
    }

    /// Loads the first lanes from strided elements of 8 or 16 bits; the other lanes are zero.
    pub(super) fn insert_lanes(&mut self, d: DType, p: V, step: i32, lanes: usize) -> V {
        let esize = d.size();
        let mut v = self.r64(0);
        let enc = if esize == 1 { &enc::PINSRB } else { &enc::PINSRW };
        for i in 0..lanes {
            v = self.v3i(enc, W::X, v, Rm::M(Mem::base(p, i as i32 * step)), i as u8);
        }
        self.widened(d, v)
    }

    /// Stores the first lanes to strided elements.
    pub(super) fn extract_lanes(&mut self, d: DType, v: V, p: V, step: i32, lanes: usize) {
        let esize = d.size();
        if esize >= 4 {
            self.unit_store(d, v, Mem::frame(DATA), None);
            for i in 0..lanes as i32 {
                let t = self.gpr();
                self.load_gpr(t, Mem::frame(DATA + i * esize as i32), esize as u8);
                self.store_gpr(t, Mem::base(p, i * step), esize as u8);
            }
            return;
        }
        let v = self.packed(d, v);
        let enc = if esize == 1 { &enc::PEXTRB_ST } else { &enc::PEXTRW_ST };
        for i in 0..lanes {
            let (mem, imm) = (Mem::base(p, i as i32 * step), Some(i as u8));
            self.emit(Inst::Store { enc, w: W::X, src: v, mem, mask: V::NONE, imm });
        }
    }

    pub(super) fn by_lane(&mut self, d: DType, p: V, step: Step, bits: Option<V>, load: bool) {
        let esize = d.size() as u8;
        let at = self.gpr();
        self.mov(at, p);
        if let Step::Lanes(offsets) = step {
            let mem = Mem::frame(OFFSETS);
            self.store_vec(&enc::MOVUPS_ST, self.w64(), offsets, mem);
        }
        let lane = self.gpr();
        self.imm(lane, 0);
        let (begin, skip) = (self.label(), self.label());
        self.emit(Inst::LoopBegin { label: begin });
        if let Some(bits) = bits {
            self.emit(Inst::Bt { a: bits, bit: lane });
            self.branch(Cc::Ae, skip);
        }
        let outside = match step {
            Step::Lanes(_) => {
                let off = self.gpr();
                let mem = Mem { index: Some((lane, 8)), ..Mem::frame(OFFSETS) };
                self.load_gpr(off, mem, 8);
                Mem { index: Some((off, 1)), ..Mem::base(p, 0) }
            }
            _ => Mem::base(at, 0),
        };
        let inside = Mem { index: Some((lane, esize)), ..Mem::frame(DATA) };
        let (from, to) = if load { (outside, inside) } else { (inside, outside) };
        let t = self.gpr();
        self.load_gpr(t, from, esize);
        self.store_gpr(t, to, esize);
        self.bind(skip);
        match step {
            Step::Const(s) => self.lea(at, Mem::base(at, s as i32)),
            Step::Reg(r) => self.alu(Alu::Add, at, Src::R(r)),
            Step::Lanes(_) => {}
        }
        self.alu(Alu::Add, lane, Src::I(1));
        self.alu(Alu::Cmp, lane, Src::I(self.l as i32));
        self.branch(Cc::L, begin);
        self.emit(Inst::LoopEnd);
    }
}
