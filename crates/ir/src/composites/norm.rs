//! Normalizations over the last axis.

use super::rows::{broadcast_along_row, broadcast_over_rows, last_axis, row_mean, sum_rows};
use super::{BatchRole, CompositeBuilder, arity_mismatch, composite, float_param, operand_mismatch};
use crate::build::{Builder, GraphBuilder};
use crate::error::Result;
use crate::graph::Value;
use crate::ops::Composite;
use crate::scalar::Unary;
use crate::types::Type;

pub(super) const RMSNORM: CompositeBuilder = CompositeBuilder {
    name: "rmsnorm",
    roles: |_| vec![BatchRole::Rows, BatchRole::Shared],
    build: |p, types| match types {
        [x] => rmsnorm_plain(x, p.float("eps")?),
        [x, w] => rmsnorm(x, w, p.float("eps")?),
        _ => Err(arity_mismatch("rmsnorm", types, "x and a weight or none")),
    },
    saves: (&[0, 1], &[1]),
};

pub(super) const LAYERNORM: CompositeBuilder = CompositeBuilder {
    name: "layernorm",
    roles: |_| vec![BatchRole::Rows, BatchRole::Shared],
    build: |p, types| match types {
        [x] => layernorm(x, None, None, p.float("eps")?),
        [x, w] => layernorm(x, Some(w), None, p.float("eps")?),
        [x, w, c] => layernorm(x, Some(w), Some(c), p.float("eps")?),
        _ => Err(arity_mismatch("layernorm", types, "x, then a weight, then a bias")),
    },
    saves: (&[0, 1], &[1, 2]),
};

pub(super) const FUSED_RESIDUAL_RMSNORM: CompositeBuilder = CompositeBuilder {
    name: "fused_residual_rmsnorm",
    roles: |_| vec![BatchRole::Rows, BatchRole::Rows, BatchRole::Shared],
    build: |p, types| match types {
        [r, x, w] => fused_residual_rmsnorm(r, x, w, p.float("eps")?),
        _ => Err(arity_mismatch("fused_residual_rmsnorm", types, "residual, x and a weight")),
    },
    saves: (&[2], &[0, 2]),
};

pub(super) const QK_NORM: CompositeBuilder = CompositeBuilder {
    name: "qk_norm",
    roles: |_| vec![BatchRole::Rows, BatchRole::Rows, BatchRole::Shared],
    build: |p, types| match types {
        [q, k, wq, wk] => qk_norm(q, k, wq, wk, p.float("eps")?),
        _ => Err(arity_mismatch("qk_norm", types, "q, k and a weight for each")),
    },
    saves: (&[0, 1, 2, 3], &[2, 3]),
};

/// Checks that `w` is a vector along the last axis of `x`.
fn check_weight(name: &str, what: &str, x: &Type, w: &Type) -> Result<()> {
    let expected = x.with_shape(&[x.shape[last_axis(name, x)?]]);
    if *w != expected {
        return Err(operand_mismatch(name, &[x, w], format!("needs a {what} of {expected}, got {w}")));
    }
    Ok(())
}

/// `x̂·w` and the factor `r = rsqrt(mean(x²) + eps)`, with `x̂ = x·r`, in the accumulator dtype.
fn rms_forward(b: &mut Builder, x: Value, w: Option<Value>, eps: f64) -> Result<(Value, Value)> {
    let sq = b.mul(x, x)?;
    let mean = row_mean(b, sq)?;
    let shifted = b.offset(mean, eps)?;
    let rstd = b.unary(Unary::Rsqrt, shifted)?;
    let r = broadcast_along_row(b, rstd, x)?;
    let hat = b.mul(x, r)?;
    Ok((scaled(b, hat, w)?, rstd))
}

/// `dx = r·(g·w - x̂·mean(g·w·x̂))` and `dw = Σ g·x̂` over rows.
fn rms_backward(b: &mut Builder, x: Value, w: Option<Value>, rstd: Value, g: Value) -> Result<(Value, Value)> {
    let r = broadcast_along_row(b, rstd, x)?;
    let hat = b.mul(x, r)?;
    let gw = scaled(b, g, w)?;
    let p = b.mul(gw, hat)?;
    let m = row_mean(b, p)?;
    let m = broadcast_along_row(b, m, x)?;
    let mh = b.mul(hat, m)?;
    let diff = b.sub(gw, mh)?;
    let dx = b.mul(diff, r)?;
    let gh = b.mul(g, hat)?;
    Ok((dx, sum_rows(b, gh)?))
}

/// `x` times a weight along the last axis, if there is one.
fn scaled(b: &mut Builder, x: Value, w: Option<Value>) -> Result<Value> {
    match w {
        Some(w) => {
            let wr = broadcast_over_rows(b, w, x)?;
            b.mul(x, wr)
        }
        None => Ok(x),
    }
}

