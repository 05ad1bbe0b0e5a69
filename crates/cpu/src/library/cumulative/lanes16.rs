//! Scans with sums and products of 16-bit floats along eight lines at once,
//! each in an f64 lane, which is the accumulator type of the reference.
//!
//! Blocks of eight elements of each line are transposed when they are read and written. A result is rounded once: it is first
//! truncated to an f32 whose last bit is set if that was inexact (round to odd), so that the second rounding is correct.

use super::{Isa, SharedPtr};
use ir::DType;
use ir::ops::ReduceKind;

/// The number of lines that are scanned together.
pub(super) const LINES: usize = 8;

/// Scans lines: `(operand, result)`, starts of the lines, number of elements, whether to reverse, eight f64 states that become
/// the last ones. A fold does not write results.
pub(super) type Walk = unsafe fn((SharedPtr<u16>, SharedPtr<u16>), [usize; LINES], usize, bool, *mut f64);

/// The function that only folds, and the one that writes every result.
#[derive(Clone, Copy)]
pub(super) struct Walks {
    pub(super) fold: Walk,
    pub(super) scan: Walk,
}

/// Returns the functions for a dtype and a fold, if the machine has the vector instructions.
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

    /// Transposes rows to columns.
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
        // Add half of the last remaining bit, minus one if that bit is even; a NaN keeps its upper half.
        let last = _mm256_and_si256(_mm256_srli_epi32::<16>(odd), _mm256_set1_epi32(1));
        let up = _mm256_add_epi32(_mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)), last);
        let nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x);
        let up = _mm256_mask_or_epi32(up, nan, odd, _mm256_set1_epi32(0x40_0000));
        _mm256_cvtepi32_epi16(_mm256_srli_epi32::<16>(up))
    }

    /// # Safety
    /// All lines are readable and, if results are written, writable, which nothing else does; lines may be one and the
    /// same.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    unsafe fn walk<const HALF: bool, const PRODUCT: bool, const WRITE: bool>(
        (x, y): (SharedPtr<u16>, SharedPtr<u16>),
        starts: [usize; LINES],
        len: usize,
        reverse: bool,
        states: *mut f64,
    ) {
        // SAFETY: lanes beyond a block are masked, the others are inside of the lines, and `states` is valid for eight
        // states.
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
