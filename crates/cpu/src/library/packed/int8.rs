//! 8-bit codes times f32 vectors: each register of codes is converted and multiplied; a group's sum is scaled once.

use super::quantized_gemv::View;
use crate::gemm::Isa;
use std::ops::Range;

/// Computes rows; a chunk has 32 elements.
///
/// # Safety
/// The view's matrix, vectors and results are valid for its sizes, and the machine has the instruction set.
pub(super) unsafe fn rows(isa: Isa, view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the view's matrix, vectors and results are valid for its sizes, and the machine has `isa`.
    unsafe {
        for first in 0..view.m {
            match isa {
                Isa::Avx512 => x86::avx512(view, rows.clone(), first),
                _ => x86::avx2(view, rows.clone(), first),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (isa, view, rows);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::scales::{one, x86::prefetch_codes};
    use super::View;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    pub(super) unsafe fn avx512(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes. Groups have 16 elements or more, in
        // whole halves of a chunk.
        unsafe {
            let x = view.xs.cast::<f32>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * view.k);
                let mut acc = [_mm512_setzero_ps(); 2];
                for c in 0..view.whole / 32 {
                    let at = 32 * c;
                    prefetch_codes(data.wrapping_add(at));
                    let group = row * groups + at / view.group;
                    for half in 0..2 {
                        let at = at + 16 * half;
                        let codes = _mm_loadu_si128(data.add(at).cast());
                        let w = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
                        let sum = _mm512_mul_ps(w, _mm512_loadu_ps(x.add(at)));
                        let own = if view.group == 16 { group + half } else { group };
                        let scale = _mm512_set1_ps(one(view.scale.dtype, view.scales, own));
                        acc[half] = _mm512_fmadd_ps(sum, scale, acc[half]);
                    }
                }
                *view.y.add(first * view.n + row) = _mm512_reduce_add_ps(_mm512_add_ps(acc[0], acc[1]));
            }
        }
    }

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn avx2(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: as above.
        unsafe {
            let x = view.xs.cast::<f32>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * view.k);
                let mut acc = [_mm256_setzero_ps(); 4];
                for c in 0..view.whole / 32 {
                    let at = 32 * c;
                    prefetch_codes(data.wrapping_add(at));
                    let group = row * groups + at / view.group;
                    for quarter in 0..4 {
                        let at = at + 8 * quarter;
                        let codes = _mm_loadl_epi64(data.add(at).cast());
                        let w = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
                        let sum = _mm256_mul_ps(w, _mm256_loadu_ps(x.add(at)));
                        let own = if view.group == 16 { group + quarter / 2 } else { group };
                        let scale = _mm256_set1_ps(one(view.scale.dtype, view.scales, own));
                        acc[quarter] = _mm256_fmadd_ps(sum, scale, acc[quarter]);
                    }
                }
                let sum = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
                let mut lanes = [0f32; 8];
                _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
                let [a, b, c, d, e, f, g, h] = lanes;
                *view.y.add(first * view.n + row) = ((a + e) + (b + f)) + ((c + g) + (d + h));
            }
        }
    }
}
