//! NumPy's names, as functions of tensors.
//!
//! Names, argument order and meaning are NumPy's; `where` is [`where_`]. Where NumPy takes a number or an array, these
//! take an [`Operand`](crate::Operand); axes are `()` for all, one axis, or a list, with `.keep()` for `keepdims`:
//!
//! ```
//! use tensorloom::np::{self, axes};
//!
//! let x = np::arange(0.0, 6.0, 1.0).reshape(&[2, 3]);
//! assert_eq!(np::sum(&x, ()).item::<f32>()?, 15.0);
//! assert_eq!(np::mean(&x, 0).to_vec::<f32>()?, [1.5, 2.5, 3.5]);
//! assert_eq!(np::max(&x, axes(1).keep()).shape(), [2, 1]);
//! assert_eq!(np::einsum("ij,kj->ik", &[&x, &x]).to_vec::<f32>()?, [5.0, 14.0, 14.0, 50.0]);
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod binary;
mod choose;
mod create;
mod edit;
mod einsum;
mod histogram;
mod index;
mod integer;
mod join;
mod logic;
mod matrix;
mod nan;
mod ordering;
mod poly;
mod quantile;
mod reduce;
mod shape;
mod signal;
mod stats;
pub(crate) mod unary;

pub(crate) use binary::pair;
pub use binary::*;
pub use choose::*;
pub use create::*;
pub use edit::*;
pub use einsum::{einsum, tensordot};
pub use histogram::*;
pub use index::*;
pub use integer::*;
pub use join::*;
pub use logic::*;
pub(crate) use matrix::of_bools;
pub use matrix::*;
pub use nan::*;
pub use ordering::*;
pub use poly::*;
pub use quantile::*;
#[cfg(feature = "nn")]
pub(crate) use reduce::over;
pub(crate) use reduce::resolve;
pub use reduce::*;
pub use shape::*;
pub use signal::*;
pub use stats::*;
pub use unary::*;

use crate::Tensor;

/// An invalid tensor for an operand of too low a rank, or that is invalid itself.
#[track_caller]
pub(crate) fn need_rank(op: &'static str, x: &Tensor, rank: usize) -> Option<Tensor> {
    if x.error().is_some() {
        return Some(x.clone());
    }
    (x.rank() < rank).then(|| crate::record::invalid(op, format!("{} has fewer than {rank} axes", x.ty())))
}

/// Signed sizes, for `reshape` and `expand`.
pub(crate) fn signed(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|&n| n as isize).collect()
}
