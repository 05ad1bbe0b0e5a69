//! Bases: the storage that aliasing tensors share (§2.2).

use crate::event::EffectToken;
use crate::intern::Ty;
use crate::node::ValueRef;
use crate::slab::{Slab, SlabKey};
use crate::state_cell::LocId;

/// The identity of a base, which is the identity of an alias class.
pub type BaseId = SlabKey<BaseEntry>;

/// The location of a base's current value.
pub(crate) enum BaseBinding {
    /// A pure value.
    Ssa(ValueRef),
    /// A loc that may not be initialised yet; `seed` initialises it.
    PendingLoc { loc: LocId, seed: ValueRef, init_tok: Option<EffectToken> },
    /// A loc with a value.
    Loc(LocId),
}

/// A base: the shared storage of aliasing tensors.
pub struct BaseEntry {
    pub(crate) binding: BaseBinding,
    /// Incremented when the binding changes to another value or loc.
    pub(crate) binding_version: u64,
    /// The number of updates scheduled while the base holds a pure value.
    pub(crate) logical_version: u64,
    /// The number of committed in-place mutations, one for each `base_commit`.
    pub(crate) commit_version: u64,
    /// The number of scheduled commits: `commit_version` once everything recorded so far has run.
    pub(crate) scheduled_commits: u64,
    /// The type of the whole base, dense.
    pub(crate) ty: Ty,
    /// The number of live handles.
    pub(crate) pins: usize,
    /// The device of the base.
    pub(crate) device: u8,
    /// The source line that created it.
    pub(crate) created_at: ir::Loc,
    /// Whether the base was mutated since the last step; used by compaction.
    pub(crate) mutated_since_step: bool,
    /// The value that gradients of the current value flow to, if the base is bound to a loc.
    pub(crate) history: Option<ValueRef>,
    /// Whether the value was changed without recording since `history` was set.
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

/// The table of bases.
pub(crate) type BaseTable = Slab<BaseEntry>;
