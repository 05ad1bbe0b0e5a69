//! `loom profile COMMAND…` runs any command, writes a trace for Perfetto, and prints a table of the time of each step.
//!
//! The device that the command opens is wrapped, and the wrapper records every program that is loaded, every run and every step.
//! Programs run synchronously, so that the time of each step can be measured.

use crate::ExitStatus;
use crate::command::{self, ParsedCommand, UsageError};
use crate::output::errln;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Fence, OpPlacement, Program, Timing};
use ir::ops::Composite;
use ir::{Op, Type};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Options of `loom profile`.
#[derive(clap::Args)]
pub(crate) struct ProfileArgs {
    /// The trace file to write; open it at ui.perfetto.dev
    #[arg(long, value_name = "FILE", default_value = "trace.json")]
    trace: String,
    /// Number of rows in the table
    #[arg(long, value_name = "N", default_value = "20", value_parser = command::positive)]
    top: usize,
    /// The loom command to profile, with its options
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// The maximum number of recorded events; later events count only in the totals.
const MAX_EVENTS: usize = 400_000;

/// An event with a duration.
struct TraceEvent {
    name: String,
    /// The track of the trace that shows the event.
    track: usize,
    at: Duration,
    length: Duration,
}

const PROGRAMS: usize = 1;
const STEPS: usize = 2;

#[derive(Default)]
struct RecordedEvents {
    events: Vec<TraceEvent>,
    /// The number of calls and the total time of each step.
    steps: BTreeMap<String, (usize, Duration)>,
    runs: (usize, Duration),
    loads: (usize, Duration),
    programs: usize,
}

struct Recorder {
    started: Instant,
    noted: Mutex<RecordedEvents>,
}

static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();

/// Returns the device itself, or a recording wrapper of it under `loom profile`.
pub(crate) fn profile_if_enabled(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    match RECORDER.get() {
        Some(recorder) => Arc::new(ProfiledBackend { inner: backend, recorder: recorder.clone() }),
        None => backend,
    }
}

pub(crate) fn profile(args: &ProfileArgs) -> Result<ExitStatus, UsageError> {
    let asked = command::parse(&args.words)?;
    if matches!(asked, ParsedCommand::Command(command::Command::Profile(_))) {
        return Err(UsageError("`loom profile` needs another command: loom profile generate DIR --prompt TEXT".into()));
    }
    let recorder = Arc::new(Recorder { started: Instant::now(), noted: Mutex::default() });
    let _ = RECORDER.set(recorder.clone());
    let outcome = crate::dispatch(asked);
    let whole = recorder.started.elapsed();
    let noted = std::mem::take(&mut *recorder.lock());
    let text = trace(&noted, whole).to_string();
    models::files::write(Path::new(&args.trace), text.as_bytes()).map_err(|e| UsageError(e.to_string()))?;
    table(&noted, whole, args.top);
    errln!("trace written to {}: open it at https://ui.perfetto.dev", args.trace);
    outcome
}

impl Recorder {
    fn lock(&self) -> std::sync::MutexGuard<'_, RecordedEvents> {
        self.noted.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn loaded(&self, at: Duration, steps: usize) -> usize {
        let length = self.started.elapsed() - at;
        let mut noted = self.lock();
        noted.programs += 1;
        noted.loads.0 += 1;
        noted.loads.1 += length;
        let name = format!("load program {} ({steps} steps)", noted.programs);
        noted.keep(TraceEvent { name, track: PROGRAMS, at, length });
        noted.programs
    }

    fn ran(&self, program: usize, at: Duration, timings: &[Timing]) {
        let length = self.started.elapsed() - at;
        let mut noted = self.lock();
        noted.runs.0 += 1;
        noted.runs.1 += length;
        noted.keep(TraceEvent { name: format!("program {program}"), track: PROGRAMS, at, length });
        // Steps are sorted by number and run one after another.
        let mut steps: Vec<(usize, Duration, &str)> = Vec::new();
        for timing in timings {
            let sum = noted.steps.entry(timing.label.clone()).or_default();
            sum.0 += timing.calls;
            sum.1 += timing.time;
            steps.extend(timing.steps.iter().map(|(number, time)| (*number, *time, timing.label.as_str())));
        }
        steps.sort_by_key(|(number, ..)| *number);
        let mut now = at;
        for (_, length, name) in steps {
            noted.keep(TraceEvent { name: name.to_string(), track: STEPS, at: now, length });
            now += length;
        }
    }
}

impl RecordedEvents {
    fn keep(&mut self, event: TraceEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        }
    }
}

