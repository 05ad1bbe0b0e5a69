//! A model with its weights in memory.

use crate::architecture::Architecture;
use crate::budget;
use crate::checkpoint::{Checkpoint, inexact};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::fresh::{cut, draw};
use crate::mapping::{Function, Slice, sources};
use crate::pooling::Pooling;
use crate::random::Random;
use crate::special_tokens::SpecialTokens;
use crate::weight::Weight;
use ir::DType;
use lang::lower::{Limits, Parameter};
use lang::resolve::Program;
use safetensors::Dtype;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use train::named_tensor::to_bytes;

/// A tensor of the checkpoint and its place in a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// HuggingFace name.
    pub(crate) tensor: String,
    /// HuggingFace shape.
    pub(crate) shape: Vec<usize>,
    /// The dtype that it was stored in.
    pub(crate) stored: Dtype,
    pub(crate) transposed: bool,
    pub(crate) function: Function,
    /// The index of the first dimension that it belongs to, for stacked parameters.
    pub(crate) index: Option<usize>,
    /// Where it begins along this dimension of the parameter.
    pub(crate) dim: usize,
    pub(crate) start: usize,
}

/// A model of the library with the weights of a HuggingFace directory.
#[derive(Clone)]
pub struct Model {
    /// Which model, of which sizes.
    pub architecture: Architecture,
    /// Its parameters in order.
    pub params: Vec<Parameter>,
    /// The dtype of parameters and activations.
    pub dtype: DType,
    pub(crate) weights: Vec<Weight>,
    pub(crate) checkpoint: Option<Arc<Checkpoint>>,
    pub(crate) limits: Limits,
    pub(crate) pieces: Vec<Vec<Piece>>,
    pub(crate) config: Json,
    /// How embeddings are made of states.
    pub(crate) pooling: Pooling,
}

impl Model {
    /// Reads a directory, or a GGUF file; either everything fits, or nothing is loaded.
    pub fn load(dir: &Path, dtype: DType) -> Result<Model> {
        Model::load_by(dir, dtype, None)
    }

    /// The same by a model of one's own: its `hf_config` says which fields of `config.json` are its parameters, its `hf_mapping`
    /// which tensors. What is exported carries it along.
    pub fn load_by(dir: &Path, dtype: DType, module: Option<Program>) -> Result<Model> {
        if crate::gguf::is_gguf(dir) {
            return match module {
                None => Model::load_gguf(dir, dtype),
                Some(_) => Err(Error::file(dir, "a GGUF file names its own model: `--module` is for directories")),
            };
        }
        Model::load_as(dir, dtype, module, None)
    }

    /// A model whose head is none of words: read as the first of these architectures that the library has, with zeros where
    /// the head would be.
    pub(crate) fn load_headless(dir: &Path, dtype: DType, names: &[String]) -> Result<Model> {
        Model::load_as(dir, dtype, None, Some(names))
    }

