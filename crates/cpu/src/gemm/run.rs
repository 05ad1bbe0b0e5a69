//! Running a plan.

use ir::DType;

use super::finish::{Finished, finish};
use super::gemv;
use super::kernel::{HasKernels, Kernels, Tile};
use super::pack::{Feed, TEMP, TEMP_BYTES, View, pack_panel};
use super::plan::{Path, Plan, Split};
use super::problem::{Layout, Operand, Output, Problem, Source, Target};
use crate::pool::{Pool, share};

/// Columns of B that are packed (and generated) together.
const GROUP: usize = 256;

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
        assert_eq!(
            self.problem.b,
            Source::Packed,
            "packing ahead needs a plan for a packed B"
        );
        // SAFETY: the caller's promises are the ones asked for.
        unsafe {
            match self.problem.accumulator() {
                DType::F64 => self.prepack_b_as::<f64>(pool, b, layout, dst),
                _ => self.prepack_b_as::<f32>(pool, b, layout, dst),
            }
        }
    }

    unsafe fn prepack_b_as<T: HasKernels>(&self, pool: &Pool, b: *const u8, layout: &Layout, dst: *mut u8) {
        let plan = self;
        let b = Feed {
            operand: Operand::Memory(b),
            layout: *layout,
            dtype: plan.problem.dtype,
        };
        let unused = Operand::Memory(std::ptr::null());
        let run = Run::<T> {
            plan,
            kernels: T::kernels(plan.isa),
            alpha: T::default(),
            a: Feed { operand: unused, ..b },
            b,
            out: Output::Memory(std::ptr::null_mut()),
            scratch: dst,
        };
        let n = plan.problem.n;
        let units = run.pack_units(n);
        pool.run(units, &|unit, _| {
            let mut temp = [0u64; TEMP_BYTES / 8];
            // SAFETY: the units are disjoint parts of `dst`; the caller vouches for B.
            unsafe { run.pack_b_unit(0, (0, n), unit, run.shared_b(), temp.as_mut_ptr().cast()) };
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
                _ => panic!("a matmul planned for {source:?} was given {operand:?}"),
            };
            Feed { operand, layout, dtype }
        };
        assert_eq!(
            matches!(self.problem.c, Target::Memory { .. }),
            matches!(out, Output::Memory(_)),
            "a matmul planned for {:?} was given {out:?}",
            self.problem.c
        );
        let run = Run::<T> {
            plan: self,
            kernels: T::kernels(self.isa),
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
                        pool.run(self.parts, &|part, _| gemv::run(&run, batch, (part, self.parts), part));
                    }
                }
                (Path::Blocked, Split::Grid { rows, cols }) => run.grids(pool, batches, rows, cols),
            }
        }
    }
}

/// One run of a plan.
pub(super) struct Run<'a, T: HasKernels> {
    pub(super) plan: &'a Plan,
    pub(super) kernels: &'static Kernels<T>,
    pub(super) alpha: T,
    pub(super) a: Feed,
    pub(super) b: Feed,
    pub(super) out: Output,
    scratch: *mut u8,
}

// SAFETY: parts only read the operands, and write disjoint results and disjoint scratch; the caller
// of `Plan::run` vouches that its functions may be called from any thread.
unsafe impl<T: HasKernels> Sync for Run<'_, T> {}

/// Where B's panels are for one block of columns.
#[derive(Clone, Copy)]
enum Panels<T> {
    /// Packed, `columns` of them (padded) in a k-block.
    Packed { at: *const T, columns: usize },
    /// In place, rows `row` apart.
    Direct { at: *const T, row: isize },
}

