//! The tensors of a directory: one safetensors file, or shards with an index.

use crate::error::{Error, Result};
use crate::export::{PACKED_PREFIX, QUANTIZED_WEIGHTS_FILE, WEIGHTS_FILE};
use crate::mmap_file::MmapTensorFile;
use crate::quantized_weight::QuantizedWeight;
use ir::composites::quantized::{QuantFormat, QuantScheme};
use ir::{DType, Scalar, Type};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use train::files;
use train::named_tensor::from_bytes;

/// The open files of a checkpoint.
pub struct Checkpoint {
    dir: PathBuf,
    shards: Vec<MmapTensorFile>,
    /// The shard of each tensor.
    shard_of: BTreeMap<String, usize>,
}

/// A tensor as it is stored.
pub(crate) struct StoredTensor<'a> {
    pub(crate) path: &'a Path,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    file: &'a MmapTensorFile,
    info: &'a TensorInfo,
}

impl Checkpoint {
    /// Opens `model.safetensors`, `tensorloom.safetensors` of a quantized model, or the shards listed in
    /// `model.safetensors.index.json`.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        let single =
            [WEIGHTS_FILE, QUANTIZED_WEIGHTS_FILE].map(|name| dir.join(name)).into_iter().find(|path| path.exists());
        let index = dir.join("model.safetensors.index.json");
        let paths: Vec<PathBuf> = if let Some(single) = single {
            vec![single]
        } else if index.exists() {
            shard_names(&index)?.into_iter().map(|name| dir.join(name)).collect()
        } else {
            return Err(file_error(dir, "neither model.safetensors nor model.safetensors.index.json was found"));
        };
        Checkpoint::open_all(dir, paths)
    }

    /// Opens one safetensors file.
    pub fn open_file(path: &Path) -> Result<Checkpoint> {
        Checkpoint::open_all(path, vec![path.to_path_buf()])
    }

    fn open_all(dir: &Path, paths: Vec<PathBuf>) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint { dir: dir.to_path_buf(), shards: Vec::new(), shard_of: BTreeMap::new() };
        for path in paths {
            let (shard, file) = (checkpoint.shards.len(), MmapTensorFile::open(&path)?);
            checkpoint.shard_of.extend(file.names().into_iter().map(|name| (name, shard)));
            checkpoint.shards.push(file);
        }
        Ok(checkpoint)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shard_of.keys().map(String::as_str)
    }

    /// Returns a tensor by name. Its elements are read on request.
    pub(crate) fn get(&self, name: &str) -> Option<StoredTensor<'_>> {
        let file = &self.shards[*self.shard_of.get(name)?];
        let info = file.info(name)?;
        Some(StoredTensor { path: file.path(), shape: info.shape.clone(), dtype: info.dtype, file, info })
    }

    /// Returns a tensor that existed when the model was loaded.
    pub(crate) fn expect(&self, name: &str) -> Result<StoredTensor<'_>> {
        self.get(name).ok_or_else(|| file_error(&self.dir, format!("the tensor `{name}` is missing")))
    }

    /// Checks that no in-place read of the files failed.
    pub(crate) fn check_in_place_reads(&self) -> Result<()> {
        self.shards.iter().try_for_each(MmapTensorFile::check_in_place_reads)
    }

    /// Reads every byte once; returns the number of tensors. Elements must not be NaN.
    pub fn verify(&self) -> Result<usize> {
        for name in self.shard_of.keys() {
            let Some(stored) = self.get(name) else { continue };
            if let Some(at) = stored.to_f32_vec(name)?.iter().position(|x| x.is_nan()) {
                return Err(file_error(stored.path, format!("`{name}` is NaN at element {at}")));
            }
        }
        Ok(self.shard_of.len())
    }

    /// The parameters that are stored quantized, with their formats.
    pub(crate) fn packed(&self) -> Result<BTreeMap<String, QuantScheme>> {
        let mut all = BTreeMap::new();
        for shard in &self.shards {
            let Some(text) = shard.metadata_value("packed") else { continue };
            let wrong =
                |what: &str| file_error(shard.path(), format!("its list of quantized parameters is damaged: {what}"));
            let json: Json = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
            for (path, how) in json.as_object().ok_or_else(|| wrong("not an object"))? {
                let format = how.get("format").and_then(Json::as_str).and_then(|f| f.parse().ok());
                let format: QuantFormat = format.ok_or_else(|| wrong(&format!("`{path}` has an unknown format")))?;
                let group = how.get("group").and_then(Json::as_u64).and_then(|g| usize::try_from(g).ok());
                let packing = QuantScheme::new(format, group).map_err(|e| wrong(&format!("`{path}`: {e}")))?;
                all.insert(path.clone(), packing);
            }
        }
        Ok(all)
    }

    /// Reads a quantized parameter.
    pub(crate) fn read_packed(&self, path: &str, packing: QuantScheme) -> Result<QuantizedWeight> {
        let (mut types, mut parts) = (Vec::new(), Vec::new());
        while let Some(stored) = self.get(&format!("{PACKED_PREFIX}{path}.{}", parts.len())) {
            let dtype = dtype_of(stored.dtype).ok_or_else(|| stored.unreadable(path))?;
            types.push(Type::checked(dtype, &stored.shape).map_err(|e| file_error(stored.path, e))?);
            parts.push(stored.file.bytes(stored.info)?);
        }
        QuantizedWeight::new(packing, types, parts)
            .map_err(|e| file_error(&self.dir, format!("the quantized tensor `{path}`: {e}")))
    }

    /// The number of elements of all tensors.
    pub(crate) fn elements(&self) -> usize {
        self.shard_of
            .keys()
            .filter_map(|name| self.get(name))
            .map(|stored| stored.shape.iter().product::<usize>())
            .sum()
    }

    /// A checksum of names, shapes, dtypes and elements.
    pub(crate) fn fingerprint(&self) -> Result<u32> {
        let mut hasher = crc32fast::Hasher::new();
        for name in self.shard_of.keys() {
            let Some(stored) = self.get(name) else { continue };
            hasher.update(format!("{name:?} {} {:?}\n", stored.dtype, stored.shape).as_bytes());
            stored.file.for_each_block(stored.info, |bytes| hasher.update(bytes))?;
        }
        Ok(hasher.finalize())
    }
}

