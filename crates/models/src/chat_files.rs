//! Finds the chat templates of a directory, as transformers does.

use crate::error::Result;
use crate::special_tokens::{dir_with_file, read_object};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use train::files;

/// The file of the default template, and the folder of the others.
const TEMPLATE_FILE: &str = "chat_template.jinja";
const TEMPLATE_DIR: &str = "additional_chat_templates";
/// The name of the default template.
pub(crate) const DEFAULT_NAME: &str = "default";

/// Reads the templates of a directory by name. Separate files take precedence over the field of `tokenizer_config.json`.
pub(crate) fn read_templates(dir: &Path) -> Result<BTreeMap<String, String>> {
    if crate::gguf::is_gguf(dir) {
        return Ok(crate::gguf::GgufFile::open(dir)?.templates());
    }
    let dir = &dir_with_file(dir, "tokenizer.json");
    let mut found = BTreeMap::new();
    if dir.join(TEMPLATE_FILE).is_file() {
        found.insert(DEFAULT_NAME.to_string(), files::read_text(&dir.join(TEMPLATE_FILE), files::MAX_TEXT_BYTES)?);
    }
    let entries = std::fs::read_dir(dir.join(TEMPLATE_DIR)).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "jinja")) {
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            found.insert(name.to_string(), files::read_text(&path, files::MAX_TEXT_BYTES)?);
        }
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        if !found.is_empty() {
            break;
        }
        match read_object(dir, name)?.and_then(|mut fields| fields.remove("chat_template")) {
            Some(Json::String(text)) => drop(found.insert(DEFAULT_NAME.to_string(), text)),
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
pub(crate) fn write_templates(templates: &BTreeMap<String, String>, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, text) in templates {
        let path = match name.as_str() {
            DEFAULT_NAME => dir.join(TEMPLATE_FILE),
            name if name.contains(['/', '\\']) || name.starts_with('.') => continue,
            name => {
                files::create_dir_all(&dir.join(TEMPLATE_DIR))?;
                dir.join(TEMPLATE_DIR).join(format!("{name}.jinja"))
            }
        };
        files::write(&path, text.as_bytes())?;
        written.push(path);
    }
    Ok(written)
}
