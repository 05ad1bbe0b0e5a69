//! Plans (§5): the execution order, and the memory offset of every value.

use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::describe::ValueId;
use crate::device::DeviceRun;
use crate::error::{Error, Result};
use crate::execution_stream::Stream;
use crate::memory::{Memory, align_size, begin_use, total};
use crate::program::Program;
use compiler::program::{BufferKind, Step, library_name};
use compiler::{Executable, Options};
use cpu::HostBuffer;
use ir::Graph;
use std::fmt;
use std::sync::Arc;

/// A class of memory (§6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub enum ArenaClass {
    /// Parameters.
    Params = 0,
    /// Intermediate values of a forward run, and residuals for backward.
    Activations,
    /// Scratch memory of kernels, matrix products and routines, and the addresses of values.
    Workspace,
    /// Gradients: intermediate ones of a backward run, and the results.
    Grads,
    /// Memory that is set for each run: inputs, outputs, linked values.
    External,
}

impl ArenaClass {
    /// Every class, in the order of `arena_sizes`.
    pub const ALL: [ArenaClass; 5] =
        [ArenaClass::Params, ArenaClass::Activations, ArenaClass::Workspace, ArenaClass::Grads, ArenaClass::External];

    /// Returns the name in reports.
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

/// A value in memory, with the first and last segment of its lifetime, both inclusive (§5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The name in reports.
    pub name: String,
    /// The first segment that uses the value.
    pub start: usize,
    /// The last segment that uses the value.
    pub end: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// The arena.
    pub class: ArenaClass,
    /// Offset in the arena, a multiple of 64.
    pub offset: usize,
}

/// A step of the schedule: a fused kernel, a matrix product or a copy (§7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The name of the step in reports.
    pub name: String,
    /// Whether the step is a generated kernel, and not a matrix product, copy or loop.
    pub fused: bool,
    /// Indices of the intervals that the step reads or writes.
    pub values: Vec<usize>,
}

/// The name and memory class of an input or output of a graph.
#[derive(Clone, Debug)]
pub(crate) struct EdgeInfo {
    pub(crate) name: String,
    pub(crate) class: ArenaClass,
}

/// A compiled graph with its memory layout.
pub(crate) struct CompiledLayout {
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sizes: [usize; 5],
    /// The index of the interval of each input, then of each output.
    pub(crate) edge_intervals: Vec<usize>,
}

