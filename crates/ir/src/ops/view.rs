//! Views: ops that rearrange elements. After fusion they are index arithmetic without cost.

use super::*;

macro_rules! saves_nothing {
    () => {
        fn saved_for_backward(&self) -> SavedForBackward {
            SavedForBackward::none()
        }
    };
}

/// The jvp of a view, which is linear in its one operand: the tangent takes the same view.
macro_rules! linear_jvp {
    () => {
        fn jvp(
            &self,
            cx: &mut dyn GraphTransforms,
            _: &[Value],
            dx: &[Option<Value>],
            _: &[Value],
        ) -> Result<Tangents> {
            match dx[0] {
                Some(d) => Ok(vec![Some(cx.one(self.clone().into(), &[d])?)]),
                None => Ok(vec![None]),
            }
        }
    };
}

fn linear_operand<'a>(op: &impl Rules, arg: &'a TransposeArg) -> Result<&'a Type> {
    match arg {
        TransposeArg::Linear(ty) => Ok(ty),
        TransposeArg::Known(_) => not_linear(op),
    }
}

/// Same elements in row-major order under another shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

impl Rules for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn attrs(&self) -> Attrs {
        vec![("shape", self.shape.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let ty = Type::checked(args[0].dtype, &self.shape)?;
        if ty.numel() != args[0].numel() {
            return Err(InferError::other(format!(
                "{} has {} elements and cannot be reshaped to {:?}, which has {}",
                args[0],
                args[0].numel(),
                self.shape.as_slice(),
                ty.numel()
            )));
        }
        Ok(vec![ty])
    }

    linear_jvp!();
    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        Ok(vec![Some(cx.reshape(c, &linear_operand(self, &args[0])?.shape)?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], size: usize) -> Result<Vec<(Value, bool)>> {
        let mut shape = self.shape.clone();
        shape.insert(0, size);
        Ok(vec![(cx.reshape(x[0], &shape)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Reshape)
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Reshape>> {
        (name == "reshape").then(|| Ok(Reshape { shape: attrs.usizes("shape")? }))
    }
}

/// Reorders axes: result axis `i` is operand axis `perm[i]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permute {
    /// The permutation.
    pub perm: Shape,
}

impl Rules for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn attrs(&self) -> Attrs {
        vec![("perm", self.perm.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        check_axes(&self.perm, args[0].rank())?;
        if self.perm.len() != args[0].rank() {
            return Err(InferError::other(format!(
                "a permutation of {} axes for an operand of rank {}",
                self.perm.len(),
                args[0].rank()
            )));
        }
        let shape: Shape = self.perm.iter().map(|&p| args[0].shape[p]).collect();
        Ok(vec![args[0].with_shape(&shape)])
    }

    linear_jvp!();
    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        linear_operand(self, &args[0])?;
        let mut inverse: Shape = self.perm.clone();
        for (i, &p) in self.perm.iter().enumerate() {
            inverse[p] = i;
        }
        Ok(vec![Some(cx.permute(c, &inverse)?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let perm: Shape = std::iter::once(0).chain(self.perm.iter().map(|p| p + 1)).collect();
        Ok(vec![(cx.permute(x[0], &perm)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Permute(self.perm.clone()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Permute>> {
        (name == "permute").then(|| Ok(Permute { perm: attrs.usizes("perm")? }))
    }
}

/// Operand axis `i` becomes result axis `dims[i]`; axes of size 1 and new axes repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broadcast {
    /// The result shape.
    pub shape: Shape,
    /// The result axis of each operand axis, increasing.
    pub dims: Shape,
}

impl Rules for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn attrs(&self) -> Attrs {
        vec![("shape", self.shape.as_slice().into()), ("dims", self.dims.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let x = &args[0];
        let ty = Type::checked(x.dtype, &self.shape)?;
        if self.dims.len() != x.rank() {
            return Err(InferError::other(format!("dims {:?} must name each axis of {x}", self.dims.as_slice())));
        }
        if !self.dims.windows(2).all(|w| w[0] < w[1]) {
            return Err(InferError::other(format!("dims {:?} must increase", self.dims.as_slice())));
        }
        for (i, &d) in self.dims.iter().enumerate() {
            check_axis(d, self.shape.len())?;
            if x.shape[i] != self.shape[d] && x.shape[i] != 1 {
                return Err(InferError::other(format!(
                    "axis {i} of {x} has size {}, which does not repeat to {} in {:?}",
                    x.shape[i],
                    self.shape[d],
                    self.shape.as_slice()
                )));
            }
        }
        Ok(vec![ty])
    }

    linear_jvp!();
    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        let ty = linear_operand(self, &args[0])?.clone();
        // Axes that are new, or broadcast from size 1; the reshape reinserts the latter with size 1.
        let repeated: Shape = (0..self.shape.len())
            .filter(|d| match self.dims.iter().position(|x| x == d) {
                None => true,
                Some(i) => ty.shape[i] != self.shape[*d],
            })
            .collect();
        let summed = cx.sum(c, &repeated)?;
        Ok(vec![Some(cx.reshape(summed, &ty.shape)?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], size: usize) -> Result<Vec<(Value, bool)>> {
        let shape: Shape = std::iter::once(size).chain(self.shape.iter().copied()).collect();
        let dims: Shape = std::iter::once(0).chain(self.dims.iter().map(|d| d + 1)).collect();
        Ok(vec![(cx.broadcast(x[0], &shape, &dims)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Broadcast(self.dims.clone()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Broadcast>> {
        (name == "broadcast").then(|| Ok(Broadcast { shape: attrs.usizes("shape")?, dims: attrs.usizes("dims")? }))
    }
}

/// Every `stride`-th element from `start` up to `limit`, along each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The start index.
    pub start: Shape,
    /// The end index, exclusive.
    pub limit: Shape,
    /// The step, at least 1.
    pub stride: Shape,
}

impl Rules for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("start", self.start.as_slice().into()),
            ("limit", self.limit.as_slice().into()),
            ("stride", self.stride.as_slice().into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let x = &args[0];
        let n = x.rank();
        if self.start.len() != n || self.limit.len() != n || self.stride.len() != n {
            return Err(InferError::other(format!("start, limit and stride must name each of the {n} axes of {x}")));
        }
        let mut shape = Shape::new();
        for i in 0..n {
            let (s, l, k) = (self.start[i], self.limit[i], self.stride[i]);
            if s > l || l > x.shape[i] || k == 0 {
                return Err(InferError::other(format!(
                    "slice {s}..{l} by {k} does not fit axis {i} of {x}: it needs start ≤ limit ≤ size and stride ≥ 1"
                )));
            }
            shape.push((l - s).div_ceil(k));
        }
        Ok(vec![x.with_shape(&shape)])
    }

    linear_jvp!();
    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        let ty = linear_operand(self, &args[0])?.clone();
        let taken = cx.ty(c).shape;
        let (mut low, mut high, mut interior) = (Vec::new(), Vec::new(), Shape::new());
        for (i, &n) in taken.iter().enumerate() {
            let spread = if n == 0 { 0 } else { (n - 1) * self.stride[i] + 1 };
            let start = if n == 0 { 0 } else { self.start[i] };
            low.push(start as i64);
            high.push((ty.shape[i] - start - spread) as i64);
            interior.push(self.stride[i] - 1);
        }
        let zero = cx.scalar(ty.dtype, 0.0)?;
        Ok(vec![Some(cx.pad(c, zero, &low, &high, &interior)?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], size: usize) -> Result<Vec<(Value, bool)>> {
        let front = |first: usize, s: &Shape| -> Shape { std::iter::once(first).chain(s.iter().copied()).collect() };
        let v = cx.slice(x[0], &front(0, &self.start), &front(size, &self.limit), &front(1, &self.stride))?;
        Ok(vec![(v, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Slice(self.start.clone(), self.stride.clone()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Slice>> {
        (name == "slice").then(|| {
            Ok(Slice { start: attrs.usizes("start")?, limit: attrs.usizes("limit")?, stride: attrs.usizes("stride")? })
        })
    }
}

/// `pad(x, fill)`: inserts `interior` fill elements between elements, `low` before and `high` after; negative amounts remove
/// elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// The number of fill elements before the first element; a negative number removes elements.
    pub low: SmallVec<[i64; 6]>,
    /// The number of fill elements after the last element; a negative number removes elements.
    pub high: SmallVec<[i64; 6]>,
    /// The number of fill elements between adjacent elements.
    pub interior: Shape,
}

impl Pad {
    fn with_front(&self) -> Pad {
        let mut p = self.clone();
        p.low.insert(0, 0);
        p.high.insert(0, 0);
        p.interior.insert(0, 0);
        p
    }
}

impl Rules for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("low", self.low.as_slice().into()),
            ("high", self.high.as_slice().into()),
            ("interior", self.interior.as_slice().into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let x = &args[0];
        if args[1].rank() != 0 {
            return Err(InferError::other(format!("the fill must have rank 0, got {}", args[1])));
        }
        if x.dtype != args[1].dtype {
            return Err(InferError::DTypes(x.dtype, args[1].dtype));
        }
        let n = x.rank();
        if self.low.len() != n || self.high.len() != n || self.interior.len() != n {
            return Err(InferError::other(format!("low, high and interior must name each of the {n} axes of {x}")));
        }
        let mut shape = Shape::new();
        for i in 0..n {
            let too_large = || InferError::TooLarge { dtype: x.dtype, shape: x.shape.clone() };
            let size = x.shape[i] as i128;
            let spread = size + (size - 1).max(0) * self.interior[i] as i128;
            let padded = spread + self.low[i] as i128 + self.high[i] as i128;
            if padded < 0 {
                return Err(InferError::other(format!(
                    "negative padding {} and {} removes more elements than axis {i} of {x} has",
                    self.low[i], self.high[i]
                )));
            }
            shape.push(usize::try_from(padded).map_err(|_| too_large())?);
        }
        Ok(vec![Type::checked(x.dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        if dx[0].is_none() && dx[1].is_none() {
            return Ok(vec![None]);
        }
        let d = match dx[0] {
            Some(d) => d,
            None => cx.full_like(x[0], 0.0)?,
        };
        let f = match dx[1] {
            Some(f) => f,
            None => cx.full_like(x[1], 0.0)?,
        };
        Ok(vec![Some(cx.one(self.clone().into(), &[d, f])?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let size = |cx: &mut dyn GraphTransforms, a: &TransposeArg| match a {
            TransposeArg::Linear(t) => t.clone(),
            TransposeArg::Known(v) => cx.ty(*v),
        };
        let ty = size(cx, &args[0]);
        let zero = cx.scalar(ty.dtype, 0.0)?;
        // Undo low and high with a negative pad, then slice out the interior fill elements.
        let neg = |v: &[i64]| -> Vec<i64> { v.iter().map(|x| -x).collect() };
        let no_interior: Shape = ty.shape.iter().map(|_| 0).collect();
        let cut = cx.pad(c, zero, &neg(&self.low), &neg(&self.high), &no_interior)?;
        let cut_shape = cx.ty(cut).shape;
        let start: Shape = ty.shape.iter().map(|_| 0).collect();
        let stride: Shape = self.interior.iter().map(|i| i + 1).collect();
        let inner = cx.slice(cut, &start, &cut_shape, &stride)?;
        let fill = if args[1].is_linear() {
            let (all, kept) = (cx.sum_all(c)?, cx.sum_all(inner)?);
            Some(cx.sub(all, kept)?)
        } else {
            None
        };
        Ok(vec![args[0].is_linear().then_some(inner), fill])
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let operand = if batched[0] { x[0] } else { cx.broadcast_leading(x[0], size)? };
        let pad: Op = self.with_front().into();
        if !batched[1] {
            return Ok(vec![(cx.one(pad, &[operand, x[1]])?, true)]);
        }
        // A separate fill value for each element of the batch: pad a mask, and select.
        let ty = cx.ty(operand);
        let zero = cx.scalar(ty.dtype, 0.0)?;
        let padded = cx.one(pad.clone(), &[operand, zero])?;
        let yes = cx.full(&ty.with_dtype(crate::DType::Bool), crate::Scalar::bool(true))?;
        let no = cx.scalar(crate::DType::Bool, 0.0)?;
        let mask = cx.one(pad, &[yes, no])?;
        let shape = cx.ty(padded).shape;
        let fill = cx.broadcast(x[1], &shape, &[0])?;
        Ok(vec![(cx.select(mask, padded, fill)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Pad(self.low.clone(), self.interior.clone()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Pad>> {
        (name == "pad").then(|| {
            Ok(Pad { low: attrs.ints("low")?, high: attrs.ints("high")?, interior: attrs.usizes("interior")? })
        })
    }
}

/// Reverses some axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flip {
    /// The axes.
    pub axes: Shape,
}

impl Rules for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn attrs(&self) -> Attrs {
        vec![("axes", self.axes.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        check_axes(&self.axes, args[0].rank())?;
        Ok(vec![args[0].clone()])
    }

    linear_jvp!();
    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        linear_operand(self, &args[0])?;
        Ok(vec![Some(cx.flip(c, &self.axes)?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let axes: Shape = self.axes.iter().map(|a| a + 1).collect();
        Ok(vec![(cx.flip(x[0], &axes)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::View(View::Flip(self.axes.clone()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Flip>> {
        (name == "flip").then(|| Ok(Flip { axes: attrs.usizes("axes")? }))
    }
}

/// Concatenates operands along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    /// The axis along which sizes may differ.
    pub axis: usize,
}

impl Rules for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let Some(first) = args.first() else {
            return Err(InferError::Arity { expected: "at least 1".into(), got: 0 });
        };
        check_axis(self.axis, first.rank())?;
        let mut total = 0usize;
        for t in args {
            if t.dtype != first.dtype {
                return Err(InferError::DTypes(first.dtype, t.dtype));
            }
            let fits =
                t.rank() == first.rank() && (0..t.rank()).all(|i| i == self.axis || t.shape[i] == first.shape[i]);
            if !fits {
                return Err(InferError::Shapes(first.shape.clone(), t.shape.clone()));
            }
            total = total
                .checked_add(t.shape[self.axis])
                .ok_or(InferError::TooLarge { dtype: first.dtype, shape: t.shape.clone() })?;
        }
        let mut shape = first.shape.clone();
        shape[self.axis] = total;
        Ok(vec![Type::checked(first.dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        if dx.iter().all(Option::is_none) {
            return Ok(vec![None]);
        }
        let mut parts = Vec::with_capacity(x.len());
        for (&v, d) in x.iter().zip(dx) {
            parts.push(match d {
                Some(d) => *d,
                None => cx.full_like(v, 0.0)?,
            });
        }
        Ok(vec![Some(cx.concat(&parts, self.axis)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else {
            return Ok(vec![None; args.len()]);
        };
        let (mut at, mut out) = (0, Vec::with_capacity(args.len()));
        for a in args {
            let size = match a {
                TransposeArg::Linear(t) => t.shape[self.axis],
                TransposeArg::Known(v) => cx.ty(*v).shape[self.axis],
            };
            out.push(if a.is_linear() { Some(cx.slice_axis(c, self.axis, at, at + size)?) } else { None });
            at += size;
        }
        Ok(out)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let mut parts = Vec::with_capacity(x.len());
        for (&v, &b) in x.iter().zip(batched) {
            parts.push(if b { v } else { cx.broadcast_leading(v, size)? });
        }
        Ok(vec![(cx.concat(&parts, self.axis + 1)?, true)])
    }

    saves_nothing!();

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Concat(self.axis))
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let ty = self.infer(&types).map_err(|p| Error::Run(p.to_string()))?.remove(0);
        let mut parts = Vec::with_capacity(ty.numel());
        crate::types::for_each_index(&ty.shape, |index| {
            let mut index = Shape::from_slice(index);
            let mut k = 0;
            while index[self.axis] >= types[k].shape[self.axis] {
                index[self.axis] -= types[k].shape[self.axis];
                k += 1;
            }
            parts.push(args[k].get(crate::types::offset(&index, &types[k].strides())));
        });
        Ok(vec![Literal::from_fn(ty, |i| parts[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Concat>> {
        (name == "concat").then(|| Ok(Concat { axis: attrs.usize("axis")? }))
    }
}
