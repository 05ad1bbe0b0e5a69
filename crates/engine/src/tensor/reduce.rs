//! Reductions.

use super::{Tensor, axis_of, misfit};
use crate::amp;
use crate::record::{Record, one};
use ir::ops::ReduceKind;
use ir::{DType, Loc, Value};

/// Reduces over axes that may count from the end.
fn reduce(b: &mut dyn Record, kind: ReduceKind, x: Value, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let ty = b.ty(x);
    let axes = resolve(&ty, kind.name(), axes)?;
    let y = b.reduce(kind, x, &axes)?;
    if !keep {
        return Ok(y);
    }
    let shape: Vec<usize> = (0..ty.rank()).map(|i| if axes.contains(&i) { 1 } else { ty.shape[i] }).collect();
    b.reshape(y, &shape)
}

fn resolve(ty: &ir::Type, op: &str, axes: Option<&[isize]>) -> ir::Result<Vec<usize>> {
    match axes {
        None => Ok((0..ty.rank()).collect()),
        Some(axes) => axes.iter().map(|&a| axis_of(a, ty.rank()).map_err(|p| misfit(op, &[ty], p))).collect(),
    }
}

/// The dtype that sums of this dtype have: integers and bools count in i64, as in NumPy and PyTorch.
fn sum_dtype(d: DType) -> DType {
    if d.is_float() || d == DType::U64 { d } else { DType::I64 }
}

fn sum(b: &mut dyn Record, x: Value, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let x = amp::wide(b, x)?;
    let x = b.cast(x, sum_dtype(b.ty(x).dtype))?;
    reduce(b, ReduceKind::Sum, x, axes, keep)
}

fn mean(b: &mut dyn Record, x: Value, axes: Option<&[isize]>, keep: bool) -> ir::Result<Value> {
    let x = amp::wide(b, x)?;
    let ty = b.ty(x);
    let x = if ty.dtype.is_float() { x } else { b.cast(x, DType::F32)? };
    let n: usize = resolve(&ty, "mean", axes)?.iter().map(|&a| ty.shape[a]).product();
    let s = reduce(b, ReduceKind::Sum, x, axes, keep)?;
    let n = b.full_like(s, n as f64)?;
    b.div(s, n)
}

impl Tensor {
    /// The sum of all elements.
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| sum(b, v[0], None, false))
    }

    /// Sums over axes, which stay with size 1 if `keep`.
    #[track_caller]
    pub fn sum_axes(&self, axes: &[isize], keep: bool) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| sum(b, v[0], Some(axes), keep))
    }

    /// The mean of all elements.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| mean(b, v[0], None, false))
    }

    /// Means over axes, which stay with size 1 if `keep`.
    #[track_caller]
    pub fn mean_axes(&self, axes: &[isize], keep: bool) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| mean(b, v[0], Some(axes), keep))
    }

    /// The largest element.
    #[track_caller]
    pub fn max(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Max, v[0], None, false))
    }

    /// Largest elements along axes, which stay with size 1 if `keep`.
    #[track_caller]
    pub fn max_axes(&self, axes: &[isize], keep: bool) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Max, v[0], Some(axes), keep))
    }

    /// The smallest element.
    #[track_caller]
    pub fn min(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Min, v[0], None, false))
    }

    /// Smallest elements along axes, which stay with size 1 if `keep`.
    #[track_caller]
    pub fn min_axes(&self, axes: &[isize], keep: bool) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| reduce(b, ReduceKind::Min, v[0], Some(axes), keep))
    }

    /// The index of the first largest element along an axis, as i64.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let ty = b.ty(v[0]);
            let axis = axis_of(axis, ty.rank()).map_err(|p| misfit("argmax", &[&ty], p))?;
            b.argmax(v[0], axis, DType::I64)
        })
    }
}
