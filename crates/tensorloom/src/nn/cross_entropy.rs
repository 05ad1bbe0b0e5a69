//! Cross entropy with all of PyTorch's choices.

use crate::{DType, Tensor, np, record};
use ir::composites::loss;

/// What becomes of the losses of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean over the rows that are not ignored, by weight.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay; those of ignored rows are 0.
    None,
}

/// Choices about [`cross_entropy`].
#[derive(Clone, Debug, Default)]
pub struct CrossEntropy {
    /// Rows with this label don't count.
    pub ignore_index: Option<i64>,
    /// The share of the target that all classes have in common.
    pub label_smoothing: f64,
    /// Times the square of the logarithm of the sum of exponentials, added.
    pub z_loss: f64,
    /// `[V]`: how much each class counts.
    pub weight: Option<Tensor>,
    /// Mean, sum, or a loss for each row.
    pub reduction: Reduction,
}

/// Cross entropy of logits `[.., V]` for integer labels `[..]`, or for probabilities `[.., V]`.
///
/// ```
/// use tensorloom::prelude::*;
/// use tensorloom::nn::{CrossEntropy, Reduction};
///
/// let (logits, labels) = (zeros((2, 4)), tensor(&[1, 3], 2));
/// let loss = nn::cross_entropy(&logits, &labels, CrossEntropy::default());
/// assert!((loss.item::<f32>()? - 4f32.ln()).abs() < 1e-6);
///
/// let rows = CrossEntropy { ignore_index: Some(3), reduction: Reduction::None, ..Default::default() };
/// assert_eq!(nn::cross_entropy(&logits, &labels, rows).i(1).item::<f32>()?, 0.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, options: CrossEntropy) -> Tensor {
    let _here = record::here();
    if let Some(e) = [logits, labels].into_iter().chain(&options.weight).find_map(|t| t.error()) {
        return Tensor::from_error(e);
    }
    let classes = logits.shape().last().copied().unwrap_or(0);
    if let Some(w) = &options.weight
        && w.shape() != [classes]
    {
        return record::invalid("cross_entropy", format!("the weights are {}, not [{classes}]", w.ty()));
    }
    if labels.dtype().is_float() {
        return probabilities(logits, labels, &options);
    }
    let rows = match &options.weight {
        None => plain(logits, labels, &options),
        Some(w) => weighted(logits, labels, w, &options),
    };
    match options.reduction {
        Reduction::None => rows,
        Reduction::Sum => rows.sum(),
        Reduction::Mean => rows.sum() / count(labels, rows.dtype(), &options),
    }
}

/// A loss for each row, by the composite that keeps no probabilities.
#[track_caller]
fn plain(logits: &Tensor, labels: &Tensor, o: &CrossEntropy) -> Tensor {
    let (ignore_index, label_smoothing, z_loss) = (o.ignore_index, o.label_smoothing, o.z_loss);
    let options = loss::CrossEntropyOptions { ignore_index, label_smoothing, z_loss };
    record::one(&[logits, labels], |b, v| {
        let types = [b.ty(v[0]), b.ty(v[1])];
        let numbers = [ignore_index.map_or(f64::NAN, |i| i as f64), label_smoothing, z_loss];
        let make = || loss::cross_entropy(&types[0], &types[1], options);
        let op = engine::composite("cross_entropy", &types, &numbers, make)?;
        Ok(b.emit(op.into(), v)?[0])
    })
}

/// Which rows count, and labels that name a class in every row.
fn counted(labels: &Tensor, o: &CrossEntropy) -> (Option<Tensor>, Tensor) {
    match o.ignore_index {
        None => (None, labels.clone()),
        Some(i) => {
            let counts = labels.ne(i);
            let safe = counts.select(labels, 0);
            (Some(counts), safe)
        }
    }
}

/// The weight of each row's class, 0 for rows that are ignored.
fn row_weights(weight: &Tensor, labels: &Tensor, o: &CrossEntropy) -> Tensor {
    let (counts, safe) = counted(labels, o);
    let w = weight.index_select(0, &safe.flatten()).reshape(labels.shape());
    counts.map_or_else(|| w.clone(), |c| c.select(&w, 0))
}

/// What a mean is divided by.
fn count(labels: &Tensor, dtype: DType, o: &CrossEntropy) -> Tensor {
    match (&o.weight, o.ignore_index) {
        (Some(w), _) => row_weights(w, labels, o).cast(dtype).sum(),
        (None, Some(i)) => labels.ne(i).cast(dtype).sum(),
        (None, None) => crate::engine_of(labels).full(dtype, &[], labels.numel()),
    }
}

fn weighted(logits: &Tensor, labels: &Tensor, weight: &Tensor, o: &CrossEntropy) -> Tensor {
    let logits = wide(logits);
    let (counts, safe) = counted(labels, o);
    let log_p = logits.log_softmax();
    let hit = -log_p.gather(-1, &safe.unsqueeze(-1)).squeeze(-1) * row_weights(weight, labels, o);
    let mut rows = hit * (1.0 - o.label_smoothing);
    if o.label_smoothing > 0.0 {
        rows = rows - (&log_p * weight).sum_axes(-1, false) * (o.label_smoothing / logits.size(-1) as f64);
    }
    if o.z_loss > 0.0 {
        rows = rows + logits.logsumexp(-1, false).square() * o.z_loss;
    }
    counts.map_or_else(|| rows.clone(), |c| c.select(&rows, 0))
}

/// Targets that are probabilities.
#[track_caller]
fn probabilities(logits: &Tensor, target: &Tensor, o: &CrossEntropy) -> Tensor {
    if target.shape() != logits.shape() {
        let text = format!("{} are neither labels nor probabilities for {}", target.ty(), logits.ty());
        return record::invalid("cross_entropy", text);
    }
    if o.ignore_index.is_some() {
        return record::invalid(
            "cross_entropy",
            "an ignored label is not supported for probabilities; mask the rows instead",
        );
    }
    let logits = wide(logits);
    let classes = logits.size(-1) as f64;
    let target = target * (1.0 - o.label_smoothing) + o.label_smoothing / classes;
    let mut terms = logits.log_softmax() * target;
    if let Some(w) = &o.weight {
        terms = terms * w;
    }
    let mut rows = -terms.sum_axes(-1, false);
    if o.z_loss > 0.0 {
        rows = rows + logits.logsumexp(-1, false).square() * o.z_loss;
    }
    match o.reduction {
        Reduction::None => rows,
        Reduction::Sum => rows.sum(),
        Reduction::Mean => rows.mean(),
    }
}

/// Losses of narrow floats are computed in f32.
fn wide(x: &Tensor) -> Tensor {
    x.cast(x.dtype().promote(DType::F32).unwrap_or(DType::F32))
}

/// Minus the log-probability (`[.., V]`) of each label (`[..]`).
#[track_caller]
pub fn nll_loss(log_probs: &Tensor, labels: &Tensor) -> Tensor {
    let _here = record::here();
    -np::mean(&log_probs.gather(-1, &labels.unsqueeze(-1)), ())
}
