//! Errors of import and export, with remedies.

/// Why a model can't be imported or a graph not exported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not a valid model.
    #[error("not an ONNX model: {0}")]
    Format(String),
    /// An error of the model as a whole.
    #[error("{0}")]
    Model(String),
    /// A node that can't be imported.
    #[error("node {node} ({op}): {problem}")]
    Node {
        /// Its name, or that of its first output.
        node: String,
        /// Its op type.
        op: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A value that determines a shape depends on inputs of the model.
    #[error(
        "node {node} ({op}): {what} determines shapes, which are static here, but depends on the input{} {}; give {} \
         when importing (`Options::value`, or `loom import --value NAME=FILE.npy`)",
        if inputs.len() == 1 { "" } else { "s" }, inputs.join(", "), if inputs.len() == 1 { "its value" } else { "their values" }
    )]
    NeedsValue {
        /// The node's name.
        node: String,
        /// Its op type.
        op: String,
        /// The operand.
        what: String,
        /// The inputs it depends on.
        inputs: Vec<String>,
    },
    /// An input with an unknown size.
    #[error(
        "input {input}: its axis {axis} ({name}) has no size; give one when importing (`Options::dim`, or `loom import --dim \
         NAME=SIZE`), or its shape (`Options::shape`, `--shape {input}=2,3`)"
    )]
    NeedsSize {
        /// The input.
        input: String,
        /// The axis.
        axis: usize,
        /// The symbolic name of the size, or `?`.
        name: String,
    },
    /// A node of a graph that has no counterpart in ONNX.
    #[error("{op} can't be exported to ONNX: {problem}")]
    Export {
        /// The op.
        op: String,
        /// The problem and the remedy.
        problem: String,
    },
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the node that is being imported, whose name is added later.
    pub(crate) fn node_error(problem: impl Into<String>) -> Error {
        Error::Node { node: String::new(), op: String::new(), problem: problem.into() }
    }

    /// Converts it to an error outside of any node.
    pub(crate) fn model_error(self) -> Error {
        match self {
            Error::Node { node, problem, .. } if node.is_empty() => Error::Model(problem),
            other => other,
        }
    }

    /// Adds the node's name, if there is none.
    pub(crate) fn with_node(mut self, name: &str, kind: &str) -> Error {
        if let Error::Node { node, op, .. } | Error::NeedsValue { node, op, .. } = &mut self
            && node.is_empty()
        {
            *node = format!("`{name}`");
            *op = kind.to_string();
        }
        self
    }
}

impl From<ir::Error> for Error {
    fn from(e: ir::Error) -> Error {
        Error::node_error(e.to_string())
    }
}

impl From<ir::InferError> for Error {
    fn from(e: ir::InferError) -> Error {
        Error::node_error(e.to_string())
    }
}
