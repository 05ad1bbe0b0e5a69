//! Eigenvalues and eigenvectors of `diag(d) + z·zᵀ` for ascending `d` without equal elements: the secular equation
//! `1 + Σ zᵢ²/(dᵢ - λ) = 0`, root by root, and from the roots those `z` for which they are exact (Gu and Eisenstat), so that
//! vectors are orthogonal however near to each other the roots are.

use super::Real;
use crate::gemm::Isa;
use crate::library::{Raw, in_ranges};
use crate::pool::Pool;
use std::ops::Range;

/// Steps after which a root is taken as it is; a handful are usual.
const ITERATIONS: usize = 80;
/// Sums are made in so many chains.
const L: usize = 8;

/// One such matrix, and where its roots go: root `j` is `d[origin[j]] + x[j]`, so that its distance from any `d` is exact.
#[derive(Clone, Copy)]
pub(super) struct Secular<'a> {
    pub(super) d: &'a [f64],
    /// Squares of `z`.
    pub(super) squares: &'a [f64],
    /// What counts as nothing beside 1.
    pub(super) epsilon: f64,
    pub(super) x: Raw<f64>,
    pub(super) origin: Raw<u32>,
}

/// The sum over poles before the root and over those behind it, each with its derivative.
#[derive(Clone, Copy)]
struct Value {
    psi: f64,
    phi: f64,
    slopes: [f64; 2],
}

/// `Σ zᵢ²/(dᵢ - o - x)` and its derivative.
#[inline(always)]
fn sums(d: &[f64], squares: &[f64], o: f64, x: f64) -> (f64, f64) {
    let (mut value, mut slope) = ([0.0; L], [0.0; L]);
    let (ds, zs) = (d.chunks_exact(L), squares.chunks_exact(L));
    let (mut v, mut s) = (0.0, 0.0);
    for (d, z) in ds.remainder().iter().zip(zs.remainder()) {
        let r = 1.0 / ((d - o) - x);
        v += z * r;
        s += z * r * r;
    }
    for (d, z) in ds.zip(zs) {
        for l in 0..L {
            let r = 1.0 / ((d[l] - o) - x);
            let t = z[l] * r;
            value[l] += t;
            slope[l] += t * r;
        }
    }
    (value.iter().sum::<f64>() + v, slope.iter().sum::<f64>() + s)
}

impl Secular<'_> {
    #[inline(always)]
    fn at(&self, split: usize, o: f64, x: f64) -> Value {
        let (psi, first) = sums(&self.d[..=split], &self.squares[..=split], o, x);
        let (phi, second) = sums(&self.d[split + 1..], &self.squares[split + 1..], o, x);
        Value { psi, phi, slopes: [first, second] }
    }

    /// Root `j`: the pole that it is counted from, and how far it is from that.
    #[inline(always)]
    fn root(&self, j: usize) -> (usize, f64) {
        let (d, k) = (self.d, self.d.len());
        if k == 1 {
            return (0, self.squares[0]);
        }
        let last = j + 1 == k;
        let split = j.min(k - 2);
        let (mut origin, mut low, mut high, mut x);
        let mut value;
        if last {
            (origin, low, high) = (j, 0.0, self.squares.iter().sum::<f64>());
            x = 0.5 * high;
            value = self.at(split, d[origin], x);
        } else {
            // In which half of the gap it is decides which pole it is counted from.
            let half = 0.5 * (d[j + 1] - d[j]);
            (origin, low, high, x) = (j, 0.0, half, half);
            value = self.at(split, d[origin], x);
            if 1.0 + value.psi + value.phi < 0.0 {
                (origin, low, high, x) = (j + 1, -half, 0.0, -half);
                value = self.at(split, d[origin], x);
            }
        }
        let o = d[origin];
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
            // Both sums as `r + s/(pole - x)`, by value and slope here, are zero together at a root of a quadratic.
            let (p, q) = ((d[split] - o) - x, (d[split + 1] - o) - x);
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
            value = self.at(split, o, x);
        }
        (origin, x)
    }

    #[inline(always)]
    unsafe fn roots(&self, range: Range<usize>) {
        for j in range {
            let (origin, x) = self.root(j);
            // SAFETY: the caller has these roots to itself.
            unsafe {
                *self.origin.at(j) = origin as u32;
                *self.x.at(j) = x;
            }
        }
    }

    /// What root `j` is counted from, and how far away it is.
    ///
    /// # Safety
    /// The roots are there.
    #[inline(always)]
    unsafe fn placed(&self, j: usize) -> (f64, f64) {
        // SAFETY: by the caller's promise.
        unsafe { (self.d[*self.origin.at(j) as usize], *self.x.at(j)) }
    }

    /// The squares of `z` for which the roots are exact, but for a factor.
    #[inline(always)]
    unsafe fn exact(&self, range: Range<usize>, to: Raw<f64>) {
        // SAFETY: the caller has these elements to itself; the roots are there.
        unsafe {
            let to = std::slice::from_raw_parts_mut(to.at(range.start), range.len());
            let own = &self.d[range.clone()];
            to.fill(1.0);
            for (j, &dj) in self.d.iter().enumerate() {
                let (o, x) = self.placed(j);
                if range.contains(&j) {
                    let i = j - range.start;
                    to[i] *= (x - (dj - o)).abs();
                    for (to, d) in to[..i].iter_mut().zip(&own[..i]) {
                        *to *= (x - (d - o)) / (dj - d);
                    }
                    for (to, d) in to[i + 1..].iter_mut().zip(&own[i + 1..]) {
                        *to *= (x - (d - o)) / (dj - d);
                    }
                    continue;
                }
                for (to, d) in to.iter_mut().zip(own) {
                    *to *= (x - (d - o)) / (dj - d);
                }
            }
            to.iter_mut().for_each(|x| *x = x.abs().sqrt());
        }
    }

    /// Vectors of some roots, as rows of `to`: element `i` stands in column `columns[i]`.
    #[inline(always)]
    unsafe fn vectors<T: Real>(&self, range: Range<usize>, z: &[f64], columns: &[u32], to: Raw<T>) {
        let k = self.d.len();
        for j in range {
            // SAFETY: the caller has these rows to itself; the roots are there.
            unsafe {
                let (o, x) = self.placed(j);
                let row = std::slice::from_raw_parts_mut(to.at(j * k), k);
                let mut length = [0.0; L];
                for (d, z) in self.d.chunks(L).zip(z.chunks(L)) {
                    let mut part = [0.0; L];
                    for ((p, d), z) in part.iter_mut().zip(d).zip(z) {
                        *p = z / ((d - o) - x);
                    }
                    for l in 0..L {
                        length[l] += part[l] * part[l];
                    }
                }
                // Once more, now that their length is known: the elements themselves may be too large for narrow ones.
                let scale = 1.0 / length.iter().sum::<f64>().sqrt();
                for ((d, z), c) in self.d.chunks(L).zip(z.chunks(L)).zip(columns.chunks(L)) {
                    let mut part = [0.0; L];
                    for ((p, d), z) in part.iter_mut().zip(d).zip(z) {
                        *p = z * scale / ((d - o) - x);
                    }
                    c.iter().zip(part).for_each(|(&c, p)| row[c as usize] = T::of(p));
                }
            }
        }
    }
}

