//! Reads operands and packs them into panels.
//!
//! A panel is `width` rows of A (or columns of B) side by side: element `(w, d)` is at index
//! `d·width + w`, with `d` along k. The packed form of a k-block is the sequence of its panels,
//! and the packed form of an operand is the sequence of its k-blocks.

use half::{bf16, f16};
use ir::DType;

use super::kernel::UpcastFn;
use super::problem::{GemmOperand, GemmProblem, MatrixLayout};
use super::vector::{Float, Vector};

/// The number of elements of the temporary block for upcast or generated operands.
pub(super) const TEMP: usize = 8192;

/// The number of lines of a panel that are transposed together.
pub(super) const PANEL_LINES: usize = 16;

/// Bytes of scratch for a temporary block: once as accumulators, and before that in the operand's dtype.
pub(super) const TEMP_BYTES: usize = TEMP * 8 + TEMP * 2;

/// An operand at run time, together with the facts that the plan knows about it.
#[derive(Clone, Copy)]
pub(super) struct OperandReader {
    pub(super) operand: GemmOperand,
    /// The layout; only meaningful for operands in memory.
    pub(super) layout: MatrixLayout,
    pub(super) dtype: DType,
}

/// A block of an operand in the accumulator's dtype.
#[derive(Clone, Copy)]
pub(super) struct View<T> {
    pub(super) at: *const T,
    pub(super) row: isize,
    pub(super) col: isize,
}

impl OperandReader {
    /// Returns the operand from element `(row, col)` of batch entry `batch` on, read in place.
    ///
    /// # Safety
    /// The operand is [`Feed::in_place`] and has that element.
    #[inline]
    pub(super) unsafe fn view<T>(&self, problem: &GemmProblem, batch: usize, row: usize, col: usize) -> View<T> {
        let (GemmOperand::Memory(at) | GemmOperand::Packed(at)) = self.operand else {
            unreachable!("only operands in memory are read in place")
        };
        let layout = &self.layout;
        let offset = problem.batch_offset(layout, batch) + row as isize * layout.row + col as isize * layout.col;
        // SAFETY: the operand has this element.
        let at = unsafe { at.cast::<T>().offset(offset) };
        let MatrixLayout { row, col, .. } = *layout;
        View { at, row, col }
    }

    /// Returns whether the kernels can read the operand's elements in place.
    pub(super) fn in_place<T: Float>(&self) -> bool {
        matches!(self.operand, GemmOperand::Memory(_)) && self.dtype == T::DTYPE
    }

    /// Returns a view of the block `[row0, row0+rows) × [col0, col0+cols)`: in place, or upcast or
    /// generated into `temp`, which has [`TEMP_BYTES`].
    ///
    /// # Safety
    /// The block is inside of the operand, and no larger than `TEMP` elements where it is not read in place; `temp` has
    /// room for `TEMP_BYTES`.
    pub(super) unsafe fn block<T: Float>(
        &self,
        problem: &GemmProblem,
        batch: usize,
        (row0, rows): (usize, usize),
        (col0, cols): (usize, usize),
        temp: *mut u8,
        widen: UpcastFn<T>,
    ) -> View<T> {
        debug_assert!(self.in_place::<T>() || rows * cols <= TEMP);
        // SAFETY: the block is inside of the operand, and `temp` has `TEMP_BYTES`; `raw` is the part of `temp` behind
        // the widened elements.
        unsafe {
            let wide = temp.cast::<T>();
            let raw = temp.add(TEMP * 8);
            match self.operand {
                GemmOperand::Generated { f, ctx } => {
                    let dst = if self.dtype == T::DTYPE { temp } else { raw };
                    f(ctx, batch, row0, col0, rows, cols, dst, cols);
                    if self.dtype != T::DTYPE {
                        widen(self.dtype, raw, 1, wide, rows * cols);
                    }
                    View { at: wide, row: cols as isize, col: 1 }
                }
                GemmOperand::Memory(at) | GemmOperand::Packed(at) => {
                    let MatrixLayout { row, col, .. } = self.layout;
                    let offset = problem.batch_offset(&self.layout, batch) + row0 as isize * row + col0 as isize * col;
                    let at = at.offset(offset * self.dtype.size() as isize);
                    if self.dtype == T::DTYPE {
                        return View { at: at.cast(), row, col };
                    }
                    // Traverse memory in its own order: along columns only if they are adjacent.
                    if row == 1 && col != 1 {
                        for j in 0..cols {
                            let from = at.offset(j as isize * col * self.dtype.size() as isize);
                            widen(self.dtype, from, 1, wide.add(j * rows), rows);
                        }
                        return View { at: wide, row: 1, col: rows as isize };
                    }
                    for i in 0..rows {
                        let from = at.offset(i as isize * row * self.dtype.size() as isize);
                        widen(self.dtype, from, col, wide.add(i * cols), cols);
                    }
                    View { at: wide, row: cols as isize, col: 1 }
                }
            }
        }
    }
}

