//! The log of a run: one JSON object a line, which the report is drawn from.

use crate::error::Result;
use crate::files;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Losses since the line before.
    Train {
        /// Steps done.
        step: usize,
        /// Mean loss since the line before.
        loss: f64,
        /// Loss of this very step.
        last: f32,
        /// Length of this step's gradient.
        norm: f32,
        /// Learning rate.
        rate: f64,
        /// Tokens, or whatever a batch is counted in, a second.
        speed: f64,
        /// Memory of the process, in bytes.
        memory: u64,
    },
    /// A validation.
    Valid {
        /// Steps done.
        step: usize,
        /// Loss of the held-out part.
        loss: f32,
    },
    /// Lengths of gradients and weights by layer.
    Layers {
        /// Steps done.
        step: usize,
        /// Names of layers, with both.
        norms: Vec<(String, f32, f32)>,
    },
    /// A sample.
    Sample {
        /// Steps done.
        step: usize,
        /// The text, its prompt included.
        text: String,
    },
}

impl Entry {
    /// Steps done when it was written.
    pub fn step(&self) -> usize {
        match self {
            Entry::Train { step, .. }
            | Entry::Valid { step, .. }
            | Entry::Layers { step, .. }
            | Entry::Sample { step, .. } => *step,
        }
    }

    fn to_json(&self, unit: &str) -> Json {
        match self {
            Entry::Train { step, loss, last, norm, rate, speed, memory } => {
                let mut line = json!({ "step": step, "loss": loss, "last": last, "norm": norm, "rate": rate });
                line[format!("{unit}_per_s")] = json!(speed);
                line["memory"] = json!(memory);
                line
            }
            Entry::Valid { step, loss } => json!({ "step": step, "valid": loss }),
            Entry::Layers { step, norms } => {
                let layers: serde_json::Map<String, Json> =
                    norms.iter().map(|(name, gradient, weight)| (name.clone(), json!([gradient, weight]))).collect();
                json!({ "step": step, "layers": layers })
            }
            Entry::Sample { step, text } => json!({ "step": step, "sample": text }),
        }
    }

    pub(crate) fn of_json(json: &Json) -> Option<Entry> {
        let step = json.get("step")?.as_u64()? as usize;
        // What is not finite is written as null.
        let float = |name: &str| json.get(name).and_then(Json::as_f64).unwrap_or(f64::NAN);
        if json.get("valid").is_some() {
            return Some(Entry::Valid { step, loss: float("valid") as f32 });
        }
        if let Some(layers) = json.get("layers").and_then(Json::as_object) {
            let number = |value: &Json, i: usize| value.get(i).and_then(Json::as_f64).unwrap_or(f64::NAN) as f32;
            let norms = layers.iter().map(|(name, pair)| (name.clone(), number(pair, 0), number(pair, 1)));
            return Some(Entry::Layers { step, norms: norms.collect() });
        }
        if let Some(text) = json.get("sample").and_then(Json::as_str) {
            return Some(Entry::Sample { step, text: text.to_string() });
        }
        Some(Entry::Train {
            step,
            loss: float("loss"),
            last: float("last") as f32,
            norm: float("norm") as f32,
            rate: float("rate"),
            speed: json
                .as_object()
                .and_then(|o| o.iter().find(|(k, _)| k.ends_with("_per_s"))?.1.as_f64())
                .unwrap_or(f64::NAN),
            memory: json.get("memory").and_then(Json::as_u64).unwrap_or(0),
        })
    }
}

/// The entries of a run, in memory and in `log.jsonl`.
pub struct Log {
    path: PathBuf,
    unit: &'static str,
    entries: Vec<Entry>,
}

impl Log {
    /// Goes on with a log; lines behind `step` belong to steps that were lost, and are dropped. `unit` is what speed counts.
    pub fn resume(folder: &Path, step: usize, unit: &'static str) -> Result<Log> {
        let path = folder.join("log.jsonl");
        let text = files::read_text(&path, files::TEXT).unwrap_or_default();
        let lines = text.lines().filter_map(|line| Entry::of_json(&serde_json::from_str(line).ok()?));
        let entries: Vec<Entry> = lines.filter(|entry| step > 0 && entry.step() <= step).collect();
        let log = Log { path, unit, entries };
        let text: String = log.entries.iter().map(|entry| format!("{}\n", entry.to_json(unit))).collect();
        files::write(&log.path, text.as_bytes())?;
        Ok(log)
    }

    /// Adds a line. The log is for people: a disk that is full does not end the run.
    pub fn add(&mut self, entry: Entry) {
        let _ = files::append(&self.path, format!("{}\n", entry.to_json(self.unit)).as_bytes());
        self.entries.push(entry);
    }

    /// All lines so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}
