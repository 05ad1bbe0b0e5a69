//! §6.3 activations, §6.6 elementwise arithmetic, §6.8 embedding, and the loss.

use super::shape::{broadcast_shape, broadcast_to};
use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError, types};
use ir::composites::activation::{self, Gelu};
use ir::composites::{embedding, loss, softmax};
use ir::{Binary, Compare, DType, GraphBuilder, Unary, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let gelu = if p.flag("approximate") { Gelu::Tanh } else { Gelu::Erf };
    let binary = match p.name {
        "add" | "bias_add" => Some(Binary::Add),
        "sub" => Some(Binary::Sub),
        "mul" => Some(Binary::Mul),
        "div" => Some(Binary::Div),
        _ => None,
    };
    let compare = match p.name {
        "equal" => Some(Compare::Eq),
        "less" => Some(Compare::Lt),
        _ => None,
    };
    if let Some(op) = compare {
        let (a, b) = promote_and_broadcast(l, p.tensor(0)?, p.tensor(1)?, false)?;
        let found = l.b.compare(op, a, b)?;
        return Ok(vec![l.b.cast(found, DType::I32)?]);
    }
    if let Some(op) = binary {
        return Ok(vec![arithmetic(l, op, p.tensor(0)?, p.tensor(1)?)?]);
    }
    let x = p.tensor(0)?;
    let ty = l.b.ty(x);
    let composite = match p.name {
        "swiglu" | "silu_mul" => activation::swiglu(&ty, &l.b.ty(p.tensor(1)?))?,
        "geglu" => activation::geglu(&ty, &l.b.ty(p.tensor(1)?), gelu)?,
        "silu" => activation::silu(&ty)?,
        "relu" => activation::relu(&ty)?,
        "relu2" => activation::relu2(&ty)?,
        "gelu" => activation::gelu(&ty, gelu)?,
        "softmax" => return soft_max(l, p, x),
        "embedding" => {
            let (ids, table) = (x, p.tensor(1)?);
            let rows = l.b.ty(table).shape.first().copied().unwrap_or(0);
            let padding = p.int("padding").and_then(|id| usize::try_from(id).ok()).filter(|id| *id < rows);
            let c = embedding::embedding(&l.b.ty(table), &l.b.ty(ids), padding)?;
            bounds(l, p, ids, table)?;
            return Ok(l.b.emit(c.into(), &[table, ids])?.to_vec());
        }
        "cross_entropy" => return cross_entropy(l, p),
        "quantize" => return Ok(l.quantize(p, x)?),
        "dequantize" => {
            let dtype = crate::lower::declare::parse_dtype(p.word("dtype").unwrap_or("bf16"), p.span)?;
            let wide = l.b.cast(x, dtype)?;
            // The result is an ordinary tensor, no longer marked as quantized.
            return Ok(vec![if wide == x { l.b.one(ir::ops::Name::new("dequantized").into(), &[x])? } else { wide }]);
        }
        "add3" => {
            let sum = arithmetic(l, Binary::Add, x, p.tensor(1)?)?;
            return Ok(vec![arithmetic(l, Binary::Add, sum, p.tensor(2)?)?]);
        }
        "scale" => {
            let factor = p.float("factor").ok_or_else(|| PrimitiveError::InvalidArgument("needs a factor".into()))?;
            return Ok(vec![l.b.scale(x, factor)?]);
        }
        "sigmoid" => return Ok(vec![l.b.unary(Unary::Logistic, x)?]),
        "tanh" => return Ok(vec![l.b.unary(Unary::Tanh, x)?]),
        "sqrt" => return Ok(vec![l.b.unary(Unary::Sqrt, x)?]),
        "exp" => return Ok(vec![l.b.unary(Unary::Exp, x)?]),
        "log" => return Ok(vec![l.b.unary(Unary::Log, x)?]),
        "abs" => return Ok(vec![l.b.unary(Unary::Abs, x)?]),
        "floor" => return Ok(vec![l.b.unary(Unary::Floor, x)?]),
        "sin" => return Ok(vec![l.b.unary(Unary::Sin, x)?]),
        "cos" => return Ok(vec![l.b.unary(Unary::Cos, x)?]),
        "softplus" => return Ok(vec![softplus(&mut l.b, x)?]),
        "clamp" => return clamp(l, p, x),
        "exp_neg" => {
            let e = l.b.unary(Unary::Exp, x)?;
            return Ok(vec![l.b.neg(e)?]);
        }
        name => return Err(PrimitiveError::Unsupported(format!("`{name}`"))),
    };
    Ok(l.b.emit(composite.into(), &p.tensors()?)?.to_vec())
}

/// Records the limits that a lookup by token IDs or by positions implies.
fn bounds(l: &mut Lowerer<'_>, p: &PrimitiveCall, ids: Value, table: Value) -> LowerResult<()> {
    let rows = l.b.ty(table).shape.first().copied().unwrap_or(0);
    let mut origin = ids;
    loop {
        if l.counted.contains(&origin) {
            let positions = l.b.ty(origin).shape.last().copied().unwrap_or(0);
            // A trial run has an arbitrary number of positions.
            return Ok(l.limit_positions(rows, if l.position.is_some() { 0 } else { positions }, p.span)?);
        }
        if l.ids.contains(&origin) {
            l.vocabulary = Some(l.vocabulary.map_or(rows, |old| old.min(rows)));
        }
        match l.b.graph.node_of(origin) {
            Some(node)
                if matches!(node.op.semantics(), ir::Semantics::View(_)) || matches!(node.op, ir::Op::Cast(_)) =>
            {
                origin = node.args[0];
            }
            _ => return Ok(()),
        }
    }
}

