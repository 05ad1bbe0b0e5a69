//! The windows of an input as a matrix (im2col): blocks of it are generated where a matrix product needs them.

use super::super::memcpy::copy;
use super::{AXES, Axis, Context, Geometry};
use half::{bf16, f16};
use ir::DType;
use std::ffi::c_void;
use std::ops::Range;

/// A multi-index over features and windows, or images and windows: the slowest index, then one per spatial axis.
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

    /// Advances by `n` along the innermost axis, not beyond its end.
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

/// The widest window for which the input lines are precomputed for a whole run of positions.
pub(super) const WIDTH: usize = 16;

/// Writes a block of the windows: rows are window elements and columns are positions, or (`WIDE`) the reverse.
///
/// # Safety
/// `ctx` is the [`Context`] of the running convolution, the block is inside the matrix of windows, and `dst` is valid for `rows` rows that are
/// `dst_row_stride` elements apart.
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
    let block = Block { batch, row0, col0, rows, cols, dst: dst.cast::<T>(), stride: dst_row_stride };
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// As for `write`, and the machine has the target features.
        #[target_feature(enable = "avx2")]
        unsafe fn wide<T: Copy + Default, const WIDE: bool>(context: &Context<'_>, block: Block<T>) {
            // SAFETY: `write` has the contract of this function, and gets its arguments unchanged.
            unsafe { write::<T, WIDE>(context, block) }
        }
        if context.geometry.avx2 {
            // SAFETY: the operand is valid for the input, the block for its rows and columns, and the machine has AVX2.
            return unsafe { wide::<T, WIDE>(context, block) };
        }
    }
    // SAFETY: the operand is valid for the input, and the block for its rows and columns.
    unsafe { write::<T, WIDE>(context, block) }
}

/// A block of the matrix of windows, and its destination.
struct Block<T> {
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    dst: *mut T,
    stride: usize,
}

