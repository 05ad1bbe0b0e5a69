//! Gradients (§9): leaf tensors, `backward`, gradient accumulation.

mod region;
pub(crate) mod tape;

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::event::{Effect, StoreKind};
use crate::node::{Node, NodeKind, ValueRef};
use crate::profile::Phase;
use crate::record::LazyBuild;
use crate::state::EngineState;
use crate::state_cell::{LocRole, Tombstone};
use crate::storage_base::{BaseBinding, BaseEntry};
use crate::tensor::{Lazy, Tensor, TensorHandle, TensorKind};
use ir::{GraphBuilder, Loc};
use rustc_hash::FxHashSet;
use std::sync::{Arc, Mutex, OnceLock};

/// A leaf: the tensor that gradients are accumulated for.
pub(crate) struct Leaf {
    pub(crate) grad: Mutex<Option<Tensor>>,
    /// The alias node that stands for the leaf's value while its base holds a pure value.
    alias: OnceLock<ValueRef>,
}

impl Leaf {
    pub(crate) fn new() -> Arc<Leaf> {
        Arc::new(Leaf { grad: Mutex::new(None), alias: OnceLock::new() })
    }

    pub(crate) fn alias(&self, make: impl FnOnce() -> ValueRef) -> ValueRef {
        self.alias.get_or_init(make).clone()
    }

    pub(crate) fn grad(&self) -> Option<Tensor> {
        self.grad.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    pub(crate) fn set_grad(&self, t: Option<Tensor>) -> Option<Tensor> {
        std::mem::replace(&mut *self.grad.lock().unwrap_or_else(|e| e.into_inner()), t)
    }
}

/// Options of `backward`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackwardOptions {
    /// Keep the saved tensors, so that backward can run again.
    pub retain_graph: bool,
    /// Record the computation of the gradients, for second derivatives. Implies `retain_graph`.
    pub create_graph: bool,
}

impl Tensor {
    /// Makes this tensor a leaf that accumulates a gradient.
    #[track_caller]
    pub fn requires_grad_(&self) -> Tensor {
        let at = Loc::caller();
        if self.invalid().is_some() {
            return self.clone();
        }
        let fail = |reason: String| Tensor::with_error(Error::Autograd { reason, at: at.clone() }, self.engine());
        if !self.dtype().is_float() {
            return fail(format!("{} cannot have gradients, only floats can", self.ty()));
        }
        if self.0.leaf.get().is_some() {
            return self.clone();
        }
        if self.requires_grad() {
            return fail("this tensor already has a history; use retain_grad() to see its gradient".into());
        }
        let leaf = self.0.leaf.get_or_init(Leaf::new).clone();
        if let TensorKind::Traced(t) = &self.0.kind {
            t.trace.state().cells[t.cell].leaf = Some(leaf);
        }
        self.clone()
    }

    /// Whether gradients flow to this tensor or through it.
    pub fn requires_grad(&self) -> bool {
        if self.0.reads_leaf().is_some() {
            return true;
        }
        if self.0.detached {
            return false;
        }
        match &self.0.kind {
            TensorKind::Lazy(l) => match l.engine.shared.state().bases.get(l.base) {
                Some(BaseEntry { binding: BaseBinding::Ssa(r), .. }) => r.node.tracked,
                Some(b) => b.history.is_some(),
                None => false,
            },
            TensorKind::Traced(_) | TensorKind::Invalid(_) => false,
        }
    }

    /// Whether this is a leaf: created by the user, and not by an op on a tensor that requires gradients.
    pub fn is_leaf(&self) -> bool {
        self.0.leaf.get().is_some() || !self.requires_grad()
    }

