//! Transposes in tiles that fit in registers.
//!
//! A block is a cache line of the operand by a cache line of the result; blocks follow each other along the result. At the
//! end of an axis the last tile starts earlier and writes some elements again.

use super::Axis;
use crate::gemm::Isa;
use std::ops::Range;

/// The bytes of a block in both directions.
pub(super) const LINE: usize = 64;
/// The minimum number of elements of both axes for tiles.
pub(super) const LEAST: usize = 8;

/// The integer types that transposes move, one per element size.
pub(in crate::library) trait Transpose: Copy + Send + Sync + 'static {
    /// The side of a tile in elements.
    #[cfg(target_arch = "x86_64")]
    const TILE: usize;

    /// Transposes one tile: rows of the operand are `from` elements apart, rows of the result `to`.
    ///
    /// # Safety
    /// Both are valid for a tile, and the machine has AVX2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn tile(x: *const Self, from: isize, y: *mut Self, to: isize);

    /// Transposes a tile for axes shorter than a full one: [`LEAST`] elements in both directions, or a full tile if that is smaller.
    ///
    /// # Safety
    /// As for [`Transpose::tile`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn small(x: *const Self, from: isize, y: *mut Self, to: isize) {
        // SAFETY: `x` and `y` are valid for a tile at their strides.
        unsafe { Self::tile(x, from, y, to) }
    }
}

/// Transposes a part of the operand's dense axis `s`; the result's dense axis is `d`.
///
/// # Safety
/// Operand and result are valid for the axes, and the machine has the instruction set.
pub(in crate::library) unsafe fn transpose<T: Transpose>(
    x: *const T,
    y: *mut T,
    d: Axis,
    s: Axis,
    part: Range<usize>,
    isa: Isa,
) {
    debug_assert!(d.to == 1 && s.from == 1);
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Portable {
        // SAFETY: operand and result are valid for both axes, and the machine has AVX2, as every instruction set but
        // the portable one does.
        unsafe {
            match part.len().min(d.size) {
                n if n >= T::TILE => return avx2(x, y, d, s, part),
                n if n >= T::TILE.min(LEAST) => return avx2_small(x, y, d, s, part),
                _ => {}
            }
        }
    }
    let _ = isa;
    for i in part {
        for j in 0..d.size as isize {
            // SAFETY: operand and result are valid for the elements of the axes.
            unsafe { *y.offset(i as isize * s.to + j) = *x.offset(i as isize + j * d.from) };
        }
    }
}

/// Returns the starts of the tiles of a range; the last one ends at the range's end.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn tiles(range: Range<usize>, tile: usize, mut f: impl FnMut(usize)) {
    let mut at = range.start;
    while at + tile <= range.end {
        f(at);
        at += tile;
    }
    if at < range.end {
        f(range.end - tile);
    }
}

/// # Safety
/// As for `blocks`, and the machine has the target features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<T: Transpose>(x: *const T, y: *mut T, d: Axis, s: Axis, part: Range<usize>) {
    // SAFETY: `blocks` has the contract of this function, and gets its arguments unchanged.
    unsafe { blocks(x, y, d, s, part, T::TILE, |x, y| T::tile(x, d.from, y, s.to)) }
}

/// # Safety
/// As for `blocks`, and the machine has the target features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2_small<T: Transpose>(x: *const T, y: *mut T, d: Axis, s: Axis, part: Range<usize>) {
    // SAFETY: `blocks` has the contract of this function, and gets its arguments unchanged.
    unsafe { blocks(x, y, d, s, part, T::TILE.min(LEAST), |x, y| T::small(x, d.from, y, s.to)) }
}

