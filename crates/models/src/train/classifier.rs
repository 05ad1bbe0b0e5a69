//! Writes a classifier in the format of transformers: the model without its language model head, with `score.weight` and with
//! class names in `config.json`; with an adapter, in the format of PEFT.

use crate::checkpoint::dtype_of;
use crate::error::{Error, Result};
use crate::export::write_tensors;
use crate::mmap_file::MmapTensorFile;
use crate::model::{LM_HEAD_NAMES, Model};
use ir::DType;
use serde_json::{Map, Value as Json, json};
use std::path::Path;
use train::NamedTensor;
use train::files;

/// Writes a model with its head as a directory.
pub(crate) fn export(
    model: &Model,
    heads: &[NamedTensor],
    classes: &[String],
    end: Option<i32>,
    dir: &Path,
) -> Result<()> {
    files::create_dir_all(dir)?;
    let mut tensors = model.dequantized_tensors(false)?;
    tensors.retain(|tensor| !LM_HEAD_NAMES.contains(&&*tensor.name));
    tensors.extend_from_slice(heads);
    write_tensors(&dir.join("model.safetensors"), &tensors)?;
    let mut config = model.config.clone();
    if let Some(fields) = config.as_object_mut() {
        let names = fields.get("architectures").and_then(Json::as_array).cloned().unwrap_or_default();
        let names = names.iter().filter_map(Json::as_str).map(|name| {
            let stem = name.strip_suffix("ForCausalLM").or_else(|| name.strip_suffix("LMHeadModel")).unwrap_or(name);
            Json::from(format!("{stem}ForSequenceClassification"))
        });
        let names: Vec<Json> = names.collect();
        fields.insert("architectures".into(), names.into());
        // transformers scores the last token that is not padding.
        if let (true, Some(end)) = (fields.get("pad_token_id").is_none_or(Json::is_null), end) {
            fields.insert("pad_token_id".into(), end.into());
        }
        write_class_names(fields, classes);
    }
    Ok(files::write(&dir.join("config.json"), format!("{config:#}\n").as_bytes())?)
}

fn write_class_names(fields: &mut Map<String, Json>, classes: &[String]) {
    let by_id: Map<String, Json> = classes.iter().enumerate().map(|(i, name)| (i.to_string(), json!(name))).collect();
    let by_name: Map<String, Json> = classes.iter().enumerate().map(|(i, name)| (name.clone(), json!(i))).collect();
    fields.insert("id2label".into(), by_id.into());
    fields.insert("label2id".into(), by_name.into());
}

/// Adds a head to an adapter that has been written.
pub(crate) fn write_with_adapter(heads: &[NamedTensor], classes: &[String], dir: &Path) -> Result<()> {
    let (path, about) = (dir.join("adapter_model.safetensors"), dir.join("adapter_config.json"));
    let file = MmapTensorFile::open(&path)?;
    let mut tensors = Vec::new();
    for name in file.names() {
        let Some(info) = file.info(&name) else { continue };
        let (shape, dtype) = (info.shape.clone(), dtype_of(info.dtype).unwrap_or(DType::F32));
        tensors.push(NamedTensor { name, shape, dtype, bytes: file.bytes(info)? });
    }
    let named = |head: &NamedTensor| NamedTensor { name: format!("base_model.model.{}", head.name), ..head.clone() };
    tensors.extend(heads.iter().map(named));
    write_tensors(&path, &tensors)?;
    let text = files::read_text(&about, files::MAX_CONFIG_BYTES)?;
    let mut config: Json = serde_json::from_str(&text).map_err(|e| Error::file(&about, e))?;
    if let Some(fields) = config.as_object_mut() {
        fields.insert("task_type".into(), "SEQ_CLS".into());
        fields.insert("modules_to_save".into(), json!(["score"]));
    }
    files::write(&about, format!("{config:#}\n").as_bytes())?;
    let mut fields = Map::new();
    write_class_names(&mut fields, classes);
    Ok(files::write(&dir.join("classes.json"), format!("{:#}\n", Json::Object(fields)).as_bytes())?)
}
