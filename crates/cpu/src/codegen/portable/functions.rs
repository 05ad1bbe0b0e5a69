//! Calls of elementary functions of one number.
//!
//! Functions of f32 are computed in f64, so that nearly all results are correctly rounded. The most common ones have no branches,
//! so that rustc vectorizes loops over their lanes; the others are the system's. A lane and a scalar
//! get the same bits.

use super::kernel::{LANES, Parts, Writer};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ir::{DType, Unary};
use std::f64::consts::{LN_2, LOG2_E};

/// A function's entry points: for one f32, for an array of f32 in place, for one f64.
type Forms = [*const (); 3];

/// Returns the entry points of a function.
fn function_table(f: Unary) -> Option<Forms> {
    macro_rules! table {
        ($($name:ident => $single:expr, $double:expr;)*) => {
            match f {
                $(Unary::$name => {
                    extern "C" fn one(x: f32) -> f32 {
                        let f: fn(f64) -> f64 = $single;
                        f(x as f64) as f32
                    }
                    extern "C" fn many(x: *mut f32, n: usize) {
                        // SAFETY: generated code passes so many lanes in its own frame.
                        let x = unsafe { std::slice::from_raw_parts_mut(x, n) };
                        for four in x.as_chunks_mut::<LANES>().0 {
                            *four = four.map(|x| ($single)(x as f64) as f32);
                        }
                    }
                    extern "C" fn double(x: f64) -> f64 {
                        let f: fn(f64) -> f64 = $double;
                        f(x)
                    }
                    Some([one as *const (), many as *const (), double as *const ()])
                })*
                _ => None,
            }
        };
    }
    table! {
        Exp => exp, f64::exp;
        Exp2 => |x: f64| exp(x * LN_2), f64::exp2;
        Log => log, f64::ln;
        Log2 => f64::log2, f64::log2;
        Expm1 => f64::exp_m1, f64::exp_m1;
        Log1p => f64::ln_1p, f64::ln_1p;
        Tanh => tanh, f64::tanh;
        Sin => f64::sin, |x| ir::special::unary_f64(Unary::Sin, x);
        Cos => f64::cos, |x| ir::special::unary_f64(Unary::Cos, x);
        Logistic => |x: f64| 1.0 / (1.0 + exp(-x)), |x| ir::special::unary_f64(Unary::Logistic, x);
    }
}

/// Computes `eˣ` within 10⁻¹², for the range of f32.
#[inline(always)]
fn exp(x: f64) -> f64 {
    // Adding it leaves a rounded number in the low bits.
    const MAGIC: f64 = 1.5 * (1u64 << 52) as f64;
    let x = if x < -150.0 { -150.0 } else { x };
    let x = if x > 150.0 { 150.0 } else { x };
    let shifted = x * LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = x - n * LN_2;
    let mut p = 1.0 / 3_628_800.0;
    for c in [362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        p = p * r + 1.0 / c;
    }
    p * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1f64.to_bits()))
}

/// Computes `ln x` within 10⁻¹², relative to the result.
#[inline(always)]
fn log(x: f64) -> f64 {
    const ROOT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    // x = 2ⁿ m, m between √½ and √2; ln m = 2 artanh s.
    let n = (x.to_bits().wrapping_sub(ROOT_HALF) as i64) >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((n as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 17.0;
    for c in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * z + 1.0 / c;
    }
    let y = n as f64 * LN_2 + 2.0 * s * p;
    let y = if x < f64::INFINITY { y } else { x };
    let y = if x > 0.0 { y } else { f64::NAN };
    if x == 0.0 { f64::NEG_INFINITY } else { y }
}

/// Computes `tanh x` within 10⁻¹¹, relative to the result.
#[inline(always)]
fn tanh(x: f64) -> f64 {
    let a = x.abs();
    let far = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    let z = x * x;
    let near = a * (1.0 + z * (-1.0 / 3.0 + z * (2.0 / 15.0)));
    (if a < 0.015 { near } else { far }).copysign(x)
}

impl Writer<'_> {
    /// Emits a call of a function of one number, if there is one.
    pub(super) fn function(&mut self, f: Unary, d: DType, x: Value) -> Option<Value> {
        let [one, _, double] = function_table(f)?;
        let (address, signature) = if d == DType::F64 { (double, 2) } else { (one, 1) };
        let address = self.b.ins().iconst(self.pointer, address as i64);
        let call = self.b.ins().call_indirect(self.signatures[signature], address, &[x]);
        Some(self.b.inst_results(call)[0])
    }

    /// Emits calls of a function on lanes.
    pub(super) fn functions(&mut self, f: Unary, d: DType, x: &[Value]) -> Option<Parts> {
        let [_, many, _] = function_table(f)?;
        if d == DType::F64 {
            return Some(self.lane_by_lane((d, d), x, |w, v| w.function(f, d, v).expect("there is one")));
        }
        for (i, &v) in x.iter().enumerate() {
            self.b.ins().stack_store(self.pointer, v, self.area, 16 * i as i32);
        }
        let n = self.b.ins().iconst(types::I64, (x.len() * LANES) as i64);
        self.call_area(many, n);
        let load = |i| self.b.ins().stack_load(self.pointer, types::F32X4, self.area, 16 * i);
        Some((0..x.len() as i32).map(load).collect())
    }
}
