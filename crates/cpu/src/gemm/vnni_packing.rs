//! Packed elements that are groups of small elements: two bf16 or four i8. One instruction multiplies and sums a group.

use super::pack::PANEL_LINES;

/// Packs `valid ≤ width` lines of `depth` elements into a panel of groups along k and pads the rest with zeros. As for
/// `pack_panel`, the strides are from line to line and in k, in elements.
///
/// # Safety
/// `src` is valid for the lines and their elements, and `dst` for the groups of the panel.
pub(crate) type PackGroupsFn = unsafe fn(*mut u32, usize, *const u8, (isize, isize), usize, usize);

/// The format of a group.
pub(crate) struct VnniFormat {
    /// The number of elements in a group.
    pub(crate) per: usize,
    pub(crate) left: PackGroupsFn,
    pub(crate) right: PackGroupsFn,
}

/// Two bf16, whose sum of products is added to an f32.
#[cfg(target_arch = "x86_64")]
pub(super) static BF16_PAIRS: VnniFormat = VnniFormat { per: 2, left: x86::bf16_pairs, right: x86::bf16_pairs };

/// Four i8. The left operand's elements are offset by 128, because the instruction takes unsigned elements there.
#[cfg(target_arch = "x86_64")]
pub(super) static I8_QUADS: VnniFormat = VnniFormat { per: 4, left: x86::raised_quads, right: x86::i8_quads };

/// The number of lines of a panel that are written together where k is contiguous in memory.
const LINES: usize = 4;

