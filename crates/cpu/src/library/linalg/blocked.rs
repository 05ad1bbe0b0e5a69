//! Large factorisations: blocks of columns, with products of blocks for almost all of the work.
//!
//! The products are planned when the factorisation is; each step has its own. They run on all threads, and their bits
//! don't depend on how many those are.

use super::factor;
use crate::gemm::{Isa, Layout, Operand, Output, Plan, Problem, Source, Target};
use crate::pool::Pool;
use ir::DType;
use ir::ops::TriangularSolve;
use std::ops::Range;

/// Columns of a block.
pub(super) const BLOCK: usize = 32;
/// Matrices smaller than this are not worth cutting.
pub(super) const LEAST: usize = 96;
/// Right-hand sides that are too few for products.
pub(super) const OTHERS: usize = 8;

/// The products of one factorisation, step by step.
pub(super) struct Products {
    plans: Vec<Plan>,
    /// Bytes of scratch for any of them.
    scratch: usize,
}

/// How products run.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    products: &'a Products,
    pool: &'a Pool,
    scratch: *mut u8,
}

pub(super) fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(BLOCK).map(move |k| k..(k + BLOCK).min(n))
}

/// `C -= A·B` of f64 matrices inside of others.
pub(super) fn minus(m: usize, k: usize, n: usize, a: Layout, b: Layout, c: Layout) -> Problem {
    let c = Target::Memory { dtype: DType::F64, layout: c, accumulate: true };
    let (a, b) = (Source::Memory(a), Source::Memory(b));
    Problem { a, b, c, alpha: -1.0, ..Problem::new(m, k, n, DType::F64) }
}

impl Products {
    pub(super) fn of(problems: impl Iterator<Item = Problem>, threads: usize, isa: Isa) -> Option<Products> {
        let plans: Vec<Plan> = problems.map(|p| Plan::with_isa(&p, threads, isa).ok()).collect::<Option<_>>()?;
        let scratch = plans.iter().map(Plan::scratch_bytes).max()?.next_multiple_of(64);
        Some(Products { plans, scratch })
    }

    /// Bytes of scratch that all threads share.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    /// # Safety
    /// `scratch` is good for [`Products::scratch_bytes`] bytes, aligned to 64, until the factorisation is done.
    pub(super) unsafe fn on<'a>(&'a self, pool: &'a Pool, scratch: *mut u8) -> Running<'a> {
        Running { products: self, pool, scratch }
    }

    /// Those of a Cholesky factor, if the matrix is large.
    pub(super) fn cholesky(n: usize, threads: usize, isa: Isa) -> Option<Products> {
        let rows = Layout::row_major(n);
        let step = |b: Range<usize>| minus(n - b.start, b.start, b.len(), rows, rows.transposed(), rows);
        if n < LEAST {
            return None;
        }
        Products::of(blocks(n).skip(1).map(step), threads, isa)
    }

    /// Those of a solution, if matrix and right-hand side are large.
    pub(super) fn solve(op: TriangularSolve, n: usize, others: usize, threads: usize, isa: Isa) -> Option<Products> {
        if n < LEAST || others < OTHERS {
            return None;
        }
        let mut a = Layout::row_major(n);
        if op.transpose {
            a = a.transposed();
        }
        let b = Layout::row_major(if op.left { others } else { n });
        let step = |known: Range<usize>, w: usize| match op.left {
            true => minus(w, known.len(), others, a, b, b),
            false => minus(others, known.len(), w, b, a, b),
        };
        let all = order(op, n).filter(|(_, known)| !known.is_empty());
        Products::of(all.map(|(block, known)| step(known, block.len())), threads, isa)
    }

    /// Those of an LU factorisation, if the matrix is large.
    pub(super) fn lu(m: usize, n: usize, threads: usize, isa: Isa) -> Option<Products> {
        let rows = Layout::row_major(n);
        let steps = blocks(m.min(n)).filter(|b| b.end < m && b.end < n);
        if m.min(n) < LEAST {
            return None;
        }
        Products::of(steps.map(|b| minus(m - b.end, b.len(), n - b.end, rows, rows, rows)), threads, isa)
    }

