//! Bases: what tensors that alias share (§2.2).

use crate::event::EffectToken;
use crate::intern::Ty;
use crate::node::ValueRef;
use crate::slab::{Slab, SlabKey};
use crate::state_cell::LocId;

/// Identity of an alias class.
pub type BaseId = SlabKey<BaseEntry>;

/// Where a base's truth lives.
pub(crate) enum BaseBinding {
    /// In a pure value.
    Ssa(ValueRef),
    /// In a loc that may not be initialised yet; `seed` initialises it.
    PendingLoc { loc: LocId, seed: ValueRef, init_tok: Option<EffectToken> },
    /// In a loc.
    Loc(LocId),
}

/// One base.
pub struct BaseEntry {
    pub(crate) binding: BaseBinding,
    /// Changes when the binding's identity changes.
    pub(crate) binding_version: u64,
    /// Counts scheduled updates while the base is a pure value.
    pub(crate) logical_version: u64,
    /// Counts committed in-place mutations, once each, through `base_commit`.
    pub(crate) commit_version: u64,
    /// Commits that are scheduled: `commit_version` once everything recorded so far has run.
    pub(crate) scheduled_commits: u64,
    /// Type of the whole base, dense.
    pub(crate) ty: Ty,
    /// Live handles.
    pub(crate) pins: usize,
    /// Where it lives.
    pub(crate) device: u8,
    /// Where the user's program made it.
    pub(crate) created_at: ir::Loc,
    /// Compaction's bookkeeping.
    pub(crate) mutated_since_step: bool,
    /// Where gradients of the current value go, if it is in a loc.
    pub(crate) history: Option<ValueRef>,
    /// The value was changed without recording since `history`.
    pub(crate) straight_through: bool,
}

impl BaseEntry {
    #[inline]
    pub(crate) fn ssa(value: ValueRef) -> BaseEntry {
        BaseEntry {
            ty: value.ty().clone(),
            device: value.node.device,
            created_at: value.node.at.clone(),
            binding: BaseBinding::Ssa(value),
            binding_version: 0,
            logical_version: 0,
            commit_version: 0,
            scheduled_commits: 0,
            pins: 0,
            mutated_since_step: false,
            history: None,
            straight_through: false,
        }
    }

    pub(crate) fn rebind(&mut self, binding: BaseBinding) {
        self.binding = binding;
        self.binding_version += 1;
    }

    pub(crate) fn loc(&self) -> Option<LocId> {
        match &self.binding {
            BaseBinding::Ssa(_) => None,
            BaseBinding::PendingLoc { loc, .. } | BaseBinding::Loc(loc) => Some(*loc),
        }
    }
}

/// The base table.
pub(crate) type BaseTable = Slab<BaseEntry>;
