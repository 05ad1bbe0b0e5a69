//! Quantized codes as bf16 numbers times bf16 vectors (AVX-512 BF16): a table lookup gives 32 weights at once, and one
//! instruction multiplies them and adds pairs of products in f32.
//!
//! Integers of up to 8 bits and E2M1 are exact in bf16. An NF4 value is the sum of two bf16 numbers, whose products are added. An
//! 8-bit code takes two lookups, one for each half.

use super::quantized_gemv::View;
use std::ops::Range;

/// Returns whether this machine has the instructions.
pub(super) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Arranges bf16 vectors: for each 32 words of codes, `per` registers of 32 elements, the j-th with elements per·word + j. Where the
/// first code of a byte is in its high half, adjacent registers are swapped.
///
/// # Safety
/// The view's bf16 vectors are valid for its sizes, `to` has room for them, and the machine has the instructions.
pub(super) unsafe fn arrange(view: &View, to: *mut u16, per: usize, high_first: bool) {
    #[cfg(target_arch = "x86_64")]
    for m in 0..view.m {
        for at in (0..view.whole).step_by(32 * per) {
            let at = m * view.k + at;
            // SAFETY: the view has `m` bf16 vectors of `k` elements, `to` has room for them, and the machine has the
            // instructions.
            unsafe {
                let from = view.given.cast::<u16>();
                match per {
                    4 => x86::in_fours(from.add(at), to.add(at), high_first),
                    _ => x86::in_twos(from.add(at), to.add(at)),
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (view, to, per, high_first);
}

/// Computes rows of 4-bit codes.
///
/// # Safety
/// The view's matrix, arranged vectors and results are valid for its sizes, and the machine has the instructions.
pub(super) unsafe fn nibbles(view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the view's matrix, arranged vectors and results are valid for its sizes, and the machine has the
    // instructions.
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
    // SAFETY: the view's matrix, arranged vectors and results are valid for its sizes, and the machine has the
    // instructions.
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
    use super::super::scales::x86::{lanes, load_16, prefetch_codes, span, spread, spreads};
    use super::View;
    use half::bf16;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// Returns a table of 16 numbers, stored twice: lookups use five bits, of which the fifth belongs to the next code.
    ///
    /// # Safety
    /// The machine has AVX-512.
    ///
    /// # Safety
    /// `from` and `to` are valid for 128 elements.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn table(numbers: [f32; 16]) -> __m512i {
        let words: [u16; 32] = std::array::from_fn(|i| bf16::from_f32(numbers[i % 16]).to_bits());
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    /// Deinterleaves 128 elements by four: every fourth element from the first on, then from the second on, and so on.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn in_fours(from: *const u16, to: *mut u16, high_first: bool) {
        // SAFETY: both sides are valid for 128 elements.
        unsafe {
            for eight in 0..4 {
                let words = _mm512_loadu_si512(from.add(32 * eight).cast());
                let parts = [
                    words,
                    _mm512_srli_epi64::<16>(words),
                    _mm512_srli_epi64::<32>(words),
                    _mm512_srli_epi64::<48>(words),
                ];
                for (j, part) in parts.into_iter().enumerate() {
                    let j = if high_first { j ^ 1 } else { j };
                    _mm_storeu_si128(to.add(32 * j + 8 * eight).cast(), _mm512_cvtepi64_epi16(part));
                }
            }
        }
    }

    /// Deinterleaves 64 elements by two: the even-indexed elements, then the odd-indexed ones.
    ///
    /// # Safety
    /// `from` and `to` are valid for 64 elements.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn in_twos(from: *const u16, to: *mut u16) {
        // SAFETY: both sides are valid for 64 elements.
        unsafe {
            for half in 0..2 {
                let words = _mm512_loadu_si512(from.add(32 * half).cast());
                _mm256_storeu_si256(to.add(16 * half).cast(), _mm512_cvtepi32_epi16(words));
                let odd = _mm512_srli_epi32::<16>(words);
                _mm256_storeu_si256(to.add(32 + 16 * half).cast(), _mm512_cvtepi32_epi16(odd));
            }
        }
    }

    /// # Safety
    /// `x` is valid for 32 elements, and the machine has the target features.
    #[inline(always)]
    unsafe fn multiply(sum: __m512, w: __m512i, x: *const u16) -> __m512 {
        // SAFETY: this is inlined into functions with the target features, and 32 elements are there; the types have
        // the same bits.
        unsafe {
            let (w, x): (__m512bh, __m512bh) =
                (std::mem::transmute(w), std::mem::transmute(_mm512_loadu_si512(x.cast())));
            _mm512_dpbf16_ps(sum, w, x)
        }
    }

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c")]
    pub(super) unsafe fn nibbles<const M: usize, const T: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            let high = view.table.map(|x| bf16::from_f32(x).to_f32());
            let low: [f32; 16] = std::array::from_fn(|i| view.table[i] - high[i]);
            let tables = [table(high), table(low)];
            let which = spread(&view.scale);
            let which = _mm512_loadu_si512(which.as_ptr().cast());
            let xs = view.xs.cast::<u16>().add(first * view.k);
            let groups = view.k / view.group;
            let (span, chunks) = (span(&view.scale), view.whole / 128);
            let spreads = spreads(&view.scale);
            for row in rows {
                let data = view.data.add(row * (view.k / 2));
                let mut acc = [_mm512_setzero_ps(); M];
                macro_rules! step {
                    ($j:literal, $codes:expr, $x:expr, $sum:expr) => {
                        let code = _mm512_srli_epi16::<{ 4 * $j }>($codes);
                        for t in 0..T {
                            let w = _mm512_permutexvar_epi16(code, tables[t]);
                            for m in 0..M {
                                $sum[m] = multiply($sum[m], w, $x.add(m * view.k + 32 * $j));
                            }
                        }
                    };
                }
                macro_rules! chunk {
                    ($c:expr, $scale:expr) => {
                        let codes = _mm512_loadu_si512(data.add(64 * $c).cast());
                        prefetch_codes(data.wrapping_add(64 * $c));
                        let x = xs.add(128 * $c);
                        let mut sum = [_mm512_setzero_ps(); M];
                        step!(0, codes, x, sum);
                        step!(1, codes, x, sum);
                        step!(2, codes, x, sum);
                        step!(3, codes, x, sum);
                        let scale = $scale;
                        for m in 0..M {
                            acc[m] = _mm512_fmadd_ps(sum[m], scale, acc[m]);
                        }
                    };
                }
                let mut c = 0;
                while span > 0 && c + span <= chunks {
                    let found = load_16(&view.scale, view.scales, row * groups + view.scale.first(c));
                    for which in &spreads[..span] {
                        let which = _mm512_loadu_si512(which.as_ptr().cast());
                        chunk!(c, _mm512_permutexvar_ps(which, found));
                        c += 1;
                    }
                }
                while c < chunks {
                    chunk!(c, lanes(&view.scale, view.scales, row * groups + view.scale.first(c), which));
                    c += 1;
                }
                for m in 0..M {
                    *view.y.add((first + m) * view.n + row) = _mm512_reduce_add_ps(acc[m]);
                }
            }
        }
    }

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c")]
    pub(super) unsafe fn bytes<const M: usize>(view: &View, rows: Range<usize>, first: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            let low = table(std::array::from_fn(|i| i as f32));
            let high = table(std::array::from_fn(|i| (((i as i32) ^ 8) - 8) as f32 * 16.0));
            let which = spread(&view.scale);
            let which = _mm512_loadu_si512(which.as_ptr().cast());
            let xs = view.xs.cast::<u16>().add(first * view.k);
            let groups = view.k / view.group;
            let (span, chunks) = (span(&view.scale), view.whole / 64);
            let spreads = spreads(&view.scale);
            for row in rows {
                let data = view.data.add(row * view.k);
                let mut acc = [_mm512_setzero_ps(); M];
                macro_rules! step {
                    ($j:literal, $table:expr, $codes:expr, $x:expr, $sum:expr) => {
                        let w = _mm512_permutexvar_epi16(_mm512_srli_epi16::<{ 4 * $j }>($codes), $table);
                        for m in 0..M {
                            $sum[m] = multiply($sum[m], w, $x.add(m * view.k + 32 * ($j / 2)));
                        }
                    };
                }
                macro_rules! chunk {
                    ($c:expr, $scale:expr) => {
                        let codes = _mm512_loadu_si512(data.add(64 * $c).cast());
                        prefetch_codes(data.wrapping_add(64 * $c));
                        let x = xs.add(64 * $c);
                        let mut sum = [_mm512_setzero_ps(); M];
                        step!(0, low, codes, x, sum);
                        step!(1, high, codes, x, sum);
                        step!(2, low, codes, x, sum);
                        step!(3, high, codes, x, sum);
                        let scale = $scale;
                        for m in 0..M {
                            acc[m] = _mm512_fmadd_ps(sum[m], scale, acc[m]);
                        }
                    };
                }
                let mut c = 0;
                while span > 0 && c + span <= chunks {
                    let found = load_16(&view.scale, view.scales, row * groups + view.scale.first(c));
                    for which in &spreads[..span] {
                        let which = _mm512_loadu_si512(which.as_ptr().cast());
                        chunk!(c, _mm512_permutexvar_ps(which, found));
                        c += 1;
                    }
                }
                while c < chunks {
                    chunk!(c, lanes(&view.scale, view.scales, row * groups + view.scale.first(c), which));
                    c += 1;
                }
                for m in 0..M {
                    *view.y.add((first + m) * view.n + row) = _mm512_reduce_add_ps(acc[m]);
                }
            }
        }
    }
}
