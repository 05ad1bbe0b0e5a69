//! Products of vectors and matrices.

use super::{need_rank, ravel};
use crate::{DType, Tensor, record};

/// The matrix product with NumPy's rules.
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    of_bools(a, b, |a, b| a.matmul(b))
}

/// A sum of products. Of bools it is whether both are true anywhere: they are multiplied and counted as floats.
#[track_caller]
pub(crate) fn of_bools(a: &Tensor, b: &Tensor, f: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> Tensor {
    let bools = |t: &Tensor| t.error().is_none() && t.dtype() == DType::Bool;
    if bools(a) && bools(b) {
        return super::not_equal(&f(&a.cast(DType::F32), &b.cast(DType::F32)), 0);
    }
    f(a, b)
}

/// Inner product of vectors, matrix product, or the sum over the last axis of `a` and the last but one of `b`.
#[track_caller]
pub fn dot(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    match (a.rank(), b.rank()) {
        (0, _) | (_, 0) => super::multiply(a, b),
        (_, 1) => lax_dot(a, b, a.rank() - 1, 0),
        (_, n) => lax_dot(a, b, a.rank() - 1, n - 2),
    }
}

#[track_caller]
fn lax_dot(a: &Tensor, b: &Tensor, i: usize, j: usize) -> Tensor {
    of_bools(a, b, |a, b| crate::lax::dot_general(a, b, (&[i], &[j]), (&[], &[])))
}

/// The sum of products over the last axes.
#[track_caller]
pub fn inner(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    match (a.rank(), b.rank()) {
        (0, _) | (_, 0) => super::multiply(a, b),
        (m, n) => lax_dot(a, b, m - 1, n - 1),
    }
}

/// All products of elements of two vectors.
#[track_caller]
pub fn outer(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    super::multiply(&ravel(a).unsqueeze(-1), &ravel(b))
}

/// The inner product of all elements.
#[track_caller]
pub fn vdot(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    inner(&ravel(a), &ravel(b))
}

/// Inner products along an axis, after broadcasting, in the dtype of the operands.
#[track_caller]
pub fn vecdot(a: &Tensor, b: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    of_bools(a, b, |a, b| {
        let y = record::rounded([a, b], |[a, b]| super::sum(&(a * b), axis));
        // Sums of integers would be i64.
        super::result_type(&[a, b]).filter(|d| !d.is_float()).map_or(y.clone(), |d| y.cast(d))
    })
}

/// Matrices times vectors, after broadcasting.
#[track_caller]
pub fn matvec(a: &Tensor, x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    need_rank("matvec", x, 1).unwrap_or_else(|| matmul(a, &x.unsqueeze(-1)).squeeze(-1))
}

/// Vectors times matrices, after broadcasting.
#[track_caller]
pub fn vecmat(x: &Tensor, a: &Tensor) -> Tensor {
    let _here = crate::record::here();
    need_rank("vecmat", x, 1).unwrap_or_else(|| matmul(&x.unsqueeze(-2), a).squeeze(-2))
}

/// The cross product along the last axis, which has 3 elements.
#[track_caller]
pub fn cross(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("cross", a, 1).or_else(|| need_rank("cross", b, 1)) {
        return e;
    }
    if a.size(-1) != 3 || b.size(-1) != 3 {
        return record::invalid("cross", format!("{} and {} need 3 elements along the last axis", a.ty(), b.ty()));
    }
    record::rounded([a, b], |[a, b]| {
        let part = |t: &Tensor, i: isize| t.index(-1, i);
        let c = |i, j| part(&a, i) * part(&b, j) - part(&a, j) * part(&b, i);
        Tensor::stack(&[&c(1, 2), &c(2, 0), &c(0, 1)], -1)
    })
}

/// The Kronecker product of two tensors of the same rank.
#[track_caller]
pub fn kron(a: &Tensor, b: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    let rank = a.rank().max(b.rank());
    let sizes = |t: &Tensor| -> Vec<isize> {
        let mut s = vec![1; rank - t.rank()];
        s.extend(t.shape().iter().map(|&n| n as isize));
        s
    };
    let (sa, sb) = (sizes(a), sizes(b));
    let wide_a: Vec<isize> = sa.iter().flat_map(|&n| [n, 1]).collect();
    let wide_b: Vec<isize> = sb.iter().flat_map(|&n| [1, n]).collect();
    let out: Vec<isize> = sa.iter().zip(&sb).map(|(m, n)| m * n).collect();
    super::multiply(&a.reshape(&wide_a), &b.reshape(&wide_b)).reshape(&out)
}
