//! Pooling: reductions of windows, and gathers and scatters at the extrema of windows.
//!
//! A line of results (all axes but the last fixed) is computed at once: each row of the window is combined into it, in the
//! order of the reference.

mod argmax;
mod avg_pool_backward;
mod code;
mod pool2x2;
mod sliding_reduce;

use super::element::{Element, FoldOp, by_dtype, by_fold};
use super::{CpuContext, OpRoutine, Pointers, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use code::Code;
use compiler::Result;
use ir::ops::{ReduceWindow, WindowConfig, WindowGather, WindowScatter};
use ir::{Shape, Type};
use std::ops::Range;

/// The maximum number of axes.
const AXES: usize = 8;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new("window.together", pool2x2::TOGETHER, "windows of a line: beyond, they are several bundles"),
        Threshold::new(
            "window.plane",
            sliding_reduce::PLANE_BYTES,
            "bytes of a plane's reduced rows: beyond, window by window",
        ),
        Threshold::new(
            "window.block",
            sliding_reduce::BLOCK,
            "windows along a row: beyond, they are reduced in several blocks",
        ),
        Threshold::new(
            "window.flat",
            sliding_reduce::FLAT,
            "elements of a row: up to here rows of small planes are reduced as one",
        ),
        Threshold::new(
            "window.low",
            sliding_reduce::LOW,
            "rows of a window: up to here sums are taken down the rows first",
        ),
    ]
}

#[derive(Clone, Copy)]
struct Axis {
    base: usize,
    window: usize,
    count: usize,
    stride: i64,
    low: i64,
    base_dilation: i64,
    window_dilation: i64,
    /// The stride of the base in elements.
    step: usize,
}

impl Axis {
    #[inline(always)]
    fn source(&self, o: usize, k: usize) -> Option<usize> {
        let place = o as i64 * self.stride + k as i64 * self.window_dilation - self.low;
        if self.base_dilation == 1 {
            return (place >= 0 && place < self.base as i64).then_some(place as usize);
        }
        let at = place.div_euclid(self.base_dilation);
        let inside = place.rem_euclid(self.base_dilation) == 0 && at >= 0 && at < self.base as i64;
        inside.then_some(at as usize)
    }

    /// Returns whether the window does nothing along this axis.
    fn plain(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.low == 0 && self.base_dilation == 1 && self.base == self.count
    }
}

/// Windows over a dense tensor.
struct Frame {
    axes: Vec<Axis>,
    last: Axis,
    /// The number of rows of a window: the product of all its axes but the last.
    rows: usize,
    lines: usize,
    threads: usize,
    avx2: bool,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    avx512: bool,
    /// The number of lines of windows in a matrix, if windows are 2 × 2 and tile the matrix.
    halves: Option<usize>,
}

impl Frame {
    fn new(
        base: &Type,
        window: &Shape,
        windows: &WindowConfig,
        count: &[usize],
        machine: CpuContext,
    ) -> Option<Box<Frame>> {
        let rank = base.rank();
        if rank == 0 || rank > AXES {
            return None;
        }
        let strides = base.strides();
        let mut axes = Vec::with_capacity(rank);
        for i in 0..rank {
            axes.push(Axis {
                base: base.shape[i],
                window: window[i],
                count: count[i],
                stride: i64::try_from(windows.strides[i]).ok()?,
                low: windows.low[i],
                base_dilation: i64::try_from(windows.base_dilation[i]).ok()?,
                window_dilation: i64::try_from(windows.window_dilation[i]).ok()?,
                step: strides[i],
            });
        }
        let last = axes.pop()?;
        let mut frame = Frame {
            rows: axes.iter().map(|a| a.window).product(),
            lines: axes.iter().map(|a| a.count).product(),
            axes,
            last,
            threads: machine.threads,
            avx2: machine.isa != Isa::Portable,
            avx512: machine.isa == Isa::Avx512,
            halves: None,
        };
        frame.halves = pool2x2::pool2x2_rows(&frame);
        Some(Box::new(frame))
    }

    /// Returns the starts of the two lines of the base under a line of 2 × 2 windows.
    fn pair(&self, line: usize) -> (usize, usize) {
        let top = 2 * line * self.last.base;
        (top, top + self.last.base)
    }

    /// Calls `f` with the start of each row of the base that the windows of a line use.
    fn rows(&self, line: usize, f: &mut dyn FnMut(usize)) {
        let mut at = [0usize; AXES];
        let mut rest = line;
        for (a, axis) in self.axes.iter().enumerate().rev() {
            at[a] = rest % axis.count;
            rest /= axis.count;
        }
        let mut k = [0usize; AXES];
        for _ in 0..self.rows {
            let mut start = Some(0);
            for (a, axis) in self.axes.iter().enumerate() {
                let source = axis.source(at[a], k[a]);
                start = start.zip(source).map(|(s, i)| s + i * axis.step);
            }
            if let Some(s) = start {
                f(s);
            }
            for (a, axis) in self.axes.iter().enumerate().rev() {
                k[a] += 1;
                if k[a] < axis.window {
                    break;
                }
                k[a] = 0;
            }
        }
    }

