//! Products in few bits, emulated: operands and cotangents are rounded to what a format of 8 or 4 bits can store, and multiplied
//! in the dtype that they have. Done before differentiation.
//!
//! Of every product `x · w` with a matrix `w`, both operands are rounded (straight through, for the derivative), and so is the
//! cotangent of the result: the products of backward then read the rounded operands and the rounded cotangent, as a machine
//! with such formats computes them. Scales are those of the tensor at hand. Products without a matrix (attention) and the
//! last one, which gives the graph's results, stay as they are.

use ir::attr::Attr;
use ir::composites::quantized::{Format, Packing, fake_quantize};
use ir::ops::{Call, Composite, Derivative, Dot, Quantize, ReduceKind, Remat, Scan};
use ir::{Build, Builder, Compare, DType, Graph, Node, Op, Result, Shape, Type, Unary, Value, Values};
use std::sync::Arc;

/// What a format's numbers are scaled by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// One scale for a tensor.
    Tensor,
    /// One for each row: of a matrix an output channel, of activations a token.
    Rows,
    /// One for each square block of this size, or what is left of one at the edges.
    Blocks(usize, usize),
}

/// How tensors are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// To an 8-bit float.
    Fp8 {
        /// `F8E4M3` or `F8E5M2`.
        dtype: DType,
        /// Its scales.
        scaling: Scaling,
        /// Headroom: the largest number is so much (as a part of one) below the format's.
        margin: f64,
    },
    /// To NVFP4: E2M1 in groups of 16 along the summed axis.
    Fp4,
}

/// What products are rounded to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FewBits {
    /// Operands.
    pub forward: Rounding,
    /// Cotangents of results.
    pub backward: Option<Rounding>,
}

/// Rewrites the products of a graph.
pub fn few_bits(graph: &Graph, how: &FewBits) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let last = results(graph);
    let outs = inline(&mut b, graph, &args, how, &last)?;
    Ok(b.finish(&outs))
}

/// Values that are the graph's results, but for conversions and views.
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

fn inline(b: &mut Builder, graph: &Graph, args: &[Value], how: &FewBits, last: &[bool]) -> Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| {
        b.loc = node.loc.clone();
        node_into(b, node, operands, how, node.outs.iter().any(|v| last[v.0 as usize]))
    })
}

/// Whether a product is one of rows with a matrix.
fn is_linear(dot: &Dot, right: &Type) -> bool {
    dot.lhs_batch.is_empty() && right.rank() == 2 && right.dtype.is_float() && dot.rhs_contract.len() == 1
}

/// Whether a graph has such products.
fn has_linear(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| match &node.op {
        Op::Dot(dot) => is_linear(dot, graph.ty(node.args[1])),
        Op::Composite(c) => !is_library(c) && has_linear(&c.body),
        Op::Call(c) => has_linear(&c.body),
        Op::Remat(r) => has_linear(&r.body),
        Op::Scan(s) => has_linear(&s.body),
        _ => false,
    })
}

fn is_library(c: &Composite) -> bool {
    ir::composites::FAMILIES.iter().any(|f| f.name == c.name)
}

fn node_into(b: &mut Builder, node: &Node, args: &[Value], how: &FewBits, last: bool) -> Result<Values> {
    match &node.op {
        Op::Dot(dot) if !last && is_linear(dot, &b.ty(args[1])) => {
            let x = rounded(b, args[0], dot.lhs_contract[0], &how.forward)?;
            let w = rounded(b, args[1], dot.rhs_contract[0], &how.forward)?;
            let y = b.one(dot.clone().into(), &[x, w])?;
            let y = match &how.backward {
                Some(backward) => rounded_gradient(b, y, backward)?,
                None => y,
            };
            Ok(Values::from_slice(&[y]))
        }
        // Its own derivative would multiply in full.
        Op::Composite(c) if !is_library(c) && has_linear(&c.body) => {
            let inside = if last { results(&c.body) } else { vec![false; c.body.num_values()] };
            Ok(Values::from_vec(inline(b, &c.body, args, how, &inside)?))
        }
        Op::Call(c) if has_linear(&c.body) => b.emit(Call::new(body(&c.body, how, last)?).into(), args),
        Op::Remat(r) if has_linear(&r.body) => {
            b.emit(Remat::with(body(&r.body, how, last)?, r.policy.clone()).into(), args)
        }
        Op::Scan(s) if has_linear(&s.body) => {
            let scan = Scan { body: Arc::new(body(&s.body, how, false)?), ..s.clone() };
            b.emit(scan.into(), args)
        }
        op => b.emit(op.clone(), args),
    }
}

fn body(graph: &Graph, how: &FewBits, last: bool) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let last = if last { results(graph) } else { vec![false; graph.num_values()] };
    let outs = inline(&mut b, graph, &args, how, &last)?;
    Ok(b.finish(&outs))
}

/// A tensor rounded, with the identity as its derivative. `axis` is the one that is summed over.
fn rounded(b: &mut Builder, x: Value, axis: usize, how: &Rounding) -> Result<Value> {
    let ty = b.ty(x);
    let last = ty.rank() - 1;
    // The summed axis last, where scales run along it.
    let perm: Shape = (0..ty.rank()).filter(|a| *a != axis).chain([axis]).collect();
    let turned = if axis == last { x } else { b.permute(x, &perm)? };
    let own = b.ty(turned);
    let mut inner = Builder::new();
    let xv = inner.graph.input(own.clone());
    let y = round(&mut inner, xv, how)?;
    let forward = inner.finish(&[y]);
    let mut inner = Builder::new();
    inner.graph.input(own.clone());
    let dx = inner.graph.input(own);
    let composite = Composite {
        name: "rounded".into(),
        params: vec![("to".into(), Attr::Word(name(how).into()))],
        body: Arc::new(forward),
        public: 1,
        derivative: Derivative::Jvp(Arc::new(inner.finish(&[dx]))),
    };
    let y = b.one(composite.into(), &[turned])?;
    if axis == last {
        return Ok(y);
    }
    let mut back: Shape = perm.clone();
    perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
    b.permute(y, &back)
}

