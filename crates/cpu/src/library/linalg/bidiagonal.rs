//! Singular values: Householder bidiagonalization, then implicit QR (Golub and Reinsch). Large matrices are reduced, and their
//! reflections accumulated, in blocks of columns; their vectors are computed by divide and conquer (`bidiagonal_dc`).

use super::blocked::{BLOCK, ProductRunner, blocks};
use super::delayed_givens::{self, DelayedRotations};
use super::{Real, Workers, axpy, bidiagonal_dc, dot, dqds, sum_of_squares};
use crate::gemm::MatrixLayout;
use std::ops::Range;

/// The maximum number of iterations for one singular value; then it is accepted as it is.
const ITERATIONS: usize = 60;

/// The number of scratch elements that [`svd`] needs.
pub(super) fn scratch_elements(m: usize, n: usize, large: bool) -> usize {
    let blocks = 2 * BLOCK * (m + n) + 2 * BLOCK * m + BLOCK * (n + BLOCK);
    let own = if large { n * m + blocks + bidiagonal_dc::scratch_elements(n) } else { 0 };
    5 * n + m + 2 * delayed_givens::scratch_elements(n) + own
}

/// Replaces `x` by the vector of a reflection that maps it to a multiple of the first unit vector. Returns that multiple and the
/// factor of the reflection `1 - factor·x·xᵀ`.
/// The vector is scaled to a norm near 1, so that squares of small elements stay accurate.
#[inline(always)]
fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let norm = sum_of_squares(x).sqrt();
    if norm < 1e-140 {
        x.fill(T::ZERO);
        return (T::ZERO, T::ZERO);
    }
    let scale = 1.0 / norm;
    x.iter_mut().for_each(|x| *x = T::of(x.wide() * scale));
    let own = x[0].wide();
    x[0] = T::of(own + 1f64.copysign(own));
    (T::of(-norm.copysign(own)), T::of(1.0 / (1.0 + own.abs())))
}

/// Applies a reflection to a vector.
#[inline(always)]
fn reflect<T: Real>(v: &[T], factor: T, x: &mut [T]) {
    axpy(-factor * dot(v, x), v, x);
}

/// Rotates two vectors in their plane.
#[inline(always)]
fn rotate_vectors<T: Real>(all: &mut [T], len: usize, i: usize, j: usize, c: T, s: T) {
    debug_assert!(i < j);
    let (low, high) = all.split_at_mut(j * len);
    for (x, y) in low[i * len..(i + 1) * len].iter_mut().zip(high) {
        (*x, *y) = (*x * c + *y * s, *y * c - *x * s);
    }
}

