//! `scatter(operand, indices, updates)`: combines slices with the operand at dynamic indices.
//!
//! Updates are applied one after another, in row-major order; with [`ScatterKind::Set`] the last update of an
//! element determines its value.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar};

/// How an update is combined with the existing element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ScatterKind {
    Set,
    Add,
    Mul,
    Min,
    Max,
}

impl ScatterKind {
    /// Every kind.
    pub const ALL: [ScatterKind; 5] =
        [ScatterKind::Set, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Min, ScatterKind::Max];

    /// The operator that combines the old element with an update; `Set` has none.
    pub fn combine(self) -> Option<Binary> {
        match self {
            ScatterKind::Set => None,
            ScatterKind::Add => Some(Binary::Add),
            ScatterKind::Mul => Some(Binary::Mul),
            ScatterKind::Min => Some(Binary::Min),
            ScatterKind::Max => Some(Binary::Max),
        }
    }

    /// The name of the op.
    pub fn name(self) -> &'static str {
        match self {
            ScatterKind::Set => "scatter_set",
            ScatterKind::Add => "scatter_add",
            ScatterKind::Mul => "scatter_mul",
            ScatterKind::Min => "scatter_min",
            ScatterKind::Max => "scatter_max",
        }
    }
}

/// The treatment of a slice that is not completely inside the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// It is moved to the nearest position inside.
    Clip,
    /// It is dropped.
    Drop,
}

/// `scatter(x, indices, updates)`: `x` with slices combined into it at dynamic indices, in order, with XLA's dimension numbers;
/// out-of-bounds slices are clamped or dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// How elements are combined.
    pub kind: ScatterKind,
    /// The dimension numbers that relate operand, indices and updates.
    pub dims: SliceDims,
    /// The treatment of slices that are out of bounds.
    pub mode: ScatterMode,
}

impl Scatter {
    fn with_kind(&self, kind: ScatterKind) -> Op {
        Scatter { kind, ..self.clone() }.into()
    }

    /// The gather that reads the elements that this scatter writes.
    fn gather(
        &self,
        cx: &mut dyn GraphTransforms,
        from: Value,
        indices: Value,
        updates: &Type,
        outside: f64,
    ) -> Result<Value> {
        let ty = cx.ty(from);
        let gather = Gather {
            dims: self.dims.clone(),
            slice_sizes: self.dims.slice_sizes(ty.rank(), &updates.shape),
            mode: match self.mode {
                ScatterMode::Clip => GatherMode::Clip,
                ScatterMode::Drop => GatherMode::Fill(Scalar::from_f64(ty.dtype, outside)),
            },
        };
        cx.one(gather.into(), &[from, indices])
    }

    /// The updates that remain in the result of `Set`: the number of each update is scattered, and those that can be read back
    /// were not overwritten.
    fn survivors(&self, cx: &mut dyn GraphTransforms, operand: &Type, indices: Value, updates: &Type) -> Result<Value> {
        let n = updates.numel();
        let dtype = if i32::try_from(n).is_ok() { DType::I32 } else { DType::I64 };
        let numbers = cx.iota(dtype, &[n], 0)?;
        let numbers = cx.reshape(numbers, &updates.shape)?;
        let nobody = cx.full(&operand.with_dtype(dtype), Scalar::from_i64(dtype, -1))?;
        let written = cx.one(self.with_kind(ScatterKind::Set), &[nobody, indices, numbers])?;
        let read = self.gather(cx, written, indices, updates, -1.0)?;
        cx.compare(Compare::Eq, read, numbers)
    }

