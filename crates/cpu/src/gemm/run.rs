//! Runs a plan: checks, the split into parts, and the order of packing and computing.

use ir::DType;

use super::block::{Region, row_unit};
use super::epilogue::{FinishedTile, write_tile};
use super::gemv;
use super::kernel::{HasKernels, Kernels};
use super::pack::{OperandReader, TEMP_BYTES};
use super::plan::{GemmAlgorithm, GemmPlan, WorkSplit, late_stride};
use super::problem::{GemmOperand, GemmOutput, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use super::row_panels::PackedRows;
use crate::pool::{ThreadPool, contiguous_share};
use std::sync::atomic::{AtomicUsize, Ordering};

impl GemmPlan {
    /// Computes the product. Allocates nothing. The bits are the same for any pool and any `threads` of the
    /// plan.
    ///
    /// # Safety
    /// - `a`, `b` and `out` are of the variants that the problem names and valid for its shapes and
    ///   strides, C overlaps neither operand, and distinct elements of C don't overlap;
    /// - `scratch` is aligned to 64 and holds [`Plan::scratch_bytes`], which nothing else uses
    ///   during the call;
    /// - functions among them may be called from any thread.
    ///
    /// # Panics
    /// When a variant is not the one that the problem names.
    pub unsafe fn run(&self, pool: &ThreadPool, a: GemmOperand, b: GemmOperand, out: GemmOutput, scratch: *mut u8) {
        // SAFETY: `run_as` has the contract of this function.
        unsafe {
            match self.problem.accumulator() {
                DType::F64 => self.run_as::<f64>(pool, a, b, out, scratch),
                DType::I32 => self.run_as::<i32>(pool, a, b, out, scratch),
                _ => self.run_as::<f32>(pool, a, b, out, scratch),
            }
        }
    }

    /// Packs a B in memory into `dst` ([`GemmPlan::packed_b_bytes`], aligned to 64), once for all runs of
    /// plans with [`OperandSource::Packed`] for B and with this `k`, `n`, dtype and instruction set.
    ///
    /// # Safety
    /// `b` must be valid for `layout` and the plan's `k × n`, `dst` for the packed bytes.
    ///
    /// # Panics
    /// Panics if the plan's B is not [`OperandSource::Packed`].
    pub unsafe fn prepack_b(&self, pool: &ThreadPool, b: *const u8, layout: &MatrixLayout, dst: *mut u8) {
        assert_eq!(self.problem.b, OperandSource::Packed, "packing ahead needs a plan for a packed B");
        // SAFETY: `prepack_b_as` has the contract of this function.
        unsafe {
            match self.problem.accumulator() {
                DType::F64 => self.prepack_b_as::<f64>(pool, b, layout, dst),
                DType::I32 => self.prepack_b_as::<i32>(pool, b, layout, dst),
                _ => self.prepack_b_as::<f32>(pool, b, layout, dst),
            }
        }
    }

    /// # Safety
    /// As for `prepack_b`.
    unsafe fn prepack_b_as<T: HasKernels>(&self, pool: &ThreadPool, b: *const u8, layout: &MatrixLayout, dst: *mut u8) {
        let b = OperandReader { operand: GemmOperand::Memory(b), layout: *layout, dtype: self.problem.dtype };
        let unused = GemmOperand::Memory(std::ptr::null());
        let run = GemmRun::<T> {
            plan: self,
            kernels: T::kernels(self.isa, self.problem.dtype),
            alpha: T::default(),
            a: OperandReader { operand: unused, ..b },
            b,
            out: GemmOutput::Memory(std::ptr::null_mut()),
            scratch: dst,
        };
        let packing = run.packing((0, self.problem.n), pool.threads());
        pool.run(packing.units, &|unit, _| {
            let mut temp = [0u64; TEMP_BYTES / 8];
            // SAFETY: the units are disjoint parts of `dst`, and B is valid for its layout.
            unsafe { run.pack_b_unit(0, &packing, unit, run.shared_b(), temp.as_mut_ptr().cast()) };
        });
    }

    /// # Safety
    /// As for `run`; `T` is the accumulator's type.
    unsafe fn run_as<T: HasKernels>(
        &self,
        pool: &ThreadPool,
        a: GemmOperand,
        b: GemmOperand,
        out: GemmOutput,
        scratch: *mut u8,
    ) {
        let GemmProblem { m, n, dtype, .. } = self.problem;
        let (a, b) = if self.swapped { (b, a) } else { (a, b) };
        let feed = |operand, source| {
            let layout = match (source, operand) {
                (OperandSource::Memory(layout), GemmOperand::Memory(_)) => layout,
                (OperandSource::Generated { .. }, GemmOperand::Generated { .. })
                | (OperandSource::Packed, GemmOperand::Packed(_)) => MatrixLayout::row_major(0),
                _ => panic!("the matmul was planned for {source:?}, but got {operand:?}"),
            };
            OperandReader { operand, layout, dtype }
        };
        assert_eq!(
            matches!(self.problem.c, OutputKind::Memory { .. }),
            matches!(out, GemmOutput::Memory(_)),
            "the matmul was planned for {:?}, but got {out:?}",
            self.problem.c
        );
        let run = GemmRun::<T> {
            plan: self,
            kernels: T::kernels(self.isa, self.problem.dtype),
            alpha: T::from_f64(self.problem.alpha),
            a: feed(a, self.problem.a),
            b: feed(b, self.problem.b),
            out,
            scratch,
        };
        let batches = self.problem.batches();
        if m == 0 || n == 0 || batches == 0 {
            return;
        }
        // SAFETY: operands, result and scratch are valid for the problem (`Plan::run`); parts use disjoint scratch and
        // write disjoint results.
        unsafe {
            match (self.path, self.split) {
                (path, WorkSplit::Serial) => run.run_batch(path, 0..batches, 0),
                (path, WorkSplit::Batch) => {
                    let parts = self.parts;
                    pool.run(parts, &|part, _| run.run_batch(path, contiguous_share(batches, parts, part), part));
                }
                (GemmAlgorithm::Gemv, WorkSplit::Grid { .. }) => {
                    for batch in 0..batches {
                        gemv::run_split(&run, pool, batch, self.parts);
                    }
                }
                // A product this small is not split into a grid.
                (GemmAlgorithm::Small, WorkSplit::Grid { .. }) => run.small_matmul(0..batches),
                (GemmAlgorithm::Blocked, WorkSplit::Grid { rows, cols }) => run.run_grid(pool, batches, rows, cols),
            }
        }
    }
}

/// The number of panels of A that are packed together.
const PANELS: usize = 2;

/// Runs `f(unit, part)` for all units. Where there are more units than parts, a part that finishes takes the next unit. The bits
/// do not depend on which part computes a unit.
fn taking_turns(pool: &ThreadPool, parts: usize, units: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    if units == parts {
        return pool.run(parts, &|part, _| f(part, part));
    }
    let next = AtomicUsize::new(0);
    pool.run(parts, &|part, _| {
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            if taken >= units {
                break;
            }
            f(taken, part);
        }
    });
}

