//! Common subexpressions are computed once; nodes that nobody needs are dropped.

use ir::{Graph, Op, Result, Value, Values};
use rustc_hash::FxHashMap;

/// Merges equal nodes. Every op is pure, so equal op and operands mean equal results; a rematerialised body is the one
/// thing that must not be merged with what it repeats, and it is an op of its own here.
pub fn cse(graph: &Graph) -> Result<Graph> {
    let mut g = Graph::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| g.input(t)).collect();
    let mut known: FxHashMap<(Op, Values), Values> = FxHashMap::default();
    let outs = graph.inline_with(&args, |node, operands| {
        let op = super::map_bodies(&node.op, &mut |g| cse(g))?;
        let key = (op, Values::from_slice(operands));
        if let Some(outs) = known.get(&key) {
            return Ok(outs.clone());
        }
        let outs = g.push(key.0.clone(), operands, node.loc.clone())?;
        known.insert(key, outs.clone());
        Ok(outs)
    })?;
    g.set_outputs(outs);
    Ok(g.without_dead_nodes())
}
