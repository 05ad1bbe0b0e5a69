//! Who watches a run, and what is told.

use std::time::Duration;

/// What a person who watches is told.
#[derive(Clone, Debug)]
pub struct StepProgress {
    /// Steps done.
    pub step: usize,
    /// Steps of the run.
    pub steps: usize,
    /// Mean loss since the last line.
    pub loss: f64,
    /// The newest loss of the held-out part.
    pub valid_loss: Option<f32>,
    /// Tokens, or whatever a batch is counted in, a second.
    pub speed: f64,
    /// Memory of the process, in bytes.
    pub memory: u64,
    /// Time left.
    pub remaining: Duration,
    /// Whether a line of the log is due.
    pub log_due: bool,
}

/// Who watches a run.
pub trait TrainObserver {
    /// Something worth a line.
    fn on_message(&mut self, text: &str);
    /// The data is being read: so many bytes of so many.
    fn on_data_progress(&mut self, _done: u64, _all: u64) {}
    /// Training begins.
    fn on_train_begin(&mut self, done: usize, steps: usize);
    /// A step is done.
    fn on_step_end(&mut self, progress: &StepProgress);
    /// A sample of the model so far.
    fn on_sample(&mut self, step: usize, text: &str);
    /// Whether to save and stop.
    fn should_stop(&self) -> bool;
}

/// Watches nothing and never stops.
pub struct NoProgress;

impl TrainObserver for NoProgress {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, _: &StepProgress) {}
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        false
    }
}

/// Memory of this process, in bytes, where the system tells.
pub(crate) fn resident_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A number with commas.
pub fn format_with_commas(n: usize) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}
