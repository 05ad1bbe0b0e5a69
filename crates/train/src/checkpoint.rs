//! Checkpoints of a run. A checkpoint is one safetensors file, written atomically. Where several ranks train, each writes a file
//! with its shards; rank 0's file is written last and lists the others with their checksums. Reading assembles the same full tensors.
//!
//! A file is read back before it is renamed to its final name, and an old one is removed only after enough newer ones have been
//! verified. Its metadata holds the step, the position in the data, the settings and a checksum of all contents, names, shapes
//! and dtypes included, so that a damaged file is detected.

use crate::error::{Error, Result};
use crate::files;
use crate::named_tensor::{NamedTensor, to_safetensors_dtype};
use crate::safetensors_file::SafetensorsFile;
use crate::shard_ranges::for_each_contiguous_run;
use ir::{DType, Type};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

mod write;

pub use write::{check_disk_space, remove_incomplete};
pub use write::{write, write_main_file, write_rank_file};

/// The version of the file format that is written and read.
const FORMAT_VERSION: u64 = 2;

/// The state of a run, besides its tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointMeta {
    /// Number of completed steps.
    pub step: usize,
    /// Number of sequences consumed. With the seed, this determines the state of all random number generators.
    pub sequences_seen: u64,
    /// Fingerprint of the training data: `position` is only valid for the same data.
    pub data_fingerprint: u32,
    /// Fingerprint of the model before the run: its weights, or the text of its module.
    pub base_fingerprint: u32,
    /// Losses since the last log entry: their sum and their number.
    pub loss_since_log: (f64, usize),
    /// Seconds of training so far.
    pub seconds: f64,
    /// Settings of the run.
    pub settings: BTreeMap<String, String>,
}

/// Why a checkpoint can't be used.
#[derive(Debug)]
pub enum CheckpointFault {
    /// The checksum does not match: the file is permanently unusable.
    Damaged(Error),
    /// It could not be read now, or not by this version of the program.
    Unreadable(Error),
}

impl CheckpointFault {
    /// The underlying error.
    pub fn error(&self) -> &Error {
        match self {
            CheckpointFault::Damaged(error) | CheckpointFault::Unreadable(error) => error,
        }
    }
}

/// A shard of a tensor, with its indices in the full tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorShard {
    /// The shard.
    pub tensor: NamedTensor,
    /// The shape of the full tensor.
    pub full_shape: Vec<usize>,
    /// For each axis, the indices of the full tensor that the shard holds, in order.
    pub axis_indices: Vec<Vec<usize>>,
}

fn rank_file(main: &Path, rank: usize) -> PathBuf {
    main.with_extension(format!("rank-{rank}.safetensors"))
}

fn main_file(folder: &Path, step: usize) -> PathBuf {
    folder.join(format!("step-{step:08}.safetensors"))
}

/// Reads a file and verifies its checksum; returns its metadata and its checksum.
fn verify_file(path: &Path) -> std::result::Result<(Json, SafetensorsFile, String), CheckpointFault> {
    open_file(path, true)
}

/// Reads a file's metadata and checksum; with `all`, the checksum covers the bytes of its tensors too.
fn open_file(path: &Path, all: bool) -> std::result::Result<(Json, SafetensorsFile, String), CheckpointFault> {
    let damaged = |what: &str| CheckpointFault::Damaged(Error::file(path, format!("damaged: {what}")));
    if let Err(e) = files::open(path) {
        return Err(CheckpointFault::Unreadable(e));
    }
    let file = SafetensorsFile::open(path).map_err(CheckpointFault::Damaged)?;
    let field = |name: &str| file.metadata_value(name).ok_or_else(|| damaged("its state is missing"));
    let (state, wanted) = (field("state")?, field("checksum")?.to_string());
    let mut sum = Checksum::new(state);
    for (name, info) in tensors_by_name(&file).into_iter().filter(|_| all) {
        sum.tensor(&name, info.dtype, &info.shape);
        file.for_each_block(info, |bytes| sum.bytes(bytes)).map_err(CheckpointFault::Unreadable)?;
    }
    let json: Json = serde_json::from_str(state).map_err(|_| damaged("its state is not valid JSON"))?;
    if json.get("format").and_then(Json::as_u64) != Some(FORMAT_VERSION) {
        let text = "written by another version of loom, which cannot be resumed by this version";
        return Err(CheckpointFault::Unreadable(Error::file(path, text)));
    }
    if all && sum.text() != wanted {
        return Err(damaged("its checksum is wrong"));
    }
    Ok((json, file, wanted))
}

