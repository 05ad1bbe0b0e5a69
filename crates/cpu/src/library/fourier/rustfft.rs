//! Fourier transforms by the `rustfft` crate, in bundles of adjacent lines:
//! each bundle is read, transformed and written while it is in cache.
//!
//! A real line of even length is transformed as a complex line of half the length (even elements as real parts, odd elements as
//! imaginary parts), and its spectrum is then separated with the roots of unity. So the other axes also
//! have only half the spectrum to transform.

use crate::library::along::{AxisLines, LANES};
use crate::library::planner::planner;
use crate::library::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::ops::{Fft, FftKind};
use ir::{DType, Type};
use rustfft::FftNum;
use rustfft::num_complex::Complex;
use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

/// One axis of a transform: its lines and their plan.
struct Pass<T: FftNum> {
    lines: AxisLines,
    plan: Arc<dyn rustfft::Fft<T>>,
}

/// A transform over several axes.
struct Transform<T: FftNum> {
    kind: FftKind,
    /// The axis that real transforms halve, with the lines of the complex side.
    last: Pass<T>,
    others: Vec<Pass<T>>,
    /// The number of complex elements on the side where the other axes are transformed.
    work: usize,
    /// The number of real elements of a line along the last axis.
    n: usize,
    /// The roots of unity up to half of the length, where real lines are halved.
    roots: Vec<Complex<T>>,
    factor: T,
    /// The number of complex scratch elements per worker: a bundle, then the plan's scratch.
    bundle: usize,
    each: usize,
    threads: usize,
}

pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    if op.axes.is_empty() || args[0].numel() == 0 || outs[0].numel() == 0 {
        return None;
    }
    match args[0].dtype {
        DType::F32 => Some(Box::new(Transform::<f32>::new(op, args, outs, machine)?)),
        DType::F64 => Some(Box::new(Transform::<f64>::new(op, args, outs, machine)?)),
        _ => None,
    }
}

fn number<T: FftNum>(x: f64) -> T {
    T::from_f64(x).expect("a finite number")
}

impl<T: FftNum> Transform<T> {
    fn new(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Transform<T>> {
        let (last, others) = op.axes.split_last().expect("at least one axis");
        // The real side and the complex side; the same unless the transform is real.
        let (full, complex) = match op.kind {
            FftKind::InverseReal { .. } => (&outs[0], &args[0]),
            _ => (&args[0], &outs[0]),
        };
        let real = matches!(op.kind, FftKind::Real | FftKind::InverseReal { .. });
        let inverse = matches!(op.kind, FftKind::Inverse | FftKind::InverseReal { .. });
        let n = full.shape[*last];
        let halved = real && n.is_multiple_of(2);
        let mut planner = planner::<T>()?;
        let mut pass = |lines: AxisLines, n: usize| {
            let plan = if inverse { planner.plan_fft_inverse(n) } else { planner.plan_fft_forward(n) };
            Pass { lines, plan }
        };
        let others: Vec<Pass<T>> = others.iter().map(|&a| pass(AxisLines::new(complex, a), complex.shape[a])).collect();
        let last = pass(AxisLines::new(complex, *last), if halved { n / 2 } else { n });
        let points: f64 = op.axes.iter().map(|&a| full.shape[a] as f64).product();
        let scale = if inverse { 1.0 / points } else { 1.0 };
        let factor = number(if inverse && halved { 2.0 * scale } else { scale });
        let root = |k: usize| {
            // Multiples of a quarter turn are exact, so real elements stay real.
            let (re, im) = match (4 * k).is_multiple_of(n) {
                true => [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)][4 * k / n % 4],
                false => {
                    let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
                    (cos, sin)
                }
            };
            Complex { re: number(re), im: number(im) }
        };
        let all = || others.iter().chain([&last]);
        let line = all().map(|p| p.plan.len()).max().unwrap_or(0);
        let most = all().map(|p| p.lines.inner.min(LANES)).max().unwrap_or(1);
        let scratch = all().map(|p| p.plan.get_inplace_scratch_len()).max().unwrap_or(0);
        Some(Transform {
            kind: op.kind,
            work: if others.is_empty() { 0 } else { complex.numel().next_multiple_of(8) },
            n,
            roots: if halved { (0..=n / 2).map(root).collect() } else { vec![] },
            factor,
            bundle: line * most,
            each: (line * most + scratch).next_multiple_of(8),
            threads: machine.threads,
            last,
            others,
        })
    }

