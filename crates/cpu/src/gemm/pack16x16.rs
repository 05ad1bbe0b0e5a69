//! Transposes up to sixteen lines of 32-bit elements into columns of a panel, in blocks of 16 × 16 in registers. Each cache line is
//! read and written once.

use super::pack::PANEL_LINES;
use std::arch::x86_64::*;

/// The minimum number of lines for a 16 × 16 block; fewer lines are transposed four at a time.
const LEAST_LINES: usize = 8;

/// Writes `lines` lines of `depth` adjacent elements, `along` bytes apart, as columns of rows that are `width` elements apart,
/// and XORs each element with `flip`.
/// Returns the number of elements done per line: a multiple of the block size, or zero for few lines.
///
/// # Safety
/// `src` is valid for `lines` lines of `depth` elements, `dst` for their columns, and the machine has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
pub(super) unsafe fn columns(
    dst: *mut u32,
    width: usize,
    src: *const u8,
    along: isize,
    lines: usize,
    depth: usize,
    flip: u32,
) -> usize {
    if !(LEAST_LINES..=PANEL_LINES).contains(&lines) {
        return 0;
    }
    let whole = depth / PANEL_LINES * PANEL_LINES;
    let flip = _mm512_set1_epi32(flip as i32);
    let mask = (u32::MAX >> (32 - lines)) as __mmask16;
    for d in (0..whole).step_by(PANEL_LINES) {
        let mut x = [_mm512_setzero_si512(); PANEL_LINES];
        // A constant iteration count keeps the blocks in registers.
        for (i, x) in x.iter_mut().enumerate() {
            if i < lines {
                // SAFETY: operand and result are valid for these lines.
                let line = unsafe { _mm512_loadu_si512(src.offset(i as isize * along).add(4 * d).cast()) };
                *x = _mm512_xor_si512(line, flip);
            }
        }
        // Interleave pairs of lines, then groups of four: quarter `l` of `x[4·q + c]` is column `4·l + c` of lines `4·q..4·q + 4`.
        let mut y = x;
        for i in (0..PANEL_LINES).step_by(2) {
            y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
            y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        }
        for q in (0..PANEL_LINES).step_by(4) {
            x[q] = _mm512_unpacklo_epi64(y[q], y[q + 2]);
            x[q + 1] = _mm512_unpackhi_epi64(y[q], y[q + 2]);
            x[q + 2] = _mm512_unpacklo_epi64(y[q + 1], y[q + 3]);
            x[q + 3] = _mm512_unpackhi_epi64(y[q + 1], y[q + 3]);
        }
        for c in 0..4 {
            // Combine quarters 0 and 2 of two groups of four, then quarters 1 and 3.
            let a = _mm512_shuffle_i32x4::<0x88>(x[c], x[4 + c]);
            let b = _mm512_shuffle_i32x4::<0xdd>(x[c], x[4 + c]);
            let e = _mm512_shuffle_i32x4::<0x88>(x[8 + c], x[12 + c]);
            let f = _mm512_shuffle_i32x4::<0xdd>(x[8 + c], x[12 + c]);
            let columns = [
                _mm512_shuffle_i32x4::<0x88>(a, e),
                _mm512_shuffle_i32x4::<0x88>(b, f),
                _mm512_shuffle_i32x4::<0xdd>(a, e),
                _mm512_shuffle_i32x4::<0xdd>(b, f),
            ];
            for (l, column) in columns.into_iter().enumerate() {
                // SAFETY: `dst` is valid for the columns of these lines, and others are masked.
                unsafe {
                    let to = dst.add((d + 4 * l + c) * width);
                    if lines == PANEL_LINES {
                        _mm512_storeu_si512(to.cast(), column);
                    } else {
                        _mm512_mask_storeu_epi32(to.cast(), mask, column);
                    }
                }
            }
        }
    }
    whole
}
