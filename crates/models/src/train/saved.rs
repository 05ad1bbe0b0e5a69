//! Checkpoints of a run: one safetensors file each, complete or not there.
//!
//! The file is written under another name, brought to disk, then renamed. Its metadata holds the step, the position in
//! the data, the settings and a checksum over everything, so a damaged file is told from a good one.

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::evaluate::NamedTensor;
use crate::export::{move_into_place, partial};
use ir::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Older checkpoints than this many are removed.
const KEPT: usize = 2;

/// Where a run stands, besides its tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// Steps done.
    pub step: usize,
    /// Sequences seen: with the seed, this is the state of all that is random.
    pub position: u64,
    /// Fingerprint of the data: a position means nothing in another.
    pub data: u32,
    /// Losses since the last line of the log: their sum and number.
    pub since: (f64, usize),
    /// Seconds of training so far.
    pub seconds: f64,
    /// The settings.
    pub settings: BTreeMap<String, String>,
}

/// Writes a checkpoint and removes old ones.
pub fn write(folder: &Path, saved: &Saved, tensors: &[NamedTensor]) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
    let path = folder.join(format!("step-{:08}.safetensors", saved.step));
    let state = json!({
        "step": saved.step, "position": saved.position, "data": saved.data, "since_sum": saved.since.0.to_bits(),
        "since_count": saved.since.1, "seconds": saved.seconds, "settings": saved.settings,
    });
    let state = state.to_string();
    let mut sorted: Vec<&NamedTensor> = tensors.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let sum = checksum(&state, sorted.iter().map(|t| (t.name.as_str(), &t.bytes[..])));
    let mut views = Vec::new();
    for tensor in sorted {
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), &tensor.bytes);
        views.push((tensor.name.clone(), view.map_err(|e| Error::file(&path, format!("{e:?}")))?));
    }
    let metadata = HashMap::from([("state".to_string(), state), ("checksum".to_string(), format!("{sum:08x}"))]);
    let temporary = partial(&path);
    safetensors::serialize_to_file(views, Some(metadata), &temporary).map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        Error::file(&path, format!("could not be written: {e}"))
    })?;
    move_into_place(&temporary, &path)?;
    let all = list(folder);
    for old in &all[..all.len().saturating_sub(KEPT)] {
        let _ = std::fs::remove_file(old);
    }
    Ok(path)
}

/// Reads a checkpoint that is whole.
pub fn read(path: &Path) -> Result<(Saved, Vec<NamedTensor>)> {
    let file = Checkpoint::open_file(path)?;
    let fault = |what: &str| Error::file(path, what);
    let bytes = file.bytes();
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| fault(&format!("damaged: {e:?}")))?;
    let metadata = header.metadata().as_ref();
    let field = |name: &str| metadata.and_then(|m| m.get(name)).ok_or_else(|| fault("not a checkpoint of a run"));
    let (state, sum) = (field("state")?, field("checksum")?);
    let mut tensors = Vec::new();
    for name in file.names() {
        let Some(stored) = file.get(name)? else { continue };
        let (shape, bytes) = (stored.shape.clone(), stored.bytes.to_vec());
        tensors.push(NamedTensor { name: name.to_string(), shape, dtype: DType::F32, bytes });
    }
    let found = checksum(state, tensors.iter().map(|t| (t.name.as_str(), &t.bytes[..])));
    if format!("{found:08x}") != *sum {
        return Err(fault("damaged: its checksum is wrong"));
    }
    let json: Json = serde_json::from_str(state).map_err(|_| fault("damaged: its state can't be read"))?;
    let number = |name: &str| json.get(name).and_then(Json::as_u64).ok_or_else(|| fault("damaged: no state"));
    let settings = json.get("settings").and_then(Json::as_object).ok_or_else(|| fault("damaged: no settings"))?;
    let text = |value: &Json| value.as_str().map(String::from);
    let saved = Saved {
        step: number("step")? as usize,
        position: number("position")?,
        data: number("data")? as u32,
        since: (f64::from_bits(number("since_sum")?), number("since_count")? as usize),
        seconds: json.get("seconds").and_then(Json::as_f64).unwrap_or(0.0),
        settings: settings.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect(),
    };
    Ok((saved, tensors))
}

/// The newest good checkpoint of a folder, and what was wrong with newer ones.
pub fn newest(folder: &Path) -> (Option<(Saved, Vec<NamedTensor>)>, Vec<Error>) {
    let mut faults = Vec::new();
    for path in list(folder).iter().rev() {
        match read(path) {
            Ok(found) => return (Some(found), faults),
            Err(fault) => faults.push(fault),
        }
    }
    (None, faults)
}

/// Checkpoints in order of their steps; files that a crash left half written are removed.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".partial") {
            let _ = std::fs::remove_file(&path);
        } else if name.starts_with("step-") && name.ends_with(".safetensors") {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

fn checksum<'a>(state: &str, tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(state.as_bytes());
    for (name, bytes) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_checkpoints_give_way_to_older_good_ones() {
        let folder = std::env::temp_dir().join(format!("tensorloom-saved-{}", std::process::id()));
        let tensor = |x: f32| NamedTensor {
            name: "w".into(),
            shape: vec![64],
            dtype: DType::F32,
            bytes: x.to_le_bytes().repeat(64),
        };
        let saved =
            |step| Saved { step, position: 7, data: 5, since: (0.1, 3), seconds: 1.5, settings: BTreeMap::new() };
        for step in [10, 20, 30] {
            write(&folder, &saved(step), &[tensor(step as f32)]).expect("written");
        }
        assert_eq!(list(&folder).len(), KEPT);
        let (found, faults) = newest(&folder);
        assert!(faults.is_empty());
        assert_eq!(found, Some((saved(30), vec![tensor(30.0)])));

        let path = folder.join("step-00000030.safetensors");
        let whole = std::fs::read(&path).expect("there");
        let mut turned = whole.clone();
        let last = turned.len() - 5;
        turned[last] ^= 1;
        let halves = (0..whole.len()).step_by(37).map(|n| whole[..n].to_vec());
        for bytes in halves.chain([turned]) {
            std::fs::write(&path, &bytes).expect("written");
            let (found, faults) = newest(&folder);
            assert_eq!(faults.len(), 1, "{} of {} bytes", bytes.len(), whole.len());
            assert_eq!(found, Some((saved(20), vec![tensor(20.0)])));
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
