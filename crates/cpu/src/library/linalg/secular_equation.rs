//! Eigenvalues and eigenvectors of `diag(d) + z·zᵀ` for ascending `d` without equal elements. Solves the secular equation
//! `1 + Σ zᵢ²/(dᵢ - λ) = 0` root by root, then computes the `z` for which the computed roots are exact (Gu and Eisenstat), so that
//! the vectors are orthogonal even if roots are very close to each other.

use super::Real;
use crate::gemm::Isa;
use crate::library::{SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use std::ops::Range;

/// The maximum number of iterations for a root; then it is accepted as it is. Usually a handful suffice.
const ITERATIONS: usize = 80;
/// The number of accumulators of a sum.
const L: usize = 8;

/// A secular equation and its roots. Root `j` is `d[origin[j]] + x[j]`, so its distance from any `d` is accurate. With `SQUARED`,
/// the poles are the squares of `d`, of which the first is 0; their differences are computed from `d` accurately.
#[derive(Clone, Copy)]
pub(super) struct SecularEquation<'a, const SQUARED: bool> {
    /// The poles, padded with [`NO_POLE`] up to [`padded`] elements.
    pub(super) d: &'a [f64],
    /// The squares of `z`, padded with zeros.
    pub(super) squares: &'a [f64],
    /// The number of poles.
    pub(super) count: usize,
    /// The size relative to 1 below which a number counts as zero.
    pub(super) epsilon: f64,
    pub(super) x: SharedPtr<f64>,
    pub(super) origin: SharedPtr<u32>,
}

/// A padding value far from any root, whose square is finite.
pub(super) const NO_POLE: f64 = 1e75;

/// Rounds a number of elements up to a multiple of the vector length.
pub(super) const fn padded(n: usize) -> usize {
    n.next_multiple_of(L)
}

/// The sum over the poles before the root and the sum over the poles after it, each with its derivative.
#[derive(Clone, Copy)]
struct Value {
    psi: f64,
    phi: f64,
    slopes: [f64; 2],
}

/// The difference of the poles `d` and `o`.
#[inline(always)]
fn pole_gap<const SQUARED: bool>(d: f64, o: f64) -> f64 {
    if SQUARED { (d - o) * (d + o) } else { d - o }
}

/// The factor that root `o + x` contributes to the square of `z` at a pole `d`, relative to its own pole.
#[inline(always)]
fn root_factor<const SQUARED: bool>(x: f64, o: f64, own: f64, d: f64) -> f64 {
    (x - pole_gap::<SQUARED>(d, o)) / pole_gap::<SQUARED>(own, d)
}

/// Returns the sum of all elements, by pairs.
#[inline(always)]
fn total(mut x: [f64; L]) -> f64 {
    let mut half = L / 2;
    while half > 0 {
        (0..half).for_each(|i| x[i] += x[i + half]);
        half /= 2;
    }
    x[0]
}

