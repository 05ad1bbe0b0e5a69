//! `Cuda`: the backend.

use super::blas::Blas;
use super::collective::Talk;
use super::device::Device;
use super::dnn::Dnn;
use super::event::{Event, Stopwatch};
use super::execute::{Position, Run, Timer};
use super::kernels::Kernels;
use super::load::{self, Loaded, Ready};
use super::memory::CudaBuffer;
use super::narrow::Narrow;
use super::pool::Usage;
use super::record::{Graph, Todo};
use super::strided::Text;
use crate::grid::Limits;
use crate::library::{self, Means};
use compiler::loops::Kernel;
use compiler::program::{BufferId, Class, KernelArg, Place, Step, Trip};
use compiler::target::{Keep, KernelLimits, Partials, Products, Schedule};
use compiler::{
    Backend, Bindings, DeviceBuffer, DeviceCommunicator, Error, Executable, Fence, Program, Result, Runs, Target,
    Timing,
};
use ir::ops::Composite;
use ir::{DType, Op, Type};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// An NVIDIA GPU.
pub struct Cuda {
    inner: Arc<Inner>,
    target: Target,
}

/// What a device's programs share.
pub(crate) struct Inner {
    pub(crate) device: Arc<Device>,
    pub(crate) kernels: Kernels,
    /// None where cuBLASLt is not installed.
    pub(crate) blas: Option<Blas>,
    /// Opened when something wants it; none where it is not installed.
    dnn: OnceLock<Option<Dnn>>,
    /// Runs what the device lacks.
    pub(crate) host: Arc<dyn Backend>,
    /// Whether programs are recorded as graphs.
    pub(crate) records: bool,
    /// The way to other ranks' devices.
    pub(crate) talk: Option<Arc<dyn DeviceCommunicator>>,
}

impl Inner {
    /// cuDNN, if there is one for this device.
    pub(crate) fn dnn(&self) -> Option<&Dnn> {
        // Its attention is as quick as it was measured on Hopper alone.
        let context = &self.device.context;
        self.dnn.get_or_init(|| Dnn::open(context).filter(|_| context.capability == (9, 0))).as_ref()
    }
}

impl Cuda {
    /// Opens a device; `host` runs the ops that it lacks.
    pub fn open(ordinal: usize, host: Arc<dyn Backend>) -> Result<Cuda> {
        Cuda::with_options(ordinal, host, true)
    }

    /// Opens a device whose programs talk to those of other ranks; what `talk` can't compute goes through `host`, which needs a
    /// communicator for it.
    pub fn talking(ordinal: usize, host: Arc<dyn Backend>, talk: Arc<dyn DeviceCommunicator>) -> Result<Cuda> {
        Cuda::made(ordinal, host, true, Some(talk))
    }

    /// Opens a device; `records` says whether programs that run again and again over the same memory are recorded and
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
        let blas = Blas::open(&device)?;
        let target = target();
        Ok(Cuda { inner: Arc::new(Inner { device, kernels, blas, dnn: OnceLock::new(), host, records, talk }), target })
    }

    /// Memory in use.
    pub fn usage(&self) -> Usage {
        self.inner.device.usage()
    }

    /// Gives memory that nobody uses back to the driver, and says how many bytes.
    pub fn release(&self) -> Result<usize> {
        self.inner.device.release()
    }

    /// Kernels that had to be compiled, rather than found on disk.
    pub fn compiled(&self) -> usize {
        self.inner.kernels.compiled()
    }

    /// The CUDA C++ text of each kernel of a program, with its name and its grid, for people who want to read it.
    pub fn sources(&self, program: &Program) -> Vec<(String, String)> {
        shown(program)
    }

    /// Runs a kernel that traps, which ruins the device's context: for tests of what comes after.
    pub fn trap(&self) -> Result<()> {
        let text = Text {
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

    /// Whether a collective goes from device to device.
    fn talks(&self, op: &Op, args: &[Type]) -> bool {
        let Op::Collective(c) = op else { return false };
        let place = Place::of(BufferId(0));
        let arg = args.first().map(|ty| (&place, ty));
        self.inner.talk.is_some() && Talk::of(c, arg, &place, 0).is_ok_and(|found| found.is_some())
    }

    fn own<'b>(&self, b: &'b dyn DeviceBuffer) -> Result<&'b CudaBuffer> {
        own(&self.inner.device, b)
    }
}

/// What programs for a GPU look like.
pub(super) fn target() -> Target {
    Target {
        name: "cuda",
        dtypes: &DType::ALL,
        index: DType::I64,
        host_memory: false,
        kernel: KernelLimits {
            buffers: 40,
            reads: 24,
            results: 24,
            binding: isize::MAX as usize,
            // Each piece is a launch, but masks keep lanes from wide accesses.
            cuts: 8,
            piece: 1 << 18,
            // A row that the threads of a block can share.
            row_scratch: 32 << 10,
        },
        keep: Keep { costly: 48, cheap: 64, distant: 6 },
        // A block is done with fewer before a second launch has begun.
        partials: Partials {
            least: 1 << 13,
            few: 1 << 10,
            each: 1 << 13,
            lone: 0,
            blocks: 1 << 11,
            block: (1 << 12, 1 << 17),
            stages: 3,
        },
        schedule: Schedule::Grid,
        products: Products {
            dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16],
            prologues: None,
            epilogues: None,
        },
    }
}

