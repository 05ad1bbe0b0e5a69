//! Convolutions as matrix products whose one operand, the windows of the input, is generated while it is packed.
//!
//! Where windows are narrower than results (forward, and ∂input), a product is `kernel [O, C·K] · windows [C·K, P]` for
//! each image and group, cut into pieces whose packed windows stay in cache. Where they are wider (∂kernel: the window is
//! a whole image), it is `windows [N·P, C·K] · kernelᵀ [C·K, O]`. Either way elements are generated in runs along the
//! innermost axis that is the longer one.

use super::{Machine, Routine};
use crate::gemm::{Layout, Operand, Output, Plan, Problem, Source, Target};
use crate::pool::Pool;
use compiler::Result;
use half::{bf16, f16};
use ir::ops::Conv;
use ir::{DType, Type};
use std::ffi::c_void;

/// The most spatial axes.
const AXES: usize = 4;
/// Bytes of generated windows that stay in the L2 cache.
const PIECE_BYTES: usize = 600 << 10;

/// One spatial axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    base: usize,
    window: usize,
    count: usize,
    stride: i64,
    low: i64,
    base_dilation: i64,
    window_dilation: i64,
}

/// The geometry that the generator needs.
#[derive(Clone, Debug)]
struct Geometry {
    axes: [Axis; AXES],
    rank: usize,
    /// Elements of one feature and one image of the input.
    plane: usize,
    image: usize,
    /// From one group's features or images to the next group's.
    group: usize,
    /// Features of a group.
    features: usize,
    /// Elements of a window of one feature, and windows of an image.
    window: usize,
    positions: usize,
    images: usize,
    groups: usize,
    /// Windows in each piece of an image.
    piece: usize,
    /// Output features of a group.
    outs: usize,
    size: usize,
    dtype: DType,
    out: DType,
}

/// A convolution ready to run.
pub(super) struct Convolution {
    geometry: Geometry,
    plan: Plan,
    /// Windows are the left operand.
    wide: bool,
}

/// What the generator and the epilogue are called with.
struct Context<'a> {
    geometry: &'a Geometry,
    x: *const u8,
    out: *mut u8,
}

/// The routine of a convolution of floats.
pub(super) fn prepare(conv: &Conv, args: &[Type], outs: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let (x, k, y) = (&args[0], &args[1], &outs[0]);
    let dtype = x.dtype;
    let accumulator = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let floats = matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
    if !floats || (conv.out != dtype && conv.out != accumulator) || x.rank() > 2 + AXES {
        return None;
    }
    let w = &conv.windows;
    let unit =
        Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, base_dilation: 1, window_dilation: 1 };
    let mut axes = [unit; AXES];
    let rank = (x.rank() - 2).max(1);
    for (i, axis) in axes.iter_mut().enumerate().take(x.rank() - 2) {
        *axis = Axis {
            base: x.shape[2 + i],
            window: k.shape[2 + i],
            count: y.shape[2 + i],
            stride: i64::try_from(w.strides[i]).ok()?,
            low: w.low[i],
            base_dilation: i64::try_from(w.base_dilation[i]).ok()?,
            window_dilation: i64::try_from(w.window_dilation[i]).ok()?,
        };
    }
    let product = |f: fn(&Axis) -> usize| axes.iter().map(f).product::<usize>();
    let (plane, window, positions) = (product(|a| a.base), product(|a| a.window), product(|a| a.count));
    let image = plane * x.shape[1];
    let (groups, images, features) = (conv.groups * conv.batch_groups, y.shape[0], k.shape[1]);
    let outs = k.shape[0] / groups;
    let depth = features * window;
    let last = &axes[rank - 1];
    let wide = last.window > last.count;
    let mut geometry = Geometry {
        axes,
        rank,
        plane,
        image,
        group: if conv.batch_groups > 1 { images * image } else { features * plane },
        features,
        window,
        positions,
        images,
        groups,
        piece: positions,
        outs,
        size: dtype.size(),
        dtype,
        out: conv.out,
    };
    let weights = Layout { row: depth as isize, col: 1, batch: [0, (outs * depth) as isize, 0] };
    let problem = if wide {
        Problem {
            batch: [1, groups, 1],
            a: Source::Generated { batched: true },
            b: Source::Memory(weights.transposed()),
            c: Target::Epilogue { whole_rows: false },
            ..Problem::new(images * positions, depth, outs, dtype)
        }
    } else {
        // Pieces of whole lines of the result, as many as divide it evenly.
        let lines = positions / last.count.max(1);
        let fits = |n: &usize| lines.is_multiple_of(*n) && depth * (positions / n) * 4 <= PIECE_BYTES;
        let pieces = (1..=lines.max(1)).find(fits).unwrap_or(1);
        geometry.piece = positions / pieces;
        let (piece, positions) = (geometry.piece as isize, positions as isize);
        let out = (outs * groups) as isize;
        let c = Layout { row: positions, col: 1, batch: [out * positions, outs as isize * positions, piece] };
        Problem {
            batch: [images, groups, pieces],
            a: Source::Memory(weights),
            b: Source::Generated { batched: true },
            c: Target::Memory { dtype: conv.out, layout: c, accumulate: false },
            ..Problem::new(outs, depth, geometry.piece, dtype)
        }
    };
    let plan = Plan::with_isa(&problem, machine.threads, machine.isa).ok()?;
    Some(Box::new(Convolution { geometry, plan, wide }))
}

impl Routine for Convolution {
    fn scratch_bytes(&self) -> usize {
        self.plan.scratch_bytes()
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let context = Context { geometry: &self.geometry, x: args[0], out: outs[0] };
        let ctx = (&raw const context).cast::<c_void>();
        let f = match (self.wide, self.geometry.size) {
            (true, 2) => generate::<u16, true>,
            (true, 4) => generate::<u32, true>,
            (true, _) => generate::<u64, true>,
            (false, 2) => generate::<u16, false>,
            (false, 4) => generate::<u32, false>,
            (false, _) => generate::<u64, false>,
        };
        let (kernel, windows) = (Operand::Memory(args[1]), Operand::Generated { f, ctx });
        // SAFETY: the plan was made for these shapes, and the context outlives the call.
        unsafe {
            if self.wide {
                self.plan.run(pool, windows, kernel, Output::Epilogue { f: store, ctx }, scratch);
            } else {
                self.plan.run(pool, kernel, windows, Output::Memory(outs[0]), scratch);
            }
        }
        Ok(())
    }
}

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
#[expect(clippy::too_many_arguments, reason = "the signature of a prologue")]
unsafe extern "C" fn generate<T: Copy + Default, const WIDE: bool>(
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
#[expect(clippy::too_many_arguments, reason = "the signature of an epilogue")]
unsafe extern "C" fn store(
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
                    (_, DType::BF16) => *context.out.cast::<bf16>().add(to) = bf16::from_f32(*acc.cast::<f32>().add(from)),
                    (_, DType::F16) => *context.out.cast::<f16>().add(to) = f16::from_f32(*acc.cast::<f32>().add(from)),
                    _ => *context.out.cast::<f32>().add(to) = *acc.cast::<f32>().add(from),
                }
            }
        }
    }
}
