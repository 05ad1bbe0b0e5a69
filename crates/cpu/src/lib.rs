//! The CPU backend.

pub mod gemm;
pub mod pool;
