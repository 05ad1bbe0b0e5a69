//! Low-rank adapters: `W + α/r · B·A` on chosen matrices, also where the model keeps several of them in one parameter.
//!
//! The adapter is applied to the parameter, not to the activations: whatever the model's text does with the parameter,
//! it sees the adapted one. Files are those of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

use crate::checkpoint::{Checkpoint, from_bytes, to_bytes};
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::export::{write_file, write_tensors};
use crate::model::{Model, Piece};
use crate::random::Random;
use crate::session::{Session, upload};
use compiler::Backend;
use ir::{Build, Builder, DType, Graph, Type, Value};
use serde_json::{Value as Json, json};
use std::path::Path;

/// What may be chosen about an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// Rank of the update.
    pub rank: usize,
    /// The update is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Modules by the last part of their name, with or without `_proj`: `q`, `v_proj`.
    pub targets: Vec<String>,
}

impl LoraOptions {
    /// Reads `rank=8,alpha=16,targets=q,v`.
    pub fn parse(text: &str) -> Result<LoraOptions> {
        let fault = |what: String| Error::Input(format!("{what}: write it as rank=8,alpha=16,targets=q,v"));
        let mut options = LoraOptions { rank: 8, alpha: 16.0, targets: Vec::new() };
        let mut in_targets = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None if in_targets => options.targets.push(word.to_string()),
                Some(("rank", value)) => {
                    let rank = value.parse().ok().filter(|rank| *rank > 0);
                    options.rank = rank.ok_or_else(|| fault(format!("the rank `{value}` is not a positive number")))?;
                }
                Some(("alpha", value)) => {
                    let alpha = value.parse().ok().filter(|alpha: &f64| alpha.is_finite());
                    options.alpha = alpha.ok_or_else(|| fault(format!("alpha `{value}` is not a number")))?;
                }
                Some(("targets", value)) => options.targets.push(value.to_string()),
                _ => return Err(fault(format!("`{word}` means nothing to an adapter"))),
            }
            in_targets |= word.starts_with("targets=");
        }
        if options.targets.is_empty() {
            options.targets = vec!["q".into(), "v".into()];
        }
        Ok(options)
    }

    fn wants(&self, module: &str) -> bool {
        let last = module.rsplit('.').next().unwrap_or(module);
        self.targets.iter().any(|target| last == target || last.strip_suffix("_proj") == Some(target))
    }

    fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }
}

impl std::fmt::Display for LoraOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank={},alpha={},targets={}", self.rank, self.alpha, self.targets.join(","))
    }
}

/// One adapted matrix.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// HuggingFace name of the module: `model.layers.0.self_attn.q_proj`.
    module: String,
    /// The parameter that holds its weight.
    param: usize,
    /// Its place in the parameter.
    piece: Piece,
    /// Sizes of the update: out, in.
    shape: [usize; 2],
    /// `[rank, in]`.
    pub(crate) a: Vec<f32>,
    /// `[out, rank]`.
    pub(crate) b: Vec<f32>,
}

/// An adapter of a model.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Rank, scale and targets.
    pub options: LoraOptions,
    /// The directory of the model it belongs to.
    pub base: String,
    pub(crate) pairs: Vec<Pair>,
}

impl Adapter {
    /// An adapter that changes nothing yet: B is zero.
    pub fn fresh(model: &Model, base: &str, options: &LoraOptions, seed: u64) -> Result<Adapter> {
        let mut random = Random::new(seed, 2);
        let mut pairs = places(model, options)?;
        for pair in &mut pairs {
            let bound = 1.0 / (pair.shape[1] as f64).sqrt();
            let draw = |_| (bound * (2.0 * random.unit() - 1.0)) as f32;
            pair.a = (0..options.rank * pair.shape[1]).map(draw).collect();
            pair.b = vec![0.0; pair.shape[0] * options.rank];
        }
        Ok(Adapter { options: options.clone(), base: base.to_string(), pairs })
    }

    /// The number of trained elements.
    pub fn parameter_count(&self) -> usize {
        self.pairs.iter().map(|pair| pair.a.len() + pair.b.len()).sum()
    }

    /// Names and types of the trained tensors, A before B for each matrix.
    pub(crate) fn tensors(&self) -> Vec<(String, Type)> {
        let rank = self.options.rank;
        let both = self.pairs.iter().map(|pair| {
            let [out, inner] = pair.shape;
            let name = |which: &str| format!("base_model.model.{}.lora_{which}.weight", pair.module);
            [(name("A"), Type::new(DType::F32, &[rank, inner])), (name("B"), Type::new(DType::F32, &[out, rank]))]
        });
        both.flatten().collect()
    }

    /// Their elements, in the same order.
    pub(crate) fn values(&self) -> Vec<Vec<f32>> {
        self.pairs.iter().flat_map(|pair| [pair.a.clone(), pair.b.clone()]).collect()
    }

