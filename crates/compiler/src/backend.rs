//! The interface between the compiler, the code that runs programs, and a backend.
//!
//! # Order
//!
//! A device executes operations in submission order, as far as its memory is concerned: program runs, writes and reads of buffers,
//! and copies. A submission may return before its work is complete. Use its [`Fence`] to wait for completion; a read
//! waits by itself. Memory can therefore be reused by the next submission immediately (allocators need no fence as long as
//! it stays on one device), and a dropped buffer is freed when the work that uses it is complete. An error that is
//! detected late is returned by the fence, and by the next read of an affected buffer.

use crate::fence::{Fence, ReadFuture};
use crate::program::Program;
use crate::target::Target;
use crate::{Error, Result};
use ir::ops::Composite;
use ir::{Op, Type};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A device that runs programs.
pub trait Backend: Send + Sync {
    /// The name for messages, such as `cpu (avx512, 2 threads)`.
    fn name(&self) -> String;

    /// The properties of the device that the compiler needs.
    fn target(&self) -> &Target;

    /// Whether the backend has its own kernel for this composite on these operands. Otherwise the composite is inlined.
    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool;

    /// Allocates memory for a value.
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>>;

    /// Allocates memory for values with the same lifetime, such as the weights of a model. They may share one block, which is freed
    /// when the last of them is dropped.
    fn alloc_group(&self, bytes: &[usize]) -> Result<Vec<Arc<dyn DeviceBuffer>>> {
        bytes.iter().map(|bytes| self.alloc(*bytes)).collect()
    }

    /// Prepares a program to run.
    fn load(&self, program: Program) -> Result<Arc<dyn Executable>>;

    /// Prepares a program that will be followed by similar programs with other sizes: kernels that differ only in sizes should
    /// be shared.
    fn load_shape_generic(&self, program: Program) -> Result<Arc<dyn Executable>> {
        self.load(program)
    }

    /// Where a library op runs. If the device does not support it, the operands are copied to the host and the results back.
    fn placement(&self, op: &Op, args: &[Type]) -> OpPlacement {
        let _ = (op, args);
        OpPlacement::Device
    }

    /// Whether the routine of a library op can write its first result over its first operand, in the same memory.
    fn supports_in_place(&self, op: &Op) -> bool {
        let _ = op;
        false
    }

    /// Copies between two buffers of this device, in submission order.
    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
        let mut all = vec![0; bytes];
        from.read(0, &mut all)?;
        to.write(0, &all)
    }

    /// Waits until all submitted work is complete.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// The number of compiled kernels in the cache, if the backend counts them.
    fn kernels(&self) -> usize {
        0
    }
}

/// Where a library op runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpPlacement {
    /// On the device.
    Device,
    /// On the host, with copies of the operands and results.
    HostFallback,
}

/// Memory of a device.
pub trait DeviceBuffer: Send + Sync {
    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// Copies from the host, starting at an offset. A device orders it after earlier uses of the buffer, or refuses it
    /// ([`Error::InUse`]) while something else uses the buffer.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;

    /// Copies to the host, starting at an offset; waits for the work that writes it.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;

    /// Starts a copy to the host that can be waited for or awaited. On devices that can only block, the copy is complete on
    /// return.
    fn read_async(&self, offset: usize, bytes: usize) -> Result<ReadFuture> {
        let mut all = vec![0; bytes];
        self.read(offset, &mut all)?;
        Ok(ReadFuture::ready(all))
    }

    /// The concrete type of the buffer, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// A loaded program, which any number of threads may run concurrently.
pub trait Executable: Send + Sync {
    /// The program.
    fn program(&self) -> &Program;

    /// Starts a run, which reads the inputs and writes the outputs in the bindings. The fence signals its completion; operations
    /// that are submitted to the same device later see its results. The bindings may be reused immediately.
    fn submit(&self, bindings: &mut Bindings) -> Result<Fence>;

    /// Runs the program and waits for its completion.
    fn run(&self, bindings: &mut Bindings) -> Result<()> {
        self.submit(bindings)?.wait()
    }

    /// The bytes of memory that a run needs besides its inputs and outputs, for [`Executable::run_with_arena`].
    fn arena_bytes(&self) -> usize {
        0
    }

    /// Runs a range of the program's steps with an arena that the caller provides. Ranges that cover all steps in order, with the
    /// same bindings and one arena, make up a run. Does not allocate.
    ///
    /// The arena has at least [`Executable::arena_bytes`] bytes, at an address that is a multiple of [`crate::ALIGN`]. Its initial
    /// contents do not matter; its contents afterwards are only meaningful for the next range.
    fn run_with_arena(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
        let _ = (bindings, arena, steps);
        Err(Error::Backend("this backend uses its own memory; call `run`".into()))
    }

    /// Runs the program and returns the time of each step, including steps in loops. A backend without timers returns no timings.
    fn run_timed(&self, bindings: &mut Bindings) -> Result<Vec<Timing>> {
        self.run(bindings).map(|()| Vec::new())
    }
}

/// The time of a step of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A description of the step: the name of a kernel, a matrix product with its sizes, a library routine.
    pub label: String,
    /// The number of executions.
    pub calls: usize,
    /// The total time of all executions.
    pub time: Duration,
    /// The steps of the program that it includes, by number, with the time of each; a step in a loop is counted for the
    /// loop.
    pub steps: Vec<(usize, Duration)>,
}

/// The input and output buffers of a run. Reusing them avoids allocations.
pub struct Bindings {
    /// The inputs in order.
    pub inputs: Vec<Arc<dyn DeviceBuffer>>,
    /// The outputs in order.
    pub outputs: Vec<Arc<dyn DeviceBuffer>>,
}

impl Bindings {
    /// Allocates memory for every input and output of a program; an output shares the memory of the input donated to it.
    pub fn for_program(program: &Program, backend: &dyn Backend) -> Result<Bindings> {
        let make = |t: &Type| backend.alloc(t.bytes());
        let inputs = program.inputs.iter().map(make).collect::<Result<Vec<_>>>()?;
        let shared = |o: usize| program.donated.iter().find(|(_, to)| *to == o).map(|(from, _)| inputs[*from].clone());
        let outputs = program.outputs.iter().enumerate().map(|(o, t)| shared(o).map_or_else(|| make(t), Ok));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        Ok(Bindings { inputs, outputs })
    }

    /// Checks the number and the sizes of the buffers.
    pub fn check(&self, program: &Program) -> Result<()> {
        let fits = |buffers: &[Arc<dyn DeviceBuffer>], types: &[Type], what: &str| {
            if buffers.len() != types.len() {
                return Err(Error::Bindings(format!("{} {what}s given, {} needed", buffers.len(), types.len())));
            }
            for (i, (b, t)) in buffers.iter().zip(types).enumerate() {
                if b.bytes() < t.bytes() {
                    return Err(Error::Bindings(format!(
                        "{what} {i} has {} bytes, {t} needs {}",
                        b.bytes(),
                        t.bytes()
                    )));
                }
            }
            Ok(())
        };
        fits(&self.inputs, &program.inputs, "input")?;
        fits(&self.outputs, &program.outputs, "output")
    }
}
