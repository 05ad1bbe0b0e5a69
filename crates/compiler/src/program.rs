//! A compiled program: buffers and steps. Plain data that can be printed and hashed.

use crate::loops::Kernel;
use ir::{Literal, Op, Type};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Index of a buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BufferId(pub u32);

/// Where a buffer's memory comes from.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Class {
    /// The n-th input, owned by the caller.
    Input(usize),
    /// The n-th output, owned by the caller.
    Output(usize),
    /// Data of the program.
    Constant(Literal),
    /// A place in the arena that each run leases.
    Activation,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Buffer {
    /// What it holds.
    pub ty: Type,
    /// Where its memory comes from.
    pub class: Class,
    /// Byte offset in the arena; activations alone.
    pub offset: usize,
    /// First and last step that use it, at the top level.
    pub live: Option<(usize, usize)>,
}

/// A buffer, or two that change roles with each iteration of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Slot {
    /// Always this one.
    Fixed(BufferId),
    /// The first in even iterations of the loop at this level, the second in odd ones.
    Alternating(usize, BufferId, BufferId),
}

/// An address: a slot, an offset, and what each enclosing loop adds per iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// The buffer.
    pub slot: Slot,
    /// Byte offset.
    pub offset: i64,
    /// (loop level, bytes per iteration).
    pub strides: SmallVec<[(usize, i64); 1]>,
}

impl Place {
    /// The start of a buffer.
    pub fn of(buffer: BufferId) -> Place {
        Place { slot: Slot::Fixed(buffer), offset: 0, strides: SmallVec::new() }
    }

    /// All buffers that it may mean.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let (a, b) = match self.slot {
            Slot::Fixed(a) => (a, None),
            Slot::Alternating(_, a, b) => (a, Some(b)),
        };
        std::iter::once(a).chain(b)
    }
}

/// A buffer argument of a kernel step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum KernelArg {
    /// Memory.
    Place(Place),
    /// Private memory of so many bytes for each worker.
    Scratch(usize),
}

/// A batched matrix product `C[b] = A[b]·B[b]`, strides in elements.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Matmul {
    /// Operand dtype.
    pub dtype: ir::DType,
    /// Accumulation dtype.
    pub acc: ir::DType,
    /// Result dtype.
    pub out: ir::DType,
    /// Sizes.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Strides of A: batch, row, column.
    pub a: [isize; 3],
    /// Strides of B: batch, row, column.
    pub b: [isize; 3],
    /// Strides of C: batch, row, column.
    pub c: [isize; 3],
}

/// An operand of a matrix product.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Factor {
    /// In memory.
    Memory(Place),
    /// Computed block by block while it is packed.
    Computed(Box<Prologue>),
}

/// A kernel that writes blocks of an operand of a matrix product. Its buffers are the block, then `args`; its size
/// arguments are batch, first row, first column, rows, columns and the block's row stride.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Prologue {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Its further buffers.
    pub args: Vec<Place>,
}

impl Factor {
    /// Calls `f` with every place that is read.
    pub fn places(&self, f: &mut dyn FnMut(&Place)) {
        match self {
            Factor::Memory(p) => f(p),
            Factor::Computed(c) => c.args.iter().for_each(f),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factor::Memory(p) => write!(f, "{p}"),
            Factor::Computed(c) => {
                write!(f, "({}", c.kernel.name)?;
                c.args.iter().try_for_each(|p| write!(f, " {p}"))?;
                f.write_str(")")
            }
        }
    }
}

/// A kernel that runs over each finished tile of a matrix product. Its buffers are the tile, then `args`; its size
/// arguments are batch, first row, first column, rows, columns and the tile's row stride.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Epilogue {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Its further buffers.
    pub args: Vec<Place>,
    /// Whether it needs tiles that span all columns, because it reduces over rows.
    pub whole_rows: bool,
}

