//! Factorizations of batches of matrices: the smallest in f64, other f32 matrices in f32, except for eigenvalues and singular
//! values. Cholesky and LU factors of small matrices are computed with one matrix per SIMD lane ([`batched_small`]).
//!
//! The algorithms are the classical ones, written so that inner loops run along rows. Large matrices are split into blocks,
//! and almost all of the work is products of blocks.
//! (The `faer` crate is not used: it takes more than two minutes to build.)

#[cfg(target_arch = "x86_64")]
mod batched_small;
mod bidiagonal;
mod bidiagonal_dc;
mod blocked;
mod delayed_givens;
mod dqds;
mod factor;
mod householder_panel;
mod lines;
mod lookahead_lu;
mod panel_lu;
mod real;
mod secular_equation;
mod spectral;
mod tall_skinny_svd;
mod tridiagonal;
mod tridiagonal_dc;

use super::rearrange::{Axis, tiles};
use super::{CpuContext, OpRoutine, PORTABLE, Pointers, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use blocked::{ProductRunner, Products};
use compiler::Result;

use ir::ops::{Eigh, Qr, Svd, TriangularSolve};
use ir::{DType, Op, Type};
use lines::Triangle;
use real::Real;
use std::marker::PhantomData;
use std::ops::Range;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new("linalg.least", blocked::MIN_BLOCKED_SIZE, "order of a matrix: from here it is cut into blocks"),
        Threshold::new(
            "linalg.vectors",
            blocked::VECTORS,
            "order of few f32 matrices whose vectors are wanted: from here they are cut into blocks",
        ),
        Threshold::new(
            "linalg.singular",
            spectral::SINGULAR,
            "columns: from here singular values come from two diagonals",
        ),
        Threshold::new(
            "linalg.strip",
            delayed_givens::STRIP,
            "columns of vectors: beyond, rotations go through several strips",
        ),
        Threshold::new("linalg.tall", blocked::TALL, "elements of a tall matrix: from here its QR is cut into blocks"),
        Threshold::new(
            "linalg.few",
            FEW,
            "matrices: more that are tall, or have singular values, are not cut into blocks",
        ),
        Threshold::new(
            "linalg.slender",
            tall_skinny_svd::MIN_ASPECT_RATIO,
            "rows by columns: from here singular vectors come from a QR factorisation's",
        ),
        Threshold::new(
            "linalg.slender_columns",
            tall_skinny_svd::COLUMNS,
            "columns of a slender matrix: from here singular vectors come from a QR factorisation's",
        ),
        Threshold::new(
            "linalg.slender_times",
            tall_skinny_svd::MANY_TIMES,
            "rows by columns of a slender matrix of few columns: from here singular vectors come from a QR factorisation's",
        ),
        Threshold::new("linalg.own", OWN, "elements of an f32 matrix: from here it is factored in f32"),
        #[cfg(target_arch = "x86_64")]
        Threshold::new(
            "linalg.abreast",
            batched_small::MAX_BATCHED_SIZE,
            "order of a matrix: up to here a batch has one in each lane",
        ),
        Threshold::new(
            "linalg.pieces",
            2 * lines::PIECE,
            "order of what is left of a symmetric matrix: from here it is multiplied in pieces",
        ),
        Threshold::new("linalg.high", factor::HIGH, "rows by columns: from here an LU factorisation goes down columns"),
        Threshold::new(
            "linalg.others",
            blocked::MIN_RIGHT_HAND_SIDES,
            "right-hand sides: from here a solution is cut into blocks",
        ),
    ]
}

/// The maximum number of tall matrices that are factored in blocks by all threads one after another;
/// larger batches use one thread per matrix.
const FEW: usize = 4;
/// The minimum number of elements of a matrix that is factored in its own dtype without iterations. Smaller matrices gain nothing.
const OWN: usize = 400;
/// The maximum number of rows whose indices f32 represents exactly.
const NUMBERED: usize = 1 << 24;

/// The kind of a factorization.
#[derive(Clone, Copy)]
enum FactorizationKind {
    Cholesky,
    Solve(TriangularSolve),
    Lu,
    Qr { columns: usize },
    Eigh,
    Svd { vectors: bool },
}

/// The number of rows and columns.
type Size = (usize, usize);

struct Factorisation<T> {
    kind: FactorizationKind,
    dtype: DType,
    /// The sizes of the operands' and results' matrices.
    args: Vec<Size>,
    outs: Vec<Size>,
    batch: usize,
    /// The number of scratch elements of each worker.
    each: usize,
    threads: usize,
    isa: Isa,
    /// The matrix products of a large matrix.
    products: Option<Products>,
    elements: PhantomData<fn() -> T>,
}

