//! Writes finished tiles that were not computed in place:
//! calls the epilogue, or stores with a conversion to a smaller dtype or with strides.

use half::{bf16, f16};
use ir::DType;

use super::plan::GemmPlan;
use super::problem::{GemmOutput, MatrixLayout, OutputKind};
use super::vector::Float;
#[cfg(target_arch = "x86_64")]
use super::vector::Isa;

/// A finished tile in the accumulator's dtype.
pub(super) struct FinishedTile<T> {
    pub(super) batch: usize,
    pub(super) row0: usize,
    pub(super) col0: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) acc: *mut T,
    pub(super) row_stride: usize,
}

/// Writes a finished tile. Called exactly once for each element of the result.
///
/// # Safety
/// `out` must be what the plan's target describes, and the tile inside the result.
pub(super) unsafe fn write_tile<T: Float>(plan: &GemmPlan, out: GemmOutput, tile: &FinishedTile<T>) {
    let problem = &plan.problem;
    match (problem.c, out) {
        // SAFETY: `f` may be called with `ctx` for any tile of the result, which `Plan::run` requires.
        (_, GemmOutput::Epilogue { f, ctx }) => unsafe {
            let (batch, row0, col0) = (tile.batch, tile.row0, tile.col0);
            f(ctx, batch, row0, col0, tile.rows, tile.cols, tile.acc.cast(), tile.row_stride)
        },
        (OutputKind::Memory { dtype, layout, accumulate }, GemmOutput::Memory(c)) => {
            let base = problem.batch_offset(&layout, tile.batch)
                + tile.row0 as isize * layout.row
                + tile.col0 as isize * layout.col;
            // SAFETY: the layout describes C and the tile is inside it; the machine has the plan's instruction set.
            unsafe {
                let to = c.offset(base * dtype.size() as isize);
                match plan.isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => rows_avx512(dtype, to, &layout, tile, accumulate),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => rows_avx2(dtype, to, &layout, tile, accumulate),
                    _ => rows(dtype, to, &layout, tile, accumulate),
                }
            }
        }
        (OutputKind::Epilogue { .. }, GemmOutput::Memory(_)) => unreachable!("checked by Plan::run"),
    }
}

/// Stores the rows of a tile, starting at its first element.
///
/// # Safety
/// The tile is inside of C, which begins at `to`, and `tile.acc` is valid for it.
#[inline(always)]
unsafe fn rows<T: Float>(dtype: DType, to: *mut u8, layout: &MatrixLayout, tile: &FinishedTile<T>, accumulate: bool) {
    for i in 0..tile.rows {
        // SAFETY: the tile is inside of C, and `tile.acc` is valid for it.
        unsafe {
            let to = to.offset(i as isize * layout.row * dtype.size() as isize);
            store(dtype, to, layout.col, tile.acc.add(i * tile.row_stride), tile.cols, accumulate);
        }
    }
}

/// # Safety
/// As for `rows`, and the machine has the target features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
unsafe fn rows_avx512<T: Float>(
    dtype: DType,
    to: *mut u8,
    layout: &MatrixLayout,
    tile: &FinishedTile<T>,
    accumulate: bool,
) {
    // SAFETY: `rows` has the contract of this function, and gets its arguments unchanged.
    unsafe { rows(dtype, to, layout, tile, accumulate) }
}

/// # Safety
/// As for `rows`, and the machine has the target features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn rows_avx2<T: Float>(
    dtype: DType,
    to: *mut u8,
    layout: &MatrixLayout,
    tile: &FinishedTile<T>,
    accumulate: bool,
) {
    // SAFETY: `rows` has the contract of this function, and gets its arguments unchanged.
    unsafe { rows(dtype, to, layout, tile, accumulate) }
}

/// Stores a row of `n` accumulators as `dtype`, elements `stride` apart.
///
/// # Safety
/// `c` is valid for `n` elements of `dtype`, `stride` apart, and `acc` for `n` accumulators.
#[inline(always)]
unsafe fn store<T: Float>(dtype: DType, c: *mut u8, stride: isize, acc: *const T, n: usize, accumulate: bool) {
    // SAFETY: both rows are valid for `n` elements; 16-bit results come from f32 accumulators only.
    unsafe {
        match dtype {
            DType::BF16 => each(c.cast::<bf16>(), stride, acc.cast::<f32>(), n, |old, x| {
                round_bf16(if accumulate { old.to_f32() + x } else { x })
            }),
            DType::F16 if stride == 1 && !accumulate => {
                use half::slice::HalfFloatSliceExt;
                let (to, from) = (std::slice::from_raw_parts_mut(c.cast::<f16>(), n), acc.cast::<f32>());
                to.convert_from_f32_slice(std::slice::from_raw_parts(from, n));
            }
            DType::F16 => each(c.cast::<f16>(), stride, acc.cast::<f32>(), n, |old, x| {
                f16::from_f32(if accumulate { old.to_f32() + x } else { x })
            }),
            _ => each(c.cast::<T>(), stride, acc, n, |old, x| if accumulate { old.add(x) } else { x }),
        }
    }
}

/// # Safety
/// `c` is valid for `n` elements, `stride` apart, and `acc` for `n`.
#[inline(always)]
unsafe fn each<S: Copy, T: Copy>(c: *mut S, stride: isize, acc: *const T, n: usize, f: impl Fn(S, T) -> S) {
    // SAFETY: both sides are valid for `n` elements.
    unsafe {
        if stride == 1 {
            (0..n).for_each(|j| *c.add(j) = f(*c.add(j), *acc.add(j)));
        } else {
            (0..n).for_each(|j| *c.offset(j as isize * stride) = f(*c.offset(j as isize * stride), *acc.add(j)));
        }
    }
}

/// Rounds to nearest, ties to even, without a branch so that the loop vectorizes.
#[inline(always)]
fn round_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { rounded } as u16)
}
