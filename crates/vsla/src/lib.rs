#![doc = include_str!("../README.md")]

pub mod autograd;
mod backend;
mod bindings;
pub mod describe;
pub mod error;
mod infer;
pub mod io;
mod link;
mod lower;
mod op;
pub mod ops;
mod plan;
mod profile;
mod program;
pub mod shape;
mod stream;
mod tensor;

pub use backend::{Backend, MemoryTable, Stream};
pub use bindings::{Bindings, Exported};
pub use describe::{Description, NodeDesc, ProgramBuilder, Tag, ValueDesc, ValueId};
pub use error::{Error, ErrorCode, Fault, Result};
pub use infer::{Signature, infer};
pub use ir::DType;
pub use link::{Link, Placed, SharedArena, StageLink};
pub use lower::{Numerics, Path, conv_path};
pub use op::{Gelu, Model, Op};
pub use plan::{ArenaClass, Interval, Plan, Segment};
pub use profile::{Profile, Router};
pub use program::{Node, Program, Value};
pub use stream::{Pyramid, Window};
pub use tensor::Tensor;
