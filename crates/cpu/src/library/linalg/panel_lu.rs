//! LU factorization of a tall panel of contiguous columns. Vectors run down the columns, pivots are found with vector compares,
//! and most of the work is the update of one half of the columns by the other, several columns at a time.

#![expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]

use super::lines::on_machine;
use super::{Real, turned_from};
use crate::gemm::Isa;
use crate::gemm::vector::{Float, Vector};
use crate::library::SharedPtr;
use std::ops::Range;

/// Eliminates some columns of a tall matrix from their diagonal on. The columns are transposed into `room` meanwhile. Only the
/// rows of these columns are exchanged; the pivot of each step, counted from the first row, goes to `pivots`.
///
/// # Safety
/// The matrix is `[m, n]`, `room` is valid for the columns, and nothing else accesses the columns or `room`.
#[inline(always)]
pub(super) unsafe fn lu_columns<T: Real>(
    isa: Isa,
    a: SharedPtr<T>,
    m: usize,
    n: usize,
    columns: Range<usize>,
    pivots: &mut [u32],
    room: SharedPtr<T>,
) {
    let (start, height, w) = (columns.start, m - columns.start, columns.len());
    let at = start * (n + 1);
    // SAFETY: the matrix is `[m, n]`, `room` is valid for `height · w` elements, and nothing else accesses these
    // columns or `room`.
    unsafe {
        let room = std::slice::from_raw_parts_mut(room.at(0), height * w);
        turned_from(isa, a.at(at), n, [height, w], room.as_mut_ptr(), height);
        lu_halves(isa, room, height, 0..w, &mut |k, best| pivots[k] = best as u32);
        turned_from(isa, room.as_ptr(), height, [w, height], a.at(at), n);
    }
}

/// The maximum number of columns that are eliminated one by one; wider panels are split in half.
pub(super) const MIN_RECURSIVE_COLUMNS: usize = 4;

/// Eliminates some columns of `height` elements: the first half, the update of the other half, and then that half.
fn lu_halves<T: Real>(
    isa: Isa,
    room: &mut [T],
    height: usize,
    columns: Range<usize>,
    exchange: &mut impl FnMut(usize, usize),
) {
    if columns.len() > MIN_RECURSIVE_COLUMNS {
        let half = columns.start + (columns.len() / 2).next_multiple_of(MIN_RECURSIVE_COLUMNS);
        lu_halves(isa, room, height, columns.start..half, exchange);
        if half <= height {
            less_lines(isa, room, height, columns.start..half, half..columns.end);
            lu_halves(isa, room, height, half..columns.end, exchange);
        } else {
            less_lines(isa, room, height, columns.start..height, half..columns.end);
        }
        return;
    }
    for k in columns.start..columns.end.min(height) {
        let best = k + first_largest(isa, &room[k * height + k..(k + 1) * height]);
        exchange(k, best);
        if best != k {
            room.chunks_exact_mut(height).for_each(|column| column.swap(k, best));
        }
        eliminate(isa, &mut room[..columns.end * height], height, k);
    }
}

/// Finds the index of the first element with the largest magnitude; the index of the first element if that is NaN.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn largest_of<V: Vector<Elem: Real>>(x: &[V::Elem], to: &mut usize) {
    const L: usize = 16;
    let mut most = [x[0].abs(); L];
    let whole = x.chunks_exact(L);
    for (most, x) in most.iter_mut().zip(whole.remainder()) {
        *most = if x.abs() > *most { x.abs() } else { *most };
    }
    for x in whole {
        for l in 0..L {
            let x = x[l].abs();
            most[l] = if x > most[l] { x } else { most[l] };
        }
    }
    let most = most.into_iter().fold(x[0].abs(), |a, b| if b > a { b } else { a });
    // Skip whole blocks that do not contain it.
    let mut at = 0;
    while at + L <= x.len() && !x[at..at + L].iter().fold(false, |any, x| any | (x.abs() == most)) {
        at += L;
    }
    *to = at + x[at..].iter().position(|x| x.abs() == most).unwrap_or(0);
    if *to >= x.len() || x[*to].abs() != most {
        *to = 0;
    }
}

/// Does one elimination step: divides the elements of column `k` below the diagonal by the pivot and updates the columns after it.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn eliminate_of<V: Vector<Elem: Real>>(columns: &mut [V::Elem], height: usize, k: usize) {
    let (before, others) = columns.split_at_mut((k + 1) * height);
    let Some((top, own)) = before[k * height + k..].split_first_mut() else { return };
    if *top == V::Elem::ZERO {
        return;
    }
    // The reciprocal of a tiny number can be infinite.
    if (1e-30..1e30).contains(&top.abs().wide()) {
        let by = V::Elem::ONE / *top;
        own.iter_mut().for_each(|x| *x *= by);
    } else {
        own.iter_mut().for_each(|x| *x /= *top);
    }
    for column in others.chunks_exact_mut(height) {
        let f = -column[k];
        column[k + 1..].iter_mut().zip(&*own).for_each(|(y, x)| *y += f * *x);
    }
}

