//! Covariance, and reductions that leave NaN out.

use super::{Along, isnan, sum, where_};
use crate::{Tensor, write};

/// The covariance of variables, which are rows, over `n − ddof`.
#[track_caller]
pub fn cov(x: &Tensor, ddof: usize) -> Tensor {
    if let Some(e) = super::need_rank("cov", x, 1) {
        return e;
    }
    let flat = x.rank() == 1;
    let x = if flat { x.unsqueeze(0) } else { x.clone() };
    let d = &x - super::mean(&x, super::along(1).keep());
    let n = x.size(1) as f64 - ddof as f64;
    let c = d.matmul(&super::matrix_transpose(&d)) / n;
    if flat { c.reshape(&[]) } else { c }
}

/// The correlation coefficients of variables, which are rows.
#[track_caller]
pub fn corrcoef(x: &Tensor) -> Tensor {
    let c = cov(x, 1);
    if c.rank() == 0 {
        return &c / &c;
    }
    let s = super::diag(&c, 0).sqrt();
    let r = &c / s.unsqueeze(-1) / &s;
    r.clamp(-1.0, 1.0)
}

/// How many elements are no NaN.
#[track_caller]
fn counted(x: &Tensor, axes: Along) -> Tensor {
    sum(&isnan(x).not().cast(write::float_of(x.dtype())), axes)
}

/// The sum without NaN.
#[track_caller]
pub fn nansum(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    sum(&where_(&isnan(x), 0.0, x), axes)
}

/// The mean without NaN.
#[track_caller]
pub fn nanmean(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    let axes = axes.into();
    nansum(x, axes.clone()) / counted(x, axes)
}

/// The largest number; NaN if there is none.
#[track_caller]
pub fn nanmax(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    extreme(x, axes.into(), f64::NEG_INFINITY, super::max)
}

/// The smallest number; NaN if there is none.
#[track_caller]
pub fn nanmin(x: &Tensor, axes: impl Into<Along>) -> Tensor {
    extreme(x, axes.into(), f64::INFINITY, super::min)
}

#[track_caller]
fn extreme(x: &Tensor, axes: Along, fill: f64, f: fn(&Tensor, Along) -> Tensor) -> Tensor {
    let none = super::all(&isnan(x), axes.clone());
    let y = f(&where_(&isnan(x), fill, x), axes);
    where_(&none, f64::NAN, &y)
}

/// The variance without NaN.
#[track_caller]
pub fn nanvar(x: &Tensor, axes: impl Into<Along>, ddof: usize) -> Tensor {
    let axes = axes.into();
    let m = nanmean(x, axes.clone().keep());
    let d = where_(&isnan(x), 0.0, &(x - &m));
    sum(&d.square(), axes.clone()) / (counted(x, axes) - ddof as f64)
}

/// The standard deviation without NaN.
#[track_caller]
pub fn nanstd(x: &Tensor, axes: impl Into<Along>, ddof: usize) -> Tensor {
    nanvar(x, axes, ddof).sqrt()
}

/// How often each of `0..n` occurs.
#[track_caller]
pub fn bincount(x: &Tensor, n: usize) -> Tensor {
    let zeros = crate::engine_of(x).zeros(crate::DType::I64, &[n]);
    let one = crate::engine_of(x).ones(crate::DType::I64, &[]);
    crate::lax::index_add(&zeros, &[&super::ravel(x)], &one)
}