/// Processes blocks in tiles of the given size.
///
/// # Safety
/// Operand and result are valid for the axes, which are no shorter than a tile.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn blocks<T: Transpose>(
    x: *const T,
    y: *mut T,
    d: Axis,
    s: Axis,
    part: Range<usize>,
    tile: usize,
    each: impl Fn(*const T, *mut T),
) {
    let line = LINE / size_of::<T>();
    let mut s0 = part.start;
    while s0 < part.end {
        // Include a remainder that would be smaller than a tile.
        let s1 = if part.end - s0 < line + tile { part.end } else { s0 + line };
        let mut d0 = 0;
        while d0 < d.size {
            let d1 = if d.size - d0 < line + tile { d.size } else { d0 + line };
            tiles(s0..s1, tile, |i| {
                tiles(d0..d1, tile, |j| {
                    // SAFETY: both axes are no shorter than a tile, and `tiles` begins none later than a tile before
                    // the end of its range, so both tiles are inside operand and result.
                    let (x, y) = unsafe {
                        (x.offset(i as isize + j as isize * d.from), y.offset(i as isize * s.to + j as isize))
                    };
                    each(x, y);
                });
            });
            d0 = d1;
        }
        s0 = s1;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Transpose;
    use std::arch::x86_64::*;

    /// Interleaves the first and the second half of some registers; repeated log₂ times, rows become columns.
    macro_rules! halves {
        ($rows:expr, $n:literal, $lo:ident, $hi:ident) => {{
            let rows = $rows;
            let mut next = rows;
            for i in 0..$n / 2 {
                next[2 * i] = $lo(rows[i], rows[i + $n / 2]);
                next[2 * i + 1] = $hi(rows[i], rows[i + $n / 2]);
            }
            next
        }};
    }

    impl Transpose for u8 {
        const TILE: usize = 16;

        #[inline(always)]
        unsafe fn tile(x: *const u8, from: isize, y: *mut u8, to: isize) {
            // SAFETY: both sides are valid for 16 rows of 16 elements.
            unsafe {
                let rows: [__m128i; 16] = std::array::from_fn(|i| _mm_loadu_si128(x.offset(i as isize * from).cast()));
                let rows = halves!(rows, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                let rows = halves!(rows, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                let rows = halves!(rows, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                let rows = halves!(rows, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                (0..16).for_each(|i| _mm_storeu_si128(y.offset(i as isize * to).cast(), rows[i]));
            }
        }

        #[inline(always)]
        unsafe fn small(x: *const u8, from: isize, y: *mut u8, to: isize) {
            // SAFETY: both sides are valid for 8 rows of 8 elements.
            unsafe {
                let row = |i: usize| _mm_loadl_epi64(x.offset(i as isize * from).cast());
                let pairs: [__m128i; 4] = std::array::from_fn(|i| _mm_unpacklo_epi8(row(i), row(i + 4)));
                let pairs = halves!(pairs, 4, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                let pairs = halves!(pairs, 4, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
                for (i, pair) in pairs.into_iter().enumerate() {
                    _mm_storel_epi64(y.offset(2 * i as isize * to).cast(), pair);
                    _mm_storel_epi64(y.offset((2 * i as isize + 1) * to).cast(), _mm_unpackhi_epi64(pair, pair));
                }
            }
        }
    }

    impl Transpose for u16 {
        const TILE: usize = 8;

        #[inline(always)]
        unsafe fn tile(x: *const u16, from: isize, y: *mut u16, to: isize) {
            // SAFETY: both sides are valid for 8 rows of 8 elements.
            unsafe {
                let rows: [__m128i; 8] = std::array::from_fn(|i| _mm_loadu_si128(x.offset(i as isize * from).cast()));
                let rows = halves!(rows, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
                let rows = halves!(rows, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
                let rows = halves!(rows, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
                (0..8).for_each(|i| _mm_storeu_si128(y.offset(i as isize * to).cast(), rows[i]));
            }
        }
    }

    impl Transpose for u32 {
        const TILE: usize = 8;

        #[inline(always)]
        unsafe fn tile(x: *const u32, from: isize, y: *mut u32, to: isize) {
            // SAFETY: both sides are valid for 8 rows of 8 elements.
            unsafe {
                // Rows i and i + 4 share a register, one in each half, so that shuffles within halves suffice.
                let row = |i: usize, half: usize| _mm_loadu_si128(x.offset(i as isize * from).add(4 * half).cast());
                let pair = |i: usize, half: usize| {
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(i, half)), row(i + 4, half))
                };
                for half in 0..2 {
                    let [a, b, c, d] = [pair(0, half), pair(1, half), pair(2, half), pair(3, half)];
                    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                    let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                    let columns = [
                        _mm256_unpacklo_epi64(ab, cd),
                        _mm256_unpackhi_epi64(ab, cd),
                        _mm256_unpacklo_epi64(ab2, cd2),
                        _mm256_unpackhi_epi64(ab2, cd2),
                    ];
                    for (i, column) in columns.into_iter().enumerate() {
                        _mm256_storeu_si256(y.offset((4 * half + i) as isize * to).cast(), column);
                    }
                }
            }
        }
    }

    impl Transpose for u64 {
        const TILE: usize = 4;

        #[inline(always)]
        unsafe fn tile(x: *const u64, from: isize, y: *mut u64, to: isize) {
            // SAFETY: both sides are valid for 4 rows of 4 elements.
            unsafe {
                let row = |i: usize, half: usize| _mm_loadu_si128(x.offset(i as isize * from).add(2 * half).cast());
                let pair = |i: usize, half: usize| {
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(i, half)), row(i + 2, half))
                };
                for half in 0..2 {
                    let (a, b) = (pair(0, half), pair(1, half));
                    let columns = [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
                    for (i, column) in columns.into_iter().enumerate() {
                        _mm256_storeu_si256(y.offset((2 * half + i) as isize * to).cast(), column);
                    }
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod plain {
    use super::Transpose;

    impl Transpose for u8 {}
    impl Transpose for u16 {}
    impl Transpose for u32 {}
    impl Transpose for u64 {}
}
