//! Stockham's passes over vectors with a line in each lane, for lengths of any factors.
//!
//! The first pass reads lines where they are, and the last one writes them where they go: stores are what passes wait for. Radices
//! that have no code of their own are odd primes: the smaller ones are summed as they are defined (`odd.rs`), larger ones become
//! convolutions (`primes.rs`), whichever is expected to be quicker.

use super::butterflies::{SMALL, small};
use super::direct_dft::{PassShape, odd_radix_pass, table};
use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, StridedWalk, TransformBuffers, number, root, times};
use super::rader_bluestein::{Chirp, Rader, chirp_length};

/// One pass but the last: lines of `m` elements, `s` of them interleaved, become those of `m / R`.
#[inline(always)]
unsafe fn pass<V: FftVector, const R: usize>(
    x: LinePointers<V::Elem>,
    y: LinePointers<V::Elem>,
    PassShape { m, s, .. }: PassShape,
    table: *const V::Elem,
    turns: *const V::Elem,
) {
    let each = m / R;
    // SAFETY: the caller vouches for `m·s` elements on both sides, and for the turns.
    unsafe {
        let zero = V::splat(V::Elem::default());
        for p in 0..each {
            let mut w = [(zero, zero); R];
            for (j, w) in w.iter_mut().enumerate().skip(1) {
                *w = number(turns.add(2 * (p * (R - 1) + j - 1)));
            }
            for q in 0..s {
                let (mut from, mut to) =
                    (StridedWalk::new(&x, q + s * p, s * each), StridedWalk::new(&y, q + s * R * p, s));
                let mut a = [(zero, zero); R];
                for a in &mut a {
                    *a = from.get();
                }
                let b = small::<V, R>(a, table);
                to.put(b[0]);
                for j in 1..R {
                    to.put(if p == 0 { b[j] } else { times(b[j], w[j]) });
                }
            }
        }
    }
}

/// The last pass, of `s` interleaved lines of `R` elements.
#[inline(always)]
unsafe fn last_pass<V: FftVector, const R: usize>(
    x: LinePointers<V::Elem>,
    y: LinePointers<V::Elem>,
    s: usize,
    table: *const V::Elem,
    finish: FinalScale<V::Elem>,
) {
    // SAFETY: the caller vouches for `R·s` elements on both sides, and as many multipliers.
    unsafe {
        let zero = V::splat(V::Elem::default());
        for q in 0..s {
            let (mut from, mut to) = (StridedWalk::new(&x, q, s), StridedWalk::new(&y, q, s));
            let mut a = [(zero, zero); R];
            for a in &mut a {
                *a = from.get();
            }
            let b = small::<V, R>(a, table);
            for (j, &b) in b.iter().enumerate() {
                to.put(finish.of(q + s * j, b));
            }
        }
    }
}

/// How a radix is transformed.
enum RadixAlgorithm<T> {
    /// In registers, or by sums; with a table from 7 on.
    DirectDft(Vec<T>),
    Rader(Box<Rader<T>>),
    Chirp(Box<Chirp<T>>),
}

struct RadixPass<T> {
    shape: PassShape,
    /// Where its turns begin.
    turns: usize,
    how: RadixAlgorithm<T>,
}

/// How lines of a length are transformed.
pub(super) struct StockhamPlan<T> {
    pub(super) n: usize,
    passes: Vec<RadixPass<T>>,
    turns: Vec<T>,
    /// Complex elements that passes need beside both buffers.
    pub(super) scratch: usize,
}

/// The way of a prime.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    Sums,
    Rader,
    Chirp(usize),
}

/// Cycles that a pass of a radix takes for each vector, real and imaginary; those of primes by the quickest way.
fn pass_cost(r: usize) -> (f64, Choice) {
    let sums = match r {
        0..=4 => 7.0,
        5 => 8.5,
        6..=8 => 10.0,
        11 => 20.0,
        13 => 24.0,
        _ => r as f64 + 26.0,
    };
    if r < 17 {
        return (sums, Choice::Sums);
    }
    let n = (r - 1) as f64;
    // Summing up a table of r²/2 numbers beyond some size is never best: don't ask further.
    let rader = (2.0 * cost(r - 1) * n / r as f64 + 16.0, Choice::Rader);
    let (points, each) = chirp_length(r);
    let chirp = (each + 14.0, Choice::Chirp(points));
    let mut best = (sums, Choice::Sums);
    for other in [rader, chirp] {
        best = if other.0 < best.0 { other } else { best };
    }
    best
}

/// Radices of a length.
pub(super) fn radices(n: usize) -> Vec<usize> {
    let (mut m, mut all) = (n, vec![]);
    while m > 1 {
        // Sixteen are better as four fours than as two eights.
        let own = SMALL.into_iter().find(|&r| m.is_multiple_of(r) && (m, r) != (16, 8));
        let prime = || (17..).step_by(2).take_while(|r| r * r <= m).find(|&r| m.is_multiple_of(r)).unwrap_or(m);
        let r = own.unwrap_or_else(prime);
        all.push(r);
        m /= r;
    }
    all
}

