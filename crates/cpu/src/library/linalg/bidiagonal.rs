//! Singular values of larger matrices: reflections to two diagonals, then implicit QR (Golub and Reinsch).

use super::sweeps::{self, Sweeps};
use super::{Workers, axpy, dot};

/// Iterations for one singular value after which it is taken as it is.
const ITERATIONS: usize = 60;

/// f64 of room that [`svd`] needs.
pub(super) fn room(m: usize, n: usize) -> usize {
    5 * n + m + 2 * sweeps::room(n)
}

/// Turns `x` into the vector of a reflection that leaves only its first element, in place: that element, and the factor of
/// the reflection `1 - factor·x·xᵀ`.
#[inline(always)]
fn reflection(x: &mut [f64]) -> (f64, f64) {
    let norm = dot(x, x).sqrt();
    if norm == 0.0 {
        return (0.0, 0.0);
    }
    let first = -norm.copysign(x[0]);
    let factor = 1.0 / (norm * (norm + x[0].abs()));
    x[0] -= first;
    (first, factor)
}

/// Applies a reflection to a vector.
#[inline(always)]
fn reflect(v: &[f64], factor: f64, x: &mut [f64]) {
    axpy(-factor * dot(v, x), v, x);
}

/// Two vectors turned in their plane.
#[inline(always)]
fn turn(all: &mut [f64], len: usize, i: usize, j: usize, c: f64, s: f64) {
    debug_assert!(i < j);
    let (low, high) = all.split_at_mut(j * len);
    for (x, y) in low[i * len..(i + 1) * len].iter_mut().zip(high) {
        (*x, *y) = (*x * c + *y * s, *y * c - *x * s);
    }
}