/// A file of a checkpoint, and the indices of its shards; none if its tensors are complete.
struct CheckpointFile {
    file: SafetensorsFile,
    parts: Option<Json>,
}

/// Opens a checkpoint and verifies every byte of all of its files.
fn open(path: &Path) -> std::result::Result<(CheckpointMeta, Vec<CheckpointFile>), CheckpointFault> {
    open_share(path, (0, 1))
}

/// Opens a checkpoint as rank `own` of `of` ranks that share the verification: it verifies its share of the files and reads all headers.
fn open_share(
    path: &Path,
    (own, of): (usize, usize),
) -> std::result::Result<(CheckpointMeta, Vec<CheckpointFile>), CheckpointFault> {
    let damaged = |what: &str| CheckpointFault::Damaged(Error::file(path, format!("damaged: {what}")));
    let (json, file, _) = open_file(path, own == 0)?;
    let mut all = vec![CheckpointFile { file, parts: json.get("parts").cloned() }];
    for (rank, wanted) in json.get("ranks").and_then(Json::as_object).into_iter().flatten() {
        let rank: usize = rank.parse().map_err(|_| damaged("its state is not valid JSON"))?;
        let (state, file, sum) = open_file(&rank_file(path, rank), all.len() % of == own)?;
        if wanted.as_str() != Some(&sum) {
            return Err(damaged(&format!("the file of rank {rank} belongs to another checkpoint")));
        }
        all.push(CheckpointFile { file, parts: state.get("parts").cloned() });
    }
    let number = |name: &str| json.get(name).and_then(Json::as_u64).ok_or_else(|| damaged("its state is incomplete"));
    let settings = json.get("settings").and_then(Json::as_object).ok_or_else(|| damaged("its settings are missing"))?;
    let text = |value: &Json| value.as_str().map(String::from);
    let saved = CheckpointMeta {
        step: number("step")? as usize,
        sequences_seen: number("position")?,
        data_fingerprint: number("data")? as u32,
        base_fingerprint: number("base")? as u32,
        loss_since_log: (f64::from_bits(number("since_sum")?), number("since_count")? as usize),
        seconds: json.get("seconds").and_then(Json::as_f64).unwrap_or(0.0),
        settings: settings.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect(),
    };
    Ok((saved, all))
}

/// Verifies every byte of a checkpoint.
pub fn verify(path: &Path) -> std::result::Result<CheckpointMeta, CheckpointFault> {
    open(path).map(|(saved, _)| saved)
}

/// Reads a checkpoint with its full tensors.
pub fn read(path: &Path) -> std::result::Result<(CheckpointMeta, Vec<NamedTensor>), CheckpointFault> {
    let (saved, files) = open(path)?;
    let damaged = |what: String| CheckpointFault::Damaged(Error::file(path, format!("damaged: {what}")));
    let mut tensors: BTreeMap<String, (NamedTensor, usize)> = BTreeMap::new();
    for CheckpointFile { file, parts } in &files {
        for (name, info) in tensors_by_name(file) {
            let dtype = match (info.dtype, DType::ALL.iter().find(|d| to_safetensors_dtype(**d) == info.dtype)) {
                (Dtype::F32, _) => DType::F32,
                // Tensors of other dtypes than f32 are held in full by one process.
                (_, Some(dtype)) if parts.is_none() => *dtype,
                (other, _) => return Err(damaged(format!("`{name}` has the unsupported dtype {other}"))),
            };
            let bytes = file.bytes(info).map_err(CheckpointFault::Unreadable)?;
            let Some(parts) = parts else {
                let shape = info.shape.clone();
                let count = shape.iter().product();
                tensors.insert(name.clone(), (NamedTensor { name, shape, dtype, bytes }, count));
                continue;
            };
            let (shape, places) = parts
                .get(&name)
                .and_then(|part| parse_placement(part, &info.shape))
                .ok_or_else(|| damaged(format!("the shard index of `{name}` is missing or invalid")))?;
            let ty = Type::new(DType::F32, &shape);
            let fresh = || {
                let bytes = vec![0; ty.bytes()];
                (NamedTensor { name: name.clone(), shape: shape.clone(), dtype: DType::F32, bytes }, 0)
            };
            let (whole, filled) = tensors.entry(name.clone()).or_insert_with(fresh);
            if whole.shape != shape {
                return Err(damaged(format!("the shards of `{name}` have different full shapes")));
            }
            for_each_contiguous_run(&places, &ty, |at, own, n| {
                whole.bytes[4 * at..4 * (at + n)].copy_from_slice(&bytes[4 * own..4 * (own + n)]);
            });
            *filled += bytes.len() / 4;
        }
    }
    if let Some((tensor, _)) = tensors.values().find(|(t, filled)| t.shape.iter().product::<usize>() != *filled) {
        return Err(damaged(format!("a shard of `{}` is missing", tensor.name)));
    }
    Ok((saved, tensors.into_values().map(|(tensor, _)| tensor).collect()))
}

