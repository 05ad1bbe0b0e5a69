//! GGUF files in and out: llama.cpp's one-file models.
//!
//! `header` reads and checks a file's head, `write` writes one, `family` says what families call tensors and settings,
//! `sizes` translates hyper-parameters to and from HuggingFace's (`turns` the scaling of rotations), `words` tokenizers, and
//! this file puts models together.

mod family;
mod header;
mod sizes;
mod turns;
mod words;
mod write;

pub use header::{Header, Kind, TensorEntry, Value, parse};

use crate::architecture::Architecture;
use crate::budget;
use crate::chat_files;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::fresh::cut;
use crate::mapping::{Function, sources};
use crate::model::{Model, Piece};
use crate::packed::PackedWeight;
use crate::special_tokens::SpecialTokens;
use crate::tokenizer::Tokenizer;
use crate::weight::Weight;
use family::{Family, Place};
use ir::composites::quantized::Packing;
use ir::{DType, Type};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::files;
use train::named_tensor::{from_bytes, to_bytes};

/// An open file.
pub(crate) struct Gguf {
    path: PathBuf,
    file: File,
    header: Header,
}

/// The head of a file is looked for in so many bytes first, then in more.
const FIRST: u64 = 1 << 20;
/// The longest head: vocabularies have a few million bytes.
const LONGEST: u64 = 1 << 30;

/// Whether a path names a GGUF file.
pub fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf")) && path.is_file()
}

