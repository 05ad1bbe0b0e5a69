//! Shapes and the order of axes.

use super::{need_rank, signed};
use crate::record;
use crate::{Dims, Operand, ReduceAxes, Tensor};

/// The shape.
pub fn shape(x: &Tensor) -> Vec<usize> {
    x.shape().to_vec()
}

/// The number of axes.
pub fn ndim(x: &Tensor) -> usize {
    x.rank()
}

/// The number of elements.
pub fn size(x: &Tensor) -> usize {
    x.numel()
}

/// The same elements under another shape; one size may be −1.
#[track_caller]
pub fn reshape(x: &Tensor, shape: impl Dims) -> Tensor {
    let _here = crate::record::here();
    x.reshape(shape)
}

/// All elements in order.
#[track_caller]
pub fn ravel(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x.reshape(&[-1])
}

/// Axes in another order; reversed if none is given.
#[track_caller]
pub fn transpose(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    match axes.into().axes {
        Some(axes) => x.permute(axes),
        None => x.permute(&(0..x.rank() as isize).rev().collect::<Vec<_>>()),
    }
}

/// Axes in another order.
#[track_caller]
pub fn permute_dims(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    transpose(x, axes)
}

/// Exchanges two axes.
#[track_caller]
pub fn swapaxes(x: &Tensor, a: isize, b: isize) -> Tensor {
    let _here = crate::record::here();
    x.transpose(a, b)
}

/// Exchanges the last two axes.
#[track_caller]
pub fn matrix_transpose(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    need_rank("matrix_transpose", x, 2).unwrap_or_else(|| x.transpose(-2, -1))
}

/// Moves axes to other places; the others keep their order.
#[track_caller]
pub fn moveaxis(x: &Tensor, from: &[isize], to: &[isize]) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("moveaxis", x, 0) {
        return e;
    }
    let resolve = |axes: &[isize]| record::axes("moveaxis", x.ty(), Some(axes));
    let (from, to) = match (resolve(from), resolve(to)) {
        (Ok(f), Ok(t)) if f.len() == t.len() => (f, t),
        (Err(e), _) | (_, Err(e)) => return Tensor::from_error(e.at(&crate::record::place()).into()),
        _ => return record::invalid("moveaxis", format!("{} sources, {} places", from.len(), to.len())),
    };
    let mut perm: Vec<isize> = (0..x.rank()).filter(|a| !from.contains(a)).map(|a| a as isize).collect();
    let mut pairs: Vec<(usize, usize)> = to.into_iter().zip(from).collect();
    pairs.sort();
    for (t, f) in pairs {
        perm.insert(t.min(perm.len()), f as isize);
    }
    x.permute(&perm)
}

/// New axes of size 1, at places of the result.
#[track_caller]
pub fn expand_dims(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into().axes.unwrap_or_default();
    let rank = (x.rank() + axes.len()) as isize;
    let mut places: Vec<isize> = axes.iter().map(|&a| if a < 0 { a + rank } else { a }).collect();
    places.sort();
    places.into_iter().fold(x.clone(), |x, a| x.unsqueeze(a))
}

/// Without axes of size 1: those given, or all.
#[track_caller]
pub fn squeeze(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let rank = x.rank() as isize;
    let mut places: Vec<isize> = match axes.into().axes {
        Some(axes) => axes.iter().map(|&a| if a < 0 { a + rank } else { a }).collect(),
        None => (0..rank).filter(|&a| x.size(a) == 1).collect(),
    };
    places.sort();
    places.into_iter().rev().fold(x.clone(), |x, a| x.squeeze(a))
}

/// Repeats axes of size 1, and new ones in front, to a shape.
#[track_caller]
pub fn broadcast_to(x: &Tensor, shape: impl Dims) -> Tensor {
    let _here = crate::record::here();
    x.expand(shape)
}

/// The shape that shapes broadcast to, if they do.
pub fn broadcast_shapes(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    record::broadcast(shapes).map(|s| s.to_vec())
}

/// All with one shape.
#[track_caller]
pub fn broadcast_arrays(xs: &[&Tensor]) -> Vec<Tensor> {
    let _here = crate::record::here();
    match record::broadcast(&xs.iter().map(|x| x.shape()).collect::<Vec<_>>()) {
        Some(shape) => xs.iter().map(|x| broadcast_to(x, &shape)).collect(),
        None => {
            let shapes: Vec<&[usize]> = xs.iter().map(|x| x.shape()).collect();
            let bad = record::invalid("broadcast_arrays", format!("{shapes:?} don't broadcast"));
            xs.iter().map(|_| bad.clone()).collect()
        }
    }
}

/// Reverses axes, or all.
#[track_caller]
pub fn flip(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    x.flip(axes)
}

/// Reverses the second axis.
#[track_caller]
pub fn fliplr(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x.flip(&[1])
}

/// Reverses the first axis.
#[track_caller]
pub fn flipud(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x.flip(&[0])
}

/// Turns by `k` right angles in the plane of two axes.
#[track_caller]
pub fn rot90(x: &Tensor, k: i32, a: isize, b: isize) -> Tensor {
    let _here = crate::record::here();
    match k.rem_euclid(4) {
        0 => x.clone(),
        1 => x.flip(&[b]).transpose(a, b),
        2 => x.flip(&[a, b]),
        _ => x.transpose(a, b).flip(&[b]),
    }
}