    /// Returns a tensor on the same memory without gradient history. In a trace, writes through it are not recorded for
    /// backward: an operand that may require gradients is refused, except under `no_grad`.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        self.alias_with(self.ty().clone(), self.0.view().cloned(), |h| {
            h.view_leaf = None;
            h.detached = true;
        })
    }

    /// The gradient accumulated for this leaf.
    pub fn grad(&self) -> Option<Tensor> {
        let leaf = self.0.leaf.get().or(self.0.retained.get())?;
        let Some(trace) = context::trace() else { return leaf.grad() };
        if trace.has_external_grad(leaf) {
            let reason =
                "backward continues to this leaf outside the region, so its gradient is complete only after the call; \
                 read it there"
                    .into();
            return Some(Tensor::with_error(Error::Autograd { reason, at: Loc::Unknown }, self.engine()));
        }
        trace.grad(leaf).unwrap_or_else(|| leaf.grad())
    }

    /// Removes the gradient; tensors that refer to it become invalid (§9.5).
    pub fn zero_grad(&self) {
        let Some(leaf) = self.0.leaf.get().or(self.0.retained.get()) else {
            return;
        };
        match context::trace() {
            Some(trace) if trace.is_region() => trace.set_grad(leaf, None),
            Some(_) => {
                let reason = "zero_grad() changes a leaf, which a traced function can't; call it outside".into();
                context::record_write_failure(&Error::Autograd { reason, at: Loc::Unknown });
            }
            None => leaf.clear_grad(),
        }
    }

    /// Sets the gradient to zeros and keeps its memory.
    #[track_caller]
    pub fn zero_grad_in_place(&self) {
        if let Some(g) = self.grad() {
            context::no_grad(|| g.zero_());
        }
    }

    /// Records the computation of this scalar's gradients. It runs when a dependent value is read, or at the end of the step.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        self.backward_at(BackwardOptions::default(), &Loc::caller())
    }

    /// `backward` with options.
    #[track_caller]
    pub fn backward_with(&self, options: BackwardOptions) -> Result<()> {
        self.backward_at(options, &Loc::caller())
    }

    fn backward_at(&self, options: BackwardOptions, at: &Loc) -> Result<()> {
        self.check_at(at)?;
        if self.rank() != 0 || !self.dtype().is_float() {
            let reason = format!("backward starts at a float of rank 0, not {}; sum or mean it first", self.ty());
            return Err(Error::Autograd { reason, at: at.clone() });
        }
        if let Some(trace) = context::trace() {
            return trace.backward(self, at);
        }
        let lazy = self.0.lazy().expect("tensors of traces have a trace");
        lazy.engine.backward(self, options, at)
    }

    /// Keeps the gradient of a tensor that is not a leaf; see [`Tensor::grad`].
    #[track_caller]
    pub fn retain_grad(&self) -> Result<()> {
        match self.engine() {
            Some(e) => e.retain_grad(self),
            None => self.check_at(&Loc::caller()),
        }
    }
}

impl Leaf {
    /// Removes the gradient and leaves a tombstone in its loc.
    pub(crate) fn clear_grad(&self) {
        if let Some(old) = self.set_grad(None)
            && let Some(l) = old.0.lazy()
        {
            let mut state = l.engine.shared.state();
            let loc = state.bases.get(l.base).and_then(BaseEntry::loc);
            if let Some(entry) = loc.and_then(|loc| state.locs.get_mut(loc)) {
                entry.tombstone = Some(Tombstone::GradInvalidated);
            }
        }
    }
}

impl Engine {
    fn backward(&self, loss: &Tensor, options: BackwardOptions, at: &Loc) -> Result<()> {
        if let Some(cause) = &self.shared.state().poisoned {
            return Err(Error::Poisoned(cause.clone()));
        }
        let run = || {
            let mut state = self.shared.state();
            let (root, one) = {
                let mut b = LazyBuild::new(&mut state, at.clone());
                let v = b.load(&loss.0)?;
                let one = b.scalar(loss.dtype(), 1.0)?;
                (b.get(v).clone(), b.get(one).clone())
            };
            if !root.node.tracked {
                let reason =
                    "nothing that this tensor depends on requires gradients; call requires_grad_() on a leaf".into();
                return Err(Error::Autograd { reason, at: at.clone() });
            }
            self.backward_from(&mut state, vec![(root, one)], options, at)
        };
        let labelled = || crate::profile::phase(Phase::Backward, run);
        let pulled = if options.create_graph { context::enable_grad(labelled) } else { context::no_grad(labelled) };
        pulled.map(drop)
    }

    /// Propagates cotangents backward and adds gradients to leaves. The caller must drop the result without the state lock.
    pub(crate) fn backward_from(
        &self,
        state: &mut EngineState,
        from: Vec<(ValueRef, ValueRef)>,
        options: BackwardOptions,
        at: &Loc,
    ) -> Result<tape::BackpropResult> {
        let pulled = self.shared.backprop(state, from, &FxHashSet::default(), at)?;
        for (leaf, grad) in &pulled.leaves {
            self.accumulate(state, leaf, grad.clone(), at)?;
        }
        if !options.retain_graph && !options.create_graph {
            pulled.nodes.iter().for_each(|n| free_saved(n));
        }
        Ok(pulled)
    }

