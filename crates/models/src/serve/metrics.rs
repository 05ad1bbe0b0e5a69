//! What `/metrics` tells, in Prometheus' text form.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of everything since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Answers by status: 2xx, 4xx, 5xx.
    pub(crate) answered: [AtomicU64; 3],
    /// Requests that found the queue full.
    pub(crate) refused: AtomicU64,
    /// Sequences that ended because nobody listened.
    pub(crate) abandoned: AtomicU64,
    /// Connections that are open.
    pub(crate) connections: AtomicU64,
    /// Clients that did not take what was written for them, or did not send what they announced.
    pub(crate) slow: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    /// Of these, taken over from earlier prompts.
    pub(crate) reused_tokens: AtomicU64,
    pub(crate) new_tokens: AtomicU64,
    /// Rows, and prompts that wait, now.
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) steps: AtomicU64,
    /// From a request's arrival to its first token; one step of all rows.
    pub(crate) first_token: Histogram,
    pub(crate) step: Histogram,
}

/// Upper bounds in seconds.
const BOUNDS: [f64; 14] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Durations by size.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: Mutex<([u64; BOUNDS.len() + 1], f64)>,
}

impl Histogram {
    pub(crate) fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let mut counts = self.counts.lock().unwrap_or_else(|e| e.into_inner());
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        counts.0[at] += 1;
        counts.1 += seconds;
    }

    fn write(&self, to: &mut String, name: &str, help: &str) {
        let (counts, sum) = *self.counts.lock().unwrap_or_else(|e| e.into_inner());
        let _ = writeln!(to, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut all = 0;
        for (count, bound) in counts.iter().zip(BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()])) {
            all += count;
            let _ = writeln!(to, "{name}_bucket{{le=\"{bound}\"}} {all}");
        }
        let _ = writeln!(to, "{name}_sum {sum}\n{name}_count {all}");
    }
}

/// One more.
pub(crate) fn count(of: &AtomicU64, by: u64) {
    of.fetch_add(by, Ordering::Relaxed);
}

/// One less.
pub(crate) fn uncount(of: &AtomicU64, by: u64) {
    of.fetch_sub(by, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn answered(&self, status: u16) {
        count(
            &self.answered[match status {
                0..400 => 0,
                400..500 => 1,
                _ => 2,
            }],
            1,
        );
    }

    /// Grows with everything that is done for clients.
    pub(crate) fn events(&self) -> u64 {
        let all = self.answered.iter().chain([&self.steps, &self.abandoned, &self.slow, &self.refused]);
        all.map(|of| of.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn text(&self) -> String {
        let mut to = String::new();
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let mut one = |name: &str, kind: &str, help: &str, of: u64| {
            let _ = writeln!(to, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {of}");
        };
        one("loom_requests_refused_total", "counter", "Requests that found the queue full.", value(&self.refused));
        one("loom_requests_abandoned_total", "counter", "Sequences whose client was gone.", value(&self.abandoned));
        one("loom_clients_slow_total", "counter", "Clients that were cut off for being slow.", value(&self.slow));
        one("loom_connections", "gauge", "Open connections.", value(&self.connections));
        one("loom_tokens_prompt_total", "counter", "Tokens of prompts.", value(&self.prompt_tokens));
        one(
            "loom_tokens_reused_total",
            "counter",
            "Tokens of prompts that an earlier prompt had run.",
            value(&self.reused_tokens),
        );
        one("loom_tokens_new_total", "counter", "Tokens that were generated.", value(&self.new_tokens));
        one("loom_rows_running", "gauge", "Sequences that grow now.", value(&self.running));
        one("loom_requests_waiting", "gauge", "Sequences that wait for a row.", value(&self.waiting));
        one("loom_steps_total", "counter", "Steps of the batch.", value(&self.steps));
        one("loom_memory_bytes", "gauge", "Resident memory of the process.", resident());
        let name = "loom_answers_total";
        let _ = writeln!(to, "# HELP {name} Answers by status.\n# TYPE {name} counter");
        for (status, of) in ["2xx", "4xx", "5xx"].iter().zip(&self.answered) {
            let _ = writeln!(to, "{name}{{status=\"{status}\"}} {}", value(of));
        }
        self.first_token.write(&mut to, "loom_first_token_seconds", "From a request to its first token.");
        self.step.write(&mut to, "loom_step_seconds", "One step of all rows.");
        to
    }
}

/// Bytes of this process in memory, where the system tells.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
