//! What may be chosen about a run. A name means the same on the command line and in a file.

use crate::adapter::AdapterOptions;
use crate::budget::{self, MAX_THREADS};
use crate::error::{Error, Result};
use crate::ia3::Ia3Options;
use crate::lora::LoraOptions;
use crate::tokenizer::MAX_VOCABULARY;
use crate::train::{AdamW, Objective};
use ir::DType;
use lang::consteval::ConstValue;
use std::collections::BTreeMap;
use std::path::PathBuf;
use train::Schedule;

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSettings {
    /// A model of the library, a `.module` file, or a HuggingFace directory to go on from.
    pub model: String,
    /// A `.module` file with the model of that directory, where the library doesn't have it.
    pub module: Option<String>,
    /// Sizes and other parameters of the model.
    pub set: BTreeMap<String, String>,
    /// A text file, a JSON-lines file or a folder of them; without it, stories are written.
    pub data: Option<PathBuf>,
    /// How many bytes of stories are written.
    pub stories: usize,
    /// A `tokenizer.json`; without it, the model's own, or one is trained.
    pub tokenizer: Option<PathBuf>,
    /// Size of a vocabulary that is trained.
    pub vocab: usize,
    /// The folder that everything is written to.
    pub out: PathBuf,
    /// The mesh of ranks that share the work, `dp=2,tp=2`; empty for one process, or for `dp` alone.
    pub mesh: String,
    /// Chunks of layers at each rank of a pipeline.
    pub chunks: usize,
    /// Steps of the run.
    pub steps: usize,
    /// Sequences of a micro-batch.
    pub batch: usize,
    /// Ids of a sequence.
    pub seq: usize,
    /// Micro-batches of a step.
    pub grad_accum: usize,
    /// Documents of one sequence don't see each other.
    pub isolate: bool,
    /// What the model is trained for.
    pub objective: Objective,
    /// A model to learn from, or the reference of preferences.
    pub teacher: Option<PathBuf>,
    /// The learning rate after warm-up.
    pub lr: f64,
    /// The last rate as a share of it.
    pub min_lr: f64,
    /// Steps of warm-up.
    pub warmup: usize,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Longest gradient; 0 for no limit.
    pub clip: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// The dtype of computation; masters and moments are always f32.
    pub dtype: DType,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Checkpoints that are kept.
    pub keep: usize,
    /// Steps between validations.
    pub eval_every: usize,
    /// Batches of a validation.
    pub eval_batches: usize,
    /// Steps between samples.
    pub sample_every: usize,
    /// Steps between lines of the log.
    pub log_every: usize,
    /// Serves the report while the run goes on, on this port, or on a free one.
    pub live: Option<Option<u16>>,
    /// Writes TensorBoard's event files.
    pub tensorboard: bool,
    /// Write where the time of one step goes: `profile.txt` and `profile.json`, a trace for Perfetto, beside the report.
    pub profile: bool,
    /// What samples begin with.
    pub prompt: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads; 0 takes all cores.
    pub threads: usize,
    /// The device by name; empty for the best there is.
    pub device: String,
    /// A low-rank adapter to train instead of the model.
    pub lora: Option<LoraOptions>,
    /// An adapter of factors to train instead of the model.
    pub ia3: Option<Ia3Options>,
    /// What is computed in which precision: a policy (`fp8_hybrid`, ..), or a `.module` file with a recipe.
    pub recipe: String,
    /// Bits of each of the optimiser's moments, 8 or 32; without it what the recipe says, or 32.
    pub optimizer_bits: Option<u32>,
}