    fn load_as(dir: &Path, dtype: DType, module: Option<Program>, headless: Option<&[String]>) -> Result<Model> {
        let path = dir.join("config.json");
        let mut config = Config::read(&path)?;
        // Ours says that weights are packed, which the weights themselves say too.
        let ours =
            config.json.pointer("/quantization_config/quant_method").and_then(Json::as_str) == Some("tensorloom");
        if let (true, Some(fields)) = (ours, config.json.as_object_mut()) {
            fields.remove("quantization_config");
        }
        for name in headless.unwrap_or_default() {
            if let Some(fields) = config.json.as_object_mut() {
                fields.insert("architectures".into(), vec![name.clone()].into());
            }
            if Architecture::of(&config, &path).is_ok() {
                break;
            }
        }
        let mut architecture = match module {
            None => Architecture::of(&config, &path)?,
            Some(program) => {
                let own = Architecture::of_module(program, &config, &path)?;
                if let (Some(fields), Some(carried)) = (config.json.as_object_mut(), own.carried()) {
                    fields.insert("tensorloom".into(), carried);
                }
                own
            }
        };
        let checkpoint = Checkpoint::open(dir)?;
        let wrong = |error| of_config(error, &path);
        leave_out(&mut architecture, &checkpoint, dtype).map_err(wrong)?;
        let params = architecture.lower(1, 1, dtype, None).map_err(wrong)?.params;
        let packed = checkpoint.packed()?;
        // Packed parameters have fewer bytes than elements, at most eight elements a byte.
        let most = if packed.is_empty() { 1 } else { 8 };
        budget::parameters(&params, checkpoint.elements().saturating_mul(most), &path)?;
        let sources = sources(&architecture, &params)?;
        let mut pieces = Vec::new();
        let mut weights = vec![Weight::Stored; params.len()];
        for (i, (param, sources)) in params.iter().zip(&sources).enumerate() {
            let stacked = matches!(sources, crate::mapping::Sources::Stacked(_));
            let mut found = Vec::new();
            // An adapter beside a base model starts without effect; a checkpoint that has it is read.
            let parts = sources.slices().iter().flat_map(|slice| &slice.parts);
            if param.adapter && !parts.into_iter().any(|part| checkpoint.get(&part.tensor).is_some()) {
                let values = draw(&architecture, param, 1, &mut Random::new(0, 1 + i as u64));
                weights[i] = Weight::Held(param.ty.dtype, to_bytes(&values, param.ty.dtype));
                pieces.push(cut(&architecture, param, sources)?);
                continue;
            }
            if let Some(packing) = packed.get(&param.path) {
                let found = checkpoint.read_packed(&param.path, *packing)?;
                if found.shape[..] != param.ty.shape[..] {
                    return Err(Error::Tensor {
                        path: dir.to_path_buf(),
                        tensor: param.path.clone(),
                        expected: format!("{:?}", param.ty.shape),
                        found: format!("{:?}, packed", found.shape),
                    });
                }
                weights[i] = Weight::Packed(Arc::new(found));
                pieces.push(cut(&architecture, param, sources)?);
                continue;
            }
            let mut parts = sources.slices().iter().flat_map(|slice| &slice.parts);
            if headless.is_some()
                && parts.all(|p| HEADS.contains(&&p.tensor[..]) && checkpoint.get(&p.tensor).is_none())
            {
                weights[i] = Weight::Held(param.ty.dtype, vec![0; param.ty.bytes()]);
                pieces.push(cut(&architecture, param, sources)?);
                continue;
            }
            for (i, slice) in sources.slices().iter().enumerate() {
                find_slice(&checkpoint, param, stacked.then_some(i), slice, &mut found)?;
            }
            pieces.push(found);
        }
        reject_unused(&checkpoint, &pieces, headless.is_some())?;
        let limits = architecture.limits(dtype);
        let checkpoint = Some(Arc::new(checkpoint));
        let pooling = Pooling::of_dir(dir)?;
        let model =
            Model { architecture, params, dtype, weights, checkpoint, limits, pieces, config: config.json, pooling };
        model.check_whole_numbers()?;
        Ok(model)
    }

    /// A parameter of whole numbers holds what the checkpoint has, or there is no model.
    fn check_whole_numbers(&self) -> Result<()> {
        for (i, param) in self.params.iter().enumerate().filter(|(_, param)| !param.ty.dtype.is_float()) {
            if let Some(x) = inexact(&self.values(i)?, param.ty.dtype) {
                return Err(Error::Input(format!(
                    "parameter `{}` is {}, but its tensor holds {x}: quantize the checkpoint, or leave out the dtype",
                    param.path, param.ty.dtype
                )));
            }
        }
        Ok(())
    }

    /// The longest sequence the model takes, if it has a limit.
    pub fn max_sequence(&self) -> Option<usize> {
        self.architecture.size("max_seq").into_iter().chain(self.limits.longest).min()
    }

    /// Whether sequences may be longer than that, at the price of positions that training has not seen.
    pub fn goes_on(&self) -> bool {
        self.architecture.longest().is_none()
    }

    /// The same model with the elements of every parameter given anew.
    pub(crate) fn with_values(&self, values: &[Vec<f32>]) -> Model {
        let held = values.iter().zip(&self.params);
        let weights =
            held.map(|(values, param)| Weight::Held(param.ty.dtype, to_bytes(values, param.ty.dtype))).collect();
        Model {
            architecture: self.architecture.clone(),
            params: self.params.clone(),
            dtype: self.dtype,
            weights,
            checkpoint: None,
            limits: self.limits.clone(),
            pieces: self.pieces.clone(),
            config: self.config.clone(),
            pooling: self.pooling.clone(),
        }
    }

    /// Names the special tokens of a tokenizer in the configuration.
    pub(crate) fn set_special_tokens(&mut self, special: &SpecialTokens) {
        let Some(fields) = self.config.as_object_mut() else { return };
        for (name, id) in [("bos_token_id", special.bos), ("eos_token_id", special.eos), ("pad_token_id", special.pad)]
        {
            match id {
                Some(id) => drop(fields.insert(name.into(), id.into())),
                None => drop(fields.remove(name)),
            }
        }
    }

