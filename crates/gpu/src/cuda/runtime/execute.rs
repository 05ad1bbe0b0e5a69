//! Enqueues the steps of a program on a stream.

use super::device;
use super::dnn::LoadedCudnnAttention;
use super::event::Stopwatch;
use super::fp8_gemm::LoadedFp8Gemm;
use super::kernels::CudaFunction;
use super::load::{
    DenseCopy, Launch, LaunchArgument, LoadedMatmul, LoadedProgram, LoadedStep, LoadedTripCount, MAX_LEVELS,
    MatmulStrategy,
};
use super::strided_copy::{self, THREADS};
use crate::cuda::gemv;
use compiler::program::{BufferRef, BufferSlice, Step, TripCount};
use compiler::{Error, Result, Timing};
use cudarc::driver::sys as cu;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::time::Duration;

/// The current iterations of the enclosing loops.
#[derive(Clone, Copy, Default)]
pub(crate) struct LoopPosition {
    /// The index that strides are multiplied by.
    index: [i64; MAX_LEVELS],
    /// The number of completed iterations, which selects the current double buffer.
    iterations: [usize; MAX_LEVELS],
}

/// One run of a program.
pub(crate) struct ProgramRun<'a> {
    pub(crate) loaded: &'a LoadedProgram,
    /// The address of every buffer.
    pub(crate) bases: &'a [u64],
    /// The address of the run's scratch.
    pub(crate) scratch: u64,
    pub(crate) stream: cu::CUstream,
    pub(crate) timer: Option<&'a Timer>,
    /// Whether the last operation on the stream is a kernel of this crate: the next one may be launched while it still runs,
    /// since each waits for its predecessors (`wait_turn` in the prelude).
    pub(crate) overlap_with_previous: Cell<bool>,
}

/// The number and the duration of the executions of each step, by its address; a step with several launches has an entry for each.
pub(crate) struct Timer {
    watch: Stopwatch,
    spent: RefCell<FxHashMap<*const (), (usize, Duration)>>,
}

impl Timer {
    pub(crate) fn new(watch: Stopwatch) -> Timer {
        Timer { watch, spent: RefCell::default() }
    }

    /// The times of all executed steps, merged by label, longest first.
    pub(crate) fn timings(&self, loaded: &LoadedProgram) -> Vec<Timing> {
        let mut found: Vec<Timing> = Vec::new();
        for (number, (step, ready)) in loaded.program.steps.iter().zip(&loaded.steps).enumerate() {
            self.collect(number, step, ready, &mut found);
        }
        found.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        found
    }

    fn collect(&self, number: usize, step: &Step, ready: &LoadedStep, found: &mut Vec<Timing>) {
        let mut all = |steps: &[Step], ready: &[LoadedStep]| {
            steps.iter().zip(ready).for_each(|(s, r)| self.collect(number, s, r, found));
        };
        match (step, ready) {
            (Step::Loop(l), LoadedStep::Loop { trip, body, .. }) => {
                if let (TripCount::While { test, .. }, LoadedTripCount::While { test: own, .. }) = (&l.trip_count, trip)
                {
                    all(test, own);
                }
                all(&l.body, body);
            }
            (Step::Branch { branches, .. }, LoadedStep::Branch { branches: own, .. }) => {
                branches.iter().zip(own).for_each(|(s, r)| all(s, r));
            }
            (_, LoadedStep::Kernels(launches)) => {
                for l in launches {
                    self.add(number, (&raw const *l).cast(), format!("{}: {}", step.label(), l.name), found);
                }
            }
            _ => {
                let host = match ready {
                    LoadedStep::Host(_) => " (host)",
                    LoadedStep::CudnnAttention(_) => " (cuDNN)",
                    _ => "",
                };
                self.add(number, (&raw const *ready).cast(), format!("{}{host}", step.label()), found);
            }
        }
    }

    fn add(&self, number: usize, of: *const (), label: String, found: &mut Vec<Timing>) {
        let Some(&(calls, time)) = self.spent.borrow().get(&of) else { return };
        match found.iter_mut().find(|timing| timing.label == label) {
            Some(timing) => {
                timing.calls += calls;
                timing.time += time;
                timing.steps.push((number, time));
            }
            None => found.push(Timing { label, calls, time, steps: vec![(number, time)] }),
        }
    }

