//! Cholesky, triangular solves, LU and QR of one row-major matrix.

use super::{axpy, dot};

/// The lower factor in place of the lower triangle, zeros above; NaN below where the matrix is not positive definite.
pub(super) fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let (before, row) = a.split_at_mut(i * n);
            let sum = dot(&row[..j], if j < i { &before[j * n..j * n + j] } else { &row[..j] });
            let rest = row[j] - sum;
            if j < i {
                row[j] = rest / before[j * n + j];
            } else if rest > 0.0 {
                row[j] = rest.sqrt();
            } else {
                return (0..n * n).for_each(|k| a[k] = if k / n >= k % n { f64::NAN } else { 0.0 });
            }
        }
        a[i * n + i + 1..(i + 1) * n].fill(0.0);
    }
}

/// `op(A)·X = B` in place of `B`, rows of which are combined.
pub(super) fn solve_left(a: &[f64], lower: bool, transpose: bool, unit: bool, b: &mut [f64], cols: usize) {
    if cols == 0 {
        return;
    }
    let n = b.len() / cols;
    let at = |i: usize, j: usize| if transpose { a[j * n + i] } else { a[i * n + j] };
    let forward = lower != transpose;
    for step in 0..n {
        let i = if forward { step } else { n - 1 - step };
        for k in if forward { 0..i } else { i + 1..n } {
            let (low, high) = b.split_at_mut(i.max(k) * cols);
            let (to, from) = if i > k {
                (&mut high[..cols], &low[k * cols..(k + 1) * cols])
            } else {
                (&mut low[i * cols..(i + 1) * cols], &high[..cols])
            };
            axpy(-at(i, k), from, to);
        }
        if !unit {
            let d = at(i, i);
            b[i * cols..(i + 1) * cols].iter_mut().for_each(|x| *x /= d);
        }
    }
}

/// `X·op(A) = B` in place of `B`, each row for itself.
pub(super) fn solve_right(a: &[f64], lower: bool, transpose: bool, unit: bool, b: &mut [f64], n: usize) {
    // x[j] = (b[j] - Σ x[k]·op(A)[k, j]) / op(A)[j, j]
    let ascending = lower == transpose;
    for row in b.chunks_exact_mut(n.max(1)) {
        for step in 0..n {
            let j = if ascending { step } else { n - 1 - step };
            if transpose {
                // op(A)[k, j] = A[j, k]: a row of A.
                let known = if ascending { 0..j } else { j + 1..n };
                let sum = dot(&row[known.clone()], &a[j * n + known.start..j * n + known.end]);
                row[j] -= sum;
                if !unit {
                    row[j] /= a[j * n + j];
                }
            } else {
                // Once x[j] is known, its row of A leaves the others.
                if !unit {
                    row[j] /= a[j * n + j];
                }
                let left = if ascending { j + 1..n } else { 0..j };
                let x = row[j];
                axpy(-x, &a[j * n + left.start..j * n + left.end], &mut row[left]);
            }
        }
    }
}

/// `L` and `U` in place, with the rows exchanged; tells the pivot of each step.
pub(super) fn lu(a: &mut [f64], m: usize, n: usize, permutation: &mut [f64], mut pivot: impl FnMut(usize, usize)) {
    (0..m).for_each(|i| permutation[i] = i as f64);
    for k in 0..m.min(n) {
        let mut best = k;
        for i in k + 1..m {
            if a[i * n + k].abs() > a[best * n + k].abs() {
                best = i;
            }
        }
        pivot(k, best);
        permutation.swap(k, best);
        if best != k {
            (0..n).for_each(|j| a.swap(k * n + j, best * n + j));
        }
        let (above, below) = a.split_at_mut((k + 1) * n);
        let top = &above[k * n + k..];
        if top[0] == 0.0 {
            continue;
        }
        for row in below.chunks_exact_mut(n) {
            let f = row[k] / top[0];
            row[k] = f;
            axpy(-f, &top[1..], &mut row[k + 1..]);
        }
    }
}

/// `R` in the upper triangle of `a` and the first columns of `Q`, by Householder reflections with LAPACK's signs.
pub(super) fn qr(a: &mut [f64], m: usize, n: usize, q: &mut [f64], columns: usize, work: &mut [f64]) {
    let most = m.max(n);
    let (tau, rest) = work.split_at_mut(most);
    let (sums, v) = rest.split_at_mut(most);
    let steps = m.min(n);
    for k in 0..steps {
        tau[k] = 0.0;
        let below: f64 = (k + 1..m).map(|i| a[i * n + k] * a[i * n + k]).sum();
        if below == 0.0 {
            continue;
        }
        let alpha = a[k * n + k];
        let beta = -(alpha * alpha + below).sqrt().copysign(alpha);
        tau[k] = (beta - alpha) / beta;
        v[k] = 1.0;
        for i in k + 1..m {
            a[i * n + k] /= alpha - beta;
            v[i] = a[i * n + k];
        }
        a[k * n + k] = beta;
        reflect(a, n, k..m, k + 1..n, tau[k], v, sums);
    }
    // Q = H₀·H₁ ⋯ applied to the identity, the last reflection first.
    q.fill(0.0);
    (0..columns.min(m)).for_each(|i| q[i * columns + i] = 1.0);
    for k in (0..steps).rev().filter(|&k| tau[k] != 0.0 || tau[k].is_nan()) {
        v[k] = 1.0;
        (k + 1..m).for_each(|i| v[i] = a[i * n + k]);
        reflect(q, columns, k..m, k..columns, tau[k], v, sums);
    }
}

/// `X -= tau·v·(vᵀ·X)` on some rows and columns.
fn reflect(
    x: &mut [f64],
    width: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    tau: f64,
    v: &[f64],
    sums: &mut [f64],
) {
    let sums = &mut sums[..columns.len()];
    sums.fill(0.0);
    for i in rows.clone() {
        axpy(v[i], &x[i * width + columns.start..i * width + columns.end], sums);
    }
    for i in rows {
        axpy(-tau * v[i], sums, &mut x[i * width + columns.start..i * width + columns.end]);
    }
}