    /// Transforms bundles of lines. `load` writes the lines contiguously to a buffer, `store` takes them from there. Both
    /// receive the outer index, the first line and the number of lines.
    fn transform_lines(
        &self,
        pool: &ThreadPool,
        pass: &Pass<T>,
        scratch: SharedPtr<Complex<T>>,
        load: &(dyn Fn((usize, usize, usize), &mut [Complex<T>]) + Sync),
        store: &(dyn Fn((usize, usize, usize), &[Complex<T>]) + Sync),
    ) {
        let l = pass.lines;
        in_ranges(pool, l.bundles(), l.numel() * 8, &|range: Range<usize>, worker| {
            let own = scratch.at(worker * self.each);
            // SAFETY: each worker has its own scratch.
            let (buffer, scratch) = unsafe {
                let needs = pass.plan.get_inplace_scratch_len();
                (
                    std::slice::from_raw_parts_mut(own, self.bundle),
                    std::slice::from_raw_parts_mut(own.add(self.bundle), needs),
                )
            };
            for at in range.map(|i| l.bundle(i)) {
                let lines = &mut buffer[..at.2 * pass.plan.len()];
                load(at, lines);
                pass.plan.process_with_scratch(lines, scratch);
                store(at, lines);
            }
        });
    }

    /// Transforms an axis of the complex side in place.
    fn in_place(&self, pool: &ThreadPool, pass: &Pass<T>, work: SharedPtr<Complex<T>>, scratch: SharedPtr<Complex<T>>) {
        let l = pass.lines;
        let place = move |(outer, first, _): (usize, usize, usize), k: usize| (outer * l.n + k) * l.inner + first;
        let load = |at: (usize, usize, usize), lines: &mut [Complex<T>]| {
            for k in 0..l.n {
                for j in 0..at.2 {
                    // SAFETY: inside the tensor; nothing else accesses these lines.
                    lines[j * l.n + k] = unsafe { *work.at(place(at, k) + j) };
                }
            }
        };
        let store = |at: (usize, usize, usize), lines: &[Complex<T>]| {
            for k in 0..l.n {
                for j in 0..at.2 {
                    // SAFETY: as above.
                    unsafe { *work.at(place(at, k) + j) = lines[j * l.n + k] };
                }
            }
        };
        self.transform_lines(pool, pass, scratch, &load, &store);
    }

    /// Computes element `k` of the spectrum of a real line from its half-length transform `z`.
    #[inline(always)]
    fn untangle(&self, z: &[Complex<T>], k: usize) -> Complex<T> {
        let h = z.len();
        let (a, b) = (z[k % h], z[(h - k) % h].conj());
        let half: T = number(0.5);
        let (even, odd) = ((a + b) * half, (a - b) * half);
        // (a - b) / 2i, times a root of unity.
        even + self.roots[k] * Complex { re: odd.im, im: -odd.re }
    }

    /// Computes element `k` of the half-length transform of a real line from its spectrum.
    #[inline(always)]
    fn merge_spectrum(&self, spectrum: impl Fn(usize) -> Complex<T>, k: usize) -> Complex<T> {
        let h = self.n / 2;
        let (a, b) = (spectrum(k), spectrum(h - k).conj());
        let half: T = number(0.5);
        let (even, odd) = ((a + b) * half, (a - b) * half * self.roots[k].conj());
        even + Complex { re: -odd.im, im: odd.re }
    }
}

