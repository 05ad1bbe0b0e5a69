//! The checks. Each takes a graph, with sample inputs where it needs them, and says what is wrong in words.
//!
//! Those that look at derivatives and batching go through [`Transforms`], so that a suite can hand in transforms that
//! are wrong on purpose and see that they are caught.

mod grad;
mod vmap;

pub use grad::{Verdict, grads, grads_with, second_order, second_order_with, tangents};
pub use vmap::{batched, stack, unstack, vmap, vmap_with};

use ir::{Graph, Literal, Result, interp};

/// What a check found: nothing, or a description of the fault.
pub type Check = std::result::Result<(), String>;

type JvpFn = dyn Fn(&Graph, &[bool]) -> Result<(Graph, Vec<bool>)>;
type VjpFn = dyn Fn(&Graph, &[usize]) -> Result<Graph>;
type VmapFn = dyn Fn(&Graph, &[Option<usize>], &[usize], usize) -> Result<Graph>;

/// The transforms under test.
pub struct Transforms {
    /// [`transform::jvp`] without wanted tangents.
    pub jvp: Box<JvpFn>,
    /// [`transform::vjp`].
    pub vjp: Box<VjpFn>,
    /// [`transform::vmap_axes`].
    pub vmap: Box<VmapFn>,
}

impl Default for Transforms {
    fn default() -> Transforms {
        Transforms {
            jvp: Box::new(|g, active| transform::jvp(g, active, &[])),
            vjp: Box::new(transform::vjp),
            vmap: Box::new(transform::vmap_axes),
        }
    }
}

/// The graph keeps the verifier's invariants.
pub fn verified(graph: &Graph) -> Check {
    ir::verify::verify(graph).map_err(|e| format!("{e}\n{graph}"))
}

/// Printing and parsing gives the graph back.
pub fn text(graph: &Graph) -> Check {
    let printed = graph.to_string();
    let parsed = ir::text::parse(&printed).map_err(|e| format!("does not parse: {e}\n{printed}"))?;
    let again = parsed.to_string();
    if again != printed {
        return Err(format!("printed, parsed and printed again it differs:\n{printed}\n{again}"));
    }
    if parsed.structural_hash() != graph.structural_hash() {
        return Err(format!("parsing changed the structure:\n{printed}"));
    }
    verified(&parsed)
}

/// Results on the interpreter, with types as the graph declares them.
pub fn run(graph: &Graph, inputs: &[Literal]) -> std::result::Result<Vec<Literal>, String> {
    let outs = interp::run(graph, inputs).map_err(|e| format!("does not run: {e}\n{graph}"))?;
    for (i, (t, y)) in graph.output_types().iter().zip(&outs).enumerate() {
        if t != y.ty() {
            return Err(format!("output {i} is declared {t} but evaluates to {}\n{graph}", y.ty()));
        }
    }
    Ok(outs)
}
