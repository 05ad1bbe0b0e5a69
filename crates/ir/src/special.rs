//! Special functions in f64, used by `interp` and as the reference for generated kernels.

use crate::scalar::Unary;

/// The f64 value of a unary function. `Not`, `IsFinite` and `PopulationCount` are not supported and give NaN.
pub fn unary_f64(op: Unary, x: f64) -> f64 {
    use Unary::*;
    match op {
        Neg => -x,
        Abs => x.abs(),
        Sign => {
            if x.is_nan() || x == 0.0 {
                x
            } else {
                x.signum()
            }
        }
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round_ties_even(),
        Trunc => x.trunc(),
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Reciprocal => 1.0 / x,
        // The argument reduction of some system libraries loses digits for huge numbers near multiples of π/2.
        Sin if x.abs() > 1e8 => libm::sin(x),
        Cos if x.abs() > 1e8 => libm::cos(x),
        Tan if x.abs() > 1e8 => libm::tan(x),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => libm::asinh(x),
        // The formula for large numbers ignores the sign.
        Acosh if x < 1.0 => f64::NAN,
        Acosh => libm::acosh(x),
        Atanh => libm::atanh(x),
        Erf => libm::erf(x),
        Erfc => libm::erfc(x),
        ErfInv => erf_inv(x),
        Lgamma => lgamma(x),
        Digamma => digamma(x),
        Logistic => logistic(x),
        Not | IsFinite | PopulationCount => f64::NAN,
    }
}

/// 1 / (1 + e⁻ˣ) without overflow.
pub fn logistic(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// log |Γ(x)|; infinite at the poles.
pub fn lgamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return f64::INFINITY;
    }
    if x >= 0.0 || x < -40.0 || x == x.floor() || x.is_nan() {
        return libm::lgamma(x);
    }
    // Γ(x) = Γ(y) / (x (x + 1) .. (x + n)) with y = x + n + 1 between 1 and 2. The product is computed in two parts; reflection
    // would cancel where |Γ(x)| is near 1.
    let n = (-x).ceil();
    let (mut high, mut low) = (x, 0.0);
    for i in 1..=n as u32 {
        let factor = x + f64::from(i);
        let product = high * factor;
        low = high.mul_add(factor, -product) + low * factor;
        high = product;
    }
    libm::lgamma(x + (n + 1.0)) - (high.abs().ln() + low / high)
}

/// (ψ(½ + s) - log s)·s² as a polynomial in 1 / s² for s ≥ 3/2, highest power first.
pub const DIGAMMA: [f64; 20] = [
    -307.34388875129724,
    1404.954650811736,
    -2986.691163832886,
    3923.372080694808,
    -3570.575892566398,
    2393.6931217774486,
    -1228.1924005228611,
    495.5232772471493,
    -160.75468237309855,
    42.91667055445382,
    -9.72394245274783,
    1.9630534473373182,
    -0.3822435064720401,
    0.08059466234580169,
    -0.020991118842849484,
    0.007558831562102762,
    -0.0041340832263837834,
    0.0038442457808914063,
    -0.007291666665851241,
    0.04166666666666621,
];

/// ψ(x) = Γ'(x) / Γ(x); NaN at the poles, but infinite at ±0, where the sign determines the side.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY.copysign(-x);
    }
    if x.is_nan() || x == f64::NEG_INFINITY || (x < 0.0 && x == x.floor()) {
        return f64::NAN;
    }
    if x < 0.0 {
        // Reflection: ψ(x) = ψ(1 - x) - π / tan(πx). The distance to the nearest pole is exact.
        let r = x - x.round_ties_even();
        let pi = std::f64::consts::PI;
        let angle = pi * r;
        let tan = angle.tan();
        let slope = pi / tan;
        let near = digamma(1.0 - x) - slope;
        if slope.is_infinite() {
            return near;
        }
        // The rounding errors of π, the angle and the quotient: the difference may be much smaller than its operands.
        let pi_rest = 1.2246467991473532e-16;
        let rest = pi.mul_add(r, -angle) + pi_rest * r;
        let left = (-slope).mul_add(tan, pi) + pi_rest - slope * (rest * (1.0 + tan * tan));
        return near - left / tan;
    }
    // ψ(½ + s) = log s + w·P(w) with w = 1 / s², and ψ(x) = ψ(x + 2) - 1 / (x + 1) - 1 / x.
    let up = if x < 2.0 { x + 1.5 } else { x - 0.5 };
    let w = 1.0 / (up * up);
    let y = up.ln() + w * DIGAMMA.iter().fold(0.0, |p, c| p * w + c);
    if x < 2.0 { y - 1.0 / (x + 1.0) - 1.0 / x } else { y }
}