/// How often a loop step runs.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Trip {
    /// Exactly so often.
    Exact(usize),
    /// `clamp(count, 0, bound)` times, with an i32 count read when the loop starts.
    Bounded {
        /// Upper bound.
        bound: usize,
        /// The count.
        count: Place,
    },
    /// As long as the bool that the steps compute before each iteration is true.
    While {
        /// What runs before each iteration.
        #[serde(deserialize_with = "crate::serial::nested")]
        test: Vec<Step>,
        /// Where the answer is.
        flag: Place,
    },
}

/// A loop over steps.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LoopStep {
    /// Nesting depth, which places refer to.
    pub level: usize,
    /// Trip count.
    pub trip: Trip,
    /// From the last index to the first. Alternating slots still follow the iteration's number.
    pub reverse: bool,
    /// One iteration.
    #[serde(deserialize_with = "crate::serial::nested")]
    pub body: Vec<Step>,
    /// Copies after the loop from alternating slots, whose final role depends on the trip count.
    pub after: Vec<(Place, Place, usize)>,
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// A generated kernel.
    Kernel {
        /// The code.
        kernel: Arc<Kernel>,
        /// Its buffers.
        args: Vec<KernelArg>,
        /// Extent of its parallel loop.
        parallel: Option<i64>,
    },
    /// A matrix product.
    Matmul {
        /// Sizes and strides.
        shape: Box<Matmul>,
        /// Operand.
        a: Factor,
        /// Operand.
        b: Factor,
        /// Result; not written if there is an epilogue.
        c: Option<Place>,
        /// What runs over each finished tile instead of storing it.
        epilogue: Option<Epilogue>,
    },
    /// An op that the backend implements as such: a routine, or a composite that it claimed.
    #[serde(with = "crate::serial::library")]
    Library {
        /// The op.
        op: Box<Op>,
        /// Operands, dense.
        args: Vec<(Place, Type)>,
        /// Results, dense.
        outs: Vec<(Place, Type)>,
    },
    /// A copy of bytes.
    Copy {
        /// Source.
        from: Place,
        /// Destination.
        to: Place,
        /// How many.
        bytes: usize,
    },
    /// Zeros.
    Zero {
        /// Destination.
        to: Place,
        /// How many bytes.
        bytes: usize,
    },
    /// A loop.
    Loop(Box<LoopStep>),
    /// One of several lists of steps, by an i32 that is clamped to their number.
    Branch {
        /// The choice.
        index: Place,
        /// The lists.
        #[serde(deserialize_with = "crate::serial::nested")]
        branches: Vec<Vec<Step>>,
    },
}

/// What a program is made of. Anyone may put one together, so no device runs it: [`UncheckedProgram`] makes a program of it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Parts {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Types of the inputs.
    pub inputs: Vec<Type>,
    /// Types of the outputs.
    pub outputs: Vec<Type>,
    /// What runs, in order.
    pub steps: Vec<Step>,
    /// Bytes of the arena that each run leases.
    pub arena: usize,
    /// How deep loops nest.
    pub levels: usize,
    /// (input, output) pairs that may be bound to one buffer.
    pub donated: Vec<(usize, usize)>,
}

/// Steps over buffers, each access of which is inside its buffer: [`crate::compile`] writes such programs, and
/// [`UncheckedProgram::verify`] proves it of others. Its parts can be read and not changed.
#[derive(Clone, Debug)]
pub struct Program {
    parts: Parts,
    /// Its number in the text of [`crate::debug`]; 0 if it was not printed.
    pub(crate) number: u32,
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.parts == other.parts
    }
}

impl std::ops::Deref for Program {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Program {
    /// What [`crate::compile`] made.
    pub(crate) fn compiled(parts: Parts, number: u32) -> Program {
        Program { parts, number }
    }

    /// Its parts, to make another program of.
    pub fn into_parts(self) -> Parts {
        self.parts
    }
}

/// A program that was read from bytes or put together by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct UncheckedProgram(Parts);

impl UncheckedProgram {
    /// A program of these parts.
    pub fn new(parts: Parts) -> UncheckedProgram {
        UncheckedProgram(parts)
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.0
    }

