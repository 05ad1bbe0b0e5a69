//! Softmax, its logarithm and the log-sum-exp, along the last axis.
//!
//! All subtract the row's maximum first, which is a constant for differentiation because the results do not depend on it. A row of
//! only -inf has no softmax (NaN, as in PyTorch and JAX), but its log-sum-exp is -inf, with gradient 0.

use super::rows::{broadcast_along_row, last_axis, row_max, row_sum};
use super::{BatchRole, CompositeBuilder, arity_mismatch, composite};
use crate::build::{Builder, GraphBuilder};
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{Composite, StopGradient};
use crate::scalar::{Compare, Unary};
use crate::types::Type;

pub(super) const SOFTMAX: CompositeBuilder = CompositeBuilder {
    name: "softmax",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| match types {
        [x] => softmax(x),
        _ => Err(arity_mismatch("softmax", types, "one operand")),
    },
    saves: (&[], &[0]),
};

pub(super) const LOG_SOFTMAX: CompositeBuilder = CompositeBuilder {
    name: "log_softmax",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| match types {
        [x] => log_softmax(x),
        _ => Err(arity_mismatch("log_softmax", types, "one operand")),
    },
    saves: (&[], &[0]),
};

pub(super) const LOGSUMEXP: CompositeBuilder = CompositeBuilder {
    name: "logsumexp",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| match types {
        [x] => logsumexp(x),
        _ => Err(arity_mismatch("logsumexp", types, "one operand")),
    },
    saves: (&[0], &[1, 2]),
};

/// The row maximum as a constant; 0 if it is not finite.
fn finite_max(b: &mut Builder, x: Value) -> Result<Value> {
    let m = row_max(b, x)?;
    let m = b.one(StopGradient.into(), &[m])?;
    let finite = b.unary(Unary::IsFinite, m)?;
    b.zero_unless(finite, m)
}

/// The log-sum-exp of every row as two summands: the row maximum, and the logarithm of the sum after its subtraction. A large
/// maximum would absorb the logarithm, so functions keep them separate where they can. Also contains `x - max`.
pub(super) struct LogSumExp {
    pub(super) max: Value,
    pub(super) log: Value,
    pub(super) shifted: Value,
}

pub(super) fn row_logsumexp(b: &mut Builder, x: Value) -> Result<LogSumExp> {
    let max = finite_max(b, x)?;
    let wide = broadcast_along_row(b, max, x)?;
    let shifted = b.sub(x, wide)?;
    let e = b.unary(Unary::Exp, shifted)?;
    let sum = row_sum(b, e)?;
    // log(0) is never evaluated, so that its derivative is 0 and not NaN.
    let (zero, one, lowest) = (b.full_like(sum, 0.0)?, b.full_like(sum, 1.0)?, b.full_like(sum, f64::NEG_INFINITY)?);
    let empty = b.compare(Compare::Eq, sum, zero)?;
    let safe = b.select(empty, one, sum)?;
    let log = b.unary(Unary::Log, safe)?;
    let log = b.select(empty, lowest, log)?;
    Ok(LogSumExp { max, log, shifted })
}

/// `x - max`, the sum of its exponentials, and the exponentials.
fn shifted_exp(b: &mut Builder, x: Value) -> Result<(Value, Value, Value)> {
    let m = row_max(b, x)?;
    let m = b.one(StopGradient.into(), &[m])?;
    let wide = broadcast_along_row(b, m, x)?;
    let shifted = b.sub(x, wide)?;
    let e = b.unary(Unary::Exp, shifted)?;
    Ok((shifted, row_sum(b, e)?, e))
}

