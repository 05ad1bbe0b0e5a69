//! Multi-threaded LU factorization with lookahead:
//! while most threads update the columns right of a block, one thread eliminates the next block.
//!
//! The columns right of a block are split into pieces, which threads take dynamically, the next block first. Row exchanges, solve
//! and update of a piece are independent of the other pieces, so the result does not depend on which thread takes it. The rows
//! left of a block are exchanged at the same time.

use super::blocked::{BLOCK, ProductRunner, Products, blocks, subtract_product};
use super::lines::Triangle;
use super::{Real, lines, panel_lu};
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, Isa, MatrixLayout};
use crate::library::SharedPtr;
use ir::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of columns of a piece. It is the same for any number of threads, because narrow products may be summed in
/// another order than wide ones.
const PIECE: usize = 128;

/// Returns the columns after a block that ends at `end`, in pieces: the next block first, then the others.
fn column_pieces(m: usize, n: usize, end: usize) -> impl Iterator<Item = Range<usize>> {
    let next = (end + BLOCK).min(m.min(n)).max(end);
    let first = (next > end).then_some(end..next);
    first.into_iter().chain((next..n).step_by(PIECE).map(move |c| c..(c + PIECE).min(n)))
}

impl Products {
    /// Plans the products of an LU factorization: one for each piece with rows below the block.
    pub(super) fn lu(dtype: DType, m: usize, n: usize, threads: usize, isa: Isa) -> Option<Products> {
        let rows = MatrixLayout::row_major(n);
        let of = |b: Range<usize>| {
            let below = m - b.end;
            let pieces = column_pieces(m, n, b.end).filter(move |_| below > 0);
            pieces.map(move |c| subtract_product(dtype, below, b.len(), c.len(), rows, rows, rows)).collect::<Vec<_>>()
        };
        // Each product runs on one thread, and several run at the same time.
        let all = Products::of(blocks(m.min(n)).flat_map(of), 1, isa)?;
        Some(all.for_each_of(threads))
    }
}

/// The work on the columns after a finished block.
struct Step<'a, T> {
    a: SharedPtr<T>,
    m: usize,
    n: usize,
    block: Range<usize>,
    /// The rows exchanged with the block's rows, counted from its first row.
    pivots: &'a [u32; BLOCK],
    isa: Isa,
}

impl<T: Real> Step<'_, T> {
    /// Exchanges the rows of some columns.
    ///
    /// # Safety
    /// Nothing else accesses the columns.
    unsafe fn swap_rows(&self, columns: Range<usize>) {
        let (n, start) = (self.n, self.block.start);
        for (k, &p) in self.pivots.iter().enumerate().take(self.block.len()).filter(|(k, p)| *k as u32 != **p) {
            let [x, y] = [k, p as usize].map(|i| self.a.at((start + i) * n + columns.start));
            // SAFETY: different rows.
            unsafe { std::ptr::swap_nonoverlapping(x, y, columns.len()) };
        }
    }

    /// Computes rows of `U` and updates the rows below by their product with the block's columns.
    ///
    /// # Safety
    /// Nothing else accesses the columns, and `scratch` is valid for the plan.
    unsafe fn update_trailing(
        &self,
        running: &ProductRunner<'_>,
        plan: Option<&GemmPlan>,
        columns: Range<usize>,
        scratch: *mut u8,
    ) {
        let (n, b) = (self.n, &self.block);
        let at = |i: usize, j: usize| self.a.at(i * n + j);
        let diagonal = at(b.start, b.start).cast_const();
        let triangle = Triangle { diagonal, row: n, col: 1, count: b.len(), unit: true, forward: true };
        lines::solve_strip(self.isa, triangle, at(b.start, columns.start), n, columns.len());
        if b.end < self.m {
            let plan = plan.expect("one for each piece with something below it");
            let (below, beside) = (at(b.end, b.start).cast_const(), at(b.start, columns.start).cast_const());
            let to = GemmOutput::Memory(at(b.end, columns.start).cast());
            // SAFETY: the block's columns, rows of these, and what is below those.
            unsafe {
                running.run_on_calling_thread(
                    plan,
                    GemmOperand::Memory(below.cast()),
                    GemmOperand::Memory(beside.cast()),
                    to,
                    scratch,
                );
            }
        }
    }
}

impl ProductRunner<'_> {
    /// Computes `L` and `U` in place, with row exchanges. Calls `pivot` with the pivot row of each step.
    #[inline(always)]
    pub(super) fn lu<T: Real>(
        &self,
        a: &mut [T],
        m: usize,
        n: usize,
        permutation: &mut [T],
        mut pivot: impl FnMut(usize, usize),
        room: &mut [T],
    ) {
        let (isa, steps) = (self.isa(), m.min(n));
        let (a, room) = (SharedPtr(a.as_mut_ptr()), SharedPtr(room.as_mut_ptr()));
        (0..m).for_each(|i| permutation[i] = T::of(i as f64));
        // The pivots of a block, and of the next block.
        let mut pivots = [[0u32; BLOCK]; 2];
        let mut plans = self.plans();
        // SAFETY: nothing else accesses the matrix yet.
        unsafe { panel_lu::lu_columns(isa, a, m, n, 0..BLOCK.min(steps), &mut pivots[0], room) };
        for block in blocks(steps) {
            let [now, next] = &mut pivots;
            for (k, &p) in now.iter().enumerate().take(block.len()) {
                let (k, p) = (block.start + k, block.start + p as usize);
                pivot(k, p);
                permutation.swap(k, p);
            }
            let step = Step { a, m, n, block: block.clone(), pivots: now, isa };
            let of = column_pieces(m, n, block.end).count();
            let (own, rest) = plans.split_at(if block.end < m { of } else { 0 });
            plans = rest;
            let (taken, next) = (AtomicUsize::new(0), SharedPtr(next.as_mut_ptr()));
            let work = |worker: usize| {
                let scratch = self.scratch_of(worker);
                loop {
                    let turn = taken.fetch_add(1, Ordering::Relaxed);
                    let Some(columns) = column_pieces(m, n, block.end).nth(turn) else {
                        // Exchange the rows left of the block last.
                        if turn == of {
                            // SAFETY: nothing else accesses these columns.
                            unsafe { step.swap_rows(0..block.start) };
                        }
                        break;
                    };
                    // SAFETY: each piece is taken once, and so is the room for the next block, which is the first of them.
                    unsafe {
                        step.swap_rows(columns.clone());
                        step.update_trailing(self, own.get(turn), columns.clone(), scratch);
                        if turn == 0 && block.end < steps {
                            let next = &mut *next.at(0).cast::<[u32; BLOCK]>();
                            panel_lu::lu_columns(isa, a, m, n, columns, next, room);
                        }
                    }
                }
            };
            // Small steps finish before other threads wake up.
            let worth = (m - block.start) * (n - block.start) * block.len();
            self.for_each_worker(worth, &work);
            pivots.swap(0, 1);
        }
    }
}
