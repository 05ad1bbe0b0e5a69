//! Reductions over sliding windows: pooling. Padding has the value of the reduction's identity.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Scalar};
use crate::types::{for_each_index, offset};

/// Reduces every window to one element (pooling); padding counts as the identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceWindow {
    /// The reduction operator.
    pub kind: ReduceKind,
    /// The window size along each axis.
    pub window: Shape,
    /// The window configuration.
    pub windows: WindowConfig,
}

impl ReduceWindow {
    fn empty(&self, base: &[usize], count: &[usize]) -> bool {
        [base, count, &self.window].iter().any(|s| s.contains(&0))
    }

    /// The tangent of window products: windows are materialized as patches, and reduced like `reduce`.
    fn product_tangent(&self, cx: &mut dyn GraphTransforms, x: Value, d: Value, y: Value) -> Result<Value> {
        let count = cx.ty(y).shape;
        if self.empty(&cx.ty(x).shape, &count) {
            return cx.full_like(y, 0.0);
        }
        let (xs, ds) = (self.patches(cx, x, &count, 1.0)?, self.patches(cx, d, &count, 0.0)?);
        let axes: Vec<usize> = (0..count.len()).collect();
        reduce::product_tangent(cx, xs, ds, &axes)
    }

    /// The elements of all windows, `[window.., count..]`, with `fill` for the padding.
    fn patches(&self, cx: &mut dyn GraphTransforms, x: Value, count: &[usize], fill: f64) -> Result<Value> {
        let w = &self.windows;
        let fill = cx.scalar(cx.ty(x).dtype, fill)?;
        let interior: Shape = w.base_dilation.iter().map(|d| d - 1).collect();
        let mut v = cx.pad(x, fill, &w.low, &w.high, &interior)?;
        let rank = count.len();
        for (a, &windows) in count.iter().enumerate() {
            let shape = [self.window[a], windows];
            let (k, o) = (cx.iota(DType::I64, &shape, 0)?, cx.iota(DType::I64, &shape, 1)?);
            let k = cx.scale(k, w.window_dilation[a] as f64)?;
            let o = cx.scale(o, w.strides[a] as f64)?;
            let at = cx.add(k, o)?;
            // Axis `a` is at 2a now, because each axis before it became two.
            v = cx.take(v, at, 2 * a, GatherMode::Clip)?;
        }
        let order: Vec<usize> = (0..rank).map(|a| 2 * a).chain((0..rank).map(|a| 2 * a + 1)).collect();
        cx.permute(v, &order)
    }
}

impl Rules for ReduceWindow {
    fn name(&self) -> &'static str {
        window_name(self.kind)
    }

    fn attrs(&self) -> Attrs {
        let mut attrs = self.windows.attrs();
        attrs.insert(0, ("window", self.window.as_slice().into()));
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        self.kind.check_dtype(args[0].dtype)?;
        let shape = self.windows.count(&args[0].shape, &self.window)?;
        Ok(vec![Type::checked(args[0].dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        Ok(vec![match self.kind {
            ReduceKind::Sum => Some(cx.one(self.clone().into(), &[d])?),
            ReduceKind::Max | ReduceKind::Min => {
                let gather = WindowGather {
                    max: self.kind == ReduceKind::Max,
                    window: self.window.clone(),
                    windows: self.windows.clone(),
                };
                Some(cx.one(gather.into(), &[x[0], d])?)
            }
            ReduceKind::Prod => Some(self.product_tangent(cx, x[0], d, y[0])?),
            ReduceKind::Any | ReduceKind::All => None,
        }])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        let (TransposeArg::Linear(ty), ReduceKind::Sum) = (&args[0], self.kind) else {
            return not_linear(self);
        };
        let count = cx.ty(c).shape;
        if self.empty(&ty.shape, &count) {
            return Ok(vec![Some(cx.zeros(ty)?)]);
        }
        // The transposed windows. All their weights are 1, so nothing has to be flipped.
        let back = ReduceWindow { windows: self.windows.transposed(&ty.shape, &self.window, &count)?, ..self.clone() };
        Ok(vec![Some(cx.one(back.into(), &[c])?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let wide = ReduceWindow {
            kind: self.kind,
            window: with_front(&self.window),
            windows: self.windows.with_leading_axis(),
        };
        Ok(vec![(cx.one(wide.into(), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.kind {
            ReduceKind::Sum | ReduceKind::Any | ReduceKind::All => SavedForBackward::none(),
            _ => SavedForBackward::inputs(&[0]),
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
        let x = &args[0];
        let (base, strides) = (&x.ty().shape, x.ty().strides());
        let (f, identity) = (self.kind.combine(), self.kind.identity(ty.dtype));
        let wide = ty.dtype.is_float() && matches!(f, Binary::Add | Binary::Mul);
        let mut items = Vec::with_capacity(ty.numel());
        for_each_index(&ty.shape, |o| {
            // Like `reduce`: sums and products of floats are rounded once.
            let start = if wide { Scalar::from_f64(DType::F64, identity.to_f64()) } else { identity };
            let mut total = start;
            self.windows.visit(base, &self.window, o, |place, _| {
                total = f.eval(total, x.get(offset(place, &strides)).cast(start.dtype()));
            });
            items.push(total.cast(ty.dtype));
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<ReduceWindow>> {
        let kind = ReduceKind::ALL.into_iter().find(|&k| window_name(k) == name)?;
        Some((|| Ok(ReduceWindow { kind, window: attrs.usizes("window")?, windows: WindowConfig::parse(attrs)? }))())
    }
}

fn window_name(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Sum => "reduce_window_sum",
        ReduceKind::Prod => "reduce_window_prod",
        ReduceKind::Max => "reduce_window_max",
        ReduceKind::Min => "reduce_window_min",
        ReduceKind::Any => "reduce_window_any",
        ReduceKind::All => "reduce_window_all",
    }
}

pub(super) fn with_front(window: &Shape) -> Shape {
    std::iter::once(1).chain(window.iter().copied()).collect()
}
