//! Reading and writing at index tensors: PyTorch's gather and scatter family.
//!
//! An index out of bounds is found only when the program runs, and programs don't stop for it: a read out of bounds gives
//! NaN (for integers the smallest value, for bools true), a write out of bounds has no effect.

use super::{Tensor, axis_of, operand_error};
use crate::operand::Number;
use crate::record::{Recorder, broadcast_shapes, number_like, one};
use crate::view;
use ir::ops::{GatherMode, ReduceKind, ScatterKind, ScatterMode, Slice, SliceDims};
use ir::{Binary, Compare, DType, InferError, Loc, Scalar, Shape, Type, Value};
use std::sync::Arc;

/// How `scatter_reduce` combines the elements written to one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The mean.
    Mean,
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
}

fn axis_in(op: &str, ty: &Type, axis: isize) -> ir::Result<usize> {
    axis_of(axis, ty.rank()).map_err(|p| operand_error(op, &[ty], p))
}

/// Checks that an index tensor has the operand's rank and, except along `axis`, no more elements on any axis.
fn check_index(op: &str, x: &Type, index: &Type, axis: usize) -> ir::Result<()> {
    let bad = |why: String| Err(operand_error(op, &[x, index], InferError::other(why)));
    if !index.dtype.is_int() {
        return bad(format!("indices must be integers, not {}", index.dtype));
    }
    if index.rank() != x.rank() {
        return bad("the indices need as many axes as the tensor".into());
    }
    match (0..x.rank()).find(|&a| a != axis && index.shape[a] > x.shape[a]) {
        Some(a) => bad(format!("axis {a} has more indices than elements")),
        None => Ok(()),
    }
}

/// Slices `x` from index 0 to `shape` on all axes except `axis`; also returns the slice op, `None` if it keeps all of `x`.
fn leading_slice(b: &mut dyn Recorder, x: Value, shape: &[usize], axis: usize) -> ir::Result<(Value, Option<Slice>)> {
    let ty = b.ty(x);
    let limit: Shape = (0..ty.rank()).map(|a| if a == axis { ty.shape[a] } else { shape[a] }).collect();
    if limit == ty.shape {
        return Ok((x, None));
    }
    let slice = Slice { start: limit.iter().map(|_| 0).collect(), stride: limit.iter().map(|_| 1).collect(), limit };
    Ok((b.one(slice.clone().into(), &[x])?, Some(slice)))
}

fn gather(b: &mut dyn Recorder, x: Value, index: Value, axis: isize) -> ir::Result<Value> {
    let (ty, it) = (b.ty(x), b.ty(index));
    let axis = axis_in("gather", &ty, axis)?;
    check_index("gather", &ty, &it, axis)?;
    let (x, _) = leading_slice(b, x, &it.shape, axis)?;
    b.take_along_axis(x, index, axis, GatherMode::fill(ty.dtype))
}

fn scatter(
    b: &mut dyn Recorder,
    op: &'static str,
    kind: ScatterKind,
    [x, index, src]: [Value; 3],
    axis: isize,
) -> ir::Result<Value> {
    let (ty, it, st) = (b.ty(x), b.ty(index), b.ty(src));
    let axis = axis_in(op, &ty, axis)?;
    check_index(op, &ty, &it, axis)?;
    let fits = st.rank() == it.rank() && it.shape.iter().zip(&st.shape).all(|(i, s)| i <= s);
    if !fits || st.dtype != ty.dtype {
        let why = "the source needs the tensor's dtype and an element for each index";
        return Err(operand_error(op, &[&ty, &it, &st], InferError::other(why)));
    }
    let zero: Shape = it.shape.iter().map(|_| 0).collect();
    let one: Shape = it.shape.iter().map(|_| 1).collect();
    let src = b.slice(src, &zero, &it.shape, &one)?;
    let (part, cut) = leading_slice(b, x, &it.shape, axis)?;
    let vectors = b.index_vectors(index)?;
    let y = b.scatter(kind, SliceDims::along_axis(ty.rank(), axis), ScatterMode::Drop, part, vectors, src)?;
    match cut {
        Some(slice) => view::put(b, x, &[Arc::new(slice.into())], y),
        None => Ok(y),
    }
}

