//! Recursive QR of a panel of contiguous columns (Elmroth and Gustavson): reflections of one half, their effect on the other
//! half, then reflections of the other half, with the triangle `T` of the block reflector. Most of the work is products of
//! several columns with several others.

use super::blocked::{BLOCK, ProductRunner, blocks};
use super::lines::on_machine;
use super::panel_lu::{MIN_RECURSIVE_COLUMNS, tile};
use super::{Real, axpy, dot, factor};
use crate::gemm::vector::Vector;
use crate::gemm::{Isa, MatrixLayout};
use std::ops::Range;

/// Computes the reflections of a block of columns of `height` elements, with at least as many rows as columns. The vectors are
/// left below the diagonal, `R` above it, and `t` is the upper triangle of the block reflector: `H₀·H₁ ⋯ = 1 - V·T·Vᵀ`.
pub(super) fn qr_block<T: Real>(isa: Isa, columns: &mut [T], height: usize, tau: &mut [T], t: &mut [T]) {
    let w = tau.len();
    debug_assert!(w <= BLOCK && w <= height);
    t[..w * w].fill(T::ZERO);
    halves(isa, columns, height, 0..w, tau, t);
}

impl ProductRunner<'_> {
    /// Computes the upper triangle `R` of a tall matrix, given as `n` columns of `m` elements, at the beginnings of the columns.
    /// The rest of the columns is overwritten.
    #[inline(always)]
    pub(super) fn triangle<T: Real>(&self, a: &mut [T], m: usize, n: usize, room: &mut [T]) {
        let (own, rest) = room.split_at_mut(BLOCK * m);
        let (by, rest) = rest.split_at_mut(BLOCK * m);
        let (sums, t) = rest.split_at_mut(BLOCK * n);
        let mut tau = [T::ZERO; BLOCK];
        for b in blocks(n) {
            let (w, size) = (b.len(), m - b.start);
            let own = &mut own[..w * size];
            for (j, to) in b.clone().zip(own.chunks_exact_mut(size)) {
                to.copy_from_slice(&a[j * m + b.start..(j + 1) * m]);
            }
            qr_block(self.isa(), own, size, &mut tau[..w], t);
            for (k, (j, column)) in b.clone().zip(own.chunks_exact_mut(size)).enumerate() {
                a[j * m + b.start..][..=k].copy_from_slice(&column[..=k]);
                column[..k].fill(T::ZERO);
                column[k] = T::ONE;
            }
            let count = n - b.end;
            if count == 0 {
                break;
            }
            // Columns are stored as rows here: C -= (C·V)·(T·Vᵀ).
            let (each, factors) = (MatrixLayout::row_major(size), MatrixLayout::row_major(w));
            let onto = a.as_mut_ptr().wrapping_add(b.end * m + b.start);
            // SAFETY: the block's vectors and factors, room for as many, and what is left of the columns behind it.
            unsafe {
                let v = own.as_ptr();
                self.product_any([w, w, size], (t.as_ptr(), factors), (v, each), (by.as_mut_ptr(), size), false);
                let columns = (onto.cast_const(), MatrixLayout::row_major(m));
                self.product_any([count, size, w], columns, (v, each.transposed()), (sums.as_mut_ptr(), w), false);
                self.product_any([count, w, size], (sums.as_ptr(), factors), (by.as_ptr(), each), (onto, m), true);
            }
        }
    }
}

fn halves<T: Real>(isa: Isa, columns: &mut [T], height: usize, own: Range<usize>, tau: &mut [T], t: &mut [T]) {
    if own.len() <= MIN_RECURSIVE_COLUMNS {
        return few(isa, columns, height, own, tau, t);
    }
    let width = tau.len();
    let half = own.start + (own.len() / 2).next_multiple_of(MIN_RECURSIVE_COLUMNS);
    let (first, second) = (own.start..half, half..own.end);
    halves(isa, columns, height, first.clone(), tau, t);
    // X -= V·(Tᵀ·(Vᵀ·X))
    let mut sums = [T::ZERO; BLOCK * BLOCK / 4];
    let count = second.len();
    products(isa, columns, height, first.clone(), second.clone(), false, &mut sums);
    for i in (0..first.len()).rev() {
        let (above, row) = sums.split_at_mut(i * count);
        let row = &mut row[..count];
        let at = |k: usize| t[(own.start + k) * width + own.start + i];
        row.iter_mut().for_each(|x| *x *= at(i));
        (0..i).for_each(|k| axpy(at(k), &above[k * count..(k + 1) * count], row));
    }
    subtract_vectors(isa, columns, height, first.clone(), second.clone(), &sums);
    halves(isa, columns, height, second.clone(), tau, t);
    // The off-diagonal block of T: -T₁·(V₁ᵀ·V₂)·T₂.
    products(isa, columns, height, first.clone(), second.clone(), true, &mut sums);
    for row in sums.chunks_exact_mut(count).take(first.len()) {
        for j in (0..count).rev() {
            row[j] = (0..=j).map(|k| row[k] * t[(half + k) * width + half + j]).sum();
        }
    }
    for i in 0..first.len() {
        let mut line = [T::ZERO; BLOCK];
        for k in i..first.len() {
            let f = -t[(own.start + i) * width + own.start + k];
            axpy(f, &sums[k * count..(k + 1) * count], &mut line[..count]);
        }
        t[(own.start + i) * width + half..][..count].copy_from_slice(&line[..count]);
    }
}

