//! Convolution of f32 by windows that are narrower than the results.
//!
//! The kernel is packed once for all images. A part takes some positions of one image: it writes their windows as panels,
//! which stay in the L2 cache, and multiplies all features with them, straight into the result.

use super::super::{Machine, Pointers, Raw, Routine};
use super::windows::generate;
use super::{Context, Geometry};
use crate::gemm::kernel::{HasKernels, Kernels, Tile};
use crate::pool::Pool;
use compiler::Result;
use ir::DType;
use std::ffi::c_void;

/// Bytes of the windows of one part.
pub(super) const PANEL_BYTES: usize = 256 << 10;
/// Window elements that are multiplied at a time: a panel of the kernel stays in L1.
pub(super) const DEPTH: usize = 512;
/// Widest window of the fast generator.
pub(super) const WIDTH: usize = 16;

/// Windows of an image that are too few for panels.
pub(super) const POSITIONS: usize = 16;

/// Whether the loops here are the ones to take.
pub(super) fn suits(g: &Geometry, wide: bool) -> bool {
    !wide && g.dtype == DType::F32 && g.positions >= POSITIONS && g.outs > 1 && g.features * g.window > 0
}

/// A convolution ready to run.
pub(super) struct Blocked {
    g: Geometry,
    kernels: &'static Kernels<f32>,
    /// Elements of a window, over all features of a group; and of those, at a time.
    depth: usize,
    step: usize,
    /// Positions of a part, a whole number of panels, and parts of an image.
    columns: usize,
    parts: usize,
    /// Panels of the kernel in a group.
    panels: usize,
    threads: usize,
}

impl Blocked {
    pub(super) fn new(g: Geometry, machine: Machine) -> Blocked {
        let kernels = f32::kernels(machine.isa, ir::DType::F32);
        let depth = g.features * g.window;
        let most = (PANEL_BYTES / (4 * depth)).min(g.positions).div_ceil(kernels.nr).max(1);
        // Parts of one size, as far as panels allow.
        let panels = g.positions.div_ceil(kernels.nr);
        let columns = panels.div_ceil(panels.div_ceil(most)) * kernels.nr;
        Blocked {
            depth,
            step: depth.div_ceil(depth.div_ceil(DEPTH)),
            columns,
            parts: g.positions.div_ceil(columns),
            panels: g.outs.div_ceil(kernels.mr),
            kernels,
            g,
            threads: machine.threads,
        }
    }

    /// f32 of the packed kernel.
    fn packed(&self) -> usize {
        (self.g.groups * self.panels * self.kernels.mr * self.depth).next_multiple_of(16)
    }

    /// Some positions of an image and group: all output features of them.
    unsafe fn part(&self, x: *const u8, y: *mut f32, part: usize, packed: *const f32, windows: *mut f32) {
        let (g, mr, nr) = (&self.g, self.kernels.mr, self.kernels.nr);
        let (matrix, first) = (part / self.parts, part % self.parts * self.columns);
        let group = matrix % g.groups;
        let cols = self.columns.min(g.positions - first);
        // SAFETY: the caller vouches for the operands; the result's columns are this part's, the windows this worker's.
        unsafe {
            for j in (0..cols).step_by(nr) {
                let panel = windows.add(j * self.depth);
                self.windows(x, matrix, first + j, nr.min(cols - j), panel);
            }
            for k in (0..self.depth).step_by(self.step) {
                for i in 0..self.panels {
                    let rows = mr.min(g.outs - i * mr);
                    let a = packed.add(((group * self.panels + i) * self.depth + k) * mr);
                    let row = y.add((matrix * g.outs + i * mr) * g.positions + first);
                    for j in (0..cols).step_by(nr) {
                        let width = nr.min(cols - j);
                        self.kernels.get(rows, width, true)(&Tile {
                            k: self.step.min(self.depth - k),
                            a,
                            a_k: mr as isize,
                            b: windows.add(j * self.depth + k * nr),
                            b_k: nr as isize,
                            b_padded: true,
                            ahead: a,
                            c: row.add(j),
                            c_row: g.positions as isize,
                            cols: width,
                            add: k > 0,
                            ..Tile::EMPTY
                        });
                    }
                }
            }
        }
    }

    /// Writes the windows of up to `nr` positions as one panel.
    unsafe fn windows(&self, x: *const u8, matrix: usize, first: usize, cols: usize, panel: *mut f32) {
        let g = &self.g;
        let plain = g.axes[..g.rank].iter().all(|a| a.base_dilation == 1);
        let nr = self.kernels.nr;
        // SAFETY: the caller's promise.
        unsafe {
            if !plain || g.rank > 2 || g.axes[g.rank - 1].window > WIDTH {
                let context = Context { geometry: g, x, out: std::ptr::null_mut() };
                let ctx = (&raw const context).cast::<c_void>();
                return generate::<u32, false>(ctx, matrix, 0, first, self.depth, cols, panel.cast(), nr);
            }
            let (image, group) = (matrix / g.groups, matrix % g.groups);
            let x = x.cast::<f32>().add(group * g.group + image * g.image);
            let count = g.axes[g.rank - 1].count;
            let mut done = 0;
            while done < cols {
                let at = first + done;
                let run = (count - at % count).min(cols - done);
                self.run_of_windows(x, at, run, panel.add(done));
                done += run;
            }
        }
    }

