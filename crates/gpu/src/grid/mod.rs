//! `grid`: a kernel as a GPU runs it. Blocks of threads, arrays that a block shares, barriers, exchanges between the
//! threads of a subgroup.
//!
//! # Meaning
//!
//! A launch runs [`Kernel::blocks`] blocks of [`Kernel::threads`] threads; every thread runs the whole body with registers of
//! its own. Blocks run in any order and see nothing of each other. Between two barriers the threads of a block run in any
//! order: one may not read or write what another one writes. Threads `k·s .. (k+1)·s` of a block are its k-th *subgroup*
//! (s is [`Kernel::subgroup`]).
//!
//! Arithmetic is that of `loops` ([`compiler::loops::Op`]), which is that of `ir::scalar`.
//!
//! # From loops
//!
//! An iteration of the parallel loop is run by a *team* of L threads, its *lanes*. Vector loops are spread over the lanes with stride
//! L, so neighbours touch neighbouring elements; what they carry is joined by a fixed tree whose result every lane has. What
//! stands outside of vector loops every lane computes for itself; lane 0 alone stores it. [`lower`] says how teams are
//! chosen.
//!
//! # Invariants (checked by `verify`)
//!
//! 1. A register is defined once, before it is used, in the block that uses it or around it.
//! 2. Operand dtypes agree. Indices are computed from i32 and i64 registers; an index that is not `wide` has i32 registers alone.
//! 3. Barriers and exchanges don't stand in an `If`.
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
    /// For people; not part of the kernel's identity.
    pub name: String,
    /// What indices point into: the buffers of the loops kernel in their order, then what the lowering adds.
    pub memory: Vec<Memory>,
    /// How many size arguments there are.
    pub sizes: u32,
    /// Dtype of every register.
    pub regs: Vec<DType>,
    /// Threads of a block.
    pub threads: u32,
    /// Threads of a subgroup; 1 where the target has none.
    pub subgroup_size: u32,
    /// Teams of a block.
    pub teams: u32,
    /// How many teams' work there is: the product of these.
    pub work: Vec<WorkFactor>,
    /// Blocks at most. With fewer blocks than work each runs several times.
    pub max_blocks: u32,
    /// Whether nothing that is written is memory of another argument too.
    pub noalias: bool,
    /// What each thread runs.
    pub body: Vec<Stmt>,
}

/// A factor of the number of teams' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkFactor {
    /// So many ..
    pub size: Size,
    /// .. in pieces of this many each, the last one perhaps shorter.
    pub chunk: i64,
}

/// Something that indices point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Element type.
    pub dtype: DType,
    /// Where it is.
    pub space: AddressSpace,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// A pointer argument.
    Global(Access),
    /// A pointer argument that holds this many elements for each team of the launch, private to it.
    Spill(usize),
    /// An array of this many elements that the threads of a block share.
    Shared(usize),
}

/// What a kernel does with memory.
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
    /// The rest.
    pub terms: Vec<(Reg, Size)>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// `dst = op`.
    Let {
        /// Assigned here alone.
        dst: Reg,
        /// How it is computed.
        op: Op,
    },
    /// Consecutive elements, one for each register. With more than one the address is a multiple of them all together. Where the
    /// mask is false memory is not touched and the result is `other`.
    Load {
        /// Assigned here alone.
        dst: Vec<Reg>,
        /// Source.
        buf: Buf,
        /// The first element.
        index: Index,
        /// Bool register and the value of masked-off elements.
        mask: Option<(Reg, Scalar)>,
    },
    /// Stores consecutive elements, under the rules of loads.
    Store {
        /// Destination.
        buf: Buf,
        /// The first element.
        index: Index,
        /// Values.
        value: Vec<Reg>,
        /// Bool register.
        mask: Option<Reg>,
    },
    /// A loop.
    Loop(Loop),
    /// Runs its statements if the register is true.
    If {
        /// Bool register.
        cond: Reg,
        /// Statements without barriers and exchanges.
        body: Vec<Stmt>,
    },
    /// No thread goes on before all have come here; what they wrote is then seen by each other.
    Barrier(Scope),
    /// `dst` is the `src` of the thread whose number in the subgroup differs in the bits of `xor`. Every thread of the block comes
    /// here, at its own time; memory is not synchronised.
    Exchange {
        /// Assigned here alone.
        dst: Reg,
        /// What the other thread gives.
        src: Reg,
        /// A power of two below the subgroup's size.
        xor: u32,
    },
}

/// Whose threads wait at a barrier.
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
    /// First value, of the variable's dtype.
    pub from: Reg,
    /// Where it ends, of the variable's dtype.
    pub to: Reg,
    /// What an iteration adds, of the variable's dtype, positive.
    pub step: Reg,
    /// Values carried from one iteration to the next.
    pub carried: Vec<Carried>,
    /// One iteration.
    pub body: Vec<Stmt>,
}

/// A value carried through a loop, as in `loops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carried {
    /// Value on entry.
    pub init: Reg,
    /// Value at the start of an iteration.
    pub phi: Reg,
    /// Value at the end of an iteration.
    pub next: Reg,
    /// Value after the loop.
    pub out: Reg,
}

/// How a register is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant.
    Const(Scalar),
    /// Which thread this is; i32.
    ThreadBuiltin(ThreadBuiltin),
    /// A size argument; i64, or i32 where the lowering knows that it fits.
    Size(u32),
    /// The value of an index; i64 if it is wide, else i32.
    Index(Index),
    /// Arithmetic of `loops` on registers of the grid: no constant, index or load.
    Arith(compiler::loops::Op),
}

/// What a thread knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadBuiltin {
    /// Its number in its block.
    Thread,
    /// Its block's number.
    Block,
    /// How many blocks there are.
    Blocks,
}

impl GridKernel {
    /// How many teams' work there is for these sizes.
    pub fn work(&self, sizes: &[i64]) -> i64 {
        let factor = |c: &WorkFactor| pieces(value(c.size, sizes), c.chunk);
        self.work.iter().fold(1i64, |n, c| n.saturating_mul(factor(c)))
    }

    /// How many blocks to launch; 0 if there is nothing to do.
    pub fn blocks(&self, sizes: &[i64]) -> u32 {
        pieces(self.work(sizes), self.teams as i64).min(self.max_blocks as i64) as u32
    }

    /// Bytes that each `Spill` argument needs when so many blocks run, in the order of memory.
    pub fn spill_bytes(&self, blocks: u32) -> Vec<usize> {
        let teams = blocks as usize * self.teams as usize;
        let bytes = |m: &Memory| match m.space {
            AddressSpace::Spill(n) => Some(n * teams * m.dtype.size()),
            _ => None,
        };
        self.memory.iter().filter_map(bytes).collect()
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let bytes = |m: &Memory| match m.space {
            // Each array starts at a multiple of 16 bytes.
            AddressSpace::Shared(n) => (n * m.dtype.size()).next_multiple_of(16),
            _ => 0,
        };
        self.memory.iter().map(bytes).sum()
    }
}

/// How many pieces of `by` there are in `n`.
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
