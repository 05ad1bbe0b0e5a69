//! Errors, with the details that are needed to fix them.

use std::path::{Path, PathBuf};

/// A file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An input or a setting is invalid for training.
    #[error("{0}")]
    Input(String),
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
    pub fn file(path: &Path, reason: impl std::fmt::Display) -> Error {
        Error::File(FileError { path: path.to_path_buf(), reason: reason.to_string() })
    }
}
