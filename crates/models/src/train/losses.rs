//! The loss of each objective as a graph, with the formulas of the papers as implemented by `trl` and `sentence-transformers`.
//!
//! Ignored positions have no loss and no gradient; padding rows of an incomplete batch are ignored too, so an incomplete batch
//! has the loss of its real rows.

use super::objective_kind::{DpoForm, Objective, PAD_LABEL};
use ir::composites::loss::{CrossEntropyOptions, cross_entropy};
use ir::composites::softmax::{log_softmax, logsumexp};
use ir::ops::{Dot, ReduceKind};
use ir::{Builder, Compare, DType, GraphBuilder, Result, Type, Unary, Value};
use lang::lower::mean_cross_entropy;

const IGNORE_INDEX: i64 = -100;

/// The inputs of a loss.
pub(super) struct LossInputs {
    /// The model's logits, or its hidden states.
    pub(super) outputs: Value,
    /// The logits of the second model.
    pub(super) reference_logits: Option<Value>,
    /// The weight of the objective's own head.
    pub(super) head: Option<Value>,
    pub(super) ids: Value,
    pub(super) labels: Value,
    /// The divisors of the loss terms instead of the batch's own counts: the counts of all micro-batches of a step, `[terms]`.
    pub(super) totals: Option<Value>,
}

impl LossInputs {
    /// Divides a sum by its count, in the batch or in all micro-batches of a step.
    fn mean(&self, b: &mut Builder, term: usize, sum: Value, count: Value) -> Result<Value> {
        let count = match self.totals {
            None => count,
            Some(totals) => {
                let total = b.slice_axis(totals, 0, term, term + 1)?;
                let (total, dtype) = (b.reshape(total, &[])?, b.ty(sum).dtype);
                b.cast(total, dtype)?
            }
        };
        let count = at_least_one(b, count)?;
        b.div(sum, count)
    }

    /// The mean cross-entropy of labels that are not negative.
    fn cross_entropy(&self, b: &mut Builder, logits: Value, labels: Value) -> Result<Value> {
        if self.totals.is_none() {
            return mean_cross_entropy(b, logits, labels);
        }
        let each = label_log_probs(b, logits, labels)?;
        let each = b.neg(each)?;
        let sum = b.sum_all(each)?;
        self.mean(b, 0, sum, sum)
    }
}

/// The mean loss; with `totals` a micro-batch's contribution to the mean over a step.
pub(super) fn loss(b: &mut Builder, aim: &Objective, parts: &LossInputs) -> Result<Value> {
    let given = to_f32(b, parts.outputs)?;
    let second = match parts.reference_logits {
        Some(second) => Some(to_f32(b, second)?),
        None => None,
    };
    match *aim {
        Objective::CausalLm | Objective::MaskedLm { .. } => parts.cross_entropy(b, given, parts.labels),
        Objective::Dpo { beta, form, smoothing } => {
            let reference = second.unwrap_or(given);
            let mean = form == DpoForm::Ipo;
            let own = sequence_log_probs(b, given, parts.labels, mean)?;
            let theirs = sequence_log_probs(b, reference, parts.labels, mean)?;
            let own = margin(b, own)?;
            let theirs = margin(b, theirs)?;
            let margin = b.sub(own, theirs)?;
            let losses = preference_loss(b, margin, beta, form, smoothing)?;
            mean_over_pairs(b, losses, parts, 0)
        }
        Objective::Orpo { beta } => orpo_loss(b, given, parts, beta),
        Objective::Distill { beta, temperature, hard } => {
            let soft = distillation_loss(b, given, second.unwrap_or(given), parts, beta, temperature)?;
            if hard == 0.0 {
                return Ok(soft);
            }
            let own = parts.cross_entropy(b, given, parts.labels)?;
            let (own, soft) = (b.scale(own, hard)?, b.scale(soft, 1.0 - hard)?);
            b.add(own, soft)
        }
        Objective::Classify { .. } => {
            let head = parts.head.unwrap_or(given);
            let dtype = b.ty(given).dtype;
            let head = b.cast(head, dtype)?;
            let scores = b.one(Dot::last_axes(dtype, 3, 2).into(), &[given, head])?;
            parts.cross_entropy(b, scores, parts.labels)
        }
        Objective::Contrastive { scale } => contrastive_loss(b, given, parts, scale),
    }
}

