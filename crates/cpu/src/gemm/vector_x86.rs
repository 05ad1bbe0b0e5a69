//! The vectors of AVX2 and AVX-512.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::pack::transpose_4;
use super::pack16x16::columns;
use super::vector::{Load, Vector};

macro_rules! vector {
    (
        $v:ty, $t:ty, $lanes:expr, $splat:ident, $load:ident, $store:ident, $fma:ident, $mul:ident, $add:ident,
        |$n:ident| $mask:expr, |$lp:ident, $lm:ident| $load_first:expr,
        |$sp:ident, $sm:ident, $sv:ident| $store_first:expr,
        $transpose:ident, $transpose_16:ident $(, |$low:ident, $high:ident| $halves:expr)?
    ) => {
        impl Vector for $v {
            type Elem = $t;
            const LANES: usize = $lanes;
            // AVX-512 has masked loads.
            const MASKS: bool = size_of::<$v>() == 64;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: the machine has the target features.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: `p` is valid for `LANES` elements.
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
            $(#[inline(always)]
            unsafe fn load_halves($low: *const $t, $high: *const $t) -> Self {
                // SAFETY: each address is valid for half a vector.
                unsafe { $halves }
            })?
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
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                // SAFETY: a prefetch does not fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
            }
            #[inline(always)]
            unsafe fn prefetch_l2(p: *const $t) {
                // SAFETY: a prefetch does not fault.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
            }
            #[inline(always)]
            unsafe fn transpose_4(dst: *mut $t, width: usize, src: *const $t, along: isize, depth: usize) {
                // SAFETY: `src` is valid for four lines of `depth` elements, and `dst` for their columns.
                unsafe { $transpose(dst, width, src, along, depth) }
            }
            #[inline(always)]
            unsafe fn transpose_16(
                dst: *mut $t,
                width: usize,
                src: *const $t,
                along: isize,
                lines: usize,
                depth: usize,
            ) -> usize {
                // SAFETY: `src` is valid for `lines` lines of `depth` elements, and `dst` for their columns.
                unsafe { $transpose_16(dst, width, src, along, lines, depth) }
            }
        }

        impl Load<$t> for $v {
            #[inline(always)]
            unsafe fn load_from(p: *const $t) -> Self {
                // SAFETY: `p` is valid for `LANES` elements.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn load_first_from(p: *const $t, n: usize) -> Self {
                // SAFETY: `p` is valid for `n` elements.
                unsafe { Self::load_first(p, n) }
            }
        }
    };
}

/// All ones, then all zeros: an AVX2 mask of `n` lanes starts at index `LANES - n`.
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
    |p, mask, v| _mm512_mask_storeu_ps(p, mask, v),
    transpose_4_f32,
    transpose_16_words,
    |low, high| _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high))
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
    |p, mask, v| _mm512_mask_storeu_pd(p, mask, v),
    transpose_4_f64,
    no_transpose_16
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
    |p, mask, v| _mm256_maskstore_ps(p, mask, v),
    transpose_4_f32,
    no_transpose_16
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
    |p, mask, v| _mm256_maskstore_pd(p, mask, v),
    transpose_4_f64,
    no_transpose_16
);

vector!(
    __m512i,
    i32,
    16,
    _mm512_set1_epi32,
    _mm512_loadu_epi32,
    _mm512_storeu_epi32,
    mul_add_512,
    _mm512_mullo_epi32,
    _mm512_add_epi32,
    |n| ((1u32 << n) - 1) as __mmask16,
    |p, mask| _mm512_maskz_loadu_epi32(mask, p),
    |p, mask, v| _mm512_mask_storeu_epi32(p, mask, v),
    transpose_4,
    transpose_16_words
);
vector!(
    __m256i,
    i32,
    8,
    _mm256_set1_epi32,
    load_256,
    store_256,
    mul_add_256,
    _mm256_mullo_epi32,
    _mm256_add_epi32,
    |n| _mm256_loadu_si256(MASKS_32.as_ptr().add(8 - n).cast()),
    |p, mask| _mm256_maskload_epi32(p, mask),
    |p, mask, v| _mm256_maskstore_epi32(p, mask, v),
    transpose_4,
    no_transpose_16
);

