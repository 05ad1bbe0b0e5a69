//! What a run starts from: texts, tokenizer, architecture, and the fingerprint by which a resumed one knows them again.

use super::settings::Settings;
use super::source;
use super::text::Part;
use super::{Texts, write_stories};
use crate::Architecture;
use crate::budget;
use crate::checkpoint::Checkpoint;
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::first_line;
use crate::tokenizer::Tokenizer;
use lang::consteval::Value;
use lang::resolve::Program;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use train::Observer;
use train::files;

/// The directory or file that a run begins with, where `--model` names one. The run's own folder is none: `--model gpt2 --out gpt2`
/// means the library's model, whether the folder is there already or not.
pub(super) fn based_on(settings: &Settings) -> Option<PathBuf> {
    let named = Path::new(&settings.model);
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let own = whole(named) == whole(&settings.out);
    ((named.is_dir() && !own) || crate::gguf::is_gguf(named)).then(|| named.to_path_buf())
}

/// Finds out what is wrong with a model's sizes before anything is written.
pub(super) fn possible(settings: &Settings) -> Result<()> {
    if let Some(path) = &settings.tokenizer {
        Tokenizer::read(path)?;
    }
    let path = Path::new(&settings.model);
    if crate::gguf::is_gguf(path) {
        return Ok(());
    }
    if based_on(settings).is_some() {
        return match path.join("config.json").exists() {
            true => Ok(()),
            false => Err(Error::file(path, "no config.json here: give a HuggingFace model directory")),
        };
    }
    if path.is_dir() && load_program(&settings.model).is_err() {
        return Err(Error::Input(format!("`--out` is the folder of the model, {}: choose another", path.display())));
    }
    if settings.adapter()?.is_some() {
        return Err(Error::Input("an adapter needs a trained model: give a HuggingFace directory as `--model`".into()));
    }
    let found = architecture(settings, settings.vocab)?;
    let lowered = found.lower(1, 1, settings.dtype, None).map_err(|error| of_sizes(error, &found))?;
    budget::fresh(&lowered.params, settings.dtype)?;
    takes(found.size("max_seq"), settings.seq)
}

pub(super) fn takes(most: Option<usize>, seq: usize) -> Result<()> {
    match most.filter(|most| seq > *most) {
        None => Ok(()),
        Some(most) => {
            Err(Error::Input(format!("sequences of {seq} ids: the model takes at most {most}; give a smaller `--seq`")))
        }
    }
}

/// What is wrong with a model of the library is wrong with the sizes that were given.
pub(super) fn of_sizes(error: Error, architecture: &Architecture) -> Error {
    let own = architecture.program.files.first().is_some_and(|file| !file.path.starts_with("std/"));
    match error {
        Error::Language(text) if !own => Error::Input(format!("{}; give other sizes with `--set`", first_line(&text))),
        other => other,
    }
}

/// The texts of a run; stories are written first where no data was given.
pub(super) fn texts(settings: &Settings, folder: &Path, watch: &mut dyn Observer) -> Result<Vec<(Texts, f64)>> {
    if let Some(data) = &settings.data {
        let sets = source::sets(&data.to_string_lossy())?.into_iter();
        return sets.map(|(path, weight)| Ok((Texts::open(&path)?, weight))).collect();
    }
    let path = folder.join("stories.txt");
    files::make_folder(folder)?;
    let text = write_stories(settings.seed, settings.stories);
    // A file of an earlier start is kept if it is the same.
    if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
        files::write(&path, text.as_bytes())?;
        watch.note(&format!("wrote {:.1} MB of stories to {}", text.len() as f64 / 1e6, path.display()));
    }
    Ok(vec![(Texts::open(&path)?, 1.0)])
}

/// The tokenizer: named, the model's own, that of the run's first start, or trained on the texts. One of several ranks writes it.
pub(super) fn tokenizer(
    settings: &Settings,
    based_on: Option<&Path>,
    texts: &[(Texts, f64)],
    resumed: bool,
    writes: bool,
    watch: &mut dyn Observer,
) -> Result<Tokenizer> {
    let own = settings.out.join("tokenizer.json");
    let tokenizer = match (&settings.tokenizer, based_on) {
        (Some(path), _) => Tokenizer::read(path)?,
        (None, Some(dir)) => Tokenizer::of_dir(dir)?,
        (None, None) if resumed && own.is_file() => return Tokenizer::read(&own),
        (None, None) => {
            // A few megabytes tell as much about frequent pairs as all of a large corpus.
            const ENOUGH: usize = 8 << 20;
            let (mut sample, mut bytes, texts_count) = (Vec::new(), 0, texts.len().max(1));
            for (texts, _) in texts {
                let enough = bytes + ENOUGH / texts_count;
                let mut add = |text: &str| {
                    bytes += text.len();
                    sample.push(text.to_string());
                    Ok(bytes < enough && !watch.stop())
                };
                match texts.holds_records() {
                    true => texts.records(|record, _| add(&words(record.get("text").unwrap_or(record))))?,
                    false => texts.documents(|part| if let Part::Text(text) = part { add(text) } else { Ok(true) })?,
                };
            }
            if watch.stop() {
                return Err(Error::Stopped);
            }
            if sample.is_empty() {
                return Err(Error::Input("the data is empty: give files with text in them".into()));
            }
            let started = Instant::now();
            let found = Tokenizer::train(sample.iter().map(String::as_str), settings.vocab)?;
            let seconds = started.elapsed().as_secs_f64();
            watch.note(&format!("trained a byte-pair tokenizer of {} ids in {seconds:.1} s", found.size()));
            found
        }
    };
    if writes {
        tokenizer.write(&settings.out)?;
    }
    Ok(tokenizer)
}

/// All texts of a record.
fn words(record: &Json) -> String {
    match record {
        Json::String(text) => text.clone(),
        Json::Array(list) => list.iter().map(words).collect::<Vec<_>>().join("\n"),
        Json::Object(fields) => fields.values().map(words).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The model to train from its beginning.
pub(super) fn architecture(settings: &Settings, vocabulary: usize) -> Result<Architecture> {
    let program = load_program(&settings.model)?;
    let mut given = settings.given();
    let name = "vocab_size";
    if Architecture::parameters(&program).iter().any(|p| p == name) {
        given.entry(name.into()).or_insert_with(|| Value::int(vocabulary as i64));
    }
    Architecture::of_program(program, None, given)
}

/// A number that changes when what a run starts from does: a model's weights and configuration, or its own text.
pub(super) fn base_fingerprint(dir: Option<&Path>, program: &Program) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    if let Some(file) = dir.filter(|dir| crate::gguf::is_gguf(dir)) {
        hasher.update(&crate::gguf::fingerprint(file)?.to_le_bytes());
    } else if let Some(dir) = dir {
        hasher.update(&files::read(&dir.join("config.json"), files::CONFIG)?);
        hasher.update(&Checkpoint::open(dir)?.fingerprint()?.to_le_bytes());
    }
    // The library's own text is not the user's to change.
    for file in program.files.iter().filter(|file| !file.path.starts_with("std/")) {
        hasher.update(program.sources.file(file.id).text().as_bytes());
    }
    Ok(hasher.finalize())
}
