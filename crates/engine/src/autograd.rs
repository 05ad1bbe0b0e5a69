//! Gradients (§9): leaves, `backward`, accumulation.

use crate::base::{BaseBinding, BaseEntry};
use crate::context;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::event::{Effect, StoreKind};
use crate::loc::{LocRole, Tombstone};
use crate::lru::hash_of;
use crate::node::{Node, Ref, Work};
use crate::record::LazyBuild;
use crate::state::State;
use crate::tensor::{Handle, Kind, Lazy, Tensor};
use crate::trace::{Mode, Trace};
use ir::{Build, Graph, Loc, Op, Scalar, Value};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// What gradients are for.
pub(crate) struct Leaf {
    pub(crate) grad: Mutex<Option<Tensor>>,
    /// The leaf's name for its value while that is pure.
    alias: OnceLock<Ref>,
}

impl Leaf {
    pub(crate) fn new() -> Arc<Leaf> {
        Arc::new(Leaf {
            grad: Mutex::new(None),
            alias: OnceLock::new(),
        })
    }

    pub(crate) fn alias(&self, make: impl FnOnce() -> Ref) -> Ref {
        self.alias.get_or_init(make).clone()
    }

    pub(crate) fn grad(&self) -> Option<Tensor> {
        self.grad.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    pub(crate) fn set_grad(&self, t: Option<Tensor>) -> Option<Tensor> {
        std::mem::replace(&mut *self.grad.lock().unwrap_or_else(|e| e.into_inner()), t)
    }
}

/// Choices about `backward`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backward {
    /// Keep what backward needs, so that it can run again.
    pub retain_graph: bool,
    /// Record the gradients' own computation, for second derivatives. Keeps the graph too.
    pub create_graph: bool,
}

/// Part of the lazy graph, as a Graph.
struct Recorded {
    graph: Graph,
    /// The nodes that gradients are taken for, then captured values.
    inputs: Vec<Ref>,
    wrt: usize,
    nodes: Vec<Arc<Node>>,
}

impl Tensor {
    /// Makes this tensor a leaf that gradients are for.
    #[track_caller]
    pub fn requires_grad_(&self) -> Tensor {
        let at = Loc::caller();
        if self.invalid().is_some() {
            return self.clone();
        }
        let fail = |reason: String| Tensor::failed(Error::Autograd { reason, at: at.clone() }, self.engine());
        if !self.dtype().is_float() {
            return fail(format!("{} can't have gradients, only floats can", self.ty()));
        }
        if self.0.leaf.get().is_some() {
            return self.clone();
        }
        if self.requires_grad() {
            return fail("this tensor has a history already; use retain_grad() to see its gradient".into());
        }
        let leaf = self.0.leaf.get_or_init(Leaf::new).clone();
        if let Kind::Traced(t) = &self.0.kind {
            t.trace.state().cells[t.cell].leaf = Some(leaf);
        }
        self.clone()
    }

    /// Whether gradients flow to or through this tensor.
    pub fn requires_grad(&self) -> bool {
        if self.0.detached {
            return false;
        }
        if self.0.reads_leaf().is_some() {
            return true;
        }
        match &self.0.kind {
            Kind::Lazy(l) => match l.engine.shared.state().bases.get(l.base) {
                Some(BaseEntry {
                    binding: BaseBinding::Ssa(r),
                    ..
                }) => r.node.tracked,
                Some(b) => b.history.is_some(),
                None => false,
            },
            Kind::Traced(_) | Kind::Invalid(_) => false,
        }
    }

    /// Whether this is a leaf: made by the user rather than by an op on something that requires gradients.
    pub fn is_leaf(&self) -> bool {
        self.0.leaf.get().is_some() || !self.requires_grad()
    }

    /// The same memory, without history.
    pub fn detach(&self) -> Tensor {
        self.share(self.ty().clone(), self.0.view().cloned(), |h| {
            h.through = None;
            h.detached = true;
        })
    }

    /// The accumulated gradient of a leaf.
    pub fn grad(&self) -> Option<Tensor> {
        let leaf = self.0.leaf.get()?;
        if let Some(trace) = context::trace()
            && let Some(grad) = trace.grad(leaf)
        {
            return grad;
        }
        leaf.grad()
    }

    /// Takes the gradient away; handles on it become invalid (§9.5).
    pub fn zero_grad(&self) {
        let Some(leaf) = self.0.leaf.get() else { return };
        if let Some(trace) = context::trace()
            && trace.is_region()
        {
            trace.set_grad(leaf, None);
            return;
        }
        leaf.clear();
    }