impl<T: FftNum> OpRoutine for Transform<T> {
    fn scratch_bytes(&self) -> usize {
        (self.work + self.each * self.threads) * size_of::<Complex<T>>()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let work = SharedPtr(scratch.cast::<Complex<T>>());
        let scratch = SharedPtr(work.at(self.work));
        let arg = |i: usize| SharedPtr(args.get(i).copied().unwrap_or(std::ptr::null()).cast_mut().cast::<T>());
        let out = |i: usize| SharedPtr(outs.get(i).copied().unwrap_or(std::ptr::null_mut()).cast::<T>());
        let (re, im, to_re, to_im) = (arg(0), arg(1), out(0), out(1));
        let l = self.last.lines;
        let (n, h, alone, factor) = (self.n, self.last.plan.len(), self.others.is_empty(), self.factor);
        let halved = !self.roots.is_empty();
        let complex = move |(outer, first, _): (usize, usize, usize), k: usize| (outer * l.n + k) * l.inner + first;
        let real = move |(outer, first, _): (usize, usize, usize), k: usize| (outer * n + k) * l.inner + first;
        // SAFETY (all of the below): places are inside the operands and results, whose lines are one worker's each.
        let read = |i: usize| unsafe { Complex { re: *re.at(i), im: *im.at(i) } };
        let write = |i: usize, z: Complex<T>| unsafe {
            *to_re.at(i) = z.re * factor;
            *to_im.at(i) = z.im * factor;
        };
        if let FftKind::InverseReal { .. } = self.kind {
            if !alone {
                in_ranges(pool, l.numel(), l.numel(), &|range: Range<usize>, _| {
                    // SAFETY: as above.
                    range.for_each(|i| unsafe { *work.at(i) = read(i) });
                });
                self.others.iter().for_each(|p| self.in_place(pool, p, work, scratch));
            }
            let source = |i: usize| if alone { read(i) } else { unsafe { *work.at(i) } };
            let load = |at: (usize, usize, usize), lines: &mut [Complex<T>]| {
                for (j, line) in lines.chunks_exact_mut(h).enumerate() {
                    // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                    let spectrum = |k: usize| {
                        let z = source(complex(at, k) + j);
                        let edge = k == 0 || 2 * k == n;
                        Complex { re: z.re, im: if edge { T::zero() } else { z.im } }
                    };
                    if halved {
                        (0..h).for_each(|k| line[k] = self.merge_spectrum(spectrum, k));
                    } else {
                        (0..l.n).for_each(|k| line[k] = spectrum(k));
                        (l.n..n).for_each(|k| line[k] = line[n - k].conj());
                    }
                }
            };
            let store = |at: (usize, usize, usize), lines: &[Complex<T>]| {
                for (j, line) in lines.chunks_exact(h).enumerate() {
                    for (k, z) in line.iter().enumerate() {
                        // SAFETY: as above.
                        unsafe {
                            if halved {
                                *to_re.at(real(at, 2 * k) + j) = z.re * factor;
                                *to_re.at(real(at, 2 * k + 1) + j) = z.im * factor;
                            } else {
                                *to_re.at(real(at, k) + j) = z.re * factor;
                            }
                        }
                    }
                }
            };
            self.transform_lines(pool, &self.last, scratch, &load, &store);
            return Ok(());
        }
        let is_real = self.kind == FftKind::Real;
        let load = |at: (usize, usize, usize), lines: &mut [Complex<T>]| {
            if !is_real {
                for k in 0..n {
                    (0..at.2).for_each(|j| lines[j * n + k] = read(complex(at, k) + j));
                }
                return;
            }
            // SAFETY: as above.
            let element = |k: usize, j: usize| unsafe { *re.at(real(at, k) + j) };
            for k in 0..h {
                for j in 0..at.2 {
                    lines[j * h + k] = match halved {
                        true => Complex { re: element(2 * k, j), im: element(2 * k + 1, j) },
                        false => Complex { re: element(k, j), im: T::zero() },
                    };
                }
            }
        };
        let store = |at: (usize, usize, usize), lines: &[Complex<T>]| {
            for k in 0..l.n {
                for j in 0..at.2 {
                    let line = &lines[j * h..][..h];
                    let z = if halved { self.untangle(line, k) } else { line[k] };
                    let i = complex(at, k) + j;
                    match alone {
                        true => write(i, z),
                        // SAFETY: as above.
                        false => unsafe { *work.at(i) = z },
                    }
                }
            }
        };
        self.transform_lines(pool, &self.last, scratch, &load, &store);
        if !alone {
            self.others.iter().for_each(|p| self.in_place(pool, p, work, scratch));
            in_ranges(pool, l.numel(), l.numel(), &|range: Range<usize>, _| {
                // SAFETY: as above.
                range.for_each(|i| write(i, unsafe { *work.at(i) }));
            });
        }
        Ok(())
    }
}
