//! The errors of this crate, and their codes in the C interface (§13).

use ir::DType;

/// The codes of §13.1, in the order and with the numbers of the C enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum ErrorCode {
    /// No error.
    Ok = 0,
    /// Memory could not be allocated.
    OutOfMemory,
    /// An argument is invalid: null, freed or out of range.
    InvalidArg,
    /// Shapes don't fit the op or each other.
    InvalidShape,
    /// A program breaks a rule of §3.2.
    InvalidProgram,
    /// Planning failed.
    PlanningFailed,
    /// The backend failed.
    BackendError,
    /// The feature is not available.
    NotImplemented,
    /// Any other failure: a bug in this library.
    Unknown,
}

impl ErrorCode {
    /// All codes.
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
    /// The graph has a cycle, so no topological order exists.
    #[error("the graph has a cycle through nodes {nodes:?}; a node cannot depend on its own result")]
    Cycle {
        /// The nodes of the cycle.
        nodes: Vec<usize>,
    },
    /// An ID does not name a value.
    #[error("{place} refers to value {id}, but there are {count} values")]
    MissingValue {
        /// The node or list that contains the ID.
        place: String,
        /// The invalid ID.
        id: u32,
        /// The number of values.
        count: usize,
    },
    /// A value is computed by several nodes, or is both an input and computed.
    #[error("value {id} has more than one source; each value must be given or computed once")]
    MultipleProducers {
        /// The ID of the value.
        id: u32,
    },
    /// A value is neither an input nor computed.
    #[error("value {id} is neither an input nor a parameter, and no node computes it")]
    NoProducer {
        /// The ID of the value.
        id: u32,
    },
    /// A value has a dtype that variable-shape tensors don't support.
    #[error("{place} is {dtype}; tensors must be f32, f64, f16 or bf16")]
    DType {
        /// The value.
        place: String,
        /// Its dtype.
        dtype: DType,
    },
    /// The operands have different dtypes.
    #[error("{op} needs operands of the same dtype, got {a} and {b}; declare them with the same dtype")]
    MixedDTypes {
        /// The op.
        op: &'static str,
        /// The dtype of one operand.
        a: DType,
        /// The dtype of another operand.
        b: DType,
    },
    /// The operands have different models, or the op belongs to another model.
    #[error("{op}: {text}; connected values must have the same model")]
    MixedModels {
        /// The op.
        op: &'static str,
        /// A description of the mismatch.
        text: String,
    },
    /// A value has rank 0.
    #[error("{place} has rank 0; give it the shape [1]")]
    RankZero {
        /// The value.
        place: String,
    },
    /// The number of operands or results is wrong.
    #[error("{op} takes {expected}, got {got}")]
    Arity {
        /// The op.
        op: &'static str,
        /// The expected number.
        expected: String,
        /// The number found.
        got: usize,
    },
    /// The declared shape or dtype differs from the inferred one.
    #[error("value {id} is declared as {declared}, but {op} returns {inferred}")]
    DeclarationMismatch {
        /// The ID of the value.
        id: u32,
        /// The op.
        op: &'static str,
        /// The declared shape or dtype.
        declared: String,
        /// The inferred shape or dtype.
        inferred: String,
    },
    /// A capacity is smaller than the shape.
    #[error(
        "value {id} has capacity {capacity:?} for shape {shape:?}; the capacity must be at least the shape on every \
         axis"
    )]
    Capacity {
        /// The ID of the value.
        id: u32,
        /// Its capacity.
        capacity: Vec<usize>,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A product of sizes overflows.
    #[error("{place} of shape {shape:?} has too many elements")]
    Overflow {
        /// The value or op.
        place: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A program has no outputs.
    #[error("a program without outputs computes nothing; mark at least one value as output")]
    NoOutputs,
}

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Memory could not be allocated.
    #[error("out of memory: {bytes} bytes were requested; use smaller shapes or a smaller profile")]
    OutOfMemory {
        /// The number of bytes requested.
        bytes: usize,
    },
    /// An argument is invalid.
    #[error("{0}")]
    InvalidArg(String),
    /// Shapes don't fit the op.
    #[error("{op}: {text}")]
    InvalidShape {
        /// The op.
        op: String,
        /// The shapes that don't fit, and the shapes that would.
        text: String,
    },
    /// A program breaks a rule of §3.2.
    #[error(transparent)]
    InvalidProgram(#[from] ProgramFault),
    /// Planning failed.
    #[error("planning failed: {0}")]
    PlanningFailed(String),
    /// The backend failed.
    #[error("the backend failed: {0}")]
    Backend(String),
    /// The feature is not available.
    #[error("{0}")]
    NotImplemented(String),
    /// A bug in this library.
    #[error("internal error: {0}")]
    Unknown(String),
}

/// A `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the code of the C interface.
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

    /// Returns the error for shapes that don't fit an op.
    pub(crate) fn shape(op: impl Into<String>, text: impl Into<String>) -> Error {
        Error::InvalidShape { op: op.into(), text: text.into() }
    }

    /// Returns the error for an invalid argument.
    pub(crate) fn invalid_arg(text: impl Into<String>) -> Error {
        Error::InvalidArg(text.into())
    }
}

/// Programs are validated before they are lowered, so an error of `ir` in lowering is a bug in this crate.
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
