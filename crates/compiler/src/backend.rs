//! What a backend is to the compiler and to those who run programs.
//!
//! # Order
//!
//! A device does what it is given in the order in which it is given, as far as its memory can tell: programs that are
//! submitted, writes and reads of buffers, copies. A submission may return long before its work is done; whoever wants to
//! know waits for its [`Fence`], and a read waits by itself. So memory may be handed on to the next submission at once
//! (pools need no fence as long as it stays on one device), and a buffer that is dropped is freed when the work that uses
//! it is done. An error that shows up late is given by the fence, and by the next read of what it spoilt.

use crate::fence::{Fence, Reading};
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
    /// For people: `cpu (avx512, 2 threads)`.
    fn name(&self) -> String;

    /// What programs for it look like.
    fn target(&self) -> &Target;

    /// Whether it has a kernel of its own for this composite on these operands. Otherwise the composite is inlined.
    fn claims(&self, composite: &Composite, args: &[Type]) -> bool;

    /// Memory for a value.
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>>;

    /// Memory for values that come and go together, as the weights of a model do. They may lie in one block, which is given back when
    /// the last of them goes.
    fn alloc_together(&self, bytes: &[usize]) -> Result<Vec<Arc<dyn DeviceBuffer>>> {
        bytes.iter().map(|bytes| self.alloc(*bytes)).collect()
    }

    /// Prepares a program to run.
    fn load(&self, program: Program) -> Result<Arc<dyn Executable>>;

    /// Prepares a program whose like will come with other sizes: kernels that differ in sizes alone should be one.
    fn load_general(&self, program: Program) -> Result<Arc<dyn Executable>> {
        self.load(program)
    }

    /// Where a library op runs: a device that lacks it hands its operands to the host and takes the results back.
    fn runs(&self, op: &Op, args: &[Type]) -> Runs {
        let _ = (op, args);
        Runs::Here
    }

    /// Whether the routine of a library op may be given one memory for its first operand and its first result, which it then
    /// changes in place.
    fn overwrites(&self, op: &Op) -> bool {
        let _ = op;
        false
    }

    /// Copies between two buffers of this device, in order with everything else.
    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> Result<()> {
        let mut all = vec![0; bytes];
        from.read(0, &mut all)?;
        to.write(0, &all)
    }

    /// Waits until everything that was submitted is done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// How many kernels it has compiled and still holds, if it counts them.
    fn kernels(&self) -> usize {
        0
    }
}

/// Where a library op runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// On the device.
    Here,
    /// On the host, between two copies.
    Host,
}

/// Memory of a device.
pub trait DeviceBuffer: Send + Sync {
    /// Size.
    fn bytes(&self) -> usize;

    /// Copies from the host, starting at an offset. A device orders it after earlier uses of the buffer, or refuses it
    /// ([`Error::InUse`]) while something else uses the buffer.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;

    /// Copies to the host, starting at an offset; waits for the work that writes it.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;

    /// Begins a copy to the host, which can be waited for or awaited. Where nothing can be waited for without blocking, it
    /// is done at once.
    fn read_later(&self, offset: usize, bytes: usize) -> Result<Reading> {
        let mut all = vec![0; bytes];
        self.read(offset, &mut all)?;
        Ok(Reading::done(all))
    }

    /// The backend's own type.
    fn as_any(&self) -> &dyn Any;
}

/// A program ready to run, from any number of threads at once.
pub trait Executable: Send + Sync {
    /// What it runs.
    fn program(&self) -> &Program;

    /// Begins a run: reads the inputs, writes the outputs, which are the caller's. The fence says when it is done; what is
    /// given to the same device later sees its results. Bindings may be used again at once.
    fn submit(&self, bindings: &mut Bindings) -> Result<Fence>;

    /// Runs it to its end.
    fn run(&self, bindings: &mut Bindings) -> Result<()> {
        self.submit(bindings)?.wait()
    }

    /// Bytes of memory that a run needs besides its inputs and outputs, for [`Executable::run_in`].
    fn arena_bytes(&self) -> usize {
        0
    }

    /// Runs a range of the program's steps in memory of the caller's. Ranges that cover all steps in order, over the same
    /// bindings and one arena, are a run. Allocates nothing.
    ///
    /// The arena has [`Executable::arena_bytes`] at least, from an address that is a multiple of [`crate::ALIGN`]. What it
    /// holds before doesn't matter; what it holds afterwards means something to the next range alone.
    fn run_in(&self, bindings: &mut Bindings, arena: &mut dyn DeviceBuffer, steps: Range<usize>) -> Result<()> {
        let _ = (bindings, arena, steps);
        Err(Error::Backend("this backend uses its own memory; call `run`".into()))
    }

    /// Runs it, and says how long each step took, those inside of loops too. A backend that can't tell gives no timings.
    fn run_timed(&self, bindings: &mut Bindings) -> Result<Vec<Timing>> {
        self.run(bindings).map(|()| Vec::new())
    }
}

/// How long a step of a program took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What it is: a kernel's name, a product with its sizes, a library routine.
    pub label: String,
    /// How often it ran.
    pub calls: usize,
    /// All its runs together.
    pub time: Duration,
    /// The program's own steps that it stands for, by number, with the time of each; for what runs inside of a loop, the
    /// loop.
    pub steps: Vec<(usize, Duration)>,
}

/// Inputs and outputs of one run. Made once and used again, running allocates nothing.
pub struct Bindings {
    /// Inputs in order.
    pub inputs: Vec<Arc<dyn DeviceBuffer>>,
    /// Outputs in order.
    pub outputs: Vec<Arc<dyn DeviceBuffer>>,
}

impl Bindings {
    /// Fresh memory for every input and output of a program; where an input was donated, its output shares the memory.
    pub fn for_program(program: &Program, backend: &dyn Backend) -> Result<Bindings> {
        let make = |t: &Type| backend.alloc(t.bytes());
        let inputs = program.inputs.iter().map(make).collect::<Result<Vec<_>>>()?;
        let shared = |o: usize| program.donated.iter().find(|(_, to)| *to == o).map(|(from, _)| inputs[*from].clone());
        let outputs = program.outputs.iter().enumerate().map(|(o, t)| shared(o).map_or_else(|| make(t), Ok));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        Ok(Bindings { inputs, outputs })
    }

    /// Checks number and sizes.
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
