//! Large symmetric matrices to three diagonals, by blocks of columns.
//!
//! Inside a block, reflections are found from columns that are brought up to date one by one, and act on the rest of the matrix only
//! through the vectors `v` and `w` of `A -= v·wᵀ + w·vᵀ`; behind it, one product takes them all off the rest. Half of the work
//! is then products of the matrix with vectors, which read one triangle of it, and half products of matrices.

use super::blocked::{BLOCK, LEAST, Products, Running, blocks, minus, reflections};
use super::{axpy, dot};
use crate::gemm::{Isa, Layout, Source, Target};
use ir::DType;
use std::ops::Range;

/// Both vectors of each column of a block, side by side.
const BOTH: usize = 2 * BLOCK;

/// Reflections of a matrix: the last two columns need none.
fn reflected(n: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    blocks(n.saturating_sub(2)).collect::<smallvec::SmallVec<[_; 64]>>().into_iter()
}

/// f64 of work beside the matrix and its diagonals.
pub(super) fn work(n: usize) -> usize {
    n * n + 2 * n * BOTH + 4 * n + 2 * n * BLOCK + BLOCK * BLOCK + BOTH
}

impl Products {
    /// Those of a reduction to three diagonals, if the matrix is large: one for each block, then two for each block of
    /// reflections.
    pub(super) fn tridiagonal(n: usize, threads: usize, isa: Isa) -> Option<Products> {
        if n < LEAST {
            return None;
        }
        let (rows, both) = (Layout::row_major(n), Layout::row_major(BOTH));
        let update = |b: Range<usize>| minus(n - b.end, BOTH, n - b.end, both, both.transposed(), rows);
        let apply = |b: Range<usize>| {
            let (size, w) = (n - 1 - b.start, b.len());
            let (v, sums) = (Layout::row_major(w), Layout::row_major(size));
            let onto = Target::Memory { dtype: DType::F64, layout: sums, accumulate: false };
            let (a, b) = (Source::Memory(v.transposed()), Source::Memory(rows));
            let project =
                crate::gemm::Problem { a, b, c: onto, ..crate::gemm::Problem::new(w, size, size, DType::F64) };
            [project, minus(size, w, size, v, sums, rows)]
        };
        Products::of(reflected(n).map(update).chain(reflected(n).rev().flat_map(apply)), threads, isa)
    }
}

/// `y = A·v` for the rows and columns from `k` on, from the lower triangle.
#[inline(always)]
fn symmetric_times(a: &[f64], n: usize, k: usize, v: &[f64], y: &mut [f64]) {
    const ROWS: usize = 4;
    const LINES: usize = 8;
    let size = n - k;
    y[..size].fill(0.0);
    let row = |i: usize| &a[(k + i) * n + k..(k + i) * n + k + i + 1];
    let whole = size / ROWS * ROWS;
    for i in (0..whole).step_by(ROWS) {
        let rows: [&[f64]; ROWS] = std::array::from_fn(|r| row(i + r));
        let f: [f64; ROWS] = std::array::from_fn(|r| v[i + r]);
        let mut sums = [[0.0; LINES]; ROWS];
        let wide = i / LINES * LINES;
        for c in (0..wide).step_by(LINES) {
            let mut to: [f64; LINES] = std::array::from_fn(|l| y[c + l]);
            let x: [f64; LINES] = std::array::from_fn(|l| v[c + l]);
            for r in 0..ROWS {
                let line: &[f64; LINES] = rows[r][c..c + LINES].try_into().expect("so many lanes");
                for l in 0..LINES {
                    to[l] += f[r] * line[l];
                    sums[r][l] += x[l] * line[l];
                }
            }
            y[c..c + LINES].copy_from_slice(&to);
        }
        for r in 0..ROWS {
            let mut sum: f64 = sums[r].iter().sum();
            for c in wide..i + r {
                y[c] += f[r] * rows[r][c];
                sum += v[c] * rows[r][c];
            }
            y[i + r] += sum + f[r] * rows[r][i + r];
        }
    }
    for i in whole..size {
        let line = row(i);
        axpy(v[i], &line[..i], &mut y[..i]);
        y[i] += dot(&line[..i], &v[..i]) + v[i] * line[i];
    }
}

