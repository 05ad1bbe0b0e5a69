//! Cross-entropy of logits and integer labels.

use super::rows::{broadcast_along_row, last_axis, row_mean, row_sum};
use super::softmax::{LogSumExp, exp_normalized, row_logsumexp};
use super::{BatchRole, CompositeBuilder, arity_mismatch, composite, float_param, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::literal::Literal;
use crate::ops::Composite;
use crate::scalar::{Binary, Compare, Scalar};
use crate::types::Type;

pub(super) const CROSS_ENTROPY: CompositeBuilder = CompositeBuilder {
    name: "cross_entropy",
    roles: |_| vec![BatchRole::Rows],
    build: |p, types| match types {
        [logits, labels] => {
            let options = CrossEntropyOptions {
                ignore_index: p.int("ignore_index"),
                label_smoothing: p.float_opt("label_smoothing").unwrap_or(0.0),
                z_loss: p.float_opt("z_loss").unwrap_or(0.0),
            };
            cross_entropy(logits, labels, options)
        }
        _ => Err(arity_mismatch("cross_entropy", types, "logits and labels")),
    },
    saves: (&[0, 1], &[1, 2]),
};

/// Parameters of [`cross_entropy`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropyOptions {
    /// Rows with this label have loss 0 and gradient 0.
    pub ignore_index: Option<i64>,
    /// The fraction of the target that is distributed over all classes.
    pub label_smoothing: f64,
    /// The coefficient of `lse²` in the loss, which keeps the log-sum-exp near 0.
    pub z_loss: f64,
}

/// The loss of every row of `logits` (`[.., V]`) for integer `labels` (`[..]`):
/// `lse - (1 - ε)·x[label] - ε·mean(x) + z·lse²`, in f32 or wider, with the two parts of the log-sum-exp as
/// private results. Everything is computed after subtraction of the row maximum.
///
/// A label outside `0..V` that is not ignored gives NaN, in the loss and in the row's gradient, so that an invalid label is
/// visible. The caller reduces the losses: a mean over valid rows divides by their number.
pub fn cross_entropy(logits: &Type, labels: &Type, options: CrossEntropyOptions) -> Result<Composite> {
    const NAME: &str = "cross_entropy";
    let axis = last_axis(NAME, logits)?;
    if !labels.dtype.is_int() || labels.shape[..] != logits.shape[..axis] {
        let text = format!("needs integer labels of shape {:?}, got {labels}", &logits.shape[..axis]);
        return Err(operand_mismatch(NAME, &[logits, labels], text));
    }
    let (smooth, z) = (options.label_smoothing, options.z_loss);
    if !(0.0..=1.0).contains(&smooth) || !z.is_finite() {
        return Err(Error::Invalid(format!(
            "cross_entropy needs a label smoothing between 0 and 1 and a finite z-loss, got {smooth} and {z}"
        )));
    }
    let classes = logits.shape[axis];
    let acc = logits.dtype.accumulator();
    let rows =
        LabelMasks { options, classes, dtype: LabelMasks::integers(labels.dtype, classes, options.ignore_index) };

    let mut b = Builder::new();
    let (xv, lv) = (b.graph.input(logits.clone()), b.graph.input(labels.clone()));
    let xa = b.cast(xv, acc)?;
    // The row maximum cancels: without it the loss is precise even if the logits are far from 0.
    let LogSumExp { max, log, shifted } = row_logsumexp(&mut b, xa)?;
    let hit = rows.is_label(&mut b, lv, xa)?;
    let at = b.zero_unless(hit, shifted)?;
    let picked = row_sum(&mut b, at)?;
    let picked = b.scale(picked, 1.0 - smooth)?;
    let mut loss = b.sub(log, picked)?;
    if smooth != 0.0 {
        let mean = row_mean(&mut b, shifted)?;
        let mean = b.scale(mean, smooth)?;
        loss = b.sub(loss, mean)?;
    }
    if z != 0.0 {
        let lse = b.add(max, log)?;
        let sq = b.mul(lse, lse)?;
        let sq = b.scale(sq, z)?;
        loss = b.add(loss, sq)?;
    }
    let loss = rows.mask_invalid_rows(&mut b, lv, loss)?;
    let stat = b.ty(loss);
    let body = b.finish(&[loss, max, log]);

    // dx = g·(softmax·(1 + 2z·lse) - (1 - ε)·[class = label] - ε/V).
    let mut b = Builder::new();
    let (xv, lv) = (b.graph.input(logits.clone()), b.graph.input(labels.clone()));
    let _loss = b.graph.input(stat.clone());
    let (max, log, g) = (b.graph.input(stat.clone()), b.graph.input(stat.clone()), b.graph.input(stat));
    let xa = b.cast(xv, acc)?;
    let mut d = exp_normalized(&mut b, xa, max, log)?;
    if z != 0.0 {
        let lse = b.add(max, log)?;
        let s = b.scale(lse, 2.0 * z)?;
        let s = b.offset(s, 1.0)?;
        let s = broadcast_along_row(&mut b, s, d)?;
        d = b.mul(d, s)?;
    }
    if smooth != 0.0 {
        d = b.offset(d, -smooth / classes as f64)?;
    }
    let hit = rows.is_label(&mut b, lv, xa)?;
    let less = b.offset(d, smooth - 1.0)?;
    let d = b.select(hit, less, d)?;
    let g = rows.mask_invalid_rows(&mut b, lv, g)?;
    let g = broadcast_along_row(&mut b, g, d)?;
    let dx = b.mul(g, d)?;
    // The gradient of an ignored row is 0 for all logits.
    let dx = rows.clear_ignored(&mut b, lv, dx)?;
    let dx = b.cast(dx, logits.dtype)?;
    let vjp = b.finish(&[dx]).without_dead_nodes();

    let mut params = Vec::new();
    if let Some(i) = options.ignore_index {
        params.push(("ignore_index".into(), Attr::Int(i)));
    }
    for (name, x) in [("label_smoothing", smooth), ("z_loss", z)] {
        if x != 0.0 {
            params.push(float_param(name, x));
        }
    }
    Ok(composite(NAME, params, body, 1, Some(vjp)))
}