    /// The model computing as a recipe says, in the place of its own.
    pub fn following(mut self, recipe: lang::lower::Recipe) -> Model {
        self.architecture.recipe = Some(recipe);
        self.limits = self.architecture.limits(self.dtype);
        if let Ok(lowered) = self.architecture.lower(1, 1, self.dtype, None) {
            self.params.iter_mut().zip(lowered.params).for_each(|(own, param)| own.few = param.few);
        }
        self
    }

    /// How many tokens the model knows: the rows of the smallest table that ids are looked up in, whatever it is called.
    pub fn vocabulary(&self) -> Option<usize> {
        self.limits.vocabulary.or_else(|| self.architecture.size("vocab_size"))
    }

    /// Why each new token runs the whole sequence again, if it does.
    pub fn runs_whole(&self) -> Option<&str> {
        self.limits.whole.as_deref()
    }

    /// The number of elements of all parameters.
    pub fn parameter_count(&self) -> usize {
        self.params.iter().map(|p| p.ty.numel()).sum()
    }
}

/// What a model of the library finds wrong is wrong in the configuration that chose its sizes.
fn of_config(error: Error, path: &Path) -> Error {
    match error {
        Error::Language(text) => {
            let reason = format!("its sizes make no model: {}", first_line(&text));
            Error::Config { path: path.to_path_buf(), reason }
        }
        other => other,
    }
}

/// What the first of some findings says, without code and place.
pub(crate) fn first_line(findings: &str) -> &str {
    let first = findings.lines().next().unwrap_or_default();
    first.split_once("]: ").map_or(first, |(_, reason)| reason)
}

/// Optional parameters none of whose tensors are in the checkpoint are `None`.
fn leave_out(architecture: &mut Architecture, checkpoint: &Checkpoint, dtype: DType) -> Result<()> {
    if !architecture.mappings().iter().any(|mapping| mapping.path.optional) {
        return Ok(());
    }
    let params = architecture.lower(1, 1, dtype, None)?.params;
    let known: BTreeSet<String> = checkpoint.names().map(String::from).collect();
    for (param, sources) in params.iter().zip(sources(architecture, &params)?) {
        let parts = || sources.slices().iter().flat_map(|slice| &slice.parts);
        let optional = sources.slices().iter().all(|slice| slice.optional);
        if optional && !parts().any(|part| known.contains(&part.tensor)) {
            architecture.absent.insert(param.path.clone());
        }
    }
    Ok(())
}

/// Heads that score a vocabulary.
pub(crate) const HEADS: &[&str] = &["lm_head.weight", "embed_out.weight"];

/// Tensors that no parameter is made of would be lost silently; buffers and tied heads are no loss.
fn reject_unused(checkpoint: &Checkpoint, pieces: &[Vec<Piece>], headless: bool) -> Result<()> {
    const BUFFERS: &[&str] = &["inv_freq", ".attn.bias", ".masked_bias", ".attention.bias"];
    let used: BTreeSet<&str> = pieces.iter().flatten().map(|piece| &*piece.tensor).collect();
    let harmless = |name: &str| {
        name.starts_with(crate::export::PACKED)
            || BUFFERS.iter().any(|end| name.ends_with(end))
            || HEADS.contains(&name)
            || headless && name == "score.weight"
    };
    let mut names = checkpoint.names();
    match names.find(|name| !used.contains(name) && !harmless(name)) {
        Some(tensor) => Err(Error::UnusedTensor { path: checkpoint.dir().to_path_buf(), tensor: tensor.to_string() }),
        None => Ok(()),
    }
}

