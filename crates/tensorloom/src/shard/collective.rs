//! What ranks compute together, by the names of JAX. They work inside of a function over a mesh.

use super::context;
use super::spec::AxisNames;
use crate::{Number, Tensor, record};
use ir::MeshAxis;
use ir::ops::CollectiveKind as Kind;

#[track_caller]
fn over(op: &'static str, axes: &impl AxisNames) -> Result<Vec<MeshAxis>, Tensor> {
    context::axes(&axes.names()).map_err(|text| record::invalid(op, text))
}

#[track_caller]
fn collective(op: &'static str, x: &Tensor, axes: &impl AxisNames, kind: Kind) -> Tensor {
    match over(op, axes) {
        Ok(axes) => record::one(&[x], |b, v| b.collective(kind, v[0], &axes)),
        Err(bad) => bad,
    }
}

/// An axis of a tensor, counted from the end if negative.
#[track_caller]
fn axis_of(op: &'static str, x: &Tensor, axis: isize) -> Result<usize, Tensor> {
    record::axis(op, x.ty(), axis)
        .map_err(|e| x.error().map_or_else(|| record::invalid(op, e.to_string()), Tensor::from_error))
}

/// The sum over ranks, the same on all.
#[track_caller]
pub fn psum(x: &Tensor, axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    collective("psum", x, &axes, Kind::Sum)
}

/// The mean over ranks, the same on all.
#[track_caller]
pub fn pmean(x: &Tensor, axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    match over("pmean", &axes) {
        Ok(found) => {
            let n: usize = found.iter().map(|a| a.size).product();
            collective("pmean", x, &axes, Kind::Sum) / Number::from(n as f64)
        }
        Err(bad) => bad,
    }
}

/// The largest over ranks, the same on all.
#[track_caller]
pub fn pmax(x: &Tensor, axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    collective("pmax", x, &axes, Kind::Max)
}

/// The smallest over ranks, the same on all.
#[track_caller]
pub fn pmin(x: &Tensor, axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    collective("pmin", x, &axes, Kind::Min)
}

/// The value itself, from now on each rank's own: its gradient is the sum of what each rank's use of it gives. It is put in
/// where values meet that vary over less, so it is rarely written.
#[track_caller]
pub fn pvary(x: &Tensor, axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    collective("pvary", x, &axes, Kind::PVary)
}

/// Everyone's values side by side along an axis; each rank has a copy.
///
/// ```
/// use tensorloom::{Mesh, Tensor, arange, shard::all_gather, shard_map};
///
/// let mesh = Mesh::parse("x=2")?;
/// let f = shard_map(&mesh, |x: Tensor| x.sum() * all_gather(&x, "x", 0)).in_specs("x").out_specs("x");
/// assert_eq!(f.call(arange(4)).to_vec::<i64>()?, [0, 1, 2, 3, 0, 5, 10, 15]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn all_gather(x: &Tensor, axes: impl AxisNames, axis: isize) -> Tensor {
    let _here = record::here();
    match axis_of("all_gather", x, axis) {
        Ok(dim) => collective("all_gather", x, &axes, Kind::AllGather { dim, same: false, turn: 0 }),
        Err(bad) => bad,
    }
}

/// The part of the sum along an axis that is the rank's.
#[track_caller]
pub fn psum_scatter(x: &Tensor, axes: impl AxisNames, axis: isize) -> Tensor {
    let _here = record::here();
    match axis_of("psum_scatter", x, axis) {
        Ok(dim) => collective("psum_scatter", x, &axes, Kind::ReduceScatter { dim }),
        Err(bad) => bad,
    }
}

/// Part `i` along `split` goes to rank `i`; what comes is joined along `join`.
#[track_caller]
pub fn all_to_all(x: &Tensor, axes: impl AxisNames, split: isize, join: isize) -> Tensor {
    let _here = record::here();
    match (axis_of("all_to_all", x, split), axis_of("all_to_all", x, join)) {
        (Ok(split), Ok(join)) => collective("all_to_all", x, &axes, Kind::AllToAll { split, join }),
        (Err(bad), _) | (_, Err(bad)) => bad,
    }
}

/// The value of rank `from` goes to rank `to`, for each pair; who gets none has zeros.
#[track_caller]
pub fn ppermute(x: &Tensor, axes: impl AxisNames, pairs: &[(usize, usize)]) -> Tensor {
    let _here = record::here();
    collective("ppermute", x, &axes, Kind::Permute { pairs: pairs.to_vec() })
}

/// The rank's number along the axes, an i32.
#[track_caller]
pub fn axis_index(axes: impl AxisNames) -> Tensor {
    let _here = record::here();
    match over("axis_index", &axes) {
        Ok(axes) => record::one(&[], |b, _| b.axis_index(&axes)),
        Err(bad) => bad,
    }
}

/// How many ranks lie along the axes.
#[track_caller]
pub fn axis_size(axes: impl AxisNames) -> crate::Result<usize> {
    let found = context::axes(&axes.names()).map_err(|text| record::error("axis_size", text))?;
    Ok(found.iter().map(|a| a.size).product())
}
