//! GGUF's blocks of 256 (Q4_K, Q5_K, Q6_K) times bf16 vectors (AVX-512 BF16). Codes are converted to bf16 by table lookups, 32 at
//! a time, in the order of the vectors' elements.
//!
//! In Q4_K and Q5_K, a group of 32 numbers is `scale·code − min`: the sums of 32 vector elements are computed once and multiplied
//! by the minimum of each group. In Q6_K, a group of 16 numbers is `scale·code`.

use super::quantized_gemv::View;
use ir::composites::quantized::QuantFormat;
use std::ops::Range;

/// Returns whether this module supports a format.
pub(super) fn has(format: QuantFormat) -> bool {
    matches!(format, QuantFormat::Q4K | QuantFormat::Q5K | QuantFormat::Q6K)
}

/// Computes the sums of 32 consecutive elements of the vectors.
///
/// # Safety
/// The view's plain vectors are valid for `m · k` elements, and `to` for a 32nd of that.
pub(super) unsafe fn arrange(view: &View, to: *mut f32) {
    for i in 0..view.m * view.k / 32 {
        // SAFETY: the view's plain vectors have `m · k` elements, and `to` has room for a sum of each 32.
        unsafe {
            let part = std::slice::from_raw_parts(view.plain.add(32 * i), 32);
            *to.add(i) = part.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
        }
    }
}

