//! What can go wrong, with the code that the C interface gives for it (§13).

use ir::DType;

/// The codes of §13.1, in the order and with the numbers of the C enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum ErrorCode {
    /// Nothing is wrong.
    Ok = 0,
    /// Memory could not be had.
    OutOfMemory,
    /// An argument is no good: null, freed, out of range.
    InvalidArg,
    /// Shapes that don't fit the op, or each other.
    InvalidShape,
    /// A program that breaks a rule of §3.2.
    InvalidProgram,
    /// No plan could be made.
    PlanningFailed,
    /// The backend failed.
    BackendError,
    /// Not available here.
    NotImplemented,
    /// Anything else, a fault of this library.
    Unknown,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [ErrorCode; 9] = [
        ErrorCode::Ok,
        ErrorCode::OutOfMemory,
        ErrorCode::InvalidArg,
        ErrorCode::InvalidShape,
        ErrorCode::InvalidProgram,
        ErrorCode::PlanningFailed,
        ErrorCode::BackendError,
        ErrorCode::NotImplemented,
        ErrorCode::Unknown,
    ];
}

/// A rule of the validation checklist (§3.2) that a program breaks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProgramFault {
    /// No topological order exists.
    #[error("the graph has a cycle through nodes {nodes:?}; a node cannot depend on its own result")]
    Cycle {
        /// Nodes that wait for each other.
        nodes: Vec<usize>,
    },
    /// An id that names no value.
    #[error("{place} refers to value {id}, but there are {count} values")]
    MissingValue {
        /// Which node or list.
        place: String,
        /// The id.
        id: u32,
        /// How many values exist.
        count: usize,
    },
    /// A value that is computed more than once, or given and computed.
    #[error("value {id} has more than one source; each value must be given or computed once")]
    MultipleProducers {
        /// The value.
        id: u32,
    },
    /// A value that nothing computes.
    #[error("value {id} is neither an input nor a parameter, and no node computes it")]
    NoProducer {
        /// The value.
        id: u32,
    },
    /// A dtype that variable-shape tensors don't have.
    #[error("{place} is {dtype}; tensors must be f32, f64, f16 or bf16")]
    DType {
        /// Which value.
        place: String,
        /// Its dtype.
        dtype: DType,
    },
    /// Operands of different dtypes.
    #[error("{op} needs operands of the same dtype, got {a} and {b}; declare them with the same dtype")]
    MixedDTypes {
        /// The op.
        op: &'static str,
        /// One dtype.
        a: DType,
        /// Another.
        b: DType,
    },
    /// Operands of both models, or an op of the other model.
    #[error("{op}: {text}; connected values must have the same model")]
    MixedModels {
        /// The op.
        op: &'static str,
        /// What is mixed.
        text: String,
    },
    /// A value without axes.
    #[error("{place} has rank 0; give it the shape [1]")]
    RankZero {
        /// Which value.
        place: String,
    },
    /// A wrong number of operands or results.
    #[error("{op} takes {expected}, got {got}")]
    Arity {
        /// The op.
        op: &'static str,
        /// What it takes.
        expected: String,
        /// What was given.
        got: usize,
    },
    /// A declared shape or dtype that isn't what the op gives.
    #[error("value {id} is declared as {declared}, but {op} returns {inferred}")]
    DeclarationMismatch {
        /// The value.
        id: u32,
        /// The op.
        op: &'static str,
        /// The declaration.
        declared: String,
        /// The truth.
        inferred: String,
    },
    /// A capacity below the shape.
    #[error(
        "value {id} has capacity {capacity:?} for shape {shape:?}; the capacity must be at least the shape on every \
         axis"
    )]
    Capacity {
        /// The value.
        id: u32,
        /// Its capacity.
        capacity: Vec<usize>,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A size that overflows.
    #[error("{place} of shape {shape:?} has too many elements")]
    Overflow {
        /// Which value or op.
        place: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A program that computes nothing.
    #[error("a program without outputs computes nothing; mark at least one value as output")]
    NoOutputs,
}

/// Any failure of this crate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Memory could not be had.
    #[error("out of memory: {bytes} bytes were requested; use smaller shapes or a smaller profile")]
    OutOfMemory {
        /// How many.
        bytes: usize,
    },
    /// An argument is no good.
    #[error("{0}")]
    InvalidArg(String),
    /// Shapes that don't fit.
    #[error("{op}: {text}")]
    InvalidShape {
        /// The op.
        op: String,
        /// What doesn't fit and what would.
        text: String,
    },
    /// A program that breaks a rule.
    #[error(transparent)]
    InvalidProgram(#[from] ProgramFault),
    /// No plan could be made.
    #[error("planning failed: {0}")]
    PlanningFailed(String),
    /// The backend failed.
    #[error("the backend failed: {0}")]
    Backend(String),
    /// Not available here.
    #[error("{0}")]
    NotImplemented(String),
    /// A fault of this library.
    #[error("internal error: {0}")]
    Unknown(String),
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The code of the C interface.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::OutOfMemory { .. } => ErrorCode::OutOfMemory,
            Error::InvalidArg(_) => ErrorCode::InvalidArg,
            Error::InvalidShape { .. } => ErrorCode::InvalidShape,
            Error::InvalidProgram(_) => ErrorCode::InvalidProgram,
            Error::PlanningFailed(_) => ErrorCode::PlanningFailed,
            Error::Backend(_) => ErrorCode::BackendError,
            Error::NotImplemented(_) => ErrorCode::NotImplemented,
            Error::Unknown(_) => ErrorCode::Unknown,
        }
    }

    /// Shapes that don't fit an op.
    pub(crate) fn shape(op: impl Into<String>, text: impl Into<String>) -> Error {
        Error::InvalidShape { op: op.into(), text: text.into() }
    }

    /// An argument that is no good.
    pub(crate) fn invalid_arg(text: impl Into<String>) -> Error {
        Error::InvalidArg(text.into())
    }
}

/// A lowering that `ir` refuses was validated before: it is a fault of this crate.
impl From<ir::Error> for Error {
    fn from(e: ir::Error) -> Error {
        Error::Unknown(e.to_string())
    }
}

impl From<compiler::Error> for Error {
    fn from(e: compiler::Error) -> Error {
        match e {
            compiler::Error::OutOfMemory { bytes, .. } | compiler::Error::MemoryLimit { bytes, .. } => {
                Error::OutOfMemory { bytes }
            }
            compiler::Error::Graph(e) => Error::PlanningFailed(e.to_string()),
            compiler::Error::Bindings(e) => Error::InvalidArg(e),
            compiler::Error::Backend(e) => Error::Backend(e),
            e @ compiler::Error::Interrupted => Error::Backend(e.to_string()),
            e @ compiler::Error::InUse(_) => Error::InvalidArg(e.to_string()),
            compiler::Error::Internal(e) | compiler::Error::Program(e) => Error::PlanningFailed(e),
        }
    }
}
