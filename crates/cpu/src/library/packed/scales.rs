//! The scales of groups of codes, expanded to the lanes of a vector.

use ir::DType;

/// How the scales of a chunk of elements are found: a chunk has several groups, or is a part of one.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 read them"))]
pub(super) struct Scales {
    pub(super) dtype: DType,
    /// The number of groups of a chunk; 0 where a chunk is a part of one group.
    pub(super) groups: usize,
    /// The number of chunks of a group, where chunks are parts of groups.
    pub(super) chunks: usize,
}

impl Scales {
    /// Returns the scales for chunks of `chunk` elements,
    /// if one of group and chunk size divides the other and a group has at least `least` elements.
    pub(super) fn new(dtype: DType, group: usize, chunk: usize, least: usize) -> Option<Scales> {
        if group < least {
            None
        } else if chunk.is_multiple_of(group) {
            Some(Scales { dtype, groups: chunk / group, chunks: 1 })
        } else if group.is_multiple_of(chunk) {
            Some(Scales { dtype, groups: 0, chunks: group / chunk })
        } else {
            None
        }
    }

    /// The index of the chunk's first group.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn first(&self, chunk: usize) -> usize {
        if self.groups > 0 { chunk * self.groups } else { chunk / self.chunks }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::Scales;
    use ir::DType;
    use std::arch::x86_64::*;

    /// The prefetch distance in bytes.
    const AHEAD: usize = 2048;

    /// Returns the index of a chunk's scale for each of 16 lanes.
    ///
    /// # Safety
    /// The machine has AVX-512.
    pub(in super::super) unsafe fn spread(scales: &Scales) -> [i32; 16] {
        let groups = scales.groups.max(1);
        std::array::from_fn(|lane| (lane * groups / 16) as i32)
    }

    /// Returns the number of chunks that together have 16 scales, which are loaded at once; 0 where a chunk is a part of a group.
    pub(in super::super) fn span(scales: &Scales) -> usize {
        if scales.groups > 0 && 16 % scales.groups == 0 { 16 / scales.groups } else { 0 }
    }

    /// Returns the index among 16 scales for each lane, for each chunk of a span.
    pub(in super::super) fn spreads(scales: &Scales) -> [[i32; 16]; 16] {
        let groups = scales.groups.max(1);
        std::array::from_fn(|chunk| std::array::from_fn(|lane| ((chunk * groups + lane * groups / 16) % 16) as i32))
    }

    /// Loads sixteen scales from element `at` on.
    ///
    /// # Safety
    /// `from` is valid for the scales of 16 groups from `at` on, and the machine has AVX-512.
    #[inline(always)]
    pub(in super::super) unsafe fn load_16(scales: &Scales, from: *const u8, at: usize) -> __m512 {
        // SAFETY: this is inlined into functions with the target features, and the scales are valid for these rows.
        unsafe {
            match scales.dtype {
                DType::F32 => _mm512_loadu_ps(from.cast::<f32>().add(at)),
                DType::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast::<i16>().add(at).cast())),
                _ => {
                    let halves = _mm256_loadu_si256(from.cast::<i16>().add(at).cast());
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
                }
            }
        }
    }

    /// Prefetches codes. The hardware prefetcher stops at the end of each page.
    ///
    /// # Safety
    /// `from` is valid for the scales of the chunk at `at`, and the machine has AVX-512.
    #[inline(always)]
    pub(in super::super) fn prefetch_codes(codes: *const u8) {
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD).cast()) }
    }

    /// Returns the scale of each of 16 lanes, for the chunk whose scales start at element `at`.
    #[inline(always)]
    pub(in super::super) unsafe fn lanes(scales: &Scales, from: *const u8, at: usize, spread: __m512i) -> __m512 {
        // SAFETY: this is inlined into functions with the target features, and the scales are valid for this chunk.
        unsafe {
            let groups = scales.groups.max(1);
            let some = ((1u32 << groups) - 1) as __mmask16;
            let found = match scales.dtype {
                DType::F32 => _mm512_maskz_loadu_ps(some, from.cast::<f32>().add(at)),
                DType::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from.cast::<i16>().add(at))),
                _ => {
                    let halves = _mm256_maskz_loadu_epi16(some, from.cast::<i16>().add(at));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
                }
            };
            _mm512_permutexvar_ps(spread, found)
        }
    }
}

/// Loads one scale.
///
/// # Safety
/// There are more than `at` of them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn one(dtype: DType, from: *const u8, at: usize) -> f32 {
    // SAFETY: `from` is valid for more than `at` scales of `dtype`.
    unsafe {
        match dtype {
            DType::F32 => from.cast::<f32>().add(at).read_unaligned(),
            DType::F16 => half::f16::from_bits(from.cast::<u16>().add(at).read_unaligned()).to_f32(),
            _ => f32::from_bits(u32::from(from.cast::<u16>().add(at).read_unaligned()) << 16),
        }
    }
}