/// An open checkpoint from which a rank reads the shards that it needs.
pub struct Checkpoint {
    path: PathBuf,
    /// The state of the run.
    pub saved: CheckpointMeta,
    files: Vec<CheckpointFile>,
}

impl Checkpoint {
    /// Opens a checkpoint and verifies it.
    pub fn open(path: &Path) -> std::result::Result<Checkpoint, CheckpointFault> {
        Checkpoint::open_share(path, (0, 1))
    }

    fn open_share(path: &Path, share: (usize, usize)) -> std::result::Result<Checkpoint, CheckpointFault> {
        let (saved, files) = open_share(path, share)?;
        Ok(Checkpoint { path: path.to_path_buf(), saved, files })
    }

    /// Returns the shard of a tensor of this type with the given indices along each axis; reads nothing else from the files.
    pub fn read_shard(&self, name: &str, ty: &Type, places: &[Vec<usize>]) -> Result<Vec<u8>> {
        let damaged = |what: String| Error::file(&self.path, format!("damaged: {what}"));
        let own: Vec<usize> = places.iter().map(Vec::len).collect();
        let size = Type::scalar(ty.dtype).bytes();
        let (mut bytes, mut filled) = (vec![0; size * own.iter().product::<usize>()], 0);
        let mut seen = false;
        for CheckpointFile { file, parts } in &self.files {
            let Some(info) = file.info(name) else { continue };
            if info.dtype != to_safetensors_dtype(ty.dtype) {
                return Err(damaged(format!("`{name}` has the unexpected dtype {}", info.dtype)));
            }
            let (whole, there) = match parts {
                None => (info.shape.clone(), info.shape.iter().map(|n| (0..*n).collect()).collect()),
                Some(parts) => parts
                    .get(name)
                    .and_then(|part| parse_placement(part, &info.shape))
                    .ok_or_else(|| damaged(format!("the shard index of `{name}` is missing or invalid")))?,
            };
            if whole[..] != ty.shape[..] {
                break;
            }
            seen = true;
            let mut fault = None;
            for_each_overlap(&there, places, |from, to, n| {
                if fault.is_none() {
                    fault = file.read(info, size * from, &mut bytes[size * to..size * (to + n)]).err();
                    filled += n;
                }
            });
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        match (seen, size * filled == bytes.len()) {
            (true, true) => Ok(bytes),
            (true, false) => Err(damaged(format!("a shard of `{name}` is missing"))),
            _ => Err(Error::Input(format!(
                "the checkpoint has no `{name}` of shape {:?}: it does not belong to this model",
                ty.shape
            ))),
        }
    }
}

/// Calls `f` with (offset in one shard, offset in the other, length) for every contiguous run of elements that both hold.
fn for_each_overlap(from: &[Vec<usize>], to: &[Vec<usize>], mut f: impl FnMut(usize, usize, usize)) {
    // Along each axis: (offset in one, offset in the other) of the indices that both hold.
    let both: Vec<Vec<(usize, usize)>> = (from.iter().zip(to))
        .map(|(from, to)| {
            let at: HashMap<usize, usize> = from.iter().enumerate().map(|(at, i)| (*i, at)).collect();
            to.iter().enumerate().filter_map(|(own, i)| Some((*at.get(i)?, own))).collect()
        })
        .collect();
    let Some((last, outer)) = both.split_last() else { return f(0, 0, 1) };
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for &(a, b) in last {
        match runs.last_mut() {
            Some((x, y, n)) if (*x + *n, *y + *n) == (a, b) => *n += 1,
            _ => runs.push((a, b, 1)),
        }
    }
    let sizes: Vec<usize> = outer.iter().map(Vec::len).collect();
    ir::types::for_each_index(&sizes, |index| {
        let (mut a, mut b) = (0, 0);
        for (d, &i) in index.iter().enumerate() {
            a = a * from[d].len() + outer[d][i].0;
            b = b * to[d].len() + outer[d][i].1;
        }
        let (wide, own) = (from[outer.len()].len(), to[outer.len()].len());
        runs.iter().for_each(|&(x, y, n)| f(a * wide + x, b * own + y, n));
    });
}

/// The shape of the full tensor and the indices of a shard of it, if they fit the shard's shape.
fn parse_placement(part: &Json, own: &[usize]) -> Option<(Vec<usize>, Vec<Vec<usize>>)> {
    let number = |n: &Json| n.as_u64().map(|n| n as usize);
    let shape: Vec<usize> = part.get("shape")?.as_array()?.iter().map(number).collect::<Option<_>>()?;
    let mut places = Vec::new();
    for (runs, size) in part.get("places")?.as_array()?.iter().zip(&shape) {
        let mut indices = Vec::new();
        for run in runs.as_array()? {
            let (first, count) = (number(run.get(0)?)?, number(run.get(1)?)?);
            if first.checked_add(count)? > *size {
                return None;
            }
            indices.extend(first..first + count);
        }
        places.push(indices);
    }
    (places.len() == shape.len() && places.iter().map(Vec::len).eq(own.iter().copied())).then_some((shape, places))
}

/// The latest usable checkpoint, if there is one, and the faults of newer ones.
pub type LatestCheckpoint = (Option<Checkpoint>, Vec<CheckpointFault>);

/// Returns the latest valid checkpoint of a folder, and the faults of newer ones.
pub fn latest(folder: &Path) -> LatestCheckpoint {
    match latest_distributed(folder, (0, 1), &|bad| Ok(bad)) {
        Ok(found) => found,
        Err(_) => (None, Vec::new()),
    }
}

/// [`latest`] for ranks that share the verification; `any` tells each rank whether one of them found a fault.
pub fn latest_distributed(
    folder: &Path,
    share: (usize, usize),
    any: &dyn Fn(bool) -> Result<bool>,
) -> Result<LatestCheckpoint> {
    let mut faults = Vec::new();
    for path in list_checkpoints(folder).iter().rev() {
        let found = Checkpoint::open_share(path, share);
        match (any(found.is_err())?, found) {
            (false, Ok(found)) => return Ok((Some(found), faults)),
            (_, Err(fault)) => faults.push(fault),
            (true, Ok(_)) => {
                faults.push(CheckpointFault::Damaged(Error::file(path, "damaged: another rank found a damaged shard")));
            }
        }
    }
    Ok((None, faults))
}

/// Lists checkpoints in order of their steps.
pub fn list_checkpoints(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let step = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let digits = name.strip_prefix("step-")?.strip_suffix(".safetensors")?;
        Some((digits.parse::<u64>().ok()?, entry.path()))
    };
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(step).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn tensors_by_name(file: &SafetensorsFile) -> Vec<(String, &TensorInfo)> {
    let mut names = file.names();
    names.sort();
    names.into_iter().filter_map(|name| Some((name.clone(), file.info(&name)?))).collect()
}

/// CRC-32 of the whole contents of a checkpoint.
struct Checksum(crc32fast::Hasher);

impl Checksum {
    fn new(state: &str) -> Checksum {
        let mut sum = Checksum(crc32fast::Hasher::new());
        sum.text_of(state);
        sum
    }

