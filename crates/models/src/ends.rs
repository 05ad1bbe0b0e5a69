//! Which ids end a text.

use crate::error::{Error, Result};
use crate::files;
use crate::tokenizer::Tokenizer;
use serde_json::Value as Json;
use std::path::Path;

/// The ids that end a text of a model: what `generation_config.json` and `config.json` say, and the tokenizer's own.
pub fn end_ids(dir: &Path, tokenizer: Option<&Tokenizer>) -> Result<Vec<i32>> {
    let mut found: Vec<i32> = Vec::new();
    for name in ["generation_config.json", "config.json"] {
        let path = dir.join(name);
        if !path.is_file() {
            continue;
        }
        let text = files::read_text(&path, files::TEXT)?;
        let json: Json = serde_json::from_str(&text).map_err(|e| Error::file(&path, format!("not valid JSON: {e}")))?;
        let id = |value: &Json| value.as_i64().and_then(|id| i32::try_from(id).ok());
        match json.get("eos_token_id") {
            Some(Json::Array(list)) => found.extend(list.iter().filter_map(id)),
            Some(value) => found.extend(id(value)),
            None => {}
        }
    }
    found.extend(tokenizer.and_then(Tokenizer::end));
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
