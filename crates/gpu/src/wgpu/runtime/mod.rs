//! The runtime for WebGPU adapters: natively through the crate `wgpu`, in the browser through JavaScript (`browser`).

#[cfg(not(target_arch = "wasm32"))]
mod adapter;
mod allocations;
mod attention;
#[cfg(not(target_arch = "wasm32"))]
mod autotune;
#[cfg(not(target_arch = "wasm32"))]
mod backend;
mod bind;
mod binding;
mod binding_split;
#[cfg(target_arch = "wasm32")]
pub mod browser;
#[cfg(not(target_arch = "wasm32"))]
mod completion;
mod coop_matrix;
mod copy_fill;
#[cfg(not(target_arch = "wasm32"))]
mod device;
#[cfg(not(target_arch = "wasm32"))]
mod encode;
mod execute;
mod gemv;
#[cfg(not(target_arch = "wasm32"))]
mod groups;
mod launch;
mod load;
mod memory;
#[cfg(not(target_arch = "wasm32"))]
mod pipelines;
mod pool;
mod product;
mod scatter_rows;
#[cfg(not(target_arch = "wasm32"))]
mod templates;
mod tiles;
#[cfg(not(target_arch = "wasm32"))]
mod timer;

// The replacements of these modules in the browser.
#[cfg(target_arch = "wasm32")]
use browser::{backend, device, encode, pipelines};

#[cfg(not(target_arch = "wasm32"))]
pub use adapter::{WgpuOptions, adapters};
#[cfg(not(target_arch = "wasm32"))]
pub use autotune::Trial;
pub use backend::Wgpu;
pub use memory::WgpuBuffer;
pub use pool::Usage;
#[cfg(not(target_arch = "wasm32"))]
pub use templates::{Template, templates};
