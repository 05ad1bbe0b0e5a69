//! Transforms of prime length as convolutions.
//!
//! Powers of a generator enumerate all elements but the first. In that order the transform is a cyclic convolution with one
//! element less (Rader). If that length is not better, products with a chirp make it a convolution of any sufficient length
//! (Bluestein). Both are passes like those of other radices: they transform each group of elements in separate buffers.

use super::direct_dft::PassShape;
use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers, and, number, plus, root, times};
use super::stockham::{StockhamPlan, cost, radices};
use crate::gemm::vector::Float;

/// Returns the smallest generator of the multiplicative group modulo a prime.
pub(super) fn generator(p: usize) -> usize {
    let (mut m, mut divisors) = (p - 1, vec![]);
    for d in (2..).take_while(|d| d * d < p) {
        while m.is_multiple_of(d) {
            divisors.push(d);
            m /= d;
        }
    }
    if m > 1 {
        divisors.push(m);
    }
    let generates = |g: &usize| divisors.iter().all(|d| power(*g, (p - 1) / d, p) != 1);
    (1..p).find(generates).unwrap_or(1)
}

fn power(base: usize, mut exponent: usize, p: usize) -> usize {
    let (mut base, mut result) = (base % p, 1);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * base % p;
        }
        base = base * base % p;
        exponent /= 2;
    }
    result
}

/// Returns the powers of `g` modulo `p`, from the zeroth on.
pub(super) fn powers(g: usize, p: usize) -> Vec<u32> {
    let mut at = 1;
    let next = |_| {
        let own = at as u32;
        at = at * g % p;
        own
    };
    (1..p).map(next).collect()
}

/// Computes the discrete Fourier transform of a table in f64, pass by pass as in `stockham.rs`.
pub(super) fn spectrum(x: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = x.len();
    let roots: Vec<(f64, f64)> = (0..n).map(|k| root(k, n)).collect();
    let times = |a: (f64, f64), w: (f64, f64)| (a.0 * w.0 - a.1 * w.1, a.0 * w.1 + a.1 * w.0);
    let (mut from, mut to, mut m, mut s) = (x.to_vec(), vec![(0.0, 0.0); n], n, 1);
    for r in radices(n) {
        let each = m / r;
        for (p, q) in (0..each).flat_map(|p| (0..s).map(move |q| (p, q))) {
            for k in 0..r {
                let (mut sum, mut at) = ((0.0, 0.0), 0);
                for j in 0..r {
                    let term = times(from[q + s * (p + j * each)], roots[at]);
                    sum = (sum.0 + term.0, sum.1 + term.1);
                    at += k * (n / r);
                    at -= if at >= n { n } else { 0 };
                }
                to[q + s * (r * p + k)] = times(sum, roots[p * k * s]);
            }
        }
        std::mem::swap(&mut from, &mut to);
        (m, s) = (each, s * r);
    }
    from
}

/// A transform of prime length by a cyclic convolution with one element less.
pub(super) struct Rader<T> {
    plan: StockhamPlan<T>,
    /// The source index of element `i` of the convolution, and the destination index of its result.
    sources: Vec<u32>,
    targets: Vec<u32>,
    /// The transform of the roots of unity, divided by the length; its first element is 1.
    kernel: Vec<T>,
}

impl<T: FftFloat> Rader<T> {
    pub(super) fn new(p: usize) -> Rader<T> {
        let g = generator(p);
        let (sources, targets) = (powers(g, p), powers(power(g, p - 2, p), p));
        let roots: Vec<(f64, f64)> = targets.iter().map(|&k| root(k as usize, p)).collect();
        let over = 1.0 / (p - 1) as f64;
        let mut kernel: Vec<T> =
            spectrum(&roots).iter().flat_map(|w| [T::from_f64(w.0 * over), T::from_f64(w.1 * over)]).collect();
        (kernel[0], kernel[1]) = (T::from_f64(1.0), T::from_f64(0.0));
        Rader { plan: StockhamPlan::new(p - 1), sources, targets, kernel }
    }

    pub(super) fn scratch(&self) -> usize {
        2 * self.plan.n + self.plan.scratch
    }

    /// # Safety
    /// As for [`super::odd::odd`], with scratch of the size that the plan asked for.
    #[inline(always)]
    pub(super) unsafe fn pass<V: FftVector<Elem = T>>(
        &self,
        x: LinePointers<T>,
        y: LinePointers<T>,
        shape: PassShape,
        turns: *const T,
        finish: Option<FinalScale<T>>,
        z: *mut T,
    ) {
        let PassShape { r, m, s } = shape;
        let (n, each) = (r - 1, m / r);
        let (a, b, z) = (z, z.wrapping_add(2 * V::LANES * n), z.wrapping_add(4 * V::LANES * n));
        let (there, rest) = (self.plan.result_buffer(a, b), self.plan.result_buffer(b, a));
        let (first, middle) = (LinePointers::buffer::<V>(a), LinePointers::buffer::<V>(there));
        let end = self.plan.result_buffer(there, rest);
        for p in 0..each {
            for q in 0..s {
                // SAFETY: `x` and `y` are valid for `m·s` elements, and both buffers in `z` for the `n` elements of the
                // convolution.
                unsafe {
                    let alone = x.get::<V>(q + s * p);
                    for (i, &j) in self.sources.iter().enumerate() {
                        first.put(i, x.get::<V>(q + s * (p + j as usize * each)));
                    }
                    let finish_there = FinalScale::Roots(self.kernel.as_ptr());
                    V::transform(
                        &self.plan,
                        TransformBuffers { from: first, to: middle, x: a, y: b, z, finish: finish_there },
                    );
                    // A term added to the sum of all elements is added to each result.
                    let sum = middle.get::<V>(0);
                    let over = V::splat(T::from_f64(-1.0 / n as f64));
                    middle.put(0, and(sum, over, alone));
                    let back = LinePointers::buffer::<V>(end).exchanged(true);
                    let one = FinalScale::Factor(T::from_f64(1.0));
                    let way =
                        TransformBuffers { from: middle.exchanged(true), to: back, x: there, y: rest, z, finish: one };
                    V::transform(&self.plan, way);
                    shape.put(y, (p, q), 0, plus(alone, sum), turns, finish);
                    let result = LinePointers::buffer::<V>(end);
                    for (i, &j) in self.targets.iter().enumerate() {
                        shape.put(y, (p, q), j as usize, result.get::<V>(i), turns, finish);
                    }
                }
            }
        }
    }
}

