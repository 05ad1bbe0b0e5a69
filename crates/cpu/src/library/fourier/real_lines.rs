//! Fourier transforms of real lines of odd length and their inverses, with one line per lane.
//!
//! For `n = r·m` elements, sums over every `m`-th element give `r` lines of `m`: one is real; the others are complex, and half of
//! them are mirror images of the other half. So a real line takes half the work of a complex one. A prime length is computed by
//! the definition of the DFT, or as a convolution of real numbers (`real_primes.rs`).

use super::direct_dft::{real_results, table};
use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers, conj, number, root, times};
use super::real_primes::RealRader;
use super::stockham::{StockhamPlan, cost};

/// The plan for real lines of an odd length.
pub(super) struct RealPlan<T> {
    pub(super) n: usize,
    how: RealAlgorithm<T>,
}

enum RealAlgorithm<T> {
    /// A single element.
    One,
    DirectDft(Sums<T>),
    Rader(RealRader<T>),
    /// A complex transform.
    Complex(StockhamPlan<T>),
}

/// The decomposition into lines of `m` elements each.
struct Sums<T> {
    r: usize,
    m: usize,
    table: Vec<T>,
    /// The twiddle factors for each element of a line and each line.
    turns: Vec<T>,
    plan: StockhamPlan<T>,
    rest: Box<RealPlan<T>>,
}

/// The buffers: real lines, half their spectrum with space for the full spectrum, scratch; the direction; and the factor of the
/// results of the inverse.
#[derive(Clone, Copy)]
pub(super) struct RealBuffers<T> {
    pub(super) back: bool,
    pub(super) real: *mut T,
    /// The distance from one element to the next.
    pub(super) step: usize,
    pub(super) spectrum: LinePointers<T>,
    pub(super) factor: T,
    pub(super) z: *mut T,
}

/// Returns the smallest prime factor of an odd number.
fn smallest_odd_factor(n: usize) -> usize {
    (3..).step_by(2).take_while(|r| r * r <= n).find(|&r| n.is_multiple_of(r)).unwrap_or(n)
}

/// Estimates the cycles per real vector: by the definition, as a convolution, and as a complex transform.
fn costs(n: usize) -> [f64; 3] {
    let (r, m) = (smallest_odd_factor(n), n / smallest_odd_factor(n));
    let lines = (r - 1) as f64 / (2 * r) as f64;
    let sums = 8.0 + 0.6 * r as f64 + cost(m) * lines + if m > 1 { real_cost(m) / r as f64 + 3.0 } else { 0.0 };
    let rader = if m > 1 { f64::INFINITY } else { cost((n - 1) / 2) + 20.0 };
    [sums, rader, cost(n) + 8.0]
}

/// Estimates the cycles per real vector of a transform of odd length.
pub(super) fn real_cost(n: usize) -> f64 {
    if n == 1 { 4.0 } else { costs(n).into_iter().fold(f64::INFINITY, f64::min) }
}

impl<T: FftFloat> RealPlan<T> {
    pub(super) fn new(n: usize) -> RealPlan<T> {
        if n == 1 {
            return RealPlan { n, how: RealAlgorithm::One };
        }
        let [sums, rader, whole] = costs(n);
        let how = if sums <= rader && sums <= whole {
            RealAlgorithm::DirectDft(Sums::new(n))
        } else if rader <= whole {
            RealAlgorithm::Rader(RealRader::new(n))
        } else {
            RealAlgorithm::Complex(StockhamPlan::new(n))
        };
        RealPlan { n, how }
    }

    /// The number of complex elements of scratch.
    pub(super) fn scratch(&self) -> usize {
        match &self.how {
            RealAlgorithm::One => 0,
            // Sums and differences, all lines, and the scratch of a line.
            RealAlgorithm::DirectDft(s) => self.n + s.r + 3 * s.m + s.plan.scratch.max(s.rest.scratch()),
            RealAlgorithm::Rader(r) => r.scratch(),
            RealAlgorithm::Complex(plan) => 3 * self.n + plan.scratch,
        }
    }

    /// Transforms lines.
    ///
    /// # Safety
    /// The machine has the instructions; the lines, a whole spectrum and scratch of the size that the plan asked for
    /// are valid and don't overlap.
    #[inline(always)]
    pub(super) unsafe fn run<V: FftVector<Elem = T>>(&self, way: RealBuffers<T>) {
        // SAFETY: the lines, a whole spectrum and scratch are valid and don't overlap, and the machine has the
        // instructions.
        unsafe {
            match &self.how {
                RealAlgorithm::One if way.back => V::load(way.spectrum.re).mul(V::splat(way.factor)).store(way.real),
                RealAlgorithm::One => way.spectrum.put::<V>(0, (V::load(way.real), V::splat(T::default()))),
                RealAlgorithm::DirectDft(by) if way.back => by.back::<V>(way),
                RealAlgorithm::DirectDft(by) => by.forward::<V>(way),
                RealAlgorithm::Rader(by) if way.back => by.back::<V>(way),
                RealAlgorithm::Rader(by) => by.forward::<V>(way),
                RealAlgorithm::Complex(plan) => transform_as_complex::<V>(plan, way),
            }
        }
    }
}

