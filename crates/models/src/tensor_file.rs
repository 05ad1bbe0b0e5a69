//! Safetensors files whose large tensors may be used where they are, as memory ([`cpu::Mapped`]). A file that another process cuts
//! off is an error, not a signal, either way.

use crate::error::{Error, Result};
use cpu::{HostBuffer, Mapped};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use train::tensor_file;

pub(crate) use tensor_file::write;

/// An open file.
pub(crate) struct TensorFile {
    file: tensor_file::TensorFile,
    /// The file as memory, once that was asked for.
    mapped: OnceLock<Option<Arc<Mapped>>>,
}

impl Deref for TensorFile {
    type Target = tensor_file::TensorFile;

    fn deref(&self) -> &tensor_file::TensorFile {
        &self.file
    }
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<TensorFile> {
        Ok(TensorFile { file: tensor_file::TensorFile::open(path)?, mapped: OnceLock::new() })
    }

    /// Bytes of the file as a buffer, where they are; none where that can't be.
    pub(crate) fn in_place(&self, from: usize, to: usize) -> Option<HostBuffer> {
        let (file, all) = self.file.whole();
        let mapped = self.mapped.get_or_init(|| Mapped::new(file, all));
        mapped.as_ref()?.part(from, to.checked_sub(from)?)
    }

    /// Nothing was missing of what was read in place.
    pub(crate) fn check_whole(&self) -> Result<()> {
        match self.mapped.get() {
            Some(Some(mapped)) if !mapped.is_whole() => {
                Err(Error::file(self.path(), "became shorter, or could not be read, while the model was in use"))
            }
            _ => Ok(()),
        }
    }
}
