//! Cholesky, triangular solves, LU and QR of row-major matrices: complete small matrices, and the blocks of large ones.
//!
//! Everything here is inlined into functions that are compiled for the machine's instruction set (see `super::one`).

use super::blocked::BLOCK;
use super::tridiagonal_dc::split_as;
use super::{Real, axpy, dot, lines, panel_lu, sum_of_squares, transpose_rows};
use crate::gemm::Isa;
use crate::library::SharedPtr;
use ir::ops::TriangularSolve;
use std::ops::Range;

/// The number of columns of an LU factorization that are eliminated one by one before the rest of their block is updated, and the
/// number of rows of a Cholesky factor that are computed together.
const NARROW: usize = 8;

/// The ratio of rows to columns from which the LU factorization of a matrix works on transposed columns.
pub(super) const HIGH: usize = 2;

/// Computes the lower factor in place of the lower triangle, with zeros above.
/// The lower triangle is NaN where the matrix is not positive definite.
#[inline(always)]
pub(super) fn cholesky<T: Real>(a: &mut [T], n: usize) {
    let panel = |from: usize| {
        let columns = from..(from + BLOCK).min(n);
        less_known(a, n, columns.clone());
        cholesky_panel(a, n, columns)
    };
    if !(0..n).step_by(BLOCK).all(panel) {
        (0..n * n).for_each(|k| a[k] = if k / n >= k % n { T::NAN } else { T::ZERO });
    }
}

/// Subtracts the products of the columns to the left from a block of columns of the lower factor, one row at a time.
#[inline(always)]
fn less_known<T: Real>(a: &mut [T], n: usize, columns: Range<usize>) {
    let (from, w) = (columns.start, columns.len());
    // The block's own rows, transposed, for one block of known columns at a time.
    let mut turned = [[T::ZERO; BLOCK]; BLOCK];
    for known in (0..from).step_by(BLOCK) {
        for (k, line) in turned.iter_mut().enumerate() {
            (0..w).for_each(|j| line[j] = a[(from + j) * n + known + k]);
        }
        for row in a[from * n..].chunks_exact_mut(n) {
            let mut sums = [T::ZERO; BLOCK];
            for (x, line) in row[known..known + BLOCK].iter().zip(&turned) {
                for j in 0..BLOCK {
                    sums[j] += *x * line[j];
                }
            }
            row[columns.clone()].iter_mut().zip(sums).for_each(|(x, sum)| *x -= sum);
        }
    }
}

/// Computes the rows of the lower factor on the diagonal block of `columns`, from which the columns to the left were already
/// subtracted, with zeros to the right of the diagonal. Returns whether the block is positive definite.
#[inline(always)]
pub(super) fn cholesky_diagonal<T: Real>(a: &mut [T], n: usize, columns: &Range<usize>) -> bool {
    let done = match columns.len().div_ceil(NARROW) {
        0..=1 => cholesky_block::<T, NARROW>(a, n, columns),
        2 => cholesky_block::<T, { 2 * NARROW }>(a, n, columns),
        _ if columns.len() <= BLOCK => cholesky_block::<T, BLOCK>(a, n, columns),
        _ => columns.clone().all(|i| cholesky_row(a, n, columns, i)),
    };
    for i in columns.clone() {
        a[i * n + i + 1..(i + 1) * n].fill(T::ZERO);
    }
    done
}

/// Computes some columns of the lower factor, from which the columns to the left were already subtracted.
/// Returns whether they are positive definite.
#[inline(always)]
pub(super) fn cholesky_panel<T: Real>(a: &mut [T], n: usize, columns: Range<usize>) -> bool {
    if !cholesky_diagonal(a, n, &columns) {
        return false;
    }
    let below = columns.end;
    // Compute rows below the block side by side, in full groups.
    let each = if size_of::<T>() == 4 { 2 * NARROW } else { NARROW };
    let together = if columns.len() <= BLOCK { (n - below) / each * each } else { 0 };
    for first in (below..below + together).step_by(each) {
        match each {
            NARROW => rows_together::<T, NARROW>(a, n, columns.clone(), first),
            _ => rows_together::<T, { 2 * NARROW }>(a, n, columns.clone(), first),
        }
    }
    (below + together..n).all(|i| cholesky_row(a, n, &columns, i))
}

