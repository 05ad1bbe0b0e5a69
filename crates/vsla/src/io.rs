//! Saves and loads safetensors files of minimal representatives, with the logical shapes in the metadata.
//!
//! Any safetensors reader can read the files. For a tensor `x`, the metadata has `x.shape`, the logical shape, which may be
//! larger than the stored minimal representative, and `x.model`.

use crate::error::{Error, Result};
use crate::infer::ValueSignature;
use crate::op::Model;
use crate::tensor::Tensor;
use ir::DType;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Returns the bytes of a safetensors file with these tensors.
pub fn to_safetensors(tensors: &[(&str, &Tensor)]) -> Result<Vec<u8>> {
    let mut meta = Map::new();
    meta.insert("format".into(), json!("vsla"));
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, t) in tensors {
        if *name == "__metadata__" || header.contains_key(*name) {
            return Err(Error::invalid_arg(format!("the name {name:?} is taken")));
        }
        let least = t.shrink();
        let start = data.len();
        data.extend(least.to_bytes());
        let entry = json!({
            "dtype": dtype_name(t.dtype()),
            "shape": least.shape(),
            "data_offsets": [start, data.len()],
        });
        header.insert(name.to_string(), entry);
        let sizes: Vec<String> = t.shape().iter().map(usize::to_string).collect();
        meta.insert(format!("{name}.shape"), json!(sizes.join(",")));
        meta.insert(format!("{name}.model"), json!(format!("{:?}", t.model())));
    }
    header.insert("__metadata__".into(), Value::Object(meta));
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out.extend(data);
    Ok(out)
}

/// Reads a safetensors file, sorted by name. Tensors without our metadata have model A and their stored shape.
pub fn from_safetensors(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let bad = |text: &str| Error::invalid_arg(format!("not a safetensors file: {text}"));
    let (size, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| bad("it ends in its first 8 bytes"))?;
    let size = usize::try_from(u64::from_le_bytes(*size)).map_err(|_| bad("the header is too long"))?;
    if size > rest.len() {
        return Err(bad("the header is longer than the file"));
    }
    let (text, data) = rest.split_at(size);
    let header: Map<String, Value> = serde_json::from_slice(text).map_err(|e| bad(&e.to_string()))?;
    let meta = header.get("__metadata__").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut out = Vec::new();
    for (name, entry) in header.iter().filter(|(n, _)| *n != "__metadata__") {
        let missing = || bad(&format!("{name:?} has an unsupported dtype, no shape, or offsets outside the file"));
        let numbers = |key: &str| -> Option<Vec<usize>> {
            let list = entry.get(key)?.as_array()?;
            list.iter().map(|v| v.as_u64().and_then(|x| usize::try_from(x).ok())).collect()
        };
        let dtype = entry.get("dtype").and_then(Value::as_str).and_then(dtype_of).ok_or_else(missing)?;
        let (shape, at) = (numbers("shape").ok_or_else(missing)?, numbers("data_offsets").ok_or_else(missing)?);
        let range = match at[..] {
            [a, b] if a <= b => data.get(a..b).ok_or_else(missing)?,
            _ => return Err(missing()),
        };
        let text = |key: &str| meta.get(&format!("{name}.{key}")).and_then(Value::as_str);
        let model = match text("model") {
            Some("B") => Model::B,
            _ => Model::A,
        };
        crate::shape::check_size(name, &shape)?;
        let mut t = Tensor::from_bytes(ValueSignature { dtype, shape, model }, range)?;
        if let Some(logical) = text("shape") {
            let sizes: Option<Vec<usize>> = logical.split(',').map(|s| s.parse().ok()).collect();
            let sizes = sizes.ok_or_else(|| bad(&format!("{name}.shape is {logical:?}")))?;
            if sizes.len() != t.shape().len() || sizes.iter().zip(t.shape()).any(|(a, b)| a < b) {
                return Err(bad(&format!("{name}.shape {sizes:?} is less than the stored {:?}", t.shape())));
            }
            t.resize(&sizes)?;
        }
        out.push((name.clone(), t));
    }
    Ok(out)
}

/// Writes a safetensors file.
pub fn save(path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let path = path.as_ref();
    std::fs::write(path, to_safetensors(tensors)?).map_err(|e| Error::invalid_arg(format!("{}: {e}", path.display())))
}

/// Reads a safetensors file.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    from_safetensors(&std::fs::read(path).map_err(|e| Error::invalid_arg(format!("{}: {e}", path.display())))?)
}

const NAMES: [(DType, &str); 4] =
    [(DType::F32, "F32"), (DType::F64, "F64"), (DType::F16, "F16"), (DType::BF16, "BF16")];

fn dtype_name(d: DType) -> &'static str {
    NAMES.iter().find(|(x, _)| *x == d).map_or("F64", |(_, n)| n)
}

fn dtype_of(name: &str) -> Option<DType> {
    NAMES.iter().find(|(_, n)| *n == name).map(|(d, _)| *d)
}
