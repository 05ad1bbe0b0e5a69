//! Matrix-vector operations on the rows (lines) of a matrix, compiled for every instruction set.

use super::{Real, factor};
use crate::gemm::Isa;
use crate::gemm::vector::{Float, Vector};
use ir::ops::TriangularSolve;
use std::ops::Range;

/// The number of lines that are processed together.
pub(super) const AT_ONCE: usize = 4;
/// The number of lanes of the widest vector.
const LANES: usize = 16;

/// Calls `f(k, lanes)` for each full vector of `len` elements, and for the partial vector at the end.
#[inline(always)]
fn each<V: Vector>(len: usize, mut f: impl FnMut(usize, usize)) {
    let whole = len / V::LANES * V::LANES;
    for k in (0..whole).step_by(V::LANES) {
        f(k, V::LANES);
    }
    if whole < len {
        f(whole, len - whole);
    }
}

/// # Safety
/// `p` is valid for `n` elements, no more than a vector has, and the machine has the vectors.
#[inline(always)]
unsafe fn load<V: Vector>(p: *const V::Elem, n: usize) -> V {
    // SAFETY: `p` is valid for `n` elements, of which a vector has no fewer.
    unsafe { if n == V::LANES { V::load(p) } else { V::load_first(p, n) } }
}

/// # Safety
/// `p` is valid for `n` elements, no more than a vector has, and the machine has the vectors.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn store<V: Vector>(v: V, p: *mut V::Elem, n: usize) {
    // SAFETY: `p` is valid for `n` elements, of which a vector has no fewer.
    unsafe { if n == V::LANES { v.store(p) } else { v.store_first(p, n) } }
}

/// Computes `y[j] = lines[j]·v`.
#[inline(always)]
unsafe fn dots_of<V: Vector<Elem: Real>>(lines: &[V::Elem], step: usize, v: &[V::Elem], y: &mut [V::Elem]) {
    let len = v.len();
    let at = |j: usize| lines[j * step..j * step + len].as_ptr();
    let fours = y.len() / AT_ONCE * AT_ONCE;
    // SAFETY: indices are inside of lines and vector, and the machine has the instruction set.
    unsafe {
        for j in (0..fours).step_by(AT_ONCE) {
            let four = [at(j), at(j + 1), at(j + 2), at(j + 3)];
            let mut sums = [V::splat(V::Elem::ZERO); AT_ONCE];
            each::<V>(len, |k, n| {
                let x = load::<V>(v.as_ptr().add(k), n);
                for r in 0..AT_ONCE {
                    sums[r] = x.mul_add(load::<V>(four[r].add(k), n), sums[r]);
                }
            });
            for r in 0..AT_ONCE {
                y[j + r] = sums[r].sum();
            }
        }
        for j in fours..y.len() {
            y[j] = dot_of::<V>(at(j), v.as_ptr(), len);
        }
    }
}

/// # Safety
/// `x` and `y` are valid for `len` elements, and the machine has the instruction set.
#[inline(always)]
unsafe fn dot_of<V: Vector<Elem: Real>>(x: *const V::Elem, y: *const V::Elem, len: usize) -> V::Elem {
    // SAFETY: `x` and `y` are valid for `len` elements, and the machine has the instruction set.
    unsafe {
        // Use four accumulators while at least four vectors remain.
        let mut sums = [V::splat(V::Elem::ZERO); AT_ONCE];
        let wide = AT_ONCE * V::LANES;
        let whole = len / wide * wide;
        for k in (0..whole).step_by(wide) {
            for r in 0..AT_ONCE {
                let k = k + r * V::LANES;
                sums[r] = V::load(x.add(k)).mul_add(V::load(y.add(k)), sums[r]);
            }
        }
        each::<V>(len - whole, |k, n| {
            let k = whole + k;
            sums[0] = load::<V>(x.add(k), n).mul_add(load::<V>(y.add(k), n), sums[0]);
        });
        sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum()
    }
}

/// Computes `y += f·x`.
///
/// # Safety
/// `x` and `y` are valid for `len` elements, and the machine has the instruction set.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn axpy_of<V: Vector<Elem: Real>>(f: V::Elem, x: *const V::Elem, y: *mut V::Elem, len: usize) {
    // SAFETY: `x` and `y` are valid for `len` elements, and the machine has the instruction set.
    unsafe {
        let f = V::splat(f);
        each::<V>(len, |k, n| store(f.mul_add(load::<V>(x.add(k), n), load::<V>(y.add(k), n)), y.add(k), n));
    }
}

