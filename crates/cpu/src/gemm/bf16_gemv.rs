//! Products of bf16 rows and an f32 vector without shuffles, with AVX-512. In a 32-bit word that contains two bf16 elements,
//! clearing the low half gives the second one as f32, and a shift by 16 gives the first one. So the vector is reordered: each
//! block of [`REGISTER`] elements has the even-indexed elements first, then the odd-indexed ones.
//! A remainder at the end keeps its order.

use super::gemv::{ALONG, Product};
use half::bf16;
use std::arch::x86_64::*;

/// The number of bf16 elements in a register.
const REGISTER: usize = 32;
const _: () = assert!(ALONG.is_multiple_of(REGISTER));

/// Deinterleaves the vector: even-indexed elements first in each block.
///
/// # Safety
/// `x` is valid for `k` elements, and the machine has AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
pub(super) unsafe fn deinterleave(x: *mut f32, k: usize) {
    let evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odds = _mm512_or_si512(evens, _mm512_set1_epi32(1));
    for d in (0..k / REGISTER * REGISTER).step_by(REGISTER) {
        // SAFETY: `x` is valid for `k` elements, and `d + REGISTER` is at most `k`.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(x.add(d)), _mm512_loadu_ps(x.add(d + 16)));
            _mm512_storeu_ps(x.add(d), _mm512_permutex2var_ps(a, evens, b));
            _mm512_storeu_ps(x.add(d + 16), _mm512_permutex2var_ps(a, odds, b));
        }
    }
}

/// Multiplies a bf16 matrix that is contiguous along k by a deinterleaved vector.
///
/// # Safety
/// As for [`super::gemv::HasGemv::gemv`].
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
pub(super) unsafe fn bf16_gemv(p: &Product<f32>) {
    for j in 0..p.n {
        // SAFETY: vector and rows are valid for `p.k` elements, and `p.y` for `p.n` results.
        unsafe {
            let row = p.matrix.cast::<bf16>().offset(j as isize * p.along_y);
            *p.y.add(j) = if p.k <= 2 * ALONG {
                dot(p.x, row, p.k)
            } else {
                let blocks = (0..p.k).step_by(ALONG);
                blocks.map(|d| dot(p.x.add(d), row.add(d), ALONG.min(p.k - d)) as f64).sum::<f64>() as f32
            };
        }
    }
}

/// # Safety
/// `x` and `row` are valid for `k` elements, and the machine has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
unsafe fn dot(x: *const f32, row: *const bf16, k: usize) -> f32 {
    let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    let mut sums = [_mm512_setzero_ps(); 4];
    // Adds a group to two sums.
    let group = |d: usize, [even, odd]: [__m512; 2]| {
        // SAFETY: the group is inside of the `k` elements of `x` and of the row.
        let (words, x0, x1) = unsafe {
            (_mm512_loadu_si512(row.add(d).cast()), _mm512_loadu_ps(x.add(d)), _mm512_loadu_ps(x.add(d + 16)))
        };
        let (first, second) = (_mm512_slli_epi32::<16>(words), _mm512_and_si512(words, upper));
        [_mm512_fmadd_ps(x0, _mm512_castsi512_ps(first), even), _mm512_fmadd_ps(x1, _mm512_castsi512_ps(second), odd)]
    };
    let whole = k / (2 * REGISTER) * 2 * REGISTER;
    for d in (0..whole).step_by(2 * REGISTER) {
        [sums[0], sums[1]] = group(d, [sums[0], sums[1]]);
        [sums[2], sums[3]] = group(d + REGISTER, [sums[2], sums[3]]);
    }
    let mut at = whole;
    if k - at >= REGISTER {
        [sums[0], sums[1]] = group(at, [sums[0], sums[1]]);
        at += REGISTER;
    }
    for sum in &mut sums[2..] {
        let mask = ((1u32 << (k - at).min(16)) - 1) as __mmask16;
        // SAFETY: elements from `k` on are not read.
        let (words, x) =
            unsafe { (_mm256_maskz_loadu_epi16(mask, row.add(at).cast()), _mm512_maskz_loadu_ps(mask, x.add(at))) };
        let wide = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words));
        *sum = _mm512_fmadd_ps(x, _mm512_castsi512_ps(wide), *sum);
        at = k.min(at + 16);
    }
    let [a, b, c, d] = sums;
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)))
}
