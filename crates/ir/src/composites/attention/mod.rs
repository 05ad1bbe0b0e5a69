//! Scaled dot-product attention and its backward, each a composite that a backend may implement with its own kernel.
//!
//! Backward recomputes the probabilities from `q`, `k` and the log-sum-exp (FlashAttention-2), so that nothing of
//! size `Tq · Tk` is stored.

mod scores;
mod sizes;

use super::{BatchRole, CompositeBuilder, Params, arity_mismatch, composite, float_param, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{Composite, ReduceKind, StopGradient};
use crate::scalar::{Compare, Unary};
use crate::types::Type;
use scores::Scores;
use sizes::AttentionDims;

pub(super) const ATTENTION: CompositeBuilder = CompositeBuilder {
    name: "attention",
    roles: |p| roles(p, false),
    build: |p, types| {
        let (qkv, options) = AttentionOptions::of("attention", p, types)?;
        attention(&qkv[0], &qkv[1], &qkv[2], &options)
    },
    saves: (&[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 1]),
};

pub(super) const ATTENTION_BACKWARD: CompositeBuilder = CompositeBuilder {
    name: "attention_backward",
    roles: |p| roles(p, true),
    build: |p, types| {
        let (operands, results) = types.split_at(types.len().saturating_sub(4));
        let (qkv, options) = AttentionOptions::of("attention_backward", p, operands)?;
        let c = attention_backward(&qkv[0], &qkv[1], &qkv[2], &options)?;
        if c.body.input_types() != types {
            let found: Vec<&Type> = results.iter().collect();
            return Err(operand_mismatch("attention_backward", &found, "needs out, lse and the cotangents of both"));
        }
        Ok(c)
    },
    saves: (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[]),
};

/// The batch roles of q, k and v, then the optional operands, then (in backward) results and cotangents. In backward, an operand
/// with a cotangent has all batch axes, because its cotangent is computed per row.
fn roles(p: &Params<'_>, backward: bool) -> Vec<BatchRole> {
    let float = |own: usize| if backward { BatchRole::Rows } else { BatchRole::Prefix(own) };
    let mut roles = vec![BatchRole::Rows; 3];
    for (name, own) in [("q_offset", 0), ("lengths", 0), ("segments", 1), ("segments", 1)] {
        if p.flag(name) {
            roles.push(BatchRole::Prefix(own));
        }
    }
    if p.flag("slopes") {
        roles.push(float(1));
    }
    match p.word("mask") {
        Some("add") => roles.push(float(3)),
        Some(_) => roles.push(BatchRole::Prefix(3)),
        None => {}
    }
    roles.push(BatchRole::Rows);
    roles
}

/// Parameters and optional operands of [`attention`]. The operands follow q, k and v in the order of the fields here.
///
/// Each optional operand may have the first of q's batch axes as leading axes, or none of them if it is the same for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// Whether queries attend only to keys up to their own position.
    pub causal: bool,
    /// Queries attend to this many previous positions, including their own; without `causal` to as many following ones too.
    pub window: Option<usize>,
    /// The scale factor of the scores; `1/√D` by default.
    pub scale: Option<f64>,
    /// The soft cap of the scores: `c · tanh(s / c)`, before biases are added (Gemma 2).
    pub softcap: Option<f64>,
    /// i32: the position of the first query. The default is `Tk - Tq`, so that the last query has the position of the last
    /// key.
    pub q_offset: Option<Type>,
    /// i32: the number of valid keys. Later keys are never read.
    pub kv_lengths: Option<Type>,
    /// Integers `[Tq]` and `[Tk]`: a query attends to keys with the same segment ID.
    pub segment_ids: Option<(Type, Type)>,
    /// Floats `[Hq]`: ALiBi adds `-slope · |query position - key position|`.
    pub alibi_slopes: Option<Type>,
    /// `[Hq, Tq, Tk]`, each of the first two possibly 1: bool (true is visible), or floats that are added.
    pub mask: Option<Type>,
}

impl AttentionOptions {
    /// Types of the optional operands, in order.
    pub fn operands(&self) -> Vec<&Type> {
        let segments = self.segment_ids.as_ref().map(|(q, k)| [q, k]);
        let [offset, lengths, slopes, mask] =
            [&self.q_offset, &self.kv_lengths, &self.alibi_slopes, &self.mask].map(Option::as_ref);
        (offset.into_iter().chain(lengths)).chain(segments.into_iter().flatten()).chain(slopes).chain(mask).collect()
    }

