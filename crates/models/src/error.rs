//! Errors, with the details that are needed to fix them.

use std::path::PathBuf;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] train::FileError),
    /// The configuration does not describe a model of the library.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The path of the configuration.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A tensor that a parameter is assembled from is missing in the checkpoint.
    #[error("{}: tensor `{tensor}` is missing; parameter `{parameter}` needs it with shape {expected:?}", path.display())]
    MissingTensor {
        /// The file or directory searched.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// The parameter that needs it.
        parameter: String,
        /// The shape of that parameter.
        expected: Vec<usize>,
    },
    /// The checkpoint has a tensor for which the model has no parameter.
    #[error("{}: unexpected tensor `{tensor}`: the model has no parameter for it", path.display())]
    UnusedTensor {
        /// The directory.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
    },
    /// A tensor does not have the shape or dtype that its parameter needs.
    #[error("{}: tensor `{tensor}` must be {expected}, got {found}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What was expected.
        expected: String,
        /// The actual shape or dtype.
        found: String,
    },
    /// A parameter without an entry in the model's weight mapping.
    #[error("{model}: `hf_mapping` has no entry for parameter `{parameter}`")]
    Unmapped {
        /// The model.
        model: String,
        /// The parameter.
        parameter: String,
    },
    /// The model's source has errors; the string contains the rendered diagnostics.
    #[error("{0}")]
    Language(String),
    /// Token IDs, labels or lengths that the model does not accept.
    #[error("{0}")]
    Input(String),
    /// An `@assert` of the model is violated.
    #[error("`{path}`: {message} (an `@assert` of the model failed)")]
    Assertion {
        /// The tensor of the assertion.
        path: String,
        /// The message of the assertion.
        message: String,
    },
    /// The user stopped the run before there was anything to save.
    #[error("stopped before the first step: nothing was trained")]
    Stopped,
    /// The compiler or the backend failed.
    #[error(transparent)]
    Run(#[from] compiler::Error),
    /// A graph could not be built or transformed.
    #[error(transparent)]
    Graph(#[from] ir::Error),
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the error for a file that could not be read or written.
    pub(crate) fn file(path: &std::path::Path, reason: impl std::fmt::Display) -> Error {
        train::Error::file(path, reason).into()
    }
}

impl From<lang::ProgramError> for Error {
    fn from(error: lang::ProgramError) -> Error {
        Error::Language(error.to_string())
    }
}

impl From<train::Error> for Error {
    fn from(error: train::Error) -> Error {
        match error {
            train::Error::File(error) => Error::File(error),
            train::Error::Input(text) => Error::Input(text),
            train::Error::Run(error) => Error::Run(error),
            train::Error::Graph(error) => Error::Graph(error),
        }
    }
}
