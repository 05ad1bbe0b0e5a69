//! `grid`: the GPU form of a kernel. It has blocks of threads, shared arrays of a block, barriers, and exchanges between the
//! threads of a subgroup.
//!
//! # Semantics
//!
//! A launch runs [`GridKernel::blocks`] blocks of [`GridKernel::threads`] threads; every thread runs the whole body with its own
//! registers. Blocks run in any order and do not see each other's writes. Between two barriers the threads of a block run in any
//! order: a thread must not read or write what another one writes. Threads `k·s .. (k+1)·s` of a block are its k-th *subgroup*
//! (s is [`GridKernel::subgroup_size`]).
//!
//! Arithmetic is that of `loops` ([`compiler::loops::Op`]), which is that of `ir::scalar`.
//!
//! # Lowering from loops
//!
//! A *team* of L threads, its *lanes*, runs an iteration of the parallel loop. Vector loops are distributed over the lanes with
//! stride L, so adjacent lanes access adjacent elements; a fixed tree reduces their carried values, and every lane has the
//! result. Every lane computes the statements outside vector loops redundantly; only lane 0 executes their stores. [`lower`]
//! describes how teams are chosen.
//!
//! # Invariants (checked by `verify`)
//!
//! 1. A register is defined once, before it is used, in the block that uses it or an enclosing one.
//! 2. Operand dtypes agree. Indices are computed from i32 and i64 registers; an index that is not `wide` has only i32 registers.
//! 3. Barriers and exchanges are not inside an `If`.
//! 4. `Read` memory is not stored to; `Write` memory is not loaded from.
//! 5. A subgroup's size is a power of two that divides the block.

pub(crate) mod alignment;
mod emit;
pub mod eval;
mod launch_info;
mod limits;
mod lower;
mod print;
mod reduce;
mod redundant_stores;
mod rows;
mod shape;
mod sink;
mod sync;
mod unroll;
mod verify;

pub use compiler::loops::index_analysis::LaunchInfo;
pub use eval::{EvalError, Launch, View, eval};
pub use launch_info::launch_info;
pub use limits::GridLimits;
pub use lower::{LowerError, lower};
pub use redundant_stores::{RedundantStores, remove_redundant_stores};
pub use verify::{GridError, verify};

pub use compiler::loops::{Buf, Reg, Size};
use ir::{DType, Scalar};

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GridKernel {
    /// The name for messages; not part of the kernel's identity.
    pub name: String,
    /// The memory that indices refer to: the buffers of the source kernel in order, then those that the lowering adds.
    pub memory: Vec<Memory>,
    /// The number of size arguments.
    pub sizes: u32,
    /// Dtype of every register.
    pub regs: Vec<DType>,
    /// The threads of a block.
    pub threads: u32,
    /// The threads of a subgroup; 1 if the target has none.
    pub subgroup_size: u32,
    /// The teams of a block.
    pub teams: u32,
    /// The number of work items for teams: the product of these factors.
    pub work: Vec<WorkFactor>,
    /// The maximum number of blocks. With fewer blocks than work, each runs several iterations.
    pub max_blocks: u32,
    /// Whether no written memory aliases another argument.
    pub noalias: bool,
    /// The body of each thread.
    pub body: Vec<Stmt>,
}

/// A factor of the number of work items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkFactor {
    /// The size to divide.
    pub size: Size,
    /// The length of a piece; the last one may be shorter.
    pub chunk: i64,
}

/// A memory that indices refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Element type.
    pub dtype: DType,
    /// The address space.
    pub space: AddressSpace,
}

/// The address space of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// A pointer argument.
    Global(Access),
    /// A pointer argument with this many elements for each team of the launch, private to it.
    Spill(usize),
    /// A shared array of a block with this many elements.
    Shared(usize),
}

/// How a kernel accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

