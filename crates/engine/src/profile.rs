//! The profiler: time and memory by phase, by module and by op.
//!
//! A node stores the phase and the module that it was recorded in; while a profile is taken, its execution time is measured.
//! The nodes of backward belong to the module of the op that they differentiate.

use crate::context;
use crate::debug::LiveTensor;
use crate::engine::{Engine, EngineShared};
use crate::kernels;
use crate::node::{Node, NodeKind};
use crate::pool::PoolStats;
use crate::region::CompiledGraph;
use crate::storage::{StoredValue, Values};
use compiler::clock::Instant;
use compiler::{Bindings, Timing};
use ir::ops::Semantics;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The part of training that an op belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Everything else.
    #[default]
    Forward,
    /// Ops that `backward` recorded.
    Backward,
    /// Ops of an optimizer's step.
    Optimizer,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        })
    }
}

/// A phase and a module; the module is an index into the table of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpLabel {
    pub(crate) phase: Phase,
    pub(crate) module: u32,
}

fn names() -> MutexGuard<'static, Vec<String>> {
    static NAMES: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    NAMES.get_or_init(|| Mutex::new(vec![String::new()])).lock().unwrap_or_else(|e| e.into_inner())
}

impl OpLabel {
    fn module(self) -> String {
        names().get(self.module as usize).cloned().unwrap_or_default()
    }
}

/// Runs `f`; ops recorded inside belong to a module of this name, nested in the current one.
pub fn module<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let outer = context::label();
    let number = {
        let mut names = names();
        let path = match names[outer.module as usize].as_str() {
            "" => name.to_string(),
            above => format!("{above}.{name}"),
        };
        names.iter().position(|n| *n == path).unwrap_or_else(|| {
            names.push(path);
            names.len() - 1
        })
    };
    context::with_label(OpLabel { module: number as u32, ..outer }, f)
}

/// Runs `f`; ops recorded inside belong to the given phase.
pub fn phase<R>(phase: Phase, f: impl FnOnce() -> R) -> R {
    context::with_label(OpLabel { phase, ..context::label() }, f)
}

/// One executed op of a profile.
#[derive(Clone, Debug)]
pub struct OpRecord {
    /// The name of the op.
    pub op: String,
    /// The source line that recorded the op.
    pub at: String,
    /// The phase of the op.
    pub phase: Phase,
    /// The module of the op.
    pub module: String,
    /// The start time, relative to the start of the profile.
    pub start: Duration,
    /// The duration.
    pub time: Duration,
    /// The number of bytes read and written.
    pub bytes: usize,
    /// The steps of a compiled region, with their times.
    pub steps: Vec<Timing>,
    /// The number of nodes of a compiled region's graph; 1 for an op.
    pub nodes: usize,
    /// The type of the first result.
    pub ty: String,
    /// Whether the op is elementwise, so that a region could fuse it with its neighbours.
    pub fusible: bool,
}

/// Ops that ran as a separate kernel although they could have been fused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfused {
    /// The op or kernel, with its shape.
    pub op: String,
    /// The reason that it was not fused.
    pub reason: String,
    /// The number of runs.
    pub count: usize,
}

struct Recording {
    began: Instant,
    records: Vec<OpRecord>,
    pools: Vec<PoolStats>,
    leaks: usize,
    /// The regions that ran, with the number of runs.
    regions: Vec<(Arc<CompiledGraph>, usize)>,
}

/// The profiler state of an engine.
#[derive(Default)]
pub(crate) struct Profiling {
    on: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

impl Profiling {
    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

impl EngineShared {
    /// Records that a node ran from `start` until now.
    pub(crate) fn note(&self, node: &Node, start: Instant, bytes: usize, steps: Vec<Timing>) {
        let time = start.elapsed();
        if let Some(r) = &mut *self.profiling.recording() {
            let nodes = match &node.work {
                NodeKind::Call(variant) => variant.graph.nodes().len(),
                _ => 1,
            };
            let fusible = match &node.work {
                NodeKind::Op(sig) => matches!(sig.op.semantics(), Semantics::Elementwise(_)),
                _ => false,
            };
            if let NodeKind::Call(variant) = &node.work {
                match r.regions.iter_mut().find(|(v, _)| Arc::ptr_eq(v, variant)) {
                    Some((_, calls)) => *calls += 1,
                    None => r.regions.push((variant.clone(), 1)),
                }
            }
            r.records.push(OpRecord {
                ty: node.types().first().map_or(String::new(), |t| t.to_string()),
                fusible,
                op: node.name().to_string(),
                at: node.at.to_string(),
                phase: node.label.phase,
                module: node.label.module(),
                start: start.duration_since(r.began),
                time,
                bytes,
                steps,
                nodes,
            });
        }
    }

