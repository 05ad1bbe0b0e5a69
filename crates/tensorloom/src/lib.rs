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
mod data;
mod data_loader;
mod device;
pub mod devices;
pub mod fft;
mod function;
pub mod lax;
mod leaks;
pub mod linalg;
pub mod memory;
pub mod nn;
pub mod np;
pub mod optim;
pub mod optimizer;
pub mod prelude;
pub mod random;
mod save;
pub mod shard;
pub mod special;
pub mod testing;
pub mod tree;
mod write;

pub use configure::{Config, configure, engine, reset};
pub use data::Data;
pub use data_loader::{Batches, DataLoader};
pub use derive::Tree;
pub use device::{Device, block_until_ready, device_put, devices};
pub use engine::trace;
/// Where time and memory go; see [`Engine::profile`].
pub mod profile {
    pub use engine::{Phase, Profile, Record, Sums, Unfused, module, phase};
}
pub use engine::{
    Along, Backward, CompileOptions, Compiled, Dims, Ellipsis, Engine, EngineOptions, Error, Lent, NewAxis, Number,
    Operand, Pick, Result, ScatterReduce, Tensor, Term, Tree, along, autocast, default_device, enable_grad,
    is_grad_enabled, no_grad, set_debug, set_debug_nans, set_debug_output, set_default_device, set_narrow, step,
    with_device,
};
pub use function::*;
pub use ir::ops::{ReduceKind, RematPolicy};
pub use ir::{DType, Element, Graph, Literal, Type};
pub use leaks::{LeakCheck, LeakReport, check_leaks};
pub use optimizer::GradScaler;
#[doc(hidden)]
pub use save::DTYPES as SAFETENSORS_DTYPES;
pub use save::{load, save};
pub use shard::{Mesh, Sharded, Sharding, Spec, pmap, shard_map};
pub use tree::Static;

extern crate self as tensorloom;

/// The engine of a tensor, or the process's for a tensor of a trace.
pub(crate) fn engine_of(t: &Tensor) -> &Engine {
    t.engine().unwrap_or_else(|| engine())
}

/// A tensor from data in row-major order. Literals without a suffix are f32 and i32.
///
/// ```
/// use tensorloom::{DType, tensor, tensor_of};
///
/// let x = tensor(&[1.0, 2.0, 3.0, 4.0], (2, 2));
/// assert_eq!((x.dtype(), x.shape()), (DType::F32, &[2, 2][..]));
/// assert_eq!(tensor(&[1, 2], 2).dtype(), DType::I32);
/// assert_eq!(tensor_of::<f64>(&[0.1], 1).dtype(), DType::F64);
/// ```
#[track_caller]
pub fn tensor(data: impl Data, shape: impl Dims) -> Tensor {
    let _here = write::here();
    match write::sizes("tensor", &shape) {
        Ok(shape) => engine().tensor(data.elements(), &shape),
        Err(bad) => bad,
    }
}

/// A tensor from elements of a type that is named, f64 for one.
#[track_caller]
pub fn tensor_of<T: Element>(data: &[T], shape: impl Dims) -> Tensor {
    let _here = write::here();
    match write::sizes("tensor_of", &shape) {
        Ok(shape) => engine().tensor(data, &shape),
        Err(bad) => bad,
    }
}

/// f32 zeros.
#[track_caller]
pub fn zeros(shape: impl Dims) -> Tensor {
    let _here = write::here();
    write::sizes("zeros", &shape).map_or_else(|bad| bad, |shape| engine().zeros(DType::F32, &shape))
}

/// f32 ones.
#[track_caller]
pub fn ones(shape: impl Dims) -> Tensor {
    let _here = write::here();
    write::sizes("ones", &shape).map_or_else(|bad| bad, |shape| engine().ones(DType::F32, &shape))
}

/// An f32 tensor of one number.
#[track_caller]
pub fn full(shape: impl Dims, x: impl Into<Number>) -> Tensor {
    let _here = write::here();
    write::sizes("full", &shape).map_or_else(|bad| bad, |shape| engine().full(DType::F32, &shape, x))
}

/// f32 numbers between 0 and 1, from the process's generator; see [`manual_seed`].
#[track_caller]
pub fn rand(shape: impl Dims) -> Tensor {
    let _here = write::here();
    write::sizes("rand", &shape).map_or_else(|bad| bad, |shape| engine().rand(&shape))
}

/// f32 numbers of the standard normal distribution, from the process's generator; see [`manual_seed`].
#[track_caller]
pub fn randn(shape: impl Dims) -> Tensor {
    let _here = write::here();
    write::sizes("randn", &shape).map_or_else(|bad| bad, |shape| engine().randn(&shape))
}

/// i64 numbers from `low` to below `high`, from the process's generator; see [`manual_seed`].
#[track_caller]
pub fn randint(low: i64, high: i64, shape: impl Dims) -> Tensor {
    let _here = write::here();
    write::sizes("randint", &shape).map_or_else(|bad| bad, |shape| engine().randint(low, high, &shape))
}

/// Begins the random sequence of the process's engine anew: first values of layers, [`rand`], dropout.
pub fn manual_seed(seed: u64) {
    engine().manual_seed(seed);
}

/// `0, 1, .., n - 1` as i64.
#[track_caller]
pub fn arange(n: usize) -> Tensor {
    let _here = write::here();
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

// The pages that show how to use it, checked.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/broadcasting.md")]
    mod broadcasting {}
    #[doc = include_str!("../../../docs/methods.md")]
    mod methods {}
}
