//! Scaled dot-product attention with KV caches and masks.

use super::NodeOutputs;
use super::matmul::matmul_of;
use crate::error::{Error, Result};
use crate::node::NodeContext;
use ir::composites::attention::{AttentionOptions, attention};
use ir::ops::ReduceKind;
use ir::{Binary, Compare, DType, GraphBuilder, Literal, Type, Unary, Value};

pub(super) fn convert(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (q, k, v) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let (mask, past_k, past_v, lengths) = (cx.opt(3)?, cx.opt(4)?, cx.opt(5)?, cx.opt(6)?);
    let flat = cx.rank(q) == 3;
    let heads = |cx: &NodeContext, name: &str, x: Value| -> Result<usize> {
        let n = cx.count(name, 0)?;
        let width = cx.shape(x).last().copied().unwrap_or(0);
        match width % n {
            0 => Ok(n),
            _ => Err(Error::node_error(format!("{name} is {n}, but {width} features are not divisible by it"))),
        }
    };
    let split = |cx: &mut NodeContext, x: Value, name: &str| -> Result<Value> {
        match cx.shape(x)[..] {
            [_, _, _, _] => Ok(x),
            [b, t, d] => {
                let h = heads(cx, name, x)?;
                let x = cx.reshape(x, &[b, t, h, d / h])?;
                Ok(cx.permute(x, &[0, 2, 1, 3])?)
            }
            _ => Err(Error::node_error("its inputs must have 3 or 4 axes")),
        }
    };
    let q = split(cx, q, "q_num_heads")?;
    let (mut k, mut v) = (split(cx, k, "kv_num_heads")?, split(cx, v, "kv_num_heads")?);
    let mut offset = 0;
    if let (Some(pk), Some(pv)) = (past_k, past_v) {
        offset = cx.shape(pk).get(2).copied().unwrap_or(0);
        k = cx.concat(&[pk, k], 2)?;
        v = cx.concat(&[pv, v], 2)?;
    }
    let causal = cx.flag("is_causal");
    let windows = (cx.int("left_window_size", -1), cx.int("right_window_size", -1));
    let scale = cx.float_opt("scale").unwrap_or(1.0 / (cx.shape(q)[3] as f64).sqrt());
    let softcap = Some(cx.float("softcap", 0.0)).filter(|&c| c > 0.0);
    let mask = match mask {
        Some(m) => Some(padded_mask(cx, m, cx.shape(k)[2])?),
        None => None,
    };
    let plain =
        !cx.output_is_used(3) && lengths.is_none() && windows == (-1, -1) && cx.int("softmax_precision", 0) == 0;
    let (y, scores) = if plain {
        (fused_attention(cx, [q, k, v], mask, causal, offset, scale, softcap)?, None)
    } else {
        let how = AttentionParams { causal, windows, offset, scale, softcap };
        let (y, s) = decomposed_attention(cx, [q, k, v], mask, lengths, &how)?;
        (y, Some(s))
    };
    let y = if flat {
        let s = cx.shape(y);
        let y = cx.permute(y, &[0, 2, 1, 3])?;
        cx.reshape(y, &[s[0], s[2], s[1] * s[3]])?
    } else {
        y
    };
    Ok([y, k, v].into_iter().chain(scores).map(Into::into).collect())
}

/// A mask may be shorter than the keys: the remaining keys are masked.
fn padded_mask(cx: &mut NodeContext, m: Value, keys: usize) -> Result<Value> {
    let shape = cx.shape(m);
    let Some(&last) = shape.last() else { return Err(Error::node_error("its mask must have axes")) };
    if last >= keys || last == 1 {
        return Ok(m);
    }
    let dtype = cx.dtype(m);
    let fill = match dtype {
        DType::Bool => cx.constant(Literal::new(&[], &[false]))?,
        d => cx.scalar(d, f64::NEG_INFINITY)?,
    };
    let (low, mut high) = (vec![0; shape.len()], vec![0; shape.len()]);
    high[shape.len() - 1] = (keys - last) as i64;
    Ok(cx.pad(m, fill, &low, &high, &vec![0; shape.len()])?)
}

/// Uses the library's attention composite, which backends support.
fn fused_attention(
    cx: &mut NodeContext,
    [q, k, v]: [Value; 3],
    mask: Option<Value>,
    causal: bool,
    offset: usize,
    scale: f64,
    softcap: Option<f64>,
) -> Result<Value> {
    let (qs, ks) = (cx.shape(q), cx.shape(k));
    let mut options = AttentionOptions { causal, scale: Some(scale), softcap, ..AttentionOptions::default() };
    let mut args = vec![q, k, v];
    if causal && ks[2].wrapping_sub(qs[2]) != offset {
        args.push(cx.constant(Literal::new(&[], &[offset as i32]))?);
        options.q_offset = Some(Type::scalar(DType::I32));
    }
    if let Some(m) = mask {
        let mut s = cx.shape(m);
        while s.len() < 4 {
            s.insert(0, 1);
        }
        let m = cx.reshape(m, &s)?;
        let shape = if s[0] == 1 { vec![s[1], qs[2], ks[2]] } else { vec![s[0], s[1], qs[2], ks[2]] };
        let m = if s[0] == 1 { cx.reshape(m, &s[1..])? } else { m };
        let m = cx.broadcast_to(m, &shape)?;
        let m = if cx.dtype(m) == DType::Bool { m } else { cx.cast(m, cx.dtype(q))? };
        options.mask = Some(cx.ty(m));
        args.push(m);
    }
    let op = attention(&cx.ty(q), &cx.ty(k), &cx.ty(v), &options)?;
    Ok(cx.emit(op.into(), &args)?[0])
}

