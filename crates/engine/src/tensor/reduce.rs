//! Reductions.

use super::{Tensor, axis_of, operand_error};
use crate::amp;
use crate::record::{Recorder, one};
use crate::reduce_axes::ReduceAxes;
use ir::ops::{ReduceKind, StopGradient};
use ir::{Compare, DType, GraphBuilder, Loc, Unary, Value};

/// Reduces over axes, counted from the end if negative.
fn reduce<B: GraphBuilder + ?Sized>(
    b: &mut B,
    kind: ReduceKind,
    x: Value,
    axes: Option<&[isize]>,
    keep: bool,
) -> ir::Result<Value> {
    let ty = b.ty(x);
    let axes = resolve(&ty, kind.name(), axes)?;
    let y = b.reduce(kind, x, &axes)?;
    if !keep {
        return Ok(y);
    }
    let shape: Vec<usize> = (0..ty.rank()).map(|i| if axes.contains(&i) { 1 } else { ty.shape[i] }).collect();
    b.reshape(y, &shape)
}

pub(super) fn resolve(ty: &ir::Type, op: &str, axes: Option<&[isize]>) -> ir::Result<Vec<usize>> {
    match axes {
        None => Ok((0..ty.rank()).collect()),
        Some(axes) => axes.iter().map(|&a| axis_of(a, ty.rank()).map_err(|p| operand_error(op, &[ty], p))).collect(),
    }
}

/// The dtype of a sum: sums of integers and bools are i64, as in NumPy and PyTorch.
pub(super) fn sum_dtype(d: DType) -> DType {
    if d.is_float() || d == DType::U64 { d } else { DType::I64 }
}

fn sum(b: &mut dyn Recorder, x: Value, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let x = amp::to_f32(b, x)?;
    let dtype = sum_dtype(b.ty(x).dtype);
    reduce_as(b, ReduceKind::Sum, x, dtype, axes, keep)
}

/// Converts the elements and reduces them. Op-by-op execution runs both as one op: otherwise a sum of u8 as i64 would write
/// a copy with eight times the bytes first.
fn reduce_as(
    b: &mut dyn Recorder,
    kind: ReduceKind,
    x: Value,
    dtype: DType,
    axes: Option<&[isize]>,
    keep: bool,
) -> ir::Result<Value> {
    if b.ty(x).dtype == dtype {
        return reduce(b, kind, x, axes, keep);
    }
    resolve(&b.ty(x), kind.name(), axes)?;
    b.record_fused(x, &|b, x| {
        let x = b.cast(x, dtype)?;
        reduce(b, kind, x, axes, keep)
    })
}

fn mean(b: &mut dyn Recorder, x: Value, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let x = amp::to_f32(b, x)?;
    let ty = b.ty(x);
    let dtype = if ty.dtype.is_float() { ty.dtype } else { DType::F32 };
    mean_as(b, x, dtype, axes, keep)
}

/// The mean in a dtype. f16 and bf16 are added and divided in f32, since the sum or the count may exceed their range.
fn mean_as(b: &mut dyn Recorder, x: Value, dtype: DType, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let ty = b.ty(x);
    let n: usize = resolve(&ty, "mean", axes)?.iter().map(|&a| ty.shape[a]).product();
    let s = reduce_as(b, ReduceKind::Sum, x, dtype.accumulator(), axes, keep)?;
    let n = b.full_like(s, n as f64)?;
    let y = b.div(s, n)?;
    b.cast(y, dtype)
}