/// Updates columns by eliminated ones: their own rows one after the other, then the rows below.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn less_of<V: Vector<Elem: Real>>(
    columns: &mut [V::Elem],
    height: usize,
    known: Range<usize>,
    others: Range<usize>,
) {
    let (before, rest) = columns.split_at_mut(others.start * height);
    let rest = &mut rest[..others.len() * height];
    let end = known.end;
    for column in rest.chunks_exact_mut(height) {
        for k in known.clone() {
            let f = -column[k];
            let own = &before[k * height + k + 1..k * height + end];
            column[k + 1..end].iter_mut().zip(own).for_each(|(y, x)| *y += f * *x);
        }
    }
    let (from, len) = (before.as_ptr().wrapping_add(end), height - end);
    let at = |k: usize| from.wrapping_add(k * height);
    for four in rest.chunks_mut(MIN_RECURSIVE_COLUMNS * height) {
        let (targets, to) = (four.len() / height, four.as_mut_ptr());
        for k in known.clone().step_by(MIN_RECURSIVE_COLUMNS) {
            let sources: [*const V::Elem; MIN_RECURSIVE_COLUMNS] = std::array::from_fn(|s| at((k + s).min(end - 1)));
            // SAFETY: inside of the columns, above what is written.
            let by = |t: usize, s: usize| unsafe { -*to.add(t * height + k + s) };
            // SAFETY: all columns are inside of the matrix, none is both read and written, and the machine has the
            // instruction set.
            unsafe {
                let below = to.add(end);
                match (targets, (end - k).min(MIN_RECURSIVE_COLUMNS)) {
                    (4, 4) => tile::<V, 4, 4>(sources, below, height, len, by),
                    (3, 4) => tile::<V, 3, 4>(sources, below, height, len, by),
                    (2, 4) => tile::<V, 2, 4>(sources, below, height, len, by),
                    (1, 4) => tile::<V, 1, 4>(sources, below, height, len, by),
                    (_, known) => {
                        for (t, s) in (0..targets).flat_map(|t| (0..known).map(move |s| (t, s))) {
                            let below = below.add(t * height);
                            tile::<V, 1, 1>([sources[s]; MIN_RECURSIVE_COLUMNS], below, height, len, |_, _| by(t, s));
                        }
                    }
                }
            }
        }
    }
}

/// Subtracts from `M` columns, `height` apart, `by(t, s)` times each of `N` others.
///
/// # Safety
/// All are valid for `len` elements, none of the first is one of the others, and the machine has the vectors.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector<Elem: Real>, const M: usize, const N: usize>(
    from: [*const V::Elem; MIN_RECURSIVE_COLUMNS],
    to: *mut V::Elem,
    height: usize,
    len: usize,
    by: impl Fn(usize, usize) -> V::Elem,
) {
    // SAFETY: all columns are valid for `len` elements, none of the first is one of the others, and the machine has the
    // vectors.
    unsafe {
        let mut f = [[V::splat(V::Elem::ZERO); N]; M];
        for t in 0..M {
            for s in 0..N {
                f[t][s] = V::splat(by(t, s));
            }
        }
        let mut at = 0;
        while at + V::LANES <= len {
            let mut x = [V::splat(V::Elem::ZERO); N];
            for s in 0..N {
                x[s] = V::load(from[s].add(at));
            }
            for t in 0..M {
                let to = to.add(t * height + at);
                let mut sum = V::load(to);
                for s in 0..N {
                    sum = f[t][s].mul_add(x[s], sum);
                }
                sum.store(to);
            }
            at += V::LANES;
        }
        if at < len {
            let left = len - at;
            for t in 0..M {
                let to = to.add(t * height + at);
                let mut sum = V::load_first(to, left);
                for s in 0..N {
                    sum = f[t][s].mul_add(V::load_first(from[s].add(at), left), sum);
                }
                sum.store_first(to, left);
            }
        }
    }
}

on_machine!(largest, largest_of, (x: &[T], to: &mut usize));
on_machine!(
    /// Does one step of an elimination.
    eliminate, eliminate_of, (columns: &mut [T], height: usize, k: usize)
);
on_machine!(
    /// Updates columns by eliminated ones.
    less_lines, less_of, (columns: &mut [T], height: usize, known: Range<usize>, others: Range<usize>)
);

fn first_largest<T: Real>(isa: Isa, x: &[T]) -> usize {
    let mut at = 0;
    largest(isa, x, &mut at);
    at
}