impl Running<'_> {
    /// Diagonal to `d`, subdiagonal to `e[1..]`; the matrix, both of whose triangles are there, becomes the transposed
    /// transformation.
    #[inline(always)]
    pub(super) fn tridiagonal(&self, a: &mut [f64], n: usize, d: &mut [f64], e: &mut [f64], work: &mut [f64]) {
        let (q, rest) = work.split_at_mut(n * n);
        let (p, rest) = rest.split_at_mut(n * BOTH);
        let (s, rest) = rest.split_at_mut(n * BOTH);
        let (tau, rest) = rest.split_at_mut(n);
        let (x, rest) = rest.split_at_mut(n);
        let (y, rest) = rest.split_at_mut(n);
        let (along, rest) = rest.split_at_mut(BOTH);
        let mut plans = self.plans().iter();
        e[0] = 0.0;
        for b in reflected(n) {
            p[b.start * BOTH..].fill(0.0);
            s[b.start * BOTH..].fill(0.0);
            for k in b.clone() {
                let t = k - b.start;
                // The row, brought up to date.
                let size = n - k;
                let own: [f64; BOTH] = std::array::from_fn(|c| s[k * BOTH + c]);
                for i in 0..size {
                    let line = &p[(k + i) * BOTH..(k + i + 1) * BOTH];
                    x[i] = a[k * n + k + i] - dot(line, &own);
                }
                d[k] = x[0];
                let v = &mut x[1..size];
                (e[k + 1], tau[k]) = reflection(v);
                // The vector stays below the diagonal.
                for (i, &v) in v.iter().enumerate().skip(1) {
                    a[(k + 1 + i) * n + k] = v;
                }
                let w = &mut y[..size - 1];
                symmetric_times(a, n, k + 1, v, w);
                along.fill(0.0);
                for (i, &f) in v.iter().enumerate() {
                    axpy(f, &s[(k + 1 + i) * BOTH..(k + 2 + i) * BOTH], along);
                }
                for (i, w) in w.iter_mut().enumerate() {
                    *w = tau[k] * (*w - dot(&p[(k + 1 + i) * BOTH..(k + 2 + i) * BOTH], along));
                }
                let half = -0.5 * tau[k] * dot(w, v);
                axpy(half, v, w);
                for (i, (&v, &w)) in v.iter().zip(&*w).enumerate() {
                    let at = (k + 1 + i) * BOTH + t;
                    (p[at], p[at + BLOCK]) = (v, w);
                    (s[at], s[at + BLOCK]) = (w, v);
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
            d[k] = a[k * n + k];
        }
        e[n - 1] = a[(n - 1) * n + n - 2];
        q.fill(0.0);
        (0..n).for_each(|i| q[i * n + i] = 1.0);
        let (v, rest) = rest.split_at_mut(n * BLOCK);
        let (factors, sums) = rest.split_at_mut(BLOCK * BLOCK);
        let mut plans = plans.as_slice().chunks_exact(2);
        for b in reflected(n).rev() {
            reflections(&a[n..], n - 1, n, &b, tau, v, factors);
            let onto = q.as_mut_ptr().wrapping_add((b.start + 1) * (n + 1));
            // SAFETY: rows and columns that the reflections touch, `v` and `sums` are as planned.
            unsafe { self.reflect(plans.next(), v, factors, false, b.len(), onto, n - 1 - b.start, sums) };
        }
        for i in 0..n {
            (0..n).for_each(|j| a[j * n + i] = q[i * n + j]);
        }
    }
}

/// Turns `x` into the vector of a reflection `1 - tau·x·xᵀ` that leaves only its first element, 1 in front: that element, and tau.
#[inline(always)]
fn reflection(x: &mut [f64]) -> (f64, f64) {
    let below = dot(&x[1..], &x[1..]);
    let alpha = x[0];
    if below == 0.0 {
        x.fill(0.0);
        x[0] = 1.0;
        return (alpha, 0.0);
    }
    let beta = -(alpha * alpha + below).sqrt().copysign(alpha);
    let scale = 1.0 / (alpha - beta);
    x.iter_mut().for_each(|x| *x *= scale);
    x[0] = 1.0;
    (beta, (beta - alpha) / beta)
}
