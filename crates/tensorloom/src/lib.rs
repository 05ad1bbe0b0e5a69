//! Tensors, functions and compiled regions.
//!
//! ```
//! use tensorloom::{no_grad, tensor};
//!
//! let w = tensor(&[1.0f32, 2.0, 3.0], &[3]).requires_grad_();
//! let loss = (&w * &w).sum();
//! loss.backward()?;
//! no_grad(|| w.sub_(&(0.5 * w.grad().unwrap())));
//! assert_eq!(w.to_vec::<f32>()?, [0.0, 0.0, 0.0]);
//! # Ok::<(), tensorloom::Error>(())
//! ```
//!
//! An op on operands that don't fit gives an invalid tensor; the error names the line when the tensor is read:
//!
//! ```
//! use tensorloom::{tensor, zeros};
//!
//! let bad = tensor(&[1.0f32, 2.0], &[2]).matmul(&zeros(&[3]));
//! let worse = bad.tanh().sum();
//! assert!(worse.item::<f32>().is_err());
//! ```
//!
//! A tensor is no number and never turns into one by itself (§1.3):
//!
//! ```compile_fail
//! let x: f32 = tensorloom::zeros(&[]).into();
//! ```

mod configure;
mod device;
pub mod devices;
pub mod fft;
mod function;
pub mod lax;
mod leaks;
pub mod linalg;
pub mod nn;
pub mod np;
pub mod optim;
pub mod optimizer;
pub mod random;
pub mod special;
pub mod testing;
pub mod tree;
mod write;

pub use configure::{Config, configure, engine, reset};
pub use derive::Tree;
pub use device::{Device, block_until_ready, device_put, devices};
pub use engine::trace;
/// Where time and memory go; see [`Engine::profile`].
pub mod profile {
    pub use engine::{Phase, Profile, Record, Sums, Unfused, module, phase};
}
pub use engine::{
    Backward, CompileOptions, Compiled, Engine, EngineOptions, Error, GradScaler, Number, Result, ScatterReduce,
    Tensor, Tree, autocast, default_device, enable_grad, is_grad_enabled, no_grad, set_debug, set_debug_nans,
    set_debug_output, set_default_device, with_device,
};
pub use function::*;
pub use ir::ops::{ReduceKind, RematPolicy};
pub use ir::{DType, Element, Graph, Literal, Type};
pub use leaks::{LeakCheck, LeakReport, check_leaks};
pub use tree::Static;
pub use write::Operand;

extern crate self as tensorloom;

/// The engine of a tensor, or the process's for a tensor of a trace.
pub(crate) fn engine_of(t: &Tensor) -> &Engine {
    t.engine().unwrap_or_else(|| engine())
}

/// A tensor from data in row-major order.
#[track_caller]
pub fn tensor<T: Element>(data: &[T], shape: &[usize]) -> Tensor {
    engine().tensor(data, shape)
}

/// f32 zeros.
#[track_caller]
pub fn zeros(shape: &[usize]) -> Tensor {
    engine().zeros(DType::F32, shape)
}

/// f32 ones.
#[track_caller]
pub fn ones(shape: &[usize]) -> Tensor {
    engine().ones(DType::F32, shape)
}

/// An f32 tensor of one number.
#[track_caller]
pub fn full(shape: &[usize], x: impl Into<Number>) -> Tensor {
    engine().full(DType::F32, shape, x)
}

/// `0, 1, .., n - 1` as i64.
#[track_caller]
pub fn arange(n: usize) -> Tensor {
    engine().arange(DType::I64, n)
}

/// Runs everything that is pending and begins a new step.
pub fn mark_step() -> Result<()> {
    engine().mark_step()
}

/// Makes a compiled region of a function of tensors.
pub fn compile<A: Tree, R: Tree, F: Fn(A) -> R>(f: F) -> Compiled<A, R, F> {
    engine().compile(f)
}