    /// The unfused ops of a recording: elementwise ops outside regions, and kernels that the compiler did not fuse in a region.
    fn unfused(&self, r: &Recording) -> Vec<Unfused> {
        let mut rows: BTreeMap<(String, String), usize> = BTreeMap::new();
        for x in r.records.iter().filter(|x| x.fusible) {
            *rows.entry((format!("{} {}", x.op, x.ty), "it ran outside of a compiled region".into())).or_default() += 1;
        }
        for (variant, calls) in &r.regions {
            let backend = &*self.devices[variant.device].pool.backend;
            let Ok((_, told)) = compiler::explain(&variant.graph, backend, &compiler::Options::default()) else {
                continue;
            };
            for note in told.steps {
                for reason in note.unfused {
                    // The numbers of values differ between programs, so they are not part of the reason.
                    let why = reason.split_once(": ").map_or(reason.as_str(), |(_, why)| why).to_string();
                    *rows.entry((note.description.clone(), why)).or_default() += calls;
                }
            }
        }
        let mut rows: Vec<Unfused> =
            rows.into_iter().map(|((what, why), count)| Unfused { op: what, reason: why, count }).collect();
        rows.sort_by_key(|u| std::cmp::Reverse(u.count));
        rows
    }

    /// Runs a region's program; measures its steps if a profile is taken.
    pub(crate) fn launch_noted(
        &self,
        variant: &CompiledGraph,
        device: usize,
        args: &[StoredValue],
        over: &[(usize, usize)],
        bindings: &mut Bindings,
        overwritten: &mut bool,
    ) -> compiler::Result<(Values, Vec<Timing>)> {
        let pool = &self.devices[device].pool;
        let outs = kernels::bind(pool, &variant.types, args, over, bindings)?;
        *overwritten |= !over.is_empty();
        let _undisturbed = overwritten.then(compiler::interrupt::disable_interrupts);
        let steps = match self.profiling.is_on() {
            true => variant.exe.run_timed(bindings),
            false => variant.exe.run(bindings).map(|()| Vec::new()),
        };
        kernels::unbind(bindings);
        Ok((outs, steps?))
    }
}

impl Engine {
    /// Profiles the execution of `f`. Work that `f` leaves pending is not measured: end with a read or `mark_step`.
    pub fn profile<R>(&self, f: impl FnOnce() -> R) -> (R, Profile) {
        let p = &self.shared.profiling;
        let pools = || self.shared.devices.iter().map(|d| d.pool.stats()).collect::<Vec<_>>();
        let leaks = self.live_tensors().len();
        *p.recording() =
            Some(Recording { began: Instant::now(), records: Vec::new(), pools: pools(), leaks, regions: Vec::new() });
        p.on.store(true, Ordering::Relaxed);
        let result = f();
        p.on.store(false, Ordering::Relaxed);
        let ended = p.recording().take();
        let held = self.live_tensors();
        let profile = match ended {
            Some(r) => Profile {
                unfused: self.shared.unfused(&r),
                wall_time: r.began.elapsed(),
                records: r.records,
                before: r.pools,
                after: pools(),
                live_before: r.leaks,
                live_after: held,
            },
            None => Profile::default(),
        };
        (result, profile)
    }
}

/// A profile: the executed ops, their times, and the memory before and after.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The total wall time.
    pub wall_time: Duration,
    /// The ops in execution order.
    pub records: Vec<OpRecord>,
    /// The pool statistics before.
    pub before: Vec<PoolStats>,
    /// The pool statistics after.
    pub after: Vec<PoolStats>,
    /// The number of live tensors before.
    pub live_before: usize,
    /// The live tensors after.
    pub live_after: Vec<LiveTensor>,
    /// The ops that could have been fused and were not, the most frequent first.
    pub unfused: Vec<Unfused>,
}

/// The sums of one row of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileSums {
    /// The number of ops.
    pub count: usize,
    /// The total time.
    pub time: Duration,
    /// The number of bytes read and written.
    pub bytes: usize,
}

impl Profile {
    fn sums(&self, key: impl Fn(&OpRecord) -> String) -> Vec<(String, ProfileSums)> {
        let mut rows: BTreeMap<String, ProfileSums> = BTreeMap::new();
        for r in &self.records {
            let row = rows.entry(key(r)).or_default();
            row.count += 1;
            row.time += r.time;
            row.bytes += r.bytes;
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(_, s)| std::cmp::Reverse(s.time));
        rows
    }

    /// Sums by phase, the longest time first.
    pub fn phases(&self) -> Vec<(String, ProfileSums)> {
        self.sums(|r| r.phase.to_string())
    }

    /// Sums by module.
    pub fn modules(&self) -> Vec<(String, ProfileSums)> {
        self.sums(|r| if r.module.is_empty() { "(none)".into() } else { r.module.clone() })
    }

    /// Sums by op.
    pub fn ops(&self) -> Vec<(String, ProfileSums)> {
        self.sums(|r| r.op.clone())
    }

