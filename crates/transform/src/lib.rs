//! Transforms: functions from Graph to Graph.
//!
//! Reverse mode is derived from forward mode: [`jvp`] computes tangents, [`partial_eval`] separates the ops that are known
//! before the tangents from those that are linear in them, and [`transpose`] transposes the linear part. [`vjp`] and [`grad`]
//! apply these three. Since each returns an ordinary Graph, they compose in any order. [`remat`] trades memory of the backward
//! pass for recomputation, [`autocast`] rewrites an f32 graph for mixed precision before it is differentiated, [`round_matmuls`]
//! lets matrix products compute in emulated 8 and 4 bits, [`prune`] removes dead code inside loops, branches and calls, and
//! [`slice_gradients`] merges gradients of slices.
//!
//! ```
//! use ir::{Builder, DType, GraphBuilder, Literal, interp};
//!
//! let mut b = Builder::new();
//! let x = b.input(DType::F64, &[]);
//! let x2 = b.mul(x, x)?;
//! let x3 = b.mul(x2, x)?;
//! let cube = b.finish(&[x3]);
//! let slope = tensorloom_transform::grad(&cube, &[0])?;
//! let bend = tensorloom_transform::grad(&slope, &[0])?;
//! let at = [Literal::new(&[], &[2.0f64])];
//! assert_eq!(interp::run(&slope, &at)?[0].to_vec::<f64>(), [12.0]);
//! assert_eq!(interp::run(&bend, &at)?[0].to_vec::<f64>(), [12.0]);
//! # Ok::<(), ir::Error>(())
//! ```

mod autocast;
mod builder;
mod jvp;
mod low_precision;
mod partial_eval;
mod partition;
mod prune;
mod remat;
mod reverse;
pub mod slice_gradients;
mod transpose;
mod vmap;

pub use autocast::{AutocastPolicy, autocast};
pub use builder::TransformBuilder;
pub use jvp::jvp;
pub use low_precision::{
    DelayedScaling, KEEP_PRECISION, LowPrecision, MatmulRounding, Rounding, Scaling, Stateful, round_gradient,
    round_matmuls, round_operand, rounded_groups, rounded_product, rounding_of, with_state,
};
pub use partial_eval::partial_eval;
pub use partition::{DimSharding, PartitionSpec, Partitioned, Sharding, partition, segments};
pub use prune::prune;
pub use remat::remat;
pub use reverse::{Linearized, grad, linearize, value_and_grad, vjp, vjp_by_rules};
pub use transpose::transpose;
pub use vmap::{vmap, vmap_axes};
