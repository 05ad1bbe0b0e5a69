//! Elements chosen by a condition or by value. Shapes can't depend on data, so the caller says how many there are, as
//! with JAX's `size`; places beyond the last are filled.

use super::{cumsum, need_rank, ravel, where_};
use crate::{DType, ReduceAxes, Tensor, engine_of, lax, record};

/// The indices, in order, at which a flat mask holds; `fill` beyond.
#[track_caller]
fn places(mask: &Tensor, size: usize, fill: i64) -> Tensor {
    let n = mask.numel();
    let rank = cumsum(mask, Some(0)) - 1;
    // A place outside is dropped by the write.
    let at = where_(mask, &rank, size);
    let from = engine_of(mask).arange(DType::I64, n);
    let start = engine_of(mask).full(DType::I64, &[size], fill);
    lax::index_set(&start, &[&at], &from)
}

/// The flat indices of the first `size` elements that are not zero; 0 beyond.
#[track_caller]
pub fn flatnonzero(x: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    places(&super::not_equal(&ravel(x), 0), size, 0)
}

/// The indices of the first `size` elements that are not zero, one tensor for each axis; 0 beyond.
///
/// ```
/// use tensorloom::{np, tensor};
///
/// let x = tensor(&[0.0f32, 5.0, 6.0, 0.0], &[2, 2]);
/// let at = np::nonzero(&x, 2);
/// assert_eq!((at[0].to_vec::<i64>()?, at[1].to_vec::<i64>()?), (vec![0, 1], vec![1, 0]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn nonzero(x: &Tensor, size: usize) -> Vec<Tensor> {
    let _here = crate::record::here();
    let flat = flatnonzero(x, size);
    let count = super::count_nonzero(x, ());
    let index = super::unravel_index(&flat, x.shape());
    let within = super::less(&engine_of(x).arange(DType::I64, size), &count);
    index.iter().map(|i| where_(&within, i, 0)).collect()
}

/// The index vectors of the first `size` elements that are not zero, as rows; 0 beyond.
#[track_caller]
pub fn argwhere(x: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    let columns = nonzero(x, size);
    if columns.is_empty() {
        return engine_of(x).zeros(DType::I64, &[size, 0]);
    }
    Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1)
}

/// The first `size` elements at which a condition holds; 0 beyond.
#[track_caller]
pub fn extract(condition: &Tensor, x: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    let mask = super::not_equal(&ravel(condition), 0);
    let index = places(&mask, size, 0);
    let within = super::less(&engine_of(x).arange(DType::I64, size), &super::sum(&mask, ()));
    where_(&within, &super::take(x, &index, None), 0).cast(x.dtype())
}

/// The slices along an axis, or the elements in order, whose flag is set.
#[track_caller]
pub fn compress(flags: &[bool], x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("compress", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let index: Vec<i64> = (0..flags.len()).filter(|&i| flags[i]).map(|i| i as i64).collect();
    super::take(x, &engine_of(x).tensor(&index, &[index.len()]), axis)
}

/// `x` with values, repeated as needed, at the places where a mask holds.
#[track_caller]
pub fn place(x: &Tensor, mask: &Tensor, values: &Tensor) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("place", values, 1) {
        return e;
    }
    let mask = super::not_equal(mask, 0);
    let rank = cumsum(&mask, None).reshape(&super::signed(mask.shape())) - 1;
    let at = super::remainder(&rank, values.numel());
    where_(&mask, super::take(values, &at, Some(0)), x)
}

/// What [`unique_all`] gives.
#[derive(Clone, Debug)]
pub struct Unique {
    /// The distinct elements in order; the smallest again beyond the last.
    pub values: Tensor,
    /// Where each occurs first, in the flat order.
    pub indices: Tensor,
    /// For each element, its place among the values.
    pub inverse: Tensor,
    /// How often each occurs; 0 beyond the last.
    pub counts: Tensor,
}

/// The first `size` distinct elements in order, with first places, inverse and counts.
///
/// ```
/// use tensorloom::{np, tensor};
///
/// let u = np::unique_all(&tensor(&[3i32, 1, 3, 2], &[4]), 3);
/// assert_eq!(u.values.to_vec::<i32>()?, [1, 2, 3]);
/// assert_eq!(u.counts.to_vec::<i64>()?, [1, 1, 2]);
/// assert_eq!(u.inverse.to_vec::<i64>()?, [2, 0, 2, 1]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn unique_all(x: &Tensor, size: usize) -> Unique {
    let _here = crate::record::here();
    let flat = ravel(x);
    let n = flat.numel();
    let order = super::argsort(&flat, Some(0));
    let sorted = super::take(&flat, &order, Some(0));
    let first = super::concatenate(
        &[
            &engine_of(x).ones(DType::Bool, &[n.min(1)]),
            &sorted.slice(0, 1, n as isize, 1).ne(&sorted.slice(0, 0, n as isize - 1, 1)),
        ],
        0,
    );
    let starts = places(&first, size, 0);
    let values = super::take(&sorted, &starts, Some(0));
    let indices = super::take(&order, &starts, Some(0));
    let group = cumsum(&first, Some(0)) - 1;
    let inverse = lax::index_set(&engine_of(x).zeros(DType::I64, &[n]), &[&order], &group);
    let counts = super::bincount(&group, size);
    Unique { values, indices, inverse: inverse.reshape(&super::signed(x.shape())), counts }
}

/// The first `size` distinct elements in order; the smallest again beyond the last.
#[track_caller]
pub fn unique(x: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    unique_all(x, size).values
}

/// The array API's [`unique`].
#[track_caller]
pub fn unique_values(x: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    unique(x, size)
}

/// The distinct elements and how often each occurs.
#[track_caller]
pub fn unique_counts(x: &Tensor, size: usize) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let u = unique_all(x, size);
    (u.values, u.counts)
}

/// The distinct elements and, for each element, its place among them.
#[track_caller]
pub fn unique_inverse(x: &Tensor, size: usize) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let u = unique_all(x, size);
    (u.values, u.inverse)
}

/// The first `size` distinct elements of two tensors together, in order.
#[track_caller]
pub fn union1d(x: &Tensor, y: &Tensor, size: usize) -> Tensor {
    let _here = crate::record::here();
    unique(&super::append(x, y, None), size)
}

/// A function for each condition, where it is the last that holds; the default elsewhere.
#[track_caller]
pub fn piecewise(x: &Tensor, conditions: &[&Tensor], functions: &[&dyn Fn(&Tensor) -> Tensor], default: f64) -> Tensor {
    let _here = crate::record::here();
    if conditions.len() != functions.len() {
        let text = format!("{} conditions for {} functions", conditions.len(), functions.len());
        return record::invalid("piecewise", text);
    }
    let start = super::full_like(x, default);
    conditions.iter().zip(functions).fold(start, |y, (c, f)| {
        let part = {
            let _user = engine::enter_user_code();
            f(x)
        };
        where_(c, &part, &y)
    })
}
