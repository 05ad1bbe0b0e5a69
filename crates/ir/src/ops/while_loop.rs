//! `while`: a loop that runs while its predicate is true.
//!
//! Operands are `cond_consts.., body_consts.., carries..`; `cond` maps `cond_consts.., carries..` to a bool of rank 0,
//! `body` maps `body_consts.., carries..` to new carries, which are the results. The number of iterations is not known
//! in advance, so residuals per iteration cannot be stored: only forward mode is supported.

use super::scan::{permute_interface, true_indices};
use super::*;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;

/// The number of iterations after which the interpreter returns an error.
const LIMIT: u64 = 1_000_000_000;

/// `while(consts.., carries..)`: a loop of unknown length; forward mode only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct While {
    /// The predicate.
    pub cond: Arc<Graph>,
    /// The body, one iteration.
    pub body: Arc<Graph>,
    /// The number of operands that only the predicate reads.
    pub cond_consts: usize,
    /// The number of operands that only the body reads.
    pub body_consts: usize,
}

impl While {
    /// A loop; the results of the body are the carries.
    pub fn new(cond_consts: usize, body_consts: usize, cond: Graph, body: Graph) -> While {
        While { cond: Arc::new(cond), body: Arc::new(body), cond_consts, body_consts }
    }

    fn carries(&self) -> usize {
        self.body.outputs().len()
    }

    /// The flags of a sub-graph's operands: its constants and the carries.
    fn cond_flags(&self, consts: &[bool], carries: &[bool]) -> Vec<bool> {
        [&consts[..self.cond_consts], carries].concat()
    }

    fn body_flags(&self, consts: &[bool], carries: &[bool]) -> Vec<bool> {
        [&consts[self.cond_consts..self.cond_consts + self.body_consts], carries].concat()
    }

    /// Computes values and tangents with one op.
    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        let (nc, nb, nk) = (self.cond_consts, self.body_consts, self.carries());
        let d_body: Vec<bool> = dx[nc..nc + nb].iter().map(Option::is_some).collect();
        let mut carry: Vec<bool> = dx[nc + nb..].iter().map(Option::is_some).collect();
        // A carry that has a tangent in some iteration has one in every iteration.
        let body = loop {
            let (body, out) = cx.jvp_of(&self.body, &[&d_body[..], &carry].concat(), &carry)?;
            if out == carry {
                break body;
            }
            for (c, o) in carry.iter_mut().zip(&out) {
                *c |= o;
            }
        };
        // The body's jvp takes constants, carries, tangents of both; a loop needs the constants and their tangents first.
        let d_consts = true_indices(&d_body).count();
        let d_carries = true_indices(&carry).count();
        let order: Vec<usize> = (0..nb)
            .chain(nb + nk..nb + nk + d_consts)
            .chain(nb..nb + nk)
            .chain(nb + nk + d_consts..nb + nk + d_consts + d_carries)
            .collect();
        let outs: Vec<usize> = (0..nk + d_carries).collect();
        let body = permute_interface(&body, &order, &outs)?;
        let types: Vec<Type> = true_indices(&carry).map(|i| cx.ty(x[nc + nb + i])).collect();
        let cond = ignoring(&self.cond, &types)?;
        let mut args = x[..nc + nb].to_vec();
        args.extend(dx[nc..nc + nb].iter().flatten());
        args.extend_from_slice(&x[nc + nb..]);
        for i in true_indices(&carry) {
            args.push(match dx[nc + nb + i] {
                Some(d) => d,
                None => cx.full_like(x[nc + nb + i], 0.0)?,
            });
        }
        let results = cx.emit(While::new(nc, nb + d_consts, cond, body).into(), &args)?;
        let mut tangents = vec![None; nk];
        for (i, &d) in true_indices(&carry).zip(&results[nk..]) {
            tangents[i] = Some(d);
        }
        Ok((results[..nk].to_vec(), tangents))
    }
}