/// Computes a diagonal block of at most `R` columns of the lower factor. Each finished column is subtracted from the columns
/// after it, so only one square root and one division per column are on the critical path.
/// Returns whether the block is positive definite.
#[inline(always)]
fn cholesky_block<T: Real, const R: usize>(a: &mut [T], n: usize, columns: &Range<usize>) -> bool {
    let (from, w) = (columns.start, columns.len());
    // The columns side by side, from the diagonal on.
    let mut t = [[T::ZERO; R]; R];
    for r in 0..w {
        let row = &a[(from + r) * n + from..][..r + 1];
        row.iter().zip(&mut t).for_each(|(x, t)| t[r] = *x);
    }
    for j in 0..w {
        let d = t[j][j];
        if !(d > T::ZERO) {
            return false;
        }
        let root = d.sqrt();
        let x = t[j].map(|x| x / root);
        t[j] = x;
        t[j][j] = root;
        for (k, t) in t.iter_mut().enumerate().take(w).skip(j + 1) {
            for r in 0..R {
                t[r] -= x[k] * x[r];
            }
        }
    }
    for r in 0..w {
        let row = &mut a[(from + r) * n + from..][..r + 1];
        row.iter_mut().zip(&t).for_each(|(x, t)| *x = t[r]);
    }
    true
}

/// Computes one row of some columns of the lower factor. Returns whether its diagonal element is positive.
#[inline(always)]
fn cholesky_row<T: Real>(a: &mut [T], n: usize, columns: &Range<usize>, i: usize) -> bool {
    let from = columns.start;
    let (before, row) = a.split_at_mut(i * n);
    for j in from..columns.end.min(i + 1) {
        let other = if j < i { &before[j * n + from..j * n + j] } else { &row[from..j] };
        let rest = row[j] - dot(&row[from..j], other);
        if j < i {
            row[j] = rest / before[j * n + j];
        } else if rest > T::ZERO {
            row[j] = rest.sqrt();
        } else {
            return false;
        }
    }
    true
}

/// Computes some rows of the lower factor below a finished block: one row per lane.
#[inline(always)]
fn rows_together<T: Real, const R: usize>(a: &mut [T], n: usize, columns: Range<usize>, first: usize) {
    let (from, w) = (columns.start, columns.len());
    let mut t = [[T::ZERO; R]; BLOCK];
    for r in 0..R {
        let row = &a[(first + r) * n + from..][..w];
        row.iter().zip(&mut t).for_each(|(x, t)| t[r] = *x);
    }
    for j in 0..w {
        let d = a[(from + j) * n + from + j];
        let x = t[j].map(|x| x / d);
        t[j] = x;
        for (k, t) in t.iter_mut().enumerate().take(w).skip(j + 1) {
            let l = a[(from + k) * n + from + j];
            for r in 0..R {
                t[r] -= l * x[r];
            }
        }
    }
    for r in 0..R {
        let row = &mut a[(first + r) * n + from..][..w];
        row.iter_mut().zip(&t).for_each(|(x, t)| *x = t[r]);
    }
}

/// Solves `op(A)·X = B` in place of `B` by combining rows of it: for one block of the unknowns and the diagonal block of A.
/// A has rows of `n` elements.
#[inline(always)]
pub(super) fn solve_left<T: Real>(
    op: TriangularSolve,
    a: &[T],
    n: usize,
    block: Range<usize>,
    b: &mut [T],
    cols: usize,
) {
    if cols == 0 {
        return;
    }
    let TriangularSolve { lower, transpose, unit, .. } = op;
    let count = block.len();
    let at = |i: usize, j: usize| {
        let (i, j) = (block.start + i, block.start + j);
        if transpose { a[j * n + i] } else { a[i * n + j] }
    };
    let forward = lower != transpose;
    for step in 0..count {
        let i = if forward { step } else { count - 1 - step };
        for k in if forward { 0..i } else { i + 1..count } {
            add_row(b, cols, i, -at(i, k), k);
        }
        if !unit {
            let d = at(i, i);
            b[i * cols..(i + 1) * cols].iter_mut().for_each(|x| *x /= d);
        }
    }
}

