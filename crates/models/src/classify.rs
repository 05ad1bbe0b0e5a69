//! Texts to classes: a model whose head scores classes instead of words.
//!
//! Three forms are read: a decoder whose last state is scored (`..ForSequenceClassification`, as training for classes and transformers
//! save it), an adapter with such a head beside it (as peft saves it), and an encoder that the library has with its head.
//! Texts are padded to few lengths, each of which is compiled once; what stands behind a text is not seen by it.

use crate::adapter::Adapter;
use crate::architecture::{Architecture, DECODERS};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::last_row::{before_head, last_row};
use crate::model::Model;
use crate::session::{Buffer, Session};
use crate::special_tokens::object;
use crate::tokenizer::Tokenizer;
use compiler::Backend;
use ir::{DType, Type};
use lang::lower::Options;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use train::named_tensor::from_bytes;

/// Texts are padded to multiples of this.
const BLOCK: usize = 32;

/// Programs that are kept.
const KEPT: usize = 8;

/// What the name of a class of transformers ends in.
const CLASSIFIER: &str = "ForSequenceClassification";

/// A model that tells classes apart.
pub struct Classifier {
    model: Model,
    /// Scores of a state, `[classes, width]`; none where the model gives scores itself.
    head: Option<Vec<f32>>,
    classes: Vec<String>,
    scores: Scores,
    params: Option<Vec<Buffer>>,
    programs: BTreeMap<usize, Session>,
}

impl Classifier {
    /// Reads a directory, or that of an adapter, whose model may be named.
    pub fn load(dir: &Path, base: Option<&Path>, dtype: DType) -> Result<Classifier> {
        let (model, head, classes, scores) = match dir.join("adapter_config.json").is_file() {
            true => read_with_adapter(dir, base, dtype)?,
            false => whole(dir, dtype)?,
        };
        if let Some(head) = head.as_ref().filter(|head| classes.is_empty() || head.len() % classes.len() != 0) {
            return Err(Error::file(
                dir,
                format!("{} scores, which {} classes don't divide", head.len(), classes.len()),
            ));
        }
        Ok(Classifier { model, head, classes, scores, params: None, programs: BTreeMap::new() })
    }

    /// The names of the classes, in order.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The ids of a text as the model was trained to read it.
    pub fn ids(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<i32>> {
        let mut ids = tokenizer.whole(text)?;
        let most = self.model.max_sequence().unwrap_or(usize::MAX);
        if ids.len() > most {
            // What ends every text stays.
            let (_, after) = tokenizer.around()?;
            ids.truncate(most.saturating_sub(after.len()));
            ids.extend(after);
        }
        Ok(ids)
    }

    /// The probability of each class for a text; of a model for regression, its numbers.
    pub fn classify(&mut self, ids: &[i32], backend: &dyn Backend) -> Result<Vec<f64>> {
        if ids.is_empty() {
            return Err(Error::Input("no ids given: a text needs at least one".into()));
        }
        self.model.check_known(ids.iter())?;
        let longest = self.model.longest().unwrap_or(usize::MAX);
        if ids.len() > longest {
            return Err(Error::Input(format!("a text of {} ids: the model takes at most {longest}", ids.len())));
        }
        let rows = ids.len().next_multiple_of(BLOCK).min(longest);
        if !self.programs.contains_key(&rows) {
            while self.programs.len() >= KEPT {
                self.programs.pop_first();
            }
            let session = self.compile(rows, backend)?;
            self.programs.insert(rows, session);
        }
        let Some(session) = self.programs.get_mut(&rows) else { return Err(Error::Input("nothing to run".into())) };
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

    fn compile(&mut self, rows: usize, backend: &dyn Backend) -> Result<Session> {
        let params = match &self.params {
            Some(params) => params.clone(),
            None => self.params.insert(self.model.upload(backend)?).clone(),
        };
        let model = &self.model;
        let options = Options { dtype: model.dtype, written_backward: false, ..Options::default() };
        if self.head.is_none() {
            let ids = Type::new(DType::I32, &[1, rows]);
            let other = model.architecture.inputs().into_iter().map(|input| input.name);
            let absent = other.filter(|name| !TAKEN.contains(&&name[..])).collect();
            let lowered = model.architecture.lower_for(&[ids.clone(), ids], &Options { absent, ..options })?;
            return Session::new(&model.read_packed(&lowered.graph, 0)?, backend, &params);
        }
        let mut graph = model.read_packed(&model.architecture.lower_with(1, rows, &options)?.graph, 0)?;
        let states = before_head(&graph)
            .ok_or_else(|| Error::Input(format!("{} has no states that a head scores", model.architecture.name)))?;
        graph.set_outputs(vec![states]);
        Session::new(&last_row(&graph.without_dead_nodes(), 1)?, backend, &params)
    }
}

/// What encoders take, in this order.
const TAKEN: [&str; 2] = ["input_ids", "attention_mask"];

type Parts = (Model, Option<Vec<f32>>, Vec<String>, Scores);

/// What the scores of a model mean, as `problem_type` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scores {
    /// One of several classes.
    Classes,
    /// Each class by itself.
    Labels,
    /// Numbers.
    Numbers,
}

impl Scores {
    /// As transformers' pipeline reads a configuration.
    fn of(config: &Json, classes: usize) -> Scores {
        match config.get("problem_type").and_then(Json::as_str) {
            Some("multi_label_classification") => Scores::Labels,
            Some("regression") => Scores::Numbers,
            Some("single_label_classification") => Scores::Classes,
            _ if classes == 1 => Scores::Labels,
            _ => Scores::Classes,
        }
    }

