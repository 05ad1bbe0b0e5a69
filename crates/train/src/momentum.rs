//! Momentum and Lion as graph functions.

use crate::adam::{lerp, update_ema};
use ir::{GraphBuilder, Result, Unary, Value};

/// `m ← decay·m + g`: returns the update and the new momentum. With `nesterov` the update looks one step ahead.
pub fn momentum<B: GraphBuilder + ?Sized>(
    b: &mut B,
    m: Value,
    g: Value,
    decay: f64,
    nesterov: bool,
) -> Result<[Value; 2]> {
    momentum_with_dampening(b, m, g, g, decay, nesterov)
}

/// [`momentum`] where the momentum accumulates a scaled gradient: PyTorch's dampening.
pub fn momentum_with_dampening<B: GraphBuilder + ?Sized>(
    b: &mut B,
    m: Value,
    g: Value,
    entering: Value,
    decay: f64,
    nesterov: bool,
) -> Result<[Value; 2]> {
    let kept = b.scale(m, decay)?;
    let m = b.add(kept, entering)?;
    if !nesterov {
        return Ok([m, m]);
    }
    let ahead = b.scale(m, decay)?;
    Ok([b.add(ahead, g)?, m])
}

/// Lion: returns the sign of an interpolated momentum, and the new momentum with decay `beta2`; `lerps` rounds as PyTorch's `lerp`.
pub fn lion<B: GraphBuilder + ?Sized>(
    b: &mut B,
    m: Value,
    g: Value,
    [beta1, beta2]: [f64; 2],
    lerps: bool,
) -> Result<[Value; 2]> {
    let mixed = update_ema(b, m, g, beta1)?;
    let direction = b.unary(Unary::Sign, mixed)?;
    let m = if lerps { lerp(b, m, g, beta2)? } else { update_ema(b, m, g, beta2)? };
    Ok([direction, m])
}
