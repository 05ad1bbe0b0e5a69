//! `loom classify` predicts the class of a text.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::compile::dtype;
use crate::device::DeviceArgs;
use crate::output::{errln, outln};
use crate::run::usage_error;
use ir::DType;
use models::{Classifier, Tokenizer};
use serde_json::Value as Json;
use std::path::Path;

/// Options of `loom classify`.
#[derive(clap::Args)]
pub(crate) struct Classify {
    /// Directory of a classifier, or of an adapter that was trained for classification
    dir: String,
    /// Text to classify; may be repeated
    #[arg(long, value_name = "TEXT", required_unless_present = "data")]
    text: Vec<String>,
    /// A file with one text per line, or JSON lines with `text`; if they have `label`, the accuracy is printed
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    data: Option<String>,
    /// Print the probabilities of all classes as JSON lines
    #[arg(long)]
    json: bool,
    /// The base model of an adapter, if it has been moved
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name)]
    base: Option<String>,
    /// Dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    #[command(flatten)]
    machine: DeviceArgs,
}

/// A text and its label, if it has one.
type LabeledText = (String, Option<String>);

pub(crate) fn classify(args: &Classify) -> Result<ExitStatus, UsageError> {
    let mut examples: Vec<LabeledText> = args.text.iter().map(|text| (text.clone(), None)).collect();
    if let Some(file) = &args.data {
        examples.extend(read(file)?);
    }
    let dir = Path::new(&args.dir);
    if !dir.is_dir() {
        return Err(UsageError(format!("{}: not a directory; give the directory of a classifier", args.dir)));
    }
    let base = args.base.as_deref().map(Path::new);
    let mut classifier = Classifier::load(dir, base, args.dtype).map_err(usage_error)?;
    let tokenizer = Tokenizer::from_dir(dir).map_err(usage_error)?;
    let backend = args.machine.open()?;
    let (mut right, mut known) = (0, 0);
    for (text, label) in &examples {
        let ids = classifier.ids(&tokenizer, text).map_err(usage_error)?;
        let found = classifier.classify(&ids, &*backend).map_err(usage_error)?;
        let best = (0..found.len()).max_by(|a, b| found[*a].total_cmp(&found[*b])).unwrap_or(0);
        let name = classifier.classes().get(best).cloned().unwrap_or_else(|| best.to_string());
        if let Some(label) = label {
            known += 1;
            right += usize::from(*label == name || *label == best.to_string());
        }
        if args.json {
            let all = classifier.classes().iter().cloned().zip(found.iter().map(|p| Json::from(*p)));
            let all: serde_json::Map<String, Json> = all.collect();
            outln!("{}", serde_json::json!({ "text": text, "class": name, "probabilities": all }));
        } else {
            outln!("{name}\t{:.4}\t{}", found.get(best).copied().unwrap_or(0.0), text.replace(['\n', '\t'], " "));
        }
    }
    if known > 0 {
        errln!("accuracy: {right} of {known} ({:.1} %)", 100.0 * right as f64 / known as f64);
    }
    Ok(ExitStatus::Success)
}

fn read(file: &str) -> Result<Vec<LabeledText>, UsageError> {
    let text = models::files::read_text(Path::new(file), models::files::MAX_TEXT_BYTES).map_err(usage_error)?;
    let json = file.ends_with(".jsonl") || file.ends_with(".json");
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if !json {
            found.push((line.to_string(), None));
            continue;
        }
        let fault = |what: String| UsageError(format!("{file}, line {}: {what}", n + 1));
        let record: Json = serde_json::from_str(line).map_err(|e| fault(format!("not valid JSON: {e}")))?;
        let Some(text) = record.get("text").and_then(Json::as_str) else {
            return Err(fault("no field `text` that is a string".into()));
        };
        let label = record.get("label").map(|label| label.as_str().map_or_else(|| label.to_string(), String::from));
        found.push((text.to_string(), label));
    }
    if found.is_empty() { Err(UsageError(format!("{file}: the file has no texts"))) } else { Ok(found) }
}
