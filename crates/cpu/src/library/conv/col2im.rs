//! Convolution with a dilated input (a transposed convolution, or the input gradient of a strided one) by col2im: a matrix product
//! multiplies each element of the input by the whole kernel, and the products are added to their positions in the result.
//!
//! The product reads the input in place; its im2col windows would be many times larger. Products are added in the order of the
//! kernel's elements, independent of the number of threads.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use super::direct;
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use compiler::Result;
use ir::ops::{Conv, WindowConfig};
use ir::{DType, Type};
use std::ops::Range;

/// The maximum number of spatial axes.
const AXES: usize = 2;
/// The minimum ratio of input features to output features.
pub(super) const FEWER: usize = 2;
/// The bytes of products that are kept at a time.
const KEPT: usize = 4 << 20;
/// The maximum bytes of the products of an image; more memory is not worth it.
const MOST: usize = 64 << 20;

/// One spatial axis.
#[derive(Clone, Copy)]
struct Along {
    /// The number of elements of the input, the window and the result.
    base: usize,
    window: usize,
    count: usize,
    spread: usize,
    low: i64,
}

impl Along {
    /// Returns the position of the result of input element 0 under window element `tap`: its phase, and its index within the phase.
    fn place(&self, tap: usize) -> (usize, i64) {
        let at = self.low - tap as i64;
        (at.rem_euclid(self.spread as i64) as usize, at.div_euclid(self.spread as i64))
    }

    /// The number of results of a phase; phase 0 has the most.
    fn results(&self, phase: usize) -> usize {
        (self.count - phase.min(self.count)).div_ceil(self.spread)
    }
}

struct Col2imConv {
    /// The matrix product for `at_once` images, and the one for the remaining images.
    whole: Box<dyn OpRoutine>,
    rest: Option<Box<dyn OpRoutine>>,
    plain: Box<dyn OpRoutine>,
    at_once: usize,
    images: usize,
    /// The number of features of the input and of the result.
    features: usize,
    outs: usize,
    axes: [Along; AXES],
    threads: usize,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    avx2: bool,
}

/// Returns the routine if the input is dilated, has more features than the result, and the other parameters are simple.
pub(super) fn prepare(
    conv: &Conv,
    args: &[Type],
    outs: &[Type],
    plain: &impl Fn(&Conv, &[Type], &[Type]) -> Option<Box<dyn OpRoutine>>,
    machine: CpuContext,
) -> Option<Box<dyn OpRoutine>> {
    let (x, k, y, w) = (&args[0], &args[1], &outs[0], &conv.windows);
    let rank = x.rank() - 2;
    let suits = (1..=AXES).contains(&rank)
        && (0..rank).any(|a| w.base_dilation[a] > 1)
        && (0..rank).all(|a| w.strides[a] == 1 && w.window_dilation[a] == 1 && w.base_dilation[a] <= 8)
        && conv.groups == 1
        && conv.batch_groups == 1
        && [x.dtype, k.dtype, y.dtype] == [DType::F32; 3]
        && [x, k, y].iter().all(|t| t.numel() > 0)
        && x.shape[1] >= FEWER * y.shape[1]
        // Windows as large as the input, as in a kernel gradient, have few results, so most products would be unused.
        && (0..rank).all(|a| y.shape[2 + a] >= x.shape[2 + a]);
    if !suits {
        return None;
    }
    let unit = Along { base: 1, window: 1, count: 1, spread: 1, low: 0 };
    let mut axes = [unit; AXES];
    for (a, axis) in axes[AXES - rank..].iter_mut().enumerate() {
        let (base, window, count) = (x.shape[2 + a], k.shape[2 + a], y.shape[2 + a]);
        *axis = Along { base, window, count, spread: w.base_dilation[a], low: w.low[a] };
    }
    // The sub-pixel method is faster where its windows are read in place.
    let part = axes.map(|a| a.count.div_ceil(a.spread));
    let taps = axes.map(|a| a.window.div_ceil(a.spread)).into_iter().max().unwrap_or(1);
    if direct::is_applicable(part, taps, y.shape[1], machine.isa) {
        return None;
    }
    let taps: usize = k.shape[2..].iter().product();
    let (images, features, outs_of) = (x.shape[0], x.shape[1], y.shape[1]);
    let positions = axes[0].base * axes[1].base;
    let each = outs_of * taps * positions * 4;
    if each > MOST {
        return None;
    }
    let at_once = (KEPT / each.max(1)).clamp(1, images);
    let product = |images: usize| {
        let x = Type::new(DType::F32, &[images, features, positions]);
        let k = Type::new(DType::F32, &[outs_of * taps, features, 1]);
        let y = Type::new(DType::F32, &[images, outs_of * taps, positions]);
        plain(&Conv::new(DType::F32, WindowConfig::strided(&[1], &[0])), &[x, k], &[y])
    };
    let left = images % at_once;
    Some(Box::new(Col2imConv {
        whole: product(at_once)?,
        rest: if left > 0 { Some(product(left)?) } else { None },
        plain: plain(conv, args, outs)?,
        at_once,
        images,
        features,
        outs: outs_of,
        axes,
        threads: machine.threads,
        avx2: machine.isa != Isa::Portable,
    }))
}

