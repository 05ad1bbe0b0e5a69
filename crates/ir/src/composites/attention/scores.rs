//! The scores of attention with masks and biases, shared by forward and backward.
//!
//! The scores are computed as `[batch.., Hkv, G, Tq, Tk]` with `G = Hq/Hkv` query heads for each key head, so that keys need not
//! be repeated.

use super::sizes::AttentionDims;
use super::{AttentionOptions, POSITION};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Value;
use crate::literal::Literal;
use crate::scalar::{Binary, Compare, Scalar, Unary};
use crate::types::{Shape, Type};

/// An operand that is added to the scores and has a cotangent.
struct ScoreBias {
    ty: Type,
    /// Its shape after the head axis is split.
    grouped_shape: Shape,
    /// The axes of the scores that its axes correspond to.
    axes: Vec<usize>,
    /// The factor that it is multiplied by.
    factor: Option<Value>,
}

/// The scores and the other values that backward needs.
pub(super) struct Scores<'a> {
    sizes: &'a AttentionDims<'a>,
    /// The queries, grouped by key head.
    pub(super) q: Value,
    /// The keys; keys beyond `lengths` are replaced by 0, so that their memory has no effect.
    pub(super) k: Value,
    /// The values, likewise.
    pub(super) v: Value,
    /// The scores, -inf where a key is not visible to the query.
    pub(super) masked: Value,
    /// `tanh(s / softcap)`.
    tanh: Option<Value>,
    added: Vec<ScoreBias>,
}

impl<'a> Scores<'a> {
    pub(super) fn new(
        b: &mut Builder,
        sizes: &'a AttentionDims<'a>,
        options: &AttentionOptions,
        args: &[Value],
    ) -> Result<Scores<'a>> {
        let n = sizes.batch;
        let shape = sizes.scores_shape();
        let mut rest = args[3..].iter().copied();
        let mut next = |present: bool| if present { rest.next() } else { None };
        let offset = next(options.q_offset.is_some());
        let lengths = next(options.kv_lengths.is_some());
        let segments = next(options.segment_ids.is_some()).zip(next(options.segment_ids.is_some()));
        let slopes = next(options.alibi_slopes.is_some());
        let mask = next(options.mask.is_some());

        let q = sizes.group_heads(b, args[0])?;
        let (mut k, mut v) = (args[1], args[2]);
        let mut visible = KeyMask(None);
        let key = b.iota(POSITION, &shape, n + 3)?;
        if let Some(l) = lengths {
            k = keep_first(b, k, l, n + 1)?;
            v = keep_first(b, v, l, n + 1)?;
            let wide = b.broadcast(l, &shape, &leading(b.ty(l).rank()))?;
            let inside = b.compare(Compare::Lt, key, wide)?;
            visible.and(b, inside)?;
        }
        let s = b.one(sizes.qk_dot(sizes.acc_dtype()).into(), &[q, k])?;
        let mut s = b.scale(s, sizes.scale)?;
        let mut tanh = None;
        if let Some(c) = options.softcap {
            let t = b.scale(s, 1.0 / c)?;
            let t = b.unary(Unary::Tanh, t)?;
            s = b.scale(t, c)?;
            tanh = Some(t);
        }

