//! Rematerialisation: trading memory of backward for computing again.

use ir::ops::{Remat, RematPolicy};
use ir::{Builder, Graph, GraphBuilder, Result, Value};

/// The same function, of which backward keeps only what the policy says; the rest of its inside is computed again.
pub fn remat(graph: &Graph, policy: RematPolicy) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(Remat::with_policy(graph.clone(), policy).into(), &args)?;
    Ok(b.finish(&outs))
}
