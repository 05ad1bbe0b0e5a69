//! Factorisations.

use super::{matrix, square};
use crate::Tensor;
use ir::ops::{Cholesky, Eigh, Lu, Qr, Svd};

fn two(mut outs: Vec<Tensor>) -> (Tensor, Tensor) {
    let second = outs.swap_remove(1);
    (outs.swap_remove(0), second)
}

fn three(mut outs: Vec<Tensor>) -> (Tensor, Tensor, Tensor) {
    let (third, second) = (outs.swap_remove(2), outs.swap_remove(1));
    (outs.swap_remove(0), second, third)
}

/// The lower factor `L` of positive definite matrices `L·Lᵀ`; NaN where a matrix is not positive definite.
///
/// The matrix is made symmetric first, as JAX does it, so either triangle counts for a half.
#[track_caller]
pub fn cholesky(a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let a = square("cholesky", a);
    if a.error().is_some() {
        return a;
    }
    let both = (&a + a.transpose(-1, -2)) * 0.5;
    Tensor::apply(Cholesky, &[&both], 1).swap_remove(0)
}

/// `L` and `U` in one matrix, the pivots, and the permutation with `A[p] = L·U`.
#[track_caller]
pub fn lu(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let _here = crate::record::here();
    three(Tensor::apply(Lu, &[&matrix("lu", a)], 3))
}

/// `Q` with orthonormal columns and upper triangular `R`, so that `A = Q·R`; square `Q` if `full`.
#[track_caller]
pub fn qr(a: &Tensor, full: bool) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    two(Tensor::apply(Qr { full }, &[&matrix("qr", a)], 2))
}

/// `U`, the singular values in descending order, and `Vᵀ`, with as many vectors as values: `A = U·diag(s)·Vᵀ`.
#[track_caller]
pub fn svd(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let _here = crate::record::here();
    three(Tensor::apply(Svd { vectors: true }, &[&matrix("svd", a)], 3))
}

/// The singular values in descending order.
#[track_caller]
pub fn svdvals(a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    Tensor::apply(Svd { vectors: false }, &[&matrix("svdvals", a)], 1).swap_remove(0)
}

/// Eigenvalues of symmetric matrices in ascending order, and eigenvectors as columns.
#[track_caller]
pub fn eigh(a: &Tensor) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let a = square("eigh", a);
    if a.error().is_some() {
        return (a.clone(), a);
    }
    let both = (&a + a.transpose(-1, -2)) * 0.5;
    two(Tensor::apply(Eigh, &[&both], 2))
}

/// Eigenvalues of symmetric matrices in ascending order.
#[track_caller]
pub fn eigvalsh(a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    eigh(a).0
}
