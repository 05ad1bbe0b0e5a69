//! Runs a plan and commits its effects (§3.5).

use crate::engine::{EngineDevice, EngineShared};
use crate::error::{Error, Result};
use crate::event::{Effect, EffectToken, Event};
use crate::inspect::PlanRecord;
use crate::intern::OpSignature;
use crate::kernels::{self, InPlacePairs, KernelKind};
use crate::lock::ExecGuard;
use crate::node::{Node, NodeKind, ValueRef};
use crate::plan::{ExecutionPlan, PlanItem, PlanRoots};
use crate::state_cell::LocId;
use crate::storage::{StoredValue, Values};
use crate::storage_base::BaseId;
use crate::transfer::resolve_device;
use compiler::{Bindings, interrupt};
use ir::{Loc, Op};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of nodes between two points where released buffers become reusable. Each op has completed when its call returns.
const SEGMENT_NODES: usize = 16;
/// A value with more pending views than this is copied to dense memory.
const MAX_VIEWS: usize = 6;

/// The planned state of a loc (§3.4).
struct PlannedLoc {
    storage: Option<StoredValue>,
    has_value: bool,
    version: u64,
}

/// The planned effects of a plan. They are written to the tables after the whole plan succeeded.
#[derive(Default)]
struct PlannedEffects {
    locs: BTreeMap<LocId, PlannedLoc>,
    commits: BTreeMap<BaseId, u64>,
    done: Vec<EffectToken>,
    /// The error of the first NaN, if NaN checks are enabled; the rest of the plan still runs.
    nan: Option<Error>,
    order: Vec<PlanRecord>,
    /// The locs whose buffer was written in place.
    rewritten: Vec<LocId>,
    /// Whether a value that the tables still refer to was overwritten.
    overwritten: bool,
}

impl EngineShared {
    /// Computes the roots. Each node runs at most once, and only nodes that the roots depend on run.
    pub(crate) fn force(&self, guard: &ExecGuard<'_>, roots: &PlanRoots) -> Result<()> {
        let _depth = guard.enter_nested();
        if roots.tokens.is_empty() && roots.values.iter().all(|r| r.node.is_computed()) {
            return Ok(());
        }
        if let Some(done) = self.force_ready(roots) {
            return done;
        }
        loop {
            let plan = crate::plan::plan(&mut self.state(), roots);
            let mut planned = PlannedEffects::default();
            match self.run_plan(&plan, &mut planned) {
                Ok(()) => {
                    let nan = planned.nan.take();
                    self.commit(planned);
                    self.flush_pools();
                    return nan.map_or(Ok(()), Err);
                }
                Err(e) => {
                    let overwritten = planned.overwritten;
                    drop((plan, planned));
                    let e = self.handle_failure(e, overwritten);
                    // Stores to unobservable locs need not run; without them the plan may need less memory.
                    if !(e.is_out_of_memory() && self.drop_unobservable_stores()) {
                        return Err(e);
                    }
                }
            }
        }
    }

    /// Decides what an error means for the engine: it is poisoned (§6.7), except if no value was overwritten and the device was
    /// only out of memory, or rejected operands before it started (in the browser: a value that can't be copied from the GPU
    /// without awaiting it), or the run was interrupted. Then nodes that ran keep their values, and effects stay pending.
    fn handle_failure(&self, e: Error, overwritten: bool) -> Error {
        let e = match e {
            Error::KernelExecution { op, at, cause } if is_memory_error(&cause) => {
                self.memory_error(&op, &at, cause.into())
            }
            Error::CompiledExecution { at, cause, .. } if is_memory_error(&cause) => {
                self.memory_error("a compiled region", &at, cause.into())
            }
            e => e,
        };
        if (e.is_out_of_memory() || is_rejected(&e) || e.is_interrupted()) && !overwritten {
            self.flush_pools();
            return e;
        }
        self.poisoned_by(e)
    }

    /// Adds the memory use to an out-of-memory error; other errors are unchanged.
    pub(crate) fn memory_error(&self, op: &str, at: &Loc, e: Error) -> Error {
        let (op, at) = (op.to_string(), at.clone());
        match e {
            Error::Compile(compiler::Error::OutOfMemory { bytes, .. }) => {
                let live = self.devices.iter().map(|d| d.pool.stats().live_bytes).sum();
                Error::OutOfMemory { op, at, bytes, live }
            }
            Error::Compile(compiler::Error::MemoryLimit { bytes, live, limit }) => {
                Error::MemoryLimit { op, at, bytes, live, limit }
            }
            e => e,
        }
    }

