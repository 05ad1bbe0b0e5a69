//! Views of a dense base (§2.3, §4): a chain of view ops, and the strides of the result.

use crate::view_chain::{self, ViewChain};
use ir::ops::{Pad, Slice};
use ir::types::row_major;
use ir::{DType, GraphBuilder, Op, Result, Scalar, Shape, Type, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// Strides in elements.
pub(crate) type Strides = SmallVec<[isize; 6]>;

/// The view of a base that a tensor refers to.
#[derive(Clone)]
pub(crate) struct View {
    /// The ops from the base to the view.
    chain: ViewChain,
    pub(crate) ty: Type,
    pub(crate) offset: usize,
    pub(crate) strides: Strides,
}

/// View metadata in bytes, as defined in §2.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewMeta {
    /// The offset of the first element.
    pub offset_bytes: usize,
    /// The shape of the view.
    pub shape: Shape,
    /// The distance in bytes between neighbours on each axis.
    pub strides_bytes: Vec<isize>,
    /// Whether the view is row-major without gaps.
    pub is_contiguous: bool,
}

impl View {
    /// The view of the whole base.
    pub(crate) fn identity(ty: &Type) -> View {
        let strides = row_major(&ty.shape).iter().map(|&s| s as isize).collect();
        View { chain: None, ty: ty.clone(), offset: 0, strides }
    }

    /// Appends a view op; `None` if strides can't represent the result. The op must be valid for the view.
    pub(crate) fn compose(&self, op: &Arc<Op>, ty: Type) -> Option<View> {
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
        view.chain = view_chain::append(&self.chain, op, &self.ty.shape);
        Some(view)
    }

    /// The ops from the base to the view.
    pub(crate) fn ops(&self) -> Vec<Arc<Op>> {
        view_chain::ops(&self.chain)
    }

    /// Whether two indices refer to the same element.
    pub(crate) fn overlaps(&self) -> bool {
        self.ty.numel() > 0 && self.ty.shape.iter().zip(&self.strides).any(|(&n, &s)| n > 1 && s == 0)
    }

    /// Whether one of the view's ops expands axes.
    pub(crate) fn is_expanded(&self) -> bool {
        self.ops().iter().any(|op| matches!(**op, Op::Broadcast(_)))
    }

    /// Reads the view's elements from its base.
    pub(crate) fn get(&self, b: &mut dyn GraphBuilder, base: Value) -> Result<Value> {
        let mut v = base;
        for op in self.ops() {
            v = b.one((*op).clone(), &[v])?;
        }
        Ok(v)
    }

    /// `base` with the elements of the view replaced (§4.4), built from ops that have derivatives. Where several indices refer to
    /// the same element, `new` must have equal values there.
    pub(crate) fn put(&self, b: &mut dyn GraphBuilder, base: Value, new: Value) -> Result<Value> {
        if self.ty.numel() == 0 {
            return Ok(base);
        }
        match self.is_expanded() {
            true => self.put_strided(b, base, new),
            false => put(b, base, &self.ops(), new),
        }
    }

    /// `put` with strides alone. An expanded axis is written once, so the expanded tensor is not computed.
    fn put_strided(&self, b: &mut dyn GraphBuilder, base: Value, new: Value) -> Result<Value> {
        let ty = b.ty(base);
        let differs = |&a: &usize| self.ty.shape[a] > 1 && self.strides[a] != 0;
        // Axes from the outermost to the innermost in memory.
        let mut axes: Vec<usize> = (0..self.ty.rank()).filter(differs).collect();
        axes.sort_by_key(|&a| std::cmp::Reverse(self.strides[a]));
        let zeros: Shape = self.strides.iter().map(|_| 0).collect();
        let ones: Shape = self.strides.iter().map(|_| 1).collect();
        let limit: Shape = (0..self.ty.rank()).map(|a| if differs(&a) { self.ty.shape[a] } else { 1 }).collect();
        let new = b.slice(new, &zeros, &limit, &ones)?;
        let others = (0..self.ty.rank()).filter(|a| !differs(a));
        let new = b.permute(new, &axes.iter().copied().chain(others).collect::<Shape>())?;
        let wide = self.scatter_axes(b, new, &axes, &ty.shape)?;
        let here = Type::new(DType::Bool, &axes.iter().map(|&a| self.ty.shape[a]).collect::<Shape>());
        let here = b.full(&here, Scalar::bool(true))?;
        let mask = self.scatter_axes(b, here, &axes, &ty.shape)?;
        b.select(mask, wide, base)
    }

    /// Places elements along `axes` in a base of zeros. The strides of a view of a dense base are nested: the stride of an axis
    /// is at least the extent of the axes inside it.
    fn scatter_axes(&self, b: &mut dyn GraphBuilder, v: Value, axes: &[usize], base: &[usize]) -> Result<Value> {
        let zero = b.zeros(&Type::scalar(b.ty(v).dtype))?;
        let mut shape: Shape = axes.iter().map(|&a| self.ty.shape[a]).collect();
        shape.push(1);
        let mut v = b.reshape(v, &shape)?;
        for &a in axes.iter().rev() {
            // Only zeros are cut off, which the padding of an inner axis added after its last element.
            let inner = shape.pop().expect("each axis and the elements inside of it");
            let mut high = vec![0; shape.len()];
            high.push(self.strides[a] as i64 - inner as i64);
            v = b.pad(v, zero, &vec![0; high.len()], &high, &vec![0; high.len()])?;
            let n = shape.pop().expect("there is this axis");
            shape.push(n * self.strides[a] as usize);
            v = b.reshape(v, &shape)?;
        }
        let high = base.iter().product::<usize>() as i64 - self.offset as i64 - shape[0] as i64;
        let v = b.pad(v, zero, &[self.offset as i64], &[high], &[0])?;
        b.reshape(v, base)
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

/// The strides of the same elements under another shape, if there are any: axes that are contiguous with each other form
/// groups, and a new axis must not span two groups.
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

/// `base` with the elements replaced that a chain of slices, permutations and reshapes selects.
pub(crate) fn put(b: &mut dyn GraphBuilder, base: Value, ops: &[Arc<Op>], new: Value) -> Result<Value> {
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
        _ => b.reshape(new, &ty.shape),
    }
}

fn put_slice(b: &mut dyn GraphBuilder, base: Value, ty: &Type, s: &Slice, new: Value) -> Result<Value> {
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