/// The threads that work on one matrix.
#[derive(Clone, Copy)]
struct Workers<'a> {
    isa: Isa,
    /// `None` where each thread has its own matrices.
    pool: Option<&'a ThreadPool>,
}

/// A matrix of the batch: its operands and results, and the context of its products if it is large.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    args: &'a [*const u8],
    outs: &'a [*mut u8],
    index: usize,
    running: Option<ProductRunner<'a>>,
    pool: Option<&'a ThreadPool>,
}

/// Returns the routine of a factorization.
pub(super) fn prepare(op: &Op, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    if machine.isa == Isa::Portable && !PORTABLE {
        return None;
    }
    let a = &args[0];
    let [.., m, n] = *a.shape else { return None };
    if let Op::Svd(Svd { vectors: true }) = op
        && let Some(routine) = tall_skinny_svd::prepare(args, machine)
    {
        return Some(routine);
    }
    let kind = match op {
        Op::Cholesky(_) => FactorizationKind::Cholesky,
        Op::TriangularSolve(t) => FactorizationKind::Solve(*t),
        Op::Lu(_) => FactorizationKind::Lu,
        Op::Qr(Qr { full }) => FactorizationKind::Qr { columns: if *full { m } else { m.min(n) } },
        Op::Eigh(Eigh) => FactorizationKind::Eigh,
        Op::Svd(Svd { vectors }) => FactorizationKind::Svd { vectors: *vectors },
        _ => return None,
    };
    let batch: usize = a.shape[..a.rank() - 2].iter().product();
    #[cfg(target_arch = "x86_64")]
    if let Some(routine) = batched_small::prepare(kind, a, batch, machine) {
        return Some(routine);
    }
    let size = |t: &Type| {
        let own = &t.shape[a.rank() - 2..];
        (own[0], own.get(1).copied().unwrap_or(1))
    };
    let (args, outs): (Vec<Size>, Vec<Size>) = (args.iter().map(size).collect(), outs.iter().map(size).collect());
    // Where products are most of the work, they use the matrix's own dtype.
    let vectors = matches!(
        kind,
        FactorizationKind::Eigh | FactorizationKind::Qr { .. } | FactorizationKind::Svd { vectors: true }
    );
    let few = vectors && batch <= FEW && m.min(n) >= blocked::VECTORS;
    let large = few || m.min(n) >= blocked::MIN_BLOCKED_SIZE;
    let tall = matches!(kind, FactorizationKind::Qr { .. })
        && batch <= FEW
        && m.min(n) >= blocked::BLOCK
        && m * n >= blocked::TALL;
    let direct = !matches!(kind, FactorizationKind::Eigh | FactorizationKind::Svd { .. }) && m * n >= OWN;
    let own = a.dtype == DType::F32 && (large || tall || direct) && m <= NUMBERED;
    let sizes = Sizes { kind, batch, args, outs, large, tall };
    Some(if own {
        Box::new(factorisation::<f32>(a.dtype, sizes, machine))
    } else {
        Box::new(factorisation::<f64>(a.dtype, sizes, machine))
    })
}

/// The sizes of the operand of a factorization.
struct Sizes {
    kind: FactorizationKind,
    batch: usize,
    args: Vec<Size>,
    outs: Vec<Size>,
    large: bool,
    tall: bool,
}

