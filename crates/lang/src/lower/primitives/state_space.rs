//! §6.10: the causal convolution and the selective scan of Mamba, with their states in a decode step.

use super::elementwise::softplus;
use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use crate::lower::sequence::SequenceDependence;
use ir::composites::activation;
use ir::ops::Scan;
use ir::{Binary, Builder, GraphBuilder, Type, Unary, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    match p.name {
        "mamba_conv1d" => conv(l, p),
        "mamba_split_proj" => split_projection(l, p),
        "mamba_split_conv" => split_convolved(l, p),
        _ => scan(l, p),
    }
}

fn size(p: &PrimitiveCall, name: &str) -> LowerResult<usize> {
    let size = p.int(name).and_then(|n| usize::try_from(n).ok());
    size.ok_or_else(|| PrimitiveError::InvalidArgument(format!("needs the number `{name}`")))
}

/// Splits `[B, T, d_inner + d_conv + steps]` into the gate, the input of the convolution (channels first), and the time steps,
/// each of which is shared by several channels.
fn split_projection(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let x = p.tensor(0)?;
    let (inner, conv) = (size(p, "d_inner")?, size(p, "d_conv")?);
    let [batch, steps, width] = l.b.ty(x).shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs x [B, T, P]".into()));
    };
    let times = width.saturating_sub(inner + conv);
    if times == 0 || inner % times != 0 {
        let words = format!("cannot divide {width} into {inner}, {conv} and steps that serve {inner} channels");
        return Err(PrimitiveError::InvalidArgument(words));
    }
    let gate = l.b.slice_axis(x, 2, 0, inner)?;
    let channels = l.b.permute(x, &[0, 2, 1])?;
    let convolved = l.b.slice_axis(channels, 1, inner, inner + conv)?;
    let delta = l.b.slice_axis(channels, 1, inner + conv, width)?;
    let delta = l.b.broadcast(delta, &[batch, times, inner / times, steps], &[0, 1, 3])?;
    let delta = l.b.reshape(delta, &[batch, inner, steps])?;
    Ok(vec![gate, convolved, delta])
}

/// Splits `[B, d_inner + 2·groups·state, T]` into the scan's input and the projections B and C of each group.
fn split_convolved(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let x = p.tensor(0)?;
    let (inner, groups, state) = (size(p, "d_inner")?, size(p, "n_groups")?, size(p, "d_state")?);
    let [batch, channels, steps] = l.b.ty(x).shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs x [B, C, T]".into()));
    };
    if channels != inner + 2 * groups * state {
        let words = format!("cannot divide {channels} channels into {inner} and twice {groups} times {state}");
        return Err(PrimitiveError::InvalidArgument(words));
    }
    let u = l.b.slice_axis(x, 1, 0, inner)?;
    let mut part = |i: usize| -> LowerResult<Value> {
        let start = inner + i * groups * state;
        let part = l.b.slice_axis(x, 1, start, start + groups * state)?;
        Ok(l.b.reshape(part, &[batch, groups, state, steps])?)
    };
    Ok(vec![u, part(0)?, part(1)?])
}

/// A state from the caller, from the decode cache, or zero.
fn state(l: &mut Lowerer<'_>, given: Option<Value>, ty: &Type) -> LowerResult<(Value, bool)> {
    match given {
        Some(state) => Ok((state, false)),
        None if l.options.decode.is_some() => Ok((l.b.graph.input(ty.clone()), true)),
        None => Ok((l.b.zeros(ty)?, false)),
    }
}

/// The dependence of a stateful primitive's result: per position if all operands are and the state is internal.
fn state_dependence(l: &mut Lowerer<'_>, inputs: &[(Value, usize)], given: Option<Value>) -> SequenceDependence {
    match given {
        Some(_) => l.mixed("a state that is an input of each call"),
        None => l.all_rows(inputs, "a state over an axis that is not the sequence"),
    }
}

/// Sets the dependence of the result; the state after the last position depends on all positions.
fn mark_state(l: &mut Lowerer<'_>, y: Value, state: Value, kind: SequenceDependence) {
    l.set_dependence(y, kind);
    l.set_cross_position(&[state], "the state after the last position");
}

