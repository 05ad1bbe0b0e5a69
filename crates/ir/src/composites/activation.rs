//! Activations and gated activations. The backward pass needs only the inputs.

use super::{BatchRole, CompositeBuilder, ParamList, Params, arity_mismatch, composite, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::ops::Composite;
use crate::scalar::{Compare, Unary};
use crate::types::Type;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

pub(super) const RELU: CompositeBuilder = CompositeBuilder {
    name: "relu",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| relu(one("relu", types)?),
    saves: (&[], &[0]),
};

pub(super) const RELU2: CompositeBuilder = CompositeBuilder {
    name: "relu2",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| relu2(one("relu2", types)?),
    saves: (&[0], &[]),
};

pub(super) const GELU: CompositeBuilder = CompositeBuilder {
    name: "gelu",
    roles: |_| vec![BatchRole::Rows],
    build: |p, types| gelu(one("gelu", types)?, Gelu::of(p)?),
    saves: (&[0], &[]),
};

pub(super) const SILU: CompositeBuilder = CompositeBuilder {
    name: "silu",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| silu(one("silu", types)?),
    saves: (&[0], &[]),
};

pub(super) const SWIGLU: CompositeBuilder = CompositeBuilder {
    name: "swiglu",
    roles: |_| vec![BatchRole::Rows],
    build: |_, types| match types {
        [gate, up] => swiglu(gate, up),
        [x] => swiglu_fused(x),
        _ => Err(arity_mismatch("swiglu", types, "gate and up, or both in one operand")),
    },
    saves: (&[0, 1], &[]),
};

pub(super) const GEGLU: CompositeBuilder = CompositeBuilder {
    name: "geglu",
    roles: |_| vec![BatchRole::Rows],
    build: |p, types| match types {
        [gate, up] => geglu(gate, up, Gelu::of(p)?),
        [x] => geglu_fused(x, Gelu::of(p)?),
        _ => Err(arity_mismatch("geglu", types, "gate and up, or both in one operand")),
    },
    saves: (&[0, 1], &[]),
};

fn one<'a>(name: &str, types: &'a [Type]) -> Result<&'a Type> {
    match types {
        [x] => Ok(x),
        _ => Err(arity_mismatch(name, types, "one operand")),
    }
}

/// The variant of gelu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// `x·Φ(x)` with the error function; PyTorch's default.
    Erf,
    /// The approximation with tanh; JAX's default and GPT-2's `gelu_new`.
    Tanh,
}

impl Gelu {
    fn of(p: &Params<'_>) -> Result<Gelu> {
        match p.word("form") {
            Some("erf") => Ok(Gelu::Erf),
            Some("tanh") => Ok(Gelu::Tanh),
            other => Err(Error::Invalid(format!(
                "{} needs the parameter `form` to be erf or tanh, got {}",
                p.name,
                other.unwrap_or("none")
            ))),
        }
    }

    fn params(self) -> ParamList {
        let word = match self {
            Gelu::Erf => "erf",
            Gelu::Tanh => "tanh",
        };
        vec![("form".into(), Attr::Word(word.into()))]
    }

    fn curve(self) -> Curve {
        match self {
            Gelu::Erf => gelu_erf,
            Gelu::Tanh => gelu_tanh,
        }
    }
}

/// A unary function with its derivative; an unused derivative is removed as dead code.
type Curve = fn(&mut Builder, Value) -> Result<(Value, Value)>;

fn relu_curve(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    // `x ≤ 0` and not `x > 0`: NaN is preserved, and the derivative at 0 is 0 as in PyTorch.
    let (zero, one) = (b.full_like(x, 0.0)?, b.full_like(x, 1.0)?);
    let off = b.compare(Compare::Le, x, zero)?;
    Ok((b.select(off, zero, x)?, b.select(off, zero, one)?))
}

fn relu2_curve(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let (r, _) = relu_curve(b, x)?;
    Ok((b.mul(r, r)?, b.scale(r, 2.0)?))
}

