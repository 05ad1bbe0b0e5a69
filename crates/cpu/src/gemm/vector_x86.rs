//! The vectors of AVX2 and AVX-512.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::vector::{Load, Vector};

macro_rules! vector {
    (
        $v:ty, $t:ty, $lanes:expr, $splat:ident, $load:ident, $store:ident, $fma:ident, $mul:ident, $add:ident,
        |$n:ident| $mask:expr, |$lp:ident, $lm:ident| $load_first:expr,
        |$sp:ident, $sm:ident, $sv:ident| $store_first:expr
    ) => {
        impl Vector for $v {
            type Elem = $t;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: the caller vouches for the target features, here and below.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: the caller vouches for `LANES` elements at `p`.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as in `load`.
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            unsafe fn load_first($lp: *const $t, $n: usize) -> Self {
                // SAFETY: lanes that are masked off are not read.
                unsafe {
                    let $lm = $mask;
                    $load_first
                }
            }
            #[inline(always)]
            unsafe fn store_first(self, $sp: *mut $t, $n: usize) {
                // SAFETY: lanes that are masked off are not written.
                unsafe {
                    let ($sm, $sv) = ($mask, self);
                    $store_first
                }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: target features only.
                unsafe { $fma(self, b, c) }
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                // SAFETY: target features only.
                unsafe { $mul(self, b) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: target features only.
                unsafe { $add(self, b) }
            }
        }

        impl Load<$t> for $v {
            #[inline(always)]
            unsafe fn load_from(p: *const $t) -> Self {
                // SAFETY: the caller vouches for `LANES` elements at `p`.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn load_first_from(p: *const $t, n: usize) -> Self {
                // SAFETY: the caller vouches for `n` elements at `p`.
                unsafe { Self::load_first(p, n) }
            }
        }
    };
}

/// All ones, then all zeros: an AVX2 mask of `n` lanes starts `LANES - n` lanes in.
static MASKS_32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static MASKS_64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

vector!(
    __m512,
    f32,
    16,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_fmadd_ps,
    _mm512_mul_ps,
    _mm512_add_ps,
    |n| ((1u32 << n) - 1) as __mmask16,
    |p, mask| _mm512_maskz_loadu_ps(mask, p),
    |p, mask, v| _mm512_mask_storeu_ps(p, mask, v)
);
vector!(
    __m512d,
    f64,
    8,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_fmadd_pd,
    _mm512_mul_pd,
    _mm512_add_pd,
    |n| ((1u32 << n) - 1) as __mmask8,
    |p, mask| _mm512_maskz_loadu_pd(mask, p),
    |p, mask, v| _mm512_mask_storeu_pd(p, mask, v)
);
vector!(
    __m256,
    f32,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_fmadd_ps,
    _mm256_mul_ps,
    _mm256_add_ps,
    |n| _mm256_loadu_si256(MASKS_32.as_ptr().add(8 - n).cast()),
    |p, mask| _mm256_maskload_ps(p, mask),
    |p, mask, v| _mm256_maskstore_ps(p, mask, v)
);
vector!(
    __m256d,
    f64,
    4,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_fmadd_pd,
    _mm256_mul_pd,
    _mm256_add_pd,
    |n| _mm256_loadu_si256(MASKS_64.as_ptr().add(4 - n).cast()),
    |p, mask| _mm256_maskload_pd(p, mask),
    |p, mask, v| _mm256_maskstore_pd(p, mask, v)
);

impl Load<bf16> for __m512 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: the caller vouches for 16 elements at `p` and for the target features.
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
                p.cast(),
            ))))
        }
    }
}
impl Load<f16> for __m512 {
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        // SAFETY: the caller vouches for 16 elements at `p` and for the target features.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
}
impl Load<bf16> for __m256 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: the caller vouches for 8 elements at `p` and for the target features.
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(
                p.cast(),
            ))))
        }
    }
}
impl Load<f16> for __m256 {
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        // SAFETY: the caller vouches for 8 elements at `p` and for the target features.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
}
