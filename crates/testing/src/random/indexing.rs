//! Generators of ops that read and write at computed indices, and of sorting ops.

use super::{GraphGenerator, Move};
use crate::FillKind;
use ir::ops::{
    ArgReduce, Cumulative, DynamicSlice, DynamicUpdateSlice, Gather, GatherMode, PutAlong, Reduce, ReduceKind, Scatter,
    ScatterKind, ScatterMode, SliceDims, Sort, TakeAlong, TopK,
};
use ir::types::Shape;
use ir::{DType, Type, Value};

pub(super) const MOVES: &[Move] = &[
    (4, true, gather),
    (4, true, scatter),
    (2, true, dynamic),
    (2, true, along),
    (2, true, sort),
    (1, true, top_k),
    (3, true, cumulative),
    (1, true, arg_reduce),
];

/// A constant of indices, mostly in bounds.
fn indices(g: &mut GraphGenerator, shape: &[usize], size: usize) -> Option<Value> {
    let dtype = *g.rng.pick(&[DType::I32, DType::I64, DType::I8]);
    let fill = if g.rng.bernoulli(0.8) { FillKind::IndexBelow(size.max(1)) } else { FillKind::Smooth };
    let literal = fill.random_tensor(&Type::new(dtype, shape), &mut g.rng);
    g.constant(literal)
}

/// Dimension numbers for an operand, the shape of the indices, and slice sizes.
fn layout(g: &mut GraphGenerator, ty: &Type) -> Option<(SliceDims, Vec<usize>, Shape)> {
    let axis = g.axis(ty.rank())?;
    let mut sizes = ty.shape.clone();
    let n = 1 + g.rng.below(3);
    Some(match g.rng.below(4) {
        0 | 1 => {
            sizes[axis] = 1;
            (SliceDims::take(ty.rank(), axis, 1), vec![n, 1], sizes)
        }
        2 => {
            sizes.iter_mut().for_each(|s| *s = 1);
            let mut shape = ty.shape.to_vec();
            shape[axis] = n;
            shape.push(1);
            (SliceDims::along_axis(ty.rank(), axis), shape, sizes)
        }
        _ => {
            // Slices along one axis.
            sizes[axis] = sizes[axis].min(2);
            let dims = SliceDims {
                offset: (1..=ty.rank()).collect(),
                index_map: [axis].into_iter().collect(),
                ..SliceDims::default()
            };
            (dims, vec![n, 1], sizes)
        }
    })
}

fn gather(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (dims, shape, slice_sizes) = layout(g, &ty)?;
    let i = indices(g, &shape, 3)?;
    let mode = match g.rng.below(3) {
        0 => GatherMode::Clip,
        1 if !g.smooth() => GatherMode::fill(ty.dtype),
        _ => GatherMode::zero(ty.dtype),
    };
    g.one(Gather { dims, slice_sizes, mode }, &[x, i])?;
    Some(())
}

fn scatter(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let (dims, shape, slice_sizes) = layout(g, &ty)?;
    let i = indices(g, &shape, 3)?;
    let gather = Gather { dims: dims.clone(), slice_sizes, mode: GatherMode::zero(ty.dtype) };
    let updates = ir::Rules::infer(&gather, &[ty, g.ty(i)]).ok()?.remove(0);
    if updates.numel() > g.options.max_numel {
        return None;
    }
    let u = g.like(&updates)?;
    let kind = *g.rng.pick(&ScatterKind::ALL);
    let mode = *g.rng.pick(&[ScatterMode::Clip, ScatterMode::Drop]);
    g.one(Scatter { kind, dims, mode }, &[x, i, u])?;
    Some(())
}

fn dynamic(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let sizes: Shape = ty.shape.iter().map(|&d| if g.rng.bernoulli(0.5) { d } else { d.min(1) }).collect();
    let mut starts = Vec::new();
    for _ in 0..ty.rank() {
        let dtype = *g.rng.pick(&[DType::I32, DType::I64]);
        let literal = FillKind::IndexBelow(4).random_tensor(&Type::scalar(dtype), &mut g.rng);
        starts.push(g.constant(literal)?);
    }
    if g.rng.bernoulli(0.5) {
        let args: Vec<Value> = std::iter::once(x).chain(starts).collect();
        g.one(DynamicSlice { sizes }, &args)?;
    } else {
        let u = g.like(&ty.with_shape(&sizes))?;
        let args: Vec<Value> = [x, u].into_iter().chain(starts).collect();
        g.one(DynamicUpdateSlice, &args)?;
    }
    Some(())
}

fn along(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let axis = g.axis(ty.rank())?;
    let mut shape = ty.shape.clone();
    if g.rng.bernoulli(0.5) {
        shape[axis] = 1 + g.rng.below(3);
        let i = indices(g, &shape, 4)?;
        g.one(TakeAlong { axis }, &[x, i])?;
    } else {
        let i = indices(g, &shape, 4)?;
        let size = 1 + g.rng.below(3);
        g.one(PutAlong { axis, size }, &[x, i])?;
    }
    Some(())
}

fn sort(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let axis = g.axis(ty.rank())?;
    let mut args = vec![x];
    for _ in 0..g.rng.below(3) {
        args.push(g.like(&ty)?);
    }
    let num_keys = if g.smooth() { 1 } else { 1 + g.rng.below(args.len()) };
    let descending = g.rng.bernoulli(0.5);
    g.emit(Sort { axis, num_keys, descending }, &args)?;
    Some(())
}

fn top_k(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x);
    let axis = g.axis(ty.rank())?;
    let k = g.rng.below(ty.shape[axis] + 1);
    g.emit(TopK { k, axis }, &[x])?;
    Some(())
}

fn cumulative(g: &mut GraphGenerator) -> Option<()> {
    let kind = *g.rng.pick(&ReduceKind::ALL);
    let fits = |t: &Type| ir::Rules::infer(&Reduce { kind, axes: Shape::new() }, std::slice::from_ref(t)).is_ok();
    let x = g.pick(fits)?;
    let axis = g.axis(g.ty(x).rank())?;
    let reverse = g.rng.bernoulli(0.5);
    g.one(Cumulative { kind, axis, reverse }, &[x])?;
    Some(())
}

fn arg_reduce(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let axis = g.axis(g.ty(x).rank())?;
    let index = *g.rng.pick(&[DType::I32, DType::I64]);
    let max = g.rng.bernoulli(0.5);
    g.one(ArgReduce { max, axis, index }, &[x])?;
    Some(())
}