    /// Returns the checksum of the metadata and all tensors, as a file stores them.
    fn of(state: &str, tensors: &[NamedTensor]) -> String {
        let mut sorted: Vec<&NamedTensor> = tensors.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut sum = Checksum::new(state);
        for tensor in sorted {
            sum.tensor(&tensor.name, to_safetensors_dtype(tensor.dtype), &tensor.shape);
            sum.bytes(&tensor.bytes);
        }
        sum.text()
    }

    /// Adds a string with its length, so that adjacent strings can't be confused.
    fn text_of(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.text_of(name);
        self.text_of(&format!("{dtype} {shape:?}"));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn text(&self) -> String {
        format!("{:08x}", self.0.clone().finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_injection::FaultInjector;
    use crate::files::with_layer;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tensorloom-saved-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    fn tensor(x: usize) -> NamedTensor {
        let bytes = (x as f32).to_le_bytes().repeat(64);
        NamedTensor { name: "w".into(), shape: vec![2, 32], dtype: DType::F32, bytes }
    }

    fn saved(step: usize) -> CheckpointMeta {
        let settings = BTreeMap::from([("steps".to_string(), "9".to_string())]);
        CheckpointMeta {
            step,
            sequences_seen: 7,
            data_fingerprint: 5,
            base_fingerprint: 6,
            loss_since_log: (0.1, 3),
            seconds: 1.5,
            settings,
        }
    }

    fn put(folder: &Path, step: usize, keep: usize) -> Result<PathBuf> {
        write(folder, &saved(step), &[tensor(step)], keep)
    }

    /// Reads the latest checkpoint with its tensors.
    fn newest(folder: &Path) -> (Option<(CheckpointMeta, Vec<NamedTensor>)>, Vec<CheckpointFault>) {
        let (found, faults) = super::latest(folder);
        (found.map(|found| read(&found.path).expect("looked at")), faults)
    }

    fn good_steps(folder: &Path) -> Vec<usize> {
        list_checkpoints(folder).iter().filter_map(|path| Some(read(path).ok()?.0.step)).collect()
    }

    #[test]
    fn any_changed_byte_is_found() {
        let folder = folder("bytes");
        put(&folder, 20, 2).expect("written");
        let path = put(&folder, 30, 2).expect("written");
        let whole = std::fs::read(&path).expect("there");
        let halves = (0..whole.len()).step_by(37).map(|n| whole[..n].to_vec());
        let turned = (0..whole.len()).step_by(11).map(|n| {
            let mut bytes = whole.clone();
            bytes[n] ^= 1 << (n % 8);
            bytes
        });
        // A different shape with the same number of elements, and a different dtype of the same width.
        let text = |from: &str, to: &str| {
            assert_eq!(from.len(), to.len());
            let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).expect(from);
            let mut bytes = whole.clone();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            bytes
        };
        let lies = [text("\"F32\"", "\"I32\""), text("\"w\":", "\"v\":"), text("\"shape\":[2,32]", "\"shape\":[32,2]")];
        for bytes in halves.chain(turned).chain(lies) {
            std::fs::write(&path, &bytes).expect("written");
            let (found, faults) = newest(&folder);
            // Spaces that pad the header carry no information.
            if found != Some((saved(30), vec![tensor(30)])) {
                assert_eq!(faults.len(), 1, "{} of {} bytes", bytes.len(), whole.len());
                assert_eq!(found, Some((saved(20), vec![tensor(20)])));
            }
        }
        let _ = std::fs::remove_dir_all(&folder);
    }

    /// Every subset of checkpoints damaged in every way: the newest good one is found, and writing another one deletes no
    /// good one that is still needed.
    #[test]
    fn a_good_checkpoint_outlives_damaged_ones() {
        let folder = folder("subsets");
        let ways: [fn(&Path); 5] = [
            |path| std::fs::write(path, b"").expect("written"),
            |path| std::fs::write(path, &std::fs::read(path).expect("there")[..200]).expect("written"),
            |path| {
                let mut bytes = std::fs::read(path).expect("there");
                let last = bytes.len() - 5;
                bytes[last] ^= 4;
                std::fs::write(path, bytes).expect("written");
            },
            |path| std::fs::remove_file(path).expect("removed"),
            |path| {
                std::fs::remove_file(path).expect("removed");
                std::fs::create_dir(path).expect("a folder");
            },
        ];
        let steps = [10, 20, 30, 40];
        let place = |step: usize| folder.join(format!("step-{step:08}.safetensors"));
        let written = steps.map(|step| std::fs::read(put(&folder, step, 9).expect("written")).expect("there"));
        for (way, damage) in ways.iter().enumerate() {
            for subset in 0..1 << steps.len() {
                for (keep, next) in [(1, 25), (2, 25), (2, 50), (3, 15), (9, 45)] {
                    let _ = std::fs::remove_dir_all(&folder);
                    std::fs::create_dir_all(&folder).expect("a folder");
                    for (step, bytes) in steps.iter().zip(&written) {
                        std::fs::write(place(*step), bytes).expect("written");
                    }
                    let hit = |i: &usize| subset >> i & 1 == 1;
                    let broken: Vec<usize> = (0..4).filter(hit).map(|i| steps[i]).collect();
                    let mut good: Vec<usize> = steps.into_iter().filter(|step| !broken.contains(step)).collect();
                    broken.iter().for_each(|step| damage(&place(*step)));
                    let (found, faults) = newest(&folder);
                    assert_eq!(found.map(|(saved, _)| saved.step), good.last().copied());
                    let newer = broken.iter().filter(|step| good.last().is_none_or(|last| *step > last)).count();
                    assert_eq!(faults.len(), if way == 3 { 0 } else { newer }, "way {way}");
                    put(&folder, next, keep).expect("written");
                    // Of the older ones the newest are kept, up to the requested number; all later ones are kept.
                    let mut older: Vec<usize> = good.iter().copied().filter(|step| *step < next).collect();
                    good.retain(|step| *step > next);
                    good.extend(older.split_off(older.len().saturating_sub(keep - 1)));
                    good.push(next);
                    good.sort_unstable();
                    assert_eq!(good_steps(&folder), good, "way {way}, {broken:?} damaged, keep {keep}, then {next}");
                }
            }
        }
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn whatever_fails_the_newest_good_checkpoint_stays() {
        let folder = folder("failing");
        for (for_good, keep) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
            for at in 0.. {
                let _ = std::fs::remove_dir_all(&folder);
                put(&folder, 10, keep).expect("written");
                put(&folder, 20, keep).expect("written");
                let layer = FaultInjector::new(at, for_good);
                let result = with_layer(layer.clone(), || put(&folder, 30, keep));
                let good = good_steps(&folder);
                assert!(good.contains(&20) || good.contains(&30), "operation {at}: {good:?}");
                assert!(good.len() >= keep, "operation {at}: {good:?}");
                // A failure to remove old files does not fail the write.
                if result.is_ok() {
                    assert!(good.contains(&30), "operation {at}");
                }
                remove_incomplete(&folder);
                assert!(
                    std::fs::read_dir(&folder)
                        .expect("there")
                        .flatten()
                        .all(|e| e.path().extension().is_some_and(|x| x == "safetensors"))
                );
                if layer.operation_count() <= at {
                    assert!(at >= 6, "only {at} operations were seen");
                    break;
                }
            }
        }
        let _ = std::fs::remove_dir_all(&folder);
    }

    /// Row and column shards of two ranks assemble to the full tensors; a missing, damaged or foreign file is detected.
    #[test]
    fn parts_of_ranks_are_one_checkpoint() {
        let folder = folder("parts");
        let (rows, columns) = (4, 6);
        let whole: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let part = |name: &str, places: [Vec<usize>; 2]| {
            let values = places[0].iter().flat_map(|r| places[1].iter().map(move |c| (*r, *c)));
            let bytes = values.flat_map(|(r, c)| whole[r * columns + c].to_le_bytes()).collect();
            let shape = places.iter().map(Vec::len).collect();
            let tensor = NamedTensor { name: name.into(), shape, dtype: DType::F32, bytes };
            TensorShard { tensor, full_shape: vec![rows, columns], axis_indices: places.to_vec() }
        };
        let all = |n: usize| (0..n).collect::<Vec<usize>>();
        let of = |rank: usize| {
            let mut own = vec![
                part("rows", [all(rows)[2 * rank..2 * rank + 2].to_vec(), all(columns)]),
                // Columns of two segments each.
                part("columns", [all(rows), all(columns).into_iter().filter(|c| (c % 3 < 2) == (rank == 0)).collect()]),
            ];
            if rank == 0 {
                own.push(part("same", [all(rows), all(columns)]));
            }
            own
        };
        let put = |step: usize| {
            let sum = write_rank_file(&folder, step, 1, &of(1)).expect("written");
            write_main_file(&folder, &saved(step), &of(0), &BTreeMap::from([(1, sum)]), 2).expect("written")
        };
        put(10);
        let path = put(20);
        let (found, tensors) = newest(&folder).0.expect("there");
        assert_eq!((found.step, tensors.len()), (20, 3));
        let bytes: Vec<u8> = whole.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert!(tensors.iter().all(|t| t.bytes == bytes && t.shape == [rows, columns]));
        // Every shard of every tensor is read, however it was written; each rank verifies a share of the bytes and all headers.
        for share in [(0, 1), (0, 2), (1, 2), (2, 3)] {
            let opened = Checkpoint::open_share(&path, share).expect("whole");
            for places in [
                [all(rows), all(columns)],
                [vec![1, 2], all(columns)],
                [vec![3], vec![0, 2, 3]],
                [vec![], all(columns)],
                [all(rows), vec![5]],
            ] {
                for name in ["rows", "columns", "same"] {
                    let want = part(name, places.clone()).tensor.bytes;
                    assert_eq!(
                        opened.read_shard(name, &Type::new(DType::F32, &[rows, columns]), &places).expect("there"),
                        want,
                        "{name} {places:?}"
                    );
                }
            }
            for (name, shape) in [("rows", [6, 4]), ("others", [4, 6])] {
                let e = opened
                    .read_shard(name, &Type::new(DType::F32, &shape), &[vec![0], vec![0]])
                    .expect_err("not there")
                    .to_string();
                assert!(e.contains("does not belong to this model"), "{e}");
            }
        }
        let other = rank_file(&path, 1);
        let good = std::fs::read(&other).expect("there");
        let mut turned = good.clone();
        let last = turned.len() - 3;
        turned[last] ^= 1;
        let older = std::fs::read(rank_file(&main_file(&folder, 10), 1)).expect("there");
        for bad in [Some(turned), Some(good[..good.len() / 2].to_vec()), Some(older), None] {
            match bad {
                Some(bytes) => std::fs::write(&other, bytes).expect("written"),
                None => std::fs::remove_file(&other).expect("removed"),
            }
            let (found, faults) = newest(&folder);
            assert_eq!((found.map(|(s, _)| s.step), faults.len()), (Some(10), 1));
            // Ranks share the verification; a fault that one finds is reported to all.
            let alone = [0, 1].map(|own| Checkpoint::open_share(&path, (own, 2)).is_err());
            assert!(alone[0] || alone[1]);
            let (found, faults) = latest_distributed(&folder, (0, 2), &|_| Ok(true)).expect("agreed");
            assert!(found.is_none() && faults.len() == 2);
        }
        std::fs::write(&other, &good).expect("written");
        put(30);
        assert_eq!(good_steps(&folder), [20, 30]);
        // Rank files are removed with their checkpoint; orphaned ones are removed when a run starts.
        assert!(!rank_file(&main_file(&folder, 10), 1).exists());
        write_rank_file(&folder, 40, 1, &of(1)).expect("written");
        remove_incomplete(&folder);
        assert!(!rank_file(&main_file(&folder, 40), 1).exists() && rank_file(&main_file(&folder, 30), 1).exists());
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn room_is_tried_without_a_trace() {
        let folder = folder("room");
        check_disk_space(&folder, 3_000_000).expect("there is room");
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0);
        let layer = FaultInjector::new(3, false);
        assert!(with_layer(layer, || check_disk_space(&folder, 3_000_000)).is_err());
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