fn factorisation<T: Real>(dtype: DType, sizes: Sizes, machine: CpuContext) -> Factorisation<T> {
    let Sizes { kind, batch, args, outs, large, tall } = sizes;
    let ((m, n), own) = (args[0], T::DTYPE);
    let most = m.max(n);
    let (threads, isa) = (machine.threads, machine.isa);
    let products = match kind {
        FactorizationKind::Cholesky => Products::cholesky(own, n, threads, isa),
        FactorizationKind::Solve(op) => {
            let (rows, cols) = args[1];
            Products::solve(own, op, n, if op.left { cols } else { rows }, threads, isa)
        }
        FactorizationKind::Lu if m.min(n) >= blocked::MIN_BLOCKED_SIZE => Products::lu(own, m, n, threads, isa),
        FactorizationKind::Lu => None,
        FactorizationKind::Qr { columns } if large || tall => Products::qr(own, m, n, columns, threads, isa),
        FactorizationKind::Eigh if large => Products::tridiagonal(own, n, threads, isa),
        FactorizationKind::Svd { .. } if large && batch <= FEW => Some(Products::any(own, most, threads, isa)),
        FactorizationKind::Qr { .. } | FactorizationKind::Eigh | FactorizationKind::Svd { .. } => None,
    };
    let each = match kind {
        FactorizationKind::Cholesky => n * n + if products.is_some() { n * blocked::BLOCK } else { 0 },
        FactorizationKind::Solve(_) => n * n + args[1].0 * args[1].1,
        FactorizationKind::Lu => {
            m * n + m + if products.is_some() { m * blocked::BLOCK } else { (m + 1) * m.min(n) + 2 }
        }
        FactorizationKind::Qr { columns } => {
            let own = if products.is_some() { blocked::qr_work(m, n, columns) } else { 3 * most + m * m.min(n) };
            m * n + m * columns + own
        }
        FactorizationKind::Eigh => n * n + n + spectral::eigh_scratch_elements(n, products.is_some()),
        FactorizationKind::Svd { .. } => {
            let short = m.min(n);
            2 * m * n
                + most * short
                + short * short
                + 2 * most
                + bidiagonal::scratch_elements(most, short, products.is_some())
        }
    };
    Factorisation {
        kind,
        dtype,
        args,
        outs,
        batch,
        each: each.next_multiple_of(16),
        threads,
        isa,
        products,
        elements: PhantomData,
    }
}

impl<T: Real> Factorisation<T> {
    /// Reads matrix `index` of an operand.
    ///
    /// # Safety
    /// `p` is valid for all matrices of the batch.
    #[inline(always)]
    unsafe fn read(&self, p: *const u8, index: usize, to: &mut [T]) {
        let n = to.len();
        // SAFETY: the operand is valid for all matrices of the batch.
        unsafe {
            if self.dtype == T::DTYPE {
                return std::ptr::copy_nonoverlapping(p.cast::<T>().add(index * n), to.as_mut_ptr(), n);
            }
            let from = p.cast::<f32>().add(index * n);
            to.iter_mut().enumerate().for_each(|(i, x)| *x = T::of(*from.add(i) as f64));
        }
    }

    /// Writes matrix `index` of a result.
    ///
    /// # Safety
    /// `p` is valid for all matrices of the batch, and only this call writes matrix `index`.
    #[inline(always)]
    unsafe fn write(&self, p: *mut u8, index: usize, n: usize, mut x: impl FnMut(usize) -> T) {
        // SAFETY: the result is valid for all matrices of the batch.
        unsafe {
            if self.dtype == T::DTYPE {
                let to = p.cast::<T>().add(index * n);
                return (0..n).for_each(|i| *to.add(i) = x(i));
            }
            let to = p.cast::<f32>().add(index * n);
            (0..n).for_each(|i| *to.add(i) = x(i).wide() as f32);
        }
    }

    /// Factors one matrix of the batch with the machine's vector instructions.
    ///
    /// # Safety
    /// Operands and results are those of the op, and nothing else writes those of this matrix.
    unsafe fn one(&self, matrix: Matrix<'_>, work: &mut [T]) {
        // SAFETY: operands and results are those of the op, nothing else writes those of this matrix, and the machine
        // has the instruction set.
        unsafe {
            match self.isa {
                // Functions that gain from longer vectors (products, reflections, lines) select them themselves.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::Avx512 => self.one_avx2(matrix, work),
                _ if PORTABLE => self.one_inline(matrix, work),
                _ => unreachable!("such a machine's are the interpreter's"),
            }
        }
    }

