//! Normalisation over a batch, with running statistics.

use super::{Layer, Training};
use crate::{DType, Tensor, engine, no_grad, record};

/// Mean 0 and variance 1 of each feature of `[N, C, ..]` over the batch and all places, then scaled and moved; outside of
/// training by the statistics of batches seen so far. Parameters and buffers have PyTorch's names.
///
/// `forward` updates the statistics in place while training. A pure function calls [`BatchNorm::apply`] instead, which gives
/// the layer with its new statistics beside the result:
///
/// ```
/// use tensorloom::prelude::*;
///
/// let layer = nn::BatchNorm::new(3);
/// layer.forward(&(randn((8, 3)) + 5)); // statistics move towards 5
/// assert!(layer.running_mean.min().item::<f32>()? > 0.2);
///
/// let pure = jit(|(layer, x): (nn::BatchNorm, Tensor)| layer.apply(&x));
/// let (y, layer) = pure.call((layer, randn((8, 3))));
/// assert_eq!((y.shape(), layer.num_batches_tracked.item::<i64>()?), (&[8, 3][..], 2));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone, Debug, macros::Module, macros::Tree)]
pub struct BatchNorm {
    /// The scale of each feature.
    pub weight: Tensor,
    /// What is added to each feature.
    pub bias: Tensor,
    /// The mean of each feature so far.
    pub running_mean: Tensor,
    /// The variance of each feature so far, over `n − 1`.
    pub running_var: Tensor,
    /// Batches so far, as i64.
    pub num_batches_tracked: Tensor,
    /// The share of a new batch in the statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
    /// Whether batches are normalised by themselves.
    pub training: Training,
}

/// [`BatchNorm`] of `[N, C]` or `[N, C, L]`.
pub type BatchNorm1d = BatchNorm;
/// [`BatchNorm`] of `[N, C, H, W]`.
pub type BatchNorm2d = BatchNorm;

impl BatchNorm {
    /// Scale 1, nothing added, `eps` 1e-5, momentum 0.1.
    pub fn new(features: usize) -> BatchNorm {
        BatchNorm {
            weight: crate::ones(features).requires_grad_(),
            bias: crate::zeros(features).requires_grad_(),
            running_mean: crate::zeros(features),
            running_var: crate::ones(features),
            num_batches_tracked: engine().zeros(DType::I64, &[]),
            momentum: 0.1,
            eps: 1e-5,
            training: Training::default(),
        }
    }

    /// With another share of a new batch in the statistics.
    pub fn momentum(mut self, momentum: f64) -> BatchNorm {
        self.momentum = momentum;
        self
    }

    /// With another `eps`.
    pub fn eps(mut self, eps: f64) -> BatchNorm {
        self.eps = eps;
        self
    }

    fn normalized(&self, x: &Tensor, mean: &Tensor, var: &Tensor) -> Tensor {
        let shape: Vec<usize> = (0..x.rank()).map(|a| if a == 1 { x.shape()[1] } else { 1 }).collect();
        let wide = |t: &Tensor| t.reshape(&shape);
        let scale = wide(&((var + self.eps).rsqrt() * &self.weight));
        (x - wide(mean)) * scale + wide(&self.bias)
    }

    /// What is wrong with an input.
    #[track_caller]
    fn misfit(&self, x: &Tensor) -> Option<Tensor> {
        if x.error().is_some() {
            return Some(x.clone());
        }
        let features = self.weight.numel();
        if x.rank() < 2 || x.shape()[1] != features {
            return Some(record::invalid("batch_norm", format!("{} is not [N, {features}, ..]", x.ty())));
        }
        if self.training.is_on() && x.numel() / features.max(1) < 2 {
            let text = format!(
                "{} has one value per feature, which has no variance: use a larger batch, or evaluation mode",
                x.ty()
            );
            return Some(record::invalid("batch_norm", text));
        }
        None
    }

    /// The result, and the layer with its statistics after this batch; itself where it isn't being trained.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> (Tensor, BatchNorm) {
        let _here = record::here();
        if let Some(bad) = self.misfit(x) {
            return (bad, self.clone());
        }
        if !self.training.is_on() {
            return (self.normalized(x, &self.running_mean, &self.running_var), self.clone());
        }
        let axes: Vec<usize> = (0..x.rank()).filter(|a| *a != 1).collect();
        let (mean, var) = (x.mean_axes(&axes, false), x.var_axes(&axes, 0, false));
        let y = self.normalized(x, &mean, &var);
        let n = (x.numel() / self.weight.numel().max(1)) as f64;
        let moved = |old: &Tensor, new: Tensor| {
            let new = new.cast(old.dtype()).stop_gradient();
            old * (1.0 - self.momentum) + new * self.momentum
        };
        let next = BatchNorm {
            running_mean: moved(&self.running_mean, mean),
            running_var: moved(&self.running_var, var * (n / (n - 1.0))),
            num_batches_tracked: &self.num_batches_tracked + 1,
            ..self.clone()
        };
        (y, next)
    }
}

impl Layer for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _here = record::here();
        let (y, next) = self.apply(x);
        if !self.training.is_on() || y.error().is_some() {
            return y;
        }
        if engine::extension::is_pure() {
            let text = "a pure function cannot change the running statistics; call `apply`, which returns the layer with new \
                 ones";
            return record::invalid("batch_norm", text);
        }
        let changes = [
            (&self.running_mean, &next.running_mean),
            (&self.running_var, &next.running_var),
            (&self.num_batches_tracked, &next.num_batches_tracked),
        ];
        let failed = no_grad(|| changes.into_iter().find_map(|(old, new)| old.copy_(new).error()));
        failed.map_or(y, Tensor::from_error)
    }
}
