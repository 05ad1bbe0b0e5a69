//! Fourier transforms and window functions.

use super::recurrent::vector;
use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, axis};
use ir::ops::{Fft, FftKind, GatherMode};
use ir::types::Shape;
use ir::{DType, GraphBuilder, Literal, Scalar, Type, Value};
use std::f64::consts::PI;

/// A number that determines a shape.
fn known_size(cx: &mut NodeContext, i: usize, what: &str) -> Result<i64> {
    let list = cx.static_amounts(i, what)?;
    list.first().copied().ok_or_else(|| Error::node_error(format!("its {what} is empty")))
}

/// Crops the axis or pads it with zeros to a length.
fn pad_or_truncate(cx: &mut NodeContext, x: Value, a: usize, n: usize) -> Result<Value> {
    let shape = cx.shape(x);
    if shape[a] == n {
        return Ok(x);
    }
    let dtype = cx.dtype(x);
    let zero = cx.scalar(dtype, 0.0)?;
    let (low, mut high) = (vec![0; shape.len()], vec![0; shape.len()]);
    high[a] = n as i64 - shape[a] as i64;
    Ok(cx.pad(x, zero, &low, &high, &vec![0; shape.len()])?)
}

/// The real and imaginary parts of `[.., 1 or 2]`.
fn split_complex(cx: &mut NodeContext, x: Value) -> Result<(Value, Option<Value>)> {
    let shape = cx.shape(x);
    let (&last, front) =
        shape.split_last().ok_or_else(|| Error::node_error("its input needs a last axis of 1 or 2"))?;
    let part = |cx: &mut NodeContext, k: usize| -> Result<Value> {
        let v = cx.slice_axis(x, front.len(), k, k + 1)?;
        Ok(cx.reshape(v, front)?)
    };
    match last {
        1 => Ok((part(cx, 0)?, None)),
        2 => Ok((part(cx, 0)?, Some(part(cx, 1)?))),
        n => {
            Err(Error::node_error(format!("the last axis of its input has {n} elements, not 1 (real) or 2 (complex)")))
        }
    }
}

fn join_complex(cx: &mut NodeContext, parts: &[Value]) -> Result<Value> {
    let mut shape = cx.shape(parts[0]);
    let axis = shape.len();
    shape.push(1);
    let list: Vec<Value> = parts.iter().map(|&v| cx.reshape(v, &shape)).collect::<ir::Result<_>>()?;
    Ok(if list.len() == 1 { list[0] } else { cx.concat(&list, axis)? })
}

fn transform(cx: &mut NodeContext, re: Value, im: Option<Value>, a: usize, kind: FftKind) -> Result<Vec<Value>> {
    let im = match im {
        Some(im) => im,
        None => cx.full_like(re, 0.0)?,
    };
    let args: &[Value] = if matches!(kind, FftKind::Real) { &[re] } else { &[re, im] };
    Ok(cx.emit(Fft { kind, axes: Shape::from_slice(&[a]) }.into(), args)?.to_vec())
}

pub(super) fn dft(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let a = match cx.version < 20 {
        true => axis(cx.int("axis", 1), rank)?,
        false if cx.item(2).is_some() => axis(known_size(cx, 2, "axis")?, rank)?,
        false => axis(-2, rank)?,
    };
    if a + 1 >= rank {
        return Err(Error::node_error("its axis must not be the last, which holds the real and imaginary parts"));
    }
    let (inverse, onesided) = (cx.flag("inverse"), cx.flag("onesided"));
    let size = cx.shape(x)[a];
    let n = match cx.item(1) {
        Some(_) => known_size(cx, 1, "dft_length")?,
        None if inverse && onesided => 2 * (size as i64 - 1),
        None => size as i64,
    };
    let n = usize::try_from(n)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| Error::node_error(format!("a transform of {n} points")))?;
    let dtype = cx.dtype(x);
    let wide = cx.cast(x, dtype.accumulator())?;
    let (re, im) = split_complex(cx, wide)?;
    let outs = if inverse && onesided {
        let half = n / 2 + 1;
        let re = pad_or_truncate(cx, re, a, half)?;
        let im = im.map(|im| pad_or_truncate(cx, im, a, half)).transpose()?;
        transform(cx, re, im, a, FftKind::InverseReal { length: n })?
    } else {
        let re = pad_or_truncate(cx, re, a, n)?;
        let im = im.map(|im| pad_or_truncate(cx, im, a, n)).transpose()?;
        if !inverse && onesided && im.is_none() {
            transform(cx, re, None, a, FftKind::Real)?
        } else {
            let kind = if inverse { FftKind::Inverse } else { FftKind::Forward };
            let outs = transform(cx, re, im, a, kind)?;
            match onesided {
                true => outs.iter().map(|&v| cx.slice_axis(v, a, 0, n / 2 + 1)).collect::<ir::Result<_>>()?,
                false => outs,
            }
        }
    };
    let y = join_complex(cx, &outs)?;
    one(cx.cast(y, dtype)?)
}