impl Default for TrainSettings {
    fn default() -> TrainSettings {
        TrainSettings {
            model: "llama".into(),
            module: None,
            set: BTreeMap::new(),
            data: None,
            stories: 4 << 20,
            tokenizer: None,
            vocab: 1024,
            out: PathBuf::new(),
            steps: 1000,
            batch: 8,
            seq: 128,
            grad_accum: 1,
            isolate: false,
            objective: Objective::CausalLm,
            teacher: None,
            lr: 1e-3,
            min_lr: 0.1,
            warmup: 50,
            weight_decay: 0.1,
            clip: 1.0,
            beta1: 0.9,
            beta2: 0.95,
            dtype: DType::F32,
            checkpoint_every: 250,
            keep: 2,
            eval_every: 100,
            eval_batches: 8,
            sample_every: 250,
            log_every: 10,
            live: None,
            tensorboard: false,
            profile: false,
            prompt: "Once upon a time".into(),
            seed: 1,
            threads: 0,
            device: String::new(),
            mesh: String::new(),
            chunks: 1,
            lora: None,
            ia3: None,
            recipe: String::new(),
            optimizer_bits: None,
        }
    }
}

/// Every name with a line about it. Those marked may be changed when a run is resumed.
pub const SETTING_DESCRIPTIONS: &[(&str, bool, &str)] = &[
    ("model", false, "A model of the library, a .module file, a HuggingFace directory or a GGUF file"),
    ("module", false, "A .module file for a HuggingFace directory whose architecture the library does not have"),
    ("set", false, "Parameters of the model: d_model=128,n_layers=4"),
    ("data", false, "Text, .jsonl or .parquet files, or folders of them; several with weights: a.jsonl=0.7,b=0.3"),
    ("synthetic-bytes", false, "Size in bytes of the synthetic stories that are generated if --data is not given"),
    ("tokenizer", false, "A tokenizer.json file; by default the model's own, or a new one is trained"),
    ("vocab-size", false, "Vocabulary size of a tokenizer that is trained"),
    ("out", true, "The output folder"),
    ("steps", true, "Number of training steps"),
    ("micro-batch-size", false, "Sequences per micro-batch, over all ranks"),
    ("seq-len", false, "Tokens per sequence"),
    ("gradient-accumulation-steps", false, "Micro-batches per training step"),
    ("document-mask", false, "true: tokens do not attend to other documents in the same sequence"),
    (
        "objective",
        false,
        "causal-lm, masked-lm, classification, contrastive, dpo, orpo or distillation, with options: dpo,beta=0.1",
    ),
    ("teacher", false, "A HuggingFace directory: the teacher for distillation, or the reference model for dpo"),
    ("lr", true, "Peak learning rate"),
    ("min-lr-ratio", true, "Final learning rate as a fraction of --lr"),
    ("warmup-steps", true, "Steps of linear learning rate warmup"),
    ("weight-decay", true, "Decoupled weight decay, applied to matrices only"),
    ("max-grad-norm", true, "Maximum gradient norm; 0 disables clipping"),
    ("beta1", true, "Adam: decay rate of the first moment"),
    ("beta2", true, "Adam: decay rate of the second moment"),
    ("dtype", false, "Dtype of computation: f32 or bf16"),
    ("checkpoint-every", true, "Steps between checkpoints"),
    ("save-total-limit", true, "Number of checkpoints to keep; older ones are deleted"),
    ("eval-every", true, "Steps between evaluations on the validation set"),
    ("eval-batches", true, "Batches per evaluation"),
    ("sample-every", true, "Steps between samples of generated text"),
    ("log-every", true, "Steps between log lines"),
    ("dashboard", true, "Serve a live dashboard while training: true, or a port"),
    ("tensorboard", true, "true: write TensorBoard event files"),
    ("prompt", true, "Prompt of the samples"),
    ("seed", false, "Random seed"),
    ("threads", true, "CPU threads; 0 uses all cores"),
    ("lora", false, "Train a LoRA adapter: rank=8,alpha=16,dropout=0,targets=q,v"),
    ("ia3", false, "Train an IA3 adapter: targets=k,v,down,feedforward=down"),
    ("recipe", false, "Precision: fp32, bf16, fp16, fp8_hybrid, fp8_pure, fp4, or a .module file with a recipe"),
    ("optimizer-bits", false, "Bits of the optimizer states: 8 for block-wise quantized moments, or 32"),
    ("mesh", true, "Device mesh: dp=2,tp=2 (axes dp, fsdp, tp, ep, sp, pp); see `loom launch`"),
    ("virtual-stages", true, "Pipeline stages per rank (pp); more than one selects the interleaved schedule"),
    ("device", true, "Device: cpu, cuda, cuda:1, wgpu, wgpu:1, or auto for the fastest available"),
];

