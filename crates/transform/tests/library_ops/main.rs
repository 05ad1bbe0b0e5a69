//! The opaque ops, which backends implement directly: values against JAX, NumPy and PyTorch, and the laws of their rules.

mod any;
mod check;
mod conv;
mod indexing;
mod ragged;
mod threefry;
mod windows;
