//! Loss functions.

use super::elementwise::{SoftmaxKind, softmax_along};
use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::NodeContext;
use ir::ops::GatherMode;
use ir::{Compare, DType, GraphBuilder, Value};

pub(super) fn nll(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, target, weight) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    one(negative(cx, x, target, weight)?)
}

pub(super) fn softmax_cross_entropy(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, target, weight) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    if cx.rank(x) < 2 {
        return Err(Error::node_error("its scores must be [N, C, ..]"));
    }
    let log = softmax_along(cx, x, 1, SoftmaxKind::LogSoftmax)?;
    let loss = negative(cx, log, target, weight)?;
    Ok(vec![loss.into(), log.into()])
}

/// `-weight[target] · log[target]`, reduced.
fn negative(cx: &mut NodeContext, log: Value, target: Value, weight: Option<Value>) -> Result<Value> {
    let (shape, ts) = (cx.shape(log), cx.shape(target));
    if shape.len() < 2 || ts.len() + 1 != shape.len() || ts[0] != shape[0] || ts[1..] != shape[2..] {
        return Err(Error::node_error(format!("targets {ts:?} don't fit scores {shape:?}")));
    }
    let target = cx.cast(target, DType::I64)?;
    let ignored = match cx.int_opt("ignore_index") {
        Some(i) => {
            let ty = cx.ty(target);
            let i = cx.full(&ty, ir::Scalar::from_i64(DType::I64, i))?;
            Some(cx.compare(Compare::Eq, target, i)?)
        }
        None => None,
    };
    let mut column = ts.clone();
    column.insert(1, 1);
    let at = cx.reshape(target, &column)?;
    let picked = cx.take_along_axis(log, at, 1, GatherMode::Clip)?;
    let picked = cx.reshape(picked, &ts)?;
    let mut loss = cx.neg(picked)?;
    let mut weights = match weight {
        Some(w) => Some(cx.take(w, target, 0, GatherMode::Clip)?),
        None => None,
    };
    if let Some(m) = ignored {
        let w = match weights {
            Some(w) => w,
            None => cx.full_like(loss, 1.0)?,
        };
        let zero = cx.full_like(w, 0.0)?;
        weights = Some(cx.select(m, zero, w)?);
        let zero = cx.full_like(loss, 0.0)?;
        loss = cx.select(m, zero, loss)?;
    }
    if let Some(w) = weights {
        loss = cx.mul(loss, w)?;
    }
    match cx.string("reduction", "mean").as_str() {
        "none" => Ok(loss),
        "sum" => Ok(cx.sum_all(loss)?),
        "mean" => {
            let sum = cx.sum_all(loss)?;
            let n = match weights {
                Some(w) => cx.sum_all(w)?,
                None => cx.full_like(sum, ts.iter().product::<usize>() as f64)?,
            };
            Ok(cx.div(sum, n)?)
        }
        other => Err(Error::node_error(format!("unknown reduction `{other}`: use none, sum or mean"))),
    }
}