    /// # Safety
    /// Operands and results are those of the op, and nothing else writes those of this matrix.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn one_avx2(&self, matrix: Matrix<'_>, work: &mut [T]) {
        // SAFETY: operands and results are those of the op, and nothing else writes those of this matrix.
        unsafe { self.one_inline(matrix, work) }
    }

    /// # Safety
    /// Operands and results are those of the op, and only this call accesses this matrix of the results.
    #[inline(always)]
    unsafe fn one_inline(&self, matrix: Matrix<'_>, work: &mut [T]) {
        let Matrix { args, outs, index, running, pool } = matrix;
        let workers = Workers { isa: self.isa, pool };
        let (m, n) = self.args[0];
        let (a, rest) = work.split_at_mut(m * n);
        // SAFETY: operands and results are those of the op, and only this call accesses this matrix of the results.
        unsafe {
            self.read(args[0], index, a);
            match self.kind {
                FactorizationKind::Cholesky => {
                    match running {
                        Some(large) => large.cholesky(a, n, rest),
                        None => factor::cholesky(a, n),
                    }
                    self.write(outs[0], index, n * n, |i| a[i]);
                }
                FactorizationKind::Solve(op) => {
                    let (rows, cols) = self.args[1];
                    let b = &mut rest[..rows * cols];
                    self.read(args[1], index, b);
                    match running {
                        Some(large) => large.solve(op, a, n, b, cols),
                        None if op.left && n * n >= OWN => {
                            let triangle = Triangle::of(op, a, n, 0..n);
                            lines::solve_strip(self.isa, triangle, b.as_mut_ptr(), cols, cols);
                        }
                        None if op.left => factor::solve_left(op, a, n, 0..n, b, cols),
                        None => factor::solve_right(op, a, n, 0..n, b),
                    }
                    self.write(outs[0], index, rows * cols, |i| b[i]);
                }
                FactorizationKind::Lu => {
                    let (permutation, room) = rest.split_at_mut(m);
                    let pivots = outs[1].cast::<i32>().add(index * m.min(n));
                    let pivot = |k: usize, p: usize| *pivots.add(k) = p as i32;
                    match running {
                        Some(large) => large.lu(a, m, n, permutation, pivot, room),
                        None => factor::lu(self.isa, a, m, n, permutation, pivot, room),
                    }
                    self.write(outs[0], index, m * n, |i| a[i]);
                    let to = outs[2].cast::<i32>().add(index * m);
                    permutation.iter().enumerate().for_each(|(i, &p)| *to.add(i) = p.wide() as i32);
                }
                FactorizationKind::Qr { columns } => {
                    let (q, rest) = rest.split_at_mut(m * columns);
                    match running {
                        Some(large) => large.qr(a, m, n, q, columns, rest),
                        None => factor::qr(self.isa, a, m, n, q, columns, rest),
                    }
                    self.write(outs[0], index, m * columns, |i| q[i]);
                    let (rows, cols) = self.outs[1];
                    (1..rows).for_each(|i| a[i * cols..i * cols + i.min(cols)].fill(T::ZERO));
                    self.write(outs[1], index, rows * cols, |i| a[i]);
                }
                FactorizationKind::Eigh => {
                    let (d, room) = rest.split_at_mut(n);
                    spectral::eigh(a, n, d, room, workers, running);
                    self.write(outs[0], index, n, |i| d[i]);
                    self.write(outs[1], index, n * n, |i| a[i]);
                }
                FactorizationKind::Svd { vectors } => self.svd(outs, index, a, rest, vectors, workers, running),
            }
        }
    }

    /// Computes the SVD of the matrix, or of its transpose where that is the tall one. Columns are stored as rows.
    ///
    /// # Safety
    /// The results are those of the op, and only this call accesses matrix `index` of them.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a matrix, where it goes, and how")]
    unsafe fn svd(
        &self,
        outs: &[*mut u8],
        index: usize,
        a: &mut [T],
        rest: &mut [T],
        vectors: bool,
        workers: Workers<'_>,
        running: Option<ProductRunner<'_>>,
    ) {
        let (m, n) = self.args[0];
        let (tall, short) = (m.max(n), m.min(n));
        let (columns, rest) = rest.split_at_mut(m * n);
        match m >= n {
            true => transpose_rows(self.isa, a, n, [m, n], columns, m),
            false => columns.copy_from_slice(a),
        }
        let (v, rest) = rest.split_at_mut(short * short);
        let (s, room) = rest.split_at_mut(short);
        spectral::svd(columns, tall, short, v, s, room, vectors, workers, running);
        // SAFETY: as in `one`.
        unsafe {
            if !vectors {
                return self.write(outs[0], index, short, |i| s[i]);
            }
            self.write(outs[1], index, short, |i| s[i]);
            // Rows of `columns` and of `v` are singular vectors of the tall matrix;
            // the left ones are written as columns in place of the matrix.
            let (left, right) = if m >= n { (&*columns, &*v) } else { (&*v, &*columns) };
            transpose_rows(self.isa, left, m, [short, m], a, short);
            self.write(outs[0], index, m * short, |i| a[i]);
            self.write(outs[2], index, short * n, |i| right[i]);
        }
    }
}

