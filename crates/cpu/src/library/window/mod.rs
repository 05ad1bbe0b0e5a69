//! Pooling: reductions of windows, and the gathers and scatters at windows' extrema.
//!
//! A line of results (all axes but the last fixed) is computed at once: each row of the window passes over it, in the
//! reference's order.

mod halving;
mod sliding;
mod spreading;
mod winners;

use super::element::{Element, Fold, by_dtype, by_fold};
use super::{Machine, Pointers, Raw, Routine, in_ranges};
use crate::gemm::Isa;
use crate::pool::Pool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{ReduceKind, ReduceWindow, WindowGather, WindowScatter, Windows};
use ir::{Shape, Type};
use std::marker::PhantomData;
use std::ops::Range;

/// The most axes.
const AXES: usize = 8;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new("window.together", halving::TOGETHER, "windows of a line: beyond, they are several bundles"),
        Threshold::new(
            "window.plane",
            sliding::PLANE_BYTES,
            "bytes of a plane's reduced rows: beyond, window by window",
        ),
        Threshold::new(
            "window.block",
            sliding::BLOCK,
            "windows along a row: beyond, they are reduced in several blocks",
        ),
        Threshold::new(
            "window.flat",
            sliding::FLAT,
            "elements of a row: up to here rows of small planes are reduced as one",
        ),
        Threshold::new("window.low", sliding::LOW, "rows of a window: up to here sums are taken down the rows first"),
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
    /// Elements of the base from one index to the next.
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

    /// Whether nothing slides along it.
    fn plain(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.low == 0 && self.base_dilation == 1 && self.base == self.count
    }
}

/// Windows over a dense tensor.
struct Frame {
    axes: Vec<Axis>,
    last: Axis,
    /// Rows of a window: all its axes but the last.
    rows: usize,
    lines: usize,
    threads: usize,
    avx2: bool,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    avx512: bool,
    /// Lines of windows in a matrix, where windows of 2×2 tile matrices.
    halves: Option<usize>,
}

impl Frame {
    fn new(base: &Type, window: &Shape, windows: &Windows, count: &[usize], machine: Machine) -> Option<Box<Frame>> {
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
        frame.halves = halving::halves(&frame);
        Some(Box::new(frame))
    }

    /// Where the two lines of the base under a line of windows begin, for windows of 2×2.
    fn pair(&self, line: usize) -> (usize, usize) {
        let top = 2 * line * self.last.base;
        (top, top + self.last.base)
    }

