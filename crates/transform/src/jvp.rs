//! Forward-mode differentiation.

use crate::builder::TransformBuilder;
use ir::{Error, Graph, GraphBuilder, Result, Type, Value};

/// Computes values and tangents: inputs are the primals, then the tangents of the inputs marked in `active`; outputs are the
/// primal outputs, then the tangents of the outputs marked in the result. An output marked in `want` has a tangent even if it
/// is zero. Only floats have tangents.
pub fn jvp(graph: &Graph, active: &[bool], want: &[bool]) -> Result<(Graph, Vec<bool>)> {
    let types = graph.input_types();
    if active.len() != types.len() {
        return Err(Error::Invalid(format!("{} flags for {} inputs", active.len(), types.len())));
    }
    if let Some(i) = (0..types.len()).find(|&i| active[i] && !types[i].dtype.is_float()) {
        return Err(Error::Invalid(format!("input {i} is {}, and only floats have tangents", types[i])));
    }
    let mut cx = TransformBuilder::new();
    let x: Vec<Value> = types.iter().map(|t| cx.input(t.clone())).collect();
    let dx: Vec<Option<Value>> = types.iter().zip(active).map(|(t, &a)| a.then(|| cx.input(t.clone()))).collect();
    let (y, dy) = forward(&mut cx, graph, &x, &dx)?;
    let mut outputs = y.clone();
    let mut has = Vec::with_capacity(y.len());
    for (i, (&v, d)) in y.iter().zip(&dy).enumerate() {
        let tangent = match d {
            Some(d) => Some(*d),
            None if want.get(i) == Some(&true) && cx.ty(v).dtype.is_float() => Some(cx.full_like(v, 0.0)?),
            None => None,
        };
        has.push(tangent.is_some());
        outputs.extend(tangent);
    }
    Ok((cx.finish(&outputs), has))
}

/// Adds a graph's values and tangents to `cx`.
fn forward(
    cx: &mut TransformBuilder,
    graph: &Graph,
    x: &[Value],
    dx: &[Option<Value>],
) -> Result<(Vec<Value>, Vec<Option<Value>>)> {
    let live = graph.live_values();
    let mut values = vec![Value(u32::MAX); graph.num_values()];
    let mut tangents: Vec<Option<Value>> = vec![None; graph.num_values()];
    for (i, v) in graph.inputs().iter().enumerate() {
        values[v.0 as usize] = x[i];
        tangents[v.0 as usize] = dx[i];
    }
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        cx.set_loc(&node.loc);
        let args: Vec<Value> = node.args.iter().map(|a| values[a.0 as usize]).collect();
        let dargs: Vec<Option<Value>> = node.args.iter().map(|a| tangents[a.0 as usize]).collect();
        let op = &node.op;
        let (outs, douts) = if dargs.iter().all(Option::is_none) {
            let outs = cx.emit(node.op.clone(), &args)?.to_vec();
            let none = vec![None; outs.len()];
            (outs, none)
        } else {
            let types: Vec<Type> = args.iter().map(|&v| cx.ty(v)).collect();
            match op.differentiate_as(&types)? {
                Some(other) => forward(cx, &other, &args, &dargs)?,
                None => match op.jvp_with_values(cx, &args, &dargs).map_err(|e| e.at(&node.loc))? {
                    Some(both) => both,
                    None => {
                        let outs = cx.emit(node.op.clone(), &args)?.to_vec();
                        let douts = op.jvp(cx, &args, &dargs, &outs).map_err(|e| e.at(&node.loc))?;
                        (outs, douts)
                    }
                },
            }
        };
        for ((v, y), d) in node.outs.iter().zip(outs).zip(douts) {
            values[v.0 as usize] = y;
            tangents[v.0 as usize] = d;
        }
    }
    let outs = graph.outputs();
    Ok((outs.iter().map(|v| values[v.0 as usize]).collect(), outs.iter().map(|v| tangents[v.0 as usize]).collect()))
}
