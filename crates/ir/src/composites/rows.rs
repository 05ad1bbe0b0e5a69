//! Row operations along the last axis, which norms, softmaxes and losses share.

use super::operand_mismatch;
use crate::build::{Builder, GraphBuilder};
use crate::error::Result;
use crate::graph::Value;
use crate::ops::ReduceKind;
use crate::types::Type;

/// The last axis of a float operand.
pub(super) fn last_axis(name: &str, x: &Type) -> Result<usize> {
    if !x.dtype.is_float() {
        return Err(operand_mismatch(name, &[x], "needs a float operand"));
    }
    x.rank().checked_sub(1).ok_or_else(|| operand_mismatch(name, &[x], "works along the last axis and needs one"))
}

/// Broadcasts a row statistic along the last axis of `like`.
pub(super) fn broadcast_along_row(b: &mut Builder, stat: Value, like: Value) -> Result<Value> {
    let ty = b.ty(like);
    b.expand_reduced(stat, &ty.shape, &[ty.rank() - 1])
}

/// Broadcasts a vector along the last axis to every row of `like`.
pub(super) fn broadcast_over_rows(b: &mut Builder, w: Value, like: Value) -> Result<Value> {
    let ty = b.ty(like);
    b.broadcast(w, &ty.shape, &[ty.rank() - 1])
}

/// The sum of every row.
pub(super) fn row_sum(b: &mut Builder, x: Value) -> Result<Value> {
    let axis = b.ty(x).rank() - 1;
    b.sum(x, &[axis])
}

/// The mean of every row.
pub(super) fn row_mean(b: &mut Builder, x: Value) -> Result<Value> {
    let ty = b.ty(x);
    let s = row_sum(b, x)?;
    b.scale(s, 1.0 / ty.shape[ty.rank() - 1] as f64)
}

/// The largest element of every row.
pub(super) fn row_max(b: &mut Builder, x: Value) -> Result<Value> {
    let axis = b.ty(x).rank() - 1;
    b.reduce(ReduceKind::Max, x, &[axis])
}

/// The sum over all rows, a vector.
pub(super) fn sum_rows(b: &mut Builder, x: Value) -> Result<Value> {
    let rows: Vec<usize> = (0..b.ty(x).rank() - 1).collect();
    b.sum(x, &rows)
}