/// Adds `f` times row `from` to a different row `to`.
#[inline(always)]
fn add_row<T: Real>(x: &mut [T], cols: usize, to: usize, f: T, from: usize) {
    let (low, high) = x.split_at_mut(to.max(from) * cols);
    if to > from {
        axpy(f, &low[from * cols..(from + 1) * cols], &mut high[..cols]);
    } else {
        axpy(f, &high[..cols], &mut low[to * cols..(to + 1) * cols]);
    }
}

/// Solves `X·op(A) = B` in place of `B`, each row by itself: for one block of the unknowns and the diagonal block of A. A and B
/// have rows of `n` elements.
#[inline(always)]
pub(super) fn solve_right<T: Real>(op: TriangularSolve, a: &[T], n: usize, block: Range<usize>, b: &mut [T]) {
    let TriangularSolve { lower, transpose, unit, .. } = op;
    // x[j] = (b[j] - Σ x[k]·op(A)[k, j]) / op(A)[j, j]
    let ascending = lower == transpose;
    for row in b.chunks_exact_mut(n.max(1)) {
        for step in 0..block.len() {
            let j = if ascending { block.start + step } else { block.end - 1 - step };
            if transpose {
                // op(A)[k, j] = A[j, k]: a row of A.
                let known = if ascending { block.start..j } else { j + 1..block.end };
                let sum = dot(&row[known.clone()], &a[j * n + known.start..j * n + known.end]);
                row[j] -= sum;
                if !unit {
                    row[j] /= a[j * n + j];
                }
            } else {
                // Once x[j] is known, subtract its multiple of a row of A from the other unknowns.
                if !unit {
                    row[j] /= a[j * n + j];
                }
                let left = if ascending { j + 1..block.end } else { block.start..j };
                let x = row[j];
                axpy(-x, &a[j * n + left.start..j * n + left.end], &mut row[left]);
            }
        }
    }
}

/// Computes `L` and `U` in place, with row exchanges. Calls `pivot` with the pivot row of each step.
#[inline(always)]
pub(super) fn lu<T: Real>(
    isa: Isa,
    a: &mut [T],
    m: usize,
    n: usize,
    permutation: &mut [T],
    mut pivot: impl FnMut(usize, usize),
    room: &mut [T],
) {
    (0..m).for_each(|i| permutation[i] = T::of(i as f64));
    let steps = m.min(n);
    if m >= HIGH * n.max(1) {
        // No other thread uses the matrix: report the pivots once all are known, and then exchange the rows of the other columns.
        let (pivots, room) = split_as::<u32, T>(room, steps);
        // SAFETY: all columns of the matrix that have a step, and room for as many.
        unsafe {
            let (a, room) = (SharedPtr(a.as_mut_ptr()), SharedPtr(room.as_mut_ptr()));
            panel_lu::lu_columns(isa, a, m, n, 0..steps, pivots, room);
        }
        for (k, &p) in pivots.iter().enumerate() {
            let p = p as usize;
            pivot(k, p);
            permutation.swap(k, p);
            if p != k {
                let (low, high) = a.split_at_mut(p * n);
                low[k * n + steps..(k + 1) * n].swap_with_slice(&mut high[steps..n]);
            }
        }
    } else {
        lu_panel(a, m, n, 0..steps, permutation, &mut pivot);
    }
    if steps < n {
        lu_right(a, n, 0..steps);
    }
}

