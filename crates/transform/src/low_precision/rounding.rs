//! Rounds a tensor to a low-precision format: the scales, the grid of values, and the composites that do it in a graph.
//!
//! `rounded` has the identity as its derivative; `rounded_gradient` is the identity whose cotangent is rounded. Both compute the
//! scale from the current tensor. [`super::with_state`] adds a history for delayed scaling and a key for stochastic rounding.

use ir::attr::Attr;
use ir::ops::{Bitcast, Composite, Derivative, Quantize, ReduceKind};
use ir::{Binary, Builder, Compare, DType, GraphBuilder, Result, Scalar, Shape, Unary, Value};
use std::sync::Arc;

/// A low-precision format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowPrecision {
    /// 4 exponent bits, 3 mantissa bits, maximum 448.
    E4M3,
    /// 5 exponent bits, 2 mantissa bits, maximum 57344.
    E5M2,
    /// 2 exponent bits, 1 mantissa bit, maximum 6.
    E2M1,
    /// Integers from −127 to 127.
    Int8,
    /// Integers from −7 to 7.
    Int4,
}

impl LowPrecision {
    /// All formats.
    pub const ALL: [LowPrecision; 5] =
        [LowPrecision::E4M3, LowPrecision::E5M2, LowPrecision::E2M1, LowPrecision::Int8, LowPrecision::Int4];

    /// The name of the format in the model language.
    pub const fn name(self) -> &'static str {
        match self {
            LowPrecision::E4M3 => "fp8_e4m3",
            LowPrecision::E5M2 => "fp8_e5m2",
            LowPrecision::E2M1 => "fp4_e2m1",
            LowPrecision::Int8 => "int8",
            LowPrecision::Int4 => "int4",
        }
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<LowPrecision> {
        LowPrecision::ALL.into_iter().find(|few| few.name() == name)
    }

    /// The largest finite number before scaling.
    pub const fn max_finite(self) -> f64 {
        match self {
            LowPrecision::E4M3 => 448.0,
            LowPrecision::E5M2 => 57344.0,
            LowPrecision::E2M1 => 6.0,
            LowPrecision::Int8 => 127.0,
            LowPrecision::Int4 => 7.0,
        }
    }

    /// The number of mantissa bits and the smallest normal exponent; none for integer formats.
    const fn float(self) -> Option<(u32, i32)> {
        match self {
            LowPrecision::E4M3 => Some((3, -6)),
            LowPrecision::E5M2 => Some((2, -14)),
            LowPrecision::E2M1 => Some((1, 0)),
            LowPrecision::Int8 | LowPrecision::Int4 => None,
        }
    }
}

/// The granularity of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// One scale per tensor.
    PerTensor,
    /// One scale for each row along the contracted axis: an output channel of a matrix, a token of activations.
    PerRow,
    /// One scale for each block of this many rows and columns; blocks at the edges may be smaller. For E2M1, blocks with 16
    /// columns have the scales of NVFP4 (E4M3 under one f32 scale), those with 32 the scales of MXFP4 (powers of two); other
    /// formats have f32 scales.
    PerBlock(usize, usize),
}

/// Delayed scaling: one scale per tensor, computed from the largest magnitudes of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedScaling {
    /// The number of steps in the history.
    pub history: usize,
    /// The number of steps between updates of the scale.
    pub interval: usize,
}

/// How a tensor is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// The format.
    pub format: LowPrecision,
    /// The granularity of its scales.
    pub scaling: Scaling,
    /// Headroom: the fraction by which the scaled maximum stays below the format's maximum.
    pub margin: f64,
    /// Delayed scaling, for steps that keep state.
    pub delayed_scaling: Option<DelayedScaling>,
    /// Whether it rounds stochastically in steps with a key, with probabilities by distance; to nearest otherwise.
    pub stochastic: bool,
    /// For blocks of NVFP4: whether the largest number of a block is scaled to 6 or to 4, whichever has the smaller error. The
    /// grid has no value between 4 and 6, so blocks with several large numbers lose precision with the larger scale.
    pub adaptive_block_scale: bool,
}