/// Computes the products of each vector with each other column, or with each other vector: one row of `sums` per vector.
fn products<T: Real>(
    isa: Isa,
    columns: &[T],
    height: usize,
    vectors: Range<usize>,
    others: Range<usize>,
    of_vectors: bool,
    sums: &mut [T],
) {
    let count = others.len();
    // From this row on all of them have stored elements.
    let below = if of_vectors { others.end } else { vectors.end };
    below_products(isa, columns, height, vectors.clone(), others.clone(), below, sums);
    for (i, sums) in vectors.zip(sums.chunks_exact_mut(count)) {
        let own = &columns[i * height..(i + 1) * height];
        for (j, sum) in others.clone().zip(sums) {
            let other = &columns[j * height..(j + 1) * height];
            // One of the two starts with an implicit 1.
            let (begin, first) = if of_vectors { (j + 1, own[j]) } else { (i + 1, other[i]) };
            let inside: T = own[begin..below].iter().zip(&other[begin..below]).map(|(x, y)| *x * *y).sum();
            *sum += first + inside;
        }
    }
}

/// Subtracts from columns the combinations of vectors that `sums` gives.
fn subtract_vectors<T: Real>(
    isa: Isa,
    columns: &mut [T],
    height: usize,
    vectors: Range<usize>,
    others: Range<usize>,
    sums: &[T],
) {
    let (before, rest) = columns.split_at_mut(others.start * height);
    for (j, column) in rest.chunks_exact_mut(height).enumerate().take(others.len()) {
        for (k, i) in vectors.clone().enumerate() {
            let f = sums[k * others.len() + j];
            column[i] -= f;
            axpy(-f, &before[i * height + i + 1..i * height + vectors.end], &mut column[i + 1..vectors.end]);
        }
    }
    less_vectors(isa, before, &mut rest[..others.len() * height], height, vectors, sums);
}

/// Computes the reflections of a few columns one after the other, and their triangle.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn few_of<V: Vector<Elem: Real>>(
    columns: &mut [V::Elem],
    height: usize,
    own: Range<usize>,
    tau: &mut [V::Elem],
    t: &mut [V::Elem],
) {
    let width = tau.len();
    for k in own.clone() {
        let (before, others) = columns[..own.end * height].split_at_mut((k + 1) * height);
        let (vectors, now) = before.split_at_mut(k * height);
        let now = &mut now[k..];
        let (first, factor) = factor::reflection(now);
        (now[0], tau[k]) = (first, factor);
        let v = &now[1..];
        if factor != V::Elem::ZERO {
            for column in others.chunks_exact_mut(height) {
                let along = factor * (column[k] + dot(v, &column[k + 1..]));
                column[k] -= along;
                axpy(-along, v, &mut column[k + 1..]);
            }
        }
        let mut with = [V::Elem::ZERO; MIN_RECURSIVE_COLUMNS];
        for i in own.start..k {
            let other = &vectors[i * height..(i + 1) * height];
            with[i - own.start] = other[k] + dot(v, &other[k + 1..]);
        }
        for i in own.start..k {
            let sum: V::Elem = (i..k).map(|j| t[i * width + j] * with[j - own.start]).sum();
            t[i * width + k] = -factor * sum;
        }
        t[k * width + k] = factor;
    }
}

/// Computes the products of each column with each other column, from row `below` on.
///
/// # Safety
/// The machine has the instruction set.
///
/// # Safety
/// All eight columns are valid for `len` elements, and the machine has the vectors.
#[inline(always)]
unsafe fn below_of<V: Vector<Elem: Real>>(
    columns: &[V::Elem],
    height: usize,
    vectors: Range<usize>,
    others: Range<usize>,
    below: usize,
    sums: &mut [V::Elem],
) {
    let (count, len) = (others.len(), height - below);
    let at = |j: usize| columns[j * height..(j + 1) * height][below..].as_ptr();
    for (k, i) in vectors.step_by(MIN_RECURSIVE_COLUMNS).enumerate() {
        let x: [_; MIN_RECURSIVE_COLUMNS] = std::array::from_fn(|s| at(i + s));
        for j in (0..count).step_by(MIN_RECURSIVE_COLUMNS) {
            let y: [_; MIN_RECURSIVE_COLUMNS] = std::array::from_fn(|s| at(others.start + (j + s).min(count - 1)));
            // SAFETY: indices are inside of columns, vectors come in fours, and the machine has the instruction set.
            let four = unsafe { dot_4x4::<V>(x, y, len) };
            for (r, four) in four.iter().enumerate() {
                let to = &mut sums[(k * MIN_RECURSIVE_COLUMNS + r) * count + j..];
                to.iter_mut().zip(four).take((count - j).min(MIN_RECURSIVE_COLUMNS)).for_each(|(to, x)| *to = *x);
            }
        }
    }
}