/// Moves elements along an axis, or all in order, the last ones to the front.
#[track_caller]
pub fn roll(x: &Tensor, by: isize, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axis = match record::one_axis("roll", axis) {
        Ok(axis) => axis,
        Err(bad) => return bad,
    };
    let Some(axis) = axis else {
        return roll(&ravel(x), by, Some(0)).reshape(&signed(x.shape()));
    };
    let n = x.size(axis) as isize;
    if n == 0 || x.error().is_some() {
        return x.clone();
    }
    let k = by.rem_euclid(n);
    Tensor::concat(&[&x.slice(axis, n - k, n, 1), &x.slice(axis, 0, n - k, 1)], axis)
}

/// How `pad` fills.
#[derive(Clone, Debug)]
pub enum PadMode {
    /// With a number.
    Constant(Operand),
    /// With the edge element.
    Edge,
    /// Mirrored at the edge element.
    Reflect,
    /// Mirrored, the edge element included.
    Symmetric,
    /// From the other end.
    Wrap,
    /// In equal steps from the edge element to a number at the end.
    LinearRamp(Operand),
    /// With the largest element along the axis.
    Maximum,
    /// With the smallest.
    Minimum,
    /// With their mean, which is rounded for integers.
    Mean,
    /// With their median, which is rounded for integers.
    Median,
}

/// Adds elements before and after each axis.
#[track_caller]
pub fn pad(x: &Tensor, widths: &[(usize, usize)], mode: PadMode) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = need_rank("pad", x, 0) {
        return e;
    }
    if widths.len() != x.rank() {
        return record::invalid("pad", format!("{} widths for {}", widths.len(), x.ty()));
    }
    if let PadMode::Constant(fill) = mode {
        let fill = fill.to_tensor_like(x).cast(x.dtype());
        let low: Vec<i64> = widths.iter().map(|w| w.0 as i64).collect();
        let high: Vec<i64> = widths.iter().map(|w| w.1 as i64).collect();
        return record::one(&[x, &fill], |b, v| b.pad(v[0], v[1], &low, &high, &vec![0; low.len()]));
    }
    let mut y = x.clone();
    for (axis, &(low, high)) in widths.iter().enumerate() {
        if low + high == 0 {
            continue;
        }
        if x.shape()[axis] == 0 {
            let text = format!("axis {axis} of {} has no element to continue; pad it with a constant", x.ty());
            return record::invalid("pad", text);
        }
        y = match &mode {
            PadMode::LinearRamp(end) => ramps(&y, axis as isize, (low, high), end),
            PadMode::Maximum | PadMode::Minimum | PadMode::Mean | PadMode::Median => {
                statistics(&y, axis as isize, (low, high), &mode)
            }
            _ => repeated(&y, axis as isize, (low, high), &mode),
        };
    }
    y
}

/// Elements before and after an axis that are elements of it.
fn repeated(x: &Tensor, axis: isize, (low, high): (usize, usize), mode: &PadMode) -> Tensor {
    let n = x.size(axis) as i64;
    let place = |i: i64| match mode {
        PadMode::Edge => i.clamp(0, n - 1),
        PadMode::Wrap => i.rem_euclid(n),
        PadMode::Symmetric => {
            let k = i.rem_euclid(2 * n);
            k.min(2 * n - 1 - k)
        }
        _ if n == 1 => 0,
        _ => {
            let k = i.rem_euclid(2 * n - 2);
            k.min(2 * n - 2 - k)
        }
    };
    let index: Vec<i64> = (-(low as i64)..n + high as i64).map(place).collect();
    let index = crate::engine_of(x).tensor(&index, &[index.len()]);
    super::take(x, &index, Some(axis))
}

/// A number of all elements along an axis, before and after it.
fn statistics(x: &Tensor, axis: isize, (low, high): (usize, usize), mode: &PadMode) -> Tensor {
    let along = super::axes(axis).keep();
    let one = match mode {
        PadMode::Maximum => super::max(x, along),
        PadMode::Minimum => super::min(x, along),
        PadMode::Mean => super::mean(x, along),
        _ => super::median(x, along),
    };
    let one = if x.dtype().is_float() { one } else { super::rint(&one) };
    let one = one.cast(x.dtype());
    let times = |n: usize| super::repeat(&one, n, axis);
    Tensor::concat(&[&times(low), x, &times(high)], axis)
}

/// Steps from the elements at both ends of an axis to a number.
fn ramps(x: &Tensor, axis: isize, (low, high): (usize, usize), end: &Operand) -> Tensor {
    let end = end.to_tensor_like(x).cast(x.dtype());
    let d = record::float_of(x.dtype());
    let ramp = |edge: isize, n: usize, falls: bool| {
        let edge = x.index(axis, edge).unsqueeze(axis).cast(d);
        let shape: Vec<isize> = (0..x.rank() as isize).map(|a| if a == axis { -1 } else { 1 }).collect();
        let step = crate::arange(n).cast(d).reshape(&shape) * (1.0 / n.max(1) as f64);
        let y = &end + (edge - &end) * step;
        let y = if x.dtype().is_float() { y } else { super::floor(&y) }.cast(x.dtype());
        if falls { y.flip(&[axis]) } else { y }
    };
    Tensor::concat(&[&ramp(0, low, false), x, &ramp(-1, high, true)], axis)
}