/// Finds the tensors of one slice of a parameter and their place in it.
fn find_slice(
    checkpoint: &Checkpoint,
    param: &Parameter,
    index: Option<usize>,
    slice: &Slice,
    found: &mut Vec<Piece>,
) -> Result<()> {
    let whole = &param.ty.shape[usize::from(index.is_some())..];
    let mut start = 0;
    let mut path = checkpoint.dir().to_path_buf();
    for part in &slice.parts {
        let Some(stored) = checkpoint.get(&part.tensor) else {
            return Err(Error::MissingTensor {
                path: checkpoint.dir().to_path_buf(),
                tensor: part.tensor.clone(),
                parameter: param.path.clone(),
                expected: whole.to_vec(),
            });
        };
        path = stored.path.to_path_buf();
        let mut shape = stored.shape.to_vec();
        if part.transposed {
            shape.reverse();
        }
        if let Some((from, to)) = part.range
            && shape.get(slice.dim).is_some_and(|size| *size != to - from)
        {
            return Err(Error::Tensor {
                path,
                tensor: part.tensor.clone(),
                expected: format!("{} along dimension {} (parameter `{}`)", to - from, slice.dim, param.path),
                found: format!("{:?}", stored.shape),
            });
        }
        let last = slice.parts.len() == 1;
        let fits = shape.len() == whole.len()
            && (0..shape.len()).all(|d| d == slice.dim && !last || shape[d] == whole[d])
            && (shape.is_empty() || start + shape[slice.dim] <= whole[slice.dim]);
        if !fits {
            let mut expected: Vec<String> = whole.iter().map(usize::to_string).collect();
            if !last {
                expected[slice.dim] = format!("at most {}", whole[slice.dim] - start);
            }
            if part.transposed {
                expected.reverse();
            }
            return Err(Error::Tensor {
                path,
                tensor: part.tensor.clone(),
                expected: format!("[{}] (parameter `{}`)", expected.join(", "), param.path),
                found: format!("{:?}", stored.shape),
            });
        }
        found.push(Piece {
            tensor: part.tensor.clone(),
            shape: stored.shape.to_vec(),
            stored: stored.dtype,
            transposed: part.transposed,
            function: part.function,
            index,
            dim: slice.dim,
            start,
        });
        stored.check_dtype(&part.tensor)?;
        start += shape.get(slice.dim).copied().unwrap_or(0);
    }
    match whole.get(slice.dim) {
        Some(&size) if size != start => Err(Error::Tensor {
            path,
            tensor: slice.parts.iter().map(|p| &*p.tensor).collect::<Vec<_>>().join(" + "),
            expected: format!("{size} along dimension {} (parameter `{}`)", slice.dim, param.path),
            found: format!("{start}"),
        }),
        _ => Ok(()),
    }
}

impl Piece {
    /// Runs of elements that are consecutive both in the parameter and in the piece: start of each, length.
    pub(crate) fn runs(&self, whole: &[usize]) -> (impl Iterator<Item = usize> + use<>, usize) {
        let (offset, whole) = match self.index {
            Some(i) => (i * whole[1..].iter().product::<usize>(), &whole[1..]),
            None => (0, whole),
        };
        let size = match (self.transposed, self.dim) {
            (true, dim) => self.shape[self.shape.len() - 1 - dim],
            (false, dim) => self.shape.get(dim).copied().unwrap_or(1),
        };
        let inner: usize = whole.iter().skip(self.dim + 1).product();
        let outer: usize = whole[..self.dim.min(whole.len())].iter().product();
        let axis = whole.get(self.dim).copied().unwrap_or(1);
        let start = self.start;
        let starts = (0..outer).map(move |o| offset + (o * axis + start) * inner);
        (starts, size * inner)
    }

    /// Writes the piece's elements into the parameter's.
    pub(crate) fn place(&self, whole: &[usize], data: &mut [f32], values: &[f32]) {
        let turned;
        let values = if self.transposed {
            turned = transpose(values, self.shape[0], self.shape[1]);
            &turned
        } else {
            values
        };
        let (starts, length) = self.runs(whole);
        for (at, from) in starts.zip(values.chunks_exact(length.max(1))) {
            for (to, from) in data[at..at + length].iter_mut().zip(from) {
                *to = self.function.apply(*from);
            }
        }
    }

    /// The piece's elements, out of the parameter's, in HuggingFace's layout.
    pub(crate) fn take(&self, whole: &[usize], data: &[f32]) -> Vec<f32> {
        let mut values = self.cut(whole, data);
        values.iter_mut().for_each(|value| *value = self.function.undo(*value));
        values
    }

    /// The gradient of the piece, out of the parameter's and the parameter itself.
    pub(crate) fn take_gradient(&self, whole: &[usize], gradient: &[f32], data: &[f32]) -> Vec<f32> {
        let mut values = self.cut(whole, gradient);
        if self.function != Function::Identity {
            let at = self.cut(whole, data);
            values.iter_mut().zip(at).for_each(|(value, y)| *value *= self.function.slope(y));
        }
        values
    }

    fn cut(&self, whole: &[usize], data: &[f32]) -> Vec<f32> {
        let (starts, length) = self.runs(whole);
        let values: Vec<f32> = starts.flat_map(|at| data[at..at + length].iter().copied()).collect();
        if self.transposed { transpose(&values, self.shape[1], self.shape[0]) } else { values }
    }
}

fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}
