//! Softmax and its relatives.

use crate::np::{self, ReduceAxes};
use crate::record::{self, float_of};
use crate::{DType, Tensor};
use ir::composites::softmax as composite;
use ir::ops::{Composite, ReduceKind};
use ir::{Type, Unary};

/// A composite over the last axis, along any axis.
#[track_caller]
fn rows(op: &'static str, x: &Tensor, axis: isize, make: impl FnOnce(&Type) -> ir::Result<Composite>) -> Tensor {
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        let axis = record::axis(op, &ty, axis)?;
        let x = b.cast(v[0], float_of(ty.dtype))?;
        let last = ty.rank() - 1;
        let x = b.move_axis(x, axis, last)?;
        let op = make(&b.ty(x))?;
        let y = b.emit(op.into(), &[x])?[0];
        b.move_axis(y, last, axis)
    })
}

/// `eˣ/Σeˣ` along an axis.
#[track_caller]
pub fn softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    rows("softmax", x, axis, composite::softmax)
}

/// The logarithm of [`softmax`].
#[track_caller]
pub fn log_softmax(x: &Tensor, axis: isize) -> Tensor {
    let _here = crate::record::here();
    rows("log_softmax", x, axis, composite::log_softmax)
}

/// `log Σ eˣ` without overflow.
#[track_caller]
pub fn logsumexp(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    np::over("logsumexp", x, axes.into(), |b, x, axes| {
        let ty = b.ty(x);
        let dtype = float_of(ty.dtype);
        // A sum of exponentials may be larger than the largest f16.
        let x = b.cast(x, dtype.accumulator())?;
        let top = b.reduce(ReduceKind::Max, x, axes)?;
        let top = b.one(ir::ops::StopGradient.into(), &[top])?;
        // An infinite maximum is not subtracted: ∞ − ∞ is no number.
        let finite = b.unary(Unary::IsFinite, top)?;
        let top = b.zero_unless(finite, top)?;
        let wide = b.expand_reduced(top, &ty.shape, axes)?;
        let d = b.sub(x, wide)?;
        let e = b.unary(Unary::Exp, d)?;
        let s = b.sum(e, axes)?;
        let l = b.unary(Unary::Log, s)?;
        let y = b.add(l, top)?;
        b.cast(y, dtype)
    })
}

/// `log` of the mean of `eˣ`.
#[track_caller]
pub fn logmeanexp(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into();
    let count =
        np::resolve(&axes, "logmeanexp", x.ty()).map_or(1, |(axes, _)| axes.iter().map(|&a| x.shape()[a]).product());
    let x = x.cast(float_of(x.dtype()));
    record::rounded([&x], |[x]| logsumexp(&x, axes) - (count as f64).ln())
}

/// Mean 0 and variance 1 along axes.
#[track_caller]
pub fn standardize(x: &Tensor, axes: impl Into<ReduceAxes>, eps: f64) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into().keep();
    let x = x.cast(float_of(x.dtype()));
    record::rounded([&x], |[x]| {
        let d = &x - np::mean(&x, axes.clone());
        let v = np::mean(&d.square(), axes);
        d * (v + eps).rsqrt()
    })
}

/// A new axis of `n` with 1 at each index, 0 elsewhere; indices outside give zeros.
///
/// ```
/// use tensorloom::{DType, nn, tensor};
///
/// let y = nn::one_hot(&tensor(&[1i32, 0], &[2]), 3, -1, DType::F32);
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn one_hot(x: &Tensor, n: usize, axis: isize, dtype: DType) -> Tensor {
    let _here = crate::record::here();
    let hot = x.unsqueeze(-1).eq(&crate::engine_of(x).arange(DType::I64, n)).cast(dtype);
    np::moveaxis(&hot, &[-1], &[axis])
}
