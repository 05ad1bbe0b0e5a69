//! Blocked factorizations of large matrices: nearly all of the work is matrix products of blocks of columns.
//!
//! The matrix products of each step are planned together with the factorization. They run on all threads, and their bits
//! do not depend on the number of threads.

use super::super::{SharedPtr, in_ranges};
use super::lines::Triangle;
use super::{Real, factor, householder_panel, lines, transpose_rows, turned_from};
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, Isa, MatrixLayout, OperandSource, OutputKind};
use crate::pool::ThreadPool;
use ir::DType;
use ir::ops::TriangularSolve;
use std::ops::Range;

/// The number of columns of a block.
pub(super) const BLOCK: usize = 32;
/// The minimum size of a matrix that is factored in blocks.
pub(super) const MIN_BLOCKED_SIZE: usize = 96;
/// The minimum size for small batches of f32 matrices whose eigenvectors or singular vectors are requested.
pub(super) const VECTORS: usize = 64;
/// The minimum number of elements for matrices with fewer columns than `MIN_BLOCKED_SIZE`.
pub(super) const TALL: usize = MIN_BLOCKED_SIZE * MIN_BLOCKED_SIZE;
/// The minimum number of right-hand sides for a blocked solve.
pub(super) const MIN_RIGHT_HAND_SIDES: usize = 8;

/// The minimum number of right-hand-side columns per thread.
const SHARE: usize = 64;

/// The number of streamed elements (read once and multiplied) that cost as much as one unit of work when threads share them.
const MOVED: usize = 4;

/// The number of scratch elements for the partial sums of a symmetric matrix-vector product.
pub(super) fn symmetric_scratch_elements(n: usize) -> usize {
    lines::symmetric_pieces(n) * n
}

/// A value that threads share and only read.
struct Fixed<T>(T);

// SAFETY: see the type's comment; the pool's call returns before what is pointed at goes away.
unsafe impl<T> Sync for Fixed<T> {}

/// The matrix products of one factorization, in the order of its steps.
pub(super) struct Products {
    plans: Vec<GemmPlan>,
    isa: Isa,
    /// The bytes of scratch for any of the products, and the number of products that run at the same time.
    scratch: usize,
    at_once: usize,
}

/// The context in which the products run: plans, threads and scratch.
#[derive(Clone, Copy)]
pub(super) struct ProductRunner<'a> {
    products: &'a Products,
    pool: &'a ThreadPool,
    scratch: *mut u8,
}

// SAFETY: threads use the plans, which nothing changes, and parts of the scratch that are their own.
unsafe impl Sync for ProductRunner<'_> {}

pub(super) fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(BLOCK).map(move |k| k..(k + BLOCK).min(n))
}

/// Describes `C -= A·B`, where the operands are blocks of larger matrices.
pub(super) fn subtract_product(
    dtype: DType,
    m: usize,
    k: usize,
    n: usize,
    a: MatrixLayout,
    b: MatrixLayout,
    c: MatrixLayout,
) -> GemmProblem {
    let c = OutputKind::Memory { dtype, layout: c, accumulate: true };
    let (a, b) = (OperandSource::Memory(a), OperandSource::Memory(b));
    GemmProblem { a, b, c, alpha: -1.0, ..GemmProblem::new(m, k, n, dtype) }
}

impl Products {
    pub(super) fn of(problems: impl Iterator<Item = GemmProblem>, threads: usize, isa: Isa) -> Option<Products> {
        let plans: Vec<GemmPlan> =
            problems.map(|p| GemmPlan::with_isa(&p, threads, isa).ok()).collect::<Option<_>>()?;
        let scratch = plans.iter().map(GemmPlan::scratch_bytes).max()?.next_multiple_of(64);
        Some(Products { plans, isa, scratch, at_once: 1 })
    }

    /// Returns no planned products, but scratch for any product of matrices with up to `n` rows and columns.
    pub(super) fn any(dtype: DType, n: usize, threads: usize, isa: Isa) -> Products {
        Products { plans: Vec::new(), isa, scratch: 0, at_once: 1 }.with_any(n, n * dtype.size(), threads)
    }

