//! Inspection of the engine's internal state, so that tests can check its invariants.

use crate::engine::Engine;
use crate::error::Result;
use crate::event::{Effect, EffectToken, EffectTokens, Event, EventKey, Origin, StoreKind};
use crate::node::{Node, NodeKind, ValueRef};
use crate::pool::PoolStats;
use crate::state_cell::{LocId, LocRole, Tombstone};
use crate::storage_base::{BaseBinding, BaseId};
use crate::tensor::Tensor;
use ir::{Loc, Op, Type};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One semantic event of the last plan, in `PlanLinearOrder`.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRecord {
    /// The identity of the event.
    pub key: EventKey,
    /// The kind: `loc_load`, `loc_store_semantic`, `base_commit`, ..
    pub kind: &'static str,
    /// The loc that the event accessed.
    pub loc: Option<LocId>,
    /// The base that the event committed to, and the number of the mutation.
    pub commit: Option<(BaseId, u64)>,
    /// The nonce of the random draw.
    pub nonce: Option<u64>,
    /// The version of the loc or of the base after the event.
    pub version: Option<u64>,
    /// Whether the store was omitted because a later store replaces it.
    pub elided: bool,
}

impl PlanRecord {
    /// The semantic event of a node that saved values for backward or is a checkpointed function; `None` for other nodes.
    pub(crate) fn semantic(node: &Node) -> Option<PlanRecord> {
        let kind = match &node.work {
            NodeKind::Op(sig) if matches!(*sig.op, Op::Remat(_)) => "checkpoint_boundary",
            _ if node.tracked && !node.slot().saved().is_empty() => "publish_saved_slot",
            _ => return None,
        };
        let origin = Origin::Synthetic { graph: 0, tag: kind };
        let key = EventKey { origin, ..node.key() };
        Some(PlanRecord { key, kind, loc: None, commit: None, nonce: None, version: None, elided: false })
    }

    pub(crate) fn of(e: &Event, elided: bool, version: Option<u64>) -> PlanRecord {
        PlanRecord {
            key: e.key,
            kind: e.effect.tag(),
            loc: e.effect.loc(),
            commit: match e.effect {
                Effect::BaseCommit { base, mut_id } => Some((base, mut_id)),
                _ => None,
            },
            nonce: match e.effect {
                Effect::RngDraw { nonce, .. } => Some(nonce),
                _ => None,
            },
            version,
            elided,
        }
    }
}

/// An executed event, as the event log keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// The number of the plan that it was part of; every forced execution is one plan.
    pub plan: u64,
    /// The event.
    pub event: PlanRecord,
}

/// A ring buffer of executed events.
#[derive(Default)]
pub(crate) struct EventLog {
    events: VecDeque<LoggedEvent>,
    capacity: usize,
}

impl EventLog {
    pub(crate) fn add(&mut self, plan: u64, events: &[PlanRecord]) {
        if self.capacity == 0 {
            return;
        }
        self.events.extend(events.iter().map(|e| LoggedEvent { plan, event: e.clone() }));
        let over = self.events.len().saturating_sub(self.capacity);
        self.events.drain(..over);
    }
}

impl Engine {
    /// Keeps the last `capacity` semantic events (loads, stores, commits, draws, saved values) for [`Engine::event_log`], in
    /// execution order. 0, the default, keeps none.
    pub fn enable_event_log(&self, capacity: usize) {
        let mut state = self.shared.state();
        state.log.capacity = capacity;
        let over = state.log.events.len().saturating_sub(capacity);
        state.log.events.drain(..over);
    }

    /// The events kept since [`Engine::enable_event_log`]. All their numbers are the same in every run of a program.
    pub fn event_log(&self) -> Vec<LoggedEvent> {
        self.shared.state().log.events.iter().cloned().collect()
    }