    fn of<'a>(name: &str, p: &Params<'_>, types: &'a [Type]) -> Result<(&'a [Type], AttentionOptions)> {
        let mut at = 3;
        let mut next = |present: bool| -> Option<Type> {
            let t = types.get(at).filter(|_| present).cloned();
            at += usize::from(present);
            t
        };
        let options = AttentionOptions {
            causal: p.flag("causal"),
            window: p.int("window").and_then(|w| usize::try_from(w).ok()),
            scale: p.float_opt("scale"),
            softcap: p.float_opt("softcap"),
            q_offset: next(p.flag("q_offset")),
            kv_lengths: next(p.flag("lengths")),
            segment_ids: next(p.flag("segments")).zip(next(p.flag("segments"))),
            alibi_slopes: next(p.flag("slopes")),
            mask: next(p.word("mask").is_some()),
        };
        if types.len() != at {
            return Err(arity_mismatch(name, types, "q, k, v and the operands that its parameters name"));
        }
        Ok((&types[..3], options))
    }

    fn params(&self, scale: f64) -> Vec<(String, Attr)> {
        let mut params = vec![float_param("scale", scale)];
        if let Some(c) = self.softcap {
            params.push(float_param("softcap", c));
        }
        if let Some(w) = self.window {
            params.push(("window".into(), Attr::Int(w as i64)));
        }
        let flags = [
            ("causal", self.causal),
            ("q_offset", self.q_offset.is_some()),
            ("lengths", self.kv_lengths.is_some()),
            ("segments", self.segment_ids.is_some()),
            ("slopes", self.alibi_slopes.is_some()),
        ];
        params.extend(flags.iter().filter(|f| f.1).map(|f| (f.0.into(), Attr::Bool(true))));
        if let Some(t) = &self.mask {
            let word = if t.dtype == DType::Bool { "bool" } else { "add" };
            params.push(("mask".into(), Attr::Word(word.into())));
        }
        params
    }
}

/// `softmax(q·kᵀ·scale + ..)·v` for q `[.., Hq, Tq, D]`, k `[.., Hkv, Tk, D]`, v `[.., Hkv, Tk, Dv]` with `Hq` a
/// multiple of `Hkv` (query head `h` reads key head `h / (Hq/Hkv)`).
///
/// Results are `out` `[.., Hq, Tq, Dv]` and `lse` `[.., Hq, Tq]`, the log-sum-exp of the scores in f32 or wider. A row
/// without visible keys gives 0 and -inf, and gradient 0. Scores and softmax are in f32 or wider; probabilities are
/// rounded to the operands' dtype before they are multiplied by `v`.
pub fn attention(q: &Type, k: &Type, v: &Type, options: &AttentionOptions) -> Result<Composite> {
    let sizes = AttentionDims::new("attention", q, k, v, options)?;
    let backward = attention_backward(q, k, v, options)?;
    let body = forward(&sizes, options)?;
    let mut b = Builder::new();
    let args: Vec<Value> = backward.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let params = backward.params.clone();
    let grads = b.emit(backward.into(), &args)?;
    let vjp = b.finish(&grads);
    Ok(composite("attention", params, body, 2, Some(vjp)))
}

fn forward(sizes: &AttentionDims<'_>, options: &AttentionOptions) -> Result<Graph> {
    let acc = sizes.acc_dtype();
    let mut b = Builder::new();
    let args: Vec<Value> = sizes.operands(options).map(|t| b.graph.input(t.clone())).collect();
    let s = Scores::new(&mut b, sizes, options, &args)?;
    let keys = sizes.rank() - 1;

    let m = b.reduce(ReduceKind::Max, s.masked, &[keys])?;
    let m = b.one(StopGradient.into(), &[m])?;
    let lowest = b.full_like(m, f64::NEG_INFINITY)?;
    let empty = b.compare(Compare::Eq, m, lowest)?;
    let (zero, one) = (b.full_like(m, 0.0)?, b.full_like(m, 1.0)?);
    let m = b.select(empty, zero, m)?;
    let wide = b.expand_reduced(m, &sizes.scores_shape(), &[keys])?;
    let d = b.sub(s.masked, wide)?;
    let e = b.unary(Unary::Exp, d)?;
    let sum = b.sum(e, &[keys])?;
    let sum = b.select(empty, one, sum)?;
    let p = b.cast(e, sizes.q.dtype)?;
    let o = b.one(sizes.scores_v_dot(acc).into(), &[p, s.v])?;
    let shape = b.ty(o).shape;
    let wide = b.expand_reduced(sum, &shape, &[keys])?;
    let o = b.div(o, wide)?;
    let o = b.cast(o, sizes.q.dtype)?;
    let out = b.reshape(o, &sizes.out_type().shape)?;
    let l = b.unary(Unary::Log, sum)?;
    let l = b.add(m, l)?;
    let l = b.select(empty, lowest, l)?;
    let lse = b.reshape(l, &sizes.lse_type().shape)?;
    Ok(b.finish(&[out, lse]))
}

