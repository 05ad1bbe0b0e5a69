//! Safetensors files: written atomically, read tensor by tensor.
//!
//! The header is parsed once. The file is read, not memory-mapped: if another process truncates it, this is an error, not a signal.

use crate::error::{Error, Result};
use crate::files::{self, AtomicFile};
use crate::named_tensor::{NamedTensor, to_safetensors_dtype};
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a header: the limit of the safetensors library.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Writes tensors and metadata as one file.
pub fn write(path: &Path, tensors: &[NamedTensor], texts: HashMap<String, String>) -> Result<()> {
    write_verified(path, tensors, texts, |_| Ok(()))
}

/// [`write()`], but the file is renamed to its final name only if the check `good` of the written file succeeds.
pub fn write_verified(
    path: &Path,
    tensors: &[NamedTensor],
    texts: HashMap<String, String>,
    good: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let mut order: Vec<&NamedTensor> = tensors.iter().collect();
    // Elements of the widest dtypes come first, so that all are aligned.
    order.sort_by(|a, b| to_safetensors_dtype(b.dtype).cmp(&to_safetensors_dtype(a.dtype)).then(a.name.cmp(&b.name)));
    let mut infos = Vec::new();
    let mut offset = 0;
    for tensor in &order {
        let end = offset + tensor.bytes.len();
        let info = TensorInfo {
            dtype: to_safetensors_dtype(tensor.dtype),
            shape: tensor.shape.clone(),
            data_offsets: (offset, end),
        };
        infos.push((tensor.name.clone(), info));
        offset = end;
    }
    let fault = |e: &dyn std::fmt::Display| Error::file(path, e);
    let header = Metadata::new(Some(texts), infos).map_err(|e| fault(&e))?;
    let mut header = serde_json::to_vec(&header).map_err(|e| fault(&e))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::with_capacity(1 << 20, AtomicFile::create(path)?);
    let mut add = |bytes: &[u8]| file.write_all(bytes).map_err(|e| fault(&e));
    add(&(header.len() as u64).to_le_bytes())?;
    add(&header)?;
    for tensor in order {
        add(&tensor.bytes)?;
    }
    // Dropping the buffer must not retry a write that failed.
    let (file, rest) = file.into_parts();
    let mut file = file;
    match rest {
        Ok(rest) => file.write_bytes(&rest)?,
        Err(_) => return Err(fault(&"writing was interrupted")),
    }
    file.commit_if(good)
}

/// An open file.
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// The offset of the data.
    start: u64,
    header: Metadata,
}

impl SafetensorsFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<SafetensorsFile> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let fault = |what: &dyn std::fmt::Display| Error::file(path, format!("not a safetensors file: {what}"));
        let mut count = [0; 8];
        if length < 8 {
            return Err(fault(&format!("the file has only {length} bytes")));
        }
        files::read_at(&file, path, 0, &mut count)?;
        let count = u64::from_le_bytes(count);
        if count > MAX_HEADER_BYTES || count > length - 8 {
            return Err(fault(&format!("a header of {count} bytes in a file of {length}")));
        }
        let mut text = files::checked_with_capacity(path, count)?;
        text.resize(count as usize, 0);
        files::read_at(&file, path, 8, &mut text)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|e| fault(&e))?;
        let (data, start) = (header.data_len() as u64, 8 + count);
        if Some(length) != data.checked_add(start) {
            return Err(fault(&format!(
                "its header declares {data} bytes of data, but the file has {}",
                length - start
            )));
        }
        Ok(SafetensorsFile { path: path.to_path_buf(), file, start, header })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of all tensors, in the order of the file.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Returns a metadata value of the header by its name.
    pub fn metadata_value(&self, name: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(name).map(String::as_str)
    }

    /// The shape and dtype of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// The bytes of a tensor.
    pub fn bytes(&self, info: &TensorInfo) -> Result<Vec<u8>> {
        let (from, to) = info.data_offsets;
        let mut bytes = files::checked_with_capacity(&self.path, (to - from) as u64)?;
        bytes.resize(to - from, 0);
        files::read_at(&self.file, &self.path, self.start + from as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a tensor, starting at an offset.
    pub fn read(&self, info: &TensorInfo, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (from, to) = info.data_offsets;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > to - from) {
            return Err(Error::file(&self.path, "a tensor is shorter than its shape"));
        }
        files::read_at(&self.file, &self.path, self.start + (from + offset) as u64, bytes)
    }

    /// The byte range of a tensor in the file.
    pub fn byte_range(&self, info: &TensorInfo) -> (usize, usize) {
        let start = self.start as usize;
        (start + info.data_offsets.0, start + info.data_offsets.1)
    }

    /// The file, and its length up to the end of the tensors' data.
    pub fn data_section(&self) -> (&File, usize) {
        (&self.file, self.start as usize + self.header.data_len())
    }

    /// Calls `f` with the bytes of a tensor, block by block.
    pub fn for_each_block(&self, info: &TensorInfo, mut f: impl FnMut(&[u8])) -> Result<()> {
        let (mut from, to) = info.data_offsets;
        let mut block = vec![0; (to - from).min(1 << 20)];
        while from < to {
            let n = block.len().min(to - from);
            files::read_at(&self.file, &self.path, self.start + from as u64, &mut block[..n])?;
            f(&block[..n]);
            from += n;
        }
        Ok(())
    }
}
