//! Linear algebra on batches of matrices: the last two axes are the matrix.
//!
//! ```
//! use tensorloom::{linalg, np, tensor_of};
//!
//! let a = tensor_of(&[4.0f64, 1.0, 1.0, 3.0], &[2, 2]);
//! let x = linalg::solve(&a, &tensor_of(&[1.0f64, 2.0], &[2]));
//! assert!(np::allclose(&a.matmul(&x), &tensor_of(&[1.0f64, 2.0], &[2]), 1e-12, 0.0)?);
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod factor;
mod norm;
mod solve;

pub use crate::np::{cross, diagonal, matmul, matrix_transpose, outer, tensordot, trace, vecdot};
pub use factor::{cholesky, eigh, eigvalsh, lu, qr, svd, svdvals};
pub use norm::{Norm, cond, matrix_norm, matrix_rank, norm, vector_norm};
pub use solve::{
    det, inv, lstsq, matrix_power, multi_dot, pinv, slogdet, solve, tensorinv, tensorsolve, triangular_solve,
};

use crate::{Tensor, np, record};

/// A matrix operand as floats, or an invalid tensor.
#[track_caller]
fn matrix(op: &'static str, a: &Tensor) -> Tensor {
    np::need_rank(op, a, 2).unwrap_or_else(|| a.cast(record::float_of(a.dtype())))
}

/// As [`matrix`], for a square one.
#[track_caller]
fn square(op: &'static str, a: &Tensor) -> Tensor {
    let a = matrix(op, a);
    if a.error().is_none() && a.size(-1) != a.size(-2) {
        return record::invalid(op, format!("{} is not square", a.ty()));
    }
    a
}
