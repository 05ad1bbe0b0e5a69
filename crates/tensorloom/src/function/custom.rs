//! Functions with derivatives of their own.

use super::trace::{Staged, call_error, fail_like};
use super::{Function, placeholders};
use crate::{Error, Result, Tensor, Tree, Type, trace};
use ir::ops::{Composite, Derivative};
use ir::{Graph, Loc, Value};
use std::sync::Arc;

/// A function with its own reverse rule. Made by [`custom_vjp`].
pub struct CustomVjp<F, B> {
    forward: F,
    backward: B,
}

/// A function with its own forward rule. Made by [`custom_jvp`].
pub struct CustomJvp<F, J> {
    f: F,
    jvp: J,
}

/// A function with its own reverse rule. `forward` gives the results and what `backward` needs; `backward` gets that and
/// the cotangents of the results, and gives the cotangents of the arguments. Forward mode goes through `forward`.
///
/// ```
/// use tensorloom::{Tensor, custom_vjp, grad, tensor};
///
/// // A straight-through estimator: rounds, but passes gradients on as they are.
/// let round = custom_vjp(|x: Tensor| (x.round(), ()), |(_, ct): ((), Tensor)| ct);
/// let g = grad(|x: Tensor| (round.call(x) * 2.0).sum()).call(tensor(&[0.3f32, 0.7], &[2]));
/// assert_eq!(g.to_vec::<f32>()?, [2.0, 2.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn custom_vjp<F, B>(forward: F, backward: B) -> CustomVjp<F, B> {
    CustomVjp { forward, backward }
}

/// A function with its own forward rule: `jvp` gets arguments and their tangents, and gives the tangents of the results;
/// it is linear in the tangents. Reverse mode is its transpose.
///
/// ```
/// use tensorloom::{Tensor, custom_jvp, grad, full};
///
/// // log(1 + eˣ) with a slope that stays finite.
/// let softplus = custom_jvp(
///     |x: Tensor| (x.exp() + 1.0).log(),
///     |(x, dx): (Tensor, Tensor)| x.sigmoid() * dx,
/// );
/// assert_eq!(grad(softplus).call(full(&[], 100.0)).item::<f32>()?, 1.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn custom_jvp<F, J>(f: F, jvp: J) -> CustomJvp<F, J> {
    CustomJvp { f, jvp }
}

fn types_of(tensors: &[Tensor]) -> Vec<Type> {
    tensors.iter().map(|t| t.ty().clone()).collect()
}

fn floats(types: &[Type]) -> Vec<usize> {
    (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect()
}

/// Checks that a rule gives what it has to.
fn check(op: &'static str, what: &str, given: &[Type], wanted: &[Type], at: &Loc) -> Result<()> {
    if given.len() != wanted.len() {
        let text = format!("the rule gives {} {what}s for {} values", given.len(), wanted.len());
        return Err(call_error(op, text, at));
    }
    for (i, (g, w)) in given.iter().zip(wanted).enumerate() {
        if w.dtype.is_float() && g != w {
            let text = format!("the rule gives {g} as {what} {i}, where {w} is needed");
            return Err(call_error(op, text, at));
        }
    }
    Ok(())
}

/// Emits the composite and gives its public results.
#[track_caller]
fn emit<R: Tree>(op: Composite, inputs: &[Tensor], result: &R) -> R {
    let n = op.body.outputs().len();
    let mut outs = Tensor::apply(op, &inputs.iter().collect::<Vec<_>>(), n).into_iter();
    result.rebuild(&mut || outs.next().expect("one for each result"))
}

/// The body with further inputs that it does not read.
fn widened(graph: &Graph, more: &[Type]) -> Result<Graph> {
    let mut wide = Graph::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| wide.input(t)).collect();
    for t in more {
        wide.input(t.clone());
    }
    let outs = graph.inline(&mut wide, &args)?;
    wide.set_outputs(outs);
    Ok(wide)
}

impl<F, B> CustomVjp<F, B> {
    /// Calls the function.
    #[track_caller]
    pub fn call<A: Tree, R: Tree, S: Tree>(&self, args: A) -> R
    where
        F: Function<A, Out = (R, S)>,
        B: Function<(S, R), Out = A>,
    {
        let _here = crate::record::here();
        let at = crate::record::place();
        let types = types_of(&args.leaves());
        let staged = match placeholders(&self.forward, &args, &types) {
            Ok(s) => s,
            Err(e) => return e.result.0,
        };
        match self.composite(&args, &staged, &at) {
            Ok((op, inputs)) => emit(op, &inputs, &staged.result.0),
            Err(e) => fail_like(&staged.result.0, e),
        }
    }