impl CompiledLayout {
    /// Compiles a graph. Intermediate values have class `inner`. If `general` is true, the code also works for other sizes.
    pub(crate) fn new(
        graph: &Graph,
        inputs: &[EdgeInfo],
        outputs: &[EdgeInfo],
        inner: ArenaClass,
        backend: &Backend,
        general: bool,
    ) -> Result<CompiledLayout> {
        let program = compiler::compile(graph, backend, &Options::default())?;
        let executable = backend.load_in_arenas(program, general)?;
        let program = executable.program();
        let mut sizes = [0usize; 5];
        let last = program.steps.len().saturating_sub(1);
        let mut intervals = Vec::new();
        let mut of_buffer = vec![None; program.buffers.len()];
        let mut edges = Vec::new();
        // Inputs and outputs are placed one after another in their arenas, since they are live during the whole run.
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
            *size = total(&[*size, ty.bytes()])?;
        }
        let base = sizes[inner as usize];
        for (i, b) in program.buffers.iter().enumerate() {
            of_buffer[i] = match (&b.kind, b.lifetime) {
                (BufferKind::Input(n), _) => Some(edges[*n]),
                (BufferKind::Output(n), _) => Some(edges[inputs.len() + *n]),
                (BufferKind::Activation, Some((start, end))) => {
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
        sizes[inner as usize] = total(&[base, program.arena_bytes])?;
        // Kernels run one after another, so they share scratch memory (§5.4).
        sizes[ArenaClass::Workspace as usize] = executable.arena_bytes() - align_size(program.arena_bytes)?;
        let segments = program.steps.iter().map(|s| segment(s, &of_buffer)).collect();
        Ok(CompiledLayout { executable, intervals, segments, sizes, edge_intervals: edges })
    }

    /// Returns the size in bytes of the inputs and outputs of a class.
    pub(crate) fn edge_bytes(&self, class: ArenaClass) -> usize {
        let edges = self.edge_intervals.iter().map(|&i| &self.intervals[i]).filter(|i| i.class == class);
        edges.map(|i| i.offset + i.bytes).max().unwrap_or(0)
    }

    /// Returns the arena sizes of bindings: parameters (0 if shared), inputs and outputs, residuals, and the arena of a run.
    pub(crate) fn arenas(&self, sharing: bool) -> [usize; 4] {
        let params = if sharing { 0 } else { self.edge_bytes(ArenaClass::Params) };
        let (external, kept) = (self.edge_bytes(ArenaClass::External), self.edge_bytes(ArenaClass::Activations));
        [params, external, kept, self.run_bytes()]
    }

    /// Returns the size in bytes of the arena of a run: intermediate values, then workspace.
    pub(crate) fn run_bytes(&self) -> usize {
        self.executable.arena_bytes()
    }

    /// Runs the schedule. If the backend has a device, the device starts each segment.
    pub(crate) fn run(
        &self,
        bindings: &mut compiler::Bindings,
        arena: &mut HostBuffer,
        backend: &Backend,
    ) -> Result<()> {
        let count = self.segments.len();
        let Some(device) = backend.device() else {
            return Ok(self.executable.run_with_arena(bindings, arena, 0..count)?);
        };
        let mut run = DeviceRun::new(self, bindings, arena);
        (0..count).try_for_each(|i| {
            device.launch(i, &mut run)?;
            run.check_segments_run(i + 1)
        })
    }

    /// Looks for two values of one arena that overlap while both are live (§16); there must be none. A result may reuse the
    /// memory of an operand whose last use is the same step: then both have the same offset and size, and only that step in
    /// common.
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

fn segment(step: &Step, of_buffer: &[Option<usize>]) -> Segment {
    let mut values = Vec::new();
    step.for_each_slice(&mut |p, _| {
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

/// A program's schedule and memory layout on a backend. It is immutable, serves any number of runs, and can be shared between
/// threads.
#[derive(Clone)]
pub struct Plan {
    pub(crate) program: Arc<Program>,
    pub(crate) backend: Backend,
    pub(crate) layout: Arc<CompiledLayout>,
}

impl Plan {
    /// Plans a program for a backend.
    pub fn new(program: &Arc<Program>, backend: &Backend) -> Result<Plan> {
        Plan::with_code(program, backend, false)
    }

    /// Plans a program. If `general` is true, the code also works for programs of other sizes and is compiled once for all of
    /// them.
    pub(crate) fn with_code(program: &Arc<Program>, backend: &Backend, general: bool) -> Result<Plan> {
        let (inputs, outputs) = edge_infos(program);
        let layout =
            CompiledLayout::new(program.graph(), &inputs, &outputs, ArenaClass::Activations, backend, general)?;
        Ok(Plan { program: program.clone(), backend: backend.clone(), layout: Arc::new(layout) })
    }

    /// Returns the program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the size in bytes of every arena, in the order of [`ArenaClass::ALL`].
    pub fn arena_sizes(&self) -> [usize; 5] {
        self.layout.sizes
    }

    /// Returns the offset and lifetime of each value.
    pub fn intervals(&self) -> &[Interval] {
        &self.layout.intervals
    }

    /// Returns the offset of an input, parameter or output (§5.5).
    pub fn place(&self, v: crate::ValueId) -> Result<&Interval> {
        let p = &self.program;
        let find = |list: &[crate::ValueId]| list.iter().position(|x| *x == v);
        let inputs = self.layout.executable.program().inputs.len();
        let edge = find(p.inputs())
            .or_else(|| find(p.params()).map(|i| p.inputs().len() + i))
            .or_else(|| find(p.outputs()).map(|i| inputs + i));
        let edge =
            edge.ok_or_else(|| Error::invalid_arg(format!("value {} is not an input, parameter or output", v.0)))?;
        Ok(&self.layout.intervals[self.layout.edge_intervals[edge]])
    }

    /// Returns the segments in execution order.
    pub fn segments(&self) -> &[Segment] {
        &self.layout.segments
    }

    /// Returns two values that overlap in memory while both are live. A correct plan has none.
    pub fn overlap(&self) -> Option<(&Interval, &Interval)> {
        self.layout.overlap()
    }

    /// Allocates zeroed memory for parameters, inputs, outputs, activations and workspace.
    pub fn bind(&self) -> Result<Bindings> {
        Bindings::new(&self.program, &self.layout, &self.backend, None, None)
    }

    /// Allocates memory, but shares the parameters of other bindings, such as those of another profile of the same model (§6.3).
    pub fn bind_sharing(&self, params: &Bindings) -> Result<Bindings> {
        Bindings::new(&self.program, &self.layout, &self.backend, Some(params), None)
    }

    /// Returns the size in bytes of one block for all memory of a run, for [`Plan::bind_in`]. If `sharing` is true, the
    /// parameters are shared and not included.
    pub fn memory_bytes(&self, sharing: bool) -> Result<usize> {
        total(&self.layout.arenas(sharing))
    }

    /// Binds in one block of the caller's memory, which contains all memory that runs use. Nothing else is allocated.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tensorloom_vsla::{Backend, DType, Memory, Plan, ProgramBuilder, Stream, Tensor};
    ///
    /// let mut b = ProgramBuilder::new();
    /// let x = b.input("x", DType::F64, &[4])?;
    /// let y = b.conv1d(x, x)?;
    /// b.output(y)?;
    /// let backend = Backend::cpu(1);
    /// let plan = Plan::new(&Arc::new(b.build()?), &backend)?;
    /// // Here the block is the backend's; `Memory::from_raw` takes any other.
    /// let block = Memory::new(plan.memory_bytes(false)?, &backend)?;
    /// let mut bound = plan.bind_in(block, None)?;
    /// bound.write(x, &Tensor::vector(&[1.0f64, 1.0]))?;
    /// plan.execute(&mut bound, &Stream::default())?;
    /// assert_eq!(bound.read(y)?, Tensor::vector(&[1.0f64, 2.0, 1.0]));
    /// # Ok::<(), tensorloom_vsla::Error>(())
    /// ```
    pub fn bind_in(&self, memory: Memory, params: Option<&Bindings>) -> Result<Bindings> {
        Bindings::new(&self.program, &self.layout, &self.backend, params, Some(memory))
    }

    pub(crate) fn check(&self, bindings: &Bindings) -> Result<()> {
        if Arc::ptr_eq(&bindings.program, &self.program) {
            return Ok(());
        }
        Err(Error::invalid_arg("these bindings belong to another program; bind them with this plan"))
    }

    /// Runs the program: reads inputs and parameters from the bindings and writes the outputs there. The run has finished when
    /// this returns; [`Stream::submit`] does not wait. Allocates nothing.
    pub fn execute(&self, bindings: &mut Bindings, stream: &Stream) -> Result<()> {
        self.check(bindings)?;
        stream.wait_for_submitted()?;
        self.run(bindings)
    }

    /// Runs the program on the caller's data without a copy (§7.2): each given input is read from its slice, and each given
    /// output is written to its slice, instead of the bindings. Data that isn't aligned to its elements, and an output that
    /// overlaps other given data, is copied. Allocates nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tensorloom_vsla::{Backend, DType, Plan, ProgramBuilder, Stream};
    ///
    /// let mut b = ProgramBuilder::new();
    /// let x = b.input("x", DType::F32, &[3])?;
    /// let y = b.mul_scalar(x, 2.0)?;
    /// b.output(y)?;
    /// let plan = Plan::new(&Arc::new(b.build()?), &Backend::cpu(1))?;
    /// let (from, mut to) = ([1f32, 2.0, 3.0], [0u8; 12]);
    /// let from: Vec<u8> = from.iter().flat_map(|x| x.to_le_bytes()).collect();
    /// plan.execute_on(&mut plan.bind()?, &[(x, &from)], &mut [(y, &mut to)], &Stream::default())?;
    /// assert_eq!(to[8..], 6f32.to_le_bytes());
    /// # Ok::<(), tensorloom_vsla::Error>(())
    /// ```
    pub fn execute_on(
        &self,
        bindings: &mut Bindings,
        inputs: &[(ValueId, &[u8])],
        outputs: &mut [(ValueId, &mut [u8])],
        stream: &Stream,
    ) -> Result<()> {
        self.check(bindings)?;
        stream.wait_for_submitted()?;
        let mut lent = bindings.borrow_data();
        for (v, data) in inputs {
            // SAFETY: the borrow outlives the loan, which ends in this function. Runs don't write inputs.
            unsafe { lent.input(*v, data.as_ptr().cast_mut(), data.len())? };
        }
        for (v, data) in outputs.iter_mut() {
            // SAFETY: as above, and the borrow is unique.
            unsafe { lent.output(*v, data.as_mut_ptr(), data.len())? };
        }
        self.run(lent.bindings())?;
        outputs.iter_mut().try_for_each(|(v, data)| lent.copy_back(*v, data))
    }

    pub(crate) fn run(&self, bindings: &mut Bindings) -> Result<()> {
        self.check(bindings)?;
        bindings.check_inputs()?;
        let _held = begin_use(&bindings.shared)?;
        self.layout.run(&mut bindings.inner, &mut bindings.arena, &self.backend)?;
        bindings.spares.finish_run();
        Ok(())
    }
}

/// Returns the names and memory classes of a program's inputs and outputs.
pub(crate) fn edge_infos(program: &Program) -> (Vec<EdgeInfo>, Vec<EdgeInfo>) {
    let label = |v: &crate::ValueId, class: ArenaClass| EdgeInfo {
        name: match program.values()[v.0 as usize].name.as_str() {
            "" => format!("v{}", v.0),
            name => name.to_string(),
        },
        class,
    };
    let mut inputs: Vec<EdgeInfo> = program.inputs().iter().map(|v| label(v, ArenaClass::External)).collect();
    inputs.extend(program.params().iter().map(|v| label(v, ArenaClass::Params)));
    if program.is_random() {
        inputs.push(EdgeInfo { name: "seed".to_string(), class: ArenaClass::External });
    }
    let outputs = program.outputs().iter().map(|v| label(v, ArenaClass::External)).collect();
    (inputs, outputs)
}

/// Prints the memory report of §14.1: the arenas, then the schedule.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan for {}", self.backend.name())?;
        report(f, &[&self.layout], self.memory_bytes(false))
    }
}

/// Prints the arenas and schedules of plans that run together.
pub(crate) fn report(f: &mut fmt::Formatter<'_>, layouts: &[&CompiledLayout], block: Result<usize>) -> fmt::Result {
    for class in ArenaClass::ALL {
        let bytes: usize = layouts.iter().map(|l| l.sizes[class as usize]).max().unwrap_or(0);
        let mut count = 0;
        let mut sum = 0;
        for i in layouts.iter().flat_map(|l| &l.intervals).filter(|i| i.class == class) {
            count += 1;
            sum += i.bytes;
        }
        write!(f, "  {:<12}{:>12}", class.name(), format_bytes(bytes))?;
        if class != ArenaClass::Workspace {
            write!(f, "  {count} value{}", if count == 1 { "" } else { "s" })?;
        }
        if sum > bytes {
            write!(f, ", {} without reuse", format_bytes(sum))?;
        }
        writeln!(f)?;
    }
    if let Ok(bytes) = block {
        writeln!(f, "  in one block{:>11}", format_bytes(bytes))?;
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

fn format_bytes(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut x, mut unit) = (bytes as f64, 0);
    while x >= 1024.0 && unit + 1 < units.len() {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{x:.1} {}", units[unit]) }
}
