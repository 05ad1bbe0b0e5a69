//! Reductions over axes.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar};

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ReduceKind {
    Sum,
    Prod,
    Max,
    Min,
    Any,
    All,
}

impl ReduceKind {
    /// Every kind.
    pub const ALL: [ReduceKind; 6] =
        [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::Any, ReduceKind::All];

    /// The name of the op.
    pub fn name(self) -> &'static str {
        match self {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Prod => "reduce_prod",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
            ReduceKind::Any => "reduce_any",
            ReduceKind::All => "reduce_all",
        }
    }

    /// The operator that combines two elements.
    pub fn combine(self) -> Binary {
        match self {
            ReduceKind::Sum => Binary::Add,
            ReduceKind::Prod => Binary::Mul,
            ReduceKind::Max => Binary::Max,
            ReduceKind::Min => Binary::Min,
            ReduceKind::Any => Binary::Or,
            ReduceKind::All => Binary::And,
        }
    }

    /// Checks the dtype of the reduced operand, the first one.
    pub(crate) fn check_dtype(self, dtype: DType) -> std::result::Result<(), InferError> {
        let (fits, expected) = match self {
            ReduceKind::Any | ReduceKind::All => (dtype == DType::Bool, "bool"),
            ReduceKind::Sum | ReduceKind::Prod => (dtype != DType::Bool, "a number dtype (not bool)"),
            ReduceKind::Max | ReduceKind::Min => (true, "any dtype"),
        };
        match fits {
            true => Ok(()),
            false => Err(InferError::DType { operand: 0, expected, got: dtype }),
        }
    }

    /// The result of a reduction over no elements.
    pub fn identity(self, dtype: DType) -> Scalar {
        match self {
            ReduceKind::Sum | ReduceKind::Any => Scalar::zero(dtype),
            ReduceKind::Prod | ReduceKind::All => Scalar::one(dtype),
            ReduceKind::Max => Scalar::lowest(dtype),
            ReduceKind::Min => Scalar::highest(dtype),
        }
    }
}

/// Reduces over axes, which are removed; over no elements the result is the identity. Equal extrema share the gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// The reduction operator.
    pub kind: ReduceKind,
    /// The axes.
    pub axes: Shape,
}

impl Rules for Reduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self) -> Attrs {
        vec![("axes", self.axes.as_slice().into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let x = &args[0];
        check_axes(&self.axes, x.rank())?;
        self.kind.check_dtype(x.dtype)?;
        let shape: Shape = (0..x.rank()).filter(|a| !self.axes.contains(a)).map(|a| x.shape[a]).collect();
        Ok(vec![x.with_shape(&shape)])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        Ok(vec![match self.kind {
            ReduceKind::Sum => Some(cx.sum(d, &self.axes)?),
            ReduceKind::Max | ReduceKind::Min => Some(extremum_tangent(cx, x[0], d, y[0], &self.axes)?),
            ReduceKind::Prod => Some(product_tangent(cx, x[0], d, &self.axes)?),
            ReduceKind::Any | ReduceKind::All => None,
        }])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        match (&args[0], self.kind) {
            (TransposeArg::Linear(ty), ReduceKind::Sum) => Ok(vec![Some(cx.expand_reduced(c, &ty.shape, &self.axes)?)]),
            _ => not_linear(self),
        }
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let axes: Shape = self.axes.iter().map(|a| a + 1).collect();
        Ok(vec![(cx.one(Reduce { kind: self.kind, axes }.into(), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.kind {
            ReduceKind::Sum | ReduceKind::Any | ReduceKind::All => SavedForBackward::none(),
            ReduceKind::Prod | ReduceKind::Max | ReduceKind::Min => {
                SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0]) }
            }
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Reduce(self.kind, self.axes.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Reduce>> {
        let kind = ReduceKind::ALL.into_iter().find(|k| k.name() == name)?;
        Some(attrs.usizes("axes").map(|axes| Reduce { kind, axes }))
    }
}

/// The tangent at the extremum; equal extrema share it equally.
fn extremum_tangent(cx: &mut dyn GraphTransforms, x: Value, d: Value, y: Value, axes: &[usize]) -> Result<Value> {
    let shape = cx.ty(x).shape;
    let wide = cx.expand_reduced(y, &shape, axes)?;
    let at = cx.compare(Compare::Eq, x, wide)?;
    let dtype = cx.ty(x).dtype;
    let weight = cx.cast(at, dtype)?;
    let count = cx.sum(weight, axes)?;
    let picked = cx.mul(d, weight)?;
    let total = cx.sum(picked, axes)?;
    cx.div(total, count)
}

/// Σᵢ dxᵢ Πⱼ≠ᵢ xⱼ, where the product of the other factors is that of the previous times that of the following elements: without
/// division, so zeros are allowed, and without a recurrence of dxᵢ, so its transpose is elementwise.
pub(crate) fn product_tangent(cx: &mut dyn GraphTransforms, x: Value, d: Value, axes: &[usize]) -> Result<Value> {
    let ty = cx.ty(x);
    // Several axes are merged into one, after the kept axes.
    let (xs, ds, axis) = if let [axis] = *axes {
        (x, d, axis)
    } else {
        let kept: Vec<usize> = (0..ty.rank()).filter(|a| !axes.contains(a)).collect();
        let perm: Vec<usize> = kept.iter().chain(axes).copied().collect();
        let length: usize = axes.iter().map(|&a| ty.shape[a]).product();
        let shape: Shape = kept.iter().map(|&a| ty.shape[a]).chain([length]).collect();
        let joined = |cx: &mut dyn GraphTransforms, v: Value| -> Result<Value> {
            let p = cx.permute(v, &perm)?;
            cx.reshape(p, &shape)
        };
        (joined(cx, x)?, joined(cx, d)?, kept.len())
    };
    let shape = cx.ty(xs).shape;
    let n = shape[axis];
    if n < 2 {
        return cx.sum(ds, &[axis]);
    }
    let mut edge = shape.clone();
    edge[axis] = 1;
    let one = cx.full(&Type::new(ty.dtype, &edge), Scalar::one(ty.dtype))?;
    let before = cx.cumulative(ReduceKind::Prod, xs, axis, false)?;
    let before = cx.slice_axis(before, axis, 0, n - 1)?;
    let before = cx.concat(&[one, before], axis)?;
    let behind = cx.cumulative(ReduceKind::Prod, xs, axis, true)?;
    let behind = cx.slice_axis(behind, axis, 1, n)?;
    let behind = cx.concat(&[behind, one], axis)?;
    let others = cx.mul(before, behind)?;
    let each = cx.mul(ds, others)?;
    cx.sum(each, &[axis])
}
