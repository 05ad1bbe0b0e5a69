//! Who watches a run, and what is told.

use std::time::Duration;

/// What a person who watches is told.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps of the run.
    pub steps: usize,
    /// Mean loss since the last line.
    pub loss: f64,
    /// The newest loss of the held-out part.
    pub valid: Option<f32>,
    /// Tokens, or whatever a batch is counted in, a second.
    pub speed: f64,
    /// Memory of the process, in bytes.
    pub memory: u64,
    /// Time left.
    pub left: Duration,
    /// Whether a line of the log is due.
    pub line: bool,
}

/// Who watches a run.
pub trait Observer {
    /// Something worth a line.
    fn note(&mut self, text: &str);
    /// The data is being read: so many bytes of so many.
    fn reading(&mut self, _done: u64, _all: u64) {}
    /// Training begins.
    fn begin(&mut self, done: usize, steps: usize);
    /// A step is done.
    fn step(&mut self, progress: &Progress);
    /// A sample of the model so far.
    fn sample(&mut self, step: usize, text: &str);
    /// Whether to save and stop.
    fn stop(&self) -> bool;
}

/// Watches nothing and never stops.
pub struct Silent;

impl Observer for Silent {
    fn note(&mut self, _: &str) {}
    fn begin(&mut self, _: usize, _: usize) {}
    fn step(&mut self, _: &Progress) {}
    fn sample(&mut self, _: usize, _: &str) {}
    fn stop(&self) -> bool {
        false
    }
}

/// Memory of this process, in bytes, where the system tells.
pub(crate) fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A number with commas.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}
