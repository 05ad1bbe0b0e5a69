//! Sorting, and places in sorted order.

use crate::{DType, ReduceAxes, Tensor, lax, record};
use ir::ops::{GatherMode, Sort};
use ir::{Binary, Compare, GraphBuilder, Unary, Value};

/// Sorted along an axis, NaN last; `None` sorts all elements in order.
#[track_caller]
pub fn sort(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("sort", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    match axis {
        Some(a) => lax::sort(x, a),
        None => lax::sort(&super::ravel(x), 0),
    }
}

/// The indices that sort, as i64; equal elements keep their order.
#[track_caller]
pub fn argsort(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("argsort", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let flat = axis.is_none();
    let x = if flat { super::ravel(x) } else { x.clone() };
    record::one(&[&x], |b, v| {
        let ty = b.ty(v[0]);
        let axis = record::axis("argsort", &ty, axis.unwrap_or(0))?;
        let op = Sort { axis, num_keys: 1, descending: false };
        let p = op.permutation(b, &[v[0]])?;
        b.cast(p, DType::I64)
    })
}

/// Where values would be inserted into a sorted vector to keep it sorted: before equal elements, or after with `right`.
/// NaN is sorted to the end.
#[track_caller]
pub fn searchsorted(sorted: &Tensor, values: &Tensor, right: bool) -> Tensor {
    let _here = crate::record::here();
    record::one(&[sorted, values], |b, v| {
        let (ty, tv) = (b.ty(v[0]), b.ty(v[1]));
        if ty.rank() != 1 {
            return Err(record::misfit("searchsorted", &[ty, tv], "what is searched has to be a vector"));
        }
        let Some(dtype) = ty.dtype.promote(tv.dtype) else {
            return Err(record::misfit("searchsorted", &[ty, tv], "the operands have no common dtype"));
        };
        let (sorted, values) = (b.cast(v[0], dtype)?, b.cast(v[1], dtype)?);
        let n = ty.shape[0];
        let mut at = b.zeros(&tv.with_dtype(DType::I64))?;
        // All that stands before `at` is before the value; steps of powers of two, the largest first, find the rest.
        for step in (0..usize::BITS - n.leading_zeros()).rev().map(|k| 1u64 << k) {
            let last = b.offset(at, step as f64 - 1.0)?;
            let x = b.take(sorted, last, 0, GatherMode::Clip)?;
            let end = b.full_like(last, n as f64)?;
            let inside = b.compare(Compare::Lt, last, end)?;
            let before = if right {
                let after = is_less(b, values, x)?;
                b.unary(Unary::Not, after)?
            } else {
                is_less(b, x, values)?
            };
            let on = b.binary(Binary::And, inside, before)?;
            let next = b.offset(at, step as f64)?;
            at = b.select(on, next, at)?;
        }
        Ok(at)
    })
}

/// Whether `x` is sorted before `y`: NaN is behind all numbers.
fn is_less(b: &mut dyn GraphBuilder, x: Value, y: Value) -> ir::Result<Value> {
    let less = b.compare(Compare::Lt, x, y)?;
    if !b.ty(x).dtype.is_float() {
        return Ok(less);
    }
    let (number, nan) = (b.compare(Compare::Eq, x, x)?, b.compare(Compare::Ne, y, y)?);
    let last = b.binary(Binary::And, number, nan)?;
    b.binary(Binary::Or, less, last)
}

/// The indices that sort by several keys along an axis, the last key first.
#[track_caller]
pub fn lexsort(keys: &[&Tensor], axis: isize) -> Tensor {
    let _here = crate::record::here();
    let keys: Vec<&Tensor> = keys.iter().rev().copied().collect();
    record::one(&keys, |b, v| {
        let Some(&first) = v.first() else {
            return Err(record::misfit("lexsort", &[], "there is no key to sort by"));
        };
        let axis = record::axis("lexsort", &b.ty(first), axis)?;
        let op = Sort { axis, num_keys: v.len(), descending: false };
        let p = op.permutation(b, v)?;
        b.cast(p, DType::I64)
    })
}
