//! Transforms: functions from Graph to Graph.
//!
//! Reverse mode is derived: [`jvp`] makes tangents, [`split`] separates what is known before the tangents from what is
//! linear in them, [`transpose`] turns the linear part round. [`vjp`] and [`grad`] are the three in a row. Since each
//! gives an ordinary Graph, they compose in any order. [`remat`] trades memory of backward for computing again,
//! [`precision`] rewrites an f32 graph for mixed precision before it is differentiated, [`few_bits`] lets products compute in emulated
//! 8 and 4 bits, [`prune`] takes out what nobody needs inside loops, branches and calls, and [`parts`] puts gradients of parts together.
//!
//! ```
//! use ir::{Build, Builder, DType, Literal, interp};
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

mod cx;
mod few_bits;
mod jvp;
mod partition;
pub mod parts;
mod precision;
mod prune;
mod remat;
mod reverse;
mod split;
mod transpose;
mod vmap;

pub use cx::Tx;
pub use few_bits::{
    AS_WRITTEN, Delay, Few, FewBits, Rounding, Scaling, Stateful, few_bits, rounded, rounded_gradient, rounded_groups,
    rounded_product, rounding_of, with_state,
};
pub use jvp::jvp;
pub use partition::{Cut, Layout, Partitioned, Placement, partition, segments};
pub use precision::{Policy, precision};
pub use prune::prune;
pub use remat::remat;
pub use reverse::{Linearized, grad, linearize, value_and_grad, vjp, vjp_by_rules};
pub use split::split;
pub use transpose::transpose;
pub use vmap::{vmap, vmap_axes};
