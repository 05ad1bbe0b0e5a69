//! Tridiagonal eigenvalues by divide and conquer. Without the element that connects its halves and a correction of the diagonal,
//! the matrix splits in two; the halves' eigenvectors turn the correction into a rank-one update of a diagonal matrix. The
//! eigenvectors of the result ([`SecularEquation`]), times those of the halves, are the eigenvectors of the whole. Zero elements
//! of the update's vector and pairs of equal eigenvalues are deflated.
//!
//! Values are f64 throughout. Vectors, and so the matrix products that are nearly all of the work, have the matrix's own dtype.

use super::blocked::ProductRunner;
use super::delayed_givens::{self, DelayedRotations};
use super::secular_equation::{NO_POLE, SecularEquation, padded};
use super::spectral::implicit_ql;
use super::{Real, Workers};
use crate::library::SharedPtr;
use std::ops::Range;

/// The number of rows below which a block is not split further.
const LEAF: usize = 32;

/// The number of scratch elements in addition to the vectors: two matrices, six vectors of values, and four vectors of indices.
pub(super) fn scratch_elements(n: usize) -> usize {
    2 * n * n + (2 * 6 + 4) * (padded(n) + 8)
}

/// A tridiagonal matrix during divide and conquer.
struct TridiagonalSplit<'a, T: Real> {
    n: usize,
    d: &'a mut [f64],
    e: &'a [f64],
    /// The eigenvectors as rows: row `i` belongs to `d[i]` and is nonzero only in the columns of its block.
    q: &'a mut [T],
    /// Rows to multiply, and the factors of that product.
    rows: &'a mut [T],
    factors: &'a mut [T],
    z: &'a mut [f64],
    poles: &'a mut [f64],
    squares: &'a mut [f64],
    signs: &'a mut [f64],
    exact: &'a mut [f64],
    x: &'a mut [f64],
    /// The rows of each block, ordered by their eigenvalues.
    order: &'a mut [u32],
    /// The rows that take part in a product, from the front, and the others, from the back.
    chosen: &'a mut [u32],
    columns: &'a mut [u32],
    origin: &'a mut [u32],
    workers: Workers<'a>,
    running: ProductRunner<'a>,
}

/// The tolerance of roots, relative to their distance from a pole. The vectors are computed from the roots as found.
pub(super) fn epsilon<T>() -> f64 {
    if size_of::<T>() == 4 { 1e-10 } else { f64::EPSILON }
}

/// Splits off `n` elements of another type from scratch.
pub(super) fn split_as<U, T>(room: &mut [T], n: usize) -> (&mut [U], &mut [T]) {
    let (own, rest) = room.split_at_mut((n * size_of::<U>()).div_ceil(size_of::<T>()) + 8 / size_of::<T>());
    // SAFETY: numbers, of which any bits are some.
    let (_, own, _) = unsafe { own.align_to_mut::<U>() };
    (&mut own[..n], rest)
}

/// Writes the eigenvalues of the matrix with diagonal `d` and subdiagonal `e[1..]` to `d`, and the eigenvectors to the rows of
/// `q`. Returns the rows in the order of their eigenvalues.
#[inline(always)]
pub(super) fn eigen<'a, T: Real>(
    n: usize,
    d: &mut [f64],
    e: &[f64],
    q: &mut [T],
    room: &'a mut [T],
    workers: Workers<'_>,
    running: ProductRunner<'_>,
) -> &'a [u32] {
    let (rows, room) = room.split_at_mut(n * n);
    let (factors, room) = room.split_at_mut(n * n);
    let (z, room) = split_as::<f64, T>(room, n);
    let (poles, room) = split_as::<f64, T>(room, padded(n));
    let (squares, room) = split_as::<f64, T>(room, padded(n));
    let (signs, room) = split_as::<f64, T>(room, n);
    let (exact, room) = split_as::<f64, T>(room, padded(n));
    let (x, room) = split_as::<f64, T>(room, n);
    let (order, room) = split_as::<u32, T>(room, n);
    let (chosen, room) = split_as::<u32, T>(room, n);
    let (columns, room) = split_as::<u32, T>(room, n);
    let (origin, _) = split_as::<u32, T>(room, n);
    q.fill(T::ZERO);
    let mut all = TridiagonalSplit {
        n,
        d,
        e,
        q,
        rows,
        factors,
        z,
        poles,
        squares,
        signs,
        exact,
        x,
        order: &mut *order,
        chosen,
        columns,
        origin,
        workers,
        running,
    };
    all.solve(0..n);
    order
}

