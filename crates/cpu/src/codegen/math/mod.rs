//! Elementary functions as vector code on f32 and f64 lanes.
//!
//! Each function states its largest error over all 2³² inputs in units in the last place (ulp), as measured by
//! `examples/ulp_sweep.rs`. Special cases (NaN, infinities, signed zeros, overflow, subnormal inputs and results) are exact.
//! Polynomials interpolate at Chebyshev nodes or are those of Cephes.

mod double;
mod erf;
mod erf_table;
mod exp;
mod float;
mod gamma;
mod hyperbolic;
mod inverse;
mod log;
mod pow;
mod remainder;
mod trig;

pub(crate) use gamma::zeta;
pub(crate) use pow::pow;
pub(crate) use remainder::rem;

use super::asm::W;
use super::enc::{self, Enc};
use super::inst::{FmaKind, Rm, V};
use super::lower::Lower;
use float::Float;
use ir::{DType, Unary};

/// Estimates the number of instructions of a function.
pub(crate) fn instruction_count(op: Unary, d: DType) -> usize {
    match op {
        Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not => 1,
        Unary::Sqrt | Unary::Reciprocal | Unary::Rsqrt | Unary::Sign | Unary::IsFinite => 3,
        Unary::Lgamma | Unary::Digamma => 150,
        _ if d.size() == 8 => 40,
        Unary::Exp | Unary::Exp2 | Unary::Logistic => 18,
        Unary::Tanh | Unary::Expm1 => 24,
        Unary::Log | Unary::Log2 | Unary::Log10 | Unary::Log1p | Unary::Erf | Unary::Sin | Unary::Cos => 36,
        _ => 40,
    }
}

/// Emits a function of f32 lanes, if it has an inline form.
pub(crate) fn unary_f32(lo: &mut Lower<'_>, op: Unary, x: V) -> Option<V> {
    Some(match op {
        Unary::Exp => exp::exp(lo, x),
        Unary::Exp2 => exp::exp2(lo, x),
        Unary::Expm1 => exp::expm1(lo, x),
        Unary::Logistic => exp::logistic(lo, x),
        Unary::Tanh => exp::tanh(lo, x),
        Unary::Log => log::log(lo, x),
        Unary::Log2 => log::log2(lo, x),
        Unary::Log10 => pow::log10_f32(lo, x),
        Unary::Log1p => log::log1p(lo, x),
        Unary::Erf => erf::erf(lo, x),
        Unary::Erfc => erf::erfc(lo, x),
        Unary::ErfInv => erf::erf_inv(lo, x),
        Unary::Lgamma => gamma::lgamma(lo, x),
        Unary::Digamma => gamma::digamma(lo, x),
        _ => return dispatch_width(lo, false, op, x),
    })
}

/// Emits a function that is written once for both widths.
fn dispatch_width(lo: &mut Lower<'_>, wide: bool, op: Unary, x: V) -> Option<V> {
    Some(match op {
        Unary::Sin => trig::sin(lo, wide, x),
        Unary::Cos => trig::cos(lo, wide, x),
        Unary::Tan => trig::tan(lo, wide, x),
        Unary::Asin => Float::new(lo, wide).asin(x),
        Unary::Acos => Float::new(lo, wide).acos(x),
        Unary::Atan => Float::new(lo, wide).atan(x),
        Unary::Sinh => Float::new(lo, wide).sinh(x),
        Unary::Cosh => Float::new(lo, wide).cosh(x),
        Unary::Asinh => Float::new(lo, wide).asinh(x),
        Unary::Acosh => Float::new(lo, wide).acosh(x),
        Unary::Atanh => Float::new(lo, wide).atanh(x),
        _ => return None,
    })
}

/// Emits atan2 of lanes of either width.
pub(crate) fn atan2(lo: &mut Lower<'_>, wide: bool, y: V, x: V) -> V {
    Float::new(lo, wide).atan2(y, x)
}

/// Emits a function of f64 lanes, if it has an inline form.
pub(crate) fn unary_f64(lo: &mut Lower<'_>, op: Unary, x: V) -> Option<V> {
    match op {
        Unary::Erf => Some(erf::erf_f64(lo, x)),
        Unary::Erfc => Some(erf::erfc_f64(lo, x)),
        Unary::ErfInv => Some(erf::erf_inv_f64(lo, x)),
        Unary::Lgamma => Some(gamma::lgamma_f64(lo, x)),
        Unary::Digamma => Some(gamma::digamma_f64(lo, x)),
        Unary::Log10 => Some(pow::log10_f64(lo, x)),
        _ => double::unary(lo, op, x).or_else(|| dispatch_width(lo, true, op, x)),
    }
}

/// f32 instructions with constants as operands.
impl Lower<'_> {
    fn k(&mut self, x: f32) -> Rm {
        self.c32(x.to_bits())
    }

    /// Returns a constant as a first source.
    fn kr(&mut self, x: f32) -> V {
        self.r32(x.to_bits())
    }

    fn ps(&mut self, e: &'static Enc, a: V, b: impl Into<Rm>) -> V {
        let w: W = self.w32();
        self.v3(e, w, a, b)
    }

    fn add(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::ADDPS, a, b)
    }

    fn sub(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::SUBPS, a, b)
    }

    fn mul(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::MULPS, a, b)
    }

    fn div(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::DIVPS, a, b)
    }

    fn and(&mut self, a: V, bits: u32) -> V {
        let b = self.c32(bits);
        self.ps(&enc::PANDD, a, b)
    }

    fn or(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::PORD, a, b)
    }

    fn xor(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::PXORD, a, b)
    }

    fn abs(&mut self, a: V) -> V {
        self.and(a, 0x7fff_ffff)
    }

    /// Computes `a * b + c`.
    fn mad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.fma(false, a, b, c)
    }

    /// Computes `c - a * b`.
    fn nmad(&mut self, a: V, b: impl Into<Rm>, c: impl Into<Rm>) -> V {
        self.fma_kind(FmaKind::Neg, false, a, b, c)
    }

    /// Computes `min(max(x, low), high)` and keeps NaN, for which the instructions give their second source.
    fn clamp(&mut self, x: V, low: Option<f32>, high: Option<f32>) -> V {
        let mut x = x;
        if let Some(l) = low {
            let l = self.kr(l);
            x = self.ps(&enc::MAXPS, l, x);
        }
        if let Some(h) = high {
            let h = self.kr(h);
            x = self.ps(&enc::MINPS, h, x);
        }
        x
    }

    /// Evaluates a polynomial; the coefficient of the highest power comes first.
    fn poly(&mut self, x: V, coefficients: &[f32]) -> V {
        let wide: Vec<f64> = coefficients.iter().map(|&c| c as f64).collect();
        Float::new(self, false).poly(x, &wide)
    }

    fn shl(&mut self, x: V, n: u8) -> V {
        let w = self.w32();
        self.v2i(&enc::PSLLD_I, w, x, n)
    }

    fn sar(&mut self, x: V, n: u8) -> V {
        let w = self.w32();
        self.v2i(&enc::PSRAD_I, w, x, n)
    }

    fn iadd(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::PADDD, a, b)
    }

    fn isub(&mut self, a: V, b: impl Into<Rm>) -> V {
        self.ps(&enc::PSUBD, a, b)
    }

    /// Puts the sign of `of` onto `x`, whose sign must be clear or already equal.
    fn with_sign(&mut self, x: V, of: V) -> V {
        let s = self.and(of, 0x8000_0000);
        self.or(x, s)
    }

    fn choose(&mut self, m: V, a: impl Into<Rm>, b: V) -> V {
        self.select(DType::F32, m, a, b)
    }
}
