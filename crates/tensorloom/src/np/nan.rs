//! Reductions that leave NaN out.

use super::{ReduceAxes, isnan, sum, where_};
use crate::{Tensor, record};

/// How many elements are no NaN, in the dtype of a float.
#[track_caller]
fn counted(x: &Tensor, axes: ReduceAxes) -> Tensor {
    sum(&isnan(x).not().cast(x.dtype()), axes)
}

/// Whether a tensor has no place for NaN.
fn is_exact(x: &Tensor) -> bool {
    x.error().is_none() && !x.dtype().is_float()
}

/// `x` with a number in place of NaN.
#[track_caller]
fn replaced(x: &Tensor, by: f64) -> Tensor {
    if is_exact(x) { x.clone() } else { where_(&isnan(x), by, x) }
}

/// The sum without NaN.
#[track_caller]
pub fn nansum(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    sum(&replaced(x, 0.0), axes)
}

/// The product without NaN.
#[track_caller]
pub fn nanprod(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    super::prod(&replaced(x, 1.0), axes)
}

/// The mean without NaN.
#[track_caller]
pub fn nanmean(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into();
    if is_exact(x) {
        return super::mean(x, axes);
    }
    record::rounded([x], |[x]| nansum(&x, axes.clone()) / counted(&x, axes))
}

/// The largest number; NaN if there is none.
#[track_caller]
pub fn nanmax(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    extreme(x, axes.into(), f64::NEG_INFINITY, super::max)
}

/// The smallest number; NaN if there is none.
#[track_caller]
pub fn nanmin(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    extreme(x, axes.into(), f64::INFINITY, super::min)
}

#[track_caller]
fn extreme(x: &Tensor, axes: ReduceAxes, fill: f64, f: fn(&Tensor, ReduceAxes) -> Tensor) -> Tensor {
    if is_exact(x) {
        return f(x, axes);
    }
    let none = super::all(&isnan(x), axes.clone());
    let y = f(&replaced(x, fill), axes);
    where_(&none, f64::NAN, &y)
}

/// The index of the largest number; −1 if there is none.
#[track_caller]
pub fn nanargmax(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("nanargmax", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    if is_exact(x) {
        return super::argmax(x, axis);
    }
    let i = super::argmax(&replaced(x, f64::NEG_INFINITY), axis);
    where_(&super::all(&isnan(x), axis), -1, &i)
}

/// The index of the smallest number; −1 if there is none.
#[track_caller]
pub fn nanargmin(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("nanargmin", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    if is_exact(x) {
        return super::argmin(x, axis);
    }
    let i = super::argmin(&replaced(x, f64::INFINITY), axis);
    where_(&super::all(&isnan(x), axis), -1, &i)
}

/// Running sums in which NaN counts as 0.
#[track_caller]
pub fn nancumsum(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("nancumsum", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    super::cumsum(&replaced(x, 0.0), axis)
}

/// Running products in which NaN counts as 1.
#[track_caller]
pub fn nancumprod(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("nancumprod", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    super::cumprod(&replaced(x, 1.0), axis)
}

/// The variance in the dtype of `x`, which is a float; NaN where no degree of freedom is left.
#[track_caller]
fn variance(x: &Tensor, axes: ReduceAxes, ddof: usize) -> Tensor {
    let m = nansum(x, axes.clone().keep()) / counted(x, axes.clone().keep());
    let d = where_(&isnan(x), 0.0, &(x - &m));
    let n = counted(x, axes.clone()) - ddof as f64;
    where_(&super::greater(&n, 0.0), &(sum(&d.square(), axes) / &n), f64::NAN)
}

/// The variance without NaN; NaN where no more than `ddof` numbers are left.
#[track_caller]
pub fn nanvar(x: &Tensor, axes: impl Into<ReduceAxes>, ddof: usize) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(record::float_of(x.dtype()));
    record::rounded([&x], |[x]| variance(&x, axes.into(), ddof))
}

/// The standard deviation without NaN.
#[track_caller]
pub fn nanstd(x: &Tensor, axes: impl Into<ReduceAxes>, ddof: usize) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(record::float_of(x.dtype()));
    record::rounded([&x], |[x]| variance(&x, axes.into(), ddof).sqrt())
}