    fn probabilities(self, scores: &[f64]) -> Vec<f64> {
        match self {
            Scores::Classes => softmax(scores),
            Scores::Labels => scores.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Scores::Numbers => scores.to_vec(),
        }
    }
}

fn whole(dir: &Path, dtype: DType) -> Result<Parts> {
    let path = dir.join("config.json");
    let config = Config::read(&path)?;
    let fault = |reason: String| Error::Config { path: path.clone(), reason };
    let classes = classes(&config.json);
    let name = config.architecture().unwrap_or_default();
    let Some(stem) = name.strip_suffix(CLASSIFIER) else {
        return Err(fault(format!("`{name}` tells no classes apart: its name would end in {CLASSIFIER}")));
    };
    // The library may have it as it is.
    if Architecture::of(&config, &path).is_ok() {
        let model = Model::load(dir, dtype)?;
        let inputs: Vec<String> = model.architecture.inputs().into_iter().map(|input| input.name).collect();
        if inputs.iter().filter(|name| TAKEN.contains(&&name[..])).ne(TAKEN.iter()) {
            return Err(fault(format!("a classifier that takes {}: texts are not enough", inputs.join(", "))));
        }
        let scores = Scores::of(&config.json, classes.len());
        return Ok((model, None, classes, scores));
    }
    let model = decoder(dir, dtype, stem)?;
    let head = Checkpoint::open(dir)?;
    let missing = || Error::file(dir, "no tensor `score.weight`, which scores the classes");
    let head = head.get("score.weight").ok_or_else(missing)?.floats("score.weight")?;
    let scores = Scores::of(&config.json, classes.len());
    Ok((model, Some(head), classes, scores))
}

fn read_with_adapter(dir: &Path, base: Option<&Path>, dtype: DType) -> Result<Parts> {
    let base = match base {
        Some(base) => base.to_path_buf(),
        None => Adapter::base_of(dir)?.into(),
    };
    let path = base.join("config.json");
    let config = if path.is_file() { Config::read(&path)?.json } else { Json::Null };
    // peft was given a model for classes, whatever the base was saved as; the head of the base is replaced.
    let name = config.pointer("/architectures/0").and_then(Json::as_str).unwrap_or_default();
    let mut model = match name.strip_suffix(CLASSIFIER) {
        Some(stem) => decoder(&base, dtype, stem)?,
        None => Model::load(&base, dtype)?,
    };
    let (adapter, head, count) = Adapter::read_with_head(dir, &model)?;
    model.merge(&adapter)?;
    let object = |dir: &Path, name: &str| Ok::<_, Error>(Json::Object(object(dir, name)?.unwrap_or_default()));
    // peft doesn't save the names of classes: those of the base's configuration are meant, if there are as many.
    let mut names = classes(&object(dir, "classes.json")?);
    if names.is_empty() {
        names = classes(&config);
    }
    if names.len() != count && !dir.join("classes.json").is_file() {
        names = (0..count).map(|i| format!("LABEL_{i}")).collect();
    }
    let scores = Scores::of(&config, names.len());
    Ok((model, Some(head), names, scores))
}

/// The decoder below a head for classes.
fn decoder(dir: &Path, dtype: DType, stem: &str) -> Result<Model> {
    Model::load_headless(dir, dtype, &DECODERS.map(|end| format!("{stem}{end}")))
}

/// Names of classes by their numbers.
fn classes(json: &Json) -> Vec<String> {
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
