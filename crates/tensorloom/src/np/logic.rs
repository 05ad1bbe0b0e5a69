//! Truth: tests of numbers, logical functions, comparison of tensors.

use super::{all, any};
use crate::Operand;
use crate::record;
use crate::{DType, Result, Tensor};
use ir::{Binary, Compare, GraphBuilder, Unary, Value};

fn truth(b: &mut dyn GraphBuilder, x: Value) -> ir::Result<Value> {
    if b.ty(x).dtype == DType::Bool {
        return Ok(x);
    }
    let zero = b.full_like(x, 0.0)?;
    b.compare(Compare::Ne, x, zero)
}

macro_rules! logicals {
    ($($(#[$doc:meta])* $name:ident => $op:ident),*) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor, y: &Tensor) -> Tensor {
            let _here = crate::record::here();
            record::one(&[x, y], |b, v| {
                let (x, y) = (truth(b, v[0])?, truth(b, v[1])?);
                let (x, y) = record::align(b, stringify!($name), x, y)?;
                b.binary(Binary::$op, x, y)
            })
        }
    )* };
}
logicals! {
    /// Whether both hold.
    logical_and => And,
    /// Whether either holds.
    logical_or => Or,
    /// Whether exactly one holds.
    logical_xor => Xor
}

/// Whether it doesn't hold.
#[track_caller]
pub fn logical_not(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| {
        let x = truth(b, v[0])?;
        b.unary(Unary::Not, x)
    })
}

/// Tests a float; what is no float is `other`.
#[track_caller]
fn test(x: &Tensor, other: bool, f: impl FnOnce(&mut dyn GraphBuilder, Value) -> ir::Result<Value>) -> Tensor {
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        if ty.dtype.is_float() { f(b, v[0]) } else { b.full(&ty.with_dtype(DType::Bool), ir::Scalar::bool(other)) }
    })
}

/// Whether neither infinite nor NaN.
#[track_caller]
pub fn isfinite(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    test(x, true, |b, x| b.unary(Unary::IsFinite, x))
}

/// Whether NaN.
#[track_caller]
pub fn isnan(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    test(x, false, |b, x| b.compare(Compare::Ne, x, x))
}

fn infinite(b: &mut dyn GraphBuilder, x: Value, which: f64) -> ir::Result<Value> {
    let end = b.full_like(x, which)?;
    b.compare(Compare::Eq, x, end)
}

/// Whether infinite.
#[track_caller]
pub fn isinf(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    test(x, false, |b, x| {
        let size = b.unary(Unary::Abs, x)?;
        infinite(b, size, f64::INFINITY)
    })
}

/// Whether infinite and positive.
#[track_caller]
pub fn isposinf(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    test(x, false, |b, x| infinite(b, x, f64::INFINITY))
}

/// Whether infinite and negative.
#[track_caller]
pub fn isneginf(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    test(x, false, |b, x| infinite(b, x, f64::NEG_INFINITY))
}

/// Which elements are close: `|x − y| ≤ atol + rtol·|y|`.
#[track_caller]
pub fn isclose(x: &Tensor, y: &Tensor, rtol: f64, atol: f64) -> Tensor {
    let _here = crate::record::here();
    // Differences of narrow or unsigned integers may not fit their dtype.
    let wide = |t: &Tensor| if t.error().is_some() || t.dtype().is_float() { t.clone() } else { t.cast(DType::I64) };
    let (x, y) = (&wide(x), &wide(y));
    let (fx, fy) = (isfinite(x), isfinite(y));
    let near = (x - y).abs().le(&(y.abs() * rtol + atol));
    fx.and(&fy).select(&near, &x.eq(y))
}

/// Whether all elements are close.
///
/// ```
/// use tensorloom::{np, tensor};
///
/// let x = tensor(&[1.0f32, 2.0], &[2]);
/// assert!(np::allclose(&x, &(&x * 1.000001), 1e-5, 1e-8)?);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn allclose(x: &Tensor, y: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
    let _here = crate::record::here();
    all(&isclose(x, y, rtol, atol), ()).item::<bool>()
}

/// Whether shapes and elements are equal.
#[track_caller]
pub fn array_equal(x: &Tensor, y: &Tensor) -> Result<bool> {
    let _here = crate::record::here();
    x.check()?;
    y.check()?;
    if x.shape() != y.shape() {
        return Ok(false);
    }
    all(&x.eq(y), ()).item::<bool>()
}

/// Whether elements are equal after broadcasting.
#[track_caller]
pub fn array_equiv(x: &Tensor, y: &Tensor) -> Result<bool> {
    let _here = crate::record::here();
    x.check()?;
    y.check()?;
    if record::broadcast(&[x.shape(), y.shape()]).is_none() {
        return Ok(false);
    }
    all(&x.eq(y), ()).item::<bool>()
}

/// Which elements of `x` are among those of `set`.
#[track_caller]
pub fn isin(x: &Tensor, set: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let hits = x.unsqueeze(-1).eq(&set.reshape(&[-1]));
    any(&hits, -1)
}

/// `x` where the condition holds, else `y`.
#[track_caller]
pub fn where_(c: &Tensor, x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = super::binary::pair(x.into(), y.into());
    let c = record::one(&[c], |b, v| truth(b, v[0]));
    c.select(&x, &y)
}

/// The first choice whose condition holds, else the default.
#[track_caller]
pub fn select(conditions: &[&Tensor], choices: &[&Tensor], default: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let Some(&first) = choices.first().filter(|_| conditions.len() == choices.len()) else {
        let text = format!("{} conditions for {} choices", conditions.len(), choices.len());
        return record::invalid("select", text);
    };
    let default = default.into().to_tensor_like(first);
    let pairs = conditions.iter().zip(choices).rev();
    pairs.fold(default, |rest, (c, x)| where_(c, *x, &rest))
}

/// Whether this is a number rather than a tensor with axes.
pub fn isscalar(x: &Operand) -> bool {
    x.tensor().is_none_or(|t| t.rank() == 0)
}