/// Elementwise with broadcasting; integers are converted to the dtype of float operands, and divide to floats.
fn arithmetic(l: &mut Lowerer<'_>, op: Binary, a: Value, b: Value) -> LowerResult<Value> {
    let (a, b) = promote_and_broadcast(l, a, b, op == Binary::Div)?;
    Ok(l.b.binary(op, a, b)?)
}

/// Converts two operands to a common shape and dtype.
fn promote_and_broadcast(l: &mut Lowerer<'_>, a: Value, b: Value, divides: bool) -> LowerResult<(Value, Value)> {
    let t = types(l, &[a, b]);
    let shape = broadcast_shape(&t[0].shape, &t[1].shape)?;
    let dtype = match (t[0].dtype.is_float(), t[1].dtype.is_float()) {
        (false, true) => t[1].dtype,
        (false, false) if divides => DType::F32,
        _ => t[0].dtype,
    };
    let (a, b) = (l.b.cast(a, dtype)?, l.b.cast(b, dtype)?);
    Ok((broadcast_to(l, a, &shape)?, broadcast_to(l, b, &shape)?))
}

/// Clamps between two optional bounds.
fn clamp(l: &mut Lowerer<'_>, p: &PrimitiveCall, x: Value) -> LowerResult<Vec<Value>> {
    let (low, high) = (p.float("min"), p.float("max"));
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        return Err(PrimitiveError::InvalidArgument(format!("has bounds that cross: {low} and {high}")));
    }
    let mut y = x;
    for (op, bound) in [(Binary::Max, low), (Binary::Min, high)] {
        if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
            let bound = l.b.full_like(y, bound)?;
            y = l.b.binary(op, y, bound)?;
        }
    }
    Ok(vec![y])
}

/// `log(1 + eˣ)` without overflow: `max(x, 0) + log1p(exp(-|x|))`.
pub(super) fn softplus(b: &mut ir::Builder, x: Value) -> ir::Result<Value> {
    let zero = b.full_like(x, 0.0)?;
    let top = b.binary(Binary::Max, x, zero)?;
    let size = b.unary(Unary::Abs, x)?;
    let down = b.neg(size)?;
    let e = b.unary(Unary::Exp, down)?;
    let rest = b.unary(Unary::Log1p, e)?;
    b.add(top, rest)
}

fn soft_max(l: &mut Lowerer<'_>, p: &PrimitiveCall, x: Value) -> LowerResult<Vec<Value>> {
    let rank = l.b.ty(x).rank();
    let axis = p.axis(p.int("dim").unwrap_or(-1), rank)?;
    let last = l.b.move_axis(x, axis, rank - 1)?;
    let c = softmax::softmax(&l.b.ty(last))?;
    let y = l.b.emit(c.into(), &[last])?[0];
    Ok(vec![l.b.move_axis(y, rank - 1, axis)?])
}

/// Labels of -100 are ignored, as in PyTorch; the mean is over the others.
fn cross_entropy(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (logits, labels) = (p.tensor(0)?, p.tensor(1)?);
    let rows = cross_entropy_rows(&mut l.b, logits, labels)?;
    Ok(vec![match p.word("reduction") {
        Some("none") => rows,
        Some("sum") => l.b.sum_all(rows)?,
        _ => cross_entropy_mean(&mut l.b, rows, labels)?,
    }])
}

const IGNORED: i64 = -100;

fn cross_entropy_rows(b: &mut ir::Builder, logits: Value, labels: Value) -> ir::Result<Value> {
    let options = loss::CrossEntropyOptions { ignore_index: Some(IGNORED), ..loss::CrossEntropyOptions::default() };
    let c = loss::cross_entropy(&b.ty(logits), &b.ty(labels), options)?;
    Ok(b.emit(c.into(), &[logits, labels])?[0])
}

fn cross_entropy_mean(b: &mut ir::Builder, rows: Value, labels: Value) -> ir::Result<Value> {
    let sum = b.sum_all(rows)?;
    let ignored = b.full_like(labels, IGNORED as f64)?;
    let counts = b.compare(ir::Compare::Ne, labels, ignored)?;
    let counts = b.cast(counts, DType::F32)?;
    let count = b.sum_all(counts)?;
    let dtype = b.ty(sum).dtype;
    let count = b.cast(count, dtype)?;
    b.div(sum, count)
}

/// The mean cross-entropy of `logits` for `labels`, ignoring labels of -100.
pub fn mean_cross_entropy(b: &mut ir::Builder, logits: Value, labels: Value) -> ir::Result<Value> {
    let rows = cross_entropy_rows(b, logits, labels)?;
    cross_entropy_mean(b, rows, labels)
}