/// `x·s` with `s = logistic(x)`; derivative `s·(1 + x·(1 - s))`.
fn silu_curve(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let s = b.unary(Unary::Logistic, x)?;
    let y = b.mul(x, s)?;
    let n = b.neg(s)?;
    let rest = b.offset(n, 1.0)?;
    let xr = b.mul(x, rest)?;
    let inner = b.offset(xr, 1.0)?;
    Ok((y, b.mul(s, inner)?))
}

/// `x·Φ(x)`; derivative `Φ(x) + x·φ(x)`.
fn gelu_erf(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    // Φ(x) = erfc(-x/√2)/2, because 1 + erf loses precision for negative x.
    let z = b.scale(x, -FRAC_1_SQRT_2)?;
    let e = b.unary(Unary::Erfc, z)?;
    let cdf = b.scale(e, 0.5)?;
    let y = b.mul(x, cdf)?;
    let sq = b.mul(z, z)?;
    let n = b.neg(sq)?;
    let ex = b.unary(Unary::Exp, n)?;
    let pdf = b.scale(ex, 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)?;
    let xp = b.mul(x, pdf)?;
    Ok((y, b.add(cdf, xp)?))
}

/// `x·h` with `h = (1 + tanh(u))/2 = logistic(2u)`, which is precise for negative x, and `u = √(2/π)·(x + 0.044715·x³)`;
/// derivative `h + x·h·(1 - h)·2u'`.
fn gelu_tanh(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    const CUBIC: f64 = 0.044715;
    let c = 2.0 * (2.0 / PI).sqrt();
    let sq = b.mul(x, x)?;
    let w = b.scale(sq, CUBIC)?;
    let w = b.offset(w, 1.0)?;
    let xw = b.mul(x, w)?;
    let u = b.scale(xw, c)?;
    let h = b.unary(Unary::Logistic, u)?;
    let y = b.mul(x, h)?;
    let du = b.scale(sq, 3.0 * CUBIC * c)?;
    let du = b.offset(du, c)?;
    let n = b.neg(h)?;
    let rest = b.offset(n, 1.0)?;
    let bell = b.mul(h, rest)?;
    let xs = b.mul(x, bell)?;
    let xs = b.mul(xs, du)?;
    Ok((y, b.add(h, xs)?))
}

fn pointwise(name: &str, params: ParamList, x: &Type, f: Curve) -> Result<Composite> {
    if !x.dtype.is_float() {
        return Err(operand_mismatch(name, &[x], "needs a float operand"));
    }
    let acc = x.dtype.accumulator();
    let mut b = Builder::new();
    let xv = b.graph.input(x.clone());
    let xa = b.cast(xv, acc)?;
    let (y, _) = f(&mut b, xa)?;
    let y = b.cast(y, x.dtype)?;
    let body = b.finish(&[y]).without_dead_nodes();

    let mut b = Builder::new();
    let v = [(); 3].map(|()| b.graph.input(x.clone()));
    let (xa, ga) = (b.cast(v[0], acc)?, b.cast(v[2], acc)?);
    let (_, slope) = f(&mut b, xa)?;
    let dx = b.mul(ga, slope)?;
    let dx = b.cast(dx, x.dtype)?;
    let vjp = b.finish(&[dx]).without_dead_nodes();
    Ok(composite(name, params, body, 1, Some(vjp)))
}

