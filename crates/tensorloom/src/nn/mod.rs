//! What neural networks are made of: functions by the names of `jax.nn`, losses and layers by those of PyTorch.
//!
//! Functions take all they need as arguments. A layer ([`Linear`], [`LayerNorm`], ..) is a struct that owns its parameters;
//! [`Module`] finds them, names them, saves and loads them.

mod activation;
mod attention;
mod layer;
mod loss;
mod module;
mod slide;
mod softmax;

pub use activation::*;
pub use attention::{Attention, dot_product_attention};
pub use derive::Module;
pub use layer::*;
pub use loss::*;
pub use module::*;
pub use slide::*;
pub use softmax::{log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize};