/// Eliminates some columns of an LU factorization; whole rows are exchanged.
#[inline(always)]
pub(super) fn lu_panel<T: Real>(
    a: &mut [T],
    m: usize,
    n: usize,
    columns: Range<usize>,
    permutation: &mut [T],
    pivot: &mut impl FnMut(usize, usize),
) {
    // Matrices with few rows are eliminated in one go.
    let each = if m > BLOCK { NARROW } else { columns.len().max(1) };
    for first in columns.clone().step_by(each) {
        let narrow = first..(first + each).min(columns.end);
        for k in narrow.clone() {
            let mut best = k;
            for i in k + 1..m {
                if a[i * n + k].abs() > a[best * n + k].abs() {
                    best = i;
                }
            }
            pivot(k, best);
            permutation.swap(k, best);
            if best != k {
                let (low, high) = a.split_at_mut(best * n);
                low[k * n..(k + 1) * n].swap_with_slice(&mut high[..n]);
            }
            let (above, below) = a.split_at_mut((k + 1) * n);
            let top = &above[k * n + k..k * n + narrow.end];
            if top[0] == T::ZERO {
                continue;
            }
            for row in below.chunks_exact_mut(n) {
                let f = row[k] / top[0];
                row[k] = f;
                axpy(-f, &top[1..], &mut row[k + 1..narrow.end]);
            }
        }
        // Update the rest of the block by the eliminated columns: first their own rows one after the other, then the rows below.
        let rest = narrow.end..columns.end;
        for i in narrow.clone() {
            let (above, row) = a.split_at_mut(i * n);
            for k in narrow.start..i {
                let f = row[k];
                axpy(-f, &above[k * n + rest.start..k * n + rest.end], &mut row[rest.clone()]);
            }
        }
        let (above, below) = a.split_at_mut(narrow.end.min(m) * n);
        if narrow.len() != NARROW {
            for row in below.chunks_exact_mut(n) {
                for k in narrow.clone() {
                    axpy(-row[k], &above[k * n + rest.start..k * n + rest.end], &mut row[rest.clone()]);
                }
            }
            continue;
        }
        for row in below.chunks_exact_mut(n) {
            let f: [T; NARROW] = std::array::from_fn(|t| row[narrow.start + t]);
            let mut at = rest.start;
            while at + NARROW <= rest.end {
                let mut sums: [T; NARROW] = std::array::from_fn(|j| row[at + j]);
                for (t, f) in f.iter().enumerate() {
                    let from = (narrow.start + t) * n + at;
                    for (sum, u) in sums.iter_mut().zip(&above[from..from + NARROW]) {
                        *sum -= *f * *u;
                    }
                }
                row[at..at + NARROW].copy_from_slice(&sums);
                at += NARROW;
            }
            for j in at..rest.end {
                row[j] -= f.iter().enumerate().map(|(t, f)| *f * above[(narrow.start + t) * n + j]).sum::<T>();
            }
        }
    }
}

/// Computes the rows of `U` to the right of a block of columns.
#[inline(always)]
pub(super) fn lu_right<T: Real>(a: &mut [T], n: usize, block: Range<usize>) {
    for i in block.clone() {
        let (above, row) = a.split_at_mut(i * n);
        for k in block.start..i {
            let f = row[k];
            axpy(-f, &above[k * n + block.end..(k + 1) * n], &mut row[block.end..n]);
        }
    }
}

/// Computes `R` in the upper triangle of `a` and the first columns of `Q`, by Householder reflections with LAPACK's signs.
#[inline(always)]
pub(super) fn qr<T: Real>(isa: Isa, a: &mut [T], m: usize, n: usize, q: &mut [T], columns: usize, work: &mut [T]) {
    let most = m.max(n);
    let (tau, rest) = work.split_at_mut(most);
    let (sums, rest) = rest.split_at_mut(most);
    let (v, room) = rest.split_at_mut(most);
    let steps = m.min(n);
    if columns == n && n <= m {
        return tall_qr(isa, a, (m, n), q, &mut tau[..n], &mut room[..m * n]);
    }
    qr_panel(isa, a, m, n, 0..steps, tau, room);
    if steps < n {
        for k in 0..steps {
            v[k] = T::ONE;
            (k + 1..m).for_each(|i| v[i] = a[i * n + k]);
            reflect(a, n, k..m, steps..n, tau[k], v, sums);
        }
    }
    // Q = H₀·H₁ ⋯ applied to the identity, the last reflection first.
    q.fill(T::ZERO);
    (0..columns.min(m)).for_each(|i| q[i * columns + i] = T::ONE);
    for k in (0..steps).rev().filter(|&k| tau[k] != T::ZERO) {
        v[k] = T::ONE;
        (k + 1..m).for_each(|i| v[i] = a[i * n + k]);
        reflect(q, columns, k..m, k..columns, tau[k], v, sums);
    }
}

/// Computes a QR factorization with as many columns of Q as the matrix has, at most as many as rows. The columns are stored
/// contiguously meanwhile.
#[inline(always)]
fn tall_qr<T: Real>(isa: Isa, a: &mut [T], (m, n): (usize, usize), q: &mut [T], tau: &mut [T], room: &mut [T]) {
    transpose_rows(isa, a, n, [m, n], room, m);
    tau.fill(T::ZERO);
    lines::qr_columns(isa, room, m, tau);
    for j in 0..n {
        (0..=j).for_each(|i| a[i * n + j] = room[j * m + i]);
    }
    lines::q_columns(isa, room, m, tau);
    transpose_rows(isa, room, m, [n, m], q, n);
}