/// A copy of the graph with additional unused inputs at the end.
fn ignoring(graph: &Graph, extra: &[Type]) -> Result<Graph> {
    let mut g = Graph::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| g.input(t)).collect();
    for t in extra {
        g.input(t.clone());
    }
    let outs = graph.inline(&mut g, &args)?;
    g.set_outputs(outs);
    Ok(g)
}

impl Rules for While {
    fn name(&self) -> &'static str {
        "while"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("cond_consts", self.cond_consts.into()),
            ("body_consts", self.body_consts.into()),
            ("cond", (&self.cond).into()),
            ("body", (&self.body).into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let carries = self.carries();
        let consts = self.cond_consts.saturating_add(self.body_consts);
        if args.len() != consts.saturating_add(carries) {
            return Err(InferError::Arity {
                expected: format!("{consts} constants and {carries} carries"),
                got: args.len(),
            });
        }
        let (consts, carry) = args.split_at(consts);
        let (cond_consts, body_consts) = consts.split_at(self.cond_consts);
        let verdict = control::infer_body(&self.cond, &[cond_consts, carry].concat())?;
        if verdict != [Type::scalar(DType::Bool)] {
            return Err(InferError::other("the predicate must return one bool[]"));
        }
        let outs = control::infer_body(&self.body, &[body_consts, carry].concat())?;
        for (i, (init, next)) in carry.iter().zip(&outs).enumerate() {
            if init != next {
                return Err(InferError::other(format!(
                    "carry {i} enters as {init} and is returned as {next}; a carry must keep its type"
                )));
            }
        }
        Ok(outs)
    }

    jvp_of_body!();

    /// The known part is the loop over the carries that depend only on known values, if those determine the number of iterations.
    /// The unknown part is the whole loop again, because residuals per iteration cannot be stored.
    fn partial_eval(&self, cx: &mut dyn GraphTransforms, _: &[Type], known: &[bool]) -> Result<PartialEval> {
        let (nc, nb, nk) = (self.cond_consts, self.body_consts, self.carries());
        let mut carry = known[nc + nb..].to_vec();
        let body = loop {
            let s = cx.partial_eval_of(&self.body, &self.body_flags(known, &carry))?;
            let lost: Vec<usize> = (0..nk).filter(|&i| carry[i] && !s.known_outs[i]).collect();
            if lost.is_empty() {
                break s;
            }
            for i in lost {
                carry[i] = false;
            }
        };
        let used = self.cond.used_inputs();
        let decided = (self.cond_flags(known, &carry).iter().zip(&used)).all(|(k, u)| *k || !u);
        let kept: Vec<usize> = true_indices(&carry).collect();
        if !decided || kept.is_empty() {
            return Ok(PartialEval::Atomic);
        }
        let at = |i: usize| body.known_outs[..i].iter().filter(|k| **k).count();
        let ins: Vec<usize> = (0..body.known.inputs().len()).collect();
        let outs: Vec<usize> = kept.iter().map(|&i| at(i)).collect();
        let known_body = permute_interface(&body.known, &ins, &outs)?;
        // The predicate does not read unknown carries and constants.
        let cond_in: Vec<usize> = true_indices(&self.cond_flags(known, &carry)).collect();
        let known_cond = permute_interface(&self.cond, &cond_in, &[0])?;
        let count = |flags: &[bool]| flags.iter().filter(|k| **k).count();
        let half = While::new(count(&known[..nc]), count(&known[nc..nc + nb]), known_cond, known_body);
        let known_args: Vec<usize> = true_indices(&known[..nc + nb]).chain(kept.iter().map(|i| nc + nb + i)).collect();
        let rest = (kept.len() < nk).then(|| (self.clone().into(), (0..known.len()).map(ResidualArg::Arg).collect()));
        let outs = (0..nk)
            .map(|i| match kept.iter().position(|&k| k == i) {
                Some(k) => OutputSource::Known(k),
                None => OutputSource::Unknown(i),
            })
            .collect();
        Ok(PartialEval::Parts(SplitOp { known: Some((half.into(), known_args)), unknown: rest, outs }))
    }

