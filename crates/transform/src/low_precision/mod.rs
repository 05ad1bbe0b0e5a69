//! Emulated low-precision matrix products: operands and cotangents are rounded to the values of an 8-bit or 4-bit format, and
//! multiplied in f32, where products of such numbers are exact. The rewrite runs before differentiation.
//!
//! In every product `x · w` with a matrix `w`, or with one matrix per group of rows, both operands are rounded (with a
//! straight-through derivative), and so is the cotangent of the result: the products of the backward pass then read the rounded
//! operands and the rounded cotangent, as on a device with such formats. Products without a matrix (attention), those with the
//! name [`KEEP_PRECISION`], and the last one, which computes the graph's results, are not changed.
//!
//! [`rounding`] defines how a tensor is rounded, [`state`] how delayed scaling gets its history and stochastic rounding its key.

mod rounding;
mod state;

use ir::ops::{Call, Composite, Dot, Name, RaggedDot, RaggedMode, Remat, Scan};
use ir::{Builder, DType, Graph, GraphBuilder, Node, Op, Result, Type, Value, Values};
pub use rounding::{DelayedScaling, LowPrecision, Rounding, Scaling, round_gradient, round_operand};
pub use state::{Stateful, with_state};
use std::sync::Arc;

/// The name (`ir::ops::Name`) of a product that keeps its own precision.
pub const KEEP_PRECISION: &str = "as written";

/// The roundings of the operands and results of products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatmulRounding {
    /// The rounding of left operands (activations).
    pub lhs: Rounding,
    /// The rounding of right operands (weights).
    pub rhs: Rounding,
    /// The low-precision rounding of results, if any.
    pub output: Option<Rounding>,
    /// A higher-precision float dtype that results are rounded to.
    pub output_dtype: Option<DType>,
    /// The rounding of the cotangents of results.
    pub cotangent: Option<Rounding>,
}

impl MatmulRounding {
    /// The same rounding for both operands, and no other. Blocks of 4-bit floats choose the better of two scales.
    pub const fn new(forward: Rounding) -> MatmulRounding {
        let forward = forward.with_adaptive_block_scale();
        MatmulRounding { lhs: forward, rhs: forward, output: None, output_dtype: None, cotangent: None }
    }

    /// Adds rounding of cotangents.
    pub const fn with_cotangent_rounding(self, how: Rounding) -> MatmulRounding {
        MatmulRounding { cotangent: Some(how), ..self }
    }
}

/// Rewrites the products of a graph.
pub fn round_matmuls(graph: &Graph, how: &MatmulRounding) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let last = results(graph);
    let outs = inline(&mut b, graph, &args, how, &last)?;
    Ok(b.finish(&outs))
}

/// Marks the values that are the graph's results, ignoring conversions and views.
fn results(graph: &Graph) -> Vec<bool> {
    let mut is = vec![false; graph.num_values()];
    graph.outputs().iter().for_each(|v| is[v.0 as usize] = true);
    for node in graph.nodes().iter().rev() {
        let passes = matches!(node.op, Op::Cast(_) | Op::Reshape(_) | Op::Permute(_) | Op::Name(_));
        if passes && is[node.outs[0].0 as usize] {
            is[node.args[0].0 as usize] = true;
        }
    }
    is
}

fn inline(b: &mut Builder, graph: &Graph, args: &[Value], how: &MatmulRounding, last: &[bool]) -> Result<Vec<Value>> {
    let written = full_precision_values(graph);
    let kept: Vec<bool> = last.iter().zip(&written).map(|(a, b)| *a || *b).collect();
    graph.inline_with(args, |node, operands| {
        b.loc = node.loc.clone();
        node_into(b, node, operands, how, node.outs.iter().any(|v| kept[v.0 as usize]))
    })
}

/// Marks the values that keep their own precision.
fn full_precision_values(graph: &Graph) -> Vec<bool> {
    let mut is = vec![false; graph.num_values()];
    for node in graph.nodes() {
        if matches!(&node.op, Op::Name(name) if name.name == KEEP_PRECISION) {
            is[node.args[0].0 as usize] = true;
        }
    }
    is
}

/// `x · w` with rounded operands, in f32.
fn product(b: &mut Builder, dot: &Dot, x: Value, w: Value, how: &MatmulRounding) -> Result<Value> {
    let axis = |contract: &[usize], rank: usize| contract.first().copied().unwrap_or(rank.saturating_sub(1));
    let (left, right) = (axis(&dot.lhs_contract, b.ty(x).rank()), axis(&dot.rhs_contract, b.ty(w).rank()));
    let x = round_operand(b, x, left, &how.lhs)?;
    let w = round_operand(b, w, right, &how.rhs)?;
    rounded_product(b, dot, x, w, how)
}

