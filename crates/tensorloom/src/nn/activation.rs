//! Activation functions.

use crate::np::{self, unary::real};
use crate::record::{self, float_of};
use crate::{Operand, Tensor};
use ir::composites::activation;
use ir::{Compare, Unary};

/// `max(x, 0)`; the gradient at 0 is 0.
#[track_caller]
pub fn relu(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| {
        let zero = b.full_like(v[0], 0.0)?;
        let on = b.compare(Compare::Gt, v[0], zero)?;
        // A NaN stays one.
        let kept = b.select(on, v[0], zero)?;
        let known = b.compare(Compare::Eq, v[0], v[0])?;
        b.select(known, kept, v[0])
    })
}

/// `min(max(x, 0), 6)`; the gradient is 0 at both ends.
#[track_caller]
pub fn relu6(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let y = relu(x);
    np::where_(&np::greater_equal(&y, 6.0), 6.0, &y)
}

/// `1/(1 + e⁻ˣ)`.
#[track_caller]
pub fn sigmoid(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| b.unary(Unary::Logistic, x))
}

/// `tanh(x)`.
#[track_caller]
pub fn tanh(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    np::tanh(x)
}

/// `x` itself.
pub fn identity(x: &Tensor) -> Tensor {
    x.clone()
}

/// `log(1 + eˣ)`.
#[track_caller]
pub fn softplus(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    np::logaddexp(x, 0.0)
}

/// `log(sigmoid(x))`.
#[track_caller]
pub fn log_sigmoid(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    -softplus(&-x)
}

/// `x/(1 + |x|)`.
#[track_caller]
pub fn soft_sign(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x / (np::abs(x) + 1.0)
}

/// `x·sigmoid(x)`.
#[track_caller]
pub fn silu(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    real(x, |b, x| {
        let types = [b.ty(x)];
        let op = engine::composite("silu", &types, &[], || activation::silu(&types[0]))?;
        Ok(b.emit(op.into(), &[x])?[0])
    })
}

/// The same as [`silu`].
#[track_caller]
pub fn swish(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    silu(x)
}

/// The Gaussian error linear unit; `approximate` by a hyperbolic tangent, as JAX does by default.
#[track_caller]
pub fn gelu(x: &Tensor, approximate: bool) -> Tensor {
    let _here = crate::record::here();
    let form = if approximate { activation::Gelu::Tanh } else { activation::Gelu::Erf };
    real(x, |b, x| {
        let types = [b.ty(x)];
        let name = if approximate { "gelu_tanh" } else { "gelu" };
        let op = engine::composite(name, &types, &[], || activation::gelu(&types[0], form))?;
        Ok(b.emit(op.into(), &[x])?[0])
    })
}

/// `x` above 0, `slope·x` below.
#[track_caller]
pub fn leaky_relu(x: &Tensor, slope: f64) -> Tensor {
    let _here = crate::record::here();
    np::where_(&np::greater_equal(x, 0.0), x, &(x * slope))
}

/// `x` above 0, `alpha·(eˣ − 1)` below.
#[track_caller]
pub fn elu(x: &Tensor, alpha: f64) -> Tensor {
    let _here = crate::record::here();
    let positive = np::greater(x, 0.0);
    let safe = np::where_(&positive, 0.0, x);
    np::where_(&positive, x, &(np::expm1(&safe) * alpha))
}

/// `x` above 0, `alpha·(e^(x/alpha) − 1)` below.
#[track_caller]
pub fn celu(x: &Tensor, alpha: f64) -> Tensor {
    let _here = crate::record::here();
    np::maximum(x, 0.0) + np::expm1(&(np::minimum(x, 0.0) / alpha)) * alpha
}

/// The self-normalising [`elu`].
#[track_caller]
pub fn selu(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    elu(x, 1.673_263_242_354_377_2) * 1.050_700_987_355_480_5
}

/// `relu6(x + 3)/6`.
#[track_caller]
pub fn hard_sigmoid(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    relu6(&(x + 3.0)) / 6.0
}

/// `x·hard_sigmoid(x)`.
#[track_caller]
pub fn hard_silu(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x * hard_sigmoid(x)
}

/// The same as [`hard_silu`].
#[track_caller]
pub fn hard_swish(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    hard_silu(x)
}

/// `x` between −1 and 1.
#[track_caller]
pub fn hard_tanh(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let inside = np::where_(&np::less(x, -1.0), -1.0, x);
    np::where_(&np::greater(x, 1.0), 1.0, &inside)
}

/// 0 below −1, `x` above 1, a parabola between.
#[track_caller]
pub fn sparse_plus(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let curve = (x + 1.0).square() * 0.25;
    let low = np::where_(&np::less_equal(x, -1.0), 0.0, &curve);
    np::where_(&np::greater_equal(x, 1.0), x, &low)
}

/// `(x + 1)/2` between 0 and 1.
#[track_caller]
pub fn sparse_sigmoid(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    np::clip(&((x + 1.0) * 0.5), Some(0.0.into()), Some(1.0.into()))
}

/// The first half along an axis times the sigmoid of the second.
#[track_caller]
pub fn glu(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    let halves = np::split(x, 2, axis);
    &halves[0] * sigmoid(&halves[halves.len() - 1])
}

/// `(x + √(x² + b))/2`.
#[track_caller]
pub fn squareplus(x: &Tensor, b: f64) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(float_of(x.dtype()));
    record::rounded([&x], |[x]| (&x + (x.square() + b).sqrt()) * 0.5)
}

/// `x·tanh(softplus(x))`.
#[track_caller]
pub fn mish(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    x * softplus(x).tanh()
}

/// `log(1 − e⁻ˣ)` for positive `x`.
#[track_caller]
pub fn log1mexp(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(float_of(x.dtype()));
    let small = np::less(&x, std::f64::consts::LN_2);
    let (a, b) = (np::where_(&small, &x, 1.0), np::where_(&small, Operand::from(1.0), &x));
    let near = (-(-a).expm1()).log();
    np::where_(&small, &near, (-(-b).exp()).log1p())
}