struct AttentionParams {
    causal: bool,
    windows: (i64, i64),
    offset: usize,
    scale: f64,
    softcap: Option<f64>,
}

/// Builds attention from primitive ops, where scores are outputs or masks depend on lengths.
fn decomposed_attention(
    cx: &mut NodeContext,
    [q, k, v]: [Value; 3],
    mask: Option<Value>,
    lengths: Option<Value>,
    how: &AttentionParams,
) -> Result<(Value, Value)> {
    let dtype = cx.dtype(q);
    let (qs, ks) = (cx.shape(q), cx.shape(k));
    if ks[1] == 0 || qs[1] % ks[1] != 0 {
        return Err(Error::node_error(format!("{} query heads for {} key heads", qs[1], ks[1])));
    }
    let repeat = |cx: &mut NodeContext, x: Value| -> Result<Value> {
        let s = cx.shape(x);
        let r = qs[1] / ks[1];
        let x = cx.broadcast(x, &[s[0], s[1], r, s[2], s[3]], &[0, 1, 3, 4])?;
        Ok(cx.reshape(x, &[s[0], s[1] * r, s[2], s[3]])?)
    };
    let (k, v) = (repeat(cx, k)?, repeat(cx, v)?);
    let root = how.scale.sqrt();
    let q = cx.scale(q, root)?;
    let kt = cx.permute(k, &[0, 1, 3, 2])?;
    let kt = cx.scale(kt, root)?;
    let mut scores = matmul_of(cx, q, kt)?;
    let mode = cx.int("qk_matmul_output_mode", 0);
    let raw = scores;
    if let Some(c) = how.softcap {
        let s = cx.scale(scores, 1.0 / c)?;
        let s = cx.unary(Unary::Tanh, s)?;
        scores = cx.scale(s, c)?;
    }
    let capped = scores;
    let full = [qs[0], qs[1], qs[2], ks[2]];
    // Which keys are visible, and the bias of the scores.
    let mut seen: Option<Value> = None;
    let mut bias: Option<Value> = None;
    let both = |cx: &mut NodeContext, a: Option<Value>, b: Value| -> Result<Option<Value>> {
        Ok(Some(match a {
            Some(a) => cx.binary(Binary::And, a, b)?,
            None => b,
        }))
    };
    if let Some(m) = mask {
        let m = cx.broadcast_to(m, &full)?;
        match cx.dtype(m) {
            DType::Bool => seen = both(cx, seen, m)?,
            _ => bias = Some(cx.cast(m, dtype)?),
        }
    }
    let lengths = match lengths {
        Some(l) => {
            let l = cx.cast(l, DType::I64)?;
            let l = cx.reshape(l, &[qs[0]])?;
            Some(cx.broadcast(l, &full, &[0])?)
        }
        None => None,
    };
    let (i, j) = (cx.iota(DType::I64, &full, 2)?, cx.iota(DType::I64, &full, 3)?);
    let position = match lengths {
        Some(l) => {
            let l = cx.offset(l, -(qs[2] as f64))?;
            cx.add(i, l)?
        }
        None => cx.offset(i, how.offset as f64)?,
    };
    if how.causal {
        let m = cx.compare(Compare::Le, j, position)?;
        seen = both(cx, seen, m)?;
    }
    let back = cx.sub(position, j)?;
    for (size, sign) in [(how.windows.0, 1.0), (how.windows.1, -1.0)] {
        if size >= 0 {
            let d = cx.scale(back, sign)?;
            let limit = cx.full_like(d, size as f64)?;
            let m = cx.compare(Compare::Le, d, limit)?;
            seen = both(cx, seen, m)?;
        }
    }
    if let Some(l) = lengths {
        let m = cx.compare(Compare::Lt, j, l)?;
        seen = both(cx, seen, m)?;
    }
    if let Some(b) = bias {
        scores = cx.add(scores, b)?;
    }
    if let Some(m) = seen {
        let lowest = cx.full_like(scores, f64::NEG_INFINITY)?;
        scores = cx.select(m, scores, lowest)?;
    }
    let biased = scores;
    let wide = match cx.int("softmax_precision", 0) {
        0 => dtype,
        n => cx.dtype_of(n)?.0,
    };
    let s = cx.cast(scores, wide)?;
    let m = cx.reduce(ReduceKind::Max, s, &[3])?;
    let lowest = cx.full_like(m, f64::NEG_INFINITY)?;
    let empty = cx.compare(Compare::Eq, m, lowest)?;
    let zero = cx.full_like(m, 0.0)?;
    let m = cx.select(empty, zero, m)?;
    let m = cx.expand_reduced(m, &full, &[3])?;
    let e = cx.sub(s, m)?;
    let e = cx.unary(Unary::Exp, e)?;
    let sum = cx.sum(e, &[3])?;
    let one = cx.full_like(sum, 1.0)?;
    let sum = cx.select(empty, one, sum)?;
    let sum = cx.expand_reduced(sum, &full, &[3])?;
    let p = cx.div(e, sum)?;
    let p = cx.cast(p, dtype)?;
    let y = matmul_of(cx, p, v)?;
    let shown = match mode {
        0 => raw,
        1 => capped,
        2 => biased,
        _ => p,
    };
    Ok((y, shown))
}
