//! Reductions that leave NaN out.

use super::{Along, isnan, sum, where_};
use crate::{Tensor, write};

/// How many elements are no NaN.
#[track_caller]
fn counted(x: &Tensor, axes: Along) -> Tensor {
    sum(&isnan(x).not().cast(write::float_of(x.dtype())), axes)
}

/// The sum without NaN.
#[track_caller]
pub fn nansum(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    sum(&where_(&isnan(x), 0.0, x), axes)
}

/// The product without NaN.
#[track_caller]
pub fn nanprod(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    super::prod(&where_(&isnan(x), 1.0, x), axes)
}

/// The mean without NaN.
#[track_caller]
pub fn nanmean(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axes = axes.into();
    nansum(x, axes.clone()) / counted(x, axes)
}

/// The largest number; NaN if there is none.
#[track_caller]
pub fn nanmax(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    extreme(x, axes.into(), f64::NEG_INFINITY, super::max)
}

/// The smallest number; NaN if there is none.
#[track_caller]
pub fn nanmin(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    extreme(x, axes.into(), f64::INFINITY, super::min)
}

#[track_caller]
fn extreme(x: &Tensor, axes: Along, fill: f64, f: fn(&Tensor, Along) -> Tensor) -> Tensor {
    let none = super::all(&isnan(x), axes.clone());
    let y = f(&where_(&isnan(x), fill, x), axes);
    where_(&none, f64::NAN, &y)
}

/// The index of the largest number; −1 if there is none.
#[track_caller]
pub fn nanargmax(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nanargmax", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let i = super::argmax(&where_(&isnan(x), f64::NEG_INFINITY, x), axis);
    where_(&super::all(&isnan(x), axis), -1, &i)
}

/// The index of the smallest number; −1 if there is none.
#[track_caller]
pub fn nanargmin(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nanargmin", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let i = super::argmin(&where_(&isnan(x), f64::INFINITY, x), axis);
    where_(&super::all(&isnan(x), axis), -1, &i)
}

/// Running sums in which NaN counts as 0.
#[track_caller]
pub fn nancumsum(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nancumsum", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    super::cumsum(&where_(&isnan(x), 0.0, x), axis)
}

/// Running products in which NaN counts as 1.
#[track_caller]
pub fn nancumprod(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nancumprod", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    super::cumprod(&where_(&isnan(x), 1.0, x), axis)
}

/// The variance without NaN.
#[track_caller]
pub fn nanvar(x: &Tensor, axes: impl Into<Along>, ddof: usize) -> Tensor {
    let _here = crate::write::here();
    let axes = axes.into();
    let m = nanmean(x, axes.clone().keep());
    let d = where_(&isnan(x), 0.0, &(x - &m));
    sum(&d.square(), axes.clone()) / (counted(x, axes) - ddof as f64)
}

/// The standard deviation without NaN.
#[track_caller]
pub fn nanstd(x: &Tensor, axes: impl Into<Along>, ddof: usize) -> Tensor {
    let _here = crate::write::here();
    nanvar(x, axes, ddof).sqrt()
}

/// [`super::median`] without NaN.
#[track_caller]
pub fn nanmedian(x: &Tensor, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nanmedian", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    nanquantile(x, 0.5, axis)
}

/// [`super::percentile`] without NaN.
#[track_caller]
pub fn nanpercentile(x: &Tensor, q: f64, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nanpercentile", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    nanquantile(x, q / 100.0, axis)
}

/// [`super::quantile`] without NaN.
#[track_caller]
pub fn nanquantile(x: &Tensor, q: f64, axis: impl Into<Along>) -> Tensor {
    let _here = crate::write::here();
    let axis = match write::one_axis("nanquantile", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let (x, axis) = match axis {
        Some(a) => (x.clone(), a),
        None => (super::ravel(x), 0),
    };
    if let Some(e) = super::need_rank("nanquantile", &x, 1) {
        return e;
    }
    let x = x.cast(write::float_of(x.dtype()));
    // NaN is sorted to the end, so the first `n` are the numbers.
    let sorted = crate::lax::sort(&x, axis);
    let n = counted(&x, super::along(axis).keep());
    let at = ((&n - 1.0) * q.clamp(0.0, 1.0)).stop_gradient();
    let low = at.floor();
    let pick = |at: &Tensor| super::take_along_axis(&sorted, &at.cast(crate::DType::I64), axis);
    let (a, b) = (pick(&super::maximum(&low, 0.0)), pick(&super::maximum(&at.ceil(), 0.0)));
    let t = &at - &low;
    (&a * (1.0 - &t) + &b * &t).squeeze(axis)
}