impl OperandReader {
    /// Returns the block in the operand's own dtype: in place, or generated into `temp`.
    ///
    /// # Safety
    /// As for [`Feed::block`]; the block's bytes are no more than [`TEMP_BYTES`].
    pub(super) unsafe fn own(
        &self,
        problem: &GemmProblem,
        batch: usize,
        (row0, rows): (usize, usize),
        (col0, cols): (usize, usize),
        temp: *mut u8,
    ) -> View<u8> {
        debug_assert!(matches!(self.operand, GemmOperand::Memory(_)) || rows * cols * self.dtype.size() <= TEMP_BYTES);
        // SAFETY: the block is inside of the operand, and `temp` has `TEMP_BYTES`.
        unsafe {
            match self.operand {
                GemmOperand::Generated { f, ctx } => {
                    f(ctx, batch, row0, col0, rows, cols, temp, cols);
                    View { at: temp, row: cols as isize, col: 1 }
                }
                GemmOperand::Memory(at) | GemmOperand::Packed(at) => {
                    let MatrixLayout { row, col, .. } = self.layout;
                    let offset = problem.batch_offset(&self.layout, batch) + row0 as isize * row + col0 as isize * col;
                    View { at: at.offset(offset * self.dtype.size() as isize), row, col }
                }
            }
        }
    }
}

/// Copies `n` elements, `stride` apart, to adjacent elements of the accumulator's dtype.
/// Inlined into functions with vector instructions.
///
/// # Safety
/// `src` is valid for `n` elements of `dtype`, `stride` apart, and `dst` for `n`; `T` is the accumulator's type for
/// `dtype`.
#[inline(always)]
pub(super) unsafe fn upcast<T: Float>(dtype: DType, src: *const u8, stride: isize, dst: *mut T, n: usize) {
    // SAFETY: both sides are valid for `n` elements; 16-bit floats are widened to f32 only, and i8 to i32.
    unsafe {
        match dtype {
            DType::BF16 => {
                let (src, dst) = (src.cast::<u16>(), dst.cast::<f32>());
                if stride == 1 {
                    (0..n).for_each(|i| *dst.add(i) = f32::from_bits((*src.add(i) as u32) << 16));
                } else {
                    (0..n).for_each(|i| *dst.add(i) = bf16::from_bits(*src.offset(i as isize * stride)).to_f32());
                }
            }
            DType::I8 => {
                let (src, dst) = (src.cast::<i8>(), dst.cast::<i32>());
                if stride == 1 {
                    (0..n).for_each(|i| *dst.add(i) = *src.add(i) as i32);
                } else {
                    (0..n).for_each(|i| *dst.add(i) = *src.offset(i as isize * stride) as i32);
                }
            }
            DType::F16 => {
                let (src, dst) = (src.cast::<f16>(), dst.cast::<f32>());
                if stride == 1 {
                    use half::slice::HalfFloatSliceExt;
                    std::slice::from_raw_parts(src, n).convert_to_f32_slice(std::slice::from_raw_parts_mut(dst, n));
                } else {
                    (0..n).for_each(|i| *dst.add(i) = (*src.offset(i as isize * stride)).to_f32());
                }
            }
            _ => {
                let src = src.cast::<T>();
                (0..n).for_each(|i| *dst.add(i) = *src.offset(i as isize * stride));
            }
        }
    }
}