    /// Adds scratch for any product of matrices with up to `n` rows and columns and `line` bytes per row.
    pub(super) fn with_any(self, n: usize, line: usize, threads: usize) -> Products {
        // The packed right operand, and some rows of the left operand per thread.
        let bytes = (line + 512) * (n + 64 + 256 * threads);
        Products { scratch: self.scratch.max(bytes.next_multiple_of(64)), ..self }
    }

    /// Runs each product on one thread, with up to `threads` products at the same time.
    pub(super) fn for_each_of(self, threads: usize) -> Products {
        Products { at_once: threads.max(1), ..self }
    }

    /// The bytes of scratch that all threads share.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.scratch * self.at_once
    }

    /// # Safety
    /// `scratch` is valid for [`Products::scratch_bytes`] bytes, aligned to 64, until the factorisation is done.
    pub(super) unsafe fn run_on<'a>(&'a self, pool: &'a ThreadPool, scratch: *mut u8) -> ProductRunner<'a> {
        ProductRunner { products: self, pool, scratch }
    }

    /// Plans the products of a Cholesky factorization if the matrix is large.
    pub(super) fn cholesky(dtype: DType, n: usize, threads: usize, isa: Isa) -> Option<Products> {
        let rows = MatrixLayout::row_major(n);
        let step =
            |b: Range<usize>| subtract_product(dtype, n - b.start, b.start, b.len(), rows, rows.transposed(), rows);
        if n < MIN_BLOCKED_SIZE {
            return None;
        }
        Products::of(blocks(n).skip(1).map(step), threads, isa)
    }

    /// Plans the products of a triangular solve if the matrix and the right-hand side are large.
    pub(super) fn solve(
        dtype: DType,
        op: TriangularSolve,
        n: usize,
        others: usize,
        threads: usize,
        isa: Isa,
    ) -> Option<Products> {
        if n < MIN_BLOCKED_SIZE || others < MIN_RIGHT_HAND_SIDES {
            return None;
        }
        let mut a = MatrixLayout::row_major(n);
        if op.transpose {
            a = a.transposed();
        }
        let b = MatrixLayout::row_major(if op.left { others } else { n });
        let mut all = vec![];
        solve_order(op, 0..n, &mut |turn| {
            if let SolveStep::Update { from, known } = turn {
                all.push(match op.left {
                    true => subtract_product(dtype, from.len(), known.len(), others, a, b, b),
                    false => subtract_product(dtype, others, known.len(), from.len(), b, a, b),
                });
            }
        });
        Products::of(all.into_iter(), threads, isa)
    }

    /// Plans the products of a QR factorization: two for each block of reflections that is applied to columns.
    pub(super) fn qr(dtype: DType, m: usize, n: usize, columns: usize, threads: usize, isa: Isa) -> Option<Products> {
        let apply = |b: &Range<usize>, width: usize, count: usize| {
            let (height, w) = (m - b.start, b.len());
            let (v, x, sums) =
                (MatrixLayout::row_major(w), MatrixLayout::row_major(width), MatrixLayout::row_major(count));
            let onto = OutputKind::Memory { dtype, layout: sums, accumulate: false };
            let (a, b) = (OperandSource::Memory(v.transposed()), OperandSource::Memory(x));
            let project = GemmProblem { a, b, c: onto, ..GemmProblem::new(w, height, count, dtype) };
            [project, subtract_product(dtype, height, w, count, v, sums, x)]
        };
        let steps = || blocks(m.min(n));
        let on_a = steps().filter(|b| b.end < n).flat_map(|b| apply(&b, n, n - b.end));
        let on_q = steps().collect::<Vec<_>>().into_iter().rev();
        let on_q = on_q.flat_map(|b| apply(&b, columns, columns - b.start));
        Products::of(on_a.chain(on_q), threads, isa)
    }
}

/// The number of work elements of a QR factorization in addition to the matrices:
/// a block of reflections, their products, and their factors.
pub(super) fn qr_work(m: usize, n: usize, columns: usize) -> usize {
    m * BLOCK + BLOCK * n.max(columns) + (m.min(n) + BLOCK) * BLOCK + m.max(n)
}

/// A step of a triangular solve: solving for a block of unknowns, or subtracting known unknowns from others.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SolveStep {
    Block(Range<usize>),
    Update { from: Range<usize>, known: Range<usize> },
}

