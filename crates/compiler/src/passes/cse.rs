//! Common subexpression elimination and dead code elimination.

use ir::{Graph, Op, Result, Value, Values};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// Merges equal nodes. Every op is pure, so nodes with equal ops and operands have equal results. Only a rematerialized body
/// must not be merged with the nodes that it repeats; here it is a separate op.
pub fn cse(graph: &Graph) -> Result<Graph> {
    // Nodes by their hash; equality is then checked on the nodes.
    let mut known: FxHashMap<u64, SmallVec<[u32; 2]>> = FxHashMap::default();
    let merged = super::rewrite_graph(graph, |b, node, operands| {
        let op = super::map_bodies(&node.op, &mut |g| cse(g))?;
        let like = known.entry(hash(&op, operands)).or_default();
        for &n in like.iter() {
            let other = &b.graph.nodes()[n as usize];
            if other.args[..] == *operands && other.op == op {
                return Ok(Values::from_slice(&other.outs));
            }
        }
        like.push(b.graph.nodes().len() as u32);
        Ok(b.graph.push_like(graph, node, op, operands, node.loc.clone()))
    })?;
    Ok(merged.pruned())
}

fn hash(op: &Op, operands: &[Value]) -> u64 {
    let mut h = FxHasher::default();
    (op, operands).hash(&mut h);
    h.finish()
}
