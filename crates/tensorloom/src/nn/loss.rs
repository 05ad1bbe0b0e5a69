//! Losses by PyTorch's names. All are means unless they say otherwise.

use crate::np;
use crate::{Tensor, write};
use ir::Compare;
use ir::composites::loss;

pub use ir::composites::loss::CrossEntropy;

/// Cross entropy of logits `[.., V]` for integer labels `[..]`: the mean over the rows that are not ignored.
///
/// ```
/// use tensorloom::{nn, tensor, zeros};
///
/// let loss = nn::cross_entropy(&zeros(&[2, 4]), &tensor(&[1i64, 3], &[2]), nn::CrossEntropy::default());
/// assert!((loss.item::<f32>()? - 4f32.ln()).abs() < 1e-6);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, options: CrossEntropy) -> Tensor {
    write::one(&[logits, labels], |b, v| {
        let ignored = options.ignore_index;
        let types = [b.ty(v[0]), b.ty(v[1])];
        let ignore = ignored.map_or(f64::NAN, |i| i as f64);
        let numbers = [ignore, options.label_smoothing, options.z_loss];
        let make = || loss::cross_entropy(&types[0], &types[1], options);
        let op = engine::composite("cross_entropy", &types, &numbers, make)?;
        let rows = b.emit(op.into(), v)?[0];
        let sum = b.sum_all(rows)?;
        let count = match ignored {
            None => b.full_like(sum, b.ty(rows).numel() as f64)?,
            Some(label) => {
                let label = b.full_like(v[1], label as f64)?;
                let counts = b.compare(Compare::Ne, v[1], label)?;
                let counts = b.cast(counts, b.ty(sum).dtype)?;
                b.sum_all(counts)?
            }
        };
        b.div(sum, count)
    })
}

/// Minus the log-probability (`[.., V]`) of each label (`[..]`).
#[track_caller]
pub fn nll_loss(log_probs: &Tensor, labels: &Tensor) -> Tensor {
    -log_probs.gather(-1, &labels.unsqueeze(-1)).mean()
}

/// The mean of squared differences.
#[track_caller]
pub fn mse_loss(x: &Tensor, target: &Tensor) -> Tensor {
    x.mse_loss(target)
}

/// The mean of absolute differences.
#[track_caller]
pub fn l1_loss(x: &Tensor, target: &Tensor) -> Tensor {
    (x - target).abs().mean()
}

/// Half the square of differences within `beta` (over `beta`), absolute differences less `beta/2` beyond.
#[track_caller]
pub fn smooth_l1_loss(x: &Tensor, target: &Tensor, beta: f64) -> Tensor {
    let d = (x - target).abs();
    if beta == 0.0 {
        return d.mean();
    }
    np::where_(&np::less(&d, beta), &(d.square() * (0.5 / beta)), &(&d - 0.5 * beta)).mean()
}

/// `delta` times [`smooth_l1_loss`].
#[track_caller]
pub fn huber_loss(x: &Tensor, target: &Tensor, delta: f64) -> Tensor {
    smooth_l1_loss(x, target, delta) * delta
}

/// Binary cross entropy of logits, without overflow.
#[track_caller]
pub fn binary_cross_entropy_with_logits(x: &Tensor, target: &Tensor) -> Tensor {
    (x.relu() - x * target + (-x.abs()).exp().log1p()).mean()
}

/// Binary cross entropy of probabilities; logarithms are at least −100, as in PyTorch.
#[track_caller]
pub fn binary_cross_entropy(p: &Tensor, target: &Tensor) -> Tensor {
    let low = |t: Tensor| np::maximum(&t, -100.0);
    -(target * low(p.log()) + (1.0 - target) * low((1.0 - p).log())).mean()
}

/// The mean of `target·(log target − x)` for log-probabilities `x`; where the target is 0 it counts as 0.
#[track_caller]
pub fn kl_div(x: &Tensor, target: &Tensor) -> Tensor {
    let some = np::greater(target, 0.0);
    let safe = np::where_(&some, target, 1.0);
    np::where_(&some, &(target * (safe.log() - x)), 0.0).mean()
}

/// The cosine of the angle between rows along an axis; lengths are at least `eps`.
#[track_caller]
pub fn cosine_similarity(x: &Tensor, y: &Tensor, axis: isize, eps: f64) -> Tensor {
    let norm = |t: &Tensor| np::maximum(&t.square().sum_axes(&[axis], false).sqrt(), eps);
    (x * y).sum_axes(&[axis], false) / (norm(x) * norm(y))
}
