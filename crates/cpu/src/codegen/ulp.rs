//! Measures the accuracy of the inline functions; used by `tests/ulp.rs`, `examples/ulp_sweep.rs` and `examples/ulp_points.rs`.

use super::{Target, compile};
use compiler::loops::{AccessMode, Kernel, KernelBuilder, LoopKind};
use ir::{Binary, DType, Unary};
use std::collections::BTreeMap;

/// The inline f32 functions and their largest error in units in the last place.
pub const FUNCTIONS: &[(Unary, f64)] = &[
    (Unary::Exp, 1.0),
    (Unary::Exp2, 1.0),
    (Unary::Expm1, 2.0),
    (Unary::Log, 1.0),
    (Unary::Log2, 2.0),
    (Unary::Log10, 1.0),
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

/// The inline f64 functions and their largest error in units in the last place, measured on samples.
pub const FUNCTIONS_F64: &[(Unary, f64)] = &[
    (Unary::Exp, 2.0),
    (Unary::Exp2, 2.0),
    (Unary::Expm1, 2.0),
    (Unary::Log, 2.0),
    (Unary::Log2, 2.0),
    (Unary::Log10, 1.0),
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

/// The other f64 functions.
const MORE_F64: &[(&str, f64)] =
    &[("sqrt", 0.5), ("rsqrt", 1.5), ("reciprocal", 0.5), ("digamma", 4.0), ("pow", 1.0), ("atan2", 3.0)];

/// Returns the largest error of an f64 function in units in the last place;
/// for `lgamma` and `digamma`, of the larger of the result and 1.
pub fn bound_f64(name: &str) -> Option<f64> {
    let own = FUNCTIONS_F64.iter().find(|(op, _)| op.name() == name).map(|f| f.1);
    own.or_else(|| MORE_F64.iter().find(|f| f.0 == name).map(|f| f.1))
}

/// An f64 function at points whose results are known with more than f64 precision.
#[derive(Default)]
pub struct ReferencePoints {
    /// The values of both arguments; functions of one number use the first.
    pub args: [Vec<f64>; 2],
    /// The correctly rounded results, and the remainders of the exact results in units in the last place.
    pub exact: Vec<(f64, f64)>,
}

/// Parses the lines of `golden/ulp.py`.
pub fn parse_points(text: impl Iterator<Item = String>) -> Result<BTreeMap<String, ReferencePoints>, String> {
    let mut found: BTreeMap<String, ReferencePoints> = BTreeMap::new();
    for line in text {
        let bad = || format!("no `op args result offset`: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let [op, args, y, off] = words[..] else { return Err(bad()) };
        let number = |s: &str| u64::from_str_radix(s, 16).map(f64::from_bits).map_err(|_| bad());
        let all = found.entry(op.to_string()).or_default();
        let (a, b) = args.split_once(',').unwrap_or((args, args));
        all.args[0].push(number(a)?);
        all.args[1].push(number(b)?);
        all.exact.push((number(y)?, off.parse::<f64>().map_err(|_| bad())? / 1000.0));
    }
    Ok(found)
}

impl ReferencePoints {
    /// Computes the results with a code generator, or with the reference.
    pub fn results(&self, name: &str, target: Option<Target>) -> Vec<f64> {
        let (one, two) = (Unary::from_name(name), Binary::from_name(name));
        let Some(target) = target else {
            let scalar = |x: f64| ir::Scalar::from_f64(DType::F64, x);
            let pairs = self.args[0].iter().zip(&self.args[1]);
            return match (one, two) {
                (Some(op), _) => pairs.map(|(&x, _)| ir::special::unary_f64(op, x)).collect(),
                (_, Some(op)) => pairs.map(|(&x, &y)| op.eval(scalar(x), scalar(y)).to_f64()).collect(),
                _ => Vec::new(),
            };
        };
        let mut b = KernelBuilder::new(name);
        let (p, q) = (b.buffer(DType::F64, AccessMode::Read), b.buffer(DType::F64, AccessMode::Read));
        let r = b.buffer(DType::F64, AccessMode::Write);
        let n = b.size();
        b.for_loop(LoopKind::Vector, n, |b, i| {
            let v = b.load(p, i);
            let z = match (one, two) {
                (Some(op), _) => b.unary(op, v),
                (_, Some(op)) => {
                    let w = b.load(q, i);
                    b.binary(op, v, w)
                }
                _ => v,
            };
            b.store(r, i, z);
        });
        let code = compile(&b.finish(), target).expect("a kernel of one function");
        let mut out = vec![0f64; self.exact.len()];
        let bufs = [self.args[0].as_ptr() as *mut u8, self.args[1].as_ptr() as *mut u8, out.as_mut_ptr() as *mut u8];
        // SAFETY: all buffers have the length passed.
        unsafe { code.run(&bufs, &[out.len() as i64], 0, 1) };
        out
    }

    /// Returns the largest error in units in the last place, and its index.
    pub fn max_error(&self, name: &str, results: &[f64]) -> (f64, usize) {
        let least = if matches!(name, "lgamma" | "digamma") { 1.0 } else { 0.0 };
        let error = |(i, &got): (usize, &f64)| {
            let (y, off) = self.exact[i];
            let of = ulp_f64(y);
            let d = ((got - y) / of - off).abs() * of / ulp_f64(y.abs().max(least));
            (if d.is_nan() { f64::INFINITY } else { d }, i)
        };
        results.iter().enumerate().map(error).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0))
    }
}

fn ulp_f64(x: f64) -> f64 {
    f64::from_bits(x.abs().to_bits() + 1) - x.abs()
}

/// Returns the kernel `y[i] = op(x[i])` over a run-time length.
pub fn kernel(op: Unary, dtype: DType) -> Kernel {
    let mut b = KernelBuilder::new(op.name());
    let x = b.buffer(dtype, AccessMode::Read);
    let y = b.buffer(dtype, AccessMode::Write);
    let n = b.size();
    b.for_loop(LoopKind::Vector, n, |b, i| {
        let v = b.load(x, i);
        let w = b.unary(op, v);
        b.store(y, i, w);
    });
    b.finish()
}

/// Returns the error of `got` in units in the last place of the exact value; infinite if a special case is wrong.
pub fn ulp_error(got: f32, exact: f64) -> f64 {
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
    // At the overflow limit an infinity is one step above the largest number.
    let clip = |x: f64| x.clamp(-(f32::MAX as f64) - ulp(3e38), f32::MAX as f64 + ulp(3e38));
    (clip(got as f64) - clip(exact)).abs() / ulp(exact)
}

fn ulp(x: f64) -> f64 {
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    2f64.powi(exponent - 23)
}