    /// Calls `f(o, i)` for every window `o` of a line and index `i` in a row of the base, one window element after the other.
    #[inline(always)]
    fn along(&self, mut f: impl FnMut(usize, usize)) {
        let a = &self.last;
        for k in 0..a.window {
            if a.base_dilation != 1 && a.stride == 1 {
                // Element `i` of the base is used by window `i·d + offset`.
                let (d, offset) = (a.base_dilation, a.low - k as i64 * a.window_dilation);
                let up = |x: i64| (x.max(0) + d - 1) / d;
                let (begin, end) = (up(-offset), up(a.count as i64 - offset).min(a.base as i64));
                (begin..end).for_each(|i| f((i * d + offset) as usize, i as usize));
                continue;
            }
            if a.base_dilation != 1 {
                (0..a.count).for_each(|o| {
                    if let Some(i) = a.source(o, k) {
                        f(o, i)
                    }
                });
                continue;
            }
            let first = k as i64 * a.window_dilation - a.low;
            let begin = if first >= 0 { 0 } else { (-first + a.stride - 1) / a.stride };
            let end = if first >= a.base as i64 { 0 } else { (a.base as i64 - first + a.stride - 1) / a.stride };
            for o in begin..end.min(a.count as i64) {
                f(o as usize, (first + o * a.stride) as usize);
            }
        }
    }

    fn work(&self) -> usize {
        self.lines * self.last.count * self.rows * self.last.window
    }
}

/// A reduction of windows.
struct Reduction {
    frame: Box<Frame>,
    code: &'static Code,
    sliding: Option<Box<sliding_reduce::Sliding>>,
    spreading: Option<Box<avg_pool_backward::AvgPoolBackward>>,
    /// The initial state of the windows.
    start: u64,
}

pub(super) fn reduce(
    op: &ReduceWindow,
    args: &[Type],
    outs: &[Type],
    machine: CpuContext,
) -> Option<Box<dyn OpRoutine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &outs[0].shape, machine)?;
    let identity = op.kind.identity(args[0].dtype);
    let (code, start) = by_fold!(args[0].dtype, op.kind, T, F => {
        let start = <F as FoldOp<T>>::start(<T as Element>::from_scalar(identity));
        (const { &Code::new::<T, F>() }, code::number(start))
    })?;
    let sliding = sliding_reduce::Sliding::new(&frame).filter(|_| frame.halves.is_none() && code.slides.is_some());
    let spreading = avg_pool_backward::AvgPoolBackward::new(&frame).filter(|_| code.spread.is_some());
    let (sliding, spreading) = (sliding.map(Box::new), spreading.map(Box::new));
    Some(Box::new(Reduction { frame, code, sliding, spreading, start }))
}

impl OpRoutine for Reduction {
    fn scratch_bytes(&self) -> usize {
        let own = match (&self.sliding, &self.spreading) {
            (Some(s), _) => s.scratch(),
            (_, Some(s)) => s.scratch(),
            _ => self.frame.last.count * 8,
        };
        own.next_multiple_of(64) * self.frame.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (frame, code, start) = (&self.frame, self.code, self.start);
        let own_bytes = self.scratch_bytes() / frame.threads.max(1);
        let (x, y, scratch) = (SharedPtr(args[0].cast_mut()), SharedPtr(outs[0]), SharedPtr(scratch));
        let n = frame.last.count;
        let parts = match (&self.sliding, &self.spreading) {
            (Some(s), _) => s.planes,
            (_, Some(s)) => s.planes,
            _ => frame.lines,
        };
        in_ranges(pool, parts, frame.work(), &|range: Range<usize>, worker| {
            let (ends, own) = ((x.at(0).cast_const(), y.at(0)), scratch.at(worker * own_bytes));
            // SAFETY: all is inside the operand, results are the range's own, scratch is the worker's, with at most 8 bytes for a state.
            unsafe {
                match (&self.sliding, &self.spreading, code.spread) {
                    (Some(s), ..) if !code.any_order && s.is_flat() => s.flat(code, range, ends, start, own),
                    (Some(s), ..) => range.for_each(|plane| s.plane(code, plane, ends, start, own)),
                    (_, Some(s), Some(spread)) => {
                        range.for_each(|plane| spread(s, plane, ends, start, own, frame.avx2));
                    }
                    _ if frame.halves.is_some() => range.for_each(|line| {
                        let (top, bottom) = frame.pair(line);
                        let pair = [top, bottom].map(|at| ends.0.add(at * code.size));
                        (code.halves)(frame.avx2, pair, n, start, ends.1.add(line * n * code.size));
                    }),
                    _ => range.for_each(|line| {
                        code::fill(own, code.state, n, start);
                        frame.rows(line, &mut |at| (code.row)(frame, ends.0.add(at * code.size), own));
                        (code.results)(own, ends.1.add(line * n * code.size), n);
                    }),
                }
            }
        });
        Ok(())
    }
}