/// Computes the reflection that maps `x` to a multiple of the first unit vector, and replaces `x` by its vector, which starts
/// with 1. Returns that multiple and tau. The squares neither overflow nor underflow.
#[inline(always)]
pub(super) fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let (mut alpha, mut below) = (x[0].wide(), sum_of_squares(&x[1..]));
    let mut scale = 1.0;
    if !(1e-280..1e280).contains(&(alpha * alpha + below)) {
        scale = ir::special::unit_scale(x.iter().fold(0f64, |most, x| most.max(x.abs().wide())));
        alpha /= scale;
        below = x[1..].iter().map(|x| (x.wide() / scale).powi(2)).sum();
    }
    if below == 0.0 {
        // The other elements are negligible compared with the first.
        x[1..].fill(T::ZERO);
        return (x[0], T::ZERO);
    }
    let beta = -(alpha * alpha + below).sqrt().copysign(alpha);
    let (by, first) = (1.0 / (alpha - beta), T::of(beta * scale));
    if scale == 1.0 {
        x[1..].iter_mut().for_each(|x| *x = T::of(x.wide() * by));
    } else {
        x[1..].iter_mut().for_each(|x| *x = T::of(x.wide() / scale * by));
    }
    (first, T::of((beta - alpha) / beta))
}

/// Computes the reflections of some columns of a matrix, with `room` for a copy of the columns.
#[inline(always)]
pub(super) fn qr_panel<T: Real>(
    isa: Isa,
    a: &mut [T],
    m: usize,
    n: usize,
    columns: Range<usize>,
    tau: &mut [T],
    room: &mut [T],
) {
    let (start, height, w) = (columns.start, m - columns.start, columns.len());
    let room = &mut room[..height * w];
    transpose_rows(isa, &a[start * (n + 1)..], n, [height, w], room, height);
    lines::qr_columns(isa, room, height, &mut tau[columns]);
    transpose_rows(isa, room, height, [w, height], &mut a[start * (n + 1)..], n);
}

/// Computes `X -= tau·v·(vᵀ·X)` on some rows and columns.
#[inline(always)]
fn reflect<T: Real>(
    x: &mut [T],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    tau: T,
    v: &[T],
    sums: &mut [T],
) {
    let sums = &mut sums[..columns.len()];
    sums.fill(T::ZERO);
    for i in rows.clone() {
        axpy(v[i], &x[i * width + columns.start..i * width + columns.end], sums);
    }
    for i in rows {
        axpy(-tau * v[i], sums, &mut x[i * width + columns.start..i * width + columns.end]);
    }
}

/// Computes the triangle `T` of a block reflector from the products of its vectors,
/// of which the upper triangle is read; zeros below.
#[inline(always)]
pub(super) fn joined<T: Real>(w: usize, tau: &[T], t: &mut [T]) {
    let mut column = [T::ZERO; BLOCK];
    for j in 0..w {
        // T[..j, j] = -tau·T[..j, ..j]·(V[.., ..j]ᵀ·v)
        (0..j).for_each(|k| column[k] = t[k * w + j]);
        for i in 0..j {
            t[i * w + j] = -tau[j] * dot(&t[i * w + i..i * w + j], &column[i..j]);
        }
        t[j * w..j * w + j].fill(T::ZERO);
        t[j * w + j] = tau[j];
    }
}

/// Computes `X = op(T)·X` for an upper triangle, in place. X has rows of `cols` elements.
#[inline(always)]
pub(super) fn triangle_times<T: Real>(t: &[T], w: usize, transpose: bool, x: &mut [T], cols: usize) {
    for step in 0..w {
        // Row i of T·X needs the rows of X from i on; row i of Tᵀ·X needs the rows up to i.
        let i = if transpose { w - 1 - step } else { step };
        let at = |k: usize| if transpose { t[k * w + i] } else { t[i * w + k] };
        let d = at(i);
        x[i * cols..(i + 1) * cols].iter_mut().for_each(|x| *x *= d);
        for k in if transpose { 0..i } else { i + 1..w } {
            add_row(x, cols, i, at(k), k);
        }
    }
}
