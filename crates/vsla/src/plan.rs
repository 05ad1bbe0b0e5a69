//! Plans (§5): what runs in which order, and where every value lies.

use crate::backend::{Backend, Stream};
use crate::bindings::Bindings;
use crate::error::{Error, Result};
use crate::program::Program;
use compiler::program::{Class, KernelArg, Step, Trip, library_name};
use compiler::{ALIGN, Executable, Options};
use ir::Graph;
use std::fmt;
use std::sync::Arc;

/// A class of memory (§6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub enum ArenaClass {
    /// Weights.
    Params = 0,
    /// Values inside a forward run, and what it keeps for backward.
    Activations,
    /// Scratch of single kernels.
    Workspace,
    /// Gradients, those inside a backward run and those it gives.
    Grads,
    /// Memory that comes and goes with each run: inputs, outputs, linked values.
    External,
}

impl ArenaClass {
    /// Every class, in the order of `arena_sizes`.
    pub const ALL: [ArenaClass; 5] =
        [ArenaClass::Params, ArenaClass::Activations, ArenaClass::Workspace, ArenaClass::Grads, ArenaClass::External];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ArenaClass::Params => "PARAMS",
            ArenaClass::Activations => "ACTIVATIONS",
            ArenaClass::Workspace => "WORKSPACE",
            ArenaClass::Grads => "GRADS",
            ArenaClass::External => "EXTERNAL",
        }
    }
}

/// A value in memory and the segments between which it lives, both inclusive (§5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// What it holds, for people.
    pub name: String,
    /// First segment that uses it.
    pub start: usize,
    /// Last segment that uses it.
    pub end: usize,
    /// Size.
    pub bytes: usize,
    /// Which arena.
    pub class: ArenaClass,
    /// Where in the arena, a multiple of 64.
    pub offset: usize,
}

/// A step of the schedule: a fused kernel, a product, a copy (§7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What runs.
    pub name: String,
    /// Whether it is a generated kernel, and not a product, copy or loop.
    pub fused: bool,
    /// Intervals that it reads or writes, by index.
    pub values: Vec<usize>,
}

/// How an input or output of a graph is kept.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) class: ArenaClass,
}

/// A compiled graph with its memory.
pub(crate) struct Layout {
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sizes: [usize; 5],
    /// Interval of each input, then of each output.
    pub(crate) edges: Vec<usize>,
}

impl Layout {
    /// Compiles a graph; values inside it are of class `inner`.
    pub(crate) fn new(
        graph: &Graph,
        inputs: &[Label],
        outputs: &[Label],
        inner: ArenaClass,
        backend: &Backend,
    ) -> Result<Layout> {
        let program = compiler::compile(graph, backend, &Options::default())?;
        let executable = compiler::Backend::load(backend, program)?;
        let program = executable.program();
        let mut sizes = [0usize; 5];
        let last = program.steps.len().saturating_sub(1);
        let mut intervals = Vec::new();
        let mut of_buffer = vec![None; program.buffers.len()];
        let mut edges = Vec::new();
        // Inputs and outputs one after another in their arenas: they live through every run.
        let named = inputs.iter().zip(&program.inputs).chain(outputs.iter().zip(&program.outputs));
        for (label, ty) in named {
            let size = &mut sizes[label.class as usize];
            edges.push(intervals.len());
            intervals.push(Interval {
                name: label.name.clone(),
                start: 0,
                end: last,
                bytes: ty.bytes(),
                class: label.class,
                offset: *size,
            });
            *size = padded(*size, ty.bytes())?;
        }
        let base = sizes[inner as usize];
        for (i, b) in program.buffers.iter().enumerate() {
            of_buffer[i] = match (&b.class, b.live) {
                (Class::Input(n), _) => Some(edges[*n]),
                (Class::Output(n), _) => Some(edges[inputs.len() + *n]),
                (Class::Activation, Some((start, end))) => {
                    intervals.push(Interval {
                        name: format!("t{i} {}", b.ty),
                        start,
                        end,
                        bytes: b.ty.bytes(),
                        class: inner,
                        offset: base + b.offset,
                    });
                    Some(intervals.len() - 1)
                }
                _ => None,
            };
        }
        sizes[inner as usize] = padded(base, program.arena)?;
        sizes[ArenaClass::Workspace as usize] = scratch(&program.steps) * backend.threads();
        let segments = program.steps.iter().map(|s| segment(s, &of_buffer)).collect();
        Ok(Layout { executable, intervals, segments, sizes, edges })
    }

