//! `Cuda`: the CUDA backend.

use super::blas::CublasLt;
use super::collective::CollectiveStep;
use super::cuda_graph::{CaptureDecision, CudaGraph};
use super::device::Device;
use super::dnn::Cudnn;
use super::event::{Event, Stopwatch};
use super::execute::{LoopPosition, ProgramRun, Timer};
use super::fp8_gemm::Fp8Gemm;
use super::kernels::Kernels;
use super::load::{self, LoadedProgram, LoadedStep};
use super::memory::CudaBuffer;
use super::pool::MemoryStats;
use super::strided_copy::KernelSource;
use crate::grid::GridLimits;
use crate::library::{self, DeviceCaps};
use compiler::loops::Kernel;
use compiler::program::{BufferId, BufferKind, BufferSlice, KernelArg, Step, TripCount};
use compiler::target::{KernelLimits, LoopSchedule, MatmulTarget, RecomputePolicy, SplitReduction};
use compiler::{
    Backend, Bindings, DeviceBuffer, DeviceCommunicator, Error, Executable, Fence, OpPlacement, Program, Result,
    Target, Timing,
};
use ir::ops::Composite;
use ir::{DType, Op, Type};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// An NVIDIA GPU.
pub struct Cuda {
    inner: Arc<CudaState>,
    target: Target,
}

/// The state that a device's programs share.
pub(crate) struct CudaState {
    pub(crate) device: Arc<Device>,
    pub(crate) kernels: Kernels,
    /// None if cuBLASLt is not installed.
    pub(crate) blas: Option<CublasLt>,
    /// Opened at the first use; none if it is not installed.
    dnn: OnceLock<Option<Cudnn>>,
    /// The host backend, which runs ops that the device does not support.
    pub(crate) host: Arc<dyn Backend>,
    /// Whether programs are captured as CUDA graphs.
    pub(crate) capture_graphs: bool,
    /// The connection to the devices of other ranks.
    pub(crate) communicator: Option<Arc<dyn DeviceCommunicator>>,
}

impl CudaState {
    /// cuDNN, if it is available for this device.
    pub(crate) fn dnn(&self) -> Option<&Cudnn> {
        // Its attention is only known to be faster on Hopper.
        let context = &self.device.context;
        self.dnn.get_or_init(|| Cudnn::open(context).filter(|_| context.capability == (9, 0))).as_ref()
    }
}

impl Cuda {
    /// Opens a device; `host` runs the ops that it does not support.
    pub fn open(ordinal: usize, host: Arc<dyn Backend>) -> Result<Cuda> {
        Cuda::with_options(ordinal, host, true)
    }

    /// Opens a device whose programs communicate with those of other ranks; collectives that `talk` does not support run on
    /// `host`, which needs a communicator for them.
    pub fn open_with_communicator(
        ordinal: usize,
        host: Arc<dyn Backend>,
        talk: Arc<dyn DeviceCommunicator>,
    ) -> Result<Cuda> {
        Cuda::made(ordinal, host, true, Some(talk))
    }

    /// Opens a device; `records` states whether programs that run repeatedly with the same memory are captured and
    /// replayed as CUDA graphs.
    pub fn with_options(ordinal: usize, host: Arc<dyn Backend>, records: bool) -> Result<Cuda> {
        Cuda::made(ordinal, host, records, None)
    }

    fn made(
        ordinal: usize,
        host: Arc<dyn Backend>,
        records: bool,
        talk: Option<Arc<dyn DeviceCommunicator>>,
    ) -> Result<Cuda> {
        let device = Device::open(ordinal)?;
        let kernels = Kernels::new(&device.context, super::prelude())?;
        let blas = CublasLt::open(&device)?;
        let target = target();
        Ok(Cuda {
            inner: Arc::new(CudaState {
                device,
                kernels,
                blas,
                dnn: OnceLock::new(),
                host,
                capture_graphs: records,
                communicator: talk,
            }),
            target,
        })
    }

    /// The memory statistics.
    pub fn memory_stats(&self) -> MemoryStats {
        self.inner.device.usage()
    }

