//! Keyed randomness: every draw is a pure function of a key, bit for bit that of JAX's default generator.
//!
//! A key is a `u32[2]` tensor. Use one once; make more with [`split`] or [`fold_in`]. Draws are ordinary ops: they run in
//! `jit`, are mapped over by `vmap`, and samples with parameters are differentiable in them.
//!
//! ```
//! use tensorloom::{DType, Tensor, random, vmap};
//!
//! let key = random::key(42);
//! let x = random::normal(&key, &[3], DType::F32);
//! let keys = random::split(&key, 4);
//! let batch = vmap(|k: Tensor| random::uniform(&k, &[2], DType::F32, 0.0, 1.0)).call(keys);
//! assert_eq!((x.shape(), batch.shape()), (&[3][..], &[4, 2][..]));
//! ```
//!
//! Bits, uniforms, integers, bernoulli and permutations are equal to JAX's (with `jax_threefry_partitionable`); what goes
//! through transcendental functions agrees to a few units in the last place.

mod bits;
mod counts;
mod discrete;
mod gamma;
mod normal;
mod shuffle;
mod uniform;

pub use bits::{bits, fold_in, key, split, split2};
pub use counts::{binomial, multinomial, poisson};
pub(crate) use discrete::range;
pub use discrete::{bernoulli, categorical, geometric, rademacher, randint};
pub use gamma::{ball, beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, t};
#[cfg(feature = "linalg")]
pub use normal::orthogonal;
pub use normal::{double_sided_maxwell, lognormal, maxwell, multivariate_normal, normal, truncated_normal, wald};
pub use shuffle::{choice, permutation, shuffle};
pub use uniform::{cauchy, exponential, gumbel, laplace, logistic, pareto, rayleigh, triangular, uniform, weibull_min};
