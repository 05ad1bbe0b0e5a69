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
//! way: trip counts, branches, ops that run on the host. Nothing waits in a place where a browser would have to await: see
//! `runtime/later.rs`.

mod functions;
mod print;
#[cfg(feature = "wgpu")]
mod runtime;
mod target;

pub use print::{Binding, Text, print};
#[cfg(feature = "wgpu")]
pub use runtime::{Choice, Usage, Wgpu, WgpuBuffer, adapters};
pub use target::target;