    /// The program, if every access of every step can be shown to be inside its buffer, whatever the inputs are. Otherwise the error names
    /// the step and the buffer.
    pub fn verify(self) -> crate::Result<Program> {
        crate::verify::verify(&self.0)?;
        Ok(Program::compiled(self.0, 0))
    }

    /// The program as it is.
    ///
    /// # Safety
    /// The parts come from [`crate::compile`], unchanged but for steps that access nothing outside of their buffers: a run trusts every offset,
    /// length and index in them.
    pub unsafe fn trust(self) -> Program {
        Program::compiled(self.0, 0)
    }
}

impl Step {
    /// Calls `f` with every kernel of the step, those of steps inside it too.
    pub fn kernels<'a>(&'a self, f: &mut dyn FnMut(&'a Arc<Kernel>)) {
        match self {
            Step::Kernel { kernel, .. } => f(kernel),
            Step::Matmul { a, b, epilogue, .. } => {
                for factor in [a, b] {
                    if let Factor::Computed(c) = factor {
                        f(&c.kernel);
                    }
                }
                epilogue.iter().for_each(|e| f(&e.kernel));
            }
            Step::Branch { branches, .. } => branches.iter().flatten().for_each(|s| s.kernels(f)),
            Step::Loop(l) => {
                if let Trip::While { test, .. } = &l.trip {
                    test.iter().for_each(|s| s.kernels(f));
                }
                l.body.iter().for_each(|s| s.kernels(f));
            }
            Step::Library { .. } | Step::Copy { .. } | Step::Zero { .. } => {}
        }
    }

