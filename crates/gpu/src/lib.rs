//! Kernels for GPUs: [`grid`], the GPU form of the compiler's loops, with its evaluator, and the text that drivers
//! compile ([`cuda`], [`wgpu`]).

pub mod cuda;
pub mod grid;
pub mod wgpu;