/// Computes `x += Σ u[j]·lines[j]`.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn combined_of<V: Vector<Elem: Real>>(lines: &[V::Elem], step: usize, u: &[V::Elem], x: &mut [V::Elem]) {
    let len = x.len();
    let at = |j: usize| lines[j * step..j * step + len].as_ptr();
    let fours = u.len() / AT_ONCE * AT_ONCE;
    let x = x.as_mut_ptr();
    // SAFETY: indices are inside of lines and vector, and the machine has the instruction set.
    unsafe {
        for j in (0..fours).step_by(AT_ONCE) {
            let four = [at(j), at(j + 1), at(j + 2), at(j + 3)];
            let f = [V::splat(u[j]), V::splat(u[j + 1]), V::splat(u[j + 2]), V::splat(u[j + 3])];
            each::<V>(len, |k, n| {
                let low = f[1].mul_add(load::<V>(four[1].add(k), n), f[0].mul(load::<V>(four[0].add(k), n)));
                let high = f[3].mul_add(load::<V>(four[3].add(k), n), f[2].mul(load::<V>(four[2].add(k), n)));
                store(load::<V>(x.add(k), n).add(low.add(high)), x.add(k), n);
            });
        }
        for j in fours..u.len() {
            axpy_of::<V>(u[j], at(j), x, len);
        }
    }
}

/// Computes the contribution of some rows of a symmetric matrix to `y = A·v`, for rows and columns from `k` on. Elements left of
/// the diagonal count for both triangles; diagonal blocks are stored completely. The rows are a [`symmetric_piece`]; `y` has an
/// element for each row up to the last of them.
#[inline(always)]
unsafe fn symmetric_of<V: Vector<Elem: Real>>(
    a: &[V::Elem],
    n: usize,
    k: usize,
    rows: Range<usize>,
    v: &[V::Elem],
    y: &mut [V::Elem],
) {
    let size = n - k;
    let (v, y) = (&v[..size], &mut y[..rows.end]);
    y.fill(V::Elem::ZERO);
    let row = |i: usize| a[(k + i) * n + k..(k + i + 1) * n].as_ptr();
    let wide = V::LANES.max(AT_ONCE);
    let whole = rows.end / wide * wide;
    let to = y.as_mut_ptr();
    // SAFETY: indices are inside of the matrix and of both vectors, and the machine has the instruction set.
    unsafe {
        for block in (rows.start..whole).step_by(wide) {
            for i in (block..block + wide).step_by(AT_ONCE) {
                let rows = [row(i), row(i + 1), row(i + 2), row(i + 3)];
                let f = [V::splat(v[i]), V::splat(v[i + 1]), V::splat(v[i + 2]), V::splat(v[i + 3])];
                let mut sums = [V::splat(V::Elem::ZERO); AT_ONCE];
                for c in (0..block).step_by(V::LANES) {
                    let x = V::load(v.as_ptr().add(c));
                    let mut both = V::load(to.add(c));
                    for r in 0..AT_ONCE {
                        let line = V::load(rows[r].add(c));
                        both = f[r].mul_add(line, both);
                        sums[r] = x.mul_add(line, sums[r]);
                    }
                    both.store(to.add(c));
                }
                for c in (block..block + wide).step_by(V::LANES) {
                    let x = V::load(v.as_ptr().add(c));
                    for r in 0..AT_ONCE {
                        sums[r] = x.mul_add(V::load(rows[r].add(c)), sums[r]);
                    }
                }
                for r in 0..AT_ONCE {
                    *to.add(i + r) += sums[r].sum();
                }
            }
        }
        for i in whole.max(rows.start)..rows.end {
            let line = row(i);
            axpy_of::<V>(v[i], line, to, i);
            *to.add(i) += dot_of::<V>(line, v.as_ptr(), i) + v[i] * *line.add(i);
        }
    }
}

/// The minimum number of rows of a piece, if all pieces had the same number of rows.
pub(super) const PIECE: usize = 128;
/// The maximum number of pieces.
const PIECES: usize = 8;

/// The number of pieces for a symmetric matrix of order `size`. Each piece has its own sums, so only the size may decide it.
pub(super) fn symmetric_pieces(size: usize) -> usize {
    (size / PIECE).clamp(1, PIECES)
}

/// The rows of a piece. All pieces have about the same number of elements left of the diagonal.
pub(super) fn symmetric_piece(size: usize, piece: usize) -> Range<usize> {
    let pieces = symmetric_pieces(size);
    let begin = |p: usize| match p == pieces {
        true => size,
        false => (size as f64 * (p as f64 / pieces as f64).sqrt()) as usize / LANES * LANES,
    };
    begin(piece)..begin(piece + 1)
}