    /// Gradients of a scalar with respect to tensors that it was computed from, as new tensors; gradients of leaves don't change.
    /// `None` for a tensor that the scalar does not depend on. With `create_graph` the gradients can be differentiated again.
    #[track_caller]
    pub fn gradients(&self, y: &Tensor, wrt: &[&Tensor], create_graph: bool) -> Result<Vec<Option<Tensor>>> {
        let at = Loc::caller();
        y.check_at(&at)?;
        let run = || {
            let mut state = self.shared.state();
            let mut b = LazyBuild::new(&mut state, at.clone());
            let v = b.load(&y.0)?;
            let one = b.full_like(v, 1.0)?;
            let (root, one) = (b.get(v).clone(), b.get(one).clone());
            let mut cuts = FxHashSet::default();
            let mut ids = Vec::new();
            for t in wrt {
                t.check_at(&at)?;
                let v = b.load(&t.0)?;
                let id = b.get(v).id();
                cuts.insert(id);
                ids.push(id);
            }
            if !root.node.tracked {
                return Ok(vec![None; wrt.len()]);
            }
            let pulled = self.shared.backprop(&mut state, vec![(root, one)], &cuts, &at)?;
            let of = |(t, id): (&&Tensor, &tape::RefId)| {
                let leaf = t.0.leaf.get().and_then(|l| pulled.leaves.iter().find(|(p, _)| Arc::ptr_eq(p, l)));
                leaf.map(|(_, g)| g).or_else(|| pulled.cut_gradients.get(id)).cloned()
            };
            let found: Vec<Option<ValueRef>> = wrt.iter().zip(&ids).map(of).collect();
            Ok(found.into_iter().map(|g| g.map(|g| Tensor::fresh(self, &mut state, g))).collect())
        };
        if create_graph { context::enable_grad(run) } else { context::no_grad(run) }
    }

    /// Keeps the gradient of a tensor that is not a leaf (§1.5).
    #[track_caller]
    pub fn retain_grad(&self, t: &Tensor) -> Result<()> {
        let at = Loc::caller();
        t.check_at(&at)?;
        if t.0.leaf.get().is_some() {
            return Ok(());
        }
        if !t.requires_grad() {
            let reason = "a tensor that does not require gradients has none to keep".into();
            return Err(Error::Autograd { reason, at });
        }
        let leaf = t.0.retained.get_or_init(Leaf::new).clone();
        let Some(lazy) = t.0.lazy().filter(|l| l.view.is_none()) else {
            return Ok(());
        };
        let state = self.shared.state();
        let base = state.bases.get(lazy.base).expect("a handle keeps its base");
        let value = match &base.binding {
            BaseBinding::Ssa(r) => Some(r),
            _ => base.history.as_ref(),
        };
        if let Some(r) = value {
            r.node.slot().kept().retained.push((r.out, Arc::downgrade(&leaf)));
        }
        Ok(())
    }
}

/// Releases the values that a node saved for backward, after backward has run (§9.7). Nodes that save nothing stay usable.
fn free_saved(node: &Node) {
    let keeps = match &node.work {
        NodeKind::Op(sig) => !sig.saved_for_backward.inputs.is_empty() || !sig.saved_for_backward.outputs.is_empty(),
        NodeKind::Call(..) => true,
        _ => false,
    };
    if !keeps {
        return;
    }
    let mut slot = node.slot();
    slot.freed = true;
    if let Some(kept) = &mut slot.backward_info {
        kept.saved.clear();
    }
    if !slot.values.is_empty() {
        let args = std::mem::take(&mut slot.args);
        drop(slot);
        drop(args);
    }
}

impl Engine {
    pub(crate) fn accumulate(&self, state: &mut EngineState, leaf: &Arc<Leaf>, grad: ValueRef, at: &Loc) -> Result<()> {
        match leaf.grad() {
            Some(old) if old.0.lazy().is_some() => {
                let base = old.0.lazy().expect("it was checked").base;
                let mut b = LazyBuild::new(state, at.clone());
                let x = b.load(&old.0)?;
                let y = b.import_value(grad, None);
                let sum = b.add(x, y)?;
                let sum = b.get(sum).clone();
                state.base_store(base, sum, LocRole::GradState, false, at)
            }
            _ => {
                let t = self.state_tensor(state, grad, LocRole::GradState, at);
                leaf.set_grad(Some(t));
                Ok(())
            }
        }
    }

    /// Creates a tensor whose base is bound to a new loc from the start.
    pub(crate) fn state_tensor(&self, state: &mut EngineState, value: ValueRef, role: LocRole, at: &Loc) -> Tensor {
        let ty = value.ty().clone();
        let loc = state.new_loc(ty.clone(), role);
        let history = value.node.tracked.then(|| value.clone());
        let token = state.emit(Effect::LocStore { loc, value: value.clone(), kind: StoreKind::Semantic }, None, at);
        let base = state.new_base(value.clone());
        let entry = state.base_mut(base);
        entry.rebind(BaseBinding::PendingLoc { loc, seed: value, init_tok: Some(token) });
        entry.history = history;
        let lazy = Lazy { engine: self.clone(), base, view: None };
        Tensor::from_handle(TensorHandle::new(self.shared.handle_id(), ty, TensorKind::Lazy(lazy)))
    }
}
