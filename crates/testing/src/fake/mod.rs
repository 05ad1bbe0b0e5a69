//! A device that is nothing like a CPU, for tests: its memory can't be seen from the host, its work ends late and out of
//! order, and its limits are those of a WebGPU adapter with default settings.
//!
//! What is submitted waits. When somebody waits or polls, jobs run in a random order, as far as their memory allows: a job
//! may overtake another unless one writes what the other touches. Kernels run in the reference evaluator, their parallel
//! iterations in a random order; memory that nobody has written holds garbage. Whatever relies on more than a device
//! promises gives wrong numbers here.
//!
//! A [`Fault`] breaks it on purpose, to show that the suite notices.

mod queue;
mod run;

use compiler::target::{Keep, KernelLimits, Partials, Products, Schedule};
use compiler::{Backend, DeviceBuffer, Error, Executable, Fence, Program, Reading, Result, Runs, Target};
use ir::ops::Composite;
use ir::{DType, Op, Type};
use queue::{Job, Memory, Queue, Work};
use std::sync::Arc;

/// What a default adapter takes.
static TARGET: Target = Target {
    name: "fake",
    dtypes: &[
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::BF16,
        DType::F32,
    ],
    index: DType::I32,
    host_memory: false,
    kernel: KernelLimits {
        buffers: 8,
        reads: 7,
        results: 8,
        binding: 128 << 20,
        cuts: 0,
        piece: 16,
        row_scratch: 4 << 10,
    },
    keep: Keep { costly: 12, cheap: 48, distant: 6 },
    // Small, so that small graphs go this way too.
    partials: Partials { least: 16, few: 3, each: 4, lone: 0, blocks: 4, block: (2, 8), stages: 3 },
    schedule: Schedule::Grid,
    products: Products { dtypes: &[DType::F32], prologues: None, epilogues: None },
};

/// Bytes of scratch that one kernel may ask for.
const SCRATCH: usize = 16 << 10;
/// Bytes that the device has.
const MEMORY: usize = 1 << 30;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Writes don't wait for earlier reads: what a missing fence does.
    Fence,
    /// Kernels read four bytes behind what they should.
    Offset,
    /// Results of a kernel are stored into its first operand's memory too.
    Alias,
    /// Reads don't wait for the work that writes what they read.
    Read,
}

/// The device.
pub struct Fake {
    queue: Arc<Queue>,
    fault: Fault,
}

impl Fake {
    /// A device that keeps its promises.
    pub fn new(seed: u64) -> Fake {
        Fake::broken(seed, Fault::None)
    }

    /// A device that breaks one.
    pub fn broken(seed: u64, fault: Fault) -> Fake {
        Fake { queue: Arc::new(Queue::new(seed, fault)), fault }
    }

    /// Jobs that wait now.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }
}

/// Memory of the device.
struct FakeBuffer {
    memory: Memory,
    bytes: usize,
    queue: Arc<Queue>,
}

fn check(offset: usize, len: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(Error::Bindings(format!("bytes {offset}..+{len} of a buffer of {bytes}"))),
    }
}

impl DeviceBuffer for FakeBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        check(offset, from.len(), self.bytes)?;
        let work = Work::Write { to: self.memory.clone(), offset, bytes: from.to_vec() };
        let _ordered = self.queue.push(Job::new(work));
        Ok(())
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.read_later(offset, to.len())?.wait()?);
        Ok(())
    }

    fn read_later(&self, offset: usize, bytes: usize) -> Result<Reading> {
        check(offset, bytes, self.bytes)?;
        let into = queue::memory(Vec::new());
        let work = Work::Read { from: self.memory.clone(), offset, bytes, into: into.clone() };
        let fence = self.queue.push(Job::new(work));
        Ok(Reading::after(fence, move || Ok(std::mem::take(&mut *queue::lock(&into)))))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Backend for Fake {
    fn name(&self) -> String {
        "fake".into()
    }

    fn target(&self) -> &Target {
        &TARGET
    }

    fn claims(&self, _: &Composite, _: &[Type]) -> bool {
        false
    }

    fn runs(&self, _: &Op, _: &[Type]) -> Runs {
        Runs::Host
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        if bytes > MEMORY {
            return Err(Error::OutOfMemory { bytes, hint: "; the device has 1 GiB" });
        }
        let memory = queue::memory(vec![0xA5; bytes]);
        Ok(Arc::new(FakeBuffer { memory, bytes, queue: self.queue.clone() }))
    }

    fn load(&self, program: Program) -> Result<Arc<dyn Executable>> {
        run::limits(&program, &TARGET, SCRATCH)?;
        Ok(Arc::new(Loaded { program: Arc::new(program), queue: self.queue.clone(), fault: self.fault }))
    }

    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
        check(0, bytes, from.bytes().min(to.bytes()))?;
        let (from, to) = (self.queue.own(from)?, self.queue.own(to)?);
        let _ordered = self.queue.push(Job::new(Work::Copy { from, to, bytes }));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.drain();
        Ok(())
    }
}

impl Queue {
    /// The memory of a buffer of this device.
    fn own(self: &Arc<Queue>, buffer: &dyn DeviceBuffer) -> Result<Memory> {
        match buffer.as_any().downcast_ref::<FakeBuffer>() {
            Some(b) if Arc::ptr_eq(&b.queue, self) => Ok(b.memory.clone()),
            _ => Err(Error::Bindings("a buffer of another device".into())),
        }
    }
}

struct Loaded {
    program: Arc<Program>,
    queue: Arc<Queue>,
    fault: Fault,
}

impl Executable for Loaded {
    fn program(&self) -> &Program {
        &self.program
    }

    fn submit(&self, bindings: &mut compiler::Bindings) -> Result<Fence> {
        bindings.check(&self.program)?;
        let own = |b: &Arc<dyn DeviceBuffer>| self.queue.own(&**b);
        let inputs = bindings.inputs.iter().map(own).collect::<Result<_>>()?;
        let outputs = bindings.outputs.iter().map(own).collect::<Result<_>>()?;
        let work = Work::Run { program: self.program.clone(), inputs, outputs, fault: self.fault };
        Ok(self.queue.push(Job::new(work)))
    }
}
