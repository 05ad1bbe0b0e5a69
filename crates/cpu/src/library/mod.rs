//! Program steps that are not kernels: supported composites, and routines of ops.
//!
//! An [`OpRoutine`] is prepared once, when its shapes are known, and runs without allocating. An op without a routine
//! runs in the reference interpreter, which does allocate.
//!
//! Laws: bits do not depend on the number of threads, so the work of a part follows from shapes alone; and the results
//! of a routine agree with the op's `eval`.

mod along;
mod attention;
mod collective;
mod concat;
mod conv;
#[cfg(feature = "fft")]
mod convolve;
mod cumulative;
mod element;
#[cfg(feature = "fft")]
mod fourier;
mod half_floats;
mod linalg;
mod memcpy;
mod packed;
#[cfg(feature = "fft")]
mod planner;
mod radix;
mod ragged;
mod rearrange;
mod scatter;
mod simd;
mod sort;
mod sorting_network;
mod window;

#[cfg(all(unix, target_arch = "x86_64"))]
pub(crate) use rearrange::TransposeRoutine;
pub(crate) use rearrange::prepare as rearrangement;

#[cfg(feature = "fft")]
pub use convolve::{CONVOLUTION_COSTS, ConvolutionCosts, convolution_lengths, convolution_points};

use crate::backend::Cpu;
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::{Error, PendingCollective, Result};
use ir::ops::Composite;
use ir::{Literal, Op, Type};

/// An op prepared for dense operands of known shapes.
pub(crate) trait OpRoutine: Send + Sync {
    /// The bytes of scratch that a run needs, aligned to 64.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Runs the op.
    ///
    /// # Safety
    /// Every pointer is valid for the bytes of its type, `scratch` for [`Routine::scratch_bytes`], and neither results
    /// nor scratch overlap anything else.
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()>;

    /// Starts the op on a copy of its operands, if it can complete while other steps run; its single result is available later.
    ///
    /// # Safety
    /// Every pointer is valid for the bytes of its type.
    unsafe fn start(&self, args: &[*const u8]) -> Result<Option<StartedRoutine>> {
        let _ = args;
        Ok(None)
    }
}

/// A started routine, and the bytes of its result.
pub(crate) struct StartedRoutine {
    pub(crate) talking: Box<dyn PendingCollective>,
    pub(crate) bytes: usize,
}

/// Whether the portable code of factorizations and Fourier transforms is compiled. On an x86-64 without AVX2, kernels run in the
/// evaluator unless Cranelift is enabled, and these ops run in the interpreter: otherwise every program would contain half a
/// megabyte of code for machines that are slow anyway.
const PORTABLE: bool = cfg!(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))));

/// The context for which a routine is prepared.
#[derive(Clone, Copy)]
struct CpuContext {
    threads: usize,
    isa: Isa,
}

/// Returns whether this backend runs a composite as a single routine.
pub(crate) fn supports(composite: &Composite, args: &[Type]) -> bool {
    match composite.name.as_str() {
        "attention" => attention::supports(composite, args, false),
        "attention_backward" => attention::supports(composite, args, true),
        #[cfg(feature = "fft")]
        "fft_convolve" => convolve::supports(args),
        "dequantize" | "packed_dot" => packed::claims(composite, args),
        _ => false,
    }
}