/// Computes rows.
///
/// # Safety
/// The view's matrix, bf16 vectors, sums of 32 in `xs` and results are valid for its sizes, and the machine has the
/// instructions.
pub(super) unsafe fn rows(format: QuantFormat, view: &View, rows: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the view is valid with bf16 vectors and the sums of 32 in `xs`, and the machine has the instructions.
    unsafe {
        for m in 0..view.m {
            let halves = view.given.cast::<u16>().add(m * view.k);
            match format {
                QuantFormat::Q4K => x86::fours::<false>(view, halves, rows.clone(), m),
                QuantFormat::Q5K => x86::fours::<true>(view, halves, rows.clone(), m),
                _ => x86::sixes(view, halves, rows.clone(), m),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (format, view, rows);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::scales::x86::prefetch_codes;
    use super::View;
    use half::{bf16, f16};
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// The number of elements of a block.
    const SUPER: usize = 256;

    /// Returns consecutive integers from `first` on, as bf16.
    ///
    /// # Safety
    /// The machine has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn table(first: i32) -> __m512i {
        let words: [u16; 32] = std::array::from_fn(|i| bf16::from_f32((first + i as i32) as f32).to_bits());
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    /// # Safety
    /// `x` is valid for 32 elements, and the machine has the target features.
    #[inline(always)]
    unsafe fn multiply(w: __m512i, x: *const u16) -> __m512 {
        // SAFETY: this is inlined into functions with the target features, and 32 elements are there; the types have
        // the same bits.
        unsafe {
            let (w, x): (__m512bh, __m512bh) =
                (std::mem::transmute(w), std::mem::transmute(_mm512_loadu_si512(x.cast())));
            _mm512_dpbf16_ps(_mm512_setzero_ps(), w, x)
        }
    }

    /// # Safety
    /// `at` is valid for two bytes.
    ///
    /// # Safety
    /// `at` is valid for twelve bytes.
    #[inline(always)]
    unsafe fn half(at: *const u8) -> f32 {
        // SAFETY: the address is valid for two bytes.
        unsafe { f16::from_bits(at.cast::<u16>().read_unaligned()).to_f32() }
    }

    /// Unpacks the six-bit scales and minimums of eight groups from twelve bytes.
    #[inline(always)]
    unsafe fn sixths(at: *const u8) -> ([u8; 8], [u8; 8]) {
        // SAFETY: the address is valid for twelve bytes.
        unsafe {
            let word = |i: usize| at.cast::<u32>().add(i).read_unaligned();
            let (a, b, c) = (word(0), word(1), word(2));
            let low = 0x3F3F_3F3F;
            let scales = (a & low, (c & 0x0F0F_0F0F) | ((a >> 2) & 0x3030_3030));
            let least = (b & low, ((c >> 4) & 0x0F0F_0F0F) | ((b >> 2) & 0x3030_3030));
            let both = |(x, y): (u32, u32)| (u64::from(x) | u64::from(y) << 32).to_le_bytes();
            (both(scales), both(least))
        }
    }

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c,fma")]
    pub(super) unsafe fn fours<const FIVE: bool>(view: &View, x: *const u16, rows: Range<usize>, m: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            let (bytes, codes_at) = if FIVE { (176, 48) } else { (144, 16) };
            let blocks = view.k / SUPER;
            // Codes without a fifth bit: the fifth bit of a lookup belongs to the next code.
            let numbers = match FIVE {
                true => table(0),
                false => {
                    let words: [u16; 32] = std::array::from_fn(|i| bf16::from_f32((i % 16) as f32).to_bits());
                    _mm512_loadu_si512(words.as_ptr().cast())
                }
            };
            let sums = view.xs.cast::<f32>().add(m * view.k / 32);
            for row in rows {
                let data = view.data.add(row * blocks * bytes);
                let (mut acc, mut off) = (_mm512_setzero_ps(), _mm256_setzero_ps());
                for block in 0..blocks {
                    let at = data.add(block * bytes);
                    (0..bytes).step_by(64).for_each(|n| prefetch_codes(at.wrapping_add(n)));
                    let (scales, least) = sixths(at.add(4));
                    let eight =
                        |x: [u8; 8]| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(x))));
                    let scales = _mm256_mul_ps(eight(scales), _mm256_set1_ps(half(at)));
                    let least = _mm256_mul_ps(eight(least), _mm256_set1_ps(half(at.add(2))));
                    off = _mm256_fmadd_ps(least, _mm256_loadu_ps(sums.add(8 * block)), off);
                    let scales = _mm512_castps256_ps512(scales);
                    let x = x.add(SUPER * block);
                    let high = match FIVE {
                        true => _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.add(16).cast())),
                        false => _mm512_setzero_si512(),
                    };
                    macro_rules! group {
                        ($g:literal) => {
                            let byte =
                                _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.add(codes_at + 32 * ($g / 2)).cast()));
                            let code = if $g % 2 == 0 { byte } else { _mm512_srli_epi16::<4>(byte) };
                            let code = match FIVE {
                                true => {
                                    let nibble = _mm512_and_si512(code, _mm512_set1_epi16(15));
                                    let bit = _mm512_and_si512(_mm512_srli_epi16::<$g>(high), _mm512_set1_epi16(1));
                                    _mm512_or_si512(nibble, _mm512_slli_epi16::<4>(bit))
                                }
                                false => code,
                            };
                            let sum = multiply(_mm512_permutexvar_epi16(code, numbers), x.add(32 * $g));
                            let scale = _mm512_permutexvar_ps(_mm512_set1_epi32($g), scales);
                            acc = _mm512_fmadd_ps(sum, scale, acc);
                        };
                    }
                    group!(0);
                    group!(1);
                    group!(2);
                    group!(3);
                    group!(4);
                    group!(5);
                    group!(6);
                    group!(7);
                }
                let off = _mm512_reduce_add_ps(_mm512_maskz_mov_ps(0xFF, _mm512_castps256_ps512(off)));
                *view.y.add(m * view.n + row) = _mm512_reduce_add_ps(acc) - off;
            }
        }
    }

    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,f16c,fma")]
    pub(super) unsafe fn sixes(view: &View, x: *const u16, rows: Range<usize>, m: usize) {
        // SAFETY: the view's matrix, vectors and results are valid for its sizes.
        unsafe {
            const BYTES: usize = 210;
            let blocks = view.k / SUPER;
            let (low, high) = (table(-32), table(0));
            for row in rows {
                let data = view.data.add(row * blocks * BYTES);
                let mut acc = _mm512_setzero_ps();
                for block in 0..blocks {
                    let at = data.add(block * BYTES);
                    (0..BYTES).step_by(64).for_each(|n| prefetch_codes(at.wrapping_add(n)));
                    let scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.add(192).cast())));
                    let scales = _mm512_mul_ps(scales, _mm512_set1_ps(half(at.add(208))));
                    let x = x.add(SUPER * block);
                    let words = |n: usize| _mm512_cvtepu8_epi16(_mm256_loadu_si256(at.add(n).cast()));
                    macro_rules! part {
                        ($half:literal, $p:literal) => {
                            let codes = words(64 * $half + 32 * ($p % 2));
                            let codes = if $p < 2 { codes } else { _mm512_srli_epi16::<4>(codes) };
                            let codes = _mm512_and_si512(codes, _mm512_set1_epi16(15));
                            let more = _mm512_srli_epi16::<{ 2 * $p }>(words(128 + 32 * $half));
                            let more = _mm512_slli_epi16::<4>(_mm512_and_si512(more, _mm512_set1_epi16(3)));
                            let w = _mm512_permutex2var_epi16(low, _mm512_or_si512(codes, more), high);
                            let sum = multiply(w, x.add(128 * $half + 32 * $p));
                            // One scale per 16 codes, which is eight lanes.
                            let first = 8 * $half + 2 * $p;
                            let which =
                                _mm512_mask_mov_epi32(_mm512_set1_epi32(first), 0xFF00, _mm512_set1_epi32(first + 1));
                            acc = _mm512_fmadd_ps(sum, _mm512_permutexvar_ps(which, scales), acc);
                        };
                    }
                    part!(0, 0);
                    part!(0, 1);
                    part!(0, 2);
                    part!(0, 3);
                    part!(1, 0);
                    part!(1, 1);
                    part!(1, 2);
                    part!(1, 3);
                }
                *view.y.add(m * view.n + row) = _mm512_reduce_add_ps(acc);
            }
        }
    }
}
