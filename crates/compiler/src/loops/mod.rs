//! `loops`: the kernel IR. A kernel is loop nests over scalar SSA values with explicit loads and stores; every backend
//! emits machine code, WGSL or CUDA from the same [`Kernel`].
//!
//! # Semantics
//!
//! A [`Reg`] is assigned once and has a fixed dtype. A statement runs once per iteration of the loops around it, in
//! program order. Iterations of a `Parallel` loop are independent of each other. So are those of a `Vector` loop, except
//! for its carried values, which must have a `combine` (an associative operator, so that each lane can have a partial
//! sum; a fixed tree combines them at the end). A `Serial` loop runs in order. Everything inside a `Vector` loop is
//! lane-wise, including inner `Serial` loops: their trip count must not depend on the lane.
//!
//! Arithmetic is that of `ir::scalar`: f16, bf16 and fp8 values are computed in f32 and rounded after each operation.
//!
//! # Invariants (checked by `verify`)
//!
//! 1. Each `Reg` and `Var` is defined exactly once, before use, and used only inside the block that defines it (or
//!    deeper). A loop's `phi`s are visible in its body, its `out`s after it.
//! 2. Operand dtypes agree; indices are built from `I64` registers; masks are `Bool`.
//! 3. `Parallel` loops stand only at the top level of the body, alone, at most one, and carry nothing.
//! 4. A `Vector` loop's carried values have a `combine`; `Vector` loops do not nest.
//! 5. `Read` buffers are not stored to; `Write` buffers are not loaded from.

mod build;
mod eval;
mod hoist;
pub mod index_analysis;
pub mod lanes;
mod print;
pub mod range;
mod verify;

pub use build::{Block, KernelBuilder};
pub use eval::{EvalError, eval, eval_range};
pub use hoist::hoist;
pub use verify::{KernelError, verify};

use ir::{Binary, Compare, DType, Scalar, Unary};

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Kernel {
    /// The name for messages; not part of the kernel's identity in caches.
    pub name: String,
    /// Pointer arguments, in order.
    pub buffers: Vec<Buffer>,
    /// The number of i64 size arguments that follow.
    pub sizes: u32,
    /// Dtype of every register.
    pub regs: Vec<DType>,
    /// Number of loop variables.
    pub vars: u32,
    /// The statements.
    pub body: Vec<Stmt>,
}

/// A pointer argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Buffer {
    /// Element type.
    pub dtype: DType,
    /// How the kernel accesses it.
    pub mode: AccessMode,
}

/// How a kernel accesses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum AccessMode {
    /// Only loads.
    Read,
    /// Only stores.
    Write,
    /// Loads and stores; a load sees the stores before it in program order.
    ReadWrite,
    /// Private memory of this many elements, one copy per worker, contents undefined at the start of each iteration of
    /// the parallel loop.
    Scratch(usize),
}

/// Index of a pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Buf(pub u32);

/// A scalar SSA value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Reg(pub u32);

/// A loop variable, an i64 that counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Var(pub u32);

/// A number that is known at compile time or given as a size argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Size {
    /// Known at compile time.
    Const(i64),
    /// The n-th size argument.
    Arg(u32),
}

/// The trip count of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Extent {
    /// Exactly this many iterations.
    Exact(Size),
    /// `clamp(value, 0, bound)` times, where the i32 value is read from a buffer when the loop is entered. The index must
    /// not depend on a vector loop's variable.
    Bounded {
        /// Upper bound.
        bound: Size,
        /// Buffer of i32.
        buf: Buf,
        /// The element to read.
        index: Index,
    },
}

/// An affine element index: `offset + Σ stride · atom`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Index {
    /// Constant part.
    pub offset: i64,
    /// Size arguments to add (each with coefficient 1).
    pub offset_args: Vec<u32>,
    /// The terms with variables.
    pub terms: Vec<(Atom, Size)>,
}

/// A variable part of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Atom {
    /// A loop variable.
    Var(Var),
    /// An `I64` register (a loaded index, a quotient or remainder of a loop variable).
    Reg(Reg),
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Stmt {
    /// `dst = op`.
    Let {
        /// Assigned here and nowhere else.
        dst: Reg,
        /// The operation that computes it.
        op: Op,
    },
    /// `buf[index] = value`, skipped where the mask is false. The value's dtype is the buffer's.
    Store {
        /// The destination.
        buf: Buf,
        /// The element.
        index: Index,
        /// The value.
        value: Reg,
        /// A Bool register; all true if absent.
        mask: Option<Reg>,
    },
    /// A loop.
    Loop(Loop),
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Loop {
    /// The loop variable.
    pub var: Var,
    /// Trip count.
    pub extent: Extent,
    /// How the iterations relate.
    pub kind: LoopKind,
    /// Values carried from one iteration to the next.
    pub carried: Vec<Carried>,
    /// Statements of one iteration.
    #[serde(deserialize_with = "crate::serialize::nested")]
    pub body: Vec<Stmt>,
}

/// How a loop's iterations relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum LoopKind {
    /// Independent iterations; distributed over workers.
    Parallel,
    /// Independent iterations, except for carried values with a `combine`; run in vector lanes.
    Vector,
    /// Iterations in order.
    Serial,
}

/// A value carried through a loop: `phi = init` on entry, `phi = next` after each iteration, `out` is the last value
/// (`init` if the loop did not run).
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Carried {
    /// The value on entry, defined before the loop.
    pub init: Reg,
    /// The value at the start of an iteration.
    pub phi: Reg,
    /// The value at the end of an iteration, defined in the body.
    pub next: Reg,
    /// The value after the loop.
    pub out: Reg,
    /// In a `Vector` loop: `next` is `combine(phi, something)`, and `combine` is one of
    /// `Add Mul Max Min And Or Xor`. Its identity may initialize further lanes.
    pub combine: Option<Binary>,
}

/// The operation that computes a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Op {
    /// A constant.
    Const(Scalar),
    /// The value of an index expression, as `I64`.
    Index(Index),
    /// `buf[index]`; where the mask is false memory is not touched and the result is `other`.
    Load {
        /// The source.
        buf: Buf,
        /// The element.
        index: Index,
        /// A Bool register and the value of masked-off elements.
        mask: Option<(Reg, Scalar)>,
    },
    /// `ir::Unary`.
    Unary(Unary, Reg),
    /// `ir::Binary` on two values of one dtype.
    Binary(Binary, Reg, Reg),
    /// A comparison; the result is `Bool`.
    Compare(Compare, Reg, Reg),
    /// `if c { a } else { b }`.
    Select(Reg, Reg, Reg),
    /// `a * b + c` rounded once.
    Fma(Reg, Reg, Reg),
    /// Conversion as `Scalar::cast`.
    Cast(DType, Reg),
    /// Saturating conversion as `Scalar::quantize`.
    Quantize(DType, Reg),
    /// Reinterprets the bits as another dtype of equal size.
    Bitcast(DType, Reg),
}
