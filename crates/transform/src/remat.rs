//! Rematerialization: trades memory of the backward pass for recomputation.

use ir::ops::{Remat, RematPolicy};
use ir::{Builder, Graph, GraphBuilder, Result, Value};

/// Wraps a function so that the backward pass stores only the residuals that the policy allows, and recomputes the rest.
pub fn remat(graph: &Graph, policy: RematPolicy) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(Remat::with_policy(graph.clone(), policy).into(), &args)?;
    Ok(b.finish(&outs))
}