/// Computes the reflections of some contiguous columns, which start at the diagonal element of the first, and applies them to the
/// later columns. The vectors are left below the diagonal.
///
/// # Safety
/// The machine has the instruction set.
///
/// # Safety
/// The machine has the instruction set.
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
unsafe fn qr_of<V: Vector<Elem: Real>>(columns: &mut [V::Elem], height: usize, tau: &mut [V::Elem]) {
    for k in 0..tau.len().min(height) {
        let (before, others) = columns.split_at_mut((k + 1) * height);
        let own = &mut before[k * height + k..];
        let (first, factor) = factor::reflection(own);
        (own[0], tau[k]) = (first, factor);
        if factor == V::Elem::ZERO {
            continue;
        }
        // SAFETY: the machine has the instruction set.
        unsafe { reflect_of::<V>(&own[1..], factor, others, height) };
    }
}

/// Applies a reflection, whose vector is 1 followed by `v`, to the ends of columns of `height` elements.
#[inline(always)]
unsafe fn reflect_of<V: Vector<Elem: Real>>(v: &[V::Elem], factor: V::Elem, columns: &mut [V::Elem], height: usize) {
    let k = height - v.len() - 1;
    for column in columns.chunks_exact_mut(height) {
        let (first, below) = column[k..].split_first_mut().expect("a row for each reflection");
        // SAFETY: indices are inside of the vector, and the machine has the instruction set.
        unsafe {
            let along = factor * (*first + dot_of::<V>(v.as_ptr(), below.as_ptr(), v.len()));
            *first -= along;
            axpy_of::<V>(-along, v.as_ptr(), below.as_mut_ptr(), v.len());
        }
    }
}

/// Replaces the reflections that [`qr_of`] leaves by the columns of Q, the last one first.
///
/// # Safety
/// The triangle and the rows are valid for their sizes, and the machine has the instruction set.
#[inline(always)]
unsafe fn q_of<V: Vector<Elem: Real>>(columns: &mut [V::Elem], height: usize, tau: &[V::Elem]) {
    for (k, &factor) in tau.iter().enumerate().take(height).rev() {
        let (before, others) = columns.split_at_mut((k + 1) * height);
        let (above, own) = before[k * height..].split_at_mut(k);
        if factor != V::Elem::ZERO {
            // SAFETY: the machine has the instruction set.
            unsafe { reflect_of::<V>(&own[1..], factor, others, height) };
        }
        above.fill(V::Elem::ZERO);
        own[0] = V::Elem::ONE - factor;
        own[1..].iter_mut().for_each(|x| *x *= -factor);
    }
}

/// A triangular matrix, from the given diagonal element on, with row and column strides in elements.
#[derive(Clone, Copy)]
pub(super) struct Triangle<T> {
    pub(super) diagonal: *const T,
    pub(super) row: usize,
    pub(super) col: usize,
    pub(super) count: usize,
    /// Whether the diagonal is taken as ones.
    pub(super) unit: bool,
    /// Whether the matrix is lower triangular, so that unknowns are solved in ascending order.
    pub(super) forward: bool,
}

impl<T> Triangle<T> {
    /// The triangle of a diagonal block of a matrix of order `n`, as a triangular solve reads it.
    pub(super) fn of(op: TriangularSolve, a: &[T], n: usize, block: Range<usize>) -> Triangle<T> {
        let (row, col) = if op.transpose { (1, n) } else { (n, 1) };
        let diagonal = a.as_ptr().wrapping_add(block.start * (n + 1));
        Triangle { diagonal, row, col, count: block.len(), unit: op.unit, forward: op.lower != op.transpose }
    }
}

/// The number of vectors of columns that are solved together.
const SIDE_BY_SIDE: usize = 4;

/// Solves for `width` columns of rows that are `step` apart, in place: a few vectors of columns at a time, which stay in L1.
///
/// # Safety
/// `get` and `put` may be called for all elements of the rows, and the machine has the instruction set.
#[inline(always)]
unsafe fn solve_of<V: Vector<Elem: Real>>(t: Triangle<V::Elem>, rows: *mut V::Elem, step: usize, width: usize) {
    let wide = SIDE_BY_SIDE * V::LANES;
    let whole = width / wide * wide;
    // SAFETY: the triangle and the rows are valid for their sizes, and the machine has the instruction set.
    unsafe {
        for c in (0..whole).step_by(wide) {
            let strip = rows.add(c);
            solve_vectors::<V, SIDE_BY_SIDE>(
                t,
                |i, j| V::load(strip.add(i * step + j * V::LANES)),
                |i, j, v| {
                    v.store(strip.add(i * step + j * V::LANES));
                },
            );
        }
        // Do not use `each`: a closure this large is compiled as a separate function without the vector instructions.
        for c in (whole..width).step_by(V::LANES) {
            let (strip, n) = (rows.add(c), V::LANES.min(width - c));
            solve_vectors::<V, 1>(
                t,
                |i, _| load::<V>(strip.add(i * step), n),
                |i, _, v| store(v, strip.add(i * step), n),
            );
        }
    }
}