/// # Safety
/// The context's input is valid for its size, and the block for its rows and columns.
#[inline(always)]
unsafe fn write<T: Copy + Default, const WIDE: bool>(context: &Context<'_>, block: Block<T>) {
    let Block { batch, row0, col0, rows, cols, dst, stride: dst_row_stride } = block;
    let g = context.geometry;
    let windows: [usize; AXES] = std::array::from_fn(|a| g.axes[a].window);
    let counts: [usize; AXES] = std::array::from_fn(|a| g.axes[a].count);
    // Batch indices: (image, group, piece), or only the group.
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
    let plain = g.rank <= 2 && g.axes[..g.rank].iter().all(|a| a.base_dilation == 1);
    if WIDE && plain {
        for i in 0..rows {
            // SAFETY: as below.
            unsafe {
                let x = context.x.cast::<T>().add(group * g.group + row.first * g.image);
                let to = std::slice::from_raw_parts_mut(dst.add(i * dst_row_stride), cols);
                wide_row(g, x, &row.at, start, to);
            }
            row.advance(1, row_sizes, g.rank);
        }
        return;
    }
    if !WIDE && plain && axis.window <= WIDTH && rows > 0 {
        let mut done = 0;
        while done < cols {
            let at = first + done;
            let run = (axis.count - at % axis.count).min(cols - done);
            // SAFETY: the block is valid for its rows and columns, and the context's input for its size.
            unsafe {
                let x = context.x.cast::<T>().add(group * g.group + image0 * g.image);
                run_of_windows(g, x, at, run, row0..row0 + rows, dst.add(done), dst_row_stride);
            }
            done += run;
        }
        return;
    }
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
                // Avoid divisions, which are slow.
                let (at, left) = match x.base_dilation {
                    1 => (place, 0),
                    d => (place / d, place % d),
                };
                let inside = place >= 0 && left == 0 && at < x.base as i64;
                line = line.filter(|_| inside).map(|l| l + at as usize * stride);
            }
            let place =
                position.at[inner] as i64 * axis.stride + window.at[inner] as i64 * axis.window_dilation - axis.low;
            // SAFETY: the block is valid for its rows and columns, and the line is inside the input.
            unsafe {
                let to = dst.add(i * dst_row_stride + done);
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

/// Writes adjacent elements of the window at one position, from some element on, where at most two axes are plain.
///
/// # Safety
/// `x` is an image's features of a group.
#[inline(always)]
unsafe fn wide_row<T: Copy + Default>(
    g: &Geometry,
    x: *const T,
    position: &[usize; AXES],
    from: Odometer,
    to: &mut [T],
) {
    // With a step known at compile time the loop is vectorized.
    // SAFETY: `x` is valid for an image's features of a group, and `wide_lines` copies elements inside of it to `to`.
    unsafe {
        match g.axes[g.rank - 1].window_dilation {
            1 => wide_lines(g, x, position, from, to, |from, to, n| copy(from, to, n)),
            2 => wide_lines(g, x, position, from, to, |from, to, n| spread_copy(from, 2, to, n)),
            step => wide_lines(g, x, position, from, to, |from, to, n| spread_copy(from, step as usize, to, n)),
        }
    }
}

/// [`wide_row`] with a function `copy` that copies the elements of a line that are inside the input.
///
/// # Safety
/// As for [`wide_row`].
#[inline(always)]
unsafe fn wide_lines<T: Copy + Default>(
    g: &Geometry,
    x: *const T,
    position: &[usize; AXES],
    from: Odometer,
    to: &mut [T],
    copy: impl Fn(*const T, *mut T, usize),
) {
    let inner = g.axes[g.rank - 1];
    let (wide, step) = (inner.window, inner.window_dilation);
    let place = position[g.rank - 1] as i64 * inner.stride - inner.low;
    // The elements of a window's line that are inside the input's line: the same for all lines.
    let steps = |far: i64| (if step == 1 { far } else { (far + step - 1) / step }).clamp(0, wide as i64) as usize;
    let begin = steps(-place);
    let end = steps(inner.base as i64 - place).max(begin);
    // Consecutive lines: the offset of the first, the distance to the next, and which of them are inside the input.
    let (high, first, next, base) = match g.rank {
        2 => {
            let down = g.axes[0];
            let first = position[0] as i64 * down.stride - down.low;
            (down.window, first, down.window_dilation, down.base as i64)
        }
        _ => (1, 0, 0, 1),
    };
    let (mut feature, mut j) = (from.first, from.at[g.rank - 1]);
    let mut k = if g.rank == 2 { from.at[0] } else { 0 };
    let (mut at, mut left) = (to.as_mut_ptr(), to.len());
    while left > 0 {
        let run = (wide - j).min(left);
        let down = first + k as i64 * next;
        let (begin, end) = if run == wide { (begin, end) } else { (begin.clamp(j, j + run), end.clamp(j, j + run)) };
        // SAFETY: elements from `begin` to `end` of a line that is inside are inside the input, and the run is inside the row.
        unsafe {
            if down < 0 || down >= base || begin >= end {
                fill(at, run);
            } else {
                let line = x.wrapping_add(feature * g.plane + down as usize * inner.base);
                let line = line.wrapping_offset((place + begin as i64 * step) as isize);
                fill(at, begin - j);
                copy(line, at.add(begin - j), end - begin);
                fill(at.add(end - j), j + run - end);
            }
            at = at.add(run);
        }
        left -= run;
        (j, k) = (0, k + 1);
        if k == high {
            (k, feature) = (0, feature + 1);
        }
    }
}

/// Writes some elements of the windows of adjacent positions of one line of the result, where at most two axes are plain: a row
/// of `run` positions per element, `stride` apart.
///
/// # Safety
/// `x` is an image's features of a group, and `to` has room for the rows.
#[inline(always)]
unsafe fn run_of_windows<T: Copy + Default>(
    g: &Geometry,
    x: *const T,
    at: usize,
    run: usize,
    rows: Range<usize>,
    to: *mut T,
    stride: usize,
) {
    let inner = g.axes[g.rank - 1];
    let (high, wide) = if g.rank == 2 { (g.axes[0].window, inner.window) } else { (1, inner.window) };
    let step = inner.stride;
    // For each element of a window's line, its offset in the input's line, and the range of positions for which it is inside.
    let mut spans = [(0i64, 0usize, 0usize); WIDTH];
    let steps = |far: i64| if step == 1 { far } else { (far + step - 1) / step };
    for (k, span) in spans[..wide].iter_mut().enumerate() {
        let place = (at % inner.count) as i64 * step + k as i64 * inner.window_dilation - inner.low;
        let size = inner.base as i64;
        let begin = if place >= 0 { 0 } else { steps(-place).min(run as i64) };
        let end = if place >= size { 0 } else { steps(size - place).min(run as i64) };
        *span = (place, begin as usize, end.max(begin) as usize);
    }
    // The line of the input under a line of the window, for the first feature.
    let line_of = |k: usize| {
        if g.rank < 2 {
            return Some(0);
        }
        let y = &g.axes[0];
        let place = (at / inner.count) as i64 * y.stride + k as i64 * y.window_dilation - y.low;
        (place >= 0 && place < y.base as i64).then(|| place as usize * inner.base)
    };
    let (first, mut k, mut j) = (rows.start / (high * wide), rows.start / wide % high, rows.start % wide);
    let (mut left, mut to) = (rows.len(), to);
    for feature in first.. {
        while k < high && left > 0 {
            let line = line_of(k).map(|line| x.wrapping_add(feature * g.plane + line));
            let own = &spans[j..wide.min(j + left)];
            for &(place, begin, end) in own {
                // SAFETY: the spans are inside the input's line, and the run inside the block.
                unsafe {
                    match line {
                        None => fill(to, run),
                        Some(line) => {
                            fill(to, begin);
                            let from = line.wrapping_offset(place as isize);
                            if step == 1 {
                                copy(from.wrapping_add(begin), to.add(begin), end - begin);
                            } else {
                                let step = step as usize;
                                spread_copy(from.wrapping_add(begin * step), step, to.add(begin), end - begin);
                            }
                            fill(to.add(end), run - end);
                        }
                    }
                }
                to = to.wrapping_add(stride);
            }
            left -= own.len();
            (k, j) = (k + 1, 0);
        }
        if left == 0 {
            break;
        }
        k = 0;
    }
}

/// Writes zeros, without a call if there are few.
///
/// # Safety
/// `to` is valid for `n` elements.
#[inline(always)]
pub(super) unsafe fn fill<T: Copy + Default>(to: *mut T, n: usize) {
    const AT_ONCE: usize = 8;
    // SAFETY: `to` is valid for `n` elements.
    unsafe {
        if n > AT_ONCE {
            return std::slice::from_raw_parts_mut(to, n).fill(T::default());
        }
        (0..n).for_each(|i| to.add(i).write_volatile(T::default()));
    }
}

/// Copies `n` elements that are `step` apart.
///
/// # Safety
/// The first and the last one are in one piece of memory, and `to` has room.
///
/// # Safety
/// `to` is valid for `n` elements, and the line is inside the input.
#[inline(always)]
pub(super) unsafe fn spread_copy<T: Copy>(from: *const T, step: usize, to: *mut T, n: usize) {
    const LANES: usize = 8;
    // SAFETY: `from` is valid for the first and the last of `n` elements that are `step` apart and all between them,
    // `to` for `n`.
    unsafe {
        if step == 2 && n > LANES {
            // Select every second element of vectors. The last vectors are read from one element earlier, because no memory after
            // the last element may be read.
            let every = |at: isize, odd: usize, i: usize| {
                let both = from.offset(at).cast::<[[T; 2]; LANES]>().read_unaligned();
                to.add(i).cast::<[T; LANES]>().write_unaligned(both.map(|pair| pair[odd]));
            };
            let mut i = 0;
            while i + LANES < n {
                every(2 * i as isize, 0, i);
                i += LANES;
            }
            let i = n - LANES;
            return every(2 * i as isize - 1, 1, i);
        }
        (0..n).for_each(|i| *to.add(i) = *from.add(i * step));
    }
}

/// Copies the elements of an input line at `place`, `place + step`, ..; writes 0 outside and between input elements.
#[inline(always)]
unsafe fn copy_line<T: Copy + Default>(line: *const T, axis: &Axis, place: i64, step: i64, to: *mut T, n: usize) {
    let size = axis.base as i64;
    // SAFETY: `to` is valid for `n` elements, and the line is inside the input.
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
        let steps = |far: i64| if step == 1 { far } else { (far + step - 1) / step };
        let begin = if place >= 0 { 0 } else { steps(-place).min(n as i64) };
        let end = if place >= size { 0 } else { steps(size - place).min(n as i64) };
        let (begin, end) = (begin as usize, end.max(begin) as usize);
        fill(to, begin);
        let from = line.wrapping_offset((place + begin as i64 * step) as isize);
        if step == 1 {
            copy(from, to.add(begin), end - begin);
        } else {
            spread_copy(from, step as usize, to.add(begin), end - begin);
        }
        fill(to.add(end), n - end);
    }
}

/// Stores a tile of `[images · positions, features]` as `[images, features, positions]`.
///
/// # Safety
/// `ctx` is the [`Context`] of the running convolution, the tile is inside the result, which nothing else writes there, and `acc` is valid for
/// `rows` rows that are `stride` elements apart.
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
            // SAFETY: the tile is valid for its size, and the element is inside the result.
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
