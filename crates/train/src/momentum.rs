//! Momentum and Lion as graph functions.

use crate::adam::{lerp, moment};
use ir::{Build, Result, Unary, Value};

/// `m ← decay·m + g`: the update and the momentum after it. With `nesterov` the update looks one step ahead.
pub fn momentum<B: Build + ?Sized>(b: &mut B, m: Value, g: Value, decay: f64, nesterov: bool) -> Result<[Value; 2]> {
    dampened(b, m, g, g, decay, nesterov)
}

/// The same where another gradient than `g` itself enters the momentum: PyTorch's dampening.
pub fn dampened<B: Build + ?Sized>(
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

/// Lion: the sign of a mean, and the mean after it, which moves by `beta2`; `lerps` rounds that as PyTorch's `lerp`.
pub fn lion<B: Build + ?Sized>(
    b: &mut B,
    m: Value,
    g: Value,
    [beta1, beta2]: [f64; 2],
    lerps: bool,
) -> Result<[Value; 2]> {
    let mixed = moment(b, m, g, beta1)?;
    let direction = b.unary(Unary::Sign, mixed)?;
    let m = if lerps { lerp(b, m, g, beta2)? } else { moment(b, m, g, beta2)? };
    Ok([direction, m])
}
