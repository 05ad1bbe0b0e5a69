//! What can go wrong, with what a person needs to mend it.

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
        /// `config.json`.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that a parameter is made of is not in the checkpoint.
    #[error("{}: no tensor `{tensor}`, which parameter `{parameter}` needs with shape {expected:?}", path.display())]
    MissingTensor {
        /// The file or directory searched.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// The parameter that needs it.
        parameter: String,
        /// Shape of that parameter.
        expected: Vec<usize>,
    },
    /// A tensor of the checkpoint that the model has no parameter for.
    #[error("{}: tensor `{tensor}` belongs to no parameter of the model", path.display())]
    UnusedTensor {
        /// The directory.
        path: PathBuf,
        /// Its name.
        tensor: String,
    },
    /// A tensor does not have the shape or dtype that its parameter needs.
    #[error("{}: tensor `{tensor}` should be {expected}, found {found}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What was expected.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A parameter that the model's mapping does not mention.
    #[error("{model}: `hf_mapping` says nothing about parameter `{parameter}`")]
    Unmapped {
        /// The model.
        model: String,
        /// The parameter.
        parameter: String,
    },
    /// The model's file has mistakes; the text is drawn for people.
    #[error("{0}")]
    Language(String),
    /// Ids, labels or lengths that the model cannot take.
    #[error("{0}")]
    Input(String),
    /// An `@assert` of the model does not hold.
    #[error("`{path}`: {message} (an `@assert` of the model does not hold)")]
    Assertion {
        /// The tensor that it stands on.
        path: String,
        /// What it says.
        message: String,
    },
    /// A person asked to stop before there was anything to save.
    #[error("stopped before the first step: nothing was trained")]
    Stopped,
    /// The compiler or the backend failed.
    #[error(transparent)]
    Run(#[from] compiler::Error),
    /// A graph could not be built or transformed.
    #[error(transparent)]
    Graph(#[from] ir::Error),
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A file that could not be read or written.
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