impl Col2imConv {
    fn taps(&self) -> usize {
        self.axes[0].window * self.axes[1].window
    }

    fn positions(&self) -> usize {
        self.axes[0].base * self.axes[1].base
    }

    /// The number of products of an image.
    fn each(&self) -> usize {
        self.outs * self.taps() * self.positions()
    }

    /// The number of elements of a line of all phases, per worker.
    fn line(&self) -> usize {
        let a = self.axes[1];
        (a.spread * a.results(0)).next_multiple_of(16)
    }

    /// Transposes the kernel `[outs, features, taps]` to `[outs, taps, features]`.
    unsafe fn transpose_kernel(&self, from: *const f32, to: *mut f32) {
        let (features, taps) = (self.features, self.taps());
        for o in 0..self.outs {
            for t in 0..taps {
                for f in 0..features {
                    // SAFETY: `from` and `to` are valid for the kernel.
                    unsafe { *to.add((o * taps + t) * features + f) = *from.add((o * features + f) * taps + t) };
                }
            }
        }
    }

    /// Computes one line of the result from the products of its image and feature.
    ///
    /// # Safety
    /// As for `line_inline`.
    unsafe fn line_of(&self, row: usize, products: *const f32, line: *mut f32, y: *mut f32) {
        #[cfg(target_arch = "x86_64")]
        {
            /// # Safety
            /// As for `line_inline`, and the machine has the target features.
            #[target_feature(enable = "avx2")]
            unsafe fn wide(c: &Col2imConv, row: usize, products: *const f32, line: *mut f32, y: *mut f32) {
                // SAFETY: `line_inline` has the contract of this function, and gets its arguments unchanged.
                unsafe { c.line_inline(row, products, line, y) }
            }
            if self.avx2 {
                // SAFETY: `products` and `y` are valid for the row, `line` for one line of scratch of this thread, and
                // the machine has AVX2.
                return unsafe { wide(self, row, products, line, y) };
            }
        }
        // SAFETY: `products` and `y` are valid for the row, and `line` for one line of scratch of this thread.
        unsafe { self.line_inline(row, products, line, y) }
    }

