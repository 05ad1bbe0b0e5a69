//! Reduces large symmetric matrices to tridiagonal form, in blocks of columns.
//!
//! Inside a block, columns are updated one by one to find their reflections, and the rest of the matrix is represented by
//! the delayed update `A -= v·wᵀ + w·vᵀ`. After the block, one matrix product applies the update to the rest. Half of the work
//! is then symmetric matrix-vector products, which read one triangle, and half is matrix products.

use super::blocked::{
    BLOCK, ProductRunner, Products, blocks, pack_reflectors, subtract_product, symmetric_scratch_elements,
};
use super::{Real, axpy, dot, lines, sum_of_squares};
use crate::gemm::{GemmProblem, Isa, MatrixLayout, OperandSource, OutputKind};
use ir::DType;
use std::ops::Range;

/// The number of vectors `v` and `w` of a block, side by side.
const BOTH: usize = 2 * BLOCK;

/// The blocks of reflections of a matrix; the last two columns need none.
fn num_reflections(n: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    blocks(n.saturating_sub(2)).collect::<smallvec::SmallVec<[_; 64]>>().into_iter()
}

/// The number of work elements in addition to the matrix and its diagonals.
pub(super) fn work(n: usize) -> usize {
    2 * n * BOTH + 5 * n + 3 * n * BLOCK + BLOCK * BLOCK + BOTH + symmetric_scratch_elements(n)
}

impl Products {
    /// Plans the products of a reduction to tridiagonal form: one per block, then two per block of reflections.
    pub(super) fn tridiagonal(dtype: DType, n: usize, threads: usize, isa: Isa) -> Option<Products> {
        let (rows, both) = (MatrixLayout::row_major(n), MatrixLayout::row_major(BOTH));
        let update =
            |b: Range<usize>| subtract_product(dtype, n - b.end, BOTH, n - b.end, both, both.transposed(), rows);
        let apply = |b: Range<usize>| {
            let (size, w) = (n - 1 - b.start, b.len());
            let (v, sums) = (MatrixLayout::row_major(w), MatrixLayout::row_major(w));
            let onto = OutputKind::Memory { dtype, layout: sums, accumulate: false };
            let (a, b) = (OperandSource::Memory(rows), OperandSource::Memory(v));
            let project = GemmProblem { a, b, c: onto, ..GemmProblem::new(n, size, w, dtype) };
            [project, subtract_product(dtype, n, w, size, sums, v.transposed(), rows)]
        };
        let all =
            Products::of(num_reflections(n).map(update).chain(num_reflections(n).rev().flat_map(apply)), threads, isa)?;
        // The products of `tridiagonal_dc` have sizes that are only known when they run.
        Some(all.with_any(n, n * dtype.size(), threads))
    }
}

