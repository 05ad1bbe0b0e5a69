//! Forms fp8 matrix products: `dot(a·s, b·t)` of fp8 codes `a`, `b` with per-tensor scales becomes one `fp8_dot` of codes and
//! scales, if the backend supports it. Its semantics is that product in f32; the backend multiplies the codes.
//!
//! Operands are matrices with all contracted axes adjacent and last, or first: `[m, k]` and `[n, k]` are the layouts that
//! hardware with fp8 products expects, and the backend transposes the other ones.
//! Scales are elementwise expressions of values that are constant over a tensor; here they are computed once as scalars.

use super::inline::CompositePredicate;
use ir::attr::Attr;
use ir::ops::{Cast, Composite, Derivative, Dot, Semantics};
use ir::{Binary, Builder, DType, Graph, GraphBuilder, Op, Result, Shape, Type, Value, Values};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The name of the composite.
pub const FP8_DOT: &str = "fp8_dot";

/// Maps `[m, k]`, `[n, k]` and their scales, `f32[]` each, to `[m, n]` of `out`. A transposed operand (`across`) is `[k, m]` or
/// `[k, n]`.
pub fn fp8_dot(a: &Type, b: &Type, across: [bool; 2], out: DType) -> Result<Composite> {
    let mut body = Builder::new();
    let codes = [a, b].map(|t| body.graph.input(t.clone()));
    let scales = [0, 1].map(|_| body.graph.input(Type::new(DType::F32, &[])));
    let mut sides = [codes[0]; 2];
    for ((side, code), scale) in sides.iter_mut().zip(codes).zip(scales) {
        let wide = body.cast(code, DType::F32)?;
        let shape = body.ty(code).shape;
        let scale = body.splat(scale, &shape)?;
        *side = body.mul(wide, scale)?;
    }
    let summed = across.map(|across| [if across { 0 } else { 1 }].into_iter().collect::<Shape>());
    let [lhs_contract, rhs_contract] = summed;
    let dot = Dot { lhs_contract, rhs_contract, ..Dot::last_axes(DType::F32, 2, 2) };
    let y = body.one(dot.into(), &sides)?;
    let y = body.cast(y, out)?;
    Ok(Composite {
        name: FP8_DOT.into(),
        params: vec![("a_across".into(), Attr::Bool(across[0])), ("b_across".into(), Attr::Bool(across[1]))],
        body: Arc::new(body.finish(&[y])),
        num_public_outputs: 1,
        derivative: Derivative::Body,
    })
}

/// A quantized value: codes and their common scale.
#[derive(Clone, Copy)]
struct QuantizedValue {
    codes: Value,
    scale: Value,
}

/// Facts about the values of a graph.
#[derive(Default)]
struct ValueFacts {
    /// Values whose elements all equal this scalar.
    uniform: FxHashMap<Value, Value>,
    /// f32 values that were converted from these codes.
    widened: FxHashMap<Value, Value>,
    rounded: FxHashMap<Value, QuantizedValue>,
    /// The fp8 products that this pass has formed.
    products: FxHashMap<Value, Fp8Product>,
}

/// An fp8 product.
#[derive(Clone)]
struct Fp8Product {
    /// The codes and scales.
    args: [Value; 4],
    across: [bool; 2],
    /// The shape of the result.
    shape: Shape,
}

/// Forms the fp8 products of a graph.
pub fn form_fp8_matmuls(graph: &Graph, claims: CompositePredicate<'_>) -> Result<Graph> {
    let mut known = ValueFacts::default();
    let formed = super::rewrite_graph(graph, |b, node, operands| {
        if let Op::Dot(dot) = &node.op
            && let Some(y) = product(b, dot, operands, &mut known, claims)?
        {
            return Ok(Values::from_slice(&[y]));
        }
        // A cast of the result becomes the output dtype of the product.
        if let Op::Cast(Cast(out)) = &node.op
            && let Some(product) = known.products.get(&operands[0]).cloned()
            && let Some(y) = is_supported(b, &product, *out, claims)?
        {
            return Ok(Values::from_slice(&[y]));
        }
        let outs = super::copy_node(b, graph, node, operands, &mut |g| form_fp8_matmuls(g, claims))?;
        record_facts(b, &node.op, operands, outs[0], &mut known)?;
        Ok(outs)
    })?;
    Ok(formed.pruned())
}

