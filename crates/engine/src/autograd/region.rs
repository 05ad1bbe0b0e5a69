//! Backward inside a compiled region: the ops of the gradient are recorded into the same Graph (§9.2).

use super::Leaf;
use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::node::ValueRef;
use crate::tensor::Tensor;
use crate::trace::{Trace, TraceCell, TraceMode, TraceState};
use ir::{GraphBuilder, Loc, Scalar, Value};
use std::sync::Arc;

/// The cells of captured tensors that have a gradient history outside the region, with that history.
fn external_history(engine: &Engine, s: &TraceState) -> Vec<(usize, ValueRef)> {
    let state = engine.shared.state();
    let history = |(i, c): (usize, &TraceCell)| {
        let lazy = c.outer_base.as_ref().filter(|_| c.leaf.is_none())?.0.lazy()?;
        Some((i, state.history(lazy.base)?))
    };
    s.cells.iter().enumerate().filter_map(history).collect()
}

impl Trace {
    /// The gradient that the region has computed or cleared for a leaf; `None` if it did neither.
    pub(super) fn grad(self: &Arc<Trace>, leaf: &Arc<Leaf>) -> Option<Option<Tensor>> {
        self.state().grads.iter().find(|(l, _)| Arc::ptr_eq(l, leaf)).map(|(_, g)| g.clone())
    }

    pub(crate) fn set_grad(&self, leaf: &Arc<Leaf>, grad: Option<Tensor>) {
        let mut s = self.state();
        match s.grads.iter_mut().find(|(l, _)| Arc::ptr_eq(l, leaf)) {
            Some((_, g)) => *g = grad,
            None => s.grads.push((leaf.clone(), grad)),
        }
    }

    /// Whether a part of a leaf's gradient is computed outside the region.
    pub(super) fn has_external_grad(&self, leaf: &Arc<Leaf>) -> bool {
        self.state().reached.iter().any(|l| Arc::ptr_eq(l, leaf))
    }

    /// Adds the gradients of `loss` to the leaves that the region captured. Gradients of tensors with a history outside become
    /// results of the region; backward continues from them when the call is recorded.
    pub(super) fn backward(self: &Arc<Trace>, loss: &Tensor, at: &Loc) -> Result<()> {
        let engine = match &self.mode {
            TraceMode::Region(engine) => engine.clone(),
            TraceMode::Checkpoint(_) => return Err(Error::CheckpointReentrancy { at: at.clone() }),
            TraceMode::Function => {
                let reason = "backward() changes leaves, which a traced function can't; use grad(..) instead".into();
                return Err(Error::Autograd { reason, at: at.clone() });
            }
        };
        let (leaves, grads, any) = {
            let mut s = self.state();
            s.b.loc = at.clone();
            s.ran_backward = true;
            let root = self.read(&mut s, loss)?;
            let leaves: Vec<(Arc<Leaf>, Value)> =
                s.cells.iter().filter_map(|c| Some((c.leaf.clone()?, c.value))).collect();
            let beyond = external_history(&engine, &s);
            let wrt: Vec<Value> =
                leaves.iter().map(|(_, v)| *v).chain(beyond.iter().map(|&(c, _)| s.cells[c].first)).collect();
            let part = crate::subgraph::subgraph_between(&s.b.graph, &wrt, &[root])?;
            let back = engine.shared.vjp(&part.graph, wrt.len(), false)?;
            let mut args = [wrt.as_slice(), &part.captured].concat();
            let ty = s.b.ty(root);
            args.push(s.b.full(&ty, Scalar::one(ty.dtype))?);
            let outs = s.b.inline(&back, &args)?;
            let used = part.graph.used_inputs();
            let mut grads = Vec::new();
            for (i, &g) in outs[1..].iter().enumerate() {
                grads.push(if used[i] { Some(self.new_tensor(&mut s, g)) } else { None });
            }
            for ((cell, history), grad) in beyond.into_iter().zip(grads.split_off(leaves.len())) {
                if let Some(grad) = grad {
                    s.outer_gradients.push((cell, grad));
                    s.reached.extend(super::tape::leaves(&history));
                }
            }
            let any = grads.iter().any(Option::is_some) || !s.outer_gradients.is_empty();
            (leaves, grads, any)
        };
        if !any {
            let reason =
                "nothing that this tensor depends on requires gradients; call requires_grad_() on a leaf".into();
            return Err(Error::Autograd { reason, at: at.clone() });
        }
        context::no_grad(|| {
            for ((leaf, _), grad) in leaves.iter().zip(grads) {
                let Some(grad) = grad else { continue };
                let old = self.grad(leaf).unwrap_or_else(|| leaf.grad());
                match old {
                    Some(old) => old.add_(&grad).check_at(at)?,
                    None => self.set_grad(leaf, Some(grad)),
                }
            }
            Ok(())
        })
    }
}
