//! RNN, GRU and LSTM as scans.

use super::NodeOutputs;
use super::elementwise::activation;
use super::shape::reversed;
use crate::error::{Error, Result};
use crate::node::NodeContext;
use ir::ops::{Clamp, Dot, Scan};
use ir::types::Shape;
use ir::{Binary, Builder, Compare, DType, GraphBuilder, Literal, Type, Unary, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RnnCell {
    Rnn,
    Gru,
    Lstm,
}

impl RnnCell {
    fn gates(self) -> usize {
        match self {
            RnnCell::Rnn => 1,
            RnnCell::Gru => 3,
            RnnCell::Lstm => 4,
        }
    }

    fn defaults(self) -> &'static [&'static str] {
        match self {
            RnnCell::Rnn => &["Tanh"],
            RnnCell::Gru => &["Sigmoid", "Tanh"],
            RnnCell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// An activation with its parameters.
#[derive(Clone)]
struct RnnActivation {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

impl RnnActivation {
    fn apply(&self, b: &mut dyn GraphBuilder, x: Value) -> Result<Value> {
        activation(b, &self.name, x, self.alpha, self.beta)
    }
}

/// Values shared by all steps of one direction.
struct RnnDirection {
    cell: RnnCell,
    hidden: usize,
    acts: Vec<RnnActivation>,
    clip: Option<f64>,
    linear_before_reset: bool,
    input_forget: bool,
}

pub(super) fn recurrent(cx: &mut NodeContext, cell: RnnCell) -> Result<NodeOutputs> {
    let (x, w, r) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let (bias, lens) = (cx.opt(3)?, cx.opt(4)?);
    let batch_first = cx.flag("layout");
    let x = if batch_first && cx.rank(x) == 3 { cx.permute(x, &[1, 0, 2])? } else { x };
    let (xs, rs, ws) = (cx.shape(x), cx.shape(r), cx.shape(w));
    let g = cell.gates();
    let (&[seq, batch, input], &[dirs, rows, hidden]) = (&xs[..], &rs[..]) else {
        return Err(Error::node_error("its inputs must be [T, N, I], [D, G·H, I] and [D, G·H, H]"));
    };
    if rows != g * hidden || ws != [dirs, rows, input] {
        return Err(Error::node_error(format!("weights {ws:?} and {rs:?} don't fit {g} gates over {input} features")));
    }
    let direction = cx.string("direction", "forward");
    let backward: Vec<bool> = match direction.as_str() {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Error::node_error(format!("unknown direction `{other}`"))),
    };
    if backward.len() != dirs {
        return Err(Error::node_error(format!(
            "{direction} needs weights for {} directions, not {dirs}",
            backward.len()
        )));
    }
    let names = cx.strings("activations");
    let (alphas, betas) = (cx.floats("activation_alpha"), cx.floats("activation_beta"));
    let per = cell.defaults().len();
    let act = |d: usize, k: usize| {
        let at = d * per + k;
        let name = names.get(at).cloned().unwrap_or_else(|| cell.defaults()[k].to_string());
        let get = |list: &Option<Vec<f64>>| list.as_ref().and_then(|l| l.get(at).copied());
        RnnActivation { name, alpha: get(&alphas), beta: get(&betas) }
    };
    let lens = lens.map(|l| cx.cast(l, DType::I64)).transpose()?;
    let dtype = cx.dtype(x);
    // The slice for one direction of an operand `[D, ..]` of this rank.
    let part = |cx: &mut NodeContext, v: Value, d: usize, rank: usize| -> Result<Value> {
        let shape = cx.shape(v);
        if shape.first() != Some(&dirs) || shape.len() != rank {
            return Err(Error::node_error(format!(
                "an operand of {shape:?} where {rank} axes for {dirs} directions are needed"
            )));
        }
        let v = cx.slice_axis(v, 0, d, d + 1)?;
        Ok(cx.reshape(v, &shape[1..])?)
    };
    let initial = |cx: &mut NodeContext, i: usize, d: usize| -> Result<Value> {
        match cx.opt(i)? {
            Some(h) => {
                let h = if batch_first { cx.permute(h, &[1, 0, 2])? } else { h };
                part(cx, h, d, 3)
            }
            None => Ok(cx.zeros(&Type::new(dtype, &[batch, hidden]))?),
        }
    };
    let (mut ys, mut hs, mut cs) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &back) in backward.iter().enumerate() {
        let (w, r) = (part(cx, w, d, 3)?, part(cx, r, d, 3)?);
        let (wb, rb) = match bias {
            Some(b) => {
                let b = part(cx, b, d, 2)?;
                (cx.slice_axis(b, 0, 0, rows)?, cx.slice_axis(b, 0, rows, 2 * rows)?)
            }
            None => {
                let zero = cx.zeros(&Type::new(dtype, &[rows]))?;
                (zero, zero)
            }
        };
        let peepholes = match (cell, cx.opt(7)?) {
            (RnnCell::Lstm, Some(p)) => Some(part(cx, p, d, 2)?),
            _ => None,
        };
        let mut carries = vec![initial(cx, 5, d)?];
        if cell == RnnCell::Lstm {
            carries.push(initial(cx, 6, d)?);
        }
        // Reversed, so that every direction runs forward.
        let turned = match (back, lens) {
            (false, _) => x,
            (true, None) => cx.flip(x, &[0])?,
            (true, Some(lens)) => reversed(cx, x, lens, 0, 1)?,
        };
        let all = cx.one(Dot::last_axes(dtype, 3, 2).into(), &[turned, w])?;
        let shape = cx.shape(all);
        let wide = cx.broadcast_along(wb, &shape, 2)?;
        let all = cx.add(all, wide)?;
        let step = RnnDirection {
            cell,
            hidden,
            acts: (0..per).map(|k| act(d, k)).collect(),
            clip: cx.float_opt("clip"),
            linear_before_reset: cx.flag("linear_before_reset"),
            input_forget: cx.flag("input_forget"),
        };
        let time = cx.iota(DType::I64, &[seq], 0)?;
        let mut consts = vec![r, rb];
        consts.extend(peepholes);
        consts.extend(lens);
        let body = step.body(
            &[&consts[..], &carries[..]].concat().iter().map(|&v| cx.ty(v)).collect::<Vec<_>>(),
            &cx.ty(all).unbatched(),
            peepholes.is_some(),
            lens.is_some(),
        )?;
        let n = carries.len();
        let scan = Scan::over(consts.len(), n, seq, body);
        let args: Vec<Value> = consts.iter().chain(&carries).copied().chain([all, time]).collect();
        let outs = cx.emit(scan.into(), &args)?;
        let y = match (back, lens) {
            (false, _) => outs[n],
            (true, None) => cx.flip(outs[n], &[0])?,
            (true, Some(lens)) => reversed(cx, outs[n], lens, 0, 1)?,
        };
        ys.push(cx.reshape(y, &[seq, 1, batch, hidden])?);
        hs.push(cx.reshape(outs[0], &[1, batch, hidden])?);
        if n > 1 {
            cs.push(cx.reshape(outs[1], &[1, batch, hidden])?);
        }
    }
    let join = |cx: &mut NodeContext, list: &[Value], axis: usize| -> Result<Value> {
        Ok(if list.len() == 1 { list[0] } else { cx.concat(list, axis)? })
    };
    let mut outs = vec![join(cx, &ys, 1)?, join(cx, &hs, 0)?];
    if cell == RnnCell::Lstm {
        outs.push(join(cx, &cs, 0)?);
    }
    if batch_first {
        outs[0] = cx.permute(outs[0], &[2, 0, 1, 3])?;
        for v in &mut outs[1..] {
            *v = cx.permute(*v, &[1, 0, 2])?;
        }
    }
    Ok(outs.into_iter().map(Into::into).collect())
}

impl RnnDirection {
    /// `(r, rb, peepholes?, lens?, h, c?, gates of x, t) -> (h, c?, y)`.
    fn body(&self, front: &[Type], x: &Type, peepholes: bool, lengths: bool) -> Result<ir::Graph> {
        let mut b = Builder::new();
        let ins: Vec<Value> = front.iter().map(|t| b.graph.input(t.clone())).collect();
        let x = b.graph.input(x.clone());
        let time = b.graph.input(Type::scalar(DType::I64));
        let (r, rb) = (ins[0], ins[1]);
        let mut at = 2;
        let mut next = |there: bool| {
            at += usize::from(there);
            there.then(|| ins[at - 1])
        };
        let (p, lens) = (next(peepholes), next(lengths));
        let carries = &ins[at..];
        let h = carries[0];
        let new = match self.cell {
            RnnCell::Rnn => {
                let z = self.recurrent_projection(&mut b, h, r, rb)?;
                let z = b.add(x, z)?;
                let z = self.clipped(&mut b, z)?;
                vec![self.acts[0].apply(&mut b, z)?]
            }
            RnnCell::Gru => vec![self.gru(&mut b, x, h, r, rb)?],
            RnnCell::Lstm => self.lstm(&mut b, x, h, carries[1], r, rb, p)?,
        };
        let mut outs = Vec::new();
        let y = match lens {
            None => {
                outs.extend(&new);
                new[0]
            }
            Some(lens) => {
                // After the end of a sequence, the state is unchanged and the output is 0.
                let shape = b.ty(h).shape;
                let t = b.splat(time, &b.ty(lens).shape.clone())?;
                let on = b.compare(Compare::Lt, t, lens)?;
                let on = b.broadcast(on, &shape, &[0])?;
                for (&n, &old) in new.iter().zip(carries) {
                    outs.push(b.select(on, n, old)?);
                }
                b.zero_unless(on, new[0])?
            }
        };
        outs.push(y);
        Ok(b.finish(&outs))
    }

    /// `h · rᵀ + rb`.
    fn recurrent_projection(&self, b: &mut Builder, h: Value, r: Value, rb: Value) -> Result<Value> {
        let y = b.one(Dot::last_axes(b.ty(h).dtype, 2, 2).into(), &[h, r])?;
        let shape = b.ty(y).shape;
        let rb = b.broadcast(rb, &shape, &[1])?;
        Ok(b.add(y, rb)?)
    }

    fn clipped(&self, b: &mut Builder, x: Value) -> Result<Value> {
        let Some(c) = self.clip else { return Ok(x) };
        let (lo, hi) = (b.full_like(x, -c)?, b.full_like(x, c)?);
        Ok(b.one(Clamp.into(), &[x, lo, hi])?)
    }

    fn gate(&self, b: &mut Builder, x: Value, k: usize) -> Result<Value> {
        Ok(b.slice_axis(x, 1, k * self.hidden, (k + 1) * self.hidden)?)
    }

    fn gru(&self, b: &mut Builder, x: Value, h: Value, r: Value, rb: Value) -> Result<Value> {
        let n = self.hidden;
        let rows = |b: &mut Builder, from: usize, to: usize| -> Result<(Value, Value)> {
            Ok((b.slice_axis(r, 0, from * n, to * n)?, b.slice_axis(rb, 0, from * n, to * n)?))
        };
        let (r_zr, b_zr) = rows(b, 0, 2)?;
        let (r_h, b_h) = rows(b, 2, 3)?;
        let zr = self.recurrent_projection(b, h, r_zr, b_zr)?;
        let x_zr = b.slice_axis(x, 1, 0, 2 * n)?;
        let zr = b.add(x_zr, zr)?;
        let zr = self.clipped(b, zr)?;
        let zr = self.acts[0].apply(b, zr)?;
        let (z, reset) = (self.gate(b, zr, 0)?, self.gate(b, zr, 1)?);
        let x_h = self.gate(b, x, 2)?;
        let part = if self.linear_before_reset {
            let y = self.recurrent_projection(b, h, r_h, b_h)?;
            b.mul(reset, y)?
        } else {
            let y = b.mul(reset, h)?;
            self.recurrent_projection(b, y, r_h, b_h)?
        };
        let new = b.add(x_h, part)?;
        let new = self.clipped(b, new)?;
        let new = self.acts[1].apply(b, new)?;
        // (1 - z)·new + z·h
        let d = b.sub(h, new)?;
        let d = b.mul(z, d)?;
        Ok(b.add(new, d)?)
    }

    #[expect(clippy::too_many_arguments, reason = "the operands of the cell")]
    fn lstm(
        &self,
        b: &mut Builder,
        x: Value,
        h: Value,
        c: Value,
        r: Value,
        rb: Value,
        p: Option<Value>,
    ) -> Result<Vec<Value>> {
        let y = self.recurrent_projection(b, h, r, rb)?;
        let y = b.add(x, y)?;
        let shape = b.ty(c).shape;
        // Peepholes are in the order i, o, f.
        let peep = |b: &mut Builder, gate: Value, k: usize, c: Value| -> Result<Value> {
            let Some(p) = p else { return Ok(gate) };
            let w = b.slice_axis(p, 0, k * self.hidden, (k + 1) * self.hidden)?;
            let w = b.broadcast(w, &shape, &[1])?;
            let t = b.mul(w, c)?;
            Ok(b.add(gate, t)?)
        };
        let squash = |b: &mut Builder, v: Value, act: &RnnActivation| -> Result<Value> {
            let v = self.clipped(b, v)?;
            act.apply(b, v)
        };
        let (i, o, f, g) = (self.gate(b, y, 0)?, self.gate(b, y, 1)?, self.gate(b, y, 2)?, self.gate(b, y, 3)?);
        let i = peep(b, i, 0, c)?;
        let i = squash(b, i, &self.acts[0])?;
        let f = if self.input_forget {
            let m = b.neg(i)?;
            b.offset(m, 1.0)?
        } else {
            let f = peep(b, f, 2, c)?;
            squash(b, f, &self.acts[0])?
        };
        let g = squash(b, g, &self.acts[1])?;
        let kept = b.mul(f, c)?;
        let added = b.mul(i, g)?;
        let c = b.add(kept, added)?;
        let o = peep(b, o, 1, c)?;
        let o = squash(b, o, &self.acts[0])?;
        let t = self.acts[2].apply(b, c)?;
        Ok(vec![b.mul(o, t)?, c])
    }
}

/// Linear attention: its state is one matrix per head, updated at each step.
pub(super) fn linear_attention(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (q, k, v) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let (past, decay, beta) = (cx.opt(3)?, cx.opt(4)?, cx.opt(5)?);
    let (hq, hk) = (cx.count("q_num_heads", 0)?, cx.count("kv_num_heads", 0)?);
    let rule = cx.string("update_rule", "gated_delta");
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(Error::node_error(format!("unknown update_rule `{other}`"))),
    };
    if gated != decay.is_some() || delta != beta.is_some() {
        return Err(Error::node_error(format!(
            "the rule {rule} needs other operands: decay goes with gates, beta with deltas"
        )));
    }
    let (qs, ks, vs) = (cx.shape(q), cx.shape(k), cx.shape(v));
    let (&[n, t, qw], &[_, _, kw], &[_, _, vw]) = (&qs[..], &ks[..], &vs[..]) else {
        return Err(Error::node_error("its inputs must be [B, T, H·D]"));
    };
    if hq % hk != 0 || qw % hq != 0 || vw % hk != 0 || kw != qw / hq * hk || ks[..2] != qs[..2] || vs[..2] != qs[..2] {
        return Err(Error::node_error(format!("{hq} and {hk} heads don't fit {qs:?}, {ks:?} and {vs:?}")));
    }
    let (dk, dv) = (qw / hq, vw / hk);
    let dtype = cx.dtype(q);
    let acc = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let scale = cx.float("scale", 0.0);
    let scale = if scale == 0.0 { 1.0 / (dk as f64).sqrt() } else { scale };
    // [T, B, heads, d] in the accumulator's dtype.
    let by_time = |cx: &mut NodeContext, x: Value, h: usize, d: usize| -> Result<Value> {
        let x = cx.cast(x, acc)?;
        let x = cx.reshape(x, &[n, t, h, d])?;
        Ok(cx.permute(x, &[1, 0, 2, 3])?)
    };
    let mut xs = vec![by_time(cx, q, hq, dk)?, by_time(cx, k, hk, dk)?, by_time(cx, v, hk, dv)?];
    if let Some(g) = decay {
        let width = cx.shape(g).last().copied().unwrap_or(0);
        let g = if width == hk {
            let g = by_time(cx, g, hk, 1)?;
            cx.broadcast(g, &[t, n, hk, dk], &[0, 1, 2, 3])?
        } else {
            by_time(cx, g, hk, dk)?
        };
        xs.push(g);
    }
    if let Some(w) = beta {
        let width = cx.shape(w).last().copied().unwrap_or(0);
        let w = by_time(cx, w, width, 1)?;
        xs.push(cx.broadcast(w, &[t, n, hk, dv], &[0, 1, 2, 3])?);
    }
    let state_type = past.map_or(dtype, |p| cx.dtype(p));
    let state = match past {
        Some(p) => cx.cast(p, acc)?,
        None => cx.zeros(&Type::new(acc, &[n, hk, dk, dv]))?,
    };
    let mut b = Builder::new();
    let state_in = b.graph.input(Type::new(acc, &[n, hk, dk, dv]));
    let ins: Vec<Value> = xs.iter().map(|&x| b.graph.input(cx.ty(x).unbatched())).collect();
    let (q_t, k_t, mut v_t) = (ins[0], ins[1], ins[2]);
    let full = [n, hk, dk, dv];
    let mut s = state_in;
    let mut rest = ins[3..].iter().copied();
    if gated && let Some(g) = rest.next() {
        let e = b.unary(Unary::Exp, g)?;
        let e = b.broadcast(e, &full, &[0, 1, 2])?;
        s = b.mul(s, e)?;
    }
    let two = |from: usize| -> Dot {
        Dot {
            lhs_batch: Shape::from_slice(&[0, 1]),
            rhs_batch: Shape::from_slice(&[0, 1]),
            lhs_contract: Shape::from_slice(&[from]),
            rhs_contract: Shape::from_slice(&[2]),
            ..Dot::matmul(acc)
        }
    };
    if delta && let Some(w) = rest.next() {
        let found = b.one(two(2).into(), &[k_t, s])?;
        let d = b.sub(v_t, found)?;
        v_t = b.mul(w, d)?;
    }
    let (ko, vo) = (b.broadcast(k_t, &full, &[0, 1, 2])?, b.broadcast(v_t, &full, &[0, 1, 3])?);
    let outer = b.mul(ko, vo)?;
    let s = b.add(s, outer)?;
    // Query heads read the state of their key head.
    let grouped = b.reshape(q_t, &[n, hk, hq / hk, dk])?;
    let y = b.one(two(3).into(), &[grouped, s])?;
    let y = b.reshape(y, &[n, hq, dv])?;
    let y = b.scale(y, scale)?;
    let body = b.finish(&[s, y]);
    let args: Vec<Value> = std::iter::once(state).chain(xs).collect();
    let outs = cx.emit(Scan::over(0, 1, t, body).into(), &args)?;
    let y = cx.permute(outs[1], &[1, 0, 2, 3])?;
    let y = cx.reshape(y, &[n, t, hq * dv])?;
    let (y, state) = (cx.cast(y, dtype)?, cx.cast(outs[0], state_type)?);
    Ok(vec![y.into(), state.into()])
}

/// A causal depthwise convolution whose state is the last inputs.
pub(super) fn causal_conv(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w, bias, past) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?, cx.opt(3)?);
    let (xs, ws) = (cx.shape(x), cx.shape(w));
    if xs.len() != 3 || ws.len() != 3 || ws[2] == 0 {
        return Err(Error::node_error("its inputs must be [B, C, L] and [C, 1, K]"));
    }
    let k = ws[2];
    let dtype = cx.dtype(x);
    let past = match past {
        Some(p) => p,
        None => cx.zeros(&Type::new(dtype, &[xs[0], xs[1], k - 1]))?,
    };
    let padded = cx.concat(&[past, x], 2)?;
    let y = cx.conv(padded, w, ir::ops::WindowConfig::unit_stride(1), xs[1])?;
    let y = super::conv::add_bias(cx, y, bias)?;
    let y = match cx.string("activation", "none").as_str() {
        "none" => y,
        "silu" | "swish" => super::elementwise::swish_of(cx, y, 1.0)?,
        other => return Err(Error::node_error(format!("unknown activation `{other}`"))),
    };
    let n = cx.shape(padded)[2];
    let state = cx.slice_axis(padded, 2, n - (k - 1), n)?;
    Ok(vec![y.into(), state.into()])
}

