//! Stacks, Kronecker products, gathers and scatters.

use super::{ProgramLowering, promote};
use crate::error::{Error, Result};
use crate::infer::ValueSignature;
use ir::ops::{Composite, Derivative, GatherMode};
use ir::{Builder, DType, GraphBuilder, Literal, Scalar, Type, Value};
use std::sync::Arc;

impl ProgramLowering {
    pub(super) fn stack(&mut self, args: &[Value], out: &ValueSignature) -> Result<Value> {
        let b = &mut self.builder;
        if out.shape.contains(&0) {
            return Ok(b.zeros(&out.ty())?);
        }
        let one = [&[1], &out.shape[1..]].concat();
        let mut rows = Vec::with_capacity(args.len());
        for &x in args {
            let wide = promote(b, x, &out.shape[1..])?;
            rows.push(b.reshape(wide, &one)?);
        }
        Ok(b.concat(&rows, 0)?)
    }

    /// Lowers the Kronecker product. On each axis, `(a ⊗ b)[i·n + j] = a[i]·b[j]`: two broadcasts, a product and a reshape.
    pub(super) fn kronecker(&mut self, x: Value, y: Value, out: &ValueSignature) -> Result<Value> {
        let b = &mut self.builder;
        let (xs, ys) = (b.ty(x).shape, b.ty(y).shape);
        let pairs: Vec<usize> = xs.iter().zip(&ys).flat_map(|(a, b)| [*a, *b]).collect();
        let even: Vec<usize> = (0..xs.len()).map(|i| 2 * i).collect();
        let odd: Vec<usize> = (0..xs.len()).map(|i| 2 * i + 1).collect();
        let (l, r) = (b.broadcast(x, &pairs, &even)?, b.broadcast(y, &pairs, &odd)?);
        let v = b.mul(l, r)?;
        Ok(b.reshape(v, &out.shape)?)
    }

    pub(super) fn gather(&mut self, x: Value, indices: &[usize]) -> Result<Value> {
        let ty = self.builder.ty(x);
        let op = rows_op("vsla.gather", &ty, indices, ty.shape[0], true)?;
        Ok(self.builder.one(op.into(), &[x])?)
    }

    pub(super) fn scatter(&mut self, x: Value, indices: &[usize], size: usize) -> Result<Value> {
        let ty = self.builder.ty(x);
        if ty.numel() == 0 {
            let mut shape = ty.shape.clone();
            shape[0] = size;
            return Ok(self.builder.zeros(&ty.with_shape(&shape))?);
        }
        let op = rows_op("vsla.scatter", &ty, indices, size, false)?;
        Ok(self.builder.one(op.into(), &[x])?)
    }
}

/// Returns the composite of a gather or scatter. Each is the transpose of the other, and the indices are constants, so both are
/// written as gathers, and backward needs no scatter either. `wide` is the size of the axis that the indices point into.
fn rows_op(name: &str, x: &Type, indices: &[usize], wide: usize, gather: bool) -> Result<Composite> {
    let mut b = Builder::new();
    let v = b.graph.input(x.clone());
    let y = rows(&mut b, v, indices, wide, gather)?;
    let body = b.finish(&[y]);
    let out = body.output_types().remove(0);
    let mut b = Builder::new();
    let (_x, _y, g) = (b.graph.input(x.clone()), b.graph.input(out.clone()), b.graph.input(out));
    let dx = rows(&mut b, g, indices, wide, !gather)?;
    Ok(Composite {
        name: name.to_string(),
        params: Vec::new(),
        body: Arc::new(body),
        num_public_outputs: 1,
        derivative: Derivative::Vjp(Arc::new(b.finish(&[dx]))),
    })
}

fn rows(b: &mut Builder, x: Value, indices: &[usize], wide: usize, gather: bool) -> Result<Value> {
    let (size, most) = (if gather { indices.len() } else { wide }, b.ty(x).shape[0]);
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); size];
    if gather {
        for (s, &i) in sources.iter_mut().zip(indices) {
            s.push(i);
        }
    } else {
        for (k, &i) in indices.iter().enumerate() {
            if let Some(s) = sources.get_mut(i) {
                s.push(k);
            }
        }
    }
    take_sums(b, x, &sources, most)
}

/// Computes row `i` of the result as the sum of the rows `sources[i]`. Rows beyond the operand are zero.
fn take_sums(b: &mut Builder, x: Value, sources: &[Vec<usize>], rows: usize) -> Result<Value> {
    let ty = b.ty(x);
    let depth = sources.iter().map(Vec::len).max().unwrap_or(0);
    let out = [&[sources.len()], &ty.shape[1..]].concat();
    if depth == 0 || rows == 0 {
        return Ok(b.zeros(&ty.with_shape(&out))?);
    }
    if rows > i32::MAX as usize {
        return Err(Error::invalid_arg("gather and scatter reach 2³¹ rows at most"));
    }
    let at = |i: usize| {
        let place = sources[i / depth].get(i % depth).copied().unwrap_or(rows).min(rows);
        Scalar::from_i64(DType::I32, place as i64)
    };
    let table = Literal::from_fn(Type::new(DType::I32, &[sources.len(), depth]), at);
    let table = b.constant(table)?;
    let kept = b.take(x, table, 0, GatherMode::Fill(Scalar::zero(ty.dtype)))?;
    if depth == 1 {
        return Ok(b.reshape(kept, &out)?);
    }
    let wide = b.cast(kept, DType::F64)?;
    let sum = b.sum(wide, &[1])?;
    Ok(b.cast(sum, ty.dtype)?)
}
