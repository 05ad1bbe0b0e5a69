//! The engine's tables, and the semantics of loads and stores of bases (§3).

use crate::autograd::Leaf;
use crate::error::{Error, Result};
use crate::event::{Effect, EffectToken, EffectTokens, Event, EventKey, Events, Origin, StoreKind, after_all};
use crate::inspect::{EventLog, PlanRecord};
use crate::intern::{OpInterner, SignatureInterner, Ty};
use crate::node::{Args, Node, NodeKind, NodePool, ValueRef};
use crate::rng::RngState;
use crate::state_cell::{LocEntry, LocId, LocRole, LocTable, Tombstone};
use crate::storage_base::{BaseBinding, BaseEntry, BaseId, BaseTable};
use crate::tensor::Invalid;
use ir::Loc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Event keys for one compiled call: its events, in schedule order (§8.6.0).
pub(crate) struct CallKeys {
    pub(crate) instance: u64,
    pub(crate) graph: u64,
    pub(crate) position: u32,
}

/// The engine state that the state lock protects.
#[derive(Default)]
pub(crate) struct EngineState {
    pub(crate) bases: BaseTable,
    pub(crate) locs: LocTable,
    pub(crate) events: Events,
    pub(crate) tok_global: Option<EffectToken>,
    pub(crate) schedule: Option<CallKeys>,
    pub(crate) epoch: u64,
    pub(crate) alloc_counter: u64,
    pub(crate) mut_counter: u64,
    pub(crate) poisoned: Option<Arc<Error>>,
    pub(crate) invalid: Vec<Arc<Invalid>>,
    pub(crate) last_plan: Vec<PlanRecord>,
    pub(crate) log: EventLog,
    pub(crate) rng: RngState,
    pub(crate) ops: OpInterner,
    pub(crate) signatures: SignatureInterner,
    pub(crate) spare: NodePool,
    /// The number of plans so far.
    pub(crate) plans: u64,
    instances: u64,
}

impl EngineState {
    /// Returns a new emission number.
    #[inline]
    pub(crate) fn next_instance(&mut self) -> u64 {
        self.instances += 1;
        self.instances
    }

    /// Returns the key for the next recorded node.
    pub(crate) fn node_key(&mut self) -> EventKey {
        self.key(Origin::IrNode)
    }

    #[inline]
    fn key(&mut self, origin: Origin) -> EventKey {
        match &mut self.schedule {
            Some(s) => {
                s.position += 1;
                EventKey { instance: s.instance, position: s.position, origin }
            }
            None => EventKey { instance: self.next_instance(), position: 0, origin },
        }
    }

    fn event_key(&mut self, effect: &Effect) -> EventKey {
        let graph = self.schedule.as_ref().map_or(0, |s| s.graph);
        self.key(Origin::Synthetic { graph, tag: effect.tag() })
    }

    /// Records an effect: applies the join rule (§3.3), creates a token, and sets `tok_global` and the loc's token to it (§3.2).
    pub(crate) fn emit(&mut self, effect: Effect, also_after: Option<EffectToken>, at: &Loc) -> EffectToken {
        let token = self.events.next_token();
        // On a poisoned engine nothing runs any more (§6.7), and a pending event would hold its loc for ever.
        if self.poisoned.is_some() {
            return token;
        }
        let loc = effect.loc();
        let loc_token = loc.and_then(|l| self.locs.get(l)).and_then(|l| l.token);
        let after: EffectTokens = after_all([self.tok_global, loc_token, also_after].into_iter().flatten());
        let key = self.event_key(&effect);
        if let Some(entry) = loc.and_then(|l| self.locs.get_mut(l)) {
            entry.token = Some(token);
            entry.pending += 1;
            if matches!(effect, Effect::RngDraw { .. } | Effect::LocStore { kind: StoreKind::Semantic, .. }) {
                entry.logical_version += 1;
            }
        }
        self.tok_global = Some(token);
        self.events.push(Event { token, after, key, effect, at: at.clone(), done: false });
        token
    }

    /// Creates a loc without a value.
    pub(crate) fn new_loc(&mut self, ty: Ty, role: LocRole) -> LocId {
        self.alloc_counter += 1;
        self.locs.insert(LocEntry {
            ty,
            role,
            version: 0,
            logical_version: 0,
            has_value: false,
            created_epoch: self.epoch,
            created_alloc: self.alloc_counter,
            storage: None,
            tombstone: None,
            token: None,
            pending: 0,
            orphan: false,
        })
    }

