//! What memory is used for.

use crate::{Engine, Type, engine};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// A tensor's memory at the time of a snapshot; views of one tensor are one.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveTensor {
    /// What it is.
    pub ty: Type,
    /// The line that made it.
    pub at: String,
    /// How many tensors refer to it.
    pub handles: usize,
    /// Which it is, the same in later snapshots.
    pub id: String,
}

/// What was held at one time. Made by [`snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Everything that some tensor refers to, computed or not, largest first.
    pub tensors: Vec<LiveTensor>,
    /// Bytes of buffers in use.
    pub live_bytes: usize,
    /// The most that was in use at once.
    pub peak_bytes: usize,
    /// Bytes of buffers that wait to be used again.
    pub free_bytes: usize,
}

/// What the process's engine holds now.
///
/// ```
/// use tensorloom::{memory, ones};
///
/// let before = memory::snapshot();
/// let x = ones((256, 4)).exp();
/// x.to_vec::<f32>()?;
/// let new = memory::snapshot().since(&before);
/// assert!(new.tensors.iter().any(|t| t.ty.to_string() == "f32[256,4]"));
/// println!("{new}"); // a line for each line of the program that made tensors
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn snapshot() -> Snapshot {
    snapshot_of(engine())
}

/// What an engine holds now.
pub fn snapshot_of(engine: &Engine) -> Snapshot {
    let held = |l: engine::LiveTensor| LiveTensor {
        ty: l.ty,
        at: l.created_at.to_string(),
        handles: l.num_handles,
        id: l.base.to_string(),
    };
    let mut tensors: Vec<LiveTensor> = engine.live_tensors().into_iter().map(held).collect();
    tensors.sort_by(|a, b| b.ty.bytes().cmp(&a.ty.bytes()).then_with(|| (&a.at, &a.id).cmp(&(&b.at, &b.id))));
    let pools = engine.inspect().pools;
    Snapshot {
        tensors,
        live_bytes: pools.iter().map(|p| p.live_bytes).sum(),
        peak_bytes: pools.iter().map(|p| p.peak_bytes).sum(),
        free_bytes: pools.iter().map(|p| p.free_bytes).sum(),
    }
}

impl Snapshot {
    /// What is held now and was not held at an earlier time.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let before: HashSet<&str> = earlier.tensors.iter().map(|t| t.id.as_str()).collect();
        let tensors = self.tensors.iter().filter(|t| !before.contains(t.id.as_str())).cloned().collect();
        Snapshot { tensors, ..self.clone() }
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|t| t.ty.bytes()).sum()
    }

    /// How many tensors each line made that are still held, and their bytes; the most bytes first.
    pub fn by_line(&self) -> Vec<(String, usize, usize)> {
        let mut lines: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for t in &self.tensors {
            let line = lines.entry(&t.at).or_default();
            *line = (line.0 + 1, line.1 + t.ty.bytes());
        }
        let mut all: Vec<_> = lines.into_iter().map(|(at, (n, bytes))| (at.to_string(), n, bytes)).collect();
        all.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        all
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let (live, peak, free) = (mib(self.live_bytes), mib(self.peak_bytes), mib(self.free_bytes));
        writeln!(f, "{live:.2} MiB in use, {peak:.2} MiB peak, {free:.2} MiB cached")?;
        for (at, n, bytes) in self.by_line() {
            writeln!(f, "{:10.3} MiB  {n:5} tensors  {at}", mib(bytes))?;
        }
        Ok(())
    }
}
