//! Slices of static size at dynamic start indices: `dynamic_slice` reads one, `dynamic_update_slice` writes one.
//!
//! Start indices are rank-0 operands, one for each axis, clamped so that the slice is inside. The two ops are each other's
//! transposes; with batched starts they become a gather and a scatter.

use super::*;
use crate::dtype::DType;
use crate::types::{for_each_index, offset};

fn check_starts(x: &Type, starts: &[Type], first: usize) -> std::result::Result<(), InferError> {
    if starts.len() != x.rank() {
        return Err(InferError::Arity {
            expected: format!("{} start indices for {x}, so {}", x.rank(), first + x.rank()),
            got: first + starts.len(),
        });
    }
    for (i, s) in starts.iter().enumerate() {
        if !matches!(s.dtype, DType::I32 | DType::I64) {
            return Err(InferError::DType { operand: first + i, expected: "i32 or i64", got: s.dtype });
        }
        if s.rank() != 0 {
            return Err(InferError::other(format!("start index {i} must have rank 0, got {s}")));
        }
    }
    Ok(())
}

fn check_fits(x: &Type, sizes: &[usize]) -> std::result::Result<(), InferError> {
    if sizes.len() != x.rank() || sizes.iter().zip(&x.shape).any(|(s, d)| s > d) {
        return Err(InferError::other(format!("a slice of {sizes:?} does not fit {x}")));
    }
    Ok(())
}

/// The clamped start of a slice in a tensor of type `ty`.
fn clamped(ty: &Type, sizes: &[usize], starts: &[Literal]) -> Shape {
    (0..ty.rank()).map(|a| starts[a].get(0).to_i64().clamp(0, (ty.shape[a] - sizes[a]) as i64) as usize).collect()
}

/// Stacks batched start indices to index vectors `[size, rank]`.
fn stacked_starts(cx: &mut dyn GraphTransforms, starts: &[Value], batched: &[bool], size: usize) -> Result<Value> {
    let wide = starts.iter().any(|&s| cx.ty(s).dtype == DType::I64);
    let dtype = if wide { DType::I64 } else { DType::I32 };
    let mut columns = Vec::with_capacity(starts.len());
    for (&s, &b) in starts.iter().zip(batched) {
        let s = cx.cast(s, dtype)?;
        let s = if b { s } else { cx.broadcast_leading(s, size)? };
        columns.push(cx.reshape(s, &[size, 1])?);
    }
    cx.concat(&columns, 1)
}

/// The dimension numbers of a batch, whose slices tensor is `[size, slice..]`.
fn batch_dims(rank: usize, operand_batched: bool) -> SliceDims {
    let (batch, first): (Shape, usize) = match operand_batched {
        true => ([0].into_iter().collect(), 1),
        false => (Shape::new(), 0),
    };
    SliceDims {
        offset: (1..=rank).collect(),
        collapsed: Shape::new(),
        operand_batch: batch.clone(),
        index_batch: batch,
        index_map: (first..first + rank).collect(),
    }
}

/// `dynamic_slice(x, start..)`: a slice of these sizes; the start is clamped so that the slice is inside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicSlice {
    /// The size along each axis.
    pub sizes: Shape,
}

