//! `compile`: Graph → Program, and the kernel IR that every backend reads.

pub mod backend;
mod donate;
pub mod fuse;
pub mod loops;
pub mod passes;
mod plan;
pub mod program;
mod steps;
mod strided;

pub use backend::{Backend, Bindings, DeviceBuffer, Executable, Timing};
pub use plan::ALIGN;
pub use program::Program;

use ir::{Graph, Type};
use program::{Class, Place};

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
    /// Inputs or outputs of a run don't fit the program.
    #[error("{0}")]
    Bindings(String),
    /// The backend can't do it.
    #[error("{0}")]
    Backend(String),
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
    /// (input, output) pairs that the caller would like to bind to one buffer; [`Program::donated`] says which may be.
    pub donate: Vec<(usize, usize)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { claims: true, donate: Vec::new() }
    }
}

/// Compiles a graph for a backend. The passes, in order:
pub fn compile(graph: &Graph, backend: &dyn Backend, options: &Options) -> Result<Program> {
    ir::verify::verify(graph)?;
    let claims = |c: &ir::ops::Composite, types: &[Type]| options.claims && backend.claims(c, types);
    let g = passes::inline::inline(graph, &claims, false)?;
    let g = passes::simplify::simplify(&g)?;
    let g = passes::cse::cse(&g)?;
    let g = passes::inline::inline(&g, &claims, true)?;
    let g = passes::simplify::simplify(&g)?;
    let g = passes::dots::dots(&g)?;
    let g = passes::simplify::simplify(&g)?;
    debug_assert!(ir::verify::verify(&g).is_ok());

    let mut lowering = steps::Lowering { backend, buffers: Vec::new(), levels: 0 };
    let (inputs, outputs) = (g.input_types(), g.output_types());
    let ins: Vec<Place> =
        inputs.iter().enumerate().map(|(i, t)| Place::of(lowering.buffer(t.clone(), Class::Input(i)))).collect();
    let outs: Vec<Place> =
        outputs.iter().enumerate().map(|(i, t)| Place::of(lowering.buffer(t.clone(), Class::Output(i)))).collect();
    let mut steps = Vec::new();
    lowering.graph(&g, &ins, &outs, 0, &mut steps)?;
    let levels = lowering.levels;
    let mut program =
        Program { buffers: lowering.buffers, inputs, outputs, steps, arena: 0, levels, donated: Vec::new() };
    plan::plan(&mut program);
    program.donated = donate::donations(&program, &options.donate);
    Ok(program)
}
