//! Safetensors files whose large tensors can be memory-mapped ([`cpu::MmapFile`]). If another process truncates the file, this is
//! an error, not a signal, in both cases.

use crate::error::{Error, Result};
use cpu::{HostBuffer, MmapFile};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use train::safetensors_file;

pub(crate) use safetensors_file::write;

/// An open file.
pub(crate) struct MmapTensorFile {
    file: safetensors_file::SafetensorsFile,
    /// The memory-mapped file, after the first use.
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

    /// A range of the file as a memory-mapped buffer; none if mapping is not possible.
    pub(crate) fn in_place(&self, from: usize, to: usize) -> Option<HostBuffer> {
        let (file, all) = self.file.data_section();
        let mapped = self.mapped.get_or_init(|| MmapFile::new(file, all));
        mapped.as_ref()?.part(from, to.checked_sub(from)?)
    }

    /// Checks that no mapped page was missing.
    pub(crate) fn check_in_place_reads(&self) -> Result<()> {
        match self.mapped.get() {
            Some(Some(mapped)) if !mapped.is_intact() => {
                Err(Error::file(self.path(), "the file was truncated or became unreadable while the model was in use"))
            }
            _ => Ok(()),
        }
    }
}