impl<const SQUARED: bool> SecularEquation<'_, SQUARED> {
    /// Computes some terms of both sums. (A closure that is not inlined would be compiled without the vector instructions.)
    #[inline(always)]
    fn terms(&self, at: usize, o: f64, x: f64) -> [[f64; L]; 2] {
        let (d, z) = (&self.d[at..at + L], &self.squares[at..at + L]);
        let (mut t, mut s) = ([0.0; L], [0.0; L]);
        for l in 0..L {
            let r = 1.0 / (pole_gap::<SQUARED>(d[l], o) - x);
            t[l] = z[l] * r;
            s[l] = t[l] * r;
        }
        [t, s]
    }

    /// Computes `Σ zᵢ²/(dᵢ - o - x)` up to `split` and after it, with derivatives.
    #[inline(always)]
    fn evaluate_secular(&self, split: usize, o: f64, x: f64) -> Value {
        let (mut psi, mut first) = ([0.0; L], [0.0; L]);
        let (mut phi, mut second) = ([0.0; L], [0.0; L]);
        let border = split / L * L;
        for at in (0..border).step_by(L) {
            let [t, s] = self.terms(at, o, x);
            for l in 0..L {
                psi[l] += t[l];
                first[l] += s[l];
            }
        }
        for at in (border + L..padded(self.count)).step_by(L) {
            let [t, s] = self.terms(at, o, x);
            for l in 0..L {
                phi[l] += t[l];
                second[l] += s[l];
            }
        }
        // The vector that contains terms of both sums.
        let [t, s] = self.terms(border, o, x);
        for l in 0..L {
            let before = border + l <= split;
            psi[l] += if before { t[l] } else { 0.0 };
            first[l] += if before { s[l] } else { 0.0 };
            phi[l] += if before { 0.0 } else { t[l] };
            second[l] += if before { 0.0 } else { s[l] };
        }
        Value { psi: total(psi), phi: total(phi), slopes: [total(first), total(second)] }
    }

    /// Computes root `j`: the pole used as its origin, and its distance from that pole.
    #[inline(always)]
    fn solve_root(&self, j: usize) -> (usize, f64) {
        let (d, squares, k) = (self.d, self.squares, self.count);
        if k == 1 {
            return (0, squares[0]);
        }
        let last = j + 1 == k;
        let split = j.min(k - 2);
        let (mut origin, mut low, mut high, mut x);
        if last {
            (origin, low, high) = (j, 0.0, squares[..k].iter().sum::<f64>());
            x = 0.5 * high;
        } else {
            // The half of the gap that contains the root decides the origin. The initial guess assumes that the other poles
            // contribute as much as they do at the middle of the gap.
            let between = pole_gap::<SQUARED>(d[j + 1], d[j]);
            let half = 0.5 * between;
            let (a, b) = (squares[j], squares[j + 1]);
            (origin, low, high, x) = (j, 0.0, half, half);
            let value = self.evaluate_secular(split, d[origin], x);
            let f = 1.0 + value.psi + value.phi;
            let c = f - (b - a) / half;
            let (p, q) = match f < 0.0 {
                true => (c * between - a - b, -b * between),
                false => (-c * between - a - b, a * between),
            };
            // c·x² + p·x + q = 0
            let root = (p * p - 4.0 * c * q).abs().sqrt();
            if f < 0.0 {
                (origin, low, high) = (j + 1, -half, 0.0);
            }
            x = if p < 0.0 { -2.0 * q / (p - root) } else { -(p + root) / (2.0 * c) };
            if !(x > low && x < high) {
                x = 0.5 * (low + high);
            }
        }
        let o = d[origin];
        let mut value = self.evaluate_secular(split, o, x);
        for _ in 0..ITERATIONS {
            let Value { psi, phi, slopes: [first, second] } = value;
            let f = 1.0 + psi + phi;
            let slope = first + second;
            if f.abs() <= self.epsilon * (1.0 + 8.0 * (psi.abs() + phi.abs()) + x.abs() * slope) {
                break;
            }
            if f < 0.0 {
                low = x;
            } else {
                high = x;
            }
            // Approximate each sum by `r + s/(pole - x)` with its current value and slope;
            // the next iterate is a root of a quadratic.
            let (p, q) = (pole_gap::<SQUARED>(d[split], o) - x, pole_gap::<SQUARED>(d[split + 1], o) - x);
            let (a, b) = ((p + q) * f - p * q * slope, p * q * f);
            let c = f - p * first - q * second;
            let root = (a * a - 4.0 * b * c).abs().sqrt();
            let mut step = match last {
                true if a >= 0.0 => (a + root) / (2.0 * c.abs()),
                true => 2.0 * b / (a - root),
                false if a <= 0.0 => (a - root) / (2.0 * c),
                false => 2.0 * b / (a + root),
            };
            if !(f * step < 0.0) {
                step = -f / slope;
            }
            let mut next = x + step;
            if !(next > low) {
                next = if x > low { 0.5 * (low + x) } else { 0.5 * (low + high) };
            } else if !(next < high) {
                next = if x < high { 0.5 * (x + high) } else { 0.5 * (low + high) };
            }
            if next == x {
                break;
            }
            x = next;
            value = self.evaluate_secular(split, o, x);
        }
        (origin, x)
    }

    /// # Safety
    /// Only this call accesses the roots of `range`.
    #[inline(always)]
    unsafe fn roots(&self, range: Range<usize>) {
        for j in range {
            let (origin, x) = self.solve_root(j);
            // SAFETY: only this call accesses these roots.
            unsafe {
                *self.origin.at(j) = origin as u32;
                *self.x.at(j) = x;
            }
        }
    }

    /// Returns the origin of root `j` and its distance from it.
    ///
    /// # Safety
    /// All roots have been found.
    #[inline(always)]
    unsafe fn locate_root(&self, j: usize) -> (f64, f64) {
        // SAFETY: root `j` has been found, so `origin` and `x` have an entry for it.
        unsafe { (self.d[*self.origin.at(j) as usize], *self.x.at(j)) }
    }

    /// Computes the squares of `z` for which the roots are exact, up to a common factor.
    ///
    /// # Safety
    /// Only this call accesses the elements `range` of `to`, and all roots have been found.
    #[inline(always)]
    unsafe fn recompute_z(&self, range: Range<usize>, to: SharedPtr<f64>) {
        // SAFETY: only this call accesses these elements, and all roots have been found.
        unsafe {
            let to = std::slice::from_raw_parts_mut(to.at(range.start), range.len());
            let own = &self.d[range.clone()];
            to.fill(1.0);
            for (j, &dj) in self.d[..self.count].iter().enumerate() {
                let (o, x) = self.locate_root(j);
                if range.contains(&j) {
                    let i = j - range.start;
                    to[i] *= (x - pole_gap::<SQUARED>(dj, o)).abs();
                    to[..i].iter_mut().zip(&own[..i]).for_each(|(to, d)| *to *= root_factor::<SQUARED>(x, o, dj, *d));
                    to[i + 1..]
                        .iter_mut()
                        .zip(&own[i + 1..])
                        .for_each(|(to, d)| *to *= root_factor::<SQUARED>(x, o, dj, *d));
                    continue;
                }
                to.iter_mut().zip(own).for_each(|(to, d)| *to *= root_factor::<SQUARED>(x, o, dj, *d));
            }
            to.iter_mut().for_each(|x| *x = x.abs().sqrt());
        }
    }

    /// Computes the vectors of some roots as rows of `right`: element `i` is in column `columns[i]`. Where the poles are squares,
    /// `left` receives the vectors of the other side: the same elements times `d`, with the first one replaced by -1.
    ///
    /// Elements are written before normalization,
    /// scaled by the distance of the root from its pole so that they have the magnitude of `z`.
    ///
    /// # Safety
    /// Only this call accesses the rows `range` of both results, and all roots have been found.
    #[inline(always)]
    unsafe fn vectors<T: Real>(
        &self,
        range: Range<usize>,
        z: &[f64],
        columns: &[u32],
        right: SharedPtr<T>,
        left: Option<SharedPtr<T>>,
    ) {
        let k = self.count;
        for j in range {
            // SAFETY: only this call accesses these rows, and all roots have been found.
            unsafe {
                let (o, x) = self.locate_root(j);
                let by = x.abs();
                let row = std::slice::from_raw_parts_mut(right.at(j * k), k);
                let mut length = [0.0; L];
                let Some(left) = left else {
                    for at in (0..k).step_by(L) {
                        let (d, z) = (&self.d[at..at + L], &z[at..at + L]);
                        let mut part = [0.0; L];
                        for l in 0..L {
                            part[l] = z[l] * by / (pole_gap::<SQUARED>(d[l], o) - x);
                            length[l] += part[l] * part[l];
                        }
                        for (&c, p) in columns[at..k.min(at + L)].iter().zip(part) {
                            row[c as usize] = T::of(p);
                        }
                    }
                    let scale = T::of(1.0 / total(length).sqrt());
                    row.iter_mut().for_each(|x| *x *= scale);
                    continue;
                };
                let other = std::slice::from_raw_parts_mut(left.at(j * k), k);
                let own = 1f64.min(by / o.max(f64::MIN_POSITIVE));
                let mut second = [0.0; L];
                for at in (0..k).step_by(L) {
                    let (d, z) = (&self.d[at..at + L], &z[at..at + L]);
                    let (mut v, mut u) = ([0.0; L], [0.0; L]);
                    for l in 0..L {
                        let q = z[l] / (pole_gap::<SQUARED>(d[l], o) - x);
                        v[l] = q * by;
                        u[l] = q * d[l] * own;
                    }
                    if at == 0 {
                        u[0] = -own;
                    }
                    for l in 0..L {
                        length[l] += v[l] * v[l];
                        second[l] += u[l] * u[l];
                    }
                    for (l, &c) in columns[at..k.min(at + L)].iter().enumerate() {
                        row[c as usize] = T::of(v[l]);
                        other[c as usize] = T::of(u[l]);
                    }
                }
                let (scale, second) = (T::of(1.0 / total(length).sqrt()), T::of(1.0 / total(second).sqrt()));
                row.iter_mut().for_each(|x| *x *= scale);
                other.iter_mut().for_each(|x| *x *= second);
            }
        }
    }
}

