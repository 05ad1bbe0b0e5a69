//! Rematerializes cheap values instead of keeping them in memory for a distant consumer.
//!
//! A training step computes `sigmoid(gate)` in its forward half and reads it again in its backward half. If it is kept, it is
//! written, occupies memory in between, and is read again. Recomputing it from `gate`, which the backward half reads anyway,
//! costs a few instructions. So a value in memory is recomputed for its distant consumers if it is cheap and its operands
//! are live there anyway.

use crate::target::RecomputePolicy;
use ir::{Graph, Node, Value, Values};
use rustc_hash::FxHashSet;

/// Recomputes cheap values next to their distant consumers. `kept` states which values would be in memory and the cost of each,
/// `heavy` which nodes are separate steps, `operand` which value such a node reads from memory, and `keep` the target's thresholds
/// for cheap and distant.
pub fn rematerialize_cheap(
    graph: &Graph,
    (kept, cost): &(Vec<bool>, Vec<u32>),
    heavy: &dyn Fn(&Node) -> bool,
    operand: &dyn Fn(&Node, usize) -> Value,
    keep: &RecomputePolicy,
) -> Graph {
    let n = graph.num_values();
    // The number of heavy ops before each node, and the last use of each value, including uses through inlined values.
    let mut before = Vec::with_capacity(graph.nodes().len());
    let mut count = 0;
    for node in graph.nodes() {
        before.push(count);
        count += heavy(node) as usize;
    }
    let (mut last, mut made) = (vec![0usize; n], vec![0usize; n]);
    let mut fixed = vec![false; n];
    graph.outputs().iter().for_each(|v| fixed[v.0 as usize] = true);
    for (k, node) in graph.nodes().iter().enumerate().rev() {
        let here = node.outs.iter().filter(|o| !kept[o.0 as usize]).map(|o| last[o.0 as usize]).max().unwrap_or(0);
        for a in &node.args {
            last[a.0 as usize] = last[a.0 as usize].max(here).max(before[k]);
        }
        for o in &node.outs {
            made[o.0 as usize] = before[k];
        }
        if heavy(node) {
            for i in 0..node.args.len() {
                fixed[operand(node, i).0 as usize] = true;
            }
            node.outs.iter().for_each(|o| fixed[o.0 as usize] = true);
        }
    }
    let alive = |v: Value, at: usize| last[v.0 as usize] >= at || graph.node_of(v).is_none();
    let chosen: Vec<bool> = (0..n)
        .map(|i| {
            let v = Value(i as u32);
            kept[i]
                && !fixed[i]
                && cost[i] <= keep.max_recompute_cost
                && last[i] > made[i] + keep.min_distance
                && graph.node_of(v).is_some_and(|node| {
                    node.outs.len() == 1
                        && !matches!(node.op.semantics(), ir::Semantics::Reduce(..))
                        && leaves(graph, kept, node).iter().all(|&l| alive(l, last[i]) || small(graph, l, v))
                })
        })
        .collect();
    if !chosen.contains(&true) {
        return graph.clone();
    }

    let (mut g, inputs) = graph.with_inputs_of();
    let mut map: Vec<Option<Value>> = vec![None; n];
    let mut copies: Vec<Option<Value>> = vec![None; n];
    graph.inputs().iter().zip(inputs).for_each(|(v, new)| map[v.0 as usize] = Some(new));
    let mut touched = chosen;
    for node in graph.nodes() {
        if let [out] = node.outs[..] {
            touched[out.0 as usize] |= !kept[out.0 as usize] && node.args.iter().any(|a| touched[a.0 as usize]);
        }
    }
    let mut rebuild = Rebuild { graph, touched: &touched, g: &mut g, map: &mut map, copies: &mut copies };
    for (k, node) in graph.nodes().iter().enumerate() {
        let mut args = Values::new();
        for &a in &node.args {
            let distant = before[k] > made[a.0 as usize] + keep.min_distance && touched[a.0 as usize];
            args.push(if distant { rebuild.recompute_value(a) } else { rebuild.map[a.0 as usize].expect("in order") });
        }
        let outs = rebuild.g.push_like(graph, node, node.op.clone(), &args, node.loc.clone());
        for (o, new) in node.outs.iter().zip(outs) {
            rebuild.map[o.0 as usize] = Some(new);
        }
    }
    let outs: Vec<Value> =
        graph.outputs().iter().map(|o| map[o.0 as usize].expect("every output is computed")).collect();
    g.set_outputs(outs);
    g.pruned()
}

/// The values in memory that a node's results are computed from.
fn leaves(graph: &Graph, kept: &[bool], node: &Node) -> Vec<Value> {
    let mut out = Vec::new();
    let mut seen = FxHashSet::default();
    let mut stack = node.args.to_vec();
    while let Some(v) = stack.pop() {
        if !seen.insert(v) {
            continue;
        }
        match graph.node_of(v) {
            Some(below) if !kept[v.0 as usize] => stack.extend(&below.args),
            _ => out.push(v),
        }
    }
    out
}

/// Whether `leaf` is much smaller than `v`, so that keeping it alive costs little.
fn small(graph: &Graph, leaf: Value, v: Value) -> bool {
    graph.ty(leaf).bytes() * 8 <= graph.ty(v).bytes()
}

struct Rebuild<'a> {
    graph: &'a Graph,
    /// Values that are selected, or computed inline from selected values.
    touched: &'a [bool],
    g: &'a mut Graph,
    map: &'a mut [Option<Value>],
    copies: &'a mut [Option<Value>],
}

impl Rebuild<'_> {
    /// Recomputes a value from values in memory.
    fn recompute_value(&mut self, v: Value) -> Value {
        if let Some(t) = self.copies[v.0 as usize] {
            return t;
        }
        if !self.touched[v.0 as usize] {
            return self.map[v.0 as usize].expect("in order");
        }
        let graph = self.graph;
        let node = graph.node_of(v).expect("chosen values are computed");
        let args: Values = node.args.iter().map(|&a| self.recompute_value(a)).collect();
        let new = self.g.push_like(graph, node, node.op.clone(), &args, node.loc.clone())[0];
        self.copies[v.0 as usize] = Some(new);
        new
    }
}