/// Transforms real lines as complex ones.
///
/// # Safety
/// `way` is valid for `n` elements at both ends, and its scratch `z` for two buffers of `n` complex vectors and the
/// plan's own.
#[inline(always)]
unsafe fn transform_as_complex<V: FftVector>(plan: &StockhamPlan<V::Elem>, way: RealBuffers<V::Elem>) {
    let n = plan.n;
    let (x, y) = (way.z, way.z.wrapping_add(2 * V::LANES * n));
    let (from, to) = (LinePointers::buffer::<V>(x), LinePointers::buffer::<V>(plan.result_buffer(x, y)));
    let z = y.wrapping_add(2 * V::LANES * n);
    // SAFETY: `way` is valid for `n` elements at both ends, and its scratch `z` for two buffers of `n` complex vectors
    // and the plan's own.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let way_of = |from, to| TransformBuffers { from, to, x, y, z, finish: FinalScale::Factor(way.factor) };
        if way.back {
            from.put::<V>(0, (V::load(way.spectrum.re), zero));
            for k in 1..=n / 2 {
                let a = way.spectrum.get::<V>(k);
                from.put(k, a);
                from.put(n - k, conj(a));
            }
            V::transform(plan, way_of(from.exchanged(true), to.exchanged(true)));
            for k in 0..n {
                V::load(to.re.add(k * to.step)).store(way.real.add(k * way.step));
            }
            return;
        }
        for k in 0..n {
            from.put(k, (V::load(way.real.add(k * way.step)), zero));
        }
        V::transform(plan, way_of(from, to));
        for k in 0..=n / 2 {
            way.spectrum.put(k, to.get::<V>(k));
        }
        // The sum of real numbers is real.
        zero.store(way.spectrum.im);
    }
}

impl<T: FftFloat> Sums<T> {
    fn new(n: usize) -> Sums<T> {
        let r = smallest_odd_factor(n);
        let m = n / r;
        let turn = |(p, k): (usize, usize)| <[f64; 2]>::from(root(p * k % n, n)).map(T::from_f64);
        let turns = (0..m).flat_map(|p| (1..=r / 2).map(move |k| (p, k))).flat_map(turn).collect();
        Sums { r, m, table: table(r), turns, plan: StockhamPlan::new(m), rest: Box::new(RealPlan::new(m)) }
    }

    /// The locations of the sums and differences, the real line, the complex lines, and the scratch of a line.
    #[inline(always)]
    fn places<V: FftVector<Elem = T>>(&self, z: *mut T) -> ([*mut T; 2], *mut T, LinePointers<T>, [*mut T; 3]) {
        let (half, l) = (self.r / 2, V::LANES);
        let real = z.wrapping_add(2 * half * l);
        let lines = real.wrapping_add(self.m * l);
        let x = lines.wrapping_add(half * self.m * 2 * l);
        let [y, rest] = [1, 2].map(|i| x.wrapping_add(i * 2 * self.m * l));
        ([z, z.wrapping_add(half * l)], real, LinePointers::buffer::<V>(lines), [x, y, rest])
    }

    /// Returns the elements of half the spectrum whose mirror images belong to a line.
    #[inline(always)]
    fn mirrored_elements(&self) -> impl Iterator<Item = usize> {
        let (r, end) = (self.r, self.r * self.m / 2 + 1);
        (0..end).step_by(r).flat_map(move |first| (first + r / 2 + 1).min(end)..(first + r).min(end))
    }

    /// # Safety
    /// `way` is valid for `r·m` elements at both ends, and its scratch for what the plan asked for.
    #[inline(always)]
    unsafe fn forward<V: FftVector<Elem = T>>(&self, way: RealBuffers<T>) {
        let (r, m, half, l) = (self.r, self.m, self.r / 2, V::LANES);
        let ([sums, differences], real, lines, [x, y, z]) = self.places::<V>(way.z);
        // SAFETY: `way` is valid for `r·m` elements at both ends, and `places` divides scratch of the size that the
        // plan asked for.
        unsafe {
            for p in 0..m {
                let first = V::load(way.real.add(p * way.step));
                let mut all = first;
                for j in 1..=half {
                    let a = V::load(way.real.add((p + j * m) * way.step));
                    let b = V::load(way.real.add((p + (r - j) * m) * way.step));
                    let sum = a.add(b);
                    sum.store(sums.add((j - 1) * l));
                    a.sub(b).store(differences.add((j - 1) * l));
                    all = all.add(sum);
                }
                all.store(real.add(p * l));
                let (from, mut k) = ((sums.cast_const(), differences.cast_const()), 1);
                let put = Put { lines: if m == 1 { way.spectrum.every_nth(1, 1) } else { lines }, m, half, p };
                while V::MANY && k + 7 <= half {
                    put.all(k, real_results::<V, 8>(first, from, half, k, self.table.as_ptr()), &self.turns);
                    k += 8;
                }
                while k + 3 <= half {
                    put.all(k, real_results::<V, 4>(first, from, half, k, self.table.as_ptr()), &self.turns);
                    k += 4;
                }
                while k <= half {
                    put.all(k, real_results::<V, 1>(first, from, half, k, self.table.as_ptr()), &self.turns);
                    k += 1;
                }
            }
            let to = way.spectrum;
            V::real(&self.rest, RealBuffers { real, step: l, spectrum: to.every_nth(0, r), z: x, ..way });
            if m == 1 {
                return;
            }
            for k in 1..=half {
                let from = lines.every_nth((k - 1) * m, 1);
                let finish = FinalScale::Factor(T::from_f64(1.0));
                V::transform(&self.plan, TransformBuffers { from, to: to.every_nth(k, r), x, y, z, finish });
            }
            // The remaining elements are mirror images.
            for k in self.mirrored_elements() {
                to.put(k, conj(to.get::<V>(r * m - k)));
            }
        }
    }

