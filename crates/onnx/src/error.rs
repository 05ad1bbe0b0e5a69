//! What can be wrong with a model, and what to do about it.

/// Why a model can't be imported or a graph not exported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no model.
    #[error("not an ONNX model: {0}")]
    Format(String),
    /// Something about the model as a whole.
    #[error("{0}")]
    Model(String),
    /// A node that can't be imported.
    #[error("node {node} ({op}): {problem}")]
    Node {
        /// Its name, or that of its first output.
        node: String,
        /// Its op.
        op: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// A value that decides about shapes depends on inputs of the model.
    #[error(
        "node {node} ({op}): {what} decides about shapes, which are static here, but depends on the input{} {}; give {} when \
         importing (`Options::value`, or `loom import --value NAME=FILE.npy`)",
        if inputs.len() == 1 { "" } else { "s" }, inputs.join(", "), if inputs.len() == 1 { "its value" } else { "their values" }
    )]
    NeedsValue {
        /// The node's name.
        node: String,
        /// Its op.
        op: String,
        /// Which operand.
        what: String,
        /// The inputs it depends on.
        inputs: Vec<String>,
    },
    /// An input whose shape is open.
    #[error(
        "input {input}: its axis {axis} ({name}) has no size; give one when importing (`Options::dim`, or `loom import --dim \
         NAME=SIZE`), or its shape (`Options::shape`, `--shape {input}=2,3`)"
    )]
    NeedsSize {
        /// The input.
        input: String,
        /// The axis.
        axis: usize,
        /// The name of its size, or `?`.
        name: String,
    },
    /// A node of a graph that has no counterpart in ONNX.
    #[error("{op} can't be exported to ONNX: {problem}")]
    Export {
        /// The op.
        op: String,
        /// Why, and the remedy.
        problem: String,
    },
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A fault of the node that is being imported, whose name is put in later.
    pub(crate) fn here(problem: impl Into<String>) -> Error {
        Error::Node { node: String::new(), op: String::new(), problem: problem.into() }
    }

    /// A fault outside of any node.
    pub(crate) fn of_model(self) -> Error {
        match self {
            Error::Node { node, problem, .. } if node.is_empty() => Error::Model(problem),
            other => other,
        }
    }

    /// The same with the node's name, if it had none.
    pub(crate) fn at(mut self, name: &str, kind: &str) -> Error {
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
        Error::here(e.to_string())
    }
}

impl From<ir::Problem> for Error {
    fn from(e: ir::Problem) -> Error {
        Error::here(e.to_string())
    }
}