/// Computes the singular values of a tall matrix of moderate elements, given as `n` columns of `m` elements. On request the
/// columns become the left vectors and the rows of `v` the right ones. The values are unordered.
#[expect(clippy::too_many_arguments, reason = "a matrix, its size, and three results")]
#[inline(always)]
pub(super) fn svd<T: Real>(
    a: &mut [T],
    m: usize,
    n: usize,
    v: &mut [T],
    d: &mut [T],
    room: &mut [T],
    vectors: bool,
    workers: Workers<'_>,
    running: Option<ProductRunner<'_>>,
) {
    let (waiting, room) = room.split_at_mut(2 * delayed_givens::scratch_elements(n));
    let (negative, room) = room.split_at_mut(n);
    let (e, rest) = room.split_at_mut(n);
    let (left, rest) = rest.split_at_mut(n);
    let (right, rest) = rest.split_at_mut(n);
    let (u, rest) = rest.split_at_mut(n);
    let (t, rest) = rest.split_at_mut(m);
    if let Some(large) = running {
        large.bidiagonal(a, m, n, d, e, left, right, rest);
        if vectors {
            let (z, rest) = rest.split_at_mut(n * m);
            z.fill(T::ZERO);
            bidiagonal_dc::singular_values(d, e, z, m, v, rest, workers, large);
            let across = |k: usize, i: usize| if i > k { a[i * m + k] } else { T::ZERO };
            large.apply_reflectors(v, n, &right[..n - 1], 1, across, rest);
            let down = |k: usize, i: usize| if i >= k { a[k * m + i] } else { T::ZERO };
            large.apply_reflectors(z, m, left, 0, down, rest);
            a.copy_from_slice(z);
            return;
        }
    } else {
        reduce(a, m, n, d, e, left, right, u, t);
        if vectors {
            right_vectors(a, m, n, v, right, u);
            left_vectors(a, m, n, left);
        }
    }
    if !vectors && dqds::singular_values(d, e, workers.isa, waiting) {
        return;
    }
    let (first, second) = waiting.split_at_mut(delayed_givens::scratch_elements(n));
    negative.fill(T::ZERO);
    {
        let left = DelayedRotations::new(&mut a[..n * m], m, workers.isa, workers.pool, first);
        let right = DelayedRotations::new(v, n, workers.isa, workers.pool, second);
        iterate(left, m, n, right, d, e, negative, vectors);
    }
    if vectors {
        for (row, _) in v.chunks_exact_mut(n).zip(&*negative).filter(|(_, x)| **x != T::ZERO) {
            row.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

/// Reduces to a diagonal `d` and a superdiagonal `e[1..]`. The reflections stay in the matrix, their factors in `left` and `right`.
#[expect(clippy::too_many_arguments, reason = "what stays is in several places")]
#[inline(always)]
fn reduce<T: Real>(
    a: &mut [T],
    m: usize,
    n: usize,
    d: &mut [T],
    e: &mut [T],
    left: &mut [T],
    right: &mut [T],
    u: &mut [T],
    t: &mut [T],
) {
    // The update of the columns by the row's reflection is delayed and merged with the next column's reflection.
    let mut pending = T::ZERO;
    e[0] = T::ZERO;
    for k in 0..n {
        let (before, columns) = a.split_at_mut((k + 1) * m);
        let own = &mut before[k * m + k..];
        if pending != T::ZERO {
            axpy(-pending * u[0], &t[k..m], own);
        }
        (d[k], left[k]) = reflection(own);
        for (j, column) in columns.chunks_exact_mut(m).enumerate() {
            let column = &mut column[k..];
            if pending != T::ZERO {
                axpy(-pending * u[j + 1], &t[k..m], column);
            }
            reflect(own, left[k], column);
        }
        if k + 1 == n {
            break;
        }
        let count = n - k - 1;
        for (j, column) in columns.chunks_exact(m).enumerate() {
            u[j] = column[k];
        }
        (e[k + 1], right[k]) = reflection(&mut u[..count]);
        pending = right[k];
        let t = &mut t[k + 1..m];
        t.fill(T::ZERO);
        for (j, column) in columns.chunks_exact_mut(m).enumerate() {
            axpy(u[j], &column[k + 1..], t);
            column[k] = u[j];
        }
    }
}

#[inline(always)]
fn right_vectors<T: Real>(a: &[T], m: usize, n: usize, v: &mut [T], right: &[T], u: &mut [T]) {
    v.fill(T::ZERO);
    (0..n).for_each(|i| v[i * n + i] = T::ONE);
    for k in (0..n.saturating_sub(1)).rev() {
        let u = &mut u[..n - k - 1];
        u.iter_mut().enumerate().for_each(|(j, x)| *x = a[(k + 1 + j) * m + k]);
        for row in v[(k + 1) * n..].chunks_exact_mut(n) {
            reflect(u, right[k], &mut row[k + 1..]);
        }
    }
}

#[inline(always)]
fn left_vectors<T: Real>(a: &mut [T], m: usize, n: usize, left: &[T]) {
    for k in (0..n).rev() {
        let (before, columns) = a.split_at_mut((k + 1) * m);
        let own = &mut before[k * m..];
        for column in columns.chunks_exact_mut(m) {
            column[k] = T::ZERO;
            reflect(&own[k..], left[k], &mut column[k..]);
        }
        let factor = -left[k] * own[k];
        own[k..].iter_mut().for_each(|x| *x *= factor);
        own[k] += T::ONE;
        own[..k].fill(T::ZERO);
    }
}

impl ProductRunner<'_> {
    /// Reduces like [`reduce`], in blocks of columns. Inside a block, only one column and one row at a time are updated, by the
    /// delayed update `A -= V·Yᵀ + X·Uᵀ`. After the block, one matrix product updates the rest.
    #[expect(clippy::too_many_arguments, reason = "what stays is in several places")]
    #[inline(always)]
    fn bidiagonal<T: Real>(
        &self,
        a: &mut [T],
        m: usize,
        n: usize,
        d: &mut [T],
        e: &mut [T],
        left: &mut [T],
        right: &mut [T],
        room: &mut [T],
    ) {
        // Y and U span the columns, V and X the rows.
        let (p, rest) = room.split_at_mut(2 * BLOCK * n);
        let (s, _) = rest.split_at_mut(2 * BLOCK * m);
        let mut along = [T::ZERO; 2 * BLOCK];
        e[0] = T::ZERO;
        for b in blocks(n) {
            let w = b.len();
            p[..2 * w * n].fill(T::ZERO);
            s[..2 * w * m].fill(T::ZERO);
            for k in b.clone() {
                let t = k - b.start;
                let (before, others) = a.split_at_mut((k + 1) * m);
                let own = &mut before[k * m + k..];
                for c in (0..t).chain(w..w + t) {
                    axpy(-p[c * n + k], &s[c * m + k..(c + 1) * m], own);
                }
                (d[k], left[k]) = reflection(own);
                s[t * m + k..(t + 1) * m].copy_from_slice(own);
                let count = n - k - 1;
                if count == 0 {
                    break;
                }
                // y = factor·(Aᵀ·v), with A updated by the reflections so far.
                for c in (0..t).chain(w..w + t) {
                    along[c] = dot(&s[c * m + k..(c + 1) * m], own);
                }
                let (done, rest) = p.split_at_mut(t * n);
                let (y, later) = rest.split_at_mut(n);
                let y = &mut y[k + 1..];
                self.dots(&others[k..], m, own, y);
                for c in 0..t {
                    axpy(-along[c], &done[c * n + k + 1..(c + 1) * n], y);
                    let u = &later[(w + c - t - 1) * n + k + 1..(w + c - t) * n];
                    axpy(-along[w + c], u, y);
                }
                y.iter_mut().for_each(|y| *y *= left[k]);
                // Update the row.
                let (yv, ux) = p.split_at_mut(w * n);
                let (ux_done, u) = ux.split_at_mut(t * n);
                let u = &mut u[k + 1..n];
                u.iter_mut().zip(others.chunks_exact(m)).for_each(|(u, column)| *u = column[k]);
                for c in 0..=t {
                    axpy(-s[c * m + k], &yv[c * n + k + 1..(c + 1) * n], u);
                }
                for c in 0..t {
                    axpy(-s[(w + c) * m + k], &ux_done[c * n + k + 1..(c + 1) * n], u);
                }
                (e[k + 1], right[k]) = reflection(u);
                others.chunks_exact_mut(m).zip(&*u).for_each(|(column, u)| column[k] = *u);
                // x = factor·(A·u), with A updated by the reflections so far.
                for c in 0..=t {
                    along[c] = dot(&yv[c * n + k + 1..(c + 1) * n], u);
                }
                for c in 0..t {
                    along[w + c] = dot(&ux_done[c * n + k + 1..(c + 1) * n], u);
                }
                let (vx, x) = s.split_at_mut((w + t) * m);
                let x = &mut x[k + 1..m];
                self.combined(&others[k + 1..], m, u, x);
                for c in (0..=t).chain(w..w + t) {
                    axpy(-along[c], &vx[c * m + k + 1..(c + 1) * m], x);
                }
                x.iter_mut().for_each(|x| *x *= right[k]);
            }
            if b.end < n {
                let (to, by) = (a.as_mut_ptr().wrapping_add(b.end * m + b.end), s.as_ptr().wrapping_add(b.end));
                let columns = (p.as_ptr().wrapping_add(b.end), MatrixLayout::row_major(n).transposed());
                // SAFETY: what is left of the matrix, and the block's vectors beside it.
                unsafe {
                    let sizes = [n - b.end, 2 * w, m - b.end];
                    self.product_any(sizes, columns, (by, MatrixLayout::row_major(m)), (to, m), true);
                }
            }
        }
    }

    /// Applies the reflections `1 - factor·v·vᵀ`, last one first, to rows of `len` elements. Vector `k` has elements `v(k, i)`
    /// from `k + from` on.
    #[inline(always)]
    fn apply_reflectors<T: Real>(
        &self,
        z: &mut [T],
        len: usize,
        factors: &[T],
        from: usize,
        v: impl Fn(usize, usize) -> T,
        room: &mut [T],
    ) {
        let rows = z.len() / len;
        let (own, rest) = room.split_at_mut(BLOCK * len);
        let (by, rest) = rest.split_at_mut(BLOCK * len);
        let (sums, t) = rest.split_at_mut(BLOCK * rows);
        for b in blocks(factors.len()).collect::<smallvec::SmallVec<[Range<usize>; 64]>>().into_iter().rev() {
            let (w, start) = (b.len(), b.start + from);
            let size = len - start;
            for (k, row) in b.clone().zip(own.chunks_exact_mut(size)) {
                row.iter_mut().enumerate().for_each(|(i, x)| *x = v(k, start + i));
            }
            let own = &own[..w * size];
            let (each, w_rows) = (MatrixLayout::row_major(size), MatrixLayout::row_major(w));
            self.joint_factors((own, each.transposed()), size, &factors[b.clone()], t);
            // Z -= (Z·V)·(Tᵀ·Vᵀ)
            let onto = z.as_mut_ptr().wrapping_add(start);
            // SAFETY: columns of Z that the reflections touch, and their vectors.
            unsafe {
                let turned = (t.as_ptr(), w_rows.transposed());
                self.product_any([w, w, size], turned, (own.as_ptr(), each), (by.as_mut_ptr(), size), false);
                let z = (onto.cast_const(), MatrixLayout::row_major(len));
                self.product_any([rows, size, w], z, (own.as_ptr(), each.transposed()), (sums.as_mut_ptr(), w), false);
                self.product_any([rows, w, size], (sums.as_ptr(), w_rows), (by.as_ptr(), each), (onto, len), true);
            }
        }
    }
}

/// Diagonalizes the bidiagonal matrix, from the end on. Returns which right vectors change their sign.
#[expect(clippy::too_many_arguments, reason = "two diagonals and both sides")]
#[inline(always)]
pub(super) fn iterate<T: Real>(
    mut left: DelayedRotations<'_, T>,
    m: usize,
    n: usize,
    mut right: DelayedRotations<'_, T>,
    d: &mut [T],
    e: &mut [T],
    negative: &mut [T],
    vectors: bool,
) {
    let norm = (0..n).fold(T::ZERO, |x, i| x.greater(d[i].abs() + e[i].abs()));
    let nothing = T::EPSILON * norm;
    for k in (0..n).rev() {
        for _ in 0..ITERATIONS {
            // The block that ends here begins where an element of the superdiagonal is negligible.
            let mut l = k;
            let mut split = false;
            while l > 0 && e[l].abs() > nothing {
                if d[l - 1].abs() <= nothing {
                    split = true;
                    break;
                }
                l -= 1;
            }
            if split {
                // If a diagonal element is zero, rotations remove the superdiagonal element beside it.
                let (mut c, mut s) = (T::ZERO, T::ONE);
                for i in l..=k {
                    let f = s * e[i];
                    e[i] *= c;
                    if f.abs() <= nothing {
                        break;
                    }
                    let g = d[i];
                    let h = f.length(g);
                    d[i] = h;
                    (c, s) = (g / h, -f / h);
                    if vectors {
                        rotate_vectors(left.rows(), m, l - 1, i, c, s);
                    }
                }
            }
            let z = d[k];
            if l == k {
                if z < T::ZERO {
                    d[k] = -z;
                    // No further rotation changes this vector.
                    negative[k] = T::ONE;
                }
                break;
            }
            let (x, y, g, h) = (d[l], d[k - 1], e[k - 1], e[k]);
            let f = ((y - z) * (y + z) + (g - h) * (g + h)) / (T::of(2.0) * h * y);
            let r = f.hypot(T::ONE).copysign(f);
            let mut f = ((x - z) * (x + z) + h * (y / (f + r) - h)) / x;
            let (mut c, mut s, mut x) = (T::ONE, T::ONE, x);
            if vectors {
                left.begin(l, false);
                right.begin(l, false);
            }
            for j in l..k {
                let i = j + 1;
                let (mut g, mut y) = (e[i], d[i]);
                let mut h = s * g;
                g *= c;
                let z = f.length(h);
                e[j] = z;
                (c, s) = if z == T::ZERO { (T::ONE, T::ZERO) } else { (f / z, h / z) };
                f = x * c + g * s;
                g = g * c - x * s;
                h = y * s;
                y *= c;
                if vectors {
                    right.rotate(c, s);
                }
                let z = f.length(h);
                d[j] = z;
                if z != T::ZERO {
                    (c, s) = (f / z, h / z);
                }
                f = c * g + s * y;
                x = c * y - s * g;
                if vectors {
                    left.rotate(c, s);
                }
            }
            e[l] = T::ZERO;
            e[k] = f;
            d[k] = x;
        }
    }
    left.rows();
    right.rows();
}
