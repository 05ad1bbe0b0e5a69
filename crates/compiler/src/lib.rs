//! `compile` lowers a graph to a program; `loops` is the kernel IR that every backend reads.

// The test backend is a file of the integration tests.
#[cfg(test)]
extern crate self as tensorloom_compiler;

pub mod backend;
pub mod clock;
mod communicator;
mod copy_elision;
pub mod debug;
mod donate;
mod explain;
mod fence;
pub mod fuse;
mod in_place;
pub mod interrupt;
pub mod loops;
mod matmul_operands;
pub mod passes;
mod plan;
pub mod program;
mod schedule;
mod serialize;
mod strided;
pub mod target;
mod verify;

pub use backend::{Backend, Bindings, DeviceBuffer, Executable, OpPlacement, Timing};
pub use communicator::{Communicator, DeviceCommunicator, PendingCollective};
pub use explain::{Explanation, StepExplanation};
pub use fence::{Completion, Fence, ReadFuture};
pub use passes::Pass;
pub use plan::ALIGN;
pub use program::{Program, UncheckedProgram};
pub use target::Target;

use ir::{Graph, Type};
use program::{BufferKind, BufferSlice, ProgramParts};

/// An error of compilation or of a run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The graph is invalid, or an op does not fit.
    #[error(transparent)]
    Graph(#[from] ir::Error),
    /// An allocation failed.
    #[error("out of memory: {bytes} bytes were requested{hint}")]
    OutOfMemory {
        /// The number of bytes requested.
        bytes: usize,
        /// What the user can do.
        hint: &'static str,
    },
    /// The memory limit that was set for this process is reached.
    #[error(
        "the memory limit is {limit} bytes, {live} are in use and {bytes} more were requested; drop tensors, use \
         smaller ones, or raise the limit"
    )]
    MemoryLimit {
        /// The number of bytes requested.
        bytes: usize,
        /// The number of bytes in use.
        live: usize,
        /// The limit.
        limit: usize,
    },
    /// The inputs or outputs of a run do not fit the program.
    #[error("{0}")]
    Bindings(String),
    /// The backend does not support the operation.
    #[error("{0}")]
    Backend(String),
    /// The run was interrupted ([`interrupt`]). Its outputs, and the inputs donated to them, are incomplete.
    #[error("the run was interrupted between two steps; call it again")]
    Interrupted,
    /// A buffer is written while another operation reads or writes it.
    #[error("{0}; a buffer that is written must not be used by anything else at the same time")]
    InUse(String),
    /// A saved program cannot be used.
    #[error("a saved program: {0}")]
    Program(String),
    /// A bug in the compiler.
    #[error("internal compiler error: {0}")]
    Internal(String),
}

/// Results of the compiler.
pub type Result<T> = std::result::Result<T, Error>;

/// Options of a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the backend may implement composites with its own kernels; otherwise all composites are inlined.
    pub fuse_composites: bool,
    /// (input, output) pairs that the caller wants to bind to one buffer; [`program::ProgramParts::donated`] lists the pairs
    /// that are safe.
    pub donate: Vec<(usize, usize)>,
    /// The minimum number of elements for which an operand of a matrix product is computed while it is packed instead of
    /// before; none uses the target's value.
    pub computed_operands: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse_composites: true, donate: Vec::new(), computed_operands: None }
    }
}

/// Compiles a graph for a backend.
pub fn compile(graph: &Graph, backend: &dyn Backend, options: &Options) -> Result<Program> {
    Ok(compile_with(graph, backend, options, None)?.0)
}

/// Compiles a graph and explains for each step what was fused into it, and why no more.
pub fn explain(graph: &Graph, backend: &dyn Backend, options: &Options) -> Result<(Program, Explanation)> {
    compile_with(graph, backend, options, Some(Explanation::default()))
}

fn compile_with(
    graph: &Graph,
    backend: &dyn Backend,
    options: &Options,
    explanation: Option<Explanation>,
) -> Result<(Program, Explanation)> {
    ir::verify::verify(graph)?;
    let claims =
        |c: &ir::ops::Composite, types: &[Type]| options.fuse_composites && backend.supports_composite(c, types);
    let target = backend.target();
    let mut report = debug::Report::compilation(graph, target.name);
    let mut g = std::borrow::Cow::Borrowed(graph);
    for pass in Pass::PIPELINE {
        g = std::borrow::Cow::Owned(pass.run(&g, &claims, target)?);
        report.iter_mut().for_each(|r| r.pass(pass.name(), &g));
    }
    if !options.donate.is_empty() {
        g = std::borrow::Cow::Owned(passes::update_to_scatter::updates_to_scatters(&g, &options.donate, &|op| {
            backend.supports_in_place(op)
        })?);
        report.iter_mut().for_each(|r| r.pass("updates", &g));
    }
    target.check_dtypes(&g)?;
    debug_assert!(ir::verify::verify(&g).is_ok());

    let pair = |&(i, o): &(usize, usize)| Some((*g.inputs().get(i)?, *g.outputs().get(o)?));
    let replaced = options.donate.iter().filter_map(pair).collect();
    let runs = |op: &ir::Op, types: &[Type]| backend.placement(op, types);
    let mut lowering = schedule::Lowering {
        target,
        placement: &runs,
        buffers: Vec::new(),
        levels: 0,
        donated_pairs: replaced,
        computed_operands: options.computed_operands,
        explanation: explanation.or_else(|| report.as_ref()?.explains().then(Explanation::default)),
    };
    let (inputs, outputs) = (g.input_types(), g.output_types());
    let ins: Vec<BufferSlice> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| BufferSlice::of(lowering.buffer(t.clone(), BufferKind::Input(i))))
        .collect();
    let outs: Vec<BufferSlice> = outputs
        .iter()
        .enumerate()
        .map(|(i, t)| BufferSlice::of(lowering.buffer(t.clone(), BufferKind::Output(i))))
        .collect();
    let mut steps = Vec::new();
    lowering.graph(&g, &ins, &outs, 0, &mut steps)?;
    let levels = lowering.levels;
    let mut program = ProgramParts {
        buffers: lowering.buffers,
        inputs,
        outputs,
        steps,
        arena_bytes: 0,
        max_loop_depth: levels,
        donated: Vec::new(),
    };
    copy_elision::elide_copies(&mut program, &options.donate, backend);
    plan::plan(&mut program);
    program.donated = donate::safe_donations(&program, &options.donate, backend);
    let program = Program::from_compiler(program, report.as_ref().map_or(0, debug::Report::number));
    let explanation = lowering.explanation.unwrap_or_default();
    report.iter_mut().for_each(|r| r.program(&program, &explanation));
    // Tests can request that every compiled program is verified.
    if cfg!(debug_assertions) && std::env::var_os("TENSORLOOM_VERIFY").is_some() {
        verify::verify(&program)?;
    }
    Ok((program, explanation))
}