/// Returns the trace in Chrome's JSON format, which Perfetto reads, with times in microseconds.
fn trace(noted: &RecordedEvents, whole: Duration) -> Json {
    let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
    let name = |track: usize, name: &str| json!({ "ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": { "name": name } });
    let mut events = vec![
        json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "loom" } }),
        name(0, "command"),
        name(PROGRAMS, "programs"),
        name(STEPS, "steps"),
        json!({ "ph": "X", "pid": 1, "tid": 0, "name": "command", "ts": 0, "dur": micros(whole) }),
    ];
    events.extend(noted.events.iter().map(|event| {
        json!({ "ph": "X", "pid": 1, "tid": event.track, "name": event.name, "ts": micros(event.at), "dur": micros(event.length) })
    }));
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

fn table(noted: &RecordedEvents, whole: Duration, top: usize) {
    let share = |d: Duration| 100.0 * d.as_secs_f64() / whole.as_secs_f64().max(1e-9);
    let line = |name: &str, calls: usize, time: Duration| {
        errln!("{:>10.2} ms {:>5.1} % {:>8}  {name}", time.as_secs_f64() * 1e3, share(time), calls);
    };
    errln!("{:>13} {:>7} {:>8}  what", "time", "share", "times");
    line("total", 1, whole);
    line("running programs", noted.runs.0, noted.runs.1);
    line("loading programs", noted.loads.0, noted.loads.1);
    let mut steps: Vec<(&String, &(usize, Duration))> = noted.steps.iter().collect();
    steps.sort_by(|a, b| b.1.1.cmp(&a.1.1).then(a.0.cmp(b.0)));
    for (name, (calls, time)) in steps.iter().take(top) {
        line(name, *calls, *time);
    }
    if steps.len() > top {
        let rest = &steps[top..];
        let (calls, time) = rest.iter().fold((0, Duration::ZERO), |(n, d), (_, (calls, time))| (n + calls, d + *time));
        line(&format!("{} others", rest.len()), calls, time);
    }
}

/// A backend that records what it loads and runs.
struct ProfiledBackend {
    inner: Arc<dyn Backend>,
    recorder: Arc<Recorder>,
}

impl ProfiledBackend {
    fn note(
        &self,
        load: impl FnOnce() -> compiler::Result<Arc<dyn Executable>>,
    ) -> compiler::Result<Arc<dyn Executable>> {
        let at = self.recorder.started.elapsed();
        let inner = load()?;
        let number = self.recorder.loaded(at, inner.program().steps.len());
        Ok(Arc::new(ProfiledProgram { inner, number, recorder: self.recorder.clone() }))
    }
}

impl Backend for ProfiledBackend {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn target(&self) -> &compiler::Target {
        self.inner.target()
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        self.inner.supports_composite(composite, args)
    }

    fn alloc(&self, bytes: usize) -> compiler::Result<Arc<dyn DeviceBuffer>> {
        self.inner.alloc(bytes)
    }

    fn alloc_group(&self, bytes: &[usize]) -> compiler::Result<Vec<Arc<dyn DeviceBuffer>>> {
        self.inner.alloc_group(bytes)
    }

    fn load(&self, program: Program) -> compiler::Result<Arc<dyn Executable>> {
        self.note(|| self.inner.load(program))
    }

    fn load_shape_generic(&self, program: Program) -> compiler::Result<Arc<dyn Executable>> {
        self.note(|| self.inner.load_shape_generic(program))
    }

    fn placement(&self, op: &Op, args: &[Type]) -> OpPlacement {
        self.inner.placement(op, args)
    }

    fn supports_in_place(&self, op: &Op) -> bool {
        self.inner.supports_in_place(op)
    }

    fn copy(&self, from: &dyn DeviceBuffer, to: &dyn DeviceBuffer, bytes: usize) -> compiler::Result<()> {
        self.inner.copy(from, to, bytes)
    }

    fn synchronize(&self) -> compiler::Result<()> {
        self.inner.synchronize()
    }

    fn kernels(&self) -> usize {
        self.inner.kernels()
    }
}

struct ProfiledProgram {
    inner: Arc<dyn Executable>,
    number: usize,
    recorder: Arc<Recorder>,
}

impl Executable for ProfiledProgram {
    fn program(&self) -> &Program {
        self.inner.program()
    }

    fn submit(&self, bindings: &mut Bindings) -> compiler::Result<Fence> {
        self.run_timed(bindings).map(|_| Fence::completed())
    }

    fn arena_bytes(&self) -> usize {
        self.inner.arena_bytes()
    }

    fn run_with_arena(
        &self,
        bindings: &mut Bindings,
        arena: &mut dyn DeviceBuffer,
        steps: Range<usize>,
    ) -> compiler::Result<()> {
        let at = self.recorder.started.elapsed();
        self.inner.run_with_arena(bindings, arena, steps)?;
        self.recorder.ran(self.number, at, &[]);
        Ok(())
    }

    fn run_timed(&self, bindings: &mut Bindings) -> compiler::Result<Vec<Timing>> {
        let at = self.recorder.started.elapsed();
        let timings = self.inner.run_timed(bindings)?;
        self.recorder.ran(self.number, at, &timings);
        Ok(timings)
    }
}
