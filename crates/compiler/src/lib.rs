//! `compile`: Graph → Program, and the kernel IR that every backend reads.

// The tests' backend is a file of the integration tests.
#[cfg(test)]
extern crate self as tensorloom_compiler;

pub mod backend;
pub mod clock;
mod communicator;
mod donate;
mod explain;
mod fence;
pub mod fuse;
pub mod interrupt;
pub mod loops;
mod made_there;
mod overwrite;
pub mod passes;
mod plan;
mod products;
pub mod program;
mod serial;
mod steps;
mod strided;
pub mod target;
mod verify;

pub use backend::{Backend, Bindings, DeviceBuffer, Executable, Runs, Timing};
pub use communicator::{Communicator, DeviceCommunicator, Talking};
pub use explain::{Explanation, Note};
pub use fence::{Fence, Pending, Reading};
pub use passes::Pass;
pub use plan::ALIGN;
pub use program::{Program, UncheckedProgram};
pub use target::Target;

use ir::{Graph, Type};
use program::{Class, Parts, Place};

/// What can go wrong while compiling or running.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The graph is not valid, or an op does not fit.
    #[error(transparent)]
    Graph(#[from] ir::Error),
    /// Memory could not be had.
    #[error("out of memory: {bytes} bytes were asked for{hint}")]
    OutOfMemory {
        /// How many.
        bytes: usize,
        /// What to do.
        hint: &'static str,
    },
    /// The owner of the program has set a limit.
    #[error(
        "the limit on memory is {limit} bytes, {live} are in use and {bytes} more were asked for; drop tensors, use smaller \
         ones, or raise the limit"
    )]
    MemoryLimit {
        /// How many.
        bytes: usize,
        /// In use.
        live: usize,
        /// The limit.
        limit: usize,
    },
    /// Inputs or outputs of a run don't fit the program.
    #[error("{0}")]
    Bindings(String),
    /// The backend can't do it.
    #[error("{0}")]
    Backend(String),
    /// Who asked for the run wants it no more ([`interrupt`]). Its outputs, and inputs donated to them, are half written.
    #[error("the run was interrupted between two of its steps; call it again for a result")]
    Interrupted,
    /// A buffer is written while something else reads or writes it.
    #[error("{0}; a buffer that is written is used by nothing else meanwhile")]
    InUse(String),
    /// A saved program can't be used.
    #[error("a saved program: {0}")]
    Program(String),
    /// A fault of the compiler itself.
    #[error("internal fault of the compiler: {0}")]
    Internal(String),
}

/// Results of the compiler.
pub type Result<T> = std::result::Result<T, Error>;

/// What may be chosen about a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Let the backend take composites whole; otherwise all are inlined.
    pub claims: bool,
    /// (input, output) pairs that the caller would like to bind to one buffer; [`program::Parts::donated`] says which may be.
    pub donate: Vec<(usize, usize)>,
    /// Elements from which on an operand of a product is computed while it is packed rather than before, if it can be;
    /// the target's own figure if none is given.
    pub computed_operands: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { claims: true, donate: Vec::new(), computed_operands: None }
    }
}

/// Compiles a graph for a backend.
pub fn compile(graph: &Graph, backend: &dyn Backend, options: &Options) -> Result<Program> {
    Ok(compile_with(graph, backend, options, None)?.0)
}

/// Compiles a graph and says of each step what was fused into it, and why not more.
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
    let claims = |c: &ir::ops::Composite, types: &[Type]| options.claims && backend.claims(c, types);
    let target = backend.target();
    let mut g = std::borrow::Cow::Borrowed(graph);
    for pass in Pass::ORDER {
        g = std::borrow::Cow::Owned(pass.run(&g, &claims, target)?);
    }
    if !options.donate.is_empty() {
        g = std::borrow::Cow::Owned(passes::updates::updates(&g, &options.donate, &|op| backend.overwrites(op))?);
    }
    target.check(&g)?;
    debug_assert!(ir::verify::verify(&g).is_ok());

    let pair = |&(i, o): &(usize, usize)| Some((*g.inputs().get(i)?, *g.outputs().get(o)?));
    let replaced = options.donate.iter().filter_map(pair).collect();
    let runs = |op: &ir::Op, types: &[Type]| backend.runs(op, types);
    let mut lowering = steps::Lowering {
        target,
        runs: &runs,
        buffers: Vec::new(),
        levels: 0,
        replaced,
        computed_operands: options.computed_operands,
        explanation,
    };
    let (inputs, outputs) = (g.input_types(), g.output_types());
    let ins: Vec<Place> =
        inputs.iter().enumerate().map(|(i, t)| Place::of(lowering.buffer(t.clone(), Class::Input(i)))).collect();
    let outs: Vec<Place> =
        outputs.iter().enumerate().map(|(i, t)| Place::of(lowering.buffer(t.clone(), Class::Output(i)))).collect();
    let mut steps = Vec::new();
    lowering.graph(&g, &ins, &outs, 0, &mut steps)?;
    let levels = lowering.levels;
    let mut program =
        Parts { buffers: lowering.buffers, inputs, outputs, steps, arena: 0, levels, donated: Vec::new() };
    made_there::join(&mut program, &options.donate, backend);
    plan::plan(&mut program);
    program.donated = donate::donations(&program, &options.donate, backend);
    let program = Program::compiled(program);
    // Tests can ask that whatever is compiled be proved.
    if cfg!(debug_assertions) && std::env::var_os("TENSORLOOM_VERIFY").is_some() {
        verify::verify(&program)?;
    }
    Ok((program, lowering.explanation.unwrap_or_default()))
}
