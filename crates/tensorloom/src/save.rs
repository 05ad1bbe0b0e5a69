//! Tensors in safetensors files.

use crate::nn::StateDict;
use crate::{DType, Error, Literal, Result, Type, record};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// Dtypes that safetensors files and tensors have.
pub const DTYPES: &[(DType, Dtype)] = &[
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::U16, Dtype::U16),
    (DType::I16, Dtype::I16),
    (DType::U32, Dtype::U32),
    (DType::I32, Dtype::I32),
    (DType::U64, Dtype::U64),
    (DType::I64, Dtype::I64),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

#[track_caller]
fn fault(op: &'static str, path: &Path, why: impl std::fmt::Display) -> Error {
    record::error(op, format!("{}: {why}", path.display()))
}

/// Writes values by name as a safetensors file, whole or not at all: under another name first, then moved.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let path = std::env::temp_dir().join(format!("save-{}.safetensors", std::process::id()));
/// let model = nn::Linear::new(3, 2);
/// model.save(&path)?; // or tensorloom::save(&path, &model.state_dict()?)
/// let other = nn::Linear::new(3, 2);
/// other.load(&path)?;
/// assert_eq!(other.weight.to_vec::<f32>()?, model.weight.to_vec::<f32>()?);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn save(path: impl AsRef<Path>, values: &StateDict) -> Result<()> {
    let _here = record::here();
    let path = path.as_ref();
    let mut views = Vec::with_capacity(values.len());
    for (name, value) in values {
        let ty = value.ty();
        let found = DTYPES.iter().find(|(d, _)| *d == ty.dtype);
        let (_, dtype) = found.ok_or_else(|| fault("save", path, format!("{name}: no file has {}", ty.dtype)))?;
        let view = TensorView::new(*dtype, ty.shape.to_vec(), value.bytes());
        views.push((name.as_str(), view.map_err(|e| fault("save", path, format!("{name}: {e}")))?));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = Path::new(&partial);
    let written = safetensors::serialize_to_file(views, None, partial)
        .map_err(|e| fault("save", path, e))
        .and_then(|()| std::fs::File::open(partial).and_then(|f| f.sync_all()).map_err(|e| fault("save", path, e)))
        .and_then(|()| std::fs::rename(partial, path).map_err(|e| fault("save", path, e)));
    if written.is_err() {
        // What is left of it is of no use, and there may be nothing.
        let _ = std::fs::remove_file(partial);
    }
    written
}

/// Reads the values of a safetensors file by name.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let path = std::env::temp_dir().join(format!("load-{}.safetensors", std::process::id()));
/// nn::Linear::new(3, 2).save(&path)?;
/// let values = tensorloom::load(&path)?;
/// assert_eq!(values["weight"].ty().shape[..], [2, 3]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    let _here = record::here();
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|e| fault("load", path, e))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| fault("load", path, format!("not a safetensors file: {e}")))?;
    let mut all = StateDict::new();
    for (name, view) in file.iter() {
        let found = DTYPES.iter().find(|(_, d)| *d == view.dtype());
        let (dtype, _) = found.ok_or_else(|| fault("load", path, format!("{name} has dtype {:?}", view.dtype())))?;
        let ty = Type::checked(*dtype, view.shape()).map_err(|p| fault("load", path, format!("{name}: {p}")))?;
        let value = Literal::from_bytes(ty, view.data());
        let value = value.ok_or_else(|| fault("load", path, format!("{name} has too few or too many bytes")))?;
        all.insert(name.to_string(), value);
    }
    Ok(all)
}