/// Cycles that a transform of this length is expected to take for each vector, real and imaginary.
pub(super) fn cost(n: usize) -> f64 {
    radices(n).iter().map(|&r| pass_cost(r).0).sum()
}

impl<T: FftFloat> StockhamPlan<T> {
    pub(super) fn new(n: usize) -> StockhamPlan<T> {
        let (mut m, mut s) = (n, 1);
        let (mut passes, mut turns, mut scratch) = (vec![], vec![], 0);
        for r in radices(n) {
            let how = match pass_cost(r).1 {
                Choice::Sums => RadixAlgorithm::DirectDft(if r < 7 || r == 8 { vec![] } else { table(r) }),
                Choice::Rader => RadixAlgorithm::Rader(Box::new(Rader::new(r))),
                Choice::Chirp(points) => RadixAlgorithm::Chirp(Box::new(Chirp::new(r, points))),
            };
            scratch = scratch.max(match &how {
                RadixAlgorithm::DirectDft(_) => r,
                RadixAlgorithm::Rader(by) => by.scratch(),
                RadixAlgorithm::Chirp(by) => by.scratch(),
            });
            passes.push(RadixPass { shape: PassShape { r, m, s }, turns: turns.len(), how });
            for p in 0..m / r {
                for j in 1..r {
                    let (re, im) = root(p * j % m, m);
                    turns.extend([T::from_f64(re), T::from_f64(im)]);
                }
            }
            (m, s) = (m / r, s * r);
        }
        StockhamPlan { n, passes, turns, scratch }
    }

    /// The buffer in which a result can be that is not written where it goes, if what is read is not in `y`.
    pub(super) fn result_buffer(&self, x: *mut T, y: *mut T) -> *mut T {
        if self.passes.len().is_multiple_of(2) { x } else { y }
    }

    /// Transforms lines.
    ///
    /// # Safety
    /// The machine has the instructions; `n` elements are at both ends and in both buffers, and [`Plan::home`] says which of them may be an end.
    #[inline(always)]
    pub(super) unsafe fn passes<V: FftVector<Elem = T>>(&self, way: TransformBuffers<T>) {
        let TransformBuffers { mut from, to: end, x, y, z, finish } = way;
        if self.passes.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { last_pass::<V, 1>(from, end, 1, self.turns.as_ptr(), finish) };
        }
        for (i, RadixPass { shape, turns, how }) in self.passes.iter().enumerate() {
            let is_last = i + 1 == self.passes.len();
            let to = if is_last { end } else { LinePointers::buffer::<V>(if i.is_multiple_of(2) { y } else { x }) };
            let end = if is_last { Some(finish) } else { None };
            let (turns, shape) = (self.turns.as_ptr().wrapping_add(*turns), *shape);
            // SAFETY: the caller's promise, and the passes' own.
            unsafe {
                match (how, end) {
                    (RadixAlgorithm::Rader(by), _) => by.pass::<V>(from, to, shape, turns, end, z),
                    (RadixAlgorithm::Chirp(by), _) => by.pass::<V>(from, to, shape, turns, end, z),
                    (RadixAlgorithm::DirectDft(table), None) => match shape.r {
                        2 => pass::<V, 2>(from, to, shape, table.as_ptr(), turns),
                        3 => pass::<V, 3>(from, to, shape, table.as_ptr(), turns),
                        4 => pass::<V, 4>(from, to, shape, table.as_ptr(), turns),
                        5 => pass::<V, 5>(from, to, shape, table.as_ptr(), turns),
                        7 => pass::<V, 7>(from, to, shape, table.as_ptr(), turns),
                        8 => pass::<V, 8>(from, to, shape, table.as_ptr(), turns),
                        11 => pass::<V, 11>(from, to, shape, table.as_ptr(), turns),
                        13 => pass::<V, 13>(from, to, shape, table.as_ptr(), turns),
                        _ => odd_radix_pass::<V>(from, to, shape, (table.as_ptr(), turns), None, z),
                    },
                    (RadixAlgorithm::DirectDft(table), Some(finish)) => match shape.r {
                        2 => last_pass::<V, 2>(from, to, shape.s, table.as_ptr(), finish),
                        3 => last_pass::<V, 3>(from, to, shape.s, table.as_ptr(), finish),
                        4 => last_pass::<V, 4>(from, to, shape.s, table.as_ptr(), finish),
                        5 => last_pass::<V, 5>(from, to, shape.s, table.as_ptr(), finish),
                        7 => last_pass::<V, 7>(from, to, shape.s, table.as_ptr(), finish),
                        8 => last_pass::<V, 8>(from, to, shape.s, table.as_ptr(), finish),
                        11 => last_pass::<V, 11>(from, to, shape.s, table.as_ptr(), finish),
                        13 => last_pass::<V, 13>(from, to, shape.s, table.as_ptr(), finish),
                        _ => odd_radix_pass::<V>(from, to, shape, (table.as_ptr(), turns), end, z),
                    },
                }
            }
            from = to;
        }
    }
}
