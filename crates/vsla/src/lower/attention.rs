//! Attention over packed sequences: tokens attend to tokens of their own sequence only, and there is no padding.

use super::ProgramLowering;
use crate::error::Result;
use ir::composites::attention::{AttentionOptions, attention};
use ir::{Builder, DType, GraphBuilder, Literal, Type, Value};

impl ProgramLowering {
    /// Lowers attention of `q`, `k`, `v`: `[tokens, width]`.
    pub(super) fn attention(&mut self, qkv: &[Value], heads: usize, lengths: &[usize]) -> Result<Value> {
        let wide = !self.numerics.reduced_precision_products;
        let b = &mut self.builder;
        let ty = b.ty(qkv[0]);
        if !wide && ty.dtype != DType::F64 {
            // The backend runs this composite as a whole: a query attends to the keys of its own segment.
            let segments: Vec<i32> =
                lengths.iter().enumerate().flat_map(|(s, &n)| std::iter::repeat_n(s as i32, n)).collect();
            let t = Type::new(DType::I32, &[ty.shape[0]]);
            let s = b.constant(Literal::new(&t.shape, &segments))?;
            return by_head(b, qkv, heads, Some((s, t)));
        }
        // In f64 the composite is inlined, which would store the scores of all sequences at once. So each sequence is lowered
        // separately.
        let mut parts = Vec::new();
        let mut at = 0;
        for &n in lengths.iter().filter(|n| **n > 0) {
            let mut own = Vec::with_capacity(3);
            for &v in qkv {
                let rows = b.slice_axis(v, 0, at, at + n)?;
                own.push(b.cast(rows, DType::F64)?);
            }
            let y = by_head(b, &own, heads, None)?;
            parts.push(b.cast(y, ty.dtype)?);
            at += n;
        }
        Ok(b.concat(&parts, 0)?)
    }
}

fn by_head(b: &mut Builder, qkv: &[Value], heads: usize, segments: Option<(Value, Type)>) -> Result<Value> {
    let (tokens, width) = (b.ty(qkv[0]).shape[0], b.ty(qkv[0]).shape[1]);
    let mut args = Vec::with_capacity(5);
    for &v in qkv {
        let split = b.reshape(v, &[tokens, heads, width / heads])?;
        args.push(b.permute(split, &[1, 0, 2])?);
    }
    let ty = b.ty(args[0]);
    let mut options = AttentionOptions::default();
    if let Some((s, t)) = segments {
        args.extend([s, s]);
        options.segment_ids = Some((t.clone(), t));
    }
    let op = attention(&ty, &ty, &ty, &options)?;
    let y = b.emit(op.into(), &args)?[0];
    let y = b.permute(y, &[1, 0, 2])?;
    Ok(b.reshape(y, &[tokens, width])?)
}