/// Defines functions that call methods of [`SecularEquation`] with the machine's instruction set.
macro_rules! on_machine {
    ($name:ident, $inner:ident $(<$t:ident>)?, ($($arg:ident: $ty:ty),*)) => {
        /// # Safety
        /// As for `$inner`.
        unsafe fn $name<const S: bool$(, $t: Real)?>(isa: Isa, of: &SecularEquation<'_, S>, range: Range<usize>, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// As for `$inner`, and the machine has the target features.
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                unsafe fn avx512<const S: bool$(, $t: Real)?>(of: &SecularEquation<'_, S>, range: Range<usize>, $($arg: $ty),*) {
                    // SAFETY: `$inner` has the contract of this function, and gets its arguments unchanged.
                    unsafe { of.$inner(range, $($arg),*) }
                }
                /// # Safety
                /// As for `$inner`, and the machine has the target features.
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2<const S: bool$(, $t: Real)?>(of: &SecularEquation<'_, S>, range: Range<usize>, $($arg: $ty),*) {
                    // SAFETY: `$inner` has the contract of this function, and gets its arguments unchanged.
                    unsafe { of.$inner(range, $($arg),*) }
                }
                // SAFETY: the entries of `range` are valid and used by this call alone, and the machine has `isa`.
                match isa {
                    Isa::Avx512 => return unsafe { avx512(of, range, $($arg),*) },
                    Isa::Avx2 => return unsafe { avx2(of, range, $($arg),*) },
                    Isa::Portable => {}
                }
            }
            let _ = isa;
            // SAFETY: the entries of `range` are valid and used by this call alone.
            unsafe { of.$inner(range, $($arg),*) }
        }
    };
}
on_machine!(some_roots, roots, ());
on_machine!(some_exact, recompute_z, (to: SharedPtr<f64>));
on_machine!(some_vectors, vectors<T>, (z: &[f64], columns: &[u32], right: SharedPtr<T>, left: Option<SharedPtr<T>>));