/// A depthwise causal convolution over the last K values of each channel. A sum of K shifted products fuses into one loop.
fn conv(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (x, w) = (p.tensor(0)?, p.tensor(1)?);
    let ty = l.b.ty(x);
    let ([batch, channels, steps], [_, _, width]) = (&ty.shape[..], &l.b.ty(w).shape[..]) else {
        return Err(PrimitiveError::InvalidArgument("needs x [B, D, T] and weight [D, 1, K]".into()));
    };
    let (batch, channels, steps, width) = (*batch, *channels, *steps, *width);
    let before = Type::new(ty.dtype, &[batch, channels, width - 1]);
    let kind = state_dependence(l, &[(x, 2)], p.optional(3)?);
    let (past, cached) = state(l, p.optional(3)?, &before)?;
    let padded = l.b.concat(&[past, x], 2)?;
    let next = l.b.slice_axis(padded, 2, steps, steps + width - 1)?;
    if cached {
        l.caches.push((past, next));
    }
    let w = l.b.reshape(w, &[channels, width])?;
    let mut y: Option<Value> = None;
    for i in 0..width {
        let shifted = l.b.slice_axis(padded, 2, i, i + steps)?;
        let wi = l.b.slice_axis(w, 1, i, i + 1)?;
        let wi = l.b.reshape(wi, &[channels])?;
        let wi = l.b.broadcast(wi, &ty.shape, &[1])?;
        let term = l.b.mul(shifted, wi)?;
        y = l.b.add_optional(y, Some(term))?;
    }
    let mut y = y.ok_or_else(|| PrimitiveError::InvalidArgument("needs a kernel of at least one element".into()))?;
    if let Some(bias) = p.optional(2)? {
        let bias = l.b.broadcast(bias, &ty.shape, &[1])?;
        y = l.b.add(y, bias)?;
    }
    if p.word("activation") != Some("none") && p.flag("silu") {
        let c = activation::silu(&l.b.ty(y))?;
        y = l.b.emit(c.into(), &[y])?[0];
    }
    mark_state(l, y, next, kind);
    Ok(vec![y, next])
}

/// `h ← exp(Δ·A)·h + Δ·B·u`, `y = C·h + D·u`, with `Δ = softplus(delta + dt_bias)` between `dt_min` and `dt_max`.
fn scan(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (u, delta, a, d, dt_bias) = (p.tensor(0)?, p.tensor(1)?, p.tensor(2)?, p.tensor(5)?, p.tensor(6)?);
    let ty = l.b.ty(u);
    let [batch, width, steps] = ty.shape[..] else {
        return Err(PrimitiveError::InvalidArgument("needs u [B, D, T]".into()));
    };
    let n = l.b.ty(a).shape[1];
    let acc = ty.dtype.accumulator();
    let wide = |l: &mut Lowerer<'_>, x: Value| l.b.cast(x, acc);
    let (uw, dw, a, d, dt_bias) = (wide(l, u)?, wide(l, delta)?, wide(l, a)?, wide(l, d)?, wide(l, dt_bias)?);
    let bias = l.b.broadcast(dt_bias, &ty.shape, &[1])?;
    let raw = l.b.add(dw, bias)?;
    let mut step = softplus(&mut l.b, raw)?;
    let bounds = [(Binary::Max, p.float("dt_min").filter(|low| *low > 0.0)), (Binary::Min, p.float("dt_max"))];
    for (op, bound) in bounds {
        if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
            let bound = l.b.full_like(step, bound)?;
            step = l.b.binary(op, step, bound)?;
        }
    }
    // The channels of a group share B and C.
    let mut by_step = |x: Value| -> LowerResult<Value> {
        let x = l.b.cast(x, acc)?;
        let groups = l.b.ty(x).shape[1];
        let x = l.b.permute(x, &[3, 0, 1, 2])?;
        let x = l.b.broadcast(x, &[steps, batch, groups, width / groups.max(1), n], &[0, 1, 2, 4])?;
        Ok(l.b.reshape(x, &[steps, batch, width, n])?)
    };
    let (bs, cs) = (by_step(p.tensor(3)?)?, by_step(p.tensor(4)?)?);
    let (us, ds) = (l.b.permute(uw, &[2, 0, 1])?, l.b.permute(step, &[2, 0, 1])?);

    let full = [batch, width, n];
    let mut body = Builder::new();
    let av = body.input(acc, &[width, n]);
    let h = body.input(acc, &full);
    let (uv, dv) = (body.input(acc, &[batch, width]), body.input(acc, &[batch, width]));
    let (bv, cv) = (body.input(acc, &full), body.input(acc, &full));
    let d_wide = body.broadcast(dv, &full, &[0, 1])?;
    let a_wide = body.broadcast(av, &full, &[1, 2])?;
    let decay = body.mul(d_wide, a_wide)?;
    let decay = body.unary(Unary::Exp, decay)?;
    let kept = body.mul(decay, h)?;
    let du = body.mul(dv, uv)?;
    let du = body.broadcast(du, &full, &[0, 1])?;
    let new = body.mul(du, bv)?;
    let h = body.add(kept, new)?;
    let seen = body.mul(h, cv)?;
    let y = body.sum(seen, &[2])?;
    let body = body.finish(&[h, y]);

    let (b_in, c_in) = (p.tensor(3)?, p.tensor(4)?);
    let kind = state_dependence(l, &[(u, 2), (delta, 2), (b_in, 3), (c_in, 3)], p.optional(7)?);
    let (start, cached) = state(l, p.optional(7)?, &Type::new(acc, &full))?;
    let outs = l.b.emit(Scan::over(1, 1, steps, body).into(), &[a, start, us, ds, bs, cs])?;
    if cached {
        l.caches.push((start, outs[0]));
    }
    let y = l.b.permute(outs[1], &[1, 2, 0])?;
    let d = l.b.broadcast(d, &ty.shape, &[1])?;
    let skip = l.b.mul(d, uw)?;
    let y = l.b.add(y, skip)?;
    let y = l.b.cast(y, ty.dtype)?;
    mark_state(l, y, outs[0], kind);
    Ok(vec![y, outs[0]])
}