    /// Calls `f` with each row of the windows of a line that meets the base: where that row of the base begins.
    #[inline(always)]
    fn rows(&self, line: usize, mut f: impl FnMut(usize)) {
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
                // Element `i` of the base meets window `i·d + offset`.
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
struct Reduction<T: Element, F: Fold<T>> {
    frame: Box<Frame>,
    sliding: Option<Box<sliding::Sliding>>,
    spreading: Option<Box<spreading::Spreading>>,
    identity: T,
    fold: PhantomData<fn() -> F>,
}

pub(super) fn reduce(op: &ReduceWindow, args: &[Type], outs: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &outs[0].shape, machine)?;
    let identity = op.kind.identity(args[0].dtype);
    let sliding = sliding::Sliding::new(&frame).filter(|_| frame.halves.is_none()).map(Box::new);
    let spreading = spreading::Spreading::new(&frame).filter(|_| op.kind == ReduceKind::Sum).map(Box::new);
    by_fold!(args[0].dtype, op.kind, T, F => {
        let identity = <T as Element>::from_scalar(identity);
        let sliding = sliding.filter(|_| Reduction::<T, F>::SLIDES);
        let spreading = spreading.filter(|_| <F as Fold<T>>::ANY_ORDER);
        Box::new(Reduction::<T, F> { frame, sliding, spreading, identity, fold: PhantomData }) as Box<dyn Routine>
    })
}

impl<T: Element, F: Fold<T>> Reduction<T, F> {
    /// Whether windows slide. Code for every type would be much: integers of two and of eight bytes, whose windows are rare, go the general way.
    const SLIDES: bool = F::JOINS && (!T::IS_INT || size_of::<T>() == 1 || size_of::<T>() == 4);
}

impl<T: Element, F: Fold<T>> Routine for Reduction<T, F> {
    fn scratch_bytes(&self) -> usize {
        if let Some(s) = &self.sliding {
            return s.scratch().next_multiple_of(64) * self.frame.threads;
        }
        if let Some(s) = &self.spreading {
            return s.scratch() * self.frame.threads;
        }
        (self.frame.last.count * 8).next_multiple_of(64) * self.frame.threads
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let frame = &self.frame;
        let (x, y) = (Raw(args[0].cast_mut().cast::<T>()), Raw(outs[0].cast::<T>()));
        let scratch = Raw(scratch);
        if Self::SLIDES
            && let Some(s) = &self.sliding
        {
            if !F::ANY_ORDER && s.is_flat() {
                in_ranges(pool, s.planes, frame.work(), &|planes: Range<usize>, worker| {
                    let own = scratch.at(worker * s.scratch().next_multiple_of(64));
                    // SAFETY: planes are inside the operand, results the range's own, scratch the worker's.
                    unsafe { s.flat::<T, F>(planes, (x.at(0), y.at(0)), self.identity, own) };
                });
                return Ok(());
            }
            in_ranges(pool, s.planes, frame.work(), &|planes: Range<usize>, worker| {
                let own = scratch.at(worker * s.scratch().next_multiple_of(64));
                for plane in planes {
                    // SAFETY: planes are inside the operand, results the range's own, scratch the worker's.
                    unsafe { s.reduce::<T, F>(plane, (x.at(0), y.at(0)), self.identity, own) };
                }
            });
            return Ok(());
        }
        if F::ANY_ORDER
            && let Some(s) = &self.spreading
        {
            in_ranges(pool, s.planes, frame.work(), &|planes: Range<usize>, worker| {
                let own = scratch.at(worker * s.scratch());
                for plane in planes {
                    // SAFETY: as above.
                    unsafe { s.reduce::<T, F>(plane, (x.at(0), y.at(0)), self.identity, own, frame.avx2) };
                }
            });
            return Ok(());
        }
        let n = frame.last.count;
        in_ranges(pool, frame.lines, frame.work(), &|lines: Range<usize>, worker| {
            let line_bytes = (n * 8).next_multiple_of(64);
            // SAFETY: each worker has its own scratch, and a state takes at most 8 bytes.
            let states =
                unsafe { std::slice::from_raw_parts_mut(scratch.at(worker * line_bytes).cast::<F::State>(), n) };
            for line in lines {
                if frame.halves.is_some() {
                    let (top, bottom) = frame.pair(line);
                    let pair = halving::Lines { top: x.at(top), bottom: x.at(bottom), windows: n };
                    // SAFETY: both lines are inside the operand, and the results are the range's own.
                    unsafe { halving::reduce::<T, F>(frame.avx2, pair, self.identity, y.at(line * n)) };
                    continue;
                }
                states.fill(F::start(self.identity));
                frame.rows(line, |start| {
                    let row = x.at(start);
                    // SAFETY: `along` gives indices inside the row, which is inside the operand.
                    frame.along(|o, i| states[o] = F::step(states[o], unsafe { *row.add(i) }));
                });
                for (o, &s) in states.iter().enumerate() {
                    // SAFETY: the line is this range's own.
                    unsafe { *y.at(line * n + o) = F::result(s) };
                }
            }
        });
        Ok(())
    }
}

/// A gather or scatter at windows' extrema.
struct Extrema<T: Element, const SCATTER: bool> {
    frame: Box<Frame>,
    /// Where planes are small and a key and its place are one number.
    flat: Option<Box<sliding::Sliding>>,
    max: bool,
    /// Leading axes along which nothing slides, and the elements of keys and results below them.
    plain: usize,
    base: usize,
    element: PhantomData<fn() -> T>,
}

pub(super) fn gather(op: &WindowGather, args: &[Type], outs: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &outs[0].shape, machine)?;
    extrema::<false>(frame, op.max, args)
}

pub(super) fn scatter(op: &WindowScatter, args: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    let frame = Frame::new(&args[0], &op.window, &op.windows, &args[1].shape, machine)?;
    extrema::<true>(frame, op.max, args)
}

