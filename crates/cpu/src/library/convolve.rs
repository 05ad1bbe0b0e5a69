//! Convolution of signals by Fourier transforms in f64, row by row.
//!
//! One transform of `L` points of `x + i·y` gives both spectra. Their product is the spectrum of a real signal, so an inverse
//! transform of `L/2` points suffices. The tables of a length (plans and factors) are kept for the lifetime of the process. Rows
//! are split over threads; if there are few long rows, all threads compute each of them (`long`).

mod long;

use super::planner::{Planner, planner};
use super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::{Error, Result};
use half::{bf16, f16};
use ir::{DType, Type};
use rustfft::Fft;
use rustfft::num_complex::Complex;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type C = Complex<f64>;

/// The tables for one transform length.
struct Tables {
    points: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    /// `exp(2πi·k / points)` up to a quarter turn.
    turns: Vec<C>,
}

/// A cache of tables by length, filled on demand.
struct TableCache<T>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T> TableCache<T> {
    const fn none() -> TableCache<T> {
        TableCache(Mutex::new(BTreeMap::new()))
    }

    fn of(
        &self,
        points: usize,
        planner: &mut Planner<f64>,
        make: impl FnOnce(usize, &mut Planner<f64>) -> T,
    ) -> Arc<T> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(points).or_insert_with(|| Arc::new(make(points, planner))).clone()
    }

    fn lengths(&self) -> Vec<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

static WHOLE: TableCache<Tables> = TableCache::none();
static LONG: TableCache<long::Tables> = TableCache::none();

/// Returns the transform lengths for which this process has made convolution tables.
pub fn convolution_lengths() -> Vec<usize> {
    let mut all = [WHOLE.lengths(), LONG.lengths()].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The costs of the parts of a convolution in nanoseconds, from which a front end chooses between direct sums and transforms.
pub struct ConvolutionCosts {
    /// The cost of a call that uses direct sums.
    pub call: f64,
    /// The cost of a call that uses a transform.
    pub transform_call: f64,
    /// The constant cost of a row that is shifted, multiplied and added.
    pub term: f64,
    /// The cost of an element of such a row.
    pub shifted: f64,
    /// The cost of a multiply-add of a blocked convolution.
    pub blocked: f64,
    /// The cost of an element of its Toeplitz matrix.
    pub toeplitz: f64,
    /// The cost of an element of its result that is added along a diagonal.
    pub skewed: f64,
    /// The cost of a transform with its inverse, divided by `L·log₂ L`.
    pub transform: f64,
}

/// The costs that `cargo xtask bench vsla` measured.
pub const CONVOLUTION_COSTS: ConvolutionCosts = ConvolutionCosts {
    call: 100.0,
    transform_call: 200.0,
    term: 20.0,
    shifted: 0.07,
    blocked: 0.042,
    toeplitz: 0.15,
    skewed: 1.0,
    transform: 0.55,
};

/// Returns the number of points of the transform for a result of this length.
///
/// The next power of two can be almost twice as large. An even length with small factors is closer, but each factor other
/// than 2 costs about 6%, up to four of them, as measured from 1000 to 32,768 points.
pub fn convolution_points(length: usize) -> usize {
    let limit = length.max(2).next_power_of_two();
    let cost = |n: usize, odd: u32| n as f64 * (n as f64).log2() * (1.0 + 0.06 * odd.min(4) as f64);
    let mut best = (cost(limit, 0), limit);
    // Below this, the transform time is negligible compared with the rest.
    if length < FEW_POINTS {
        return limit;
    }
    let mut three = (1usize, 0);
    while three.0 <= limit {
        let mut n = (three.0, three.1);
        while n.0 <= limit {
            // At least two factors of 2, so that both transforms have even length; or the factor that a long convolution needs.
            let twos = if length < long::MIN_POINTS { 4 } else { long::ROWS };
            let even = n.0 * (length.div_ceil(n.0).next_power_of_two().max(twos));
            if n.1 > 0 && even < limit {
                best = if cost(even, n.1) < best.0 { (cost(even, n.1), even) } else { best };
            }
            n = (n.0 * 5, n.1 + 1);
        }
        three = (three.0 * 3, three.1 + 1);
    }
    best.1
}

impl Tables {
    fn new(points: usize, planner: &mut Planner<f64>) -> Tables {
        let turn = |k: usize| C::cis(std::f64::consts::TAU * k as f64 / points as f64);
        Tables {
            points,
            forward: planner.plan_fft_forward(points),
            inverse: planner.plan_fft_inverse(points / 2),
            turns: (0..=points / 4).map(turn).collect(),
        }
    }
}

/// The result length below which the next power of two is always used.
const FEW_POINTS: usize = 128;
/// The number of rows from which each thread computes whole rows, however long they are.
const MANY: usize = 8;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new("convolve.least", long::MIN_POINTS, "points of a transform: from here all threads share a row"),
        Threshold::new("convolve.many", MANY, "rows: from here each has a thread to itself"),
        Threshold::new("convolve.points", FEW_POINTS, "length of a result: from here points need be no power of two"),
    ]
}

