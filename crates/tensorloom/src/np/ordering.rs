//! Sorting, and places in sorted order.

use crate::{Along, DType, Tensor, lax, write};
use ir::ops::Sort;

/// Sorted along an axis, NaN last; `None` sorts all elements in order.
#[track_caller]
pub fn sort(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("sort", axis) {
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
pub fn argsort(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("argsort", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let flat = axis.is_none();
    let x = if flat { super::ravel(x) } else { x.clone() };
    write::one(&[&x], |b, v| {
        let ty = b.ty(v[0]);
        let axis = write::axis("argsort", &ty, axis.unwrap_or(0))?;
        let op = Sort { axis, num_keys: 1, descending: false };
        let p = op.permutation(b, &[v[0]])?;
        b.cast(p, DType::I64)
    })
}

/// The middle element in order, or the mean of the middle two, along an axis.
#[track_caller]
pub fn median(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("median", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    quantile(x, 0.5, axis)
}

/// The element below which a fraction `q` lies, by linear interpolation.
#[track_caller]
pub fn quantile(x: &Tensor, q: f64, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("quantile", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let (x, axis) = match axis {
        Some(a) => (x.clone(), a),
        None => (super::ravel(x), 0),
    };
    let sorted = lax::sort(&x.cast(write::float_of(x.dtype())), axis);
    let n = x.size(axis);
    if n == 0 || sorted.error().is_some() {
        return sorted;
    }
    let at = q.clamp(0.0, 1.0) * (n - 1) as f64;
    let (low, high) = (at.floor() as isize, at.ceil() as isize);
    let t = at - at.floor();
    let y = sorted.index(axis, low) * (1.0 - t) + sorted.index(axis, high) * t;
    let nan = super::any(&super::isnan(&x), axis);
    nan.select(&super::full_like(&y, f64::NAN), &y)
}

/// [`quantile`] by percent.
#[track_caller]
pub fn percentile(x: &Tensor, q: f64, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("percentile", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    quantile(x, q / 100.0, axis)
}

/// Where values would be inserted into a sorted vector to keep it sorted: before equal elements, or after with `right`.
#[track_caller]
pub fn searchsorted(sorted: &Tensor, values: &Tensor, right: bool) -> Tensor {
    let _here = crate::write::here();
    let v = values.unsqueeze(-1);
    let before = if right { sorted.le(&v) } else { sorted.lt(&v) };
    super::sum(&before, -1)
}

/// The indices that sort by several keys along an axis, the last key first.
#[track_caller]
pub fn lexsort(keys: &[&Tensor], axis: isize) -> Tensor {
    let _here = crate::write::here();
    let keys: Vec<&Tensor> = keys.iter().rev().copied().collect();
    write::one(&keys, |b, v| {
        let Some(&first) = v.first() else {
            return Err(write::misfit("lexsort", &[], "there is no key to sort by"));
        };
        let axis = write::axis("lexsort", &b.ty(first), axis)?;
        let op = Sort { axis, num_keys: v.len(), descending: false };
        let p = op.permutation(b, v)?;
        b.cast(p, DType::I64)
    })
}