/// Rotary embedding: rotates pairs of features by angles that depend on the position.
pub(super) fn rotary(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, cos, sin, positions) = (cx.x(0)?, cx.x(1)?, cx.x(2)?, cx.opt(3)?);
    let original = cx.shape(x);
    // [B, T, H, D]
    let x = match original.len() {
        4 => cx.permute(x, &[0, 2, 1, 3])?,
        3 => {
            let h = cx.count("num_heads", 0)?;
            if original[2] % h != 0 {
                return Err(Error::node_error(format!(
                    "num_heads is {h}, but {} features are not divisible by it",
                    original[2]
                )));
            }
            cx.reshape(x, &[original[0], original[1], h, original[2] / h])?
        }
        _ => return Err(Error::node_error("its input must have 3 or 4 axes")),
    };
    let s = cx.shape(x);
    let d = usize::try_from(cx.int("rotary_embedding_dim", 0)).unwrap_or(0);
    let d = if d == 0 { s[3] } else { d };
    if d > s[3] || d % 2 != 0 {
        return Err(Error::node_error(format!("{d} of {} features can't be rotated in pairs", s[3])));
    }
    let (turned, rest) = (cx.slice_axis(x, 3, 0, d)?, cx.slice_axis(x, 3, d, s[3])?);
    let half = [s[0], s[1], s[2], d / 2];
    let table = |cx: &mut NodeContext, v: Value| -> Result<Value> {
        let v = match positions {
            Some(p) => cx.take(v, p, 0, ir::ops::GatherMode::Clip)?,
            None => v,
        };
        if cx.shape(v) != [s[0], s[1], d / 2] {
            return Err(Error::node_error("its cos and sin caches don't fit"));
        }
        Ok(cx.broadcast(v, &half, &[0, 1, 3])?)
    };
    let (cos, sin) = (table(cx, cos)?, table(cx, sin)?);
    let interleaved = cx.flag("interleaved");
    let pick = |cx: &mut NodeContext, k: usize| -> Result<Value> {
        Ok(if interleaved {
            cx.slice(turned, &[0, 0, 0, k], &[s[0], s[1], s[2], d], &[1, 1, 1, 2])?
        } else {
            cx.slice_axis(turned, 3, k * d / 2, (k + 1) * d / 2)?
        })
    };
    let (a, b) = (pick(cx, 0)?, pick(cx, 1)?);
    let (ca, sb) = (cx.mul(cos, a)?, cx.mul(sin, b)?);
    let (sa, cb) = (cx.mul(sin, a)?, cx.mul(cos, b)?);
    let (re, im) = (cx.sub(ca, sb)?, cx.binary(Binary::Add, sa, cb)?);
    let y = if interleaved {
        let wide = [s[0], s[1], s[2], d / 2, 1];
        let (re, im) = (cx.reshape(re, &wide)?, cx.reshape(im, &wide)?);
        let y = cx.concat(&[re, im], 4)?;
        cx.reshape(y, &[s[0], s[1], s[2], d])?
    } else {
        cx.concat(&[re, im], 3)?
    };
    let y = cx.concat(&[y, rest], 3)?;
    super::one(if original.len() == 3 { cx.reshape(y, &original)? } else { cx.permute(y, &[0, 2, 1, 3])? })
}

/// A constant vector of numbers.
pub(super) fn vector(cx: &mut NodeContext, dtype: DType, list: &[f64]) -> Result<Value> {
    let ty = Type::new(dtype, &[list.len()]);
    Ok(cx.constant(Literal::from_fn(ty, |i| ir::Scalar::from_f64(dtype, list[i])))?)
}
