//! Running sums and products of 16-bit floats along eight lines at once, each in a lane of f64, which is what the reference keeps them in.
//!
//! Blocks of eight elements of each line are transposed on the way in and on the way out. A result is rounded once: it is cut to an f32 whose
//! last bit is set unless that was exact, from which the second rounding sees on which side of the middle it was.

use super::{Isa, SharedPtr};
use ir::DType;
use ir::ops::ReduceKind;

/// Lines that are walked along together.
pub(super) const LINES: usize = 8;

/// A walk along the lines that begin at some elements, so many elements each, forwards or backwards, from eight states of f64 to the last ones:
/// `(operand, result)`, beginnings, elements, whether backwards, states. A fold alone writes no results.
pub(super) type Walk = unsafe fn((SharedPtr<u16>, SharedPtr<u16>), [usize; LINES], usize, bool, *mut f64);

/// The walks that fold alone, and that write every result.
#[derive(Clone, Copy)]
pub(super) struct Walks {
    pub(super) fold: Walk,
    pub(super) scan: Walk,
}

/// The walks for a dtype and a fold, where the machine has such vectors.
pub(super) fn walks(dtype: DType, kind: ReduceKind, isa: Isa) -> Option<Walks> {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        return Some(match (dtype, kind) {
            (DType::BF16, ReduceKind::Sum) => x86::walks::<false, false>(),
            (DType::BF16, ReduceKind::Prod) => x86::walks::<false, true>(),
            (DType::F16, ReduceKind::Sum) => x86::walks::<true, false>(),
            (DType::F16, ReduceKind::Prod) => x86::walks::<true, true>(),
            _ => return None,
        });
    }
    let _ = (dtype, kind, isa);
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LINES, SharedPtr, Walks};
    use std::arch::x86_64::*;

    pub(super) fn walks<const HALF: bool, const PRODUCT: bool>() -> Walks {
        Walks { fold: walk::<HALF, PRODUCT, false>, scan: walk::<HALF, PRODUCT, true> }
    }

    /// Rows become columns.
    #[target_feature(enable = "avx2")]
    fn transposed(r: [__m128i; LINES]) -> [__m128i; LINES] {
        let a: [__m128i; LINES] = std::array::from_fn(|i| match i % 2 {
            0 => _mm_unpacklo_epi16(r[i / 2], r[i / 2 + 4]),
            _ => _mm_unpackhi_epi16(r[i / 2], r[i / 2 + 4]),
        });
        let b: [__m128i; LINES] = std::array::from_fn(|i| match i % 2 {
            0 => _mm_unpacklo_epi16(a[i / 2], a[i / 2 + 4]),
            _ => _mm_unpackhi_epi16(a[i / 2], a[i / 2 + 4]),
        });
        std::array::from_fn(|i| match i % 2 {
            0 => _mm_unpacklo_epi16(b[i / 2], b[i / 2 + 4]),
            _ => _mm_unpackhi_epi16(b[i / 2], b[i / 2 + 4]),
        })
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    fn widened<const HALF: bool>(x: __m128i) -> __m512d {
        _mm512_cvtps_pd(match HALF {
            true => _mm256_cvtph_ps(x),
            false => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x))),
        })
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    fn rounded<const HALF: bool>(x: __m512d) -> __m128i {
        let cut = _mm512_cvt_roundpd_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(x);
        let inexact = _mm512_cmp_pd_mask::<_CMP_NEQ_UQ>(_mm512_cvtps_pd(cut), x);
        let bits = _mm256_castps_si256(cut);
        let odd = _mm256_mask_or_epi32(bits, inexact, bits, _mm256_set1_epi32(1));
        if HALF {
            return _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(odd));
        }
        // Half of the last bit that stays, and one bit less if that is even; of a NaN, which stays one, the upper half.
        let last = _mm256_and_si256(_mm256_srli_epi32::<16>(odd), _mm256_set1_epi32(1));
        let up = _mm256_add_epi32(_mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)), last);
        let nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x);
        let up = _mm256_mask_or_epi32(up, nan, odd, _mm256_set1_epi32(0x40_0000));
        _mm256_cvtepi32_epi16(_mm256_srli_epi32::<16>(up))
    }

    /// # Safety
    /// Elements of all lines are there to read and, if results are written, to write, by nobody else; lines may be one and the same.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    unsafe fn walk<const HALF: bool, const PRODUCT: bool, const WRITE: bool>(
        (x, y): (SharedPtr<u16>, SharedPtr<u16>),
        starts: [usize; LINES],
        len: usize,
        reverse: bool,
        states: *mut f64,
    ) {
        // SAFETY: lanes beyond a block are masked; the caller vouches for the others, and for eight states.
        unsafe {
            let mut state = _mm512_loadu_pd(states);
            for first in (0..len).step_by(LINES) {
                let n = LINES.min(len - first);
                let at = if reverse { len - first - n } else { first };
                let mask = (u8::MAX as u32 >> (LINES - n)) as __mmask8;
                let mut block = starts.map(|start| _mm_maskz_loadu_epi16(mask, x.at(start + at).cast::<i16>()));
                block = transposed(block);
                for step in 0..n {
                    let k = if reverse { n - 1 - step } else { step };
                    let e = widened::<HALF>(block[k % LINES]);
                    state = if PRODUCT { _mm512_mul_pd(state, e) } else { _mm512_add_pd(state, e) };
                    if WRITE {
                        block[k % LINES] = rounded::<HALF>(state);
                    }
                }
                if WRITE {
                    for (start, results) in starts.into_iter().zip(transposed(block)) {
                        _mm_mask_storeu_epi16(y.at(start + at).cast::<i16>(), mask, results);
                    }
                }
            }
            _mm512_storeu_pd(states, state);
        }
    }
}