    pub(crate) fn set_values(&mut self, values: Vec<Vec<f32>>) {
        let mut values = values.into_iter();
        for pair in &mut self.pairs {
            pair.a = values.next().unwrap_or_default();
            pair.b = values.next().unwrap_or_default();
        }
    }

    /// Writes PEFT's two files into a directory, which is made if need be.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| Error::file(dir, e))?;
        let named = self.tensors().into_iter().zip(self.values());
        let tensors: Vec<NamedTensor> = named
            .map(|((name, ty), values)| NamedTensor {
                name,
                shape: ty.shape.to_vec(),
                dtype: DType::F32,
                bytes: to_bytes(&values, DType::F32),
            })
            .collect();
        write_tensors(&dir.join("adapter_model.safetensors"), &tensors)?;
        let mut modules: Vec<&str> = self.pairs.iter().filter_map(|pair| pair.module.rsplit('.').next()).collect();
        modules.sort_unstable();
        modules.dedup();
        let config = json!({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": self.base,
            "r": self.options.rank, "lora_alpha": self.options.alpha, "target_modules": modules,
            "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": self.pairs.iter().any(|p| p.piece.transposed),
            "use_rslora": false, "use_dora": false, "inference_mode": true,
        });
        write_file(&dir.join("adapter_config.json"), format!("{config:#}\n").as_bytes())
    }

    /// The directory of the model that an adapter was trained on.
    pub fn base_of(dir: &Path) -> Result<String> {
        let config = read_config(dir)?;
        let base = config.get("base_model_name_or_path").and_then(Json::as_str);
        base.map(String::from).ok_or_else(|| Error::Config {
            path: dir.join("adapter_config.json"),
            reason: "no `base_model_name_or_path`: name the model with `--base`".into(),
        })
    }

    /// Reads PEFT's two files for a model.
    pub fn read(dir: &Path, model: &Model) -> Result<Adapter> {
        let path = dir.join("adapter_config.json");
        let config = read_config(dir)?;
        let fault = |reason: String| Error::Config { path: path.clone(), reason };
        if config.get("peft_type").and_then(Json::as_str) != Some("LORA") {
            return Err(fault("only adapters with peft_type LORA are supported".into()));
        }
        for (field, name) in [("use_dora", "DoRA"), ("use_rslora", "rank-stabilised LoRA")] {
            if config.get(field).and_then(Json::as_bool) == Some(true) {
                return Err(fault(format!("{name} is not supported yet")));
            }
        }
        for field in ["rank_pattern", "alpha_pattern"] {
            if config.get(field).and_then(Json::as_object).is_some_and(|map| !map.is_empty()) {
                return Err(fault(format!("`{field}` is not supported yet")));
            }
        }
        if config.get("bias").and_then(Json::as_str).is_some_and(|bias| bias != "none") {
            return Err(fault("adapters with trained biases are not supported yet".into()));
        }
        if config.get("modules_to_save").is_some_and(|modules| !modules.is_null()) {
            return Err(fault("adapters that hold whole modules (`modules_to_save`) are not supported yet".into()));
        }
        let rank = config.get("r").and_then(Json::as_u64).filter(|rank| *rank > 0);
        let rank = rank.ok_or_else(|| fault("no rank `r`".into()))? as usize;
        let alpha = config.get("lora_alpha").and_then(Json::as_f64).ok_or_else(|| fault("no `lora_alpha`".into()))?;
        let targets: Vec<String> = match config.get("target_modules") {
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).map(String::from).collect(),
            _ => return Err(fault("`target_modules` must be a list of names".into())),
        };
        let options = LoraOptions { rank, alpha, targets };
        let mut adapter = Adapter { pairs: places(model, &options)?, options, base: String::new() };
        adapter.base = config.get("base_model_name_or_path").and_then(Json::as_str).unwrap_or("").to_string();
        let file = Checkpoint::open_file(&dir.join("adapter_model.safetensors"))?;
        let mut values = Vec::new();
        for (name, ty) in adapter.tensors() {
            let stored = file.get(&name)?.ok_or_else(|| Error::MissingTensor {
                path: dir.join("adapter_model.safetensors"),
                tensor: name.clone(),
                parameter: name.clone(),
                expected: ty.shape.to_vec(),
            })?;
            if stored.shape[..] != ty.shape[..] {
                return Err(Error::Tensor {
                    path: dir.join("adapter_model.safetensors"),
                    tensor: name,
                    expected: format!("{:?}", ty.shape),
                    found: format!("{:?}", stored.shape),
                });
            }
            values.push(stored.floats(&name)?);
        }
        adapter.set_values(values);
        Ok(adapter)
    }
}

fn read_config(dir: &Path) -> Result<Json> {
    let path = dir.join("adapter_config.json");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::file(&path, e))?;
    serde_json::from_str(&text).map_err(|e| Error::Config { path, reason: format!("not valid JSON: {e}") })
}

