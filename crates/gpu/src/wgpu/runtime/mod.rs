//! Programs on WebGPU adapters: natively through the crate `wgpu`, in a page through JavaScript (`page`).

#[cfg(not(target_arch = "wasm32"))]
mod adapter;
mod attention;
#[cfg(not(target_arch = "wasm32"))]
mod backend;
mod bind;
mod bound;
#[cfg(not(target_arch = "wasm32"))]
mod device;
#[cfg(not(target_arch = "wasm32"))]
mod encode;
mod execute;
mod gemv;
#[cfg(not(target_arch = "wasm32"))]
mod groups;
#[cfg(not(target_arch = "wasm32"))]
mod later;
mod launch;
mod load;
mod memory;
mod moves;
#[cfg(target_arch = "wasm32")]
pub mod page;
#[cfg(not(target_arch = "wasm32"))]
mod pipelines;
mod pool;
mod product;
mod roots;
mod rows;
mod split;
#[cfg(not(target_arch = "wasm32"))]
mod templates;
mod tiles;
#[cfg(not(target_arch = "wasm32"))]
mod timer;
#[cfg(not(target_arch = "wasm32"))]
mod tuned;
mod units;

// What a page has in their place.
#[cfg(target_arch = "wasm32")]
use page::{backend, device, encode, pipelines};

#[cfg(not(target_arch = "wasm32"))]
pub use adapter::{Choice, adapters};
pub use backend::Wgpu;
pub use memory::WgpuBuffer;
pub use pool::Usage;
#[cfg(not(target_arch = "wasm32"))]
pub use templates::{Template, templates};
#[cfg(not(target_arch = "wasm32"))]
pub use tuned::Trial;