    /// Sets the gradient to zeros, keeping its memory.
    #[track_caller]
    pub fn zero_grad_in_place(&self) {
        if let Some(g) = self.grad() {
            context::no_grad(|| g.zero_());
        }
    }

    /// Schedules the computation of the gradients of this scalar; they run when something needs them or the step ends.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        self.backward_at(Backward::default(), &Loc::caller())
    }

    /// `backward` with choices.
    #[track_caller]
    pub fn backward_with(&self, options: Backward) -> Result<()> {
        self.backward_at(options, &Loc::caller())
    }

    fn backward_at(&self, options: Backward, at: &Loc) -> Result<()> {
        self.check_at(at)?;
        if self.rank() != 0 || !self.dtype().is_float() {
            let reason = format!(
                "backward starts at a float of rank 0, not {}; sum or mean it first",
                self.ty()
            );
            return Err(Error::Autograd { reason, at: at.clone() });
        }
        if let Some(trace) = context::trace() {
            return trace.backward(self, at);
        }
        let lazy = self.0.lazy().expect("tensors of traces have a trace");
        lazy.engine.backward(self, options, at)
    }
}

impl Leaf {
    /// Takes the gradient away and leaves a tombstone in its loc.
    pub(crate) fn clear(&self) {
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
    fn backward(&self, loss: &Tensor, options: Backward, at: &Loc) -> Result<()> {
        if let Some(cause) = &self.shared.state().poisoned {
            return Err(Error::Poisoned(cause.clone()));
        }
        let run = || {
            let mut state = self.shared.state();
            let root = {
                let mut b = LazyBuild::new(&mut state, at.clone());
                let v = b.load(&loss.0)?;
                b.get(v).clone()
            };
            if !root.node.tracked {
                let reason =
                    "nothing that this tensor depends on requires gradients; call requires_grad_() on a leaf".into();
                return Err(Error::Autograd { reason, at: at.clone() });
            }
            let part = recorded(&state, &root)?;
            let grads = self.shared.pull(&mut state, &part, &root, at)?;
            accumulate(self, &mut state, &part, grads, at)?;
            if !options.retain_graph && !options.create_graph {
                part.nodes.iter().for_each(|n| free(n));
            }
            Ok(part)
        };
        let part = if options.create_graph {
            context::enable_grad(run)
        } else {
            context::no_grad(run)
        };
        part.map(drop)
    }
}

/// Backward has used a node: what it kept may go (§9.7).
fn free(node: &Node) {
    let Work::Op(op) = &node.work else { return };
    let saves = op.rules().saves();
    if saves.inputs.is_empty() && saves.outputs.is_empty() {
        return;
    }
    let mut slot = node.slot();
    slot.freed = true;
    slot.saved.clear();
    if !slot.values.is_empty() {
        let args = std::mem::take(&mut slot.args);
        drop(slot);
        drop(args);
    }
}

/// The tracked part of the lazy graph behind `root`, checked: nothing freed, nothing kept that was changed since (§9.3).
fn recorded(state: &State, root: &Ref) -> Result<Recorded> {
    let mut found: BTreeMap<crate::event::EventKey, Arc<Node>> = BTreeMap::new();
    let mut stack = vec![root.node.clone()];
    while let Some(node) = stack.pop() {
        if !node.tracked || found.insert(node.key, node.clone()).is_some() {
            continue;
        }
        let slot = node.slot();
        if slot.freed {
            return Err(Error::BackwardGraphFreed {
                op: node.name().to_string(),
                at: node.at.clone(),
            });
        }
        for s in &slot.saved {
            let found = state.bases.get(s.base).map_or(s.version, |b| b.scheduled_commits);
            if found != s.version {
                let (op, at) = (node.name().to_string(), node.at.clone());
                return Err(Error::SavedTensorModified {
                    op,
                    at,
                    kept: s.version,
                    found,
                });
            }
        }
        if node.leaf.is_none() {
            stack.extend(slot.args.iter().map(|a| a.node.clone()));
        }
    }
    let nodes: Vec<Arc<Node>> = found.into_values().collect();
    let mut part = Recorded {
        graph: Graph::new(),
        inputs: Vec::new(),
        wrt: 0,
        nodes,
    };
    let mut map: FxHashMap<(u64, u32, u32), Value> = FxHashMap::default();
    for node in part.nodes.iter().filter(|n| n.leaf.is_some()) {
        let r = Ref {
            node: node.clone(),
            out: 0,
        };
        map.insert(r.id(), part.graph.input(r.ty().clone()));
        part.inputs.push(r);
    }
    part.wrt = part.inputs.len();
    for node in &part.nodes {
        for a in &node.slot().args {
            if !a.node.tracked && node.leaf.is_none() && !map.contains_key(&a.id()) {
                map.insert(a.id(), part.graph.input(a.ty().clone()));
                part.inputs.push(a.clone());
            }
        }
    }
    for node in part.nodes.iter().filter(|n| n.leaf.is_none()) {
        let slot = node.slot();
        let args: Vec<Value> = slot.args.iter().map(|a| map[&a.id()]).collect();
        let op: Op = match &node.work {
            Work::Op(op) => (**op).clone(),
            Work::Call(call, _) => call.clone().into(),
            // A load or an alias is what its argument is.
            _ => {
                map.insert(
                    Ref {
                        node: node.clone(),
                        out: 0,
                    }
                    .id(),
                    args[0],
                );
                continue;
            }
        };
        let outs = part.graph.push(op, &args, node.at.clone())?;
        for (out, v) in outs.into_iter().enumerate() {
            map.insert(
                Ref {
                    node: node.clone(),
                    out: out as u32,
                }
                .id(),
                v,
            );
        }
    }
    part.graph.set_outputs(vec![map[&root.id()]]);
    Ok(part)
}

impl Shared {
    /// The reverse-mode graph of a graph, from the cache if it was asked for before.
    pub(crate) fn vjp(&self, graph: &Graph, wrt: usize) -> Result<Arc<Graph>> {
        let hash = hash_of(&(graph.structural_hash(), wrt));
        let found = self
            .vjps
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .get(hash, |(g, n)| *n == wrt && g == graph);
        if let Some(g) = found {
            return Ok(g);
        }
        let back = Arc::new(transform::vjp(graph, &(0..wrt).collect::<Vec<_>>())?);
        self.vjps
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .insert(hash, (graph.clone(), wrt), back.clone());
        Ok(back)
    }

