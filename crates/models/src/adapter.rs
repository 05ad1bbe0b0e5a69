//! Adapters: small tensors trained beside chosen matrices of a model, also where the model stores several of these in one
//! parameter. LoRA adds `α/r · B·A`, IA³ multiplies by a vector.
//!
//! The file format is that of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

use crate::budget;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::export::write_tensors;
use crate::ia3::Ia3Options;
use crate::insert_adapter::insert_adapter;
use crate::lora::LoraOptions;
use crate::model::{CheckpointSlice, Model};
use crate::random::SplitMix64;
use crate::session::{ProgramSession, upload};
use compiler::Backend;
use ir::{DType, Type};
use serde_json::{Value as Json, json};
use std::path::Path;
use train::NamedTensor;
use train::files;
use train::named_tensor::to_bytes;

/// The kind of an adapter, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum AdapterOptions {
    /// A low-rank update.
    Lora(LoraOptions),
    /// Scaling vectors of activations.
    Ia3(Ia3Options),
}

impl From<&LoraOptions> for AdapterOptions {
    fn from(options: &LoraOptions) -> AdapterOptions {
        AdapterOptions::Lora(options.clone())
    }
}

impl From<&Ia3Options> for AdapterOptions {
    fn from(options: &Ia3Options) -> AdapterOptions {
        AdapterOptions::Ia3(options.clone())
    }
}

impl AdapterOptions {
    fn targets(&self) -> &[String] {
        match self {
            AdapterOptions::Lora(options) => &options.targets,
            AdapterOptions::Ia3(options) => &options.targets,
        }
    }

    /// The dropout probability of a projection's inputs during training.
    pub(crate) fn dropout(&self) -> f64 {
        match self {
            AdapterOptions::Lora(options) => options.dropout,
            AdapterOptions::Ia3(_) => 0.0,
        }
    }
}

/// Whether a target names a module: the end of the module's name, with or without `_proj`.
pub(crate) fn matches_target(target: &str, module: &str) -> bool {
    let last = module.rsplit('.').next().unwrap_or(module);
    ends_with(module, target) || last.strip_suffix("_proj") == Some(target)
}

