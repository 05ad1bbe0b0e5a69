//! A compiled program: buffers and steps as plain data that can be printed and hashed.

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
pub enum BufferKind {
    /// The n-th input, owned by the caller.
    Input(usize),
    /// The n-th output, owned by the caller.
    Output(usize),
    /// A constant of the program.
    Constant(Literal),
    /// Memory in the arena that each run leases.
    Activation,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Buffer {
    /// The type of its value.
    pub ty: Type,
    /// Where its memory comes from.
    pub kind: BufferKind,
    /// The byte offset in the arena; only for activations.
    pub offset: usize,
    /// The first and the last top-level step that use it.
    pub lifetime: Option<(usize, usize)>,
}

/// A buffer, or two buffers that swap roles in each iteration of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum BufferRef {
    /// Always this buffer.
    Fixed(BufferId),
    /// The first buffer in even iterations of the loop at this depth, the second in odd ones.
    DoubleBuffered(usize, BufferId, BufferId),
}

/// An address: a buffer, an offset, and the strides of the enclosing loops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct BufferSlice {
    /// The buffer.
    pub buffer: BufferRef,
    /// The byte offset.
    pub offset: i64,
    /// (loop depth, bytes per iteration).
    pub strides: SmallVec<[(usize, i64); 1]>,
}

impl BufferSlice {
    /// The slice that starts at the beginning of a buffer.
    pub fn of(buffer: BufferId) -> BufferSlice {
        BufferSlice { buffer: BufferRef::Fixed(buffer), offset: 0, strides: SmallVec::new() }
    }

    /// All buffers that the slice can refer to.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let (a, b) = match self.buffer {
            BufferRef::Fixed(a) => (a, None),
            BufferRef::DoubleBuffered(_, a, b) => (a, Some(b)),
        };
        std::iter::once(a).chain(b)
    }
}

/// A buffer argument of a kernel step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum KernelArg {
    /// A slice of a buffer.
    Place(BufferSlice),
    /// Private memory of this many bytes for each worker.
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
    /// The number of matrices.
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
pub enum MatmulOperand {
    /// An operand in memory.
    Memory(BufferSlice),
    /// An operand that is computed block by block while it is packed.
    Computed(Box<Prologue>),
}

/// A kernel that writes blocks of an operand of a matrix product. Its buffers are the block, then `args`; its size
/// arguments are batch, first row, first column, rows, columns and the block's row stride.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Prologue {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Its other buffers.
    pub args: Vec<BufferSlice>,
}

impl MatmulOperand {
    /// Calls `f` with every slice that is read.
    pub fn for_each_slice(&self, f: &mut dyn FnMut(&BufferSlice)) {
        match self {
            MatmulOperand::Memory(p) => f(p),
            MatmulOperand::Computed(c) => c.args.iter().for_each(f),
        }
    }
}

impl fmt::Display for MatmulOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatmulOperand::Memory(p) => write!(f, "{p}"),
            MatmulOperand::Computed(c) => {
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
    /// Its other buffers.
    pub args: Vec<BufferSlice>,
    /// Whether it needs tiles that span all columns, because it reduces over rows.
    pub needs_full_rows: bool,
}

/// The trip count of a loop step.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum TripCount {
    /// Exactly this many iterations.
    Exact(usize),
    /// `clamp(count, 0, bound)` times, with an i32 count read when the loop starts.
    Bounded {
        /// The upper bound.
        bound: usize,
        /// The count.
        count: BufferSlice,
    },
    /// While the bool that the `test` steps compute before each iteration is true.
    While {
        /// The steps that run before each iteration.
        #[serde(deserialize_with = "crate::serialize::nested")]
        test: Vec<Step>,
        /// The bool.
        flag: BufferSlice,
    },
}