impl ProductRunner<'_> {
    /// Reduces a matrix with both triangles stored: writes the diagonal to `d`, the subdiagonal to `e[1..]`, leaves the vectors
    /// of the reflections in the matrix and their factors in `work`, for [`ProductRunner::back_transform`].
    #[inline(always)]
    pub(super) fn tridiagonal<T: Real>(&self, a: &mut [T], n: usize, d: &mut [f64], e: &mut [f64], work: &mut [T]) {
        let (tau, rest) = work.split_at_mut(n);
        let (p, rest) = rest.split_at_mut(n * BOTH);
        let (s, rest) = rest.split_at_mut(n * BOTH);
        let (x, rest) = rest.split_at_mut(n);
        let (y, rest) = rest.split_at_mut(n);
        let (less, rest) = rest.split_at_mut(n);
        let (along, room) = rest.split_at_mut(BOTH);
        let mut plans = self.plans().iter();
        e[0] = 0.0;
        for b in num_reflections(n) {
            p[b.start * BOTH..].fill(T::ZERO);
            s[b.start * BOTH..].fill(T::ZERO);
            for k in b.clone() {
                let t = k - b.start;
                // The number of vectors so far, rounded up to whole SIMD vectors.
                let there = (2 * t).next_multiple_of(8);
                // Update the row.
                let size = n - k;
                let own: [T; BOTH] = std::array::from_fn(|c| s[k * BOTH + c]);
                x[..size].copy_from_slice(&a[k * n + k..(k + 1) * n]);
                lines::dots(self.isa(), &p[k * BOTH..], BOTH, &own[..there], &mut y[..size]);
                x.iter_mut().zip(&y[..size]).for_each(|(x, y)| *x -= *y);
                d[k] = x[0].wide();
                let v = &mut x[1..size];
                let (first, factor) = reflection(v);
                (e[k + 1], tau[k]) = (first.wide(), factor);
                // The vector is stored below the diagonal.
                for (i, &v) in v.iter().enumerate().skip(1) {
                    a[(k + 1 + i) * n + k] = v;
                }
                let w = &mut y[..size - 1];
                self.symmetric_times(a, n, k + 1, v, w, room);
                let along = &mut along[..there];
                along.fill(T::ZERO);
                lines::combined(self.isa(), &s[(k + 1) * BOTH..], BOTH, v, along);
                let less = &mut less[..size - 1];
                lines::dots(self.isa(), &p[(k + 1) * BOTH..], BOTH, along, less);
                w.iter_mut().zip(&*less).for_each(|(w, less)| *w = tau[k] * (*w - *less));
                let half = T::of(-0.5) * tau[k] * dot(w, v);
                axpy(half, v, w);
                for (i, (&v, &w)) in v.iter().zip(&*w).enumerate() {
                    let at = (k + 1 + i) * BOTH + 2 * t;
                    (p[at], p[at + 1]) = (v, w);
                    (s[at], s[at + 1]) = (w, v);
                }
            }
            let plan = plans.next().expect("one for each block");
            let (at, place) = (b.end * BOTH, b.end * n + b.end);
            // SAFETY: both vectors of the block, and what is left of the matrix.
            unsafe {
                self.product(plan, p.as_ptr().add(at), s.as_ptr().add(at), a.as_mut_ptr().add(place));
            }
        }
        for k in n - 2..n {
            d[k] = a[k * n + k].wide();
        }
        e[n - 1] = a[(n - 1) * n + n - 2].wide();
    }

    /// Multiplies the rows `z` by the transposed transformation whose reflections [`ProductRunner::tridiagonal`] left in `a` and
    /// `work`.
    #[inline(always)]
    pub(super) fn back_transform<T: Real>(&self, a: &[T], n: usize, z: &mut [T], work: &mut [T]) {
        let (tau, rest) = work.split_at_mut(n);
        let (v, rest) = rest.split_at_mut(n * BLOCK);
        let (by, rest) = rest.split_at_mut(n * BLOCK);
        let (sums, factors) = rest.split_at_mut(n * BLOCK);
        let mut plans = self.plans()[num_reflections(n).count()..].chunks_exact(2);
        for b in num_reflections(n).rev() {
            let w = b.len();
            let size = n - 1 - b.start;
            pack_reflectors(&a[n..], n - 1, n, &b, v);
            let rows = MatrixLayout::row_major(w);
            self.joint_factors((&v[..size * w], rows), size, &tau[b.clone()], factors);
            // Z -= (Z·V)·(V·T)ᵀ
            // SAFETY: a block's vectors, their factors, and room for as many vectors.
            unsafe {
                let (v, factors) = ((v.as_ptr(), rows), (factors.as_ptr(), rows));
                self.product_any([size, w, w], v, factors, (by.as_mut_ptr(), w), false);
            }
            let plans = plans.next().expect("two for each block of reflections");
            let onto = z.as_mut_ptr().wrapping_add(b.start + 1);
            // SAFETY: columns that the reflections touch, `v`, `by` and `sums` are as planned.
            unsafe {
                self.product(&plans[0], onto, v.as_ptr(), sums.as_mut_ptr());
                self.product(&plans[1], sums.as_ptr(), by.as_ptr(), onto);
            }
        }
    }
}

/// Replaces `x` by the vector of a reflection `1 - tau·x·xᵀ` that maps it to a multiple of the first unit vector; the vector
/// starts with 1. Returns that multiple and tau. Elements that are negligible compared with those of the matrix, which are near
/// 1, count as zero, so that squares stay accurate.
#[inline(always)]
fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let below = sum_of_squares(&x[1..]);
    let alpha = x[0].wide();
    if below < 1e-250 {
        x.fill(T::ZERO);
        let first = T::of(alpha);
        x[0] = T::ONE;
        return (first, T::ZERO);
    }
    let beta = -(alpha * alpha + below).sqrt().copysign(alpha);
    let scale = 1.0 / (alpha - beta);
    x.iter_mut().for_each(|x| *x = T::of(x.wide() * scale));
    x[0] = T::ONE;
    (T::of(beta), T::of((beta - alpha) / beta))
}
