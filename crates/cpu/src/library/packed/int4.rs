//! 4-bit codes through a table in a register, times vectors in f32: any table of 16 numbers costs the same.
//!
//! A vector register holds 32-bit words of eight codes each. The vectors are arranged so that the j-th code of every word
//! meets the j-th of eight registers: a shift, a lookup and a multiply-add for a register full of weights.

use super::quantized_gemv::View;
use crate::gemm::Isa;
use std::ops::Range;

/// Elements of a row that one register of codes holds.
pub(super) fn chunk(isa: Isa) -> usize {
    if isa == Isa::Avx512 { 128 } else { 64 }
}

/// Arranges the vectors: for each chunk eight registers, the j-th with elements 8·lane + j. Where the first code of a byte
/// lies in its high half, neighbours are exchanged.
///
/// # Safety
/// `to` has room for the vectors, and the view is good.
pub(super) unsafe fn arrange_vectors(isa: Isa, view: &View, to: *mut f32, high_first: bool) {
    let lanes = chunk(isa) / 8;
    for m in 0..view.m {
        for at in (0..view.whole).step_by(8 * lanes) {
            for j in 0..8 {
                let from = if high_first { j ^ 1 } else { j };
                for lane in 0..lanes {
                    // SAFETY: inside of the vectors by the caller's promise.
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
/// The view is good, its vectors are arranged, and the instruction set is there.
pub(super) unsafe fn rows(isa: Isa, view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
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

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,f16c")]
    pub(super) unsafe fn avx512<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the caller vouches for the view.
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

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn avx2<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the caller vouches for the view.
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
                            // The fourth bit of a code, as a sign, chooses between the halves of the table.
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
