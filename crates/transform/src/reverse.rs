//! Reverse-mode differentiation: jvp, partial evaluation, transposition.

use crate::builder::TransformBuilder;
use ir::{Error, Graph, GraphBuilder, Result, Scalar, Value};

/// A linearized function: a part that computes values and residuals, and a linear part.
#[derive(Clone, Debug)]
pub struct Linearized {
    /// Maps the inputs to the outputs, then the residuals.
    pub known: Graph,
    /// Maps the residuals, then the tangents of the active inputs, to the tangents marked in `tangents`.
    pub linear: Graph,
    /// The number of residuals.
    pub residuals: usize,
    /// Which outputs have a tangent.
    pub tangents: Vec<bool>,
}

/// Separates a function into values and a linear map of tangents.
pub fn linearize(graph: &Graph, active: &[bool]) -> Result<Linearized> {
    let n = graph.inputs().len();
    let outs = graph.outputs().len();
    let (both, tangents) = crate::jvp(graph, active, &vec![false; outs])?;
    let known: Vec<bool> = (0..both.inputs().len()).map(|i| i < n).collect();
    let s = crate::partial_eval(&both, &known)?;
    // Primal outputs never depend on tangents: an op's `partial_eval` must respect that. A tangent may be known (an explicit
    // constant zero); the linear part then returns it unchanged.
    if let Some(i) = s.known_outs[..outs].iter().position(|k| !*k) {
        return Err(Error::Invalid(format!("output {i} was taken to depend on tangents")));
    }
    if s.known_outs[outs..].iter().all(|k| !*k) {
        return Ok(Linearized { known: s.known, linear: s.unknown, residuals: s.residuals, tangents });
    }
    let mut known_graph = Graph::new();
    let args: Vec<Value> = s.known.input_types().into_iter().map(|t| known_graph.input(t)).collect();
    let values = s.known.inline(&mut known_graph, &args)?;
    let n_known = s.known_outs.iter().filter(|k| **k).count();
    let mut outputs = values[..outs].to_vec();
    outputs.extend(&values[n_known..]);
    outputs.extend(&values[outs..n_known]);
    known_graph.set_outputs(outputs);
    // Residuals: those of the partial evaluation, then the known tangents.
    let extra = n_known - outs;
    let mut linear = Graph::new();
    let types = s.unknown.input_types();
    let residuals: Vec<Value> = types[..s.residuals].iter().map(|t| linear.input(t.clone())).collect();
    let known_tangents: Vec<Value> = (0..extra)
        .map(|i| linear.input(known_graph.ty(known_graph.outputs()[outs + s.residuals + i]).clone()))
        .collect();
    let dx: Vec<Value> = types[s.residuals..].iter().map(|t| linear.input(t.clone())).collect();
    let rest = s.unknown.inline(&mut linear, &[residuals, dx].concat())?;
    let (mut k, mut r) = (known_tangents.into_iter(), rest.into_iter());
    let results: Vec<Value> = s.known_outs[outs..]
        .iter()
        .map(|&is_known| if is_known { k.next() } else { r.next() }.expect("one for each output"))
        .collect();
    linear.set_outputs(results);
    Ok(Linearized { known: known_graph, linear, residuals: s.residuals + extra, tangents })
}

/// Reverse mode: inputs are the function's inputs, then a cotangent for every float output; outputs are the function's
/// outputs, then the cotangent of every input in `wrt`.
pub fn vjp(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    vjp_with(graph, wrt, false)
}

/// Like [`vjp`], for executing a graph op by op: the reverse rule of a composite stays one op, like its forward op.
pub fn vjp_by_rules(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    vjp_with(graph, wrt, true)
}

fn vjp_with(graph: &Graph, wrt: &[usize], by_rules: bool) -> Result<Graph> {
    let types = graph.input_types();
    let mut active = vec![false; types.len()];
    for &i in wrt {
        match types.get(i) {
            Some(t) if t.dtype.is_float() => active[i] = true,
            Some(t) => return Err(Error::Invalid(format!("input {i} is {t}; only floats have gradients"))),
            None => return Err(Error::Invalid(format!("there is no input {i}"))),
        }
    }
    let lin = linearize(graph, &active)?;
    let outs = graph.outputs().len();
    let n_active = active.iter().filter(|a| **a).count();
    let linear_flags: Vec<bool> = (0..lin.residuals + n_active).map(|i| i >= lin.residuals).collect();
    let n_tangents = lin.tangents.iter().filter(|t| **t).count();
    let (back, gives) =
        crate::transpose::transpose_with(&lin.linear, &linear_flags, &vec![true; n_tangents], by_rules)?;

    let mut cx = TransformBuilder::new();
    let x: Vec<Value> = types.iter().map(|t| cx.input(t.clone())).collect();
    let mut cts = Vec::new();
    for (i, t) in graph.output_types().into_iter().enumerate() {
        if t.dtype.is_float() {
            let c = cx.input(t);
            if lin.tangents[i] {
                cts.push(c);
            }
        }
    }
    let values = cx.inline(&lin.known, &x)?;
    let mut outputs = values[..outs].to_vec();
    let args: Vec<Value> = values[outs..].iter().chain(&cts).copied().collect();
    let mut grads = cx.inline(&back, &args)?.into_iter();
    let active_inputs: Vec<usize> = (0..types.len()).filter(|&i| active[i]).collect();
    let mut found = vec![None; types.len()];
    for (&i, &g) in active_inputs.iter().zip(&gives) {
        if g {
            found[i] = grads.next();
        }
    }
    for &i in wrt {
        outputs.push(match found[i] {
            Some(g) => g,
            None => cx.zeros(&types[i])?,
        });
    }
    Ok(cx.finish(&outputs))
}

/// The outputs and the gradients of the first output, a float of rank 0, with respect to the inputs in `wrt`.
pub fn value_and_grad(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    let out_types = graph.output_types();
    match out_types.first() {
        Some(t) if t.rank() == 0 && t.dtype.is_float() => {}
        Some(t) => {
            return Err(Error::Invalid(format!(
                "grad needs a float of rank 0, but the first output is {t}; sum it, or use vjp"
            )));
        }
        None => return Err(Error::Invalid("a function without outputs has no gradient".into())),
    }
    let back = vjp(graph, wrt)?;
    let mut cx = TransformBuilder::new();
    let mut args: Vec<Value> = graph.input_types().into_iter().map(|t| cx.input(t)).collect();
    for (i, t) in out_types.iter().enumerate().filter(|(_, t)| t.dtype.is_float()) {
        let seed = if i == 0 { Scalar::one(t.dtype) } else { Scalar::zero(t.dtype) };
        args.push(cx.full(t, seed)?);
    }
    let outs = cx.inline(&back, &args)?;
    Ok(cx.finish(&outs))
}

/// The gradients of the first output.
pub fn grad(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    let both = value_and_grad(graph, wrt)?;
    let mut g = both.clone();
    g.set_outputs(both.outputs()[graph.outputs().len()..].to_vec());
    Ok(g.without_dead_nodes())
}
