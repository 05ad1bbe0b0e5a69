//! Bidiagonal SVD by divide and conquer (Gu and Eisenstat). Without one of its rows the matrix splits into two blocks, the first
//! with one more column than rows. The blocks' singular vectors transform that row into one above a diagonal matrix. The singular
//! vectors of the result ([`SecularEquation`]), times those of the halves, are the singular vectors of the whole. Zero elements
//! of the row and pairs of equal values are deflated.
//!
//! Values are f64 throughout. Vectors, and so the matrix products that are nearly all of the work, have the matrix's own dtype.

use super::blocked::ProductRunner;
use super::delayed_givens::{self, DelayedRotations};
use super::secular_equation::{NO_POLE, SecularEquation, padded};
use super::tridiagonal_dc::{epsilon, rotate_rows, split_as};
use super::{Real, Workers, bidiagonal};
use crate::library::SharedPtr;
use std::ops::Range;

/// The number of rows below which a block is not split further.
const LEAF: usize = 32;

/// The size relative to the largest element below which any element counts as zero; squares of larger elements keep full precision.
const LEAST: f64 = 1e-20;

/// The number of scratch elements in addition to the vectors: three matrices, eight vectors of values, and five vectors of indices.
pub(super) fn scratch_elements(n: usize) -> usize {
    3 * n * n + (2 * 8 + 5) * (padded(n) + 8)
}

/// A bidiagonal matrix during divide and conquer.
struct BidiagonalSplit<'a, T: Real> {
    n: usize,
    /// The size below which an element counts as zero in every block.
    least: f64,
    /// The diagonal, which becomes the singular values, and the superdiagonal: `e[i]` is in column `i`.
    d: &'a mut [f64],
    e: &'a [f64],
    /// The left singular vectors as rows with a fixed stride.
    /// Row `i` belongs to `d[i]` and is nonzero only in the columns of its block.
    u: &'a mut [T],
    u_row: usize,
    /// The right singular vectors. A block with one more column than rows also has its null vector, after the others.
    v: &'a mut [T],
    /// Rows to multiply, and the factors of that product.
    rows: &'a mut [T],
    left: &'a mut [T],
    right: &'a mut [T],
    z: &'a mut [f64],
    poles: &'a mut [f64],
    squares: &'a mut [f64],
    signs: &'a mut [f64],
    exact: &'a mut [f64],
    x: &'a mut [f64],
    /// The rows of each block, ordered by their values.
    order: &'a mut [u32],
    /// The rows that take part in a product, from the front, and the others, from the back.
    chosen: &'a mut [u32],
    /// The nonzero columns of a row: 0 for the left half, 2 for the right half, 1 for both.
    kinds: &'a mut [u32],
    origin: &'a mut [u32],
    /// The columns of the factors for the remaining rows.
    places: &'a mut [u32],
    workers: Workers<'a>,
    running: ProductRunner<'a>,
}

/// Writes the singular values of the matrix with diagonal `d` and superdiagonal `e[1..]` to `d`, unordered, and the vectors to
/// the rows of `u`, which are `u_row` apart, and of `v`. The rows of `u` must be zero on entry.
#[expect(clippy::too_many_arguments, reason = "two diagonals and both sides")]
#[inline(always)]
pub(super) fn singular_values<T: Real>(
    d: &mut [T],
    e: &[T],
    u: &mut [T],
    u_row: usize,
    v: &mut [T],
    room: &mut [T],
    workers: Workers<'_>,
    running: ProductRunner<'_>,
) {
    let n = d.len();
    let (rows, room) = room.split_at_mut(n * n);
    let (left, room) = room.split_at_mut(n * n);
    let (right, room) = room.split_at_mut(n * n);
    let (diagonal, room) = split_as::<f64, T>(room, n);
    let (above, room) = split_as::<f64, T>(room, n);
    let (z, room) = split_as::<f64, T>(room, n);
    let (poles, room) = split_as::<f64, T>(room, padded(n));
    let (squares, room) = split_as::<f64, T>(room, padded(n));
    let (signs, room) = split_as::<f64, T>(room, n);
    let (exact, room) = split_as::<f64, T>(room, padded(n));
    let (x, room) = split_as::<f64, T>(room, n);
    let (order, room) = split_as::<u32, T>(room, n);
    let (chosen, room) = split_as::<u32, T>(room, n);
    let (kinds, room) = split_as::<u32, T>(room, n);
    let (origin, room) = split_as::<u32, T>(room, n);
    let (places, _) = split_as::<u32, T>(room, n);
    diagonal.iter_mut().zip(&*d).for_each(|(to, x)| *to = x.wide());
    above.iter_mut().zip(e).for_each(|(to, x)| *to = x.wide());
    v.fill(T::ZERO);
    let norm = diagonal.iter().chain(&*above).fold(0f64, |m, x| m.max(x.abs()));
    if norm == 0.0 {
        (0..n).for_each(|i| (u[i * u_row + i], v[i * n + i]) = (T::ONE, T::ONE));
        return;
    }
    let mut all = BidiagonalSplit {
        n,
        least: LEAST * norm,
        d: &mut *diagonal,
        e: above,
        u,
        u_row,
        v,
        rows,
        left,
        right,
        z,
        poles,
        squares,
        signs,
        exact,
        x,
        order,
        chosen,
        kinds,
        origin,
        places,
        workers,
        running,
    };
    all.solve(0..n, false);
    d.iter_mut().zip(diagonal).for_each(|(to, x)| *to = T::of(*x));
}

