//! The linear maps of max and min pooling, each the other's transpose: `window_gather(keys, x)` returns for every
//! window the element of `x` where the keys have their extremum, `window_scatter(keys, y)` adds every element of `y`
//! there.
//!
//! The first extremum of a window counts, and NaN comes before all others; padding is never selected, and a window with only
//! padding gives 0. Keys have no tangent, because the selection is locally constant.

use super::reduce_window::with_front;
use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar};
use crate::types::{for_each_index, offset};

/// Whether `new` replaces `best` as the first extremum: NaN is better than numbers, and equal elements are not.
pub(crate) fn is_better(max: bool, new: Scalar, best: Scalar) -> bool {
    let nan = |s: Scalar| s.dtype().is_float() && s.to_f64().is_nan();
    let order = if max { Compare::Gt } else { Compare::Lt };
    !nan(best) && (nan(new) || order.eval(new, best))
}

macro_rules! window_op {
    ($(#[$doc:meta])* $op:ident, $max:literal, $min:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $op {
            /// Whether it selects the largest key; otherwise the smallest.
            pub max: bool,
            /// The window size along each axis.
            pub window: Shape,
            /// The window configuration.
            pub windows: WindowConfig,
        }

        impl $op {
            fn batched(&self) -> $op {
                $op {
                    max: self.max,
                    window: with_front(&self.window),
                    windows: self.windows.with_leading_axis(),
                }
            }

            fn window_attrs(&self) -> Attrs {
                let mut attrs = self.windows.attrs();
                attrs.insert(0, ("window", self.window.as_slice().into()));
                attrs
            }

            fn parse_window(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<$op>> {
                let max = match name {
                    $max => true,
                    $min => false,
                    _ => return None,
                };
                Some((|| {
                    Ok($op {
                        max,
                        window: attrs.usizes("window")?,
                        windows: WindowConfig::parse(attrs)?,
                    })
                })())
            }

            /// The index of each window's extremum among the keys.
            fn winners(&self, keys: &Literal, count: &[usize]) -> Vec<Option<usize>> {
                let strides = keys.ty().strides();
                let mut winners = Vec::new();
                for_each_index(count, |o| {
                    let mut best: Option<usize> = None;
                    self.windows.visit(&keys.ty().shape, &self.window, o, |place, _| {
                        let at = offset(place, &strides);
                        if best.is_none_or(|b| is_better(self.max, keys.get(at), keys.get(b))) {
                            best = Some(at);
                        }
                    });
                    winners.push(best);
                });
                winners
            }
        }
    };
}

window_op! {
    /// `window_gather(keys, x)`: the element of `x` at each window's extremum of the keys.
    WindowGather, "window_gather_max", "window_gather_min"
}

window_op! {
    /// `window_scatter(keys, y)`: every element of `y` added at its window's extremum of the keys.
    WindowScatter, "window_scatter_max", "window_scatter_min"
}

fn repeat_unbatched(cx: &mut dyn GraphTransforms, x: &[Value], batched: &[bool], size: usize) -> Result<Vec<Value>> {
    x.iter().zip(batched).map(|(&v, &b)| if b { Ok(v) } else { cx.broadcast_leading(v, size) }).collect()
}

impl Rules for WindowGather {
    fn name(&self) -> &'static str {
        if self.max { "window_gather_max" } else { "window_gather_min" }
    }

    fn attrs(&self) -> Attrs {
        self.window_attrs()
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        if args[0].shape != args[1].shape {
            return Err(InferError::Shapes(args[0].shape.clone(), args[1].shape.clone()));
        }
        let shape = self.windows.count(&args[0].shape, &self.window)?;
        Ok(vec![Type::checked(args[1].dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[1] else { return Ok(vec![None]) };
        Ok(vec![Some(cx.one(self.clone().into(), &[x[0], d])?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let (TransposeArg::Known(keys), TransposeArg::Linear(_)) = (&args[0], &args[1]) else {
            return not_linear(self);
        };
        let back = WindowScatter { max: self.max, window: self.window.clone(), windows: self.windows.clone() };
        Ok(vec![None, Some(cx.one(back.into(), &[*keys, c])?)])
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let args = repeat_unbatched(cx, x, batched, size)?;
        Ok(vec![(cx.one(self.batched().into(), &args)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let winners = self.winners(&args[0], &ty.shape);
        let zero = Scalar::zero(ty.dtype);
        Ok(vec![Literal::from_fn(ty, |i| winners[i].map_or(zero, |at| args[1].get(at)))])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<WindowGather>> {
        WindowGather::parse_window(name, attrs)
    }
}

impl Rules for WindowScatter {
    fn name(&self) -> &'static str {
        if self.max { "window_scatter_max" } else { "window_scatter_min" }
    }

    fn attrs(&self) -> Attrs {
        self.window_attrs()
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let shape = self.windows.count(&args[0].shape, &self.window)?;
        if shape != args[1].shape {
            return Err(InferError::other(format!(
                "{} has {:?} windows, but {} is scattered into them",
                args[0],
                shape.as_slice(),
                args[1]
            )));
        }
        if args[1].dtype == DType::Bool {
            return Err(InferError::DType { operand: 1, expected: "a number dtype (not bool)", got: DType::Bool });
        }
        Ok(vec![Type::checked(args[1].dtype, &args[0].shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[1] else { return Ok(vec![None]) };
        Ok(vec![Some(cx.one(self.clone().into(), &[x[0], d])?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let (TransposeArg::Known(keys), TransposeArg::Linear(_)) = (&args[0], &args[1]) else {
            return not_linear(self);
        };
        let back = WindowGather { max: self.max, window: self.window.clone(), windows: self.windows.clone() };
        Ok(vec![None, Some(cx.one(back.into(), &[*keys, c])?)])
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let args = repeat_unbatched(cx, x, batched, size)?;
        Ok(vec![(cx.one(self.batched().into(), &args)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let winners = self.winners(&args[0], &args[1].ty().shape);
        let mut items = vec![Scalar::zero(ty.dtype); ty.numel()];
        for (i, at) in winners.into_iter().enumerate() {
            if let Some(at) = at {
                items[at] = Binary::Add.eval(items[at], args[1].get(i));
            }
        }
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<WindowScatter>> {
        WindowScatter::parse_window(name, attrs)
    }
}
