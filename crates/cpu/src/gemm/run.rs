//! Running a plan: checks, the split into parts, and the order of packing and computing.

use ir::DType;

use super::block::{Region, row_unit};
use super::finish::{Finished, finish};
use super::gemv;
use super::kernel::{HasKernels, Kernels};
use super::pack::{Feed, TEMP_BYTES};
use super::panels::PackedRows;
use super::plan::{Path, Plan, Split, late_stride};
use super::problem::{Layout, Operand, Output, Problem, Source, Target};
use crate::pool::{Pool, share};
use std::sync::atomic::{AtomicUsize, Ordering};

impl Plan {
    /// Computes the product. Allocates nothing; the same bits for any pool and any `threads` of the
    /// plan.
    ///
    /// # Safety
    /// - `a`, `b` and `out` are of the variants that the problem names and good for its shapes and
    ///   strides, C overlaps neither operand, and distinct elements of C don't overlap;
    /// - `scratch` is aligned to 64 and holds [`Plan::scratch_bytes`], which nothing else uses
    ///   during the call;
    /// - functions among them may be called from any thread.
    ///
    /// # Panics
    /// When a variant is not the one that the problem names.
    pub unsafe fn run(&self, pool: &Pool, a: Operand, b: Operand, out: Output, scratch: *mut u8) {
        // SAFETY: the caller's promises are the ones asked for.
        unsafe {
            match self.problem.accumulator() {
                DType::F64 => self.run_as::<f64>(pool, a, b, out, scratch),
                DType::I32 => self.run_as::<i32>(pool, a, b, out, scratch),
                _ => self.run_as::<f32>(pool, a, b, out, scratch),
            }
        }
    }

    /// Packs a B in memory into `dst` ([`Plan::packed_b_bytes`], aligned to 64), once for all runs of
    /// plans whose B is [`Source::Packed`] and whose `k`, `n`, dtype and instruction set are these.
    ///
    /// # Safety
    /// `b` must be good for `layout` and the plan's `k × n`, `dst` for the packed bytes.
    ///
    /// # Panics
    /// When the plan's own B is not [`Source::Packed`].
    pub unsafe fn prepack_b(&self, pool: &Pool, b: *const u8, layout: &Layout, dst: *mut u8) {
        assert_eq!(self.problem.b, Source::Packed, "packing ahead needs a plan for a packed B");
        // SAFETY: the caller's promises are the ones asked for.
        unsafe {
            match self.problem.accumulator() {
                DType::F64 => self.prepack_b_as::<f64>(pool, b, layout, dst),
                DType::I32 => self.prepack_b_as::<i32>(pool, b, layout, dst),
                _ => self.prepack_b_as::<f32>(pool, b, layout, dst),
            }
        }
    }

    unsafe fn prepack_b_as<T: HasKernels>(&self, pool: &Pool, b: *const u8, layout: &Layout, dst: *mut u8) {
        let b = Feed { operand: Operand::Memory(b), layout: *layout, dtype: self.problem.dtype };
        let unused = Operand::Memory(std::ptr::null());
        let run = Run::<T> {
            plan: self,
            kernels: T::kernels(self.isa, self.problem.dtype),
            alpha: T::default(),
            a: Feed { operand: unused, ..b },
            b,
            out: Output::Memory(std::ptr::null_mut()),
            scratch: dst,
        };
        let packing = run.packing((0, self.problem.n), pool.threads());
        pool.run(packing.units, &|unit, _| {
            let mut temp = [0u64; TEMP_BYTES / 8];
            // SAFETY: the units are disjoint parts of `dst`; the caller vouches for B.
            unsafe { run.pack_b_unit(0, &packing, unit, run.shared_b(), temp.as_mut_ptr().cast()) };
        });
    }