    fn poisoned_by(&self, e: Error) -> Error {
        self.poison(&e);
        e
    }

    /// Drops pending stores to locs that no tensor refers to and no pending event reads. Returns whether there were any.
    fn drop_unobservable_stores(&self) -> bool {
        self.drain_finalize_queue();
        let mut state = self.state();
        let mut read: FxHashSet<LocId> = FxHashSet::default();
        let mut unseen = Vec::new();
        for e in state.events.iter() {
            match &e.effect {
                Effect::LocLoad { loc, into } if into.strong_count() > 0 => drop(read.insert(*loc)),
                Effect::LocLoad { loc, .. } | Effect::LocStore { loc, .. } => unseen.push((e.token, *loc)),
                Effect::BaseCommit { .. } | Effect::RngDraw { .. } | Effect::Dropped => {}
            }
        }
        unseen.retain(|(_, loc)| !read.contains(loc) && state.locs.get(*loc).is_some_and(|l| l.orphan));
        let mut dropped = Vec::new();
        for &(token, loc) in &unseen {
            dropped.extend(state.events.drop_effect(token));
            state.finish_pending(loc);
        }
        drop(state);
        drop(dropped);
        !unseen.is_empty()
    }

    /// Runs roots whose operands are all computed, without a plan: it would contain only the roots.
    fn force_ready(&self, roots: &PlanRoots) -> Option<Result<()>> {
        let ready = |node: &Node| {
            let runs = matches!(node.work, NodeKind::Op(_) | NodeKind::Call(_));
            runs && node.slot().args.iter().all(|a| a.node.is_computed())
        };
        if !roots.tokens.is_empty() || !roots.values.iter().all(|r| r.node.is_computed() || ready(&r.node)) {
            return None;
        }
        let (mut nan, mut order, mut bindings) = (None, Vec::new(), empty_bindings());
        for r in roots.values.iter().filter(|r| !r.node.is_computed()) {
            let mut planned = PlannedEffects::default();
            match self.run_node(&r.node, &mut planned, &mut bindings) {
                Ok(found) => nan = nan.or(found),
                Err(e) => return Some(Err(self.handle_failure(e, planned.overwritten))),
            }
            order.extend(PlanRecord::semantic(&r.node));
        }
        let mut state = self.state();
        let plan = state.plans;
        state.log.add(plan, &order);
        state.last_plan = order;
        drop(state);
        self.flush_pools();
        Some(nan.map_or(Ok(()), Err))
    }

    fn run_plan(&self, plan: &ExecutionPlan, planned: &mut PlannedEffects) -> Result<()> {
        let mut bindings = empty_bindings();
        for (i, item) in plan.items.iter().enumerate() {
            match item {
                PlanItem::Node(node) => {
                    let nan = self.run_node(node, planned, &mut bindings)?;
                    planned.nan = planned.nan.take().or(nan);
                    planned.order.extend(PlanRecord::semantic(node));
                }
                PlanItem::Event(e) => self.run_event(e, plan.elided.contains(&e.token), planned)?,
            }
            if i % SEGMENT_NODES == SEGMENT_NODES - 1 {
                self.flush_pools();
            }
        }
        Ok(())
    }