/// A gather or scatter at windows' extrema.
struct Extrema {
    frame: Box<Frame>,
    keys: &'static argmax::Keys,
    /// Used where planes are small and a key and its position fit in one integer.
    flat: Option<Box<sliding_reduce::Sliding>>,
    scatter: bool,
    max: bool,
    /// The product of the leading axes along which no window slides, and the number of elements of keys and results below them.
    plain: usize,
    base: usize,
}

pub(super) fn gather(
    op: &WindowGather,
    args: &[Type],
    outs: &[Type],
    machine: CpuContext,
) -> Option<Box<dyn OpRoutine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &outs[0].shape, machine)?;
    extrema(frame, false, op.max, args)
}

pub(super) fn scatter(op: &WindowScatter, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &args[1].shape, machine)?;
    extrema(frame, true, op.max, args)
}

fn extrema(frame: Box<Frame>, scatter: bool, max: bool, args: &[Type]) -> Option<Box<dyn OpRoutine>> {
    let plain: usize = frame.axes.iter().take_while(|a| a.plain()).map(|a| a.count).product();
    let base = args[0].numel() / plain.max(1);
    let flat = sliding_reduce::Sliding::new(&frame).filter(|s| s.is_flat() && args[0].dtype.size() <= 4);
    let flat = flat.filter(|_| frame.halves.is_none()).map(Box::new);
    if args[0].dtype != args[1].dtype || base >= argmax::NONE as usize {
        return None;
    }
    let keys = by_dtype!(args[0].dtype, T => const { &argmax::Keys::new::<T>() })?;
    Some(Box::new(Extrema { frame, keys, flat, scatter, max, plain, base }))
}

impl Extrema {
    /// Scatters elements of windows from `window` on to positions relative to `from`, or gathers from these positions.
    ///
    /// # Safety
    /// `x` and `y` are valid for the elements at the window, at `from` and at `places`, and nothing else accesses those
    /// of `y`.
    unsafe fn put(&self, x: *const u8, y: *mut u8, window: usize, from: usize, places: &[u32]) {
        let (window, from) = (window * self.keys.size, from * self.keys.size);
        // SAFETY: `x` and `y` are valid for the elements at the window, at `from` and at `places`, and nothing else
        // accesses those of `y`.
        unsafe {
            match self.scatter {
                true => (self.keys.add)(x.add(window), places, y.add(from)),
                false => self.keys.take(x.add(from), places, y.add(window)),
            }
        }
    }
}

impl OpRoutine for Extrema {
    fn scratch_bytes(&self) -> usize {
        let own = self.flat.as_ref().map_or(self.frame.last.count * 12, |s| s.scratch());
        own.next_multiple_of(64) * self.frame.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (frame, size) = (&self.frame, self.keys.size);
        let own_bytes = self.scratch_bytes() / frame.threads.max(1);
        let args = Pointers(args);
        let (y, scratch) = (SharedPtr(outs[0]), SharedPtr(scratch));
        let n = frame.last.count;
        // Windows of one block never use the base of another.
        let lines_each = frame.lines / self.plain.max(1);
        let halves = self.scatter && frame.halves.is_some();
        // The number of parts, and the number of base elements and lines per part.
        let (parts, base, lines) = match &self.flat {
            Some(s) => (s.planes, s.sizes().0, 0),
            None if self.scatter => (self.plain, self.base, lines_each),
            None => (frame.lines, 0, 1),
        };
        in_ranges(pool, parts, frame.work(), &|range: Range<usize>, worker| {
            let (keys, x, own) = (args.get()[0], args.get()[1], scratch.at(worker * own_bytes));
            let lines = range.start * lines..range.end * lines;
            // SAFETY: all is inside the operands, and a winner inside the base; results are the range's own, scratch is the worker's, with at most 8 bytes for
            // an element.
            unsafe {
                if self.scatter && !halves {
                    y.at(range.start * base * size).write_bytes(0, range.len() * base * size);
                }
                if let Some(s) = &self.flat {
                    let put = &mut |window, from, places: &[u32]| self.put(x, y.at(0), window, from, places);
                    return s.winners(range, keys, self.keys, self.max, own, put);
                }
                if halves {
                    return lines.for_each(|line| {
                        let (top, bottom) = frame.pair(line);
                        let pair = [top, bottom].map(|at| keys.add(at * size));
                        let to = [top, bottom].map(|at| y.at(at * size));
                        (self.keys.spread)(frame.avx2, pair, (n, self.max), x.add(line * n * size), to);
                    });
                }
                let places = std::slice::from_raw_parts_mut(own.add(8 * n).cast::<u32>(), n);
                for line in lines {
                    let from = line / lines_each.max(1) * self.base;
                    self.keys.argmax_windows(frame, (line, from), (keys, self.max), own, places);
                    self.put(x, y.at(0), line * n, from, places);
                }
            }
        });
        Ok(())
    }
}