    /// Returns unused cached memory to the driver, and returns the number of bytes.
    pub fn empty_cache(&self) -> Result<usize> {
        self.inner.device.empty_cache()
    }

    /// The number of kernels that were compiled, not loaded from the disk cache.
    pub fn num_compiled_kernels(&self) -> usize {
        self.inner.kernels.compiled()
    }

    /// The CUDA C++ source of each kernel of a program, with its name and its grid, for debugging.
    pub fn sources(&self, program: &Program) -> Vec<(String, String)> {
        shown(program)
    }

    /// Runs a kernel that traps, which breaks the device's context, for tests of error recovery.
    pub fn trigger_trap(&self) -> Result<()> {
        let text = KernelSource {
            entry: "trap_now".into(),
            text: "extern \"C\" __global__ void trap_now() { asm volatile(\"trap;\"); }\n".into(),
        };
        let f = self.inner.kernels.get(&[text])?;
        self.inner.device.context.enter()?;
        // SAFETY: it has no arguments; the trap is what is asked for.
        let code = unsafe {
            cudarc::driver::sys::cuLaunchKernel(
                f[0].raw.0,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                self.inner.device.stream.0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        self.inner.device.context.check(code, || "cuLaunchKernel of trap_now".into())
    }

    /// Whether a collective runs between devices, without the host.
    fn communicates(&self, op: &Op, args: &[Type]) -> bool {
        let Op::Collective(c) = op else { return false };
        let place = BufferSlice::of(BufferId(0));
        let arg = args.first().map(|ty| (&place, ty));
        self.inner.communicator.is_some() && CollectiveStep::of(c, arg, &place, 0).is_ok_and(|found| found.is_some())
    }

    fn own<'b>(&self, b: &'b dyn DeviceBuffer) -> Result<&'b CudaBuffer> {
        own(&self.inner.device, b)
    }
}

/// The compiler target for a GPU.
pub(super) fn target() -> Target {
    Target {
        name: "cuda",
        dtypes: &DType::ALL,
        index: DType::I64,
        host_memory: false,
        kernel: KernelLimits {
            buffers: 40,
            max_operands: 24,
            max_results: 24,
            max_binding_bytes: isize::MAX as usize,
            // Each part is a kernel launch, but masks prevent wide accesses.
            max_space_splits: 8,
            min_launch_elements: 1 << 18,
            // A row that the threads of a block can keep in shared memory.
            row_scratch_bytes: 32 << 10,
        },
        recompute: RecomputePolicy { max_duplicate_cost: 48, max_recompute_cost: 64, min_distance: 6 },
        // With fewer elements, one block finishes before a second launch starts.
        split_reduction: SplitReduction {
            min_elements: 1 << 13,
            saturating_results: 1 << 10,
            min_elements_per_share: 1 << 13,
            min_parallel_results: 0,
            blocks: 1 << 11,
            block: (1 << 12, 1 << 17),
            max_stages: 3,
        },
        schedule: LoopSchedule::Grid,
        matmul: MatmulTarget {
            dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16],
            prologues: None,
            epilogues: None,
        },
    }
}

/// The device capabilities for library ops.
pub(super) fn device_caps() -> DeviceCaps {
    DeviceCaps { limits: GridLimits::CUDA, matmul_dtypes: target().matmul.dtypes, max_temporary_bytes: 16 << 30 }
}

/// The source of each kernel of a program, with its loops and its grid.
pub(super) fn shown(program: &Program) -> Vec<(String, String)> {
    let show = |s: Source<'_>| match s.lowered {
        Ok(g) => (s.kernel.name.clone(), format!("{}\n\n{}\n\n{}", s.kernel, g.grid, g.text.text)),
        Err(e) => (s.kernel.name.clone(), format!("{}\n\n{e}", s.kernel)),
    };
    sources(program).into_iter().map(show).collect()
}

/// A kernel of a program, and its generated source.
pub(super) struct Source<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) lowered: Result<load::LoweredKernel>,
}

