//! Programs on WebGPU adapters.

mod adapter;
mod backend;
mod device;
mod encode;
mod execute;
mod gemv;
mod groups;
mod host;
mod later;
mod launch;
mod load;
mod memory;
mod moves;
mod pipelines;
mod pool;
mod product;
mod roots;
mod rows;
mod tiles;
mod timer;

pub use adapter::{Choice, adapters};
pub use backend::Wgpu;
pub use memory::WgpuBuffer;
pub use pool::Usage;