    /// Runs a node; returns the error of a NaN that it produced, if NaN checks are enabled.
    fn run_node(
        &self,
        node: &Arc<Node>,
        planned: &mut PlannedEffects,
        bindings: &mut Bindings,
    ) -> Result<Option<Error>> {
        // A plan that has overwritten a value of the tables must run to its end.
        let _undisturbed = planned.overwritten.then(interrupt::disable_interrupts);
        let mut args: SmallVec<[StoredValue; 4]> = SmallVec::new();
        let replaces = {
            let slot = node.slot();
            for a in &slot.args {
                args.push(a.value().ok_or_else(|| missing_operand_error(node))?);
            }
            slot.backward_info.as_ref().and_then(|k| k.replaces)
        };
        let noted = self.profiling.is_on().then(compiler::clock::Instant::now);
        let mut steps = Vec::new();
        let values = match &node.work {
            NodeKind::Alias(_) => args.iter().cloned().collect(),
            NodeKind::Transfer(_) => {
                let fail = |cause| Error::KernelExecution { op: "transfer".into(), at: node.at.clone(), cause };
                Values::from_elem(self.copy_to_device(&args[0], resolve_device(node.device)).map_err(fail)?, 1)
            }
            NodeKind::Op(sig) => {
                let over = replaces.and_then(|loc| self.in_place_operand(node, loc, &args, planned));
                self.run_op(node, sig, &args, over, bindings, &mut planned.overwritten)?
            }
            NodeKind::Call(variant) => {
                let fail = |cause| {
                    let begun = !is_memory_error(&cause) && cause != compiler::Error::Interrupted;
                    let op = begun.then(|| self.find_failing_op(&variant.graph, &args, resolve_device(node.device)));
                    let op = op.flatten();
                    Error::CompiledExecution { at: node.at.clone(), cause, op }
                };
                let mut dense = Vec::with_capacity(args.len());
                for a in &args {
                    let a = self.copy_to_device(a, resolve_device(node.device)).map_err(fail)?;
                    dense.push(self.dense(&a).map_err(fail)?);
                }
                let mut over = InPlacePairs::new();
                for &(i, o) in &variant.exe.program().donated {
                    if self.is_last_use(node, i, &args[i], 2, planned) {
                        over.push((i, o));
                    }
                }
                let (outs, times) = self
                    .launch_noted(
                        variant,
                        resolve_device(node.device),
                        &dense,
                        &over,
                        bindings,
                        &mut planned.overwritten,
                    )
                    .map_err(fail)?;
                steps = times;
                outs
            }
            NodeKind::Data(_) | NodeKind::Load { .. } => return Err(missing_operand_error(node)),
        };
        if let (Some(start), NodeKind::Op(_) | NodeKind::Call(_) | NodeKind::Transfer(_)) = (noted, &node.work)
            && !matches!(&node.work, NodeKind::Op(sig) if sig.view)
        {
            let bytes =
                args.iter().map(|a| a.ty.bytes()).sum::<usize>() + values.iter().map(|v| v.ty.bytes()).sum::<usize>();
            self.note(node, start, bytes, steps);
        }
        let nan = self.check_nan(node, &args, &values);
        drop(args);
        drop(node.finish(values));
        Ok(nan)
    }

    fn run_op(
        &self,
        node: &Node,
        sig: &OpSignature,
        args: &[StoredValue],
        over: Option<usize>,
        bindings: &mut Bindings,
        overwritten: &mut bool,
    ) -> Result<Values> {
        let fail = |cause| Error::KernelExecution { op: node.name().to_string(), at: node.at.clone(), cause };
        if let Op::Const(c) = &*sig.op {
            let pool = &self.devices[resolve_device(node.device)].pool;
            let storage = pool.acquire(c.0.bytes().len()).map_err(fail)?;
            storage.buffer().write(0, c.0.bytes()).map_err(fail)?;
            return Ok(Values::from_elem(StoredValue::dense(storage, sig.types[0].clone()), 1));
        }
        if sig.view {
            let value = args[0].clone();
            let value = if value.views.len() >= MAX_VIEWS { self.dense(&value).map_err(fail)? } else { value };
            return Ok(Values::from_elem(value.viewed(&sig.op, &sig.types[0]), 1));
        }
        let here = resolve_device(node.device);
        let EngineDevice { pool, kernels } = &self.devices[here];
        let mut moved = Vec::new();
        let args = if args.iter().all(|a| a.storage.pool().device == here) {
            args
        } else {
            for a in args {
                moved.push(self.copy_to_device(a, here).map_err(fail)?);
            }
            &moved
        };
        // If a device has no kernel for an op, nothing has started, so the engine is not poisoned.
        let refuse = |cause| {
            fail(match cause {
                compiler::Error::Backend(why) => compiler::Error::Bindings(why),
                cause => cause,
            })
        };
        if let Some(i) = over {
            let kernel = kernels.program(pool, &KernelKind::InPlace(sig.op.clone(), i), args).map_err(refuse)?;
            let over = &kernel.exe.program().donated;
            let outs = kernels::bind(pool, &sig.types, args, over, bindings).map_err(fail)?;
            *overwritten |= !over.is_empty();
            let undisturbed = overwritten.then(interrupt::disable_interrupts);
            let done = kernel.exe.run(bindings);
            drop(undisturbed);
            kernels::unbind(bindings);
            return done.map(|()| outs).map_err(fail);
        }
        let usual =
            here == 0 && args.iter().all(|a| a.views.is_empty()) && sig.accepts_types(args.iter().map(|a| &a.ty));
        let found;
        let kernel = match sig.program.get() {
            Some(kernel) if usual => kernel,
            _ => {
                found = kernels.program(pool, &KernelKind::Op(sig.op.clone()), args).map_err(refuse)?;
                if usual { sig.program.get_or_init(|| found) } else { &found }
            }
        };
        kernels::launch(&*kernel.exe, pool, &sig.types, args, &[], bindings).map_err(fail)
    }

