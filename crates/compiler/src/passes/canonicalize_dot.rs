//! Reorders the axes of every contraction to batch, free, contracted. The permutations are views, and a matrix product accepts
//! strided operands, so most of them cost nothing. If strides cannot express the view, the permuted operand is
//! materialized.

use crate::target::MatmulTarget;
use ir::ops::Dot;
use ir::{Builder, DType, Graph, GraphBuilder, Op, Result, Shape, Value, Values};

/// Rewrites all contractions to the canonical axis order, with dtypes that the target's matrix products support.
pub fn canonicalize_dots(graph: &Graph, target: &MatmulTarget) -> Result<Graph> {
    let native = |d: DType| target.dtypes.contains(&d);
    super::rewrite_graph(graph, |b, node, operands| {
        let Op::Dot(dot) = &node.op else {
            return super::copy_node(b, graph, node, operands, &mut |g| canonicalize_dots(g, target));
        };
        let dtype = b.ty(operands[0]).dtype;
        let sums = accumulator_dtype(dtype);
        // Integers wrap, so that a narrower sum equals the low bits of a wider one.
        if native(dtype) && dtype == DType::I8 && dot.acc == dtype {
            let wide = Dot { acc: sums, out: sums, ..dot.clone() };
            let v = ordered(b, &wide, operands[0], operands[1])?;
            let v = b.cast(v, dot.acc)?;
            return Ok(Values::from_slice(&[b.cast(v, dot.out)?]));
        }
        // Dtypes without a native matrix kernel are converted first, or written as products and sums.
        if dot.acc != sums || !native(dtype) {
            let (l, r) = (b.cast(operands[0], dot.acc)?, b.cast(operands[1], dot.acc)?);
            let wide = Dot { out: dot.acc, ..dot.clone() };
            let v = if native(dot.acc) { ordered(b, &wide, l, r)? } else { as_sum(b, &wide, l, r)? };
            return Ok(Values::from_slice(&[b.cast(v, dot.out)?]));
        }
        if dot.out != sums && (dot.out != dtype || dtype == DType::I8) {
            let wide = Dot { out: dot.acc, ..dot.clone() };
            let v = ordered(b, &wide, operands[0], operands[1])?;
            return Ok(Values::from_slice(&[b.cast(v, dot.out)?]));
        }
        Ok(Values::from_slice(&[ordered(b, dot, operands[0], operands[1])?]))
    })
}

/// The accumulator dtype of matrix kernels for an operand dtype.
fn accumulator_dtype(dtype: DType) -> DType {
    if dtype == DType::I8 { DType::I32 } else { dtype.accumulator() }
}

fn in_order(batch: &Shape, free: Shape, contract: &Shape) -> Shape {
    batch.iter().chain(&free).chain(contract).copied().collect()
}

fn ordered(b: &mut Builder, dot: &Dot, l: Value, r: Value) -> Result<Value> {
    let (lr, rr) = (b.ty(l).rank(), b.ty(r).rank());
    let l = b.permute(l, &in_order(&dot.lhs_batch, dot.lhs_free(lr), &dot.lhs_contract))?;
    let r = b.permute(r, &in_order(&dot.rhs_batch, dot.rhs_free(rr), &dot.rhs_contract))?;
    let (nb, nc) = (dot.lhs_batch.len(), dot.lhs_contract.len());
    let ordered = Dot {
        lhs_batch: (0..nb).collect(),
        rhs_batch: (0..nb).collect(),
        lhs_contract: (lr - nc..lr).collect(),
        rhs_contract: (rr - nc..rr).collect(),
        ..dot.clone()
    };
    b.one(ordered.into(), &[l, r])
}

/// `Σ l·r` over broadcast views of both operands.
fn as_sum(b: &mut Builder, dot: &Dot, l: Value, r: Value) -> Result<Value> {
    let (lt, rt) = (b.ty(l), b.ty(r));
    let (lf, rf) = (dot.lhs_free(lt.rank()), dot.rhs_free(rt.rank()));
    let l = b.permute(l, &in_order(&dot.lhs_batch, lf.clone(), &dot.lhs_contract))?;
    let r = b.permute(r, &in_order(&dot.rhs_batch, rf.clone(), &dot.rhs_contract))?;
    let (nb, nl, nr, nc) = (dot.lhs_batch.len(), lf.len(), rf.len(), dot.lhs_contract.len());
    let (ls, rs) = (b.ty(l).shape, b.ty(r).shape);
    let shape: Shape = ls[..nb + nl].iter().chain(&rs[nb..nb + nr]).chain(&ls[nb + nl..]).copied().collect();
    let inner = nb + nl + nr..nb + nl + nr + nc;
    let l_dims: Shape = (0..nb + nl).chain(inner.clone()).collect();
    let r_dims: Shape = (0..nb).chain(nb + nl..nb + nl + nr).chain(inner.clone()).collect();
    let (l, r) = (b.broadcast(l, &shape, &l_dims)?, b.broadcast(r, &shape, &r_dims)?);
    let products = b.mul(l, r)?;
    let axes: Shape = inner.collect();
    b.sum(products, &axes)
}
