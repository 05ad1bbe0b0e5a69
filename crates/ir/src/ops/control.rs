//! `call`: a function as an op, inlined when compiled; and what every op with one body shares.

use super::*;
use crate::build::SplitGraph;

pub(crate) fn infer_body(body: &Graph, args: &[Type]) -> Infer {
    let ins = body.input_types();
    if args.len() != ins.len() {
        return Err(Problem::Arity { expected: ins.len().to_string(), got: args.len() });
    }
    for (i, (have, need)) in args.iter().zip(&ins).enumerate() {
        if have != need {
            return Err(Problem::other(format!("operand {i} is {have}, but the body expects {need}")));
        }
    }
    Ok(body.output_types())
}

/// The values and tangents of an op with a body, where `wrap` makes the op from the body's jvp.
pub(crate) fn both_of_body(
    body: &Graph,
    cx: &mut dyn Cx,
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

/// The tangents alone, for an op whose values come from elsewhere.
pub(crate) fn jvp_body(
    body: &Graph,
    cx: &mut dyn Cx,
    x: &[Value],
    dx: &[Option<Value>],
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Tangents> {
    Ok(both_of_body(body, cx, x, dx, wrap)?.1)
}

/// The cotangents of an op with a body, where `wrap` makes the op from the transposed body.
pub(crate) fn transpose_body(
    body: &Graph,
    cx: &mut dyn Cx,
    args: &[Arg],
    ct: &[Option<Value>],
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Tangents> {
    if ct.iter().all(Option::is_none) {
        return Ok(vec![None; args.len()]);
    }
    let linear: Vec<bool> = args.iter().map(Arg::is_linear).collect();
    let has: Vec<bool> = ct.iter().map(Option::is_some).collect();
    let (graph, gives) = cx.transpose_of(body, &linear, &has)?;
    let operands: Vec<Value> = args.iter().filter_map(Arg::known).chain(ct.iter().flatten().copied()).collect();
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

/// A batch of an op with a body, where `wrap` makes the op from the batched body.
pub(crate) fn batch_body(
    body: &Graph,
    cx: &mut dyn Cx,
    x: &[Value],
    batched: &[bool],
    size: usize,
    wrap: impl FnOnce(Graph) -> Op,
) -> Result<Vec<(Value, bool)>> {
    let (graph, outs) = cx.vmap_of(body, batched, &vec![false; body.outputs().len()], size)?;
    let results = cx.emit(wrap(graph), x)?;
    Ok(results.into_iter().zip(outs).collect())
}

/// Where outputs come from when each half gives its own in order.
pub(crate) fn outs_from(known: &[bool]) -> Vec<OutFrom> {
    let (mut k, mut u) = (0, 0);
    let place = |&is_known: &bool| {
        let slot = if is_known { &mut k } else { &mut u };
        *slot += 1;
        match is_known {
            true => OutFrom::Known(*slot - 1),
            false => OutFrom::Rest(*slot - 1),
        }
    };
    known.iter().map(place).collect()
}

pub(crate) fn known_places(flags: &[bool], want: bool) -> Vec<usize> {
    (0..flags.len()).filter(|&i| flags[i] == want).collect()
}

/// Calls a graph; inlined when compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// What is called.
    pub body: Arc<Graph>,
}

impl Call {
    /// A call of a graph.
    pub fn new(body: Graph) -> Call {
        Call { body: Arc::new(body) }
    }

    /// Values and tangents from one op.
    fn both(&self, cx: &mut dyn Cx, x: &[Value], dx: &[Option<Value>]) -> Result<(Vec<Value>, Tangents)> {
        both_of_body(&self.body, cx, x, dx, |g| Call::new(g).into())
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

    fn split(&self, cx: &mut dyn Cx, _: &[Type], known: &[bool]) -> Result<Split> {
        let s: SplitGraph = cx.split_of(&self.body, known)?;
        let known_args = known_places(known, true);
        let n_known = s.known_outs.iter().filter(|k| **k).count();
        let mut rest_args: Vec<RestArg> = (0..s.residuals)
            .map(|r| match s.forwarded[r] {
                Some(f) => RestArg::Arg(known_args[f]),
                None => RestArg::Residual(n_known + r),
            })
            .collect();
        rest_args.extend(known_places(known, false).into_iter().map(RestArg::Arg));
        Ok(Split::Parts(Parts {
            known: Some((Call::new(s.known).into(), known_args)),
            rest: (n_known < s.known_outs.len()).then(|| (Call::new(s.rest).into(), rest_args)),
            outs: outs_from(&s.known_outs),
        }))
    }

    fn transpose(&self, cx: &mut dyn Cx, args: &[Arg], ct: &[Option<Value>]) -> Result<Tangents> {
        transpose_body(&self.body, cx, args, ct, |g| Call::new(g).into())
    }

    fn batch(&self, cx: &mut dyn Cx, x: &[Value], batched: &[bool], size: usize) -> Result<Vec<(Value, bool)>> {
        batch_body(&self.body, cx, x, batched, size, |g| Call::new(g).into())
    }

    fn saves(&self) -> Saves {
        Saves::nothing()
    }

    fn precision(&self) -> Precision {
        Precision::Wide
    }

    fn meaning(&self) -> Meaning {
        Meaning::Inline(self.body.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Call>> {
        (name == "call").then(|| Ok(Call { body: attrs.graph("body")? }))
    }
}