fn record_facts(b: &mut Builder, op: &Op, args: &[Value], out: Value, known: &mut ValueFacts) -> Result<()> {
    let scalar = |known: &ValueFacts, v: &Value| known.uniform.get(v).copied();
    match op {
        Op::Broadcast(_) if b.ty(args[0]).rank() == 0 => {
            known.uniform.insert(out, args[0]);
        }
        Op::Broadcast(_) if b.ty(args[0]).numel() == 1 => {
            let one = b.reshape(args[0], &[])?;
            known.uniform.insert(out, one);
        }
        Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_) if scalar(known, &args[0]).is_some() => {
            known.uniform.extend(scalar(known, &args[0]).map(|s| (out, s)));
        }
        Op::Reshape(_) | Op::Permute(_) => {
            if let Some(r) = known.rounded.get(&args[0]).copied() {
                let codes = b.one(op.clone(), &[r.codes])?;
                known.rounded.insert(out, QuantizedValue { codes, ..r });
            }
        }
        Op::Cast(Cast(DType::F32)) if is_fp8(b.ty(args[0]).dtype) => {
            known.widened.insert(out, args[0]);
        }
        Op::Binary(Binary::Mul) if args.iter().any(|v| known.widened.contains_key(v)) => {
            for (x, s) in [(args[0], args[1]), (args[1], args[0])] {
                if let (Some(codes), Some(scale)) = (known.widened.get(&x).copied(), scalar(known, &s)) {
                    known.rounded.insert(out, QuantizedValue { codes, scale });
                }
            }
        }
        _ => {
            let all: Option<Vec<Value>> = args.iter().map(|v| scalar(known, v)).collect();
            if let (Some(all), false) = (all, args.is_empty())
                && matches!(op.semantics(), Semantics::Elementwise(_))
            {
                let one = b.one(op.clone(), &all)?;
                known.uniform.insert(out, one);
            }
        }
    }
    Ok(())
}

fn is_fp8(d: DType) -> bool {
    matches!(d, DType::F8E4M3 | DType::F8E5M2)
}

/// The fp8 product, if both operands are quantized and the backend supports it.
fn product(
    b: &mut Builder,
    dot: &Dot,
    operands: &[Value],
    known: &mut ValueFacts,
    claims: CompositePredicate<'_>,
) -> Result<Option<Value>> {
    if dot.acc != DType::F32 || dot.out != DType::F32 || !dot.lhs_batch.is_empty() {
        return Ok(None);
    }
    let (Some(left), Some(right)) = (known.rounded.get(&operands[0]), known.rounded.get(&operands[1])) else {
        return Ok(None);
    };
    let (left, right) = (*left, *right);
    let shape_of =
        |b: &Builder, v: Value, axes: &[usize]| -> Shape { axes.iter().map(|a| b.ty(v).shape[*a]).collect() };
    let (rank_l, rank_r) = (b.ty(left.codes).rank(), b.ty(right.codes).rank());
    let (free_l, free_r) = (dot.lhs_free(rank_l), dot.rhs_free(rank_r));
    let shape: Shape = shape_of(b, left.codes, &free_l).into_iter().chain(shape_of(b, right.codes, &free_r)).collect();
    let (a, a_across) = matrix(b, left.codes, &free_l, &dot.lhs_contract)?;
    let (c, c_across) = matrix(b, right.codes, &free_r, &dot.rhs_contract)?;
    let product = Fp8Product { args: [a, c, left.scale, right.scale], across: [a_across, c_across], shape };
    let made = is_supported(b, &product, DType::F32, claims)?;
    if let Some(y) = made {
        known.products.insert(y, product);
    }
    Ok(made)
}

/// The codes as `[free, contracted]`, or as `[contracted, free]` if that is their axis order.
fn matrix(b: &mut Builder, codes: Value, free: &[usize], summed: &[usize]) -> Result<(Value, bool)> {
    let shape = b.ty(codes).shape;
    let size = |axes: &[usize]| axes.iter().map(|a| shape[*a]).product::<usize>();
    let perm: Shape = free.iter().chain(summed).copied().collect();
    if !free.is_empty() && summed.iter().chain(free).copied().eq(0..shape.len()) {
        return Ok((b.reshape(codes, &[size(summed), size(free)])?, true));
    }
    let turned = b.permute(codes, &perm)?;
    Ok((b.reshape(turned, &[size(free), size(summed)])?, false))
}

fn is_supported(b: &mut Builder, p: &Fp8Product, out: DType, claims: CompositePredicate<'_>) -> Result<Option<Value>> {
    if !out.is_float() {
        return Ok(None);
    }
    let types = p.args.map(|v| b.ty(v));
    let composite = fp8_dot(&types[0], &types[1], p.across, out)?;
    if !claims(&composite, &types) {
        return Ok(None);
    }
    let y = b.one(composite.into(), &p.args)?;
    Ok(Some(b.reshape(y, &p.shape)?))
}
