//! Steps that are no kernels: claimed composites and routines.
//!
//! A [`Routine`] is prepared once, when its shapes are known, and runs without allocating. An op that has no routine here
//! runs in the reference interpreter, which does allocate.
//!
//! Laws: bits don't depend on the thread count, so what a part computes follows from shapes alone; and what a routine
//! computes agrees with the op's `eval`.

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

/// An op ready to run on dense operands.
pub(crate) trait OpRoutine: Send + Sync {
    /// Bytes that a run needs besides its operands, aligned to 64.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Runs it.
    ///
    /// # Safety
    /// Every pointer is good for the bytes of its type, `scratch` for [`Routine::scratch_bytes`], and neither results
    /// nor scratch overlap anything else.
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()>;

    /// Starts it on a copy of its operands, if it can end while others run; its one result comes later.
    ///
    /// # Safety
    /// Every pointer is good for the bytes of its type.
    unsafe fn start(&self, args: &[*const u8]) -> Result<Option<StartedRoutine>> {
        let _ = args;
        Ok(None)
    }
}

/// A routine that was started, and the bytes of its result.
pub(crate) struct StartedRoutine {
    pub(crate) talking: Box<dyn PendingCollective>,
    pub(crate) bytes: usize,
}

/// Whether there is code of factorisations and of Fourier transforms for machines without vectors that are known here. Where an
/// x86-64 has no AVX2 its kernels are evaluated, unless Cranelift makes them, and these ops are the interpreter's too: every
/// program would carry half a megabyte for machines that compute nothing quickly.
const PORTABLE: bool = cfg!(not(all(unix, target_arch = "x86_64", not(feature = "cranelift"))));

/// What a routine is prepared for.
#[derive(Clone, Copy)]
struct CpuContext {
    threads: usize,
    isa: Isa,
}

/// Whether this backend runs a composite whole.
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

/// The routine of an op on operands of these types.
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
            // SAFETY: good for the type's bytes by the caller's promise.
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

/// A pointer that the parts of a job share; each writes only what is its own.
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

/// Work below which waking another thread costs more than it saves.
const PARALLEL_WORK: usize = 30_000;

/// Where routines change their way.
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

/// Shares `0..n` out in contiguous ranges, no more than there is work (or threads) for. Scratch may be indexed by worker.
fn in_ranges(pool: &ThreadPool, n: usize, work: usize, f: &(dyn Fn(std::ops::Range<usize>, usize) + Sync)) {
    let parts = pool.parts(n).min(work / PARALLEL_WORK).max(1);
    pool.run(parts, &|part, worker| f(crate::pool::contiguous_share(n, parts, part), worker));
}
