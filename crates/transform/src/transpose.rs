//! Transposition: converts a linear map from inputs to outputs to the map from cotangents of outputs to those of inputs.

use crate::builder::TransformBuilder;
use ir::ops::TransposeArg;
use ir::{Error, Graph, GraphBuilder, Result, Value};

/// Transposes a graph that is linear in the inputs marked in `linear`. Inputs of the result are the other inputs, then
/// the cotangents of the outputs marked in `ct`; outputs are the cotangents of the linear inputs that have one, as marked in the
/// second result (in the order of the linear inputs).
pub fn transpose(graph: &Graph, linear: &[bool], ct: &[bool]) -> Result<(Graph, Vec<bool>)> {
    transpose_with(graph, linear, ct, false)
}

/// Like `transpose`; the reverse rules of composites stay composites if `by_rules`.
pub(crate) fn transpose_with(
    graph: &Graph,
    linear: &[bool],
    ct: &[bool],
    by_rules: bool,
) -> Result<(Graph, Vec<bool>)> {
    if linear.len() != graph.inputs().len() || ct.len() != graph.outputs().len() {
        return Err(Error::Invalid("transpose needs a flag for each input and output".into()));
    }
    let mut cx = TransformBuilder::with_reverse_rules(by_rules);
    let n = graph.num_values();
    let mut known: Vec<Option<Value>> = vec![None; n];
    for (&v, &l) in graph.inputs().iter().zip(linear) {
        if !l {
            known[v.0 as usize] = Some(cx.input(graph.ty(v).clone()));
        }
    }
    let mut cts: Vec<Option<Value>> = vec![None; n];
    let out_cts: Vec<Option<Value>> =
        graph.outputs().iter().zip(ct).map(|(&v, &c)| c.then(|| cx.input(graph.ty(v).clone()))).collect();
    for (v, c) in graph.outputs().iter().zip(out_cts) {
        cts[v.0 as usize] = cx.add_optional(cts[v.0 as usize], c)?;
    }
    // Forward: everything that does not depend on a linear input.
    let live = graph.live_values();
    let mut linear_nodes = Vec::new();
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        let args: Option<Vec<Value>> = node.args.iter().map(|a| known[a.0 as usize]).collect();
        match args {
            Some(args) => {
                cx.set_loc(&node.loc);
                for (v, y) in node.outs.iter().zip(cx.emit(node.op.clone(), &args)?) {
                    known[v.0 as usize] = Some(y);
                }
            }
            None => linear_nodes.push(node),
        }
    }
    // Backward through the linear nodes.
    for node in linear_nodes.into_iter().rev() {
        let out_cts: Vec<Option<Value>> = node.outs.iter().map(|v| cts[v.0 as usize]).collect();
        if out_cts.iter().all(Option::is_none) {
            continue;
        }
        cx.set_loc(&node.loc);
        let args: Vec<TransposeArg> = node
            .args
            .iter()
            .map(|a| match known[a.0 as usize] {
                Some(v) => TransposeArg::Known(v),
                None => TransposeArg::Linear(graph.ty(*a).clone()),
            })
            .collect();
        let grads = node.op.transpose(&mut cx, &args, &out_cts).map_err(|e| e.at(&node.loc))?;
        debug_assert_eq!(grads.len(), args.len(), "{} transposed", node.op.name());
        for ((a, arg), g) in node.args.iter().zip(&args).zip(grads) {
            if arg.is_linear() {
                cts[a.0 as usize] = cx.add_optional(cts[a.0 as usize], g)?;
            }
        }
    }
    let linear_inputs = graph.inputs().iter().zip(linear).filter(|(_, l)| **l);
    let results: Vec<Option<Value>> = linear_inputs.map(|(v, _)| cts[v.0 as usize]).collect();
    let outputs: Vec<Value> = results.iter().flatten().copied().collect();
    Ok((cx.finish(&outputs), results.iter().map(Option::is_some).collect()))
}
