//! Measuring the accuracy of the inline functions: shared by `tests/ulp.rs` and `examples/ulp_sweep.rs`.

use compiler::loops::{Builder, Kernel, LoopKind, Mode};
use ir::{DType, Unary};

/// The inline f32 functions and their largest error in units in the last place.
pub const FUNCTIONS: &[(Unary, f64)] = &[
    (Unary::Exp, 1.0),
    (Unary::Exp2, 1.0),
    (Unary::Expm1, 2.0),
    (Unary::Log, 1.0),
    (Unary::Log2, 2.0),
    (Unary::Log1p, 2.0),
    (Unary::Tanh, 2.5),
    (Unary::Logistic, 2.5),
    (Unary::Erf, 2.0),
    (Unary::Erfc, 7.0),
    (Unary::ErfInv, 4.0),
    (Unary::Sin, 2.0),
    (Unary::Cos, 2.0),
    (Unary::Tan, 3.5),
    (Unary::Asin, 2.5),
    (Unary::Acos, 2.5),
    (Unary::Atan, 2.0),
    (Unary::Sinh, 3.0),
    (Unary::Cosh, 2.0),
    (Unary::Asinh, 4.0),
    (Unary::Acosh, 4.0),
    (Unary::Atanh, 4.0),
    (Unary::Lgamma, 2.0),
    (Unary::Digamma, 2.0),
    (Unary::Rsqrt, 1.5),
    (Unary::Sqrt, 0.5),
    (Unary::Reciprocal, 0.5),
];

/// The inline f64 functions and their largest error in units in the last place, found in samples.
pub const FUNCTIONS_F64: &[(Unary, f64)] = &[
    (Unary::Exp, 2.0),
    (Unary::Exp2, 2.0),
    (Unary::Expm1, 2.0),
    (Unary::Log, 2.0),
    (Unary::Log2, 2.0),
    (Unary::Log1p, 2.0),
    (Unary::Tanh, 2.5),
    (Unary::Logistic, 3.0),
    (Unary::Sin, 2.0),
    (Unary::Cos, 2.0),
    (Unary::Tan, 3.5),
    (Unary::Asin, 2.5),
    (Unary::Acos, 2.5),
    (Unary::Atan, 2.0),
    (Unary::Sinh, 3.0),
    (Unary::Cosh, 2.0),
    (Unary::Asinh, 4.0),
    (Unary::Acosh, 4.0),
    (Unary::Atanh, 4.0),
    (Unary::Erf, 2.0),
    (Unary::Erfc, 6.0),
    (Unary::ErfInv, 8.0),
    (Unary::Lgamma, 4.0),
];

/// `y[i] = op(x[i])` over a run-time length.
pub fn kernel(op: Unary, dtype: DType) -> Kernel {
    let mut b = Builder::new(op.name());
    let x = b.buffer(dtype, Mode::Read);
    let y = b.buffer(dtype, Mode::Write);
    let n = b.size();
    b.each(LoopKind::Vector, n, |b, i| {
        let v = b.load(x, i);
        let w = b.unary(op, v);
        b.store(y, i, w);
    });
    b.finish()
}

/// The error of `got` in units in the last place of the exact value; infinite if a special case is wrong.
pub fn distance(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got.to_bits() == rounded.to_bits() || (got.is_nan() && exact.is_nan()) {
        return if exact.is_finite() && rounded.is_finite() { (got as f64 - exact).abs() / ulp(exact) } else { 0.0 };
    }
    if got.is_nan() || exact.is_nan() || (exact == 0.0 && got == 0.0) {
        return f64::INFINITY;
    }
    if exact == 0.0 || exact.is_infinite() {
        return f64::INFINITY;
    }
    // At the edge of overflow an infinity is one step above the largest number.
    let clip = |x: f64| x.clamp(-(f32::MAX as f64) - ulp(3e38), f32::MAX as f64 + ulp(3e38));
    (clip(got as f64) - clip(exact)).abs() / ulp(exact)
}

fn ulp(x: f64) -> f64 {
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    2f64.powi(exponent - 23)
}