    /// Records the gradients of `root` with respect to the part's leaves. Values of the forward pass are used as they
    /// are, not computed again.
    fn pull(&self, state: &mut State, part: &Recorded, root: &Ref, at: &Loc) -> Result<Vec<Ref>> {
        let back = self.vjp(&part.graph, part.wrt)?;
        let mut known: FxHashMap<u64, Vec<&Arc<Node>>> = FxHashMap::default();
        for node in &part.nodes {
            if let Work::Op(op) = &node.work {
                let args: Vec<_> = node.slot().args.iter().map(origin).collect();
                known.entry(hash_of(&(op, args))).or_default().push(node);
            }
        }
        let mut b = LazyBuild::new(state, at.clone());
        let mut args: Vec<Value> = part.inputs.iter().map(|r| b.import(r.clone(), None)).collect();
        let ty = root.ty().clone();
        args.push(b.full(&ty, Scalar::one(ty.dtype))?);
        let outs = back.inline_with(&args, |node, operands| {
            let ids: Vec<_> = operands.iter().map(|v| origin(b.get(*v))).collect();
            let same = |n: &&&Arc<Node>| {
                matches!(&n.work, Work::Op(op) if **op == node.op)
                    && n.slot().args.iter().map(origin).eq(ids.iter().copied())
            };
            if let Some(n) = known
                .get(&hash_of(&(&node.op, &ids)))
                .and_then(|ns| ns.iter().find(same))
            {
                let n = (*n).clone();
                return Ok((0..n.types.len() as u32)
                    .map(|out| b.import(Ref { node: n.clone(), out }, None))
                    .collect());
            }
            b.at = node.loc.clone();
            b.emit(node.op.clone(), operands)
        })?;
        Ok(outs[1..].iter().map(|v| b.get(*v).clone()).collect())
    }
}

/// A value's identity behind aliases and loads of tracked values, which stand for their argument in the recorded graph.
fn origin(r: &Ref) -> (u64, u32, u32) {
    let mut r = r.clone();
    while r.node.tracked && r.node.leaf.is_none() && matches!(r.node.work, Work::Alias | Work::Load { .. }) {
        let Some(next) = r.node.slot().args.first().cloned() else {
            break;
        };
        r = next;
    }
    r.id()
}

/// Adds gradients to their leaves. Each is a store on the token chain, so `mark_step` runs it even if nobody asks (§9.1).
fn accumulate(engine: &Engine, state: &mut State, part: &Recorded, grads: Vec<Ref>, at: &Loc) -> Result<()> {
    for (r, grad) in part.inputs.iter().zip(grads) {
        let Some(leaf) = r.node.leaf.as_ref().and_then(|l| l.upgrade()) else {
            continue;
        };
        engine.accumulate(state, &leaf, grad, at)?;
    }
    Ok(())
}

impl Engine {
    pub(crate) fn accumulate(&self, state: &mut State, leaf: &Arc<Leaf>, grad: Ref, at: &Loc) -> Result<()> {
        match leaf.grad() {
            Some(old) if old.0.lazy().is_some() => {
                let base = old.0.lazy().expect("it was checked").base;
                let mut b = LazyBuild::new(state, at.clone());
                let x = b.load(&old.0)?;
                let y = b.import(grad, None);
                let sum = b.add(x, y)?;
                let sum = b.get(sum).clone();
                state.base_store(base, sum, LocRole::GradState, at)
            }
            _ => {
                let t = self.state_tensor(state, grad, LocRole::GradState, at);
                leaf.set_grad(Some(t));
                Ok(())
            }
        }
    }