    /// Those of a QR factorisation, if the matrix is large: two for each block of reflections that meets columns.
    pub(super) fn qr(m: usize, n: usize, columns: usize, threads: usize, isa: Isa) -> Option<Products> {
        if m.min(n) < LEAST {
            return None;
        }
        let apply = |b: &Range<usize>, width: usize, count: usize| {
            let (height, w) = (m - b.start, b.len());
            let (v, x, sums) = (Layout::row_major(w), Layout::row_major(width), Layout::row_major(count));
            let onto = Target::Memory { dtype: DType::F64, layout: sums, accumulate: false };
            let (a, b) = (Source::Memory(v.transposed()), Source::Memory(x));
            let project = Problem { a, b, c: onto, ..Problem::new(w, height, count, DType::F64) };
            [project, minus(height, w, count, v, sums, x)]
        };
        let steps = || blocks(m.min(n));
        let on_a = steps().filter(|b| b.end < n).flat_map(|b| apply(&b, n, n - b.end));
        let on_q = steps().collect::<Vec<_>>().into_iter().rev();
        let on_q = on_q.flat_map(|b| apply(&b, columns, columns - b.start));
        Products::of(on_a.chain(on_q), threads, isa)
    }
}

/// f64 of work beside the matrices of a QR factorisation: a block of reflections, what they project to, and their factors.
pub(super) fn qr_work(m: usize, n: usize, columns: usize) -> usize {
    m * BLOCK + BLOCK * n.max(columns) + BLOCK * BLOCK + m.max(n)
}

/// Blocks in the order in which they can be solved, each with the unknowns that are known by then.
fn order(op: TriangularSolve, n: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    // From the left the first row of a lower matrix is known at once, from the right the last column.
    let ascending = (op.lower != op.transpose) == op.left;
    let count = n.div_ceil(BLOCK);
    (0..count).map(move |i| {
        let k = BLOCK * if ascending { i } else { count - 1 - i };
        let block = k..(k + BLOCK).min(n);
        let known = if ascending { 0..block.start } else { block.end..n };
        (block, known)
    })
}