    /// For each update, the product of all other factors of its element, including the operand.
    ///
    /// It does not divide by zero: if one factor is 0 the result is the product of the others, if two are 0 it is 0. It
    /// is exact also for repeated indices; only the second derivative at repeated indices with an update of 0 misses
    /// some terms.
    fn other_factors(
        &self,
        cx: &mut dyn GraphTransforms,
        operand: Value,
        indices: Value,
        updates: Value,
    ) -> Result<Value> {
        let ty = cx.ty(updates);
        let (zero, one) = (cx.full_like(updates, 0.0)?, cx.full_like(updates, 1.0)?);
        let is_zero = cx.compare(Compare::Eq, updates, zero)?;
        let nonzero = cx.select(is_zero, one, updates)?;
        let product = cx.one(self.with_kind(ScatterKind::Mul), &[operand, indices, nonzero])?;
        let product = self.gather(cx, product, indices, &ty, 0.0)?;
        let zeros_here = cx.select(is_zero, one, zero)?;
        let none = cx.full_like(operand, 0.0)?;
        let zeros = cx.one(self.with_kind(ScatterKind::Add), &[none, indices, zeros_here])?;
        let zeros = self.gather(cx, zeros, indices, &ty, 0.0)?;
        let others = cx.sub(zeros, zeros_here)?;
        let hidden = cx.compare(Compare::Gt, others, zero)?;
        let rest = cx.div(product, nonzero)?;
        cx.select(hidden, zero, rest)
    }

    fn product_tangent(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        d_operand: Option<Value>,
        d_updates: Option<Value>,
    ) -> Result<Option<Value>> {
        let a = match d_operand {
            Some(d) => Some(cx.one(self.clone().into(), &[d, x[1], x[2]])?),
            None => None,
        };
        let b = match d_updates {
            Some(d) => {
                let factors = self.other_factors(cx, x[0], x[1], x[2])?;
                let d = cx.mul(d, factors)?;
                let zeros = cx.full_like(x[0], 0.0)?;
                Some(cx.one(self.with_kind(ScatterKind::Add), &[zeros, x[1], d])?)
            }
            None => None,
        };
        cx.add_optional(a, b)
    }

    /// The tangent at the extremum; the operand and all updates equal to it share it equally.
    fn extremum_tangent(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        d_operand: Option<Value>,
        d_updates: Option<Value>,
        y: Value,
    ) -> Result<Option<Value>> {
        let (operand, updates) = (cx.ty(x[0]), cx.ty(x[2]));
        let add = self.with_kind(ScatterKind::Add);
        let stays = cx.compare(Compare::Eq, x[0], y)?;
        let there = self.gather(cx, y, x[1], &updates, f64::NAN)?;
        let wins = cx.compare(Compare::Eq, x[2], there)?;
        let (stays, wins) = (cx.cast(stays, operand.dtype)?, cx.cast(wins, operand.dtype)?);
        let count = cx.one(add.clone(), &[stays, x[1], wins])?;
        let a = match d_operand {
            Some(d) => cx.mul(d, stays)?,
            None => cx.zeros(&operand)?,
        };
        let total = match d_updates {
            Some(d) => {
                let picked = cx.mul(d, wins)?;
                cx.one(add, &[a, x[1], picked])?
            }
            None => a,
        };
        Ok(Some(cx.div(total, count)?))
    }
}

