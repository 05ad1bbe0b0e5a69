//! Reading and writing at computed places.

use crate::{DType, Tensor, record};
use ir::ops::{Gather, GatherMode, Scatter, ScatterKind, ScatterMode, SliceDims};
use ir::{GraphBuilder, Value};

/// Start indices with those below zero counted from the end, as JAX has them; then they are moved inside.
fn from_end(b: &mut dyn GraphBuilder, x: Value, starts: &[Value]) -> ir::Result<Vec<Value>> {
    let shape = b.ty(x).shape;
    let wrap = |(&i, &n): (&Value, &usize)| {
        if b.ty(i).dtype.kind() != ir::DTypeKind::Signed || b.ty(i).rank() != 0 {
            return Ok(i);
        }
        let (zero, end) = (b.full_like(i, 0.0)?, b.offset(i, n as f64)?);
        let low = b.compare(ir::Compare::Lt, i, zero)?;
        b.select(low, end, i)
    };
    let mut all: Vec<Value> = starts.iter().zip(&shape).map(wrap).collect::<ir::Result<_>>()?;
    all.extend(&starts[all.len()..]);
    Ok(all)
}

/// A slice of `sizes` at start indices: below zero they count from the end, then they are moved inside.
///
/// ```
/// use tensorloom::{arange, lax, tensor};
///
/// let x = arange(5);
/// assert_eq!(lax::dynamic_slice(&x, &[&tensor(&[2i32], &[])], &[2]).to_vec::<i64>()?, [2, 3]);
/// assert_eq!(lax::dynamic_slice(&x, &[&tensor(&[4i32], &[])], &[2]).to_vec::<i64>()?, [3, 4]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn dynamic_slice(x: &Tensor, starts: &[&Tensor], sizes: &[usize]) -> Tensor {
    let _here = crate::record::here();
    let args: Vec<&Tensor> = [x].into_iter().chain(starts.iter().copied()).collect();
    record::one(&args, |b, v| {
        let starts = from_end(b, v[0], &v[1..])?;
        b.dynamic_slice(v[0], &starts, sizes)
    })
}

/// `x` with the slice at start indices replaced.
#[track_caller]
pub fn dynamic_update_slice(x: &Tensor, update: &Tensor, starts: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let args: Vec<&Tensor> = [x, update].into_iter().chain(starts.iter().copied()).collect();
    record::one(&args, |b, v| {
        let starts = from_end(b, v[0], &v[2..])?;
        b.dynamic_update_slice(v[0], v[1], &starts)
    })
}

/// Start indices that are zero but along one axis.
fn starts(b: &mut dyn GraphBuilder, op: &str, x: Value, start: Value, axis: isize) -> ir::Result<(Vec<Value>, usize)> {
    let ty = b.ty(x);
    let axis = record::axis(op, &ty, axis)?;
    let index = b.ty(start).dtype;
    let zero = b.scalar(index, 0.0)?;
    let all: Vec<Value> = (0..ty.rank()).map(|i| if i == axis { start } else { zero }).collect();
    Ok((from_end(b, x, &all)?, axis))
}

/// `size` elements along one axis from an index on, moved inside.
#[track_caller]
pub fn dynamic_slice_in_dim(x: &Tensor, start: &Tensor, size: usize, axis: isize) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x, start], |b, v| {
        let (starts, axis) = starts(b, "dynamic_slice", v[0], v[1], axis)?;
        let mut sizes = b.ty(v[0]).shape;
        sizes[axis] = size;
        b.dynamic_slice(v[0], &starts, &sizes)
    })
}

/// The slice at an index along an axis, which disappears unless `keep`.
#[track_caller]
pub fn dynamic_index_in_dim(x: &Tensor, index: &Tensor, axis: isize, keep: bool) -> Tensor {
    let _here = crate::record::here();
    let y = dynamic_slice_in_dim(x, index, 1, axis);
    if keep { y } else { y.squeeze(axis) }
}

/// `x` with the elements along one axis from an index on replaced.
#[track_caller]
pub fn dynamic_update_slice_in_dim(x: &Tensor, update: &Tensor, start: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x, update, start], |b, v| {
        let (starts, _) = starts(b, "dynamic_update_slice", v[0], v[2], axis)?;
        b.dynamic_update_slice(v[0], v[1], &starts)
    })
}

/// `x` with the slice at an index along an axis replaced.
#[track_caller]
pub fn dynamic_update_index_in_dim(x: &Tensor, update: &Tensor, index: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    let update = if update.rank() + 1 == x.rank() { update.unsqueeze(axis) } else { update.clone() };
    dynamic_update_slice_in_dim(x, &update, index, axis)
}

/// Reads a slice for every index vector; see [`Gather`].
#[track_caller]
pub fn gather(x: &Tensor, indices: &Tensor, op: Gather) -> Tensor {
    let _here = crate::record::here();
    Tensor::apply(op, &[x, indices], 1).swap_remove(0)
}

