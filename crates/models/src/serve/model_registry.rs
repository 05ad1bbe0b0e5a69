//! A served model: its engine, tokenizer and chat template.

use crate::serve::batch_scheduler::{self, EngineHandle, ServeEngineOptions};
use crate::serve::metrics::Metrics;
use crate::serve::{Error, Result};
use crate::{Adapter, BatchEngine, BatchOptions, ChatTemplate, Constrainer, Model, Tokenizer};
use compiler::Backend;
use ir::DType;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A name that clients can request: a model, or an adapter of one.
#[derive(Clone)]
pub struct ServedModel {
    pub(crate) name: String,
    pub(crate) engine: usize,
    pub(crate) adapter: usize,
}

/// A model with its engine thread.
pub(crate) struct ModelEngine {
    pub(crate) handle: EngineHandle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: ChatTemplate,
    pub(crate) constrainer: Constrainer,
    pub(crate) eos_ids: Vec<i32>,
    pub(crate) max_seq_len: usize,
    pub(crate) vocabulary: usize,
    /// Number of bytes of the longest token.
    pub(crate) max_token_bytes: usize,
    pub(crate) dimensions: EmbeddingDimensions,
    thread: Option<JoinHandle<()>>,
}

/// The numbers of dimensions to which an embedding may be truncated.
#[derive(Clone, Debug, Default)]
pub(crate) struct EmbeddingDimensions {
    full_size: Option<usize>,
    /// Whether the model was trained for any number of them.
    any_size: bool,
    listed: Vec<usize>,
}

impl EmbeddingDimensions {
    /// Reads `config.json`, with the fields of sentence-transformers and vLLM.
    fn from_dir(dir: &Path) -> EmbeddingDimensions {
        let text = std::fs::read_to_string(dir.join("config.json")).unwrap_or_default();
        let config: Json = serde_json::from_str(&text).unwrap_or_default();
        let size = |value: &Json| value.as_u64().map(|n| n as usize);
        let names = ["hidden_size", "d_model", "n_embd"];
        let listed = config.get("matryoshka_dimensions").and_then(Json::as_array);
        EmbeddingDimensions {
            full_size: names.iter().find_map(|name| size(config.get(*name)?)),
            any_size: config.get("is_matryoshka").and_then(Json::as_bool).unwrap_or(false) && listed.is_none(),
            listed: listed.into_iter().flatten().filter_map(size).collect(),
        }
    }

    pub(crate) fn supports(&self, wanted: usize) -> bool {
        let fits = self.full_size.is_none_or(|whole| wanted <= whole);
        self.full_size == Some(wanted) || fits && (self.any_size || self.listed.contains(&wanted))
    }

    pub(crate) fn describe(&self) -> String {
        match (self.full_size, self.listed.is_empty()) {
            (Some(whole), true) if self.any_size => format!("the maximum is {whole}"),
            (Some(whole), true) => format!("the model's embeddings have {whole} dimensions"),
            (_, false) => format!("the model's embeddings have the dimensions {:?}", self.listed),
            (None, true) => "remove it".into(),
        }
    }
}

/// All served models.
pub struct ModelRegistry {
    pub(crate) engines: Vec<ModelEngine>,
    pub(crate) entries: Vec<ServedModel>,
    pub(crate) metrics: Arc<Metrics>,
}

impl ModelRegistry {
    /// Loads HuggingFace directories of models and adapters. An adapter is served beside its base model, which is loaded too if
    /// it is not among them. `told` receives progress messages.
    pub fn load(
        dirs: &[PathBuf],
        module: Option<&str>,
        dtype: DType,
        sizes: BatchOptions,
        options: ServeEngineOptions,
        backend: &Arc<dyn Backend>,
        told: &mut dyn FnMut(&str),
    ) -> Result<ModelRegistry> {
        // The directory of each model, and those of its adapters.
        let mut found: Vec<(PathBuf, bool, Vec<PathBuf>)> = Vec::new();
        let same =
            |a: &Path, b: &Path| a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
        for dir in dirs {
            if !dir.is_dir() {
                return Err(Error::Setup(format!(
                    "{}: not a directory; give a HuggingFace model directory",
                    dir.display()
                )));
            }
            let adapter = dir.join("adapter_config.json").is_file();
            let base = if adapter { PathBuf::from(Adapter::base_of(dir)?) } else { dir.clone() };
            let at = match found.iter().position(|(known, ..)| same(known, &base)) {
                Some(at) => at,
                None => {
                    found.push((base, false, Vec::new()));
                    found.len() - 1
                }
            };
            match adapter {
                true => found[at].2.push(dir.clone()),
                false => found[at].1 = true,
            }
        }
        let metrics = Arc::new(Metrics::default());
        let mut served = ModelRegistry { engines: Vec::new(), entries: Vec::new(), metrics };
        for (base, named, adapters) in &found {
            told(&format!("reading {}", base.display()));
            let module = module.map(crate::load_program).transpose()?;
            let model = Arc::new(Model::load_with_module(base, dtype, module)?);
            let tokenizer = Arc::new(Tokenizer::from_dir(base)?);
            let template = ChatTemplate::from_dir(base)?;
            let read = adapters.iter().map(|dir| Adapter::read(dir, &model)).collect::<crate::Result<Vec<_>>>()?;
            let vocabulary = model.vocabulary().unwrap_or(usize::MAX);
            let ends: Vec<i32> = crate::eos_ids(base, Some(&tokenizer))?;
            let ends = ends.into_iter().filter(|id| usize::try_from(*id).is_ok_and(|id| id < vocabulary)).collect();
            let mut slots = BatchEngine::new(model, &read, sizes, backend.clone())?;
            told(&format!("compiling programs for batch sizes up to {}", slots.sizes().max_batch));
            slots.warmup()?;
            let context = slots.sizes().max_seq_len;
            let constrainer = Constrainer::new(&tokenizer);
            let (longest, dimensions) = (constrainer.max_token_bytes(), EmbeddingDimensions::from_dir(base));
            let (handle, thread) = batch_scheduler::start(slots, options, served.metrics.clone())
                .map_err(|e| Error::Setup(format!("cannot start the model's thread: {e}")))?;
            let engine = served.engines.len();
            if *named {
                served.name(base, engine, 0)?;
            }
            for (n, dir) in adapters.iter().enumerate() {
                served.name(dir, engine, n + 1)?;
            }
            let thread = Some(thread);
            served.engines.push(ModelEngine {
                handle,
                tokenizer,
                template,
                constrainer,
                eos_ids: ends,
                max_seq_len: context,
                vocabulary,
                max_token_bytes: longest,
                dimensions,
                thread,
            });
        }
        Ok(served)
    }

    fn name(&mut self, dir: &Path, engine: usize, adapter: usize) -> Result<()> {
        let full = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        let name = full.file_name().map_or_else(|| "model".to_string(), |name| name.to_string_lossy().into_owned());
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(Error::Setup(format!("two directories have the name `{name}`: rename one")));
        }
        self.entries.push(ServedModel { name, engine, adapter });
        Ok(())
    }

    /// The names that clients can request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// Stops all generation, and waits for the engine threads.
    pub(crate) fn stop(&mut self) {
        self.engines.iter().for_each(|engine| engine.handle.stop());
        for engine in &mut self.engines {
            if let Some(thread) = engine.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for ModelRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}