/// Every matrix that the options want, without values.
fn places(model: &Model, options: &LoraOptions) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    let mut known = Vec::new();
    for (param, pieces) in model.pieces.iter().enumerate() {
        for piece in pieces {
            let Some(module) = piece.tensor.strip_suffix(".weight") else { continue };
            if piece.shape.len() != 2 || piece.index.is_some() {
                continue;
            }
            known.push(module.rsplit('.').next().unwrap_or(module).to_string());
            if options.wants(module) {
                let mut shape = [piece.shape[0], piece.shape[1]];
                if piece.transposed {
                    shape.reverse();
                }
                let (module, piece) = (module.to_string(), piece.clone());
                pairs.push(Pair { module, param, piece, shape, a: Vec::new(), b: Vec::new() });
            }
        }
    }
    let missing = options.targets.iter().find(|target| {
        !pairs
            .iter()
            .any(|pair| LoraOptions { targets: vec![(*target).clone()], ..options.clone() }.wants(&pair.module))
    });
    if let Some(target) = missing {
        known.sort();
        known.dedup();
        return Err(Error::Input(format!("no module `{target}` to adapt: the model has {}", known.join(", "))));
    }
    Ok(pairs)
}

/// A forward graph whose first inputs are A and B of every pair; then come its own.
pub(crate) fn adapted(forward: &Graph, adapter: &Adapter) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let pairs: Vec<Value> = adapter.tensors().into_iter().map(|(_, ty)| b.graph.input(ty)).collect();
    let mut inputs: Vec<Value> = forward.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
    for (pair, ab) in adapter.pairs.iter().zip(pairs.chunks_exact(2)) {
        let whole = b.ty(inputs[pair.param]);
        let update = b.matmul(ab[1], ab[0])?;
        let update = b.scale(update, adapter.options.scale())?;
        let update = b.cast(update, whole.dtype)?;
        let (mut low, mut high) = ([0; 2], [0; 2]);
        let dim = pair.piece.dim;
        low[dim] = pair.piece.start as i64;
        high[dim] = (whole.shape[dim] - pair.piece.start - pair.shape[dim]) as i64;
        let zero = b.scalar(whole.dtype, 0.0)?;
        let update = b.pad(update, zero, &low, &high, &[0, 0])?;
        inputs[pair.param] = b.add(inputs[pair.param], update)?;
    }
    let outs = b.inline(forward, &inputs)?;
    Ok(b.finish(&outs))
}

impl Model {
    /// The model with an adapter's updates added to its weights.
    pub fn merge(&mut self, adapter: &Adapter) {
        let rank = adapter.options.rank;
        for pair in &adapter.pairs {
            let shape = self.params[pair.param].ty.shape.to_vec();
            let mut values = from_bytes(&self.weights[pair.param], self.dtype);
            let [out, inner] = pair.shape;
            for o in 0..out {
                for i in 0..inner {
                    let products =
                        (0..rank).map(|r| f64::from(pair.b[o * rank + r]) * f64::from(pair.a[r * inner + i]));
                    let update = adapter.options.scale() * products.sum::<f64>();
                    let mut at = [o, i];
                    at[pair.piece.dim] += pair.piece.start;
                    let place = &mut values[at[0] * shape[1] + at[1]];
                    *place = (f64::from(*place) + update) as f32;
                }
            }
            self.weights[pair.param] = to_bytes(&values, self.dtype);
        }
    }

    /// Logits of a batch with an adapter beside the weights, not merged into them.
    pub fn evaluate_adapted(&self, adapter: &Adapter, ids: &[Vec<i32>], backend: &dyn Backend) -> Result<NamedTensor> {
        let steps = self.check_ids(ids)?;
        let lowered = self.architecture.lower(ids.len(), steps, self.dtype, None)?;
        let graph = adapted(&lowered.graph, adapter)?;
        let values = adapter.values().iter().map(|v| to_bytes(v, DType::F32)).collect::<Vec<_>>();
        let fixed = upload(backend, &[&values[..], &self.weights].concat())?;
        let mut session = Session::new(&graph, backend, &fixed)?;
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
    fn options_are_read_as_written() {
        let options = LoraOptions::parse("rank=4,alpha=32,targets=q,v_proj").expect("valid");
        assert_eq!(options, LoraOptions { rank: 4, alpha: 32.0, targets: vec!["q".into(), "v_proj".into()] });
        assert_eq!(options.to_string(), "rank=4,alpha=32,targets=q,v_proj");
        assert!(options.wants("model.layers.0.self_attn.q_proj") && options.wants("x.v_proj"));
        assert!(!options.wants("x.k_proj") && !options.wants("x.qkv_proj"));
        for wrong in ["rank=0", "rank=x", "alpha=y", "depth=3", "q"] {
            assert!(LoraOptions::parse(wrong).is_err(), "{wrong}");
        }
    }
}