/// Returns the routine of an op on operands of these types.
pub(crate) fn prepare(op: &Op, args: &[Type], outs: &[Type], cpu: &Cpu) -> Result<Box<dyn OpRoutine>> {
    let machine = CpuContext { threads: cpu.pool.threads(), isa: cpu.isa() };
    let routine = match op {
        #[cfg(feature = "fft")]
        Op::Composite(c) if c.name == "fft_convolve" => convolve::prepare(args, machine)?,
        Op::Composite(c) if matches!(c.name.as_str(), "dequantize" | "packed_dot") => {
            packed::prepare(c, args, outs, machine)
        }
        Op::Composite(c) if supports(c, args) => attention::prepare(c, args, machine),
        Op::Collective(c) => collective::prepare(c, args, outs, cpu)?,
        Op::Concat(c) => concat::prepare(c, args, outs, machine.isa),
        Op::Conv(c) => conv::prepare(c, args, outs, machine),
        Op::ReduceWindow(r) => window::reduce(r, args, outs, machine),
        Op::WindowGather(w) => window::gather(w, args, outs, machine),
        Op::WindowScatter(w) => window::scatter(w, args, machine),
        Op::Cumulative(c) => cumulative::cumulative(c, args, machine),
        Op::ArgReduce(a) => along::arg_reduce(a, args, machine),
        Op::TakeAlong(t) => along::take(t, args),
        Op::PutAlong(p) => along::put(p, args, outs, machine),
        Op::Sort(s) => sort::sort(s, args, machine),
        Op::TopK(t) => sort::top_k(t, args, machine),
        Op::Scatter(s) => scatter::prepare(s, args, machine),
        Op::RaggedDot(r) => ragged::prepare(r, args, outs, machine),
        #[cfg(feature = "fft")]
        Op::Fft(f) => fourier::prepare(f, args, outs, machine),
        Op::Cholesky(_) | Op::TriangularSolve(_) | Op::Lu(_) | Op::Qr(_) | Op::Eigh(_) | Op::Svd(_) => {
            linalg::prepare(op, args, outs, machine)
        }
        _ => None,
    };
    Ok(routine.unwrap_or_else(|| Box::new(Interpreted { op: op.clone(), args: args.to_vec(), outs: outs.to_vec() })))
}

/// An op that runs in the reference interpreter.
struct Interpreted {
    op: Op,
    args: Vec<Type>,
    outs: Vec<Type>,
}

impl OpRoutine for Interpreted {
    unsafe fn run(&self, _: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        let mut inputs = Vec::with_capacity(args.len());
        for (p, ty) in args.iter().zip(&self.args) {
            // SAFETY: `Routine::run` requires the operand to be valid for the bytes of its type.
            let bytes = unsafe { std::slice::from_raw_parts(*p, ty.bytes()) };
            inputs.push(Literal::from_bytes(ty.clone(), bytes).expect("the slice has the type's size"));
        }
        let results = ir::interp::eval(&self.op, &inputs, &self.outs).map_err(Error::Graph)?;
        for (p, r) in outs.iter().zip(&results) {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(r.bytes().as_ptr(), *p, r.bytes().len()) };
        }
        Ok(())
    }
}

/// A pointer that the parts of a job share; each part writes only its own elements.
#[derive(Clone, Copy)]
struct SharedPtr<T>(*mut T);

// SAFETY: see the type's comment; the pool's call returns before what is pointed at goes away.
unsafe impl<T> Sync for SharedPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Send for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// A list of pointers that the parts of a job share.
#[derive(Clone, Copy)]
struct Pointers<'a, T>(&'a [T]);

// SAFETY: as for `Raw`.
unsafe impl<T> Sync for Pointers<'_, T> {}

impl<'a, T> Pointers<'a, T> {
    fn get(&self) -> &'a [T] {
        self.0
    }
}

/// The amount of work below which waking another thread costs more than it saves.
const PARALLEL_WORK: usize = 30_000;

/// The sizes at which routines switch to another algorithm.
pub(crate) fn thresholds() -> Vec<Threshold> {
    let own =
        [Threshold::new("library.parallel", PARALLEL_WORK, "work for each thread: with that of two, it is split")];
    let mut all = own.to_vec();
    all.extend(along::THRESHOLDS);
    all.extend(attention::thresholds());
    all.extend(concat::THRESHOLDS);
    all.extend(conv::thresholds());
    #[cfg(feature = "fft")]
    all.extend([convolve::thresholds(), fourier::thresholds()].concat());
    all.extend(linalg::thresholds());
    all.extend(packed::THRESHOLDS);
    all.extend(ragged::THRESHOLDS);
    all.extend(rearrange::THRESHOLDS);
    all.extend(sorting_network::THRESHOLDS);
    all.extend(cumulative::THRESHOLDS);
    all.extend(scatter::THRESHOLDS);
    all.extend(sort::THRESHOLDS.iter().chain(radix::THRESHOLDS));
    all.extend(window::thresholds());
    all
}

/// Splits `0..n` into contiguous ranges, at most as many as the work (or the threads) justify. Scratch may be indexed by worker.
fn in_ranges(pool: &ThreadPool, n: usize, work: usize, f: &(dyn Fn(std::ops::Range<usize>, usize) + Sync)) {
    let parts = pool.parts(n).min(work / PARALLEL_WORK).max(1);
    pool.run(parts, &|part, worker| f(crate::pool::contiguous_share(n, parts, part), worker));
}