fn extrema<const SCATTER: bool>(frame: Box<Frame>, max: bool, args: &[Type]) -> Option<Box<dyn Routine>> {
    let plain: usize = frame.axes.iter().take_while(|a| a.plain()).map(|a| a.count).product();
    let base = args[0].numel() / plain.max(1);
    let flat = sliding::Sliding::new(&frame).filter(|s| s.is_flat() && args[0].dtype.size() <= 4);
    let flat = flat.filter(|_| frame.halves.is_none()).map(Box::new);
    if args[0].dtype == args[1].dtype && base < winners::NONE as usize {
        return by_dtype!(args[0].dtype, T => {
            Box::new(Extrema::<T, SCATTER> { frame, flat, max, plain, base, element: PhantomData }) as Box<dyn Routine>
        });
    }
    None
}

impl<T: Element, const SCATTER: bool> Routine for Extrema<T, SCATTER> {
    fn scratch_bytes(&self) -> usize {
        let own = self.flat.as_ref().map_or(self.frame.last.count * 12, |s| s.scratch());
        own.next_multiple_of(64) * self.frame.threads
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let frame = &self.frame;
        let args = Pointers(args);
        let (y, scratch) = (Raw(outs[0].cast::<T>()), Raw(scratch));
        let n = frame.last.count;
        if let Some(s) = &self.flat {
            let (plane, windows) = s.sizes();
            in_ranges(pool, s.planes, frame.work(), &|planes: Range<usize>, worker| {
                let (keys, x) = (args.get()[0].cast::<T>(), args.get()[1].cast::<T>());
                let own = scratch.at(worker * s.scratch().next_multiple_of(64));
                if SCATTER {
                    for i in planes.start * plane..planes.end * plane {
                        // SAFETY: the range's own part of the result.
                        unsafe { *y.at(i) = T::rounded(T::zero()) };
                    }
                }
                let first = planes.start * windows;
                // SAFETY: planes are inside the keys, scratch the worker's; a winner is inside its plane, results are the range's own.
                unsafe {
                    s.winners::<T>(planes, keys, self.max, own, |window, at| match SCATTER {
                        true => *y.at(at) = (*y.at(at)).add(*x.add(first + window)),
                        false => *y.at(first + window) = *x.add(at),
                    });
                }
            });
            return Ok(());
        }
        // Windows of one block never meet the base of another.
        let blocks = if SCATTER { self.plain } else { frame.lines };
        let lines_each = if SCATTER { frame.lines / self.plain.max(1) } else { 1 };
        in_ranges(pool, blocks, frame.work(), &|range: Range<usize>, worker| {
            let (keys, x) = (args.get()[0].cast::<T>(), args.get()[1].cast::<T>());
            let line_bytes = (n * 12).next_multiple_of(64);
            // SAFETY: each worker has its own scratch, and an element takes at most 8 bytes.
            let (values, places) = unsafe {
                let own = scratch.at(worker * line_bytes);
                (
                    std::slice::from_raw_parts_mut(own.cast::<T>(), n),
                    std::slice::from_raw_parts_mut(own.add(8 * n).cast::<u32>(), n),
                )
            };
            if SCATTER && frame.halves.is_some() {
                for line in range.start * lines_each..range.end * lines_each {
                    let (top, bottom) = frame.pair(line);
                    // SAFETY: both lines are inside the base, and the range's own.
                    unsafe {
                        let pair = halving::Lines { top: keys.add(top), bottom: keys.add(bottom), windows: n };
                        halving::spread(frame.avx2, pair, self.max, x.add(line * n), (y.at(top), y.at(bottom)));
                    }
                }
                return;
            }
            if SCATTER {
                for i in range.start * self.base..range.end * self.base {
                    // SAFETY: the range's own part of the result.
                    unsafe { *y.at(i) = T::rounded(T::zero()) };
                }
            }
            for line in range.start * lines_each..range.end * lines_each {
                let from = line / (frame.lines / self.plain.max(1)).max(1) * self.base;
                // SAFETY: the frame is that of the keys, and the machine has what it says.
                unsafe { winners::Line { frame, keys, line, from, max: self.max }.winners(values, places) };
                for (o, &place) in places.iter().enumerate() {
                    let (line_at, at) = (line * n + o, from + place as usize);
                    // SAFETY: results are the range's own; a winner is inside the base.
                    unsafe {
                        if SCATTER {
                            if place != winners::NONE {
                                *y.at(at) = (*y.at(at)).add(*x.add(line_at));
                            }
                        } else {
                            *y.at(line_at) = if place == winners::NONE { T::rounded(T::zero()) } else { *x.add(at) };
                        }
                    }
                }
            }
        });
        Ok(())
    }
}
