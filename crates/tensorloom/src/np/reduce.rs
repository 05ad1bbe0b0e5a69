//! Reductions and running reductions.

use crate::record::{self, float_of};
use crate::{DType, Tensor};
pub use engine::{ReduceAxes, axes};
use ir::ops::ReduceKind;
use ir::{Compare, GraphBuilder, Type, Value};

/// The axes of a type, and the shape with them kept.
pub(crate) fn resolve(reduce: &ReduceAxes, op: &str, ty: &Type) -> ir::Result<(Vec<usize>, Vec<usize>)> {
    let axes = record::axes(op, ty, reduce.axes.as_deref())?;
    let kept = (0..ty.rank()).map(|i| if axes.contains(&i) { 1 } else { ty.shape[i] }).collect();
    Ok((axes, kept))
}

/// Reduces with a function of value and axes, and keeps the axes if asked.
#[track_caller]
pub(crate) fn over(
    op: &'static str,
    x: &Tensor,
    reduce: ReduceAxes,
    f: impl FnOnce(&mut dyn GraphBuilder, Value, &[usize]) -> ir::Result<Value>,
) -> Tensor {
    record::one(&[x], |b, v| {
        let (axes, kept) = resolve(&reduce, op, &b.ty(v[0]))?;
        let y = f(b, v[0], &axes)?;
        if reduce.keep { b.reshape(y, &kept) } else { Ok(y) }
    })
}

/// Sums of integers and bools count in i64.
pub(crate) fn sum_dtype(d: DType) -> DType {
    if d.is_float() || d == DType::U64 { d } else { DType::I64 }
}

/// The sum.
#[track_caller]
pub fn sum(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("sum", x, axes.into(), |b, x, axes| {
        let x = b.cast(x, sum_dtype(b.ty(x).dtype))?;
        b.sum(x, axes)
    })
}

/// The product.
#[track_caller]
pub fn prod(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("prod", x, axes.into(), |b, x, axes| {
        let x = b.cast(x, sum_dtype(b.ty(x).dtype))?;
        b.reduce(ReduceKind::Prod, x, axes)
    })
}

/// The largest element.
#[track_caller]
pub fn max(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("max", x, axes.into(), |b, x, axes| b.reduce(ReduceKind::Max, x, axes))
}

/// The smallest element.
#[track_caller]
pub fn min(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("min", x, axes.into(), |b, x, axes| b.reduce(ReduceKind::Min, x, axes))
}

/// The largest element less the smallest.
#[track_caller]
pub fn ptp(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into();
    max(x, axes.clone()) - min(x, axes)
}

fn truth(b: &mut dyn GraphBuilder, x: Value) -> ir::Result<Value> {
    let zero = b.full_like(x, 0.0)?;
    if b.ty(x).dtype == DType::Bool {
        return Ok(x);
    }
    b.compare(Compare::Ne, x, zero)
}

/// Whether all elements are true, or not zero.
#[track_caller]
pub fn all(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("all", x, axes.into(), |b, x, axes| {
        let x = truth(b, x)?;
        b.reduce(ReduceKind::Min, x, axes)
    })
}

/// Whether any element is true, or not zero.
#[track_caller]
pub fn any(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("any", x, axes.into(), |b, x, axes| {
        let x = truth(b, x)?;
        b.reduce(ReduceKind::Max, x, axes)
    })
}

/// How many elements are not zero.
#[track_caller]
pub fn count_nonzero(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("count_nonzero", x, axes.into(), |b, x, axes| {
        let x = truth(b, x)?;
        let x = b.cast(x, DType::I64)?;
        b.sum(x, axes)
    })
}

/// The mean of values along axes, as floats.
pub(crate) fn mean_of(b: &mut dyn GraphBuilder, x: Value, axes: &[usize]) -> ir::Result<Value> {
    let x = b.cast(x, float_of(b.ty(x).dtype))?;
    b.mean(x, axes)
}

/// The mean.
#[track_caller]
pub fn mean(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    over("mean", x, axes.into(), mean_of)
}

/// The mean with weights of the same shape, or of the size of the one axis.
#[track_caller]
pub fn average(x: &Tensor, axes: impl Into<ReduceAxes>, weights: Option<&Tensor>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into();
    let Some(w) = weights else { return mean(x, axes) };
    if let Some(e) = x.error().or_else(|| w.error()) {
        return Tensor::from_error(e);
    }
    let w = match &axes.axes {
        Some(list) if list.len() == 1 && w.rank() == 1 && x.rank() > 1 => {
            let rank = x.rank() as isize;
            let a = if list[0] < 0 { list[0] + rank } else { list[0] };
            let shape: Vec<isize> = (0..rank).map(|i| if i == a { -1 } else { 1 }).collect();
            w.reshape(&shape).expand(&super::signed(x.shape()))
        }
        _ => w.clone(),
    };
    // Integers and bools are multiplied as floats: their products may not fit.
    let (x, w) = (x.cast(float_of(x.dtype())), w.cast(float_of(w.dtype())));
    record::rounded([&x, &w], |[x, w]| sum(&(&x * &w), axes.clone()) / sum(&w, axes))
}