/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn mul_add_512(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    // SAFETY: target features only.
    unsafe { _mm512_add_epi32(_mm512_mullo_epi32(a, b), c) }
}
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn mul_add_256(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    // SAFETY: target features only.
    unsafe { _mm256_add_epi32(_mm256_mullo_epi32(a, b), c) }
}
/// # Safety
/// `p` is valid for 8 elements.
#[inline(always)]
unsafe fn load_256(p: *const i32) -> __m256i {
    // SAFETY: `p` is valid for 8 elements.
    unsafe { _mm256_loadu_si256(p.cast()) }
}
/// # Safety
/// `p` is valid for 8 elements.
#[inline(always)]
unsafe fn store_256(p: *mut i32, x: __m256i) {
    // SAFETY: `p` is valid for 8 elements.
    unsafe { _mm256_storeu_si256(p.cast(), x) }
}

impl Load<i8> for __m512i {
    #[inline(always)]
    unsafe fn load_from(p: *const i8) -> Self {
        // SAFETY: `p` is valid for 16 elements, and the machine has the target features.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())) }
    }
}
impl Load<i8> for __m256i {
    #[inline(always)]
    unsafe fn load_from(p: *const i8) -> Self {
        // SAFETY: `p` is valid for 8 elements, and the machine has the target features.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())) }
    }
}

/// Defines a vector type that differs from another one only in how packed groups are multiplied.
macro_rules! grouped {
    ($name:ident, $inner:ty, $t:ty, $bias:expr, |$a:ident, $b:ident, $c:ident| $dot:expr) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($inner);

        impl Vector for $name {
            type Elem = $t;
            const LANES: usize = <$inner as Vector>::LANES; // the inner one's `$lanes`
            const MASKS: bool = <$inner as Vector>::MASKS;
            const BIAS: Option<$t> = $bias;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: the machine has the target features of the inner vector, which are those of this one.
                unsafe { $name(<$inner as Vector>::splat(x)) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: as above.
                unsafe { $name(<$inner as Vector>::load(p)) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as above.
                unsafe { self.0.store(p) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $t, n: usize) -> Self {
                // SAFETY: as above.
                unsafe { $name(<$inner as Vector>::load_first(p, n)) }
            }
            #[inline(always)]
            unsafe fn store_first(self, p: *mut $t, n: usize) {
                // SAFETY: as above.
                unsafe { self.0.store_first(p, n) }
            }
            #[inline(always)]
            unsafe fn load_halves(low: *const $t, high: *const $t) -> Self {
                // SAFETY: as above.
                unsafe { $name(<$inner as Vector>::load_halves(low, high)) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name(Vector::mul_add(self.0, b.0, c.0)) }
            }
            #[inline(always)]
            unsafe fn dot_add(self, b: Self, c: Self) -> Self {
                let ($a, $b, $c) = (self.0, b.0, c.0);
                // SAFETY: target features only.
                $name(unsafe { $dot })
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name(Vector::mul(self.0, b.0)) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name(Vector::add(self.0, b.0)) }
            }
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                // SAFETY: as above.
                unsafe { <$inner as Vector>::prefetch(p) }
            }
            #[inline(always)]
            unsafe fn prefetch_l2(p: *const $t) {
                // SAFETY: as above.
                unsafe { <$inner as Vector>::prefetch_l2(p) }
            }
        }
    };
}
grouped!(Pairs, __m512, f32, None, |a, b, c| _mm512_dpbf16_ps(c, std::mem::transmute(a), std::mem::transmute(b)));
grouped!(Quads, __m512i, i32, Some(0x8080_8080_u32 as i32), |a, b, c| _mm512_dpbusd_epi32(c, a, b));

