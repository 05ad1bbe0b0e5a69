//! Looking into the engine, so that its laws can be tested from outside.

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
    /// Its identity.
    pub key: EventKey,
    /// `loc_load`, `loc_store_semantic`, `base_commit`, ..
    pub kind: &'static str,
    /// The loc it touched.
    pub loc: Option<LocId>,
    /// The base it committed, with the mutation's number.
    pub commit: Option<(BaseId, u64)>,
    /// The nonce of a random draw.
    pub nonce: Option<u64>,
    /// Version after the event: of the loc or of the base.
    pub version: Option<u64>,
    /// A store that was left out because another one follows.
    pub elided: bool,
}

impl PlanRecord {
    /// The semantic event of a node: that it kept values for backward, or that it is a checkpointed body.
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

/// An event that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// Which plan it was part of: counts forced executions.
    pub plan: u64,
    /// What it was.
    pub event: PlanRecord,
}

/// Events that were executed, the oldest forgotten first.
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
    /// Keeps the last so many semantic events (loads, stores, commits, draws, saved slots) for [`Engine::event_log`], in
    /// the order in which they were executed. 0, the default, keeps none.
    pub fn enable_event_log(&self, capacity: usize) {
        let mut state = self.shared.state();
        state.log.capacity = capacity;
        let over = state.log.events.len().saturating_sub(capacity);
        state.log.events.drain(..over);
    }

    /// The events that [`Engine::keep_events`] asked for. Every number of it is the same in every run of a program.
    pub fn event_log(&self) -> Vec<LoggedEvent> {
        self.shared.state().log.events.iter().cloned().collect()
    }

    /// What backward from a tensor would use: operands and results that the ops before it keep. Each value once, the
    /// latest op first.
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
                // A region is differentiated as a whole, from what it was given.
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

/// A value that an op keeps for backward (§9.3).
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTensor {
    /// The op.
    pub op: String,
    /// Where it was written.
    pub at: Loc,
    /// The value's type.
    pub ty: Type,
    /// Whether it takes memory already.
    pub computed: bool,
    /// Whether something that the op keeps was changed in place since: backward will refuse.
    pub modified: bool,
    /// Whether backward has run and given it up.
    pub freed: bool,
}

/// Where a base's truth lives.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// In a pure value.
    Ssa,
    /// In a loc that may have no value yet.
    PendingLoc {
        /// The loc.
        loc: LocId,
        /// The token of its initialising store.
        init_tok: Option<EffectToken>,
    },
    /// In a loc.
    Loc(LocId),
}

/// A base as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseView {
    /// Identity.
    pub id: BaseId,
    /// Where the truth lives.
    pub binding: Binding,
    /// Changes of the binding.
    pub binding_version: u64,
    /// Scheduled updates while a pure value.
    pub logical_version: u64,
    /// Committed mutations.
    pub commit_version: u64,
    /// Scheduled mutations.
    pub scheduled_commits: u64,
    /// Live handles.
    pub pins: usize,
    /// Mutated since the last step.
    pub mutated_since_step: bool,
}

/// A loc as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct LocView {
    /// Identity.
    pub id: LocId,
    /// What it holds.
    pub ty: Type,
    /// What it is for.
    pub role: LocRole,
    /// Committed stores.
    pub version: u64,
    /// Scheduled stores.
    pub logical_version: u64,
    /// Whether it has a value.
    pub has_value: bool,
    /// Whether its storage is held.
    pub retained: bool,
    /// Why it is no more.
    pub tombstone: Option<Tombstone>,
    /// The last ordered access.
    pub token: Option<EffectToken>,
    /// The step it was made in.
    pub created_epoch: u64,
    /// Its number among all locs.
    pub created_alloc: u64,
    /// In-place writes of its buffer.
    pub storage_version: Option<u64>,
    /// Its buffer's number.
    pub storage_id: Option<u64>,
}

/// An event that has not run.
#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    /// The token it produces.
    pub token: EffectToken,
    /// The tokens it consumes.
    pub after: EffectTokens,
    /// Identity.
    pub key: EventKey,
    /// What it is.
    pub kind: &'static str,
    /// The loc it touches.
    pub loc: Option<LocId>,
    /// The kind of its store.
    pub store: Option<StoreKind>,
}

/// Everything, copied at one moment.
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
    /// Steps so far.
    pub epoch: u64,
    /// Semantic events of the last plan, in order.
    pub last_plan: Vec<PlanRecord>,
    /// Who executes now, and how deep.
    pub exec_lock: Option<(&'static str, usize)>,
    /// Whether an execution failed.
    pub poisoned: bool,
    /// Buffers of each device.
    pub pools: Vec<PoolStats>,
    /// Bytes copied between devices.
    pub transferred: u64,
    /// Programs of single ops.
    pub kernels: usize,
    /// Kernels that the devices have compiled.
    pub machine_kernels: usize,
    /// Variants of compiled regions: kept, found again, compiled.
    pub variants: (usize, u64, u64),
}

impl Engine {
    /// A copy of the engine's tables.
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