    /// The windows of adjacent positions of one line of the result.
    unsafe fn run_of_windows(&self, x: *const f32, at: usize, run: usize, to: *mut f32) {
        let (g, nr) = (&self.g, self.kernels.nr);
        let inner = g.axes[g.rank - 1];
        let (high, wide) = if g.rank == 2 { (g.axes[0].window, inner.window) } else { (1, inner.window) };
        // Where each element of a window's line begins in the input's line, and which positions it is inside for.
        let mut spans = [(0i64, 0usize, 0usize); WIDTH];
        for (k, span) in spans[..wide].iter_mut().enumerate() {
            let place = (at % inner.count) as i64 * inner.stride + k as i64 * inner.window_dilation - inner.low;
            let (size, step) = (inner.base as i64, inner.stride);
            let begin = if place >= 0 { 0 } else { ((-place + step - 1) / step).min(run as i64) };
            let end = if place >= size { 0 } else { ((size - place + step - 1) / step).min(run as i64) };
            *span = (place, begin as usize, end.max(begin) as usize);
        }
        let mut to = to;
        for feature in 0..g.features {
            for k in 0..high {
                let line = if g.rank == 2 {
                    let y = &g.axes[0];
                    let place = (at / inner.count) as i64 * y.stride + k as i64 * y.window_dilation - y.low;
                    (place >= 0 && place < y.base as i64).then(|| place as usize * inner.base)
                } else {
                    Some(0)
                };
                for &(place, begin, end) in &spans[..wide] {
                    // SAFETY: the spans are inside the input's line, and the run inside the panel.
                    unsafe {
                        match line {
                            None => zero(to, run),
                            Some(line) => {
                                zero(to, begin);
                                let from = x.wrapping_add(feature * g.plane + line).wrapping_offset(place as isize);
                                if inner.stride == 1 {
                                    copy(from.wrapping_add(begin), to.add(begin), end - begin);
                                } else {
                                    let s = inner.stride as usize;
                                    (begin..end).for_each(|i| *to.add(i) = *from.wrapping_add(i * s));
                                }
                                zero(to.add(end), run - end);
                            }
                        }
                        to = to.add(nr);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn zero(to: *mut f32, n: usize) {
    // SAFETY: the caller vouches for `n` elements.
    (0..n).for_each(|i| unsafe { *to.add(i) = 0.0 });
}

/// A short copy, without a call.
#[inline(always)]
unsafe fn copy(from: *const f32, to: *mut f32, n: usize) {
    type Chunk = [f32; 8];
    // SAFETY: the caller vouches for `n` elements on both sides; the last chunk overlaps the one before.
    unsafe {
        if n < 8 {
            return (0..n).for_each(|i| *to.add(i) = *from.add(i));
        }
        let mut i = 0;
        while i + 8 <= n {
            to.add(i).cast::<Chunk>().write_unaligned(from.add(i).cast::<Chunk>().read_unaligned());
            i += 8;
        }
        let i = n - 8;
        to.add(i).cast::<Chunk>().write_unaligned(from.add(i).cast::<Chunk>().read_unaligned());
    }
}

impl Routine for Blocked {
    fn scratch_bytes(&self) -> usize {
        4 * (self.packed() + self.columns * self.depth * self.threads)
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (g, mr) = (&self.g, self.kernels.mr);
        let packed = Raw(scratch.cast::<f32>());
        let windows = Raw(packed.at(self.packed()));
        let (args, y) = (Pointers(args), Raw(outs[0].cast::<f32>()));
        pool.run(g.groups * self.panels, &|part, _| {
            let (group, row) = (part / self.panels, part % self.panels * mr);
            // SAFETY: the rows are the kernel's, and panels are disjoint.
            unsafe {
                let from = args.get()[1].cast::<f32>().add((group * g.outs + row) * self.depth);
                let to = packed.at(part * mr * self.depth);
                let strides = (self.depth as isize, 1);
                (self.kernels.pack)(to, mr, from, strides, mr.min(g.outs - row), self.depth);
            }
        });
        pool.run(g.images * g.groups * self.parts, &|part, worker| {
            let windows = windows.at(worker * self.columns * self.depth);
            // SAFETY: parts have disjoint results, workers their own windows.
            unsafe { self.part(args.get()[0], y.at(0), part, packed.at(0), windows) };
        });
        Ok(())
    }
}
