//! `take_along` and `put_along`: one thread per element for take; put is a scatter-add to zeros.

use super::op_expansion::affine;
use super::scatter::{Sources, scatter_from};
use super::sort::AxisLines;
use super::{DeviceCaps, OpExpansion, OpValue};
use ir::ops::scatter::ScatterMode;
use ir::ops::{PutAlong, Scatter, ScatterKind, SliceDims, TakeAlong};
use ir::{Compare, DType, Scalar, Type};

pub(super) fn take(parts: &mut OpExpansion, op: &TakeAlong, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let [x, ids] = args else { return None };
    let size = x.shape[op.axis];
    let zero = Scalar::zero(x.dtype);
    let inner = AxisLines::of(&x.shape, op.axis).stride;
    // Indices that are too large wrap to values that are out of bounds.
    let wide = if means.limits.has_int64 { DType::I64 } else { DType::I32 };
    parts.rows("take_along", ids.numel(), |w, flat| {
        let (from, places) = (w.read(OpValue::Arg(0), x.dtype), w.read(OpValue::Arg(1), ids.dtype));
        let to = w.write(OpValue::Out(0), x.dtype);
        let at = w.coordinates(flat, &[ids.numel() / (ids.shape[op.axis] * inner).max(1), ids.shape[op.axis], inner]);
        let id = w.load(places, flat);
        let id = w.to(wide, id);
        let (low, high) = (w.compare_to(Compare::Ge, id, 0), w.compare_to(Compare::Lt, id, size as i64));
        let there = w.both(low, high);
        let id = w.clamped(id, size);
        let place = affine(&[(at[0], (size * inner) as i64), (id, inner as i64), (at[2], 1)], 0);
        let v = w.load_masked(from, place, there, zero);
        w.store(to, flat, v);
    });
    Some(())
}

pub(super) fn put(parts: &mut OpExpansion, op: &PutAlong, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let [x, ids] = args else { return None };
    let mut out = x.clone();
    out.shape[op.axis] = op.size;
    let mut vectors = ids.clone();
    vectors.shape.push(1);
    let dims = SliceDims::along_axis(x.rank(), op.axis);
    let as_scatter = Scatter { kind: ScatterKind::Add, dims, mode: ScatterMode::Drop };
    let from = Sources { table: None, ids: OpValue::Arg(1), news: OpValue::Arg(0) };
    scatter_from(parts, &as_scatter, &[out, vectors, x.clone()], from, means)
}