impl Rounding {
    /// Rounding to nearest, scaled by the current tensor: one scale per group of 16 for E2M1, one per tensor for other formats.
    pub const fn new(format: LowPrecision) -> Rounding {
        let scaling = match format {
            LowPrecision::E2M1 => Scaling::PerBlock(1, 16),
            _ => Scaling::PerTensor,
        };
        Rounding { format, scaling, margin: 0.0, delayed_scaling: None, stochastic: false, adaptive_block_scale: false }
    }

    /// Sets the granularity of scales.
    pub const fn with_scaling(self, scaling: Scaling) -> Rounding {
        Rounding { scaling, ..self }
    }

    /// Chooses the better of two scales for each block of NVFP4; other formats have only one.
    pub const fn with_adaptive_block_scale(self) -> Rounding {
        Rounding { adaptive_block_scale: matches!(self.format, LowPrecision::E2M1), ..self }
    }

    /// Whether blocks choose between two scales.
    fn has_scale_choice(&self) -> bool {
        let nvfp4 = matches!(self.scaling, Scaling::PerBlock(_, columns) if columns % 32 != 0);
        self.adaptive_block_scale
            && nvfp4
            && self.format == LowPrecision::E2M1
            && !self.stochastic
            && self.delayed_scaling.is_none()
    }

    /// A description for `explain`.
    pub fn describe(&self) -> String {
        let scales = match (self.delayed_scaling, self.scaling) {
            (Some(delay), _) => format!("delayed scaling over {} steps", delay.history),
            (None, Scaling::PerTensor) => "a scale for each tensor".to_string(),
            (None, Scaling::PerRow) => "a scale for each row".to_string(),
            (None, Scaling::PerBlock(1, n)) => format!("scales of groups of {n}"),
            (None, Scaling::PerBlock(n, k)) => format!("scales of blocks of {n} by {k}"),
        };
        let chance = match (self.stochastic, self.has_scale_choice()) {
            (true, _) => ", stochastic",
            (_, true) => ", the better of two for each",
            _ => "",
        };
        format!("{} ({scales}{chance})", self.format.name())
    }

    fn params(&self) -> Vec<(String, Attr)> {
        let int = |n: usize| Attr::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let mut params = vec![("to".into(), Attr::Word(self.format.name().into()))];
        match self.scaling {
            Scaling::PerTensor => {}
            Scaling::PerRow => params.push(("rows".into(), Attr::Bool(true))),
            Scaling::PerBlock(n, k) => params.extend([("down".into(), int(n)), ("across".into(), int(k))]),
        }
        if self.margin != 0.0 {
            params.push(("margin".into(), Attr::Scalar(Scalar::from_f64(DType::F64, self.margin))));
        }
        if let Some(DelayedScaling { history, interval }) = self.delayed_scaling {
            params.extend([("history".into(), int(history)), ("interval".into(), int(interval))]);
        }
        if self.stochastic {
            params.push(("stochastic".into(), Attr::Bool(true)));
        }
        if self.adaptive_block_scale {
            params.push(("fitted".into(), Attr::Bool(true)));
        }
        params
    }

    /// The rounding that a composite of this module performs.
    pub(super) fn of(c: &Composite) -> Option<Rounding> {
        let Some(Attr::Word(name)) = c.param("to") else { return None };
        let int = |name: &str| c.int(name).and_then(|n| usize::try_from(n).ok());
        let scaling = match (c.flag("rows"), int("down"), int("across")) {
            (true, ..) => Scaling::PerRow,
            (_, Some(n), Some(k)) => Scaling::PerBlock(n, k),
            _ => Scaling::PerTensor,
        };
        let delay = int("history").zip(int("interval")).map(|(history, interval)| DelayedScaling { history, interval });
        let (margin, stochastic) = (c.float("margin").unwrap_or(0.0), c.flag("stochastic"));
        Some(Rounding {
            format: LowPrecision::from_name(name)?,
            scaling,
            margin,
            delayed_scaling: delay,
            stochastic,
            adaptive_block_scale: c.flag("fitted"),
        })
    }
}