    /// Calls `f` with every place the step touches, and whether it is written.
    pub fn places(&self, f: &mut dyn FnMut(&Place, bool)) {
        match self {
            Step::Kernel { kernel, args, .. } => {
                for (a, b) in args.iter().zip(&kernel.buffers) {
                    if let KernelArg::Place(p) = a {
                        f(p, b.mode != crate::loops::Mode::Read);
                    }
                }
            }
            Step::Matmul { a, b, c, epilogue, .. } => {
                a.places(&mut |p| f(p, false));
                b.places(&mut |p| f(p, false));
                c.iter().for_each(|c| f(c, true));
                if let Some(e) = epilogue {
                    for (p, b) in e.args.iter().zip(&e.kernel.buffers[1..]) {
                        f(p, b.mode != crate::loops::Mode::Read);
                    }
                }
            }
            Step::Library { args, outs, .. } => {
                args.iter().for_each(|(p, _)| f(p, false));
                outs.iter().for_each(|(p, _)| f(p, true));
            }
            Step::Copy { from, to, .. } => {
                f(from, false);
                f(to, true);
            }
            Step::Zero { to, .. } => f(to, true),
            Step::Branch { index, branches } => {
                f(index, false);
                branches.iter().flatten().for_each(|s| s.places(f));
            }
            Step::Loop(l) => {
                match &l.trip {
                    Trip::Exact(_) => {}
                    Trip::Bounded { count, .. } => f(count, false),
                    Trip::While { test, flag } => {
                        test.iter().for_each(|s| s.places(f));
                        f(flag, false);
                    }
                }
                l.body.iter().for_each(|s| s.places(f));
                for (from, to, _) in &l.after {
                    f(from, false);
                    f(to, true);
                }
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Slot::Fixed(b) => write!(f, "b{}", b.0)?,
            Slot::Alternating(level, a, b) => write!(f, "b{}|b{}@{level}", a.0, b.0)?,
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        for (level, s) in &self.strides {
            write!(f, "+{s}·i{level}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program: arena {} bytes", self.arena)?;
        for (i, b) in self.buffers.iter().enumerate() {
            let class = match &b.class {
                Class::Input(n) => format!("input {n}"),
                Class::Output(n) => format!("output {n}"),
                Class::Constant(_) => "constant".to_string(),
                Class::Activation => format!("arena at {}", b.offset),
            };
            let live = b.live.map_or(String::new(), |(a, z)| format!(", steps {a}..={z}"));
            writeln!(f, "  b{i}: {} {class}{live}", b.ty)?;
        }
        self.steps.iter().enumerate().try_for_each(|(i, s)| show_step(f, s, i, 1))
    }
}

fn show_step(f: &mut fmt::Formatter<'_>, step: &Step, i: usize, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    match step {
        Step::Kernel { kernel, args, parallel } => {
            write!(f, "{pad}{i}: kernel {}", kernel.name)?;
            if let Some(p) = parallel {
                write!(f, " parallel {p}")?;
            }
            for (a, b) in args.iter().zip(&kernel.buffers) {
                match a {
                    KernelArg::Place(p) => {
                        write!(f, " {}{p}", if b.mode == crate::loops::Mode::Read { "" } else { "→" })?
                    }
                    KernelArg::Scratch(n) => write!(f, " scratch:{n}")?,
                }
            }
            writeln!(f)
        }
        Step::Matmul { shape, a, b, c, epilogue } => {
            write!(
                f,
                "{pad}{i}: matmul {} {}×[{}·{}·{}] {a} {b}",
                shape.dtype, shape.batch, shape.m, shape.k, shape.n
            )?;
            if let Some(c) = c {
                write!(f, " →{c}")?;
            }
            if let Some(e) = epilogue {
                write!(f, " then {}", e.kernel.name)?;
                for (p, b) in e.args.iter().zip(&e.kernel.buffers[1..]) {
                    write!(f, " {}{p}", if b.mode == crate::loops::Mode::Read { "" } else { "→" })?;
                }
            }
            writeln!(f)
        }
        Step::Library { op, args, outs } => {
            write!(f, "{pad}{i}: {}", library_name(op))?;
            args.iter().try_for_each(|(p, _)| write!(f, " {p}"))?;
            outs.iter().try_for_each(|(p, _)| write!(f, " →{p}"))?;
            writeln!(f)
        }
        Step::Copy { from, to, bytes } => writeln!(f, "{pad}{i}: copy {bytes} {from} →{to}"),
        Step::Zero { to, bytes } => writeln!(f, "{pad}{i}: zero {bytes} →{to}"),
        Step::Branch { index, branches } => {
            writeln!(f, "{pad}{i}: branch {index}")?;
            branches.iter().enumerate().try_for_each(|(k, steps)| {
                writeln!(f, "{pad}  case {k}")?;
                steps.iter().enumerate().try_for_each(|(j, s)| show_step(f, s, j, depth + 2))
            })
        }
        Step::Loop(l) => {
            let trip = match &l.trip {
                Trip::Exact(n) => n.to_string(),
                Trip::Bounded { bound, count } => format!("min({bound}, {count})"),
                Trip::While { flag, .. } => format!("while {flag}"),
            };
            writeln!(f, "{pad}{i}: loop i{} {trip}{}", l.level, if l.reverse { " reverse" } else { "" })?;
            l.body.iter().enumerate().try_for_each(|(k, s)| show_step(f, s, k, depth + 1))?;
            l.after.iter().try_for_each(|(from, to, n)| writeln!(f, "{pad}  after: copy {n} {from} →{to}"))
        }
    }
}

impl Step {
    /// What the step is, in a few words for tables of times.
    pub fn label(&self) -> String {
        match self {
            Step::Kernel { kernel, .. } => kernel.name.clone(),
            Step::Matmul { shape, epilogue, .. } => {
                let batch = if shape.batch > 1 { format!("{}×", shape.batch) } else { String::new() };
                let then = if epilogue.is_some() { ", fused" } else { "" };
                format!("matmul {} {batch}[{}·{}·{}]{then}", shape.dtype, shape.m, shape.k, shape.n)
            }
            Step::Library { op, .. } => library_name(op).to_string(),
            Step::Copy { .. } => "copy".into(),
            Step::Zero { .. } => "zero".into(),
            Step::Loop(_) => "loop".into(),
            Step::Branch { .. } => "branch".into(),
        }
    }
}

/// The name of a library step: a composite's own name rather than `composite`.
pub fn library_name(op: &Op) -> &str {
    match op {
        Op::Composite(c) => &c.name,
        other => other.name(),
    }
}