/// Converts to f32, or keeps a wider dtype.
fn to_f32(b: &mut Builder, x: Value) -> Result<Value> {
    let dtype = b.ty(x).dtype.accumulator();
    b.cast(x, dtype)
}

/// 1 for labels that are not ignored, in a float dtype.
fn label_mask(b: &mut Builder, labels: Value, dtype: DType) -> Result<Value> {
    let zero = b.full_like(labels, 0.0)?;
    let counts = b.compare(Compare::Ge, labels, zero)?;
    b.cast(counts, dtype)
}

/// The log probability of each label; 0 for ignored labels.
fn label_log_probs(b: &mut Builder, logits: Value, labels: Value) -> Result<Value> {
    let (zero, none) = (b.full_like(labels, 0.0)?, b.full_like(labels, IGNORE_INDEX as f64)?);
    let counts = b.compare(Compare::Ge, labels, zero)?;
    let labels = b.select(counts, labels, none)?;
    let options = CrossEntropyOptions { ignore_index: Some(IGNORE_INDEX), ..CrossEntropyOptions::default() };
    let composite = cross_entropy(&b.ty(logits), &b.ty(labels), options)?;
    let losses = b.emit(composite.into(), &[logits, labels])?[0];
    b.neg(losses)
}

/// The log probability of each row `[rows]`, or its mean over tokens.
fn sequence_log_probs(b: &mut Builder, logits: Value, labels: Value, mean: bool) -> Result<Value> {
    let each = label_log_probs(b, logits, labels)?;
    let sum = b.sum(each, &[1])?;
    if !mean {
        return Ok(sum);
    }
    let dtype = b.ty(sum).dtype;
    let counts = label_mask(b, labels, dtype)?;
    let count = b.sum(counts, &[1])?;
    let count = at_least_one(b, count)?;
    b.div(sum, count)
}

fn at_least_one(b: &mut Builder, count: Value) -> Result<Value> {
    let one = b.full_like(count, 1.0)?;
    let some = b.compare(Compare::Ge, count, one)?;
    b.select(some, count, one)
}

/// The first and the second of each pair of rows `[2n, ..]`, as `[n, ..]`.
fn pairs(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let shape = b.ty(x).shape;
    let mut split: Vec<usize> = vec![shape[0] / 2, 2];
    split.extend_from_slice(&shape[1..]);
    let halves = b.reshape(x, &split)?;
    let mut to: Vec<usize> = vec![shape[0] / 2];
    to.extend_from_slice(&shape[1..]);
    let (first, second) = (b.slice_axis(halves, 1, 0, 1)?, b.slice_axis(halves, 1, 1, 2)?);
    Ok((b.reshape(first, &to)?, b.reshape(second, &to)?))
}

/// The difference between the first and the second of each pair.
fn margin(b: &mut Builder, rows: Value) -> Result<Value> {
    let (chosen, rejected) = pairs(b, rows)?;
    b.sub(chosen, rejected)
}

/// `log σ(x)` without overflow: `min(x, 0) - log(1 + exp(-|x|))`.
fn log_sigmoid(b: &mut Builder, x: Value) -> Result<Value> {
    let zero = b.full_like(x, 0.0)?;
    let below = b.compare(Compare::Lt, x, zero)?;
    let low = b.select(below, x, zero)?;
    let minus = b.neg(x)?;
    let away = b.select(below, x, minus)?;
    let small = b.unary(Unary::Exp, away)?;
    let log = b.unary(Unary::Log1p, small)?;
    b.sub(low, log)
}

fn preference_loss(b: &mut Builder, margin: Value, beta: f64, form: DpoForm, smoothing: f64) -> Result<Value> {
    match form {
        DpoForm::Sigmoid => {
            let scaled = b.scale(margin, beta)?;
            let right = log_sigmoid(b, scaled)?;
            let right = b.scale(right, smoothing - 1.0)?;
            if smoothing == 0.0 {
                return Ok(right);
            }
            let other = b.neg(scaled)?;
            let wrong = log_sigmoid(b, other)?;
            let wrong = b.scale(wrong, -smoothing)?;
            b.add(right, wrong)
        }
        DpoForm::Hinge => {
            let scaled = b.scale(margin, -beta)?;
            let short = b.offset(scaled, 1.0)?;
            let zero = b.full_like(short, 0.0)?;
            let some = b.compare(Compare::Gt, short, zero)?;
            b.select(some, short, zero)
        }
        DpoForm::Ipo => {
            let off = b.offset(margin, -1.0 / (2.0 * beta))?;
            b.mul(off, off)
        }
    }
}

