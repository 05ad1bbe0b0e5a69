//! Eigenvalues: small matrices by tridiagonalization and implicit QL (EISPACK's tred2 and tql2), larger ones by blocked reduction
//! and divide and conquer. Singular values: small matrices by one-sided Jacobi, larger ones by bidiagonalization.

use super::blocked::ProductRunner;
use super::delayed_givens::{self, DelayedRotations};
use super::{Real, Workers, axpy, bidiagonal, dot, lines, tall_skinny_svd, tridiagonal, tridiagonal_dc};

/// The minimum number of columns for an SVD with vectors by bidiagonalization; without vectors it is used from two columns on.
pub(super) const SINGULAR: usize = 8;

/// The number of rows that are transposed together.
const TURNED: usize = 16;

/// The maximum number of iterations for one eigenvalue, and of sweeps of rotations; then the result is accepted as it is.
const ITERATIONS: usize = 60;

/// The number of scratch elements in addition to the matrix and its eigenvalues.
pub(super) fn eigh_scratch_elements(n: usize, large: bool) -> usize {
    if large {
        n * n + 4 * n + 16 + tridiagonal::work(n) + tridiagonal_dc::scratch_elements(n)
    } else {
        n + delayed_givens::scratch_elements(n)
    }
}

/// Computes the eigenvalues in ascending order in `d`,
/// and the eigenvectors as columns in place of `v`, whose lower triangle is read.
#[inline(always)]
pub(super) fn eigh<T: Real>(
    v: &mut [T],
    n: usize,
    d: &mut [T],
    room: &mut [T],
    workers: Workers<'_>,
    running: Option<ProductRunner<'_>>,
) {
    if n == 0 {
        return;
    }
    for i in 0..n {
        (0..i).for_each(|j| v[j * n + i] = v[i * n + j]);
    }
    if v.iter().any(|x| !x.is_finite()) {
        v.fill(T::NAN);
        return d.fill(T::NAN);
    }
    let scale = normalise(v);
    if let Some(large) = running {
        large_eigh(v, n, d, room, workers, large);
    } else {
        let (e, rotations) = room.split_at_mut(n);
        tridiagonal(v, n, d, e);
        implicit_ql(
            DelayedRotations::new(
                v,
                n,
                workers.isa,
                workers.pool,
                &mut rotations[..delayed_givens::scratch_elements(n)],
            ),
            n,
            d,
            e,
        );
        sort_ascending(v, n, d);
        transpose(v, n);
    }
    d.iter_mut().for_each(|x| *x *= scale);
}

/// Computes eigenvalues and eigenvectors of a large matrix with both triangles stored.
#[inline(always)]
fn large_eigh<T: Real>(
    v: &mut [T],
    n: usize,
    values: &mut [T],
    room: &mut [T],
    workers: Workers<'_>,
    large: ProductRunner<'_>,
) {
    let (z, room) = room.split_at_mut(n * n);
    let (d, room) = tridiagonal_dc::split_as::<f64, T>(room, n);
    let (e, room) = tridiagonal_dc::split_as::<f64, T>(room, n);
    let (work, room) = room.split_at_mut(tridiagonal::work(n));
    large.tridiagonal(v, n, d, e, work);
    let order = tridiagonal_dc::eigen(n, d, e, z, room, workers, large);
    large.back_transform(v, n, z, work);
    for (to, &row) in values.iter_mut().zip(order) {
        *to = T::of(d[row as usize]);
    }
    // Transpose some rows at a time.
    for (columns, rows) in (0..n).step_by(TURNED).zip(order.chunks(TURNED)) {
        for i in 0..n {
            let to = &mut v[i * n + columns..][..rows.len()];
            to.iter_mut().zip(rows).for_each(|(to, &row)| *to = z[row as usize * n + i]);
        }
    }
}

/// Divides by a power of two so that the largest element is near 1, where products neither overflow nor underflow. Returns that
/// power.
#[inline(always)]
fn normalise<T: Real>(a: &mut [T]) -> T {
    let scale = T::of(ir::special::unit_scale(a.iter().fold(0f64, |m, x| m.max(x.abs().wide()))));
    a.iter_mut().for_each(|x| *x /= scale);
    scale
}

#[inline(always)]
fn transpose<T: Real>(v: &mut [T], n: usize) {
    for i in 0..n {
        (0..i).for_each(|j| v.swap(i * n + j, j * n + i));
    }
}

