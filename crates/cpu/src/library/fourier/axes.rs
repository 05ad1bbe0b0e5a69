//! Fourier transforms over several axes, one axis at a time. For each axis, chooses between batches of lines in SIMD lanes and
//! the four-step algorithm for long lines, whichever has the lower estimated cost, and the instruction set.

use super::batched::{AxisStep, LineTransform};
use super::factor_plan::choose;
use super::four_step::{FourStepFft, Line, Phase};
use super::load_store::Planes;
use super::strided::{CYCLES, StridedFft};
use super::twiddle::Real;
use crate::gemm::Isa;
use crate::library::along::AxisLines;
use crate::library::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::ops::{Fft, FftKind};
use ir::{DType, Type};
use std::ops::Range;

/// The maximum number of bundles per thread for which narrower bundles are considered to balance the work.
const FEW_BUNDLES: usize = 4;

/// Returns the number of lines of a bundle: the number of lanes, or half of it where the threads then finish earlier. Lines are
/// independent, so the bits are the same.
fn balanced(lines: AxisLines, lanes: usize, machine: CpuContext) -> usize {
    let bundles = |lanes: usize| match lines.inner {
        1 => lines.outer.div_ceil(lanes),
        inner => lines.outer * inner.div_ceil(lanes),
    };
    if machine.isa != Isa::Avx512 || bundles(lanes) > FEW_BUNDLES * machine.threads {
        return lanes;
    }
    let whole = bundles(lanes).div_ceil(machine.threads) as f64;
    let halves = 0.55 * bundles(lanes / 2).div_ceil(machine.threads) as f64;
    if halves < whole { lanes / 2 } else { lanes }
}

/// The algorithm for one axis.
enum AxisPass<T> {
    Batched(AxisStep<T>),
    FourStep(FourStepFft<T>),
    Strided(StridedFft<T>),
}

/// Float types with vector transforms.
trait Wide: Real {
    fn lanes(isa: Isa) -> usize;
    /// # Safety
    /// As for [`Step::bundle`], and the machine has the instruction set.
    unsafe fn bundles(
        step: &AxisStep<Self>,
        isa: Isa,
        range: Range<usize>,
        from: Planes<Self>,
        to: Planes<Self>,
        x: *mut Self,
    );
    /// # Safety
    /// As for [`LongLines::phase`], and the machine has the instruction set.
    unsafe fn phase(lines: &FourStepFft<Self>, isa: Isa, phase: Phase, units: Range<usize>, line: Line<Self>);
}