/// Calls `f` with the steps of a solve, one half after the other, so that most of the work is in a few large products.
fn solve_order(op: TriangularSolve, unknowns: Range<usize>, f: &mut dyn FnMut(SolveStep)) {
    if unknowns.len() <= BLOCK {
        return f(SolveStep::Block(unknowns));
    }
    let half = (unknowns.len().div_ceil(BLOCK) / 2) * BLOCK;
    // On the left side, the first row of a lower triangular system is solved first; on the right side, the last column.
    let ascending = (op.lower != op.transpose) == op.left;
    let (known, from) = match ascending {
        true => (unknowns.start..unknowns.start + half, unknowns.start + half..unknowns.end),
        false => (unknowns.end - half..unknowns.end, unknowns.start..unknowns.end - half),
    };
    solve_order(op, known.clone(), f);
    f(SolveStep::Update { from: from.clone(), known });
    solve_order(op, from, f);
}

impl ProductRunner<'_> {
    /// The instruction set of the kernels.
    pub(super) fn isa(&self) -> Isa {
        self.products.isa
    }

    /// The scratch of one worker.
    pub(super) fn scratch_of(&self, worker: usize) -> *mut u8 {
        self.scratch.wrapping_add(worker * self.products.scratch)
    }

    /// Runs a product on the calling thread, for products planned with [`Products::for_each_of`].
    ///
    /// # Safety
    /// The operands and the result are as planned, and `scratch` is that thread's.
    pub(super) unsafe fn run_on_calling_thread(
        &self,
        plan: &GemmPlan,
        a: GemmOperand,
        b: GemmOperand,
        c: GemmOutput,
        scratch: *mut u8,
    ) {
        // SAFETY: operands and result are as planned, and `scratch` is that of this thread.
        unsafe { plan.run(self.pool, a, b, c, scratch) };
    }

    /// Calls `f` with the index of each thread that has work.
    pub(super) fn for_each_worker(&self, work: usize, f: &(dyn Fn(usize) + Sync)) {
        in_ranges(self.pool, self.products.at_once, work, &|_, worker| f(worker));
    }

    /// The plans of the products, in the order in which they were planned.
    pub(super) fn plans(&self) -> &[GemmPlan] {
        &self.products.plans
    }

    /// # Safety
    /// The addresses are those of elements (0, 0) of matrices as planned, of which the result overlaps no operand.
    pub(super) unsafe fn product<T: Real>(&self, plan: &GemmPlan, a: *const T, b: *const T, c: *mut T) {
        let (a, b) = (GemmOperand::Memory(a.cast()), GemmOperand::Memory(b.cast()));
        // SAFETY: operands and result are as planned and don't overlap, and the scratch was asked for with the plan.
        unsafe { plan.run(self.pool, a, b, GemmOutput::Memory(c.cast()), self.scratch) };
    }

    /// Computes a product `[m, k]·[k, n]` whose size was not known in advance; the matrices have the given row lengths.
    ///
    /// # Safety
    /// As for [`Running::product_any`].
    pub(super) unsafe fn product_of<T: Real>(
        &self,
        sizes: [usize; 3],
        (a, a_row): (*const T, usize),
        (b, b_row): (*const T, usize),
        c: (*mut T, usize),
    ) {
        let (a, b) = ((a, MatrixLayout::row_major(a_row)), (b, MatrixLayout::row_major(b_row)));
        // SAFETY: `product_any` has the contract of this function.
        unsafe { self.product_any(sizes, a, b, c, false) }
    }

    /// Computes a product `[m, k]·[k, n]` of matrices with any layouts, and writes the result to rows of the given length or
    /// subtracts it from them.
    ///
    /// # Safety
    /// As for [`Running::product`], with [`Products::with_any`] for the size.
    pub(super) unsafe fn product_any<T: Real>(
        &self,
        [m, k, n]: [usize; 3],
        (a, left): (*const T, MatrixLayout),
        (b, right): (*const T, MatrixLayout),
        (c, c_row): (*mut T, usize),
        minus: bool,
    ) {
        let onto = OutputKind::Memory { dtype: T::DTYPE, layout: MatrixLayout::row_major(c_row), accumulate: minus };
        let (left, right, alpha) =
            (OperandSource::Memory(left), OperandSource::Memory(right), if minus { -1.0 } else { 1.0 });
        let problem = GemmProblem { a: left, b: right, c: onto, alpha, ..GemmProblem::new(m, k, n, T::DTYPE) };
        // The scratch always suffices for one thread.
        for threads in [self.pool.threads(), 1] {
            if let Ok(plan) = GemmPlan::with_isa(&problem, threads, self.products.isa)
                && plan.scratch_bytes() <= self.products.scratch
            {
                // SAFETY: the addresses are those of matrices with these sizes and layouts, and the plan needs no more
                // than the scratch that was asked for.
                return unsafe { self.product(&plan, a, b, c) };
            }
        }
        unreachable!("scratch for any product was asked for");
    }

    /// [`lines::dots`], split over threads.
    #[inline(always)]
    pub(super) fn dots<T: Real>(&self, lines: &[T], step: usize, v: &[T], y: &mut [T]) {
        // Lines that are processed together stay in one range.
        let (units, count) = (y.len().div_ceil(lines::AT_ONCE), y.len());
        let (isa, to) = (self.products.isa, SharedPtr(y.as_mut_ptr()));
        in_ranges(self.pool, units, count * v.len() / MOVED, &|range: Range<usize>, _| {
            let (first, end) = (range.start * lines::AT_ONCE, (range.end * lines::AT_ONCE).min(count));
            // SAFETY: these elements are this range's.
            let y = unsafe { std::slice::from_raw_parts_mut(to.at(first), end - first) };
            lines::dots(isa, &lines[(first * step).min(lines.len())..], step, v, y);
        });
    }

    /// [`lines::combined`], split over threads.
    #[inline(always)]
    pub(super) fn combined<T: Real>(&self, lines: &[T], step: usize, u: &[T], x: &mut [T]) {
        const UNIT: usize = 16;
        let (units, count) = (x.len().div_ceil(UNIT), x.len());
        let (isa, to) = (self.products.isa, SharedPtr(x.as_mut_ptr()));
        in_ranges(self.pool, units, count * u.len() / MOVED, &|range: Range<usize>, _| {
            let (first, end) = (range.start * UNIT, (range.end * UNIT).min(count));
            // SAFETY: these elements are this range's.
            let x = unsafe { std::slice::from_raw_parts_mut(to.at(first), end - first) };
            lines::combined(isa, &lines[first.min(lines.len())..], step, u, x);
        });
    }

    /// Computes `y = A·v` for the rows and columns from `k` on of a symmetric matrix of order `n`,
    /// in pieces with partial sums in `room` ([`symmetric_scratch_elements`]).
    #[inline(always)]
    pub(super) fn symmetric_times<T: Real>(&self, a: &[T], n: usize, k: usize, v: &[T], y: &mut [T], room: &mut [T]) {
        let (isa, size) = (self.products.isa, n - k);
        let pieces = lines::symmetric_pieces(size);
        if pieces == 1 {
            return lines::symmetric_times(isa, a, n, k, 0..size, v, y);
        }
        debug_assert!(room.len() >= symmetric_scratch_elements(size));
        let sums = SharedPtr(room.as_mut_ptr());
        in_ranges(self.pool, pieces, size * size / (2 * MOVED), &|range: Range<usize>, _| {
            for piece in range {
                let rows = lines::symmetric_piece(size, piece);
                // SAFETY: the piece's own sums.
                let sums = unsafe { std::slice::from_raw_parts_mut(sums.at(piece * size), rows.end) };
                lines::symmetric_times(isa, a, n, k, rows, v, sums);
            }
        });
        y[..size].fill(T::ZERO);
        for piece in 0..pieces {
            let end = lines::symmetric_piece(size, piece).end;
            y.iter_mut().zip(&room[piece * size..][..end]).for_each(|(y, x)| *y += *x);
        }
    }

    /// Computes the lower factor in place of the lower triangle, with zeros above.
    #[inline(always)]
    pub(super) fn cholesky<T: Real>(&self, a: &mut [T], n: usize, room: &mut [T]) {
        let mut plans = self.products.plans.iter();
        for b in blocks(n) {
            if b.start > 0 {
                let p = a.as_mut_ptr();
                let left = p.wrapping_add(b.start * n);
                let plan = plans.next().expect("one for each block behind the first");
                // SAFETY: the operands are columns before the block, the result is the block.
                unsafe { self.product(plan, left, left, left.wrapping_add(b.start)) };
            }
            if !factor::cholesky_diagonal(a, n, &b) {
                return (0..n * n).for_each(|k| a[k] = if k / n >= k % n { T::NAN } else { T::ZERO });
            }
            self.cholesky_below_diagonal(a, n, b, room);
        }
    }

    /// Computes the rows of a lower factor below a diagonal block:
    /// a triangular solve with that block, on the transposed rows in `room`.
    #[inline(always)]
    fn cholesky_below_diagonal<T: Real>(&self, a: &mut [T], n: usize, b: Range<usize>, room: &mut [T]) {
        let (w, height) = (b.len(), n - b.end);
        debug_assert!(room.len() >= w * height);
        let (isa, a, room) = (self.products.isa, SharedPtr(a.as_mut_ptr()), SharedPtr(room.as_mut_ptr()));
        in_ranges(self.pool, height.div_ceil(SHARE), w * w * height / 8, &|range: Range<usize>, _| {
            let diagonal = a.at(b.start * (n + 1)).cast_const();
            let triangle = Triangle { diagonal, row: n, col: 1, count: w, unit: false, forward: true };
            for first in range.map(|unit| unit * SHARE) {
                let rows = SHARE.min(height - first);
                let (own, turned) = (a.at((b.end + first) * n + b.start), room.at(first * w));
                // SAFETY: these rows are this range's, and so is the room for as many.
                unsafe {
                    turned_from(isa, own, n, [rows, w], turned, rows);
                    lines::solve_strip(isa, triangle, turned, rows, rows);
                    turned_from(isa, turned, rows, [w, rows], own, n);
                }
            }
        });
    }

    /// Solves `op(A)·X = B` or `X·op(A) = B` in place of `B`.
    #[inline(always)]
    pub(super) fn solve<T: Real>(&self, op: TriangularSolve, a: &[T], n: usize, b: &mut [T], cols: usize) {
        let mut plans = self.products.plans.iter();
        let element = |row: usize, col: usize| if op.transpose { col * n + row } else { row * n + col };
        solve_order(op, 0..n, &mut |turn| match turn {
            SolveStep::Update { from, known } => {
                let (plan, to) = (plans.next().expect("one for each such turn"), b.as_mut_ptr());
                // SAFETY: the unknowns that are known and the others are different parts of B.
                unsafe {
                    if op.left {
                        let a = a.as_ptr().wrapping_add(element(from.start, known.start));
                        let x = to.wrapping_add(known.start * cols);
                        self.product(plan, a, x, to.wrapping_add(from.start * cols));
                    } else {
                        let a = a.as_ptr().wrapping_add(element(known.start, from.start));
                        self.product(plan, to.wrapping_add(known.start), a, to.wrapping_add(from.start));
                    }
                }
            }
            SolveStep::Block(block) if op.left => {
                let rows = b.as_mut_ptr().wrapping_add(block.start * cols);
                self.solve_strips(Triangle::of(op, a, n, block), rows, cols, cols);
            }
            SolveStep::Block(block) => factor::solve_right(op, a, n, block, b),
        });
    }

    /// Solves for some rows of `width` elements, `step` apart. Threads share the columns.
    #[inline(always)]
    fn solve_strips<T: Real>(&self, triangle: Triangle<T>, rows: *mut T, step: usize, width: usize) {
        let (isa, rows, triangle) = (self.products.isa, SharedPtr(rows), Fixed(triangle));
        let work = triangle.0.count * triangle.0.count * width / 8;
        let units = width.div_ceil(SHARE);
        in_ranges(self.pool, units, work, &|range: Range<usize>, _| {
            let triangle = &triangle;
            let columns = range.start * SHARE..(range.end * SHARE).min(width);
            lines::solve_strip::<T>(isa, triangle.0, rows.at(columns.start), step, columns.len());
        });
    }

    /// Computes `R` in the upper triangle of `a` and the first columns of `Q`.
    #[inline(always)]
    pub(super) fn qr<T: Real>(&self, a: &mut [T], m: usize, n: usize, q: &mut [T], columns: usize, work: &mut [T]) {
        let (tau, rest) = work.split_at_mut(m.max(n));
        let (v, rest) = rest.split_at_mut(m * BLOCK);
        let (factors, sums) = rest.split_at_mut((m.min(n) + BLOCK) * BLOCK);
        let steps = m.min(n);
        let mut plans = self.products.plans.chunks_exact(2);
        for (b, t) in blocks(steps).zip(factors.chunks_exact_mut(BLOCK * BLOCK)) {
            let (isa, height, at) = (self.products.isa, m - b.start, b.start * (n + 1));
            transpose_rows(isa, &a[at..], n, [height, b.len()], v, height);
            householder_panel::qr_block(isa, &mut v[..height * b.len()], height, &mut tau[b.clone()], t);
            transpose_rows(isa, v, height, [b.len(), height], &mut a[at..], n);
            if b.end < n {
                pack_reflectors(a, m, n, &b, v);
                let onto = a.as_mut_ptr().wrapping_add(b.start * n + b.end);
                // SAFETY: columns behind the block, `v` and `sums` are as planned.
                unsafe { self.reflect(plans.next(), v, t, true, b.len(), onto, n - b.end, sums) };
            }
        }
        q.fill(T::ZERO);
        (0..columns.min(m)).for_each(|i| q[i * columns + i] = T::ONE);
        let all = blocks(steps).zip(factors.chunks_exact(BLOCK * BLOCK));
        for (b, t) in all.collect::<smallvec::SmallVec<[_; 64]>>().into_iter().rev() {
            pack_reflectors(a, m, n, &b, v);
            let onto = q.as_mut_ptr().wrapping_add(b.start * columns + b.start);
            // SAFETY: as above, with the rows and columns of Q that the reflections touch.
            unsafe { self.reflect(plans.next(), v, t, false, b.len(), onto, columns - b.start, sums) };
        }
    }

    /// Computes the upper triangle `T` of the block reflector `H₀·H₁ ⋯ = 1 - V·T·Vᵀ`. The vectors are columns of `size` elements
    /// with the layout in `v`.
    #[inline(always)]
    pub(super) fn joint_factors<T: Real>(&self, v: (&[T], MatrixLayout), size: usize, tau: &[T], t: &mut [T]) {
        let (w, at) = (tau.len(), v.0.as_ptr());
        let t = &mut t[..w * w];
        // SAFETY: as many vectors of such a length, and room for their products.
        unsafe { self.product_any([w, size, w], (at, v.1.transposed()), (at, v.1), (t.as_mut_ptr(), w), false) };
        factor::joined(w, tau, t);
    }

    /// Computes `X -= V·op(T)·Vᵀ·X`.
    ///
    /// # Safety
    /// `onto` is the first element of X as planned.
    #[expect(clippy::too_many_arguments, reason = "a product of three matrices with their sizes")]
    #[inline(always)]
    pub(super) unsafe fn reflect<T: Real>(
        &self,
        plans: Option<&[GemmPlan]>,
        v: &[T],
        t: &[T],
        transpose: bool,
        w: usize,
        onto: *mut T,
        count: usize,
        sums: &mut [T],
    ) {
        let plans = plans.expect("two for each block of reflections");
        // SAFETY: `v` and `sums` are as planned, and `onto` is the first element of X.
        unsafe { self.product(&plans[0], v.as_ptr(), onto, sums.as_mut_ptr()) };
        factor::triangle_times(t, w, transpose, &mut sums[..w * count], count);
        // SAFETY: as above.
        unsafe { self.product(&plans[1], v.as_ptr(), sums.as_ptr(), onto) };
    }
}

/// Copies the vectors of a block of reflections side by side into `v`.
#[inline(always)]
pub(super) fn pack_reflectors<T: Real>(a: &[T], m: usize, n: usize, b: &Range<usize>, v: &mut [T]) {
    let w = b.len();
    for (i, row) in (b.start..m).zip(v.chunks_exact_mut(w)) {
        row.copy_from_slice(&a[i * n + b.start..i * n + b.end]);
        if i < b.end {
            row[i - b.start] = T::ONE;
            row[i - b.start + 1..].fill(T::ZERO);
        }
    }
}