    /// Looks for two values of one arena that live together and overlap (§16): there must be none. A result may take the
    /// place of an operand that ends with its step: then both have the same bytes, and the step is all they share.
    pub(crate) fn overlap(&self) -> Option<(&Interval, &Interval)> {
        let inherits = |a: &Interval, b: &Interval| a.end == b.start && (a.offset, a.bytes) == (b.offset, b.bytes);
        let clash = |a: &Interval, b: &Interval| {
            !(inherits(a, b) || inherits(b, a))
                && a.class == b.class
                && a.start <= b.end
                && b.start <= a.end
                && a.offset < b.offset + b.bytes
                && b.offset < a.offset + a.bytes
        };
        let n = self.intervals.len();
        (0..n)
            .flat_map(|i| (i + 1..n).map(move |j| (i, j)))
            .map(|(i, j)| (&self.intervals[i], &self.intervals[j]))
            .find(|(a, b)| clash(a, b))
    }
}

fn padded(size: usize, more: usize) -> Result<usize> {
    let end = size.checked_add(more).and_then(|n| n.checked_next_multiple_of(ALIGN));
    end.ok_or_else(|| Error::PlanningFailed("an arena would be larger than memory".into()))
}

/// The largest private memory of a kernel: kernels run one after another, so they share it (§5.4).
fn scratch(steps: &[Step]) -> usize {
    let of = |s: &Step| match s {
        Step::Kernel { args, .. } => args
            .iter()
            .map(|a| match a {
                KernelArg::Scratch(n) => n.next_multiple_of(ALIGN),
                KernelArg::Place(_) => 0,
            })
            .sum(),
        Step::Loop(l) => {
            let test = match &l.trip {
                Trip::While { test, .. } => scratch(test),
                _ => 0,
            };
            scratch(&l.body).max(test)
        }
        Step::Branch { branches, .. } => branches.iter().map(|b| scratch(b)).max().unwrap_or(0),
        _ => 0,
    };
    steps.iter().map(of).max().unwrap_or(0)
}

fn segment(step: &Step, of_buffer: &[Option<usize>]) -> Segment {
    let mut values = Vec::new();
    step.places(&mut |p, _| {
        for b in p.buffers() {
            values.extend(of_buffer[b.0 as usize]);
        }
    });
    values.sort_unstable();
    values.dedup();
    let name = match step {
        Step::Kernel { kernel, .. } => format!("kernel {}", kernel.name),
        Step::Matmul { shape, epilogue, .. } => {
            let then = if epilogue.is_some() { " with epilogue" } else { "" };
            format!("matmul {}×[{}·{}·{}]{then}", shape.batch, shape.m, shape.k, shape.n)
        }
        Step::Library { op, .. } => format!("routine {}", library_name(op)),
        Step::Copy { bytes, .. } => format!("copy {bytes}"),
        Step::Zero { bytes, .. } => format!("zero {bytes}"),
        Step::Loop(_) => "loop".to_string(),
        Step::Branch { .. } => "branch".to_string(),
    };
    let fused = matches!(step, Step::Kernel { .. });
    Segment { name, fused, values }
}

/// A program's schedule and memory on a backend. Immutable, reusable for every run, shared between threads.
#[derive(Clone)]
pub struct Plan {
    pub(crate) program: Arc<Program>,
    pub(crate) backend: Backend,
    pub(crate) layout: Arc<Layout>,
}

