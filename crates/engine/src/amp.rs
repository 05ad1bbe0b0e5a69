//! Mixed precision (§12): matrix products in f16 or bf16, reductions in f32, and no update if a gradient is not finite.

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::tensor::Tensor;
use ir::{DType, Loc, Value};

/// Runs `f` with matrix products that take operands and return results in `dtype` (f16 or bf16, accumulated in f32). Sums, means,
/// exponentials, logarithms, norms and losses are computed in f32.
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    context::with_autocast(Some(dtype), f)
}

/// The dtype of matrix products inside [`autocast`]; `None` outside.
pub fn autocast_dtype() -> Option<DType> {
    context::autocast()
}

/// Casts an operand of a matrix product to the autocast dtype.
pub(crate) fn to_autocast_dtype(b: &mut dyn Recorder, v: Value) -> ir::Result<Value> {
    match context::autocast() {
        Some(d) if b.ty(v).dtype == DType::F32 => b.cast(v, d),
        _ => Ok(v),
    }
}

/// Casts an operand to f32, for ops that need the range or the precision.
pub(crate) fn to_f32(b: &mut dyn Recorder, v: Value) -> ir::Result<Value> {
    match context::autocast() {
        Some(_) if matches!(b.ty(v).dtype, DType::F16 | DType::BF16) => b.cast(v, DType::F32),
        _ => Ok(v),
    }
}

/// Scales losses so that gradients in f16 don't underflow, and skips steps whose gradients overflowed.
///
/// The scale and the condition are tensors, so inside a compiled region the whole step, with its condition, is one program.
///
/// ```ignore
/// scaler.scale(&loss).backward()?;
/// let finite = scaler.unscale_(&params)?;
/// no_grad(|| params.iter().for_each(|p| { p.copy_where_(&finite, &(p - lr * p.grad().unwrap())); }));
/// scaler.update_(&finite);
/// ```
pub struct GradScaler {
    scale: Tensor,
    steps: Tensor,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: f64,
}

impl GradScaler {
    /// A scaler that begins at 2¹⁶, doubles after 2000 steps without overflow, and halves after a step with overflow.
    pub fn new(engine: &Engine) -> GradScaler {
        GradScaler::with_options(engine, 65536.0, 2.0, 0.5, 2000)
    }

    /// A scaler with the given initial scale, growth factor, backoff factor and number of steps between growths.
    pub fn with_options(engine: &Engine, scale: f64, growth: f64, backoff: f64, interval: usize) -> GradScaler {
        GradScaler {
            scale: engine.full(DType::F32, &[], scale),
            steps: engine.zeros(DType::F32, &[]),
            growth_factor: growth,
            backoff_factor: backoff,
            growth_interval: interval as f64,
        }
    }

    /// Returns the loss times the scale.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        loss * &self.scale
    }

    /// The current scale.
    pub fn get_scale(&self) -> &Tensor {
        &self.scale
    }

    /// Divides the gradients by the scale; returns a bool scalar that is true if all of them are finite.
    #[track_caller]
    pub fn unscale_(&self, params: &[Tensor]) -> Result<Tensor> {
        let at = Loc::caller();
        context::no_grad(|| {
            let inverse = self.scale.reciprocal();
            let mut finite: Option<Tensor> = None;
            for p in params {
                let Some(g) = p.grad() else { continue };
                g.mul_(&inverse).check_at(&at)?;
                let ok = g.is_finite().cast(DType::F32).min();
                finite = Some(finite.map_or(ok.clone(), |f| f.minimum(&ok)));
            }
            match finite {
                Some(f) => Ok(f.cast(DType::Bool)),
                None => Err(Error::Autograd { reason: "none of these tensors has a gradient".into(), at }),
            }
        })
    }

    /// Updates the scale after a step.
    #[track_caller]
    pub fn update_(&self, finite: &Tensor) {
        context::no_grad(|| {
            let steps = &self.steps + 1.0;
            let full = steps.ge(&self.steps.full_like(self.growth_interval));
            let grown = full.select(&(&self.scale * self.growth_factor), &self.scale);
            let next = finite.select(&grown, &(&self.scale * self.backoff_factor));
            let zero = self.steps.full_like(0.0);
            let count = finite.select(&full.select(&zero, &steps), &zero);
            self.scale.copy_(&next);
            self.steps.copy_(&count);
        });
    }
}

impl Tensor {
    /// A tensor filled with a number, with the shape and dtype of this tensor.
    #[track_caller]
    pub fn full_like(&self, x: impl Into<crate::Number>) -> Tensor {
        let (at, x) = (Loc::caller(), x.into());
        crate::record::one(&at, &[self], |b, v| {
            let ty = b.ty(v[0]);
            let x = crate::record::number_like(b, ty.dtype, x)?;
            let x = b.cast(x, ty.dtype)?;
            b.splat(x, &ty.shape)
        })
    }

    /// Copies `other` if the bool scalar `cond` is true, else leaves the elements unchanged: a commit gated by a select.
    #[track_caller]
    pub fn copy_where_(&self, cond: &Tensor, other: &Tensor) -> Tensor {
        let new = cond.select(other, &self.detach());
        self.copy_(&new)
    }
}