/// The kernels of a program.
pub(super) fn sources(program: &Program) -> Vec<Source<'_>> {
    let mut all: Vec<(&Kernel, &[KernelArg])> = Vec::new();
    collect(&program.steps, &mut all);
    all.into_iter().map(|(kernel, args)| Source { kernel, lowered: load::lowered(program, kernel, args) }).collect()
}

fn collect<'a>(steps: &'a [Step], all: &mut Vec<(&'a Kernel, &'a [KernelArg])>) {
    for s in steps {
        match s {
            Step::Kernel { kernel, args, .. } => all.push((kernel, args)),
            Step::Branch { branches, .. } => branches.iter().for_each(|b| collect(b, all)),
            Step::Loop(l) => {
                if let TripCount::While { test, .. } = &l.trip_count {
                    collect(test, all);
                }
                collect(&l.body, all);
            }
            _ => {}
        }
    }
}

/// A buffer of this device.
fn own<'b>(device: &Arc<Device>, b: &'b dyn DeviceBuffer) -> Result<&'b CudaBuffer> {
    let ours = b.as_any().downcast_ref::<CudaBuffer>().filter(|b| Arc::ptr_eq(&b.device, device));
    ours.ok_or_else(|| Error::Bindings("a buffer of another device; copy it here first".into()))
}

impl Backend for Cuda {
    fn name(&self) -> String {
        let c = &self.inner.device.context;
        let blas = match self.inner.blas {
            Some(_) => format!("cuBLASLt {}", CublasLt::version()),
            None => "cuBLASLt was not found, so matrix products are slow: install cuBLAS of the CUDA toolkit".into(),
        };
        let compiler = &self.inner.kernels.compiler;
        format!(
            "cuda:{} ({}, {}, {} GiB, NVRTC {}.{}, {blas})",
            c.ordinal,
            c.name,
            compiler.arch,
            c.memory >> 30,
            compiler.version.0,
            compiler.version.1
        )
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        let op = composite.clone().into();
        if let Some(narrow) = Fp8Gemm::of(&op, args) {
            // fp8 matrix products need compute capability 8.9.
            let able = self.inner.device.context.capability >= (8, 9);
            let blas = self.inner.blas.as_ref().filter(|_| able);
            return blas.is_some_and(|blas| blas.plan(&narrow.call()).is_ok_and(|plan| plan.is_some()));
        }
        load::claimed(self.inner.device.context.capability, &op, args).is_some()
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(CudaBuffer::new(&self.inner.device, bytes)?))
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LoadedProgram::new(&self.inner, program)?))
    }

    fn placement(&self, op: &Op, args: &[Type]) -> OpPlacement {
        let own =
            load::has_custom_kernel(self.inner.device.context.capability, op, args) || self.communicates(op, args);
        if own || library::supports(op, args, &device_caps()) { OpPlacement::Device } else { OpPlacement::HostFallback }
    }

    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
        let (from, to) = (self.own(from)?, self.own(to)?);
        if bytes > from.bytes() || bytes > to.bytes() {
            return Err(Error::Bindings(format!(
                "a copy of {bytes} bytes from a buffer of {} to one of {}",
                from.bytes(),
                to.bytes()
            )));
        }
        self.inner.device.copy(from.address(), to.address(), bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.device.synchronize()
    }

    fn kernels(&self) -> usize {
        self.inner.kernels.len()
    }
}

impl LoadedProgram {
    /// The addresses of all buffers of the program.
    fn bases(&self, bindings: &Bindings, arena: u64) -> Result<SmallVec<[u64; 32]>> {
        bindings.check(&self.program)?;
        let device = &self.inner.device;
        let constants = self.constants.as_ref().map_or(0, CudaBuffer::address);
        self.program
            .buffers
            .iter()
            .enumerate()
            .map(|(i, b)| {
                Ok(match &b.kind {
                    BufferKind::Input(n) => own(device, &*bindings.inputs[*n])?.address(),
                    BufferKind::Output(n) => own(device, &*bindings.outputs[*n])?.address(),
                    BufferKind::Constant(_) => constants + self.constant_at[i] as u64,
                    BufferKind::Activation => arena + b.offset as u64,
                })
            })
            .collect()
    }

