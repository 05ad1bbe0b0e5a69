//! Convolution of vectors, differences, phases.

use super::{need_rank, ravel};
use crate::lax::{ConvOptions, Padding, conv_general_dilated};
use crate::{DType, Tensor, record};
use std::f64::consts::PI;

/// The convolution of two vectors: `full`, `same` as the longer, or `valid` where they overlap wholly.
#[track_caller]
pub fn convolve(a: &Tensor, b: &Tensor, mode: &str) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| b.error()) {
        return Tensor::from_error(e);
    }
    if a.numel() == 0 || b.numel() == 0 || a.rank() != 1 || b.rank() != 1 {
        return record::invalid("convolve", format!("{} and {} are not two vectors with elements", a.ty(), b.ty()));
    }
    let (a, b) = if a.numel() < b.numel() { (b, a) } else { (a, b) };
    slide(a, &b.flip(&[0]), mode)
}

/// `a`, padded as the mode says, under `b` as it stands.
#[track_caller]
fn slide(a: &Tensor, b: &Tensor, mode: &str) -> Tensor {
    let n = b.numel() as i64;
    let pad = match mode {
        "full" => (n - 1, n - 1),
        "same" => (n / 2, n - 1 - n / 2),
        "valid" => (0, 0),
        other => return record::invalid("convolve", format!("unknown mode {other:?}: use full, same or valid")),
    };
    let options = ConvOptions { padding: Padding::Explicit(vec![pad]), ..ConvOptions::default() };
    let lines = |t: &Tensor| t.reshape(&[1, 1, -1]);
    super::of_bools(a, b, |a, b| conv_general_dilated(&lines(a), &lines(b), &options)).reshape(&[-1])
}

/// The cross-correlation of two vectors.
#[track_caller]
pub fn correlate(a: &Tensor, v: &Tensor, mode: &str) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = a.error().or_else(|| v.error()) {
        return Tensor::from_error(e);
    }
    if a.numel() == 0 || v.numel() == 0 || a.rank() != 1 || v.rank() != 1 {
        return record::invalid("correlate", format!("{} and {} are not two vectors with elements", a.ty(), v.ty()));
    }
    if a.numel() >= v.numel() {
        return slide(a, v, mode);
    }
    // Under a shorter signal the roles change and the result is reversed.
    slide(v, a, mode).flip(&[0])
}

/// Differences of neighbours along an axis, `n` times; of bools whether they differ.
#[track_caller]
pub fn diff(x: &Tensor, n: usize, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("diff", x, 1) {
        return e;
    }
    (0..n).fold(x.clone(), |x, _| {
        let size = x.size(axis) as isize;
        let (later, sooner) = (x.slice(axis, 1, size, 1), x.slice(axis, 0, (size - 1).max(0), 1));
        if x.dtype() == DType::Bool { super::not_equal(&later, &sooner) } else { later - sooner }
    })
}

/// Differences of neighbours of all elements in order.
#[track_caller]
pub fn ediff1d(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    diff(&ravel(x), 1, 0)
}

/// Changes jumps of more than half a period into their complements, along an axis.
#[track_caller]
pub fn unwrap(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("unwrap", x, 1) {
        return e;
    }
    let x = &x.cast(record::float_of(x.dtype()));
    let d = diff(x, 1, axis);
    let mut wrapped = super::remainder(&(&d + PI), 2.0 * PI) - PI;
    let half = super::full_like(&wrapped, -PI);
    let edge = wrapped.eq(&half).and(&d.gt(&super::zeros_like(&d)));
    wrapped = edge.select(&(-&half), &wrapped);
    let small = d.abs().lt(&super::full_like(&d, PI));
    let fix = small.select(&super::zeros_like(&d), &(wrapped - &d)).stop_gradient();
    let n = x.size(axis) as isize;
    let rest = x.slice(axis, 1, n, 1) + super::cumsum(&fix, Some(axis));
    Tensor::concat(&[&x.slice(axis, 0, 1, 1), &rest], axis)
}

/// Linear interpolation of the points `(xp, fp)`, with `xp` increasing; constant outside.
#[track_caller]
pub fn interp(x: &Tensor, xp: &Tensor, fp: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let n = xp.numel() as isize;
    if n < 2 || xp.rank() != 1 || fp.shape() != xp.shape() {
        return record::invalid("interp", format!("{} and {} are not two vectors of points", xp.ty(), fp.ty()));
    }
    record::rounded([x, xp, fp], |t| {
        // All digits of the widest; differences of integers may not fit their dtype.
        let wide = super::result_type(&t.each_ref()).map_or(DType::F32, record::float_of);
        let [x, xp, fp] = t.map(|t| t.cast(wide));
        let (x, xp) = (&x, &xp);
        let i = super::searchsorted(xp, x, true).clamp(1, n as i64 - 1);
        let at = |t: &Tensor, i: &Tensor| super::take(t, i, Some(0));
        let low = &i - 1;
        let (x0, x1, f0, f1) = (at(xp, &low), at(xp, &i), at(&fp, &low), at(&fp, &i));
        // Two points at one place: the second counts there.
        let (width, none) = (&x1 - &x0, x1.eq(&x0));
        let y = &f0 + (x - &x0) / super::where_(&none, 1.0, &width) * (&f1 - &f0);
        let y = none.select(&super::where_(&super::isnan(x), x, &f1), &y);
        let y = x.lt(&xp.index(0, 0)).select(&fp.index(0, 0), &y);
        x.gt(&xp.index(0, n - 1)).select(&fp.index(0, n - 1), &y)
    })
}

/// Slopes by central differences, and one-sided ones at the ends, of samples `step` apart along an axis.
#[track_caller]
pub fn gradient(x: &Tensor, step: f64, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("gradient", x, 1) {
        return e;
    }
    let n = x.size(axis) as isize;
    if n < 2 {
        return record::invalid("gradient", format!("{} has fewer than 2 samples along axis {axis}", x.ty()));
    }
    let x = x.cast(record::float_of(x.dtype()));
    let part = |a: isize, b: isize| x.slice(axis, a, b, 1);
    let inner = (part(2, n) - part(0, n - 2)) * 0.5;
    let (first, last) = (part(1, 2) - part(0, 1), part(n - 1, n) - part(n - 2, n - 1));
    Tensor::concat(&[&first, &inner, &last], axis) / step
}