/// One run of a plan.
pub(super) struct GemmRun<'a, T: HasKernels> {
    pub(super) plan: &'a GemmPlan,
    pub(super) kernels: &'static Kernels<T>,
    pub(super) alpha: T,
    pub(super) a: OperandReader,
    pub(super) b: OperandReader,
    pub(super) out: GemmOutput,
    pub(super) scratch: *mut u8,
}

// SAFETY: parts only read the operands, and write disjoint results and disjoint scratch; `Plan::run` requires functions
// that may be called from any thread.
unsafe impl<T: HasKernels> Sync for GemmRun<'_, T> {}

impl<T: HasKernels> GemmRun<'_, T> {
    /// The address of a part's scratch.
    ///
    /// # Safety
    /// Scratch has `Plan::scratch_bytes`, and `part` is below the number of parts.
    pub(super) unsafe fn part(&self, part: usize) -> *mut u8 {
        // SAFETY: scratch has `Plan::scratch_bytes`, of which this part is inside.
        unsafe { self.scratch.add(self.plan.scratch.parts + part * self.plan.scratch.part) }
    }

    /// The address of the packed B that all parts read.
    fn shared_b(&self) -> *mut T {
        self.scratch.cast()
    }

    /// The address of the packed A that all parts read.
    pub(super) fn shared_a(&self) -> *mut T {
        self.scratch.wrapping_add(self.plan.scratch.shared_a).cast()
    }

    /// The location of the shared packed rows of A from row `first` on.
    pub(super) fn shared_rows(&self, first: usize) -> PackedRows {
        PackedRows { first, all: self.plan.problem.m.next_multiple_of(self.kernels.mr) }
    }

    /// The address of the results that wait until their rows are complete.
    pub(super) fn deferred_rows(&self) -> *mut T {
        self.scratch.wrapping_add(self.plan.scratch.late).cast()
    }

    /// The distance between those rows.
    pub(super) fn late_row(&self) -> usize {
        late_stride(self.plan.problem.n, self.kernels.lanes)
    }

    /// Runs the epilogue for one panel of the rows that waited.
    ///
    /// # Safety
    /// The output is valid for the problem (`Plan::run`), and all columns of the panel's rows have been computed.
    unsafe fn finish_late(&self, batch: usize, panel: usize) {
        let (GemmProblem { m, n, .. }, mr, row_stride) = (self.plan.problem, self.kernels.mr, self.late_row());
        let row0 = panel * mr;
        let acc = self.deferred_rows().wrapping_add(row0 * row_stride);
        let tile = FinishedTile { batch, row0, col0: 0, rows: mr.min(m - row0), cols: n, acc, row_stride };
        // SAFETY: the rows are inside of the output, and all their columns have been computed.
        unsafe { write_tile(self.plan, self.out, &tile) };
    }

    /// Computes whole matrices one after another on one part.
    unsafe fn run_batch(&self, path: GemmAlgorithm, batches: std::ops::Range<usize>, part: usize) {
        let GemmProblem { m, n, .. } = self.plan.problem;
        // SAFETY: as for `Plan::run`; a part has its own packed B.
        unsafe {
            if path == GemmAlgorithm::Gemv {
                return batches.for_each(|batch| gemv::run(self, batch, part));
            }
            if path == GemmAlgorithm::Small {
                return self.small_matmul(batches);
            }
            let packed = self.part(part).add(self.plan.scratch.b);
            let mut held = None;
            for batch in batches {
                for col0 in (0..n).step_by(self.plan.nc) {
                    let cols = self.plan.nc.min(n - col0);
                    if self.plan.pack_b && held != Some((self.b_identity(batch), col0)) {
                        self.pack_own_b(batch, (col0, cols), part);
                        held = Some((self.b_identity(batch), col0));
                    }
                    let b = self.panels(batch, (col0, cols), packed.cast());
                    self.region(&Region { batch, b, rows: 0..m, cols: col0..col0 + cols, col_base: col0, part });
                }
                if self.plan.late {
                    (0..m.div_ceil(self.kernels.mr)).for_each(|panel| self.finish_late(batch, panel));
                }
            }
        }
    }

    /// Packs a range of columns of B into a part's scratch.
    ///
    /// # Safety
    /// Operands and scratch are valid for the problem (`Plan::run`), and nothing else uses this part's scratch.
    unsafe fn pack_own_b(&self, batch: usize, columns: (usize, usize), part: usize) -> *mut T {
        let packing = self.packing(columns, 1);
        // SAFETY: as for `Plan::run`; scratch is laid out for so many columns.
        unsafe {
            let (packed, temp) =
                (self.part(part).add(self.plan.scratch.b).cast(), self.part(part).add(self.plan.scratch.temp));
            (0..packing.units).for_each(|unit| self.pack_b_unit(batch, &packing, unit, packed, temp));
            packed
        }
    }

    /// Computes the matrices one after another, each with all parts.
    unsafe fn run_grid(&self, pool: &ThreadPool, batches: usize, rows: usize, cols: usize) {
        let GemmProblem { m, n, .. } = self.plan.problem;
        let nr = self.kernels.nr;
        // Rows of a shared packed A are split at whole panels.
        let unit = if self.plan.share_a { self.kernels.mr } else { row_unit(self.kernels.mr) };
        // The number of rows of A that are packed together.
        let each = PANELS * self.kernels.mr;
        // SAFETY: as for `Plan::run`; packing is done before any part reads what is packed.
        unsafe {
            for batch in 0..batches {
                for col0 in (0..n).step_by(self.plan.nc) {
                    let width = self.plan.nc.min(n - col0);
                    let parts = self.plan.parts;
                    let packing = self.packing((col0, width), parts);
                    let again = batch == 0 || self.plan.nc < n || self.b_identity(batch) != self.b_identity(batch - 1);
                    let of_b = if self.plan.pack_b && self.plan.own_b.is_none() && again { packing.units } else { 0 };
                    let of_a = if self.plan.share_a && col0 == 0 { m.div_ceil(each) } else { 0 };
                    if of_a + of_b > 0 {
                        taking_turns(pool, parts, of_a + of_b, &|unit, part| {
                            let temp = self.part(part).add(self.plan.scratch.temp);
                            if unit < of_b {
                                return self.pack_b_unit(batch, &packing, unit, self.shared_b(), temp);
                            }
                            let row = (unit - of_b) * each;
                            let rows = (row, each.min(m - row));
                            self.pack_a(batch, rows, self.shared_a(), self.shared_rows(row), temp);
                        });
                    }
                    let block = |block: usize, part: usize| {
                        let down = contiguous_share(m.div_ceil(unit), rows, block / cols);
                        let across = contiguous_share(width.div_ceil(nr), cols, block % cols);
                        let rows = down.start * unit..m.min(down.end * unit);
                        let cols = col0 + across.start * nr..col0 + width.min(across.end * nr);
                        if rows.is_empty() || cols.is_empty() {
                            return;
                        }
                        let (packed, all) = match self.plan.own_b {
                            Some(_) => {
                                let all = (cols.start, cols.len());
                                (self.pack_own_b(batch, all, part), all)
                            }
                            None => (self.shared_b(), (col0, width)),
                        };
                        let b = self.panels(batch, all, packed);
                        self.region(&Region { batch, b, rows, cols, col_base: all.0, part });
                    };
                    taking_turns(pool, self.plan.parts, rows * cols, &block);
                }
                if self.plan.late {
                    pool.run(m.div_ceil(self.kernels.mr), &|panel, _| self.finish_late(batch, panel));
                }
            }
        }
    }

    /// A number that is equal for batch entries with the same B.
    fn b_identity(&self, batch: usize) -> isize {
        match self.plan.problem.b {
            OperandSource::Memory(layout) => self.plan.problem.batch_offset(&layout, batch),
            OperandSource::Generated { batched: true } => batch as isize,
            OperandSource::Generated { batched: false } | OperandSource::Packed => 0,
        }
    }
}