/// A number that changes when a byte of a file does.
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

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Gguf> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let mut take = FIRST;
        loop {
            let count = take.min(length);
            let mut head = files::room(path, count)?;
            head.resize(count as usize, 0);
            files::read_at(&file, path, 0, &mut head)?;
            match parse(&head, length) {
                Ok(header) => return Ok(Gguf { path: path.to_path_buf(), file, header }),
                Err(header::Fault::Short) if count < length && take < LONGEST => take *= 4,
                Err(header::Fault::Short) => {
                    return Err(Error::file(path, "not a whole GGUF file: its head is cut off"));
                }
                Err(header::Fault::Bad(why)) => return Err(Error::file(path, format!("not a good GGUF file: {why}"))),
            }
        }
    }

    fn fault(&self, why: impl std::fmt::Display) -> Error {
        Error::file(&self.path, why)
    }

    fn bytes(&self, tensor: &TensorEntry) -> Result<Vec<u8>> {
        let mut bytes = files::room(&self.path, tensor.bytes)?;
        bytes.resize(tensor.bytes as usize, 0);
        files::read_at(&self.file, &self.path, self.header.data + tensor.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A tensor as numbers, or packed as it lies there.
    fn read(&self, tensor: &TensorEntry) -> Result<Read> {
        let bytes = self.bytes(tensor)?;
        let shape: Vec<usize> = tensor.shape.clone();
        match tensor.kind {
            Kind::Packed(format) => {
                let packing = Packing::new(format, None).map_err(|e| self.fault(e))?;
                let types =
                    packing.parts(&shape, DType::F16).map_err(|e| self.fault(format!("`{}`: {e}", tensor.name)))?;
                let packed = PackedWeight::new(packing, types, vec![bytes]);
                Ok(Read::Packed(packed.map_err(|e| self.fault(format!("`{}`: {e}", tensor.name)))?))
            }
            Kind::Plain(dtype) => Ok(Read::Wide(from_bytes(&bytes, dtype))),
        }
    }

    /// The family and settings of the model that it holds.
    fn config(&self) -> Result<(&'static Family, Config)> {
        let family = Family::of(&self.header).map_err(|e| self.fault(e))?;
        let turns = self.header.tensors.iter().find(|t| t.name == TURNS).map(|t| self.read(t)).transpose()?;
        let turns = turns.map(Read::values);
        let json = sizes::to_config(&self.header, family, turns.as_deref()).map_err(|e| self.fault(e))?;
        Ok((family, Config { json }))
    }

    /// The tokenizer that the file brings.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let special = self.special_tokens()?;
        let json = words::to_json(&self.header, &special).map_err(|e| self.fault(e))?;
        Tokenizer::of_json(&json, special, &self.path)
    }

    /// The special tokens that the file names.
    pub(crate) fn special_tokens(&self) -> Result<SpecialTokens> {
        Ok(words::special_tokens(&self.header))
    }

    /// The chat templates that the file brings, by name.
    pub(crate) fn templates(&self) -> BTreeMap<String, String> {
        words::templates(&self.header)
    }

    /// Writes what the file has beside its weights as the files of a directory.
    pub(crate) fn write_companions(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        files::make_folder(dir)?;
        let Ok(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        let mut written = tokenizer.write(dir)?;
        written.extend(chat_files::write(&self.templates(), dir)?);
        let special = tokenizer.special_tokens();
        let mut config = serde_json::Map::new();
        let ids = [("bos_token_id", special.start), ("pad_token_id", special.pad)];
        config.extend(ids.into_iter().filter_map(|(name, id)| Some((name.to_string(), id?.into()))));
        match &special.stops[..] {
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

enum Read {
    Wide(Vec<f32>),
    Packed(PackedWeight),
}

impl Read {
    fn values(self) -> Vec<f32> {
        match self {
            Read::Wide(values) => values,
            Read::Packed(packed) => packed.values(),
        }
    }
}

/// The tensor with what Llama 3's scaling of rotations divides by.
const TURNS: &str = "rope_freqs.weight";
/// Steps of the programs by which a written file is compared with its model.
const STEPS: usize = 8;

impl Model {
    /// Reads a GGUF file; matrices stay in the bits that they are stored in.
    pub fn load_gguf(path: &Path, dtype: DType) -> Result<Model> {
        let file = Gguf::open(path)?;
        let (family, config) = file.config()?;
        let architecture = Architecture::of(&config, path)?;
        let params = architecture.lower(1, 1, dtype, None)?.params;
        let elements = file.header.tensors.iter().map(|t| t.shape.iter().product::<usize>()).sum();
        budget::parameters(&params, elements, path)?;
        let sources = sources(&architecture, &params)?;
        let mut used = BTreeSet::from([TURNS.to_string()]);
        let (mut weights, mut pieces) = (Vec::new(), Vec::new());
        for (param, sources) in params.iter().zip(&sources) {
            let own = cut(&architecture, param, sources)?;
            let mut found = Vec::new();
            for piece in &own {
                let Place { name, index } = family.place(&piece.tensor).ok_or_else(|| {
                    file.fault(format!("no GGUF name is known for the tensor `{}` of `{}`", piece.tensor, param.path))
                })?;
                let whole =
                    file.header.tensors.iter().find(|t| t.name == name).ok_or_else(|| Error::MissingTensor {
                        path: path.to_path_buf(),
                        tensor: name.clone(),
                        parameter: param.path.clone(),
                        expected: param.ty.shape.to_vec(),
                    })?;
                // Matrices lie as parameters have them, whatever HuggingFace's files do.
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
                found.push(family.restored(&file, &tensor, piece, &config.json)?);
            }
            let straight = own.iter().all(is_rows) && matches!(param.ty.rank(), 2 | 3);
            let alike: Option<Vec<(usize, PackedWeight)>> = own
                .iter()
                .zip(&found)
                .map(|(piece, read)| match read {
                    Read::Packed(packed) => Some((first_row(piece, &param.ty.shape), packed.clone())),
                    Read::Wide(_) => None,
                })
                .collect::<Option<_>>()
                .filter(|_| straight);
            let joined = alike.and_then(|mut all| {
                all.sort_by_key(|(row, _)| *row);
                let all: Vec<PackedWeight> = all.into_iter().map(|(_, packed)| packed).collect();
                PackedWeight::join(&all)?.shaped(&param.ty.shape)
            });
            weights.push(match joined {
                Some(packed) => Weight::Packed(Arc::new(packed.with_separate_scales())),
                None => {
                    let mut data = vec![0f32; param.ty.numel()];
                    for (piece, read) in own.iter().zip(found) {
                        let values = read.values();
                        if let Some(x) = values.iter().find(|x| !x.is_finite()) {
                            return Err(file.fault(format!("the tensors of `{}` hold {x}", param.path)));
                        }
                        Piece { transposed: false, shape: turned(piece), ..piece.clone() }.place(
                            &param.ty.shape,
                            &mut data,
                            &values,
                        );
                    }
                    Weight::Held(param.ty.dtype, to_bytes(&data, param.ty.dtype))
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

    /// Writes a GGUF file. Packed matrices go out in their bits where GGUF has the format; others in the model's dtype.
    pub fn save_gguf(&self, path: &Path, tokenizer: Option<&Tokenizer>) -> Result<()> {
        let wrong = |why: String| Error::file(path, why);
        let family = Family::named(&self.config).map_err(wrong)?;
        let (mut pairs, factors) = sizes::to_pairs(&self.config, family).map_err(wrong)?;
        match tokenizer {
            Some(tokenizer) => {
                let rows = self.vocabulary().unwrap_or(tokenizer.size());
                pairs.extend(words::to_pairs(&tokenizer.to_json()?, rows).map_err(wrong)?);
                pairs.extend(words::special_pairs(tokenizer, &tokenizer.templates()?, rows).map_err(wrong)?);
            }
            None => pairs.push(words::none()),
        }
        let mut tensors = Vec::new();
        // Parts of tensors, until all of them are there.
        let mut parts: BTreeMap<String, BTreeMap<usize, (Vec<usize>, Kind, Vec<u8>)>> = BTreeMap::new();
        if let Some(factors) = factors {
            tensors.push((TURNS.into(), vec![factors.len()], Kind::Plain(DType::F32), to_bytes(&factors, DType::F32)));
        }
        for (i, (param, own)) in self.params.iter().zip(&self.pieces).enumerate() {
            let packed = self.stored_packed(i).map(|packed| packed.as_ref().clone().together());
            let values = if packed.is_none() { self.rounded(i)? } else { Vec::new() };
            for piece in own {
                let Place { name, index } = family.place(&piece.tensor).ok_or_else(|| {
                    wrong(format!("no GGUF name is known for the tensor `{}` of `{}`", piece.tensor, param.path))
                })?;
                let shape = turned(piece);
                let rows = shape[0];
                // The reverse of reading.
                let mut order: Vec<usize> = (0..rows).collect();
                if let Some(of) = family.order(&self.config, &piece.tensor, rows) {
                    (0..rows).for_each(|i| order[of[i]] = i);
                }
                let Some(packed) = &packed else {
                    let straight = Piece { transposed: false, shape: shape.clone(), ..piece.clone() };
                    let mut part = straight.take(&param.ty.shape, &values);
                    let width = part.len() / rows.max(1);
                    part = order.iter().flat_map(|i| part[i * width..(i + 1) * width].to_vec()).collect();
                    if let Some(written) = family.written(&piece.tensor) {
                        part.iter_mut().for_each(|x| *x = written(*x));
                    }
                    let dtype = if family.is_wide(&piece.tensor, &shape) { DType::F32 } else { self.dtype };
                    let shape = family.shape(&piece.tensor, shape);
                    let (kind, bytes) = (Kind::Plain(dtype), to_bytes(&part, dtype));
                    match index {
                        Some(index) => drop(parts.entry(name).or_default().insert(index, (shape, kind, bytes))),
                        None => tensors.push((name, shape, kind, bytes)),
                    }
                    continue;
                };
                let format = packed.packing.format;
                if format.block_bytes().is_none() || !is_rows(piece) {
                    return Err(wrong(format!(
                        "`{}` is stored as {format}, which GGUF doesn't have: quantise to q8 or q4 for GGUF",
                        param.path
                    )));
                }
                let start = first_row(piece, &param.ty.shape);
                let part = packed.take_rows(order.into_iter().map(|i| start + i));
                let (kind, bytes) = (Kind::Packed(format), part.parts.into_iter().next().unwrap_or_default());
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
        self.same_as(path).inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    /// Checks that a file's settings say what this model does. GGUF's families leave much unsaid, and a reader would compute
    /// something else.
    fn same_as(&self, path: &Path) -> Result<()> {
        let file = Gguf::open(path)?;
        let (family, config) = file.config()?;
        let again = Architecture::of(&config, path)?;
        let text = |a: &Architecture| a.lower(1, STEPS, self.dtype, None).map(|l| l.graph.to_string());
        if text(&self.architecture)? == text(&again)? {
            return Ok(());
        }
        let mine = &self.architecture.given;
        let names: BTreeSet<&String> = mine.keys().chain(again.given.keys()).collect();
        let other: Vec<String> = names
            .into_iter()
            .filter(|name| mine.get(*name) != again.given.get(*name))
            .map(|name| match mine.get(name) {
                Some(value) => format!("`{name}` = {value}"),
                None => format!("`{name}` unsaid"),
            })
            .collect();
        Err(file.fault(format!("GGUF's `{}` can't say all settings of this model: {}", family.name, other.join(", "))))
    }
}

/// Whether a piece is whole rows of a parameter's matrix, or of one of its matrices.
fn is_rows(piece: &Piece) -> bool {
    piece.dim == 0 && piece.function == Function::Identity
}

/// The row of all of a parameter's matrices that a piece begins at.
fn first_row(piece: &Piece, whole: &[usize]) -> usize {
    piece.index.map_or(0, |index| index * whole.get(1).copied().unwrap_or(1)) + piece.start
}

/// The shape of a piece as the parameter has it.
fn turned(piece: &Piece) -> Vec<usize> {
    let mut shape = piece.shape.clone();
    if piece.transposed {
        shape.reverse();
    }
    shape
}

impl Family {
    /// A tensor with its rows and numbers as HuggingFace has them.
    fn restored(&self, file: &Gguf, tensor: &TensorEntry, piece: &Piece, config: &Json) -> Result<Read> {
        let mut read = file.read(tensor)?;
        let rows = tensor.shape.first().copied().unwrap_or(1);
        if let Some(of) = self.order(config, &piece.tensor, rows) {
            if of.iter().any(|i| *i >= rows) {
                return Err(file.fault(format!("`{}` has {rows} rows, which its heads don't divide", tensor.name)));
            }
            read = match read {
                Read::Packed(_) if tensor.shape.len() != 2 => {
                    let (name, shape) = (&tensor.name, &tensor.shape);
                    return Err(
                        file.fault(format!("`{name}` of shape {shape:?} is stored in blocks, as matrices alone are"))
                    );
                }
                Read::Packed(packed) => Read::Packed(packed.take_rows(of.into_iter())),
                Read::Wide(values) => {
                    let width = values.len() / rows.max(1);
                    Read::Wide(of.iter().flat_map(|i| values[i * width..(i + 1) * width].to_vec()).collect())
                }
            };
        }
        Ok(match self.read(&piece.tensor) {
            Some(back) => Read::Wide(read.values().into_iter().map(back).collect()),
            None => read,
        })
    }
}

/// A type for a kind, where graphs have it.
impl Kind {
    /// Bytes of rows of `k` elements each, `rows` of them.
    pub(crate) fn bytes(self, shape: &[usize]) -> Option<u64> {
        let all = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d as u64))?;
        match self {
            Kind::Plain(dtype) => all.checked_mul(Type::scalar(dtype).bytes() as u64),
            Kind::Packed(format) => {
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
