//! 4-bit codes through a lookup table in a register, times f32 vectors. Any table of 16 numbers has the same cost.
//!
//! A vector register contains 32-bit words of eight codes each. The vectors are arranged so that the j-th code of every word
//! is multiplied by the j-th of eight registers: a shift, a lookup and a multiply-add per register of weights.

use super::quantized_gemv::View;
use crate::gemm::Isa;
use std::ops::Range;

/// Returns the number of row elements in one register of codes.
pub(super) fn chunk(isa: Isa) -> usize {
    if isa == Isa::Avx512 { 128 } else { 64 }
}

/// Arranges the vectors: for each chunk eight registers, the j-th with elements 8·lane + j. Where the first code of a byte
/// is in its high half, adjacent registers are swapped.
///
/// # Safety
/// `to` has room for the vectors, and the view's vectors are valid for its sizes.
pub(super) unsafe fn arrange_vectors(isa: Isa, view: &View, to: *mut f32, high_first: bool) {
    let lanes = chunk(isa) / 8;
    for m in 0..view.m {
        for at in (0..view.whole).step_by(8 * lanes) {
            for j in 0..8 {
                let from = if high_first { j ^ 1 } else { j };
                for lane in 0..lanes {
                    // SAFETY: both indices are below `m · k`, the number of elements of the vectors, for which `to` has
                    // room.
                    unsafe {
                        *to.add(m * view.k + at + j * lanes + lane) = *view.plain.add(m * view.k + at + 8 * lane + from)
                    };
                }
            }
        }
    }
}

/// Computes rows.
///
/// # Safety
/// The view's matrix, arranged vectors and results are valid for its sizes, and the machine has the instruction set.
pub(super) unsafe fn rows(isa: Isa, view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the view's matrix, arranged vectors and results are valid for its sizes, and the machine has `isa`.
    unsafe {
        for first in (0..view.m).step_by(4) {
            match (isa, (view.m - first).min(4)) {
                (Isa::Avx512, 1) => x86::avx512::<1>(view, rows.clone(), first),
                (Isa::Avx512, 2) => x86::avx512::<2>(view, rows.clone(), first),
                (Isa::Avx512, 3) => x86::avx512::<3>(view, rows.clone(), first),
                (Isa::Avx512, _) => x86::avx512::<4>(view, rows.clone(), first),
                (_, 1) => x86::avx2::<1>(view, rows.clone(), first),
                (_, 2) => x86::avx2::<2>(view, rows.clone(), first),
                (_, 3) => x86::avx2::<3>(view, rows.clone(), first),
                _ => x86::avx2::<4>(view, rows.clone(), first),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (isa, view, rows);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::scales::{one, x86::lanes, x86::prefetch_codes, x86::spread};
    use super::View;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// # Safety
    /// The view's matrix, arranged vectors and results are valid for its sizes, and the machine has AVX-512.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    pub(super) unsafe fn avx512<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            let table = _mm512_loadu_ps(view.table.as_ptr());
            let which = spread(&view.scale);
            let which = _mm512_loadu_si512(which.as_ptr().cast());
            let xs = view.xs.cast::<f32>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * (view.k / 2));
                let scales = view.scale.first(0) + row * groups;
                let mut acc = [_mm512_setzero_ps(); M];
                for c in 0..view.whole / 128 {
                    let codes = _mm512_loadu_si512(data.add(64 * c).cast());
                    prefetch_codes(data.wrapping_add(64 * c));
                    let x = xs.add(128 * c);
                    let mut sum = [_mm512_setzero_ps(); M];
                    macro_rules! step {
                        ($j:literal) => {
                            let w = _mm512_permutexvar_ps(_mm512_srli_epi32::<{ 4 * $j }>(codes), table);
                            for m in 0..M {
                                sum[m] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x.add(m * view.k + 16 * $j)), sum[m]);
                            }
                        };
                    }
                    step!(0);
                    step!(1);
                    step!(2);
                    step!(3);
                    step!(4);
                    step!(5);
                    step!(6);
                    step!(7);
                    let scale = lanes(&view.scale, view.scales, scales + view.scale.first(c), which);
                    for m in 0..M {
                        acc[m] = _mm512_fmadd_ps(sum[m], scale, acc[m]);
                    }
                }
                for m in 0..M {
                    *view.y.add((first + m) * view.n + row) = _mm512_reduce_add_ps(acc[m]);
                }
            }
        }
    }

    /// # Safety
    /// The view's matrix, arranged vectors and results are valid for its sizes, and the machine has AVX2.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn avx2<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            let low = _mm256_loadu_ps(view.table.as_ptr());
            let high = _mm256_loadu_ps(view.table.as_ptr().add(8));
            let xs = view.xs.cast::<f32>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * (view.k / 2));
                let mut acc = [_mm256_setzero_ps(); M];
                for c in 0..view.whole / 64 {
                    let codes = _mm256_loadu_si256(data.add(32 * c).cast());
                    prefetch_codes(data.wrapping_add(32 * c));
                    let x = xs.add(64 * c);
                    let mut sum = [_mm256_setzero_ps(); M];
                    macro_rules! step {
                        ($j:literal) => {
                            let code = _mm256_srli_epi32::<{ 4 * $j }>(codes);
                            // The fourth bit of a code, moved to the sign bit, selects the half of the table.
                            let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(code));
                            let (a, b) = (_mm256_permutevar8x32_ps(low, code), _mm256_permutevar8x32_ps(high, code));
                            let w = _mm256_blendv_ps(a, b, upper);
                            for m in 0..M {
                                sum[m] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x.add(m * view.k + 8 * $j)), sum[m]);
                            }
                        };
                    }
                    step!(0);
                    step!(1);
                    step!(2);
                    step!(3);
                    step!(4);
                    step!(5);
                    step!(6);
                    step!(7);
                    let at = row * groups + view.scale.first(c);
                    let each = view.scale.groups.max(1);
                    let mut scale = [0f32; 8];
                    for (lane, s) in scale.iter_mut().enumerate() {
                        *s = one(view.scale.dtype, view.scales, at + lane * each / 8);
                    }
                    let scale = _mm256_loadu_ps(scale.as_ptr());
                    for m in 0..M {
                        acc[m] = _mm256_fmadd_ps(sum[m], scale, acc[m]);
                    }
                }
                for m in 0..M {
                    let mut lanes = [0f32; 8];
                    _mm256_storeu_ps(lanes.as_mut_ptr(), acc[m]);
                    let [a, b, c, d, e, f, g, h] = lanes;
                    *view.y.add((first + m) * view.n + row) = ((a + e) + (b + f)) + ((c + g) + (d + h));
                }
            }
        }
    }
}
