//! Convolution of f32 by im2col, where windows are narrower than the results.
//!
//! The kernel is packed once for all images. A part computes some positions of one image: it writes their windows as panels,
//! which stay in the L2 cache, and multiplies all features by them, directly into the result.

use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::im2col::generate;
use super::{Context, Geometry};
use crate::gemm::kernel::{HasKernels, Kernels, Tile};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::DType;
use std::ffi::c_void;

/// The bytes of the windows of one part.
pub(super) const PANEL_BYTES: usize = 256 << 10;
/// The number of window elements that are multiplied at a time: a panel of the kernel stays in L1.
pub(super) const DEPTH: usize = 512;
/// The minimum number of windows of an image for panels.
pub(super) const POSITIONS: usize = 16;

/// Returns whether this algorithm is applicable.
pub(super) fn is_applicable(g: &Geometry, wide: bool) -> bool {
    !wide && g.dtype == DType::F32 && g.positions >= POSITIONS && g.outs > 1 && g.features * g.window > 0
}

/// A convolution that is ready to run.
pub(super) struct Im2colConv {
    g: Geometry,
    kernels: &'static Kernels<f32>,
    /// The number of elements of a window over all features of a group, and the number per pass.
    depth: usize,
    step: usize,
    /// The number of positions of a part, a multiple of the panel width, and of parts per image.
    columns: usize,
    parts: usize,
    /// The number of panels of the kernel per group.
    panels: usize,
    threads: usize,
}

impl Im2colConv {
    pub(super) fn new(g: Geometry, machine: CpuContext) -> Im2colConv {
        let kernels = f32::kernels(machine.isa, ir::DType::F32);
        let depth = g.features * g.window;
        let most = (PANEL_BYTES / (4 * depth)).min(g.positions).div_ceil(kernels.nr).max(1);
        // Parts of nearly equal size, in whole panels.
        let panels = g.positions.div_ceil(kernels.nr);
        let columns = panels.div_ceil(panels.div_ceil(most)) * kernels.nr;
        Im2colConv {
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

    /// The number of f32 of the packed kernel.
    fn packed(&self) -> usize {
        (self.g.groups * self.panels * self.kernels.mr * self.depth).next_multiple_of(16)
    }

    /// Computes all output features of some positions of an image and group.
    unsafe fn run_part(&self, x: *const u8, y: *mut f32, part: usize, packed: *const f32, windows: *mut f32) {
        let (g, mr, nr) = (&self.g, self.kernels.mr, self.kernels.nr);
        let (matrix, first) = (part / self.parts, part % self.parts * self.columns);
        let group = matrix % g.groups;
        let cols = self.columns.min(g.positions - first);
        // SAFETY: the operands are valid for their sizes; only this part writes these columns of the result, and only
        // this worker uses the windows.
        unsafe {
            for j in (0..cols).step_by(nr) {
                let panel = windows.add(j * self.depth);
                self.pack_windows(x, matrix, first + j, nr.min(cols - j), panel);
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
    ///
    /// # Safety
    /// `x` is valid for the input, the positions `first..first + cols` are of the matrix, and `panel` has room for
    /// `depth` rows of `nr` elements.
    unsafe fn pack_windows(&self, x: *const u8, matrix: usize, first: usize, cols: usize, panel: *mut f32) {
        let context = Context { geometry: &self.g, x, out: std::ptr::null_mut() };
        let ctx = (&raw const context).cast::<c_void>();
        // SAFETY: `x` is valid for the input, the positions `first..first + cols` are of the matrix, and `panel` has
        // room for `depth` rows of `nr` elements.
        unsafe { generate::<u32, false>(ctx, matrix, 0, first, self.depth, cols, panel.cast(), self.kernels.nr) }
    }
}

impl OpRoutine for Im2colConv {
    fn scratch_bytes(&self) -> usize {
        4 * (self.packed() + self.columns * self.depth * self.threads)
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (g, mr) = (&self.g, self.kernels.mr);
        let packed = SharedPtr(scratch.cast::<f32>());
        let windows = SharedPtr(packed.at(self.packed()));
        let (args, y) = (Pointers(args), SharedPtr(outs[0].cast::<f32>()));
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
            unsafe { self.run_part(args.get()[0], y.at(0), part, packed.at(0), windows) };
        });
        Ok(())
    }
}