/// `rmsnorm(x, w)` = `x · rsqrt(mean(x²) + eps) · w` over the last axis; the second, private result is the factor
/// `rsqrt(mean(x²) + eps)`.
pub fn rmsnorm(x: &Type, w: &Type, eps: f64) -> Result<Composite> {
    check_weight("rmsnorm", "weight", x, w)?;
    rms(x, Some(w), eps)
}

/// [`rmsnorm`] without a weight.
pub fn rmsnorm_plain(x: &Type, eps: f64) -> Result<Composite> {
    last_axis("rmsnorm", x)?;
    rms(x, None, eps)
}

fn rms(x: &Type, w: Option<&Type>, eps: f64) -> Result<Composite> {
    let acc = x.dtype.accumulator();
    let operands = |b: &mut Builder| -> Result<(Value, Option<Value>)> {
        let xv = b.graph.input(x.clone());
        let wv = w.map(|w| b.graph.input(w.clone()));
        Ok((b.cast(xv, acc)?, wv.map(|w| b.cast(w, acc)).transpose()?))
    };
    let mut b = Builder::new();
    let (xa, wa) = operands(&mut b)?;
    let (y, rstd) = rms_forward(&mut b, xa, wa, eps)?;
    let y = b.cast(y, x.dtype)?;
    let rstd_ty = b.ty(rstd);
    let body = b.finish(&[y, rstd]);

    let mut b = Builder::new();
    let (xa, wa) = operands(&mut b)?;
    let _y = b.graph.input(x.clone());
    let rstd = b.graph.input(rstd_ty);
    let g = b.graph.input(x.clone());
    let ga = b.cast(g, acc)?;
    let (dx, dw) = rms_backward(&mut b, xa, wa, rstd, ga)?;
    let mut grads = vec![b.cast(dx, x.dtype)?];
    if w.is_some() {
        grads.push(b.cast(dw, x.dtype)?);
    }
    let vjp = b.finish(&grads).without_dead_nodes();
    Ok(composite("rmsnorm", vec![float_param("eps", eps)], body, 1, Some(vjp)))
}

/// `layernorm(x, w, bias)` = `(x - mean) · rstd · w + bias` over the last axis, `rstd = rsqrt(var + eps)` with the
/// biased variance; `mean` and `rstd` are private results. A bias needs a weight.
pub fn layernorm(x: &Type, w: Option<&Type>, bias: Option<&Type>, eps: f64) -> Result<Composite> {
    last_axis("layernorm", x)?;
    match (w, bias) {
        (None, Some(c)) => {
            return Err(operand_mismatch("layernorm", &[x, c], "takes a bias only together with a weight"));
        }
        (w, c) => {
            for (what, t) in [("weight", w), ("bias", c)] {
                t.map(|t| check_weight("layernorm", what, x, t)).transpose()?;
            }
        }
    }
    let acc = x.dtype.accumulator();
    let operands = |b: &mut Builder| -> Result<(Value, Vec<Value>)> {
        let xv = b.graph.input(x.clone());
        let params: Vec<Value> = [w, bias].into_iter().flatten().map(|t| b.graph.input(t.clone())).collect();
        let params = params.into_iter().map(|v| b.cast(v, acc)).collect::<Result<_>>()?;
        Ok((b.cast(xv, acc)?, params))
    };
    let mut b = Builder::new();
    let (xa, params) = operands(&mut b)?;
    let mean = row_mean(&mut b, xa)?;
    let m = broadcast_along_row(&mut b, mean, xa)?;
    let centred = b.sub(xa, m)?;
    // The two-pass variance, because E[x²] - E[x]² loses precision for a large mean.
    let sq = b.mul(centred, centred)?;
    let var = row_mean(&mut b, sq)?;
    let shifted = b.offset(var, eps)?;
    let rstd = b.unary(Unary::Rsqrt, shifted)?;
    let r = broadcast_along_row(&mut b, rstd, xa)?;
    let hat = b.mul(centred, r)?;
    let mut y = scaled(&mut b, hat, params.first().copied())?;
    if let Some(&c) = params.get(1) {
        let c = broadcast_over_rows(&mut b, c, y)?;
        y = b.add(y, c)?;
    }
    let y = b.cast(y, x.dtype)?;
    let stat = b.ty(rstd);
    let body = b.finish(&[y, mean, rstd]);

    // dx = r·(g·w - mean(g·w) - x̂·mean(g·w·x̂)), dw = Σ g·x̂, dbias = Σ g.
    let mut b = Builder::new();
    let (xa, params) = operands(&mut b)?;
    let _y = b.graph.input(x.clone());
    let (mean, rstd) = (b.graph.input(stat.clone()), b.graph.input(stat));
    let g = b.graph.input(x.clone());
    let ga = b.cast(g, acc)?;
    let m = broadcast_along_row(&mut b, mean, xa)?;
    let centred = b.sub(xa, m)?;
    let gw = scaled(&mut b, ga, params.first().copied())?;
    let gm = row_mean(&mut b, gw)?;
    let gm = broadcast_along_row(&mut b, gm, xa)?;
    let (dx, dw) = rms_backward(&mut b, centred, params.first().copied(), rstd, ga)?;
    let r = broadcast_along_row(&mut b, rstd, xa)?;
    let shift = b.mul(gm, r)?;
    let dx = b.sub(dx, shift)?;
    let mut grads = vec![b.cast(dx, x.dtype)?];
    let bias_grad = sum_rows(&mut b, ga)?;
    for d in [dw, bias_grad].into_iter().take(params.len()) {
        grads.push(b.cast(d, x.dtype)?);
    }
    let vjp = b.finish(&grads).without_dead_nodes();
    Ok(composite("layernorm", vec![float_param("eps", eps)], body, 1, Some(vjp)))
}