/// Returns the length of the fastest convolution for a transform of `n` elements by chirps,
/// and its cycles for each of the `n` vectors.
pub(super) fn chirp_length(n: usize) -> (usize, f64) {
    let least = 2 * n - 1;
    let mut best = (least.next_power_of_two(), f64::INFINITY);
    for odd in [1, 3, 5, 7, 9, 11, 13, 15, 21, 25, 27, 33, 35, 45, 63, 75] {
        let m = odd * least.div_ceil(odd).next_power_of_two();
        let own = (2.0 * cost(m) + 6.0) * m as f64 / n as f64;
        best = if own < best.1 { (m, own) } else { best };
    }
    best
}

/// A transform by products with a chirp and a convolution with a better length.
pub(super) struct Chirp<T> {
    plan: StockhamPlan<T>,
    /// `e^(-πi k²/n)`.
    chirp: Vec<T>,
    /// The transform of the inverse chirp, divided by the length.
    kernel: Vec<T>,
}

/// Returns `e^(-πi k²/n)` for all elements, and the transform of its inverse, mirrored at both ends of `points` points and
/// divided by their number.
pub(super) fn chirp<T: Float>(n: usize, points: usize) -> (Vec<T>, Vec<T>) {
    let chirp: Vec<(f64, f64)> = (0..n).map(|k| root(k * k % (2 * n), 2 * n)).collect();
    let mut both = vec![(0.0, 0.0); points];
    for (k, w) in chirp.iter().enumerate() {
        both[k] = (w.0, -w.1);
        both[(points - k) % points] = both[k];
    }
    let over = 1.0 / points as f64;
    let pairs = |all: &[(f64, f64)], f: f64| -> Vec<T> {
        all.iter().flat_map(|w| [T::from_f64(w.0 * f), T::from_f64(w.1 * f)]).collect()
    };
    (pairs(&chirp, 1.0), pairs(&spectrum(&both), over))
}

impl<T: FftFloat> Chirp<T> {
    pub(super) fn new(n: usize, points: usize) -> Chirp<T> {
        let (chirp, kernel) = chirp(n, points);
        Chirp { plan: StockhamPlan::new(points), chirp, kernel }
    }

    pub(super) fn scratch(&self) -> usize {
        2 * self.plan.n + self.plan.scratch
    }

    /// # Safety
    /// As for [`super::odd::odd`], with scratch of the size that the plan asked for.
    #[inline(always)]
    pub(super) unsafe fn pass<V: FftVector<Elem = T>>(
        &self,
        x: LinePointers<T>,
        y: LinePointers<T>,
        shape: PassShape,
        turns: *const T,
        finish: Option<FinalScale<T>>,
        z: *mut T,
    ) {
        let PassShape { r, m, s } = shape;
        let (n, each) = (self.plan.n, m / r);
        let (a, b, z) = (z, z.wrapping_add(2 * V::LANES * n), z.wrapping_add(4 * V::LANES * n));
        let (there, rest) = (self.plan.result_buffer(a, b), self.plan.result_buffer(b, a));
        let (first, middle) = (LinePointers::buffer::<V>(a), LinePointers::buffer::<V>(there));
        let end = self.plan.result_buffer(there, rest);
        for p in 0..each {
            for q in 0..s {
                // SAFETY: `x` and `y` are valid for `m·s` elements, and both buffers in `z` for the `n` elements of the
                // convolution.
                unsafe {
                    let zero = V::splat(T::default());
                    for j in 0..r {
                        let w = number(self.chirp.as_ptr().add(2 * j));
                        first.put(j, times(x.get::<V>(q + s * (p + j * each)), w));
                    }
                    for j in r..n {
                        first.put(j, (zero, zero));
                    }
                    let kernel = FinalScale::Roots(self.kernel.as_ptr());
                    V::transform(
                        &self.plan,
                        TransformBuffers { from: first, to: middle, x: a, y: b, z, finish: kernel },
                    );
                    let back = LinePointers::buffer::<V>(end).exchanged(true);
                    let one = FinalScale::Factor(T::from_f64(1.0));
                    let way =
                        TransformBuffers { from: middle.exchanged(true), to: back, x: there, y: rest, z, finish: one };
                    V::transform(&self.plan, way);
                    let result = LinePointers::buffer::<V>(end);
                    for j in 0..r {
                        let w = number(self.chirp.as_ptr().add(2 * j));
                        shape.put(y, (p, q), j, times(result.get::<V>(j), w), turns, finish);
                    }
                }
            }
        }
    }
}