/// Solves for `N` vectors of columns. `load` and `store` access the columns of a row.
#[inline(always)]
unsafe fn solve_vectors<V: Vector<Elem: Real>, const N: usize>(
    t: Triangle<V::Elem>,
    get: impl Fn(usize, usize) -> V,
    put: impl Fn(usize, usize, V),
) {
    // SAFETY: the triangle is valid for its size, and the machine has the instruction set.
    unsafe {
        let at = |i: usize, k: usize| *t.diagonal.wrapping_offset((i * t.row) as isize + (k * t.col) as isize);
        for turn in 0..t.count {
            let i = if t.forward { turn } else { t.count - 1 - turn };
            let mut own: [V; N] = std::array::from_fn(|j| get(i, j));
            for k in if t.forward { 0..i } else { i + 1..t.count } {
                let f = V::splat(-at(i, k));
                for (j, own) in own.iter_mut().enumerate() {
                    *own = f.mul_add(get(k, j), *own);
                }
            }
            if !t.unit {
                let (d, inverse) = (at(i, i), V::Elem::ONE / at(i, i));
                // The reciprocal of a tiny number can be infinite.
                if inverse.is_finite() && inverse != V::Elem::ZERO {
                    let inverse = V::splat(inverse);
                    own = own.map(|x| x.mul(inverse));
                } else {
                    own = own.map(|x| {
                        let mut lanes = [V::Elem::ZERO; 16];
                        x.store(lanes.as_mut_ptr());
                        lanes.iter_mut().for_each(|x| *x /= d);
                        V::load(lanes.as_ptr())
                    });
                }
            }
            own.into_iter().enumerate().for_each(|(j, v)| put(i, j, v));
        }
    }
}

/// Defines a function that dispatches to the machine's instruction set.
macro_rules! on_machine {
    ($(#[$doc:meta])* $name:ident, $inner:ident, ($($arg:ident: $ty:ty),*)) => {
        $(#[$doc])*
        pub(super) fn $name<T: Real>(isa: Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// The machine has AVX-512.
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                unsafe fn avx512<T: Real>($($arg: $ty),*) {
                    // SAFETY: the function has the instructions.
                    unsafe { $inner::<T::Avx512>($($arg),*) }
                }
                /// # Safety
                /// The machine has AVX2 and FMA.
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2<T: Real>($($arg: $ty),*) {
                    // SAFETY: the function has the instructions.
                    unsafe { $inner::<T::Avx2>($($arg),*) }
                }
                // SAFETY: an instruction set is one that the machine has.
                match isa {
                    Isa::Avx512 => return unsafe { avx512::<T>($($arg),*) },
                    Isa::Avx2 => return unsafe { avx2::<T>($($arg),*) },
                    Isa::Portable => {}
                }
            }
            let _ = isa;
            // SAFETY: any machine has these.
            unsafe { $inner::<T::Plain>($($arg),*) }
        }
    };
}
pub(super) use on_machine;
on_machine!(
    /// Computes `y[j] = lines[j]·v` for lines that are `step` apart.
    dots, dots_of, (lines: &[T], step: usize, v: &[T], y: &mut [T])
);
on_machine!(
    /// Computes `x += Σ u[j]·lines[j]` for lines that are `step` apart.
    combined, combined_of, (lines: &[T], step: usize, u: &[T], x: &mut [T])
);
on_machine!(
    /// Computes the contribution of some rows to `y = A·v`, for rows and columns from `k` on of a symmetric matrix of order `n`.
    symmetric_times, symmetric_of, (a: &[T], n: usize, k: usize, rows: Range<usize>, v: &[T], y: &mut [T])
);
on_machine!(
    /// Computes the reflections of contiguous columns of `height` elements; see [`factor::qr_panel`].
    qr_columns, qr_of, (columns: &mut [T], height: usize, tau: &mut [T])
);
on_machine!(
    /// Replaces the reflections that [`qr_columns`] leaves by the columns of Q.
    q_columns, q_of, (columns: &mut [T], height: usize, tau: &[T])
);
on_machine!(
    /// Solves for `width` columns of rows that are `step` apart, which must be valid and used by no other thread.
    solve_strip, solve_of, (t: Triangle<T>, rows: *mut T, step: usize, width: usize)
);
