//! Reads and writes GGUF files: llama.cpp's one-file models.
//!
//! `header` parses a file's header, `write` writes one, `family` maps the names of tensors and settings, `sizes` converts
//! hyper-parameters to and from HuggingFace's (`rope_scaling` those of rotary embeddings), `tokenizer`
//! converts tokenizers, and this file assembles models.

mod family;
mod header;
mod rope_scaling;
mod sizes;
mod tokenizer;
mod write;

pub use header::{GgufTensorType, GgufValue, Header, TensorEntry, parse};

use crate::architecture::Architecture;
use crate::budget;
use crate::chat_files;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::init::split_sources;
use crate::mapping::{ElementTransform, sources};
use crate::model::{CheckpointSlice, Model};
use crate::quantized_weight::QuantizedWeight;
use crate::special_tokens::SpecialTokens;
use crate::tokenizer::Tokenizer;
use crate::weight::Weight;
use family::{GgufFamily, GgufTensorRef};
use ir::composites::quantized::QuantScheme;
use ir::{DType, Type};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::files;
use train::named_tensor::{from_bytes, to_bytes};

/// An open GGUF file.
pub(crate) struct GgufFile {
    path: PathBuf,
    file: File,
    header: Header,
}

/// The number of bytes that are first read for the header; more are read if needed.
const INITIAL_HEADER_BYTES: u64 = 1 << 20;
/// The maximum size of a header: vocabularies have a few million bytes.
const MAX_HEADER_BYTES: u64 = 1 << 30;

/// Whether a path names a GGUF file.
pub fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf")) && path.is_file()
}

/// A checksum of a file's bytes.
pub(crate) fn fingerprint(path: &Path) -> Result<u32> {
    let file = files::open(path)?;
    let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 20];
    for at in (0..length).step_by(bytes.len()) {
        let n = (length - at).min(bytes.len() as u64) as usize;
        files::read_at(&file, path, at, &mut bytes[..n])?;
        hasher.update(&bytes[..n]);
    }
    Ok(hasher.finalize())
}

