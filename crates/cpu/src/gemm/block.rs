//! The loops around the micro-kernel, for the rows and columns of one part.
//!
//! Strips of `mc` rows of A are packed whole; then, for each `nb` columns and k-block, panels of A
//! stay in L1 while the panels of B pass by from L2. Tiles of one row of panels are finished as soon
//! as their last k-block is done, while they are in L1.

use std::ops::Range;

use super::amx::TILE_SIDE;
use super::epilogue::{FinishedTile, write_tile};
use super::kernel::{HasKernels, Tile};
use super::problem::{GemmOutput, OutputKind};
use super::row_panels::{PackedRows, Panels};
use super::run::GemmRun;

/// What one part computes of one matrix.
pub(super) struct Region<T> {
    pub(super) batch: usize,
    pub(super) b: Panels<T>,
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    /// The column where `b` starts.
    pub(super) col_base: usize,
    pub(super) part: usize,
}

/// Rows are split over parts in multiples of this: finer than a tile, so that parts are even, but
/// not so fine that tiles get flat.
pub(super) fn row_unit(mr: usize) -> usize {
    if mr.is_multiple_of(TILE_SIDE) { TILE_SIDE } else { mr.div_ceil(3) }
}

/// Where the tiles of a strip go.
#[derive(Clone, Copy)]
struct Destination<T> {
    at: *mut T,
    row: isize,
    /// Add to what is there from the first k-block on.
    accumulate: bool,
    /// Each row of panels overwrites the one before.
    reused: bool,
}

/// What tiles ask the second cache for while they work.
#[derive(Clone, Copy)]
enum Prefetch<T> {
    Nothing,
    /// The panel of B beside theirs: the first row of tiles asks, the rows below find it.
    NextPanel,
    /// The panels of the next block, each tile for as much: they are in the shared cache or in that of the core which packed them, too
    /// far for one row of tiles to fetch them all.
    NextBlock {
        at: *const T,
        each: usize,
    },
}