/// Singular values of a tall matrix of moderate elements, given as `n` columns of `m` each. The columns become the left vectors
/// and the rows of `v` the right ones, where they are wanted; values are in no order.
#[expect(clippy::too_many_arguments, reason = "a matrix, its size, and three results")]
#[inline(always)]
pub(super) fn svd(
    a: &mut [f64],
    m: usize,
    n: usize,
    v: &mut [f64],
    d: &mut [f64],
    room: &mut [f64],
    vectors: bool,
    workers: Workers<'_>,
) {
    let (first, room) = room.split_at_mut(sweeps::room(n));
    let (second, room) = room.split_at_mut(sweeps::room(n));
    let (negative, room) = room.split_at_mut(n);
    let (e, rest) = room.split_at_mut(n);
    let (left, rest) = rest.split_at_mut(n);
    let (right, rest) = rest.split_at_mut(n);
    let (u, t) = rest.split_at_mut(n);
    reduce(a, m, n, d, e, left, right, u, &mut t[..m]);
    if vectors {
        right_vectors(a, m, n, v, right, u);
        left_vectors(a, m, n, left);
    }
    negative.fill(0.0);
    {
        let left = Sweeps::new(&mut a[..n * m], m, workers.isa, workers.pool, first);
        let right = Sweeps::new(v, n, workers.isa, workers.pool, second);
        iterate(left, m, n, right, d, e, negative, vectors);
    }
    if vectors {
        for (row, _) in v.chunks_exact_mut(n).zip(&*negative).filter(|(_, x)| **x != 0.0) {
            row.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

/// To a diagonal `d` and, above it, `e[1..]`; the reflections stay in the matrix, their factors in `left` and `right`.
#[expect(clippy::too_many_arguments, reason = "what stays is in several places")]
#[inline(always)]
fn reduce(
    a: &mut [f64],
    m: usize,
    n: usize,
    d: &mut [f64],
    e: &mut [f64],
    left: &mut [f64],
    right: &mut [f64],
    u: &mut [f64],
    t: &mut [f64],
) {
    // What the row's reflection leaves to do to the columns is done when the next column's reflection comes by.
    let mut pending = 0.0;
    e[0] = 0.0;
    for k in 0..n {
        let (before, columns) = a.split_at_mut((k + 1) * m);
        let own = &mut before[k * m + k..];
        if pending != 0.0 {
            axpy(-pending * u[0], &t[k..m], own);
        }
        (d[k], left[k]) = reflection(own);
        for (j, column) in columns.chunks_exact_mut(m).enumerate() {
            let column = &mut column[k..];
            if pending != 0.0 {
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
        t.fill(0.0);
        for (j, column) in columns.chunks_exact_mut(m).enumerate() {
            axpy(u[j], &column[k + 1..], t);
            column[k] = u[j];
        }
    }
}

#[inline(always)]
fn right_vectors(a: &[f64], m: usize, n: usize, v: &mut [f64], right: &[f64], u: &mut [f64]) {
    v.fill(0.0);
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    for k in (0..n.saturating_sub(1)).rev() {
        let u = &mut u[..n - k - 1];
        u.iter_mut().enumerate().for_each(|(j, x)| *x = a[(k + 1 + j) * m + k]);
        for row in v[(k + 1) * n..].chunks_exact_mut(n) {
            reflect(u, right[k], &mut row[k + 1..]);
        }
    }
}

#[inline(always)]
fn left_vectors(a: &mut [f64], m: usize, n: usize, left: &[f64]) {
    for k in (0..n).rev() {
        let (before, columns) = a.split_at_mut((k + 1) * m);
        let own = &mut before[k * m..];
        for column in columns.chunks_exact_mut(m) {
            column[k] = 0.0;
            reflect(&own[k..], left[k], &mut column[k..]);
        }
        let factor = -left[k] * own[k];
        own[k..].iter_mut().for_each(|x| *x *= factor);
        own[k] += 1.0;
        own[..k].fill(0.0);
    }
}

/// Makes the diagonals one, from the end on; says which of the right vectors change their sign.
#[expect(clippy::too_many_arguments, reason = "two diagonals and both sides")]
#[inline(always)]
fn iterate(
    mut left: Sweeps<'_>,
    m: usize,
    n: usize,
    mut right: Sweeps<'_>,
    d: &mut [f64],
    e: &mut [f64],
    negative: &mut [f64],
    vectors: bool,
) {
    let norm = (0..n).fold(0f64, |x, i| x.max(d[i].abs() + e[i].abs()));
    let nothing = f64::EPSILON * norm;
    for k in (0..n).rev() {
        for _ in 0..ITERATIONS {
            // The block that ends here: it begins where an element above the diagonal is nothing.
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
                // Nothing on the diagonal: what stands beside it is turned away.
                let (mut c, mut s) = (0.0, 1.0);
                for i in l..=k {
                    let f = s * e[i];
                    e[i] *= c;
                    if f.abs() <= nothing {
                        break;
                    }
                    let g = d[i];
                    let h = f.hypot(g);
                    d[i] = h;
                    (c, s) = (g / h, -f / h);
                    if vectors {
                        turn(left.rows(), m, l - 1, i, c, s);
                    }
                }
            }
            let z = d[k];
            if l == k {
                if z < 0.0 {
                    d[k] = -z;
                    // No rotation meets this vector any more.
                    negative[k] = 1.0;
                }
                break;
            }
            let (x, y, g, h) = (d[l], d[k - 1], e[k - 1], e[k]);
            let f = ((y - z) * (y + z) + (g - h) * (g + h)) / (2.0 * h * y);
            let r = f.hypot(1.0).copysign(f);
            let mut f = ((x - z) * (x + z) + h * (y / (f + r) - h)) / x;
            let (mut c, mut s, mut x) = (1.0, 1.0, x);
            if vectors {
                left.begin(l, false);
                right.begin(l, false);
            }
            for j in l..k {
                let i = j + 1;
                let (mut g, mut y) = (e[i], d[i]);
                let mut h = s * g;
                g *= c;
                let z = f.hypot(h);
                e[j] = z;
                (c, s) = if z == 0.0 { (1.0, 0.0) } else { (f / z, h / z) };
                f = x * c + g * s;
                g = g * c - x * s;
                h = y * s;
                y *= c;
                if vectors {
                    right.rotate(c, s);
                }
                let z = f.hypot(h);
                d[j] = z;
                if z != 0.0 {
                    (c, s) = (f / z, h / z);
                }
                f = c * g + s * y;
                x = c * y - s * g;
                if vectors {
                    left.rotate(c, s);
                }
            }
            e[l] = 0.0;
            e[k] = f;
            d[k] = x;
        }
    }
    left.rows();
    right.rows();
}
