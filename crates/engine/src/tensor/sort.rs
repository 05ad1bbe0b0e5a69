//! Sorting and cumulative sums.

use super::{Tensor, axis_of, operand_error};
use crate::record::{Recorder, one, record};
use ir::ops::{ReduceKind, Sort, TopK};
use ir::{DType, InferError, Loc, Value, Values};

fn sorted(b: &mut dyn Recorder, x: Value, axis: isize, descending: bool) -> ir::Result<(Value, Value, usize)> {
    let ty = b.ty(x);
    let axis = axis_of(axis, ty.rank()).map_err(|p| operand_error("sort", &[&ty], p))?;
    let places = b.iota(DType::I64, &ty.shape, axis)?;
    let outs = b.emit(Sort { axis, num_keys: 1, descending }.into(), &[x, places])?;
    Ok((outs[0], outs[1], axis))
}

fn sort_pair(
    at: &Loc,
    x: &Tensor,
    f: impl FnOnce(&mut dyn Recorder, Value) -> ir::Result<(Value, Value)>,
) -> (Tensor, Tensor) {
    let outs = record(at, 2, None, &[x], |b, v| {
        let (x, y) = f(b, v[0])?;
        Ok(Values::from_slice(&[x, y]))
    });
    (outs[0].clone(), outs[1].clone())
}

impl Tensor {
    /// The elements along an axis in sorted order, and their original indices as i64. The sort is stable, and NaN sorts
    /// after all numbers.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
        sort_pair(&Loc::caller(), self, |b, x| {
            let (values, places, _) = sorted(b, x, axis, descending)?;
            Ok((values, places))
        })
    }

    /// The indices that sort the elements: those that [`Tensor::sort`] returns.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| Ok(sorted(b, v[0], axis, descending)?.1))
    }

    /// The `k` largest (or smallest) elements along an axis in sorted order, and their indices as i64.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> (Tensor, Tensor) {
        sort_pair(&Loc::caller(), self, |b, x| {
            let ty = b.ty(x);
            let a = axis_of(axis, ty.rank()).map_err(|p| operand_error("topk", &[&ty], p))?;
            if k > ty.shape[a] {
                let why = format!("{k} of the {} elements of axis {a}", ty.shape[a]);
                return Err(operand_error("topk", &[&ty], InferError::other(why)));
            }
            if largest {
                let outs = b.emit(TopK { k, axis: a }.into(), &[x])?;
                let places = b.cast(outs[1], DType::I64)?;
                return Ok((outs[0], places));
            }
            let (values, places, a) = sorted(b, x, axis, false)?;
            Ok((b.slice_axis(values, a, 0, k)?, b.slice_axis(places, a, 0, k)?))
        })
    }

    fn cumulative_reduce(&self, op: &str, kind: ReduceKind, axis: isize, at: &Loc) -> Tensor {
        one(at, &[self], |b, v| {
            let ty = b.ty(v[0]);
            let axis = axis_of(axis, ty.rank()).map_err(|p| operand_error(op, &[&ty], p))?;
            let wide = matches!(kind, ReduceKind::Sum | ReduceKind::Prod);
            let x = if wide { b.cast(v[0], super::reduce::sum_dtype(ty.dtype))? } else { v[0] };
            b.cumulative(kind, x, axis, false)
        })
    }

    /// Cumulative sums along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        self.cumulative_reduce("cumsum", ReduceKind::Sum, axis, &Loc::caller())
    }

    /// Cumulative products along an axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        self.cumulative_reduce("cumprod", ReduceKind::Prod, axis, &Loc::caller())
    }
}
