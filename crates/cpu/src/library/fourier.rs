//! Fourier transforms, planned by `rustfft`, line by line.

use super::along::Lines;
use super::{Machine, Raw, Routine, in_ranges};
use crate::pool::Pool;
use compiler::Result;
use ir::ops::{Fft, FftKind};
use ir::{DType, Type};
use rustfft::num_complex::Complex;
use rustfft::{FftNum, FftPlanner};
use std::ops::Range;
use std::sync::Arc;

/// One axis of a transform.
struct Pass<T: FftNum> {
    lines: Lines,
    plan: Arc<dyn rustfft::Fft<T>>,
}

/// A transform of several axes.
struct Transform<T: FftNum> {
    kind: FftKind,
    passes: Vec<Pass<T>>,
    /// Complex elements of the full tensor, on which passes work.
    full: usize,
    /// The halved axis, as it is in the half spectrum and in full.
    half: Lines,
    whole: Lines,
    factor: T,
    /// Complex elements of scratch for each worker: a line, then what its plan asks for.
    line: usize,
    each: usize,
    threads: usize,
}

pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: Machine) -> Option<Box<dyn Routine>> {
    if op.axes.is_empty() || args[0].numel() == 0 || outs[0].numel() == 0 {
        return None;
    }
    match args[0].dtype {
        DType::F32 => Some(Box::new(Transform::<f32>::new(op, args, outs, machine))),
        DType::F64 => Some(Box::new(Transform::<f64>::new(op, args, outs, machine))),
        _ => None,
    }
}

impl<T: FftNum> Transform<T> {
    fn new(op: &Fft, args: &[Type], outs: &[Type], machine: Machine) -> Transform<T> {
        let last = op.axes[op.axes.len() - 1];
        let (full, half) = match op.kind {
            FftKind::InverseReal { .. } => (&outs[0], &args[0]),
            _ => (&args[0], &outs[0]),
        };
        let inverse = matches!(op.kind, FftKind::Inverse | FftKind::InverseReal { .. });
        let mut planner = FftPlanner::<T>::new();
        let mut pass = |axis: usize| {
            let lines = Lines::new(full, axis);
            let plan = if inverse { planner.plan_fft_inverse(lines.n) } else { planner.plan_fft_forward(lines.n) };
            Pass { lines, plan }
        };
        let passes: Vec<Pass<T>> = op.axes.iter().map(|&a| pass(a)).collect();
        let points: f64 = op.axes.iter().map(|&a| full.shape[a] as f64).product();
        let factor = T::from_f64(if inverse { 1.0 / points } else { 1.0 }).expect("a finite number");
        let line = passes.iter().map(|p| p.lines.n).max().unwrap_or(0);
        let scratch = passes.iter().map(|p| p.plan.get_inplace_scratch_len()).max().unwrap_or(0);
        Transform {
            kind: op.kind,
            passes,
            full: full.numel(),
            half: Lines::new(half, last),
            whole: Lines::new(full, last),
            factor,
            line,
            each: (line + scratch).next_multiple_of(8),
            threads: machine.threads,
        }
    }

    /// Transforms all lines of one axis.
    fn pass(&self, pool: &Pool, pass: &Pass<T>, work: Raw<Complex<T>>, scratch: Raw<Complex<T>>) {
        let l = pass.lines;
        in_ranges(pool, l.outer * l.inner, self.full * 8, &|range: Range<usize>, worker| {
            let own = scratch.at(worker * self.each);
            let needs = pass.plan.get_inplace_scratch_len();
            // SAFETY: each worker has its own scratch, and its lines for itself.
            unsafe {
                let scratch = std::slice::from_raw_parts_mut(own.add(self.line), needs);
                for i in range {
                    let base = i / l.inner * l.inner * l.n + i % l.inner;
                    if l.inner == 1 {
                        let line = std::slice::from_raw_parts_mut(work.at(base), l.n);
                        pass.plan.process_with_scratch(line, scratch);
                        continue;
                    }
                    let line = std::slice::from_raw_parts_mut(own, l.n);
                    (0..l.n).for_each(|k| line[k] = *work.at(base + k * l.inner));
                    pass.plan.process_with_scratch(line, scratch);
                    (0..l.n).for_each(|k| *work.at(base + k * l.inner) = line[k]);
                }
            }
        });
    }

    /// Fills the full tensor from the half spectrum along the halved axis; the other half is its conjugate, mirrored
    /// along that axis alone, since the other axes are done already.
    unsafe fn complete(&self, work: Raw<Complex<T>>) {
        let (h, w) = (self.half, self.whole);
        for line in 0..w.outer * w.inner {
            let base = line / w.inner * w.inner * w.n + line % w.inner;
            let at = |k: usize| work.at(base + k * w.inner);
            // SAFETY: inside the full tensor, whose first `h.n` elements of each line hold the half spectrum.
            unsafe {
                (*at(0)).im = T::zero();
                if w.n.is_multiple_of(2) && h.n > 1 {
                    (*at(w.n / 2)).im = T::zero();
                }
                (h.n..w.n).for_each(|k| *at(k) = (*at(w.n - k)).conj());
            }
        }
    }
}

impl<T: FftNum> Routine for Transform<T> {
    fn scratch_bytes(&self) -> usize {
        (self.full.next_multiple_of(8) + self.each * self.threads) * size_of::<Complex<T>>()
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let work = Raw(scratch.cast::<Complex<T>>());
        let scratch = Raw(work.at(self.full.next_multiple_of(8)));
        let part = |i: usize| args.get(i).map(|p| p.cast::<T>());
        let (re, im) = (part(0), part(1));
        let (h, w) = (self.half, self.whole);
        // Elements of the half spectrum and where they are in the full tensor.
        let halved = |f: &mut dyn FnMut(usize, usize)| {
            for outer in 0..h.outer {
                for k in 0..h.n {
                    for j in 0..h.inner {
                        f((outer * h.n + k) * h.inner + j, (outer * w.n + k) * w.inner + j);
                    }
                }
            }
        };
        // SAFETY: the operands and results are those of the transform; scratch is its own.
        unsafe {
            let element =
                |i: usize| Complex { re: re.map_or(T::zero(), |p| *p.add(i)), im: im.map_or(T::zero(), |p| *p.add(i)) };
            let (last, others) = self.passes.split_last().expect("at least one axis");
            if let FftKind::InverseReal { .. } = self.kind {
                for i in 0..self.full {
                    *work.at(i) = Complex { re: T::zero(), im: T::zero() };
                }
                halved(&mut |i, at| *work.at(at) = element(i));
                others.iter().for_each(|p| self.pass(pool, p, work, scratch));
                self.complete(work);
                self.pass(pool, last, work, scratch);
                for i in 0..self.full {
                    *outs[0].cast::<T>().add(i) = (*work.at(i)).re * self.factor;
                }
                return Ok(());
            }
            (0..self.full).for_each(|i| *work.at(i) = element(i));
            self.pass(pool, last, work, scratch);
            others.iter().for_each(|p| self.pass(pool, p, work, scratch));
            halved(&mut |i, at| {
                let z = *work.at(at);
                *outs[0].cast::<T>().add(i) = z.re * self.factor;
                *outs[1].cast::<T>().add(i) = z.im * self.factor;
            });
        }
        Ok(())
    }
}
