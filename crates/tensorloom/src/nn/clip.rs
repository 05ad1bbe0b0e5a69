//! Clipping the gradients of parameters, in place.

use crate::{Tensor, no_grad, record};

/// The gradients that there are.
fn gradients(params: &[Tensor]) -> Vec<Tensor> {
    params.iter().filter_map(Tensor::grad).collect()
}

/// Scales all gradients together so that their norm is at most `max_norm`; gives the norm they had.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let w = tensor(&[3.0, 4.0], 2).requires_grad_();
/// (w.square().sum() / 2).backward()?;
/// assert_eq!(nn::clip_grad_norm_(&[w.clone()], 1.0).item::<f32>()?, 5.0);
/// assert!((w.grad().unwrap().square().sum().item::<f32>()? - 1.0).abs() < 1e-5);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn clip_grad_norm_(params: &[Tensor], max_norm: f64) -> Tensor {
    let _here = record::here();
    clip_grad_norm_by_(params, max_norm, 2.0)
}

/// [`clip_grad_norm_`] by another norm: the p-th root of a sum of p-th powers, or the largest size if `p` is infinite.
#[track_caller]
pub fn clip_grad_norm_by_(params: &[Tensor], max_norm: f64, p: f64) -> Tensor {
    let _here = record::here();
    if !(p > 0.0 && max_norm >= 0.0) {
        return record::invalid(
            "clip_grad_norm_",
            format!("norm {p} with a limit of {max_norm}: both must be positive"),
        );
    }
    no_grad(|| {
        let grads = gradients(params);
        // Powers of an f16 may be larger than the largest f16, and so may the norm.
        let parts = grads.iter().map(|g| g.cast(g.dtype().accumulator())).map(|g| match p {
            f64::INFINITY => g.abs().max(),
            2.0 => g.square().sum(),
            p => g.abs().pow(p).sum(),
        });
        let total = match p {
            f64::INFINITY => parts.reduce(|a, b| a.maximum(b)),
            2.0 => parts.reduce(|a, b| a + b).map(|s| s.sqrt()),
            p => parts.reduce(|a, b| a + b).map(|s| s.pow(1.0 / p)),
        };
        let Some(total) = total else { return crate::zeros(()) };
        // 1e-6 as in PyTorch.
        let scale = (max_norm / (&total + 1e-6)).minimum(1.0);
        grads.iter().find_map(|g| g.mul_(&scale).error()).map_or(total, Tensor::from_error)
    })
}

/// Moves every element of every gradient into `-limit..=limit`.
#[track_caller]
pub fn clip_grad_value_(params: &[Tensor], limit: f64) {
    let _here = record::here();
    no_grad(|| gradients(params).iter().for_each(|g| drop(g.clamp_(-limit, limit))));
}
