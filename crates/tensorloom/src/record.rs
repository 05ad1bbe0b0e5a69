//! How the library writes ops: builders on tensors, with the user's line.

use crate::{Dims, Error, Number, Tensor, engine, engine_of};
use engine::ReduceAxes;
use ir::{DType, GraphBuilder, InferError, Loc, Scalar, Shape, Type, TypeError, Value, Values};

/// A public function begins: what it does is written at its caller's line until the guard is dropped.
#[track_caller]
pub(crate) fn here() -> engine::CallSiteGuard {
    let here = std::panic::Location::caller();
    // The directory of this crate's sources.
    let sources = file!().strip_suffix("record.rs").unwrap_or("?");
    engine::enter_library(here, here.file().starts_with(sources))
}

/// The line that is worked for.
#[track_caller]
pub(crate) fn place() -> Loc {
    engine::resolve_loc(&Loc::caller())
}

/// Records an op or a few with one result.
#[track_caller]
pub(crate) fn one(args: &[&Tensor], f: impl FnOnce(&mut dyn GraphBuilder, &[Value]) -> ir::Result<Value>) -> Tensor {
    many(1, args, |b, v| Ok(Values::from_elem(f(b, v)?, 1))).swap_remove(0)
}

/// Records ops with `n` results.
#[track_caller]
pub(crate) fn many(
    n: usize,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn GraphBuilder, &[Value]) -> ir::Result<Values>,
) -> Vec<Tensor> {
    let engine = args.iter().find(|t| t.engine().is_some()).map_or(engine(), |t| engine_of(t));
    engine::extension::record_with(&place(), n, engine, args, f)
}

/// An invalid tensor for a call that doesn't fit.
#[track_caller]
pub(crate) fn invalid(op: &'static str, reason: impl Into<String>) -> Tensor {
    Tensor::from_error(error(op, reason))
}

/// An error of a call that doesn't fit.
#[track_caller]
pub(crate) fn error(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Call { op, reason: reason.into(), at: place() }
}

/// An `ir` error about operands.
pub(crate) fn misfit(op: &str, operands: &[Type], why: impl Into<String>) -> ir::Error {
    problem(op, operands, InferError::other(why))
}

fn problem(op: &str, operands: &[Type], problem: InferError) -> ir::Error {
    ir::Error::Type(Box::new(TypeError { op: op.to_string(), operands: operands.to_vec(), problem, loc: Loc::Unknown }))
}

/// An axis counted from the end if negative.
pub(crate) fn axis(op: &str, ty: &Type, axis: isize) -> ir::Result<usize> {
    let rank = ty.rank();
    let i = if axis < 0 { axis + rank as isize } else { axis };
    let bad = InferError::Axis { axis: axis as i64, rank };
    (usize::try_from(i).ok().filter(|&i| i < rank)).ok_or_else(|| problem(op, std::slice::from_ref(ty), bad))
}

/// Axes counted from the end if negative; none means all.
pub(crate) fn axes(op: &str, ty: &Type, axes: Option<&[isize]>) -> ir::Result<Vec<usize>> {
    match axes {
        None => Ok((0..ty.rank()).collect()),
        Some(list) => list.iter().map(|&a| axis(op, ty, a)).collect(),
    }
}

/// The shape that shapes broadcast to.
pub(crate) fn broadcast(shapes: &[&[usize]]) -> Option<Shape> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = Shape::from_elem(1, rank);
    for s in shapes {
        for (i, &n) in s.iter().enumerate() {
            let o = &mut out[rank - s.len() + i];
            match (*o, n) {
                (a, b) if a == b => {}
                (1, b) => *o = b,
                (_, 1) => {}
                _ => return None,
            }
        }
    }
    Some(out)
}

/// Two operands with one dtype and one shape, as NumPy makes them.
pub(crate) fn align(b: &mut dyn GraphBuilder, op: &str, x: Value, y: Value) -> ir::Result<(Value, Value)> {
    let (tx, ty) = (b.ty(x), b.ty(y));
    let Some(dtype) = tx.dtype.promote(ty.dtype) else {
        return Err(problem(op, &[tx.clone(), ty.clone()], InferError::DTypes(tx.dtype, ty.dtype)));
    };
    let Some(shape) = broadcast(&[&tx.shape, &ty.shape]) else {
        return Err(problem(op, &[tx.clone(), ty.clone()], InferError::Shapes(tx.shape, ty.shape)));
    };
    let (x, y) = (b.cast(x, dtype)?, b.cast(y, dtype)?);
    Ok((b.broadcast_to(x, &shape)?, b.broadcast_to(y, &shape)?))
}

/// The float dtype that a function of real numbers computes in.
pub(crate) fn float_of(d: DType) -> DType {
    if d.is_float() { d } else { DType::F32 }
}

/// What `f` gives for tensors whose narrow floats are converted to the dtype that sums of them are computed in, rounded
/// once to the dtype that the tensors have together. Under autocast it stays wide.
#[track_caller]
pub(crate) fn rounded<const N: usize>(x: [&Tensor; N], f: impl FnOnce([Tensor; N]) -> Tensor) -> Tensor {
    if let Some(e) = x.iter().find_map(|t| t.error()) {
        return Tensor::from_error(e);
    }
    let dtype = crate::np::result_type(&x);
    let y = f(x.map(|t| t.cast(t.dtype().accumulator())));
    match dtype {
        Some(d) if d.accumulator() != d && engine::autocast_dtype().is_none() => y.cast(d),
        _ => y,
    }
}

/// A number of a dtype.
pub(crate) fn scalar_of(op: &str, dtype: DType, n: Number) -> ir::Result<Scalar> {
    n.to_scalar(dtype).ok_or_else(|| {
        misfit(
            op,
            &[],
            format!("{n} is not representable in {dtype}; cast the tensor to a dtype that can represent it"),
        )
    })
}

/// The sizes of a new tensor, or an invalid tensor that says which is none.
#[track_caller]
pub(crate) fn sizes(op: &'static str, dims: &impl Dims) -> Result<Shape, Tensor> {
    engine::shape_of(dims).map_err(|n| invalid(op, format!("{n} is not a valid size of a new tensor")))
}

/// The one axis that a function works along, or none for all elements in order; an invalid tensor for several.
#[track_caller]
pub(crate) fn one_axis(op: &'static str, along: impl Into<ReduceAxes>) -> Result<Option<isize>, Tensor> {
    along.into().single().map_err(|list| invalid(op, format!("it takes one axis, or () for all, not {list:?}")))
}