    /// Creates a base with a pure value and one handle.
    #[inline]
    pub(crate) fn new_base(&mut self, value: ValueRef) -> BaseId {
        self.bases.insert(BaseEntry { pins: 1, ..BaseEntry::ssa(value) })
    }

    fn base(&self, id: BaseId) -> &BaseEntry {
        self.bases.get(id).expect("a handle keeps its base")
    }

    pub(crate) fn base_mut(&mut self, id: BaseId) -> &mut BaseEntry {
        self.bases.get_mut(id).expect("a handle keeps its base")
    }

    /// Returns an error for a freed loc.
    pub(crate) fn check_loc(&self, id: LocId, at: &Loc) -> Result<()> {
        match self.locs.get(id).map(|l| &l.tombstone) {
            Some(None) => Ok(()),
            Some(Some(Tombstone::GradInvalidated)) => Err(Error::InvalidatedGrad { at: at.clone() }),
            Some(Some(Tombstone::NullStateSlot { compiled_fn, state_slot })) => {
                Err(Error::NullStateSlot { function: *compiled_fn, slot: *state_slot })
            }
            Some(Some(_)) | None => Err(Error::InvalidatedLoc { loc: id.to_string(), at: at.clone() }),
        }
    }

    /// `ensure_initialized` (§3.7): the token of the store that initialises a pending loc with its seed.
    fn ensure_initialized(&mut self, id: BaseId, at: &Loc) -> Result<Option<EffectToken>> {
        let BaseBinding::PendingLoc { loc, seed, init_tok } = &self.base(id).binding else {
            return Ok(None);
        };
        if init_tok.is_some() {
            return Ok(*init_tok);
        }
        let store = Effect::LocStore { loc: *loc, value: seed.clone(), kind: StoreKind::Materialize };
        let token = self.emit(store, None, at);
        if let BaseBinding::PendingLoc { init_tok, .. } = &mut self.base_mut(id).binding {
            *init_tok = Some(token);
        }
        Ok(Some(token))
    }

    /// `base_load` (§3.7): the base's current value in program order. `leaf` is the handle's own leaf; a detached handle
    /// gets a value without gradient history.
    pub(crate) fn base_load(
        &mut self,
        id: BaseId,
        leaf: Option<&Arc<Leaf>>,
        detached: bool,
        at: &Loc,
    ) -> Result<ValueRef> {
        if let BaseBinding::Ssa(value) = &self.base(id).binding {
            let value = value.clone();
            return Ok(match leaf {
                Some(leaf) => leaf.alias(|| self.alias(value, Some(leaf), at)),
                None if detached && value.node.tracked => self.alias(value, None, at),
                None => value,
            });
        }
        let loc = self.base(id).loc().expect("it is in a loc");
        self.check_loc(loc, at)?;
        let init = self.ensure_initialized(id, at)?;
        let base = self.base(id);
        let history = base.history.clone().filter(|_| !detached && leaf.is_none());
        let straight = base.straight_through && history.is_some();
        let (ty, device) = (base.ty.clone(), base.device);
        let token = self.events.next_token();
        let key = self.node_key();
        let args: Args = history.into_iter().collect();
        let tracked = args.iter().any(|a| a.node.tracked);
        let node = Node::new(key, NodeKind::Load { token, loc, ty }, args, at.clone());
        let mut node = node.tracked(tracked).with_leaf(leaf);
        node.straight_through = straight;
        node.device = device;
        let node = Arc::new(node);
        self.emit(Effect::LocLoad { loc, into: Arc::downgrade(&node) }, init, at);
        Ok(ValueRef { node, out: 0 })
    }

    /// The value that gradients of the base's current value flow to, if any.
    pub(crate) fn history(&self, id: BaseId) -> Option<ValueRef> {
        match &self.base(id).binding {
            BaseBinding::Ssa(r) => Some(r.clone()).filter(|r| r.node.tracked),
            _ => self.base(id).history.clone(),
        }
    }

    /// Whether gradients flow through the base's current value.
    pub(crate) fn is_tracked(&self, id: BaseId) -> bool {
        match &self.base(id).binding {
            BaseBinding::Ssa(r) => r.node.tracked,
            _ => self.base(id).history.is_some(),
        }
    }

    /// Records an alias of a value: the alias of a leaf, or one that is cut off from gradients.
    pub(crate) fn alias(&mut self, value: ValueRef, leaf: Option<&Arc<Leaf>>, at: &Loc) -> ValueRef {
        let ty = value.ty().clone();
        let (done, device) = (value.value(), value.node.device);
        let mut node =
            Node::new(self.node_key(), NodeKind::Alias(ty), Args::from_iter([value]), at.clone()).with_leaf(leaf);
        node.device = device;
        if let Some(v) = done {
            node.slot().values.push(v);
        }
        ValueRef { node: Arc::new(node), out: 0 }
    }

