//! The package's program: `tensorloom` behind functions of numbers, for `js/index.js`. For `wasm32-wasip1`, where the standard library has
//! files, this crate is another program: `models`.
//!
//! # Interface
//!
//! Words are f64 in one buffer of this program (`room`). Values are a tag and what follows: 0 nothing, 1 a number, 2 a
//! bool, 3 a handle, 4 a list (how many, then values), 5 a text (how many, then UTF-16 units), 6 pairs (how many, then a text
//! and a value each). Handles are tensors and other objects of this program that JavaScript owns until `release`. A call
//! gives the number of words of its result, or -1, and then `text` says why.
//!
//! Imports (`loom`): `instantiate`, `forget` (kernels, see `cpu/codegen/page.rs`), `now`, `panicked`, `print`, `apply`, which calls
//! a function of JavaScript with tensors, and `results`, how many of what it gave are its results. The device of WebGPU is JavaScript's too (`gpu_..`, see `gpu/wgpu/runtime/page`); what it has read
//! comes back by `gpu::poll_reads` and `arrived`.

#![cfg(target_arch = "wasm32")]

#[cfg(not(target_os = "wasi"))]
mod explain;
#[cfg(not(target_os = "wasi"))]
pub mod exports;
#[cfg(not(target_os = "wasi"))]
mod function;
#[cfg(not(target_os = "wasi"))]
pub mod gpu;
#[cfg(not(target_os = "wasi"))]
mod loops;
#[cfg(target_os = "wasi")]
pub mod models;
#[cfg(not(target_os = "wasi"))]
mod objects;
#[cfg(not(target_os = "wasi"))]
mod value;

#[cfg(not(target_os = "wasi"))]
#[expect(clippy::all, reason = "it is made from the list of functions")]
mod table {
    use crate::value::{Value, fault, give, pair, take};
    use ir::ops::ReduceKind;
    use tensorloom::fft::Complex;
    use tensorloom::optim::{Betas, GradientTransformation, Schedule};
    use tensorloom::{DType, Number, Operand, ReduceAxes, Tensor, fft, lax, linalg, nn, np};

    include!(concat!(env!("OUT_DIR"), "/table.rs"));
}