/// The rows that a merge leaves unchanged, and the rows that it multiplies.
#[derive(Clone, Copy)]
struct Joint {
    start: usize,
    middle: usize,
    end: usize,
    /// Whether there is a column after the last row's.
    wide: bool,
    /// The number of rows that are multiplied:
    /// all, those nonzero in the left half or in both, and those nonzero in the left half only.
    kept: usize,
    whole: usize,
    from: usize,
}

impl<T: Real> BidiagonalSplit<'_, T> {
    /// Solves a block of rows with as many columns, or with one more if `wide`.
    fn solve(&mut self, part: Range<usize>, wide: bool) {
        if part.len() <= LEAF {
            return self.leaf(part, wide);
        }
        let middle = part.start + part.len() / 2;
        let (own, beside) = (self.d[middle], self.e[middle + 1]);
        self.solve(part.start..middle, true);
        self.solve(middle + 1..part.end, wide);
        self.merge_halves(part.start, middle, part.end, wide, own, beside);
    }

    fn leaf(&mut self, part: Range<usize>, wide: bool) {
        const MOST: usize = LEAF + 1;
        let (size, n, start) = (part.len(), self.n, part.start);
        let cols = size + usize::from(wide);
        let (mut u, mut v) = ([0f64; LEAF * LEAF], [0f64; MOST * MOST]);
        let (mut e, mut negative) = ([0f64; LEAF], [0f64; LEAF]);
        let mut rotations = [[0f64; delayed_givens::scratch_elements(LEAF)]; 2];
        let (u, v, e) = (&mut u[..size * size], &mut v[..cols * cols], &mut e[..size]);
        (0..size).for_each(|i| u[i * size + i] = 1.0);
        (0..cols).for_each(|i| v[i * cols + i] = 1.0);
        e[1..].copy_from_slice(&self.e[start + 1..part.end]);
        let d = &mut self.d[part.clone()];
        if wide {
            // Rotations move the elements of the last column into the diagonal, from the last row on.
            let mut beyond = self.e[part.end];
            for i in (0..size).rev() {
                let length = d[i].hypot(beyond);
                if beyond == 0.0 {
                    break;
                }
                let (c, s) = (d[i] / length, beyond / length);
                d[i] = length;
                rotate_rows(v, cols, 0..cols, i, size, c, s);
                beyond = -s * e[i];
                e[i] *= c;
            }
        }
        let [first, second] = &mut rotations;
        let isa = self.workers.isa;
        let (on_left, on_right) = (
            DelayedRotations::new(u, size, isa, None, first),
            DelayedRotations::new(&mut v[..size * cols], cols, isa, None, second),
        );
        bidiagonal::iterate(on_left, size, size, on_right, d, e, &mut negative, true);
        for (i, row) in u.chunks_exact(size).enumerate() {
            let to = &mut self.u[(start + i) * self.u_row + start..][..size];
            to.iter_mut().zip(row).for_each(|(to, x)| *to = T::of(*x));
        }
        for (i, row) in v.chunks_exact(cols).enumerate() {
            let sign = if i < size && negative[i] != 0.0 { -1.0 } else { 1.0 };
            let to = &mut self.v[(start + i) * n + start..][..cols];
            to.iter_mut().zip(row).for_each(|(to, x)| *to = T::of(sign * *x));
        }
    }

    /// Merges both halves and the row between them, which has `own` on the diagonal and `beside` next to it.
    fn merge_halves(&mut self, start: usize, middle: usize, end: usize, wide: bool, own: f64, beside: f64) {
        let n = self.n;
        for i in start..end {
            self.z[i] = match i <= middle {
                true => self.v[i * n + middle].wide() * own,
                false => self.v[i * n + middle + 1].wide() * beside,
            };
            self.kinds[i] = if i <= middle { 0 } else { 2 };
        }
        if wide {
            // Both halves have a null vector. A rotation in their plane leaves one null vector.
            let other = self.v[end * n + middle + 1].wide() * beside;
            let length = self.z[middle].hypot(other);
            if other != 0.0 {
                let (c, s) = (self.z[middle] / length, other / length);
                rotate_rows(self.v, n, start..end + 1, middle, end, T::of(c), T::of(s));
                self.z[middle] = length;
                self.kinds[middle] = 1;
            }
        }
        self.d[middle] = 0.0;
        // Order the rows of both halves by their values; the row between them is first.
        let (d, order) = (&*self.d, &mut self.order[start..end]);
        order.iter_mut().zip(start..end).for_each(|(to, row)| *to = row as u32);
        let key = |&i: &u32| (i as usize != middle, i);
        order.sort_unstable_by(|a, b| {
            let (first, second) = (key(a), key(b));
            first.0.cmp(&second.0).then(d[*a as usize].total_cmp(&d[*b as usize])).then(first.1.cmp(&second.1))
        });
        let most = self.d[start..end].iter().fold(own.abs().max(beside.abs()), |m, x| m.max(x.abs()));
        let nothing = 8.0 * T::EPSILON.wide() * most.max(self.least);
        if self.z[middle].abs() <= nothing {
            self.z[middle] = nothing;
        }
        let (mut kept, mut gone) = (1, 0);
        self.chosen[start] = middle as u32;
        let mut last: Option<usize> = None;
        for at in start + 1..end {
            let i = self.order[at] as usize;
            if self.z[i].abs() <= nothing {
                gone += 1;
                self.chosen[end - gone] = i as u32;
                continue;
            }
            if let Some(p) = last {
                if self.d[i] - self.d[p] <= nothing {
                    // Deflate equal values: after a rotation in their plane, only one of them has an element in the row.
                    let length = self.z[i].hypot(self.z[p]);
                    let (c, s) = (T::of(self.z[i] / length), T::of(-self.z[p] / length));
                    self.z[i] = length;
                    rotate_rows(self.u, self.u_row, start..end, p, i, c, s);
                    rotate_rows(self.v, n, start..end + usize::from(wide), p, i, c, s);
                    if self.kinds[p] != self.kinds[i] {
                        self.kinds[i] = 1;
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
        debug_assert_eq!(kept + gone, end - start);
        self.update_vectors(start, middle, end, wide, kept, nothing);
    }

    /// Computes new vectors for the remaining rows, which become the first rows of the block.
    fn update_vectors(&mut self, start: usize, middle: usize, end: usize, wide: bool, kept: usize, nothing: f64) {
        for j in 0..kept {
            let i = self.chosen[start + j] as usize;
            self.poles[j] = self.d[i];
            self.signs[j] = self.z[i];
            self.squares[j] = self.z[i] * self.z[i];
        }
        if kept > 1 {
            self.poles[1] = self.poles[1].max(0.5 * nothing);
        }
        // Group the rows by their nonzero columns: left half, both, right half.
        let count = |kind: u32| (0..kept).filter(|j| self.kinds[self.chosen[start + j] as usize] == kind).count();
        let (first, both) = (count(0), count(1));
        let joint = Joint { start, middle, end, wide, kept, whole: first + both, from: first };
        let mut next = [0, first, first + both];
        for j in 0..kept {
            let kind = self.kinds[self.chosen[start + j] as usize] as usize;
            self.places[j] = next[kind] as u32;
            next[kind] += 1;
        }
        let rest = end - start - kept;
        for (to, &i) in self.exact.iter_mut().zip(&self.chosen[start + kept..end]) {
            *to = self.d[i as usize];
        }
        self.d[start + kept..end].copy_from_slice(&self.exact[..rest]);
        self.poles[kept..padded(kept)].fill(NO_POLE);
        self.squares[kept..padded(kept)].fill(0.0);
        let secular = SecularEquation::<true> {
            d: &self.poles[..padded(kept)],
            squares: &self.squares[..padded(kept)],
            count: kept,
            epsilon: epsilon::<T>(),
            x: SharedPtr(self.x.as_mut_ptr()),
            origin: SharedPtr(self.origin.as_mut_ptr()),
        };
        let (isa, pool) = (self.workers.isa, self.workers.pool);
        let (left, right) = (SharedPtr(self.left.as_mut_ptr()), SharedPtr(self.right.as_mut_ptr()));
        // SAFETY: all have room for each row.
        unsafe {
            let exact = &mut self.exact[..padded(kept)];
            secular.solve(isa, pool, &self.signs[..kept], exact, &self.places[..kept], right, Some(left));
        }
        for j in 0..kept {
            let pole = self.poles[self.origin[j] as usize];
            self.d[start + j] = pole + self.x[j] / (pole + (pole * pole + self.x[j]).abs().sqrt());
        }
        self.multiply_rows(joint, true);
        self.multiply_rows(joint, false);
    }

    /// Multiplies the rows of one side.
    fn multiply_rows(&mut self, joint: Joint, right_side: bool) {
        let Joint { start, middle, end, wide, kept, whole, from } = joint;
        let (all, step, factors) = match right_side {
            true => (&mut *self.v, self.n, &*self.right),
            false => (&mut *self.u, self.u_row, &*self.left),
        };
        // The columns of the left half and of the right half, and where the right half begins. On the left side, the row between
        // them belongs to neither.
        let (left, begin) = (middle - start + usize::from(right_side), middle + 1);
        let right = end - begin + usize::from(right_side && wide);
        let size = begin - start + right;
        let (others, unchanged) = self.rows.split_at_mut(whole * left + (kept - from) * right);
        let (to_left, to_right) = others.split_at_mut(whole * left);
        for (&i, &place) in self.chosen[start..start + kept].iter().zip(&*self.places) {
            let (i, place) = (i as usize, place as usize);
            let row = &all[i * step..];
            if place < whole {
                to_left[place * left..][..left].copy_from_slice(&row[start..start + left]);
            }
            if place >= from {
                to_right[(place - from) * right..][..right].copy_from_slice(&row[begin..begin + right]);
            }
        }
        let unchanged = &mut unchanged[..(end - start - kept) * size];
        for (row, &i) in unchanged.chunks_exact_mut(size).zip(&self.chosen[start + kept..end]) {
            row.copy_from_slice(&all[i as usize * step + start..][..size]);
        }
        let to = all.as_mut_ptr().wrapping_add(start * step + start);
        let (by, a) = (factors.as_ptr(), &self.running);
        // SAFETY: factors are `kept` squared, rows as gathered, and the results rows of the part.
        unsafe {
            if left > 0 {
                a.product_of::<T>([kept, whole, left], (by, kept), (to_left.as_ptr(), left), (to, step));
            }
            let (by, to) = (by.wrapping_add(from), to.wrapping_add(begin - start));
            if kept == from {
                // No row has nonzero elements in these columns.
                (0..kept).for_each(|j| std::slice::from_raw_parts_mut(to.wrapping_add(j * step), right).fill(T::ZERO));
            } else if right > 0 {
                a.product_of::<T>([kept, kept - from, right], (by, kept), (to_right.as_ptr(), right), (to, step));
            }
        }
        if !right_side {
            // The row between the halves is nonzero only in its own column, and it is the first chosen row.
            let place = self.places[0] as usize;
            for j in 0..kept {
                all[(start + j) * step + middle] = factors[j * kept + place];
            }
        }
        for (row, i) in unchanged.chunks_exact(size).zip(start + kept..end) {
            all[i * step + start..][..size].copy_from_slice(row);
        }
    }
}
