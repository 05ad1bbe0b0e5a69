//! The files beside a model's weights: tokenizer, chat templates, generation config, licences and others.
//!
//! A model that is written from a directory gets all of them, except weights and the files of a training run.

use crate::chat_files;
use crate::error::{Error, Result};
use crate::gguf;
use std::path::{Path, PathBuf};
use train::files;

/// A selection of these files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSelection {
    /// All.
    All,
    /// The files of the tokenizer, with its chat templates.
    Tokenizer,
    /// All other files.
    NonTokenizer,
}

/// File names of a tokenizer.
const TOKENIZER_FILES: &[&str] = &[
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
/// The folder of additional chat templates.
const TEMPLATE_DIR: &str = "additional_chat_templates";

/// Suffixes of files that hold weights or their index.
const WEIGHT_SUFFIXES: &[&str] = &[
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

/// Files that are written for every model, and those of a training run.
const GENERATED_FILES: &[&str] = &[
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

/// Folders with weights in other formats, and of runs.
const WEIGHT_DIRS: &[&str] =
    &["onnx", "openvino", "original", "coreml", "checkpoints", "data", "ranks", "runs", "events"];

/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 4;

/// Copies the files beside a model's weights from one directory to another; a GGUF file gives those that it contains.
pub fn copy_companions(from: &Path, to: &Path) -> Result<()> {
    match gguf::is_gguf(from) {
        true => gguf::GgufFile::open(from)?.write_companions(to).map(drop),
        false => copy(from, to, FileSelection::All).map(drop),
    }
}

/// Writes the files beside a merged model: those of its base, with the tokenizer of the adapter if that has one.
pub fn merge_companions(base: &Path, adapter: &Path, to: &Path) -> Result<()> {
    copy_companions(base, to)?;
    if adapter.join("tokenizer.json").is_file() {
        // The base's tokenizer files must not be mixed with the adapter's.
        for name in file_names(to)?.into_iter().filter(|name| is_tokenizer(name)) {
            let path = to.join(name);
            std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
        }
        copy(adapter, to, FileSelection::Tokenizer)?;
    }
    // Adapters are often saved without the template of their base.
    if chat_files::read_templates(to)?.is_empty() {
        chat_files::write_templates(&chat_files::read_templates(base)?, to)?;
    }
    Ok(())
}

/// Copies some of the files; returns the paths of those that were written.
pub(crate) fn copy(from: &Path, to: &Path, part: FileSelection) -> Result<Vec<PathBuf>> {
    let same = from.canonicalize().ok().is_some_and(|from| to.canonicalize().ok() == Some(from));
    let mut written = Vec::new();
    for name in file_names(from)?
        .into_iter()
        .filter(|name| part == FileSelection::All || is_tokenizer(name) == (part == FileSelection::Tokenizer))
    {
        if !same {
            let target = to.join(&name);
            if let Some(folder) = name.parent().filter(|folder| *folder != Path::new("")) {
                create_dirs(to, folder)?;
            }
            files::copy(&from.join(&name), &target)?;
        }
        written.push(to.join(name));
    }
    Ok(written)
}

/// The files of a directory that a GGUF file can't contain. It has the tokenizer's tokens, its chat templates, and which tokens
/// begin, end and pad a text.
pub fn files_without_gguf_form(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = file_names(dir)?;
    found.retain(|name| !is_tokenizer(name));
    Ok(found)
}

fn is_tokenizer(name: &Path) -> bool {
    let tiktoken = name.extension().is_some_and(|end| end == "tiktoken");
    tiktoken || name.starts_with(TEMPLATE_DIR) || TOKENIZER_FILES.iter().any(|known| name == Path::new(known))
}

fn create_dirs(to: &Path, folder: &Path) -> Result<()> {
    let mut path = to.to_path_buf();
    for part in folder.components() {
        path.push(part);
        files::create_dir_all(&path)?;
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

/// Fails if a directory contains model weights: a single file, shards or an adapter. Another model written there would overwrite
/// them, or would be shadowed by weights that programs load first.
pub fn ensure_no_model(dir: &Path) -> Result<()> {
    match weights_in(dir).first() {
        Some(file) => Err(Error::Input(format!(
            "{} already contains a model ({file}), which would be overwritten: choose another `--out`",
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// The names of all files beside the weights, in order.
fn file_names(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect_files(dir, Path::new(""), MAX_DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect_files(dir: &Path, under: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
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
        // A link to a file counts as the file; a link to a folder may be a cycle.
        if entry.file_type().map_err(fault)?.is_dir() {
            let run = WEIGHT_DIRS.contains(&name) || name.starts_with("checkpoint-");
            if depth > 0 && !(top && run) {
                collect_files(dir, &path, depth - 1, found)?;
            }
        } else if dir.join(&path).is_file() && !(top && (GENERATED_FILES.contains(&name) || is_weights(name))) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file of a model's directory holds weights.
fn is_weights(name: &str) -> bool {
    WEIGHT_SUFFIXES.iter().any(|end| name.ends_with(end))
}
