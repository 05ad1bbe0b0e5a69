//! Writing a HuggingFace directory: the tensors under their names, in the dtypes they came in.

use crate::checkpoint::dtype_of;
use crate::companions::weights_in;
use crate::error::{Error, Result};
use crate::fresh::cut;
use crate::mapping::{Sources, exports};
use crate::model::{Model, Piece};
use crate::tensor_file;
use ir::DType;
use std::collections::HashMap;
use std::path::Path;
use train::NamedTensor;
use train::files;
use train::named_tensor::to_bytes;

/// What names of packed parameters' parts begin with.
pub(crate) const PACKED: &str = "packed.";

/// The file of weights, and that of a quantised model. It has another name so that other programs, which would take it for a whole
/// model and draw the rest at random, find no weights.
pub(crate) const FILE: &str = "model.safetensors";
pub(crate) const PACKED_FILE: &str = "tensorloom.safetensors";

/// Removes what an earlier model left under the other name.
fn remove_if_there(path: &Path) -> Result<()> {
    match path.is_file() {
        true => std::fs::remove_file(path).map_err(|e| Error::file(path, e)),
        false => Ok(()),
    }
}

impl Model {
    /// Writes `config.json` and `model.safetensors` into a directory, which is made if need be. What is packed is written wide.
    pub fn export(&self, dir: &Path) -> Result<()> {
        files::make_folder(dir)?;
        write_tensors(&dir.join(FILE), &self.wide_tensors(false)?)?;
        remove_if_there(&dir.join(PACKED_FILE))?;
        Ok(files::write(&dir.join("config.json"), format!("{:#}\n", self.config).as_bytes())?)
    }

    /// Writes the directory of a quantised model: what is packed stays so, under the names of the parameters, in
    /// `tensorloom.safetensors`. A model without packed parameters is exported.
    pub fn save_quantized(&self, dir: &Path) -> Result<()> {
        files::make_folder(dir)?;
        let mut tensors = self.wide_tensors(true)?;
        let mut list = serde_json::Map::new();
        for (i, param) in self.params.iter().enumerate() {
            let Some(packed) = self.stored_packed(i) else { continue };
            for (part, (ty, bytes)) in packed.types.iter().zip(&packed.parts).enumerate() {
                let (name, shape) = (format!("{PACKED}{}.{part}", param.path), ty.shape.to_vec());
                tensors.push(NamedTensor { name, shape, dtype: ty.dtype, bytes: bytes.clone() });
            }
            let (format, group) = (packed.packing.format.name(), packed.packing.group);
            list.insert(param.path.clone(), serde_json::json!({ "format": format, "group": group }));
        }
        if list.is_empty() {
            return self.export(dir);
        }
        if let Some(name) = weights_in(dir).iter().find(|name| ![FILE, PACKED_FILE].contains(&name.as_str())) {
            let what = "weights of another model, which other programs would load: choose another directory";
            return Err(Error::file(&dir.join(name), what));
        }
        let list = serde_json::Value::Object(list).to_string();
        let texts = HashMap::from([("format".to_string(), "pt".to_string()), ("packed".to_string(), list)]);
        tensor_file::write(&dir.join(PACKED_FILE), &tensors, texts)?;
        remove_if_there(&dir.join(FILE))?;
        let mut config = self.config.clone();
        if let Some(fields) = config.as_object_mut() {
            // transformers skips a method that it doesn't know with a warning; it has to miss the file of weights, too.
            fields.insert("quantization_config".into(), serde_json::json!({ "quant_method": "tensorloom" }));
        }
        Ok(files::write(&dir.join("config.json"), format!("{config:#}\n").as_bytes())?)
    }

    /// The tensors of a HuggingFace directory; without those of packed parameters, if so asked.
    pub(crate) fn wide_tensors(&self, without_packed: bool) -> Result<Vec<NamedTensor>> {
        let mut tensors: Vec<NamedTensor> = Vec::new();
        let exports = exports(&self.architecture, &self.params)?;
        for (i, (param, pieces)) in self.params.iter().zip(&self.pieces).enumerate() {
            if without_packed && self.stored_packed(i).is_some() {
                continue;
            }
            // `hf_export` has the last word; what it does not mention goes back where it came from.
            let written = exports[i].as_ref().map(|sources| self.taken_apart(i, sources)).transpose()?;
            let pieces = written.as_ref().unwrap_or(pieces);
            let values = if self.dtype == DType::F32 { self.values(i)? } else { self.rounded(i)? };
            for piece in pieces {
                // Formats that are only read come back as f32.
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
                    bytes: to_bytes(&piece.take(&param.ty.shape, &values), dtype),
                });
            }
        }
        Ok(tensors)
    }

    /// The pieces that `hf_export` takes a parameter apart into, in the format that it came in.
    fn taken_apart(&self, param: usize, sources: &Sources) -> Result<Vec<Piece>> {
        let stored = self.pieces[param].first().map(|piece| piece.stored);
        let mut pieces = cut(&self.architecture, &self.params[param], sources)?;
        pieces.iter_mut().for_each(|piece| piece.stored = stored.unwrap_or(piece.stored));
        Ok(pieces)
    }
}

/// Writes tensors as one safetensors file, whole or not at all.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor]) -> Result<()> {
    // transformers asks for the format before it reads.
    Ok(tensor_file::write(path, tensors, HashMap::from([("format".to_string(), "pt".to_string())]))?)
}

/// The tensors of a safetensors file.
pub fn read_tensors(path: &Path) -> Result<Vec<NamedTensor>> {
    let file = tensor_file::TensorFile::open(path)?;
    let mut found = Vec::new();
    for name in file.names() {
        let Some(info) = file.info(&name) else { continue };
        let Some(dtype) = dtype_of(info.dtype) else {
            return Err(Error::file(path, format!("`{name}` is of a format that is not known: {:?}", info.dtype)));
        };
        found.push(NamedTensor { shape: info.shape.clone(), dtype, bytes: file.bytes(info)?, name });
    }
    Ok(found)
}
