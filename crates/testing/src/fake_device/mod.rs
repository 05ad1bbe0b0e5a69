//! A simulated device that differs from a CPU as much as possible, for tests: its memory is not visible to the host, its work runs
//! asynchronously and out of order, and its limits are those of a WebGPU adapter with default settings.
//!
//! Submitted jobs are queued. When a caller waits or polls, jobs run in a random order, as far as memory dependencies allow: a job
//! may overtake another unless one writes memory that the other accesses. Kernels run in the reference interpreter, with parallel
//! iterations in a random order; uninitialized memory contains garbage. Code that relies on more than the contract of a device
//! gets wrong results here.
//!
//! An [`InjectedFault`] breaks the device, to test that the suite detects it.

mod queue;
mod run;

use compiler::target::{KernelLimits, LoopSchedule, MatmulTarget, RecomputePolicy, SplitReduction};
use compiler::{Backend, DeviceBuffer, Error, Executable, Fence, OpPlacement, Program, ReadFuture, Result, Target};
use ir::ops::Composite;
use ir::{DType, Op, Type};
use queue::{Job, Memory, Queue, Work};
use std::sync::Arc;

/// The target of a default adapter.
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
        max_operands: 7,
        max_results: 8,
        max_binding_bytes: 128 << 20,
        max_space_splits: 0,
        min_launch_elements: 16,
        row_scratch_bytes: 4 << 10,
    },
    recompute: RecomputePolicy { max_duplicate_cost: 12, max_recompute_cost: 48, min_distance: 6 },
    // Small, so that small graphs use this path too.
    split_reduction: SplitReduction {
        min_elements: 16,
        saturating_results: 3,
        min_elements_per_share: 4,
        min_parallel_results: 0,
        blocks: 4,
        block: (2, 8),
        max_stages: 3,
    },
    schedule: LoopSchedule::Grid,
    matmul: MatmulTarget { dtypes: &[DType::F32], prologues: None, epilogues: None },
};

/// The maximum bytes of scratch of a kernel.
const SCRATCH: usize = 16 << 10;
/// The bytes of device memory.
const MEMORY: usize = 1 << 30;

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Nothing.
    None,
    /// Writes do not wait for earlier reads, like with a missing fence.
    MissingReadFence,
    /// Kernels read at addresses that are four bytes too high.
    ShiftedReads,
    /// Results of a kernel are also stored to the memory of its first operand.
    AliasedOutput,
    /// Reads do not wait for the work that writes their memory.
    MissingWriteFence,
}

/// The device.
pub struct FakeDevice {
    queue: Arc<Queue>,
    fault: InjectedFault,
}

impl FakeDevice {
    /// A device without faults.
    pub fn new(seed: u64) -> FakeDevice {
        FakeDevice::with_fault(seed, InjectedFault::None)
    }

    /// A device with an injected fault.
    pub fn with_fault(seed: u64, fault: InjectedFault) -> FakeDevice {
        FakeDevice { queue: Arc::new(Queue::new(seed, fault)), fault }
    }

    /// The number of queued jobs.
    pub fn queued_jobs(&self) -> usize {
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
        to.copy_from_slice(&self.read_async(offset, to.len())?.wait()?);
        Ok(())
    }

    fn read_async(&self, offset: usize, bytes: usize) -> Result<ReadFuture> {
        check(offset, bytes, self.bytes)?;
        let into = queue::memory(Vec::new());
        let work = Work::Read { from: self.memory.clone(), offset, bytes, into: into.clone() };
        let fence = self.queue.push(Job::new(work));
        Ok(ReadFuture::after_fence(fence, move || Ok(std::mem::take(&mut *queue::lock(&into)))))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Backend for FakeDevice {
    fn name(&self) -> String {
        "fake".into()
    }

    fn target(&self) -> &Target {
        &TARGET
    }

    fn supports_composite(&self, _: &Composite, _: &[Type]) -> bool {
        false
    }

    fn placement(&self, _: &Op, _: &[Type]) -> OpPlacement {
        OpPlacement::HostFallback
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
    fault: InjectedFault,
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