/// 1 for pairs that are not padding `[n]`.
fn pair_mask(b: &mut Builder, labels: Value, dtype: DType) -> Result<Value> {
    let counts = label_mask(b, labels, dtype)?;
    let any = b.reduce(ReduceKind::Max, counts, &[1])?;
    Ok(pairs(b, any)?.0)
}

fn mean_over_pairs(b: &mut Builder, losses: Value, parts: &LossInputs, term: usize) -> Result<Value> {
    let dtype = b.ty(losses).dtype;
    let real = pair_mask(b, parts.labels, dtype)?;
    let losses = b.mul(losses, real)?;
    let (sum, count) = (b.sum_all(losses)?, b.sum_all(real)?);
    parts.mean(b, term, sum, count)
}

/// ORPO: the loss of the chosen texts, prompts included, and the odds ratio of chosen to rejected answers.
fn orpo_loss(b: &mut Builder, logits: Value, parts: &LossInputs, beta: f64) -> Result<Value> {
    let means = sequence_log_probs(b, logits, parts.labels, true)?;
    // An empty answer has probability 1, for which the odds are undefined.
    let counts = label_mask(b, parts.labels, DType::F32)?;
    let any = b.reduce(ReduceKind::Max, counts, &[1])?;
    let half = b.full_like(any, 0.5)?;
    let any = b.compare(Compare::Gt, any, half)?;
    let even = b.full_like(means, -1.0)?;
    let means = b.select(any, means, even)?;
    let (chosen, rejected) = pairs(b, means)?;
    let log_odds = margin(b, means)?;
    let against = |b: &mut Builder, x: Value| -> Result<Value> {
        let p = b.unary(Unary::Exp, x)?;
        let p = b.neg(p)?;
        b.unary(Unary::Log1p, p)
    };
    let (chosen, rejected) = (against(b, chosen)?, against(b, rejected)?);
    let other = b.sub(chosen, rejected)?;
    let log_odds = b.sub(log_odds, other)?;
    let ratio = log_sigmoid(b, log_odds)?;
    let ratio = b.scale(ratio, -beta)?;
    let ratio = mean_over_pairs(b, ratio, parts, 1)?;

    // The next token of each token: its label, or, inside the prompt, the next token ID.
    let shape = b.ty(parts.ids).shape;
    let (rows, seq) = (shape[0], shape[1]);
    let zero = b.scalar(DType::I32, 0.0)?;
    let rest = b.slice_axis(parts.ids, 1, 1, seq)?;
    let next = b.pad(rest, zero, &[0, 0], &[0, 1], &[0, 0])?;
    let (none, pad, nought) = (
        b.full_like(parts.labels, IGNORE_INDEX as f64)?,
        b.full_like(parts.labels, f64::from(PAD_LABEL))?,
        b.full_like(parts.labels, 0.0)?,
    );
    let answer = b.compare(Compare::Ge, parts.labels, nought)?;
    let padded = b.compare(Compare::Eq, parts.labels, pad)?;
    let last = b.iota(DType::I32, &[rows, seq], 1)?;
    let end = b.full_like(last, seq as f64 - 1.0)?;
    let is_last = b.compare(Compare::Eq, last, end)?;
    let prompt = b.select(padded, none, next)?;
    let prompt = b.select(is_last, none, prompt)?;
    let whole = b.select(answer, parts.labels, prompt)?;
    let (whole, _) = pairs(b, whole)?;
    let (logits, _) = pairs(b, logits)?;
    // Padding rows are prompts without an answer.
    let real = pair_mask(b, parts.labels, DType::F32)?;
    let half = b.full_like(real, 0.5)?;
    let real = b.compare(Compare::Gt, real, half)?;
    let real = b.broadcast(real, &[rows / 2, seq], &[0])?;
    let none = b.full_like(whole, IGNORE_INDEX as f64)?;
    let whole = b.select(real, whole, none)?;
    let likely = parts.cross_entropy(b, logits, whole)?;
    b.add(likely, ratio)
}

