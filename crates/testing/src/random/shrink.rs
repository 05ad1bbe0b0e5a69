//! Minimizes failing graphs.

use super::Sample;
use ir::{Graph, Literal, Op, Value, interp};

/// The smallest graph found that still fails: outputs are reduced to one node, and nodes are replaced by inputs.
pub fn shrink(sample: &Sample, fails: impl Fn(&Sample) -> bool) -> Sample {
    let mut best = sample.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(|c| fails(c));
        match smaller {
            Some(c) => best = c,
            None => return best,
        }
    }
}

fn candidates(s: &Sample) -> Vec<Sample> {
    let mut found = Vec::new();
    let n = s.graph.nodes().len();
    for k in 0..n {
        found.extend(ending_at(s, k));
    }
    for i in 0..s.graph.outputs().len() {
        if s.graph.outputs().len() > 1 {
            let mut graph = s.graph.clone();
            graph.set_outputs(vec![s.graph.outputs()[i]]);
            found.extend(trimmed(s, graph, &s.inputs));
        }
    }
    for k in 0..n {
        found.extend(starting_after(s, k));
    }
    let size = |g: &Graph| (g.nodes().len(), g.outputs().len());
    found.retain(|c| size(&c.graph) < size(&s.graph));
    found
}

/// Keeps only the results of node `k`.
fn ending_at(s: &Sample, k: usize) -> Option<Sample> {
    let mut graph = s.graph.clone();
    let node = &s.graph.nodes()[k];
    let public = match &node.op {
        Op::Composite(c) => c.num_public_outputs,
        _ => node.outs.len(),
    };
    graph.set_outputs(node.outs[..public].to_vec());
    trimmed(s, graph, &s.inputs)
}

/// Replaces the results of node `k` by inputs.
fn starting_after(s: &Sample, k: usize) -> Option<Sample> {
    let node = &s.graph.nodes()[k];
    let mut probe = s.graph.clone();
    probe.set_outputs(node.outs.to_vec());
    let values = interp::run(&probe, &s.inputs).ok()?;
    let mut graph = Graph::new();
    let mut map = vec![Value(u32::MAX); s.graph.num_values()];
    for &v in s.graph.inputs().iter().chain(&node.outs) {
        map[v.0 as usize] = graph.input(s.graph.ty(v).clone());
    }
    for (_, node) in s.graph.nodes().iter().enumerate().filter(|(i, _)| *i != k) {
        let args: Vec<Value> = node.args.iter().map(|a| map[a.0 as usize]).collect();
        let outs = graph.push(node.op.clone(), &args, node.loc.clone()).ok()?;
        for (v, o) in node.outs.iter().zip(outs) {
            map[v.0 as usize] = o;
        }
    }
    graph.set_outputs(s.graph.outputs().iter().map(|v| map[v.0 as usize]).collect::<Vec<_>>());
    let inputs: Vec<Literal> = s.inputs.iter().cloned().chain(values).collect();
    trimmed(s, graph, &inputs)
}

fn trimmed(s: &Sample, graph: Graph, inputs: &[Literal]) -> Option<Sample> {
    let (graph, used) = graph.without_dead_inputs();
    let inputs: Vec<Literal> = inputs.iter().zip(&used).filter(|(_, u)| **u).map(|(x, _)| x.clone()).collect();
    (!inputs.is_empty()).then_some(Sample { seed: s.seed, graph, inputs })
}
