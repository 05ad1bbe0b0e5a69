//! The ops that backends implement as such: their values against JAX, NumPy and PyTorch, and the laws of their rules.

mod any;
mod check;
mod conv;
mod indexing;
mod ragged;
mod threefry;
mod windows;
