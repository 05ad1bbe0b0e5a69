//! The metrics of `/metrics`, in the Prometheus text format.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Responses by status: 2xx, 4xx, 5xx.
    pub(crate) responses: [AtomicU64; 3],
    /// Requests that were rejected because the queue was full.
    pub(crate) rejected: AtomicU64,
    /// Sequences that ended because their receiver was closed.
    pub(crate) abandoned: AtomicU64,
    /// Open connections.
    pub(crate) connections: AtomicU64,
    /// Clients that did not read their response, or did not send their whole request, in time.
    pub(crate) slow_clients: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    /// Prompt tokens whose KV cache was reused from earlier prompts.
    pub(crate) cached_prompt_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    /// Current number of rows, and of waiting prompts.
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) steps: AtomicU64,
    /// Time from a request's arrival to its first token, and time of a decode step of all rows.
    pub(crate) first_token: Histogram,
    pub(crate) step: Histogram,
}

/// Upper bounds of the buckets in seconds.
const BUCKET_BOUNDS: [f64; 14] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: Mutex<([u64; BUCKET_BOUNDS.len() + 1], f64)>,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let mut counts = self.counts.lock().unwrap_or_else(|e| e.into_inner());
        let at = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKET_BOUNDS.len());
        counts.0[at] += 1;
        counts.1 += seconds;
    }

    fn write(&self, to: &mut String, name: &str, help: &str) {
        let (counts, sum) = *self.counts.lock().unwrap_or_else(|e| e.into_inner());
        let _ = writeln!(to, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut all = 0;
        for (count, bound) in counts.iter().zip(BUCKET_BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()])) {
            all += count;
            let _ = writeln!(to, "{name}_bucket{{le=\"{bound}\"}} {all}");
        }
        let _ = writeln!(to, "{name}_sum {sum}\n{name}_count {all}");
    }
}

/// Increments a counter.
pub(crate) fn increment(of: &AtomicU64, by: u64) {
    of.fetch_add(by, Ordering::Relaxed);
}

/// Decrements a counter.
pub(crate) fn decrement(of: &AtomicU64, by: u64) {
    of.fetch_sub(by, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn count_response(&self, status: u16) {
        increment(
            &self.responses[match status {
                0..400 => 0,
                400..500 => 1,
                _ => 2,
            }],
            1,
        );
    }

    /// Returns a number that increases with all work for clients.
    pub(crate) fn events(&self) -> u64 {
        let all = self.responses.iter().chain([&self.steps, &self.abandoned, &self.slow_clients, &self.rejected]);
        all.map(|of| of.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn render_prometheus(&self) -> String {
        let mut to = String::new();
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let mut one = |name: &str, kind: &str, help: &str, of: u64| {
            let _ = writeln!(to, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {of}");
        };
        one(
            "loom_requests_refused_total",
            "counter",
            "Requests that were refused because the queue was full.",
            value(&self.rejected),
        );
        one(
            "loom_requests_abandoned_total",
            "counter",
            "Sequences that were aborted because the client disconnected.",
            value(&self.abandoned),
        );
        one(
            "loom_clients_slow_total",
            "counter",
            "Clients that were disconnected because of the client timeout.",
            value(&self.slow_clients),
        );
        one("loom_connections", "gauge", "Open connections.", value(&self.connections));
        one("loom_tokens_prompt_total", "counter", "Prompt tokens.", value(&self.prompt_tokens));
        one(
            "loom_tokens_reused_total",
            "counter",
            "Prompt tokens that were found in the prefix cache.",
            value(&self.cached_prompt_tokens),
        );
        one("loom_tokens_new_total", "counter", "Generated tokens.", value(&self.generated_tokens));
        one("loom_rows_running", "gauge", "Sequences that are being decoded.", value(&self.running));
        one("loom_requests_waiting", "gauge", "Sequences in the queue.", value(&self.waiting));
        one("loom_steps_total", "counter", "Decoding steps of the batch.", value(&self.steps));
        one("loom_memory_bytes", "gauge", "Resident memory of the process.", resident_bytes());
        let name = "loom_answers_total";
        let _ = writeln!(to, "# HELP {name} Responses by HTTP status.\n# TYPE {name} counter");
        for (status, of) in ["2xx", "4xx", "5xx"].iter().zip(&self.responses) {
            let _ = writeln!(to, "{name}{{status=\"{status}\"}} {}", value(of));
        }
        self.first_token.write(&mut to, "loom_first_token_seconds", "Time to first token.");
        self.step.write(&mut to, "loom_step_seconds", "Time of one decoding step of the batch.");
        to
    }
}

/// Resident memory of this process in bytes, where the system reports it.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
