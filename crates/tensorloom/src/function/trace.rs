//! From a function to a Graph: on placeholders, or by what it records on real tensors.

use super::Function;
use crate::{Error, Result, Tensor, Tree, Type, trace};
use ir::{Graph, Loc};

/// A recorded function.
pub(crate) struct Staged<R> {
    /// Inputs are those of `inputs`, outputs are the leaves of `result`.
    pub(crate) graph: Graph,
    /// What to give to the graph: arguments, then captured tensors.
    pub(crate) inputs: Vec<Tensor>,
    /// The structure of the result; its tensors are of no use.
    pub(crate) result: R,
}

/// An error with a result that carries it.
pub(crate) struct Failed<R> {
    pub(crate) error: Error,
    pub(crate) result: R,
}

impl<R> Staged<R> {
    /// The tensors to inline the graph on.
    pub(crate) fn args(&self) -> Vec<&Tensor> {
        self.inputs.iter().collect()
    }
}

/// The same tree with all tensors invalid for one reason.
pub(crate) fn fail_like<R: Tree>(like: &R, error: Error) -> R {
    let bad = Tensor::from_error(error);
    like.map(|_| bad.clone())
}

/// An error of a call, unless it says more by itself.
pub(crate) fn call_error(op: &'static str, reason: impl Into<String>, at: &Loc) -> Error {
    Error::Call { op, reason: reason.into(), at: at.clone() }
}

fn first_error<A: Tree>(args: &A) -> Option<Error> {
    args.leaves().iter().find_map(|t| t.error())
}

/// What the function gives when its arguments are invalid: the structure of its result.
fn failed<A: Tree, F: Function<A>>(f: &F, args: &A, error: Error) -> Failed<F::Out>
where
    F::Out: Tree,
{
    let result = fail_like(&f.apply(fail_like(args, error.clone())), error.clone());
    Failed { error, result }
}

/// Records a function on placeholders of these types. Host reads inside are errors.
#[track_caller]
pub(crate) fn placeholders<A: Tree, F: Function<A>>(
    f: &F,
    args: &A,
    types: &[Type],
) -> std::result::Result<Staged<F::Out>, Failed<F::Out>>
where
    F::Out: Tree,
{
    if let Some(error) = first_error(args) {
        return Err(failed(f, args, error));
    }
    let mut result = None;
    let traced = trace::trace(types, |inputs| {
        let mut next = inputs.iter();
        let out = f.apply(args.rebuild(&mut || next.next().expect("one for each leaf").clone()));
        let leaves = out.leaves();
        result = Some(out);
        leaves
    });
    let result = result.expect("the function was called");
    match traced {
        Ok(t) => {
            let mut inputs = args.leaves();
            inputs.extend(t.captures);
            Ok(Staged { graph: t.graph, inputs, result })
        }
        Err(error) => Err(Failed { result: fail_like(&result, error.clone()), error }),
    }
}

/// Records a function for differentiation with respect to some leaves: on placeholders inside a trace, else on the
/// tensors themselves, so that the function may read values. Gives which inputs of the graph those leaves are.
#[track_caller]
pub(crate) fn recorded<A: Tree, F: Function<A>>(
    f: &F,
    args: &A,
    wrt: &[usize],
) -> std::result::Result<(Staged<F::Out>, Vec<usize>), Failed<F::Out>>
where
    F::Out: Tree,
{
    let leaves = args.leaves();
    if engine::extension::is_tracing() || leaves.is_empty() {
        let types: Vec<Type> = leaves.iter().map(|t| t.ty().clone()).collect();
        return Ok((placeholders(f, args, &types)?, wrt.to_vec()));
    }
    if let Some(error) = first_error(args) {
        return Err(failed(f, args, error));
    }
    // The function's arguments are values of its own (a copy costs no memory until one of the two is written to), so that
    // it may change them in place. A leaf it could not change: it gets what is computed from one.
    let mut inside: Vec<Tensor> = leaves.iter().map(Tensor::copy).collect();
    let mut points = Vec::with_capacity(wrt.len());
    for &i in wrt {
        let leaf = crate::no_grad(|| leaves[i].detach().copy()).requires_grad_();
        if let Some(error) = leaf.error() {
            return Err(failed(f, args, error));
        }
        inside[i] = crate::enable_grad(|| leaf.copy());
        points.push(leaf);
    }
    let mut next = inside.iter();
    let args = args.rebuild(&mut || next.next().expect("one for each leaf").clone());
    let (result, done) = crate::enable_grad(|| trace::run_eagerly(|| f.apply(args)));
    let outs = result.leaves();
    let traced: Result<_> =
        done.and_then(|()| trace::recorded_graph(&outs.iter().collect::<Vec<_>>(), &points.iter().collect::<Vec<_>>()));
    match traced {
        Ok(t) => {
            let mut inputs: Vec<Tensor> = wrt.iter().map(|&i| leaves[i].clone()).collect();
            inputs.extend(t.captures);
            let staged = Staged { graph: t.graph, inputs, result };
            Ok((staged, (0..wrt.len()).collect()))
        }
        Err(error) => Err(Failed { result: fail_like(&result, error.clone()), error }),
    }
}

/// Records a graph's ops on tensors: into the trace at hand, else lazily.
#[track_caller]
pub(crate) fn inline(graph: &Graph, args: &[&Tensor]) -> Vec<Tensor> {
    let engine = args.iter().find_map(|t| t.engine()).unwrap_or_else(|| crate::engine());
    let f = |b: &mut dyn ir::GraphBuilder, v: &[ir::Value]| Ok(ir::Values::from_vec(b.inline(graph, v)?));
    let mut outs = engine::extension::record_with(&crate::record::place(), graph.outputs().len(), engine, args, f);
    outs.truncate(graph.outputs().len());
    outs
}