/// Combines slices into `x` at index vectors; see [`Scatter`].
#[track_caller]
pub fn scatter(x: &Tensor, indices: &Tensor, updates: &Tensor, op: Scatter) -> Tensor {
    let _here = crate::record::here();
    Tensor::apply(op, &[x, indices, updates], 1).swap_remove(0)
}

/// Index tensors as vectors along a last axis; indices below zero count from the end.
fn vectors(b: &mut dyn GraphBuilder, op: &str, x: Value, index: &[Value]) -> ir::Result<(Value, usize)> {
    let ty = b.ty(x);
    let shapes: Vec<_> = index.iter().map(|&v| b.ty(v).shape).collect();
    let Some(shape) = record::broadcast(&shapes.iter().map(|s| s.as_slice()).collect::<Vec<_>>()) else {
        let types: Vec<_> = index.iter().map(|&v| b.ty(v)).collect();
        return Err(record::misfit(op, &types, "the indices don't broadcast"));
    };
    if index.len() > ty.rank() {
        let n = index.len();
        return Err(record::misfit(op, &[ty], format!("{n} indices for fewer axes")));
    }
    let mut columns = Vec::new();
    for (axis, &i) in index.iter().enumerate() {
        let i = b.cast(i, DType::I64)?;
        let i = b.broadcast_to(i, &shape)?;
        let end = b.offset(i, ty.shape[axis] as f64)?;
        let zero = b.full_like(i, 0.0)?;
        let negative = b.compare(ir::Compare::Lt, i, zero)?;
        let i = b.select(negative, end, i)?;
        columns.push(b.index_vectors(i)?);
    }
    Ok((b.concat(&columns, shape.len())?, shape.len()))
}

/// `x[i, j, ..]` for index tensors that broadcast together; outside gives JAX's fill value.
///
/// ```
/// use tensorloom::{arange, lax, tensor};
///
/// let x = arange(6).reshape(&[2, 3]);
/// let (i, j) = (tensor(&[0i32, 1], &[2]), tensor(&[-1i32, 0], &[2]));
/// assert_eq!(lax::index_take(&x, &[&i, &j]).to_vec::<i64>()?, [2, 3]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn index_take(x: &Tensor, index: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let args: Vec<&Tensor> = [x].into_iter().chain(index.iter().copied()).collect();
    record::one(&args, |b, v| {
        let ty = b.ty(v[0]);
        let (at, rank) = vectors(b, "index", v[0], &v[1..])?;
        let dims = SliceDims::leading(ty.rank(), index.len(), rank);
        let mut sizes = ty.shape.clone();
        sizes[..index.len()].fill(1);
        let op = Gather { dims, slice_sizes: sizes, mode: GatherMode::fill(ty.dtype) };
        b.one(op.into(), &[v[0], at])
    })
}

#[track_caller]
fn update(kind: ScatterKind, x: &Tensor, index: &[&Tensor], values: &Tensor) -> Tensor {
    let args: Vec<&Tensor> = [x, values].into_iter().chain(index.iter().copied()).collect();
    record::one(&args, |b, v| {
        let ty = b.ty(v[0]);
        let (at, rank) = vectors(b, kind.name(), v[0], &v[2..])?;
        let dims = SliceDims::leading(ty.rank(), index.len(), rank);
        let batch = b.ty(at).shape;
        let shape: Vec<usize> = batch[..rank].iter().chain(&ty.shape[index.len()..]).copied().collect();
        let values = b.cast(v[1], ty.dtype)?;
        let values = b.broadcast_to(values, &shape)?;
        b.scatter(kind, dims, ScatterMode::Drop, v[0], at, values)
    })
}

macro_rules! updates {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),*) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor, index: &[&Tensor], values: &Tensor) -> Tensor {
            let _here = crate::record::here();
            update(ScatterKind::$kind, x, index, values)
        }
    )* };
}
updates! {
    /// `x` with `x[i, j, ..]` replaced; the last of several values for one place stays.
    ///
    /// ```
    /// use tensorloom::{full, lax, tensor, zeros};
    ///
    /// let x = lax::index_add(&zeros(&[3]), &[&tensor(&[0i32, 2, 2], &[3])], &full(&[], 1.0));
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 2.0]);
    /// # Ok::<(), tensorloom::Error>(())
    /// ```
    index_set => Set,
    /// `x` with values added at `x[i, j, ..]`.
    index_add => Add,
    /// `x` with `x[i, j, ..]` multiplied.
    index_mul => Mul,
    /// `x` with the smaller at `x[i, j, ..]`.
    index_min => Min,
    /// `x` with the larger at `x[i, j, ..]`.
    index_max => Max
}
