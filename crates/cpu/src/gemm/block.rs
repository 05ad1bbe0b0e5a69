//! The loops around the micro-kernel, for the rows and columns of one part.
//!
//! Strips of `mc` rows of A are packed completely. Then, for each block of `nb` columns and each k-block, the panels of A
//! stay in L1 while the panels of B stream from L2. The tiles of one row of panels are finished as soon
//! as their last k-block is done, while they are still in L1.

use std::ops::Range;

use super::amx::TILE_SIDE;
use super::epilogue::{FinishedTile, write_tile};
use super::kernel::{HasKernels, Tile};
use super::problem::{GemmOutput, OutputKind};
use super::row_panels::{PackedRows, Panels};
use super::run::GemmRun;

/// The rows and columns of one matrix that one part computes.
pub(super) struct Region<T> {
    pub(super) batch: usize,
    pub(super) b: Panels<T>,
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    /// The column of the product at which `b` starts.
    pub(super) col_base: usize,
    pub(super) part: usize,
}

/// Rows are split over parts in multiples of this number: finer than a tile, so that the parts are balanced, but
/// coarse enough that tiles keep several rows.
pub(super) fn row_unit(mr: usize) -> usize {
    if mr.is_multiple_of(TILE_SIDE) { TILE_SIDE } else { mr.div_ceil(3) }
}

/// The destination of the tiles of a strip.
#[derive(Clone, Copy)]
struct Destination<T> {
    at: *mut T,
    row: isize,
    /// Whether the first k-block also adds to the previous contents.
    accumulate: bool,
    /// Whether each row of panels reuses the memory of the row before it.
    reused: bool,
}

/// The data that tiles prefetch into L2 while they compute.
#[derive(Clone, Copy)]
enum Prefetch<T> {
    Nothing,
    /// The next panel of a B that is read in place: the first row of tiles prefetches it for the rows below.
    NextPanel,
    /// The panels of the next block, divided evenly among the tiles. They are in the shared cache or in the L2 of the core that
    /// packed them, and there are too many for one row of tiles to prefetch.
    NextBlock {
        at: *const T,
        each: usize,
    },
}

impl<T: HasKernels> GemmRun<'_, T> {
    /// Computes a region of one matrix.
    ///
    /// # Safety
    /// As for [`super::Plan::run`]; the region is inside the matrix, nothing else computes it or uses its part's
    /// scratch, and `b` holds its columns.
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
            // SAFETY: A, C and scratch are valid for the whole problem (`Plan::run`), the region and its part's scratch
            // are used by this call alone, and scratch is laid out for strips of `mc` rows.
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

    /// Computes a block of C over all of k. `then` is the range of columns of the block that follows.
    ///
    /// # Safety
    /// Rows and columns are inside of the region, whose operands, result and scratch are valid (`Plan::run`).
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
        // SAFETY: the block is inside the region, so C and the part's scratch are valid for it.
        let c = unsafe { self.destination(region, &rows, &cols) };
        let mut k0 = 0;
        loop {
            let depth = plan.kc.min(k - k0);
            let (next_k, next) = if k0 + depth < k { (k0 + depth, &cols) } else { (0, &then) };
            let mut ahead = self.prefetch_plan(region, next_k, next, rows.len().div_ceil(mr) * cols.len().div_ceil(nr));
            for i in (0..rows.len()).step_by(mr) {
                let height = mr.min(rows.len() - i);
                let c_at = if c.reused { c.at } else { c.at.wrapping_offset(i as isize * c.row) };
                // SAFETY: row and column indices are inside the block, for which packed A, B and C are valid.
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

    /// Returns what each of `tiles` tiles prefetches if the next block has columns `cols` and starts at `k0`.
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

    /// Computes one k-block of a row of tiles.
    ///
    /// # Safety
    /// The tiles are inside of A, B and C, and the machine has the kernels' instructions.
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
            // SAFETY: the tile is inside of A, B and C; prefetching past the end of B does not access memory.
            unsafe { kernel(&tile) };
        }
    }

    /// Returns C itself where its elements are accumulators and adjacent. Otherwise returns scratch for one row of
    /// panels, or for all rows where they must be kept from one k-block to the next.
    ///
    /// # Safety
    /// The region is inside of C, and scratch has `Plan::scratch_bytes` (`Plan::run`).
    unsafe fn destination(&self, region: &Region<T>, rows: &Range<usize>, cols: &Range<usize>) -> Destination<T> {
        let plan = self.plan;
        // SAFETY: the region is inside of C, and scratch has `Plan::scratch_bytes` (`Plan::run`).
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
