//! Locs: cells of external state (§2.4).

use crate::event::EffectToken;
use crate::intern::Ty;
use crate::slab::{Slab, SlabKey};
use crate::storage::StoredValue;

/// Identity of a loc.
pub type LocId = SlabKey<LocEntry>;

/// What a loc is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocRole {
    /// A tensor that was mutated.
    TensorState,
    /// A gradient.
    GradState,
    /// The random generator's counters.
    RngState,
    /// The engine's own state.
    EngineState,
    /// A value kept for backward.
    SavedState,
    /// Ordered scratch that nobody outside sees.
    InternalScratch,
}

impl LocRole {
    /// Whether the state outlives the step: all but scratch.
    pub fn is_persistent(self) -> bool {
        self != LocRole::InternalScratch
    }
}

/// Why a loc is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tombstone {
    /// `zero_grad` took the gradient away.
    GradInvalidated,
    /// The user freed it.
    UserFreed,
    /// The engine freed it.
    Internal,
    /// It stands for an absent state slot (§8.8).
    NullStateSlot {
        /// The compiled function.
        compiled_fn: u64,
        /// The slot.
        state_slot: usize,
    },
}

/// One loc.
pub struct LocEntry {
    /// What it holds.
    pub(crate) ty: Ty,
    pub(crate) role: LocRole,
    /// Committed stores, in token order.
    pub(crate) version: u64,
    /// Scheduled semantic stores; never rolled back.
    pub(crate) logical_version: u64,
    pub(crate) has_value: bool,
    pub(crate) created_epoch: u64,
    pub(crate) created_alloc: u64,
    /// The value, held strongly.
    pub(crate) storage: Option<StoredValue>,
    pub(crate) tombstone: Option<Tombstone>,
    /// The last ordered access.
    pub(crate) token: Option<EffectToken>,
    /// Events that have not run and refer to this loc.
    pub(crate) pending: usize,
    /// No base refers to it any more; it goes when nothing is pending.
    pub(crate) orphan: bool,
}

/// The loc table.
pub(crate) type LocTable = Slab<LocEntry>;