macro_rules! wide {
    ($t:ty, $z:ident, $y:ident, $lz:literal, $ly:literal) => {
        impl Wide for $t {
            fn lanes(isa: Isa) -> usize {
                if isa == Isa::Avx512 { $lz } else { $ly }
            }

            unsafe fn bundles(
                step: &AxisStep<$t>,
                isa: Isa,
                range: Range<usize>,
                from: Planes<$t>,
                to: Planes<$t>,
                x: *mut $t,
            ) {
                {
                    use std::arch::x86_64::*;
                    /// # Safety
                    /// The planes are those of the step, `x` has room for its elements, nothing else accesses these
                    /// bundles, and the machine has AVX-512.
                    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                    unsafe fn avx512(
                        step: &AxisStep<$t>,
                        range: Range<usize>,
                        from: Planes<$t>,
                        to: Planes<$t>,
                        x: *mut $t,
                    ) {
                        for i in range {
                            // SAFETY: the planes are those of the step, `x` has room for its elements, nothing else
                            // accesses bundle `i`, and the machine has AVX-512.
                            unsafe {
                                // A bundle with few lines takes half the time with half-width vectors.
                                match step.place(i, 1).count <= $ly {
                                    true => avx2(step, i..i + 1, from, to, x),
                                    false => step.bundle::<$z>(i, from, to, x),
                                }
                            }
                        }
                    }
                    /// # Safety
                    /// The planes are those of the step, `x` has room for its elements, nothing else accesses these
                    /// bundles, and the machine has AVX2.
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2(
                        step: &AxisStep<$t>,
                        range: Range<usize>,
                        from: Planes<$t>,
                        to: Planes<$t>,
                        x: *mut $t,
                    ) {
                        for i in range {
                            // SAFETY: the planes are those of the step, `x` has room for its elements, nothing else
                            // accesses bundle `i`, and the machine has AVX2.
                            unsafe { step.bundle::<$y>(i, from, to, x) };
                        }
                    }
                    // SAFETY: planes and scratch are those of the step, nothing else accesses these bundles, and the
                    // machine has `isa`.
                    unsafe {
                        match isa {
                            Isa::Avx512 => avx512(step, range, from, to, x),
                            _ => avx2(step, range, from, to, x),
                        }
                    }
                }
            }

            unsafe fn phase(lines: &FourStepFft<$t>, isa: Isa, phase: Phase, units: Range<usize>, line: Line<$t>) {
                use std::arch::x86_64::*;
                /// # Safety
                /// As for `phase`, and the machine has the target features.
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                unsafe fn avx512(lines: &FourStepFft<$t>, phase: Phase, units: Range<usize>, line: Line<$t>) {
                    // SAFETY: `phase` has the contract of this function, and gets its arguments unchanged.
                    unsafe { lines.phase::<$z>(phase, units, line) }
                }
                /// # Safety
                /// As for `phase`, and the machine has the target features.
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2(lines: &FourStepFft<$t>, phase: Phase, units: Range<usize>, line: Line<$t>) {
                    // SAFETY: `phase` has the contract of this function, and gets its arguments unchanged.
                    unsafe { lines.phase::<$y>(phase, units, line) }
                }
                // SAFETY: the line and its scratch are valid for the plan, nothing else accesses these units, and the
                // machine has `isa`.
                unsafe {
                    match isa {
                        Isa::Avx512 => avx512(lines, phase, units, line),
                        _ => avx2(lines, phase, units, line),
                    }
                }
            }
        }
    };
}
wide!(f32, __m512, __m256, 16, 8);
wide!(f64, __m512d, __m256d, 8, 4);

/// A transform over several axes, one axis at a time.
struct BatchedFft<T> {
    steps: Vec<AxisPass<T>>,
    /// The number of elements of an intermediate plane between steps, where the result buffer cannot be used.
    between: usize,
    /// The number of elements of a worker's buffers.
    each: usize,
    /// The number of scratch elements for long lines.
    long: usize,
    threads: usize,
    isa: Isa,
}

/// Returns the routine of a transform if all axes suit these algorithms.
pub(super) fn prepare(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    if machine.isa == Isa::Portable || op.axes.is_empty() || args[0].numel() == 0 || outs[0].numel() == 0 {
        return None;
    }
    match args[0].dtype {
        DType::F32 => Some(Box::new(BatchedFft::<f32>::new(op, args, outs, machine)?)),
        DType::F64 => Some(Box::new(BatchedFft::<f64>::new(op, args, outs, machine)?)),
        _ => None,
    }
}

