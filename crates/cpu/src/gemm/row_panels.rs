//! The packed panels of a run: their locations and how they are packed.

use super::kernel::HasKernels;
use super::pack::TEMP;
use super::problem::GemmOperand;
use super::run::GemmRun;
use crate::pool::contiguous_share;
use crate::thresholds::Threshold;

/// The number of lines of B that are read at a time where columns run along them. A multiple of the AMX tile size.
const LINES: usize = 32;
/// The number of lines of B in a unit of packing work.
const UNIT_LINES: usize = 2 * LINES;
/// The number of units of packing per part where parts take units dynamically.
const UNITS: usize = 3;
/// The number of columns of B that are packed (and generated) together.
const GROUP: usize = 256;

pub(super) const THRESHOLDS: &[Threshold] =
    &[Threshold::new("gemm.group", GROUP, "columns of B: beyond, they are packed in several groups")];

/// The location of B's panels for one block of columns.
#[derive(Clone, Copy)]
pub(super) enum Panels<T> {
    /// The panels are packed; a k-block has `columns` columns, including padding.
    Packed { at: *const T, columns: usize },
    /// The panels are read in place, with rows `row` elements apart.
    Direct { at: *const T, row: isize },
}

/// The location of some rows of a packed A: the first row, a multiple of the tile height, and the padded number of all its rows.
#[derive(Clone, Copy)]
pub(super) struct PackedRows {
    pub(super) first: usize,
    pub(super) all: usize,
}

/// How the packing of some columns of B is split into units: k-blocks of groups of columns, each split along k.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    pub(super) col0: usize,
    pub(super) cols: usize,
    groups: usize,
    pieces: usize,
    pub(super) units: usize,
}