/// Householder reduction: writes the diagonal to `d` and the subdiagonal to `e[1..]`, and the transposed transformation in place,
/// so that rows are processed instead of columns.
#[inline(always)]
fn tridiagonal<T: Real>(v: &mut [T], n: usize, d: &mut [T], e: &mut [T]) {
    d.copy_from_slice(&v[(n - 1) * n..]);
    for i in (1..n).rev() {
        let scale: T = d[..i].iter().map(|x| x.abs()).sum();
        let mut h = T::ZERO;
        if scale == T::ZERO {
            e[i] = d[i - 1];
            for j in 0..i {
                d[j] = v[j * n + i - 1];
                v[j * n + i] = T::ZERO;
                v[i * n + j] = T::ZERO;
            }
        } else {
            for x in &mut d[..i] {
                *x /= scale;
                h += *x * *x;
            }
            let f = d[i - 1];
            let g = -h.sqrt().copysign(f);
            e[i] = scale * g;
            h -= f * g;
            d[i - 1] = f - g;
            e[..i].fill(T::ZERO);
            for j in 0..i {
                let f = d[j];
                v[i * n + j] = f;
                let row = &v[j * n + j + 1..j * n + i];
                let g = e[j] + v[j * n + j] * f + dot(row, &d[j + 1..i]);
                axpy(f, row, &mut e[j + 1..i]);
                e[j] = g;
            }
            let mut f = T::ZERO;
            for j in 0..i {
                e[j] /= h;
                f += e[j] * d[j];
            }
            let hh = f / (h + h);
            for j in 0..i {
                e[j] -= hh * d[j];
            }
            for j in 0..i {
                let (f, g) = (d[j], e[j]);
                for ((x, e), d) in v[j * n + j..j * n + i].iter_mut().zip(&e[j..i]).zip(&d[j..i]) {
                    *x -= f * *e + g * *d;
                }
                d[j] = v[j * n + i - 1];
                v[j * n + i] = T::ZERO;
            }
        }
        d[i] = h;
    }
    for i in 0..n - 1 {
        v[i * n + n - 1] = v[i * n + i];
        v[i * n + i] = T::ONE;
        let h = d[i + 1];
        let (rows, next) = v.split_at_mut((i + 1) * n);
        let next = &mut next[..=i];
        if h != T::ZERO {
            (0..=i).for_each(|k| d[k] = next[k] / h);
            for row in rows.chunks_exact_mut(n) {
                let g = dot(next, &row[..=i]);
                axpy(-g, &d[..=i], &mut row[..=i]);
            }
        }
        next.fill(T::ZERO);
    }
    for j in 0..n {
        d[j] = v[j * n + n - 1];
        v[j * n + n - 1] = T::ZERO;
    }
    v[n * n - 1] = T::ONE;
    e[0] = T::ZERO;
}

/// Diagonalizes a tridiagonal matrix; the rows of `v` become the eigenvectors.
#[inline(always)]
pub(super) fn implicit_ql<T: Real>(mut v: DelayedRotations<'_, T>, n: usize, d: &mut [T], e: &mut [T]) {
    e.copy_within(1.., 0);
    e[n - 1] = T::ZERO;
    let (mut f, mut largest) = (T::ZERO, T::ZERO);
    for l in 0..n {
        largest = largest.greater(d[l].abs() + e[l].abs());
        let m = (l..n).find(|&m| e[m].abs() <= T::EPSILON * largest).unwrap_or(n - 1);
        if m > l {
            for _ in 0..ITERATIONS {
                let g = d[l];
                let p = (d[l + 1] - g) / (T::of(2.0) * e[l]);
                let r = p.hypot(T::ONE).copysign(p);
                d[l] = e[l] / (p + r);
                d[l + 1] = e[l] * (p + r);
                let (first, h) = (d[l + 1], g - d[l]);
                d[l + 2..].iter_mut().for_each(|x| *x -= h);
                f += h;
                let mut p = d[m];
                let (mut c, mut c2, mut c3, mut s, mut s2) = (T::ONE, T::ONE, T::ONE, T::ZERO, T::ZERO);
                let second = e[l + 1];
                v.begin(m, true);
                for i in (l..m).rev() {
                    (c3, c2, s2) = (c2, c, s);
                    let (g, h) = (c * e[i], c * p);
                    let r = p.length(e[i]);
                    e[i + 1] = s * r;
                    (s, c) = (e[i] / r, p / r);
                    p = c * d[i] - s * g;
                    d[i + 1] = h + s * (c * g + s * d[i]);
                    v.rotate(c, s);
                }
                p = -s * s2 * c3 * second * e[l] / first;
                e[l] = s * p;
                d[l] = c * p;
                if e[l].abs() <= T::EPSILON * largest {
                    break;
                }
            }
        }
        d[l] += f;
        e[l] = T::ZERO;
    }
    v.rows();
}

/// Sorts eigenvalues in ascending order, with the rows of `v`.
#[inline(always)]
fn sort_ascending<T: Real>(v: &mut [T], n: usize, d: &mut [T]) {
    for i in 0..n {
        let least = (i..n).fold(i, |k, j| if d[j] < d[k] { j } else { k });
        if least != i {
            d.swap(i, least);
            (0..n).for_each(|j| v.swap(i * n + j, least * n + j));
        }
    }
}