/// The masks of rows that follow from their labels.
struct LabelMasks {
    options: CrossEntropyOptions,
    classes: usize,
    /// The dtype in which labels and classes are compared.
    dtype: DType,
}

impl LabelMasks {
    /// i32 if it can represent every label and every class, because some devices have no wider type. Otherwise i64; a u64 beyond it
    /// becomes negative and so stays invalid.
    fn integers(labels: DType, classes: usize, ignored: Option<i64>) -> DType {
        let narrow = !matches!(labels, DType::I64 | DType::U64 | DType::U32);
        let fits = i32::try_from(classes).is_ok() && ignored.is_none_or(|i| i32::try_from(i).is_ok());
        if narrow && fits { DType::I32 } else { DType::I64 }
    }

    fn labels(&self, b: &mut Builder, labels: Value) -> Result<Value> {
        b.cast(labels, self.dtype)
    }

    fn all(&self, b: &mut Builder, like: Value, x: i64) -> Result<Value> {
        let c = b.constant(Literal::scalar(Scalar::from_i64(self.dtype, x)))?;
        let shape = b.ty(like).shape;
        b.splat(c, &shape)
    }

    /// Whether the class at each position of `x` is its row's label.
    fn is_label(&self, b: &mut Builder, labels: Value, x: Value) -> Result<Value> {
        let labels = self.labels(b, labels)?;
        let ty = b.ty(x);
        let class = b.iota(self.dtype, &ty.shape, ty.rank() - 1)?;
        let wide = broadcast_along_row(b, labels, x)?;
        b.compare(Compare::Eq, class, wide)
    }

    /// Keeps a row's number if its label is valid; 0 if it is ignored, else NaN.
    fn mask_invalid_rows(&self, b: &mut Builder, labels: Value, x: Value) -> Result<Value> {
        let l = self.labels(b, labels)?;
        let (low, high) = (self.all(b, l, 0)?, self.all(b, l, self.classes as i64)?);
        let (ge, lt) = (b.compare(Compare::Ge, l, low)?, b.compare(Compare::Lt, l, high)?);
        let valid = b.binary(Binary::And, ge, lt)?;
        let nan = b.full_like(x, f64::NAN)?;
        let x = b.select(valid, x, nan)?;
        self.clear_ignored(b, labels, x)
    }

    /// Sets ignored rows to 0.
    fn clear_ignored(&self, b: &mut Builder, labels: Value, x: Value) -> Result<Value> {
        let Some(i) = self.options.ignore_index else {
            return Ok(x);
        };
        let l = self.labels(b, labels)?;
        let index = self.all(b, l, i)?;
        let mut kept = b.compare(Compare::Ne, l, index)?;
        if b.ty(x).rank() > b.ty(kept).rank() {
            kept = broadcast_along_row(b, kept, x)?;
        }
        b.zero_unless(kept, x)
    }
}