impl<T: HasKernels> Run<'_, T> {
    pub(super) unsafe fn part(&self, part: usize) -> *mut u8 {
        // SAFETY: the caller of `Plan::run` vouches for scratch.
        unsafe {
            self.scratch
                .add(self.plan.scratch.parts + part * self.plan.scratch.part)
        }
    }

    /// The packed B that all parts read.
    fn shared_b(&self) -> *mut T {
        self.scratch.cast()
    }

    /// Whole matrices, one after another, by one part.
    unsafe fn matrices(&self, path: Path, batches: std::ops::Range<usize>, part: usize) {
        let Problem { m, n, .. } = self.plan.problem;
        // SAFETY: as for `Plan::run`; a part has its own packed B.
        unsafe {
            if path == Path::Gemv {
                return batches.for_each(|batch| gemv::run(self, batch, (0, 1), part));
            }
            let packed = self.part(part).add(self.plan.scratch.b);
            let mut held = None;
            for batch in batches {
                for col0 in (0..n).step_by(self.plan.nc) {
                    let cols = self.plan.nc.min(n - col0);
                    if self.plan.pack_b && held != Some((self.b_identity(batch), col0)) {
                        let temp = self.part(part).add(self.plan.scratch.temp);
                        for unit in 0..self.pack_units(cols) {
                            self.pack_b_unit(batch, (col0, cols), unit, packed.cast(), temp);
                        }
                        held = Some((self.b_identity(batch), col0));
                    }
                    let b = self.panels(batch, (col0, cols), packed.cast());
                    self.region(batch, b, (0, m), (col0, cols), col0, part);
                }
            }
        }
    }

    /// The matrices one after another, each by all parts.
    unsafe fn grids(&self, pool: &Pool, batches: usize, rows: usize, cols: usize) {
        let Problem { m, n, .. } = self.plan.problem;
        let (mr, nr) = (self.kernels.mr, self.kernels.nr);
        // SAFETY: as for `Plan::run`; the packing of B is done before any part reads it.
        unsafe {
            for batch in 0..batches {
                for col0 in (0..n).step_by(self.plan.nc) {
                    let width = self.plan.nc.min(n - col0);
                    if self.plan.pack_b
                        && (batch == 0 || self.plan.nc < n || self.b_identity(batch) != self.b_identity(batch - 1))
                    {
                        let units = self.pack_units(width);
                        let team = self.plan.parts;
                        pool.run(team, &|part, _| {
                            let temp = self.part(part).add(self.plan.scratch.temp);
                            for unit in share(units, team, part) {
                                self.pack_b_unit(batch, (col0, width), unit, self.shared_b(), temp);
                            }
                        });
                    }
                    pool.run(rows * cols, &|part, _| {
                        let down = share(m.div_ceil(mr), rows, part / cols);
                        let across = share(width.div_ceil(nr), cols, part % cols);
                        let (r0, r1) = (down.start * mr, m.min(down.end * mr));
                        let (c0, c1) = (across.start * nr, width.min(across.end * nr));
                        if r0 < r1 && c0 < c1 {
                            let b = self.panels(batch, (col0, width), self.shared_b());
                            self.region(batch, b, (r0, r1 - r0), (col0 + c0, c1 - c0), col0, part);
                        }
                    });
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

    unsafe fn panels(&self, batch: usize, (col0, cols): (usize, usize), packed: *const T) -> Panels<T> {
        let columns = cols.next_multiple_of(self.kernels.nr);
        match self.b.operand {
            Operand::Packed(at) => Panels::Packed { at: at.cast(), columns },
            _ if self.plan.pack_b => Panels::Packed { at: packed, columns },
            // SAFETY: the caller of `Plan::run` vouches for B.
            _ => match unsafe { self.b.direct::<T>(&self.plan.problem, batch) } {
                Some(view) => Panels::Direct {
                    at: view.at.wrapping_add(col0),
                    row: view.row,
                },
                None => unreachable!("a B that is not in memory as it is, is packed"),
            },
        }
    }

    /// Units of work in packing `cols` columns of B: a k-block of a group of columns each.
    fn pack_units(&self, cols: usize) -> usize {
        self.plan.problem.k.div_ceil(self.plan.kc.max(1)) * cols.div_ceil(GROUP)
    }

    unsafe fn pack_b_unit(
        &self,
        batch: usize,
        (col0, cols): (usize, usize),
        unit: usize,
        packed: *mut T,
        temp: *mut u8,
    ) {
        let (problem, nr, kc) = (&self.plan.problem, self.kernels.nr, self.plan.kc);
        let groups = cols.div_ceil(GROUP);
        let (k0, first) = (unit / groups * kc, unit % groups * GROUP);
        let depth = kc.min(problem.k - k0);
        let width = GROUP.min(cols - first);
        // Memory is packed in one go; what goes through `temp` in pieces that fit.
        let direct = matches!(self.b.operand, Operand::Memory(_)) && self.b.dtype == T::DTYPE;
        let step = if direct { depth } else { (TEMP / GROUP).min(depth) };
        // SAFETY: the caller vouches for the packed bytes, in which units are disjoint.
        unsafe {
            let block = packed.add(k0 * cols.next_multiple_of(nr) + first * depth);
            for d in (0..depth).step_by(step) {
                let deep = step.min(depth - d);
                let view = if direct {
                    let view = self.b.direct::<T>(problem, batch).unwrap_unchecked();
                    let at = view
                        .at
                        .offset((k0 + d) as isize * view.row + (col0 + first) as isize * view.col);
                    View { at, ..view }
                } else {
                    self.b
                        .block::<T>(problem, batch, (k0 + d, deep), (col0 + first, width), temp)
                };
                for j in (0..width).step_by(nr) {
                    let dst = block.add(j * depth + d * nr);
                    let src = view.at.offset(j as isize * view.col);
                    pack_panel(dst, nr, src, (view.col, view.row), nr.min(width - j), deep);
                }
            }
        }
    }

    /// Packs rows of A, all of k.
    unsafe fn pack_a(&self, batch: usize, (row0, rows): (usize, usize), packed: *mut T, temp: *mut u8) {
        let (problem, mr, kc) = (&self.plan.problem, self.kernels.mr, self.plan.kc);
        let padded = rows.next_multiple_of(mr);
        for k0 in (0..problem.k).step_by(kc.max(1)) {
            let depth = kc.min(problem.k - k0);
            for i in (0..rows).step_by(mr) {
                let valid = mr.min(rows - i);
                // SAFETY: the caller vouches for A and for the packed bytes.
                unsafe {
                    let dst = packed.add(k0 * padded + i * depth);
                    let view = match self.a.direct::<T>(problem, batch) {
                        Some(view) => {
                            let at = view.at.offset((row0 + i) as isize * view.row + k0 as isize * view.col);
                            View { at, ..view }
                        }
                        None => self.a.block::<T>(problem, batch, (row0 + i, valid), (k0, depth), temp),
                    };
                    pack_panel(dst, mr, view.at, (view.row, view.col), valid, depth);
                }
            }
        }
    }

    /// Rows × columns of one matrix, by one part. `col_base` is the column where `b` starts.
    unsafe fn region(
        &self,
        batch: usize,
        b: Panels<T>,
        (row0, rows): (usize, usize),
        (col0, cols): (usize, usize),
        col_base: usize,
        part: usize,
    ) {
        let plan = self.plan;
        let mr = self.kernels.mr;
        let strips = rows.div_ceil(plan.mc);
        let height = rows.div_ceil(strips).next_multiple_of(mr).min(plan.mc);
        // SAFETY: the caller vouches for scratch.
        let (packed, temp) = unsafe {
            let own = self.part(part);
            (own.add(plan.scratch.a).cast::<T>(), own.add(plan.scratch.temp))
        };
        for i in (0..rows).step_by(height) {
            let strip = (row0 + i, height.min(rows - i));
            // SAFETY: as for `Plan::run`.
            unsafe {
                if plan.pack_a {
                    self.pack_a(batch, strip, packed, temp);
                }
                for j in (0..cols).step_by(plan.nb) {
                    let columns = (col0 + j, plan.nb.min(cols - j));
                    self.block(batch, b, packed, strip, columns, col_base, part);
                }
            }
        }
    }

    /// A block of C over all of k, and its epilogue.
    #[expect(clippy::too_many_arguments, reason = "the coordinates of a block")]
    unsafe fn block(
        &self,
        batch: usize,
        b: Panels<T>,
        packed_a: *const T,
        (row0, rows): (usize, usize),
        (col0, cols): (usize, usize),
        col_base: usize,
        part: usize,
    ) {
        let plan = self.plan;
        let Problem { k, .. } = plan.problem;
        let (mr, nr) = (self.kernels.mr, self.kernels.nr);
        // SAFETY: as for `Plan::run`; the coordinates are inside the problem.
        unsafe {
            let (c, c_row, accumulate) = match (plan.problem.c, self.out) {
                (Target::Memory { layout, accumulate, .. }, Output::Memory(c)) if !plan.tiled => {
                    let offset = plan.problem.batch_offset(&layout, batch) + row0 as isize * layout.row + col0 as isize;
                    (c.cast::<T>().offset(offset), layout.row, accumulate)
                }
                _ => {
                    let stride = cols.next_multiple_of(self.kernels.lanes);
                    (
                        self.part(part).add(plan.scratch.tile).cast::<T>(),
                        stride as isize,
                        false,
                    )
                }
            };
            let a = if plan.pack_a {
                None
            } else {
                self.a.direct::<T>(&plan.problem, batch)
            };
            let padded = rows.next_multiple_of(mr);
            let mut k0 = 0;
            loop {
                let depth = plan.kc.min(k - k0);
                for j in (0..cols).step_by(nr) {
                    let (b_at, b_k, b_padded) = match b {
                        Panels::Packed { at, columns } => {
                            (at.add(k0 * columns + (col0 - col_base + j) * depth), nr as isize, true)
                        }
                        Panels::Direct { at, row } => (
                            at.offset(k0 as isize * row + (col0 - col_base + j) as isize),
                            row,
                            false,
                        ),
                    };
                    let width = nr.min(cols - j);
                    for i in (0..rows).step_by(mr) {
                        let height = mr.min(rows - i);
                        let (a_at, a_row, a_k) = match a {
                            Some(v) => (
                                v.at.offset((row0 + i) as isize * v.row + k0 as isize * v.col),
                                v.row,
                                v.col,
                            ),
                            None => (packed_a.add(k0 * padded + i * depth), 1, mr as isize),
                        };
                        let kernel = self.kernels.get(height, width, a_row == 1);
                        kernel(&Tile {
                            k: depth,
                            a: a_at,
                            a_row,
                            a_k,
                            b: b_at,
                            b_k,
                            b_padded,
                            c: c.offset(i as isize * c_row).add(j),
                            c_row,
                            cols: width,
                            alpha: self.alpha,
                            add: accumulate || k0 > 0,
                        });
                    }
                }
                k0 += depth;
                if k0 >= k {
                    break;
                }
            }
            if plan.tiled {
                let row_stride = c_row as usize;
                finish(
                    plan,
                    self.out,
                    &Finished {
                        batch,
                        row0,
                        col0,
                        rows,
                        cols,
                        acc: c,
                        row_stride,
                    },
                );
            }
        }
    }
}
