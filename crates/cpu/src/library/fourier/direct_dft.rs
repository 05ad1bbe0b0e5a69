//! Transforms of an odd number of elements by the definition of the DFT:
//! sums and differences of mirrored elements, times cosines and sines.
//!
//! Computes as many results at a time as fit in registers. Real inputs and real results need half of the products.

use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, Z, and, minus, number, plus, quarter, root, times};

/// Computes the cosines and sines for `k` from 1 to half of `r`, and for each `k` for `j` from 1 to half of `r`.
pub(super) fn table<T: FftFloat>(r: usize) -> Vec<T> {
    let pair = |k: usize, j: usize| {
        let (cos, sin) = root(k * j % r, r);
        [T::from_f64(cos), T::from_f64(-sin)]
    };
    let half = r / 2;
    (1..=half).flat_map(|k| (1..=half).flat_map(move |j| pair(k, j))).collect()
}

/// The shape of a pass: radix, number of elements of a line, number of interleaved lines.
#[derive(Clone, Copy)]
pub(super) struct PassShape {
    pub(super) r: usize,
    pub(super) m: usize,
    pub(super) s: usize,
}

impl PassShape {
    /// Stores element `j` of the result of group `(p, q)`:
    /// multiplied by its twiddle factor, or by the final factor in the last pass.
    ///
    /// # Safety
    /// `y` is valid for the element, and `turns` has an entry for it.
    #[inline(always)]
    pub(super) unsafe fn put<V: FftVector>(
        self,
        y: LinePointers<V::Elem>,
        (p, q): (usize, usize),
        j: usize,
        z: Z<V>,
        turns: *const V::Elem,
        finish: Option<FinalScale<V::Elem>>,
    ) {
        // SAFETY: `y` is valid for element `at`, and the table of turns has an entry for it.
        unsafe {
            let at = q + self.s * (self.r * p + j);
            let z = match finish {
                None if j * p == 0 => z,
                None => times(z, number(turns.add(2 * (p * (self.r - 1) + j - 1)))),
                Some(finish) => finish.of(at, z),
            };
            y.put(at, z);
        }
    }
}

/// Computes `K` results from `k` on and their mirror images, from the even and the odd part of each.
///
/// # Safety
/// Sums and differences are valid for `half` elements each, and `table` for the rows of results `k..k + K`.
#[inline(always)]
unsafe fn mirrored_results<V: FftVector, const K: usize>(
    first: Z<V>,
    (sums, differences): (LinePointers<V::Elem>, LinePointers<V::Elem>),
    half: usize,
    k: usize,
    table: *const V::Elem,
) -> [(Z<V>, Z<V>); K] {
    // SAFETY: sums and differences are valid for `half` elements each, and the table for the rows of results `k..k +
    // K`.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut all = [(first, (zero, zero)); K];
        let own = table.add((k - 1) * 2 * half);
        for j in 0..half {
            let (sum, difference) = (sums.get::<V>(j), differences.get::<V>(j));
            for (i, (even, odd)) in all.iter_mut().enumerate() {
                let (cos, sin) = number(own.add(2 * (i * half + j)));
                *even = and(sum, cos, *even);
                *odd = and(difference, sin, *odd);
            }
        }
        all
    }
}

/// Does a pass with an odd radix without a specialized butterfly. It is the last pass if `finish` is given.
///
/// # Safety
/// `m·s` elements are on both sides, and `r` in `z`.
#[inline(always)]
pub(super) unsafe fn odd_radix_pass<V: FftVector>(
    x: LinePointers<V::Elem>,
    y: LinePointers<V::Elem>,
    shape: PassShape,
    (table, turns): (*const V::Elem, *const V::Elem),
    finish: Option<FinalScale<V::Elem>>,
    z: *mut V::Elem,
) {
    let PassShape { r, m, s } = shape;
    let (each, half) = (m / r, r / 2);
    let sums = LinePointers::buffer::<V>(z);
    let differences = sums.every_nth(half, 1);
    for p in 0..each {
        for q in 0..s {
            // SAFETY: `x` and `y` are valid for `m·s` elements, `z` for `r`, and all indices below are inside them.
            unsafe {
                let at = (p, q);
                let first = x.get::<V>(q + s * p);
                let mut all = first;
                for j in 1..=half {
                    let (a, b) = (x.get::<V>(q + s * (p + j * each)), x.get::<V>(q + s * (p + (r - j) * each)));
                    let sum = plus(a, b);
                    sums.put(j - 1, sum);
                    differences.put(j - 1, minus(a, b));
                    all = plus(all, sum);
                }
                shape.put(y, at, 0, all, turns, finish);
                let mut k = 1;
                while V::MANY && k + 3 <= half {
                    let four = mirrored_results::<V, 4>(first, (sums, differences), half, k, table);
                    for (i, (even, odd)) in four.into_iter().enumerate() {
                        let [a, b] = quarter(even, odd);
                        shape.put(y, at, k + i, a, turns, finish);
                        shape.put(y, at, r - k - i, b, turns, finish);
                    }
                    k += 4;
                }
                while k < half {
                    let two = mirrored_results::<V, 2>(first, (sums, differences), half, k, table);
                    for (i, (even, odd)) in two.into_iter().enumerate() {
                        let [a, b] = quarter(even, odd);
                        shape.put(y, at, k + i, a, turns, finish);
                        shape.put(y, at, r - k - i, b, turns, finish);
                    }
                    k += 2;
                }
                if k == half {
                    let [(even, odd)] = mirrored_results::<V, 1>(first, (sums, differences), half, k, table);
                    let [a, b] = quarter(even, odd);
                    shape.put(y, at, k, a, turns, finish);
                    shape.put(y, at, r - k, b, turns, finish);
                }
            }
        }
    }
}

/// Computes `K` results of real elements from `k` on: the even and the odd part of each.
///
/// # Safety
/// Sums and differences are valid for `half` vectors each, and `table` for the rows of results `k..k + K`.
#[inline(always)]
pub(super) unsafe fn real_results<V: FftVector, const K: usize>(
    first: V,
    (sums, differences): (*const V::Elem, *const V::Elem),
    half: usize,
    k: usize,
    table: *const V::Elem,
) -> [(V, V); K] {
    // SAFETY: sums and differences are valid for `half` vectors each, and the table for the rows of results `k..k + K`.
    unsafe {
        let mut all = [(first, V::splat(V::Elem::default())); K];
        let own = table.add((k - 1) * 2 * half);
        for j in 0..half {
            let (sum, difference) = (V::load(sums.add(j * V::LANES)), V::load(differences.add(j * V::LANES)));
            for (i, (even, odd)) in all.iter_mut().enumerate() {
                let (cos, sin) = number(own.add(2 * (i * half + j)));
                *even = sum.mul_add(cos, *even);
                *odd = difference.mul_add(sin, *odd);
            }
        }
        all
    }
}
