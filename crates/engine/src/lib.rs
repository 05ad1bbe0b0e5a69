//! The lazy, stateful runtime. Tensors record ops, bases are the storage that aliasing tensors share, locs are cells of mutable
//! state, and tokens order the effects.
//!
//! The README of the crate gives an overview. Programs use this crate through `tensorloom`.

mod amp;
mod autograd;
mod checkpoint;
mod context;
mod debug;
mod dims;
mod engine;
mod error;
mod event;
mod execute;
pub mod extension;
mod inspect;
mod intern;
mod kernels;
mod lock;
pub mod lru;
mod node;
mod operand;
mod plan;
mod pool;
mod profile;
mod record;
mod reduce_axes;
mod region;
mod rng;
mod slab;
mod state;
mod state_cell;
mod step;
mod storage;
mod storage_base;
mod subgraph;
mod tensor;
pub mod trace;
mod transfer;
mod tree;
mod view;
mod view_chain;
mod x64;
mod zero_copy;

pub use amp::{GradScaler, autocast, autocast_dtype};
pub use autograd::BackwardOptions;
pub use context::{
    CallSiteGuard, default_device, enable_grad, enter_library, enter_user_code, is_grad_enabled, no_grad, resolve_loc,
    set_default_device, with_device,
};
pub use debug::{LiveTensor, set_debug_nans};
pub use dims::{Dims, Size, Sizes, shape_of};
pub use engine::{Engine, EngineOptions};
pub use error::{Error, Result};
pub use event::{EffectToken, EffectTokens, EventKey, Origin, StoreKind, after_all};
pub use extension::CompiledProgram;
pub use inspect::{BaseView, Binding, EventView, Inspection, LocView, LoggedEvent, PlanRecord, SavedTensor};
pub use intern::composite;
pub use operand::{Number, Operand, OperandRef, TensorOrScalar};
pub use pool::{PoolStats, SizeStats};
pub use profile::{OpRecord, Phase, Profile, ProfileSums, Unfused, module, phase};
pub use reduce_axes::{ReduceAxes, axes};
pub use region::{CompileOptions, Compiled, VariantKey};
pub use rng::with_rng_key;
pub use slab::SlabKey;
pub use state_cell::{LocEntry, LocId, LocRole, Tombstone};
pub use storage_base::{BaseEntry, BaseId};
pub use tensor::{Ellipsis, Index, NewAxis, OnePick, Picks, ScatterReduce, Tensor, step};
pub use tree::Tree;
pub use view::ViewMeta;
pub use x64::disable_x64;
pub use zero_copy::SharedMemory;