    unsafe fn run_as<T: HasKernels>(&self, pool: &Pool, a: Operand, b: Operand, out: Output, scratch: *mut u8) {
        let Problem { m, n, dtype, .. } = self.problem;
        let (a, b) = if self.swapped { (b, a) } else { (a, b) };
        let feed = |operand, source| {
            let layout = match (source, operand) {
                (Source::Memory(layout), Operand::Memory(_)) => layout,
                (Source::Generated { .. }, Operand::Generated { .. }) | (Source::Packed, Operand::Packed(_)) => {
                    Layout::row_major(0)
                }
                _ => panic!("the matmul was planned for {source:?}, but got {operand:?}"),
            };
            Feed { operand, layout, dtype }
        };
        assert_eq!(
            matches!(self.problem.c, Target::Memory { .. }),
            matches!(out, Output::Memory(_)),
            "the matmul was planned for {:?}, but got {out:?}",
            self.problem.c
        );
        let run = Run::<T> {
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
        // SAFETY: the caller's promises; parts touch disjoint scratch and disjoint results.
        unsafe {
            match (self.path, self.split) {
                (path, Split::Serial) => run.matrices(path, 0..batches, 0),
                (path, Split::Batch) => {
                    let parts = self.parts;
                    pool.run(parts, &|part, _| run.matrices(path, share(batches, parts, part), part));
                }
                (Path::Gemv, Split::Grid { .. }) => {
                    for batch in 0..batches {
                        gemv::run_split(&run, pool, batch, self.parts);
                    }
                }
                // So few elements are no grid.
                (Path::Tiny, Split::Grid { .. }) => run.tiny(0..batches),
                (Path::Blocked, Split::Grid { rows, cols }) => run.grids(pool, batches, rows, cols),
            }
        }
    }
}

/// Panels of A that are packed together.
const PANELS: usize = 2;

/// Runs `f(unit, part)` for all units. Where there are more than parts, who is through with one takes the next: the same bits, whoever
/// that is.
fn taking_turns(pool: &Pool, parts: usize, units: usize, f: &(dyn Fn(usize, usize) + Sync)) {
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
pub(super) struct Run<'a, T: HasKernels> {
    pub(super) plan: &'a Plan,
    pub(super) kernels: &'static Kernels<T>,
    pub(super) alpha: T,
    pub(super) a: Feed,
    pub(super) b: Feed,
    pub(super) out: Output,
    pub(super) scratch: *mut u8,
}

// SAFETY: parts only read the operands, and write disjoint results and disjoint scratch; the caller
// of `Plan::run` vouches that its functions may be called from any thread.
unsafe impl<T: HasKernels> Sync for Run<'_, T> {}

impl<T: HasKernels> Run<'_, T> {
    /// The scratch of a part.
    pub(super) unsafe fn part(&self, part: usize) -> *mut u8 {
        // SAFETY: the caller of `Plan::run` vouches for scratch.
        unsafe { self.scratch.add(self.plan.scratch.parts + part * self.plan.scratch.part) }
    }

    /// The packed B that all parts read.
    fn shared_b(&self) -> *mut T {
        self.scratch.cast()
    }

    /// The packed A that all parts read.
    pub(super) fn shared_a(&self) -> *mut T {
        self.scratch.wrapping_add(self.plan.scratch.shared_a).cast()
    }

    /// Where its rows are from one on.
    pub(super) fn shared_rows(&self, first: usize) -> PackedRows {
        PackedRows { first, all: self.plan.problem.m.next_multiple_of(self.kernels.mr) }
    }

    /// Where results wait for the others of their rows.
    pub(super) fn late(&self) -> *mut T {
        self.scratch.wrapping_add(self.plan.scratch.late).cast()
    }

    /// From one of those rows to the next.
    pub(super) fn late_row(&self) -> usize {
        late_stride(self.plan.problem.n, self.kernels.lanes)
    }

    /// Finishes a panel of the rows that waited.
    unsafe fn finish_late(&self, batch: usize, panel: usize) {
        let (Problem { m, n, .. }, mr, row_stride) = (self.plan.problem, self.kernels.mr, self.late_row());
        let row0 = panel * mr;
        let acc = self.late().wrapping_add(row0 * row_stride);
        let tile = Finished { batch, row0, col0: 0, rows: mr.min(m - row0), cols: n, acc, row_stride };
        // SAFETY: the caller of `Plan::run` vouches for the output; all columns of the rows are there.
        unsafe { finish(self.plan, self.out, &tile) };
    }

    /// Whole matrices, one after another, by one part.
    unsafe fn matrices(&self, path: Path, batches: std::ops::Range<usize>, part: usize) {
        let Problem { m, n, .. } = self.plan.problem;
        // SAFETY: as for `Plan::run`; a part has its own packed B.
        unsafe {
            if path == Path::Gemv {
                return batches.for_each(|batch| gemv::run(self, batch, part));
            }
            if path == Path::Tiny {
                return self.tiny(batches);
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

    /// Packs columns of B, from one on so many, into a part's scratch.
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

    /// The matrices one after another, each by all parts.
    unsafe fn grids(&self, pool: &Pool, batches: usize, rows: usize, cols: usize) {
        let Problem { m, n, .. } = self.plan.problem;
        let nr = self.kernels.nr;
        // Rows of a packed A that all share are met in whole panels.
        let unit = if self.plan.share_a { self.kernels.mr } else { row_unit(self.kernels.mr) };
        // Rows of A that are packed together.
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
                        let down = share(m.div_ceil(unit), rows, block / cols);
                        let across = share(width.div_ceil(nr), cols, block % cols);
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

    /// Equal for batch entries that have the same B.
    fn b_identity(&self, batch: usize) -> isize {
        match self.plan.problem.b {
            Source::Memory(layout) => self.plan.problem.batch_offset(&layout, batch),
            Source::Generated { batched: true } => batch as isize,
            Source::Generated { batched: false } | Source::Packed => 0,
        }
    }
}