fn scatter_reduce(
    b: &mut dyn Recorder,
    how: ScatterReduce,
    [x, index, src]: [Value; 3],
    axis: isize,
    include_self: bool,
) -> ir::Result<Value> {
    const OP: &str = "scatter_reduce";
    let (ty, it) = (b.ty(x), b.ty(index));
    let (kind, identity) = match how {
        ScatterReduce::Sum | ScatterReduce::Mean => (ScatterKind::Add, Scalar::zero(ty.dtype)),
        ScatterReduce::Prod => (ScatterKind::Mul, Scalar::one(ty.dtype)),
        ScatterReduce::Max => (ScatterKind::Max, ReduceKind::Max.identity(ty.dtype)),
        ScatterReduce::Min => (ScatterKind::Min, ReduceKind::Min.identity(ty.dtype)),
    };
    let mut start = x;
    if !include_self {
        let fill = b.full(&it.with_dtype(ty.dtype), identity)?;
        start = scatter(b, OP, ScatterKind::Set, [x, index, fill], axis)?;
    }
    let total = scatter(b, OP, kind, [start, index, src], axis)?;
    if how != ScatterReduce::Mean {
        b.save_for_backward(total, &[x, src], true);
        return Ok(total);
    }
    let ones = b.full(&it.with_dtype(ty.dtype), Scalar::one(ty.dtype))?;
    let first = if include_self { Scalar::one(ty.dtype) } else { Scalar::zero(ty.dtype) };
    let base = b.full(&ty, first)?;
    let count = scatter(b, OP, ScatterKind::Add, [base, index, ones], axis)?;
    let least = b.full(&ty, Scalar::one(ty.dtype))?;
    let count = b.binary(Binary::Max, count, least)?;
    let y = b.div(total, count)?;
    b.save_for_backward(y, &[x, src], true);
    Ok(y)
}

fn check_index_1d(op: &str, x: &Type, index: &Type) -> ir::Result<()> {
    if index.rank() == 1 && index.dtype.is_int() {
        return Ok(());
    }
    Err(operand_error(op, &[x, index], InferError::other("the indices are integers along one axis")))
}

/// Writes slices of `src` to the slices of `x` at the indices along an axis, combined by `kind`.
fn index_put(
    b: &mut dyn Recorder,
    op: &'static str,
    kind: ScatterKind,
    [x, index, src]: [Value; 3],
    axis: isize,
) -> ir::Result<Value> {
    let (ty, it) = (b.ty(x), b.ty(index));
    let axis = axis_in(op, &ty, axis)?;
    check_index_1d(op, &ty, &it)?;
    let mut shape = ty.shape.clone();
    shape[axis] = it.shape[0];
    let src = b.cast(src, ty.dtype)?;
    let src = b.broadcast_to(src, &shape)?;
    let vectors = b.index_vectors(index)?;
    b.scatter(kind, SliceDims::take(ty.rank(), axis, 1), ScatterMode::Drop, x, vectors, src)
}

fn masked_fill(b: &mut dyn Recorder, x: Value, mask: Value, n: Number) -> ir::Result<Value> {
    let (ty, mt) = (b.ty(x), b.ty(mask));
    if mt.dtype != DType::Bool || broadcast_shapes(&ty.shape, &mt.shape).as_ref() != Some(&ty.shape) {
        let why = "the mask must be bool and broadcast to the tensor's shape";
        return Err(operand_error("masked_fill", &[&ty, &mt], InferError::other(why)));
    }
    let mask = b.broadcast_to(mask, &ty.shape)?;
    let n = number_like(b, ty.dtype, n)?;
    let n = b.cast(n, ty.dtype)?;
    let n = b.splat(n, &ty.shape)?;
    b.select(mask, n, x)
}

/// A number as a value with the dtype of `x`.
fn fill_slice(b: &mut dyn Recorder, x: &Type, n: Number) -> ir::Result<Value> {
    let n = number_like(b, x.dtype, n)?;
    b.cast(n, x.dtype)
}

