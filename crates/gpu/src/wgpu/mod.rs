//! WebGPU: the text of grids in WGSL, and the runtime: [`Wgpu`].
//!
//! # Text
//!
//! A kernel's memory is words of 32 bits. What is one memory of a program (its arena, its constants, an input, an output) is bound
//! once, as a whole; where in it each argument starts comes in a uniform block of parameters.
//!
//! # Runtime
//!
//! A device has one queue. A program is encoded into one command buffer and submitted once, but for what has to be read on the
//! way: trip counts, branches, ops that run on the host. In a page the device is JavaScript's (`runtime/page`), and nothing waits.

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
