//! Stockham's algorithm over vectors with one line per lane, for lengths with any factors.
//!
//! The first pass reads the lines in place, and the last one writes them to their destination, because stores limit the speed of
//! passes. Radices without a specialized butterfly are odd primes: smaller ones use the definition of the DFT (`direct_dft.rs`),
//! larger ones a convolution (`rader_bluestein.rs`), whichever has the lower estimated cost.

use super::butterflies::{SMALL, small};
use super::direct_dft::{PassShape, odd_radix_pass, table};
use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, StridedWalk, TransformBuffers, number, root, times};
use super::rader_bluestein::{Chirp, Rader, chirp_length};

/// Does a pass that is not the last: `s` interleaved lines of `m` elements become lines of `m / R`.
///
/// # Safety
/// Both sides are valid for `m·s` elements, and the table has a multiplier for each turn.
#[inline(always)]
unsafe fn pass<V: FftVector, const R: usize>(
    x: LinePointers<V::Elem>,
    y: LinePointers<V::Elem>,
    PassShape { m, s, .. }: PassShape,
    table: *const V::Elem,
    turns: *const V::Elem,
) {
    let each = m / R;
    // SAFETY: both sides are valid for `m·s` elements, and the table has a multiplier for each turn.
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

/// Does the last pass, over `s` interleaved lines of `R` elements.
///
/// # Safety
/// Both sides are valid for `R·s` elements, and there are as many multipliers.
#[inline(always)]
unsafe fn last_pass<V: FftVector, const R: usize>(
    x: LinePointers<V::Elem>,
    y: LinePointers<V::Elem>,
    s: usize,
    table: *const V::Elem,
    finish: FinalScale<V::Elem>,
) {
    // SAFETY: both sides are valid for `R·s` elements, and there are as many multipliers.
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

/// The algorithm for a radix.
enum RadixAlgorithm<T> {
    /// A specialized butterfly, or the definition of the DFT; with a table for radices of 7 and more.
    DirectDft(Vec<T>),
    Rader(Box<Rader<T>>),
    Chirp(Box<Chirp<T>>),
}

struct RadixPass<T> {
    shape: PassShape,
    /// The offset of the pass's twiddle factors.
    turns: usize,
    how: RadixAlgorithm<T>,
}

/// The plan for lines of one length.
pub(super) struct StockhamPlan<T> {
    pub(super) n: usize,
    passes: Vec<RadixPass<T>>,
    turns: Vec<T>,
    /// The number of complex scratch elements that passes need in addition to both buffers.
    pub(super) scratch: usize,
}

/// The algorithm for a prime.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    Sums,
    Rader,
    Chirp(usize),
}

/// Estimates the cycles of a pass per complex vector; for primes, of the fastest algorithm.
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
    // For large radices, a table of r²/2 numbers is never fastest, so its cost is not estimated.
    let rader = (2.0 * cost(r - 1) * n / r as f64 + 16.0, Choice::Rader);
    let (points, each) = chirp_length(r);
    let chirp = (each + 14.0, Choice::Chirp(points));
    let mut best = (sums, Choice::Sums);
    for other in [rader, chirp] {
        best = if other.0 < best.0 { other } else { best };
    }
    best
}

/// Returns the radices of a length.
pub(super) fn radices(n: usize) -> Vec<usize> {
    let (mut m, mut all) = (n, vec![]);
    while m > 1 {
        // A factor of 16 is faster as 4 · 4 than as 8 · 2.
        let own = SMALL.into_iter().find(|&r| m.is_multiple_of(r) && (m, r) != (16, 8));
        let prime = || (17..).step_by(2).take_while(|r| r * r <= m).find(|&r| m.is_multiple_of(r)).unwrap_or(m);
        let r = own.unwrap_or_else(prime);
        all.push(r);
        m /= r;
    }
    all
}

/// Estimates the cycles of a transform of this length per complex vector.
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

    /// Returns the buffer that contains the result if it is not written to a destination and the input is not in `y`.
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
            // SAFETY: both ends are valid for the single element of such a line.
            return unsafe { last_pass::<V, 1>(from, end, 1, self.turns.as_ptr(), finish) };
        }
        for (i, RadixPass { shape, turns, how }) in self.passes.iter().enumerate() {
            let is_last = i + 1 == self.passes.len();
            let to = if is_last { end } else { LinePointers::buffer::<V>(if i.is_multiple_of(2) { y } else { x }) };
            let end = if is_last { Some(finish) } else { None };
            let (turns, shape) = (self.turns.as_ptr().wrapping_add(*turns), *shape);
            // SAFETY: both ends and both buffers are valid for `n` elements, and a pass reads one of them and writes
            // another; its tables are the plan's.
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
