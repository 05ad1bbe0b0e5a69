//! The one import: `use tensorloom::prelude::*`.
//!
//! ```
//! use tensorloom::prelude::*;
//!
//! let x = tensor(&[1.0, 2.0, 3.0, 4.0], (2, 2));
//! let model = nn::Linear::new(2, 1);
//! let slope = grad(|x: Tensor| (x.pow(2) / 2).sum());
//! assert_eq!(slope.call(x.clone()).to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
//! assert_eq!(model.forward(&x.i((.., ..2))).shape(), [2, 1]);
//! # Ok::<(), tensorloom::Error>(())
//! ```
//!
//! Functions of NumPy, layers, optimisers and so on stay in their modules, which it brings too.

#[cfg(feature = "fft")]
pub use crate::fft;
#[cfg(feature = "linalg")]
pub use crate::linalg;
#[cfg(feature = "nn")]
pub use crate::nn::{Layer, Module};
#[cfg(feature = "nn")]
pub use crate::optimizer::Optimizer;
pub use crate::{
    DType, DataLoader, Ellipsis, Engine, Error, NewAxis, Static, Tensor, Tree, arange, autocast, axes, checkpoint,
    compile, full, grad, hessian, jacfwd, jacrev, jit, jvp, lax, manual_seed, no_grad, np, ones, rand, randint, randn,
    random, special, step, tensor, tensor_of, tree, value_and_grad, vjp, vmap, zeros,
};
#[cfg(feature = "nn")]
pub use crate::{GradScaler, nn, optim, optimizer};