    /// `base_store` (§3.7): an in-place mutation, with exactly one `base_commit` (§4.3).
    pub(crate) fn base_store(
        &mut self,
        id: BaseId,
        value: ValueRef,
        role: LocRole,
        unrecorded: bool,
        at: &Loc,
    ) -> Result<()> {
        self.base_write(id, value, role, unrecorded, at)?;
        self.commit(id, at);
        Ok(())
    }

    /// The store of a mutation, without its commit.
    pub(crate) fn base_write(
        &mut self,
        id: BaseId,
        value: ValueRef,
        role: LocRole,
        unrecorded: bool,
        at: &Loc,
    ) -> Result<()> {
        if let Some(loc) = self.base(id).loc() {
            self.check_loc(loc, at)?;
        }
        // Externalise on mutation (§4.3). The seed is the value before the rebinding, so it never loads from the new loc.
        let mut before = None;
        if let BaseBinding::Ssa(seed) = &self.base(id).binding {
            let seed = seed.clone();
            before = seed.node.tracked.then(|| seed.clone());
            let loc = self.new_loc(seed.ty().clone(), role);
            let base = self.base_mut(id);
            base.logical_version += 1;
            base.rebind(BaseBinding::PendingLoc { loc, seed, init_tok: None });
        }
        let init = self.ensure_initialized(id, at)?;
        let base = self.base_mut(id);
        base.mutated_since_step = true;
        // A mutation that is not recorded for backward keeps the gradient history, as in PyTorch.
        if value.node.tracked || !unrecorded {
            base.history = value.node.tracked.then(|| value.clone());
            base.straight_through = false;
        } else {
            base.history = base.history.take().or(before);
            base.straight_through = true;
        }
        let loc = base.loc().expect("it is in a loc");
        // A node may overwrite the loc's buffer with its result only if no pending load or store was recorded after the node.
        let last = self.locs.get(loc).and_then(|l| l.token).and_then(|t| self.events.pending(t));
        let latest = last.is_none_or(|e| e.key < value.node.key());
        if latest && !value.node.tracked && matches!(value.node.work, NodeKind::Op(_)) {
            value.node.slot().kept().replaces = Some(loc);
        }
        self.emit(Effect::LocStore { loc, value, kind: StoreKind::Semantic }, init, at);
        Ok(())
    }

    /// `base_commit(base, mut_id)` with a fresh `mut_id` (§3.6).
    pub(crate) fn commit(&mut self, base: BaseId, at: &Loc) {
        self.mut_counter += 1;
        let mut_id = self.mut_counter;
        self.base_mut(base).scheduled_commits += 1;
        self.emit(Effect::BaseCommit { base, mut_id }, None, at);
    }

    /// Removes one handle (§1.4); the base is removed with its last handle. The caller must drop the result outside the lock.
    pub(crate) fn unpin(&mut self, id: BaseId) -> Option<BaseEntry> {
        let base = self.bases.get_mut(id)?;
        base.pins = base.pins.saturating_sub(1);
        if base.pins > 0 {
            return None;
        }
        if let Some(loc) = base.loc() {
            self.orphan(loc);
        }
        self.bases.remove(id)
    }

    pub(crate) fn orphan(&mut self, loc: LocId) {
        if let Some(entry) = self.locs.get_mut(loc) {
            entry.orphan = true;
            self.sweep_loc(loc);
        }
    }

    /// Decrements the count of pending events.
    pub(crate) fn finish_pending(&mut self, loc: LocId) {
        if let Some(entry) = self.locs.get_mut(loc) {
            entry.pending -= 1;
        }
        self.sweep_loc(loc);
    }

    /// Frees a loc if no base and no pending event refers to it (§6.4, §14).
    pub(crate) fn sweep_loc(&mut self, loc: LocId) {
        if self.locs.get(loc).is_some_and(|l| l.orphan && l.pending == 0) {
            self.locs.remove(loc);
        }
    }

    /// The first error that was not read.
    pub(crate) fn first_unread(&mut self) -> Option<Error> {
        let found = self.invalid.iter().find(|i| !i.read.swap(true, Ordering::Relaxed)).map(|i| i.error.clone());
        self.invalid.retain(|i| !i.read.load(Ordering::Relaxed));
        found
    }
}