impl GgufFile {
    pub(crate) fn open(path: &Path) -> Result<GgufFile> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let mut take = INITIAL_HEADER_BYTES;
        loop {
            let count = take.min(length);
            let mut head = files::checked_with_capacity(path, count)?;
            head.resize(count as usize, 0);
            files::read_at(&file, path, 0, &mut head)?;
            match parse(&head, length) {
                Ok(header) => return Ok(GgufFile { path: path.to_path_buf(), file, header }),
                Err(header::HeaderError::Truncated) if count < length && take < MAX_HEADER_BYTES => take *= 4,
                Err(header::HeaderError::Truncated) => {
                    return Err(Error::file(path, "not a valid GGUF file: its header is truncated"));
                }
                Err(header::HeaderError::Invalid(why)) => {
                    return Err(Error::file(path, format!("not a valid GGUF file: {why}")));
                }
            }
        }
    }

    fn fault(&self, why: impl std::fmt::Display) -> Error {
        Error::file(&self.path, why)
    }

    fn bytes(&self, tensor: &TensorEntry) -> Result<Vec<u8>> {
        let mut bytes = files::checked_with_capacity(&self.path, tensor.bytes)?;
        bytes.resize(tensor.bytes as usize, 0);
        files::read_at(&self.file, &self.path, self.header.data + tensor.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a tensor as floats, or in its quantized format.
    fn read(&self, tensor: &TensorEntry) -> Result<TensorData> {
        let bytes = self.bytes(tensor)?;
        let shape: Vec<usize> = tensor.shape.clone();
        match tensor.kind {
            GgufTensorType::Packed(format) => {
                let packing = QuantScheme::new(format, None).map_err(|e| self.fault(e))?;
                let types = packing
                    .part_types(&shape, DType::F16)
                    .map_err(|e| self.fault(format!("`{}`: {e}", tensor.name)))?;
                let packed = QuantizedWeight::new(packing, types, vec![bytes]);
                Ok(TensorData::Packed(packed.map_err(|e| self.fault(format!("`{}`: {e}", tensor.name)))?))
            }
            GgufTensorType::Plain(dtype) => Ok(TensorData::F32(from_bytes(&bytes, dtype))),
        }
    }

    /// The family and the configuration of the model in the file.
    fn config(&self) -> Result<(&'static GgufFamily, Config)> {
        let family = GgufFamily::of(&self.header).map_err(|e| self.fault(e))?;
        let turns =
            self.header.tensors.iter().find(|t| t.name == ROPE_FREQS_TENSOR).map(|t| self.read(t)).transpose()?;
        let turns = turns.map(TensorData::values);
        let json = sizes::to_config(&self.header, family, turns.as_deref()).map_err(|e| self.fault(e))?;
        Ok((family, Config { json }))
    }

    /// The tokenizer in the file.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let special = self.special_tokens()?;
        let json = tokenizer::to_json(&self.header, &special).map_err(|e| self.fault(e))?;
        Tokenizer::of_json(&json, special, &self.path)
    }

    /// The special tokens in the file.
    pub(crate) fn special_tokens(&self) -> Result<SpecialTokens> {
        Ok(tokenizer::special_tokens(&self.header))
    }

    /// The chat templates in the file, by name.
    pub(crate) fn templates(&self) -> BTreeMap<String, String> {
        tokenizer::templates(&self.header)
    }

    /// Writes the tokenizer and other companions of the weights as files of a directory.
    pub(crate) fn write_companions(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        files::create_dir_all(dir)?;
        let Ok(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        let mut written = tokenizer.write(dir)?;
        written.extend(chat_files::write_templates(&self.templates(), dir)?);
        let special = tokenizer.special_tokens();
        let mut config = serde_json::Map::new();
        let ids = [("bos_token_id", special.start), ("pad_token_id", special.pad)];
        config.extend(ids.into_iter().filter_map(|(name, id)| Some((name.to_string(), id?.into()))));
        match &special.eos_ids[..] {
            [] => {}
            [one] => drop(config.insert("eos_token_id".into(), (*one).into())),
            several => drop(config.insert("eos_token_id".into(), several.into())),
        }
        if !config.is_empty() {
            let path = dir.join("generation_config.json");
            files::write(&path, format!("{:#}\n", Json::Object(config)).as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }
}

enum TensorData {
    F32(Vec<f32>),
    Packed(QuantizedWeight),
}

impl TensorData {
    fn values(self) -> Vec<f32> {
        match self {
            TensorData::F32(values) => values,
            TensorData::Packed(packed) => packed.values(),
        }
    }
}

/// The tensor with the divisors of Llama 3's rotary scaling.
const ROPE_FREQS_TENSOR: &str = "rope_freqs.weight";
/// The sequence length of the programs by which a written file is compared with its model.
const COMPARE_STEPS: usize = 8;

impl Model {
    /// Reads a GGUF file; quantized matrices keep their format.
    pub fn load_gguf(path: &Path, dtype: DType) -> Result<Model> {
        let file = GgufFile::open(path)?;
        let (family, config) = file.config()?;
        let architecture = Architecture::from_config(&config, path)?;
        let params = architecture.lower(1, 1, dtype, None)?.params;
        let elements = file.header.tensors.iter().map(|t| t.shape.iter().product::<usize>()).sum();
        budget::check_parameters(&params, elements, path)?;
        let sources = sources(&architecture, &params)?;
        let mut used = BTreeSet::from([ROPE_FREQS_TENSOR.to_string()]);
        let (mut weights, mut pieces) = (Vec::new(), Vec::new());
        for (param, sources) in params.iter().zip(&sources) {
            let own = split_sources(&architecture, param, sources)?;
            let mut found = Vec::new();
            for piece in &own {
                let GgufTensorRef { name, index } = family.tensor_ref(&piece.tensor).ok_or_else(|| {
                    file.fault(format!("no GGUF name is known for the tensor `{}` of `{}`", piece.tensor, param.path))
                })?;
                let whole =
                    file.header.tensors.iter().find(|t| t.name == name).ok_or_else(|| Error::MissingTensor {
                        path: path.to_path_buf(),
                        tensor: name.clone(),
                        parameter: param.path.clone(),
                        expected: param.ty.shape.to_vec(),
                    })?;
                // Matrices have the layout of parameters, whatever layout HuggingFace's files have.
                let mut wanted = piece.shape.clone();
                if piece.transposed {
                    wanted.reverse();
                }
                let wanted = family.shape(&piece.tensor, wanted);
                let tensor = match index {
                    Some(index) => whole.part(index),
                    None => Some(whole.clone()),
                };
                let Some(tensor) = tensor.filter(|t| t.shape == wanted) else {
                    return Err(Error::Tensor {
                        path: path.to_path_buf(),
                        tensor: name,
                        expected: format!("{wanted:?} (parameter `{}`)", param.path),
                        found: format!("{:?}", whole.shape),
                    });
                };
                used.insert(name);
                found.push(family.read_piece(&file, &tensor, piece, &config.json)?);
            }
            let straight = own.iter().all(is_rows) && matches!(param.ty.rank(), 2 | 3);
            let alike: Option<Vec<(usize, QuantizedWeight)>> = own
                .iter()
                .zip(&found)
                .map(|(piece, read)| match read {
                    TensorData::Packed(packed) => Some((first_row(piece, &param.ty.shape), packed.clone())),
                    TensorData::F32(_) => None,
                })
                .collect::<Option<_>>()
                .filter(|_| straight);
            let joined = alike.and_then(|mut all| {
                all.sort_by_key(|(row, _)| *row);
                let all: Vec<QuantizedWeight> = all.into_iter().map(|(_, packed)| packed).collect();
                QuantizedWeight::concat(&all)?.reshape(&param.ty.shape)
            });
            weights.push(match joined {
                Some(packed) => Weight::Packed(Arc::new(packed.with_separate_scales())),
                None => {
                    let mut data = vec![0f32; param.ty.numel()];
                    for (piece, read) in own.iter().zip(found) {
                        let values = read.values();
                        if let Some(x) = values.iter().find(|x| !x.is_finite()) {
                            return Err(file.fault(format!("the tensors of `{}` have the value {x}", param.path)));
                        }
                        CheckpointSlice { transposed: false, shape: transposed_shape(piece), ..piece.clone() }
                            .write_into(&param.ty.shape, &mut data, &values);
                    }
                    Weight::InMemory(param.ty.dtype, to_bytes(&data, param.ty.dtype))
                }
            });
            pieces.push(own);
        }
        if let Some(extra) = file.header.tensors.iter().find(|t| !used.contains(&t.name)) {
            return Err(Error::UnusedTensor { path: path.to_path_buf(), tensor: extra.name.clone() });
        }
        let limits = architecture.limits(dtype);
        let (config, pooling) = (config.json, Default::default());
        Ok(Model { architecture, params, dtype, weights, checkpoint: None, limits, pieces, config, pooling })
    }

    /// Writes a GGUF file. Quantized matrices are written as they are if GGUF has the format; others in the model's dtype.
    pub fn save_gguf(&self, path: &Path, tokenizer: Option<&Tokenizer>) -> Result<()> {
        let wrong = |why: String| Error::file(path, why);
        let family = GgufFamily::of_config(&self.config).map_err(wrong)?;
        let (mut pairs, factors) = sizes::to_pairs(&self.config, family).map_err(wrong)?;
        match tokenizer {
            Some(tokenizer) => {
                let rows = self.vocabulary().unwrap_or(tokenizer.size());
                pairs.extend(tokenizer::to_pairs(&tokenizer.to_json()?, rows).map_err(wrong)?);
                pairs.extend(tokenizer::special_pairs(tokenizer, &tokenizer.templates()?, rows).map_err(wrong)?);
            }
            None => pairs.push(tokenizer::no_tokenizer_pair()),
        }
        let mut tensors = Vec::new();
        // Parts of tensors, until all of them are collected.
        let mut parts: BTreeMap<String, BTreeMap<usize, (Vec<usize>, GgufTensorType, Vec<u8>)>> = BTreeMap::new();
        if let Some(factors) = factors {
            tensors.push((
                ROPE_FREQS_TENSOR.into(),
                vec![factors.len()],
                GgufTensorType::Plain(DType::F32),
                to_bytes(&factors, DType::F32),
            ));
        }
        for (i, (param, own)) in self.params.iter().zip(&self.pieces).enumerate() {
            let packed = self.stored_packed(i).map(|packed| packed.as_ref().clone().with_interleaved_scales());
            let values = if packed.is_none() { self.rounded(i)? } else { Vec::new() };
            for piece in own {
                let GgufTensorRef { name, index } = family.tensor_ref(&piece.tensor).ok_or_else(|| {
                    wrong(format!("no GGUF name is known for the tensor `{}` of `{}`", piece.tensor, param.path))
                })?;
                let shape = transposed_shape(piece);
                let rows = shape[0];
                // The inverse permutation of reading.
                let mut order: Vec<usize> = (0..rows).collect();
                if let Some(of) = family.row_order(&self.config, &piece.tensor, rows) {
                    (0..rows).for_each(|i| order[of[i]] = i);
                }
                let Some(packed) = &packed else {
                    let straight = CheckpointSlice { transposed: false, shape: shape.clone(), ..piece.clone() };
                    let mut part = straight.read_from(&param.ty.shape, &values);
                    let width = part.len() / rows.max(1);
                    part = order.iter().flat_map(|i| part[i * width..(i + 1) * width].to_vec()).collect();
                    if let Some(written) = family.to_gguf_value(&piece.tensor) {
                        part.iter_mut().for_each(|x| *x = written(*x));
                    }
                    let dtype = if family.is_always_f32(&piece.tensor, &shape) { DType::F32 } else { self.dtype };
                    let shape = family.shape(&piece.tensor, shape);
                    let (kind, bytes) = (GgufTensorType::Plain(dtype), to_bytes(&part, dtype));
                    match index {
                        Some(index) => drop(parts.entry(name).or_default().insert(index, (shape, kind, bytes))),
                        None => tensors.push((name, shape, kind, bytes)),
                    }
                    continue;
                };
                let format = packed.packing.format;
                if format.block_bytes().is_none() || !is_rows(piece) {
                    return Err(wrong(format!(
                        "`{}` is stored as {format}, which GGUF does not have: quantize to q8 or q4 for GGUF",
                        param.path
                    )));
                }
                let start = first_row(piece, &param.ty.shape);
                let part = packed.take_rows(order.into_iter().map(|i| start + i));
                let (kind, bytes) = (GgufTensorType::Packed(format), part.parts.into_iter().next().unwrap_or_default());
                match index {
                    Some(index) => drop(parts.entry(name).or_default().insert(index, (shape, kind, bytes))),
                    None => tensors.push((name, shape, kind, bytes)),
                }
            }
        }
        for (name, part) in parts {
            let Some((shape, kind, _)) = part.values().next() else { continue };
            let (shape, kind) = ([&[part.len()][..], shape].concat(), *kind);
            tensors.push((name, shape, kind, part.into_values().flat_map(|(_, _, bytes)| bytes).collect()));
        }
        write::write(path, &pairs, &tensors)?;
        self.check_same_model(path).inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    /// Checks that a file's settings describe this model. GGUF's families leave many settings implicit,
    /// and a reader would compute something else.
    fn check_same_model(&self, path: &Path) -> Result<()> {
        let file = GgufFile::open(path)?;
        let (family, config) = file.config()?;
        let again = Architecture::from_config(&config, path)?;
        let text = |a: &Architecture| a.lower(1, COMPARE_STEPS, self.dtype, None).map(|l| l.graph.to_string());
        if text(&self.architecture)? == text(&again)? {
            return Ok(());
        }
        let mine = &self.architecture.constants;
        let names: BTreeSet<&String> = mine.keys().chain(again.constants.keys()).collect();
        let other: Vec<String> = names
            .into_iter()
            .filter(|name| mine.get(*name) != again.constants.get(*name))
            .map(|name| match mine.get(name) {
                Some(value) => format!("`{name}` = {value}"),
                None => format!("`{name}` missing"),
            })
            .collect();
        Err(file.fault(format!(
            "GGUF's `{}` cannot represent all settings of this model: {}",
            family.name,
            other.join(", ")
        )))
    }
}

/// Whether a piece consists of whole rows of a parameter's matrix, or of one of its matrices.
fn is_rows(piece: &CheckpointSlice) -> bool {
    piece.dim == 0 && piece.function == ElementTransform::Identity
}

/// The index of the piece's first row among the rows of all of a parameter's matrices.
fn first_row(piece: &CheckpointSlice, whole: &[usize]) -> usize {
    piece.index.map_or(0, |index| index * whole.get(1).copied().unwrap_or(1)) + piece.start
}

/// The shape of a piece in the layout of the parameter.
fn transposed_shape(piece: &CheckpointSlice) -> Vec<usize> {
    let mut shape = piece.shape.clone();
    if piece.transposed {
        shape.reverse();
    }
    shape
}

impl GgufFamily {
    /// Reads a tensor with its rows and elements in HuggingFace's order and form.
    fn read_piece(
        &self,
        file: &GgufFile,
        tensor: &TensorEntry,
        piece: &CheckpointSlice,
        config: &Json,
    ) -> Result<TensorData> {
        let mut read = file.read(tensor)?;
        let rows = tensor.shape.first().copied().unwrap_or(1);
        if let Some(of) = self.row_order(config, &piece.tensor, rows) {
            if of.iter().any(|i| *i >= rows) {
                return Err(file.fault(format!(
                    "`{}` has {rows} rows, which is not divisible by its number of heads",
                    tensor.name
                )));
            }
            read = match read {
                TensorData::Packed(_) if tensor.shape.len() != 2 => {
                    let (name, shape) = (&tensor.name, &tensor.shape);
                    return Err(file.fault(format!(
                        "`{name}` of shape {shape:?} is stored in blocks, which is only supported for matrices"
                    )));
                }
                TensorData::Packed(packed) => TensorData::Packed(packed.take_rows(of.into_iter())),
                TensorData::F32(values) => {
                    let width = values.len() / rows.max(1);
                    TensorData::F32(of.iter().flat_map(|i| values[i * width..(i + 1) * width].to_vec()).collect())
                }
            };
        }
        Ok(match self.from_gguf_value(&piece.tensor) {
            Some(back) => TensorData::F32(read.values().into_iter().map(back).collect()),
            None => read,
        })
    }
}

/// Conversion to the data types of graphs.
impl GgufTensorType {
    /// The size in bytes of a tensor of this shape.
    pub(crate) fn bytes(self, shape: &[usize]) -> Option<u64> {
        let all = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d as u64))?;
        match self {
            GgufTensorType::Plain(dtype) => all.checked_mul(Type::scalar(dtype).bytes() as u64),
            GgufTensorType::Packed(format) => {
                let (block, size) = (format.fixed_group()? as u64, format.block_bytes()? as u64);
                let row = *shape.last()? as u64;
                if row % block != 0 {
                    return None;
                }
                (all / block).checked_mul(size)
            }
        }
    }
}
