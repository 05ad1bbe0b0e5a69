//! Text classification: models with a head for class scores.
//!
//! Three forms are supported: a decoder whose last hidden state is scored (`..ForSequenceClassification`, as classification
//! training and transformers save it), an adapter with such a head (as PEFT saves it), and a library encoder with its head. Texts
//! are padded to a few lengths, each of which is compiled once; the padding is masked.

use crate::adapter::Adapter;
use crate::architecture::{Architecture, DECODERS};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::last_token::{head_input, select_last_token};
use crate::model::Model;
use crate::session::{Buffer, ProgramSession};
use crate::special_tokens::read_object;
use crate::tokenizer::Tokenizer;
use compiler::Backend;
use ir::{DType, Type};
use lang::lower::LowerOptions;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use train::named_tensor::from_bytes;

/// Texts are padded to multiples of this.
const PADDING_BLOCK: usize = 32;

/// Maximum number of cached programs.
const MAX_PROGRAMS: usize = 8;

/// The suffix of the class names of classifiers in transformers.
const CLASSIFIER: &str = "ForSequenceClassification";

/// A classification model.
pub struct Classifier {
    model: Model,
    /// The weight of the head, `[classes, width]`; none where the model itself computes scores.
    head: Option<Vec<f32>>,
    classes: Vec<String>,
    scores: ProblemType,
    params: Option<Vec<Buffer>>,
    programs: BTreeMap<usize, ProgramSession>,
}

impl Classifier {
    /// Loads a directory, or that of an adapter, whose base model may be given.
    pub fn load(dir: &Path, base: Option<&Path>, dtype: DType) -> Result<Classifier> {
        let (model, head, classes, scores) = match dir.join("adapter_config.json").is_file() {
            true => read_with_adapter(dir, base, dtype)?,
            false => load_full(dir, dtype)?,
        };
        if let Some(head) = head.as_ref().filter(|head| classes.is_empty() || head.len() % classes.len() != 0) {
            return Err(Error::file(
                dir,
                format!(
                    "the number of scores, {}, is not divisible by the number of classes, {}",
                    head.len(),
                    classes.len()
                ),
            ));
        }
        Ok(Classifier { model, head, classes, scores, params: None, programs: BTreeMap::new() })
    }

    /// The names of the classes, in order.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Tokenizes a text as in training.
    pub fn ids(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<i32>> {
        let mut ids = tokenizer.encode_with_special_tokens(text)?;
        let most = self.model.max_sequence().unwrap_or(usize::MAX);
        if ids.len() > most {
            // Truncation keeps the trailing special tokens.
            let (_, after) = tokenizer.surrounding_ids()?;
            ids.truncate(most.saturating_sub(after.len()));
            ids.extend(after);
        }
        Ok(ids)
    }

    /// Returns the probability of each class for a text; for a regression model, its outputs.
    pub fn classify(&mut self, ids: &[i32], backend: &dyn Backend) -> Result<Vec<f64>> {
        if ids.is_empty() {
            return Err(Error::Input("the text has no tokens: at least one is needed".into()));
        }
        self.model.check_token_ids(ids.iter())?;
        let longest = self.model.max_positions().unwrap_or(usize::MAX);
        if ids.len() > longest {
            return Err(Error::Input(format!(
                "the text has {} tokens, but the model's maximum sequence length is {longest}",
                ids.len()
            )));
        }
        let rows = ids.len().next_multiple_of(PADDING_BLOCK).min(longest);
        if !self.programs.contains_key(&rows) {
            while self.programs.len() >= MAX_PROGRAMS {
                self.programs.pop_first();
            }
            let session = self.compile(rows, backend)?;
            self.programs.insert(rows, session);
        }
        let Some(session) = self.programs.get_mut(&rows) else {
            return Err(Error::Input("the program is missing".into()));
        };
        let first = session.bindings.inputs.len() - 2;
        session.write_ints(first, ids.iter().copied().chain(std::iter::repeat(0)).take(rows))?;
        match self.head {
            Some(_) => session.write_ints(first + 1, std::iter::once(ids.len() as i32 - 1))?,
            None => session.write_ints(first + 1, (0..rows).map(|i| i32::from(i < ids.len())))?,
        }
        session.run()?;
        let (ty, bytes) = session.read(0)?;
        let found: Vec<f64> = from_bytes(&bytes, ty.dtype).into_iter().map(f64::from).collect();
        let scores = match &self.head {
            Some(head) => {
                let rows = head.chunks(found.len().max(1));
                rows.map(|row| row.iter().zip(&found).map(|(w, x)| f64::from(*w) * x).sum()).collect()
            }
            None => found,
        };
        Ok(self.scores.probabilities(&scores))
    }

    fn compile(&mut self, rows: usize, backend: &dyn Backend) -> Result<ProgramSession> {
        let params = match &self.params {
            Some(params) => params.clone(),
            None => self.params.insert(self.model.upload(backend)?).clone(),
        };
        let model = &self.model;
        let options = LowerOptions { dtype: model.dtype, custom_backward: false, ..LowerOptions::default() };
        if self.head.is_none() {
            let ids = Type::new(DType::I32, &[1, rows]);
            let other = model.architecture.inputs().into_iter().map(|input| input.name);
            let absent = other.filter(|name| !ENCODER_INPUTS.contains(&&name[..])).collect();
            let lowered = model.architecture.lower_for(&[ids.clone(), ids], &LowerOptions { absent, ..options })?;
            return ProgramSession::new(&model.read_packed(&lowered.graph, 0)?, backend, &params);
        }
        let mut graph = model.read_packed(&model.architecture.lower_with(1, rows, &options)?.graph, 0)?;
        let states = head_input(&graph).ok_or_else(|| {
            Error::Input(format!(
                "{} has no hidden states before a language-model head, so no classifier can be attached",
                model.architecture.name
            ))
        })?;
        graph.set_outputs(vec![states]);
        ProgramSession::new(&select_last_token(&graph.without_dead_nodes(), 1)?, backend, &params)
    }
}

/// Inputs of encoders, in this order.
const ENCODER_INPUTS: [&str; 2] = ["input_ids", "attention_mask"];

type ClassifierParts = (Model, Option<Vec<f32>>, Vec<String>, ProblemType);

/// The meaning of a model's scores, by `problem_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProblemType {
    /// Exactly one of several classes.
    SingleLabel,
    /// Each class independently.
    MultiLabel,
    /// Regression values.
    Regression,
}