/// The inputs of a rounding besides the tensor.
#[derive(Clone, Copy, Default)]
pub(super) struct RoundingState {
    /// `[scale, steps since the last update, largest magnitudes..]`.
    pub(super) state: Option<Value>,
    /// The key, `u32[2]`, and the number of the random stream.
    pub(super) key: Option<(Value, u32)>,
}

/// The name of a composite that rounds its operand.
pub(super) const ROUNDED: &str = "rounded";
/// The name of a composite that rounds its cotangent.
pub(super) const ROUNDED_GRADIENT: &str = "rounded_gradient";

/// Rounds a tensor, in f32, with the identity as its derivative. `axis` is the contracted axis.
pub fn round_operand(b: &mut Builder, x: Value, axis: usize, how: &Rounding) -> Result<Value> {
    let ty = b.ty(x);
    let last = ty.rank().saturating_sub(1);
    if ty.rank() == 0 || axis == last {
        let composite = operand(&b.ty(x), how, &[])?;
        return b.one(composite.into(), &[x]);
    }
    // Move the contracted axis last if scales run along it.
    let perm: Shape = (0..ty.rank()).filter(|a| *a != axis).chain([axis]).collect();
    let turned = b.permute(x, &perm)?;
    let composite = operand(&b.ty(turned), how, &[])?;
    let y = b.one(composite.into(), &[turned])?;
    let mut back: Shape = perm.clone();
    perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
    b.permute(y, &back)
}

/// The identity, whose cotangent is rounded.
pub fn round_gradient(b: &mut Builder, y: Value, how: &Rounding) -> Result<Value> {
    let composite = cotangent(&b.ty(y), how, &[])?;
    b.one(composite.into(), &[y])
}

/// Additional operands of a rounding, in their order after the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtraOperand {
    /// The state of delayed scaling, with this many steps.
    State(usize),
    /// A key, and the number of the random stream.
    Key(u32),
}

impl ExtraOperand {
    pub(super) fn ty(self) -> ir::Type {
        match self {
            ExtraOperand::State(history) => ir::Type::new(DType::F32, &[2 + history]),
            ExtraOperand::Key(_) => ir::Type::new(DType::U32, &[2]),
        }
    }

    fn inputs(all: &[ExtraOperand], b: &mut Builder) -> RoundingState {
        let mut given = RoundingState::default();
        for one in all {
            let value = b.graph.input(one.ty());
            match one {
                ExtraOperand::State(_) => given.state = Some(value),
                ExtraOperand::Key(stream) => given.key = Some((value, *stream)),
            }
        }
        given
    }
}

/// The composite that rounds a tensor of this type. The gradient of a state is its next value.
pub(super) fn operand(ty: &ir::Type, how: &Rounding, further: &[ExtraOperand]) -> Result<Composite> {
    let mut body = Builder::new();
    let x = body.graph.input(ty.clone());
    let given = ExtraOperand::inputs(further, &mut body);
    let y = round(&mut body, x, how, given)?;
    let out = body.ty(y);
    let body = body.finish(&[y]);
    let mut own = Builder::new();
    let derivative = match given.state {
        None => {
            own.graph.input(ty.clone());
            ExtraOperand::inputs(further, &mut own);
            let dx = own.graph.input(ty.clone());
            let dx = own.cast(dx, DType::F32)?;
            Derivative::Jvp(Arc::new(own.finish(&[dx])))
        }
        Some(_) => {
            let x = own.graph.input(ty.clone());
            let given = ExtraOperand::inputs(further, &mut own);
            own.graph.input(out.clone());
            let ct = own.graph.input(out);
            let ct = own.cast(ct, ty.dtype)?;
            let next = next_state(&mut own, x, how, given)?;
            Derivative::Vjp(Arc::new(own.finish(&[ct, next])))
        }
    };
    Ok(Composite {
        name: ROUNDED.into(),
        params: how.params(),
        body: Arc::new(body),
        num_public_outputs: 1,
        derivative,
    })
}