impl Tensor {
    /// `out[i][j] = self[index[i][j]][j]` for axis 0, and so on: one index for each element of the result.
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, index], |b, v| gather(b, v[0], v[1], axis))
    }

    /// The slices at the given indices along an axis.
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, index], |b, v| {
            let (ty, it) = (b.ty(v[0]), b.ty(v[1]));
            let axis = axis_in("index_select", &ty, axis)?;
            check_index_1d("index_select", &ty, &it)?;
            b.take(v[0], v[1], axis, GatherMode::fill(ty.dtype))
        })
    }

    /// Replaces the elements where a bool mask is true by a number.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, n: impl Into<Number>) -> Tensor {
        let n = n.into();
        one(&Loc::caller(), &[self, mask], |b, v| masked_fill(b, v[0], v[1], n))
    }

    /// Sets the slices at the given indices along an axis to a number.
    #[track_caller]
    pub fn index_fill(&self, axis: isize, index: &Tensor, n: impl Into<Number>) -> Tensor {
        let n = n.into();
        one(&Loc::caller(), &[self, index], |b, v| {
            let n = fill_slice(b, self.ty(), n)?;
            index_put(b, "index_fill", ScatterKind::Set, [v[0], v[1], n], axis)
        })
    }

    /// Combines `src` with the elements that `index` selects. Without `include_self` the old elements at those indices are
    /// ignored.
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
        how: ScatterReduce,
        include_self: bool,
    ) -> Tensor {
        one(&Loc::caller(), &[self, index, src], |b, v| scatter_reduce(b, how, [v[0], v[1], v[2]], axis, include_self))
    }

    /// [`Tensor::scatter_reduce`] in place.
    #[track_caller]
    pub fn scatter_reduce_(
        &self,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
        how: ScatterReduce,
        include_self: bool,
    ) -> Tensor {
        self.mutate("scatter_reduce_", true, &[index, src], &Loc::caller(), &|b, x, v| {
            scatter_reduce(b, how, [x.expect("it was asked for"), v[0], v[1]], axis, include_self)
        })
    }

    /// [`Tensor::masked_fill`] in place.
    #[track_caller]
    pub fn masked_fill_(&self, mask: &Tensor, n: impl Into<Number>) -> Tensor {
        let n = n.into();
        self.mutate("masked_fill_", true, &[mask], &Loc::caller(), &|b, x, v| {
            masked_fill(b, x.expect("it was asked for"), v[0], n)
        })
    }

    /// [`Tensor::index_fill`] in place.
    #[track_caller]
    pub fn index_fill_(&self, axis: isize, index: &Tensor, n: impl Into<Number>) -> Tensor {
        let n = n.into();
        self.mutate("index_fill_", true, &[index], &Loc::caller(), &|b, x, v| {
            let n = fill_slice(b, self.ty(), n)?;
            index_put(b, "index_fill_", ScatterKind::Set, [x.expect("it was asked for"), v[0], n], axis)
        })
    }
}

macro_rules! scatters {
    ($($(#[$doc:meta])* $name:ident $name_:ident $f:ident $kind:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, axis: isize, index: &Tensor, src: &Tensor) -> Tensor {
                one(&Loc::caller(), &[self, index, src], |b, v| {
                    $f(b, stringify!($name), ScatterKind::$kind, [v[0], v[1], v[2]], axis)
                })
            }

            $(#[$doc])*
            ///
            /// In place.
            #[track_caller]
            pub fn $name_(&self, axis: isize, index: &Tensor, src: &Tensor) -> Tensor {
                self.mutate(stringify!($name_), true, &[index, src], &Loc::caller(), &|b, x, v| {
                    let x = x.expect("it was asked for");
                    $f(b, stringify!($name_), ScatterKind::$kind, [x, v[0], v[1]], axis)
                })
            }
        )* }
    };
}

scatters! {
    /// Writes `src[i][j]` to `[index[i][j]][j]` for axis 0, and so on; for repeated indices the last write wins.
    scatter scatter_ scatter Set,
    /// Adds `src[i][j]` to `[index[i][j]][j]` for axis 0, and so on.
    scatter_add scatter_add_ scatter Add,
    /// Adds slices of `src` to the slices at the given indices along an axis.
    index_add index_add_ index_put Add,
    /// Writes slices of `src` to the slices at the given indices along an axis.
    index_copy index_copy_ index_put Set,
}

impl Tensor {
    /// The upper or lower triangle of the last two axes, bounded by diagonal `k`; other elements are 0.
    fn triangle(&self, op: &str, k: i64, upper: bool, at: &Loc) -> Tensor {
        one(at, &[self], |b, v| {
            let ty = b.ty(v[0]);
            let n = ty.rank();
            if n < 2 {
                return Err(operand_error(op, &[&ty], InferError::other("it needs two axes")));
            }
            let row = b.iota(DType::I64, &ty.shape, n - 2)?;
            let column = b.iota(DType::I64, &ty.shape, n - 1)?;
            let edge = b.full_like(row, k as f64)?;
            let edge = b.add(row, edge)?;
            let keep = b.compare(if upper { Compare::Ge } else { Compare::Le }, column, edge)?;
            b.zero_unless(keep, v[0])
        })
    }

    /// The lower triangle of the last two axes, up to diagonal `k`; other elements are 0.
    #[track_caller]
    pub fn tril(&self, k: i64) -> Tensor {
        self.triangle("tril", k, false, &Loc::caller())
    }

    /// The upper triangle of the last two axes, from diagonal `k` on; other elements are 0.
    #[track_caller]
    pub fn triu(&self, k: i64) -> Tensor {
        self.triangle("triu", k, true, &Loc::caller())
    }
}