impl Tensor {
    /// The sum of all elements.
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| sum(b, v[0], None, false))
    }

    /// Sums over axes; the axes stay with size 1 if `keep`.
    #[track_caller]
    pub fn sum_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| sum(b, v[0], axes, keep))
    }

    /// The mean of all elements.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| mean(b, v[0], None, false))
    }

    /// Means over axes; the axes stay with size 1 if `keep`.
    #[track_caller]
    pub fn mean_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| mean(b, v[0], axes, keep))
    }

    /// The largest element.
    #[track_caller]
    pub fn max(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Max, v[0], None, false))
    }

    /// Maxima over axes; the axes stay with size 1 if `keep`.
    #[track_caller]
    pub fn max_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Max, v[0], axes, keep))
    }

    /// The smallest element.
    #[track_caller]
    pub fn min(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Min, v[0], None, false))
    }

    /// Minima over axes; the axes stay with size 1 if `keep`.
    #[track_caller]
    pub fn min_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Min, v[0], axes, keep))
    }

    /// The index of the first largest element along an axis, as i64.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let ty = b.ty(v[0]);
            let axis = axis_of(axis, ty.rank()).map_err(|p| operand_error("argmax", &[&ty], p))?;
            b.argmax(v[0], axis, DType::I64)
        })
    }

    /// The index of the first smallest element along an axis, as i64.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let ty = b.ty(v[0]);
            let axis = axis_of(axis, ty.rank()).map_err(|p| operand_error("argmin", &[&ty], p))?;
            b.argmin(v[0], axis, DType::I64)
        })
    }

    /// Sums over axes in a given dtype: elements are converted before they are added.
    #[track_caller]
    pub fn sum_in(&self, dtype: DType, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| reduce_as(b, ReduceKind::Sum, v[0], dtype, axes, keep))
    }

    /// Means over axes in a given float dtype.
    #[track_caller]
    pub fn mean_in(&self, dtype: DType, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| mean_as(b, v[0], dtype, axes, keep))
    }

    /// Products over axes; the axes stay with size 1 if `keep`.
    #[track_caller]
    pub fn prod_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| {
            let dtype = sum_dtype(b.ty(v[0]).dtype);
            reduce_as(b, ReduceKind::Prod, v[0], dtype, axes, keep)
        })
    }

    /// The product of all elements.
    #[track_caller]
    pub fn prod(&self) -> Tensor {
        let at = Loc::caller();
        one(&at, &[self], |b, v| {
            let x = b.cast(v[0], sum_dtype(b.ty(v[0]).dtype))?;
            reduce(b, ReduceKind::Prod, x, None, false)
        })
    }

    /// Variances over axes; the sum of squares is divided by the count minus `correction` (PyTorch's default is 1).
    #[track_caller]
    pub fn var_axes(&self, axes: impl Into<ReduceAxes>, correction: usize, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| rounded_variance(b, v[0], axes, correction, keep))
    }

    /// The variance of all elements.
    #[track_caller]
    pub fn var(&self, correction: usize) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| rounded_variance(b, v[0], None, correction, false))
    }

    /// Standard deviations over axes.
    #[track_caller]
    pub fn std_axes(&self, axes: impl Into<ReduceAxes>, correction: usize, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| std_deviation(b, v[0], axes, correction, keep))
    }

    /// The standard deviation of all elements.
    #[track_caller]
    pub fn std(&self, correction: usize) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| std_deviation(b, v[0], None, correction, false))
    }

    /// `log Σ eˣ` over axes without overflow.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| {
            let x = amp::to_f32(b, v[0])?;
            // A sum of exponentials may be larger than the largest f16.
            let dtype = b.ty(x).dtype;
            let x = b.cast(x, dtype.accumulator())?;
            let top = reduce(b, ReduceKind::Max, x, axes, true)?;
            let top = b.one(StopGradient.into(), &[top])?;
            // An infinite maximum is not subtracted: ∞ − ∞ is NaN.
            let finite = b.unary(Unary::IsFinite, top)?;
            let top = b.zero_unless(finite, top)?;
            let (wide, top_wide) = crate::record::promote_and_broadcast(b, x, top)?;
            let d = b.sub(wide, top_wide)?;
            let e = b.unary(Unary::Exp, d)?;
            let s = reduce(b, ReduceKind::Sum, e, axes, true)?;
            let l = b.unary(Unary::Log, s)?;
            let y = b.add(l, top)?;
            let y = b.cast(y, dtype)?;
            b.save_for_backward(y, &[v[0]], true);
            if keep {
                return Ok(y);
            }
            let ty = b.ty(y);
            let gone = resolve(&ty, "logsumexp", axes)?;
            let shape: Vec<usize> =
                ty.shape.iter().enumerate().filter(|(i, _)| !gone.contains(i)).map(|(_, &n)| n).collect();
            b.reshape(y, &shape)
        })
    }

    /// Whether any element along axes is true.
    #[track_caller]
    pub fn any_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| reduce_bool(b, v[0], ReduceKind::Max, axes, keep))
    }

    /// Whether all elements along axes are true.
    #[track_caller]
    pub fn all_axes(&self, axes: impl Into<ReduceAxes>, keep: bool) -> Tensor {
        let ReduceAxes { axes, keep: kept } = axes.into();
        let (axes, keep) = (axes.as_deref(), keep || kept);
        one(&Loc::caller(), &[self], |b, v| reduce_bool(b, v[0], ReduceKind::Min, axes, keep))
    }
}

