//! Runs the steps of a program.

use crate::codegen::Entry;
use crate::gemm::{GemmOperand, GemmOutput};
use crate::interrupt::InterruptWatch;
use crate::library::StartedRoutine;
use crate::load::{
    Arena, Code, LoadedOperand, LoadedProgram, LoadedStep, LoadedTripCount, MAX_ARGS, MAX_LEVELS, MatmulOutput,
};
use crate::pool::contiguous_share;
use compiler::clock::Instant;
use compiler::program::{BufferRef, BufferSlice, KernelArg, Step, TripCount};
use compiler::{Error, Result, Timing};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::time::Duration;

/// The number of buffers of most kernels.
const FEW_ARGS: usize = 8;

/// The state of the loops around a step.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The loop indices that strides multiply.
    index: [i64; MAX_LEVELS],
    /// The number of completed iterations, which double-buffered slots depend on.
    done: [usize; MAX_LEVELS],
}

struct Frame<'a> {
    loaded: &'a LoadedProgram,
    arena: &'a Arena<'a>,
    /// Only used by the calling thread.
    timer: Option<&'a Timer>,
    watch: InterruptWatch,
}

/// The number of runs and the total time of each step, by the step's address.
#[derive(Default)]
pub(crate) struct Timer {
    spent: RefCell<FxHashMap<*const LoadedStep, (usize, Duration)>>,
}

impl Timer {
    /// Returns the times of all steps that ran, with equal labels merged, the longest first.
    pub(crate) fn timings(&self, loaded: &LoadedProgram) -> Vec<Timing> {
        let mut found: Vec<Timing> = Vec::new();
        for (number, (step, ready)) in loaded.program.steps.iter().zip(&loaded.steps).enumerate() {
            self.collect(number, std::slice::from_ref(step), std::slice::from_ref(ready), &mut found);
        }
        found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        found
    }

    fn collect(&self, number: usize, steps: &[Step], ready: &[LoadedStep], found: &mut Vec<Timing>) {
        for (step, ready) in steps.iter().zip(ready) {
            match (step, ready) {
                (Step::Loop(l), LoadedStep::Loop { trip, body, .. }) => {
                    if let (TripCount::While { test, .. }, LoadedTripCount::While { test: own, .. }) =
                        (&l.trip_count, trip)
                    {
                        self.collect(number, test, own, found);
                    }
                    self.collect(number, &l.body, body, found);
                }
                (Step::Branch { branches, .. }, LoadedStep::Branch { branches: own, .. }) => {
                    let all = branches.iter().zip(own);
                    all.for_each(|(steps, ready)| self.collect(number, steps, ready, found));
                }
                _ => {
                    let Some(&(calls, time)) = self.spent.borrow().get(&(&raw const *ready)) else { continue };
                    let label = step.label();
                    match found.iter_mut().find(|timing| timing.label == label) {
                        Some(timing) => {
                            timing.calls += calls;
                            timing.time += time;
                            timing.steps.push((number, time));
                        }
                        None => found.push(Timing { label, calls, time, steps: vec![(number, time)] }),
                    }
                }
            }
        }
    }
}

/// A pointer that workers may share; each writes only its own elements.
#[derive(Clone, Copy)]
struct Shared<T>(*const T);
// SAFETY: see the type's comment; lifetimes end before the pool's call returns.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> *const T {
        self.0
    }
}

/// Runs steps of a loaded program over an arena whose bases are filled in.
pub(crate) fn run(loaded: &LoadedProgram, arena: &Arena<'_>, steps: Range<usize>, timer: Option<&Timer>) -> Result<()> {
    match loaded.needed[steps.clone()].iter().any(Option::is_some) {
        // Never interrupt: other ranks wait for the collectives that this one has started.
        true => Frame { loaded, arena, timer, watch: InterruptWatch::disabled() }.run_with_overlap(steps),
        false => {
            let frame = Frame { loaded, arena, timer, watch: InterruptWatch::for_current_thread() };
            frame.steps(&loaded.steps[steps], &mut Position::default())
        }
    }
}

/// A running collective, and the destination of its result.
struct RunningCollective<'a> {
    started: StartedRoutine,
    to: *mut u8,
    needed: usize,
    step: &'a LoadedStep,
}