/// A loop over steps.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LoopStep {
    /// The nesting depth, which buffer slices refer to.
    pub depth: usize,
    /// Trip count.
    pub trip_count: TripCount,
    /// Whether it runs from the last index to the first. Double-buffered references still alternate with the iteration count.
    pub reverse: bool,
    /// The steps of one iteration.
    #[serde(deserialize_with = "crate::serialize::nested")]
    pub body: Vec<Step>,
    /// Copies out of double buffers after the loop; which of the two holds the result depends on the trip count.
    pub copies_after: Vec<(BufferSlice, BufferSlice, usize)>,
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
        /// The extent of its parallel loop.
        parallel: Option<i64>,
    },
    /// A matrix product.
    Matmul {
        /// Sizes and strides.
        shape: Box<Matmul>,
        /// The left operand.
        a: MatmulOperand,
        /// The right operand.
        b: MatmulOperand,
        /// The result; not written if there is an epilogue.
        c: Option<BufferSlice>,
        /// The kernel that runs over each finished tile instead of storing it.
        epilogue: Option<Epilogue>,
    },
    /// An op that the backend implements itself: a routine, or a composite that it supports.
    #[serde(with = "crate::serialize::library")]
    Library {
        /// The op.
        op: Box<Op>,
        /// The operands, dense.
        args: Vec<(BufferSlice, Type)>,
        /// The results, dense.
        outs: Vec<(BufferSlice, Type)>,
    },
    /// A copy of bytes.
    Copy {
        /// The source.
        from: BufferSlice,
        /// The destination.
        to: BufferSlice,
        /// The number of bytes.
        bytes: usize,
    },
    /// Fills memory with zeros.
    Zero {
        /// The destination.
        to: BufferSlice,
        /// The number of bytes.
        bytes: usize,
    },
    /// A loop.
    Loop(Box<LoopStep>),
    /// Runs one of several lists of steps, selected by an i32 that is clamped to the valid range.
    Branch {
        /// The selector.
        index: BufferSlice,
        /// The lists.
        #[serde(deserialize_with = "crate::serialize::nested")]
        branches: Vec<Vec<Step>>,
    },
}

/// The parts of a program. They can be built freely, so no device runs them directly: [`UncheckedProgram`] turns them into a
/// program.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ProgramParts {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Types of the inputs.
    pub inputs: Vec<Type>,
    /// Types of the outputs.
    pub outputs: Vec<Type>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Bytes of the arena that each run leases.
    pub arena_bytes: usize,
    /// The maximum depth of nested loops.
    pub max_loop_depth: usize,
    /// (input, output) pairs that may be bound to one buffer.
    pub donated: Vec<(usize, usize)>,
}

/// Steps over buffers. Every access is inside its buffer: [`crate::compile`] produces such programs, and
/// [`UncheckedProgram::verify`] proves it for others. The parts can be read but not changed.
#[derive(Clone, Debug)]
pub struct Program {
    parts: ProgramParts,
    /// Its number in the text of [`crate::debug`]; 0 if it was not printed.
    pub(crate) number: u32,
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.parts == other.parts
    }
}

impl std::ops::Deref for Program {
    type Target = ProgramParts;

    fn deref(&self) -> &ProgramParts {
        &self.parts
    }
}

impl Program {
    /// Wraps the output of [`crate::compile`].
    pub(crate) fn from_compiler(parts: ProgramParts, number: u32) -> Program {
        Program { parts, number }
    }

    /// Returns the parts, to build another program from them.
    pub fn into_parts(self) -> ProgramParts {
        self.parts
    }
}

/// A program that was deserialized or built by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct UncheckedProgram(ProgramParts);

impl UncheckedProgram {
    /// Wraps parts that are not verified.
    pub fn new(parts: ProgramParts) -> UncheckedProgram {
        UncheckedProgram(parts)
    }

    /// Returns the parts.
    pub fn parts(&self) -> &ProgramParts {
        &self.0
    }

    /// Returns the program if every access of every step is proved to be inside its buffer for all inputs. Otherwise the error
    /// names the step and the buffer.
    pub fn verify(self) -> crate::Result<Program> {
        crate::verify::verify(&self.0)?;
        Ok(Program::from_compiler(self.0, 0))
    }

    /// Returns the program without verification.
    ///
    /// # Safety
    /// The parts come from [`crate::compile`], unchanged but for steps that access nothing outside of their buffers: a run trusts every offset,
    /// length and index in them.
    pub unsafe fn assume_verified(self) -> Program {
        Program::from_compiler(self.0, 0)
    }
}