    #[track_caller]
    fn composite<A: Tree, R: Tree, S: Tree>(
        &self,
        args: &A,
        staged: &Staged<(R, S)>,
        at: &Loc,
    ) -> Result<(Composite, Vec<Tensor>)>
    where
        F: Function<A, Out = (R, S)>,
        B: Function<(S, R), Out = A>,
    {
        let n_args = args.leaves().len();
        let public = staged.result.0.leaves().len();
        let outs = staged.graph.output_types();
        // The backward rule's own arguments: residuals, then a cotangent for each result.
        let mut rule_types = outs[public..].to_vec();
        rule_types.extend_from_slice(&outs[..public]);
        let mut given = None;
        let rule = trace::trace(&rule_types, |t| {
            let (mut s, mut r) = (t.iter(), t[outs.len() - public..].iter());
            let residuals = staged.result.1.rebuild(&mut || s.next().expect("one for each").clone());
            let cts = staged.result.0.rebuild(&mut || r.next().expect("one for each").clone());
            let out = self.backward.apply((residuals, cts)).leaves();
            given = Some(types_of(&out));
            out
        })?;
        let arg_types = types_of(&args.leaves());
        check("custom_vjp", "cotangent", &given.unwrap_or_default(), &arg_types, at)?;
        let mut inputs = staged.inputs.clone();
        inputs.extend(rule.captures.iter().cloned());
        let body = widened(&staged.graph, &types_of(&rule.captures))?;
        // (inputs, outputs, cotangents of public floats) -> cotangents of float inputs.
        let mut vjp = Graph::new();
        let ins: Vec<Value> = body.input_types().into_iter().map(|t| vjp.input(t)).collect();
        let ys: Vec<Value> = outs.iter().map(|t| vjp.input(t.clone())).collect();
        let mut b = ir::Builder { graph: vjp, loc: at.clone() };
        let mut operands = ys[public..].to_vec();
        for t in &outs[..public] {
            operands.push(if t.dtype.is_float() {
                b.graph.input(t.clone())
            } else {
                ir::GraphBuilder::zeros(&mut b, t)?
            });
        }
        operands.extend(&ins[staged.inputs.len()..]);
        let cts = rule.graph.inline(&mut b.graph, &operands)?;
        let mut results = Vec::new();
        let in_types = body.input_types();
        for i in floats(&in_types) {
            results.push(if i < n_args { cts[i] } else { ir::GraphBuilder::zeros(&mut b, &in_types[i])? });
        }
        let op = Composite {
            name: "custom_vjp".into(),
            params: Vec::new(),
            body: Arc::new(body),
            num_public_outputs: public,
            derivative: Derivative::Vjp(Arc::new(b.finish(&results))),
        };
        Ok((op, inputs))
    }
}

impl<F, J> CustomJvp<F, J> {
    /// Calls the function.
    #[track_caller]
    pub fn call<A: Tree, R: Tree>(&self, args: A) -> R
    where
        F: Function<A, Out = R>,
        J: Function<(A, A), Out = R>,
    {
        let _here = crate::record::here();
        let at = crate::record::place();
        let types = types_of(&args.leaves());
        let staged = match placeholders(&self.f, &args, &types) {
            Ok(s) => s,
            Err(e) => return e.result,
        };
        match self.composite(&args, &staged, &at) {
            Ok((op, inputs)) => emit(op, &inputs, &staged.result),
            Err(e) => fail_like(&staged.result, e),
        }
    }

    #[track_caller]
    fn composite<A: Tree, R: Tree>(&self, args: &A, staged: &Staged<R>, at: &Loc) -> Result<(Composite, Vec<Tensor>)>
    where
        J: Function<(A, A), Out = R>,
    {
        let arg_types = types_of(&args.leaves());
        let n_args = arg_types.len();
        let outs = staged.graph.output_types();
        let mut given = None;
        let rule = trace::trace(&[&arg_types[..], &arg_types].concat(), |t| {
            let (mut x, mut d) = (t.iter(), t[n_args..].iter());
            let x = args.rebuild(&mut || x.next().expect("one for each").clone());
            let d = args.rebuild(&mut || d.next().expect("one for each").clone());
            let out = self.jvp.apply((x, d)).leaves();
            given = Some(types_of(&out));
            out
        })?;
        check("custom_jvp", "tangent", &given.unwrap_or_default(), &outs, at)?;
        let mut inputs = staged.inputs.clone();
        inputs.extend(rule.captures.iter().cloned());
        let body = widened(&staged.graph, &types_of(&rule.captures))?;
        let mut b = ir::Builder { graph: Graph::new(), loc: at.clone() };
        let in_types = body.input_types();
        let ins: Vec<Value> = in_types.iter().map(|t| b.graph.input(t.clone())).collect();
        let mut tangents = vec![None; in_types.len()];
        for i in floats(&in_types) {
            tangents[i] = Some(b.graph.input(in_types[i].clone()));
        }
        let mut operands = ins[..n_args].to_vec();
        for (t, d) in arg_types.iter().zip(&tangents) {
            operands.push(match d {
                Some(d) => *d,
                None => ir::GraphBuilder::zeros(&mut b, t)?,
            });
        }
        operands.extend(&ins[staged.inputs.len()..]);
        let dy = rule.graph.inline(&mut b.graph, &operands)?;
        let results: Vec<Value> = floats(&outs).into_iter().map(|i| dy[i]).collect();
        let op = Composite {
            name: "custom_jvp".into(),
            params: Vec::new(),
            num_public_outputs: outs.len(),
            body: Arc::new(body),
            derivative: Derivative::Jvp(Arc::new(b.finish(&results))),
        };
        Ok::<_, Error>((op, inputs))
    }
}

impl<A: Tree, R: Tree, S: Tree, F: Function<A, Out = (R, S)>, B: Function<(S, R), Out = A>> Function<A>
    for CustomVjp<F, B>
{
    type Out = R;

    #[track_caller]
    fn apply(&self, args: A) -> R {
        self.call(args)
    }
}

impl<A: Tree, R: Tree, F: Function<A, Out = R>, J: Function<(A, A), Out = R>> Function<A> for CustomJvp<F, J> {
    type Out = R;

    #[track_caller]
    fn apply(&self, args: A) -> R {
        self.call(args)
    }
}
