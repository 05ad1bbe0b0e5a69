//! Prepares the inputs of a run: documents, tokenizer, architecture, and the fingerprint by which a resumed run recognizes them.

use super::settings::TrainSettings;
use super::source;
use super::text::DocumentPart;
use super::{TextDataset, write_stories};
use crate::Architecture;
use crate::budget;
use crate::checkpoint::Checkpoint;
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::first_line;
use crate::tokenizer::Tokenizer;
use lang::consteval::ConstValue;
use lang::resolve::ModuleProgram;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use train::TrainObserver;
use train::files;

/// The directory or file of the initial model, if `--model` names one. The run's own folder is excluded: `--model gpt2 --out
/// gpt2` means the library's model, whether or not the folder exists.
pub(super) fn base_model_path(settings: &TrainSettings) -> Option<PathBuf> {
    let named = Path::new(&settings.model);
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let own = whole(named) == whole(&settings.out);
    ((named.is_dir() && !own) || crate::gguf::is_gguf(named)).then(|| named.to_path_buf())
}

/// Checks a model's sizes before anything is written.
pub(super) fn check_model_sizes(settings: &TrainSettings) -> Result<()> {
    if let Some(path) = &settings.tokenizer {
        Tokenizer::read(path)?;
    }
    let path = Path::new(&settings.model);
    if crate::gguf::is_gguf(path) {
        return Ok(());
    }
    if base_model_path(settings).is_some() {
        return match path.join("config.json").exists() {
            true => Ok(()),
            false => Err(Error::file(path, "no config.json found: give a HuggingFace model directory")),
        };
    }
    if path.is_dir() && load_program(&settings.model).is_err() {
        return Err(Error::Input(format!(
            "`--out` is the folder of the input model, {}: choose another",
            path.display()
        )));
    }
    if settings.adapter()?.is_some() {
        return Err(Error::Input(
            "an adapter needs a pretrained model: give a HuggingFace directory as `--model`".into(),
        ));
    }
    let found = architecture(settings, settings.vocab)?;
    let lowered = found.lower(1, 1, settings.dtype, None).map_err(|error| sizes_error(error, &found))?;
    budget::check_new_model(&lowered.params, settings.dtype)?;
    check_seq_len(found.size("max_seq"), settings.seq)
}

pub(super) fn check_seq_len(most: Option<usize>, seq: usize) -> Result<()> {
    match most.filter(|most| seq > *most) {
        None => Ok(()),
        Some(most) => Err(Error::Input(format!(
            "the sequence length {seq} exceeds the model's maximum of {most}: give a smaller `--seq-len`"
        ))),
    }
}

/// Converts an error in a library model to an error about the given sizes.
pub(super) fn sizes_error(error: Error, architecture: &Architecture) -> Error {
    let own = architecture.program.files.first().is_some_and(|file| !file.path.starts_with("std/"));
    match error {
        Error::Language(text) if !own => Error::Input(format!("{}; change the sizes with `--set`", first_line(&text))),
        other => other,
    }
}

/// The documents of a run; without data, a synthetic corpus is written first.
pub(super) fn open_documents(
    settings: &TrainSettings,
    folder: &Path,
    watch: &mut dyn TrainObserver,
) -> Result<Vec<(TextDataset, f64)>> {
    if let Some(data) = &settings.data {
        let sets = source::parse_data_sets(&data.to_string_lossy())?.into_iter();
        return sets.map(|(path, weight)| Ok((TextDataset::open(&path)?, weight))).collect();
    }
    let path = folder.join("stories.txt");
    files::create_dir_all(folder)?;
    let text = write_stories(settings.seed, settings.stories);
    // An identical file of an earlier start is kept.
    if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
        files::write(&path, text.as_bytes())?;
        watch.on_message(&format!(
            "wrote {:.1} MB of synthetic stories to {}",
            text.len() as f64 / 1e6,
            path.display()
        ));
    }
    Ok(vec![(TextDataset::open(&path)?, 1.0)])
}

/// The tokenizer: given by name, the model's own, that of the run's first start, or trained on the documents. Only one rank writes it.
pub(super) fn prepare_tokenizer(
    settings: &TrainSettings,
    based_on: Option<&Path>,
    texts: &[(TextDataset, f64)],
    resumed: bool,
    writes: bool,
    watch: &mut dyn TrainObserver,
) -> Result<Tokenizer> {
    let own = settings.out.join("tokenizer.json");
    let tokenizer = match (&settings.tokenizer, based_on) {
        (Some(path), _) => Tokenizer::read(path)?,
        (None, Some(dir)) => Tokenizer::from_dir(dir)?,
        (None, None) if resumed && own.is_file() => return Tokenizer::read(&own),
        (None, None) => {
            // A few megabytes are enough to estimate pair frequencies.
            const ENOUGH: usize = 8 << 20;
            let (mut sample, mut bytes, texts_count) = (Vec::new(), 0, texts.len().max(1));
            for (texts, _) in texts {
                let enough = bytes + ENOUGH / texts_count;
                let mut add = |text: &str| {
                    bytes += text.len();
                    sample.push(text.to_string());
                    Ok(bytes < enough && !watch.should_stop())
                };
                match texts.holds_records() {
                    true => texts.records(|record, _| add(&record_text(record.get("text").unwrap_or(record))))?,
                    false => texts
                        .documents(|part| if let DocumentPart::Text(text) = part { add(text) } else { Ok(true) })?,
                };
            }
            if watch.should_stop() {
                return Err(Error::Stopped);
            }
            if sample.is_empty() {
                return Err(Error::Input("the data is empty: give files with text".into()));
            }
            let started = Instant::now();
            let found = Tokenizer::train(sample.iter().map(String::as_str), settings.vocab)?;
            let seconds = started.elapsed().as_secs_f64();
            watch.on_message(&format!("trained a byte-pair tokenizer with {} tokens in {seconds:.1} s", found.size()));
            found
        }
    };
    if writes {
        tokenizer.write(&settings.out)?;
    }
    Ok(tokenizer)
}

/// All text fields of a record.
fn record_text(record: &Json) -> String {
    match record {
        Json::String(text) => text.clone(),
        Json::Array(list) => list.iter().map(record_text).collect::<Vec<_>>().join("\n"),
        Json::Object(fields) => fields.values().map(record_text).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The architecture of a newly initialized model.
pub(super) fn architecture(settings: &TrainSettings, vocabulary: usize) -> Result<Architecture> {
    let program = load_program(&settings.model)?;
    let mut given = settings.model_constants();
    let name = "vocab_size";
    if Architecture::parameters(&program).iter().any(|p| p == name) {
        given.entry(name.into()).or_insert_with(|| ConstValue::int(vocabulary as i64));
    }
    Architecture::from_program(program, None, given)
}

/// A checksum of the initial model: its weights and configuration, or the source of its module.
pub(super) fn base_fingerprint(dir: Option<&Path>, program: &ModuleProgram) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    if let Some(file) = dir.filter(|dir| crate::gguf::is_gguf(dir)) {
        hasher.update(&crate::gguf::fingerprint(file)?.to_le_bytes());
    } else if let Some(dir) = dir {
        hasher.update(&files::read(&dir.join("config.json"), files::MAX_CONFIG_BYTES)?);
        hasher.update(&Checkpoint::open(dir)?.fingerprint()?.to_le_bytes());
    }
    // The library's source can't be changed by the user.
    for file in program.files.iter().filter(|file| !file.path.starts_with("std/")) {
        hasher.update(program.sources.file(file.id).text().as_bytes());
    }
    Ok(hasher.finalize())
}