impl Frame<'_> {
    /// Runs the program's top-level steps: collectives are started in order and waited for where their result is needed.
    fn run_with_overlap(&self, steps: Range<usize>) -> Result<()> {
        let mut open: Vec<RunningCollective<'_>> = Vec::new();
        let at = &mut Position::default();
        for k in steps.clone() {
            self.finish(&mut open, k)?;
            let step = &self.loaded.steps[k];
            if let (LoadedStep::Library { routine, args, outs }, Some(needed)) = (step, self.loaded.needed[k]) {
                let began = Instant::now();
                let args: SmallVec<[*const u8; 1]> = args.iter().map(|p| self.address(p, at).cast_const()).collect();
                // SAFETY: the compiler gave dense buffers of these types.
                if let Some(started) = unsafe { routine.start(&args)? } {
                    open.push(RunningCollective {
                        started,
                        to: self.address(&outs[0], at),
                        needed: needed.min(steps.end),
                        step,
                    });
                    self.spent(step, 1, began);
                    continue;
                }
            }
            self.steps(std::slice::from_ref(step), at)?;
        }
        self.finish(&mut open, steps.end)
    }

    /// Waits for the collectives that a step needs.
    fn finish(&self, open: &mut Vec<RunningCollective<'_>>, step: usize) -> Result<()> {
        while let Some(due) = open.iter().position(|o| o.needed <= step) {
            let RunningCollective { started, to, step, .. } = open.remove(due);
            let began = Instant::now();
            // SAFETY: the planner keeps the result's place for it from the step that starts it on.
            let to: &mut [u8] = match started.bytes {
                0 => &mut [],
                n => unsafe { std::slice::from_raw_parts_mut(to, n) },
            };
            started.talking.wait(to)?;
            self.spent(step, 0, began);
        }
        Ok(())
    }

    fn spent(&self, step: &LoadedStep, calls: usize, since: Instant) {
        let Some(timer) = self.timer else { return };
        let mut spent = timer.spent.borrow_mut();
        let own = spent.entry(&raw const *step).or_default();
        own.0 += calls;
        own.1 += since.elapsed();
    }

    fn steps(&self, steps: &[LoadedStep], at: &mut Position) -> Result<()> {
        let Some(timer) = self.timer else {
            return steps.iter().try_for_each(|s| match self.watch.should_stop() {
                true => Err(Error::Interrupted),
                false => self.step(s, at),
            });
        };
        for step in steps {
            if self.watch.should_stop() {
                return Err(Error::Interrupted);
            }
            let started = Instant::now();
            self.step(step, at)?;
            let mut spent = timer.spent.borrow_mut();
            let (calls, time) = spent.entry(&raw const *step).or_default();
            *calls += 1;
            *time += started.elapsed();
        }
        Ok(())
    }

    fn address(&self, p: &BufferSlice, at: &Position) -> *mut u8 {
        let buffer = match p.buffer {
            BufferRef::Fixed(b) => b,
            BufferRef::DoubleBuffered(level, even, odd) => {
                if at.done[level].is_multiple_of(2) {
                    even
                } else {
                    odd
                }
            }
        };
        let mut offset = p.offset;
        for (level, stride) in &p.strides {
            offset += at.index[*level] * stride;
        }
        self.arena.bases[buffer.0 as usize].wrapping_offset(offset as isize)
    }

    /// The number of bytes from a slice's start to the end of its buffer.
    fn bytes(&self, p: &BufferSlice, at: &Position) -> usize {
        let Some(buffer) = p.buffers().next() else { return 0 };
        let start = p.strides.iter().fold(p.offset, |o, (level, s)| o + at.index[*level] * s);
        self.loaded.program.buffers[buffer.0 as usize].ty.bytes().saturating_sub(start as usize)
    }

    fn step(&self, step: &LoadedStep, at: &mut Position) -> Result<()> {
        match step {
            LoadedStep::Kernel { code, sizes, args, parallel, scratch } => {
                // Clearing a long list takes as long as a small kernel.
                let run = if args.len() <= FEW_ARGS { Self::kernel::<FEW_ARGS> } else { Self::kernel::<MAX_ARGS> };
                run(self, code, sizes, args, *parallel, *scratch, at)
            }
            LoadedStep::Matmul { plan, a, b, out } => {
                let scratch = self.arena.memory.wrapping_add(self.loaded.gemm_at);
                let pointers = |args: &[BufferSlice]| {
                    let mut all = [std::ptr::null_mut(); MAX_ARGS];
                    for (slot, p) in all[1..].iter_mut().zip(args) {
                        *slot = self.address(p, at);
                    }
                    all
                };
                let context = |code, args| TileCallback { code, pointers: pointers(args), args, frame: self, at: *at };
                let mut computed = [None, None];
                for (side, slot) in [a, b].into_iter().zip(&mut computed) {
                    if let LoadedOperand::Generated { code, args } = side {
                        *slot = Some(context(code, args));
                    }
                }
                let operand = |side: &LoadedOperand, computed: &Option<TileCallback<'_>>| match (side, computed) {
                    (_, Some(c)) => GemmOperand::Generated { f: finish_tile, ctx: (&raw const *c).cast::<c_void>() },
                    (LoadedOperand::Packed(bytes), _) => GemmOperand::Packed(bytes.as_ptr()),
                    (LoadedOperand::Memory(p), None) => GemmOperand::Memory(self.address(p, at)),
                    (LoadedOperand::Generated { .. }, None) => unreachable!("computed sides have their context"),
                };
                let (a, b) = (operand(a, &computed[0]), operand(b, &computed[1]));
                let finish;
                let out = match out {
                    MatmulOutput::Memory(c) => GemmOutput::Memory(self.address(c, at)),
                    MatmulOutput::Tiles { code, args } => {
                        finish = context(code, args);
                        GemmOutput::Epilogue { f: finish_tile, ctx: (&raw const finish).cast::<c_void>() }
                    }
                };
                // SAFETY: the compiler gave addresses and strides of live buffers, the scratch is the plan's; contexts
                // outlive the call, and their code touches only the block or tile it is given.
                unsafe { plan.run(&self.loaded.pool, a, b, out, scratch) };
                Ok(())
            }
            LoadedStep::Library { routine, args, outs } => {
                let args: SmallVec<[*const u8; 64]> = args.iter().map(|p| self.address(p, at).cast_const()).collect();
                let outs: SmallVec<[*mut u8; 32]> = outs.iter().map(|p| self.address(p, at)).collect();
                let scratch = self.arena.memory.wrapping_add(self.loaded.gemm_at);
                // SAFETY: the compiler gave dense buffers of these types that don't overlap, and the scratch was sized for it.
                unsafe { routine.run(&self.loaded.pool, &args, &outs, scratch) }
            }
            LoadedStep::Copy { from, to, bytes } => {
                let (from, to) = (self.address(from, at), self.address(to, at));
                // SAFETY: both are good for so many bytes; they may be the same buffer.
                unsafe { std::ptr::copy(from, to, *bytes) };
                Ok(())
            }
            LoadedStep::Zero { to, bytes } => {
                // SAFETY: good for so many bytes.
                unsafe { std::ptr::write_bytes(self.address(to, at), 0, *bytes) };
                Ok(())
            }
            LoadedStep::Branch { index, branches } => {
                // SAFETY: the choice is an i32 in a live buffer.
                let k = unsafe { self.address(index, at).cast::<i32>().read_unaligned() };
                let k = (k.max(0) as usize).min(branches.len().saturating_sub(1));
                branches.get(k).map_or(Ok(()), |steps| self.steps(steps, at))
            }
            LoadedStep::Loop { level, trip, reverse, body, after } => {
                let most = match trip {
                    LoadedTripCount::Exact(n) => *n,
                    LoadedTripCount::Bounded { bound, count } => {
                        // SAFETY: the count is an i32 in a live buffer.
                        let n = unsafe { self.address(count, at).cast::<i32>().read_unaligned() };
                        (n.max(0) as usize).min(*bound)
                    }
                    LoadedTripCount::While { .. } => usize::MAX,
                };
                let mut count = 0;
                while count < most {
                    at.index[*level] = if *reverse { most - 1 - count } else { count } as i64;
                    at.done[*level] = count;
                    if let LoadedTripCount::While { test, flag } = trip {
                        self.steps(test, at)?;
                        // SAFETY: the answer is a bool in a live buffer.
                        if unsafe { self.address(flag, at).read() } == 0 {
                            break;
                        }
                    }
                    self.steps(body, at)?;
                    count += 1;
                }
                at.done[*level] = count;
                for (from, to, bytes) in after {
                    let (from, to) = (self.address(from, at), self.address(to, at));
                    // SAFETY: both are good for so many bytes.
                    unsafe { std::ptr::copy(from, to, *bytes) };
                }
                Ok(())
            }
        }
    }

    /// Runs a kernel with at most `N` buffers.
    fn kernel<const N: usize>(
        &self,
        code: &Code,
        sizes: &[i64],
        args: &[KernelArg],
        parallel: Option<i64>,
        scratch: usize,
        at: &Position,
    ) -> Result<()> {
        let mut pointers = [std::ptr::null_mut::<u8>(); N];
        for (slot, a) in pointers.iter_mut().zip(args) {
            if let KernelArg::Place(p) = a {
                *slot = self.address(p, at);
            }
        }
        let entry = match code {
            Code::Machine(k) => k.entry(),
            Code::Reference(k) => {
                self.set_scratch(&mut pointers, args, scratch, 0);
                let lens: Vec<usize> = args
                    .iter()
                    .map(|a| match a {
                        KernelArg::Place(p) => self.bytes(p, at),
                        KernelArg::Scratch(n) => *n,
                    })
                    .collect();
                // SAFETY: the lengths are those of the places.
                return unsafe { evaluate(k, &pointers[..args.len()], &lens, sizes) };
            }
        };
        let n = parallel.unwrap_or(1);
        let parts = self.loaded.pool.parts(n as usize);
        if parts == 1 {
            self.set_scratch(&mut pointers, args, scratch, 0);
            // SAFETY: the compiler wrote the kernel for these buffers.
            unsafe { entry(pointers.as_ptr(), sizes.as_ptr(), 0, n) };
            return Ok(());
        }
        let frame = Shared(&raw const *self);
        let shared = Shared(&raw const pointers);
        self.loaded.pool.run(parts, &|part, worker| {
            // SAFETY: `run` returns only when every part is done, so the borrows still hold.
            let (frame, pointers) = unsafe { (&*frame.get(), &*shared.get()) };
            let mut own = *pointers;
            frame.set_scratch(&mut own, args, scratch, worker);
            let range = contiguous_share(n as usize, parts, part);
            // SAFETY: the compiler wrote the kernel for these buffers; parts are disjoint ranges of its parallel loop.
            unsafe { entry(own.as_ptr(), sizes.as_ptr(), range.start as i64, range.end as i64) };
        });
        Ok(())
    }

    fn set_scratch(&self, pointers: &mut [*mut u8], args: &[KernelArg], scratch: usize, worker: usize) {
        if scratch == 0 {
            return;
        }
        let mut next = self.arena.memory.wrapping_add(self.loaded.scratch_at + worker * self.loaded.scratch_each);
        for (slot, a) in pointers.iter_mut().zip(args) {
            if let KernelArg::Scratch(n) = a {
                *slot = next;
                next = next.wrapping_add(n.next_multiple_of(compiler::ALIGN));
            }
        }
    }
}

