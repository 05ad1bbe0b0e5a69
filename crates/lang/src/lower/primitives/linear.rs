//! §6.1: matrix products.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use ir::ops::ragged_dot::RaggedMode;
use ir::ops::{Dot, RaggedDot};
use ir::{GraphBuilder, Shape, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let mode = p.word("transpose").unwrap_or("NN").to_string();
    let y = match p.name {
        "matmul" => matmul(l, p.tensor(0)?, p.tensor(1)?, &mode)?,
        "weight_grad" => matmul(l, p.tensor(0)?, p.tensor(1)?, "TN")?,
        "batched_matmul" => batched(l, p.tensor(0)?, p.tensor(1)?, &mode)?,
        "grouped_gemm" => {
            let (x, w, offsets) = (p.tensor(0)?, p.tensor(1)?, p.tensor(2)?);
            let turned = match mode.as_str() {
                "NT" => true,
                "NN" => false,
                _ => return Err(PrimitiveError::Unsupported(format!("grouped_gemm with transpose={mode}"))),
            };
            l.grouped_matmul(x, w, offsets, turned)?
        }
        _ => {
            // One sum over the rows of each group: d_weights[g] = d_outputᵀ · input.
            let (x, dy, offsets) = (p.tensor(0)?, p.tensor(1)?, p.tensor(2)?);
            let dtype = l.b.ty(x).dtype;
            let op = RaggedDot { mode: RaggedMode::Contract, ..RaggedDot::rows(dtype) };
            l.b.one(op.into(), &[dy, x, offsets])?
        }
    };
    let y = match p.float("alpha") {
        Some(alpha) if alpha != 1.0 => l.b.scale(y, alpha)?,
        _ => y,
    };
    Ok(vec![y])
}

/// `op(A)·op(B)`; leading axes of A are rows, and are summed over if A is transposed.
fn matmul(l: &mut Lowerer<'_>, a: Value, b: Value, mode: &str) -> LowerResult<Value> {
    let (ta, tb) = (l.b.ty(a), l.b.ty(b));
    let (ra, rb) = (ta.rank(), tb.rank());
    if ra == 0 || rb == 0 {
        return Err(PrimitiveError::InvalidArgument("needs matrices".into()));
    }
    let all = |n: usize| -> Shape { (0..n).collect() };
    let (lhs, rhs) = match mode {
        "NN" => (Shape::from_slice(&[ra - 1]), Shape::from_slice(&[0])),
        "NT" => (Shape::from_slice(&[ra - 1]), Shape::from_slice(&[rb - 1])),
        "TN" => (all(ra - 1), all(rb - 1)),
        _ => {
            let rows: usize = ta.shape[..ra - 1].iter().product();
            let flat = l.b.reshape(a, &[rows, ta.shape[ra - 1]])?;
            let dot = Dot {
                lhs_contract: Shape::from_slice(&[0]),
                rhs_contract: Shape::from_slice(&[rb - 1]),
                ..Dot::matmul(ta.dtype)
            };
            return Ok(l.matmul(dot, flat, b)?);
        }
    };
    let dot = Dot { lhs_contract: lhs, rhs_contract: rhs, ..Dot::matmul(ta.dtype) };
    Ok(l.matmul(dot, a, b)?)
}

/// A batched product; leading axes broadcast.
fn batched(l: &mut Lowerer<'_>, a: Value, b: Value, mode: &str) -> LowerResult<Value> {
    let (ta, tb) = (l.b.ty(a), l.b.ty(b));
    if ta.rank() < 2 || tb.rank() < 2 {
        return Err(PrimitiveError::InvalidArgument("needs at least two dimensions on both sides".into()));
    }
    let (la, lb) = (&ta.shape[..ta.rank() - 2], &tb.shape[..tb.rank() - 2]);
    let lead = super::shape::broadcast_shape(la, lb)?;
    let wide = |l: &mut Lowerer<'_>, x: Value, shape: &[usize]| -> LowerResult<Value> {
        let target: Vec<usize> = lead.iter().chain(&shape[shape.len() - 2..]).copied().collect();
        super::shape::broadcast_to(l, x, &target)
    };
    let (a, b) = (wide(l, a, &ta.shape)?, wide(l, b, &tb.shape)?);
    let n = lead.len();
    let dot = Dot {
        lhs_contract: Shape::from_slice(&[if mode.starts_with('T') { n } else { n + 1 }]),
        rhs_contract: Shape::from_slice(&[if mode.ends_with('T') { n + 1 } else { n }]),
        ..Dot::batched_matmul(ta.dtype, n)
    };
    Ok(l.matmul(dot, a, b)?)
}
