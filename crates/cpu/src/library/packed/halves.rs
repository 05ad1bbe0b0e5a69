//! Codes as bf16 numbers times bf16 vectors (AVX-512 BF16): a lookup gives 32 weights at once, and one instruction multiplies
//! them and adds neighbours in f32.
//!
//! Whole numbers of up to 8 bits and E2M1 are exact in bf16. NF4's are two bf16 numbers each, whose products are added. An 8-bit
//! code is two lookups, of its halves.

use super::few::View;
use std::ops::Range;

/// Whether this machine has the instructions.
pub(super) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Arranges the vectors: for each 32 words of codes, `per` registers of 32, the j-th with elements per·word + j. Where the
/// first code of a byte lies in its high half, neighbours are exchanged.
///
/// # Safety
/// `to` has room for the vectors, and the view is good.
pub(super) unsafe fn arrange(view: &View, to: *mut u16, per: usize, high_first: bool) {
    for m in 0..view.m {
        for at in (0..view.whole).step_by(32 * per) {
            for j in 0..per {
                let from = if high_first { j ^ 1 } else { j };
                for word in 0..32 {
                    // SAFETY: inside of the vectors by the caller's promise. They were bf16: nothing is lost.
                    unsafe {
                        let x = *view.plain.add(m * view.k + at + per * word + from);
                        *to.add(m * view.k + at + j * 32 + word) = (x.to_bits() >> 16) as u16;
                    }
                }
            }
        }
    }
}

/// Computes rows of 4-bit codes.
///
/// # Safety
/// The view is good, its vectors are arranged, and the instructions are there.
pub(super) unsafe fn nibbles(view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        let exact = view.table.iter().all(|x| x.to_bits() & 0xFFFF == 0);
        for first in (0..view.m).step_by(2) {
            match (exact, view.m - first) {
                (true, 1) => x86::nibbles::<1, 1>(view, rows.clone(), first),
                (true, _) => x86::nibbles::<2, 1>(view, rows.clone(), first),
                (false, 1) => x86::nibbles::<1, 2>(view, rows.clone(), first),
                (false, _) => x86::nibbles::<2, 2>(view, rows.clone(), first),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (view, rows);
}

/// Computes rows of 8-bit codes.
///
/// # Safety
/// As for [`nibbles`].
pub(super) unsafe fn bytes(view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        for first in (0..view.m).step_by(2) {
            match view.m - first {
                1 => x86::bytes::<1>(view, rows.clone(), first),
                _ => x86::bytes::<2>(view, rows.clone(), first),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (view, rows);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::scales::x86::{lanes, spread};
    use super::View;
    use half::bf16;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// A table of 16 numbers, twice: lookups take five bits, of which the fifth belongs to a neighbour.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn table(numbers: [f32; 16]) -> __m512i {
        let words: [u16; 32] = std::array::from_fn(|i| bf16::from_f32(numbers[i % 16]).to_bits());
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    unsafe fn multiply(sum: __m512, w: __m512i, x: *const u16) -> __m512 {
        // SAFETY: the caller's function has the features, and 32 elements are there; the types have the same bits.
        unsafe {
            let (w, x): (__m512bh, __m512bh) =
                (std::mem::transmute(w), std::mem::transmute(_mm512_loadu_si512(x.cast())));
            _mm512_dpbf16_ps(sum, w, x)
        }
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c")]
    pub(super) unsafe fn nibbles<const M: usize, const T: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the caller vouches for the view.
        unsafe {
            let high = view.table.map(|x| bf16::from_f32(x).to_f32());
            let low: [f32; 16] = std::array::from_fn(|i| view.table[i] - high[i]);
            let tables = [table(high), table(low)];
            let which = spread(&view.scale);
            let which = _mm512_loadu_si512(which.as_ptr().cast());
            let xs = view.xs.cast::<u16>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * (view.k / 2));
                let mut acc = [_mm512_setzero_ps(); M];
                for c in 0..view.whole / 128 {
                    let codes = _mm512_loadu_si512(data.add(64 * c).cast());
                    let x = xs.add(128 * c);
                    let mut sum = [_mm512_setzero_ps(); M];
                    macro_rules! step {
                        ($j:literal) => {
                            let code = _mm512_srli_epi16::<{ 4 * $j }>(codes);
                            for t in 0..T {
                                let w = _mm512_permutexvar_epi16(code, tables[t]);
                                for m in 0..M {
                                    sum[m] = multiply(sum[m], w, x.add(m * view.k + 32 * $j));
                                }
                            }
                        };
                    }
                    step!(0);
                    step!(1);
                    step!(2);
                    step!(3);
                    let scale = lanes(&view.scale, view.scales, row * groups + view.scale.first(c), which);
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

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c")]
    pub(super) unsafe fn bytes<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the caller vouches for the view.
        unsafe {
            let low = table(std::array::from_fn(|i| i as f32));
            let high = table(std::array::from_fn(|i| (((i as i32) ^ 8) - 8) as f32 * 16.0));
            let which = spread(&view.scale);
            let which = _mm512_loadu_si512(which.as_ptr().cast());
            let xs = view.xs.cast::<u16>().add(first * view.k);
            let groups = view.k / view.group;
            for row in rows {
                let data = view.data.add(row * view.k);
                let mut acc = [_mm512_setzero_ps(); M];
                for c in 0..view.whole / 64 {
                    let codes = _mm512_loadu_si512(data.add(64 * c).cast());
                    let x = xs.add(64 * c);
                    let mut sum = [_mm512_setzero_ps(); M];
                    macro_rules! step {
                        ($j:literal, $table:expr) => {
                            let w = _mm512_permutexvar_epi16(_mm512_srli_epi16::<{ 4 * $j }>(codes), $table);
                            for m in 0..M {
                                sum[m] = multiply(sum[m], w, x.add(m * view.k + 32 * ($j / 2)));
                            }
                        };
                    }
                    step!(0, low);
                    step!(1, high);
                    step!(2, low);
                    step!(3, high);
                    let scale = lanes(&view.scale, view.scales, row * groups + view.scale.first(c), which);
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
}