/// The context of the functions that process finished tiles of a matmul, or write blocks of its operands.
struct TileCallback<'a> {
    code: &'a Code,
    pointers: [*mut u8; MAX_ARGS],
    args: &'a [BufferSlice],
    frame: &'a Frame<'a>,
    at: Position,
}

/// # Safety
/// `ctx` is the [`Tiles`] of the product that runs, and the tile is inside its result.
#[expect(clippy::too_many_arguments, reason = "the signature of an epilogue")]
unsafe extern "C" fn finish_tile(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    acc: *mut u8,
    stride: usize,
) {
    // SAFETY: the context is the `Tiles` of the running product.
    let tiles = unsafe { &*ctx.cast::<TileCallback<'_>>() };
    let mut pointers = tiles.pointers;
    pointers[0] = acc;
    let sizes = [batch, row0, col0, rows, cols, stride].map(|x| x as i64);
    match tiles.code {
        Code::Machine(k) => {
            let entry: Entry = k.entry();
            // SAFETY: the compiler wrote the kernel for these buffers and this tile.
            unsafe { entry(pointers.as_ptr(), sizes.as_ptr(), 0, 1) }
        }
        Code::Reference(k) => {
            let size = k.buffers[0].dtype.size();
            let mut lens = vec![((rows - 1) * stride + cols) * size];
            lens.extend(tiles.args.iter().map(|p| tiles.frame.bytes(p, &tiles.at)));
            // SAFETY: the lengths are those of the tile and of the places.
            unsafe { evaluate(k, &pointers[..lens.len()], &lens, &sizes) }.expect("the kernel was verified");
        }
    }
}

/// Runs a kernel in the reference evaluator.
///
/// # Safety
/// Each pointer is valid for its number of bytes, which nothing else uses during the call.
unsafe fn evaluate(k: &compiler::loops::Kernel, pointers: &[*mut u8], lens: &[usize], sizes: &[i64]) -> Result<()> {
    let mut slices: Vec<&mut [u8]> = Vec::with_capacity(pointers.len());
    for (p, n) in pointers.iter().zip(lens) {
        if *n == 0 {
            // An empty buffer may have no address.
            slices.push(&mut []);
            continue;
        }
        // SAFETY: each pointer is valid for its length, and nothing else uses that memory. Two buffers of one kernel
        // overlap only where both are read.
        slices.push(unsafe { std::slice::from_raw_parts_mut(*p, *n) });
    }
    compiler::loops::eval(k, &mut slices, sizes).map_err(|e| Error::Internal(e.to_string()))
}
