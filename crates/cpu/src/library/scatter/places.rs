//! Collects the slices that go to a part's elements, block by block.
//!
//! The owner of a slice is unpredictable, so slices are appended to a list without branches, sixteen at a time where vectors have
//! masks. The code that processes the list depends only on the element type and is small.

use super::geometry::{Component, Geometry, Walk};
use crate::gemm::Isa;
use ir::DType;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The number of slices that are examined together.
pub(super) const BLOCK: usize = 512;
/// The number of elements that vector stores may write after the last one of the list.
const SLACK: usize = 16;

/// The list of a part's positions in the operand and in the updates.
pub(super) struct Places<'a> {
    to: [MaybeUninit<u32>; BLOCK + SLACK],
    from: [MaybeUninit<u32>; BLOCK + SLACK],
    n: usize,
    own: Range<u32>,
    meet: &'a dyn Fn(&[u32], &[u32]),
}

/// Slices along one axis: their first index,
/// and the offsets of the first slice in operand and updates without the index's contribution.
pub(super) struct Line {
    pub(super) index: usize,
    pub(super) operand: usize,
    pub(super) updates: usize,
    pub(super) axis: Walk,
    pub(super) component: Component,
}

impl<'a> Places<'a> {
    /// Makes a list of positions within `own`; `meet` is called with them in order.
    pub(super) fn new(own: Range<usize>, meet: &'a dyn Fn(&[u32], &[u32])) -> Places<'a> {
        let none = [const { MaybeUninit::uninit() }; BLOCK + SLACK];
        Places { to: none, from: none, n: 0, own: own.start as u32..own.end as u32, meet }
    }

    /// Appends one position.
    pub(super) fn push(&mut self, to: usize, from: usize) {
        self.room(1);
        self.to[self.n].write(to as u32);
        self.from[self.n].write(from as u32);
        self.n += self.own.contains(&(to as u32)) as usize;
    }

    /// Makes room for `more` positions.
    fn room(&mut self, more: usize) {
        if self.n + more > BLOCK {
            self.finish();
        }
    }

    /// Processes the remaining positions.
    pub(super) fn finish(&mut self) {
        let (to, from) = (self.to.as_ptr().cast(), self.from.as_ptr().cast());
        // SAFETY: so many places were written.
        unsafe { (self.meet)(std::slice::from_raw_parts(to, self.n), std::slice::from_raw_parts(from, self.n)) };
        self.n = 0;
    }

    /// Appends the slices of a line that go to elements of this part.
    ///
    /// # Safety
    /// `indices` is valid for all slices, and the machine has the instruction set.
    pub(super) unsafe fn line(&mut self, g: &Geometry, isa: Isa, indices: *const u8, line: &Line, along: Range<usize>) {
        for first in along.clone().step_by(BLOCK) {
            let some = first..along.end.min(first + BLOCK);
            self.room(some.len());
            // SAFETY: `indices` is valid for the slices `along` of the line, and the machine has `isa`.
            unsafe {
                match g.dtype {
                    #[cfg(target_arch = "x86_64")]
                    DType::I32 if isa == Isa::Avx512 => self.note_avx512(g.clip, indices.cast(), line, some),
                    DType::I32 => self.note(g.clip, |i| *indices.cast::<i32>().add(i) as i64, line, some),
                    DType::I64 => self.note(g.clip, |i| *indices.cast::<i64>().add(i), line, some),
                    _ => {
                        let _ = isa;
                        self.note(g.clip, |i| (g.index)(indices, i), line, some)
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn note(&mut self, clip: bool, index: impl Fn(usize) -> i64, line: &Line, some: Range<usize>) {
        let (start, len) = (self.own.start, self.own.len() as u32);
        let (room, stride, axis) = (line.component.room, line.component.stride as u32, line.axis);
        let mut to = (line.operand + some.start * axis.operand) as u32;
        let mut from = (line.updates + some.start * axis.updates) as u32;
        let mut n = self.n;
        for j in some {
            let i = index(line.index + j);
            let place = if clip { i.clamp(0, room) } else { i };
            let at = to.wrapping_add((place as u32).wrapping_mul(stride));
            self.to[n].write(at);
            self.from[n].write(from);
            n += ((place as u64 <= room as u64) & (at.wrapping_sub(start) < len)) as usize;
            to = to.wrapping_add(axis.operand as u32);
            from = from.wrapping_add(axis.updates as u32);
        }
        self.n = n;
    }

    /// # Safety
    /// `indices` is valid for the slices `some` of the line, and the machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn note_avx512(&mut self, clip: bool, indices: *const i32, line: &Line, some: Range<usize>) {
        use std::arch::x86_64::*;
        let all = |x: usize| _mm512_set1_epi32(x as i32);
        let (start, len) = (all(self.own.start as usize), all(self.own.len()));
        let (zero, room, stride) =
            (_mm512_setzero_si512(), all(line.component.room as usize), all(line.component.stride));
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let axis = line.axis;
        let each =
            |base: usize, by: usize| _mm512_add_epi32(all(base + some.start * by), _mm512_mullo_epi32(lanes, all(by)));
        let (mut base, mut from) = (each(line.operand, axis.operand), each(line.updates, axis.updates));
        let (along, next) = (all(SLACK * axis.operand), all(SLACK * axis.updates));
        let mut n = self.n;
        for first in some.clone().step_by(SLACK) {
            let there = u16::MAX >> (SLACK - SLACK.min(some.end - first));
            // SAFETY: lanes beyond the line are masked; there is slack behind all places of a block.
            unsafe {
                let mut place = _mm512_maskz_loadu_epi32(there, indices.add(line.index + first));
                if clip {
                    place = _mm512_min_epi32(_mm512_max_epi32(place, zero), room);
                }
                let to = _mm512_add_epi32(base, _mm512_mullo_epi32(place, stride));
                let inside = _mm512_mask_cmple_epu32_mask(there, place, room);
                let ours = _mm512_mask_cmplt_epu32_mask(inside, _mm512_sub_epi32(to, start), len);
                _mm512_storeu_si512(self.to.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(ours, to));
                _mm512_storeu_si512(self.from.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(ours, from));
                n += ours.count_ones() as usize;
            }
            base = _mm512_add_epi32(base, along);
            from = _mm512_add_epi32(from, next);
        }
        self.n = n;
    }
}