    fn give(&self, bases: &[u64], arena: u64, steps: &[LoadedStep], timer: Option<&Timer>) -> Result<()> {
        let scratch = arena + self.scratch_at as u64;
        let stream = self.inner.device.stream.0;
        ProgramRun { loaded: self, bases, scratch, stream, timer, overlap_with_previous: Cell::new(false) }
            .steps(steps, &mut LoopPosition::default())
    }

    /// Replays the CUDA graph for these addresses, and captures it first if there is none.
    fn replay_or_capture(&self, bases: &[u64], arena: u64) -> Result<()> {
        let device = &self.inner.device;
        let mut recordings = self.recordings.lock().unwrap_or_else(|e| e.into_inner());
        let mut key: SmallVec<[u64; 33]> = SmallVec::from_slice(&[arena]);
        for (base, b) in bases.iter().zip(&self.program.buffers) {
            if matches!(b.kind, BufferKind::Input(_) | BufferKind::Output(_)) {
                key.push(*base);
            }
        }
        let graph = match recordings.next(&key) {
            CaptureDecision::Launch => {
                drop(recordings);
                return self.give(bases, arena, &self.steps, None);
            }
            CaptureDecision::Replay(g) => g,
            CaptureDecision::Record => {
                let stream = device.recorder.lock().unwrap_or_else(|e| e.into_inner());
                let scratch = arena + self.scratch_at as u64;
                let run = ProgramRun {
                    loaded: self,
                    bases,
                    scratch,
                    stream: stream.0,
                    timer: None,
                    overlap_with_previous: Cell::new(false),
                };
                let made = CudaGraph::capture(&device.context, stream.0, || {
                    run.steps(&self.steps, &mut LoopPosition::default())
                });
                drop(stream);
                device.context.enter()?;
                let made = made.ok().map(Arc::new);
                recordings.put(&key, made.clone());
                match made {
                    Some(g) => g,
                    None => return self.give(bases, arena, &self.steps, None),
                }
            }
        };
        drop(recordings);
        // A split product of another thread keeps partial sums in the workspace between its two kernels: products in a graph use
        // the workspace too, so they must not be launched in between.
        let _workspace = self.inner.blas.as_ref().map(CublasLt::workspace);
        graph.replay(device.stream.0)
    }

    fn arena(&self) -> Result<Option<CudaBuffer>> {
        (self.arena_bytes > 0).then(|| CudaBuffer::new(&self.inner.device, self.arena_bytes)).transpose()
    }
}

impl Executable for LoadedProgram {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        let device = &self.inner.device;
        device.context.enter()?;
        // Freed on return: the next user of the memory is later in the queue.
        let arena = self.arena()?;
        let at = arena.as_ref().map_or(0, CudaBuffer::address);
        let bases = self.bases(bindings, at)?;
        match self.should_capture() {
            true => self.replay_or_capture(&bases, at)?,
            false => self.give(&bases, at, &self.steps, None)?,
        }
        Event::record(device).map(Event::fence)
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn run_with_arena(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
        let device = &self.inner.device;
        device.context.enter()?;
        let at = own(device, arena)?.address();
        if arena.bytes() < self.arena_bytes {
            return Err(Error::Bindings(format!(
                "the arena has {} bytes, but a run needs {}",
                arena.bytes(),
                self.arena_bytes
            )));
        }
        let Some(steps) = self.steps.get(steps.clone()) else {
            return Err(Error::Bindings(format!(
                "steps {steps:?} are out of range for a program with {} steps",
                self.steps.len()
            )));
        };
        let bases = self.bases(bindings, at)?;
        self.give(&bases, at, steps, None)?;
        Event::record(device)?.wait()
    }

    fn run_timed(&self, bindings: &mut Bindings) -> Result<Vec<Timing>> {
        let device = &self.inner.device;
        device.context.enter()?;
        let arena = self.arena()?;
        let at = arena.as_ref().map_or(0, CudaBuffer::address);
        let bases = self.bases(bindings, at)?;
        let timer = Timer::new(Stopwatch::new(device)?);
        self.give(&bases, at, &self.steps, Some(&timer))?;
        device.synchronize()?;
        Ok(timer.timings(self))
    }
}