/// Computes the singular values of a tall matrix, given as `n` contiguous columns of `m` elements. The columns become
/// the left vectors, the rows of `v` the right ones. The values are in descending order.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix, its size, and three results")]
pub(super) fn svd<T: Real>(
    a: &mut [T],
    m: usize,
    n: usize,
    v: &mut [T],
    s: &mut [T],
    room: &mut [T],
    vectors: bool,
    workers: Workers<'_>,
    running: Option<ProductRunner<'_>>,
) {
    v.fill(T::ZERO);
    (0..n).for_each(|i| v[i * n + i] = T::ONE);
    if a.iter().any(|x| !x.is_finite()) {
        a.fill(T::NAN);
        v.fill(T::NAN);
        return s.fill(T::NAN);
    }
    let scale = normalise(a);
    let (a, m) = if !vectors && n > 1 && m >= tall_skinny_svd::MIN_ASPECT_RATIO * n {
        // The singular values of its R.
        match running {
            Some(large) => large.triangle(a, m, n, room),
            None => lines::qr_columns(workers.isa, a, m, s),
        }
        for (j, i) in (0..n).flat_map(|j| (0..n).map(move |i| (j, i))) {
            a[j * n + i] = if i <= j { a[j * m + i] } else { T::ZERO };
        }
        (&mut a[..n * n], n)
    } else {
        (a, m)
    };
    if n >= if vectors { SINGULAR } else { 2 } && room.len() >= bidiagonal::scratch_elements(m, n, running.is_some()) {
        bidiagonal::svd(a, m, n, v, s, room, vectors, workers, running);
        match vectors {
            true => sort_descending(a, m, n, v, s),
            false => s.sort_unstable_by(|x, y| y.partial_cmp(x).unwrap_or(std::cmp::Ordering::Equal)),
        }
        return s.iter_mut().for_each(|x| *x *= scale);
    }
    for _ in 0..ITERATIONS {
        let mut rotated = false;
        // Squared norms are updated with the rotations; each sweep begins with recomputed norms.
        (0..n).for_each(|i| s[i] = dot(&a[i * m..(i + 1) * m], &a[i * m..(i + 1) * m]));
        for i in 0..n {
            for j in i + 1..n {
                let (low, high) = a.split_at_mut(j * m);
                let (x, y) = (&mut low[i * m..(i + 1) * m], &mut high[..m]);
                let (p, q, r) = (s[i], s[j], dot(x, y));
                if r.abs() <= T::of(4.0) * T::EPSILON * (p * q).abs().sqrt() || r.abs().wide() < 1e-300 {
                    continue;
                }
                rotated = true;
                let theta = (q - p) / (T::of(2.0) * r);
                let t = T::ONE.copysign(theta) / (theta.abs() + theta.hypot(T::ONE));
                let c = T::ONE / t.hypot(T::ONE);
                (s[i], s[j]) = (p - t * r, q + t * r);
                rotate(x, y, c, t * c);
                let (low, high) = v.split_at_mut(j * n);
                rotate(&mut low[i * n..(i + 1) * n], &mut high[..n], c, t * c);
            }
        }
        if !rotated {
            break;
        }
    }
    for j in 0..n {
        s[j] = dot(&a[j * m..(j + 1) * m], &a[j * m..(j + 1) * m]).sqrt();
    }
    sort_descending(a, m, n, v, s);
    let largest = s.first().copied().unwrap_or(T::ZERO);
    for (k, &length) in s.iter().enumerate() {
        let (before, rest) = a.split_at_mut(k * m);
        let column = &mut rest[..m];
        if length > T::of(4.0) * T::EPSILON * largest {
            column.iter_mut().for_each(|x| *x /= length);
        } else {
            orthogonal_complement(before, column);
        }
    }
    s.iter_mut().for_each(|x| *x *= scale);
}

/// Sorts singular values in descending order, with their vectors.
#[inline(always)]
fn sort_descending<T: Real>(a: &mut [T], m: usize, n: usize, v: &mut [T], s: &mut [T]) {
    for i in 0..n {
        let most = (i..n).fold(i, |k, j| if s[j] > s[k] { j } else { k });
        if most != i {
            s.swap(i, most);
            (0..m).for_each(|r| a.swap(i * m + r, most * m + r));
            (0..n).for_each(|r| v.swap(i * n + r, most * n + r));
        }
    }
}

#[inline(always)]
fn rotate<T: Real>(x: &mut [T], y: &mut [T], c: T, s: T) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// Computes a unit vector that is orthogonal to the vectors before it.
#[inline(always)]
fn orthogonal_complement<T: Real>(before: &[T], to: &mut [T]) {
    let m = to.len();
    // Start from the axis that is farthest from their span.
    let left = |i: usize| T::ONE - before.chunks_exact(m).map(|u| u[i] * u[i]).sum::<T>();
    let axis = (0..m).fold(0, |k, i| if left(i) > left(k) { i } else { k });
    to.fill(T::ZERO);
    to[axis] = T::ONE;
    for _ in 0..2 {
        for u in before.chunks_exact(m) {
            let along = dot(u, to);
            axpy(-along, u, to);
        }
        let length = dot(to, to).sqrt();
        to.iter_mut().for_each(|x| *x /= length);
    }
}
