//! Which ids begin and end a text.

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use serde_json::Value as Json;
use std::path::Path;
use training::files;

/// The ids that end a text of a model: what `generation_config.json` and `config.json` say, and the tokenizer's own.
pub fn end_ids(dir: &Path, tokenizer: Option<&Tokenizer>) -> Result<Vec<i32>> {
    let mut found: Vec<i32> = Vec::new();
    for json in configurations(dir)? {
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

/// The id that an answer begins behind, of a model that reads one thing and writes another.
pub fn start_id(dir: &Path) -> Result<i32> {
    let found = configurations(dir)?;
    let names = ["decoder_start_token_id", "bos_token_id"];
    let mut ids = names.iter().flat_map(|name| found.iter().filter_map(|json| id(json.get(*name)?)));
    let none = || Error::file(&dir.join("config.json"), "no `decoder_start_token_id`, behind which an answer begins");
    ids.next().ok_or_else(none)
}

fn id(value: &Json) -> Option<i32> {
    value.as_i64().and_then(|id| i32::try_from(id).ok())
}

/// The files of a directory that say how its model writes, the more particular first.
fn configurations(dir: &Path) -> Result<Vec<Json>> {
    let mut found = Vec::new();
    for name in ["generation_config.json", "config.json"] {
        let path = dir.join(name);
        if path.is_file() {
            let text = files::read_text(&path, files::TEXT)?;
            found.push(serde_json::from_str(&text).map_err(|e| Error::file(&path, format!("not valid JSON: {e}")))?);
        }
    }
    Ok(found)
}