/// The composite that rounds the cotangent of a tensor of this type. The gradient of a state is its next value.
pub(super) fn cotangent(ty: &ir::Type, how: &Rounding, further: &[ExtraOperand]) -> Result<Composite> {
    let mut body = Builder::new();
    let v = body.graph.input(ty.clone());
    ExtraOperand::inputs(further, &mut body);
    let mut vjp = Builder::new();
    vjp.graph.input(ty.clone());
    let given = ExtraOperand::inputs(further, &mut vjp);
    vjp.graph.input(ty.clone());
    let ct = vjp.graph.input(ty.clone());
    let rounded = round(&mut vjp, ct, how, given)?;
    let mut outs = vec![vjp.cast(rounded, ty.dtype)?];
    if given.state.is_some() {
        outs.push(next_state(&mut vjp, ct, how, given)?);
    }
    Ok(Composite {
        name: ROUNDED_GRADIENT.into(),
        params: how.params(),
        body: Arc::new(body.finish(&[v])),
        num_public_outputs: 1,
        derivative: Derivative::Vjp(Arc::new(vjp.finish(&outs))),
    })
}

/// Rounds a tensor, in f32.
fn round(b: &mut Builder, x: Value, how: &Rounding, given: RoundingState) -> Result<Value> {
    let ty = b.ty(x);
    let wide = b.cast(x, DType::F32)?;
    if ty.numel() == 0 {
        return Ok(wide);
    }
    if how.has_scale_choice() {
        return best_block_scale(b, wide, how);
    }
    let scale = match given.state {
        Some(state) => delayed_scale(b, wide, how, state)?,
        None => current_scales(b, wide, how, how.format.max_finite())?,
    };
    round_to_grid(b, wide, how, scale, given)
}

/// Scales the largest number of each block to 6 or to 4, whichever has the smaller sum of squared errors.
fn best_block_scale(b: &mut Builder, wide: Value, how: &Rounding) -> Result<Value> {
    let mut tried = Vec::with_capacity(2);
    for top in [6.0, 4.0] {
        let scale = current_scales(b, wide, how, top)?;
        let y = round_to_grid(b, wide, how, scale, RoundingState::default())?;
        let off = b.sub(y, wide)?;
        let off = b.mul(off, off)?;
        tried.push((y, reduce_blocks(b, ReduceKind::Sum, off, how.scaling)?));
    }
    let worse = b.compare(Compare::Lt, tried[1].1, tried[0].1)?;
    b.select(worse, tried[1].0, tried[0].0)
}

/// Rounds numbers to the format's grid with the given scales; a scale of zero counts as one.
fn round_to_grid(b: &mut Builder, wide: Value, how: &Rounding, scale: Value, given: RoundingState) -> Result<Value> {
    let ty = b.ty(wide);
    let (zero, one) = (b.full_like(scale, 0.0)?, b.full_like(scale, 1.0)?);
    let nothing = b.compare(Compare::Eq, scale, zero)?;
    let scale = b.select(nothing, one, scale)?;
    let shrunk = b.div(wide, scale)?;
    let codes = match given.key {
        Some((key, stream)) if how.stochastic => {
            let noise = uniform(b, key, stream, &ty.shape)?;
            round_stochastic(b, shrunk, how.format, noise)?
        }
        _ => round_nearest(b, shrunk, how.format)?,
    };
    b.mul(codes, scale)
}

