//! Reading by index, and diagonals.

use super::{need_rank, ravel};
use crate::record;
use crate::{DType, ReduceAxes, Tensor};
use ir::ops::GatherMode;
use ir::{Compare, GraphBuilder, Value};

/// Indices with those below zero counted from the end.
fn from_end(b: &mut dyn GraphBuilder, index: Value, n: usize) -> ir::Result<Value> {
    let ty = b.ty(index);
    if !ty.dtype.is_int() {
        return Err(record::misfit("take", &[ty], "indices are integers"));
    }
    let i = b.cast(index, DType::I64)?;
    let zero = b.full_like(i, 0.0)?;
    let low = b.compare(Compare::Lt, i, zero)?;
    let moved = b.offset(i, n as f64)?;
    b.select(low, moved, i)
}

/// The slices at indices along an axis, or the elements among all in order. An index outside gives NaN (or the least
/// integer), as in JAX.
#[track_caller]
pub fn take(x: &Tensor, indices: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("take", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let Some(axis) = axis else {
        return take(&ravel(x), indices, Some(0));
    };
    record::one(&[x, indices], |b, v| {
        let ty = b.ty(v[0]);
        let axis = record::axis("take", &ty, axis)?;
        let index = from_end(b, v[1], ty.shape[axis])?;
        b.take(v[0], index, axis, GatherMode::fill(ty.dtype))
    })
}

/// One index for each element; the other axes go along and broadcast.
#[track_caller]
pub fn take_along_axis(x: &Tensor, indices: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x, indices], |b, v| {
        let (ty, ti) = (b.ty(v[0]), b.ty(v[1]));
        let axis = record::axis("take_along_axis", &ty, axis)?;
        if ty.rank() != ti.rank() {
            return Err(record::misfit("take_along_axis", &[ty, ti], "both need the same number of axes"));
        }
        let mut index = from_end(b, v[1], ty.shape[axis])?;
        let (mut xs, mut is) = (ty.shape.clone(), ti.shape.clone());
        (xs[axis], is[axis]) = (1, 1);
        let Some(mut shape) = record::broadcast(&[&xs, &is]) else {
            return Err(record::misfit("take_along_axis", &[ty, ti], "the other axes don't broadcast"));
        };
        shape[axis] = ti.shape[axis];
        index = b.broadcast_to(index, &shape)?;
        shape[axis] = ty.shape[axis];
        let x = b.broadcast_to(v[0], &shape)?;
        b.take_along_axis(x, index, axis, GatherMode::fill(ty.dtype))
    })
}

/// The k-th diagonal of the planes of two axes; it becomes the last axis.
#[track_caller]
pub fn diagonal(x: &Tensor, k: isize, a: isize, b: isize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("diagonal", x, 2) {
        return e;
    }
    let x = super::moveaxis(x, &[a, b], &[-2, -1]);
    if x.error().is_some() {
        return x;
    }
    let (rows, columns) = (x.size(-2) as isize, x.size(-1) as isize);
    let (r0, c0) = ((-k).max(0), k.max(0));
    let n = (rows - r0).min(columns - c0).max(0);
    let index: Vec<i64> = (0..n).map(|i| ((i + r0) * columns + i + c0) as i64).collect();
    let index = crate::engine_of(&x).tensor(&index, &[n as usize]);
    let mut flat: Vec<isize> = x.shape()[..x.rank() - 2].iter().map(|&n| n as isize).collect();
    flat.push(rows * columns);
    take(&x.reshape(&flat), &index, Some(-1))
}

/// A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix.
#[track_caller]
pub fn diag(x: &Tensor, k: isize) -> Tensor {
    let _here = crate::record::here();
    match x.rank() {
        _ if x.error().is_some() => x.clone(),
        2 => diagonal(x, k, 0, 1),
        1 => {
            let n = x.numel() + k.unsigned_abs();
            let (r0, c0) = ((-k).max(0) as i64, k.max(0) as i64);
            let size = x.numel() as i64;
            record::one(&[x], |b, v| {
                let zero = b.scalar(b.ty(v[0]).dtype, 0.0)?;
                let placed = b.pad(v[0], zero, &[c0], &[n as i64 - size - c0], &[0])?;
                let wide = b.broadcast_to(placed, &[n, n])?;
                let (r, c) = (b.iota(DType::I64, &[n, n], 0)?, b.iota(DType::I64, &[n, n], 1)?);
                let d = b.sub(c, r)?;
                let k = b.full_like(d, (c0 - r0) as f64)?;
                let on = b.compare(Compare::Eq, d, k)?;
                b.zero_unless(on, wide)
            })
        }
        _ => record::invalid("diag", format!("{} is neither a vector nor a matrix", x.ty())),
    }
}

/// A matrix with all elements on its k-th diagonal.
#[track_caller]
pub fn diagflat(x: &Tensor, k: isize) -> Tensor {
    let _here = crate::record::here();
    diag(&ravel(x), k)
}

/// The indices of the diagonal of an array of `ndim` axes of size `n`.
#[track_caller]
pub fn diag_indices(n: usize, ndim: usize) -> Vec<Tensor> {
    let _here = crate::record::here();
    vec![crate::arange(n); ndim]
}

/// The indices of the diagonal of an array.
#[track_caller]
pub fn diag_indices_from(x: &Tensor) -> Vec<Tensor> {
    let _here = crate::record::here();
    diag_indices(x.size(0), x.rank())
}

/// The sum along the k-th diagonal.
#[track_caller]
pub fn trace(x: &Tensor, k: isize) -> Tensor {
    let _here = crate::record::here();
    super::sum(&diagonal(x, k, 0, 1), -1)
}

/// A function of vectors, along an axis: its results take the axis' place.
#[track_caller]
pub fn apply_along_axis(f: impl Fn(Tensor) -> Tensor, axis: isize, x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("apply_along_axis", x, 1) {
        return e;
    }
    let moved = super::moveaxis(x, &[axis], &[-1]);
    let n = moved.size(-1) as isize;
    let y = crate::vmap(&f).call(moved.reshape(&[-1, n]));
    let mut shape: Vec<isize> = moved.shape()[..moved.rank() - 1].iter().map(|&n| n as isize).collect();
    shape.extend(y.shape().iter().skip(1).map(|&n| n as isize));
    let y2 = y.reshape(&shape);
    if y.rank() == 2 { super::moveaxis(&y2, &[-1], &[axis]) } else { y2 }
}

/// A reduction that keeps its axis, over several axes one after another.
#[track_caller]
pub fn apply_over_axes(f: impl Fn(&Tensor, isize) -> Tensor, x: &Tensor, axes: &[isize]) -> Tensor {
    let _here = crate::record::here();
    axes.iter().fold(x.clone(), |x, &a| {
        let y = {
            let _user = engine::enter_user_code();
            f(&x, a)
        };
        if y.rank() + 1 == x.rank() { y.unsqueeze(a) } else { y }
    })
}