impl ProblemType {
    /// Reads a configuration as transformers' pipeline does.
    fn of(config: &Json, classes: usize) -> ProblemType {
        match config.get("problem_type").and_then(Json::as_str) {
            Some("multi_label_classification") => ProblemType::MultiLabel,
            Some("regression") => ProblemType::Regression,
            Some("single_label_classification") => ProblemType::SingleLabel,
            _ if classes == 1 => ProblemType::MultiLabel,
            _ => ProblemType::SingleLabel,
        }
    }

    fn probabilities(self, scores: &[f64]) -> Vec<f64> {
        match self {
            ProblemType::SingleLabel => softmax(scores),
            ProblemType::MultiLabel => scores.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            ProblemType::Regression => scores.to_vec(),
        }
    }
}

fn load_full(dir: &Path, dtype: DType) -> Result<ClassifierParts> {
    let path = dir.join("config.json");
    let config = Config::read(&path)?;
    let fault = |reason: String| Error::Config { path: path.clone(), reason };
    let classes = class_names(&config.json);
    let name = config.architecture().unwrap_or_default();
    let Some(stem) = name.strip_suffix(CLASSIFIER) else {
        return Err(fault(format!("`{name}` is not a classifier: the names of classifiers end in {CLASSIFIER}")));
    };
    // The library may support the model directly.
    if Architecture::from_config(&config, &path).is_ok() {
        let model = Model::load(dir, dtype)?;
        let inputs: Vec<String> = model.architecture.inputs().into_iter().map(|input| input.name).collect();
        if inputs.iter().filter(|name| ENCODER_INPUTS.contains(&&name[..])).ne(ENCODER_INPUTS.iter()) {
            return Err(fault(format!(
                "the classifier has the inputs {}, but only token IDs can be given",
                inputs.join(", ")
            )));
        }
        let scores = ProblemType::of(&config.json, classes.len());
        return Ok((model, None, classes, scores));
    }
    let model = load_decoder(dir, dtype, stem)?;
    let head = Checkpoint::open(dir)?;
    let missing = || Error::file(dir, "no tensor `score.weight`, which scores the classes");
    let head = head.get("score.weight").ok_or_else(missing)?.to_f32_vec("score.weight")?;
    let scores = ProblemType::of(&config.json, classes.len());
    Ok((model, Some(head), classes, scores))
}

fn read_with_adapter(dir: &Path, base: Option<&Path>, dtype: DType) -> Result<ClassifierParts> {
    let base = match base {
        Some(base) => base.to_path_buf(),
        None => Adapter::base_of(dir)?.into(),
    };
    let path = base.join("config.json");
    let config = if path.is_file() { Config::read(&path)?.json } else { Json::Null };
    // PEFT replaces the head of the base model, whatever class the base was saved as.
    let name = config.pointer("/architectures/0").and_then(Json::as_str).unwrap_or_default();
    let mut model = match name.strip_suffix(CLASSIFIER) {
        Some(stem) => load_decoder(&base, dtype, stem)?,
        None => Model::load(&base, dtype)?,
    };
    let (adapter, head, count) = Adapter::read_with_head(dir, &model)?;
    model.merge(&adapter)?;
    let object = |dir: &Path, name: &str| Ok::<_, Error>(Json::Object(read_object(dir, name)?.unwrap_or_default()));
    // PEFT doesn't save class names: those of the base's configuration are used, if their number matches.
    let mut names = class_names(&object(dir, "classes.json")?);
    if names.is_empty() {
        names = class_names(&config);
    }
    if names.len() != count && !dir.join("classes.json").is_file() {
        names = (0..count).map(|i| format!("LABEL_{i}")).collect();
    }
    let scores = ProblemType::of(&config, names.len());
    Ok((model, Some(head), names, scores))
}

/// Loads the decoder below a classification head.
fn load_decoder(dir: &Path, dtype: DType, stem: &str) -> Result<Model> {
    Model::load_without_lm_head(dir, dtype, &DECODERS.map(|end| format!("{stem}{end}")))
}

/// Class names by their numbers.
fn class_names(json: &Json) -> Vec<String> {
    let names = json.get("id2label").and_then(Json::as_object);
    let mut found: Vec<(usize, String)> = names
        .into_iter()
        .flatten()
        .filter_map(|(id, name)| Some((id.parse().ok()?, name.as_str()?.to_string())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let all: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = all.iter().sum();
    all.into_iter().map(|x| x / sum).collect()
}
