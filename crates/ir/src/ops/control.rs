//! `call`: a function as an op, inlined when compiled; and the rules that all ops with one body share.

use super::*;
use crate::build::PartialEvalGraphs;

pub(crate) fn infer_body(body: &Graph, args: &[Type]) -> Infer {
    let ins = body.input_types();
    if args.len() != ins.len() {
        return Err(InferError::Arity { expected: ins.len().to_string(), got: args.len() });
    }
    for (i, (have, need)) in args.iter().zip(&ins).enumerate() {
        if have != need {
            return Err(InferError::other(format!("operand {i} is {have}, but the body expects {need}")));
        }
    }
    Ok(body.output_types())
}

/// Computes values and tangents of an op with a body; `wrap` creates the op from the body's jvp.
pub(crate) fn value_and_jvp_body(
    body: &Graph,
    cx: &mut dyn GraphTransforms,
    x: &[Value],
    dx: &[Option<Value>],
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<(Vec<Value>, Tangents)> {
    let active: Vec<bool> = dx.iter().map(Option::is_some).collect();
    let no = body.outputs().len();
    let (graph, out) = cx.jvp_of(body, &active, &vec![false; no])?;
    let args: Vec<Value> = x.iter().copied().chain(dx.iter().flatten().copied()).collect();
    let results = cx.emit(wrap(graph), &args)?;
    let mut found = results[no..].iter().copied();
    let tangents = out.iter().map(|&o| if o { found.next() } else { None }).collect();
    Ok((results[..no].to_vec(), tangents))
}

/// Computes only the tangents, for an op whose values are computed elsewhere.
pub(crate) fn jvp_body(
    body: &Graph,
    cx: &mut dyn GraphTransforms,
    x: &[Value],
    dx: &[Option<Value>],
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Tangents> {
    Ok(value_and_jvp_body(body, cx, x, dx, wrap)?.1)
}

/// Computes the cotangents of an op with a body; `wrap` creates the op from the transposed body.
pub(crate) fn transpose_body(
    body: &Graph,
    cx: &mut dyn GraphTransforms,
    args: &[TransposeArg],
    ct: &[Option<Value>],
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Tangents> {
    if ct.iter().all(Option::is_none) {
        return Ok(vec![None; args.len()]);
    }
    let linear: Vec<bool> = args.iter().map(TransposeArg::is_linear).collect();
    let has: Vec<bool> = ct.iter().map(Option::is_some).collect();
    let (graph, gives) = cx.transpose_of(body, &linear, &has)?;
    let operands: Vec<Value> =
        args.iter().filter_map(TransposeArg::known).chain(ct.iter().flatten().copied()).collect();
    let results = cx.emit(wrap(graph), &operands)?;
    let mut out = vec![None; args.len()];
    let mut results = results.into_iter();
    let linear_places = (0..args.len()).filter(|&i| linear[i]);
    for (i, &g) in linear_places.zip(&gives) {
        if g {
            out[i] = results.next();
        }
    }
    Ok(out)
}

/// Batches an op with a body; `wrap` creates the op from the batched body.
pub(crate) fn batch_body(
    body: &Graph,
    cx: &mut dyn GraphTransforms,
    x: &[Value],
    batched: &[bool],
    size: usize,
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Vec<(Value, bool)>> {
    let (graph, outs) = cx.vmap_of(body, batched, &vec![false; body.outputs().len()], size)?;
    let results = cx.emit(wrap(graph), x)?;
    Ok(results.into_iter().zip(outs).collect())
}

/// The source of each output if both parts return their outputs in order.
pub(crate) fn known_then_unknown(known: &[bool]) -> Vec<OutputSource> {
    let (mut k, mut u) = (0, 0);
    let place = |&is_known: &bool| {
        let slot = if is_known { &mut k } else { &mut u };
        *slot += 1;
        match is_known {
            true => OutputSource::Known(*slot - 1),
            false => OutputSource::Unknown(*slot - 1),
        }
    };
    known.iter().map(place).collect()
}

pub(crate) fn known_indices(flags: &[bool], want: bool) -> Vec<usize> {
    (0..flags.len()).filter(|&i| flags[i] == want).collect()
}

/// Calls a graph; inlined when compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The graph.
    pub body: Arc<Graph>,
}

impl Call {
    /// A call of a graph.
    pub fn new(body: Graph) -> Call {
        Call { body: Arc::new(body) }
    }

    /// Computes values and tangents with one op.
    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        value_and_jvp_body(&self.body, cx, x, dx, |g| Call::new(g).into())
    }
}

impl Rules for Call {
    fn name(&self) -> &'static str {
        "call"
    }

    fn attrs(&self) -> Attrs {
        vec![("body", (&self.body).into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        infer_body(&self.body, args)
    }

    jvp_of_body!();

    fn partial_eval(&self, cx: &mut dyn GraphTransforms, _: &[Type], known: &[bool]) -> Result<PartialEval> {
        let s: PartialEvalGraphs = cx.partial_eval_of(&self.body, known)?;
        let known_args = known_indices(known, true);
        let n_known = s.known_outs.iter().filter(|k| **k).count();
        let mut rest_args: Vec<ResidualArg> = (0..s.residuals)
            .map(|r| match s.forwarded[r] {
                Some(f) => ResidualArg::Arg(known_args[f]),
                None => ResidualArg::Residual(n_known + r),
            })
            .collect();
        rest_args.extend(known_indices(known, false).into_iter().map(ResidualArg::Arg));
        Ok(PartialEval::Parts(SplitOp {
            known: Some((Call::new(s.known).into(), known_args)),
            unknown: (n_known < s.known_outs.len()).then(|| (Call::new(s.unknown).into(), rest_args)),
            outs: known_then_unknown(&s.known_outs),
        }))
    }

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        transpose_body(&self.body, cx, args, ct, |g| Call::new(g).into())
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        batch_body(&self.body, cx, x, batched, size, |g| Call::new(g).into())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Inline(self.body.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Call>> {
        (name == "call").then(|| Ok(Call { body: attrs.graph("body")? }))
    }
}
