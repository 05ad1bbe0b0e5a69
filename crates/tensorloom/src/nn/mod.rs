//! What neural networks are made of, by the names of `jax.nn`.

mod activation;
mod attention;
mod softmax;

pub use activation::*;
pub use attention::{Attention, dot_product_attention};
pub use softmax::{log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize};
