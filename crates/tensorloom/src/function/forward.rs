//! Forward mode: `jvp` and `linearize`.

use super::reverse::{at_point, check_types, float_leaves, zeros_like};
use super::trace::Failed;
use super::{Function, fail_like, recorded};
use crate::{Error, Result, Tensor, Tree};
use ir::{Graph, Loc};

/// The value of a function and the derivative along a tangent, computed together.
///
/// ```
/// use tensorloom::{Tensor, jvp, tensor};
///
/// let x = tensor(&[3.0f32], &[1]);
/// let (y, dy) = jvp(|x: Tensor| x.square(), x, tensor(&[0.5f32], &[1]));
/// assert_eq!((y.to_vec::<f32>()?, dy.to_vec::<f32>()?), (vec![9.0], vec![3.0]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn jvp<A: Tree, F: Function<A>>(f: F, primals: A, tangents: A) -> (F::Out, F::Out)
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    let at = crate::record::place();
    let floats = float_leaves(&primals);
    let both = |e: Failed<F::Out>| (e.result.map(|t| t.clone()), fail_like(&e.result, e.error));
    let (staged, wrt) = match recorded(&f, &primals, &floats) {
        Ok(s) => s,
        Err(e) => return both(e),
    };
    let made = check_types(&tangents, &primals, "jvp", "tangent", &at).and_then(|dx| {
        let n = staged.graph.inputs().len();
        let active: Vec<bool> = (0..n).map(|i| wrt.contains(&i)).collect();
        let want = vec![true; staged.graph.outputs().len()];
        let (graph, has) = transform::jvp(&staged.graph, &active, &want)?;
        Ok((graph, has, dx))
    });
    let (graph, has, dx) = match made {
        Ok(m) => m,
        Err(error) => {
            return both(Failed { result: fail_like(&staged.result, error.clone()), error });
        }
    };
    let mut inputs = staged.args();
    inputs.extend(floats.iter().map(|&i| &dx[i]));
    let outs = super::inline(&graph, &inputs);
    let values = &outs[..has.len()];
    let mut found = outs[has.len()..].iter();
    let mut tangents = values.iter().zip(&has).map(|(v, &h)| match h {
        true => found.next().expect("one for each mark").clone(),
        false => zeros_like(v),
    });
    let mut primal = values.iter();
    let y = staged.result.rebuild(&mut || primal.next().expect("one for each result").clone());
    let dy = staged.result.rebuild(&mut || tangents.next().expect("one for each result"));
    (y, dy)
}

/// The derivative of a function at a point, as a linear map of tangents. Made by [`linearize`].
pub struct LinearMap<A, R> {
    made: Result<Made>,
    args: A,
    result: R,
}

struct Made {
    linear: Graph,
    residuals: Vec<Tensor>,
    tangents: Vec<bool>,
}

/// The value of a function, and its derivative there as a linear map that can be applied many times.
///
/// ```
/// use tensorloom::{Tensor, linearize, tensor};
///
/// let (_, push) = linearize(|x: Tensor| x.sin(), tensor(&[0.0f32], &[1]));
/// assert_eq!(push.call(tensor(&[2.0f32], &[1])).to_vec::<f32>()?, [2.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn linearize<A: Tree, F: Function<A>>(f: F, args: A) -> (F::Out, LinearMap<A, F::Out>)
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    let floats = float_leaves(&args);
    let point = recorded(&f, &args, &floats).and_then(|(staged, wrt)| at_point(staged, &wrt));
    let (result, made) = match point {
        Ok(p) => {
            let made = Made { linear: p.linear, residuals: p.residuals, tangents: p.tangents };
            (p.result, Ok(made))
        }
        Err(e) => (e.result, Err(e.error)),
    };
    let linear = LinearMap { made, args, result: result.map(|t| t.clone()) };
    (result, linear)
}

impl<A: Tree, R: Tree> LinearMap<A, R> {
    /// The tangents of the results, given those of the arguments. Integers have zeros.
    #[track_caller]
    pub fn call(&self, tangents: A) -> R {
        let _here = crate::record::here();
        match self.try_call(&tangents, &crate::record::place()) {
            Ok(r) => r,
            Err(e) => fail_like(&self.result, e),
        }
    }

    #[track_caller]
    fn try_call(&self, tangents: &A, at: &Loc) -> std::result::Result<R, Error> {
        let made = self.made.as_ref().map_err(|e| e.clone())?;
        let dx = check_types(tangents, &self.args, "linearize", "tangent", at)?;
        let floats = float_leaves(&self.args);
        let inputs: Vec<&Tensor> = (made.residuals.iter()).chain(floats.iter().map(|&i| &dx[i])).collect();
        let outs = super::inline(&made.linear, &inputs);
        let mut found = outs.iter();
        let results = self.result.leaves();
        let mut i = 0;
        Ok(self.result.rebuild(&mut || {
            i += 1;
            match made.tangents[i - 1] {
                true => found.next().expect("one for each mark").clone(),
                false => zeros_like(&results[i - 1]),
            }
        }))
    }
}

impl<A: Tree, R: Tree> Function<A> for LinearMap<A, R> {
    type Out = R;

    #[track_caller]
    fn apply(&self, tangents: A) -> R {
        self.call(tangents)
    }
}