/// Earlier names of settings. They are still accepted on the command line, in configuration files and in checkpoints.
pub const OLD_NAMES: &[(&str, &str)] = &[
    ("stories", "synthetic-bytes"),
    ("vocab", "vocab-size"),
    ("batch", "micro-batch-size"),
    ("seq", "seq-len"),
    ("grad-accum", "gradient-accumulation-steps"),
    ("isolate", "document-mask"),
    ("min-lr", "min-lr-ratio"),
    ("warmup", "warmup-steps"),
    ("clip", "max-grad-norm"),
    ("keep", "save-total-limit"),
    ("live", "dashboard"),
    ("chunks", "virtual-stages"),
];

/// The current name of a setting that may be given by an earlier name.
pub fn current_name(name: &str) -> &str {
    OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// A setting of a run folder or a checkpoint, which may have been written by an earlier version, with its current name and value.
pub fn current_setting(name: &str, value: &str) -> (String, String) {
    let name = current_name(name);
    let value = match name {
        "objective" => Objective::parse(value).map_or_else(|_| value.to_string(), |aim| aim.to_string()),
        _ => value.to_string(),
    };
    (name.to_string(), value)
}

impl TrainSettings {
    /// Sets one value by its name; parameters of the model are added to those that are there.
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        let name = current_name(name);
        match name {
            "model" => self.model = text.into(),
            "module" => self.module = (!text.is_empty()).then(|| text.into()),
            "set" => self.set.extend(parse_assignments(text)?),
            "data" => self.data = (!text.is_empty()).then(|| text.into()),
            "synthetic-bytes" => self.stories = up_to(name, text, 1 << 30)?,
            "tokenizer" => self.tokenizer = (!text.is_empty()).then(|| text.into()),
            "vocab-size" => self.vocab = up_to(name, text, MAX_VOCABULARY)?,
            "out" => self.out = text.into(),
            "steps" => self.steps = up_to(name, text, 1_000_000_000)?,
            "micro-batch-size" => self.batch = up_to(name, text, 1 << 20)?,
            "seq-len" => self.seq = up_to(name, text, 1 << 24)?,
            "document-mask" => {
                self.isolate = match text {
                    "true" => true,
                    "false" | "" => false,
                    _ => return Err(Error::Input(format!("`document-mask` must be true or false, got `{text}`"))),
                }
            }
            "objective" => self.objective = Objective::parse(text)?,
            "teacher" => self.teacher = (!text.is_empty()).then(|| text.into()),
            "gradient-accumulation-steps" => self.grad_accum = up_to(name, text, 1 << 20)?,
            "lr" => self.lr = at_most(name, text, 1000.0)?,
            "min-lr-ratio" => self.min_lr = at_most(name, text, 1.0)?,
            "warmup-steps" => self.warmup = parse_count(name, text)?,
            "weight-decay" => self.weight_decay = at_most(name, text, 1000.0)?,
            "max-grad-norm" => self.clip = parse_number(name, text)?,
            "beta1" => self.beta1 = parse_fraction(name, text)?,
            "beta2" => self.beta2 = parse_fraction(name, text)?,
            "dtype" => self.dtype = parse_dtype(text)?,
            "checkpoint-every" => self.checkpoint_every = parse_positive(name, text)?,
            "save-total-limit" => self.keep = parse_positive(name, text)?,
            "eval-every" => self.eval_every = parse_positive(name, text)?,
            "eval-batches" => self.eval_batches = up_to(name, text, 1_000_000)?,
            "sample-every" => self.sample_every = parse_positive(name, text)?,
            "log-every" => self.log_every = parse_positive(name, text)?,
            "dashboard" => {
                self.live = match text {
                    "" | "false" => None,
                    "true" => Some(None),
                    port => Some(Some(port.parse().map_err(|_| {
                        Error::Input(format!("`dashboard` must be true or a port from 1 to 65535, got `{port}`"))
                    })?)),
                }
            }
            "tensorboard" => {
                self.tensorboard = match text {
                    "true" => true,
                    "false" | "" => false,
                    _ => return Err(Error::Input(format!("`tensorboard` must be true or false, got `{text}`"))),
                }
            }
            "prompt" => self.prompt = text.into(),
            "seed" => self.seed = parse_count(name, text)? as u64,
            "threads" => match parse_count(name, text)? {
                n if n > MAX_THREADS => return Err(Error::Input(format!("`threads` is {n}: at most {MAX_THREADS}"))),
                n => self.threads = n,
            },
            "lora" => self.lora = (!text.is_empty()).then(|| LoraOptions::parse(text)).transpose()?,
            "ia3" => self.ia3 = (!text.is_empty()).then(|| Ia3Options::parse(text)).transpose()?,
            "recipe" => {
                crate::recipe::parse_recipe(text)?;
                self.recipe = text.into();
            }
            "optimizer-bits" => {
                self.optimizer_bits = match text {
                    "" => None,
                    "8" => Some(8),
                    "32" => Some(32),
                    _ => return Err(Error::Input(format!("`optimizer-bits` must be 8 or 32, got `{text}`"))),
                }
            }
            // Whether it is there shows when it is opened.
            "device" => self.device = text.into(),
            "virtual-stages" => self.chunks = up_to(name, text, 1 << 10)?,
            "mesh" => {
                ir::Mesh::parse(text).map_err(|e| Error::Input(e.to_string()))?;
                self.mesh = text.into();
            }
            _ => {
                let close = lang::suggest::closest(name, SETTING_DESCRIPTIONS.iter().map(|(name, ..)| *name));
                let remedy = close.map_or(String::new(), |close| format!(": did you mean `{close}`?"));
                return Err(Error::Input(format!("unknown setting `{name}`{remedy}")));
            }
        }
        Ok(())
    }

    /// One value as text that [`Settings::set`] reads.
    pub fn get(&self, name: &str) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |p| p.display().to_string());
        match current_name(name) {
            "model" => self.model.clone(),
            "module" => self.module.clone().unwrap_or_default(),
            "set" => self.set.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","),
            "data" => path(&self.data),
            "synthetic-bytes" => self.stories.to_string(),
            "tokenizer" => path(&self.tokenizer),
            "vocab-size" => self.vocab.to_string(),
            "out" => self.out.display().to_string(),
            "steps" => self.steps.to_string(),
            "micro-batch-size" => self.batch.to_string(),
            "seq-len" => self.seq.to_string(),
            "gradient-accumulation-steps" => self.grad_accum.to_string(),
            "document-mask" => self.isolate.to_string(),
            "objective" => self.objective.to_string(),
            "teacher" => path(&self.teacher),
            "lr" => self.lr.to_string(),
            "min-lr-ratio" => self.min_lr.to_string(),
            "warmup-steps" => self.warmup.to_string(),
            "weight-decay" => self.weight_decay.to_string(),
            "max-grad-norm" => self.clip.to_string(),
            "beta1" => self.beta1.to_string(),
            "beta2" => self.beta2.to_string(),
            "dtype" => self.dtype.to_string(),
            "checkpoint-every" => self.checkpoint_every.to_string(),
            "save-total-limit" => self.keep.to_string(),
            "eval-every" => self.eval_every.to_string(),
            "eval-batches" => self.eval_batches.to_string(),
            "sample-every" => self.sample_every.to_string(),
            "log-every" => self.log_every.to_string(),
            "dashboard" => match self.live {
                None => String::new(),
                Some(None) => "true".into(),
                Some(Some(port)) => port.to_string(),
            },
            "tensorboard" => self.tensorboard.to_string(),
            "prompt" => self.prompt.clone(),
            "seed" => self.seed.to_string(),
            "threads" => self.threads.to_string(),
            "lora" => self.lora.as_ref().map_or(String::new(), LoraOptions::to_string),
            "ia3" => self.ia3.as_ref().map_or(String::new(), Ia3Options::to_string),
            "recipe" => self.recipe.clone(),
            "optimizer-bits" => self.optimizer_bits.map_or(String::new(), |bits| bits.to_string()),
            "device" => self.device.clone(),
            "mesh" => self.mesh.clone(),
            "virtual-stages" => self.chunks.to_string(),
            _ => String::new(),
        }
    }

    /// All values by name.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        SETTING_DESCRIPTIONS.iter().map(|(name, ..)| ((*name).to_string(), self.get(name))).collect()
    }

    /// The settings as a file that `--config` reads.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (name, _, about) in SETTING_DESCRIPTIONS {
            let value = self.get(name);
            let plain = value.parse::<f64>().is_ok();
            let value = if plain { value } else { format!("{value:?}") };
            text.push_str(&format!("{:<32} # {about}\n", format!("{name} = {value}")));
        }
        text
    }

    /// Refuses sizes that are possible alone but not together.
    pub(crate) fn check(&self) -> Result<()> {
        let TrainSettings { batch, seq, grad_accum, .. } = *self;
        let ids = batch.checked_mul(seq).and_then(|n| n.checked_mul(grad_accum));
        let square = budget::checked_product(&[batch, seq, seq]).filter(|n| (*n as u64) < 1 << 48);
        if ids.is_none_or(|ids| ids > i32::MAX as usize) || square.is_none() {
            return Err(Error::Input(format!(
                "a training step of {grad_accum} micro-batches of {batch} sequences of {seq} tokens is too large: reduce `--micro-batch-size`, `--seq-len` or `--gradient-accumulation-steps`"
            )));
        }
        Ok(())
    }

    /// The adapter to train, if it is to be one.
    pub fn adapter(&self) -> Result<Option<AdapterOptions>> {
        match (&self.lora, &self.ia3) {
            (Some(_), Some(_)) => {
                Err(Error::Input("`lora` and `ia3` cannot be combined: give only one of them".into()))
            }
            (Some(lora), None) => Ok(Some(lora.into())),
            (None, ia3) => Ok(ia3.as_ref().map(AdapterOptions::from)),
        }
    }

    pub(crate) fn adam(&self) -> AdamW {
        let TrainSettings { beta1, beta2, weight_decay: decay, clip, .. } = *self;
        AdamW { beta1, beta2, eps: 1e-8, weight_decay: decay, max_grad_norm: clip }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::warmup_cosine(self.lr, self.warmup.min(self.steps), self.steps, self.min_lr)
    }

    /// Parameters of the model as constants of the language.
    pub fn model_constants(&self) -> BTreeMap<String, ConstValue> {
        let value = |text: &str| match (text, text.parse::<i64>(), text.parse::<f64>()) {
            ("true" | "false", ..) => ConstValue::bool(text == "true"),
            (_, Ok(n), _) => ConstValue::int(n),
            (_, _, Ok(x)) => ConstValue::Float(Some(x)),
            _ => ConstValue::Str(text.to_string()),
        };
        self.set.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }
}