/// The backward of [`attention`]: maps its operands, its two results and their cotangents to the cotangents of its float
/// operands (q, k, v, slopes, a float mask). It is differentiated through its body.
pub fn attention_backward(q: &Type, k: &Type, v: &Type, options: &AttentionOptions) -> Result<Composite> {
    let sizes = AttentionDims::new("attention_backward", q, k, v, options)?;
    let (acc, dtype) = (sizes.acc_dtype(), q.dtype);
    let mut b = Builder::new();
    let args: Vec<Value> = sizes.operands(options).map(|t| b.graph.input(t.clone())).collect();
    let results = [sizes.out_type(), sizes.lse_type(), sizes.out_type(), sizes.lse_type()].map(|t| b.graph.input(t));
    let s = Scores::new(&mut b, &sizes, options, &args)?;
    let keys = sizes.rank() - 1;
    let shape = sizes.scores_shape();

    // P = exp(S - lse): 0 in a row without visible keys, because its scores are -inf.
    let (out, lse) = (sizes.group_heads(&mut b, results[0])?, sizes.group_heads(&mut b, results[1])?);
    let (dout, dlse) = (sizes.group_heads(&mut b, results[2])?, sizes.group_heads(&mut b, results[3])?);
    let lowest = b.full_like(lse, f64::NEG_INFINITY)?;
    let empty = b.compare(Compare::Eq, lse, lowest)?;
    let zero = b.full_like(lse, 0.0)?;
    let lse = b.select(empty, zero, lse)?;
    let wide = b.expand_reduced(lse, &shape, &[keys])?;
    let d = b.sub(s.masked, wide)?;
    let p = b.unary(Unary::Exp, d)?;

    // dS = P·(dO·Vᵀ - Σ dO·O + dlse).
    let (oa, da) = (b.cast(out, acc)?, b.cast(dout, acc)?);
    let prod = b.mul(oa, da)?;
    let delta = b.sum(prod, &[keys])?;
    let row = b.sub(dlse, delta)?;
    let row = b.select(empty, zero, row)?;
    let row = b.expand_reduced(row, &shape, &[keys])?;
    let dp = b.one(sizes.qk_dot(acc).into(), &[dout, s.v])?;
    let dp = b.add(dp, row)?;
    let ds = b.mul(p, dp)?;
    let added = s.added_grads(&mut b, ds)?;
    let ds = s.uncapped_grad(&mut b, ds)?;

    let narrow = |b: &mut Builder, x: Value| b.cast(x, dtype);
    let (ds, p) = (narrow(&mut b, ds)?, narrow(&mut b, p)?);
    let dq = b.one(sizes.scores_v_dot(acc).into(), &[ds, s.k])?;
    let dk = b.one(sizes.scores_transposed_dot(acc).into(), &[ds, s.q])?;
    let dv = b.one(sizes.scores_transposed_dot(acc).into(), &[p, dout])?;
    let (dq, dk) = (b.scale(dq, sizes.scale)?, b.scale(dk, sizes.scale)?);
    let dq = b.reshape(dq, &q.shape)?;
    let mut grads = vec![narrow(&mut b, dq)?, narrow(&mut b, dk)?, narrow(&mut b, dv)?];
    grads.extend(added);
    let public = grads.len();
    let body = b.finish(&grads);
    Ok(composite("attention_backward", options.params(sizes.scale), body, public, None))
}

/// The integer dtype of positions.
const POSITION: DType = DType::I32;
