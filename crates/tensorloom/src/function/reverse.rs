//! `vjp`: values now, cotangents pulled back later.

use super::trace::{Failed, call_error};
use super::{Function, Staged, fail_like, recorded};
use crate::{Error, Result, Tensor, Tree};
use ir::{Graph, Loc};

/// The float leaves of a tree.
pub(crate) fn float_leaves<A: Tree>(args: &A) -> Vec<usize> {
    let leaves = args.leaves();
    (0..leaves.len()).filter(|&i| leaves[i].dtype().is_float()).collect()
}

/// Tensors of the same types, all zero.
#[track_caller]
pub(crate) fn zeros_like(t: &Tensor) -> Tensor {
    crate::engine_of(t).zeros(t.dtype(), t.shape())
}

/// What a function is at a point: its values, and its linear part with the values that it needs.
pub(crate) struct AtPoint<R> {
    pub(crate) result: R,
    pub(crate) residuals: Vec<Tensor>,
    pub(crate) linear: Graph,
    /// Which results have a tangent.
    pub(crate) tangents: Vec<bool>,
}

/// Linearises a recorded function and computes its values.
#[track_caller]
pub(crate) fn at_point<R: Tree>(staged: Staged<R>, wrt: &[usize]) -> std::result::Result<AtPoint<R>, Failed<R>> {
    let active: Vec<bool> = (0..staged.graph.inputs().len()).map(|i| wrt.contains(&i)).collect();
    let lin = match transform::linearize(&staged.graph, &active) {
        Ok(lin) => lin,
        Err(e) => {
            let error: Error = e.into();
            return Err(Failed { result: fail_like(&staged.result, error.clone()), error });
        }
    };
    let mut outs = super::inline(&lin.known, &staged.args());
    let residuals = outs.split_off(staged.graph.outputs().len());
    let mut values = outs.into_iter();
    Ok(AtPoint {
        result: staged.result.rebuild(&mut || values.next().expect("one for each result")),
        residuals,
        linear: lin.linear,
        tangents: lin.tangents,
    })
}

/// Pulls cotangents of a function's results back to its arguments. Made by [`vjp`].
pub struct Vjp<A, R> {
    back: Result<Back>,
    args: A,
    result: R,
}

struct Back {
    graph: Graph,
    residuals: Vec<Tensor>,
    /// Which results have a cotangent that counts.
    tangents: Vec<bool>,
    /// For each argument leaf, its place among the graph's outputs.
    places: Vec<Option<usize>>,
}

/// The value of a function, and the map from cotangents of its results to cotangents of its arguments.
///
/// ```
/// use tensorloom::{Tensor, tensor, vjp};
///
/// let x = tensor(&[1.0f32, 2.0], &[2]);
/// let (y, back) = vjp(|x: Tensor| &x * &x, x);
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(back.call(tensor(&[10.0f32, 1.0], &[2])).to_vec::<f32>()?, [20.0, 4.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn vjp<A: Tree, F: Function<A>>(f: F, args: A) -> (F::Out, Vjp<A, F::Out>)
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    let floats = float_leaves(&args);
    let n = args.leaves().len();
    let made = recorded(&f, &args, &floats).and_then(|(staged, wrt)| {
        let point = at_point(staged, &wrt)?;
        let flags: Vec<bool> = (0..point.linear.inputs().len()).map(|i| i >= point.residuals.len()).collect();
        let cts = vec![true; point.linear.outputs().len()];
        match transform::transpose(&point.linear, &flags, &cts) {
            Ok((graph, gives)) => {
                let mut places = vec![None; n];
                let mut k = 0;
                for (&i, &g) in floats.iter().zip(&gives) {
                    if g {
                        places[i] = Some(k);
                        k += 1;
                    }
                }
                let back = Back { graph, residuals: point.residuals, tangents: point.tangents, places };
                Ok((point.result, back))
            }
            Err(e) => Err(Failed { error: e.into(), result: point.result }),
        }
    });
    let copy = |r: &F::Out| r.map(|t| t.clone());
    let (result, back) = match made {
        Ok((r, b)) => (r, Ok(b)),
        Err(e) => (e.result, Err(e.error)),
    };
    let back = Vjp { back, args, result: copy(&result) };
    (result, back)
}

/// Says which leaf of a tree is not of the type that was expected.
pub(crate) fn check_types<R: Tree>(given: &R, like: &R, op: &'static str, what: &str, at: &Loc) -> Result<Vec<Tensor>> {
    let (given, like) = (given.leaves(), like.leaves());
    if given.len() != like.len() {
        let text = format!("{} {what}s for {} values", given.len(), like.len());
        return Err(call_error(op, text, at));
    }
    for (g, l) in given.iter().zip(&like) {
        if let Some(e) = g.error().or_else(|| l.error()) {
            return Err(e);
        }
        if l.dtype().is_float() && g.ty() != l.ty() {
            let text = format!("the {what} of a value of {} is {}", l.ty(), g.ty());
            return Err(call_error(op, text, at));
        }
    }
    Ok(given)
}

impl<A: Tree, R: Tree> Vjp<A, R> {
    /// The cotangents of the arguments, given those of the results. Integers have zeros.
    #[track_caller]
    pub fn call(&self, ct: R) -> A {
        let _here = crate::record::here();
        let at = crate::record::place();
        match self.try_call(&ct, &at) {
            Ok(a) => a,
            Err(e) => fail_like(&self.args, e),
        }
    }

    #[track_caller]
    fn try_call(&self, ct: &R, at: &Loc) -> Result<A> {
        let back = self.back.as_ref().map_err(|e| e.clone())?;
        let cts = check_types(ct, &self.result, "vjp", "cotangent", at)?;
        let counted = cts.iter().zip(&back.tangents).filter(|(_, t)| **t).map(|(c, _)| c);
        let inputs: Vec<&Tensor> = back.residuals.iter().chain(counted).collect();
        let outs = super::inline(&back.graph, &inputs);
        let leaves = self.args.leaves();
        let mut i = 0;
        Ok(self.args.rebuild(&mut || {
            i += 1;
            match back.places[i - 1] {
                Some(k) => outs[k].clone(),
                None => zeros_like(&leaves[i - 1]),
            }
        }))
    }
}

impl<A: Tree, R: Tree> Function<R> for Vjp<A, R> {
    type Out = A;

    #[track_caller]
    fn apply(&self, ct: R) -> A {
        self.call(ct)
    }
}
