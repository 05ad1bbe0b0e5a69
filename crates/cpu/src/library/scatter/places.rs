//! Slices that each go to one row of the operand: which of them are a part's, block by block.
//!
//! Whose a slice is can't be foreseen, so it is noted without a branch, sixteen at a time where vectors can leave lanes out; what is done
//! for those that were noted knows only the elements' type, and has little code.

use super::geometry::Geometry;
use crate::gemm::Isa;
use crate::library::element::Index;
use ir::DType;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Slices that are looked at together.
pub(super) const BLOCK: usize = 512;
/// What vectors may write beyond the last one that was noted.
const SLACK: usize = 16;

/// One row for each index: where rows begin, in operand and updates, and what indices may be.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Rows of the operand, and elements from one to the next.
    pub(super) count: u32,
    pub(super) stride: usize,
    /// Elements of the updates from one slice to the next.
    pub(super) updates: usize,
    slices: usize,
    clip: bool,
    dtype: DType,
    index: Index,
}

impl Geometry {
    /// The rows of a scatter along one axis whose slices are adjacent elements.
    pub(super) fn rows(&self) -> Option<Rows> {
        let ([c], 1, [last]) = (&self.components[..], self.rows, &self.batch[..]) else { return None };
        let fits = (0..i32::MAX as i64).contains(&c.room) && self.slices <= i32::MAX as usize;
        (fits && last.operand == 0 && self.slices > 0).then(|| Rows {
            count: c.room as u32 + 1,
            stride: c.stride,
            updates: last.updates,
            slices: self.slices,
            clip: self.clip,
            dtype: self.dtype,
            index: self.index,
        })
    }
}

/// The numbers of rows and of the slices that go to them.
pub(super) struct Places {
    rows: [MaybeUninit<u32>; BLOCK + SLACK],
    slices: [MaybeUninit<u32>; BLOCK + SLACK],
}

impl Rows {
    /// Calls `f` with rows among `own` and the slices that go there, in order.
    ///
    /// # Safety
    /// `indices` is good for all slices, and the machine has the instruction set.
    #[inline(always)]
    pub(super) unsafe fn each_block(
        &self,
        isa: Isa,
        indices: *const u8,
        own: Range<u32>,
        mut f: impl FnMut(&[u32], &[u32]),
    ) {
        let mut places = Places {
            rows: [const { MaybeUninit::uninit() }; BLOCK + SLACK],
            slices: [const { MaybeUninit::uninit() }; BLOCK + SLACK],
        };
        for first in (0..self.slices).step_by(BLOCK) {
            let block = first..self.slices.min(first + BLOCK);
            // SAFETY: the caller's promise; so many places were written.
            unsafe {
                let n = self.note(isa, indices, own.clone(), block, &mut places);
                let (rows, slices) = (places.rows.as_ptr().cast(), places.slices.as_ptr().cast());
                f(std::slice::from_raw_parts(rows, n), std::slice::from_raw_parts(slices, n));
            }
        }
    }

    /// Notes which slices of a block go to rows among `own`, and says how many do.
    ///
    /// # Safety
    /// As for [`Rows::each_block`].
    #[inline(never)]
    unsafe fn note(
        &self,
        isa: Isa,
        indices: *const u8,
        own: Range<u32>,
        block: Range<usize>,
        places: &mut Places,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                #[cfg(target_arch = "x86_64")]
                DType::I32 if isa == Isa::Avx512 => self.note_avx512(indices.cast(), own, block, places),
                DType::I32 => self.note_by(|i| *indices.cast::<i32>().add(i) as i64, own, block, places),
                DType::I64 => self.note_by(|i| *indices.cast::<i64>().add(i), own, block, places),
                _ => {
                    let _ = isa;
                    self.note_by(|i| (self.index)(indices, i), own, block, places)
                }
            }
        }
    }

    #[inline(always)]
    fn note_by(
        &self,
        index: impl Fn(usize) -> i64,
        own: Range<u32>,
        block: Range<usize>,
        places: &mut Places,
    ) -> usize {
        let (start, len) = (own.start as u64, own.len() as u64);
        let (most, mut n) = (self.count as i64 - 1, 0);
        for slice in block {
            let i = index(slice);
            let row = if self.clip { i.clamp(0, most) } else { i };
            places.rows[n].write(row as u32);
            places.slices[n].write(slice as u32);
            n += ((row as u64).wrapping_sub(start) < len) as usize;
        }
        n
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn note_avx512(
        &self,
        indices: *const i32,
        own: Range<u32>,
        block: Range<usize>,
        places: &mut Places,
    ) -> usize {
        use std::arch::x86_64::*;
        let (start, len) = (_mm512_set1_epi32(own.start as i32), _mm512_set1_epi32(own.len() as i32));
        let (zero, most) = (_mm512_setzero_si512(), _mm512_set1_epi32((self.count - 1) as i32));
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut n = 0;
        for first in block.clone().step_by(SLACK) {
            let there = u16::MAX >> (SLACK - SLACK.min(block.end - first));
            // SAFETY: lanes beyond the block are masked; there is slack behind all places of a block.
            unsafe {
                let mut row = _mm512_maskz_loadu_epi32(there, indices.add(first));
                if self.clip {
                    row = _mm512_min_epi32(_mm512_max_epi32(row, zero), most);
                }
                let ours = _mm512_mask_cmplt_epu32_mask(there, _mm512_sub_epi32(row, start), len);
                let slice = _mm512_add_epi32(_mm512_set1_epi32(first as i32), lanes);
                _mm512_storeu_si512(places.rows.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(ours, row));
                _mm512_storeu_si512(places.slices.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(ours, slice));
                n += ours.count_ones() as usize;
            }
        }
        n
    }
}