    /// A tensor whose base lives in a new loc from the start.
    pub(crate) fn state_tensor(&self, state: &mut State, value: Ref, role: LocRole, at: &Loc) -> Tensor {
        let ty = value.ty().clone();
        let loc = state.new_loc(ty.clone(), role);
        let history = value.node.tracked.then(|| value.clone());
        let token = state.emit(
            Effect::LocStore {
                loc,
                value: value.clone(),
                kind: StoreKind::Semantic,
            },
            None,
            at,
        );
        let base = state.new_base(value.clone());
        let entry = state.base_mut(base);
        entry.rebind(BaseBinding::PendingLoc {
            loc,
            seed: value,
            init_tok: Some(token),
        });
        entry.history = history;
        let lazy = Lazy {
            engine: self.clone(),
            base,
            view: None,
        };
        Tensor::of(Handle::new(self.shared.handle_id(), ty, Kind::Lazy(lazy)))
    }
}

impl Trace {
    /// The gradient that the region has made or cleared for a leaf; `None` if it did neither.
    fn grad(self: &Arc<Trace>, leaf: &Arc<Leaf>) -> Option<Option<Tensor>> {
        self.state()
            .grads
            .iter()
            .find(|(l, _)| Arc::ptr_eq(l, leaf))
            .map(|(_, g)| g.clone())
    }

    pub(crate) fn set_grad(&self, leaf: &Arc<Leaf>, grad: Option<Tensor>) {
        let mut s = self.state();
        match s.grads.iter_mut().find(|(l, _)| Arc::ptr_eq(l, leaf)) {
            Some((_, g)) => *g = grad,
            None => s.grads.push((leaf.clone(), grad)),
        }
    }

    /// Backward inside a trace: the gradient's ops join the same Graph (§9.2).
    fn backward(self: &Arc<Trace>, loss: &Tensor, at: &Loc) -> Result<()> {
        let engine = match &self.mode {
            Mode::Region(engine) => engine.clone(),
            Mode::Function => {
                let reason = "backward() changes leaves, which a traced function can't; use grad(..) instead".into();
                return Err(Error::Autograd { reason, at: at.clone() });
            }
        };
        let (leaves, grads) = {
            let mut s = self.state();
            s.b.loc = at.clone();
            s.ran_backward = true;
            let root = self.read(&mut s, loss)?;
            let leaves: Vec<(Arc<Leaf>, Value)> = s
                .cells
                .iter()
                .filter_map(|c| Some((c.leaf.clone()?, c.value)))
                .collect();
            let wrt: Vec<Value> = leaves.iter().map(|(_, v)| *v).collect();
            let part = crate::slice::between(&s.b.graph, &wrt, &[root])?;
            let back = engine.shared.vjp(&part.graph, wrt.len())?;
            let mut args = [wrt.as_slice(), &part.captured].concat();
            let ty = s.b.ty(root);
            args.push(s.b.full(&ty, Scalar::one(ty.dtype))?);
            let outs = s.b.inline(&back, &args)?;
            let used = part.graph.used_inputs();
            let mut grads = Vec::new();
            for (i, &g) in outs[1..].iter().enumerate() {
                grads.push(if used[i] { Some(self.fresh(&mut s, g)) } else { None });
            }
            (leaves, grads)
        };
        if grads.iter().all(Option::is_none) {
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
