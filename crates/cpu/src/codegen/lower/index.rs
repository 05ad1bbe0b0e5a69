//! `Op::Index`: an affine value, in a general register if uniform, otherwise in 64-bit lanes.

use super::super::enc;
use super::super::inst::V;
use super::super::pool::Const;
use super::Lower;
use compiler::loops::{Atom, Index, Reg, Size};

impl Lower<'_> {
    pub(super) fn index_value(&mut self, dst: Reg, index: &Index, u: usize) -> V {
        if self.l == 1 {
            let mem = self.address(None, index);
            let g = self.gpr();
            self.lea(g, mem);
            self.note_gpr(dst, g);
            return self.v2(&enc::MOVQ_FROM, super::W::X, g);
        }
        let base = self.address(None, index);
        let g = self.gpr();
        self.lea(g, base);
        let x = self.v2(&enc::MOVQ_FROM, super::W::X, g);
        let all = self.v2(&enc::PBROADCASTQ, self.w64(), x);
        self.add_lane_offsets(all, index, u, 1)
    }

    /// Adds to `base` the terms of an index that vary by lane, each times `esize`.
    pub(super) fn add_lane_offsets(&mut self, base: V, index: &Index, u: usize, esize: i64) -> V {
        let mut sum = base;
        for &(atom, stride) in &index.terms {
            let lanes = match atom {
                Atom::Var(v) if self.vector.is_some_and(|x| x.var == v) => self.iota64(u),
                Atom::Reg(r) if self.varying[r.0 as usize] => self.vals[r.0 as usize][u],
                _ => continue,
            };
            let part = match stride {
                Size::Const(s) => self.mul64_const(lanes, s.wrapping_mul(esize)),
                Size::Arg(a) => {
                    let g = self.size_arg(a, esize as usize);
                    let x = self.v2(&enc::MOVQ_FROM, super::W::X, g);
                    let all = self.v2(&enc::PBROADCASTQ, self.w64(), x);
                    self.mul64(lanes, all.into())
                }
            };
            sum = self.v3(&enc::PADDQ, self.w64(), sum, part);
        }
        sum
    }

    fn mul64_const(&mut self, v: V, s: i64) -> V {
        match s {
            1 => v,
            s if s > 0 && s.count_ones() == 1 => self.v2i(&enc::PSLLQ_I, self.w64(), v, s.trailing_zeros() as u8),
            s => {
                let c = self.c64(s as u64);
                self.mul64(v, c)
            }
        }
    }

    /// Returns the lane numbers of copy `u` as 64-bit lanes.
    pub(super) fn iota64(&mut self, u: usize) -> V {
        let mut b = [0u8; 64];
        for i in 0..8 {
            b[8 * i..8 * i + 8].copy_from_slice(&((u * self.lanes + i) as u64).to_le_bytes());
        }
        self.const_reg(Const::Whole(b))
    }

    /// Returns `step` times the lane number as 32-bit lanes.
    pub(super) fn iota32(&mut self, step: i32) -> V {
        let mut b = [0u8; 64];
        for i in 0..16 {
            b[4 * i..4 * i + 4].copy_from_slice(&(i as i32).wrapping_mul(step).to_le_bytes());
        }
        self.const_reg(Const::Whole(b))
    }

    /// Returns AVX2 lanes that are all ones below `n`.
    pub(super) fn low_lanes(&mut self, n: usize) -> V {
        let mut b = [0u8; 64];
        b[..4 * n].fill(0xff);
        self.const_reg(Const::Whole(b))
    }
}