fn parse_assignments(text: &str) -> Result<BTreeMap<String, String>> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| match word.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_string(), value.trim().to_string())),
            None => Err(Error::Input(format!("`set` must have the form name=value, got `{word}`"))),
        })
        .collect()
}

fn parse_count(name: &str, text: &str) -> Result<usize> {
    text.replace('_', "").parse().map_err(|_| Error::Input(format!("`{name}` must be an integer, got `{text}`")))
}

fn parse_positive(name: &str, text: &str) -> Result<usize> {
    match parse_count(name, text) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(Error::Input(format!("`{name}` must be a positive integer, got `{text}`"))),
    }
}

fn up_to(name: &str, text: &str, most: usize) -> Result<usize> {
    match parse_positive(name, text)? {
        n if n > most => Err(Error::Input(format!("`{name}` is {n}, but the maximum is {most}"))),
        n => Ok(n),
    }
}

fn at_most(name: &str, text: &str, most: f64) -> Result<f64> {
    match parse_number(name, text)? {
        x if x > most => Err(Error::Input(format!("`{name}` is {x}, but the maximum is {most}"))),
        x => Ok(x),
    }
}

fn parse_number(name: &str, text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err(Error::Input(format!("`{name}` must be a non-negative number, got `{text}`"))),
    }
}

