//! Errors of building, transforming, parsing and verifying a Graph.

use crate::dtype::DType;
use crate::graph::Loc;
use crate::types::{Shape, Type};
use std::fmt;

/// Why operands do not fit an op.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// Wrong number of operands.
    #[error("takes {expected} operands, got {got}")]
    Arity {
        /// The expected number.
        expected: String,
        /// The actual number.
        got: usize,
    },
    /// An operand's dtype is outside the op's domain.
    #[error("operand {operand} needs {expected}, got {got}")]
    DType {
        /// The position of the operand.
        operand: usize,
        /// The allowed dtypes.
        expected: &'static str,
        /// The actual dtype.
        got: DType,
    },
    /// Operands must have the same dtype.
    #[error("operands need the same dtype, got {0} and {1}; cast one of them")]
    DTypes(DType, DType),
    /// Operands must have the same shape.
    #[error("operands need the same shape, got {} and {}", show(.0), show(.1))]
    Shapes(Shape, Shape),
    /// An axis outside the operand's rank.
    #[error("axis {axis} is out of range for rank {rank}")]
    Axis {
        /// The axis.
        axis: i64,
        /// The rank.
        rank: usize,
    },
    /// An axis that occurs twice.
    #[error("axis {0} is named twice")]
    RepeatedAxis(usize),
    /// The number of elements does not fit in memory.
    #[error("size of {dtype}{} overflows", show(shape))]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// The requested shape.
        shape: Shape,
    },
    /// Another problem; the text states what is expected and what was found.
    #[error("{0}")]
    Other(String),
}

fn show(shape: &Shape) -> String {
    format!("{:?}", shape.as_slice())
}

impl InferError {
    /// A problem described by text.
    pub fn other(text: impl Into<String>) -> InferError {
        InferError::Other(text.into())
    }
}

/// An op that does not fit its operands, with the information that is needed to fix the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// Name of the op.
    pub op: String,
    /// Types of the operands.
    pub operands: Vec<Type>,
    /// The problem.
    pub problem: InferError,
    /// The source location of the op.
    pub loc: Loc,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.op)?;
        for (i, t) in self.operands.iter().enumerate() {
            write!(f, "{}{t}", if i > 0 { ", " } else { "" })?;
        }
        write!(f, "): {}", self.problem)?;
        if self.loc != Loc::Unknown {
            write!(f, " (at {})", self.loc)?;
        }
        Ok(())
    }
}

impl std::error::Error for TypeError {}

/// Any failure of `ir` and `transform`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op does not fit its operands.
    #[error(transparent)]
    Type(Box<TypeError>),
    /// An op does not have this rule; the reason states what to do instead.
    #[error("{op} has no {rule} rule: {reason}{}", at(loc))]
    NoRule {
        /// Name of the op.
        op: String,
        /// `jvp`, `transpose`, `batch`.
        rule: &'static str,
        /// The reason and the remedy.
        reason: String,
        /// The source location of the op.
        loc: Loc,
    },
    /// An invariant of the Graph is violated.
    #[error("invalid graph: {0}")]
    Invalid(String),
    /// The text form cannot be parsed.
    #[error("{line}:{column}: {message}")]
    Parse {
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
        /// The expected and the actual text.
        message: String,
    },
    /// A run-time error of the interpreter (a `while` that does not terminate, inputs of the wrong type).
    #[error("{0}")]
    Run(String),
}

fn at(loc: &Loc) -> String {
    if *loc == Loc::Unknown { String::new() } else { format!(" (at {loc})") }
}

impl Error {
    /// A missing rule.
    pub fn no_rule(op: impl Into<String>, rule: &'static str, reason: impl Into<String>) -> Error {
        Error::NoRule { op: op.into(), rule, reason: reason.into(), loc: Loc::Unknown }
    }

    /// The same error with a source location, if it had none.
    pub fn at(mut self, place: &Loc) -> Error {
        match &mut self {
            Error::NoRule { loc, .. } if *loc == Loc::Unknown => *loc = place.clone(),
            Error::Type(e) if e.loc == Loc::Unknown => e.loc = place.clone(),
            _ => {}
        }
        self
    }
}

/// Results of `ir`.
pub type Result<T> = std::result::Result<T, Error>;
