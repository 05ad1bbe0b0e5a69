//! GPU backends: [`grid`], the GPU form of the compiler's kernels, with its interpreter, and the source code printers
//! ([`cuda`], [`wgpu`]). [`library`] expands library ops to kernels and matrix products.

mod attention;
pub mod cuda;
pub mod grid;
#[cfg(any(feature = "cuda", feature = "wgpu", target_arch = "wasm32"))]
mod host;
pub mod library;
pub mod wgpu;