/// Packs the groups of a panel side by side for each step of k. `adjacent` writes up to [`PANEL_LINES`] lines that are contiguous
/// along k: it takes the bytes from line to line, the lines and the steps, and returns how many steps it did. `beside` writes
/// groups of lines that are adjacent in memory: it takes the stride of a step in elements and the number of lines, and returns
/// how many lines it wrote.
///
/// # Safety
/// `src` is valid for `valid × depth` elements, and `dst` for the groups of `width` lines.
#[expect(clippy::too_many_arguments, reason = "lines, their strides, and three ways to group them")]
#[inline(always)]
pub(super) unsafe fn pack_groups<S: Copy + Default, const PER: usize>(
    dst: *mut u32,
    width: usize,
    src: *const S,
    (along, deep): (isize, isize),
    valid: usize,
    depth: usize,
    group: impl Fn([S; PER]) -> u32,
    adjacent: impl Fn(*mut u32, usize, *const u8, isize, usize, usize) -> usize,
    beside: impl Fn(*mut u32, [*const S; PER], usize) -> usize,
) {
    let (whole, rest) = (depth / PER, depth % PER);
    let nothing = group([S::default(); PER]);
    // SAFETY: `src` is valid for `valid × depth` elements, and `dst` for the groups of `width` lines.
    unsafe {
        let at = |w: usize, d: usize| src.offset(w as isize * along + d as isize * deep);
        // The group at a step; `n` of its elements exist.
        let one = |w: usize, d: usize, n: usize| {
            group(std::array::from_fn(|p| if p < n { at(w, d * PER + p).read_unaligned() } else { S::default() }))
        };
        if along == 1 {
            for d in 0..whole {
                let lines: [*const S; PER] = std::array::from_fn(|p| at(0, d * PER + p));
                let to = dst.add(d * width);
                for w in beside(to, lines, valid)..valid {
                    *to.add(w) = group(lines.map(|line| *line.add(w)));
                }
            }
        } else {
            for first in (0..valid).step_by(PANEL_LINES) {
                let lines = PANEL_LINES.min(valid - first);
                let bytes = along * size_of::<S>() as isize;
                let adjacent = |w: usize, lines: usize, done: usize| match deep {
                    1 => {
                        let to = dst.add(done * width + w);
                        done + adjacent(to, width, at(w, done * PER).cast(), bytes, lines, whole - done)
                    }
                    _ => done,
                };
                let (done, fours) = (adjacent(first, lines, 0), lines / LINES * LINES);
                for w in (first..first + fours).step_by(LINES) {
                    for d in adjacent(w, LINES, done)..whole {
                        let four: [u32; LINES] = std::array::from_fn(|i| one(w + i, d, PER));
                        dst.add(d * width + w).cast::<[u32; LINES]>().write_unaligned(four);
                    }
                }
                for w in first + fours..first + lines {
                    (done..whole).for_each(|d| *dst.add(d * width + w) = one(w, d, PER));
                }
            }
        }
        if rest > 0 {
            (0..valid).for_each(|w| *dst.add(whole * width + w) = one(w, whole, rest));
        }
        for d in 0..depth.div_ceil(PER) {
            (valid..width).for_each(|w| *dst.add(d * width + w) = nothing);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::pack16x16;
    use super::{LINES, PANEL_LINES, pack_groups};
    use std::arch::x86_64::*;

    /// Packs four lines, eight steps at a time, and XORs each group with `flip`.
    ///
    /// # Safety
    /// `src` is valid for four lines of `steps` groups, and `dst` for their columns.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
    unsafe fn four_lines(dst: *mut u32, width: usize, src: *const u8, along: isize, steps: usize, flip: u32) -> usize {
        let whole = steps / 8 * 8;
        let flip = _mm256_set1_epi32(flip as i32);
        for d in (0..whole).step_by(8) {
            // SAFETY: `src` is valid for four lines of `steps` groups, and `dst` for their columns.
            unsafe {
                let line = |i: isize| {
                    let group = _mm256_loadu_si256(src.offset(i * along).add(4 * d).cast());
                    _mm256_xor_si256(group, flip)
                };
                let (x0, x1, x2, x3) = (line(0), line(1), line(2), line(3));
                let (a, b) = (_mm256_unpacklo_epi32(x0, x1), _mm256_unpackhi_epi32(x0, x1));
                let (c, e) = (_mm256_unpacklo_epi32(x2, x3), _mm256_unpackhi_epi32(x2, x3));
                let columns = [
                    _mm256_unpacklo_epi64(a, c),
                    _mm256_unpackhi_epi64(a, c),
                    _mm256_unpacklo_epi64(b, e),
                    _mm256_unpackhi_epi64(b, e),
                ];
                for (j, column) in columns.into_iter().enumerate() {
                    _mm_storeu_si128(dst.add((d + j) * width).cast(), _mm256_castsi256_si128(column));
                    _mm_storeu_si128(dst.add((d + j + 4) * width).cast(), _mm256_extracti128_si256::<1>(column));
                }
            }
        }
        whole
    }

    /// Interleaves two lines into pairs, sixteen at a time.
    ///
    /// # Safety
    /// Both lines are valid for `n` elements, and `to` for `n` groups.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
    #[inline]
    unsafe fn pairs_beside(to: *mut u32, [first, second]: [*const u16; 2], n: usize) -> usize {
        let whole = n / PANEL_LINES * PANEL_LINES;
        for w in (0..whole).step_by(PANEL_LINES) {
            // SAFETY: both lines are valid for `n` elements, and `to` for `n` groups.
            unsafe {
                let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(first.add(w).cast()));
                let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(second.add(w).cast()));
                let pairs = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
                _mm512_storeu_si512(to.add(w).cast(), pairs);
            }
        }
        whole
    }

    macro_rules! joins {
        ($($name:ident, $s:ty, $per:literal, $flip:literal, $group:expr, $beside:expr;)*) => {$(
            /// # Safety
            /// `src` is valid for `valid × depth` elements at `strides`, `dst` for the groups of `width` lines, and the
            /// machine has AVX-512.
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
            pub(super) unsafe fn $name(
                dst: *mut u32,
                width: usize,
                src: *const u8,
                strides: (isize, isize),
                valid: usize,
                depth: usize,
            ) {
                // SAFETY: `src` is valid for `valid × depth` elements at `strides`, `dst` for the groups of `width`
                // lines, and the machine has AVX-512.
                unsafe {
                    let adjacent = |dst: *mut u32, width: usize, src: *const u8, along: isize, lines: usize, steps: usize| {
                        match lines {
                            LINES => four_lines(dst, width, src, along, steps, $flip),
                            _ => pack16x16::columns(dst, width, src, along, lines, steps, $flip),
                        }
                    };
                    pack_groups::<$s, $per>(dst, width, src.cast(), strides, valid, depth, $group, adjacent, $beside)
                }
            }
        )*};
    }
    joins! {
        bf16_pairs, u16, 2, 0, |[a, b]| a as u32 | (b as u32) << 16, |to, lines, n| pairs_beside(to, lines, n);
        i8_quads, u8, 4, 0, u32::from_le_bytes, |_, _, _| 0;
        raised_quads, u8, 4, 0x8080_8080, |x| u32::from_le_bytes(x) ^ 0x8080_8080, |_, _, _| 0;
    }
}
