//! The lazy, stateful runtime: tensors that record, bases that alias, locs that hold state, tokens that order effects.
//!
//! See the crate's README for the picture. Programs use it through `tensorloom`.

mod along;
mod amp;
mod autograd;
mod base;
mod chain;
mod checkpoint;
pub mod compose;
mod context;
mod debug;
mod dims;
mod engine;
mod error;
mod event;
mod execute;
mod inspect;
mod intern;
mod kernels;
mod lend;
mod loc;
mod lock;
pub mod lru;
mod narrow;
mod node;
mod operand;
mod plan;
mod pool;
mod profile;
mod record;
mod region;
mod rng;
mod slab;
mod slice;
mod state;
mod step;
mod storage;
mod tensor;
pub mod trace;
mod transfer;
mod tree;
mod view;

pub use along::{Along, along};
pub use amp::{GradScaler, autocast, autocast_dtype};
pub use autograd::Backward;
pub use base::{BaseEntry, BaseId};
pub use compose::Program;
pub use context::{
    Within, begin, default_device, enable_grad, is_grad_enabled, no_grad, place, set_default_device, user, with_device,
};
pub use debug::{Live, set_debug_nans};
pub use dims::{Dims, Size, Sizes, shape_of};
pub use engine::{Engine, EngineOptions};
pub use error::{Error, Result};
pub use event::{EventKey, Origin, StoreKind, Token, Tokens, after_all};
pub use inspect::{BaseView, Binding, EventView, Inspection, LocView, Logged, PlanRecord, SavedTensor};
pub use intern::composite;
pub use lend::Lent;
pub use loc::{LocEntry, LocId, LocRole, Tombstone};
pub use narrow::set_narrow;
pub use operand::{Number, Operand, OperandRef, Term};
pub use pool::{PoolStats, SizeStats};
pub use profile::{Phase, Profile, Record, Sums, Unfused, module, phase};
pub use region::{CompileOptions, Compiled, VariantKey};
pub use rng::draw_by;
pub use slab::Key;
pub use tensor::{Ellipsis, NewAxis, OnePick, Pick, Picks, ScatterReduce, Tensor, step};
pub use tree::Tree;
pub use view::ViewMeta;