pub(super) fn stft(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let step = known_size(cx, 1, "frame_step")?;
    let window = cx.opt(2)?;
    let length = match (cx.item(3).is_some(), window) {
        (true, _) => known_size(cx, 3, "frame_length")?,
        (false, Some(w)) => cx.shape(w).first().copied().unwrap_or(0) as i64,
        (false, None) => shape.get(1).copied().unwrap_or(0) as i64,
    };
    let (Ok(step), Ok(length)) = (usize::try_from(step), usize::try_from(length)) else {
        return Err(Error::node_error("its frame_step and frame_length must be positive"));
    };
    // A signal may have no axis for real and imaginary parts.
    let x = if shape.len() == 2 { cx.reshape(x, &[shape[0], shape[1], 1])? } else { x };
    let shape = cx.shape(x);
    if shape.len() != 3 || step == 0 || length == 0 || shape[1] < length || length > 1 << 24 {
        return Err(Error::node_error(format!("frames of {length} every {step} don't fit a signal {shape:?}")));
    }
    let frames = (shape[1] - length) / step + 1;
    let start = cx.iota(DType::I64, &[frames, length], 0)?;
    let start = cx.scale(start, step as f64)?;
    let place = cx.iota(DType::I64, &[frames, length], 1)?;
    let at = cx.add(start, place)?;
    let cut = cx.take(x, at, 1, GatherMode::Clip)?;
    let cut = match window {
        Some(w) => {
            let w = pad_or_truncate(cx, w, 0, length)?;
            let s = cx.shape(cut);
            let w = cx.broadcast_along(w, &s, 2)?;
            cx.mul(cut, w)?
        }
        None => cut,
    };
    let (re, im) = split_complex(cx, cut)?;
    let onesided = cx.int("onesided", 1) != 0;
    let outs = if onesided && im.is_none() {
        transform(cx, re, None, 2, FftKind::Real)?
    } else {
        transform(cx, re, im, 2, FftKind::Forward)?
    };
    one(join_complex(cx, &outs)?)
}

/// A window function as a sum of cosines: `Σ c[k] · cos(2πkn/N)`.
pub(super) fn window(cx: &mut NodeContext, terms: &[f64]) -> Result<NodeOutputs> {
    let n = known_size(cx, 0, "size")?;
    let n = usize::try_from(n)
        .ok()
        .filter(|n| *n <= 1 << 24)
        .ok_or_else(|| Error::node_error(format!("a window of {n}")))?;
    let (dtype, _) = cx.dtype_of(cx.int("output_datatype", 1))?;
    let period = if cx.int("periodic", 1) != 0 { n as f64 } else { n as f64 - 1.0 };
    let at =
        |i: usize| terms.iter().enumerate().map(|(k, c)| c * (2.0 * PI * k as f64 * i as f64 / period).cos()).sum();
    let list: Vec<f64> = (0..n).map(at).collect();
    one(vector(cx, dtype, &list)?)
}

pub(super) fn mel_weights(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (bins, length, rate) =
        (known_size(cx, 0, "num_mel_bins")?, known_size(cx, 1, "dft_length")?, known_size(cx, 2, "sample_rate")?);
    let hertz = |cx: &mut NodeContext, i: usize, what: &str| -> Result<f64> {
        let x = cx.static_operand(i, what)?;
        x.scalars().next().map(Scalar::to_f64).ok_or_else(|| Error::node_error(format!("its {what} is empty")))
    };
    let (low, high) = (hertz(cx, 3, "lower_edge_hertz")?, hertz(cx, 4, "upper_edge_hertz")?);
    let (dtype, _) = cx.dtype_of(cx.int("output_datatype", 1))?;
    if !(1..1 << 16).contains(&bins)
        || !(1..1 << 24).contains(&length)
        || rate < 1
        || !low.is_finite()
        || !high.is_finite()
    {
        return Err(Error::node_error("its bins, length, rate or edges are out of range"));
    }
    let (bins, rows) = (bins as usize, length as usize / 2 + 1);
    if rows * bins > 1 << 26 {
        return Err(Error::node_error(format!("a matrix of {rows} by {bins} weights is too large")));
    }
    let mel = |f: f64| 2595.0 * (f / 700.0).ln_1p() / 10f64.ln();
    let step = (mel(high) - mel(low)) / (bins as f64 + 2.0);
    let edge = |i: usize| {
        let f = 700.0 * ((i as f64 * step + mel(low)) / 2595.0 * 10f64.ln()).exp_m1();
        ((length as f64 + 1.0) * f / rate as f64).floor() as i64
    };
    let mut out = vec![0.0; rows * bins];
    for i in 0..bins {
        let (left, centre, right) = (edge(i), edge(i + 1), edge(i + 2));
        // Edges may be far outside of the rows.
        let within = |j: i64| j.clamp(0, rows as i64);
        if centre == left && (0..rows as i64).contains(&centre) {
            out[centre as usize * bins + i] = 1.0;
        } else {
            for j in within(left)..within(centre.saturating_add(1)) {
                out[j as usize * bins + i] = (j as f64 - left as f64) / (centre as f64 - left as f64);
            }
        }
        for j in within(centre)..within(right) {
            out[j as usize * bins + i] = (right as f64 - j as f64) / (right as f64 - centre as f64);
        }
    }
    let ty = Type::new(dtype, &[rows, bins]);
    one(cx.constant(Literal::from_fn(ty, |i| Scalar::from_f64(dtype, out[i])))?)
}
