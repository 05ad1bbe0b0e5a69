//! Sorting.

use crate::{Tensor, record};
use ir::Values;
use ir::ops::{Sort, TopK};

/// Sorts along an axis; equal elements keep their order, NaN comes last.
#[track_caller]
pub fn sort(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    sort_by(&[x], axis, 1, false).swap_remove(0)
}

/// Sorts several tensors together by the first `num_keys` of them.
///
/// ```
/// use tensorloom::{lax, tensor};
///
/// let (k, v) = (tensor(&[2i32, 1, 3], &[3]), tensor(&[20.0f32, 10.0, 30.0], &[3]));
/// let sorted = lax::sort_by(&[&k, &v], 0, 1, true);
/// assert_eq!(sorted[1].to_vec::<f32>()?, [30.0, 20.0, 10.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn sort_by(xs: &[&Tensor], axis: isize, num_keys: usize, descending: bool) -> Vec<Tensor> {
    let _here = crate::record::here();
    record::many(xs.len(), xs, |b, v| {
        let first = v.first().map(|&v| b.ty(v));
        let ty = first.ok_or_else(|| record::misfit("sort", &[], "there is nothing to sort"))?;
        let axis = record::axis("sort", &ty, axis)?;
        let op = Sort { axis, num_keys, descending };
        b.emit(op.into(), v)
    })
}

/// The `k` largest elements along the last axis in descending order, and their places as i32.
///
/// ```
/// use tensorloom::{lax, tensor};
///
/// let (values, places) = lax::top_k(&tensor(&[3.0f32, 9.0, 5.0], &[3]), 2);
/// assert_eq!((values.to_vec::<f32>()?, places.to_vec::<i32>()?), (vec![9.0, 5.0], vec![1, 2]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn top_k(x: &Tensor, k: usize) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let mut outs = record::many(2, &[x], |b, v| {
        let axis = record::axis("top_k", &b.ty(v[0]), -1)?;
        let outs: Values = b.emit(TopK { k, axis }.into(), v)?;
        Ok(outs)
    });
    let places = outs.swap_remove(1);
    (outs.swap_remove(0), places)
}