/// The generalized Jensen–Shannon divergence of student and teacher, averaged over labels that are not ignored.
fn distillation_loss(
    b: &mut Builder,
    student: Value,
    teacher: Value,
    parts: &LossInputs,
    beta: f64,
    temperature: f64,
) -> Result<Value> {
    let logs = |b: &mut Builder, x: Value| -> Result<Value> {
        let x = if temperature == 1.0 { x } else { b.scale(x, 1.0 / temperature)? };
        let composite = log_softmax(&b.ty(x))?;
        Ok(b.emit(composite.into(), &[x])?[0])
    };
    let (student, teacher) = (logs(b, student)?, logs(b, teacher)?);
    // Σ p·(log p - log q) over the vocabulary.
    let from = |b: &mut Builder, p: Value, q: Value| -> Result<Value> {
        let weight = b.unary(Unary::Exp, p)?;
        let ratio = b.sub(p, q)?;
        let each = b.mul(weight, ratio)?;
        b.sum(each, &[2])
    };
    let each = if beta == 0.0 {
        from(b, teacher, student)?
    } else if beta == 1.0 {
        from(b, student, teacher)?
    } else {
        let shape = b.ty(student).shape;
        let mut both = Vec::new();
        for (x, share) in [(student, 1.0 - beta), (teacher, beta)] {
            let x = b.offset(x, share.ln())?;
            let mut to = shape.to_vec();
            to.push(1);
            both.push(b.reshape(x, &to)?);
        }
        let stacked = b.concat(&both, 3)?;
        let composite = logsumexp(&b.ty(stacked))?;
        let mixture = b.emit(composite.into(), &[stacked])?[0];
        let (theirs, own) = (from(b, teacher, mixture)?, from(b, student, mixture)?);
        let (theirs, own) = (b.scale(theirs, beta)?, b.scale(own, 1.0 - beta)?);
        b.add(theirs, own)?
    };
    let dtype = b.ty(each).dtype;
    let counts = label_mask(b, parts.labels, dtype)?;
    let each = b.mul(each, counts)?;
    let (sum, count) = (b.sum_all(each)?, b.sum_all(counts)?);
    parts.mean(b, 0, sum, count)
}

/// The mean of the hidden states of a row's tokens, normalized to length 1: the same as `/v1/embeddings`.
fn embeddings(b: &mut Builder, states: Value, labels: Value) -> Result<Value> {
    let ty = b.ty(states);
    let counts = label_mask(b, labels, ty.dtype)?;
    let wide = b.broadcast(counts, &ty.shape, &[0, 1])?;
    let states = b.mul(states, wide)?;
    let (sum, count) = (b.sum(states, &[1])?, b.sum(counts, &[1])?);
    let count = at_least_one(b, count)?;
    let shape = b.ty(sum).shape;
    let count = b.broadcast(count, &shape, &[0])?;
    let mean = b.div(sum, count)?;
    let square = b.mul(mean, mean)?;
    let square = b.sum(square, &[1])?;
    let square = b.offset(square, 1e-24)?;
    let norm = b.unary(Unary::Sqrt, square)?;
    let norm = b.broadcast(norm, &shape, &[0])?;
    b.div(mean, norm)
}

/// Contrastive loss: classifies each text's partner among the partners of all texts of the batch.
fn contrastive_loss(b: &mut Builder, states: Value, parts: &LossInputs, scale: f64) -> Result<Value> {
    let all = embeddings(b, states, parts.labels)?;
    let (texts, likes) = pairs(b, all)?;
    let ty = b.ty(texts);
    let n = ty.shape[0];
    let scores = b.one(Dot::last_axes(ty.dtype, 2, 2).into(), &[texts, likes])?;
    let scores = b.scale(scores, scale)?;
    // Padding rows are not candidates.
    let real = pair_mask(b, parts.labels, ty.dtype)?;
    let missing = b.offset(real, -1.0)?;
    let missing = b.scale(missing, 1e9)?;
    let missing = b.broadcast(missing, &[n, n], &[1])?;
    let scores = b.add(scores, missing)?;
    let own = b.iota(DType::I32, &[n], 0)?;
    let (none, half) = (b.full_like(own, IGNORE_INDEX as f64)?, b.full_like(real, 0.5)?);
    let real = b.compare(Compare::Gt, real, half)?;
    let own = b.select(real, own, none)?;
    parts.cross_entropy(b, scores, own)
}

/// The type of a classification head's weight.
pub(super) fn head_type(states: &Type, classes: usize) -> Type {
    Type::new(DType::F32, &[classes, states.shape.last().copied().unwrap_or(1)])
}
