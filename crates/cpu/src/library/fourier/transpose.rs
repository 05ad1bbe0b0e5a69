//! Transposes square tiles with as many rows and columns as lanes, in registers.

use super::lanes::FftFloat;
use crate::gemm::vector::Vector;
use crate::library::rearrange::tiles::Transpose;
use std::arch::x86_64::*;

/// Transposes a tile of AVX2 vectors.
///
/// # Safety
/// Both sides are valid for a square of `LANES` rows at their steps; a tile has as many rows as a vector has lanes.
#[inline(always)]
pub(super) unsafe fn tile<T: FftFloat>(rows: *const T, line: usize, to: *mut T, step: usize) {
    // SAFETY: both sides are valid for a square of `LANES` rows at their steps; a tile has as many rows as a vector has
    // lanes.
    unsafe { T::Bits::tile(rows.cast::<T::Bits>(), line as isize, to.cast::<T::Bits>(), step as isize) }
}

/// # Safety
/// None: no memory is accessed.
#[inline(always)]
pub(super) unsafe fn no_edge<T>(_: *const T, _: usize, _: *mut T, _: usize, _: (usize, usize)) -> bool {
    false
}

macro_rules! square {
    ($v:ty, $t:ty, $n:literal, $transposed:ident, $turn:ident, $edge:ident) => {
        /// # Safety
        /// Both sides are valid for a square of vectors at their steps, and the machine has the vectors.
        #[inline(always)]
        pub(super) unsafe fn $turn(rows: *const $t, line: usize, to: *mut $t, step: usize) {
            // SAFETY: both sides are valid for a square of vectors at their steps, and the machine has the vectors.
            unsafe {
                let mut a = [<$v>::splat(0.0); $n];
                for (i, a) in a.iter_mut().enumerate() {
                    *a = <$v>::load(rows.add(i * line));
                }
                let a = $transposed(a);
                for (i, a) in a.iter().enumerate() {
                    a.store(to.add(i * step));
                }
            }
        }

        /// # Safety
        /// `rows` is valid for `size.0` lines of `size.1` elements, `to` for the square transposed, and the machine has
        /// the vectors.
        #[inline(always)]
        pub(super) unsafe fn $edge(
            rows: *const $t,
            line: usize,
            to: *mut $t,
            step: usize,
            size: (usize, usize),
        ) -> bool {
            // SAFETY: `rows` is valid for `size.0` lines of `size.1` elements, `to` for the square transposed, and the
            // machine has the vectors.
            unsafe {
                let mut a = [<$v>::splat(0.0); $n];
                for (i, a) in a.iter_mut().enumerate().take(size.0) {
                    *a = <$v>::load_first(rows.add(i * line), size.1);
                }
                let a = $transposed(a);
                for (i, a) in a.iter().enumerate().take(size.1) {
                    a.store_first(to.add(i * step), size.0);
                }
            }
            true
        }
    };
}
square!(__m512d, f64, 8, transposed_8, eight, edge_of_eight);
square!(__m512, f32, 16, transposed_16, sixteen, edge_of_sixteen);

/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn transposed_8(mut a: [__m512d; 8]) -> [__m512d; 8] {
    // SAFETY: instructions only.
    unsafe {
        let mut b = a;
        for i in (0..8).step_by(2) {
            b[i] = _mm512_unpacklo_pd(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_pd(a[i], a[i + 1]);
        }
        // Interleave pairs of rows in pairs of lanes: every second one, then the others.
        for i in 0..2 {
            a[i] = _mm512_shuffle_f64x2::<0b10_00_10_00>(b[i], b[i + 2]);
            a[i + 2] = _mm512_shuffle_f64x2::<0b11_01_11_01>(b[i], b[i + 2]);
            a[i + 4] = _mm512_shuffle_f64x2::<0b10_00_10_00>(b[i + 4], b[i + 6]);
            a[i + 6] = _mm512_shuffle_f64x2::<0b11_01_11_01>(b[i + 4], b[i + 6]);
        }
        for i in 0..4 {
            b[i] = _mm512_shuffle_f64x2::<0b10_00_10_00>(a[i], a[i + 4]);
            b[i + 4] = _mm512_shuffle_f64x2::<0b11_01_11_01>(a[i], a[i + 4]);
        }
        b
    }
}

/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn transposed_16(mut a: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: instructions only.
    unsafe {
        let mut b = a;
        for i in (0..16).step_by(2) {
            b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
        }
        // Interleave four rows in four lanes: column `4·lane + i` of rows `4·r` to `4·r + 3` is in `4·r + i`.
        for r in (0..16).step_by(4) {
            for i in 0..2 {
                let (x, y) = (_mm512_castps_pd(b[r + i]), _mm512_castps_pd(b[r + i + 2]));
                a[r + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                a[r + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
            }
        }
        for i in 0..4 {
            b[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(a[i], a[i + 4]);
            b[i + 4] = _mm512_shuffle_f32x4::<0b11_01_11_01>(a[i], a[i + 4]);
            b[i + 8] = _mm512_shuffle_f32x4::<0b10_00_10_00>(a[i + 8], a[i + 12]);
            b[i + 12] = _mm512_shuffle_f32x4::<0b11_01_11_01>(a[i + 8], a[i + 12]);
        }
        for i in 0..8 {
            a[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(b[i], b[i + 8]);
            a[i + 8] = _mm512_shuffle_f32x4::<0b11_01_11_01>(b[i], b[i + 8]);
        }
        a
    }
}
