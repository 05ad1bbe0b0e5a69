//! Writing a HuggingFace directory: the tensors under their names, in the dtypes they came in.

use crate::checkpoint::{dtype_of, to_bytes};
use crate::error::Result;
use crate::evaluate::NamedTensor;
use crate::files;
use crate::model::Model;
use crate::tensor_file;
use ir::DType;
use std::collections::HashMap;
use std::path::Path;

impl Model {
    /// Writes `config.json` and `model.safetensors` into a directory, which is made if need be.
    pub fn export(&self, dir: &Path) -> Result<()> {
        files::make_folder(dir)?;
        let mut tensors = Vec::new();
        for (i, (param, pieces)) in self.params.iter().zip(&self.pieces).enumerate() {
            let values = if self.dtype == DType::F32 { self.values(i)? } else { self.rounded(i)? };
            for piece in pieces {
                // Formats that are only read come back as f32.
                let dtype = dtype_of(piece.stored).unwrap_or(DType::F32);
                tensors.push(NamedTensor {
                    name: piece.tensor.clone(),
                    shape: piece.shape.clone(),
                    dtype,
                    bytes: to_bytes(&piece.take(&param.ty.shape, &values), dtype),
                });
            }
        }
        write_tensors(&dir.join("model.safetensors"), &tensors)?;
        files::write(&dir.join("config.json"), format!("{:#}\n", self.config).as_bytes())
    }
}

/// Writes tensors as one safetensors file, whole or not at all.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor]) -> Result<()> {
    // transformers asks for the format before it reads.
    tensor_file::write(path, tensors, HashMap::from([("format".to_string(), "pt".to_string())]))
}

/// What stands beside a model's weights and is no part of them.
const COMPANIONS: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
];

/// Copies the tokenizer and what else belongs to a model from one directory to another.
pub fn copy_companions(from: &Path, to: &Path) -> Result<()> {
    for name in COMPANIONS {
        if from.join(name).is_file() {
            files::copy(&from.join(name), &to.join(name))?;
        }
    }
    Ok(())
}