    fn transpose(&self, _: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        if ct.iter().all(Option::is_none) {
            return Ok(vec![None; args.len()]);
        }
        Err(Error::no_rule(
            "while",
            "transpose",
            "reverse mode needs a bounded loop: use scan (a bounded scan stops early)",
        ))
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let (nc, nb, nk) = (self.cond_consts, self.body_consts, self.carries());
        let mut carry = batched[nc + nb..].to_vec();
        let (cond, body, each_its_own) = loop {
            let (body, out) = cx.vmap_of(&self.body, &self.body_flags(batched, &carry), &carry, size)?;
            let (cond, verdict) = cx.vmap_of(&self.cond, &self.cond_flags(batched, &carry), &[false], size)?;
            // If the predicate is batched, a finished element keeps its carries, so all carries are batched.
            let next: Vec<bool> = (0..nk).map(|i| carry[i] || out[i] || verdict[0]).collect();
            if next == carry {
                break (cond, body, verdict[0]);
            }
            carry = next;
        };
        let mut carries = Vec::with_capacity(nk);
        for i in 0..nk {
            let v = x[nc + nb + i];
            carries.push(if carry[i] && !batched[nc + nb + i] { cx.broadcast_leading(v, size)? } else { v });
        }
        let (op, args) = if each_its_own {
            (masked(&cond, &body, nc, nb)?, [&x[..nc], &x[..nc + nb], &carries].concat())
        } else {
            (While::new(nc, nb, cond, body), [&x[..nc + nb], &carries].concat())
        };
        Ok(cx.emit(op.into(), &args)?.into_iter().zip(carry).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (consts, init) = args.split_at(self.cond_consts + self.body_consts);
        let (cond_consts, body_consts) = consts.split_at(self.cond_consts);
        let mut carry = init.to_vec();
        for _ in 0..LIMIT {
            let verdict = crate::interp::run(&self.cond, &[cond_consts, &carry].concat())?;
            if !verdict[0].get(0).to_bool() {
                return Ok(carry);
            }
            carry = crate::interp::run(&self.body, &[body_consts, &carry].concat())?;
        }
        Err(Error::Run(format!("a while loop did not finish within {LIMIT} iterations")))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<While>> {
        (name == "while").then(|| {
            Ok(While {
                cond_consts: attrs.usize("cond_consts")?,
                body_consts: attrs.usize("body_consts")?,
                cond: attrs.graph("cond")?,
                body: attrs.graph("body")?,
            })
        })
    }
}

/// A batch of loops with a batched predicate and body: they run until the last one is finished, and a finished one keeps its
/// carries. The body evaluates the predicate too, so its constants are those of both.
fn masked(cond: &Graph, body: &Graph, cond_consts: usize, body_consts: usize) -> Result<While> {
    let mut b = Builder::new();
    let ins: Vec<Value> = cond.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let running = b.inline(cond, &ins)?[0];
    let any = b.reduce(ReduceKind::Any, running, &[0])?;
    let some = b.finish(&[any]);

    let mut b = Builder::new();
    let types = body.input_types();
    let for_cond: Vec<Value> = (cond.input_types()[..cond_consts].iter()).map(|t| b.graph.input(t.clone())).collect();
    let for_body: Vec<Value> = types[..body_consts].iter().map(|t| b.graph.input(t.clone())).collect();
    let carries: Vec<Value> = types[body_consts..].iter().map(|t| b.graph.input(t.clone())).collect();
    let running = b.inline(cond, &[&for_cond[..], &carries].concat())?[0];
    let next = b.inline(body, &[&for_body[..], &carries].concat())?;
    let mut kept = Vec::with_capacity(next.len());
    for (&old, new) in carries.iter().zip(next) {
        let shape = b.ty(new).shape;
        let mask = b.broadcast(running, &shape, &[0])?;
        kept.push(b.select(mask, new, old)?);
    }
    Ok(While::new(cond_consts, cond_consts + body_consts, some, b.finish(&kept)))
}
