//! Cumulative sums, products, maxima and minima along an axis.

use super::*;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar};

/// Each element of the result combines all elements up to it along an axis, or, `reverse`, from it on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cumulative {
    /// The reduction operator.
    pub kind: ReduceKind,
    /// The axis.
    pub axis: usize,
    /// Whether it runs from the last element to the first.
    pub reverse: bool,
}

fn cumulative_name(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Sum => "cumsum",
        ReduceKind::Prod => "cumprod",
        ReduceKind::Max => "cummax",
        ReduceKind::Min => "cummin",
        ReduceKind::Any => "cumany",
        ReduceKind::All => "cumall",
    }
}

impl Cumulative {
    /// The tangent of cumulative products by the recurrence (p, dp) ← (p·x, dp·x + p·dx), with all steps: it needs no
    /// division, so zeros are allowed.
    fn product_tangent(&self, cx: &mut dyn GraphTransforms, x: Value, d: Value) -> Result<Value> {
        let (xs, ds) = (cx.move_axis(x, self.axis, 0)?, cx.move_axis(d, self.axis, 0)?);
        let ty = cx.ty(xs);
        let step = ty.unbatched();
        let mut b = Builder::new();
        let v: Vec<Value> = (0..4).map(|_| b.input(step.dtype, &step.shape)).collect();
        let p = b.mul(v[0], v[2])?;
        let (l, r) = (b.mul(v[1], v[2])?, b.mul(v[0], v[3])?);
        let dp = b.add(l, r)?;
        let body = b.finish(&[p, dp, dp]);
        let scan = Scan { reverse: self.reverse, ..Scan::over(0, 2, ty.shape[0], body) };
        let (one, zero) = (cx.full(&step, Scalar::one(ty.dtype))?, cx.zeros(&step)?);
        let outs = cx.emit(scan.into(), &[one, zero, xs, ds])?;
        cx.move_axis(outs[2], 0, self.axis)
    }

    /// The tangent at the element where the cumulative extremum was last reached: of equal elements the later one counts, as in
    /// PyTorch.
    fn extremum_tangent(&self, cx: &mut dyn GraphTransforms, x: Value, d: Value, y: Value) -> Result<Value> {
        let ty = cx.ty(x);
        let n = ty.shape[self.axis];
        let dtype = if i32::try_from(n).is_ok() { DType::I32 } else { DType::I64 };
        let place = cx.iota(dtype, &ty.shape, self.axis)?;
        // NaN is not equal to itself, propagates to every later extremum, and is its own position.
        let equal = cx.compare(Compare::Eq, x, y)?;
        let nan = cx.compare(Compare::Ne, x, x)?;
        let reached = cx.binary(Binary::Or, equal, nan)?;
        let none = if self.reverse { n.saturating_sub(1) } else { 0 };
        let none = cx.full(&cx.ty(place), Scalar::from_i64(dtype, none as i64))?;
        let candidates = cx.select(reached, place, none)?;
        let latest = Cumulative { kind: if self.reverse { ReduceKind::Min } else { ReduceKind::Max }, ..self.clone() };
        let last = cx.one(latest.into(), &[candidates])?;
        cx.take_along_axis(d, last, self.axis, GatherMode::Clip)
    }
}

impl Rules for Cumulative {
    fn name(&self) -> &'static str {
        cumulative_name(self.kind)
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into()), ("reverse", self.reverse.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        self.kind.check_dtype(args[0].dtype)?;
        check_axis(self.axis, args[0].rank())?;
        Ok(vec![args[0].clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        Ok(vec![match self.kind {
            ReduceKind::Sum => Some(cx.one(self.clone().into(), &[d])?),
            ReduceKind::Prod => Some(self.product_tangent(cx, x[0], d)?),
            // An axis without elements has no extremum.
            ReduceKind::Max | ReduceKind::Min if cx.ty(d).numel() == 0 => Some(d),
            ReduceKind::Max | ReduceKind::Min => Some(self.extremum_tangent(cx, x[0], d, y[0])?),
            ReduceKind::Any | ReduceKind::All => None,
        }])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        if self.kind != ReduceKind::Sum || !args[0].is_linear() {
            return not_linear(self);
        }
        let back = Cumulative { reverse: !self.reverse, ..self.clone() };
        Ok(vec![Some(cx.one(back.into(), &[c])?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let wide = Cumulative { axis: self.axis + 1, ..self.clone() };
        Ok(vec![(cx.one(wide.into(), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.kind {
            ReduceKind::Prod => {
                SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0]) }
            }
            // PyTorch saves the indices of the extrema, which are a separate result.
            _ => SavedForBackward::none(),
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let n = ty.shape[self.axis];
        let inner: usize = ty.shape[self.axis + 1..].iter().product();
        let (f, identity) = (self.kind.combine(), self.kind.identity(ty.dtype));
        // Like `reduce`: sums and products of floats are accumulated in f64.
        let wide = ty.dtype.is_float() && matches!(f, Binary::Add | Binary::Mul);
        let start = if wide { Scalar::from_f64(DType::F64, identity.to_f64()) } else { identity };
        let mut items = vec![identity; ty.numel()];
        for line in 0..ty.numel() / n.max(1) {
            let base = line / inner * inner * n + line % inner;
            let mut total = start;
            for step in 0..n {
                let i = base + inner * if self.reverse { n - 1 - step } else { step };
                total = f.eval(total, args[0].get(i).cast(start.dtype()));
                items[i] = total.cast(ty.dtype);
            }
        }
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Cumulative>> {
        let kind = ReduceKind::ALL.into_iter().find(|&k| cumulative_name(k) == name)?;
        Some((|| Ok(Cumulative { kind, axis: attrs.usize("axis")?, reverse: attrs.bool("reverse")? }))())
    }
}
