//! WebGPU: the WGSL source of grids, and the runtime: [`Wgpu`].
//!
//! # Source
//!
//! A kernel's memory consists of 32-bit words. Each allocation of a program (its arena, its constants, an input, an output) is
//! bound once, as a whole; the offset of each argument in it is in a uniform block of parameters.
//!
//! # Runtime
//!
//! A device has one queue. A program is encoded into one command buffer and submitted once, except where the host must read
//! values in between: trip counts, branches, ops that run on the host. In the browser the device belongs to JavaScript
//! (`runtime/browser`), and nothing blocks.

mod functions;
mod print;
#[cfg(any(feature = "wgpu", target_arch = "wasm32"))]
mod runtime;
mod target;
mod values;

pub use print::{Binding, ShaderSource, print};
#[cfg(target_arch = "wasm32")]
pub use runtime::browser;
#[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
pub use runtime::{Template, Trial, WgpuOptions, adapters, templates};
#[cfg(any(feature = "wgpu", target_arch = "wasm32"))]
pub use runtime::{Usage, Wgpu, WgpuBuffer};
pub use target::target;