    /// Measures the duration of some work.
    fn time(&self, of: *const (), stream: cu::CUstream, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.watch.start(stream)?;
        work()?;
        let took = self.watch.stop(stream)?;
        let mut spent = self.spent.borrow_mut();
        let (calls, time) = spent.entry(of).or_default();
        *calls += 1;
        *time += took;
        Ok(())
    }
}

impl ProgramRun<'_> {
    /// Enqueues steps on the stream.
    pub(crate) fn steps(&self, steps: &[LoadedStep], at: &mut LoopPosition) -> Result<()> {
        let Some(timer) = self.timer else {
            return steps.iter().try_for_each(|s| self.step(s, at));
        };
        for step in steps {
            match step {
                LoadedStep::Loop { .. } | LoadedStep::Branch { .. } => self.step(step, at)?,
                LoadedStep::Kernels(launches) => {
                    for l in launches {
                        timer.time((&raw const *l).cast(), self.stream, || self.launch(l, at))?;
                    }
                }
                _ => timer.time((&raw const *step).cast(), self.stream, || self.step(step, at))?,
            }
        }
        Ok(())
    }

    pub(super) fn address(&self, p: &BufferSlice, at: &LoopPosition) -> u64 {
        let buffer = match p.buffer {
            BufferRef::Fixed(b) => b,
            BufferRef::DoubleBuffered(level, even, odd) => {
                if at.iterations[level].is_multiple_of(2) {
                    even
                } else {
                    odd
                }
            }
        };
        let offset = p.strides.iter().fold(p.offset, |o, (level, stride)| o + at.index[*level] * stride);
        self.bases[buffer.0 as usize].wrapping_add_signed(offset)
    }

    /// Waits for the stream and reads a few bytes.
    fn read_back<const N: usize>(&self, p: &BufferSlice, at: &LoopPosition) -> Result<[u8; N]> {
        self.overlap_with_previous.set(false);
        let mut bytes = [0; N];
        self.loaded.inner.device.read(self.address(p, at), &mut bytes)?;
        Ok(bytes)
    }

    fn step(&self, step: &LoadedStep, at: &mut LoopPosition) -> Result<()> {
        let context = &self.loaded.inner.device.context;
        if matches!(
            step,
            LoadedStep::Host(_) | LoadedStep::Collective(_) | LoadedStep::Copy { .. } | LoadedStep::Zero { .. }
        ) {
            self.overlap_with_previous.set(false);
        }
        match step {
            LoadedStep::Kernel(launch) => self.launch(launch, at),
            LoadedStep::Kernels(launches) => launches.iter().try_for_each(|l| self.launch(l, at)),
            LoadedStep::Product(p) => self.product(p, at),
            LoadedStep::Fp8Matmul(p) => self.narrow(p, at),
            LoadedStep::CudnnAttention(a) => self.dnn(a, at),
            LoadedStep::Host(h) => {
                let device = &self.loaded.inner.device;
                let mut operands = Vec::with_capacity(h.args.len());
                for (place, bytes) in &h.args {
                    let mut data = vec![0; *bytes];
                    device.read(self.address(place, at), &mut data)?;
                    operands.push(data);
                }
                let results = h.run(&operands)?;
                (h.outs.iter().zip(results)).try_for_each(|((p, _), data)| device.write(self.address(p, at), &data))
            }
            LoadedStep::Collective(talk) => talk.run(self, at),
            LoadedStep::Copy { from, to, bytes } => {
                device::copy(context, self.stream, self.address(from, at), self.address(to, at), *bytes)
            }
            LoadedStep::Zero { to, bytes } => device::zero(context, self.stream, self.address(to, at), *bytes),
            LoadedStep::Branch { index, branches } => {
                let k = i32::from_le_bytes(self.read_back(index, at)?);
                let k = (k.max(0) as usize).min(branches.len().saturating_sub(1));
                branches.get(k).map_or(Ok(()), |steps| self.steps(steps, at))
            }
            LoadedStep::Loop { level, trip, reverse, body, after } => {
                let most = match trip {
                    LoadedTripCount::Exact(n) => *n,
                    LoadedTripCount::Bounded { bound, count } => {
                        let n = i32::from_le_bytes(self.read_back(count, at)?);
                        (n.max(0) as usize).min(*bound)
                    }
                    LoadedTripCount::While { .. } => usize::MAX,
                };
                let mut count = 0;
                while count < most {
                    at.index[*level] = if *reverse { most - 1 - count } else { count } as i64;
                    at.iterations[*level] = count;
                    if let LoadedTripCount::While { test, flag } = trip {
                        self.steps(test, at)?;
                        if self.read_back::<1>(flag, at)? == [0] {
                            break;
                        }
                    }
                    self.steps(body, at)?;
                    count += 1;
                }
                at.iterations[*level] = count;
                if !after.is_empty() {
                    self.overlap_with_previous.set(false);
                }
                for (from, to, bytes) in after {
                    device::copy(context, self.stream, self.address(from, at), self.address(to, at), *bytes)?;
                }
                Ok(())
            }
        }
    }

    fn launch(&self, l: &Launch, at: &LoopPosition) -> Result<()> {
        for (from, to, bytes) in &l.in_place_pairs {
            let (from, to) = (self.address(from, at), self.address(to, at));
            if from != to {
                self.overlap_with_previous.set(false);
                device::copy(&self.loaded.inner.device.context, self.stream, from, to, *bytes)?;
            }
        }
        let mut values: SmallVec<[u64; 48]> = SmallVec::new();
        for a in &l.args {
            values.push(match a {
                LaunchArgument::Place(p) => self.address(p, at),
                LaunchArgument::Scratch(offset) => self.scratch + *offset as u64,
            });
        }
        values.extend(l.sizes.iter().map(|n| *n as u64));
        self.call(&self.loaded.functions[l.function], (l.blocks, l.threads, l.shared), &mut values, &l.name)
    }

    /// Launches a kernel whose arguments all have 8 bytes.
    fn call(
        &self,
        f: &CudaFunction,
        (blocks, threads, shared): (u32, u32, u32),
        values: &mut [u64],
        name: &str,
    ) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let mut pointers: SmallVec<[*mut c_void; 48]> =
            values.iter_mut().map(|v| (&raw mut *v).cast::<c_void>()).collect();
        let context = &self.loaded.inner.device.context;
        let mut early = launch_with_overlap();
        let overlaps = self.overlap_with_previous.replace(true) && self.timer.is_none() && context.capability >= (9, 0);
        let config = cu::CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.stream,
            attrs: &raw mut early,
            numAttrs: overlaps as u32,
        };
        // SAFETY: the kernel was compiled for these arguments, and the addresses are those of live memory of the right
        // sizes, which the checks of bindings ensure.
        let code = unsafe { cu::cuLaunchKernelEx(&config, f.raw.0, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        context.check(code, || format!("cuLaunchKernel of {name} ({}), {blocks} blocks of {threads} threads", f.entry))
    }

    fn product(&self, p: &LoadedMatmul, at: &LoopPosition) -> Result<()> {
        let context = &self.loaded.inner.device.context;
        let (a, b, c) = (self.address(&p.a, at), self.address(&p.b, at), self.address(&p.c, at));
        let s = &p.shape;
        match &p.how {
            MatmulStrategy::Empty => Ok(()),
            MatmulStrategy::ZeroFill(bytes) => {
                self.overlap_with_previous.set(false);
                device::zero(context, self.stream, c, *bytes)
            }
            MatmulStrategy::SkinnyMatmul { function, few, read_only: steady } => {
                let (few_rows, large) = if few.swapped() { (b, a) } else { (a, b) };
                let mut values: SmallVec<[u64; 16]> = SmallVec::from_slice(&[few_rows, large, c]);
                values.extend(few.sizes(s, *steady).map(|n| n as u64));
                let function = &self.loaded.functions[*function];
                self.call(function, (few.blocks(s), gemv::THREADS, 0), &mut values, "product of few rows")
            }
            MatmulStrategy::CustomKernel { function } => {
                let mut values: SmallVec<[u64; 16]> = SmallVec::from_slice(&[a, b, c]);
                values.extend([s.batch, s.m, s.n, s.k].map(|n| n as u64));
                values.extend([s.a, s.b, s.c].into_iter().flatten().map(|n| n as u64));
                let blocks = strided_copy::blocks(s.batch * s.m * s.n);
                self.call(&self.loaded.functions[*function], (blocks, THREADS, 0), &mut values, "product")
            }
            MatmulStrategy::CublasLt { plan, mapped, copies } => {
                let dense = |packed: &DenseCopy| self.scratch + packed.offset as u64;
                let mut sides = [a, b, c];
                for (side, copy) in sides.iter_mut().zip(copies).take(2) {
                    if let Some(packed) = copy {
                        self.repack(packed, dense(packed), *side, false)?;
                        *side = dense(packed);
                    }
                }
                if let Some(packed) = &copies[2] {
                    sides[2] = dense(packed);
                }
                let [a, b, out] = sides;
                let (first, second) = if mapped.gemm.swapped { (b, a) } else { (a, b) };
                let Some(blas) = &self.loaded.inner.blas else {
                    return Err(Error::Internal("a product for a library that isn't there".into()));
                };
                self.overlap_with_previous.set(false);
                // SAFETY: the plan was made for these strides and alignments.
                unsafe { blas.run(plan, first, second, out, self.stream)? };
                match &copies[2] {
                    Some(packed) => self.repack(packed, dense(packed), c, true),
                    None => Ok(()),
                }
            }
        }
    }

    fn dnn(&self, a: &LoadedCudnnAttention, at: &LoopPosition) -> Result<()> {
        let Some(dnn) = self.loaded.inner.dnn() else {
            return Err(Error::Internal("an attention for a library that isn't there".into()));
        };
        self.overlap_with_previous.set(false);
        let tensors: SmallVec<[u64; 9]> = a.tensors.iter().map(|p| self.address(p, at)).collect();
        // SAFETY: the plan was made for these types; the scratch has the bytes that it wants.
        unsafe { dnn.run(&a.plan, &tensors, self.scratch, self.stream.cast()) }
    }

    fn narrow(&self, p: &LoadedFp8Gemm, at: &LoopPosition) -> Result<()> {
        let Some(blas) = &self.loaded.inner.blas else {
            return Err(Error::Internal("a product for a library that isn't there".into()));
        };
        let context = &self.loaded.inner.device.context;
        let own = [&p.a, &p.b, &p.out].map(|place| self.address(place, at));
        let mut used = own;
        for (i, copy) in p.copies.iter().enumerate() {
            let Some(offset) = copy else { continue };
            used[i] = self.scratch + *offset as u64;
            if i < 2 {
                self.overlap_with_previous.set(false);
                device::copy(context, self.stream, own[i], used[i], p.bytes[i])?;
            }
        }
        for (side, turned) in p.transposes.iter().enumerate() {
            let Some((offset, turn)) = turned else { continue };
            let to = self.scratch + *offset as u64;
            let mut values: SmallVec<[u64; 4]> = SmallVec::from_slice(&[used[side], to]);
            values.extend(turn.sizes.iter().map(|n| *n as u64));
            let function = &self.loaded.functions[turn.function];
            self.call(function, (turn.blocks, turn.threads, 0), &mut values, "transpose of codes")?;
            used[side] = to;
        }
        self.overlap_with_previous.set(false);
        let [of_a, of_b] = [&p.scales[0], &p.scales[1]].map(|place| self.address(place, at));
        // Rows of the result are columns of cuBLASLt's column-major result: B is its first matrix.
        // SAFETY: the plan was made for these sizes and alignments.
        unsafe { blas.scaled(&p.plan, used[1], used[0], Some([of_b, of_a]), used[2], self.stream)? };
        match p.copies[2] {
            Some(_) => device::copy(context, self.stream, used[2], own[2], p.bytes[2]),
            None => Ok(()),
        }
    }

    /// Copies an operand to dense memory, or a result back from it.
    fn repack(&self, p: &DenseCopy, dense: u64, own: u64, back: bool) -> Result<()> {
        let (to, from, to_strides, from_strides) =
            if back { (own, dense, p.own, p.dense) } else { (dense, own, p.dense, p.own) };
        let mut values: SmallVec<[u64; 16]> = SmallVec::from_slice(&[to, from]);
        values.extend(p.sizes.map(|n| n as u64));
        values.extend([to_strides, from_strides].into_iter().flatten().map(|n| n as u64));
        let blocks = strided_copy::blocks(p.sizes.iter().product());
        self.call(&self.loaded.functions[p.function], (blocks, THREADS, 0), &mut values, "strided copy")
    }
}

/// The launch attribute that lets a kernel start while its predecessor still runs.
fn launch_with_overlap() -> cu::CUlaunchAttribute {
    cu::CUlaunchAttribute {
        id: cu::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: cu::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}
