//! Rows of a batch in groups that don't meet: tokens are sorted to experts within a group, so ranks that have different groups
//! need nothing of each other. Results are the same, since a token's experts don't depend on other tokens.

use ir::{Builder, Graph, GraphBuilder, Op, Result, Value};
use lang::lower::Lowered;

/// Whether rows meet in a graph because tokens are sorted to experts, and nothing else stands in the way of groups.
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

/// The graph of one group, for all: from (parameters.., ids of all rows) to results of all rows.
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
