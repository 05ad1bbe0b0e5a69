//! What neural networks are made of: functions by the names of `jax.nn`, losses and layers by those of PyTorch.
//!
//! Functions take all they need as arguments. A layer ([`Linear`], [`LayerNorm`], ..) is a struct that owns its parameters;
//! [`Module`] finds them, names them, saves and loads them.

mod activation;
mod attention;
mod batch_norm;
mod clip;
mod conv_pool;
mod cross_entropy;
mod functional;
mod layer;
mod loss;
mod module;
mod recurrent;
mod softmax;

pub use activation::*;
pub use attention::{Attention, dot_product_attention};
pub use batch_norm::{BatchNorm, BatchNorm1d, BatchNorm2d};
pub use clip::{clip_grad_norm_, clip_grad_norm_by_, clip_grad_value_};
pub use conv_pool::*;
pub use cross_entropy::{CrossEntropy, Reduction, cross_entropy, nll_loss};
pub use functional::{dropout, functional_call};
pub use layer::*;
pub use loss::*;
pub use macros::Module;
pub use module::*;
pub use recurrent::{Gates, Gru, Lstm, Recurrence};
pub use softmax::{log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize};
