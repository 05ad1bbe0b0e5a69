//! Convolution of f32 by windows that are narrower than the results.
//!
//! The kernel is packed once for all images. A part takes some positions of one image: it writes their windows as panels,
//! which stay in the L2 cache, and multiplies all features with them, straight into the result.

use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::im2col::generate;
use super::{Context, Geometry};
use crate::gemm::kernel::{HasKernels, Kernels, Tile};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::DType;
use std::ffi::c_void;

/// Bytes of the windows of one part.
pub(super) const PANEL_BYTES: usize = 256 << 10;
/// Window elements that are multiplied at a time: a panel of the kernel stays in L1.
pub(super) const DEPTH: usize = 512;
/// Windows of an image that are too few for panels.
pub(super) const POSITIONS: usize = 16;

/// Whether the loops here are the ones to take.
pub(super) fn is_applicable(g: &Geometry, wide: bool) -> bool {
    !wide && g.dtype == DType::F32 && g.positions >= POSITIONS && g.outs > 1 && g.features * g.window > 0
}

/// A convolution ready to run.
pub(super) struct Im2colConv {
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

impl Im2colConv {
    pub(super) fn new(g: Geometry, machine: CpuContext) -> Im2colConv {
        let kernels = f32::kernels(machine.isa, ir::DType::F32);
        let depth = g.features * g.window;
        let most = (PANEL_BYTES / (4 * depth)).min(g.positions).div_ceil(kernels.nr).max(1);
        // Parts of one size, as far as panels allow.
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

    /// f32 of the packed kernel.
    fn packed(&self) -> usize {
        (self.g.groups * self.panels * self.kernels.mr * self.depth).next_multiple_of(16)
    }

    /// Some positions of an image and group: all output features of them.
    unsafe fn run_part(&self, x: *const u8, y: *mut f32, part: usize, packed: *const f32, windows: *mut f32) {
        let (g, mr, nr) = (&self.g, self.kernels.mr, self.kernels.nr);
        let (matrix, first) = (part / self.parts, part % self.parts * self.columns);
        let group = matrix % g.groups;
        let cols = self.columns.min(g.positions - first);
        // SAFETY: the caller vouches for the operands; the result's columns are this part's, the windows this worker's.
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
    unsafe fn pack_windows(&self, x: *const u8, matrix: usize, first: usize, cols: usize, panel: *mut f32) {
        let context = Context { geometry: &self.g, x, out: std::ptr::null_mut() };
        let ctx = (&raw const context).cast::<c_void>();
        // SAFETY: the caller's promise.
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