impl Rules for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }

    fn attrs(&self) -> Attrs {
        vec![("sizes", self.sizes.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let Some((x, starts)) = args.split_first() else {
            return Err(InferError::Arity { expected: "at least 1".into(), got: 0 });
        };
        check_starts(x, starts, 1)?;
        check_fits(x, &self.sizes)?;
        Ok(vec![x.with_shape(&self.sizes)])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        let args: Vec<Value> = std::iter::once(d).chain(x[1..].iter().copied()).collect();
        Ok(vec![Some(cx.one(self.clone().into(), &args)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let mut cts = vec![None; args.len()];
        let Some(c) = ct[0] else { return Ok(cts) };
        let TransposeArg::Linear(ty) = &args[0] else {
            return not_linear(self);
        };
        let mut operands = vec![cx.zeros(ty)?, c];
        operands.extend(args[1..].iter().filter_map(TransposeArg::known));
        cts[0] = Some(cx.one(DynamicUpdateSlice.into(), &operands)?);
        Ok(cts)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let mut sizes = self.sizes.clone();
        if batched[1..].iter().any(|b| *b) {
            let indices = stacked_starts(cx, &x[1..], &batched[1..], size)?;
            if batched[0] {
                sizes.insert(0, 1);
            }
            let gather =
                Gather { dims: batch_dims(self.sizes.len(), batched[0]), slice_sizes: sizes, mode: GatherMode::Clip };
            return Ok(vec![(cx.one(gather.into(), &[x[0], indices])?, true)]);
        }
        sizes.insert(0, size);
        let mut args = x.to_vec();
        args.insert(1, cx.scalar(DType::I32, 0.0)?);
        Ok(vec![(cx.one(DynamicSlice { sizes }.into(), &args)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Slice(self.sizes.clone()))
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let x = &args[0];
        let strides = x.ty().strides();
        let base = offset(&clamped(x.ty(), &self.sizes, &args[1..]), &strides);
        let mut items = Vec::with_capacity(ty.numel());
        for_each_index(&ty.shape, |i| items.push(x.get(base + offset(i, &strides))));
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<DynamicSlice>> {
        (name == "dynamic_slice").then(|| Ok(DynamicSlice { sizes: attrs.usizes("sizes")? }))
    }
}

/// `dynamic_update_slice(x, update, start..)`: `x` with a slice replaced; the start is clamped so that the slice is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DynamicUpdateSlice;

impl Rules for DynamicUpdateSlice {
    fn name(&self) -> &'static str {
        "dynamic_update_slice"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let [x, update, starts @ ..] = args else {
            return Err(InferError::Arity { expected: "at least 2".into(), got: args.len() });
        };
        if x.dtype != update.dtype {
            return Err(InferError::DTypes(x.dtype, update.dtype));
        }
        check_starts(x, starts, 2)?;
        check_fits(x, &update.shape)?;
        Ok(vec![x.clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        if dx[0].is_none() && dx[1].is_none() {
            return Ok(vec![None]);
        }
        let mut args = x.to_vec();
        for i in 0..2 {
            args[i] = dx[i].map_or_else(|| cx.full_like(x[i], 0.0), Ok)?;
        }
        Ok(vec![Some(cx.one(DynamicUpdateSlice.into(), &args)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let mut cts = vec![None; args.len()];
        let Some(c) = ct[0] else { return Ok(cts) };
        let update = match &args[1] {
            TransposeArg::Linear(ty) => ty.clone(),
            TransposeArg::Known(v) => cx.ty(*v),
        };
        let starts: Vec<Value> = args[2..].iter().filter_map(TransposeArg::known).collect();
        if args[0].is_linear() {
            let operands = [&[c, cx.zeros(&update)?], &starts[..]].concat();
            cts[0] = Some(cx.one(DynamicUpdateSlice.into(), &operands)?);
        }
        if args[1].is_linear() {
            cts[1] = Some(cx.dynamic_slice(c, &starts, &update.shape)?);
        }
        Ok(cts)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let operand = if batched[0] { x[0] } else { cx.broadcast_leading(x[0], size)? };
        let update = if batched[1] { x[1] } else { cx.broadcast_leading(x[1], size)? };
        if batched[2..].iter().any(|b| *b) {
            let indices = stacked_starts(cx, &x[2..], &batched[2..], size)?;
            let scatter =
                Scatter { kind: ScatterKind::Set, dims: batch_dims(x.len() - 2, true), mode: ScatterMode::Clip };
            return Ok(vec![(cx.one(scatter.into(), &[operand, indices, update])?, true)]);
        }
        let mut args = vec![operand, update, cx.scalar(DType::I32, 0.0)?];
        args.extend_from_slice(&x[2..]);
        Ok(vec![(cx.one(DynamicUpdateSlice.into(), &args)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Update)
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let update = &args[1];
        let strides = ty.strides();
        let base = offset(&clamped(&ty, &update.ty().shape, &args[2..]), &strides);
        let mut items: Vec<_> = args[0].scalars().collect();
        let mut news = update.scalars();
        for_each_index(&update.ty().shape, |i| {
            if let Some(new) = news.next() {
                items[base + offset(i, &strides)] = new;
            }
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<DynamicUpdateSlice>> {
        (name == "dynamic_update_slice").then_some(Ok(DynamicUpdateSlice))
    }
}
