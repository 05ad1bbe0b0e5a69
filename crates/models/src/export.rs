//! Writes a HuggingFace directory: the tensors under their names, in their original dtypes.

use crate::checkpoint::dtype_of;
use crate::companions::weights_in;
use crate::error::{Error, Result};
use crate::init::split_sources;
use crate::mapping::{ParamSources, exports};
use crate::mmap_file;
use crate::model::{CheckpointSlice, Model};
use ir::DType;
use std::collections::HashMap;
use std::path::Path;
use train::NamedTensor;
use train::files;
use train::named_tensor::to_bytes;

/// The prefix of the names of quantized parameters' parts.
pub(crate) const PACKED_PREFIX: &str = "packed.";

/// The weights file, and that of a quantized model. The latter has another name so that other programs, which would take it for a
/// complete model and initialize missing weights at random, find no weights.
pub(crate) const WEIGHTS_FILE: &str = "model.safetensors";
pub(crate) const QUANTIZED_WEIGHTS_FILE: &str = "tensorloom.safetensors";

/// Removes a file that an earlier model left under the other name.
fn remove_if_there(path: &Path) -> Result<()> {
    match path.is_file() {
        true => std::fs::remove_file(path).map_err(|e| Error::file(path, e)),
        false => Ok(()),
    }
}

impl Model {
    /// Writes `config.json` and `model.safetensors` into a directory, which is created if necessary. Quantized weights are dequantized.
    pub fn export(&self, dir: &Path) -> Result<()> {
        files::create_dir_all(dir)?;
        write_tensors(&dir.join(WEIGHTS_FILE), &self.dequantized_tensors(false)?)?;
        remove_if_there(&dir.join(QUANTIZED_WEIGHTS_FILE))?;
        Ok(files::write(&dir.join("config.json"), format!("{:#}\n", self.config).as_bytes())?)
    }

    /// Writes the directory of a quantized model: quantized weights are written as they are, under the names of the parameters,
    /// in `tensorloom.safetensors`. A model without quantized weights is exported.
    pub fn save_quantized(&self, dir: &Path) -> Result<()> {
        files::create_dir_all(dir)?;
        let mut tensors = self.dequantized_tensors(true)?;
        let mut list = serde_json::Map::new();
        for (i, param) in self.params.iter().enumerate() {
            let Some(packed) = self.stored_packed(i) else { continue };
            for (part, (ty, bytes)) in packed.types.iter().zip(&packed.parts).enumerate() {
                let (name, shape) = (format!("{PACKED_PREFIX}{}.{part}", param.path), ty.shape.to_vec());
                tensors.push(NamedTensor { name, shape, dtype: ty.dtype, bytes: bytes.clone() });
            }
            let (format, group) = (packed.packing.format.name(), packed.packing.group);
            list.insert(param.path.clone(), serde_json::json!({ "format": format, "group": group }));
        }
        if list.is_empty() {
            return self.export(dir);
        }
        if let Some(name) =
            weights_in(dir).iter().find(|name| ![WEIGHTS_FILE, QUANTIZED_WEIGHTS_FILE].contains(&name.as_str()))
        {
            let what =
                "the directory has weights of another model, which other programs would load: choose another directory";
            return Err(Error::file(&dir.join(name), what));
        }
        let list = serde_json::Value::Object(list).to_string();
        let texts = HashMap::from([("format".to_string(), "pt".to_string()), ("packed".to_string(), list)]);
        mmap_file::write(&dir.join(QUANTIZED_WEIGHTS_FILE), &tensors, texts)?;
        remove_if_there(&dir.join(WEIGHTS_FILE))?;
        let mut config = self.config.clone();
        if let Some(fields) = config.as_object_mut() {
            // transformers ignores an unknown method with a warning; it then fails because the weights file is missing.
            fields.insert("quantization_config".into(), serde_json::json!({ "quant_method": "tensorloom" }));
        }
        Ok(files::write(&dir.join("config.json"), format!("{config:#}\n").as_bytes())?)
    }

    /// The tensors of a HuggingFace directory; optionally without those of quantized parameters.
    pub(crate) fn dequantized_tensors(&self, without_packed: bool) -> Result<Vec<NamedTensor>> {
        let mut tensors: Vec<NamedTensor> = Vec::new();
        let exports = exports(&self.architecture, &self.params)?;
        for (i, (param, pieces)) in self.params.iter().zip(&self.pieces).enumerate() {
            if without_packed && self.stored_packed(i).is_some() {
                continue;
            }
            // `hf_export` takes precedence; other tensors are written under their original names.
            let written = exports[i].as_ref().map(|sources| self.split_for_export(i, sources)).transpose()?;
            let pieces = written.as_ref().unwrap_or(pieces);
            let values = if self.dtype == DType::F32 { self.values(i)? } else { self.rounded(i)? };
            for piece in pieces {
                // Formats without a writer are written as f32.
                let dtype = dtype_of(piece.stored).unwrap_or(DType::F32);
                if tensors.iter().any(|tensor| tensor.name == piece.tensor) {
                    let (tensor, path) = (&piece.tensor, &param.path);
                    return Err(Error::Input(format!(
                        "`hf_export` writes `{tensor}` twice, the second time for `{path}`"
                    )));
                }
                tensors.push(NamedTensor {
                    name: piece.tensor.clone(),
                    shape: piece.shape.clone(),
                    dtype,
                    bytes: to_bytes(&piece.read_from(&param.ty.shape, &values), dtype),
                });
            }
        }
        Ok(tensors)
    }

    /// The pieces into which `hf_export` splits a parameter, in the original format.
    fn split_for_export(&self, param: usize, sources: &ParamSources) -> Result<Vec<CheckpointSlice>> {
        let stored = self.pieces[param].first().map(|piece| piece.stored);
        let mut pieces = split_sources(&self.architecture, &self.params[param], sources)?;
        pieces.iter_mut().for_each(|piece| piece.stored = stored.unwrap_or(piece.stored));
        Ok(pieces)
    }
}

/// Writes tensors as one safetensors file, atomically.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor]) -> Result<()> {
    // transformers requires this metadata.
    Ok(mmap_file::write(path, tensors, HashMap::from([("format".to_string(), "pt".to_string())]))?)
}

/// Reads the tensors of a safetensors file.
pub fn read_tensors(path: &Path) -> Result<Vec<NamedTensor>> {
    let file = mmap_file::MmapTensorFile::open(path)?;
    let mut found = Vec::new();
    for name in file.names() {
        let Some(info) = file.info(&name) else { continue };
        let Some(dtype) = dtype_of(info.dtype) else {
            return Err(Error::file(path, format!("`{name}` has an unknown format: {:?}", info.dtype)));
        };
        found.push(NamedTensor { shape: info.shape.clone(), dtype, bytes: file.bytes(info)?, name });
    }
    Ok(found)
}