impl Running<'_> {
    /// The products, in the order in which they were planned.
    pub(super) fn plans(&self) -> &[Plan] {
        &self.products.plans
    }

    /// # Safety
    /// The addresses are those of elements (0, 0) of matrices as planned, of which the result overlaps no operand.
    pub(super) unsafe fn product(&self, plan: &Plan, a: *const f64, b: *const f64, c: *mut f64) {
        let (a, b) = (Operand::Memory(a.cast()), Operand::Memory(b.cast()));
        // SAFETY: by the caller's promise, and that of `on` about the scratch.
        unsafe { plan.run(self.pool, a, b, Output::Memory(c.cast()), self.scratch) };
    }

    /// The lower factor in place of the lower triangle, zeros above.
    #[inline(always)]
    pub(super) fn cholesky(&self, a: &mut [f64], n: usize) {
        let mut plans = self.products.plans.iter();
        for b in blocks(n) {
            if b.start > 0 {
                let p = a.as_mut_ptr();
                let left = p.wrapping_add(b.start * n);
                let plan = plans.next().expect("one for each block behind the first");
                // SAFETY: the operands are columns before the block, the result is the block.
                unsafe { self.product(plan, left, left, left.wrapping_add(b.start)) };
            }
            if !factor::cholesky_panel(a, n, b) {
                return (0..n * n).for_each(|k| a[k] = if k / n >= k % n { f64::NAN } else { 0.0 });
            }
        }
    }

    /// `op(A)·X = B` or `X·op(A) = B` in place of `B`.
    #[inline(always)]
    pub(super) fn solve(&self, op: TriangularSolve, a: &[f64], n: usize, b: &mut [f64], cols: usize) {
        let mut plans = self.products.plans.iter();
        let element = |row: usize, col: usize| if op.transpose { col * n + row } else { row * n + col };
        for (block, known) in order(op, n) {
            let to = b.as_mut_ptr();
            if !known.is_empty() {
                let plan = plans.next().expect("one for each block behind the first");
                // SAFETY: the unknowns that are known and those of the block are different parts of B.
                unsafe {
                    if op.left {
                        let a = a.as_ptr().wrapping_add(element(block.start, known.start));
                        let x = to.wrapping_add(known.start * cols);
                        self.product(plan, a, x, to.wrapping_add(block.start * cols));
                    } else {
                        let a = a.as_ptr().wrapping_add(element(known.start, block.start));
                        self.product(plan, to.wrapping_add(known.start), a, to.wrapping_add(block.start));
                    }
                }
            }
            if op.left {
                let rows = &mut b[block.start * cols..block.end * cols];
                factor::solve_left(op, a, n, block, rows, cols);
            } else {
                factor::solve_right(op, a, n, block, b);
            }
        }
    }

    /// `L` and `U` in place, with the rows exchanged; tells the pivot of each step.
    #[inline(always)]
    pub(super) fn lu(
        &self,
        a: &mut [f64],
        m: usize,
        n: usize,
        permutation: &mut [f64],
        mut pivot: impl FnMut(usize, usize),
    ) {
        (0..m).for_each(|i| permutation[i] = i as f64);
        let mut plans = self.products.plans.iter();
        for b in blocks(m.min(n)) {
            factor::lu_panel(a, m, n, b.clone(), permutation, &mut pivot);
            if b.end == n {
                continue;
            }
            factor::lu_right(a, n, b.clone());
            if b.end < m {
                let plan = plans.next().expect("one for each block with something below and beside it");
                let p = a.as_mut_ptr();
                let at = |i: usize, j: usize| p.wrapping_add(i * n + j);
                // SAFETY: the block's columns, its rows, and what is below and beside both.
                unsafe { self.product(plan, at(b.end, b.start), at(b.start, b.end), at(b.end, b.end)) };
            }
        }
    }

    /// `R` in the upper triangle of `a` and the first columns of `Q`.
    #[inline(always)]
    pub(super) fn qr(&self, a: &mut [f64], m: usize, n: usize, q: &mut [f64], columns: usize, work: &mut [f64]) {
        let (tau, rest) = work.split_at_mut(m.max(n));
        let (v, rest) = rest.split_at_mut(m * BLOCK);
        let (t, sums) = rest.split_at_mut(BLOCK * BLOCK);
        let steps = m.min(n);
        let mut plans = self.products.plans.chunks_exact(2);
        for b in blocks(steps) {
            factor::qr_panel(a, m, n, b.clone(), tau, sums);
            if b.end < n {
                reflections(a, m, n, &b, tau, v, t);
                let onto = a.as_mut_ptr().wrapping_add(b.start * n + b.end);
                // SAFETY: columns behind the block, `v` and `sums` are as planned.
                unsafe { self.reflect(plans.next(), v, t, true, b.len(), onto, n - b.end, sums) };
            }
        }
        q.fill(0.0);
        (0..columns.min(m)).for_each(|i| q[i * columns + i] = 1.0);
        for b in blocks(steps).collect::<smallvec::SmallVec<[_; 64]>>().into_iter().rev() {
            reflections(a, m, n, &b, tau, v, t);
            let onto = q.as_mut_ptr().wrapping_add(b.start * columns + b.start);
            // SAFETY: as above, with the rows and columns of Q that the reflections touch.
            unsafe { self.reflect(plans.next(), v, t, false, b.len(), onto, columns - b.start, sums) };
        }
    }

    /// `X -= V·op(T)·Vᵀ·X`.
    ///
    /// # Safety
    /// `onto` is the first element of X as planned.
    #[expect(clippy::too_many_arguments, reason = "a product of three matrices with their sizes")]
    #[inline(always)]
    pub(super) unsafe fn reflect(
        &self,
        plans: Option<&[Plan]>,
        v: &[f64],
        t: &[f64],
        transpose: bool,
        w: usize,
        onto: *mut f64,
        count: usize,
        sums: &mut [f64],
    ) {
        let plans = plans.expect("two for each block of reflections");
        // SAFETY: `v` and `sums` are as planned, `onto` by the caller's promise.
        unsafe { self.product(&plans[0], v.as_ptr(), onto, sums.as_mut_ptr()) };
        factor::triangle_times(t, w, transpose, &mut sums[..w * count], count);
        // SAFETY: as above.
        unsafe { self.product(&plans[1], v.as_ptr(), sums.as_ptr(), onto) };
    }
}

/// The reflections of a block: their vectors side by side in `v`, and the factors by which they act at once in `t`.
#[inline(always)]
pub(super) fn reflections(a: &[f64], m: usize, n: usize, b: &Range<usize>, tau: &[f64], v: &mut [f64], t: &mut [f64]) {
    let w = b.len();
    for i in b.start..m {
        let row = &mut v[(i - b.start) * w..(i - b.start + 1) * w];
        for (j, x) in row.iter_mut().enumerate() {
            let k = b.start + j;
            *x = if i > k { a[i * n + k] } else { (i == k) as u8 as f64 };
        }
    }
    factor::joint_factors(&v[..(m - b.start) * w], w, &tau[b.clone()], t);
}