fn parse_fraction(name: &str, text: &str) -> Result<f64> {
    match parse_number(name, text) {
        Ok(x) if x < 1.0 => Ok(x),
        _ => Err(Error::Input(format!("`{name}` must be at least 0 and less than 1, got `{text}`"))),
    }
}

fn parse_dtype(text: &str) -> Result<DType> {
    match text {
        "f32" => Ok(DType::F32),
        "bf16" => Ok(DType::BF16),
        _ => Err(Error::Input(format!("unknown dtype `{text}`: use f32 or bf16"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_set_and_given_back() {
        let mut settings = TrainSettings::default();
        settings.set("lora", "rank=4,alpha=8,targets=q").expect("valid");
        settings.set("ia3", "targets=k,v").expect("valid");
        settings.set("set", "d_model=64, tied=true").expect("valid");
        let mut again = TrainSettings::default();
        for (name, value) in settings.to_map() {
            again.set(&name, &value).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        assert_eq!(settings, again);
    }

    #[test]
    fn earlier_names_and_objectives_are_accepted() {
        for (old, new) in OLD_NAMES {
            let text = match *new {
                "dashboard" => "8123".to_string(),
                "document-mask" => "true".to_string(),
                "min-lr-ratio" => "0.5".to_string(),
                _ => "7".to_string(),
            };
            let (mut by_old, mut by_new) = (TrainSettings::default(), TrainSettings::default());
            by_old.set(old, &text).unwrap_or_else(|e| panic!("{old}: {e}"));
            by_new.set(new, &text).unwrap_or_else(|e| panic!("{new}: {e}"));
            assert_eq!(by_old, by_new, "{old}");
            assert_eq!((by_new.get(old), by_new.get(new)), (text.clone(), text.clone()), "{old}");
            assert_ne!(TrainSettings::default().get(new), text, "{new} was set");
            assert!(SETTING_DESCRIPTIONS.iter().all(|(name, ..)| name != old), "{old}");
            assert_eq!(current_setting(old, &text), (new.to_string(), text));
        }
        assert_eq!(current_setting("objective", "next"), ("objective".into(), "causal-lm".into()));
        assert_eq!(current_setting("objective", "mlm,share=0.3").1, "masked-lm,mlm-probability=0.3");
        assert_eq!(current_setting("steps", "next"), ("steps".into(), "next".into()));
    }

    #[test]
    fn wrong_values_are_refused_with_a_remedy() {
        let wrong = [
            ("steps", "0", "positive"),
            ("steps", "many", "positive"),
            ("lr", "-1", "non-negative"),
            ("lr", "nan", "non-negative"),
            ("beta1", "1", "less than 1"),
            ("dtype", "f8", "f32 or bf16"),
            ("optimizer-bits", "4", "8 or 32"),
            ("recipe", "fp8_hybird", "`fp8_hybrid`"),
            ("stpes", "3", "`steps`"),
            ("set", "d_model", "name=value"),
            ("lora", "rank=x", "rank=8"),
            ("lora", "dropout=2", "less than 1"),
            ("ia3", "targets=k,feedforward=down", "no target"),
        ];
        for (name, value, word) in wrong {
            let error = TrainSettings::default().set(name, value).expect_err(name).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
