//! The CPU backend.

pub mod codegen;