    /// The steps of compiled regions by name, the longest time first.
    pub fn steps(&self) -> Vec<(String, Duration)> {
        let mut rows: BTreeMap<&str, Duration> = BTreeMap::new();
        for t in self.records.iter().flat_map(|r| &r.steps) {
            *rows.entry(&t.label).or_default() += t.time;
        }
        let mut rows: Vec<_> = rows.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        rows.sort_by_key(|(_, t)| std::cmp::Reverse(*t));
        rows
    }

    /// The fraction of ops that were fused into another op's kernel: 0 outside compiled regions.
    pub fn fusion_rate(&self) -> f64 {
        let nodes: usize = self.records.iter().map(|r| r.nodes).sum();
        let steps: usize = self.records.iter().map(|r| if r.steps.is_empty() { 1 } else { r.steps.len() }).sum();
        if nodes == 0 { 0.0 } else { 1.0 - (steps.min(nodes)) as f64 / nodes as f64 }
    }

    /// The fraction of buffers that were reused rather than allocated.
    pub fn pool_reuse(&self) -> f64 {
        let (mut again, mut fresh) = (0, 0);
        for (a, b) in self.before.iter().zip(&self.after) {
            again += b.reuses - a.reuses;
            fresh += b.allocations - a.allocations;
        }
        if again + fresh == 0 { 1.0 } else { again as f64 / (again + fresh) as f64 }
    }

    /// The events of a trace file for `chrome://tracing` or Perfetto, with one row for each phase.
    pub fn trace(&self) -> String {
        let mut text = String::from("{\"traceEvents\": [");
        for (i, r) in self.records.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(
                text,
                "{comma}\n{{\"ph\": \"X\", \"pid\": 0, \"tid\": {}, \"name\": {}, \"cat\": {}, \"ts\": {:.3}, \"dur\": {:.3}, \
                 \"args\": {{\"at\": {}, \"module\": {}, \"bytes\": {}}}}}",
                r.phase as usize,
                quoted(&r.op),
                quoted(&r.phase.to_string()),
                r.start.as_secs_f64() * 1e6,
                r.time.as_secs_f64() * 1e6,
                quoted(&r.at),
                quoted(&r.module),
                r.bytes
            );
        }
        for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
            let comma = if text.ends_with('[') { "" } else { "," };
            let _ = write!(
                text,
                "{comma}\n{{\"ph\": \"M\", \"pid\": 0, \"tid\": {}, \"name\": \"thread_name\", \"args\": {{\"name\": {}}}}}",
                phase as usize,
                quoted(&phase.to_string())
            );
        }
        text.push_str("\n]}\n");
        text
    }
}

/// Quotes a string for JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 32 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The maximum number of rows shown for each table.
const ROWS: usize = 12;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy: Duration = self.records.iter().map(|r| r.time).sum();
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        writeln!(f, "wall {:.3} ms, in kernels {:.3} ms, {} ops", ms(self.wall_time), ms(busy), self.records.len())?;
        for (title, rows) in [("phase", self.phases()), ("module", self.modules()), ("op", self.ops())] {
            writeln!(f, "\n{title:<36} {:>7} {:>10} {:>6} {:>10}", "ops", "ms", "%", "MiB")?;
            for (name, s) in rows.iter().take(ROWS) {
                let share = 100.0 * s.time.as_secs_f64() / busy.as_secs_f64().max(1e-12);
                let mib = s.bytes as f64 / (1 << 20) as f64;
                writeln!(f, "{name:<36} {:>7} {:>10.3} {share:>6.1} {mib:>10.2}", s.count, ms(s.time))?;
            }
            if rows.len() > ROWS {
                writeln!(f, "and {} more", rows.len() - ROWS)?;
            }
        }
        let steps = self.steps();
        if !steps.is_empty() {
            writeln!(f, "\n{:<44} {:>10}", "step of a region", "ms")?;
            for (name, time) in steps.iter().take(ROWS) {
                writeln!(f, "{name:<44} {:>10.3}", ms(*time))?;
            }
        }
        if !self.unfused.is_empty() {
            writeln!(f, "\n{:<44} {:>7}  why", "not fused", "times")?;
            for u in self.unfused.iter().take(ROWS) {
                writeln!(f, "{:<44} {:>7}  {}", u.op, u.count, u.reason)?;
            }
        }
        let live = |p: &[PoolStats]| p.iter().map(|p| p.live_bytes).sum::<usize>() as f64 / (1 << 20) as f64;
        let peak = self.after.iter().map(|p| p.peak_bytes).sum::<usize>() as f64 / (1 << 20) as f64;
        writeln!(f, "\nfused {:.1} %, buffers reused {:.1} %", self.fusion_rate() * 100.0, self.pool_reuse() * 100.0)?;
        writeln!(
            f,
            "live {:.2} MiB before, {:.2} MiB after, {peak:.2} MiB peak",
            live(&self.before),
            live(&self.after)
        )?;
        writeln!(f, "live tensors: {} before, {} after", self.live_before, self.live_after.len())
    }
}