/// The scale of each element, computed from the current tensor: the largest magnitude becomes `top`.
fn current_scales(b: &mut Builder, wide: Value, how: &Rounding, top: f64) -> Result<Value> {
    let size = b.unary(Unary::Abs, wide)?;
    let most = reduce_blocks(b, ReduceKind::Max, size, how.scaling)?;
    match (how.format, how.scaling) {
        (LowPrecision::E2M1, Scaling::PerBlock(_, columns)) if columns % 32 == 0 => {
            // OCP MX: the exponent of the largest magnitude minus that of the format's maximum, rounded down.
            let raw = b.one(Bitcast(DType::U32).into(), &[most])?;
            let e = bits(b, Binary::Shr, raw, 23)?;
            // A scale of 2^-127 is subnormal in f32; no product needs it.
            let e = bits(b, Binary::Max, e, 3)?;
            let e = bits(b, Binary::Sub, e, 2)?;
            let e = bits(b, Binary::Shl, e, 23)?;
            b.one(Bitcast(DType::F32).into(), &[e])
        }
        (LowPrecision::E2M1, Scaling::PerBlock(..)) => {
            let all = reduce_blocks(b, ReduceKind::Max, size, Scaling::PerTensor)?;
            // Scales that may be 6/4 as large need that much headroom.
            let room = if how.has_scale_choice() { 256.0 } else { 448.0 };
            let all = b.scale(all, (1.0 + how.margin) / (room * 6.0))?;
            let (zero, one) = (b.full_like(all, 0.0)?, b.full_like(all, 1.0)?);
            let nothing = b.compare(Compare::Eq, all, zero)?;
            let all = b.select(nothing, one, all)?;
            let top = b.full_like(most, top)?;
            let own = b.div(most, top)?;
            let own = b.div(own, all)?;
            let own = b.one(Quantize(DType::F8E4M3).into(), &[own])?;
            let own = b.cast(own, DType::F32)?;
            b.mul(own, all)
        }
        _ => b.scale(most, (1.0 + how.margin) / top),
    }
}

/// The scale in a state; the first step has no history and scales by the current tensor.
fn delayed_scale(b: &mut Builder, wide: Value, how: &Rounding, state: Value) -> Result<Value> {
    let shape = b.ty(wide).shape;
    let own = b.slice_axis(state, 0, 0, 1)?;
    let own = b.reshape(own, &[])?;
    let own = b.splat(own, &shape)?;
    let now = current_scales(b, wide, &Rounding { scaling: Scaling::PerTensor, ..*how }, how.format.max_finite())?;
    let zero = b.full_like(own, 0.0)?;
    let fresh = b.compare(Compare::Eq, own, zero)?;
    b.select(fresh, now, own)
}

/// `[scale, steps since the last update, largest magnitudes..]` after a step with the tensor `x`. Non-finite values are ignored.
fn next_state(b: &mut Builder, x: Value, how: &Rounding, given: RoundingState) -> Result<Value> {
    let Some(state) = given.state else { return b.scalar(DType::F32, 0.0) };
    let interval = how.delayed_scaling.map_or(1, |d| d.interval.max(1));
    let n = b.ty(state).shape[0];
    let ty = b.ty(x);
    let most = match ty.numel() {
        0 => b.scalar(DType::F32, 0.0)?,
        _ => {
            let wide = b.cast(x, DType::F32)?;
            let size = b.unary(Unary::Abs, wide)?;
            let axes: Vec<usize> = (0..ty.rank()).collect();
            b.reduce(ReduceKind::Max, size, &axes)?
        }
    };
    let zero = b.scalar(DType::F32, 0.0)?;
    let finite = b.unary(Unary::IsFinite, most)?;
    let most = b.select(finite, most, zero)?;
    let most = b.reshape(most, &[1])?;
    let history = match n {
        3 => most,
        _ => {
            let older = b.slice_axis(state, 0, 3, n)?;
            b.concat(&[older, most], 0)?
        }
    };
    let part = |b: &mut Builder, i: usize| -> Result<Value> { b.slice_axis(state, 0, i, i + 1) };
    let (scale, count) = (part(b, 0)?, part(b, 1)?);
    let count = b.offset(count, 1.0)?;
    let all = b.reduce(ReduceKind::Max, history, &[0])?;
    let all = b.reshape(all, &[1])?;
    let fresh = b.scale(all, (1.0 + how.margin) / how.format.max_finite())?;
    let zero = b.full_like(fresh, 0.0)?;
    let limit = b.full_like(count, interval as f64)?;
    let due = b.compare(Compare::Ge, count, limit)?;
    let unset = b.compare(Compare::Eq, scale, zero)?;
    let due = b.binary(Binary::Or, due, unset)?;
    let useful = b.compare(Compare::Gt, fresh, zero)?;
    let due_and_useful = b.binary(Binary::And, due, useful)?;
    let scale = b.select(due_and_useful, fresh, scale)?;
    let count = b.select(due, zero, count)?;
    b.concat(&[scale, count, history], 0)
}