/// Packs `valid ≤ width` lines of `depth` elements into a panel and pads the rest with zeros.
///
/// `along` is the stride from line to line; `deep` is the stride in k.
///
/// # Safety
/// `src` is valid for `valid × depth` elements, and `dst` for `width × depth`.
#[inline(always)]
pub(super) unsafe fn pack_panel<V: Vector>(
    dst: *mut V::Elem,
    width: usize,
    src: *const V::Elem,
    (along, deep): (isize, isize),
    valid: usize,
    depth: usize,
) {
    // SAFETY: `src` is valid for `valid × depth` elements, and `dst` for `width × depth`.
    unsafe {
        if along == 1 {
            let (whole, rest) = (valid / V::LANES * V::LANES, valid % V::LANES);
            for d in 0..depth {
                let (to, from) = (dst.add(d * width), src.offset(d as isize * deep));
                (0..whole).step_by(V::LANES).for_each(|w| V::load(from.add(w)).store(to.add(w)));
                if rest > 0 {
                    V::load_first(from.add(whole), rest).store_first(to.add(whole), rest);
                }
            }
        } else if deep == 1 {
            for first in (0..valid).step_by(PANEL_LINES) {
                let (dst, src, lines) =
                    (dst.add(first), src.offset(first as isize * along), PANEL_LINES.min(valid - first));
                let done = V::transpose_16(dst, width, src, along, lines, depth);
                let (dst, src, depth) = (dst.add(done * width), src.add(done), depth - done);
                let quads = lines / 4 * 4;
                for w in (0..quads).step_by(4) {
                    V::transpose_4(dst.add(w), width, src.offset(w as isize * along), along, depth);
                }
                for w in quads..lines {
                    let from = src.offset(w as isize * along);
                    (0..depth).for_each(|d| *dst.add(d * width + w) = *from.add(d));
                }
            }
        } else {
            for d in 0..depth {
                let from = src.offset(d as isize * deep);
                (0..valid).for_each(|w| *dst.add(d * width + w) = *from.offset(w as isize * along));
            }
        }
        if valid < width {
            for d in 0..depth {
                (valid..width).for_each(|w| *dst.add(d * width + w) = V::Elem::default());
            }
        }
    }
}

/// Transposes four lines of adjacent elements into four columns, in 4×4 blocks.
///
/// # Safety
/// `src` is valid for four lines of `depth` elements, and `dst` for their columns.
#[inline(always)]
pub(super) unsafe fn transpose_4<T: Float>(dst: *mut T, width: usize, src: *const T, along: isize, depth: usize) {
    // SAFETY: `src` is valid for four lines of `depth` elements, and `dst` for their columns.
    unsafe {
        let lines: [*const T; 4] = std::array::from_fn(|i| src.offset(i as isize * along));
        let blocks = depth / 4 * 4;
        for d in (0..blocks).step_by(4) {
            let x = lines.map(|line| line.add(d).cast::<[T; 4]>().read_unaligned());
            (0..4).for_each(|j| {
                let column: [T; 4] = x.map(|line| line[j]);
                dst.add((d + j) * width).cast::<[T; 4]>().write_unaligned(column);
            });
        }
        for d in blocks..depth {
            (0..4).for_each(|i| *dst.add(d * width + i) = *lines[i].add(d));
        }
    }
}
