//! Tensors of a directory: one safetensors file or shards with an index.

use crate::error::{Error, Result};
use crate::export::{FILE, PACKED, PACKED_FILE};
use crate::packed::PackedWeight;
use crate::tensor_file::TensorFile;
use ir::composites::quantized::{Format, Packing};
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
    shards: Vec<TensorFile>,
    /// Which shard holds a tensor.
    places: BTreeMap<String, usize>,
}

/// One tensor as it is stored.
pub(crate) struct Stored<'a> {
    pub(crate) path: &'a Path,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    file: &'a TensorFile,
    info: &'a TensorInfo,
}

impl Checkpoint {
    /// Opens `model.safetensors`, `tensorloom.safetensors` of a quantised model, or the shards that `model.safetensors.index.json`
    /// names.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        let single = [FILE, PACKED_FILE].map(|name| dir.join(name)).into_iter().find(|path| path.exists());
        let index = dir.join("model.safetensors.index.json");
        let paths: Vec<PathBuf> = if let Some(single) = single {
            vec![single]
        } else if index.exists() {
            shard_names(&index)?.into_iter().map(|name| dir.join(name)).collect()
        } else {
            return Err(fault(dir, "neither model.safetensors nor model.safetensors.index.json is there"));
        };
        Checkpoint::open_all(dir, paths)
    }

    /// Opens one safetensors file.
    pub fn open_file(path: &Path) -> Result<Checkpoint> {
        Checkpoint::open_all(path, vec![path.to_path_buf()])
    }

    fn open_all(dir: &Path, paths: Vec<PathBuf>) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint { dir: dir.to_path_buf(), shards: Vec::new(), places: BTreeMap::new() };
        for path in paths {
            let (shard, file) = (checkpoint.shards.len(), TensorFile::open(&path)?);
            checkpoint.places.extend(file.names().into_iter().map(|name| (name, shard)));
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
        self.places.keys().map(String::as_str)
    }

    /// A tensor by name. Its elements are read when they are asked for.
    pub(crate) fn get(&self, name: &str) -> Option<Stored<'_>> {
        let file = &self.shards[*self.places.get(name)?];
        let info = file.info(name)?;
        Some(Stored { path: file.path(), shape: info.shape.clone(), dtype: info.dtype, file, info })
    }

    /// A tensor that was there when the model was put together.
    pub(crate) fn found(&self, name: &str) -> Result<Stored<'_>> {
        self.get(name).ok_or_else(|| fault(&self.dir, format!("the tensor `{name}` is gone")))
    }

    /// Nothing was missing of what programs read where it is.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.shards.iter().try_for_each(TensorFile::check_whole)
    }

    /// Reads every byte once; how many tensors there are. Elements must be numbers.
    pub fn verify(&self) -> Result<usize> {
        for name in self.places.keys() {
            let Some(stored) = self.get(name) else { continue };
            if let Some(at) = stored.floats(name)?.iter().position(|x| x.is_nan()) {
                return Err(fault(stored.path, format!("`{name}` is no number at element {at}")));
            }
        }
        Ok(self.places.len())
    }

    /// Parameters that are stored packed, with how.
    pub(crate) fn packed(&self) -> Result<BTreeMap<String, Packing>> {
        let mut all = BTreeMap::new();
        for shard in &self.shards {
            let Some(text) = shard.text("packed") else { continue };
            let wrong = |what: &str| fault(shard.path(), format!("its list of packed parameters is damaged: {what}"));
            let json: Json = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
            for (path, how) in json.as_object().ok_or_else(|| wrong("no object"))? {
                let format = how.get("format").and_then(Json::as_str).and_then(|f| f.parse().ok());
                let format: Format = format.ok_or_else(|| wrong(&format!("`{path}` has no known format")))?;
                let group = how.get("group").and_then(Json::as_u64).and_then(|g| usize::try_from(g).ok());
                let packing = Packing::new(format, group).map_err(|e| wrong(&format!("`{path}`: {e}")))?;
                all.insert(path.clone(), packing);
            }
        }
        Ok(all)
    }

    /// A packed parameter.
    pub(crate) fn read_packed(&self, path: &str, packing: Packing) -> Result<PackedWeight> {
        let (mut types, mut parts) = (Vec::new(), Vec::new());
        while let Some(stored) = self.get(&format!("{PACKED}{path}.{}", parts.len())) {
            let dtype = dtype_of(stored.dtype).ok_or_else(|| stored.unreadable(path))?;
            types.push(Type::checked(dtype, &stored.shape).map_err(|e| fault(stored.path, e))?);
            parts.push(stored.file.bytes(stored.info)?);
        }
        PackedWeight::new(packing, types, parts).map_err(|e| fault(&self.dir, format!("the packed `{path}`: {e}")))
    }

    /// How many elements all tensors have together.
    pub(crate) fn elements(&self) -> usize {
        self.places.keys().filter_map(|name| self.get(name)).map(|stored| stored.shape.iter().product::<usize>()).sum()
    }

    /// A number that changes when names, shapes, dtypes or elements do.
    pub(crate) fn fingerprint(&self) -> Result<u32> {
        let mut hasher = crc32fast::Hasher::new();
        for name in self.places.keys() {
            let Some(stored) = self.get(name) else { continue };
            hasher.update(format!("{name:?} {} {:?}\n", stored.dtype, stored.shape).as_bytes());
            stored.file.scan(stored.info, |bytes| hasher.update(bytes))?;
        }
        Ok(hasher.finalize())
    }
}