fn bits(b: &mut Builder, op: Binary, x: Value, n: u32) -> Result<Value> {
    let n = b.full_like(x, f64::from(n))?;
    b.binary(op, x, n)
}

/// The nearest number of a format, ties to even; saturates to the largest number.
fn round_nearest(b: &mut Builder, y: Value, format: LowPrecision) -> Result<Value> {
    let dtype = match format {
        LowPrecision::E4M3 => DType::F8E4M3,
        LowPrecision::E5M2 => DType::F8E5M2,
        _ => {
            let (size, step) = steps(b, y, format)?;
            let whole = b.unary(Unary::Round, size)?;
            return signed(b, whole, step, y, format);
        }
    };
    let codes = b.one(Quantize(dtype).into(), &[y])?;
    b.cast(codes, DType::F32)
}

/// Rounds to one of the two neighbours, with probabilities by distance.
fn round_stochastic(b: &mut Builder, y: Value, format: LowPrecision, noise: Value) -> Result<Value> {
    let (size, step) = steps(b, y, format)?;
    let low = b.unary(Unary::Floor, size)?;
    let rest = b.sub(size, low)?;
    let up = b.compare(Compare::Lt, noise, rest)?;
    let higher = b.offset(low, 1.0)?;
    let whole = b.select(up, higher, low)?;
    signed(b, whole, step, y, format)
}

/// A magnitude as a multiple of the local grid step, and that step: a power of two, so the quotient is exact.
fn steps(b: &mut Builder, y: Value, format: LowPrecision) -> Result<(Value, Value)> {
    let size = b.unary(Unary::Abs, y)?;
    let most = b.full_like(size, format.max_finite())?;
    let size = b.binary(Binary::Min, size, most)?;
    let Some((mantissa, least)) = format.float() else {
        let one = b.full_like(size, 1.0)?;
        return Ok((size, one));
    };
    let raw = b.one(Bitcast(DType::U32).into(), &[size])?;
    let e = bits(b, Binary::Shr, raw, 23)?;
    let e = bits(b, Binary::Max, e, (127 + least) as u32)?;
    let e = bits(b, Binary::Sub, e, mantissa)?;
    let e = bits(b, Binary::Shl, e, 23)?;
    let step = b.one(Bitcast(DType::F32).into(), &[e])?;
    Ok((b.div(size, step)?, step))
}

fn signed(b: &mut Builder, whole: Value, step: Value, y: Value, format: LowPrecision) -> Result<Value> {
    let size = b.mul(whole, step)?;
    let most = b.full_like(size, format.max_finite())?;
    let size = b.binary(Binary::Min, size, most)?;
    let zero = b.full_like(y, 0.0)?;
    let below = b.compare(Compare::Lt, y, zero)?;
    let negative = b.neg(size)?;
    let whole = b.select(below, negative, size)?;
    // NaN stays NaN.
    let number = b.compare(Compare::Eq, y, y)?;
    b.select(number, whole, y)
}