        // The distance from each key to each query.
        let query = b.iota(POSITION, &shape, n + 2)?;
        let start = match offset {
            Some(o) => b.broadcast(o, &shape, &leading(b.ty(o).rank()))?,
            None => position(b, &shape, sizes.k.shape[n + 1] as i64 - sizes.q.shape[n + 1] as i64)?,
        };
        let query = b.add(query, start)?;
        let ahead = b.sub(query, key)?;
        if options.causal {
            let zero = position(b, &shape, 0)?;
            let before = b.compare(Compare::Ge, ahead, zero)?;
            visible.and(b, before)?;
        }
        let distance = b.unary(Unary::Abs, ahead)?;
        if let Some(w) = options.window {
            let reach = position(b, &shape, w.min(i32::MAX as usize) as i64)?;
            let near = b.compare(Compare::Lt, distance, reach)?;
            visible.and(b, near)?;
        }
        if let Some((a, c)) = segments {
            let wide = |b: &mut Builder, v: Value, axis: usize| {
                let mut axes = leading(b.ty(v).rank() - 1);
                axes.push(axis);
                b.broadcast(v, &shape, &axes)
            };
            let (a, c) = (wide(b, a, n + 2)?, wide(b, c, n + 3)?);
            let same = b.compare(Compare::Eq, a, c)?;
            visible.and(b, same)?;
        }
        let mut added = Vec::new();
        if let Some(v) = slopes {
            let d = b.cast(distance, sizes.acc_dtype())?;
            let factor = b.neg(d)?;
            let p = b.ty(v).rank() - 1;
            let mut axes = leading(p);
            axes.extend([n, n + 1]);
            s = add_to(b, sizes, s, v, (p, axes), Some(factor), &mut added)?;
        }
        if let Some(v) = mask {
            let p = b.ty(v).rank() - 3;
            let mut axes = leading(p);
            axes.extend([n, n + 1, n + 2, n + 3]);
            if b.ty(v).dtype == DType::Bool {
                let d = sizes.split_heads(b, v, p)?;
                let wide = b.broadcast(d, &shape, &axes)?;
                visible.and(b, wide)?;
            } else {
                s = add_to(b, sizes, s, v, (p, axes), None, &mut added)?;
            }
        }
        let masked = match visible.0 {
            Some(m) => {
                let lowest = b.full_like(s, f64::NEG_INFINITY)?;
                b.select(m, s, lowest)?
            }
            None => s,
        };
        Ok(Scores { sizes, q, k, v, masked, tanh, added })
    }

    /// The cotangents of the operands that were added to the scores.
    pub(super) fn added_grads(&self, b: &mut Builder, ds: Value) -> Result<Vec<Value>> {
        let mut grads = Vec::new();
        let shape = self.sizes.scores_shape();
        for a in &self.added {
            let d = match a.factor {
                Some(f) => b.mul(ds, f)?,
                None => ds,
            };
            // The axes that the operand lacks or is broadcast along.
            let summed: Vec<usize> = (0..shape.len())
                .filter(|x| match a.axes.iter().position(|y| y == x) {
                    Some(i) => a.grouped_shape[i] == 1 && shape[*x] != 1,
                    None => true,
                })
                .collect();
            let d = b.sum(d, &summed)?;
            let d = b.reshape(d, &a.ty.shape)?;
            grads.push(b.cast(d, a.ty.dtype)?);
        }
        Ok(grads)
    }

    /// The cotangent of the scores before the soft cap, up to the scale.
    pub(super) fn uncapped_grad(&self, b: &mut Builder, ds: Value) -> Result<Value> {
        let Some(t) = self.tanh else { return Ok(ds) };
        let sq = b.mul(t, t)?;
        let less = b.neg(sq)?;
        let slope = b.offset(less, 1.0)?;
        b.mul(ds, slope)
    }
}

/// The first `n` axes.
fn leading(n: usize) -> Vec<usize> {
    (0..n).collect()
}

/// A constant position, broadcast to a shape.
fn position(b: &mut Builder, shape: &[usize], x: i64) -> Result<Value> {
    let c = b.constant(Literal::scalar(Scalar::from_i64(POSITION, x)))?;
    b.splat(c, shape)
}

/// Replaces `x` by 0 from index `length` on along an axis.
fn keep_first(b: &mut Builder, x: Value, length: Value, axis: usize) -> Result<Value> {
    let shape = b.ty(x).shape;
    let index = b.iota(POSITION, &shape, axis)?;
    let wide = b.broadcast(length, &shape, &leading(b.ty(length).rank()))?;
    let inside = b.compare(Compare::Lt, index, wide)?;
    b.zero_unless(inside, x)
}

/// Adds an operand to the scores; `heads` is its head axis.
fn add_to(
    b: &mut Builder,
    sizes: &AttentionDims<'_>,
    s: Value,
    v: Value,
    (heads, axes): (usize, Vec<usize>),
    factor: Option<Value>,
    added: &mut Vec<ScoreBias>,
) -> Result<Value> {
    let ty = b.ty(v);
    let d = sizes.split_heads(b, v, heads)?;
    let divided = b.ty(d).shape;
    let d = b.cast(d, sizes.acc_dtype())?;
    let mut wide = b.broadcast(d, &sizes.scores_shape(), &axes)?;
    if let Some(f) = factor {
        wide = b.mul(wide, f)?;
    }
    added.push(ScoreBias { ty, grouped_shape: divided, axes, factor });
    b.add(s, wide)
}

/// The keys that each query attends to; `None` means all.
struct KeyMask(Option<Value>);

impl KeyMask {
    fn and(&mut self, b: &mut Builder, more: Value) -> Result<()> {
        self.0 = Some(match self.0 {
            Some(v) => b.binary(Binary::And, v, more)?,
            None => more,
        });
        Ok(())
    }
}