    /// The values that backward from a tensor would read: operands and results saved by the ops that it depends on. Each value
    /// is listed once, the latest op first.
    pub fn saved_tensors(&self, t: &Tensor) -> Result<Vec<SavedTensor>> {
        let root = t.current_value_tracked(&Loc::Unknown)?;
        let state = self.shared.state();
        let mut found = Vec::new();
        let mut seen: FxHashSet<EventKey> = FxHashSet::default();
        let mut listed = FxHashSet::default();
        let mut nodes: BTreeMap<EventKey, Arc<Node>> = BTreeMap::from([(root.node.key(), root.node)]);
        while let Some((key, node)) = nodes.pop_last() {
            if !node.tracked || node.leaf.is_some() || !seen.insert(key) {
                continue;
            }
            let slot = node.slot();
            nodes.extend(slot.args.iter().map(|a| (a.node.key(), a.node.clone())));
            let kept: Vec<ValueRef> = match &node.work {
                NodeKind::Op(sig) => {
                    let inputs = sig.saved_for_backward.inputs.iter().filter_map(|&i| slot.args.get(i).cloned());
                    let outputs =
                        sig.saved_for_backward.outputs.iter().map(|&o| ValueRef { node: node.clone(), out: o as u32 });
                    inputs.chain(outputs).collect()
                }
                // A region is differentiated as a whole, so its arguments are saved.
                NodeKind::Call(_) => slot.args.to_vec(),
                _ => Vec::new(),
            };
            let modified =
                slot.saved().iter().any(|s| state.bases.get(s.base).is_some_and(|b| b.scheduled_commits != s.version));
            let freed = slot.freed;
            drop(slot);
            for r in kept.into_iter().filter(|r| listed.insert(r.id())) {
                found.push(SavedTensor {
                    op: node.name().to_string(),
                    at: node.at.clone(),
                    ty: (**r.ty()).clone(),
                    computed: r.node.is_computed(),
                    modified,
                    freed,
                });
            }
        }
        Ok(found)
    }
}

/// A value that an op saved for backward (§9.3).
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTensor {
    /// The op that saved it.
    pub op: String,
    /// The source line of the op.
    pub at: Loc,
    /// The dtype and shape of the value.
    pub ty: Type,
    /// Whether the value has been computed, so that it takes memory.
    pub computed: bool,
    /// Whether a value saved by the op was changed in place later; backward then returns an error.
    pub modified: bool,
    /// Whether backward has run and released the value.
    pub freed: bool,
}

/// The location of a base's current value.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// A pure value.
    Ssa,
    /// A loc that may have no value yet.
    PendingLoc {
        /// The loc.
        loc: LocId,
        /// The token of the store that initialises the loc.
        init_tok: Option<EffectToken>,
    },
    /// A loc with a value.
    Loc(LocId),
}

/// A snapshot of a base.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseView {
    /// The identity of the base.
    pub id: BaseId,
    /// The location of the current value.
    pub binding: Binding,
    /// The number of times that the binding changed.
    pub binding_version: u64,
    /// The number of updates scheduled while the base held a pure value.
    pub logical_version: u64,
    /// The number of committed mutations.
    pub commit_version: u64,
    /// The number of scheduled mutations.
    pub scheduled_commits: u64,
    /// The number of live handles.
    pub pins: usize,
    /// Whether the base was mutated since the last step.
    pub mutated_since_step: bool,
}

/// A snapshot of a loc.
#[derive(Clone, Debug, PartialEq)]
pub struct LocView {
    /// The identity of the loc.
    pub id: LocId,
    /// The type of its value.
    pub ty: Type,
    /// The kind of state in the loc.
    pub role: LocRole,
    /// The number of committed stores.
    pub version: u64,
    /// The number of scheduled stores.
    pub logical_version: u64,
    /// Whether the loc has a value.
    pub has_value: bool,
    /// Whether the loc holds a reference to its storage.
    pub retained: bool,
    /// The reason that the loc was freed.
    pub tombstone: Option<Tombstone>,
    /// The token of the last ordered access.
    pub token: Option<EffectToken>,
    /// The step in which the loc was created.
    pub created_epoch: u64,
    /// The loc's number in order of creation.
    pub created_alloc: u64,
    /// The number of in-place writes to its buffer.
    pub storage_version: Option<u64>,
    /// The number of its buffer.
    pub storage_id: Option<u64>,
}