/// Functions of [`Secular`] with the vectors of the machine.
macro_rules! on_machine {
    ($name:ident $(<$t:ident>)?, $inner:ident, ($($arg:ident: $ty:ty),*)) => {
        unsafe fn $name$(<$t: Real>)?(isa: Isa, of: &Secular<'_>, range: Range<usize>, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                unsafe fn avx512$(<$t: Real>)?(of: &Secular<'_>, range: Range<usize>, $($arg: $ty),*) {
                    // SAFETY: the caller's promise.
                    unsafe { of.$inner(range, $($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2$(<$t: Real>)?(of: &Secular<'_>, range: Range<usize>, $($arg: $ty),*) {
                    // SAFETY: the caller's promise.
                    unsafe { of.$inner(range, $($arg),*) }
                }
                // SAFETY: the caller's promise; the machine has the instructions of its set.
                match isa {
                    Isa::Avx512 => return unsafe { avx512(of, range, $($arg),*) },
                    Isa::Avx2 => return unsafe { avx2(of, range, $($arg),*) },
                    Isa::Portable => {}
                }
            }
            let _ = isa;
            // SAFETY: the caller's promise.
            unsafe { of.$inner(range, $($arg),*) }
        }
    };
}
on_machine!(some_roots, roots, ());
on_machine!(some_exact, exact, (to: Raw<f64>));
on_machine!(some_vectors<T>, vectors, (z: &[f64], columns: &[u32], to: Raw<T>));

/// Shares elements out, or doesn't.
fn shared(pool: Option<&Pool>, n: usize, each: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    match pool {
        Some(pool) => in_ranges(pool, n, n * each, &|range, _| f(range)),
        None => f(0..n),
    }
}

impl Secular<'_> {
    /// Finds all roots, then the vectors as rows of `to`, whose columns are in the order of `columns`; `signs` are those of `z`, and `exact`
    /// is room for as many.
    ///
    /// # Safety
    /// `x`, `origin` and `exact` have an element for each of `d`, `to` the square of that, and nobody else uses them.
    pub(super) unsafe fn solve<T: Real>(
        &self,
        isa: Isa,
        pool: Option<&Pool>,
        signs: &[f64],
        exact: &mut [f64],
        columns: &[u32],
        to: Raw<T>,
    ) {
        let k = self.d.len();
        // SAFETY: ranges are disjoint, and everything before has been done.
        unsafe {
            shared(pool, k, 16 * k, &|range| some_roots(isa, self, range));
            let z = Raw(exact.as_mut_ptr());
            shared(pool, k, 2 * k, &|range| some_exact(isa, self, range, z));
            exact.iter_mut().zip(signs).for_each(|(z, sign)| *z = z.copysign(*sign));
            let z = &*exact;
            shared(pool, k, 2 * k, &|range| some_vectors(isa, self, range, z, columns, to));
        }
    }
}
