//! Views, which share their base, and ops that move elements.

use super::{Tensor, TensorKind, axis_of, operand_error, shape_of};
use crate::context;
use crate::dims::Dims;
use crate::error::Error;
use crate::record::{Recorder, one, record};
use crate::reduce_axes::ReduceAxes;
use crate::view::View;
use ir::ops::{Broadcast, Permute, Reshape, Slice};
use ir::{InferError, Loc, Op, Shape, Type, Values};
use std::sync::Arc;

impl Tensor {
    /// Creates a view of this tensor, or a copy if strides can't represent it.
    fn make_view(&self, op: Result<Op, InferError>, name: &str, at: &Loc, copy: bool) -> Tensor {
        if self.invalid().is_some() {
            return self.clone();
        }
        let at = &context::resolve_loc(at);
        let fail = |e: Error| Tensor::with_error(e.with_loc(at), self.engine());
        let op = match op {
            Ok(op) => op,
            Err(p) => return fail(operand_error(name, &[self.ty()], p).into()),
        };
        if let Err(e) = self.check_alive(at) {
            return fail(e);
        }
        let ty = match op.infer(std::slice::from_ref(self.ty())) {
            Ok(types) => types[0].clone(),
            Err(p) => return fail(operand_error(op.name(), &[self.ty()], p).into()),
        };
        // A captured tensor is viewed in the engine, and the view is captured.
        let whole;
        let view = match self.0.view() {
            Some(v) => &**v,
            None => {
                whole = View::identity(self.ty());
                &whole
            }
        };
        let op = Arc::new(op);
        match view.compose(&op, ty.clone()) {
            Some(view) => self.alias_with(ty, Some(Arc::new(view)), |_| {}),
            None if copy => one(at, &[self], |b, v| b.one((*op).clone(), &[v[0]])),
            None => {
                let reason = format!(
                    "{:?} cannot be viewed as {:?} without a copy; use reshape",
                    self.shape(),
                    ty.shape.as_slice()
                );
                fail(Error::call("view", reason, at))
            }
        }
    }

    /// The same elements with another shape; one size may be −1. The result shares memory if strides can represent it.
    #[track_caller]
    pub fn reshape(&self, shape: impl Dims) -> Tensor {
        self.make_view(reshape(self.ty(), &shape.sizes()), "reshape", &Loc::caller(), true)
    }

    /// The same elements with another shape, sharing memory; an error if strides can't represent it.
    #[track_caller]
    pub fn view(&self, shape: impl Dims) -> Tensor {
        self.make_view(reshape(self.ty(), &shape.sizes()), "view", &Loc::caller(), false)
    }

    /// Flattens to one axis.
    #[track_caller]
    pub fn flatten(&self) -> Tensor {
        self.make_view(reshape(self.ty(), &[-1]), "flatten", &Loc::caller(), true)
    }

    /// Permutes the axes: axis `i` of the result is axis `perm[i]`.
    #[track_caller]
    pub fn permute(&self, perm: impl Dims) -> Tensor {
        let rank = self.rank();
        let perm: Result<Shape, InferError> = perm.sizes().iter().map(|&a| axis_of(a, rank)).collect();
        self.make_view(perm.map(|perm| Permute { perm }.into()), "permute", &Loc::caller(), false)
    }