impl Load<bf16> for __m512 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: `p` is valid for 16 elements, and the machine has the target features.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }
}
impl Load<f16> for __m512 {
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        // SAFETY: `p` is valid for 16 elements, and the machine has the target features.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
}
impl Load<bf16> for __m256 {
    #[inline(always)]
    unsafe fn load_from(p: *const bf16) -> Self {
        // SAFETY: `p` is valid for 8 elements, and the machine has the target features.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))) }
    }
}
impl Load<f16> for __m256 {
    ///
    /// # Safety
    /// `src` is valid for `lines` lines of `depth` elements, `dst` for their columns, and the machine has AVX-512.
    #[inline(always)]
    unsafe fn load_from(p: *const f16) -> Self {
        // SAFETY: `p` is valid for 8 elements, and the machine has the target features.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
}

/// [`Vector::transpose_16`] of 32-bit elements, with AVX-512.
///
/// # Safety
/// None: no memory is accessed.
#[inline(always)]
unsafe fn transpose_16_words<T>(
    dst: *mut T,
    width: usize,
    src: *const T,
    along: isize,
    lines: usize,
    depth: usize,
) -> usize {
    const { assert!(size_of::<T>() == 4) };
    // SAFETY: `src` is valid for `lines` lines of `depth` elements, `dst` for their columns, and the machine has
    // AVX-512.
    unsafe { columns(dst.cast(), width, src.cast(), 4 * along, lines, depth, 0) }
}

/// [`Vector::transpose_16`] for vectors without a fast method.
#[inline(always)]
unsafe fn no_transpose_16<T>(_: *mut T, _: usize, _: *const T, _: isize, _: usize, _: usize) -> usize {
    0
}

/// [`Vector::transpose_4`] by 4×8 blocks.
///
/// # Safety
/// `src` is valid for four lines of `depth` elements, `dst` for their columns, and the machine has AVX.
#[inline(always)]
unsafe fn transpose_4_f32(dst: *mut f32, width: usize, src: *const f32, along: isize, depth: usize) {
    // SAFETY: `src` is valid for four lines of `depth` elements, `dst` for their columns, and the machine has AVX.
    unsafe {
        let blocks = depth / 8 * 8;
        for d in (0..blocks).step_by(8) {
            let line = |i: isize| _mm256_loadu_ps(src.offset(i * along).add(d));
            let (x0, x1, x2, x3) = (line(0), line(1), line(2), line(3));
            let (a, b) = (_mm256_unpacklo_ps(x0, x1), _mm256_unpackhi_ps(x0, x1));
            let (c, e) = (_mm256_unpacklo_ps(x2, x3), _mm256_unpackhi_ps(x2, x3));
            let columns = [
                _mm256_shuffle_ps::<0x44>(a, c),
                _mm256_shuffle_ps::<0xee>(a, c),
                _mm256_shuffle_ps::<0x44>(b, e),
                _mm256_shuffle_ps::<0xee>(b, e),
            ];
            for (j, column) in columns.into_iter().enumerate() {
                _mm_storeu_ps(dst.add((d + j) * width), _mm256_castps256_ps128(column));
                _mm_storeu_ps(dst.add((d + j + 4) * width), _mm256_extractf128_ps::<1>(column));
            }
        }
        transpose_4(dst.add(blocks * width), width, src.add(blocks), along, depth - blocks);
    }
}

/// [`Vector::transpose_4`] by 4×4 blocks.
///
/// # Safety
/// `src` is valid for four lines of `depth` elements, `dst` for their columns, and the machine has AVX.
#[inline(always)]
unsafe fn transpose_4_f64(dst: *mut f64, width: usize, src: *const f64, along: isize, depth: usize) {
    // SAFETY: `src` is valid for four lines of `depth` elements, `dst` for their columns, and the machine has AVX.
    unsafe {
        let blocks = depth / 4 * 4;
        for d in (0..blocks).step_by(4) {
            let line = |i: isize| _mm256_loadu_pd(src.offset(i * along).add(d));
            let (x0, x1, x2, x3) = (line(0), line(1), line(2), line(3));
            let (a, b) = (_mm256_unpacklo_pd(x0, x1), _mm256_unpackhi_pd(x0, x1));
            let (c, e) = (_mm256_unpacklo_pd(x2, x3), _mm256_unpackhi_pd(x2, x3));
            let columns = [
                _mm256_permute2f128_pd::<0x20>(a, c),
                _mm256_permute2f128_pd::<0x20>(b, e),
                _mm256_permute2f128_pd::<0x31>(a, c),
                _mm256_permute2f128_pd::<0x31>(b, e),
            ];
            for (j, column) in columns.into_iter().enumerate() {
                _mm256_storeu_pd(dst.add((d + j) * width), column);
            }
        }
        transpose_4(dst.add(blocks * width), width, src.add(blocks), along, depth - blocks);
    }
}