    /// # Safety
    /// `way` is valid for `r·m` elements at both ends, and its scratch for what the plan asked for.
    #[inline(always)]
    unsafe fn back<V: FftVector<Elem = T>>(&self, way: RealBuffers<T>) {
        let (r, m, half, l) = (self.r, self.m, self.r / 2, V::LANES);
        let ([sums, differences], real, lines, [x, y, z]) = self.places::<V>(way.z);
        let from = way.spectrum;
        // SAFETY: `way` is valid for `r·m` elements at both ends, and `places` divides scratch of the size that the
        // plan asked for.
        unsafe {
            let one = T::from_f64(1.0);
            V::real(
                &self.rest,
                RealBuffers { real, step: l, spectrum: from.every_nth(0, r), z: x, factor: one, ..way },
            );
            if m > 1 {
                for k in self.mirrored_elements() {
                    from.put(r * m - k, conj(from.get::<V>(k)));
                }
                for k in 1..=half {
                    let to = lines.every_nth((k - 1) * m, 1).exchanged(true);
                    let from = from.every_nth(k, r).exchanged(true);
                    V::transform(&self.plan, TransformBuffers { from, to, x, y, z, finish: FinalScale::Factor(one) });
                }
            }
            let factor = V::splat(way.factor);
            for p in 0..m {
                let first = V::load(real.add(p * l));
                let mut all = first;
                for k in 1..=half {
                    let a = if m == 1 { from.get::<V>(k) } else { lines.get::<V>((k - 1) * m + p) };
                    let w = number(self.turns.as_ptr().add(2 * (p * half + k - 1)));
                    let a = times(a, conj(w));
                    let (re, im) = (a.0.add(a.0), a.1.add(a.1));
                    re.store(sums.add((k - 1) * l));
                    im.store(differences.add((k - 1) * l));
                    all = all.add(re);
                }
                let put = PutReal { to: way.real.add(p * way.step), step: m * way.step, r, factor };
                all.mul(factor).store(put.to);
                let (from, mut j) = ((sums.cast_const(), differences.cast_const()), 1);
                while V::MANY && j + 7 <= half {
                    put.all(j, real_results::<V, 8>(first, from, half, j, self.table.as_ptr()));
                    j += 8;
                }
                while j + 3 <= half {
                    put.all(j, real_results::<V, 4>(first, from, half, j, self.table.as_ptr()));
                    j += 4;
                }
                while j <= half {
                    put.all(j, real_results::<V, 1>(first, from, half, j, self.table.as_ptr()));
                    j += 1;
                }
            }
        }
    }
}

/// The destination of results: element `p` of lines of `m` elements.
struct Put<T> {
    lines: LinePointers<T>,
    m: usize,
    half: usize,
    p: usize,
}

impl<T: FftFloat> Put<T> {
    /// # Safety
    /// The element's place and those of its mirror images are inside of the result.
    /// # Safety
    /// The element's place and those of its mirror images are inside of the result.
    #[inline(always)]
    unsafe fn all<V: FftVector<Elem = T>, const K: usize>(&self, k: usize, results: [(V, V); K], turns: &[T]) {
        // SAFETY: the spectrum is valid for element `k` and those after it, and for their mirror images.
        unsafe {
            for (i, &(even, odd)) in results.iter().enumerate() {
                let (z, k) = (conj((even, odd)), k + i - 1);
                let w = number(turns.as_ptr().add(2 * (self.p * self.half + k)));
                let z = if self.p == 0 { z } else { times(z, w) };
                self.lines.put(k * self.m + self.p, z);
            }
        }
    }
}

/// The destination of real results.
struct PutReal<V: FftVector> {
    to: *mut V::Elem,
    step: usize,
    r: usize,
    factor: V,
}

impl<V: FftVector> PutReal<V> {
    #[inline(always)]
    unsafe fn all<const K: usize>(&self, j: usize, results: [(V, V); K]) {
        // SAFETY: the result is valid for elements `j` and on, and for their mirror images.
        unsafe {
            for (i, &(even, odd)) in results.iter().enumerate() {
                even.sub(odd).mul(self.factor).store(self.to.add((j + i) * self.step));
                even.add(odd).mul(self.factor).store(self.to.add((self.r - j - i) * self.step));
            }
        }
    }
}
