//! A model with its weights in memory.

use crate::architecture::Architecture;
use crate::budget;
use crate::checkpoint::{Checkpoint, first_inexact};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::init::{init_values, split_sources};
use crate::mapping::{ElementTransform, ParamSlice, sources};
use crate::pooling::Pooling;
use crate::random::SplitMix64;
use crate::special_tokens::SpecialTokens;
use crate::weight::Weight;
use ir::DType;
use lang::lower::{Parameter, SequenceLimits};
use lang::resolve::ModuleProgram;
use safetensors::Dtype;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use train::named_tensor::to_bytes;

/// A checkpoint tensor and its position in a parameter.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointSlice {
    /// The HuggingFace name.
    pub(crate) tensor: String,
    /// The HuggingFace shape.
    pub(crate) shape: Vec<usize>,
    /// The stored dtype.
    pub(crate) stored: Dtype,
    pub(crate) transposed: bool,
    pub(crate) function: ElementTransform,
    /// The index along the first dimension, for stacked parameters.
    pub(crate) index: Option<usize>,
    /// The dimension along which the parts are concatenated, and the start of the piece there.
    pub(crate) dim: usize,
    pub(crate) start: usize,
}

/// A model of the library or of a `.module` file, with its weights.
#[derive(Clone)]
pub struct Model {
    /// The model's declaration and sizes.
    pub architecture: Architecture,
    /// The parameters, in order.
    pub params: Vec<Parameter>,
    /// The dtype of parameters and activations.
    pub dtype: DType,
    pub(crate) weights: Vec<Weight>,
    pub(crate) checkpoint: Option<Arc<Checkpoint>>,
    pub(crate) limits: SequenceLimits,
    pub(crate) pieces: Vec<Vec<CheckpointSlice>>,
    pub(crate) config: Json,
    /// How hidden states are pooled to an embedding.
    pub(crate) pooling: Pooling,
}

impl Model {
    /// Loads a directory or a GGUF file; fails unless all tensors fit.
    pub fn load(dir: &Path, dtype: DType) -> Result<Model> {
        Model::load_with_module(dir, dtype, None)
    }

    /// Loads a checkpoint with a user's model: its `hf_config` maps fields of `config.json` to parameters, its `hf_mapping` maps
    /// tensors. Exports embed the module.
    pub fn load_with_module(dir: &Path, dtype: DType, module: Option<ModuleProgram>) -> Result<Model> {
        if crate::gguf::is_gguf(dir) {
            return match module {
                None => Model::load_gguf(dir, dtype),
                Some(_) => Err(Error::file(
                    dir,
                    "`--module` cannot be used with a GGUF file, which determines the model itself: remove it",
                )),
            };
        }
        Model::load_as(dir, dtype, module, None)
    }

    /// Loads a model without its language model head: as the first of these architectures that the library has, with zeros for the head.
    pub(crate) fn load_without_lm_head(dir: &Path, dtype: DType, names: &[String]) -> Result<Model> {
        Model::load_as(dir, dtype, None, Some(names))
    }