/// Hurwitz's ζ(s, q) = Σ (q + n)⁻ˢ for s > 1, by the Euler–Maclaurin formula.
pub fn zeta(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if s == 1.0 {
        return f64::INFINITY;
    }
    if q == f64::INFINITY {
        return 0.0;
    }
    if q <= 0.0 {
        if q == f64::NEG_INFINITY || s != s.floor() {
            return f64::NAN;
        }
        if q == q.floor() {
            return f64::INFINITY;
        }
        // The derivatives of lgamma and digamma use reflection here; the recurrence would need |q| steps.
        if s == 2.0 || s == 3.0 {
            let angle = std::f64::consts::PI * (q - q.round_ties_even());
            let over = std::f64::consts::PI / angle.sin();
            // Exactly 0 halfway between poles.
            let cos = (std::f64::consts::PI * (0.5 - (q - q.round_ties_even()).abs())).sin();
            return match s == 2.0 {
                true => over * over - zeta(s, 1.0 - q),
                false => over * over * over * cos + zeta(s, 1.0 - q),
            };
        }
        if q < -10_000.0 {
            return f64::NAN;
        }
    }
    let (mut sum, mut a) = (0.0, q);
    while a < 12.0 {
        sum += a.powf(-s);
        a += 1.0;
    }
    let w = a.powf(-s);
    // Not w·a, which underflows earlier.
    sum += a.powf(1.0 - s) / (s - 1.0) + 0.5 * w;
    // B₂ₖ / (2k)! times the rising factorial of s.
    const B: [f64; 10] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30240.0,
        -1.0 / 1209600.0,
        1.0 / 47900160.0,
        -691.0 / 1307674368000.0,
        1.0 / 74724249600.0,
        -3617.0 / 10670622842880000.0,
        43867.0 / 5109094217170944000.0,
        -174611.0 / 802857662698291200000.0,
    ];
    let (mut factor, mut power, mut k) = (s, w / a, 0.0);
    for b in B {
        let term = b * factor * power;
        sum += term;
        if term.abs() < 1e-17 * sum.abs() {
            break;
        }
        factor *= (s + 2.0 * k + 1.0) * (s + 2.0 * k + 2.0);
        power /= a * a;
        k += 1.0;
    }
    sum
}

/// The inverse of `erf` on (-1, 1): a rational initial value, then Newton steps.
pub fn erf_inv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return y * f64::INFINITY;
    }
    if y == 0.0 {
        return y;
    }
    // Winitzki's approximation, with an error below 2e-3.
    let a = 0.147;
    let ln = (-y * y).ln_1p();
    let t = 2.0 / (std::f64::consts::PI * a) + ln / 2.0;
    let mut x = ((t * t - ln / a).sqrt() - t).sqrt().copysign(y);
    for _ in 0..4 {
        // The residual with erfc in the tails, where erf has lost its precision.
        let err = if y.abs() > 0.5 { y.signum() * ((1.0 - y.abs()) - libm::erfc(x.abs())) } else { libm::erf(x) - y };
        let slope = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
        let step = err / slope;
        // Halley's correction: erf'' / erf' = -2x.
        x -= step / (1.0 + x * step);
    }
    x
}

/// The power of two that scales numbers of this magnitude to near 1 by division, without rounding; 1 for 0, NaN
/// and infinities.
pub fn unit_scale(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return 1.0;
    }
    libm::ldexp(1.0, libm::ilogb(x).clamp(-1000, 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-13 * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn known_values() {
        close(digamma(1.0), -0.577_215_664_901_532_9);
        close(digamma(0.5), -1.963_510_026_021_423_5);
        close(digamma(-0.5), 0.036_489_973_978_576_52);
        close(zeta(2.0, 1.0), std::f64::consts::PI.powi(2) / 6.0);
        close(zeta(3.0, 2.5), 0.118_102_025_820_863_68);
        close(erf_inv(0.5), 0.476_936_276_204_469_9);
        for y in [-0.999_999, -0.9, -0.3, 1e-9, 0.2, 0.7, 0.99, 0.999_999_9] {
            close(libm::erf(erf_inv(y)), y);
        }
        assert!(erf_inv(1.0).is_infinite());
        assert!(digamma(-2.0).is_nan());
        assert!(zeta(1.0, 3.0).is_infinite());
    }
}