    /// The operand that was loaded from the loc that the node's result is stored into, if nothing else refers to it.
    fn in_place_operand(
        &self,
        node: &Node,
        loc: LocId,
        args: &[StoredValue],
        planned: &PlannedEffects,
    ) -> Option<usize> {
        let is = |a: &ValueRef| matches!(a.node.work, NodeKind::Load { loc: from, .. } if from == loc);
        let i = node.slot().args.iter().position(is)?;
        self.is_last_use(node, i, &args[i], 1, planned).then_some(i)
    }

    /// Whether a node is the last use of an operand that was loaded from a loc, so that the loc's next value may overwrite
    /// it. `copies` is the number of references that the caller holds. Earlier loads have run, and references to their values
    /// count; later loads see the next value.
    fn is_last_use(&self, node: &Node, i: usize, value: &StoredValue, copies: usize, planned: &PlannedEffects) -> bool {
        let slot = node.slot();
        let load = &slot.args[i].node;
        let NodeKind::Load { loc, .. } = load.work else { return false };
        // Backward may read the operands of a tracked node.
        if node.tracked || Arc::strong_count(load) > 1 || !value.views.is_empty() || !value.storage.is_owned() {
            return false;
        }
        let holds = |s: &Option<StoredValue>| s.as_ref().is_some_and(|s| Arc::ptr_eq(&s.storage, &value.storage));
        let in_plan = planned.locs.get(&loc).is_some_and(|c| holds(&c.storage));
        let in_table = self.state().locs.get(loc).is_some_and(|l| holds(&l.storage));
        Arc::strong_count(&value.storage) == copies + 1 + in_plan as usize + in_table as usize
    }

    /// The value in dense memory, with its views applied.
    pub(crate) fn dense(&self, value: &StoredValue) -> compiler::Result<StoredValue> {
        if value.views.is_empty() {
            return Ok(value.clone());
        }
        let pool = value.storage.pool();
        let args = std::slice::from_ref(value);
        let kernel = self.devices[pool.device].kernels.program(pool, &KernelKind::Dense, args)?;
        Ok(kernels::launch(&*kernel.exe, pool, &kernel.types, args, &[], &mut empty_bindings())?.swap_remove(0))
    }

    fn run_event(&self, e: &Event, elided: bool, planned: &mut PlannedEffects) -> Result<()> {
        let mut version = None;
        match &e.effect {
            Effect::LocLoad { loc, into } => {
                let cell = self.planned_loc(planned, *loc)?;
                match (&cell.storage, into.upgrade()) {
                    (Some(value), Some(into)) => drop(into.finish(Values::from_elem(value.clone(), 1))),
                    (Some(_), None) => {}
                    (None, _) => return Err(Error::MissingExternalState { loc: loc.to_string() }),
                }
                version = Some(cell.version);
            }
            Effect::LocStore { .. } if elided => {}
            Effect::Dropped => {}
            Effect::LocStore { loc, value, .. } => {
                let value = value.value().ok_or_else(|| missing_operand_error(&value.node))?;
                let fail = |cause| Error::KernelExecution { op: "store".into(), at: e.at.clone(), cause };
                let value = self.dense(&value).map_err(fail)?;
                let cell = self.planned_loc(planned, *loc)?;
                let old = cell.storage.replace(value.clone());
                cell.has_value = true;
                cell.version += 1;
                version = Some(cell.version);
                if old.is_some_and(|old| Arc::ptr_eq(&old.storage, &value.storage)) {
                    planned.rewritten.push(*loc);
                }
            }
            Effect::BaseCommit { base, .. } => {
                let first = self.state().bases.get(*base).map_or(0, |b| b.commit_version);
                let v = planned.commits.entry(*base).or_insert(first);
                *v += 1;
                version = Some(*v);
            }
            Effect::RngDraw { loc, .. } => {
                let cell = self.planned_loc(planned, *loc)?;
                cell.has_value = true;
                cell.version += 1;
                version = Some(cell.version);
            }
        }
        planned.done.push(e.token);
        planned.order.push(PlanRecord::of(e, elided, version));
        Ok(())
    }