/// `(residual + x, rmsnorm(residual + x, w))`, the step between two blocks of a pre-norm transformer. The norm is computed from
/// the sum after rounding to the operands' dtype.
pub fn fused_residual_rmsnorm(residual: &Type, x: &Type, w: &Type, eps: f64) -> Result<Composite> {
    const NAME: &str = "fused_residual_rmsnorm";
    check_weight(NAME, "weight", x, w)?;
    if residual != x {
        return Err(operand_mismatch(NAME, &[residual, x, w], format!("needs a residual of {x}, got {residual}")));
    }
    let acc = x.dtype.accumulator();
    let mut b = Builder::new();
    let (rv, xv, wv) = (b.graph.input(x.clone()), b.graph.input(x.clone()), b.graph.input(w.clone()));
    let h = b.add(rv, xv)?;
    let (ha, wa) = (b.cast(h, acc)?, b.cast(wv, acc)?);
    let (y, rstd) = rms_forward(&mut b, ha, Some(wa), eps)?;
    let y = b.cast(y, x.dtype)?;
    let stat = b.ty(rstd);
    let body = b.finish(&[h, y, rstd]);

    let mut b = Builder::new();
    let (_r, _x, wv) = (b.graph.input(x.clone()), b.graph.input(x.clone()), b.graph.input(w.clone()));
    let (h, _y) = (b.graph.input(x.clone()), b.graph.input(x.clone()));
    let rstd = b.graph.input(stat);
    let (gh, gy) = (b.graph.input(x.clone()), b.graph.input(x.clone()));
    let (ha, wa, gya) = (b.cast(h, acc)?, b.cast(wv, acc)?, b.cast(gy, acc)?);
    let (dh, dw) = rms_backward(&mut b, ha, Some(wa), rstd, gya)?;
    let gha = b.cast(gh, acc)?;
    let dx = b.add(gha, dh)?;
    let (dx, dw) = (b.cast(dx, x.dtype)?, b.cast(dw, x.dtype)?);
    let vjp = b.finish(&[dx, dx, dw]);
    Ok(composite(NAME, vec![float_param("eps", eps)], body, 2, Some(vjp)))
}

/// `(rmsnorm(q, wq), rmsnorm(k, wk))` over the head dimension, the last axis of each; all other axes of `q` and `k` may
/// differ.
pub fn qk_norm(q: &Type, k: &Type, wq: &Type, wk: &Type, eps: f64) -> Result<Composite> {
    check_weight("qk_norm", "query weight", q, wq)?;
    check_weight("qk_norm", "key weight", k, wk)?;
    let acc = |t: &Type| t.dtype.accumulator();
    let mut b = Builder::new();
    let v: Vec<Value> = [q, k, wq, wk].map(|t| b.graph.input(t.clone())).into();
    let (mut normed, mut stats) = (Vec::new(), Vec::new());
    for (t, x, w) in [(q, v[0], v[2]), (k, v[1], v[3])] {
        let (xa, wa) = (b.cast(x, acc(t))?, b.cast(w, acc(t))?);
        let (y, rstd) = rms_forward(&mut b, xa, Some(wa), eps)?;
        normed.push(b.cast(y, t.dtype)?);
        stats.push(rstd);
    }
    let stat_types: Vec<Type> = stats.iter().map(|&s| b.ty(s)).collect();
    let body = b.finish(&[normed, stats].concat());

    let mut b = Builder::new();
    let v: Vec<Value> = [q, k, wq, wk, q, k].map(|t| b.graph.input(t.clone())).into();
    let stats: Vec<Value> = stat_types.into_iter().map(|t| b.graph.input(t)).collect();
    let g: Vec<Value> = [q, k].map(|t| b.graph.input(t.clone())).into();
    let (mut dxs, mut dws) = (Vec::new(), Vec::new());
    for (i, t) in [q, k].into_iter().enumerate() {
        let (xa, wa, ga) = (b.cast(v[i], acc(t))?, b.cast(v[2 + i], acc(t))?, b.cast(g[i], acc(t))?);
        let (dx, dw) = rms_backward(&mut b, xa, Some(wa), stats[i], ga)?;
        dxs.push(b.cast(dx, t.dtype)?);
        dws.push(b.cast(dw, t.dtype)?);
    }
    let vjp = b.finish(&[dxs, dws].concat());
    Ok(composite("qk_norm", vec![float_param("eps", eps)], body, 2, Some(vjp)))
}
