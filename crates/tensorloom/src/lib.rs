//! Tensors, functions, compiled regions, and what is built on them.
//!
//! # Features
//!
//! `cpu`, `nn`, `linalg` and `fft` are on by default. Others: `train` (the training loop), `cuda`, `wgpu`, `cranelift`, `lang` (the
//! `.module` language), `include` (`include_module!`), `models`, `onnx`, `serve`, `vsla`, `dist`.
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
#[cfg(feature = "fft")]
pub mod fft;
mod function;
pub mod lax;
mod leaks;
#[cfg(feature = "linalg")]
pub mod linalg;
pub mod memory;
#[cfg(feature = "nn")]
pub mod nn;
pub mod np;
#[cfg(feature = "onnx")]
pub mod onnx;
#[cfg(feature = "nn")]
pub mod optim;
#[cfg(feature = "nn")]
pub mod optimizer;
pub mod prelude;
pub mod random;
mod record;
#[cfg(feature = "nn")]
mod save;
pub mod shard;
pub mod special;
pub mod testing;
#[cfg(feature = "train")]
pub mod train;
pub mod tree;

pub use self::device::{Device, block_until_ready, device_put, devices};
pub use configure::{Config, configure, engine, reset};
pub use data::Data;
pub use data_loader::{Batches, DataLoader};
pub use engine::trace;
pub use macros::Tree;
/// Printing every program that is compiled, as the environment variable `LOOM_DEBUG` does.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tensorloom::{Tensor, debug, jit, ones};
///
/// let printed = Arc::new(Mutex::new(String::new()));
/// let text = printed.clone();
/// debug::set_output(move |more| text.lock().unwrap().push_str(more)); // else standard error
/// debug::set_level(1);
/// jit(|x: Tensor| x.exp().sum()).call(ones(5)).item::<f32>()?;
/// debug::set_level(0);
/// assert!(printed.lock().unwrap().contains("exp(%0)"));
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub mod debug {
    pub use compiler::debug::{MAX_LEVEL, level, set_level, set_output};
}
/// Where time and memory go; see [`Engine::profile`].
pub mod profile {
    pub use engine::{OpRecord, Phase, Profile, ProfileSums, Unfused, module, phase};
}
/// Products in a narrow type, in what `f` does.
///
/// ```
/// use tensorloom::{DType, autocast, ones};
///
/// let y = autocast(DType::BF16, || ones((2, 3)).matmul(&ones((3, 2))));
/// assert_eq!(y.dtype(), DType::BF16);
/// ```
pub use engine::autocast;
/// The axes of a reduction, and whether they stay.
///
/// ```
/// use tensorloom::{axes, ones};
///
/// let x = ones((2, 3));
/// assert_eq!(x.mean_axes(axes(1).keep(), false).shape(), [2, 1]);
/// ```
pub use engine::axes;
/// Where new tensors are made now.
///
/// ```
/// use tensorloom::{default_device, with_device};
///
/// assert_eq!(default_device(), 0);
/// assert_eq!(with_device(1, default_device), 1);
/// ```
pub use engine::default_device;
/// 64-bit types as 32-bit ones, as JAX has them.
///
/// ```
/// use tensorloom::{DType, arange, disable_x64};
///
/// disable_x64(true);
/// assert_eq!(arange(3).dtype(), DType::I32);
/// disable_x64(false);
/// assert_eq!(arange(3).dtype(), DType::I64);
/// ```
pub use engine::disable_x64;
/// Recording for backward, in what `f` does.
///
/// ```
/// use tensorloom::{enable_grad, no_grad, ones};
///
/// let w = ones(2).requires_grad_();
/// assert!(no_grad(|| enable_grad(|| &w * 2.0)).requires_grad());
/// ```
pub use engine::enable_grad;
/// Whether backward will know of what is done now.
///
/// ```
/// use tensorloom::{is_grad_enabled, no_grad};
///
/// assert!(is_grad_enabled());
/// assert!(!no_grad(is_grad_enabled));
/// ```
pub use engine::is_grad_enabled;
/// No recording for backward, in what `f` does.
///
/// ```
/// use tensorloom::{no_grad, ones};
///
/// let w = ones(2).requires_grad_();
/// no_grad(|| w.sub_(0.5));
/// assert_eq!(w.to_vec::<f32>()?, [0.5, 0.5]);
/// assert!(!no_grad(|| &w * 2.0).requires_grad());
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub use engine::no_grad;
/// Finds the op that makes the first NaN.
///
/// ```
/// use tensorloom::{set_debug_nans, tensor};
///
/// set_debug_nans(true);
/// let y = tensor(&[-1.0], 1).log();
/// assert!(y.to_vec::<f32>().is_err()); // names this line
/// set_debug_nans(false);
/// ```
pub use engine::set_debug_nans;
/// Where all threads make new tensors.
///
/// ```
/// use tensorloom::{default_device, set_default_device};
///
/// set_default_device(0);
/// assert_eq!(default_device(), 0);
/// ```
pub use engine::set_default_device;
/// A range with a step, to index with.
///
/// ```
/// use tensorloom::{arange, step};
///
/// assert_eq!(arange(6).i(step(.., 2)).to_vec::<i64>()?, [0, 2, 4]);
/// assert_eq!(arange(3).i(step(.., -1)).to_vec::<i64>()?, [2, 1, 0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub use engine::step;
/// Where this thread makes new tensors, in what `f` does.
///
/// ```
/// use tensorloom::{ones, with_device};
///
/// let x = with_device(0, || ones(3));
/// assert_eq!(x.sum().item::<f32>()?, 3.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub use engine::with_device;
pub use engine::{
    BackwardOptions, CompileOptions, Compiled, Dims, Ellipsis, Engine, EngineOptions, Error, Index, NewAxis, Number,
    Operand, ReduceAxes, Result, ScatterReduce, SharedMemory, Tensor, TensorOrScalar, Tree,
};
pub use function::*;
pub use ir::ops::{ReduceKind, RematPolicy};
pub use ir::{DType, Element, Graph, Literal, Type};
pub use leaks::{LeakCheck, LeakReport, check_leaks};
#[cfg(feature = "include")]
pub use macros::include_module;
#[cfg(feature = "nn")]
pub use optimizer::GradScaler;
#[cfg(feature = "nn")]
#[doc(hidden)]
pub use save::DTYPES as SAFETENSORS_DTYPES;
#[cfg(feature = "nn")]
pub use save::{load, save};
pub use shard::{Mesh, Sharded, Sharding, Spec, pmap, shard_map};
pub use tree::Static;

