//! Kernels for GPUs: [`grid`], the GPU form of the compiler's loops, with its evaluator, and the text that drivers
//! compile ([`cuda`], [`wgpu`]). [`library`] makes kernels and products of library ops.

mod attention;
pub mod cuda;
pub mod grid;
#[cfg(any(feature = "cuda", feature = "wgpu", target_arch = "wasm32"))]
mod host;
pub mod library;
pub mod wgpu;