impl<T: Real> OpRoutine for Factorisation<T> {
    fn scratch_bytes(&self) -> usize {
        self.each * size_of::<T>() * self.threads + self.products.as_ref().map_or(0, Products::scratch_bytes)
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let scratch = SharedPtr(scratch.cast::<T>());
        if let Some(products) = &self.products {
            // SAFETY: the scratch behind that of the workers is the products'; matrices come one after the other.
            unsafe {
                let running = products.run_on(pool, scratch.at(self.each * self.threads).cast());
                let work = std::slice::from_raw_parts_mut(scratch.at(0), self.each);
                let pool = Some(pool);
                for index in 0..self.batch {
                    self.one(Matrix { args, outs, index, running: Some(running), pool }, work);
                }
            }
            return Ok(());
        }
        // For few large matrices, all threads work on each of them.
        if matches!(self.kind, FactorizationKind::Eigh | FactorizationKind::Svd { .. })
            && self.batch < pool.threads()
            && self.args[0].0.min(self.args[0].1) >= blocked::MIN_BLOCKED_SIZE
        {
            // SAFETY: the first worker's scratch.
            unsafe {
                let work = std::slice::from_raw_parts_mut(scratch.at(0), self.each);
                for index in 0..self.batch {
                    self.one(Matrix { args, outs, index, running: None, pool: Some(pool) }, work);
                }
            }
            return Ok(());
        }
        let (args, outs) = (Pointers(args), Pointers(outs));
        in_ranges(pool, self.batch, self.batch * self.each * 16, &|range: Range<usize>, worker| {
            // SAFETY: each worker has its own scratch and its own matrices.
            unsafe {
                let work = std::slice::from_raw_parts_mut(scratch.at(worker * self.each), self.each);
                let (args, outs) = (args.get(), outs.get());
                range.for_each(|index| self.one(Matrix { args, outs, index, running: None, pool: None }, work));
            }
        });
        Ok(())
    }
}

/// Transposes `[rows, cols]`, whose rows are `x_row` apart, to `[cols, rows]`, whose rows are `y_row` apart.
fn transpose_rows<T: Real>(isa: Isa, x: &[T], x_row: usize, sizes: [usize; 2], y: &mut [T], y_row: usize) {
    let [rows, cols] = sizes;
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(x.len() >= (rows - 1) * x_row + cols && y.len() >= (cols - 1) * y_row + rows);
    // SAFETY: both are as large.
    unsafe { turned_from(isa, x.as_ptr(), x_row, sizes, y.as_mut_ptr(), y_row) };
}

/// Transposes a matrix between raw pointers.
///
/// # Safety
/// `x` and `y` are valid for `rows · cols` elements at their strides, and nothing else accesses those of `y`.
unsafe fn turned_from<T: Real>(isa: Isa, x: *const T, x_row: usize, [rows, cols]: [usize; 2], y: *mut T, y_row: usize) {
    let d = Axis { size: rows, from: x_row as isize, to: 1 };
    let s = Axis { size: cols, from: 1, to: y_row as isize };
    // SAFETY: `x` and `y` are valid for `rows · cols` elements at their strides, nothing else accesses those of `y`,
    // and the machine has `isa`.
    unsafe { tiles::transpose(x.cast::<T::Bits>(), y.cast::<T::Bits>(), d, s, 0..cols, isa) };
}

/// Computes `y += f·x`.
#[inline(always)]
fn axpy<T: Real>(f: T, x: &[T], y: &mut [T]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += f * *x;
    }
}

/// Returns the dot product, with sixteen accumulators.
#[inline(always)]
fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    const L: usize = 16;
    let mut sums = [T::ZERO; L];
    let (xs, ys) = (x.chunks_exact(L), y.chunks_exact(L));
    let rest: T = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| *a * *b).sum();
    for (x, y) in xs.zip(ys) {
        for i in 0..L {
            sums[i] += x[i] * y[i];
        }
    }
    let mut width = L / 2;
    while width > 0 {
        (0..width).for_each(|i| sums[i] = sums[i] + sums[i + width]);
        width /= 2;
    }
    sums[0] + rest
}

/// Returns the sum of squares in f64.
#[inline(always)]
fn sum_of_squares<T: Real>(x: &[T]) -> f64 {
    const L: usize = 16;
    let mut sums = [0.0; L];
    let xs = x.chunks_exact(L);
    let rest: f64 = xs.remainder().iter().map(|x| x.wide() * x.wide()).sum();
    for x in xs {
        for i in 0..L {
            let x = x[i].wide();
            sums[i] += x * x;
        }
    }
    sums.iter().sum::<f64>() + rest
}