/// Ranks that compute together: groups, transports and collectives.
#[cfg(feature = "dist")]
pub use ::dist;
/// The `.module` language.
#[cfg(feature = "lang")]
pub use ::lang;
/// Language models: HuggingFace directories and GGUF files in and out, training and generation.
#[cfg(feature = "models")]
pub use ::models;
/// Models behind an OpenAI-compatible HTTP interface.
#[cfg(feature = "serve")]
pub use ::models::serve;
/// Tensors whose shape is data.
#[cfg(feature = "vsla")]
pub use ::vsla;

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
    let _here = record::here();
    match record::sizes("tensor", &shape) {
        Ok(shape) => engine().tensor(data.elements(), &shape),
        Err(bad) => bad,
    }
}

/// A tensor from elements of a type that is named, f64 for one.
///
/// ```
/// use tensorloom::{DType, tensor_of};
///
/// let x = tensor_of::<f64>(&[0.1, 0.2], 2);
/// assert_eq!((x.dtype(), x.to_vec::<f64>()?), (DType::F64, vec![0.1, 0.2]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn tensor_of<T: Element>(data: &[T], shape: impl Dims) -> Tensor {
    let _here = record::here();
    match record::sizes("tensor_of", &shape) {
        Ok(shape) => engine().tensor(data, &shape),
        Err(bad) => bad,
    }
}

/// f32 zeros.
///
/// ```
/// use tensorloom::zeros;
///
/// assert_eq!(zeros((2, 3)).sum().item::<f32>()?, 0.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn zeros(shape: impl Dims) -> Tensor {
    let _here = record::here();
    record::sizes("zeros", &shape).map_or_else(|bad| bad, |shape| engine().zeros(DType::F32, &shape))
}

/// f32 ones.
///
/// ```
/// use tensorloom::ones;
///
/// assert_eq!(ones((2, 3)).sum().item::<f32>()?, 6.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn ones(shape: impl Dims) -> Tensor {
    let _here = record::here();
    record::sizes("ones", &shape).map_or_else(|bad| bad, |shape| engine().ones(DType::F32, &shape))
}

/// An f32 tensor of one number.
///
/// ```
/// use tensorloom::full;
///
/// assert_eq!(full(3, 0.5).to_vec::<f32>()?, [0.5, 0.5, 0.5]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn full(shape: impl Dims, x: impl Into<Number>) -> Tensor {
    let _here = record::here();
    record::sizes("full", &shape).map_or_else(|bad| bad, |shape| engine().full(DType::F32, &shape, x))
}