/// `offset + Σ stride · register`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Index {
    /// Whether it is computed in 64 bits.
    pub wide: bool,
    /// Constant part.
    pub offset: i64,
    /// Size arguments, each added once.
    pub offset_args: Vec<u32>,
    /// The terms with registers.
    pub terms: Vec<(Reg, Size)>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// `dst = op`.
    Let {
        /// Assigned only here.
        dst: Reg,
        /// The operation that computes it.
        op: Op,
    },
    /// Loads consecutive elements, one for each register. With several, the address is aligned to their total size. Where the
    /// mask is false, memory is not accessed and the result is `other`.
    Load {
        /// Assigned only here.
        dst: Vec<Reg>,
        /// The source.
        buf: Buf,
        /// The first element.
        index: Index,
        /// A Bool register and the value of masked-off elements.
        mask: Option<(Reg, Scalar)>,
    },
    /// Stores consecutive elements, with the same rules as loads.
    Store {
        /// The destination.
        buf: Buf,
        /// The first element.
        index: Index,
        /// The values.
        value: Vec<Reg>,
        /// A Bool register.
        mask: Option<Reg>,
    },
    /// A loop.
    Loop(Loop),
    /// Runs its statements if the register is true.
    If {
        /// A Bool register.
        cond: Reg,
        /// Statements without barriers and exchanges.
        body: Vec<Stmt>,
    },
    /// Waits until all threads of the scope have arrived; their writes before the barrier are then visible to each other.
    Barrier(Scope),
    /// `dst` is the `src` of the thread whose index in the subgroup is this one's xor `xor`. Every thread of the block executes it,
    /// not necessarily together; memory is not synchronized.
    Exchange {
        /// Assigned only here.
        dst: Reg,
        /// The value that the other thread reads.
        src: Reg,
        /// A power of two below the subgroup's size.
        xor: u32,
    },
}

/// The scope of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Scope {
    Subgroup,
    Block,
}

/// `for (var = from; var < to; var += step)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// An i32 or i64 register.
    pub var: Reg,
    /// The first value, of the variable's dtype.
    pub from: Reg,
    /// The end, exclusive, of the variable's dtype.
    pub to: Reg,
    /// The increment, of the variable's dtype, positive.
    pub step: Reg,
    /// Values carried from one iteration to the next.
    pub carried: Vec<Carried>,
    /// One iteration.
    pub body: Vec<Stmt>,
}

/// A value carried through a loop, as in `loops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carried {
    /// The value on entry.
    pub init: Reg,
    /// The value at the start of an iteration.
    pub phi: Reg,
    /// The value at the end of an iteration.
    pub next: Reg,
    /// The value after the loop.
    pub out: Reg,
}

/// The operation that computes a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant.
    Const(Scalar),
    /// An index of the thread or its block; i32.
    ThreadBuiltin(ThreadBuiltin),
    /// A size argument; i64, or i32 if the lowering knows that it fits.
    Size(u32),
    /// The value of an index; i64 if it is wide, else i32.
    Index(Index),
    /// Arithmetic of `loops` on registers of the grid: no constant, index or load.
    Arith(compiler::loops::Op),
}

/// The built-in indices of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadBuiltin {
    /// The index of the thread in its block.
    Thread,
    /// The index of the block.
    Block,
    /// The number of blocks.
    Blocks,
}

impl GridKernel {
    /// The number of work items for these sizes.
    pub fn work(&self, sizes: &[i64]) -> i64 {
        let factor = |c: &WorkFactor| pieces(value(c.size, sizes), c.chunk);
        self.work.iter().fold(1i64, |n, c| n.saturating_mul(factor(c)))
    }

    /// The number of blocks to launch; 0 if there is nothing to do.
    pub fn blocks(&self, sizes: &[i64]) -> u32 {
        pieces(self.work(sizes), self.teams as i64).min(self.max_blocks as i64) as u32
    }

    /// The bytes that each `Spill` argument needs with this many blocks, in the order of memory.
    pub fn spill_bytes(&self, blocks: u32) -> Vec<usize> {
        let teams = blocks as usize * self.teams as usize;
        let bytes = |m: &Memory| match m.space {
            AddressSpace::Spill(n) => Some(n * teams * m.dtype.size()),
            _ => None,
        };
        self.memory.iter().filter_map(bytes).collect()
    }

    /// The bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let bytes = |m: &Memory| match m.space {
            // Each array is aligned to 16 bytes.
            AddressSpace::Shared(n) => (n * m.dtype.size()).next_multiple_of(16),
            _ => 0,
        };
        self.memory.iter().map(bytes).sum()
    }
}

/// The number of pieces of `by` in `n`.
pub(crate) fn pieces(n: i64, by: i64) -> i64 {
    let (n, by) = (n.max(0), by.max(1));
    n / by + (n % by > 0) as i64
}

/// The value of a size.
pub(crate) fn value(s: Size, sizes: &[i64]) -> i64 {
    match s {
        Size::Const(n) => n,
        Size::Arg(n) => sizes.get(n as usize).copied().unwrap_or(0),
    }
}