/// How rows are computed.
enum ConvolveStrategy {
    /// Each row is computed by one worker, with its own scratch.
    PerRow(Arc<Tables>),
    /// One row after another is computed by all workers.
    AcrossWorkers(Arc<long::Tables>),
}

/// Convolutions of rows of one shape.
struct Convolve {
    way: ConvolveStrategy,
    dtype: DType,
    rows: usize,
    m: usize,
    n: usize,
    /// The number of complex scratch elements that all workers share, and of those per worker.
    shared: usize,
    each: usize,
    threads: usize,
}

pub(super) fn supports(args: &[Type]) -> bool {
    args.len() == 2
        && args[0].numel() > 0
        && matches!(args[0].dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// The maximum number of points for which tables are made: 64 GiB of tables, or the limit of 32-bit addresses.
const MOST: usize = 1 << (if usize::BITS > 32 { 32 } else { 26 });

pub(super) fn prepare(args: &[Type], machine: CpuContext) -> Result<Option<Box<dyn OpRoutine>>> {
    let (x, y) = (&args[0], &args[1]);
    let (Some(&m), Some(&n)) = (x.shape.last(), y.shape.last()) else { return Ok(None) };
    let rows = x.numel() / m;
    if m.saturating_add(n) > MOST {
        let bytes = m.saturating_add(n).saturating_mul(size_of::<C>());
        return Err(Error::OutOfMemory { bytes, hint: "; convolve the signals in pieces" });
    }
    let Some(mut planner) = planner() else { return Ok(None) };
    let points = convolution_points(m + n - 1);
    let (way, shared, each) = if rows < MANY && points >= long::MIN_POINTS {
        let tables = LONG.of(points, &mut planner, long::Tables::new);
        let (work, each) = (tables.work(), tables.each());
        (ConvolveStrategy::AcrossWorkers(tables), work, each)
    } else {
        let tables = WHOLE.of(points, &mut planner, Tables::new);
        let plans = tables.forward.get_inplace_scratch_len().max(tables.inverse.get_inplace_scratch_len());
        (ConvolveStrategy::PerRow(tables), 0, (points + plans).next_multiple_of(8))
    };
    Ok(Some(Box::new(Convolve { way, dtype: x.dtype, rows, m, n, shared, each, threads: machine.threads })))
}

impl Convolve {
    /// Computes one row. `z` and `scratch` have the sizes that the tables require.
    fn row<T: Element>(&self, tables: &Tables, (x, y): (&[T], &[T]), out: &mut [T], z: &mut [C], scratch: &mut [C]) {
        let both = self.m.min(self.n);
        for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
            *z = C::new(x.wide(), y.wide());
        }
        z[both..self.m.max(self.n)].fill(C::default());
        z[both..self.m.max(both)].iter_mut().zip(&x[both..]).for_each(|(z, x)| z.re = x.wide());
        z[both..self.n.max(both)].iter_mut().zip(&y[both..]).for_each(|(z, y)| z.im = y.wide());
        z[self.m.max(self.n)..].fill(C::default());
        tables.forward.process_with_scratch(z, scratch);
        product(z, &tables.turns);
        let half = &mut z[..tables.points / 2];
        tables.inverse.process_with_scratch(half, scratch);
        for (two, z) in out.chunks_mut(2).zip(half.iter()) {
            two[0] = T::narrow(z.re);
            if let Some(odd) = two.get_mut(1) {
                *odd = T::narrow(z.im);
            }
        }
    }

    /// Computes all rows.
    ///
    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn all<T: Element>(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) {
        let (x, y) = (SharedPtr(args[0].cast_mut().cast::<T>()), SharedPtr(args[1].cast_mut().cast::<T>()));
        let (out, shared) = (SharedPtr(outs[0].cast::<T>()), SharedPtr(scratch.cast::<C>()));
        let own = SharedPtr(shared.at(self.shared));
        let length = self.m + self.n - 1;
        // SAFETY: rows of the operands, which nothing writes.
        let operands = |i: usize| unsafe {
            let x = std::slice::from_raw_parts(x.at(i * self.m).cast_const(), self.m);
            (x, std::slice::from_raw_parts(y.at(i * self.n).cast_const(), self.n))
        };
        match &self.way {
            ConvolveStrategy::AcrossWorkers(tables) => {
                for i in 0..self.rows {
                    // SAFETY: row `i` is inside operands and result, and scratch is as large as the tables asked for in
                    // `prepare`.
                    unsafe { tables.run(pool, operands(i), SharedPtr(out.at(i * length)), shared, own) };
                }
            }
            ConvolveStrategy::PerRow(tables) => {
                in_ranges(pool, self.rows, self.rows * tables.points * 32, &|range, worker| {
                    // SAFETY: each worker has its own scratch, all of which `row` writes before it reads it (and complex
                    // numbers of zero bytes are valid whatever they hold), and rows of its own.
                    unsafe {
                        let own = std::slice::from_raw_parts_mut(own.at(worker * self.each), self.each);
                        let (z, rest) = own.split_at_mut(tables.points);
                        for i in range {
                            let out = std::slice::from_raw_parts_mut(out.at(i * length), length);
                            self.row(tables, operands(i), out, z, rest);
                        }
                    }
                })
            }
        }
    }
}

/// Transforms the spectrum `Z` of `x + iy` in place to `Q`, whose inverse transform of half the points is
/// `z[2t] + i·z[2t + 1]` for the convolution `z`.
///
/// The product of the spectra is `P[k] = (Z[k]² - conj(Z[-k])²) / 4i`. With `H = L/2`, `A = P[k]` and
/// `B = P[k + H] = conj(P[H - k])` it is `Q[k] = (A + B) + i·w^k·(A - B)`, and `Q[H - k]` has the conjugates of both
/// terms. So four elements of `Z` give two of `Q`.
fn product(z: &mut [C], turns: &[C]) {
    let (l, h) = (z.len(), z.len() / 2);
    let factor = C::new(0.0, -0.25 / l as f64);
    let pair = |z: &[C], k: usize, w: C| {
        let (front, back) = (z[k], z[(l - k) % l].conj());
        let (low, high) = (z[h - k], z[h + k].conj());
        let a = (front * front - back * back) * factor;
        let b = ((low * low - high * high) * factor).conj();
        let (sum, turned) = (a + b, (a - b) * w);
        let times_i = |v: C| C::new(-v.im, v.re);
        (sum + times_i(turned), sum.conj() + times_i(turned.conj()))
    };
    // k = 0 is paired with H, which is in the half that is only read.
    z[0] = pair(z, 0, turns[0]).0;
    for k in 1..=h / 2 {
        let (low, high) = pair(z, k, turns[k]);
        z[k] = low;
        z[h - k] = high;
    }
}

/// A dtype in which signals are stored.
trait Element: Copy + Send + Sync {
    fn wide(self) -> f64;
    fn narrow(x: f64) -> Self;
}

macro_rules! element {
    ($($t:ty: $wide:expr, $narrow:expr;)*) => {$(
        impl Element for $t {
            fn wide(self) -> f64 {
                $wide(self)
            }
            fn narrow(x: f64) -> $t {
                $narrow(x)
            }
        }
    )*};
}

element! {
    f64: |x| x, |x| x;
    f32: f64::from, |x| x as f32;
    f16: f16::to_f64, f16::from_f64;
    bf16: bf16::to_f64, bf16::from_f64;
}

impl OpRoutine for Convolve {
    fn scratch_bytes(&self) -> usize {
        (self.shared + self.each * self.threads) * size_of::<C>()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
        // `scratch_bytes`.
        unsafe {
            match self.dtype {
                DType::F64 => self.all::<f64>(pool, args, outs, scratch),
                DType::F16 => self.all::<f16>(pool, args, outs, scratch),
                DType::BF16 => self.all::<bf16>(pool, args, outs, scratch),
                _ => self.all::<f32>(pool, args, outs, scratch),
            }
        }
        Ok(())
    }
}
