//! Reading texts: files, JSON lines and folders of them, memory-mapped.

use crate::error::{Error, Result};
use crate::tokenizer::END;
use memmap2::Mmap;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Endings of files that are texts, in folders.
const TEXTS: &[&str] = &["txt", "md", "text"];
/// Endings of files whose lines are JSON objects.
const LINES: &[&str] = &["jsonl", "ndjson"];

/// One mapped file.
struct Mapped {
    path: PathBuf,
    /// Empty files can't be mapped.
    map: Option<Mmap>,
}

/// All files under a path, in order.
pub struct Texts {
    files: Vec<Mapped>,
}

impl Texts {
    /// Opens a file, or every text and JSON-lines file under a folder, sorted by path.
    pub fn open(path: &Path) -> Result<Texts> {
        let mut paths = Vec::new();
        if path.is_dir() {
            collect(path, &mut paths)?;
            if paths.is_empty() {
                return Err(Error::file(path, "no .txt, .md or .jsonl files in this folder"));
            }
        } else {
            paths.push(path.to_path_buf());
        }
        let mut files = Vec::new();
        for path in paths {
            let missing = |e: std::io::Error| match e.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::file(&path, "not found: give a text file, a .jsonl file or a folder")
                }
                _ => Error::file(&path, e),
            };
            let file = std::fs::File::open(&path).map_err(missing)?;
            let length = file.metadata().map_err(missing)?.len();
            // SAFETY: the file is only read; whoever changes it meanwhile changes what is read, and every access is
            // bounds-checked against the mapped length.
            let map = (length > 0).then(|| unsafe { Mmap::map(&file) }).transpose().map_err(missing)?;
            files.push(Mapped { path, map });
        }
        Ok(Texts { files })
    }

    /// A number that changes when the files do: their names, sizes and bytes at a few places.
    pub fn fingerprint(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for file in &self.files {
            let bytes = file.bytes();
            hasher.update(file.path.file_name().unwrap_or_default().as_encoded_bytes());
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            let window = 4096.min(bytes.len());
            for i in 0..16 {
                let at = (bytes.len() - window) / 15 * i;
                hasher.update(&bytes[at..(at + window).min(bytes.len())]);
            }
        }
        hasher.finalize()
    }

    /// Calls `f` with every document: the texts between end marks of a text file, the `text` field of each JSON line.
    pub fn documents(&self, mut f: impl FnMut(Cow<'_, str>) -> Result<()>) -> Result<()> {
        for file in &self.files {
            let bytes = file.bytes();
            let text = std::str::from_utf8(bytes).map_err(|e| {
                Error::file(&file.path, format!("not UTF-8 text after {} bytes: convert it first", e.valid_up_to()))
            })?;
            if !has_ending(&file.path, LINES) {
                for document in text.split(END) {
                    let document = document.trim_matches(['\n', '\r']);
                    if !document.trim().is_empty() {
                        f(Cow::Borrowed(document))?;
                    }
                }
                continue;
            }
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let fault = |what: String| Error::file(&file.path, format!("line {}: {what}", number + 1));
                let json: Json = serde_json::from_str(line).map_err(|e| fault(format!("not JSON: {e}")))?;
                let Some(Json::String(text)) = json.get("text") else {
                    return Err(fault("no field `text` that is a string".into()));
                };
                if !text.trim().is_empty() {
                    f(Cow::Borrowed(text))?;
                }
            }
        }
        Ok(())
    }
}

impl Mapped {
    fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file(folder, e))?;
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, paths)?;
        } else if has_ending(&path, TEXTS) || has_ending(&path, LINES) {
            paths.push(path);
        }
    }
    Ok(())
}
