//! Writing a HuggingFace directory: the tensors under their names, in the dtypes they came in.

use crate::checkpoint::{dtype_of, stored_as, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::model::Model;
use ir::DType;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::path::Path;

impl Model {
    /// Writes `config.json` and `model.safetensors` into a directory, which is made if need be.
    pub fn export(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| fault(dir, e))?;
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
        write_file(&dir.join("config.json"), format!("{:#}\n", self.config).as_bytes())
    }
}

/// Writes tensors as one safetensors file, whole or not at all: under another name first, then moved.
pub fn write_tensors(path: &Path, tensors: &[NamedTensor]) -> Result<()> {
    let mut views = Vec::new();
    for tensor in tensors {
        let view = TensorView::new(stored_as(tensor.dtype), tensor.shape.clone(), &tensor.bytes);
        views.push((tensor.name.clone(), view.map_err(|e| fault(path, format!("{}: {e:?}", tensor.name)))?));
    }
    // transformers asks for the format before it reads.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    let partial = partial(path);
    safetensors::serialize_to_file(views, Some(metadata), &partial).map_err(|e| fault(&partial, format!("{e:?}")))?;
    move_into_place(&partial, path)
}

/// Writes a file, whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = partial(path);
    std::fs::write(&partial, bytes).map_err(|e| {
        let _ = std::fs::remove_file(&partial);
        fault(path, e)
    })?;
    move_into_place(&partial, path)
}

/// The name under which a file is written before it has all its bytes.
pub(crate) fn partial(path: &Path) -> std::path::PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    path.with_file_name(name)
}

/// Gives a finished file its name once its bytes are on disk, then has the new name itself written.
pub(crate) fn move_into_place(partial: &Path, path: &Path) -> Result<()> {
    let synced = std::fs::File::open(partial).and_then(|file| file.sync_all());
    synced.and_then(|()| std::fs::rename(partial, path)).map_err(|e| {
        let _ = std::fs::remove_file(partial);
        fault(path, e)
    })?;
    // Folders can't be opened everywhere; where they can, the new name must survive a crash too.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

fn fault(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::File { path: path.to_path_buf(), reason: reason.to_string() }
}