    /// Swaps two axes.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        let rank = self.rank();
        let op = axis_of(a, rank).and_then(|a| {
            let b = axis_of(b, rank)?;
            let mut perm: Shape = (0..rank).collect();
            perm.swap(a, b);
            Ok(Permute { perm }.into())
        });
        self.make_view(op, "transpose", &Loc::caller(), false)
    }

    /// Swaps the last two axes.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        self.transpose(-1, -2)
    }

    /// Expands axes of size 1, and new leading axes, to a shape; −1 keeps a size. The result is a view: a write to one element
    /// changes all elements that share its memory. In-place ops on an expanded tensor are refused, except `fill_` and `zero_`.
    #[track_caller]
    pub fn expand(&self, shape: impl Dims) -> Tensor {
        self.make_view(expand(self.ty(), &shape.sizes()), "expand", &Loc::caller(), false)
    }

    /// The elements `start..end` of an axis with a step; negative numbers count from the end.
    #[track_caller]
    pub fn slice(&self, axis: isize, start: isize, end: isize, step: usize) -> Tensor {
        self.make_view(slice(self.ty(), axis, start, end, step), "slice", &Loc::caller(), false)
    }

    /// The `length` elements of an axis that begin at `start`.
    #[track_caller]
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Tensor {
        let at = Loc::caller();
        let op = axis_of(axis, self.rank()).and_then(|a| {
            let n = self.shape()[a];
            match start.checked_add(length) {
                Some(end) if end <= n => slice(self.ty(), axis, start as isize, end as isize, 1),
                _ => Err(InferError::other(format!("{start}..+{length} is outside an axis of {n}"))),
            }
        });
        self.make_view(op, "narrow", &at, false)
    }

    /// Selects one index of an axis; the axis is removed.
    #[track_caller]
    pub fn index(&self, axis: isize, i: isize) -> Tensor {
        let at = Loc::caller();
        let found = axis_of(axis, self.rank()).and_then(|a| {
            let n = self.shape()[a] as isize;
            let k = if i < 0 { i + n } else { i };
            if (0..n).contains(&k) {
                Ok((a, k))
            } else {
                Err(InferError::other(format!("index {i} is outside an axis of {n}")))
            }
        });
        let (a, k) = match found {
            Ok(x) => x,
            Err(p) => return self.make_view(Err(p), "index", &at, false),
        };
        let row = self.make_view(slice(self.ty(), axis, k, k + 1, 1), "index", &at, false);
        let mut shape = shape_of(self.shape());
        shape.remove(a);
        row.make_view(Ok(Reshape { shape }.into()), "index", &at, false)
    }

    /// Inserts a new axis of size 1.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        let op = axis_of(axis, self.rank() + 1).map(|a| {
            let mut shape = shape_of(self.shape());
            shape.insert(a, 1);
            Reshape { shape }.into()
        });
        self.make_view(op, "unsqueeze", &Loc::caller(), false)
    }

    /// Removes an axis of size 1.
    #[track_caller]
    pub fn squeeze(&self, axis: isize) -> Tensor {
        let op = axis_of(axis, self.rank()).and_then(|a| {
            let mut shape = shape_of(self.shape());
            match shape.remove(a) {
                1 => Ok(Reshape { shape }.into()),
                n => Err(InferError::other(format!("axis {a} has size {n}, not 1"))),
            }
        });
        self.make_view(op, "squeeze", &Loc::caller(), false)
    }

    /// Copies to a new base.
    #[track_caller]
    pub fn copy(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| {
            let shape = b.ty(v[0]).shape;
            b.one(Reshape { shape }.into(), &[v[0]])
        })
    }

    /// The tensor in contiguous memory: the tensor itself if it is contiguous already, else a copy.
    #[track_caller]
    pub fn contiguous(&self) -> Tensor {
        if matches!(self.0.kind, TensorKind::Invalid(_)) || self.view_meta().is_contiguous {
            return self.clone();
        }
        self.copy()
    }

    /// Reverses axes, as a copy.
    #[track_caller]
    pub fn flip(&self, axes: impl Into<ReduceAxes>) -> Tensor {
        let axes = axes.into();
        one(&Loc::caller(), &[self], |b, v| {
            let axes = super::reduce::resolve(&b.ty(v[0]), "flip", axes.axes.as_deref())?;
            b.flip(v[0], &axes)
        })
    }

    /// Joins tensors along an axis.
    #[track_caller]
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Tensor {
        let at = Loc::caller();
        let f = |b: &mut dyn Recorder, v: &[ir::Value]| {
            let rank = v.first().map_or(0, |&x| b.ty(x).rank());
            let axis = axis_of(axis, rank).map_err(|p| operand_error("concat", &[], p))?;
            Ok(Values::from_elem(b.concat(v, axis)?, 1))
        };
        record(&at, 1, None, tensors, f).swap_remove(0)
    }

    /// Joins tensors along a new axis.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Tensor {
        let at = Loc::caller();
        let f = |b: &mut dyn Recorder, v: &[ir::Value]| {
            let rank = v.first().map_or(0, |&x| b.ty(x).rank());
            let axis = axis_of(axis, rank + 1).map_err(|p| operand_error("stack", &[], p))?;
            let mut wide = Values::new();
            for &x in v {
                let mut shape = b.ty(x).shape;
                shape.insert(axis.min(shape.len()), 1);
                wide.push(b.reshape(x, &shape)?);
            }
            Ok(Values::from_elem(b.concat(&wide, axis)?, 1))
        };
        record(&at, 1, None, tensors, f).swap_remove(0)
    }
}

fn reshape(ty: &Type, shape: &[isize]) -> Result<Op, InferError> {
    let mut known = 1usize;
    let mut open = None;
    let mut out = Shape::new();
    for (i, &n) in shape.iter().enumerate() {
        match (n, open) {
            (-1, None) => open = Some(i),
            (-1, Some(_)) => return Err(InferError::other("only one size may be -1")),
            (n, _) if n < 0 => return Err(InferError::other(format!("size {n} is negative"))),
            (n, _) => known = known.saturating_mul(n as usize),
        }
        out.push(n.max(0) as usize);
    }
    if let Some(i) = open {
        if known == 0 || !ty.numel().is_multiple_of(known) {
            let text = format!("{ty} has {} elements, which cannot be reshaped to {shape:?}", ty.numel());
            return Err(InferError::other(text));
        }
        out[i] = ty.numel() / known;
    }
    Ok(Reshape { shape: out }.into())
}

fn expand(ty: &Type, shape: &[isize]) -> Result<Op, InferError> {
    let rank = ty.rank();
    if shape.len() < rank {
        return Err(InferError::other(format!("{ty} has more axes than {shape:?}")));
    }
    let first = shape.len() - rank;
    let mut out = Shape::new();
    for (i, &n) in shape.iter().enumerate() {
        let own = i.checked_sub(first).map(|k| ty.shape[k]);
        out.push(match (n, own) {
            (-1, Some(n)) => n,
            (n, Some(m)) if n >= 0 && (m == 1 || m == n as usize) => n as usize,
            (n, None) if n >= 0 => n as usize,
            _ => return Err(InferError::other(format!("{ty} does not expand to {shape:?}"))),
        });
    }
    Ok(Broadcast { shape: out, dims: (first..shape.len()).collect() }.into())
}

fn slice(ty: &Type, axis: isize, start: isize, end: isize, step: usize) -> Result<Op, InferError> {
    let a = axis_of(axis, ty.rank())?;
    if step == 0 {
        return Err(InferError::other("a slice needs a step of at least 1"));
    }
    let n = ty.shape[a] as isize;
    let clip = |i: isize| (if i < 0 { i + n } else { i }).clamp(0, n) as usize;
    let (start, end) = (clip(start), clip(end));
    let mut op = Slice {
        start: ty.shape.iter().map(|_| 0).collect(),
        limit: ty.shape.clone(),
        stride: ty.shape.iter().map(|_| 1).collect(),
    };
    (op.start[a], op.limit[a], op.stride[a]) = (start, end.max(start), step);
    Ok(op.into())
}