/// Splits elements over threads if there is a pool.
fn shared(pool: Option<&ThreadPool>, n: usize, each: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    match pool {
        Some(pool) => in_ranges(pool, n, n * each, &|range, _| f(range)),
        None => f(0..n),
    }
}

impl<const SQUARED: bool> SecularEquation<'_, SQUARED> {
    /// Finds all roots, then writes the vectors as rows of `right`, and those of the other side as rows of `left`, with columns
    /// in the order of `columns`. `signs` are the signs of `z`, and `exact` is scratch of [`padded`] elements.
    ///
    /// # Safety
    /// `x` and `origin` have an element for each of `d`, `right` and `left` the square of that, and nothing else uses
    /// them.
    #[expect(clippy::too_many_arguments, reason = "roots and vectors of both sides")]
    pub(super) unsafe fn solve<T: Real>(
        &self,
        isa: Isa,
        pool: Option<&ThreadPool>,
        signs: &[f64],
        exact: &mut [f64],
        columns: &[u32],
        right: SharedPtr<T>,
        left: Option<SharedPtr<T>>,
    ) {
        let k = self.count;
        // SAFETY: ranges are disjoint, and everything before has been done.
        unsafe {
            shared(pool, k, 16 * k, &|range| some_roots(isa, self, range));
            let z = SharedPtr(exact.as_mut_ptr());
            shared(pool, k, 2 * k, &|range| some_exact(isa, self, range, z));
            exact.iter_mut().zip(signs).for_each(|(z, sign)| *z = z.copysign(*sign));
            exact[k..].fill(0.0);
            let z = &*exact;
            shared(pool, k, 2 * k, &|range| some_vectors(isa, self, range, z, columns, right, left));
        }
    }
}
