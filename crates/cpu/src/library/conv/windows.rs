//! The windows of an input as a matrix: blocks of it, generated where a product needs them.

use super::{AXES, Axis, Context};
use half::{bf16, f16};
use ir::DType;
use std::ffi::c_void;

/// A place among features and windows, or images and windows: the slowest index, then one for each spatial axis.
#[derive(Clone, Copy)]
struct Odometer {
    first: usize,
    at: [usize; AXES],
}

impl Odometer {
    fn new(mut i: usize, sizes: &[usize; AXES], rank: usize) -> Odometer {
        let mut at = [0; AXES];
        for a in (0..rank).rev() {
            at[a] = i % sizes[a];
            i /= sizes[a];
        }
        Odometer { first: i, at }
    }

    /// Goes `n` on along the innermost axis, not beyond its end.
    fn advance(&mut self, n: usize, sizes: &[usize; AXES], rank: usize) {
        self.at[rank - 1] += n;
        for a in (0..rank).rev() {
            if self.at[a] < sizes[a] {
                return;
            }
            self.at[a] = 0;
            if a > 0 {
                self.at[a - 1] += 1;
            } else {
                self.first += 1;
            }
        }
    }
}

/// Writes a block of the windows: rows are window elements and columns positions, or (`WIDE`) the other way round.
pub(super) unsafe extern "C" fn generate<T: Copy + Default, const WIDE: bool>(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    dst: *mut u8,
    dst_row_stride: usize,
) {
    // SAFETY: the context is that of the running convolution.
    let context = unsafe { &*ctx.cast::<Context<'_>>() };
    let g = context.geometry;
    let windows: [usize; AXES] = std::array::from_fn(|a| g.axes[a].window);
    let counts: [usize; AXES] = std::array::from_fn(|a| g.axes[a].count);
    // Indices of the batch: (image, group, piece), or the group alone.
    let (image0, group, first) = if WIDE {
        (0, batch, col0)
    } else {
        let pieces = g.positions / g.piece.max(1);
        (batch / (pieces * g.groups), batch / pieces % g.groups, batch % pieces * g.piece + col0)
    };
    let (row_sizes, col_sizes) = if WIDE { (&counts, &windows) } else { (&windows, &counts) };
    let mut row = Odometer::new(row0, row_sizes, g.rank);
    let start = Odometer::new(first, col_sizes, g.rank);
    let inner = g.rank - 1;
    let axis = &g.axes[inner];
    let step = if WIDE { axis.window_dilation } else { axis.stride };
    for i in 0..rows {
        let mut col = start;
        let mut done = 0;
        while done < cols {
            let run = (col_sizes[inner] - col.at[inner]).min(cols - done);
            let (window, position) = if WIDE { (&col, &row) } else { (&row, &col) };
            let image = image0 + position.first;
            let mut line = Some(group * g.group + image * g.image + window.first * g.plane);
            let mut stride = g.plane;
            for (a, x) in g.axes[..inner].iter().enumerate() {
                stride /= x.base.max(1);
                let place = position.at[a] as i64 * x.stride + window.at[a] as i64 * x.window_dilation - x.low;
                let inside = place >= 0 && place % x.base_dilation == 0 && place / x.base_dilation < x.base as i64;
                line = line.filter(|_| inside).map(|l| l + (place / x.base_dilation) as usize * stride);
            }
            let place =
                position.at[inner] as i64 * axis.stride + window.at[inner] as i64 * axis.window_dilation - axis.low;
            // SAFETY: the caller vouches for the block; the line is inside the input.
            unsafe {
                let to = dst.cast::<T>().add(i * dst_row_stride + done);
                match line {
                    Some(l) => copy_line(context.x.cast::<T>().add(l), axis, place, step, to, run),
                    None => fill(to, run),
                }
            }
            col.advance(run, col_sizes, g.rank);
            done += run;
        }
        row.advance(1, row_sizes, g.rank);
    }
}

#[inline(always)]
unsafe fn fill<T: Copy + Default>(to: *mut T, n: usize) {
    // SAFETY: the caller vouches for `n` elements.
    (0..n).for_each(|i| unsafe { *to.add(i) = T::default() });
}

/// Elements of a line of the input at `place`, `place + step`, ..; 0 outside and between.
#[inline(always)]
unsafe fn copy_line<T: Copy + Default>(line: *const T, axis: &Axis, place: i64, step: i64, to: *mut T, n: usize) {
    let size = axis.base as i64;
    // SAFETY: the caller vouches for `n` elements at `to` and for the line.
    unsafe {
        if axis.base_dilation != 1 {
            for i in 0..n {
                let p = place + i as i64 * step;
                let at = p / axis.base_dilation;
                let inside = p >= 0 && p % axis.base_dilation == 0 && at < size;
                *to.add(i) = if inside { *line.add(at as usize) } else { T::default() };
            }
            return;
        }
        let begin = if place >= 0 { 0 } else { ((-place + step - 1) / step).min(n as i64) };
        let end = if place >= size { 0 } else { ((size - place + step - 1) / step).min(n as i64) };
        let (begin, end) = (begin as usize, end.max(begin) as usize);
        fill(to, begin);
        let from = line.wrapping_offset((place + begin as i64 * step) as isize);
        if step == 1 {
            std::ptr::copy_nonoverlapping(from, to.add(begin), end - begin);
        } else {
            (0..end - begin).for_each(|i| *to.add(begin + i) = *from.add(i * step as usize));
        }
        fill(to.add(end), n - end);
    }
}

/// Stores a tile of `[images · positions, features]` as `[images, features, positions]`.
pub(super) unsafe extern "C" fn store(
    ctx: *const c_void,
    group: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    acc: *mut u8,
    stride: usize,
) {
    // SAFETY: the context is that of the running convolution.
    let context = unsafe { &*ctx.cast::<Context<'_>>() };
    let g = context.geometry;
    for i in 0..rows {
        let (image, position) = ((row0 + i) / g.positions, (row0 + i) % g.positions);
        for j in 0..cols {
            let to = (image * g.groups * g.outs + group * g.outs + col0 + j) * g.positions + position;
            // SAFETY: the caller vouches for the tile; the element is inside the result.
            unsafe {
                let from = i * stride + j;
                match (g.dtype, g.out) {
                    (DType::F64, _) => *context.out.cast::<f64>().add(to) = *acc.cast::<f64>().add(from),
                    (_, DType::BF16) => {
                        *context.out.cast::<bf16>().add(to) = bf16::from_f32(*acc.cast::<f32>().add(from))
                    }
                    (_, DType::F16) => *context.out.cast::<f16>().add(to) = f16::from_f32(*acc.cast::<f32>().add(from)),
                    _ => *context.out.cast::<f32>().add(to) = *acc.cast::<f32>().add(from),
                }
            }
        }
    }
}