    fn load_as(dir: &Path, dtype: DType, module: Option<ModuleProgram>, headless: Option<&[String]>) -> Result<Model> {
        let path = dir.join("config.json");
        let mut config = Config::read(&path)?;
        // Our own method marks quantized weights, which is also visible from the weights themselves.
        let ours =
            config.json.pointer("/quantization_config/quant_method").and_then(Json::as_str) == Some("tensorloom");
        if let (true, Some(fields)) = (ours, config.json.as_object_mut()) {
            fields.remove("quantization_config");
        }
        for name in headless.unwrap_or_default() {
            if let Some(fields) = config.json.as_object_mut() {
                fields.insert("architectures".into(), vec![name.clone()].into());
            }
            if Architecture::from_config(&config, &path).is_ok() {
                break;
            }
        }
        let mut architecture = match module {
            None => Architecture::from_config(&config, &path)?,
            Some(program) => {
                let own = Architecture::from_program_config(program, &config, &path)?;
                if let (Some(fields), Some(carried)) = (config.json.as_object_mut(), own.embedded_module()) {
                    fields.insert("tensorloom".into(), carried);
                }
                own
            }
        };
        let checkpoint = Checkpoint::open(dir)?;
        let wrong = |error| config_error(error, &path);
        drop_absent_params(&mut architecture, &checkpoint, dtype).map_err(wrong)?;
        let params = architecture.lower(1, 1, dtype, None).map_err(wrong)?.params;
        let packed = checkpoint.packed()?;
        // Quantized parameters have fewer bytes than elements, with at most eight elements per byte.
        let most = if packed.is_empty() { 1 } else { 8 };
        budget::check_parameters(&params, checkpoint.elements().saturating_mul(most), &path)?;
        let sources = sources(&architecture, &params)?;
        let mut pieces = Vec::new();
        let mut weights = vec![Weight::Stored; params.len()];
        for (i, (param, sources)) in params.iter().zip(&sources).enumerate() {
            let stacked = matches!(sources, crate::mapping::ParamSources::Stacked(_));
            let mut found = Vec::new();
            // An adapter that the checkpoint lacks is initialized without effect; otherwise it is read.
            let parts = sources.slices().iter().flat_map(|slice| &slice.parts);
            if param.adapter && !parts.into_iter().any(|part| checkpoint.get(&part.tensor).is_some()) {
                let values = init_values(&architecture, param, 1, &mut SplitMix64::new(0, 1 + i as u64));
                weights[i] = Weight::InMemory(param.ty.dtype, to_bytes(&values, param.ty.dtype));
                pieces.push(split_sources(&architecture, param, sources)?);
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
                pieces.push(split_sources(&architecture, param, sources)?);
                continue;
            }
            let mut parts = sources.slices().iter().flat_map(|slice| &slice.parts);
            if headless.is_some()
                && parts.all(|p| LM_HEAD_NAMES.contains(&&p.tensor[..]) && checkpoint.get(&p.tensor).is_none())
            {
                weights[i] = Weight::InMemory(param.ty.dtype, vec![0; param.ty.bytes()]);
                pieces.push(split_sources(&architecture, param, sources)?);
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

    /// Integer parameters must represent the checkpoint's values exactly.
    fn check_whole_numbers(&self) -> Result<()> {
        for (i, param) in self.params.iter().enumerate().filter(|(_, param)| !param.ty.dtype.is_float()) {
            if let Some(x) = first_inexact(&self.values(i)?, param.ty.dtype) {
                return Err(Error::Input(format!(
                    "parameter `{}` is {}, but its tensor has the value {x}: quantize the checkpoint, or remove the \
                     dtype",
                    param.path, param.ty.dtype
                )));
            }
        }
        Ok(())
    }

    /// The maximum sequence length, if there is one.
    pub fn max_sequence(&self) -> Option<usize> {
        self.architecture.size("max_seq").into_iter().chain(self.limits.max_positions).min()
    }

    /// Whether longer sequences are possible, with positions that were not seen in training.
    pub fn can_extrapolate(&self) -> bool {
        self.architecture.max_positions().is_none()
    }

    /// Returns the same model with new values of every parameter.
    pub(crate) fn with_values(&self, values: &[Vec<f32>]) -> Model {
        let held = values.iter().zip(&self.params);
        let weights =
            held.map(|(values, param)| Weight::InMemory(param.ty.dtype, to_bytes(values, param.ty.dtype))).collect();
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

    /// Records the special tokens of a tokenizer in the configuration.
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

    /// Replaces the model's precision recipe.
    pub fn with_recipe(mut self, recipe: lang::lower::PrecisionRecipe) -> Model {
        self.architecture.recipe = Some(recipe);
        self.limits = self.architecture.limits(self.dtype);
        if let Ok(lowered) = self.architecture.lower(1, 1, self.dtype, None) {
            self.params.iter_mut().zip(lowered.params).for_each(|(own, param)| own.rounding = param.rounding);
        }
        self
    }

    /// The vocabulary size: the number of rows of the smallest embedding table, whatever its name.
    pub fn vocabulary(&self) -> Option<usize> {
        self.limits.vocabulary.or_else(|| self.architecture.size("vocab_size"))
    }

    /// Why each new token recomputes the whole sequence, if it does.
    pub fn full_recompute_reason(&self) -> Option<&str> {
        self.limits.not_incremental.as_deref()
    }

    /// The number of elements of all parameters.
    pub fn parameter_count(&self) -> usize {
        self.params.iter().map(|p| p.ty.numel()).sum()
    }
}

/// Converts a library model's error to one of the configuration that chose its sizes.
fn config_error(error: Error, path: &Path) -> Error {
    match error {
        Error::Language(text) => {
            let reason = format!("its sizes make no model: {}", first_line(&text));
            Error::Config { path: path.to_path_buf(), reason }
        }
        other => other,
    }
}

/// The message of the first diagnostic, without code and location.
pub(crate) fn first_line(findings: &str) -> &str {
    let first = findings.lines().next().unwrap_or_default();
    first.split_once("]: ").map_or(first, |(_, reason)| reason)
}

/// Sets optional parameters to `None` if none of their tensors are in the checkpoint.
fn drop_absent_params(architecture: &mut Architecture, checkpoint: &Checkpoint, dtype: DType) -> Result<()> {
    if !architecture.mappings().iter().any(|mapping| mapping.path.optional) {
        return Ok(());
    }
    let params = architecture.lower(1, 1, dtype, None)?.params;
    let known: BTreeSet<String> = checkpoint.names().map(String::from).collect();
    for (param, sources) in params.iter().zip(sources(architecture, &params)?) {
        let parts = || sources.slices().iter().flat_map(|slice| &slice.parts);
        let optional = sources.slices().iter().all(|slice| slice.optional);
        if optional && !parts().any(|part| known.contains(&part.tensor)) {
            architecture.absent_weights.insert(param.path.clone());
        }
    }
    Ok(())
}

/// Tensor names of language model heads.
pub(crate) const LM_HEAD_NAMES: &[&str] = &["lm_head.weight", "embed_out.weight"];

/// Rejects tensors that no parameter uses, which would be lost silently; buffers and tied heads are ignored.
fn reject_unused(checkpoint: &Checkpoint, pieces: &[Vec<CheckpointSlice>], headless: bool) -> Result<()> {
    const BUFFERS: &[&str] = &["inv_freq", ".attn.bias", ".masked_bias", ".attention.bias"];
    let used: BTreeSet<&str> = pieces.iter().flatten().map(|piece| &*piece.tensor).collect();
    let harmless = |name: &str| {
        name.starts_with(crate::export::PACKED_PREFIX)
            || BUFFERS.iter().any(|end| name.ends_with(end))
            || LM_HEAD_NAMES.contains(&name)
            || headless && name == "score.weight"
    };
    let mut names = checkpoint.names();
    match names.find(|name| !used.contains(name) && !harmless(name)) {
        Some(tensor) => Err(Error::UnusedTensor { path: checkpoint.dir().to_path_buf(), tensor: tensor.to_string() }),
        None => Ok(()),
    }
}

/// Finds the tensors of one slice of a parameter and their positions in it.
fn find_slice(
    checkpoint: &Checkpoint,
    param: &Parameter,
    index: Option<usize>,
    slice: &ParamSlice,
    found: &mut Vec<CheckpointSlice>,
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
        found.push(CheckpointSlice {
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

impl CheckpointSlice {
    /// Runs of elements that are contiguous both in the parameter and in the piece: the start of each, and their length.
    pub(crate) fn contiguous_runs(&self, whole: &[usize]) -> (impl Iterator<Item = usize> + use<>, usize) {
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

    /// Writes the piece's elements into the parameter.
    pub(crate) fn write_into(&self, whole: &[usize], data: &mut [f32], values: &[f32]) {
        let turned;
        let values = if self.transposed {
            turned = transpose(values, self.shape[0], self.shape[1]);
            &turned
        } else {
            values
        };
        let (starts, length) = self.contiguous_runs(whole);
        for (at, from) in starts.zip(values.chunks_exact(length.max(1))) {
            for (to, from) in data[at..at + length].iter_mut().zip(from) {
                *to = self.function.apply(*from);
            }
        }
    }

    /// Reads the piece's elements from the parameter, in HuggingFace's layout.
    pub(crate) fn read_from(&self, whole: &[usize], data: &[f32]) -> Vec<f32> {
        let mut values = self.extract(whole, data);
        values.iter_mut().for_each(|value| *value = self.function.invert(*value));
        values
    }

    /// Computes the piece's gradient from the gradient and the values of the parameter.
    pub(crate) fn read_gradient_from(&self, whole: &[usize], gradient: &[f32], data: &[f32]) -> Vec<f32> {
        let mut values = self.extract(whole, gradient);
        if self.function != ElementTransform::Identity {
            let at = self.extract(whole, data);
            values.iter_mut().zip(at).for_each(|(value, y)| *value *= self.function.derivative_at(y));
        }
        values
    }

    fn extract(&self, whole: &[usize], data: &[f32]) -> Vec<f32> {
        let (starts, length) = self.contiguous_runs(whole);
        let values: Vec<f32> = starts.flat_map(|at| data[at..at + length].iter().copied()).collect();
        if self.transposed { transpose(&values, self.shape[1], self.shape[0]) } else { values }
    }
}

fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}
