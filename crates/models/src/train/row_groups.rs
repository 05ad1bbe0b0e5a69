//! Splits the rows of a batch into independent groups: tokens are sorted to experts within a group, so ranks with different
//! groups need no communication. Results are the same, since a token's experts don't depend on other tokens.

use ir::{Builder, Graph, GraphBuilder, Op, Result, Value};
use lang::lower::Lowered;

/// Whether rows of a graph depend on each other only because tokens are sorted to experts.
pub(super) fn needs_row_groups(lowered: &Lowered) -> bool {
    fn has(graph: &Graph) -> bool {
        graph.nodes().iter().any(|n| match &n.op {
            Op::RaggedDot(_) => true,
            Op::Scan(s) => has(&s.body),
            Op::Call(c) => has(&c.body),
            Op::Remat(r) => has(&r.body),
            Op::Composite(c) => has(&c.body),
            _ => false,
        })
    }
    !lowered.needs_rng && lowered.observations.is_empty() && has(&lowered.graph)
}

/// Applies the graph of one group to all: from (parameters.., token IDs of all rows) to results of all rows.
pub(super) fn split_row_groups(graph: &Graph, params: usize, groups: usize) -> Result<Graph> {
    let types = graph.input_types();
    let batched: Vec<bool> = (0..types.len()).map(|i| i >= params).collect();
    let (many, _) = transform::vmap(graph, &batched, &vec![true; graph.outputs().len()], groups)?;
    let mut b = Builder::new();
    let mut args: Vec<Value> = types[..params].iter().map(|t| b.graph.input(t.clone())).collect();
    for ty in &types[params..] {
        let mut all = ty.clone();
        all.shape[0] *= groups;
        let x = b.graph.input(all);
        args.push(b.reshape(x, &ty.batched(groups).shape)?);
    }
    let mut outs = b.inline(&many, &args)?;
    for out in &mut outs {
        let mut shape = b.ty(*out).shape;
        let groups = shape.remove(0);
        shape[0] *= groups;
        *out = b.reshape(*out, &shape)?;
    }
    Ok(b.finish(&outs))
}