fn ends_with(module: &str, target: &str) -> bool {
    module.strip_suffix(target).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The names under which PEFT knows the targets.
fn full_names(targets: &[String], modules: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for target in targets {
        for module in modules.iter().filter(|module| matches_target(target, module)) {
            let last = module.rsplit('.').next().unwrap_or(module);
            names.push(if ends_with(module, target) { target.clone() } else { last.to_string() });
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// An adapted matrix.
#[derive(Clone, Debug)]
pub(crate) struct AdaptedMatrix {
    /// The HuggingFace name of the module: `model.layers.0.self_attn.q_proj`.
    pub(crate) module: String,
    /// The index of the parameter that holds its weight.
    pub(crate) param: usize,
    /// The piece of the parameter that is its weight.
    pub(crate) slice: CheckpointSlice,
    /// The sizes of the matrix: out, in.
    pub(crate) shape: [usize; 2],
    /// The module's bias, if it has one: the index of the parameter, and the piece of it.
    pub(crate) bias: Option<(usize, CheckpointSlice)>,
}

/// An adapter of a model.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The adapter's kind, sizes and targets.
    pub options: AdapterOptions,
    /// The directory of its base model.
    pub base: String,
    pub(crate) matrices: Vec<AdaptedMatrix>,
    /// The elements of [`Adapter::tensors`], in the same order.
    pub(crate) values: Vec<Vec<f32>>,
}

impl Adapter {
    /// Sets every element, in the order of tensors and elements.
    pub fn fill(&mut self, mut value: impl FnMut(usize) -> f32) {
        for tensor in &mut self.values {
            tensor.iter_mut().enumerate().for_each(|(i, x)| *x = value(i));
        }
    }

    /// Creates an adapter that does not change the model yet.
    pub fn new_untrained(model: &Model, base: &str, options: impl Into<AdapterOptions>, seed: u64) -> Result<Adapter> {
        let options = options.into();
        let mut adapter = Adapter::empty(model, base, &options)?;
        let elements = adapter.tensors().iter().map(|(_, ty)| ty.numel() as u128).sum::<u128>();
        budget::check_fits("the adapter", elements * 16, "give a lower rank or fewer targets")?;
        let mut random = SplitMix64::new(seed, 2);
        adapter.values = match &options {
            AdapterOptions::Lora(options) => {
                let pairs = adapter.matrices.iter().map(|place| options.init_matrices(place.shape, &mut random));
                pairs.flatten().collect()
            }
            AdapterOptions::Ia3(_) => adapter.tensors().iter().map(|(_, ty)| vec![1.0; ty.numel()]).collect(),
        };
        Ok(adapter)
    }

    fn empty(model: &Model, base: &str, options: &AdapterOptions) -> Result<Adapter> {
        let places = find_matrices(model, options)?;
        Ok(Adapter { options: options.clone(), base: base.to_string(), matrices: places, values: Vec::new() })
    }

    /// The number of trainable elements.
    pub fn parameter_count(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }

    /// The names and types of the trainable tensors, matrix by matrix.
    pub(crate) fn tensors(&self) -> Vec<(String, Type)> {
        let of = |place: &AdaptedMatrix| -> Vec<(String, Type)> {
            let named = |end: &str, shape: [usize; 2]| {
                (format!("base_model.model.{}.{end}", place.module), Type::new(DType::F32, &shape))
            };
            let [out, inner] = place.shape;
            match &self.options {
                AdapterOptions::Lora(options) => {
                    vec![named("lora_A.weight", [options.rank, inner]), named("lora_B.weight", [out, options.rank])]
                }
                AdapterOptions::Ia3(options) => match options.is_feedforward(&place.module) {
                    true => vec![named("ia3_l", [1, inner])],
                    false => vec![named("ia3_l", [out, 1])],
                },
            }
        };
        self.matrices.iter().flat_map(of).collect()
    }

    /// The number of tensors per matrix.
    pub(crate) fn tensors_per_matrix(&self) -> usize {
        match self.options {
            AdapterOptions::Lora(_) => 2,
            AdapterOptions::Ia3(_) => 1,
        }
    }

    /// Writes PEFT's two files into a directory, which is created if necessary.
    pub fn write(&self, dir: &Path) -> Result<()> {
        files::create_dir_all(dir)?;
        let named = self.tensors().into_iter().zip(&self.values);
        let tensors: Vec<NamedTensor> = named
            .map(|((name, ty), values)| NamedTensor {
                name,
                shape: ty.shape.to_vec(),
                dtype: DType::F32,
                bytes: to_bytes(values, DType::F32),
            })
            .collect();
        write_tensors(&dir.join("adapter_model.safetensors"), &tensors)?;
        let modules: Vec<&str> = self.matrices.iter().map(|place| &*place.module).collect();
        let targets = full_names(self.options.targets(), &modules);
        let turned = self.matrices.iter().any(|place| place.slice.transposed);
        let mut config = json!({
            "task_type": "CAUSAL_LM", "base_model_name_or_path": self.base, "target_modules": targets,
            "fan_in_fan_out": turned, "inference_mode": true,
        });
        let further = match &self.options {
            AdapterOptions::Lora(options) => json!({
                "peft_type": "LORA", "r": options.rank, "lora_alpha": options.alpha, "lora_dropout": options.dropout,
                "bias": "none", "use_rslora": false, "use_dora": false,
            }),
            AdapterOptions::Ia3(options) => json!({
                "peft_type": "IA3", "feedforward_modules": full_names(&options.feedforward, &modules),
                "init_ia3_weights": true,
            }),
        };
        if let (Some(config), Json::Object(further)) = (config.as_object_mut(), further) {
            config.extend(further);
        }
        Ok(files::write(&dir.join("adapter_config.json"), format!("{config:#}\n").as_bytes())?)
    }

    /// Returns the directory of the model that an adapter was trained on.
    pub fn base_of(dir: &Path) -> Result<String> {
        let config = read_config(dir)?;
        let base = config.get("base_model_name_or_path").and_then(Json::as_str);
        base.map(String::from).ok_or_else(|| Error::Config {
            path: dir.join("adapter_config.json"),
            reason: "`base_model_name_or_path` is missing: give the base model with `--base`".into(),
        })
    }

    /// Reads PEFT's two files for a model.
    pub fn read(dir: &Path, model: &Model) -> Result<Adapter> {
        Ok(Adapter::read_parts(dir, model, false)?.0)
    }

    /// Reads an adapter with a classification head; returns the head and the number of classes too.
    pub(crate) fn read_with_head(dir: &Path, model: &Model) -> Result<(Adapter, Vec<f32>, usize)> {
        let (adapter, head) = Adapter::read_parts(dir, model, true)?;
        let file = Checkpoint::open_file(&dir.join("adapter_model.safetensors"))?;
        let count = file.expect(HEAD)?.shape.first().copied().unwrap_or(0);
        Ok((adapter, head, count))
    }

    fn read_parts(dir: &Path, model: &Model, headed: bool) -> Result<(Adapter, Vec<f32>)> {
        let path = dir.join("adapter_config.json");
        let config = read_config(dir)?;
        let options = read_options(&config, headed).map_err(|reason| Error::Config { path, reason })?;
        let base = config.get("base_model_name_or_path").and_then(Json::as_str).unwrap_or("");
        let mut adapter = Adapter::empty(model, base, &options)?;
        let path = dir.join("adapter_model.safetensors");
        let file = Checkpoint::open_file(&path)?;
        let tensors = adapter.tensors();
        for (name, ty) in &tensors {
            let stored = file.get(name).ok_or_else(|| Error::MissingTensor {
                path: path.clone(),
                tensor: name.clone(),
                parameter: name.clone(),
                expected: ty.shape.to_vec(),
            })?;
            if stored.shape[..] != ty.shape[..] {
                let (expected, found) = (format!("{:?}", ty.shape), format!("{:?}", stored.shape));
                return Err(Error::Tensor { path, tensor: name.clone(), expected, found });
            }
            adapter.values.push(stored.to_f32_vec(name)?);
        }
        let head = if headed { file.expect(HEAD)?.to_f32_vec(HEAD)? } else { Vec::new() };
        let known = |name: &str| tensors.iter().any(|(known, _)| known == name) || headed && name == HEAD;
        if let Some(tensor) = file.names().find(|name| !known(name)) {
            return Err(Error::UnusedTensor { path: path.clone(), tensor: tensor.to_string() });
        }
        Ok((adapter, head))
    }
}

/// PEFT's name of the classification head of an adapter.
const HEAD: &str = "base_model.model.score.weight";

fn read_config(dir: &Path) -> Result<Json> {
    let path = dir.join("adapter_config.json");
    let text = files::read_text(&path, files::MAX_CONFIG_BYTES)?;
    serde_json::from_str(&text).map_err(|e| Error::Config { path, reason: format!("not valid JSON: {e}") })
}

/// A list of names in a configuration.
pub(crate) fn string_list(config: &Json, field: &str) -> std::result::Result<Vec<String>, String> {
    match config.get(field) {
        Some(Json::Array(names)) => Ok(names.iter().filter_map(Json::as_str).map(String::from).collect()),
        _ => Err(format!("`{field}` must be a list of names")),
    }
}

/// Parses PEFT's configuration; returns why it is not supported otherwise.
fn read_options(config: &Json, headed: bool) -> std::result::Result<AdapterOptions, String> {
    let whole = config.get("modules_to_save").filter(|modules| !modules.is_null());
    // PEFT lists both names that a classification head may have; decoders have this one.
    let list = whole.and_then(Json::as_array).cloned().unwrap_or_default();
    let scores =
        list.iter().any(|name| name == "score") && list.iter().all(|name| name == "score" || name == "classifier");
    if scores && !headed {
        return Err("the adapter is a classifier: use `loom classify`".into());
    }
    if whole.is_some() && !scores {
        return Err("adapters with full modules (`modules_to_save`) are not supported yet".into());
    }
    match config.get("peft_type").and_then(Json::as_str) {
        Some("LORA") => LoraOptions::read(config).map(AdapterOptions::Lora),
        Some("IA3") => Ia3Options::read(config).map(AdapterOptions::Ia3),
        other => {
            let found = other.unwrap_or("none");
            Err(format!("adapters with peft_type {found} are not supported yet: use LORA or IA3"))
        }
    }
}

/// All matrices that the options select.
fn find_matrices(model: &Model, options: &AdapterOptions) -> Result<Vec<AdaptedMatrix>> {
    let mut places: Vec<AdaptedMatrix> = Vec::new();
    let mut known = Vec::new();
    let bias = |module: &str| {
        let name = format!("{module}.bias");
        let mut pieces = model.pieces.iter().enumerate().flat_map(|(i, pieces)| pieces.iter().map(move |p| (i, p)));
        pieces.find(|(_, piece)| piece.tensor == name).map(|(param, piece)| (param, piece.clone()))
    };
    for (param, pieces) in model.pieces.iter().enumerate() {
        for piece in pieces {
            let Some(module) = piece.tensor.strip_suffix(".weight") else { continue };
            if piece.shape.len() != 2 || piece.index.is_some() {
                continue;
            }
            known.push(module.rsplit('.').next().unwrap_or(module).to_string());
            if options.targets().iter().any(|target| matches_target(target, module)) {
                let mut shape = [piece.shape[0], piece.shape[1]];
                if piece.transposed {
                    shape.reverse();
                }
                let bias = bias(module);
                places.push(AdaptedMatrix { module: module.to_string(), param, slice: piece.clone(), shape, bias });
            }
        }
    }
    let missing =
        options.targets().iter().find(|target| !places.iter().any(|place| matches_target(target, &place.module)));
    if let Some(target) = missing {
        known.sort();
        known.dedup();
        return Err(Error::Input(format!("target module `{target}` not found: the model has {}", known.join(", "))));
    }
    Ok(places)
}

impl Model {
    /// Merges an adapter into the model's weights.
    pub fn merge(&mut self, adapter: &Adapter) -> Result<()> {
        for (place, values) in adapter.matrices.iter().zip(adapter.values.chunks(adapter.tensors_per_matrix())) {
            let width = self.params[place.param].ty.shape[1];
            let mut weights = self.values(place.param)?;
            let change: Box<dyn Fn(usize, usize, f64) -> f64> = match &adapter.options {
                AdapterOptions::Lora(options) => Box::new(options.merge_into(place.shape, values)),
                AdapterOptions::Ia3(options) => Box::new(options.merged(&place.module, values)),
            };
            let [out, inner] = place.shape;
            for o in 0..out {
                for i in 0..inner {
                    let mut at = [o, i];
                    at[place.slice.dim] += place.slice.start;
                    let weight = &mut weights[at[0] * width + at[1]];
                    *weight = change(o, i, f64::from(*weight)) as f32;
                }
            }
            self.set_values(place.param, &weights);
            // A factor of a projection's results multiplies its bias too.
            if let (AdapterOptions::Ia3(options), Some((param, piece))) = (&adapter.options, &place.bias)
                && !options.is_feedforward(&place.module)
            {
                let mut biases = self.values(*param)?;
                for (bias, factor) in biases[piece.start..].iter_mut().zip(&values[0]) {
                    *bias *= factor;
                }
                self.set_values(*param, &biases);
            }
        }
        Ok(())
    }

    /// Computes the logits of a batch with an adapter beside the weights, without merging it.
    pub fn evaluate_adapted(&self, adapter: &Adapter, ids: &[Vec<i32>], backend: &dyn Backend) -> Result<NamedTensor> {
        let steps = self.check_ids(ids)?;
        let options = lang::lower::LowerOptions { dtype: self.dtype, ..Default::default() };
        let lowered = self.architecture.lower_with(ids.len(), steps, &options)?;
        let graph = insert_adapter(&lowered.graph, false, adapter, false)?;
        let graph = self.read_packed(&graph, adapter.values.len())?;
        let values = adapter.values.iter().map(|v| to_bytes(v, DType::F32)).collect::<Vec<_>>();
        let mut fixed = upload(backend, &values)?;
        fixed.extend(self.upload(backend)?);
        let mut session = ProgramSession::new(&graph, backend, &fixed)?;
        session.write_ints(fixed.len(), ids.iter().flatten().copied())?;
        session.run()?;
        let (ty, bytes) = session.read(0)?;
        Ok(NamedTensor { name: "logits".into(), shape: ty.shape.to_vec(), dtype: ty.dtype, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_mean_the_end_of_a_name() {
        let cases = [
            ("q", "model.layers.0.self_attn.q_proj", true),
            ("q_proj", "model.layers.0.self_attn.q_proj", true),
            ("mlp.c_proj", "transformer.h.0.mlp.c_proj", true),
            ("mlp.c_proj", "transformer.h.0.attn.c_proj", false),
            ("k", "model.layers.0.self_attn.q_proj", false),
            ("proj", "model.layers.0.self_attn.q_proj", false),
        ];
        for (target, module, wanted) in cases {
            assert_eq!(matches_target(target, module), wanted, "{target} {module}");
        }
        let modules = ["h.0.mlp.c_proj", "h.1.mlp.c_proj", "x.q_proj"];
        assert_eq!(full_names(&["mlp.c_proj".into(), "q".into()], &modules), ["mlp.c_proj", "q_proj"]);
    }
}