/// What library ops may ask for.
pub(super) fn means() -> Means {
    Means { limits: Limits::CUDA, products: target().products.dtypes, temporary: 16 << 30 }
}

/// The text of each kernel of a program, with its loops and its grid.
pub(super) fn shown(program: &Program) -> Vec<(String, String)> {
    let show = |s: Source<'_>| match s.lowered {
        Ok(g) => (s.kernel.name.clone(), format!("{}\n\n{}\n\n{}", s.kernel, g.grid, g.text.text)),
        Err(e) => (s.kernel.name.clone(), format!("{}\n\n{e}", s.kernel)),
    };
    sources(program).into_iter().map(show).collect()
}

/// A kernel of a program, and what it becomes.
pub(super) struct Source<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) lowered: Result<load::Grid>,
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
                if let Trip::While { test, .. } = &l.trip {
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
            Some(_) => format!("cuBLASLt {}", Blas::version()),
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

    fn claims(&self, composite: &Composite, args: &[Type]) -> bool {
        let op = composite.clone().into();
        if let Some(narrow) = Narrow::of(&op, args) {
            // Before 8.9 there are no such products.
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
        Ok(Arc::new(Loaded::new(&self.inner, program)?))
    }

    fn runs(&self, op: &Op, args: &[Type]) -> Runs {
        let own = load::own(self.inner.device.context.capability, op, args) || self.talks(op, args);
        if own || library::takes(op, args, &means()) { Runs::Here } else { Runs::Host }
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

impl Loaded {
    /// Addresses of all buffers of the program.
    fn bases(&self, bindings: &Bindings, arena: u64) -> Result<SmallVec<[u64; 32]>> {
        bindings.check(&self.program)?;
        let device = &self.inner.device;
        let constants = self.constants.as_ref().map_or(0, CudaBuffer::address);
        self.program
            .buffers
            .iter()
            .enumerate()
            .map(|(i, b)| {
                Ok(match &b.class {
                    Class::Input(n) => own(device, &*bindings.inputs[*n])?.address(),
                    Class::Output(n) => own(device, &*bindings.outputs[*n])?.address(),
                    Class::Constant(_) => constants + self.constant_at[i] as u64,
                    Class::Activation => arena + b.offset as u64,
                })
            })
            .collect()
    }

    fn give(&self, bases: &[u64], arena: u64, steps: &[Ready], timer: Option<&Timer>) -> Result<()> {
        let scratch = arena + self.scratch_at as u64;
        let stream = self.inner.device.stream.0;
        Run { loaded: self, bases, scratch, stream, timer, follows: Cell::new(false) }
            .steps(steps, &mut Position::default())
    }

    /// Replays a run over these addresses, recorded now if it wasn't.
    fn recorded(&self, bases: &[u64], arena: u64) -> Result<()> {
        let device = &self.inner.device;
        let mut recordings = self.recordings.lock().unwrap_or_else(|e| e.into_inner());
        let mut key: SmallVec<[u64; 33]> = SmallVec::from_slice(&[arena]);
        for (base, b) in bases.iter().zip(&self.program.buffers) {
            if matches!(b.class, Class::Input(_) | Class::Output(_)) {
                key.push(*base);
            }
        }
        let graph = match recordings.next(&key) {
            Todo::Launch => {
                drop(recordings);
                return self.give(bases, arena, &self.steps, None);
            }
            Todo::Replay(g) => g,
            Todo::Record => {
                let stream = device.recorder.lock().unwrap_or_else(|e| e.into_inner());
                let scratch = arena + self.scratch_at as u64;
                let run =
                    Run { loaded: self, bases, scratch, stream: stream.0, timer: None, follows: Cell::new(false) };
                let made =
                    Graph::record(&device.context, stream.0, || run.steps(&self.steps, &mut Position::default()));
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
        // A product of another thread may be two kernels with its sums in the workspace between them: recorded products, which use it
        // too, must not come there.
        let _workspace = self.inner.blas.as_ref().map(Blas::workspace);
        graph.replay(device.stream.0)
    }

    fn arena(&self) -> Result<Option<CudaBuffer>> {
        (self.arena_bytes > 0).then(|| CudaBuffer::new(&self.inner.device, self.arena_bytes)).transpose()
    }
}

impl Executable for Loaded {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut Bindings) -> Result<Fence> {
        let device = &self.inner.device;
        device.context.enter()?;
        // Given back when this returns: whoever takes it next comes later in the queue.
        let arena = self.arena()?;
        let at = arena.as_ref().map_or(0, CudaBuffer::address);
        let bases = self.bases(bindings, at)?;
        match self.records() {
            true => self.recorded(&bases, at)?,
            false => self.give(&bases, at, &self.steps, None)?,
        }
        Event::record(device).map(Event::fence)
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn run_in(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
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