/// Rotates some columns of two rows, which are `len` apart, in their plane.
pub(super) fn rotate_rows<T: Real>(rows: &mut [T], len: usize, columns: Range<usize>, i: usize, j: usize, c: T, s: T) {
    let (low, high) = rows.split_at_mut(i.max(j) * len);
    let (low, high) = (&mut low[i.min(j) * len..][columns.clone()], &mut high[columns]);
    let (x, y) = if i < j { (low, high) } else { (high, low) };
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x + s * *y, c * *y - s * *x);
    }
}

impl<T: Real> TridiagonalSplit<'_, T> {
    fn solve(&mut self, part: Range<usize>) {
        if part.len() <= LEAF {
            return self.leaf(part);
        }
        let middle = part.start + part.len() / 2;
        let joint = self.e[middle];
        self.d[middle - 1] -= joint.abs();
        self.d[middle] -= joint.abs();
        self.solve(part.start..middle);
        self.solve(middle..part.end);
        self.join(part.start, middle, part.end, joint);
    }

    fn leaf(&mut self, part: Range<usize>) {
        let (size, n) = (part.len(), self.n);
        let (mut v, mut e) = ([0f64; LEAF * LEAF], [0f64; LEAF]);
        let mut rotations = [0f64; delayed_givens::scratch_elements(LEAF)];
        let v = &mut v[..size * size];
        (0..size).for_each(|i| v[i * size + i] = 1.0);
        e[..size].copy_from_slice(&self.e[part.clone()]);
        let sweeps = DelayedRotations::new(v, size, self.workers.isa, None, &mut rotations);
        implicit_ql(sweeps, size, &mut self.d[part.clone()], &mut e[..size]);
        for (i, row) in v.chunks_exact(size).enumerate() {
            let to = &mut self.q[(part.start + i) * n + part.start..][..size];
            to.iter_mut().zip(row).for_each(|(to, x)| *to = T::of(*x));
        }
        self.sort(part);
    }

    fn sort(&mut self, part: Range<usize>) {
        let (d, order) = (&*self.d, &mut self.order[part.clone()]);
        order.iter_mut().zip(part).for_each(|(to, row)| *to = row as u32);
        order.sort_unstable_by(|&a, &b| d[a as usize].total_cmp(&d[b as usize]).then(a.cmp(&b)));
    }

    fn join(&mut self, start: usize, middle: usize, end: usize, joint: f64) {
        let (n, size) = (self.n, end - start);
        let rho = 2.0 * joint.abs();
        let half = std::f64::consts::FRAC_1_SQRT_2;
        for i in start..end {
            self.z[i] = match i < middle {
                true => self.q[i * n + middle - 1].wide() * half,
                false => self.q[i * n + middle].wide() * half.copysign(joint),
            };
        }
        // Order the rows of both halves by their eigenvalues.
        self.sort(start..end);
        let most = |x: &[f64]| x.iter().fold(0f64, |m, x| m.max(x.abs()));
        let nothing =
            8.0 * T::EPSILON.wide() * most(&self.d[start..end]).max(most(&self.z[start..end])).max(f64::MIN_POSITIVE);
        // The nonzero columns of a row: 0 for the left half, 2 for the right half, 1 for both.
        let mut kept = 0;
        let mut gone = 0;
        let mut last: Option<usize> = None;
        (start..end).for_each(|i| self.columns[i] = if i < middle { 0 } else { 2 });
        for at in start..end {
            let i = self.order[at] as usize;
            if rho * self.z[i].abs() <= nothing {
                gone += 1;
                self.chosen[end - gone] = i as u32;
                continue;
            }
            if let Some(p) = last {
                let length = self.z[i].hypot(self.z[p]);
                let (c, s) = (self.z[i] / length, -self.z[p] / length);
                let (dp, di) = (self.d[p], self.d[i]);
                if ((di - dp) * c * s).abs() <= nothing {
                    // Deflate equal eigenvalues: after a rotation in their plane, only one of them has an element in the vector.
                    self.z[i] = length;
                    rotate_rows(self.q, n, start..end, p, i, T::of(c), T::of(s));
                    (self.d[p], self.d[i]) = (dp * c * c + di * s * s, dp * s * s + di * c * c);
                    if self.columns[p] != self.columns[i] {
                        self.columns[i] = 1;
                    }
                    gone += 1;
                    self.chosen[end - gone] = p as u32;
                    last = Some(i);
                    continue;
                }
                self.chosen[start + kept] = p as u32;
                kept += 1;
            }
            last = Some(i);
        }
        if let Some(p) = last {
            self.chosen[start + kept] = p as u32;
            kept += 1;
        }
        if kept > 0 {
            self.update_vectors(start, middle, end, rho, kept);
        }
        debug_assert_eq!(kept + gone, size);
        self.sort(start..end);
    }

    /// Computes new vectors for the remaining rows, which become the first rows of the block.
    fn update_vectors(&mut self, start: usize, middle: usize, end: usize, rho: f64, kept: usize) {
        let n = self.n;
        let (left, right) = (middle - start, end - middle);
        for j in 0..kept {
            let i = self.chosen[start + j] as usize;
            self.poles[j] = self.d[i];
            self.signs[j] = self.z[i];
            self.squares[j] = rho * self.z[i] * self.z[i];
        }
        // Group the rows by their nonzero columns: left half, both, right half.
        let count = |kind: u32| (0..kept).filter(|j| self.columns[self.chosen[start + j] as usize] == kind).count();
        let (first, both) = (count(0), count(1));
        let mut next = [0, first, first + both];
        let (whole, from) = (first + both, first);
        let (others, unchanged) = self.rows.split_at_mut(whole * left + (kept - from) * right);
        let (to_left, to_right) = others.split_at_mut(whole * left);
        for j in 0..kept {
            let i = self.chosen[start + j] as usize;
            let kind = self.columns[i] as usize;
            let place = next[kind];
            next[kind] += 1;
            // `origin` holds the column until the root's pole is known.
            self.origin[j] = place as u32;
            let row = &self.q[i * n + start..i * n + end];
            if kind <= 1 {
                to_left[place * left..][..left].copy_from_slice(&row[..left]);
            }
            if kind >= 1 {
                to_right[(place - from) * right..][..right].copy_from_slice(&row[left..]);
            }
        }
        let size = end - start;
        for (row, &i) in unchanged.chunks_exact_mut(size).zip(&self.chosen[start + kept..end]) {
            row.copy_from_slice(&self.q[i as usize * n + start..i as usize * n + end]);
        }
        // The unchanged rows follow the others.
        for (to, &i) in self.exact.iter_mut().zip(&self.chosen[start + kept..end]) {
            *to = self.d[i as usize];
        }
        self.d[start + kept..end].copy_from_slice(&self.exact[..size - kept]);
        self.columns[..kept].copy_from_slice(&self.origin[..kept]);
        self.poles[kept..padded(kept)].fill(NO_POLE);
        self.squares[kept..padded(kept)].fill(0.0);
        let secular = SecularEquation::<false> {
            d: &self.poles[..padded(kept)],
            squares: &self.squares[..padded(kept)],
            count: kept,
            epsilon: epsilon::<T>(),
            x: SharedPtr(self.x.as_mut_ptr()),
            origin: SharedPtr(self.origin.as_mut_ptr()),
        };
        let (isa, pool) = (self.workers.isa, self.workers.pool);
        let factors = SharedPtr(self.factors.as_mut_ptr());
        // SAFETY: all have room for each row.
        unsafe {
            let exact = &mut self.exact[..padded(kept)];
            secular.solve(isa, pool, &self.signs[..kept], exact, &self.columns[..kept], factors, None);
        }
        for j in 0..kept {
            self.d[start + j] = self.poles[self.origin[j] as usize] + self.x[j];
        }
        let to = self.q.as_mut_ptr().wrapping_add(start * n + start);
        let (by, a) = (self.factors.as_ptr(), &self.running);
        // SAFETY: factors are `kept` squared, rows as gathered, and the results rows of the part.
        unsafe {
            a.product_of::<T>([kept, whole, left], (by, kept), (to_left.as_ptr(), left), (to, n));
            let by = by.wrapping_add(from);
            let to = to.wrapping_add(left);
            a.product_of::<T>([kept, kept - from, right], (by, kept), (to_right.as_ptr(), right), (to, n));
        }
        for (row, i) in unchanged.chunks_exact(size).zip(start + kept..end) {
            self.q[i * n + start..i * n + end].copy_from_slice(row);
        }
    }
}
