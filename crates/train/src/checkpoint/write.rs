//! Writes checkpoints and removes old ones.

use super::{
    CheckpointFault, CheckpointMeta, Checksum, FORMAT_VERSION, TensorShard, list_checkpoints, main_file, open,
    rank_file, verify_file,
};
use crate::error::{Error, Result};
use crate::files::{self, AtomicFile};
use crate::named_tensor::NamedTensor;
use crate::safetensors_file;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Encodes indices as runs of consecutive ones: [first, count].
fn encode_shards(parts: &[TensorShard]) -> Json {
    let runs = |indices: &Vec<usize>| {
        let mut runs: Vec<[usize; 2]> = Vec::new();
        for &i in indices {
            match runs.last_mut() {
                Some([first, count]) if *first + *count == i => *count += 1,
                _ => runs.push([i, 1]),
            }
        }
        runs
    };
    let one = |part: &TensorShard| {
        let places: Vec<_> = part.axis_indices.iter().map(runs).collect();
        (part.tensor.name.clone(), json!({ "shape": part.full_shape, "places": places }))
    };
    Json::Object(parts.iter().map(one).collect())
}

/// Writes the shards of a rank other than 0; returns the file's checksum.
pub fn write_rank_file(folder: &Path, step: usize, rank: usize, parts: &[TensorShard]) -> Result<String> {
    files::create_dir_all(folder)?;
    let path = rank_file(&main_file(folder, step), rank);
    let state =
        json!({ "format": FORMAT_VERSION, "step": step, "rank": rank, "parts": encode_shards(parts) }).to_string();
    let tensors: Vec<NamedTensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    let sum = Checksum::of(&state, &tensors);
    let texts = HashMap::from([("state".to_string(), state), ("checksum".to_string(), sum.clone())]);
    safetensors_file::write_verified(&path, &tensors, texts, |written| match verify_file(written) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Error::file(
            &path,
            format!("the file differs from what was written when it is read back: {}", fault.error()),
        )),
    })?;
    Ok(sum)
}

/// Writes a checkpoint and removes old ones, except the newest `keep` valid ones.
pub fn write(folder: &Path, saved: &CheckpointMeta, tensors: &[NamedTensor], keep: usize) -> Result<PathBuf> {
    write_with(folder, saved, tensors, json!({}), keep)
}

/// [`write()`] for several ranks: `parts` are the shards of rank 0, `ranks` are the other
/// ranks' numbers with the checksums of their files.
pub fn write_main_file(
    folder: &Path,
    saved: &CheckpointMeta,
    parts: &[TensorShard],
    ranks: &BTreeMap<usize, String>,
    keep: usize,
) -> Result<PathBuf> {
    let tensors: Vec<NamedTensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    let ranks: serde_json::Map<String, Json> = ranks.iter().map(|(r, sum)| (r.to_string(), json!(sum))).collect();
    write_with(folder, saved, &tensors, json!({ "parts": encode_shards(parts), "ranks": ranks }), keep)
}

fn write_with(
    folder: &Path,
    saved: &CheckpointMeta,
    tensors: &[NamedTensor],
    more: Json,
    keep: usize,
) -> Result<PathBuf> {
    files::create_dir_all(folder)?;
    let path = main_file(folder, saved.step);
    let mut state = json!({
        "format": FORMAT_VERSION, "step": saved.step, "position": saved.sequences_seen, "data": saved.data_fingerprint, "base": saved.base_fingerprint,
        "since_sum": saved.loss_since_log.0.to_bits(), "since_count": saved.loss_since_log.1, "seconds": saved.seconds,
        "settings": saved.settings,
    });
    if let (Some(state), Json::Object(more)) = (state.as_object_mut(), more) {
        state.extend(more);
    }
    let state = state.to_string();
    let sum = Checksum::of(&state, tensors);
    let texts = HashMap::from([("state".to_string(), state), ("checksum".to_string(), sum)]);
    safetensors_file::write_verified(&path, tensors, texts, |written| match verify_file(written) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Error::file(
            &path,
            format!("the file differs from what was written when it is read back: {}", fault.error()),
        )),
    })?;
    prune(folder, &path, keep);
    Ok(path)
}

/// Removes damaged checkpoints, and those older than the newest `keep` valid ones, including the one that has just been written.
/// Valid checkpoints of later steps are never removed.
fn prune(folder: &Path, written: &Path, keep: usize) {
    let all = list_checkpoints(folder);
    let own = all.iter().position(|path| path == written).unwrap_or(all.len());
    let damaged = |path: &Path| matches!(open(path), Err(CheckpointFault::Damaged(_)));
    let later = all.iter().skip(own + 1).filter(|path| damaged(path));
    let mut good = 1;
    let older = all[..own].iter().rev().filter(|path| {
        if good >= keep.max(1) {
            return true;
        }
        let found = open(path);
        good += usize::from(found.is_ok());
        matches!(found, Err(CheckpointFault::Damaged(_)))
    });
    for path in later.chain(older) {
        let _ = files::remove(path);
        rank_files(path).iter().for_each(|path| {
            let _ = files::remove(path);
        });
    }
}

/// The files of other ranks that belong to a checkpoint.
fn rank_files(main: &Path) -> Vec<PathBuf> {
    let stem = main.file_stem().unwrap_or_default().to_string_lossy().to_string() + ".rank-";
    let entries = main.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with(&stem)).map(|e| e.path()).collect()
}

/// Removes files that a crash left incomplete, and rank files without a checkpoint. Only
/// the run that has locked the folder may call this.
pub fn remove_incomplete(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        let alone =
            name.split_once(".rank-").is_some_and(|(main, _)| !folder.join(format!("{main}.safetensors")).exists());
        if name.ends_with(".partial") || alone {
            let _ = files::remove(&entry.path());
        }
    }
}

/// Checks that a folder has space for this many bytes, and leaves nothing there.
pub fn check_disk_space(folder: &Path, bytes: usize) -> Result<()> {
    files::create_dir_all(folder)?;
    let mut file = AtomicFile::create(&folder.join("room"))?;
    let block = vec![0; (1 << 20).min(bytes)];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(block.len());
        file.write_bytes(&block[..n])?;
        left -= n;
    }
    file.sync()
}
