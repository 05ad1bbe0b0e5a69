//! Writing checkpoints, and removing what is not needed any more.

use super::{Checksum, FORMAT, Fault, Part, Saved, checked, list, main_file, open, rank_file};
use crate::error::{Error, Result};
use crate::files::{self, NewFile};
use crate::named_tensor::NamedTensor;
use crate::tensor_file;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Places as runs of neighbours: [first, count].
fn described(parts: &[Part]) -> Json {
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
    let one = |part: &Part| {
        let places: Vec<_> = part.places.iter().map(runs).collect();
        (part.tensor.name.clone(), json!({ "shape": part.whole, "places": places }))
    };
    Json::Object(parts.iter().map(one).collect())
}

/// Writes what a rank other than 0 has of a checkpoint; gives its checksum.
pub fn write_rank(folder: &Path, step: usize, rank: usize, parts: &[Part]) -> Result<String> {
    files::make_folder(folder)?;
    let path = rank_file(&main_file(folder, step), rank);
    let state = json!({ "format": FORMAT, "step": step, "rank": rank, "parts": described(parts) }).to_string();
    let tensors: Vec<NamedTensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    let sum = Checksum::of(&state, &tensors);
    let texts = HashMap::from([("state".to_string(), state), ("checksum".to_string(), sum.clone())]);
    tensor_file::write_if(&path, &tensors, texts, |written| match checked(written) {
        Ok(_) => Ok(()),
        Err(fault) => {
            Err(Error::file(&path, format!("not as it was written when it was read back: {}", fault.error())))
        }
    })?;
    Ok(sum)
}

/// Writes a checkpoint and removes old ones, of which the newest `keep` good ones stay.
pub fn write(folder: &Path, saved: &Saved, tensors: &[NamedTensor], keep: usize) -> Result<PathBuf> {
    write_with(folder, saved, tensors, json!({}), keep)
}

/// The same of several ranks: `parts` are rank 0's, `ranks` those that have written theirs, with their checksums.
pub fn write_main(
    folder: &Path,
    saved: &Saved,
    parts: &[Part],
    ranks: &BTreeMap<usize, String>,
    keep: usize,
) -> Result<PathBuf> {
    let tensors: Vec<NamedTensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    let ranks: serde_json::Map<String, Json> = ranks.iter().map(|(r, sum)| (r.to_string(), json!(sum))).collect();
    write_with(folder, saved, &tensors, json!({ "parts": described(parts), "ranks": ranks }), keep)
}

fn write_with(folder: &Path, saved: &Saved, tensors: &[NamedTensor], more: Json, keep: usize) -> Result<PathBuf> {
    files::make_folder(folder)?;
    let path = main_file(folder, saved.step);
    let mut state = json!({
        "format": FORMAT, "step": saved.step, "position": saved.position, "data": saved.data, "base": saved.base,
        "since_sum": saved.since.0.to_bits(), "since_count": saved.since.1, "seconds": saved.seconds,
        "settings": saved.settings,
    });
    if let (Some(state), Json::Object(more)) = (state.as_object_mut(), more) {
        state.extend(more);
    }
    let state = state.to_string();
    let sum = Checksum::of(&state, tensors);
    let texts = HashMap::from([("state".to_string(), state), ("checksum".to_string(), sum)]);
    tensor_file::write_if(&path, tensors, texts, |written| match checked(written) {
        Ok(_) => Ok(()),
        Err(fault) => {
            Err(Error::file(&path, format!("not as it was written when it was read back: {}", fault.error())))
        }
    })?;
    prune(folder, &path, keep);
    Ok(path)
}

/// Removes damaged checkpoints, and those older than the newest `keep` good ones, of which one has just been written. What
/// is good and of a later step is nobody's to remove.
fn prune(folder: &Path, written: &Path, keep: usize) {
    let all = list(folder);
    let own = all.iter().position(|path| path == written).unwrap_or(all.len());
    let damaged = |path: &Path| matches!(open(path), Err(Fault::Damaged(_)));
    let later = all.iter().skip(own + 1).filter(|path| damaged(path));
    let mut good = 1;
    let older = all[..own].iter().rev().filter(|path| {
        if good >= keep.max(1) {
            return true;
        }
        let found = open(path);
        good += usize::from(found.is_ok());
        matches!(found, Err(Fault::Damaged(_)))
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

/// Removes files that a crash left half written, and parts without a checkpoint. Only the run that owns the folder may.
pub fn clean(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        let alone =
            name.split_once(".rank-").is_some_and(|(main, _)| !folder.join(format!("{main}.safetensors")).exists());
        if name.ends_with(".partial") || alone {
            let _ = files::remove(&entry.path());
        }
    }
}

/// Finds out whether so many bytes could be written to a folder, and leaves nothing there.
pub fn try_room(folder: &Path, bytes: usize) -> Result<()> {
    files::make_folder(folder)?;
    let mut file = NewFile::create(&folder.join("room"))?;
    let block = vec![0; (1 << 20).min(bytes)];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(block.len());
        file.add(&block[..n])?;
        left -= n;
    }
    file.sync()
}
