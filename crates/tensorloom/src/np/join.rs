//! Joining and splitting.

use super::{need_rank, ravel, signed};
use crate::{ReduceAxes, Tensor, record};

/// Casts to the common dtype.
#[track_caller]
fn common(xs: &[&Tensor]) -> Vec<Tensor> {
    match super::result_type(xs) {
        Some(d) => xs.iter().map(|x| x.cast(d)).collect(),
        None => xs.iter().map(|x| (*x).clone()).collect(),
    }
}

/// Joins along an axis.
#[track_caller]
pub fn concatenate(xs: &[&Tensor], axis: isize) -> Tensor {
    let _here = crate::record::here();
    let xs = common(xs);
    Tensor::concat(&xs.iter().collect::<Vec<_>>(), axis)
}

/// Joins along a new axis.
#[track_caller]
pub fn stack(xs: &[&Tensor], axis: isize) -> Tensor {
    let _here = crate::record::here();
    let xs = common(xs);
    Tensor::stack(&xs.iter().collect::<Vec<_>>(), axis)
}

/// The slices along an axis, which disappears.
#[track_caller]
pub fn unstack(x: &Tensor, axis: isize) -> Vec<Tensor> {
    let _here = crate::record::here();
    (0..x.size(axis)).map(|i| x.index(axis, i as isize)).collect()
}

#[track_caller]
fn each(xs: &[&Tensor], f: impl Fn(&Tensor) -> Tensor) -> Vec<Tensor> {
    xs.iter().map(|x| f(x)).collect()
}

fn refs(xs: &[Tensor]) -> Vec<&Tensor> {
    xs.iter().collect()
}

/// With at least so many axes, new ones in front.
#[track_caller]
fn at_least(x: &Tensor, rank: usize) -> Tensor {
    let missing = rank.saturating_sub(x.rank());
    let mut shape = vec![1; missing];
    shape.extend(signed(x.shape()));
    if missing == 0 { x.clone() } else { x.reshape(&shape) }
}

/// Joins rows.
#[track_caller]
pub fn vstack(xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    concatenate(&refs(&each(xs, |x| at_least(x, 2))), 0)
}

/// Joins along the second axis, vectors along their one.
#[track_caller]
pub fn hstack(xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let xs = each(xs, |x| at_least(x, 1));
    let axis = if xs.first().is_some_and(|x| x.rank() == 1) { 0 } else { 1 };
    concatenate(&refs(&xs), axis)
}

/// Joins along the third axis.
#[track_caller]
pub fn dstack(xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let deep = |x: &Tensor| {
        let x = at_least(x, 2);
        if x.rank() == 2 { x.unsqueeze(-1) } else { x }
    };
    concatenate(&refs(&each(xs, deep)), 2)
}

/// Vectors as columns beside each other.
#[track_caller]
pub fn column_stack(xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    let column = |x: &Tensor| if x.rank() < 2 { x.reshape(&[-1, 1]) } else { x.clone() };
    concatenate(&refs(&each(xs, column)), 1)
}

/// Joins along an axis, or all elements in order.
#[track_caller]
pub fn append(x: &Tensor, y: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("append", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    match axis {
        Some(a) => concatenate(&[x, y], a),
        None => concatenate(&[&ravel(x), &ravel(y)], 0),
    }
}

/// Parts that end before these indices.
#[track_caller]
pub fn split_at(x: &Tensor, ends: &[usize], axis: isize) -> Vec<Tensor> {
    let _here = crate::record::here();
    let n = x.size(axis);
    let mut start = 0;
    let mut parts = Vec::new();
    for end in ends.iter().copied().chain([n]) {
        parts.push(x.slice(axis, start as isize, end.max(start) as isize, 1));
        start = end;
    }
    parts
}

/// Equal parts along an axis.
#[track_caller]
pub fn split(x: &Tensor, parts: usize, axis: isize) -> Vec<Tensor> {
    let _here = crate::record::here();
    let n = x.size(axis);
    if let Some(e) = need_rank("split", x, 1) {
        return vec![e; parts.max(1)];
    }
    if parts == 0 || !n.is_multiple_of(parts) {
        let bad =
            record::invalid("split", format!("{n} elements cannot be split into {parts} equal parts; use array_split"));
        return vec![bad; parts.max(1)];
    }
    array_split(x, parts, axis)
}

/// Parts along an axis, the first ones larger by one if they can't be equal.
#[track_caller]
pub fn array_split(x: &Tensor, parts: usize, axis: isize) -> Vec<Tensor> {
    let _here = crate::record::here();
    let n = x.size(axis);
    let parts = parts.max(1);
    let ends: Vec<usize> = (1..parts).map(|i| i * (n / parts) + i.min(n % parts)).collect();
    split_at(x, &ends, axis)
}

/// Equal parts along the first axis.
#[track_caller]
pub fn vsplit(x: &Tensor, parts: usize) -> Vec<Tensor> {
    let _here = crate::record::here();
    split(x, parts, 0)
}

/// Equal parts along the second axis, of a vector along its one.
#[track_caller]
pub fn hsplit(x: &Tensor, parts: usize) -> Vec<Tensor> {
    let _here = crate::record::here();
    split(x, parts, if x.rank() == 1 { 0 } else { 1 })
}

/// Equal parts along the third axis.
#[track_caller]
pub fn dsplit(x: &Tensor, parts: usize) -> Vec<Tensor> {
    let _here = crate::record::here();
    split(x, parts, 2)
}

/// Repeats the whole along each axis.
#[track_caller]
pub fn tile(x: &Tensor, reps: &[usize]) -> Tensor {
    let _here = crate::record::here();
    if x.error().is_some() {
        return x.clone();
    }
    let rank = x.rank().max(reps.len());
    let x = at_least(x, rank);
    let (mut wide, mut out) = (Vec::new(), Vec::new());
    let mut narrow = Vec::new();
    for (i, &n) in x.shape().iter().enumerate() {
        let r = (i + reps.len()).checked_sub(rank).map_or(1, |k| reps[k]);
        wide.extend([r as isize, n as isize]);
        narrow.extend([1, n as isize]);
        out.push((r * n) as isize);
    }
    x.reshape(&narrow).expand(&wide).reshape(&out).copy()
}

/// Repeats each element along an axis, or of all in order.
#[track_caller]
pub fn repeat(x: &Tensor, n: usize, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("repeat", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let Some(axis) = axis else {
        return repeat(&ravel(x), n, Some(0));
    };
    if let Some(e) = need_rank("repeat", x, 1) {
        return e;
    }
    let a = if axis < 0 { axis + x.rank() as isize } else { axis };
    let mut wide = signed(x.shape());
    let mut out = wide.clone();
    if a < 0 || a as usize >= x.rank() {
        return record::invalid("repeat", format!("{} has no axis {axis}", x.ty()));
    }
    wide.insert(a as usize + 1, n as isize);
    out[a as usize] *= n as isize;
    x.unsqueeze(a + 1).expand(&wide).reshape(&out).copy()
}

/// A matrix of blocks: rows joined along the last axis, then below each other.
#[track_caller]
pub fn block(rows: &[&[&Tensor]]) -> Tensor {
    let _here = crate::record::here();
    let rows: Vec<Tensor> = rows.iter().map(|r| concatenate(&refs(&each(r, |x| at_least(x, 2))), -1)).collect();
    concatenate(&refs(&rows), -2)
}
