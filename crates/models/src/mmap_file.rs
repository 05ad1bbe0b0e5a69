//! Safetensors files whose large tensors may be used where they are, as memory ([`cpu::Mapped`]). A file that another process cuts
//! off is an error, not a signal, either way.

use crate::error::{Error, Result};
use cpu::{HostBuffer, MmapFile};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use training::safetensors_file;

pub(crate) use safetensors_file::write;

/// An open file.
pub(crate) struct MmapTensorFile {
    file: safetensors_file::SafetensorsFile,
    /// The file as memory, once that was asked for.
    mapped: OnceLock<Option<Arc<MmapFile>>>,
}

impl Deref for MmapTensorFile {
    type Target = safetensors_file::SafetensorsFile;

    fn deref(&self) -> &safetensors_file::SafetensorsFile {
        &self.file
    }
}

impl MmapTensorFile {
    pub(crate) fn open(path: &Path) -> Result<MmapTensorFile> {
        Ok(MmapTensorFile { file: safetensors_file::SafetensorsFile::open(path)?, mapped: OnceLock::new() })
    }

    /// Bytes of the file as a buffer, where they are; none where that can't be.
    pub(crate) fn in_place(&self, from: usize, to: usize) -> Option<HostBuffer> {
        let (file, all) = self.file.data_section();
        let mapped = self.mapped.get_or_init(|| MmapFile::new(file, all));
        mapped.as_ref()?.part(from, to.checked_sub(from)?)
    }

    /// Nothing was missing of what was read in place.
    pub(crate) fn check_in_place_reads(&self) -> Result<()> {
        match self.mapped.get() {
            Some(Some(mapped)) if !mapped.is_intact() => {
                Err(Error::file(self.path(), "became shorter, or could not be read, while the model was in use"))
            }
            _ => Ok(()),
        }
    }
}