impl<T: Wide> BatchedFft<T> {
    fn new(op: &Fft, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<BatchedFft<T>> {
        let (last, others) = op.axes.split_last()?;
        let back = matches!(op.kind, FftKind::InverseReal { .. });
        // The real side and the complex side; the same unless the transform is real.
        let (full, complex) = if back { (&outs[0], &args[0]) } else { (&args[0], &outs[0]) };
        let inverse = back || op.kind == FftKind::Inverse;
        let points: f64 = op.axes.iter().map(|&a| full.shape[a] as f64).product();
        let scale = if inverse { 1.0 / points } else { 1.0 };
        let lanes = T::lanes(machine.isa);
        let pass = |kind: LineTransform, axis: usize, n: usize, factor: f64| {
            let (lines, side) = (AxisLines::new(complex, axis), complex.shape[axis]);
            let bundles = || {
                let lanes = balanced(lines, lanes, machine);
                AxisPass::Batched(AxisStep::new(kind, lines, side, n, factor, (lanes, machine.threads)))
            };
            let Some(choice) = choose(kind, n, lanes) else { return bundles() };
            // Lines that are transposed are transposed twice.
            let turned = if lines.inner == 1 { 0.0 } else { CYCLES * n as f64 };
            let count = lines.outer * lines.inner;
            if (choice.cycles + turned) * count as f64 >= AxisStep::<T>::cycles(kind, lines, n, lanes) {
                return bundles();
            }
            let long = FourStepFft::new(kind, count, n, factor, choice, lanes, machine.threads);
            match lines.inner {
                1 => AxisPass::FourStep(long),
                inner => AxisPass::Strided(StridedFft { long, outer: lines.outer, inner }),
            }
        };
        let mut steps = vec![];
        let step =
            |axis: usize, factor: f64| pass(LineTransform::Complex { inverse }, axis, complex.shape[axis], factor);
        let kind = match op.kind {
            FftKind::Real => LineTransform::Real,
            FftKind::InverseReal { .. } => LineTransform::InverseReal,
            _ => LineTransform::Complex { inverse },
        };
        let own = pass(kind, *last, full.shape[*last], scale);
        if back {
            for &a in others {
                steps.push(step(a, 1.0));
            }
            steps.push(own);
        } else {
            steps.push(own);
            for &a in others {
                steps.push(step(a, 1.0));
            }
        }
        let bundles = |p: &AxisPass<T>| if let AxisPass::Batched(s) = p { s.scratch() * 2 * s.lanes } else { 0 };
        let long = |p: &AxisPass<T>| match p {
            AxisPass::FourStep(lines) => lines.scratch(),
            AxisPass::Strided(lines) => lines.scratch(),
            AxisPass::Batched(_) => 0,
        };
        let most = |f: &dyn Fn(&AxisPass<T>) -> usize| steps.iter().map(f).max();
        Some(BatchedFft {
            between: if back && steps.len() > 1 { complex.numel().next_multiple_of(16) } else { 0 },
            each: most(&bundles)?,
            long: most(&long)?,
            steps,
            threads: machine.threads,
            isa: machine.isa,
        })
    }
}

impl<T: Wide> OpRoutine for BatchedFft<T> {
    fn scratch_bytes(&self) -> usize {
        (2 * self.between + self.long.max(self.each * self.threads)) * size_of::<T>()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let scratch = scratch.cast::<T>();
        let plane = |p: Option<*mut u8>| SharedPtr(p.unwrap_or(std::ptr::null_mut()).cast::<T>());
        let input =
            Planes { re: plane(args.first().map(|p| p.cast_mut())), im: plane(args.get(1).map(|p| p.cast_mut())) };
        let output = Planes { re: plane(outs.first().copied()), im: plane(outs.get(1).copied()) };
        let between = Planes { re: SharedPtr(scratch), im: SharedPtr(scratch.wrapping_add(self.between)) };
        let own = SharedPtr(scratch.wrapping_add(2 * self.between));
        let last = self.steps.len() - 1;
        for (i, step) in self.steps.iter().enumerate() {
            let from = match i {
                0 => input,
                _ if self.between > 0 => between,
                _ => output,
            };
            let to = if self.between > 0 && i < last { between } else { output };
            let step = match step {
                AxisPass::Batched(step) => step,
                AxisPass::FourStep(lines) => {
                    // SAFETY: planes are those of the step; a line is read before it is written.
                    unsafe { lines.run(pool, self.isa, from, to, own, T::phase) };
                    continue;
                }
                AxisPass::Strided(lines) => {
                    // SAFETY: as above.
                    unsafe { lines.run(pool, self.isa, (from, to), own, T::phase) };
                    continue;
                }
            };
            in_ranges(pool, step.bundles(), step.work(), &|range: Range<usize>, worker| {
                let x = own.at(worker * self.each);
                // SAFETY: planes are those of the step, a worker has buffers of its own, and bundles are one range's. A bundle is
                // read before it is written, so that a step may work in place.
                unsafe { T::bundles(step, self.isa, range, from, to, x) };
            });
        }
        Ok(())
    }
}
