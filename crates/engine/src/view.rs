//! Views over a dense base (§2.3, §4): a chain of view ops, and the strides that say what is representable.

use crate::chain::{self, Chain};
use ir::ops::{Pad, Slice};
use ir::types::row_major;
use ir::{Build, DType, Op, Result, Scalar, Shape, Type, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// Strides in elements.
pub(crate) type Strides = SmallVec<[isize; 6]>;

/// What a view tensor sees of its base.
#[derive(Clone)]
pub(crate) struct View {
    /// From the base to the view.
    chain: Chain,
    pub(crate) ty: Type,
    pub(crate) offset: usize,
    pub(crate) strides: Strides,
}

/// View metadata in bytes, as §2.3 has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewMeta {
    /// Where the view begins.
    pub offset_bytes: usize,
    /// Its shape.
    pub shape: Shape,
    /// Bytes between neighbours on each axis.
    pub strides_bytes: Vec<isize>,
    /// Whether it is row-major without gaps.
    pub is_contiguous: bool,
}

impl View {
    /// The whole base.
    pub(crate) fn whole(ty: &Type) -> View {
        let strides = row_major(&ty.shape).iter().map(|&s| s as isize).collect();
        View { chain: None, ty: ty.clone(), offset: 0, strides }
    }

    /// One view op more; `None` if strides can't express the result. The op must fit.
    pub(crate) fn then(&self, op: &Arc<Op>, ty: Type) -> Option<View> {
        let mut view = View { chain: None, ty, offset: self.offset, strides: Strides::new() };
        match &**op {
            Op::Permute(p) => view.strides = p.perm.iter().map(|&a| self.strides[a]).collect(),
            Op::Broadcast(b) => {
                view.strides = SmallVec::from_elem(0, b.shape.len());
                for (i, &d) in b.dims.iter().enumerate() {
                    if self.ty.shape[i] == b.shape[d] {
                        view.strides[d] = self.strides[i];
                    }
                }
            }
            Op::Slice(s) => {
                for (i, &stride) in self.strides.iter().enumerate() {
                    view.offset = view.offset.wrapping_add_signed(s.start[i] as isize * stride);
                    view.strides.push(stride * s.stride[i] as isize);
                }
            }
            Op::Reshape(r) => view.strides = restride(&self.ty.shape, &self.strides, &r.shape)?,
            _ => return None,
        }
        view.chain = chain::append(&self.chain, op, &self.ty.shape);
        Some(view)
    }

    /// The ops that lead from the base to the view.
    pub(crate) fn ops(&self) -> Vec<Arc<Op>> {
        chain::ops(&self.chain)
    }

    /// Whether two indices mean the same element.
    pub(crate) fn overlaps(&self) -> bool {
        self.ty.shape.iter().zip(&self.strides).any(|(&n, &s)| n > 1 && s == 0)
    }

    pub(crate) fn meta(&self) -> ViewMeta {
        let size = self.ty.dtype.size();
        let dense = row_major(&self.ty.shape);
        let is_contiguous =
            (self.ty.shape.iter().zip(&self.strides).zip(&dense)).all(|((&n, &s), &d)| n <= 1 || s == d as isize);
        ViewMeta {
            offset_bytes: self.offset * size,
            shape: self.ty.shape.clone(),
            strides_bytes: self.strides.iter().map(|s| s * size as isize).collect(),
            is_contiguous,
        }
    }
}

/// Strides of the same elements under another shape, if there are any: axes that lie densely inside each other form
/// groups, and a new axis must not straddle two groups.
fn restride(shape: &[usize], strides: &[isize], new: &[usize]) -> Option<Strides> {
    if shape.contains(&0) {
        return Some(row_major(new).iter().map(|&s| s as isize).collect());
    }
    let mut out: Strides = SmallVec::from_elem(1, new.len());
    let mut left = new.len();
    let mut end = shape.len();
    while end > 0 {
        let inner = strides[end - 1];
        let mut begin = end - 1;
        let mut size = shape[begin];
        while begin > 0 && (shape[begin - 1] == 1 || strides[begin - 1] == size as isize * inner) {
            begin -= 1;
            size *= shape[begin];
        }
        let mut filled = 1;
        while left > 0 && (filled < size || new[left - 1] == 1) {
            left -= 1;
            out[left] = filled as isize * inner;
            filled *= new[left];
        }
        if filled != size {
            return None;
        }
        end = begin;
    }
    new[..left].iter().all(|&n| n == 1).then_some(out)
}

/// The view of a value.
pub(crate) fn get(b: &mut dyn Build, mut v: Value, ops: &[Arc<Op>]) -> Result<Value> {
    for op in ops {
        v = b.one((**op).clone(), &[v])?;
    }
    Ok(v)
}

/// `base` with the view's elements replaced: the strided scatter of §4.4, written with ops that have derivatives.
pub(crate) fn put(b: &mut dyn Build, base: Value, ops: &[Arc<Op>], new: Value) -> Result<Value> {
    let Some((op, rest)) = ops.split_first() else {
        return Ok(new);
    };
    let new = if rest.is_empty() {
        new
    } else {
        let inner = b.one((**op).clone(), &[base])?;
        put(b, inner, rest, new)?
    };
    let ty = b.ty(base);
    match &**op {
        Op::Permute(p) => {
            let mut inverse = p.perm.clone();
            for (i, &a) in p.perm.iter().enumerate() {
                inverse[a] = i;
            }
            b.permute(new, &inverse)
        }
        Op::Slice(s) => put_slice(b, base, &ty, s, new),
        // Of elements that are one in memory the first counts; whoever writes to them writes one number.
        Op::Broadcast(r) => {
            let mut limit: Shape = r.shape.iter().map(|_| 1).collect();
            for (i, &d) in r.dims.iter().enumerate() {
                limit[d] = ty.shape[i].min(r.shape[d]);
            }
            let start: Shape = limit.iter().map(|_| 0).collect();
            let stride: Shape = limit.iter().map(|_| 1).collect();
            let first = b.slice(new, &start, &limit, &stride)?;
            b.reshape(first, &ty.shape)
        }
        _ => b.reshape(new, &ty.shape),
    }
}

fn put_slice(b: &mut dyn Build, base: Value, ty: &Type, s: &Slice, new: Value) -> Result<Value> {
    let inner = b.ty(new);
    if inner.shape == ty.shape {
        return Ok(new);
    }
    if inner.numel() == 0 {
        return Ok(base);
    }
    let mut high = SmallVec::new();
    for (i, &n) in inner.shape.iter().enumerate() {
        let last = s.start[i] + (n - 1) * s.stride[i];
        high.push((ty.shape[i] - 1 - last) as i64);
    }
    let pad = Pad {
        low: s.start.iter().map(|&i| i as i64).collect(),
        high,
        interior: s.stride.iter().map(|&i| i - 1).collect(),
    };
    let zero = b.zeros(&Type::scalar(ty.dtype))?;
    let wide = b.one(pad.clone().into(), &[new, zero])?;
    let here = b.full(&inner.with_dtype(DType::Bool), Scalar::bool(true))?;
    let elsewhere = b.zeros(&Type::scalar(DType::Bool))?;
    let mask = b.one(pad.into(), &[here, elsewhere])?;
    b.select(mask, wide, base)
}
