//! Forms matrix products with quantized weights: `dot(x, dequantize(w))` becomes one `packed_dot`, if the backend supports it,
//! so that the dequantized weights are never materialized. Conversions of `x` from a low-precision float are included: the
//! product converts as it reads.

use super::inline::CompositePredicate;
use ir::composites::quantized::{QuantScheme, packed_dot};
use ir::ops::{Cast, Dot};
use ir::{Builder, DType, Graph, GraphBuilder, Op, Result, Shape, Type, Value, Values};
use rustc_hash::FxHashMap;

/// The origin of a value.
#[derive(Clone)]
enum ValueOrigin {
    /// Dequantized from these parts.
    Packed(QuantScheme, Values),
    /// Converted from a narrower float dtype.
    Upcast(Value),
}

/// Forms the quantized matrix products of a graph.
pub fn form_quantized_matmuls(graph: &Graph, claims: CompositePredicate<'_>) -> Result<Graph> {
    let mut made: FxHashMap<Value, ValueOrigin> = FxHashMap::default();
    let formed = super::rewrite_graph(graph, |b, node, operands| {
        if let Op::Dot(dot) = &node.op
            && let Some(y) = product(b, dot, operands, &made, claims)?
        {
            return Ok(Values::from_slice(&[y]));
        }
        let outs = super::copy_node(b, graph, node, operands, &mut |g| form_quantized_matmuls(g, claims))?;
        match &node.op {
            Op::Composite(c) if c.name == "dequantize" => {
                if let (Some(packing), DType::F32) = (QuantScheme::from_composite(c), b.ty(outs[0]).dtype) {
                    made.insert(outs[0], ValueOrigin::Packed(packing, Values::from_slice(operands)));
                }
            }
            Op::Cast(Cast(DType::F32)) if matches!(b.ty(operands[0]).dtype, DType::BF16 | DType::F16) => {
                made.insert(outs[0], ValueOrigin::Upcast(operands[0]));
            }
            _ => {}
        }
        Ok(outs)
    })?;
    Ok(formed.pruned())
}

/// The quantized product, if one operand is a quantized matrix and the backend supports it.
fn product(
    b: &mut Builder,
    dot: &Dot,
    operands: &[Value],
    made: &FxHashMap<Value, ValueOrigin>,
    claims: CompositePredicate<'_>,
) -> Result<Option<Value>> {
    if dot.acc != DType::F32 || dot.out != DType::F32 || !dot.lhs_batch.is_empty() {
        return Ok(None);
    }
    let sides = [(0, &dot.lhs_contract, &dot.rhs_contract), (1, &dot.rhs_contract, &dot.lhs_contract)];
    for (side, own, others) in sides {
        let (w, x) = (operands[side], operands[1 - side]);
        let Some(ValueOrigin::Packed(packing, parts)) = made.get(&w) else { continue };
        if b.ty(w).rank() != 2 || own.len() != 1 {
            continue;
        }
        let x = match made.get(&x) {
            Some(ValueOrigin::Upcast(narrow)) => *narrow,
            _ => x,
        };
        // Move the contracted axis last.
        let rank = b.ty(x).rank();
        let perm: Shape = (0..rank).filter(|a| *a != others[0]).chain([others[0]]).collect();
        let types: Vec<Type> = parts.iter().map(|p| b.ty(*p)).collect();
        let ty = b.ty(x);
        let ty = ty.with_shape(&perm.iter().map(|a| ty.shape[*a]).collect::<Shape>());
        let composite = packed_dot(packing, &ty, &types, own[0] == 0)?;
        let all: Vec<Type> = std::iter::once(ty).chain(types).collect();
        if !claims(&composite, &all) {
            continue;
        }
        let x = b.permute(x, &perm)?;
        let args: Vec<Value> = std::iter::once(x).chain(parts.iter().copied()).collect();
        let y = b.one(composite.into(), &args)?;
        // The free axis of a left operand comes first.
        return Ok(Some(if side == 0 { b.move_axis(y, rank - 1, 0)? } else { y }));
    }
    Ok(None)
}
