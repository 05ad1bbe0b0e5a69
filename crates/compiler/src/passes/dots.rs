//! Puts the axes of every contraction in order: batch, free, contracted. The permutations are views, and a product takes
//! strided operands, so most of them cost nothing; where strides can't say it, the permuted operand is what is kept in
//! memory.

use ir::ops::Dot;
use ir::{Build, Builder, Graph, Op, Result, Shape, Value};
use std::sync::Arc;

/// Canonical contractions everywhere.
pub fn dots(graph: &Graph) -> Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = graph.inline_with(&args, |node, operands| {
        b.loc = node.loc.clone();
        match &node.op {
            Op::Dot(dot) => {
                let (lr, rr) = (b.ty(operands[0]).rank(), b.ty(operands[1]).rank());
                let perm = |batch: &Shape, free: Shape, contract: &Shape| -> Shape {
                    batch.iter().chain(&free).chain(contract).copied().collect()
                };
                let l = b.permute(operands[0], &perm(&dot.lhs_batch, dot.lhs_free(lr), &dot.lhs_contract))?;
                let r = b.permute(operands[1], &perm(&dot.rhs_batch, dot.rhs_free(rr), &dot.rhs_contract))?;
                let (nb, nc) = (dot.lhs_batch.len(), dot.lhs_contract.len());
                let ordered = Dot {
                    lhs_batch: (0..nb).collect(),
                    rhs_batch: (0..nb).collect(),
                    lhs_contract: (lr - nc..lr).collect(),
                    rhs_contract: (rr - nc..rr).collect(),
                    ..dot.clone()
                };
                b.emit(ordered.into(), &[l, r])
            }
            Op::Scan(s) => {
                let mut s = s.clone();
                s.body = Arc::new(dots(&s.body)?);
                b.emit(s.into(), operands)
            }
            op => b.emit(op.clone(), operands),
        }
    })?;
    Ok(b.finish(&outs))
}
