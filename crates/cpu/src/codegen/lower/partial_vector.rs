//! AVX2: vectors with fewer adjacent elements than lanes, whose number is known: the ends of rows, and rows shorter than a vector.
//!
//! Masked moves only support 32- and 64-bit lanes, and masked stores are slow on some machines. So elements are moved in
//! pieces of 8, 4, 2 and 1 bytes, of which two may overlap.

use super::super::asm::{Alu, W};
use super::super::enc;
use super::super::inst::{Inst, Mem, Src, V};
use super::Lower;
use ir::DType;

/// The largest piece of at most `bytes` bytes, where `bytes` is less than 16.
fn piece(bytes: usize) -> usize {
    1 << bytes.ilog2().min(3)
}

impl Lower<'_> {
    /// Returns the number of active lanes, if it is known and the mask is that of the loop's last, partial iteration.
    pub(super) fn active_lanes(&self, on: Option<V>) -> Option<usize> {
        self.tail_lanes.filter(|_| on.is_some() && on == self.tail && !self.wide_target())
    }

    /// Loads `n` adjacent elements of 1 or 2 bytes into lanes, with zeros after them.
    pub(super) fn load_partial(&mut self, d: DType, mem: Mem, n: usize) -> V {
        let bytes = n * d.size();
        let whole = piece(bytes);
        let low = self.gpr();
        self.load_gpr(low, mem, whole as u8);
        if bytes == whole {
            let v = self.v2(&enc::MOVQ_FROM, W::X, low);
            return self.widened(d, v);
        }
        // The remainder ends where the elements do. Where it overlaps the first piece, both have the same bits.
        let left = bytes - whole;
        let last = if whole == 8 { left.next_power_of_two() } else { whole };
        let high = self.gpr();
        self.load_gpr(high, mem.plus((bytes - last) as i32), last as u8);
        let v = if whole == 8 {
            self.shift_right(high, last - left);
            let (low, high) = (self.v2(&enc::MOVQ_FROM, W::X, low), self.v2(&enc::MOVQ_FROM, W::X, high));
            self.v3i(&enc::SHUFPS, W::X, low, high, 0x44)
        } else {
            self.emit(Inst::Shift { op: 4, dst: high, imm: 8 * left as u8 });
            self.alu(Alu::Or, low, Src::R(high));
            self.v2(&enc::MOVQ_FROM, W::X, low)
        };
        self.widened(d, v)
    }

    fn shift_right(&mut self, dst: V, bytes: usize) {
        if bytes > 0 {
            self.emit(Inst::Shift { op: 5, dst, imm: 8 * bytes as u8 });
        }
    }

    /// Stores the first `n` lanes to adjacent elements.
    pub(super) fn store_partial(&mut self, d: DType, v: V, mem: Mem, n: usize) {
        if d.size() >= 4 {
            return self.few_lanes(v, mem, n * d.size());
        }
        let v = self.packed(d, v);
        let bytes = n * d.size();
        if bytes < 8 {
            return self.few_bytes(v, mem, bytes);
        }
        self.store_vec(&enc::MOVSD_ST, W::X, v, mem);
        if bytes > 8 {
            let high = self.v2i(&enc::PSHUFD, W::X, v, 0x4e);
            self.few_bytes(high, mem.plus(8), bytes - 8);
        }
    }

    /// Stores fewer than 8 bytes.
    fn few_bytes(&mut self, v: V, mem: Mem, bytes: usize) {
        let g = self.gpr();
        self.to(g, &enc::MOVQ_TO, W::X, V::NONE, v);
        let whole = piece(bytes);
        self.store_gpr(g, mem, whole as u8);
        if bytes > whole {
            self.shift_right(g, bytes - whole);
            self.store_gpr(g, mem.plus((bytes - whole) as i32), whole as u8);
        }
    }

    /// Stores lanes of 4 or 8 bytes, fewer than a vector.
    fn few_lanes(&mut self, mut v: V, mut mem: Mem, mut bytes: usize) {
        if bytes >= 16 {
            self.store_vec(&enc::MOVUPS_ST, W::X, v, mem);
            (mem, bytes) = (mem.plus(16), bytes - 16);
            if bytes == 0 {
                return;
            }
            v = self.v2i(&enc::EXTRACTF128, W::Y, v, 1);
        }
        if bytes >= 8 {
            self.store_vec(&enc::MOVSD_ST, W::X, v, mem);
            (mem, bytes) = (mem.plus(8), bytes - 8);
            if bytes == 0 {
                return;
            }
            v = self.v2i(&enc::PSHUFD, W::X, v, 0x4e);
        }
        self.store_vec(&enc::MOVSS_ST, W::X, v, mem);
    }
}