impl StoredTensor<'_> {
    /// Checks that [`StoredTensor::to_f32_vec`] supports the dtype.
    pub(crate) fn check_dtype(&self, name: &str) -> Result<()> {
        let readable = dtype_of(self.dtype).is_some() || matches!(self.dtype, Dtype::F8_E8M0 | Dtype::F4);
        if readable { Ok(()) } else { Err(self.unreadable(name)) }
    }

    fn unreadable(&self, name: &str) -> Error {
        Error::Tensor {
            path: self.path.to_path_buf(),
            tensor: name.to_string(),
            expected: "F4 or a dtype with elements of whole bytes".into(),
            found: format!("{:?}", self.dtype),
        }
    }

    /// Reads bytes from an offset on.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        Ok(self.file.read(self.info, offset, bytes)?)
    }

    /// The file of the tensor, and its byte range there.
    pub(crate) fn byte_range(&self) -> (&MmapTensorFile, usize, usize) {
        let (from, to) = self.file.byte_range(self.info);
        (self.file, from, to)
    }

    /// The error for an element that is not a finite number.
    pub(crate) fn not_finite(&self, name: &str, at: usize, x: f32) -> Error {
        Error::Tensor {
            path: self.path.to_path_buf(),
            tensor: name.to_string(),
            expected: "finite everywhere".into(),
            found: format!("{x} at element {at}: the file is damaged or the training diverged"),
        }
    }

    /// The elements as f32.
    pub(crate) fn to_f32_vec(&self, name: &str) -> Result<Vec<f32>> {
        let bytes = || self.file.bytes(self.info);
        if let Some(dtype) = dtype_of(self.dtype) {
            return Ok(from_bytes(&bytes()?, dtype));
        }
        Ok(match self.dtype {
            // Powers of two: only an exponent.
            Dtype::F8_E8M0 => bytes()?.iter().map(|&e| if e == 255 { f32::NAN } else { exp2(e) }).collect(),
            // Two elements per byte, the lower half first.
            Dtype::F4 => bytes()?.iter().flat_map(|b| [fp4(b & 15), fp4(b >> 4)]).collect(),
            _ => return Err(self.unreadable(name)),
        })
    }
}

/// The graph dtype of a stored dtype, if there is one.
pub(crate) fn dtype_of(stored: Dtype) -> Option<DType> {
    Some(match stored {
        Dtype::BOOL => DType::Bool,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}

/// 2^(e - 127).
fn exp2(e: u8) -> f32 {
    2f32.powi(i32::from(e) - 127)
}

/// Sign, two bits of exponent, one of mantissa.
fn fp4(bits: u8) -> f32 {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[usize::from(bits & 7)];
    if bits & 8 == 0 { magnitude } else { -magnitude }
}

/// The first value that an integer dtype can't represent.
pub(crate) fn first_inexact(values: &[f32], dtype: DType) -> Option<f32> {
    let held = |x: &f32| Scalar::from_f64(dtype, f64::from(*x)).to_f64() == f64::from(*x);
    if dtype.is_float() { None } else { values.iter().copied().find(|x| !held(x)) }
}

fn file_error(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::file(path, reason)
}

/// The files that an index lists.
fn shard_names(index: &Path) -> Result<BTreeSet<String>> {
    let text = files::read_text(index, files::MAX_TEXT_BYTES)?;
    let json: Json = serde_json::from_str(&text).map_err(|e| file_error(index, format!("not valid JSON: {e}")))?;
    let map = json.get("weight_map").and_then(Json::as_object);
    let map = map.ok_or_else(|| file_error(index, "`weight_map` is missing"))?;
    let names: BTreeSet<String> = map.values().filter_map(Json::as_str).map(String::from).collect();
    match names.iter().find(|name| name.contains('/') || name.contains("..")) {
        Some(name) => Err(file_error(index, format!("the path of shard `{name}` leaves the directory"))),
        None => Ok(names),
    }
}