impl Stored<'_> {
    /// Whether [`Stored::floats`] reads this format.
    pub(crate) fn check_dtype(&self, name: &str) -> Result<()> {
        let readable = dtype_of(self.dtype).is_some() || matches!(self.dtype, Dtype::F8_E8M0 | Dtype::F4);
        if readable { Ok(()) } else { Err(self.unreadable(name)) }
    }

    fn unreadable(&self, name: &str) -> Error {
        Error::Tensor {
            path: self.path.to_path_buf(),
            tensor: name.to_string(),
            expected: "a dtype whose elements are whole bytes, or F4".into(),
            found: format!("{:?}", self.dtype),
        }
    }

    /// Bytes from an offset on.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        Ok(self.file.read(self.info, offset, bytes)?)
    }

    /// Where its bytes begin and end, and in which file.
    pub(crate) fn place(&self) -> (&TensorFile, usize, usize) {
        let (from, to) = self.file.place(self.info);
        (self.file, from, to)
    }

    /// The error for an element that is no finite number.
    pub(crate) fn not_finite(&self, name: &str, at: usize, x: f32) -> Error {
        Error::Tensor {
            path: self.path.to_path_buf(),
            tensor: name.to_string(),
            expected: "finite everywhere".into(),
            found: format!("{x} at element {at}: the file is damaged, or its training failed"),
        }
    }

    /// The elements as f32.
    pub(crate) fn floats(&self, name: &str) -> Result<Vec<f32>> {
        let bytes = || self.file.bytes(self.info);
        if let Some(dtype) = dtype_of(self.dtype) {
            return Ok(from_bytes(&bytes()?, dtype));
        }
        Ok(match self.dtype {
            // Powers of two: an exponent alone.
            Dtype::F8_E8M0 => bytes()?.iter().map(|&e| if e == 255 { f32::NAN } else { power(e) }).collect(),
            // Two elements a byte, the lower half first.
            Dtype::F4 => bytes()?.iter().flat_map(|b| [fp4(b & 15), fp4(b >> 4)]).collect(),
            _ => return Err(self.unreadable(name)),
        })
    }
}

/// The dtype of a stored tensor, where the graph has it too.
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
fn power(e: u8) -> f32 {
    2f32.powi(i32::from(e) - 127)
}

/// Sign, two bits of exponent, one of mantissa.
fn fp4(bits: u8) -> f32 {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[usize::from(bits & 7)];
    if bits & 8 == 0 { magnitude } else { -magnitude }
}

/// The first value that a dtype of whole numbers can't hold.
pub(crate) fn inexact(values: &[f32], dtype: DType) -> Option<f32> {
    let held = |x: &f32| Scalar::from_f64(dtype, f64::from(*x)).to_f64() == f64::from(*x);
    if dtype.is_float() { None } else { values.iter().copied().find(|x| !held(x)) }
}

fn fault(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::file(path, reason)
}

/// The files that an index names.
fn shard_names(index: &Path) -> Result<BTreeSet<String>> {
    let text = files::read_text(index, files::TEXT)?;
    let json: Json = serde_json::from_str(&text).map_err(|e| fault(index, format!("not valid JSON: {e}")))?;
    let map = json.get("weight_map").and_then(Json::as_object);
    let map = map.ok_or_else(|| fault(index, "no `weight_map`"))?;
    let names: BTreeSet<String> = map.values().filter_map(Json::as_str).map(String::from).collect();
    match names.iter().find(|name| name.contains('/') || name.contains("..")) {
        Some(name) => Err(fault(index, format!("the shard `{name}` is outside of the directory"))),
        None => Ok(names),
    }
}