impl<T: HasKernels> GemmRun<'_, T> {
    /// Returns the location of B's columns `[col0, col0+cols)`. `packed` is the address of the packed columns, if they were packed.
    ///
    /// # Safety
    /// B is valid for the problem (`Plan::run`), and `packed` for the packed columns where B is packed.
    pub(super) unsafe fn panels(&self, batch: usize, (col0, cols): (usize, usize), packed: *const T) -> Panels<T> {
        let columns = cols.next_multiple_of(self.kernels.nr);
        match self.b.operand {
            GemmOperand::Packed(at) => Panels::Packed { at: at.cast(), columns },
            _ if self.plan.pack_b => Panels::Packed { at: packed, columns },
            _ => {
                // SAFETY: B is valid for the problem (`Plan::run`), and is read in place where it is not packed.
                let view = unsafe { self.b.view(&self.plan.problem, batch, 0, col0) };
                Panels::Direct { at: view.at, row: view.row }
            }
        }
    }

    /// Splits the packing of B's columns `[col0, col0+cols)` into units for `parts` parts: more parts get more units.
    pub(super) fn packing(&self, (col0, cols): (usize, usize), parts: usize) -> Packing {
        let (groups, kc) = (cols.div_ceil(GROUP), self.plan.kc.max(1));
        let whole = self.plan.depth.div_ceil(kc) * groups;
        let wanted = if parts > 1 { (UNITS * parts).div_ceil(whole.max(1)) } else { 1 };
        let pieces = wanted.clamp(1, kc.div_ceil(UNIT_LINES));
        Packing { col0, cols, groups, pieces, units: whole * pieces }
    }

    /// Packs one unit of B's columns into `packed`, which has space for all columns.
    ///
    /// # Safety
    /// `packed` has room for all units, of which only this call writes this one, `temp` for `TEMP_BYTES`, and B is
    /// valid for the problem.
    pub(super) unsafe fn pack_b_unit(
        &self,
        batch: usize,
        packing: &Packing,
        unit: usize,
        packed: *mut T,
        temp: *mut u8,
    ) {
        let (problem, nr, kc) = (&self.plan.problem, self.kernels.nr, self.plan.kc);
        let Packing { col0, cols, groups, pieces, .. } = *packing;
        let (block, piece) = (unit / pieces, unit % pieces);
        let (k0, first) = (block / groups * kc, block % groups * GROUP);
        let depth = kc.min(self.plan.depth - k0);
        let piece = contiguous_share(depth.div_ceil(LINES), pieces, piece);
        let (begin, end) = (piece.start * LINES, depth.min(piece.end * LINES));
        let width = GROUP.min(cols - first);
        // Operands in memory are packed in one go; operands that pass through `temp` are packed in pieces that fit.
        let memory = matches!(self.b.operand, GemmOperand::Memory(_));
        let whole = self.b.in_place::<T>() || (memory && self.kernels.groups.is_some());
        // Where columns run along lines of memory, each line is read once to its end;
        // panel by panel, each read would touch another page.
        let along = self.kernels.groups.is_none() && self.b.layout.col == 1;
        let step = match (whole, along) {
            (true, true) => LINES.min(depth),
            (true, false) => depth,
            (false, _) => (TEMP / GROUP).min(depth),
        };
        // SAFETY: `packed` has room for all units, which are disjoint, and B is valid for the problem.
        unsafe {
            let block = packed.add(k0 * cols.next_multiple_of(nr) + first * depth);
            for d in (begin..end).step_by(step) {
                let deep = step.min(end - d);
                if let Some(groups) = self.kernels.groups {
                    let from = (k0 + d) * groups.per;
                    let rows = (deep * groups.per).min(problem.k - from);
                    let view = self.b.own(problem, batch, (from, rows), (col0 + first, width), temp);
                    for j in (0..width).step_by(nr) {
                        let dst = block.add(j * depth + d * nr).cast();
                        let src = view.at.offset(j as isize * view.col * self.b.dtype.size() as isize);
                        (groups.right)(dst, nr, src, (view.col, view.row), nr.min(width - j), rows);
                    }
                    continue;
                }
                let widen = self.kernels.widen;
                let view = self.b.block::<T>(problem, batch, (k0 + d, deep), (col0 + first, width), temp, widen);
                for j in (0..width).step_by(nr) {
                    let dst = block.add(j * depth + d * nr);
                    let src = view.at.offset(j as isize * view.col);
                    (self.kernels.pack)(dst, nr, src, (view.col, view.row), nr.min(width - j), deep);
                }
            }
        }
    }

    /// Packs rows of A over all of k, at position `at.first` of a packed A with `at` rows in total.
    ///
    /// # Safety
    /// A is valid for the problem, `packed` has room for these rows, and `temp` for `TEMP_BYTES`.
    pub(super) unsafe fn pack_a(
        &self,
        batch: usize,
        (row0, rows): (usize, usize),
        packed: *mut T,
        at: PackedRows,
        temp: *mut u8,
    ) {
        let (problem, mr, kc) = (&self.plan.problem, self.kernels.mr, self.plan.kc);
        for k0 in (0..self.plan.depth).step_by(kc.max(1)) {
            let depth = kc.min(self.plan.depth - k0);
            for i in (0..rows).step_by(mr) {
                let valid = mr.min(rows - i);
                // SAFETY: A is valid for the problem, and `packed` has room for these rows.
                unsafe {
                    let dst = packed.add(k0 * at.all + (at.first + i) * depth);
                    if let Some(groups) = self.kernels.groups {
                        let from = k0 * groups.per;
                        let cols = (depth * groups.per).min(problem.k - from);
                        let view = self.a.own(problem, batch, (row0 + i, valid), (from, cols), temp);
                        (groups.left)(dst.cast(), mr, view.at, (view.row, view.col), valid, cols);
                        continue;
                    }
                    let widen = self.kernels.widen;
                    let view = self.a.block::<T>(problem, batch, (row0 + i, valid), (k0, depth), temp, widen);
                    (self.kernels.pack)(dst, mr, view.at, (view.row, view.col), valid, depth);
                }
            }
        }
    }
}