/// The forward and backward graphs of a function whose backward needs only the result and its cotangent.
fn from_output(
    name: &str,
    x: &Type,
    forward: impl FnOnce(&mut Builder, Value) -> Result<Value>,
    backward: impl FnOnce(&mut Builder, Value, Value) -> Result<Value>,
) -> Result<Composite> {
    last_axis(name, x)?;
    let acc = x.dtype.accumulator();
    let mut b = Builder::new();
    let xv = b.graph.input(x.clone());
    let xa = b.cast(xv, acc)?;
    let y = forward(&mut b, xa)?;
    let y = b.cast(y, x.dtype)?;
    let body = b.finish(&[y]);

    let mut b = Builder::new();
    let [_x, y, g] = [(); 3].map(|()| b.graph.input(x.clone()));
    let (ya, ga) = (b.cast(y, acc)?, b.cast(g, acc)?);
    let dx = backward(&mut b, ya, ga)?;
    let dx = b.cast(dx, x.dtype)?;
    let vjp: Graph = b.finish(&[dx]);
    Ok(composite(name, Vec::new(), body, 1, Some(vjp)))
}

/// `exp(x) / Σ exp(x)`.
pub fn softmax(x: &Type) -> Result<Composite> {
    from_output(
        "softmax",
        x,
        |b, x| {
            let (_, sum, e) = shifted_exp(b, x)?;
            let wide = broadcast_along_row(b, sum, e)?;
            b.div(e, wide)
        },
        // dx = y·(g - Σ g·y).
        |b, y, g| {
            let gy = b.mul(g, y)?;
            let s = row_sum(b, gy)?;
            let s = broadcast_along_row(b, s, g)?;
            let d = b.sub(g, s)?;
            b.mul(y, d)
        },
    )
}

/// `x - log Σ exp(x)`.
pub fn log_softmax(x: &Type) -> Result<Composite> {
    from_output(
        "log_softmax",
        x,
        |b, x| {
            let (shifted, sum, _) = shifted_exp(b, x)?;
            let l = b.unary(Unary::Log, sum)?;
            let wide = broadcast_along_row(b, l, shifted)?;
            b.sub(shifted, wide)
        },
        // dx = g - exp(y)·Σ g.
        |b, y, g| {
            let s = row_sum(b, g)?;
            let s = broadcast_along_row(b, s, g)?;
            let p = b.unary(Unary::Exp, y)?;
            let ps = b.mul(p, s)?;
            b.sub(g, ps)
        },
    )
}

/// `log Σ exp(x)` over the last axis, which is removed. Its two parts are private results (see `LogSumExp`).
pub fn logsumexp(x: &Type) -> Result<Composite> {
    last_axis("logsumexp", x)?;
    let acc = x.dtype.accumulator();
    let mut b = Builder::new();
    let xv = b.graph.input(x.clone());
    let xa = b.cast(xv, acc)?;
    let LogSumExp { max, log, .. } = row_logsumexp(&mut b, xa)?;
    let y = b.add(max, log)?;
    let y = b.cast(y, x.dtype)?;
    let (out, stat) = (b.ty(y), b.ty(max));
    let body = b.finish(&[y, max, log]);

    let mut b = Builder::new();
    let (xv, _y) = (b.graph.input(x.clone()), b.graph.input(out.clone()));
    let (max, log) = (b.graph.input(stat.clone()), b.graph.input(stat));
    let g = b.graph.input(out);
    let (xa, ga) = (b.cast(xv, acc)?, b.cast(g, acc)?);
    let p = exp_normalized(&mut b, xa, max, log)?;
    let gr = broadcast_along_row(&mut b, ga, xa)?;
    let dx = b.mul(gr, p)?;
    let dx = b.cast(dx, x.dtype)?;
    let vjp = b.finish(&[dx]);
    Ok(composite("logsumexp", Vec::new(), body, 1, Some(vjp)))
}

/// `exp(x - max - log)` for the parts of a row's log-sum-exp: its softmax, and 0 where the row is only -inf.
pub(super) fn exp_normalized(b: &mut Builder, x: Value, max: Value, log: Value) -> Result<Value> {
    let lowest = b.full_like(log, f64::NEG_INFINITY)?;
    let empty = b.compare(Compare::Eq, log, lowest)?;
    let zero = b.full_like(log, 0.0)?;
    let safe = b.select(empty, zero, log)?;
    let (max, log) = (broadcast_along_row(b, max, x)?, broadcast_along_row(b, safe, x)?);
    let shifted = b.sub(x, max)?;
    let d = b.sub(shifted, log)?;
    b.unary(Unary::Exp, d)
}