/// The product of operands that are already rounded, in f32; its result and its cotangent are rounded as configured.
pub fn rounded_product(b: &mut Builder, dot: &Dot, x: Value, w: Value, how: &MatmulRounding) -> Result<Value> {
    let wide = Dot { acc: DType::F32, out: DType::F32, ..dot.clone() };
    let y = b.one(wide.into(), &[x, w])?;
    finish_product(b, y, how)
}

/// Like [`rounded_product`], for groups of rows.
pub fn rounded_groups(b: &mut Builder, dot: &RaggedDot, operands: [Value; 3], how: &MatmulRounding) -> Result<Value> {
    let wide = RaggedDot { acc: DType::F32, out: DType::F32, ..dot.clone() };
    let y = b.one(wide.into(), &operands)?;
    finish_product(b, y, how)
}

/// Rounds a product's result and its cotangent.
fn finish_product(b: &mut Builder, y: Value, how: &MatmulRounding) -> Result<Value> {
    // The name prevents a second rounding.
    let mut y = b.one(Name::new(KEEP_PRECISION).into(), &[y])?;
    if let Some(output) = &how.output {
        let axis = b.ty(y).rank().saturating_sub(1);
        y = round_operand(b, y, axis, output)?;
    }
    if let Some(dtype) = how.output_dtype {
        let narrow = b.cast(y, dtype)?;
        y = b.cast(narrow, DType::F32)?;
    }
    match &how.cotangent {
        Some(backward) => round_gradient(b, y, backward),
        None => Ok(y),
    }
}

/// The rounding of a composite of this module; none for other composites and for those with state.
pub fn rounding_of(c: &Composite) -> Option<Rounding> {
    Rounding::of(c).filter(|_| c.name == rounding::ROUNDED && c.body.inputs().len() == 1)
}

/// The sub-graphs that an op executes.
fn subgraphs(op: &Op) -> Vec<&Graph> {
    match op {
        Op::Composite(c) if !is_library(c) => vec![&c.body],
        Op::Call(c) => vec![&c.body],
        Op::Remat(r) => vec![&r.body],
        Op::Scan(s) => vec![&s.body],
        _ => Vec::new(),
    }
}

/// Whether a product multiplies rows by one matrix.
fn is_linear(dot: &Dot, right: &Type) -> bool {
    dot.lhs_batch.is_empty() && right.rank() == 2 && right.dtype.is_float() && dot.rhs_contract.len() == 1
}

/// Whether a graph contains such products.
fn has_linear(graph: &Graph) -> bool {
    let written = full_precision_values(graph);
    graph.nodes().iter().any(|node| match &node.op {
        Op::Dot(dot) => is_linear(dot, graph.ty(node.args[1])) && !written[node.outs[0].0 as usize],
        Op::RaggedDot(dot) => dot.mode == RaggedMode::Rows && !written[node.outs[0].0 as usize],
        op => subgraphs(op).into_iter().any(has_linear),
    })
}

fn is_library(c: &Composite) -> bool {
    ir::composites::COMPOSITES.iter().any(|f| f.name == c.name)
}

fn node_into(b: &mut Builder, node: &Node, args: &[Value], how: &MatmulRounding, last: bool) -> Result<Values> {
    match &node.op {
        Op::Dot(dot) if !last && is_linear(dot, &b.ty(args[1])) => {
            let y = product(b, dot, args[0], args[1], how)?;
            Ok(Values::from_slice(&[b.cast(y, dot.out)?]))
        }
        Op::RaggedDot(dot) if !last && dot.mode == RaggedMode::Rows => {
            let (left, right) = (b.ty(args[0]).rank() - 1, b.ty(args[1]).rank() - 2);
            let x = round_operand(b, args[0], left, &how.lhs)?;
            let w = round_operand(b, args[1], right, &how.rhs)?;
            let y = rounded_groups(b, dot, [x, w, args[2]], how)?;
            Ok(Values::from_slice(&[b.cast(y, dot.out)?]))
        }
        // The composite's own derivative would multiply in full precision.
        Op::Composite(c) if !is_library(c) && has_linear(&c.body) => {
            let inside = if last { results(&c.body) } else { vec![false; c.body.num_values()] };
            Ok(Values::from_vec(inline(b, &c.body, args, how, &inside)?))
        }
        Op::Call(c) if has_linear(&c.body) => b.emit(Call::new(body(&c.body, how, last)?).into(), args),
        Op::Remat(r) if has_linear(&r.body) => {
            b.emit(Remat::with_policy(body(&r.body, how, last)?, r.policy.clone()).into(), args)
        }
        Op::Scan(s) if has_linear(&s.body) => {
            let scan = Scan { body: Arc::new(body(&s.body, how, false)?), ..s.clone() };
            b.emit(scan.into(), args)
        }
        op => b.emit(op.clone(), args),
    }
}

fn body(graph: &Graph, how: &MatmulRounding, last: bool) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let last = if last { results(graph) } else { vec![false; graph.num_values()] };
    let outs = inline(&mut b, graph, &args, how, &last)?;
    Ok(b.finish(&outs))
}