/// Uniform numbers in [0, 1) in steps of 2⁻²⁴.
fn uniform(b: &mut Builder, key: Value, stream: u32, shape: &[usize]) -> Result<Value> {
    let n: usize = shape.iter().product();
    let word = |b: &mut Builder, i: usize| -> Result<Value> {
        let word = b.slice_axis(key, 0, i, i + 1)?;
        let word = b.reshape(word, &[])?;
        b.splat(word, &[n])
    };
    let keys = [word(b, 0)?, word(b, 1)?];
    let stream = b.scalar(DType::U32, f64::from(stream))?;
    let (stream, place) = (b.splat(stream, &[n])?, b.iota(DType::U32, &[n], 0)?);
    let [drawn, _] = b.threefry2x32(keys, [stream, place])?;
    let drawn = bits(b, Binary::Shr, drawn, 8)?;
    let drawn = b.cast(drawn, DType::F32)?;
    let drawn = b.scale(drawn, 1.0 / 16_777_216.0)?;
    b.reshape(drawn, shape)
}

/// Reduces over all elements that share a scale, and broadcasts the result: the largest magnitude, or a sum.
fn reduce_blocks(b: &mut Builder, kind: ReduceKind, size: Value, scaling: Scaling) -> Result<Value> {
    let ty = b.ty(size);
    let rank = ty.rank();
    match scaling {
        Scaling::PerBlock(rows, columns) if rank >= 1 => {
            // A vector is treated as a matrix with one row.
            let lead = if rank >= 2 { &ty.shape[..rank - 2] } else { &[][..] };
            let (n, k) = (if rank >= 2 { ty.shape[rank - 2] } else { 1 }, ty.shape[rank - 1]);
            let (rows, columns) = (rows.min(n).max(1), columns.min(k).max(1));
            let (down, across) = (n.div_ceil(rows), k.div_ceil(columns));
            let square: Vec<usize> = lead.iter().copied().chain([n, k]).collect();
            let size = b.reshape(size, &square)?;
            let rank = square.len();
            // Padded with zeros to a multiple of the block size.
            let (low, mut high) = (vec![0i64; rank], vec![0i64; rank]);
            high[rank - 2] = (down * rows - n) as i64;
            high[rank - 1] = (across * columns - k) as i64;
            let zero = b.scalar(ty.dtype, 0.0)?;
            let filled = match high.iter().all(|n| *n == 0) {
                true => size,
                false => b.pad(size, zero, &low, &high, &vec![0; rank])?,
            };
            let cut: Vec<usize> = lead.iter().copied().chain([down, rows, across, columns]).collect();
            let blocks = b.reshape(filled, &cut)?;
            let most = b.reduce(kind, blocks, &[rank - 1, rank + 1])?;
            let dims: Vec<usize> = (0..rank - 2).chain([rank - 2, rank]).collect();
            let spread = b.broadcast(most, &cut, &dims)?;
            let joined: Vec<usize> = lead.iter().copied().chain([down * rows, across * columns]).collect();
            let joined = b.reshape(spread, &joined)?;
            let own = match high.iter().all(|n| *n == 0) {
                true => joined,
                false => b.slice(joined, &vec![0; rank], &square, &vec![1; rank])?,
            };
            b.reshape(own, &ty.shape)
        }
        Scaling::PerRow if rank >= 1 => {
            let most = b.reduce(kind, size, &[rank - 1])?;
            b.expand_reduced(most, &ty.shape, &[rank - 1])
        }
        _ => {
            let axes: Vec<usize> = (0..rank).collect();
            let most = b.reduce(kind, size, &axes)?;
            b.splat(most, &ty.shape)
        }
    }
}