/// A value as it is, whose cotangent is rounded.
fn rounded_gradient(b: &mut Builder, y: Value, how: &Rounding) -> Result<Value> {
    let ty = b.ty(y);
    let mut body = Builder::new();
    let v = body.graph.input(ty.clone());
    let mut vjp = Builder::new();
    vjp.graph.input(ty.clone());
    vjp.graph.input(ty.clone());
    let ct = vjp.graph.input(ty);
    let ct = round(&mut vjp, ct, how)?;
    let composite = Composite {
        name: "rounded_gradient".into(),
        params: vec![("to".into(), Attr::Word(name(how).into()))],
        body: Arc::new(body.finish(&[v])),
        public: 1,
        derivative: Derivative::Vjp(Arc::new(vjp.finish(&[ct]))),
    };
    b.one(composite.into(), &[y])
}

fn name(how: &Rounding) -> &'static str {
    match how {
        Rounding::Fp8 { dtype, .. } => dtype.name(),
        Rounding::Fp4 => "nvfp4",
    }
}

/// The rounding itself.
fn round(b: &mut Builder, x: Value, how: &Rounding) -> Result<Value> {
    let ty = b.ty(x);
    let wide = b.cast(x, DType::F32)?;
    if ty.numel() == 0 {
        return Ok(x);
    }
    let y = match how {
        Rounding::Fp8 { dtype, scaling, margin } => {
            let most = match dtype {
                DType::F8E4M3 => 448.0,
                _ => 57344.0,
            };
            let size = b.unary(Unary::Abs, wide)?;
            let largest = largest(b, size, *scaling)?;
            let scale = b.scale(largest, (1.0 + margin) / most)?;
            let (zero, one) = (b.full_like(scale, 0.0)?, b.full_like(scale, 1.0)?);
            let nothing = b.compare(Compare::Eq, scale, zero)?;
            let scale = b.select(nothing, one, scale)?;
            let shrunk = b.div(wide, scale)?;
            let codes = b.one(Quantize(*dtype).into(), &[shrunk])?;
            let codes = b.cast(codes, DType::F32)?;
            b.mul(codes, scale)?
        }
        Rounding::Fp4 => {
            let k = ty.shape[ty.rank() - 1];
            if !k.is_multiple_of(16) {
                // Rows that don't divide into groups are rounded to the 8-bit format.
                let how = Rounding::Fp8 { dtype: DType::F8E4M3, scaling: Scaling::Rows, margin: 0.0 };
                return round(b, x, &how);
            }
            let size = b.unary(Unary::Abs, wide)?;
            let axes: Vec<usize> = (0..ty.rank()).collect();
            let all = b.reduce(ReduceKind::Max, size, &axes)?;
            let all = b.scale(all, 1.0 / (448.0 * 6.0))?;
            let (zero, one) = (b.full_like(all, 0.0)?, b.full_like(all, 1.0)?);
            let nothing = b.compare(Compare::Eq, all, zero)?;
            let all = b.select(nothing, one, all)?;
            let packing = Packing { format: Format::Nvfp4, group: 16 };
            let types = [b.ty(wide), b.ty(all)];
            b.one(fake_quantize(&packing, &types, DType::F32, false)?.into(), &[wide, all])?
        }
    };
    b.cast(y, ty.dtype)
}

/// The largest magnitude that counts for each element.
fn largest(b: &mut Builder, size: Value, scaling: Scaling) -> Result<Value> {
    let ty = b.ty(size);
    let rank = ty.rank();
    match scaling {
        Scaling::Blocks(rows, columns) if rank >= 2 => {
            let (n, k) = (ty.shape[rank - 2], ty.shape[rank - 1]);
            let (rows, columns) = (rows.min(n).max(1), columns.min(k).max(1));
            let (down, across) = (n.div_ceil(rows), k.div_ceil(columns));
            // Filled up with nothing to whole blocks.
            let (low, mut high) = (vec![0i64; rank], vec![0i64; rank]);
            high[rank - 2] = (down * rows - n) as i64;
            high[rank - 1] = (across * columns - k) as i64;
            let zero = b.scalar(ty.dtype, 0.0)?;
            let filled = b.pad(size, zero, &low, &high, &vec![0; rank])?;
            let lead = &ty.shape[..rank - 2];
            let cut: Vec<usize> = lead.iter().copied().chain([down, rows, across, columns]).collect();
            let cut = b.reshape(filled, &cut)?;
            let most = b.reduce(ReduceKind::Max, cut, &[rank - 1, rank + 1])?;
            let wide: Vec<usize> = lead.iter().copied().chain([down, rows, across, columns]).collect();
            let dims: Vec<usize> = (0..rank - 2).chain([rank - 2, rank]).collect();
            let spread = b.broadcast(most, &wide, &dims)?;
            let joined: Vec<usize> = lead.iter().copied().chain([down * rows, across * columns]).collect();
            let joined = b.reshape(spread, &joined)?;
            b.slice(joined, &vec![0; rank], &ty.shape, &vec![1; rank])
        }
        Scaling::Rows => {
            let most = b.reduce(ReduceKind::Max, size, &[rank - 1])?;
            b.unreduce(most, &ty.shape, &[rank - 1])
        }
        _ => {
            let axes: Vec<usize> = (0..rank).collect();
            let most = b.reduce(ReduceKind::Max, size, &axes)?;
            b.splat(most, &ty.shape)
        }
    }
}
