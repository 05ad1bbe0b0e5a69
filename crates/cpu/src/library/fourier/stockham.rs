//! Stockham's passes over vectors with a line in each lane, for lengths of any factors.
//!
//! The first pass reads lines where they are, and the last one writes them where they go: stores are what passes wait for. Radices
//! that have no code of their own are odd primes: the smaller ones are summed as they are defined (`odd.rs`), larger ones become
//! convolutions (`primes.rs`), whichever is expected to be quicker.

use super::butterflies::{SMALL, small};
use super::direct_dft::{Shape, odd, table};
use super::lanes::{Finish, Lane, Number, Seats, Walk, Way, number, root, times};
use super::rader_bluestein::{Chirp, Rader, chirp_length};

/// One pass but the last: lines of `m` elements, `s` of them interleaved, become those of `m / R`.
#[inline(always)]
unsafe fn pass<V: Lane, const R: usize>(
    x: Seats<V::Elem>,
    y: Seats<V::Elem>,
    Shape { m, s, .. }: Shape,
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
                let (mut from, mut to) = (Walk::new(&x, q + s * p, s * each), Walk::new(&y, q + s * R * p, s));
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
unsafe fn last<V: Lane, const R: usize>(
    x: Seats<V::Elem>,
    y: Seats<V::Elem>,
    s: usize,
    table: *const V::Elem,
    finish: Finish<V::Elem>,
) {
    // SAFETY: the caller vouches for `R·s` elements on both sides, and as many multipliers.
    unsafe {
        let zero = V::splat(V::Elem::default());
        for q in 0..s {
            let (mut from, mut to) = (Walk::new(&x, q, s), Walk::new(&y, q, s));
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
enum How<T> {
    /// In registers, or by sums; with a table from 7 on.
    Sums(Vec<T>),
    Rader(Box<Rader<T>>),
    Chirp(Box<Chirp<T>>),
}

struct Pass<T> {
    shape: Shape,
    /// Where its turns begin.
    turns: usize,
    how: How<T>,
}

/// How lines of a length are transformed.
pub(super) struct Plan<T> {
    pub(super) n: usize,
    passes: Vec<Pass<T>>,
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

impl<T: Number> Plan<T> {
    pub(super) fn new(n: usize) -> Plan<T> {
        let (mut m, mut s) = (n, 1);
        let (mut passes, mut turns, mut scratch) = (vec![], vec![], 0);
        for r in radices(n) {
            let how = match pass_cost(r).1 {
                Choice::Sums => How::Sums(if r < 7 || r == 8 { vec![] } else { table(r) }),
                Choice::Rader => How::Rader(Box::new(Rader::new(r))),
                Choice::Chirp(points) => How::Chirp(Box::new(Chirp::new(r, points))),
            };
            scratch = scratch.max(match &how {
                How::Sums(_) => r,
                How::Rader(by) => by.scratch(),
                How::Chirp(by) => by.scratch(),
            });
            passes.push(Pass { shape: Shape { r, m, s }, turns: turns.len(), how });
            for p in 0..m / r {
                for j in 1..r {
                    let (re, im) = root(p * j % m, m);
                    turns.extend([T::from_f64(re), T::from_f64(im)]);
                }
            }
            (m, s) = (m / r, s * r);
        }
        Plan { n, passes, turns, scratch }
    }

    /// The buffer in which a result can be that is not written where it goes, if what is read is not in `y`.
    pub(super) fn home(&self, x: *mut T, y: *mut T) -> *mut T {
        if self.passes.len().is_multiple_of(2) { x } else { y }
    }

    /// Transforms lines.
    ///
    /// # Safety
    /// The machine has the instructions; `n` elements are at both ends and in both buffers, and [`Plan::home`] says which of them may be an end.
    #[inline(always)]
    pub(super) unsafe fn passes<V: Lane<Elem = T>>(&self, way: Way<T>) {
        let Way { mut from, to: end, x, y, z, finish } = way;
        if self.passes.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { last::<V, 1>(from, end, 1, self.turns.as_ptr(), finish) };
        }
        for (i, Pass { shape, turns, how }) in self.passes.iter().enumerate() {
            let is_last = i + 1 == self.passes.len();
            let to = if is_last { end } else { Seats::buffer::<V>(if i.is_multiple_of(2) { y } else { x }) };
            let end = if is_last { Some(finish) } else { None };
            let (turns, shape) = (self.turns.as_ptr().wrapping_add(*turns), *shape);
            // SAFETY: the caller's promise, and the passes' own.
            unsafe {
                match (how, end) {
                    (How::Rader(by), _) => by.pass::<V>(from, to, shape, turns, end, z),
                    (How::Chirp(by), _) => by.pass::<V>(from, to, shape, turns, end, z),
                    (How::Sums(table), None) => match shape.r {
                        2 => pass::<V, 2>(from, to, shape, table.as_ptr(), turns),
                        3 => pass::<V, 3>(from, to, shape, table.as_ptr(), turns),
                        4 => pass::<V, 4>(from, to, shape, table.as_ptr(), turns),
                        5 => pass::<V, 5>(from, to, shape, table.as_ptr(), turns),
                        7 => pass::<V, 7>(from, to, shape, table.as_ptr(), turns),
                        8 => pass::<V, 8>(from, to, shape, table.as_ptr(), turns),
                        11 => pass::<V, 11>(from, to, shape, table.as_ptr(), turns),
                        13 => pass::<V, 13>(from, to, shape, table.as_ptr(), turns),
                        _ => odd::<V>(from, to, shape, (table.as_ptr(), turns), None, z),
                    },
                    (How::Sums(table), Some(finish)) => match shape.r {
                        2 => last::<V, 2>(from, to, shape.s, table.as_ptr(), finish),
                        3 => last::<V, 3>(from, to, shape.s, table.as_ptr(), finish),
                        4 => last::<V, 4>(from, to, shape.s, table.as_ptr(), finish),
                        5 => last::<V, 5>(from, to, shape.s, table.as_ptr(), finish),
                        7 => last::<V, 7>(from, to, shape.s, table.as_ptr(), finish),
                        8 => last::<V, 8>(from, to, shape.s, table.as_ptr(), finish),
                        11 => last::<V, 11>(from, to, shape.s, table.as_ptr(), finish),
                        13 => last::<V, 13>(from, to, shape.s, table.as_ptr(), finish),
                        _ => odd::<V>(from, to, shape, (table.as_ptr(), turns), end, z),
                    },
                }
            }
            from = to;
        }
    }
}