impl Rules for Scatter {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self) -> Attrs {
        let mut attrs = self.dims.attrs();
        attrs.push((
            "mode",
            match self.mode {
                ScatterMode::Clip => "clip".into(),
                ScatterMode::Drop => "drop".into(),
            },
        ));
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 3)?;
        let (x, updates) = (&args[0], &args[2]);
        if x.dtype != updates.dtype {
            return Err(InferError::DTypes(x.dtype, updates.dtype));
        }
        if matches!(self.kind, ScatterKind::Add | ScatterKind::Mul) && x.dtype == DType::Bool {
            return Err(InferError::DType { operand: 0, expected: "a number dtype (not bool)", got: x.dtype });
        }
        let sizes = self.dims.slice_sizes(x.rank(), &updates.shape);
        let shape = self.dims.check(x, &args[1], &sizes, self.mode == ScatterMode::Clip)?;
        if shape != updates.shape {
            return Err(InferError::other(format!(
                "updates are {updates}, but these indices need {:?}",
                shape.as_slice()
            )));
        }
        Ok(vec![x.clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        if dx[0].is_none() && dx[2].is_none() {
            return Ok(vec![None]);
        }
        Ok(vec![match (self.kind, dx[0], dx[2]) {
            (ScatterKind::Add, Some(d), None) => Some(d),
            (ScatterKind::Add | ScatterKind::Set, a, b) => {
                let a = a.map_or_else(|| cx.full_like(x[0], 0.0), Ok)?;
                let b = b.map_or_else(|| cx.full_like(x[2], 0.0), Ok)?;
                Some(cx.one(self.clone().into(), &[a, x[1], b])?)
            }
            (ScatterKind::Mul, a, b) => self.product_tangent(cx, x, a, b)?,
            (ScatterKind::Min | ScatterKind::Max, a, b) => self.extremum_tangent(cx, x, a, b, y[0])?,
        }])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None; 3]) };
        let TransposeArg::Known(indices) = args[1] else {
            return not_linear(self);
        };
        let updates = match &args[2] {
            TransposeArg::Linear(ty) => ty.clone(),
            TransposeArg::Known(v) => cx.ty(*v),
        };
        let (operand, update) = (args[0].is_linear(), args[2].is_linear());
        let mut cts = vec![None; 3];
        match self.kind {
            ScatterKind::Add => {
                cts[0] = operand.then_some(c);
                if update {
                    cts[2] = Some(self.gather(cx, c, indices, &updates, 0.0)?);
                }
            }
            ScatterKind::Set => {
                if operand {
                    let zeros = cx.zeros(&updates)?;
                    cts[0] = Some(cx.one(self.clone().into(), &[c, indices, zeros])?);
                }
                if update {
                    let operand = cx.ty(c);
                    let stays = self.survivors(cx, &operand, indices, &updates)?;
                    let read = self.gather(cx, c, indices, &updates, 0.0)?;
                    cts[2] = Some(cx.zero_unless(stays, read)?);
                }
            }
            ScatterKind::Mul => match (&args[0], &args[2]) {
                (TransposeArg::Linear(_), TransposeArg::Known(u)) => {
                    cts[0] = Some(cx.one(self.clone().into(), &[c, indices, *u])?)
                }
                _ => return not_linear(self),
            },
            ScatterKind::Min | ScatterKind::Max => return not_linear(self),
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
        let updates = if batched[2] { x[2] } else { cx.broadcast_leading(x[2], size)? };
        // Unbatched indices: the batch axis is inside the slices. Otherwise it is a batch axis of the indices.
        let dims = if batched[1] { self.dims.batch_all() } else { self.dims.batch_operand() };
        let wide = Scatter { dims, ..self.clone() };
        Ok(vec![(cx.one(wide.into(), &[operand, x[1], updates])?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.kind {
            ScatterKind::Set | ScatterKind::Add => SavedForBackward::inputs(&[1]),
            _ => SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0, 1, 2]) },
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (x, indices, updates) = (&args[0], &args[1], &args[2]);
        let ty = eval_types(self, args)?.remove(0);
        let sizes = self.dims.slice_sizes(ty.rank(), &updates.ty().shape);
        let mut items: Vec<Scalar> = x.scalars().collect();
        let mut news = updates.scalars();
        let clip = self.mode == ScatterMode::Clip;
        self.dims.walk(x.ty(), indices, &sizes, &updates.ty().shape, clip, |to| {
            if let (Some(new), Some(i)) = (news.next(), to) {
                items[i] = self.kind.combine().map_or(new, |f| f.eval(items[i], new));
            }
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Scatter>> {
        let kind = ScatterKind::ALL.into_iter().find(|k| k.name() == name)?;
        Some((|| {
            Ok(Scatter {
                kind,
                dims: SliceDims::parse(attrs)?,
                mode: attrs.word("mode", |w| match w {
                    "clip" => Some(ScatterMode::Clip),
                    "drop" => Some(ScatterMode::Drop),
                    _ => None,
                })?,
            })
        })())
    }
}