/// `f(gate) · up`, from two operands or from the two halves of one.
fn gated(name: &str, params: ParamList, operands: &[&Type], f: Curve) -> Result<Composite> {
    let acc = operands[0].dtype.accumulator();
    let dtype = operands[0].dtype;
    // Converts gate and up to the accumulator dtype.
    let halves = |b: &mut Builder, v: &[Value]| -> Result<(Value, Value)> {
        let (gate, up) = match v {
            [gate, up] => (*gate, *up),
            _ => {
                let ty = b.ty(v[0]);
                let axis = ty.rank() - 1;
                let f = ty.shape[axis] / 2;
                (b.slice_axis(v[0], axis, 0, f)?, b.slice_axis(v[0], axis, f, 2 * f)?)
            }
        };
        Ok((b.cast(gate, acc)?, b.cast(up, acc)?))
    };
    let mut b = Builder::new();
    let v: Vec<Value> = operands.iter().map(|t| b.graph.input((*t).clone())).collect();
    let (gate, up) = halves(&mut b, &v)?;
    let (a, _) = f(&mut b, gate)?;
    let y = b.mul(a, up)?;
    let y = b.cast(y, dtype)?;
    let out = b.ty(y);
    let body = b.finish(&[y]).without_dead_nodes();

    // dgate = g·up·f'(gate), dup = g·f(gate).
    let mut b = Builder::new();
    let v: Vec<Value> = operands.iter().map(|t| b.graph.input((*t).clone())).collect();
    let _y = b.graph.input(out.clone());
    let g = b.graph.input(out);
    let (gate, up) = halves(&mut b, &v)?;
    let ga = b.cast(g, acc)?;
    let (a, slope) = f(&mut b, gate)?;
    let gu = b.mul(ga, up)?;
    let dgate = b.mul(gu, slope)?;
    let dup = b.mul(ga, a)?;
    let (dgate, dup) = (b.cast(dgate, dtype)?, b.cast(dup, dtype)?);
    let vjp = if v.len() == 2 {
        b.finish(&[dgate, dup])
    } else {
        let axis = b.ty(dgate).rank() - 1;
        let dx = b.concat(&[dgate, dup], axis)?;
        b.finish(&[dx])
    };
    Ok(composite(name, params, body, 1, Some(vjp)))
}

fn check_pair(name: &str, gate: &Type, up: &Type) -> Result<()> {
    if gate != up || !gate.dtype.is_float() {
        return Err(operand_mismatch(name, &[gate, up], "needs gate and up of one float type"));
    }
    Ok(())
}

fn check_halves(name: &str, x: &Type) -> Result<()> {
    match x.shape.last() {
        Some(n) if n % 2 == 0 && x.dtype.is_float() => Ok(()),
        _ => Err(operand_mismatch(name, &[x], "needs a float operand whose last axis is gate and up in equal parts")),
    }
}

/// `max(x, 0)`; the gradient at 0 is 0.
pub fn relu(x: &Type) -> Result<Composite> {
    pointwise("relu", Vec::new(), x, relu_curve)
}

/// `max(x, 0)²`.
pub fn relu2(x: &Type) -> Result<Composite> {
    pointwise("relu2", Vec::new(), x, relu2_curve)
}

/// The Gaussian error linear unit.
pub fn gelu(x: &Type, form: Gelu) -> Result<Composite> {
    pointwise("gelu", form.params(), x, form.curve())
}

/// `x · logistic(x)`.
pub fn silu(x: &Type) -> Result<Composite> {
    pointwise("silu", Vec::new(), x, silu_curve)
}

/// `silu(gate) · up`.
pub fn swiglu(gate: &Type, up: &Type) -> Result<Composite> {
    check_pair("swiglu", gate, up)?;
    gated("swiglu", Vec::new(), &[gate, up], silu_curve)
}

/// `silu(x[.., ..f]) · x[.., f..]` for `x` of `[.., 2f]`.
pub fn swiglu_fused(x: &Type) -> Result<Composite> {
    check_halves("swiglu", x)?;
    gated("swiglu", Vec::new(), &[x], silu_curve)
}

/// `gelu(gate) · up`.
pub fn geglu(gate: &Type, up: &Type, form: Gelu) -> Result<Composite> {
    check_pair("geglu", gate, up)?;
    gated("geglu", form.params(), &[gate, up], form.curve())
}

/// `gelu(x[.., ..f]) · x[.., f..]` for `x` of `[.., 2f]`.
pub fn geglu_fused(x: &Type, form: Gelu) -> Result<Composite> {
    check_halves("geglu", x)?;
    gated("geglu", form.params(), &[x], form.curve())
}
