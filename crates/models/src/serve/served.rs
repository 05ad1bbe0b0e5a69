//! A model that is served: its engine, and what turns text into ids and back.

use crate::serve::engine::{self, EngineOptions, Handle};
use crate::serve::metrics::Metrics;
use crate::serve::{Error, Result};
use crate::{Adapter, ChatTemplate, Constrainer, Model, SlotSizes, Slots, Tokenizer};
use compiler::Backend;
use ir::DType;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A name that clients ask for: a model, or an adapter of one.
#[derive(Clone)]
pub struct Entry {
    pub(crate) name: String,
    pub(crate) engine: usize,
    pub(crate) adapter: usize,
}

/// A model with its thread.
pub(crate) struct Engine {
    pub(crate) handle: Handle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: ChatTemplate,
    pub(crate) constrainer: Constrainer,
    pub(crate) ends: Vec<i32>,
    pub(crate) context: usize,
    pub(crate) vocabulary: usize,
    /// Bytes of the longest token.
    pub(crate) longest: usize,
    pub(crate) dimensions: Dimensions,
    thread: Option<JoinHandle<()>>,
}

/// How many numbers of a vector mean something by themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dimensions {
    whole: Option<usize>,
    /// Whether the model was trained for any number of them.
    any: bool,
    listed: Vec<usize>,
}

impl Dimensions {
    /// What `config.json` says, as sentence-transformers and vLLM write it.
    fn of_dir(dir: &Path) -> Dimensions {
        let text = std::fs::read_to_string(dir.join("config.json")).unwrap_or_default();
        let config: Json = serde_json::from_str(&text).unwrap_or_default();
        let size = |value: &Json| value.as_u64().map(|n| n as usize);
        let names = ["hidden_size", "d_model", "n_embd"];
        let listed = config.get("matryoshka_dimensions").and_then(Json::as_array);
        Dimensions {
            whole: names.iter().find_map(|name| size(config.get(*name)?)),
            any: config.get("is_matryoshka").and_then(Json::as_bool).unwrap_or(false) && listed.is_none(),
            listed: listed.into_iter().flatten().filter_map(size).collect(),
        }
    }

    pub(crate) fn allow(&self, wanted: usize) -> bool {
        let fits = self.whole.is_none_or(|whole| wanted <= whole);
        self.whole == Some(wanted) || fits && (self.any || self.listed.contains(&wanted))
    }

    pub(crate) fn shown(&self) -> String {
        match (self.whole, self.listed.is_empty()) {
            (Some(whole), true) if self.any => format!("it must be at most {whole}"),
            (Some(whole), true) => format!("the model has vectors of {whole}"),
            (_, false) => format!("the model has vectors of {:?}", self.listed),
            (None, true) => "leave it out".into(),
        }
    }
}

/// Everything that is served.
pub struct Served {
    pub(crate) engines: Vec<Engine>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Served {
    /// Reads HuggingFace directories, and those of adapters: these are served beside their model, which is read too if it is
    /// not among them. `told` hears what is being done.
    pub fn load(
        dirs: &[PathBuf],
        module: Option<&str>,
        dtype: DType,
        sizes: SlotSizes,
        options: EngineOptions,
        backend: &Arc<dyn Backend>,
        told: &mut dyn FnMut(&str),
    ) -> Result<Served> {
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
        let mut served = Served { engines: Vec::new(), entries: Vec::new(), metrics };
        for (base, named, adapters) in &found {
            told(&format!("reading {}", base.display()));
            let module = module.map(crate::load_program).transpose()?;
            let model = Arc::new(Model::load_by(base, dtype, module)?);
            let tokenizer = Arc::new(Tokenizer::of_dir(base)?);
            let template = ChatTemplate::of_dir(base)?;
            let read = adapters.iter().map(|dir| Adapter::read(dir, &model)).collect::<crate::Result<Vec<_>>>()?;
            let vocabulary = model.vocabulary().unwrap_or(usize::MAX);
            let ends: Vec<i32> = crate::end_ids(base, Some(&tokenizer))?;
            let ends = ends.into_iter().filter(|id| usize::try_from(*id).is_ok_and(|id| id < vocabulary)).collect();
            let mut slots = Slots::new(model, &read, sizes, backend.clone())?;
            told(&format!("compiling programs for up to {} rows", slots.sizes().rows));
            slots.warm()?;
            let context = slots.sizes().context;
            let constrainer = Constrainer::new(&tokenizer);
            let (longest, dimensions) = (constrainer.longest(), Dimensions::of_dir(base));
            let (handle, thread) = engine::start(slots, options, served.metrics.clone())
                .map_err(|e| Error::Setup(format!("no thread for the model: {e}")))?;
            let engine = served.engines.len();
            if *named {
                served.name(base, engine, 0)?;
            }
            for (n, dir) in adapters.iter().enumerate() {
                served.name(dir, engine, n + 1)?;
            }
            let thread = Some(thread);
            served.engines.push(Engine {
                handle,
                tokenizer,
                template,
                constrainer,
                ends,
                context,
                vocabulary,
                longest,
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
            return Err(Error::Setup(format!(
                "two directories are called `{name}`: clients could not tell them apart"
            )));
        }
        self.entries.push(Entry { name, engine, adapter });
        Ok(())
    }

    /// The names that clients ask for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// Ends what is being generated, and waits for the engines.
    pub(crate) fn stop(&mut self) {
        self.engines.iter().for_each(|engine| engine.handle.stop());
        for engine in &mut self.engines {
            if let Some(thread) = engine.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}
