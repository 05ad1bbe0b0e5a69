//! Values as operands: constants from the pool, uniform values broadcast to lanes, copies in general registers.

use super::super::asm::{Alu, W};
use super::super::enc;
use super::super::inst::{Class, Inst, Rm, Src, V};
use super::super::pool::Const;
use super::Lower;
use compiler::loops::Reg;
use ir::{DType, DTypeKind as Kind, Scalar};

/// Returns the bits of a constant in a lane, with narrow types in their register representation.
pub(crate) fn lane_const(s: Scalar) -> Const {
    let d = s.dtype();
    if d.size() == 8 {
        return Const::Lane64(s.bits());
    }
    Const::Lane32(match d.kind() {
        Kind::Float => (s.to_f64() as f32).to_bits(),
        Kind::Bool => 0u32.wrapping_sub(s.bits() as u32),
        _ => s.to_i64() as u32,
    })
}

impl Lower<'_> {
    /// Returns the register of a value at `self.l` lanes.
    pub(crate) fn get(&mut self, r: Reg, u: usize) -> V {
        if let Some(s) = self.consts[r.0 as usize] {
            return self.scalar_const(s);
        }
        if self.varying[r.0 as usize] {
            return self.vals[r.0 as usize][u];
        }
        let v = self.vals[r.0 as usize][0];
        if self.l == 1 { v } else { self.broadcast(r, v) }
    }

    /// Returns a value as the second source of an instruction.
    pub(crate) fn get_rm(&mut self, r: Reg, u: usize) -> Rm {
        match self.consts[r.0 as usize] {
            Some(s) if s.dtype() != DType::Bool => Rm::C(self.pool.id(lane_const(s))),
            _ => Rm::R(self.get(r, u)),
        }
    }

    /// Returns a constant in a register (a mask for bool).
    pub(crate) fn scalar_const(&mut self, s: Scalar) -> V {
        if s.dtype() == DType::Bool && self.wide_target() {
            let g = self.gpr();
            self.emit(Inst::Imm { dst: g, imm: -(s.bits() as i64) });
            let dst = self.fresh(Class::Mask);
            self.to(dst, &enc::KMOVW_FROM, W::X, V::NONE, g);
            return dst;
        }
        self.const_reg(lane_const(s))
    }

    /// Returns a pool constant in a register, loaded before the loop.
    pub(crate) fn const_reg(&mut self, c: Const) -> V {
        let level = self.vector.map_or(self.cur(), |v| v.level);
        let home = if level <= self.cur() { level } else { self.cur() };
        if let Some(&v) = self.loops[home].consts.get(&c) {
            return v;
        }
        let v = self.vec();
        let full = self.full();
        let enc = match c {
            Const::Lane32(_) if self.wide_target() => &enc::BROADCASTSS,
            Const::Lane64(_) if self.wide_target() => &enc::BROADCASTSD,
            _ => &enc::MOVUPS,
        };
        let b = Rm::C(self.pool.id(c.clone()));
        self.loops[home].pre.push(Inst::Vec { enc, w: full, dst: v, a: V::NONE, b, imm: None, mask: V::NONE });
        self.loops[home].consts.insert(c, v);
        v
    }

    pub(crate) fn r32(&mut self, bits: u32) -> V {
        self.const_reg(Const::Lane32(bits))
    }

    pub(crate) fn r64(&mut self, bits: u64) -> V {
        self.const_reg(Const::Lane64(bits))
    }

    /// Broadcasts lane 0 of a uniform value to every lane.
    fn broadcast(&mut self, r: Reg, v: V) -> V {
        let Some(vector) = self.vector else { return v };
        let made = self.reg_level[r.0 as usize] as usize;
        let home = vector.level.max(made + 1);
        if home <= self.cur() {
            if let Some(&b) = self.loops[home].outer.broadcast.get(&r) {
                return b;
            }
            let b = self.before_loop(home, |lo| lo.broadcast_now(r, v));
            self.loops[home].outer.broadcast.insert(r, b);
            return b;
        }
        let cur = self.cur();
        if let Some(&b) = self.loops[cur].local.broadcast.get(&r) {
            return b;
        }
        let b = self.broadcast_now(r, v);
        self.loops[cur].local.broadcast.insert(r, b);
        b
    }

    fn broadcast_now(&mut self, r: Reg, v: V) -> V {
        let d = self.dtype(r);
        let w = self.w(d);
        if d == DType::Bool && self.wide_target() {
            let g = self.mask_bits(v);
            self.alu(Alu::And, g, Src::I(1));
            let n = self.gpr();
            self.imm(n, 0);
            self.alu(Alu::Sub, n, Src::R(g));
            let dst = self.fresh(Class::Mask);
            self.to(dst, &enc::KMOVW_FROM, W::X, V::NONE, n);
            return dst;
        }
        let enc = if d.size() == 8 { &enc::PBROADCASTQ } else { &enc::PBROADCASTD };
        self.v2(enc, w, v)
    }

    /// Returns a uniform i64 value in a general register.
    pub(crate) fn gpr_of(&mut self, r: Reg) -> V {
        if let Some(s) = self.consts[r.0 as usize] {
            let dst = self.gpr();
            self.imm(dst, s.to_i64());
            return dst;
        }
        let made = self.reg_level[r.0 as usize] as usize;
        let cur = self.cur();
        let (home, outer) = if made < cur { (made + 1, true) } else { (cur, false) };
        let copies = if outer { &self.loops[home].outer } else { &self.loops[home].local };
        if let Some(&g) = copies.gpr.get(&r) {
            return g;
        }
        let v = self.vals[r.0 as usize][0];
        let dst = self.gpr();
        let i = Inst::Vec { enc: &enc::MOVQ_TO, w: W::X, dst, a: V::NONE, b: Rm::R(v), imm: None, mask: V::NONE };
        if outer {
            self.loops[home].pre.push(i);
            self.loops[home].outer.gpr.insert(r, dst);
        } else {
            self.emit(i);
            self.loops[home].local.gpr.insert(r, dst);
        }
        dst
    }

    /// Records that a uniform i64 value is also in a general register.
    pub(crate) fn note_gpr(&mut self, r: Reg, g: V) {
        let cur = self.cur();
        self.loops[cur].local.gpr.insert(r, g);
    }
}
