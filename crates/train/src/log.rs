//! The log of a run: one JSON object per line. The report is drawn from it.

use crate::error::Result;
use crate::files;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// A log entry.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// A training entry.
    Train {
        /// Number of completed steps.
        step: usize,
        /// Mean loss since the previous entry.
        loss: f64,
        /// Loss of this step.
        last: f32,
        /// Gradient norm of this step.
        norm: f32,
        /// Learning rate.
        rate: f64,
        /// Tokens (or the unit of the batch) per second.
        speed: f64,
        /// Memory of the process, in bytes.
        memory: u64,
    },
    /// A validation.
    Valid {
        /// Number of completed steps.
        step: usize,
        /// Validation loss.
        loss: f32,
    },
    /// Norms of gradients and weights by layer.
    Layers {
        /// Number of completed steps.
        step: usize,
        /// Names of layers, with both norms.
        norms: Vec<(String, f32, f32)>,
    },
    /// A generated sample.
    Sample {
        /// Number of completed steps.
        step: usize,
        /// The text, its prompt included.
        text: String,
    },
}

impl LogEntry {
    /// Number of completed steps at the time of the entry.
    pub fn step(&self) -> usize {
        match self {
            LogEntry::Train { step, .. }
            | LogEntry::Valid { step, .. }
            | LogEntry::Layers { step, .. }
            | LogEntry::Sample { step, .. } => *step,
        }
    }

    fn to_json(&self, unit: &str) -> Json {
        match self {
            LogEntry::Train { step, loss, last, norm, rate, speed, memory } => {
                let mut line =
                    json!({ "step": step, "loss": loss, "last": last, "grad_norm": norm, "learning_rate": rate });
                line[format!("{unit}_per_s")] = json!(speed);
                line["memory"] = json!(memory);
                line
            }
            LogEntry::Valid { step, loss } => json!({ "step": step, "eval_loss": loss }),
            LogEntry::Layers { step, norms } => {
                let layers: serde_json::Map<String, Json> =
                    norms.iter().map(|(name, gradient, weight)| (name.clone(), json!([gradient, weight]))).collect();
                json!({ "step": step, "layers": layers })
            }
            LogEntry::Sample { step, text } => json!({ "step": step, "sample": text }),
        }
    }

    pub(crate) fn from_json(json: &Json) -> Option<LogEntry> {
        let step = json.get("step")?.as_u64()? as usize;
        // Non-finite values are written as null.
        let float = |name: &str| json.get(name).and_then(Json::as_f64).unwrap_or(f64::NAN);
        // The second name of a key is the one that earlier versions wrote.
        let either = |name: &str, old: &str| float(if json.get(name).is_some() { name } else { old });
        if json.get("eval_loss").or(json.get("valid")).is_some() {
            return Some(LogEntry::Valid { step, loss: either("eval_loss", "valid") as f32 });
        }
        if let Some(layers) = json.get("layers").and_then(Json::as_object) {
            let number = |value: &Json, i: usize| value.get(i).and_then(Json::as_f64).unwrap_or(f64::NAN) as f32;
            let norms = layers.iter().map(|(name, pair)| (name.clone(), number(pair, 0), number(pair, 1)));
            return Some(LogEntry::Layers { step, norms: norms.collect() });
        }
        if let Some(text) = json.get("sample").and_then(Json::as_str) {
            return Some(LogEntry::Sample { step, text: text.to_string() });
        }
        Some(LogEntry::Train {
            step,
            loss: float("loss"),
            last: float("last") as f32,
            norm: either("grad_norm", "norm") as f32,
            rate: either("learning_rate", "rate"),
            speed: json
                .as_object()
                .and_then(|o| o.iter().find(|(k, _)| k.ends_with("_per_s"))?.1.as_f64())
                .unwrap_or(f64::NAN),
            memory: json.get("memory").and_then(Json::as_u64).unwrap_or(0),
        })
    }
}

/// The entries of a run, in memory and in `log.jsonl`.
pub struct RunLog {
    path: PathBuf,
    unit: &'static str,
    entries: Vec<LogEntry>,
}

impl RunLog {
    /// Resumes a log; entries after `step` belong to steps that were lost, and are dropped. `unit` is the unit of the speed.
    pub fn resume(folder: &Path, step: usize, unit: &'static str) -> Result<RunLog> {
        let path = folder.join("log.jsonl");
        let text = files::read_text(&path, files::MAX_TEXT_BYTES).unwrap_or_default();
        let lines = text.lines().filter_map(|line| LogEntry::from_json(&serde_json::from_str(line).ok()?));
        let entries: Vec<LogEntry> = lines.filter(|entry| step > 0 && entry.step() <= step).collect();
        let log = RunLog { path, unit, entries };
        let text: String = log.entries.iter().map(|entry| format!("{}\n", entry.to_json(unit))).collect();
        files::write(&log.path, text.as_bytes())?;
        Ok(log)
    }

    /// Appends an entry. A full disk does not end the run.
    pub fn add(&mut self, entry: LogEntry) {
        let _ = files::append(&self.path, format!("{}\n", entry.to_json(self.unit)).as_bytes());
        self.entries.push(entry);
    }

    /// All entries so far.
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_and_keys_of_earlier_versions_are_read() {
        let read = |text: &str| LogEntry::from_json(&serde_json::from_str(text).expect("JSON")).expect("an entry");
        let new =
            r#"{"step":3,"loss":2.5,"last":2.0,"grad_norm":0.5,"learning_rate":0.001,"tokens_per_s":7.0,"memory":9}"#;
        let old = r#"{"step":3,"loss":2.5,"last":2.0,"norm":0.5,"rate":0.001,"tokens_per_s":7.0,"memory":9}"#;
        let again: Json = serde_json::from_str(new).expect("JSON");
        assert_eq!(read(new).to_json("tokens"), again);
        assert_eq!(read(old).to_json("tokens"), again);
        let loss = json!({ "step": 4, "eval_loss": 1.5 });
        assert_eq!(read(r#"{"step":4,"eval_loss":1.5}"#).to_json("tokens"), loss);
        assert_eq!(read(r#"{"step":4,"valid":1.5}"#).to_json("tokens"), loss);
    }
}
