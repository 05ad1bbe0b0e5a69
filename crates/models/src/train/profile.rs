//! Profiles a training step: a table of kernel times, and a trace in the format of Perfetto and Chrome.

use compiler::program::{Matmul, MatmulOperand, Program, Step};
use compiler::{Backend, Timing};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Maximum number of bytes that are copied to measure the device's memory bandwidth.
const MAX_COPY_BYTES: usize = 256 << 20;

/// One program step, as measured in one run.
struct ProfiledStep {
    step: usize,
    label: String,
    time: Duration,
    /// Bytes of all values that it reads or writes, and FLOPs of its products; none inside loops, where a step runs repeatedly.
    bytes: Option<usize>,
    operations: f64,
}

/// The profile of a training step.
pub(crate) struct TrainStepProfile {
    device: String,
    steps: Vec<ProfiledStep>,
    /// Measured bandwidth of a copy in bytes per second, reads and writes.
    copy_bandwidth: Option<f64>,
}

impl TrainStepProfile {
    pub(crate) fn new(program: &Program, timings: &[Timing], backend: &dyn Backend) -> TrainStepProfile {
        let mut parts = Vec::new();
        for t in timings {
            for (number, time) in &t.steps {
                let step = program.steps.get(*number);
                let whole = step.filter(|s| !matches!(s, Step::Loop(_) | Step::Branch { .. }));
                parts.push(ProfiledStep {
                    step: *number,
                    label: t.label.clone(),
                    time: *time,
                    bytes: whole.map(|s| bytes_accessed(program, s)),
                    operations: whole.map_or(0.0, flop_count),
                });
            }
        }
        parts.sort_by(|a, b| a.step.cmp(&b.step).then_with(|| a.label.cmp(&b.label)));
        TrainStepProfile { device: backend.name(), steps: parts, copy_bandwidth: copy_bandwidth(backend) }
    }

    fn total(&self) -> Duration {
        self.steps.iter().map(|p| p.time).sum()
    }

    /// A table with equal steps combined, the longest first.
    pub(crate) fn table(&self) -> String {
        #[derive(Default)]
        struct Sum {
            calls: usize,
            time: f64,
            bytes: Option<f64>,
            operations: f64,
        }
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        for p in &self.steps {
            let s = sums.entry(&p.label).or_insert_with(|| Sum { bytes: Some(0.0), ..Sum::default() });
            s.calls += 1;
            s.time += p.time.as_secs_f64();
            s.bytes = s.bytes.zip(p.bytes).map(|(all, own)| all + own as f64);
            s.operations += p.operations;
        }
        let mut rows: Vec<(&str, Sum)> = sums.into_iter().collect();
        rows.sort_by(|a, b| b.1.time.total_cmp(&a.1.time));
        let total = self.total().as_secs_f64().max(1e-12);
        let mut text = format!("{}\none step: {:.3} ms in {} parts", self.device, total * 1e3, self.steps.len());
        if let Some(copy) = self.copy_bandwidth {
            let _ = write!(text, "; a copy moves {:.1} GB/s", copy / 1e9);
        }
        let _ = writeln!(
            text,
            "\n\n{:>10} {:>6} {:>6} {:>10} {:>7} {:>8}  part",
            "ms", "%", "calls", "GB/s", "of copy", "TFLOP/s"
        );
        for (label, s) in rows {
            let speed = s.bytes.filter(|b| *b > 0.0 && s.time > 0.0).map(|b| b / s.time);
            let shown = |x: Option<f64>, digits: usize| x.map_or("-".to_string(), |x| format!("{x:.digits$}"));
            let share = speed.zip(self.copy_bandwidth).map(|(s, c)| s / c);
            let flops = (s.operations > 0.0 && s.time > 0.0).then(|| s.operations / s.time / 1e12);
            let _ = writeln!(
                text,
                "{:>10.4} {:>6.1} {:>6} {:>10} {:>7} {:>8}  {label}",
                s.time * 1e3,
                100.0 * s.time / total,
                s.calls,
                shown(speed.map(|s| s / 1e9), 1),
                shown(share, 2),
                shown(flops, 2)
            );
        }
        text
    }

    /// A trace of the steps in the order of the program.
    pub(crate) fn trace(&self) -> String {
        let mut at = 0.0;
        let mut events = vec![serde_json::json!({
            "ph": "M", "pid": 0, "tid": 0, "name": "thread_name", "args": {"name": self.device}
        })];
        for p in &self.steps {
            let took = p.time.as_secs_f64() * 1e6;
            events.push(serde_json::json!({
                "ph": "X", "pid": 0, "tid": 0, "name": p.label, "ts": at, "dur": took,
                "args": {"step": p.step, "bytes": p.bytes, "operations": p.operations}
            }));
            at += took;
        }
        serde_json::json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string()
    }
}

/// Bytes of the values that a step reads or writes, each counted once.
fn bytes_accessed(program: &Program, step: &Step) -> usize {
    if let Step::Matmul { shape, a: MatmulOperand::Memory(_), b: MatmulOperand::Memory(_), epilogue: None, .. } = step {
        let Matmul { batch, m, n, k, dtype, out, .. } = **shape;
        let repeated = |stride: isize| if stride == 0 { 1 } else { batch };
        let operands = repeated(shape.a[0]) * m * k + repeated(shape.b[0]) * k * n;
        return operands * dtype.size() + batch * m * n * out.size();
    }
    if let Step::Copy { bytes, .. } = step {
        return 2 * bytes;
    }
    let mut seen = std::collections::BTreeSet::new();
    step.for_each_slice(&mut |place, written| {
        seen.extend(place.buffers().map(|b| (b, written)));
    });
    seen.iter().map(|(b, _)| program.buffers.get(b.0 as usize).map_or(0, |b| b.ty.bytes())).sum()
}

fn flop_count(step: &Step) -> f64 {
    match step {
        Step::Matmul { shape: s, .. } => 2.0 * s.batch as f64 * s.m as f64 * s.n as f64 * s.k as f64,
        _ => 0.0,
    }
}

/// Measures how fast the device copies its own memory; none if it can't be measured.
fn copy_bandwidth(backend: &dyn Backend) -> Option<f64> {
    let (from, to) = (backend.alloc(MAX_COPY_BYTES).ok()?, backend.alloc(MAX_COPY_BYTES).ok()?);
    let once = || backend.copy(&*from, &*to, MAX_COPY_BYTES).and_then(|()| backend.synchronize()).ok();
    once()?;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        once()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    (best > 0.0).then(|| 2.0 * MAX_COPY_BYTES as f64 / best)
}