/// f32 numbers between 0 and 1, from the process's generator; see [`manual_seed`].
///
/// ```
/// use tensorloom::{manual_seed, rand};
///
/// manual_seed(1);
/// let x = rand((4, 4)).to_vec::<f32>()?;
/// assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn rand(shape: impl Dims) -> Tensor {
    let _here = record::here();
    record::sizes("rand", &shape).map_or_else(|bad| bad, |shape| engine().rand(&shape))
}

/// f32 numbers of the standard normal distribution, from the process's generator; see [`manual_seed`].
///
/// ```
/// use tensorloom::{manual_seed, randn};
///
/// manual_seed(1);
/// assert!(randn(10_000).mean().item::<f32>()?.abs() < 0.05);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn randn(shape: impl Dims) -> Tensor {
    let _here = record::here();
    record::sizes("randn", &shape).map_or_else(|bad| bad, |shape| engine().randn(&shape))
}

/// i64 numbers from `low` to below `high`, from the process's generator; see [`manual_seed`].
///
/// ```
/// use tensorloom::{manual_seed, randint};
///
/// manual_seed(1);
/// assert!(randint(-2, 3, 100).to_vec::<i64>()?.iter().all(|n| (-2..3).contains(n)));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn randint(low: i64, high: i64, shape: impl Dims) -> Tensor {
    let _here = record::here();
    record::sizes("randint", &shape).map_or_else(|bad| bad, |shape| engine().randint(low, high, &shape))
}

/// Begins the random sequence of the process's engine anew: first values of layers, [`rand`], dropout.
///
/// ```
/// use tensorloom::{manual_seed, randn};
///
/// manual_seed(7);
/// let first = randn(3).to_vec::<f32>()?;
/// manual_seed(7);
/// assert_eq!(randn(3).to_vec::<f32>()?, first);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn manual_seed(seed: u64) {
    engine().manual_seed(seed);
}

/// `0, 1, .., n - 1` as i64.
///
/// ```
/// assert_eq!(tensorloom::arange(4).to_vec::<i64>()?, [0, 1, 2, 3]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn arange(n: usize) -> Tensor {
    let _here = record::here();
    engine().arange(DType::I64, n)
}

/// Runs everything that is pending and begins a new step.
///
/// ```
/// use tensorloom::{mark_step, ones};
///
/// let x = ones(3) + 1.0; // recorded
/// mark_step()?; // computed
/// assert_eq!(x.to_vec::<f32>()?, [2.0, 2.0, 2.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn mark_step() -> Result<()> {
    engine().mark_step()
}

/// Makes a compiled region of a function of tensors.
///
/// ```
/// use tensorloom::{Tensor, compile, ones};
///
/// let step = compile(|x: Tensor| (&x * 2.0).sum());
/// assert_eq!(step.call(ones(4))?.item::<f32>()?, 8.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn compile<A: Tree, R: Tree, F: Fn(A) -> R>(f: F) -> Compiled<A, R, F> {
    engine().compile(f)
}

// The pages that show how to use it, checked.
#[cfg(all(doctest, feature = "nn", feature = "linalg", feature = "fft"))]
mod pages {
    #[doc = include_str!("../../../docs/broadcasting.md")]
    mod broadcasting {}
    #[doc = include_str!("../../../docs/methods.md")]
    mod methods {}
    #[doc = include_str!("../../../book/src/from_pytorch.md")]
    mod from_pytorch {}
    #[doc = include_str!("../../../book/src/from_jax.md")]
    mod from_jax {}
    #[doc = include_str!("../../../book/src/tensors.md")]
    mod tensors {}
    #[doc = include_str!("../../../book/src/functions.md")]
    mod functions {}
}
#[cfg(all(doctest, feature = "vsla"))]
mod pages_of_variable_shapes {
    #[doc = include_str!("../../../book/src/variable_shapes.md")]
    mod variable_shapes {}
}
#[cfg(all(doctest, feature = "models"))]
mod pages_of_models {
    #[doc = include_str!("../../../docs/tutorial.md")]
    mod tutorial {}
    #[doc = include_str!("../../../book/src/modules.md")]
    mod modules {}
}
#[cfg(all(doctest, feature = "models", feature = "vsla", feature = "onnx"))]
mod pages_of_all {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
}
