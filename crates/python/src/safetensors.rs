//! Tensors in safetensors files: written from where they lie, read into one block of memory that they share.

use crate::calls;
use crate::creation::tensor_from;
use crate::dtype::name;
use crate::memory::Elements;
use compiler::DeviceBuffer;
use cpu::HostBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensorloom::{Literal, SAFETENSORS_DTYPES, Tensor, Type};

type Metadata = Option<HashMap<String, String>>;

fn elements(py: Python<'_>, tensors: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Elements)>> {
    let one = |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let k: String =
            k.extract().map_err(|_| PyTypeError::new_err(format!("tensor names must be strings, got {k}")))?;
        Ok((k, Elements::of(py, &tensor_from(&v)?)?))
    };
    tensors.iter().map(one).collect()
}

fn views(all: &[(String, Elements)]) -> PyResult<Vec<(&str, TensorView<'_>)>> {
    let mut out = Vec::with_capacity(all.len());
    for (k, e) in all {
        let d = e.ty().dtype;
        let found = SAFETENSORS_DTYPES.iter().find(|(own, _)| *own == d);
        let (_, dtype) = found.ok_or_else(|| PyTypeError::new_err(format!("{k}: no file has {}", name(d))))?;
        let view = TensorView::new(*dtype, e.ty().shape.to_vec(), e.bytes());
        out.push((k.as_str(), view.map_err(|e| PyValueError::new_err(format!("{k}: {e}")))?));
    }
    Ok(out)
}

/// Writes a dict of tensors as a safetensors file, whole or not at all.
#[pyfunction]
#[pyo3(signature = (tensors, path, metadata=None))]
fn save_file(py: Python<'_>, tensors: &Bound<'_, PyDict>, path: PathBuf, metadata: Metadata) -> PyResult<()> {
    let all = elements(py, tensors)?;
    let views = views(&all)?;
    let written = py.detach(|| -> Result<(), String> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = Path::new(&partial);
        let done = safetensors::serialize_to_file(views, metadata, partial)
            .map_err(|e| e.to_string())
            .and_then(|()| std::fs::rename(partial, &path).map_err(|e| e.to_string()));
        if done.is_err() {
            // What is left of it is of no use, and there may be nothing.
            let _ = std::fs::remove_file(partial);
        }
        done
    });
    written.map_err(|e| pyo3::exceptions::PyOSError::new_err(format!("{}: {e}", path.display())))
}

/// A dict of tensors as the bytes of a safetensors file.
#[pyfunction]
#[pyo3(signature = (tensors, metadata=None))]
fn save(py: Python<'_>, tensors: &Bound<'_, PyDict>, metadata: Metadata) -> PyResult<Py<PyBytes>> {
    let all = elements(py, tensors)?;
    let bytes = safetensors::serialize(views(&all)?, metadata).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(PyBytes::new(py, &bytes).unbind())
}