impl Step {
    /// Calls `f` with every kernel of the step, those of steps inside it too.
    pub fn kernels<'a>(&'a self, f: &mut dyn FnMut(&'a Arc<Kernel>)) {
        match self {
            Step::Kernel { kernel, .. } => f(kernel),
            Step::Matmul { a, b, epilogue, .. } => {
                for factor in [a, b] {
                    if let MatmulOperand::Computed(c) = factor {
                        f(&c.kernel);
                    }
                }
                epilogue.iter().for_each(|e| f(&e.kernel));
            }
            Step::Branch { branches, .. } => branches.iter().flatten().for_each(|s| s.kernels(f)),
            Step::Loop(l) => {
                if let TripCount::While { test, .. } = &l.trip_count {
                    test.iter().for_each(|s| s.kernels(f));
                }
                l.body.iter().for_each(|s| s.kernels(f));
            }
            Step::Library { .. } | Step::Copy { .. } | Step::Zero { .. } => {}
        }
    }

    /// Calls `f` with every buffer slice that the step accesses, and whether it is written.
    pub fn for_each_slice(&self, f: &mut dyn FnMut(&BufferSlice, bool)) {
        match self {
            Step::Kernel { kernel, args, .. } => {
                for (a, b) in args.iter().zip(&kernel.buffers) {
                    if let KernelArg::Place(p) = a {
                        f(p, b.mode != crate::loops::AccessMode::Read);
                    }
                }
            }
            Step::Matmul { a, b, c, epilogue, .. } => {
                a.for_each_slice(&mut |p| f(p, false));
                b.for_each_slice(&mut |p| f(p, false));
                c.iter().for_each(|c| f(c, true));
                if let Some(e) = epilogue {
                    for (p, b) in e.args.iter().zip(&e.kernel.buffers[1..]) {
                        f(p, b.mode != crate::loops::AccessMode::Read);
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
                branches.iter().flatten().for_each(|s| s.for_each_slice(f));
            }
            Step::Loop(l) => {
                match &l.trip_count {
                    TripCount::Exact(_) => {}
                    TripCount::Bounded { count, .. } => f(count, false),
                    TripCount::While { test, flag } => {
                        test.iter().for_each(|s| s.for_each_slice(f));
                        f(flag, false);
                    }
                }
                l.body.iter().for_each(|s| s.for_each_slice(f));
                for (from, to, _) in &l.copies_after {
                    f(from, false);
                    f(to, true);
                }
            }
        }
    }
}

impl fmt::Display for BufferSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.buffer {
            BufferRef::Fixed(b) => write!(f, "b{}", b.0)?,
            BufferRef::DoubleBuffered(level, a, b) => write!(f, "b{}|b{}@{level}", a.0, b.0)?,
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
        writeln!(f, "program: arena {} bytes", self.arena_bytes)?;
        for (i, b) in self.buffers.iter().enumerate() {
            let class = match &b.kind {
                BufferKind::Input(n) => format!("input {n}"),
                BufferKind::Output(n) => format!("output {n}"),
                BufferKind::Constant(_) => "constant".to_string(),
                BufferKind::Activation => format!("arena at {}", b.offset),
            };
            let live = b.lifetime.map_or(String::new(), |(a, z)| format!(", steps {a}..={z}"));
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
                        write!(f, " {}{p}", if b.mode == crate::loops::AccessMode::Read { "" } else { "→" })?
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
                    write!(f, " {}{p}", if b.mode == crate::loops::AccessMode::Read { "" } else { "→" })?;
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
            let trip = match &l.trip_count {
                TripCount::Exact(n) => n.to_string(),
                TripCount::Bounded { bound, count } => format!("min({bound}, {count})"),
                TripCount::While { flag, .. } => format!("while {flag}"),
            };
            writeln!(f, "{pad}{i}: loop i{} {trip}{}", l.depth, if l.reverse { " reverse" } else { "" })?;
            l.body.iter().enumerate().try_for_each(|(k, s)| show_step(f, s, k, depth + 1))?;
            l.copies_after.iter().try_for_each(|(from, to, n)| writeln!(f, "{pad}  after: copy {n} {from} →{to}"))
        }
    }
}

impl Step {
    /// A short description of the step for profiles.
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

/// The name of a library step: the name of a composite instead of `composite`.
pub fn library_name(op: &Op) -> &str {
    match op {
        Op::Composite(c) => &c.name,
        other => other.name(),
    }
}