/// A snapshot of an event that has not run.
#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    /// The token it produces.
    pub token: EffectToken,
    /// The tokens it consumes.
    pub after: EffectTokens,
    /// The identity of the event.
    pub key: EventKey,
    /// The kind of the event.
    pub kind: &'static str,
    /// The loc that it accesses.
    pub loc: Option<LocId>,
    /// The kind of store.
    pub store: Option<StoreKind>,
}

/// A snapshot of all tables of the engine.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The base table.
    pub bases: Vec<BaseView>,
    /// The loc table.
    pub locs: Vec<LocView>,
    /// Events that have not run, in order.
    pub pending: Vec<EventView>,
    /// The end of the token chain.
    pub tok_global: Option<EffectToken>,
    /// The number of steps so far.
    pub epoch: u64,
    /// The semantic events of the last plan, in order.
    pub last_plan: Vec<PlanRecord>,
    /// The call that executes now, and its nesting depth.
    pub exec_lock: Option<(&'static str, usize)>,
    /// Whether an execution has failed.
    pub poisoned: bool,
    /// The buffer statistics of each device.
    pub pools: Vec<PoolStats>,
    /// The number of bytes copied between devices.
    pub transferred: u64,
    /// The number of programs for single ops.
    pub kernels: usize,
    /// The number of kernels that the devices have compiled.
    pub machine_kernels: usize,
    /// The numbers of cached programs of compiled regions, of cache hits and of compilations.
    pub variants: (usize, u64, u64),
}

impl Engine {
    /// Returns a snapshot of the engine's tables.
    pub fn inspect(&self) -> Inspection {
        let shared = &self.shared;
        let state = shared.state();
        let bases = state.bases.iter().map(|(id, b)| BaseView {
            id,
            binding: match &b.binding {
                BaseBinding::Ssa(_) => Binding::Ssa,
                BaseBinding::PendingLoc { loc, init_tok, .. } => Binding::PendingLoc { loc: *loc, init_tok: *init_tok },
                BaseBinding::Loc(loc) => Binding::Loc(*loc),
            },
            binding_version: b.binding_version,
            logical_version: b.logical_version,
            commit_version: b.commit_version,
            scheduled_commits: b.scheduled_commits,
            pins: b.pins,
            mutated_since_step: b.mutated_since_step,
        });
        let locs = state.locs.iter().map(|(id, l)| LocView {
            id,
            ty: (*l.ty).clone(),
            role: l.role,
            version: l.version,
            logical_version: l.logical_version,
            has_value: l.has_value,
            retained: l.storage.is_some(),
            tombstone: l.tombstone.clone(),
            token: l.token,
            created_epoch: l.created_epoch,
            created_alloc: l.created_alloc,
            storage_version: l.storage.as_ref().map(|s| s.storage.version()),
            storage_id: l.storage.as_ref().map(|s| s.storage.id),
        });
        let pending = state.events.iter().map(|e| EventView {
            token: e.token,
            after: e.after.clone(),
            key: e.key,
            kind: e.effect.tag(),
            loc: e.effect.loc(),
            store: match e.effect {
                Effect::LocStore { kind, .. } => Some(kind),
                _ => None,
            },
        });
        Inspection {
            bases: bases.collect(),
            locs: locs.collect(),
            pending: pending.collect(),
            tok_global: state.tok_global,
            epoch: state.epoch,
            last_plan: state.last_plan.clone(),
            exec_lock: shared.exec.state(),
            poisoned: state.poisoned.is_some(),
            pools: shared.devices.iter().map(|d| d.pool.stats()).collect(),
            transferred: shared.transferred.load(std::sync::atomic::Ordering::Relaxed),
            kernels: shared.devices.iter().map(|d| d.kernels.len()).sum(),
            machine_kernels: shared.devices.iter().map(|d| d.pool.backend.kernels()).sum(),
            variants: shared.variants(),
        }
    }
}
