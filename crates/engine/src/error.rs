//! Every error of the engine (§16), with its remedy.

use ir::{Loc, Shape};
use std::sync::Arc;

/// The errors of the engine. The first line of each message says what happened, the rest how to fix it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // §16.1 staging and compilation.
    /// A value was read while a region or a function was being staged.
    #[error(
        "{what} needs the value of a tensor while a function is being staged (at {at}); read it outside, or return it"
    )]
    HostReadInCompile {
        /// The call that read the value.
        what: &'static str,
        /// The source line of the call.
        at: Loc,
    },
    /// A future was awaited while staging.
    #[error("reading asynchronously while a function is being staged (at {at}); return the tensor and await outside")]
    AsyncInCompile {
        /// The source line of the call.
        at: Loc,
    },
    /// A tensor of a trace was used after the trace ended.
    #[error(
        "a tensor of a trace that has ended was used at {at}; return it from the traced function instead of keeping it"
    )]
    InvalidTraceTensorEscape {
        /// The source line of the call.
        at: Loc,
    },
    /// The arguments don't match the types that a program was compiled for.
    #[error("the arguments do not match: {0}")]
    InputSignatureMismatch(String),

    /// A NaN found by the check that [`crate::set_debug_nans`] enables.
    #[error("{op} at {at} produces NaN from operands without NaN")]
    NanProduced {
        /// The op that produced the NaN.
        op: String,
        /// The source line of the op.
        at: Loc,
    },

    // §16.2 misuse.
    /// A tensor was used after it was disposed.
    #[error("tensor {id} was disposed of and then used at {at}; return it from tidy, or keep() it")]
    DisposedTensor {
        /// The ID of the handle.
        id: u64,
        /// The source line of the call.
        at: Loc,
    },

    // §16.3 state.
    /// A state cell without a value was read.
    #[error("state {loc} has no value")]
    MissingExternalState {
        /// The loc (the state cell).
        loc: String,
    },
    /// A freed state cell was used.
    #[error("state {loc} was freed{}", format_loc(at))]
    InvalidatedLoc {
        /// The loc (the state cell).
        loc: String,
        /// The source line of the call.
        at: Loc,
    },
    /// A gradient was used after `zero_grad` cleared it.
    #[error("this gradient was cleared by zero_grad(){}; ask the tensor for grad() again", format_loc(at))]
    InvalidatedGrad {
        /// The source line of the call.
        at: Loc,
    },
    /// A tensor saved for backward was changed in place.
    #[error(
        "a tensor saved for backward by {op} at {at} was modified in place: it has version {found}, expected version \
         {kept}; modify a copy() instead, or run backward first"
    )]
    SavedTensorModified {
        /// The op that saved the tensor.
        op: String,
        /// The source line of the op.
        at: Loc,
        /// The version that was saved.
        kept: u64,
        /// The current version.
        found: u64,
    },
    /// A state slot of a compiled function is empty.
    #[error("state slot {slot} of compiled function {function} is empty")]
    NullStateSlot {
        /// The compiled function.
        function: u64,
        /// The index of the slot.
        slot: usize,
    },

    // §16.4 checkpointing.
    /// A checkpointed body had an effect.
    #[error("a checkpointed function must be pure: {what} (at {at})")]
    CheckpointImpureRegion {
        /// The effect.
        what: String,
        /// The source line of the call.
        at: Loc,
    },
    /// Backward was called inside the recomputation of a checkpoint.
    #[error("backward was called inside the recomputation of a checkpoint (at {at})")]
    CheckpointReentrancy {
        /// The source line of the call.
        at: Loc,
    },
    /// A compiled region with effects was called during recomputation.
    #[error("a compiled region that writes state was called inside a checkpoint (at {at}); call it outside")]
    CheckpointCompiledNotPure {
        /// The source line of the call.
        at: Loc,
    },

    // §16.5 autograd.
    /// A second backward went through a graph that the first one freed.
    #[error(
        "backward through {op} at {at} a second time, but its saved tensors were freed; call \
         backward_with(retain_graph) first"
    )]
    BackwardGraphFreed {
        /// The op whose saved values were freed.
        op: String,
        /// The source line of the op.
        at: Loc,
    },

    // §16.6 execution.
    /// The execution of a single op failed.
    #[error("{op} failed{}: {cause}", format_loc(at))]
    KernelExecution {
        /// The op that failed.
        op: String,
        /// The source line of the op.
        at: Loc,
        /// The error of the backend.
        cause: compiler::Error,
    },
    /// The execution of a compiled region failed.
    #[error("a compiled region failed{}: {cause}{}", format_loc(at), format_failing_op(op))]
    CompiledExecution {
        /// The source line of the call.
        at: Loc,
        /// The error of the backend.
        cause: compiler::Error,
        /// The op that also fails when it runs alone, and its source line.
        op: Option<(String, Loc)>,
    },
    /// A device is out of memory. Nothing was changed: pending ops are still pending.
    #[error(
        "out of memory: {op} needs {bytes} bytes{}, and {live} bytes are in use; drop tensors or use smaller ones, \
         then try again",
        format_loc(at)
    )]
    OutOfMemory {
        /// The op that needed the memory.
        op: String,
        /// The source line of the op.
        at: Loc,
        /// The number of bytes requested.
        bytes: usize,
        /// The number of bytes that tensors use.
        live: usize,
    },
    /// A computation exceeds [`crate::EngineOptions::memory_limit`]. Nothing was changed: pending ops are still pending.
    #[error(
        "{op} needs {bytes} bytes{}, {live} are in use and the limit is {limit}; drop tensors, use smaller ones, or raise \
         the limit, then try again",
        format_loc(at)
    )]
    MemoryLimit {
        /// The op that needed the memory.
        op: String,
        /// The source line of the op.
        at: Loc,
        /// The number of bytes requested.
        bytes: usize,
        /// The number of bytes that tensors use.
        live: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The engine is already executing.
    #[error("the engine is busy with {holder}; call {wanted} after it is done")]
    EngineBusy {
        /// The call that holds the execution lock.
        holder: &'static str,
        /// The call that was refused.
        wanted: &'static str,
    },
    /// The engine is poisoned, because an earlier execution failed.
    #[error("the engine stopped after an earlier failure, and its state is no longer reliable: {0}")]
    Poisoned(Arc<Error>),

    // Errors that are not in §16.
    /// An op does not accept its operands, or has no derivative.
    #[error(transparent)]
    Graph(#[from] ir::Error),
    /// A tensor has another rank than the caller expected.
    #[error("expected a tensor of rank {expected}, got shape {:?}{}", got.as_slice(), format_loc(at))]
    Rank {
        /// The expected rank.
        expected: usize,
        /// The actual shape.
        got: Shape,
        /// The source line of the call.
        at: Loc,
    },
    /// An in-place op that its destination does not allow.
    #[error("{op}{}: {reason}", format_loc(at))]
    InPlace {
        /// The name of the op.
        op: &'static str,
        /// The reason, and the remedy.
        reason: String,
        /// The source line of the call.
        at: Loc,
    },
    /// A gradient can't be computed or used.
    #[error("{reason}{}", format_loc(at))]
    Autograd {
        /// The reason, and the remedy.
        reason: String,
        /// The source line of the call.
        at: Loc,
    },
    /// A call with invalid arguments.
    #[error("{op}{}: {reason}", format_loc(at))]
    Call {
        /// The function that was called.
        op: &'static str,
        /// The reason, and the remedy.
        reason: String,
        /// The source line of the call.
        at: Loc,
    },
    /// Compilation or allocation failed before anything ran.
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
    /// Creates an error for a call with invalid arguments.
    pub(crate) fn call(op: &'static str, reason: impl Into<String>, at: &Loc) -> Error {
        Error::Call { op, reason: reason.into(), at: at.clone() }
    }

    /// Whether the error is only a lack of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. } | Error::MemoryLimit { .. })
    }

    /// Whether the caller cancelled the run by [`compiler::interrupt`]. Nothing was changed: pending ops are still pending.
    pub fn is_interrupted(&self) -> bool {
        let (Error::KernelExecution { cause, .. } | Error::CompiledExecution { cause, .. } | Error::Compile(cause)) =
            self
        else {
            return false;
        };
        *cause == compiler::Error::Interrupted
    }

    /// Adds a source location to the error if it has none.
    pub(crate) fn with_loc(self, here: &Loc) -> Error {
        let fill = |at: Loc| if at == Loc::Unknown { here.clone() } else { at };
        match self {
            // This variant has no field for a location.
            Error::Graph(ir::Error::Invalid(reason)) => Error::Call { op: "an op", reason, at: here.clone() },
            Error::Graph(e) => Error::Graph(e.at(here)),
            Error::Call { op, reason, at } => Error::Call { op, reason, at: fill(at) },
            Error::InPlace { op, reason, at } => Error::InPlace { op, reason, at: fill(at) },
            e => e,
        }
    }
}

/// The result type of the engine's functions.
pub type Result<T> = std::result::Result<T, Error>;
