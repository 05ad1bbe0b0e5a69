//! Subgraphs: the Graph that computes some values from others, for differentiation.

use ir::{Graph, Op, Value};
use rustc_hash::FxHashMap;

/// The part of a graph between some inputs and outputs.
pub(crate) struct Subgraph {
    /// Its inputs are the `wrt` values, then `captured`; its outputs are the requested values.
    pub(crate) graph: Graph,
    /// Values of the whole graph that the subgraph takes as inputs without differentiating them.
    pub(crate) captured: Vec<Value>,
}

/// The part of `graph` that computes `outs` from `wrt`. Values without a differentiable dependence on `wrt` are captured.
pub(crate) fn subgraph_between(graph: &Graph, wrt: &[Value], outs: &[Value]) -> ir::Result<Subgraph> {
    let mut depends = vec![false; graph.num_values()];
    let cut: FxHashMap<Value, usize> = wrt.iter().enumerate().map(|(i, v)| (*v, i)).collect();
    for v in wrt {
        depends[v.0 as usize] = true;
    }
    for node in graph.nodes() {
        let any = node.args.iter().any(|a| depends[a.0 as usize]) && !matches!(node.op, Op::StopGradient(_));
        for v in &node.outs {
            depends[v.0 as usize] |= any;
        }
    }
    let mut needed = vec![false; graph.num_values()];
    for v in outs {
        needed[v.0 as usize] = true;
    }
    let inside = |n: &ir::Node, needed: &[bool]| {
        n.outs.iter().any(|v| needed[v.0 as usize] && depends[v.0 as usize] && !cut.contains_key(v))
    };
    for node in graph.nodes().iter().rev() {
        if inside(node, &needed) {
            for a in &node.args {
                needed[a.0 as usize] = true;
            }
        }
    }
    let mut part = Graph::new();
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    for v in wrt {
        let x = part.input(graph.ty(*v).clone());
        map.insert(*v, x);
    }
    let mut captured = Vec::new();
    for (i, n) in needed.iter().enumerate() {
        let v = Value(i as u32);
        if *n && !depends[i] {
            map.insert(v, part.input(graph.ty(v).clone()));
            captured.push(v);
        }
    }
    for node in graph.nodes() {
        if !inside(node, &needed) {
            continue;
        }
        let args: Vec<Value> = node.args.iter().map(|a| map[a]).collect();
        for (v, x) in node.outs.iter().zip(part.push(node.op.clone(), &args, node.loc.clone())?) {
            map.entry(*v).or_insert(x);
        }
    }
    part.set_outputs(outs.iter().map(|v| map[v]).collect::<Vec<_>>());
    Ok(Subgraph { graph: part, captured })
}
