//! Where the chat templates of a directory are, as transformers reads them.

use crate::error::Result;
use crate::special_tokens::{holding, object};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use train::files;

/// The file of the default template, and the folder of others.
const FILE: &str = "chat_template.jinja";
const FOLDER: &str = "additional_chat_templates";
/// The name of the template that is used where none is asked for.
pub(crate) const DEFAULT: &str = "default";

/// The templates of a directory by name. Files of their own come before the field of `tokenizer_config.json`.
pub(crate) fn templates(dir: &Path) -> Result<BTreeMap<String, String>> {
    if crate::gguf::is_gguf(dir) {
        return Ok(crate::gguf::Gguf::open(dir)?.templates());
    }
    let dir = &holding(dir, "tokenizer.json");
    let mut found = BTreeMap::new();
    if dir.join(FILE).is_file() {
        found.insert(DEFAULT.to_string(), files::read_text(&dir.join(FILE), files::TEXT)?);
    }
    let entries = std::fs::read_dir(dir.join(FOLDER)).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "jinja")) {
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            found.insert(name.to_string(), files::read_text(&path, files::TEXT)?);
        }
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        if !found.is_empty() {
            break;
        }
        match object(dir, name)?.and_then(|mut fields| fields.remove("chat_template")) {
            Some(Json::String(text)) => drop(found.insert(DEFAULT.to_string(), text)),
            Some(Json::Array(list)) => found.extend(list.iter().filter_map(|entry| {
                let text = |name: &str| entry.get(name).and_then(Json::as_str).map(String::from);
                Some((text("name")?, text("template")?))
            })),
            _ => {}
        }
    }
    Ok(found)
}

/// Writes templates as files of a directory.
pub(crate) fn write(templates: &BTreeMap<String, String>, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, text) in templates {
        let path = match name.as_str() {
            DEFAULT => dir.join(FILE),
            name if name.contains(['/', '\\']) || name.starts_with('.') => continue,
            name => {
                files::make_folder(&dir.join(FOLDER))?;
                dir.join(FOLDER).join(format!("{name}.jinja"))
            }
        };
        files::write(&path, text.as_bytes())?;
        written.push(path);
    }
    Ok(written)
}
