//! Checkpointing (§10): the values inside a function are not kept for backward but computed again.
//!
//! The function is recorded once, as a Graph, and enters the program as one `remat` op. Recomputation runs the recorded Graph
//! again: it draws the same random numbers and has no effects, because a Graph has none. Effects are refused while the function
//! is recorded.

use crate::engine::Engine;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::trace::{Trace, TraceMode, record_into};
use crate::tree::Tree;
use ir::Loc;
use ir::ops::{Remat, RematPolicy};

impl Engine {
    /// Runs `f`; backward recomputes the values inside `f` instead of keeping them. `f` must be pure: it may not change
    /// tensors from outside, read values or run backward.
    #[track_caller]
    pub fn checkpoint<A: Tree, R: Tree>(&self, args: &A, f: impl FnOnce(A) -> R) -> Result<R> {
        self.checkpoint_with(args, RematPolicy::Nothing, f)
    }

    /// `checkpoint` with a policy that selects the values to keep.
    #[track_caller]
    pub fn checkpoint_with<A: Tree, R: Tree>(
        &self,
        args: &A,
        policy: RematPolicy,
        f: impl FnOnce(A) -> R,
    ) -> Result<R> {
        let at = Loc::caller();
        let outer = args.leaves();
        outer.iter().try_for_each(|t| t.check_at(&at))?;
        let trace = Trace::new(TraceMode::Checkpoint(self.clone()));
        let inner: Vec<Tensor> = outer.iter().map(|t| trace.placeholder(t.ty().clone())).collect();
        let mut next = inner.iter();
        let inside = args.rebuild(&mut || next.next().expect("one for each leaf").clone());
        let mut result = None;
        let traced = record_into(&trace, &at, || {
            let r = f(inside);
            let leaves = r.leaves();
            result = Some(r);
            leaves
        })?;
        let result = result.expect("it was just set");
        let n = traced.graph.outputs().len();
        let all: Vec<&Tensor> = outer.iter().chain(&traced.captures).collect();
        let remat = Remat::with_policy(traced.graph, policy);
        let outs = crate::record::record(&at, n, Some(self), &all, |b, v| b.emit(remat.into(), v));
        let mut outs = outs.into_iter();
        Ok(result.rebuild(&mut || outs.next().expect("one for each result")))
    }
}