    /// # Safety
    /// The products and the result are valid for the row, and only this worker uses `line`.
    #[inline(always)]
    unsafe fn line_inline(&self, row: usize, products: *const f32, line: *mut f32, y: *mut f32) {
        let [down, along] = self.axes;
        let (phase, place) = (row % down.spread, (row / down.spread) as i64);
        let (results, room) = (along.results(0), self.positions());
        // SAFETY: the products and the result are valid for the row, and only this worker uses `line`.
        unsafe {
            std::slice::from_raw_parts_mut(line, along.spread * results).fill(0.0);
            for t0 in 0..down.window {
                let (p, first) = down.place(t0);
                // The line of the input whose products are added here.
                let q = place - first;
                if p != phase || q < 0 || q >= down.base as i64 {
                    continue;
                }
                for t1 in 0..along.window {
                    let (p, first) = along.place(t1);
                    let count = along.results(p) as i64;
                    let begin = (-first).clamp(0, along.base as i64);
                    let end = (count - first).clamp(begin, along.base as i64);
                    let n = (end - begin) as usize;
                    let from = products.add((t0 * along.window + t1) * room + q as usize * along.base + begin as usize);
                    let to = line.add(p * results + if n == 0 { 0 } else { (first + begin) as usize });
                    let (from, to) = (std::slice::from_raw_parts(from, n), std::slice::from_raw_parts_mut(to, n));
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
                }
            }
            let all = std::slice::from_raw_parts_mut(y, along.count);
            if along.spread == 2 {
                let (even, odd) = (
                    std::slice::from_raw_parts(line, results),
                    std::slice::from_raw_parts(line.add(results), along.count / 2),
                );
                let (pairs, last) = all.as_chunks_mut::<2>();
                pairs.iter_mut().zip(even).zip(odd).for_each(|((to, &a), &b)| *to = [a, b]);
                last.iter_mut().for_each(|x| *x = even[results - 1]);
                return;
            }
            for (p, to) in (0..along.spread).flat_map(|p| (0..along.results(p)).map(move |i| (p, i))) {
                all[to * along.spread + p] = *line.add(p * results + to);
            }
        }
    }
}

impl OpRoutine for Col2imConv {
    fn scratch_bytes(&self) -> usize {
        let products = (self.at_once * self.each()).next_multiple_of(16);
        let kernel = (self.outs * self.taps() * self.features).next_multiple_of(16);
        let rest = self.rest.as_ref().map_or(0, |r| r.scratch_bytes());
        let own = 4 * (products + kernel + self.line() * self.threads);
        (own + self.whole.scratch_bytes().max(rest)).max(self.plain.scratch_bytes())
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (x, k) = (args[0].cast::<f32>(), args[1].cast::<f32>());
        let numbers = self.features * self.outs * self.taps();
        // The holes of a dilated input are zeros, and an infinite weight times zero is NaN.
        // SAFETY: the kernel's elements.
        if !unsafe { std::slice::from_raw_parts(k, numbers) }.iter().all(|w| w.is_finite()) {
            // SAFETY: the plain routine has the same operands and results, and its scratch is no larger than this
            // one's.
            return unsafe { self.plain.run(pool, args, outs, scratch) };
        }
        let products = scratch.cast::<f32>();
        let kernel = products.wrapping_add((self.at_once * self.each()).next_multiple_of(16));
        let lines = SharedPtr(kernel.wrapping_add(numbers.next_multiple_of(16)));
        let own = lines.at(self.line() * self.threads).cast::<u8>();
        let (rows, plane) = (self.axes[0].count, self.axes[0].count * self.axes[1].count);
        let (y, products) = (SharedPtr(outs[0].cast::<f32>()), SharedPtr(products));
        // SAFETY: parts of the scratch are as large as what they are for.
        unsafe { self.transpose_kernel(k, kernel) };
        for first in (0..self.images).step_by(self.at_once) {
            let count = self.at_once.min(self.images - first);
            let routine = if count == self.at_once { &self.whole } else { self.rest.as_ref().unwrap_or(&self.whole) };
            let from = x.wrapping_add(first * self.features * self.positions());
            // SAFETY: these images, and as above.
            unsafe {
                routine.run(pool, &[from.cast(), kernel.cast_const().cast()], &[products.at(0).cast()], own)?;
            }
            let units = count * self.outs * rows;
            in_ranges(pool, units, count * self.each(), &|range: Range<usize>, worker| {
                let line = lines.at(worker * self.line());
                for unit in range {
                    let (at, row) = (unit / rows, unit % rows);
                    let from = products.at(at * self.taps() * self.positions()).cast_const();
                    let to = y.at((first * self.outs + at) * plane + row * self.axes[1].count);
                    // SAFETY: products of this image and feature, a line of the result that is this range's, and a worker's own line.
                    unsafe { self.line_of(row, from, line, to) };
                }
            });
        }
        Ok(())
    }
}