    fn planned_loc<'a>(&self, planned: &'a mut PlannedEffects, loc: LocId) -> Result<&'a mut PlannedLoc> {
        if let std::collections::btree_map::Entry::Vacant(e) = planned.locs.entry(loc) {
            let state = self.state();
            let entry = state.locs.get(loc).ok_or_else(|| Error::MissingExternalState { loc: loc.to_string() })?;
            e.insert(PlannedLoc { storage: entry.storage.clone(), has_value: entry.has_value, version: entry.version });
        }
        Ok(planned.locs.get_mut(&loc).expect("it was put there"))
    }

    fn commit(&self, planned: PlannedEffects) {
        let mut released = Vec::new();
        let mut state = self.state();
        for (loc, p) in planned.locs {
            if let Some(entry) = state.locs.get_mut(loc) {
                released.extend(entry.storage.take());
                entry.storage = p.storage;
                entry.has_value = p.has_value;
                entry.version = p.version;
            }
        }
        // Increment once for each store that changed the buffer in place (§5.3).
        for loc in planned.rewritten {
            if let Some(value) = state.locs.get(loc).and_then(|l| l.storage.as_ref()) {
                value.storage.increment_version();
            }
        }
        for (base, version) in planned.commits {
            if let Some(entry) = state.bases.get_mut(base) {
                entry.commit_version = version;
            }
        }
        let mut events = Vec::new();
        for token in planned.done {
            let Some(event) = state.events.finish(token) else {
                continue;
            };
            if let Some(loc) = event.effect.loc() {
                state.finish_pending(loc);
            }
            events.push(event);
        }
        let plan = state.plans;
        state.log.add(plan, &planned.order);
        state.last_plan = planned.order;
        drop(state);
        drop((released, events));
    }

    /// Poisons the engine after a failed execution: the token roots are dropped and nothing runs any more (§6.7).
    pub(crate) fn poison(&self, error: &Error) {
        let dropped = {
            let mut state = self.state();
            state.poisoned = Some(Arc::new(error.clone()));
            state.tok_global = None;
            let events = state.events.clear();
            // Release the locs of events that will never run.
            for loc in events.iter().filter(|e| !e.done).filter_map(|e| e.effect.loc()) {
                state.finish_pending(loc);
            }
            events
        };
        drop(dropped);
    }
}

/// Whether a device rejected its operands before it started.
fn is_rejected(e: &Error) -> bool {
    let (Error::KernelExecution { cause, .. } | Error::CompiledExecution { cause, .. }) = e else { return false };
    matches!(cause, compiler::Error::Bindings(_))
}

fn is_memory_error(cause: &compiler::Error) -> bool {
    matches!(cause, compiler::Error::OutOfMemory { .. } | compiler::Error::MemoryLimit { .. })
}

/// Empty bindings for `kernels::launch`.
fn empty_bindings() -> Bindings {
    Bindings { inputs: Vec::new(), outputs: Vec::new() }
}

fn missing_operand_error(node: &Node) -> Error {
    Error::MissingExternalState { loc: format!("of {} at {}", node.name(), node.at) }
}

/// Whether an op is a view that needs no kernel, because its consumer reads through it.
pub(crate) fn is_free_view(op: &Op) -> bool {
    matches!(op.semantics(), ir::Semantics::View(view) if view.is_free())
}
