//! A long convolution computed by all threads: each transform is two steps of short transforms.
//!
//! Let `L = R·C` with `R = 16`, `H = L/2`, and write `k = C·k₁ + k₂`. With `n = n₁ + R·n₂` the transform is
//!
//! ```text
//! Z[k] = Σ_n₁ e^(-2πi·n₁k₁/R) · e^(-2πi·n₁k₂/L) · Σ_n₂ z[n₁ + R·n₂]·e^(-2πi·n₂k₂/C)
//! ```
//!
//! These are `R` transforms of `C` points, twiddle factors, and `C` transforms of `R` points. The product of the spectra at `k`
//! needs `-k`, `H - k` and `H + k`, which have the remainders `k₂` and `-k₂`, so pairs of columns are closed under it. The
//! inverse transform is the mirror image with `t = t₁ + R/2·t₂`. So there are three passes, each over independent parts: rows
//! forward, pairs of columns forward and inverse, rows inverse. The parts depend only on the length.

use super::super::planner::Planner;
use super::{C, Element, SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use rustfft::Fft;
use std::sync::Arc;

/// The number of rows, and of threads that can share a transform.
pub(super) const ROWS: usize = 16;
const R: usize = ROWS;
/// The number of columns that are processed together, with the same number of paired columns.
const BLOCK: usize = 8;
/// The minimum number of points for this algorithm. On a single thread it costs at most a tenth of the time and gains above 100,000
/// points, where short transforms fit in cache; below the minimum there is too little work for several threads.
pub(super) const MIN_POINTS: usize = 8192;

/// The tables for one length.
pub(super) struct Tables {
    columns: usize,
    /// The row stride in elements. It is not a power of two, so that the elements of a column map to different cache sets.
    stride: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    across: Arc<dyn Fft<f64>>,
    back: Arc<dyn Fft<f64>>,
    /// `exp(-2πi·n₁k₂ / L)`, column by column.
    factors: Vec<C>,
    /// `i·exp(2πi·k / L)` up to `H`, column by column.
    turns: Vec<C>,
}

impl Tables {
    /// Makes the tables for a multiple of [`ROWS`].
    pub(super) fn new(points: usize, planner: &mut Planner<f64>) -> Tables {
        let columns = points / R;
        let factor = |i: usize| C::cis(-std::f64::consts::TAU * (i % R * (i / R)) as f64 / points as f64);
        let turn = |i: usize| {
            let k = i % (R / 2) * columns + i / (R / 2);
            C::cis(std::f64::consts::TAU * (k as f64 / points as f64 + 0.25))
        };
        Tables {
            columns,
            stride: columns.next_multiple_of(BLOCK) + BLOCK / 2,
            forward: planner.plan_fft_forward(columns),
            inverse: planner.plan_fft_inverse(columns),
            across: planner.plan_fft_forward(R),
            back: planner.plan_fft_inverse(R / 2),
            factors: (0..points).map(factor).collect(),
            turns: (0..points / 2).map(turn).collect(),
        }
    }

    /// The number of complex elements of the work buffer.
    pub(super) fn work(&self) -> usize {
        (R * self.stride).next_multiple_of(8)
    }

    /// The number of complex scratch elements per worker.
    pub(super) fn each(&self) -> usize {
        let plans = [&self.forward, &self.inverse, &self.across, &self.back];
        plans.iter().map(|p| p.get_inplace_scratch_len()).max().unwrap_or(0).next_multiple_of(8)
    }

    /// Convolves two rows.
    ///
    /// # Safety
    /// `work` is valid for [`Tables::work`] elements and `scratch` for [`Tables::each`] of every worker, initialised and
    /// used by nothing else; `out` is valid for `x.len() + y.len() - 1`, at most the points of these tables.
    pub(super) unsafe fn run<T: Element>(
        &self,
        pool: &ThreadPool,
        (x, y): (&[T], &[T]),
        out: SharedPtr<T>,
        work: SharedPtr<C>,
        scratch: SharedPtr<C>,
    ) {
        let (columns, each, length) = (self.columns, self.each(), x.len() + y.len() - 1);
        let effort = R * columns * 12;
        // SAFETY: rows of `work` don't overlap, and each worker has its own scratch.
        let row = |r: usize| unsafe { std::slice::from_raw_parts_mut(work.at(r * self.stride), columns) };
        // SAFETY: as above.
        let own = |worker: usize| unsafe { std::slice::from_raw_parts_mut(scratch.at(worker * each), each) };
        in_ranges(pool, R, effort, &|rows, worker| {
            for r in rows {
                let z = row(r);
                let part = |s: &[T], i: usize| s.get(r + R * i).map_or(0.0, |v| v.wide());
                z.iter_mut().enumerate().for_each(|(i, z)| *z = C::new(part(x, i), part(y, i)));
                self.forward.process_with_scratch(z, own(worker));
            }
        });
        let blocks = (columns / 2 + 1).div_ceil(BLOCK);
        in_ranges(pool, blocks, effort, &|range, worker| {
            let scratch = own(worker);
            for b in range {
                // SAFETY: a block has its columns and their partners for itself.
                unsafe { self.columns(b * BLOCK..((b + 1) * BLOCK).min(columns / 2 + 1), work, scratch) };
            }
        });
        in_ranges(pool, R / 2, effort, &|rows, worker| {
            for r in rows {
                let z = row(r);
                self.inverse.process_with_scratch(z, own(worker));
                for (i, z) in z.iter().enumerate() {
                    let t = 2 * (r + R / 2 * i);
                    // SAFETY: inside of the result, each element of which belongs to one row.
                    unsafe {
                        if t < length {
                            *out.at(t) = T::narrow(z.re);
                        }
                        if t + 1 < length {
                            *out.at(t + 1) = T::narrow(z.im);
                        }
                    }
                }
            }
        });
    }

    /// Computes the columns `range` and their paired columns `-k₂`: the spectra, their product, and half of the inverse transform.
    ///
    /// # Safety
    /// `work` is valid for the whole transform, and nothing else uses these columns.
    unsafe fn columns(&self, range: std::ops::Range<usize>, work: SharedPtr<C>, scratch: &mut [C]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: `work` is valid for the whole transform, nothing else accesses these columns, and the machine has
            // AVX2. Wider vectors don't change bits.
            return unsafe { self.columns_avx2(range, work, scratch) };
        }
        // SAFETY: `work` is valid for the whole transform, and nothing else accesses these columns.
        unsafe { self.columns_as_is(range, work, scratch) }
    }

    /// # Safety
    /// As for `columns_as_is`, and the machine has the target features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn columns_avx2(&self, range: std::ops::Range<usize>, work: SharedPtr<C>, scratch: &mut [C]) {
        // SAFETY: `columns_as_is` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.columns_as_is(range, work, scratch) }
    }

    /// # Safety
    /// `work` is valid for the whole transform, and nothing else accesses these columns.
    #[inline(always)]
    unsafe fn columns_as_is(&self, range: std::ops::Range<usize>, work: SharedPtr<C>, scratch: &mut [C]) {
        let columns = self.columns;
        let partner = |k: usize| if k == 0 { 0 } else { columns - k };
        let mut z = [[C::default(); R]; 2 * BLOCK];
        let mut q = [[C::default(); R / 2]; 2 * BLOCK];
        for (pair, k) in z.chunks_exact_mut(2).zip(range.clone()) {
            for (z, k) in pair.iter_mut().zip([k, partner(k)]) {
                let factors = &self.factors[k * R..][..R];
                for (n, (z, f)) in z.iter_mut().zip(factors).enumerate() {
                    // SAFETY: an element of column `k`.
                    *z = unsafe { *work.at(n * self.stride + k) } * f;
                }
            }
        }
        let taken = 2 * range.len();
        self.across.process_with_scratch(z[..taken].as_flattened_mut(), scratch);
        for ((z, q), k) in z.chunks_exact(2).zip(q.chunks_exact_mut(2)).zip(range.clone()) {
            let spectrum = self.multiply_spectra(&z[0], &z[1], k);
            self.untangle_product(&spectrum, k, &mut q[0]);
            // The product is the spectrum of a real signal, so the paired column is its conjugate in reverse order.
            let mut mirrored = spectrum;
            mirrored.reverse();
            self.untangle_product(&mirrored.map(|p| p.conj()), partner(k), &mut q[1]);
        }
        self.back.process_with_scratch(q[..taken].as_flattened_mut(), scratch);
        for (pair, k) in q.chunks_exact(2).zip(range) {
            for (q, k) in pair.iter().zip([k, partner(k)]).take(1 + usize::from(k != partner(k))) {
                let factors = &self.factors[k * R..][..R];
                for (t, q) in q.iter().enumerate() {
                    // SAFETY: an element of column `k`.
                    unsafe { *work.at(t * self.stride + k) = q * factors[2 * t].conj() };
                }
            }
        }
    }

    /// Computes a column of the product of both spectra divided by the number of points, `P[k] = (Z[k]² - conj(Z[-k])²) / 4iL`.
    #[inline(always)]
    fn multiply_spectra(&self, z: &[C; R], partner: &[C; R], k: usize) -> [C; R] {
        let factor = 0.25 / (R * self.columns) as f64;
        std::array::from_fn(|i| {
            let back = partner[if k == 0 { (R - i) % R } else { R - 1 - i }].conj();
            let squares = (z[i] - back) * (z[i] + back);
            C::new(squares.im * factor, -squares.re * factor)
        })
    }

    /// Computes a column of `Q[k] = (P[k] + P[k + H]) + i·e^(2πi·k/L)·(P[k] - P[k + H])`, whose inverse transform of half the points
    /// has the even elements of the convolution as real parts and the odd ones as imaginary parts.
    #[inline(always)]
    fn untangle_product(&self, p: &[C; R], k: usize, q: &mut [C; R / 2]) {
        let turns = &self.turns[k * (R / 2)..][..R / 2];
        for (i, q) in q.iter_mut().enumerate() {
            let (a, b) = (p[i], p[i + R / 2]);
            *q = a + b + (a - b) * turns[i];
        }
    }
}