/// The mean square distance from the mean, over `n − ddof`.
#[track_caller]
pub fn var(x: &Tensor, axes: impl Into<ReduceAxes>, ddof: usize) -> Tensor {
    let _here = crate::record::here();
    over("var", x, axes.into(), |b, x, axes| {
        let dtype = float_of(b.ty(x).dtype);
        let y = variance(b, x, axes, ddof)?;
        b.cast(y, dtype)
    })
}

/// The variance in the dtype that sums of narrow floats are computed in.
fn variance(b: &mut dyn GraphBuilder, x: Value, axes: &[usize], ddof: usize) -> ir::Result<Value> {
    let ty = b.ty(x);
    let x = b.cast(x, float_of(ty.dtype).accumulator())?;
    let m = b.mean(x, axes)?;
    let m = b.expand_reduced(m, &ty.shape, axes)?;
    let d = b.sub(x, m)?;
    let sq = b.mul(d, d)?;
    let s = b.sum(sq, axes)?;
    let n: usize = axes.iter().map(|&a| ty.shape[a]).product();
    // Without degrees of freedom the result is infinite, or NaN where all deviations are 0.
    let n = b.full_like(s, n.saturating_sub(ddof) as f64)?;
    b.div(s, n)
}

/// The square root of [`var`].
#[track_caller]
pub fn std(x: &Tensor, axes: impl Into<ReduceAxes>, ddof: usize) -> Tensor {
    let _here = crate::record::here();
    over("std", x, axes.into(), |b, x, axes| {
        let dtype = float_of(b.ty(x).dtype);
        let y = variance(b, x, axes, ddof)?;
        let y = b.unary(ir::Unary::Sqrt, y)?;
        b.cast(y, dtype)
    })
}

#[track_caller]
fn running(kind: ReduceKind, x: &Tensor, axis: Option<isize>) -> Tensor {
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        let mut x = b.cast(v[0], sum_dtype(ty.dtype))?;
        let axis = match axis {
            Some(a) => record::axis("a running reduction", &ty, a)?,
            None => {
                x = b.reshape(x, &[ty.numel()])?;
                0
            }
        };
        b.cumulative(kind, x, axis, false)
    })
}

/// Running sums along an axis, or of all elements in order.
#[track_caller]
pub fn cumsum(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("cumsum", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    running(ReduceKind::Sum, x, axis)
}

/// Running products along an axis, or of all elements in order.
#[track_caller]
pub fn cumprod(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("cumprod", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    running(ReduceKind::Prod, x, axis)
}

/// The array API's [`cumsum`].
#[track_caller]
pub fn cumulative_sum(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("cumulative_sum", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    cumsum(x, axis)
}

/// The array API's [`cumprod`].
#[track_caller]
pub fn cumulative_prod(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("cumulative_prod", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    cumprod(x, axis)
}

#[track_caller]
fn place(x: &Tensor, axis: Option<isize>, max: bool) -> Tensor {
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        let (x, axis) = match axis {
            Some(a) => (v[0], record::axis("argmax", &ty, a)?),
            None => (b.reshape(v[0], &[ty.numel()])?, 0),
        };
        if max { b.argmax(x, axis, DType::I64) } else { b.argmin(x, axis, DType::I64) }
    })
}

/// The index of the first largest element along an axis, or among all in order, as i64.
#[track_caller]
pub fn argmax(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("argmax", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    place(x, axis, true)
}

/// The index of the first smallest element along an axis, or among all in order, as i64.
#[track_caller]
pub fn argmin(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("argmin", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    place(x, axis, false)
}

/// The area under samples by trapezoids `dx` wide, along an axis.
#[track_caller]
pub fn trapezoid(y: &Tensor, x: Option<&Tensor>, dx: f64, axis: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = super::need_rank("trapezoid", y, 1) {
        return e;
    }
    let y = y.cast(float_of(y.dtype()));
    match x {
        None => record::rounded([&y], |[y]| area(&y, None, dx, axis)),
        Some(x) => record::rounded([&y, x], |[y, x]| area(&y, Some(&x), dx, axis)),
    }
}

fn area(y: &Tensor, x: Option<&Tensor>, dx: f64, axis: isize) -> Tensor {
    let n = y.size(axis) as isize;
    let mean = (y.slice(axis, 1, n, 1) + y.slice(axis, 0, n - 1, 1)) * 0.5;
    match x {
        None => sum(&mean, axis) * dx,
        Some(x) => {
            let own = if x.rank() == 1 { 0 } else { axis };
            let mut width = x.slice(own, 1, n, 1) - x.slice(own, 0, n - 1, 1);
            if x.rank() == 1 && y.rank() > 1 {
                let rank = y.rank() as isize;
                let a = if axis < 0 { axis + rank } else { axis };
                width = width.reshape(&(0..rank).map(|i| if i == a { -1 } else { 1 }).collect::<Vec<_>>());
            }
            sum(&(mean * width), axis)
        }
    }
}
