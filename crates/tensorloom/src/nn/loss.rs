//! Losses by PyTorch's names. All are means unless they say otherwise.

use crate::record::{self, rounded};
use crate::{Tensor, np};

/// The mean of squared differences.
#[track_caller]
pub fn mse_loss(x: &Tensor, target: &Tensor) -> Tensor {
    let _here = record::here();
    x.mse_loss(target)
}

/// The mean of absolute differences.
#[track_caller]
pub fn l1_loss(x: &Tensor, target: &Tensor) -> Tensor {
    let _here = record::here();
    rounded([x, target], |[x, target]| (x - target).abs().mean())
}

/// Half the square of differences within `beta` (over `beta`), absolute differences less `beta/2` beyond.
#[track_caller]
pub fn smooth_l1_loss(x: &Tensor, target: &Tensor, beta: f64) -> Tensor {
    let _here = record::here();
    rounded([x, target], |[x, target]| smooth_l1(&x, &target, beta))
}

fn smooth_l1(x: &Tensor, target: &Tensor, beta: f64) -> Tensor {
    let d = (x - target).abs();
    if beta == 0.0 {
        return d.mean();
    }
    // The square of what is within, so that none of a large difference overflows.
    let within = np::minimum(&d, beta);
    (&within * (&d - &within * 0.5) * (1.0 / beta)).mean()
}

/// `delta` times [`smooth_l1_loss`].
#[track_caller]
pub fn huber_loss(x: &Tensor, target: &Tensor, delta: f64) -> Tensor {
    let _here = record::here();
    rounded([x, target], |[x, target]| smooth_l1(&x, &target, delta) * delta)
}

/// Binary cross entropy of logits, without overflow.
#[track_caller]
pub fn binary_cross_entropy_with_logits(x: &Tensor, target: &Tensor) -> Tensor {
    let _here = record::here();
    // Each half keeps its small digits, and neither has a corner at 0.
    rounded([x, target], |[x, target]| (super::softplus(&-&x) * &target + super::softplus(&x) * (1.0 - &target)).mean())
}

/// Binary cross entropy of probabilities; logarithms are at least −100, as in PyTorch.
#[track_caller]
pub fn binary_cross_entropy(p: &Tensor, target: &Tensor) -> Tensor {
    let _here = record::here();
    let low = |t: Tensor| np::maximum(&t, -100.0);
    rounded([p, target], |[p, target]| -(&target * low(p.log()) + (1.0 - &target) * low((-p).log1p())).mean())
}

/// The mean of `target·(log target − x)` for log-probabilities `x`; where the target is 0 it counts as 0.
#[track_caller]
pub fn kl_div(x: &Tensor, target: &Tensor) -> Tensor {
    let _here = record::here();
    rounded([x, target], |[x, target]| {
        let some = np::not_equal(&target, 0.0);
        let safe = np::where_(&some, &target, 1.0);
        np::where_(&some, &(&target * (safe.log() - &x)), 0.0).mean()
    })
}

/// The cosine of the angle between rows along an axis; lengths are at least `eps`.
#[track_caller]
pub fn cosine_similarity(x: &Tensor, y: &Tensor, axis: isize, eps: f64) -> Tensor {
    let _here = record::here();
    let norm = |t: &Tensor| np::maximum(&t.square().sum_axes(&[axis], false).sqrt(), eps);
    rounded([x, y], |[x, y]| (&x * &y).sum_axes(&[axis], false) / (norm(&x) * norm(&y)))
}
