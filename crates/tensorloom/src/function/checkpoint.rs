//! `checkpoint`: a function whose inside is computed again in backward.

use super::{Function, placeholders};
use crate::{Tensor, Tree, Type};
use ir::ops::{Remat, RematPolicy};

/// A function whose intermediate values are not kept for backward. Made by [`checkpoint`].
pub struct Checkpointed<F> {
    f: F,
    policy: RematPolicy,
}

/// Keeps only the arguments of a function for backward, where the rest is computed again.
///
/// ```
/// use tensorloom::{Tensor, checkpoint, grad, tensor};
///
/// let f = checkpoint(|x: Tensor| x.sin().exp().sum());
/// let g = grad(f).call(tensor(&[0.0f32], &[1]));
/// assert_eq!(g.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn checkpoint<F>(f: F) -> Checkpointed<F> {
    Checkpointed { f, policy: RematPolicy::Nothing }
}

impl<F> Checkpointed<F> {
    /// What is kept all the same.
    pub fn policy(mut self, policy: RematPolicy) -> Checkpointed<F> {
        self.policy = policy;
        self
    }

    /// Calls the function.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> F::Out
    where
        F: Function<A>,
        F::Out: Tree,
    {
        let _here = crate::record::here();
        let types: Vec<Type> = args.leaves().iter().map(|t| t.ty().clone()).collect();
        let staged = match placeholders(&self.f, &args, &types) {
            Ok(s) => s,
            Err(e) => return e.result,
        };
        let n = staged.graph.outputs().len();
        let op = Remat::with_policy(staged.graph.clone(), self.policy.clone());
        let mut outs = Tensor::apply(op, &staged.args(), n).into_iter();
        staged.result.rebuild(&mut || outs.next().expect("one for each result"))
    }
}

impl<A: Tree, F: Function<A>> Function<A> for Checkpointed<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, args: A) -> F::Out {
        self.call(args)
    }
}
