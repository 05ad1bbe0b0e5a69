//! The checks. Each takes a graph, with sample inputs if necessary, and returns a description of the error.
//!
//! Checks of derivatives and batching use [`Transforms`], so that a test can pass incorrect transforms
//! and check that they are detected.

mod grad;
mod vmap;

pub use grad::{GradOutcome, check_grads, check_grads_with, check_jvp, check_second_order, check_second_order_with};
pub use vmap::{batched, check_vmap, check_vmap_with, stack, unstack};

use ir::{Graph, Literal, Result, interp};

/// The result of a check: success, or a description of the error.
pub type CheckResult = std::result::Result<(), String>;

type JvpFn = dyn Fn(&Graph, &[bool]) -> Result<(Graph, Vec<bool>)>;
type VjpFn = dyn Fn(&Graph, &[usize]) -> Result<Graph>;
type VmapFn = dyn Fn(&Graph, &[Option<usize>], &[usize], usize) -> Result<Graph>;

/// The transforms under test.
pub struct Transforms {
    /// [`transform::jvp`] without requested tangents.
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

/// Checks that the graph satisfies the verifier's invariants.
pub fn check_verifier(graph: &Graph) -> CheckResult {
    ir::verify::verify(graph).map_err(|e| format!("{e}\n{graph}"))
}

/// Checks that printing and parsing reproduces the graph.
pub fn check_text_roundtrip(graph: &Graph) -> CheckResult {
    let printed = graph.to_string();
    let parsed = ir::text::parse(&printed).map_err(|e| format!("does not parse: {e}\n{printed}"))?;
    let again = parsed.to_string();
    if again != printed {
        return Err(format!("printed, parsed and printed again it differs:\n{printed}\n{again}"));
    }
    if parsed.structural_hash() != graph.structural_hash() {
        return Err(format!("parsing changed the structure:\n{printed}"));
    }
    check_verifier(&parsed)
}

/// Runs the interpreter, and checks that results have the declared types.
pub fn run(graph: &Graph, inputs: &[Literal]) -> std::result::Result<Vec<Literal>, String> {
    let outs = interp::run(graph, inputs).map_err(|e| format!("does not run: {e}\n{graph}"))?;
    for (i, (t, y)) in graph.output_types().iter().zip(&outs).enumerate() {
        if t != y.ty() {
            return Err(format!("output {i} is declared {t} but evaluates to {}\n{graph}", y.ty()));
        }
    }
    Ok(outs)
}