impl<T: HasKernels> GemmRun<'_, T> {
    /// Computes a region of one matrix.
    ///
    /// # Safety
    /// As for [`super::Plan::run`]; the region is inside the matrix, nobody else computes it or uses
    /// its part's scratch, and `b` holds its columns.
    pub(super) unsafe fn region(&self, region: &Region<T>) {
        let plan = self.plan;
        let rows = region.rows.len();
        let strips = rows.div_ceil(plan.mc);
        if let Some(tiles) = &self.kernels.tiles {
            // SAFETY: kernels are those of this machine.
            unsafe { (tiles.begin)() };
        }
        let height = rows.div_ceil(strips).next_multiple_of(self.kernels.mr).min(plan.mc);
        for i in region.rows.clone().step_by(height) {
            let strip = i..region.rows.end.min(i + height);
            // SAFETY: the caller's promises; scratch is laid out for strips of `mc` rows.
            unsafe {
                let own = self.part(region.part);
                let (packed, at) = if plan.share_a {
                    (self.shared_a().cast_const(), self.shared_rows(strip.start))
                } else {
                    let packed = own.add(plan.scratch.a).cast::<T>();
                    let at = PackedRows { first: 0, all: strip.len().next_multiple_of(self.kernels.mr) };
                    if plan.pack_a {
                        let temp = own.add(plan.scratch.temp);
                        self.pack_a(region.batch, (strip.start, strip.len()), packed, at, temp);
                    }
                    (packed.cast_const(), at)
                };
                let block = |j: usize| j..region.cols.end.min(j + plan.nb);
                for j in region.cols.clone().step_by(plan.nb) {
                    let then = match block(j) {
                        cols if cols.end < region.cols.end => block(cols.end),
                        _ if strip.end < region.rows.end => block(region.cols.start),
                        _ => 0..0,
                    };
                    self.block(region, (packed, at), strip.clone(), block(j), then);
                }
            }
        }
        if let Some(tiles) = &self.kernels.tiles {
            // SAFETY: as above.
            unsafe { (tiles.end)() };
        }
    }

    /// A block of C over all of k, before one of columns `then`.
    unsafe fn block(
        &self,
        region: &Region<T>,
        (packed_a, at): (*const T, PackedRows),
        rows: Range<usize>,
        cols: Range<usize>,
        then: Range<usize>,
    ) {
        let plan = self.plan;
        let (k, mr, nr, batch) = (plan.depth, self.kernels.mr, self.kernels.nr, region.batch);
        // SAFETY: the caller's promises.
        let c = unsafe { self.destination(region, &rows, &cols) };
        let mut k0 = 0;
        loop {
            let depth = plan.kc.min(k - k0);
            let (next_k, next) = if k0 + depth < k { (k0 + depth, &cols) } else { (0, &then) };
            let mut ahead = self.prefetch_plan(region, next_k, next, rows.len().div_ceil(mr) * cols.len().div_ceil(nr));
            for i in (0..rows.len()).step_by(mr) {
                let height = mr.min(rows.len() - i);
                let c_at = if c.reused { c.at } else { c.at.wrapping_offset(i as isize * c.row) };
                // SAFETY: the caller's promises; row and column indices are inside the block.
                unsafe {
                    let (a, a_row, a_k) = if plan.pack_a {
                        let packed = k0 * at.all + (at.first + i) * depth;
                        (packed_a.add(packed), 1, mr as isize)
                    } else {
                        let view = self.a.view::<T>(&plan.problem, batch, rows.start + i, k0);
                        (view.at, view.row, view.col)
                    };
                    let tile = Tile {
                        k: depth,
                        a,
                        a_row,
                        a_k,
                        c_row: c.row,
                        alpha: self.alpha,
                        add: c.accumulate || k0 > 0,
                        ..Tile::EMPTY
                    };
                    self.row_of_tiles(region, tile, height, k0, &cols, c_at, &mut ahead);
                    if let Prefetch::NextPanel = ahead {
                        ahead = Prefetch::Nothing;
                    }
                    if plan.tiled && !plan.late && k0 + depth == k {
                        let (row0, col0) = (rows.start + i, cols.start);
                        let (acc, row_stride) = (c_at, c.row as usize);
                        let tile = FinishedTile { batch, row0, col0, rows: height, cols: cols.len(), acc, row_stride };
                        write_tile(plan, self.out, &tile);
                    }
                }
            }
            k0 += depth;
            if k0 >= k {
                break;
            }
        }
    }

    /// What the tiles of a block ask for, so many of them, if the next block has these columns and this first k.
    fn prefetch_plan(&self, region: &Region<T>, k0: usize, cols: &Range<usize>, tiles: usize) -> Prefetch<T> {
        match region.b {
            Panels::Direct { .. } => Prefetch::NextPanel,
            Panels::Packed { .. } if cols.is_empty() => Prefetch::Nothing,
            Panels::Packed { at, columns } => {
                let depth = self.plan.kc.min(self.plan.depth - k0);
                let at = at.wrapping_add(k0 * columns + (cols.start - region.col_base) * depth);
                Prefetch::NextBlock { at, each: (cols.len() * depth).div_ceil(tiles) }
            }
        }
    }

    /// One k-block of tiles side by side.
    #[expect(clippy::too_many_arguments, reason = "the coordinates of a row of tiles")]
    #[inline]
    unsafe fn row_of_tiles(
        &self,
        region: &Region<T>,
        mut tile: Tile<T>,
        height: usize,
        k0: usize,
        cols: &Range<usize>,
        c: *mut T,
        ahead: &mut Prefetch<T>,
    ) {
        let nr = self.kernels.nr;
        for j in (0..cols.len()).step_by(nr) {
            let col = cols.start - region.col_base + j;
            (tile.b, tile.b_k, tile.b_padded) = match region.b {
                Panels::Packed { at, columns } => (at.wrapping_add(k0 * columns + col * tile.k), nr as isize, true),
                Panels::Direct { at, row } => (at.wrapping_offset(k0 as isize * row + col as isize), row, false),
            };
            (tile.ahead, tile.ahead_k) = match ahead {
                Prefetch::Nothing => (tile.a, 0),
                Prefetch::NextPanel => (tile.b.wrapping_add(nr), tile.b_k),
                Prefetch::NextBlock { at, each } => {
                    let from = *at;
                    *at = at.wrapping_add(*each);
                    (from, each.div_ceil(tile.k.max(1)).min(nr) as isize)
                }
            };
            tile.c = c.wrapping_add(j);
            tile.rows = height;
            tile.cols = nr.min(cols.len() - j);
            let kernel = match self.plan.pack_a {
                true => self.kernels.of_packed(height, tile.cols),
                false => self.kernels.get(height, tile.cols, tile.a_row == 1),
            };
            // SAFETY: the caller vouches for A, B and C; prefetching past the end of B is harmless.
            unsafe { kernel(&tile) };
        }
    }

    /// C itself where its elements are accumulators and adjacent, else scratch: for one row of
    /// panels at a time, unless they must be kept from one k-block to the next.
    unsafe fn destination(&self, region: &Region<T>, rows: &Range<usize>, cols: &Range<usize>) -> Destination<T> {
        let plan = self.plan;
        // SAFETY: the caller of `Plan::run` vouches for C and for scratch.
        unsafe {
            match (plan.problem.c, self.out) {
                (OutputKind::Memory { layout, accumulate, .. }, GemmOutput::Memory(c)) if !plan.tiled => {
                    let offset = plan.problem.batch_offset(&layout, region.batch)
                        + rows.start as isize * layout.row
                        + cols.start as isize;
                    Destination { at: c.cast::<T>().offset(offset), row: layout.row, accumulate, reused: false }
                }
                _ if plan.late => {
                    let row = self.late_row();
                    let at = self.deferred_rows().add(rows.start * row + cols.start);
                    Destination { at, row: row as isize, accumulate: false, reused: false }
                }
                _ => Destination {
                    at: self.part(region.part).add(plan.scratch.tile).cast(),
                    row: cols.len().next_multiple_of(self.kernels.lanes) as isize,
                    accumulate: false,
                    reused: plan.depth <= plan.kc,
                },
            }
        }
    }
}
