//! The files beside a model's weights: tokenizer, chat templates, settings of generation, licences and whatever else lies there.
//!
//! What is written from a directory gets all of them, except weights and what belongs to a run.

use crate::chat_files;
use crate::error::{Error, Result};
use crate::gguf;
use std::path::{Path, PathBuf};
use train::files;

/// Which files are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All.
    All,
    /// Those that make the tokenizer, with its chat templates.
    Tokenizer,
    /// All others.
    Others,
}

/// Files of a tokenizer by their names.
const TOKENIZER: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];
/// The folder of further chat templates.
const TEMPLATES: &str = "additional_chat_templates";

/// Endings of files that hold weights or their index.
const WEIGHTS: &[&str] = &[
    ".safetensors",
    ".safetensors.index.json",
    ".bin",
    ".bin.index.json",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".ggml",
    ".h5",
    ".msgpack",
    ".msgpack.index.json",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".npz",
    ".tflite",
    ".partial",
];

/// What is written anew with every model, and what belongs to the run that wrote a directory.
const OWN: &[&str] = &[
    "config.json",
    "adapter_config.json",
    "classes.json",
    "index.html",
    "log.jsonl",
    "run.toml",
    "profile.txt",
    "profile.json",
    "trainer_state.json",
];

/// Folders of the same kinds: weights in other formats, and runs.
const FOLDERS: &[&str] = &["onnx", "openvino", "original", "coreml", "checkpoints", "data", "ranks", "runs", "events"];

/// Folders in folders.
const DEEPEST: usize = 4;

/// Copies what lies beside a model's weights from one directory to another; a GGUF file gives what it has of it.
pub fn copy_companions(from: &Path, to: &Path) -> Result<()> {
    match gguf::is_gguf(from) {
        true => gguf::Gguf::open(from)?.write_companions(to).map(drop),
        false => copy(from, to, Part::All).map(drop),
    }
}

/// Writes what lies beside a merged model: its base's files, with the tokenizer of the adapter where that has one.
pub fn merge_companions(base: &Path, adapter: &Path, to: &Path) -> Result<()> {
    copy_companions(base, to)?;
    if adapter.join("tokenizer.json").is_file() {
        // None of the base's tokenizer stays beside the adapter's.
        for name in names(to)?.into_iter().filter(|name| is_tokenizer(name)) {
            let path = to.join(name);
            std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
        }
        copy(adapter, to, Part::Tokenizer)?;
    }
    // Adapters are often saved without the template of their base.
    if chat_files::templates(to)?.is_empty() {
        chat_files::write(&chat_files::templates(base)?, to)?;
    }
    Ok(())
}

/// Copies a part of the files; the paths of those that were written.
pub(crate) fn copy(from: &Path, to: &Path, part: Part) -> Result<Vec<PathBuf>> {
    let same = from.canonicalize().ok().is_some_and(|from| to.canonicalize().ok() == Some(from));
    let mut written = Vec::new();
    for name in
        names(from)?.into_iter().filter(|name| part == Part::All || is_tokenizer(name) == (part == Part::Tokenizer))
    {
        if !same {
            let target = to.join(&name);
            if let Some(folder) = name.parent().filter(|folder| *folder != Path::new("")) {
                make_folders(to, folder)?;
            }
            files::copy(&from.join(&name), &target)?;
        }
        written.push(to.join(name));
    }
    Ok(written)
}

/// The files of a directory that a GGUF file has no place for. It has the tokenizer's tokens, its chat templates, and which ids
/// begin, end and pad a text.
pub fn not_in_gguf(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = names(dir)?;
    found.retain(|name| !is_tokenizer(name));
    Ok(found)
}

fn is_tokenizer(name: &Path) -> bool {
    let tiktoken = name.extension().is_some_and(|end| end == "tiktoken");
    tiktoken || name.starts_with(TEMPLATES) || TOKENIZER.iter().any(|known| name == Path::new(known))
}

fn make_folders(to: &Path, folder: &Path) -> Result<()> {
    let mut path = to.to_path_buf();
    for part in folder.components() {
        path.push(part);
        files::make_folder(&path)?;
    }
    Ok(())
}

/// The files of a directory in which programs look for a model's weights, in order.
pub(crate) fn weights_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let pickled = |name: &str| {
        let stem = name.strip_suffix(".bin").or_else(|| name.strip_suffix(".bin.index.json"));
        stem.is_some_and(|stem| ["model", "pytorch_model", "adapter_model"].iter().any(|known| stem.starts_with(known)))
    };
    found.retain(|name| name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || pickled(name));
    found.sort();
    found
}

/// Fails if a directory contains model weights: a single file, shards or an adapter. Another model written there would overwrite them, or
/// would stand beside weights that programs load first.
pub fn ensure_no_model(dir: &Path) -> Result<()> {
    match weights_in(dir).first() {
        Some(file) => Err(Error::Input(format!(
            "{} already holds a model ({file}), which would be written over: choose another `--out`",
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// The names of all files beside the weights, in order.
fn names(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    gather(dir, Path::new(""), DEEPEST, &mut found)?;
    found.sort();
    Ok(found)
}

fn gather(dir: &Path, under: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let folder = dir.join(under);
    let fault = |e: std::io::Error| Error::file(&folder, e);
    for entry in std::fs::read_dir(&folder).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().filter(|name| !name.starts_with('.') && !name.ends_with('~')) else {
            continue;
        };
        let path = under.join(name);
        let top = under == Path::new("");
        // A link to a file is the file; a link to a folder may lead back here.
        if entry.file_type().map_err(fault)?.is_dir() {
            let run = FOLDERS.contains(&name) || name.starts_with("checkpoint-");
            if depth > 0 && !(top && run) {
                gather(dir, &path, depth - 1, found)?;
            }
        } else if dir.join(&path).is_file() && !(top && (OWN.contains(&name) || is_weights(name))) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file of a model's directory holds weights.
fn is_weights(name: &str) -> bool {
    WEIGHTS.iter().any(|end| name.ends_with(end))
}