/// Reduces bools; a number counts as true unless it is zero.
fn reduce_bool(
    b: &mut dyn Recorder,
    x: Value,
    kind: ReduceKind,
    axes: Option<&[isize]>,
    keep: bool,
) -> ir::Result<Value> {
    let zero = b.full_like(x, 0.0)?;
    let yes = b.compare(Compare::Ne, x, zero)?;
    let n = b.cast(yes, DType::I32)?;
    let n = reduce(b, kind, n, axes, keep)?;
    let zero = b.full_like(n, 0.0)?;
    b.compare(Compare::Gt, n, zero)
}

/// The variance in the accumulator's dtype, and the dtype of the result.
fn variance(
    b: &mut dyn Recorder,
    x: Value,
    axes: Option<&[isize]>,
    correction: usize,
    keep: bool,
) -> ir::Result<(Value, DType)> {
    let x = amp::to_f32(b, x)?;
    let ty = b.ty(x);
    let dtype = if ty.dtype.is_float() { ty.dtype } else { DType::F32 };
    let n: usize = resolve(&ty, "var", axes)?.iter().map(|&a| ty.shape[a]).product();
    let x = b.cast(x, dtype.accumulator())?;
    let m = mean(b, x, axes, true)?;
    let (x, m) = crate::record::promote_and_broadcast(b, x, m)?;
    let d = b.sub(x, m)?;
    let sq = b.mul(d, d)?;
    let s = reduce(b, ReduceKind::Sum, sq, axes, keep)?;
    // Without degrees of freedom the result is infinite, or NaN if all deviations are 0.
    let n = b.full_like(s, n.saturating_sub(correction) as f64)?;
    Ok((b.div(s, n)?, dtype))
}

fn rounded_variance(
    b: &mut dyn Recorder,
    x: Value,
    axes: Option<&[isize]>,
    correction: usize,
    keep: bool,
) -> ir::Result<Value> {
    let (y, dtype) = variance(b, x, axes, correction, keep)?;
    let y = b.cast(y, dtype)?;
    b.save_for_backward(y, &[x], false);
    Ok(y)
}

/// The square root of a variance; its gradient is 0 rather than infinite where the variance is 0, as in PyTorch.
fn std_deviation(
    b: &mut dyn Recorder,
    x: Value,
    axes: Option<&[isize]>,
    correction: usize,
    keep: bool,
) -> ir::Result<Value> {
    let (whole, (x, dtype)) = (x, variance(b, x, axes, correction, keep)?);
    let (zero, one) = (b.full_like(x, 0.0)?, b.full_like(x, 1.0)?);
    let none = b.compare(Compare::Eq, x, zero)?;
    let safe = b.select(none, one, x)?;
    let root = b.unary(Unary::Sqrt, safe)?;
    let y = b.select(none, zero, root)?;
    let y = b.cast(y, dtype)?;
    b.save_for_backward(y, &[whole], true);
    Ok(y)
}
