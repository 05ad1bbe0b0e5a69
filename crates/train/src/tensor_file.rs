//! Safetensors files: written whole or not at all, read tensor by tensor.
//!
//! The header is parsed once. Bytes are read, so a file that another process cuts off is an error, not a signal.

use crate::error::{Error, Result};
use crate::files::{self, NewFile};
use crate::named_tensor::{NamedTensor, stored_as};
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The longest header that is read: that of the safetensors library.
const HEADER: u64 = 100_000_000;

/// Writes tensors and texts as one file.
pub fn write(path: &Path, tensors: &[NamedTensor], texts: HashMap<String, String>) -> Result<()> {
    write_if(path, tensors, texts, |_| Ok(()))
}

/// The same; the file gets its name only if `good` says so of what was written.
pub fn write_if(
    path: &Path,
    tensors: &[NamedTensor],
    texts: HashMap<String, String>,
    good: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let mut order: Vec<&NamedTensor> = tensors.iter().collect();
    // Wide elements first, so that all are aligned.
    order.sort_by(|a, b| stored_as(b.dtype).cmp(&stored_as(a.dtype)).then(a.name.cmp(&b.name)));
    let mut infos = Vec::new();
    let mut offset = 0;
    for tensor in &order {
        let end = offset + tensor.bytes.len();
        let info =
            TensorInfo { dtype: stored_as(tensor.dtype), shape: tensor.shape.clone(), data_offsets: (offset, end) };
        infos.push((tensor.name.clone(), info));
        offset = end;
    }
    let fault = |e: &dyn std::fmt::Display| Error::file(path, e);
    let header = Metadata::new(Some(texts), infos).map_err(|e| fault(&e))?;
    let mut header = serde_json::to_vec(&header).map_err(|e| fault(&e))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::with_capacity(1 << 20, NewFile::create(path)?);
    let mut add = |bytes: &[u8]| file.write_all(bytes).map_err(|e| fault(&e));
    add(&(header.len() as u64).to_le_bytes())?;
    add(&header)?;
    for tensor in order {
        add(&tensor.bytes)?;
    }
    // What could not be written must not be tried again when the buffer goes.
    let (file, rest) = file.into_parts();
    let mut file = file;
    match rest {
        Ok(rest) => file.add(&rest)?,
        Err(_) => return Err(fault(&"a write was interrupted")),
    }
    file.finish_if(good)
}

/// An open file.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Where the data begins.
    start: u64,
    header: Metadata,
}

impl TensorFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<TensorFile> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let fault = |what: &dyn std::fmt::Display| Error::file(path, format!("not safetensors: {what}"));
        let mut count = [0; 8];
        if length < 8 {
            return Err(fault(&format!("{length} bytes")));
        }
        files::read_at(&file, path, 0, &mut count)?;
        let count = u64::from_le_bytes(count);
        if count > HEADER || count > length - 8 {
            return Err(fault(&format!("a header of {count} bytes in a file of {length}")));
        }
        let mut text = files::room(path, count)?;
        text.resize(count as usize, 0);
        files::read_at(&file, path, 8, &mut text)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|e| fault(&e))?;
        let (data, start) = (header.data_len() as u64, 8 + count);
        if Some(length) != data.checked_add(start) {
            return Err(fault(&format!("its header speaks of {data} bytes, and {} are there", length - start)));
        }
        Ok(TensorFile { path: path.to_path_buf(), file, start, header })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of all tensors, as they stand in the file.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Text of the header by its name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(name).map(String::as_str)
    }

    /// Shape and dtype of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// The bytes of a tensor.
    pub fn bytes(&self, info: &TensorInfo) -> Result<Vec<u8>> {
        let (from, to) = info.data_offsets;
        let mut bytes = files::room(&self.path, (to - from) as u64)?;
        bytes.resize(to - from, 0);
        files::read_at(&self.file, &self.path, self.start + from as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Some bytes of a tensor, from an offset on.
    pub fn read(&self, info: &TensorInfo, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (from, to) = info.data_offsets;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > to - from) {
            return Err(Error::file(&self.path, "a tensor is shorter than its shape says"));
        }
        files::read_at(&self.file, &self.path, self.start + (from + offset) as u64, bytes)
    }

    /// Where the bytes of a tensor begin and end in the file.
    pub fn place(&self, info: &TensorInfo) -> (usize, usize) {
        let start = self.start as usize;
        (start + info.data_offsets.0, start + info.data_offsets.1)
    }

    /// The file, of which so many bytes are the tensors' and what stands before them.
    pub fn whole(&self) -> (&File, usize) {
        (&self.file, self.start as usize + self.header.data_len())
    }

    /// Shows all bytes of a tensor, block by block.
    pub fn scan(&self, info: &TensorInfo, mut f: impl FnMut(&[u8])) -> Result<()> {
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
