//! Locs: cells of mutable state outside the pure graph (§2.4).

use crate::event::EffectToken;
use crate::intern::Ty;
use crate::slab::{Slab, SlabKey};
use crate::storage::StoredValue;

/// The identity of a loc.
pub type LocId = SlabKey<LocEntry>;

/// The kind of state in a loc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocRole {
    /// The value of a tensor that was mutated.
    TensorState,
    /// The gradient of a leaf or of a retained tensor.
    GradState,
    /// The random generator's counters.
    RngState,
    /// The engine's own state.
    EngineState,
    /// A value kept for backward.
    SavedState,
    /// A temporary cell with ordered access that is not visible outside.
    InternalScratch,
}

impl LocRole {
    /// Whether the state outlives the step: all kinds except scratch.
    pub fn is_persistent(self) -> bool {
        self != LocRole::InternalScratch
    }
}

/// The reason that a loc was freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tombstone {
    /// `zero_grad` cleared the gradient.
    GradInvalidated,
    /// The user freed the loc.
    UserFreed,
    /// The engine freed the loc.
    Internal,
    /// The loc stands for an empty state slot (§8.8).
    NullStateSlot {
        /// The number of the compiled function.
        compiled_fn: u64,
        /// The index of the slot.
        state_slot: usize,
    },
}

/// One loc: a state cell.
pub struct LocEntry {
    /// The type of its value.
    pub(crate) ty: Ty,
    pub(crate) role: LocRole,
    /// The number of committed stores, in token order.
    pub(crate) version: u64,
    /// The number of scheduled semantic stores; never rolled back.
    pub(crate) logical_version: u64,
    pub(crate) has_value: bool,
    pub(crate) created_epoch: u64,
    pub(crate) created_alloc: u64,
    /// The value; the reference keeps its storage alive.
    pub(crate) storage: Option<StoredValue>,
    pub(crate) tombstone: Option<Tombstone>,
    /// The token of the last ordered access.
    pub(crate) token: Option<EffectToken>,
    /// The number of events that have not run and refer to this loc.
    pub(crate) pending: usize,
    /// Whether no base refers to the loc any more; it is freed when no event is pending.
    pub(crate) orphan: bool,
}

/// The table of locs.
pub(crate) type LocTable = Slab<LocEntry>;
