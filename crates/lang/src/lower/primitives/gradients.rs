//! The `*_backward` primitives: reverse-mode differentiation of the forward primitive, inlined into the graph.
//!
//! Forward values that are not operands (an activation, a norm's deviation) are recomputed.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError, types};
use crate::lower::graph::LoweredOperand;
use ir::{Builder, GraphBuilder, Value};

/// The slots of the forward's operands, and those of the cotangents of its first results.
struct Row(&'static str, &'static str, &'static [usize], &'static [usize]);

const TABLE: &[Row] = &[
    Row("rmsnorm_backward", "rmsnorm", &[1, 2], &[0]),
    Row("layernorm_backward", "layernorm", &[1, 2], &[0]),
    Row("swiglu_backward", "swiglu", &[1, 2], &[0]),
    Row("geglu_backward", "geglu", &[1, 2], &[0]),
    Row("silu_mul_backward", "silu_mul", &[1, 2], &[0]),
    Row("silu_backward", "silu", &[1], &[0]),
    Row("relu_backward", "relu", &[1], &[0]),
    Row("relu2_backward", "relu2", &[1], &[0]),
    Row("gelu_backward", "gelu", &[1], &[0]),
    Row("flash_attention_backward", "flash_attention", &[1, 2, 3], &[0]),
    Row("qk_norm_backward", "qk_norm", &[2, 3, 4, 5], &[0, 1]),
];

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    if let Some(Row(_, forward, operands, cotangents)) = TABLE.iter().find(|row| row.0 == p.name) {
        let operands = operands.iter().map(|&i| p.tensor(i)).collect::<LowerResult<Vec<_>>>()?;
        let cotangents = cotangents.iter().map(|&i| p.tensor(i)).collect::<LowerResult<Vec<_>>>()?;
        let mut grads = reverse(l, p, forward, &operands, &[], &cotangents)?;
        if *forward == "layernorm" {
            let axes: Vec<usize> = (0..l.b.ty(cotangents[0]).rank() - 1).collect();
            grads.push(l.b.sum(cotangents[0], &axes)?);
        }
        return Ok(grads);
    }
    match p.name {
        "fused_residual_rmsnorm_backward" => {
            // The norm is applied to the sum, which is also the residual: both operands of the sum get the same cotangent.
            let operands = [p.tensor(2)?, p.tensor(3)?];
            let grads = reverse(l, p, "rmsnorm", &operands, &[], &[p.tensor(0)?])?;
            let d = l.b.add(grads[0], p.tensor(1)?)?;
            Ok(vec![d, d, grads[1]])
        }
        "softmax_backward" => {
            let (dy, y) = (p.tensor(0)?, p.tensor(1)?);
            let shape = l.b.ty(y).shape;
            let axis = p.axis(p.int("dim").unwrap_or(-1), shape.len())?;
            let product = l.b.mul(dy, y)?;
            let sum = l.b.sum(product, &[axis])?;
            let sum = l.b.expand_reduced(sum, &shape, &[axis])?;
            let rest = l.b.sub(dy, sum)?;
            Ok(vec![l.b.mul(y, rest)?])
        }
        "rope_backward" => {
            // The op is linear, so it can be differentiated at any point.
            let cotangents = [p.tensor(0)?, p.tensor(1)?];
            let mut operands = Vec::new();
            for ty in types(l, &cotangents) {
                operands.push(l.b.zeros(&ty)?);
            }
            let table: Vec<Option<LoweredOperand>> = p.operands.iter().skip(2).cloned().collect();
            reverse(l, p, "rope", &operands, &table, &cotangents)
        }
        "moe_router_backward" => {
            let indices = p.tensor(3)?;
            let k = l.b.ty(indices).shape.get(1).copied().unwrap_or(1);
            let top_k = crate::consteval::ConstValue::int(k as i64);
            let mut call = p.clone();
            call.attributes.insert("top_k".to_string(), top_k);
            reverse(l, &call, "moe_router", &[p.tensor(1)?, p.tensor(2)?], &[], &[p.tensor(0)?])
        }
        "embedding_backward" => {
            let Some(table) = p.optional(2)? else {
                return Err(PrimitiveError::InvalidArgument(
                    "needs the table, whose size is that of the gradient".into(),
                ));
            };
            let grads = reverse(l, p, "embedding", &[p.tensor(1)?, table], &[], &[p.tensor(0)?])?;
            Ok(grads)
        }
        name => Err(PrimitiveError::Unsupported(format!("`{name}`"))),
    }
}

/// Cotangents of a primitive's float operands, given those of its first results.
fn reverse(
    l: &mut Lowerer<'_>,
    p: &PrimitiveCall,
    forward: &'static str,
    operands: &[Value],
    further: &[Option<LoweredOperand>],
    cotangents: &[Value],
) -> LowerResult<Vec<Value>> {
    let types = types(l, operands);
    let outer = std::mem::replace(&mut l.b, Builder::new());
    let tables = std::mem::take(&mut l.tables);
    let inner: Vec<Value> = types.iter().map(|t| l.b.graph.input(t.clone())).collect();
    let slots = inner.iter().map(|v| Some(LoweredOperand::Tensor(*v)));
    // Tensors among the attributes are additional operands without a gradient.
    let mut named = std::collections::BTreeMap::new();
    let mut behind = Vec::new();
    for (name, operand) in &p.named {
        let value = operand.tensor(p.span)?;
        behind.push(value);
        named.insert(name.clone(), LoweredOperand::Tensor(l.b.graph.input(outer.graph.ty(value).clone())));
    }
    let slots = slots.chain(further.iter().cloned()).collect();
    let call = PrimitiveCall { name: forward, operands: slots, named, ..p.clone() };
    let results = super::lower(l, &call);
    let builder = std::mem::replace(&mut l.b, outer);
    l.tables = tables;
    let graph = builder.finish(&results?[..cotangents.len()]);
    let floats: Vec<usize> = (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect();
    let back = transform::vjp(&graph, &floats)?;
    let args: Vec<Value> = operands.iter().chain(&behind).chain(cotangents).copied().collect();
    Ok(l.b.inline(&back, &args)?[cotangents.len()..].to_vec())
}