impl Plan {
    /// Plans a program for a backend.
    pub fn new(program: &Arc<Program>, backend: &Backend) -> Result<Plan> {
        let (inputs, outputs) = labels(program);
        let layout = Layout::new(program.graph(), &inputs, &outputs, ArenaClass::Activations, backend)?;
        Ok(Plan { program: program.clone(), backend: backend.clone(), layout: Arc::new(layout) })
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Bytes of every arena, in the order of [`ArenaClass::ALL`].
    pub fn arena_sizes(&self) -> [usize; 5] {
        self.layout.sizes
    }

    /// Where values lie and how long they live.
    pub fn intervals(&self) -> &[Interval] {
        &self.layout.intervals
    }

    /// What runs, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.layout.segments
    }

    /// Two values that overlap although they live together; a plan has none.
    pub fn overlap(&self) -> Option<(&Interval, &Interval)> {
        self.layout.overlap()
    }

    /// Memory for inputs, outputs and parameters, all zero.
    pub fn bind(&self) -> Result<Bindings> {
        Bindings::new(&self.program, &self.layout, &self.backend, None)
    }

    /// Memory for inputs and outputs, with the parameters of other bindings: of another profile of one model (§6.3).
    pub fn bind_sharing(&self, params: &Bindings) -> Result<Bindings> {
        Bindings::new(&self.program, &self.layout, &self.backend, Some(params))
    }

    /// Runs the program: reads inputs and parameters from the bindings, writes the outputs there. Allocates nothing.
    pub fn execute(&self, bindings: &mut Bindings, _stream: &Stream) -> Result<()> {
        if !Arc::ptr_eq(&bindings.program, &self.program) {
            return Err(Error::InvalidArg(
                "these bindings belong to another program; bind them with this plan".to_string(),
            ));
        }
        Ok(self.layout.executable.run(&mut bindings.inner)?)
    }
}

/// How a program's inputs and outputs are kept.
pub(crate) fn labels(program: &Program) -> (Vec<Label>, Vec<Label>) {
    let label = |v: &crate::ValueId, class: ArenaClass| Label {
        name: match program.values()[v.0 as usize].name.as_str() {
            "" => format!("v{}", v.0),
            name => name.to_string(),
        },
        class,
    };
    let mut inputs: Vec<Label> = program.inputs().iter().map(|v| label(v, ArenaClass::External)).collect();
    inputs.extend(program.params().iter().map(|v| label(v, ArenaClass::Params)));
    if program.is_random() {
        inputs.push(Label { name: "seed".to_string(), class: ArenaClass::External });
    }
    let outputs = program.outputs().iter().map(|v| label(v, ArenaClass::External)).collect();
    (inputs, outputs)
}

/// The memory report of §14.1: arenas, then the schedule.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan for {}", self.backend.name())?;
        report(f, &[&self.layout])
    }
}

/// Arenas and schedules of plans that run together.
pub(crate) fn report(f: &mut fmt::Formatter<'_>, layouts: &[&Layout]) -> fmt::Result {
    for class in ArenaClass::ALL {
        let bytes: usize = layouts.iter().map(|l| l.sizes[class as usize]).max().unwrap_or(0);
        let mut count = 0;
        let mut sum = 0;
        for i in layouts.iter().flat_map(|l| &l.intervals).filter(|i| i.class == class) {
            count += 1;
            sum += i.bytes;
        }
        write!(f, "  {:<12}{:>12}  {count} values", class.name(), human(bytes))?;
        if sum > bytes {
            write!(f, ", {} without reuse", human(sum))?;
        }
        writeln!(f)?;
    }
    for l in layouts {
        writeln!(f, "  schedule of {} segments:", l.segments.len())?;
        for (i, s) in l.segments.iter().enumerate() {
            let names: Vec<&str> = s.values.iter().map(|&v| l.intervals[v].name.as_str()).collect();
            writeln!(f, "    {i}: {} ({})", s.name, names.join(", "))?;
        }
    }
    Ok(())
}

fn human(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut x, mut unit) = (bytes as f64, 0);
    while x >= 1024.0 && unit + 1 < units.len() {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{x:.1} {}", units[unit]) }
}
