//! Every error of the engine (§16), and what to do about it.

use ir::{Loc, Shape};
use std::sync::Arc;

/// What can go wrong. The first line of each message says what happened, the rest how to mend it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // §16.1 staging and compilation.
    /// A value was read while a region or a function was being staged.
    #[error(
        "{what} needs the value of a tensor while a function is being staged (at {at}); read it outside, or return it"
    )]
    HostReadInCompile {
        /// What asked for the value.
        what: &'static str,
        /// The caller's line.
        at: Loc,
    },
    /// A future was awaited while staging.
    #[error("reading asynchronously while a function is being staged (at {at}); return the tensor and await outside")]
    AsyncInCompile {
        /// The caller's line.
        at: Loc,
    },
    /// A tensor of a trace that has ended.
    #[error(
        "a tensor of a trace that has ended was used at {at}; return it from the traced function instead of keeping it"
    )]
    InvalidTraceTensorEscape {
        /// The caller's line.
        at: Loc,
    },
    /// Arguments don't fit what a program was compiled for.
    #[error("the arguments do not match: {0}")]
    InputSignatureMismatch(String),

    /// A NaN that [`crate::set_debug_nans`] found.
    #[error("{op} at {at} produces NaN from operands without NaN")]
    NanProduced {
        /// The op.
        op: String,
        /// The line that wrote it.
        at: Loc,
    },

    // §16.2 misuse.
    /// A tensor was used after it was disposed.
    #[error("tensor {id} was disposed of and then used at {at}; return it from tidy, or keep() it")]
    DisposedTensor {
        /// The handle.
        id: u64,
        /// The caller's line.
        at: Loc,
    },

    // §16.3 state.
    /// State that was never given a value.
    #[error("state {loc} has no value")]
    MissingExternalState {
        /// The loc.
        loc: String,
    },
    /// State that is no more.
    #[error("state {loc} was freed{}", format_loc(at))]
    InvalidatedLoc {
        /// The loc.
        loc: String,
        /// The caller's line.
        at: Loc,
    },
    /// A gradient that `zero_grad` took away.
    #[error("this gradient was cleared by zero_grad(){}; ask the tensor for grad() again", format_loc(at))]
    InvalidatedGrad {
        /// The caller's line.
        at: Loc,
    },
    /// A tensor needed for backward was changed in place.
    #[error(
        "a tensor saved for backward by {op} at {at} was modified in place: it has version {found}, expected version \
         {kept}; modify a copy() instead, or run backward first"
    )]
    SavedTensorModified {
        /// The op that keeps it.
        op: String,
        /// Where the op was written.
        at: Loc,
        /// The version that was kept.
        kept: u64,
        /// The version now.
        found: u64,
    },
    /// A state slot that is empty.
    #[error("state slot {slot} of compiled function {function} is empty")]
    NullStateSlot {
        /// The compiled function.
        function: u64,
        /// The slot.
        slot: usize,
    },

    // §16.4 checkpointing.
    /// A checkpointed body had an effect.
    #[error("a checkpointed function must be pure: {what} (at {at})")]
    CheckpointImpureRegion {
        /// What it did.
        what: String,
        /// The caller's line.
        at: Loc,
    },
    /// A checkpoint inside a recomputation.
    #[error("backward was called inside the recomputation of a checkpoint (at {at})")]
    CheckpointReentrancy {
        /// The caller's line.
        at: Loc,
    },
    /// A compiled region with effects was called while recomputing.
    #[error("a compiled region that writes state was called inside a checkpoint (at {at}); call it outside")]
    CheckpointCompiledNotPure {
        /// The caller's line.
        at: Loc,
    },

    // §16.5 autograd.
    /// A second backward through a graph that the first one freed.
    #[error(
        "backward through {op} at {at} a second time, but its saved tensors were freed; call \
         backward_with(retain_graph) first"
    )]
    BackwardGraphFreed {
        /// The op.
        op: String,
        /// Where it was written.
        at: Loc,
    },

    // §16.6 execution.
    /// A single op failed.
    #[error("{op} failed{}: {cause}", format_loc(at))]
    KernelExecution {
        /// The op.
        op: String,
        /// Where it was written.
        at: Loc,
        /// Why.
        cause: compiler::Error,
    },
    /// A compiled region failed.
    #[error("a compiled region failed{}: {cause}{}", format_loc(at), format_failing_op(op))]
    CompiledExecution {
        /// Where it was called.
        at: Loc,
        /// Why.
        cause: compiler::Error,
        /// The op that fails by itself too, and where it was written.
        op: Option<(String, Loc)>,
    },
    /// A device has not enough memory. Nothing was changed: what was pending still is.
    #[error(
        "out of memory: {op} needs {bytes} bytes{}, and {live} bytes are in use; drop tensors or use smaller ones, \
         then try again",
        format_loc(at)
    )]
    OutOfMemory {
        /// What asked for it.
        op: String,
        /// Where that was written.
        at: Loc,
        /// How much was asked for.
        bytes: usize,
        /// What tensors use.
        live: usize,
    },
    /// More memory than [`crate::EngineOptions::memory_limit`] allows. Nothing was changed: what was pending still is.
    #[error(
        "{op} needs {bytes} bytes{}, {live} are in use and the limit is {limit}; drop tensors, use smaller ones, or raise \
         the limit, then try again",
        format_loc(at)
    )]
    MemoryLimit {
        /// What asked for it.
        op: String,
        /// Where that was written.
        at: Loc,
        /// How much was asked for.
        bytes: usize,
        /// What tensors use.
        live: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine is running something already.
    #[error("the engine is busy with {holder}; call {wanted} after it is done")]
    EngineBusy {
        /// Who holds it.
        holder: &'static str,
        /// Who asked.
        wanted: &'static str,
    },
    /// An earlier execution failed.
    #[error("the engine stopped after an earlier failure, and its state is no longer reliable: {0}")]
    Poisoned(Arc<Error>),

    // Our own.
    /// An op does not fit its operands, or has no derivative.
    #[error(transparent)]
    Graph(#[from] ir::Error),
    /// A rank other than the one asked for.
    #[error("expected a tensor of rank {expected}, got shape {:?}{}", got.as_slice(), format_loc(at))]
    Rank {
        /// What was asked for.
        expected: usize,
        /// The shape.
        got: Shape,
        /// The caller's line.
        at: Loc,
    },
    /// An in-place op that its destination does not allow.
    #[error("{op}{}: {reason}", format_loc(at))]
    InPlace {
        /// The op.
        op: &'static str,
        /// Why not, and the remedy.
        reason: String,
        /// The caller's line.
        at: Loc,
    },
    /// Something about gradients.
    #[error("{reason}{}", format_loc(at))]
    Autograd {
        /// What, and the remedy.
        reason: String,
        /// The caller's line.
        at: Loc,
    },
    /// A call that does not fit in words.
    #[error("{op}{}: {reason}", format_loc(at))]
    Call {
        /// What was called.
        op: &'static str,
        /// What is wrong, and the remedy.
        reason: String,
        /// The caller's line.
        at: Loc,
    },
    /// Compilation or memory failed before anything ran.
    #[error(transparent)]
    Compile(#[from] compiler::Error),
}

fn format_failing_op(op: &Option<(String, Loc)>) -> String {
    match op {
        Some((op, at)) => format!("; {op}{} also fails on its own", format_loc(at)),
        None => String::new(),
    }
}

fn format_loc(at: &Loc) -> String {
    if *at == Loc::Unknown { String::new() } else { format!(" (at {at})") }
}

impl Error {
    /// A call that does not fit.
    pub(crate) fn call(op: &'static str, reason: impl Into<String>, at: &Loc) -> Error {
        Error::Call { op, reason: reason.into(), at: at.clone() }
    }

    /// Whether memory is all that was missing.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. } | Error::MemoryLimit { .. })
    }

    /// Whether who asked wants it no more: [`compiler::interrupt`]. Nothing was changed, what was pending still is.
    pub fn is_interrupted(&self) -> bool {
        let (Error::KernelExecution { cause, .. } | Error::CompiledExecution { cause, .. } | Error::Compile(cause)) =
            self
        else {
            return false;
        };
        *cause == compiler::Error::Interrupted
    }

    /// The same error with a place, if it had none.
    pub(crate) fn with_loc(self, here: &Loc) -> Error {
        let fill = |at: Loc| if at == Loc::Unknown { here.clone() } else { at };
        match self {
            // It has no place for a line.
            Error::Graph(ir::Error::Invalid(reason)) => Error::Call { op: "an op", reason, at: here.clone() },
            Error::Graph(e) => Error::Graph(e.at(here)),
            Error::Call { op, reason, at } => Error::Call { op, reason, at: fill(at) },
            Error::InPlace { op, reason, at } => Error::InPlace { op, reason, at: fill(at) },
            e => e,
        }
    }
}

/// Results of the engine.
pub type Result<T> = std::result::Result<T, Error>;