/// Tensors of a block; each is a part of it, and keeps it.
fn parts(block: &Arc<HostBuffer>, bytes: &[u8], what: &str) -> PyResult<Vec<(String, Tensor)>> {
    let fault = |e: &dyn std::fmt::Display| PyValueError::new_err(format!("{what}: not a safetensors file: {e}"));
    let file = SafeTensors::deserialize(bytes).map_err(|e| fault(&e))?;
    let mut out = Vec::new();
    for (k, view) in file.tensors() {
        let found = SAFETENSORS_DTYPES.iter().find(|(_, theirs)| *theirs == view.dtype());
        let (d, _) = found
            .ok_or_else(|| PyTypeError::new_err(format!("{what}: {k} has the unsupported dtype {:?}", view.dtype())))?;
        let ty = Type::checked(*d, view.shape()).map_err(|e| fault(&e))?;
        let data = view.data();
        let start = data.as_ptr() as usize - bytes.as_ptr() as usize;
        let t = if data.is_empty() || !(data.as_ptr() as usize).is_multiple_of(d.size()) {
            let literal = Literal::from_bytes(ty, data).ok_or_else(|| fault(&"the data does not match its type"))?;
            tensorloom::engine().literal(&literal)
        } else {
            // SAFETY: tensors of a file don't overlap, and nothing else writes the block.
            let part = unsafe { HostBuffer::slice(block, start, data.len()) }.map_err(|e| fault(&e))?;
            tensorloom::engine().import_memory(&ty, Arc::new(part))
        };
        out.push((k, t));
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}

fn dict(py: Python<'_>, all: Vec<(String, Tensor)>) -> PyResult<Bound<'_, PyDict>> {
    let d = PyDict::new(py);
    for (k, t) in all {
        d.set_item(k, calls::tensor(py, t)?)?;
    }
    Ok(d)
}

/// The tensors of a safetensors file by name.
#[pyfunction]
fn load_file<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    use std::io::Read;
    let what = path.display().to_string();
    let read = py.detach(|| -> std::io::Result<Arc<HostBuffer>> {
        let mut file = std::fs::File::open(&path)?;
        let length = file.metadata()?.len() as usize;
        let block = HostBuffer::new(length).map_err(|e| std::io::Error::other(e.to_string()))?;
        // SAFETY: the block is new, so nothing else accesses it.
        file.read_exact(unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), length) })?;
        Ok(Arc::new(block))
    });
    let block = read.map_err(|e| {
        let text = format!("{what}: {e}");
        match e.kind() {
            std::io::ErrorKind::NotFound => pyo3::exceptions::PyFileNotFoundError::new_err(text),
            _ => pyo3::exceptions::PyOSError::new_err(text),
        }
    })?;
    // SAFETY: nothing writes to it any more.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), block.bytes()) };
    dict(py, parts(&block, bytes, &what)?)
}

/// The tensors of the bytes of a safetensors file by name.
#[pyfunction]
fn load<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let block = HostBuffer::new(data.len()).and_then(|b| b.write(0, data).map(|()| Arc::new(b)));
    let block = block.map_err(|e| PyValueError::new_err(e.to_string()))?;
    // SAFETY: nothing writes to it any more.
    let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), block.bytes()) };
    dict(py, parts(&block, bytes, "the bytes")?)
}

/// What stands beside the tensors of a file.
#[pyfunction]
fn metadata(path: PathBuf) -> PyResult<HashMap<String, String>> {
    use std::io::Read;
    let fault =
        |e: &dyn std::fmt::Display| PyValueError::new_err(format!("{}: not a safetensors file: {e}", path.display()));
    let os = |e: std::io::Error| pyo3::exceptions::PyOSError::new_err(format!("{}: {e}", path.display()));
    let mut file = std::fs::File::open(&path).map_err(os)?;
    let mut head = Vec::new();
    // The header alone is read: its length, then so many bytes.
    (&mut file).take(8).read_to_end(&mut head).map_err(os)?;
    let length = head.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| fault(&"it is too short"))?;
    if length > 100_000_000 {
        return Err(fault(&"its header is too long"));
    }
    (&mut file).take(length).read_to_end(&mut head).map_err(os)?;
    // Sizes of the data don't matter here, and it was not read.
    let json: serde_json::Value = serde_json::from_slice(&head[8..]).map_err(|e| fault(&e))?;
    let texts = json.get("__metadata__").and_then(|m| m.as_object()).into_iter().flatten();
    Ok(texts.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let own = PyModule::new(m.py(), "safetensors")?;
    own.add_function(wrap_pyfunction!(save_file, &own)?)?;
    own.add_function(wrap_pyfunction!(save, &own)?)?;
    own.add_function(wrap_pyfunction!(load_file, &own)?)?;
    own.add_function(wrap_pyfunction!(load, &own)?)?;
    own.add_function(wrap_pyfunction!(metadata, &own)?)?;
    m.add_submodule(&own)
}