/// Computes the products of four columns with four others.
#[inline(always)]
unsafe fn dot_4x4<V: Vector<Elem: Real>>(
    x: [*const V::Elem; MIN_RECURSIVE_COLUMNS],
    y: [*const V::Elem; MIN_RECURSIVE_COLUMNS],
    len: usize,
) -> [[V::Elem; MIN_RECURSIVE_COLUMNS]; MIN_RECURSIVE_COLUMNS] {
    // SAFETY: all eight columns are valid for `len` elements, and the machine has the vectors.
    unsafe {
        let mut sums = [[V::splat(V::Elem::ZERO); MIN_RECURSIVE_COLUMNS]; MIN_RECURSIVE_COLUMNS];
        let mut at = 0;
        while at + V::LANES <= len {
            let mut b = [V::splat(V::Elem::ZERO); MIN_RECURSIVE_COLUMNS];
            for s in 0..MIN_RECURSIVE_COLUMNS {
                b[s] = V::load(y[s].add(at));
            }
            for r in 0..MIN_RECURSIVE_COLUMNS {
                let a = V::load(x[r].add(at));
                for s in 0..MIN_RECURSIVE_COLUMNS {
                    sums[r][s] = a.mul_add(b[s], sums[r][s]);
                }
            }
            at += V::LANES;
        }
        if at < len {
            let left = len - at;
            for r in 0..MIN_RECURSIVE_COLUMNS {
                let a = V::load_first(x[r].add(at), left);
                for s in 0..MIN_RECURSIVE_COLUMNS {
                    sums[r][s] = a.mul_add(V::load_first(y[s].add(at), left), sums[r][s]);
                }
            }
        }
        let mut all = [[V::Elem::ZERO; MIN_RECURSIVE_COLUMNS]; MIN_RECURSIVE_COLUMNS];
        for r in 0..MIN_RECURSIVE_COLUMNS {
            for s in 0..MIN_RECURSIVE_COLUMNS {
                all[r][s] = sums[r][s].sum();
            }
        }
        all
    }
}

/// Subtracts combinations of vectors from columns, below the diagonal elements of the last vector.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn less_of<V: Vector<Elem: Real>>(
    columns: &[V::Elem],
    others: &mut [V::Elem],
    height: usize,
    vectors: Range<usize>,
    sums: &[V::Elem],
) {
    let (below, count) = (vectors.end, others.len() / height);
    let len = height - below;
    let at = |j: usize| columns[j * height..(j + 1) * height][below..].as_ptr();
    for (group, four) in others.chunks_mut(MIN_RECURSIVE_COLUMNS * height).enumerate() {
        let (targets, to) = (four.len() / height, four.as_mut_ptr().wrapping_add(below));
        for (k, i) in vectors.clone().step_by(MIN_RECURSIVE_COLUMNS).enumerate() {
            let from: [_; MIN_RECURSIVE_COLUMNS] = std::array::from_fn(|s| at(i + s));
            let by =
                |t: usize, s: usize| -sums[(k * MIN_RECURSIVE_COLUMNS + s) * count + group * MIN_RECURSIVE_COLUMNS + t];
            // SAFETY: all columns are inside of the matrix, none of them is one of the vectors, which come in fours,
            // and the machine has the instruction set.
            unsafe {
                match targets {
                    4 => tile::<V, 4, 4>(from, to, height, len, by),
                    3 => tile::<V, 3, 4>(from, to, height, len, by),
                    2 => tile::<V, 2, 4>(from, to, height, len, by),
                    _ => tile::<V, 1, 4>(from, to, height, len, by),
                }
            }
        }
    }
}

on_machine!(few, few_of, (columns: &mut [T], height: usize, own: Range<usize>, tau: &mut [T], t: &mut [T]));
on_machine!(
    /// The products of columns from row `below` on.
    below_products, below_of,
    (columns: &[T], height: usize, vectors: Range<usize>, others: Range<usize>, below: usize, sums: &mut [T])
);
on_machine!(
    /// Subtracts combinations of vectors from columns, below the diagonal elements.
    less_vectors, less_of, (columns: &[T], others: &mut [T], height: usize, vectors: Range<usize>, sums: &[T])
);
